"""A labeller that is not of the package, as docs/extending/labeller.md has it, in a module that can be imported."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.labellers import Labeller
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import PureDP, Repeated

Array = NDArray[Any]


class Laplace(Labeller):
    """Adds discrete Laplace noise to the votes for class 1."""

    name = "laplace"
    several_classes = False

    def __init__(
        self, *, teachers: int, epsilon: Any, delta: Any, answers: int, unsafe_noise: Noise | None = None
    ) -> None:
        def event(scale: Any) -> Repeated:
            return Repeated(PureDP(1 / scale), answers)

        self.scale: Fraction = calibrate.noise(event, epsilon=epsilon, delta=delta)
        super().__init__(
            teachers=teachers, classes=2, event=event(self.scale), answers=answers, unsafe_noise=unsafe_noise
        )

    def _label(self, counts: Array) -> Array:
        return np.array([self._draw(int(ones)) for ones in counts[:, 1]], dtype=np.int64)

    def _draw(self, ones: int) -> int:
        lacks = (self.teachers - 2 * ones) // 2 + 1
        return int(self._noise.laplace_cell(self.scale, [lacks]))


class Other(Laplace):
    """The same under another name."""
