"""Our draws and OpenDP's follow the same law."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from goodness import ACCEPT, REJECT, same_law
from numpy.typing import NDArray

from reticent.noise import Noise, system

SIZE = 40_000
Draw = Callable[[Noise, Fraction], NDArray[np.int64]]


def theirs(law: str, scale: float) -> NDArray[np.int64]:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "gaussian":
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    else:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=scale)
    return np.array(measurement([0] * SIZE), dtype=np.int64)


def ours(law: str, scale: Fraction) -> NDArray[np.int64]:
    draws: NDArray[np.int64] = getattr(system, f"discrete_{law}")(scale, 5 * SIZE)
    return draws


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(40), Fraction(5000)])
def test_the_same_law_as_opendp(law: str, scale: Fraction) -> None:
    reference = theirs(law, float(scale))
    reach = int(3 * scale) + 3
    edges = range(-reach, reach + 1, max(1, int(scale) // 4))
    assert same_law(ours(law, scale), reference, edges) > ACCEPT
    if scale > 1:
        assert same_law(ours(law, scale * Fraction(7, 10)), reference, edges) < REJECT
        cut_off = ours(law, scale)
        assert same_law(cut_off[np.abs(cut_off) <= 2 * scale], reference, edges) < REJECT
