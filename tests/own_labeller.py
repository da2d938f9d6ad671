"""A labeller as a user would write it, and broken copies that the conformance test must reject."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.labellers import Labeller
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import PureDP, Repeated


@lru_cache(maxsize=64)
def least_scale(epsilon: Fraction, delta: Fraction, answers: int) -> Fraction:
    """The least noise for which so many answers fit; kept, as exact laws make a labeller for every path."""
    return calibrate.noise(lambda scale: Repeated(PureDP(1 / scale), answers), epsilon=epsilon, delta=delta)


class Laplace(Labeller):
    """The majority of two classes after discrete Laplace noise on the votes for 1."""

    name = "laplace"
    several_classes = False

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: float | Fraction,
        delta: float | Fraction,
        answers: int,
        least: float = 0.0,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.scale = max(Fraction(least), least_scale(Fraction(epsilon), Fraction(delta), answers))
        event = Repeated(PureDP(1 / self.scale), answers)
        super().__init__(teachers=teachers, classes=2, event=event, answers=answers, unsafe_noise=unsafe_noise)

    def _label(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self._draw(int(ones)) for ones in counts[:, 1]], dtype=np.int64)

    def _draw(self, ones: int) -> int:
        """1 if the noise is at least what a majority lacks."""
        return int(self._noise.laplace_cell(self.scale, [(self.teachers - 2 * ones) // 2 + 1]))

    def accuracy(self, votes: Any, truth: Any) -> float:
        lacks = (self.teachers - 2 * self._read(votes)[:, 1]) // 2 + 1
        rate = 1 / float(self.scale)
        tail = np.exp(-np.where(lacks >= 1, lacks, 1 - lacks) * rate) / (1 + np.exp(-rate))
        ones = np.where(lacks >= 1, tail, 1 - tail)
        return float(np.where(np.asarray(truth) == 1, ones, 1 - ones).mean())


class HalfTheNoise(Laplace):
    """Half of the noise that the event accounts for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scale /= 2


class Cached(Laplace):
    """A repeated question is answered from a cache, and does not count."""

    _last: Any = None

    def label(self, votes: Any) -> Any:
        if self._last is not None and np.array_equal(self._last[0], votes):
            return self._last[1]
        self._last = votes, super().label(votes)
        return self._last[1]


class OneMore(Laplace):
    """The last answer does not count."""

    def label(self, votes: Any) -> Any:
        labels = super().label(votes)
        if self.closed and not hasattr(self, "_given"):
            self._given = True
            self.asked -= 1
        return labels


class Remembers(Laplace):
    """Declares that it is stateless, and adds noise after a close vote."""

    _close = False

    def _draw(self, ones: int) -> int:
        scale = 2 * self.scale if self._close else self.scale
        self._close = abs(2 * ones - self.teachers) <= 1
        return int(self._noise.laplace_cell(scale, [(self.teachers - 2 * ones) // 2 + 1]))


class OneNoise(Laplace):
    """One draw of noise for all questions of a batch."""

    def _label(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        lacks = (self.teachers - 2 * counts[:, 1]) // 2 + 1
        cuts = sorted(set(lacks.tolist()))
        cell = self._noise.laplace_cell(self.scale, cuts)
        return np.array([int(cell > cuts.index(each)) for each in lacks.tolist()], dtype=np.int64)


class Overspends(Laplace):
    """Makes noise for twice the epsilon, and an event that says so."""

    def __init__(self, *, epsilon: Any, **options: Any) -> None:
        super().__init__(epsilon=2 * epsilon, **options)


class StartsAgain(Laplace):
    """Forgets at `resume` how many answers were given."""

    def resume(self, state: Mapping[str, int | bool]) -> None:
        super().resume({**state, "asked": 0})


class Copied(Laplace):
    """Can be copied, and so spends its budget twice."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg.__newobj__, (type(self),), {k: v for k, v in vars(self).items() if k != "_guard"}  # type: ignore[attr-defined]


class OwnRandomness(Laplace):
    """Draws from numpy, and not from the noise that it is given."""

    def _draw(self, ones: int) -> int:
        own = np.random.default_rng()  # steady: a labeller that draws for itself is refused, whatever it draws
        return int(2 * (ones + own.laplace(scale=float(self.scale))) > self.teachers)


class Impostor(Laplace):
    """Has the name of a labeller of this package: plans and reports would confuse the two."""

    name = "greedy"


class Misdeclared(Laplace):
    """Says that votes decide when it closes, and that it is stateless."""

    closes_early = True


class Silent(Laplace):
    """Returns a label that is none of the classes, without declaring that it abstains."""

    def _draw(self, ones: int) -> int:
        return -1


TWINS: dict[type[Laplace], str] = {
    HalfTheNoise: "failed   rows",
    Cached: "failed   count",
    OneMore: "failed   count",
    Remembers: "failed   stateless",
    OneNoise: "failed   rows",
    Overspends: "failed   budget",
    StartsAgain: "failed   resume",
    Copied: "failed   copies",
    OwnRandomness: "failed   rows",
    Impostor: "failed   declarations: name must not be 'greedy', which is the name of Greedy of this package",
    Misdeclared: "failed   declarations",
    Silent: "failed   count",
}
