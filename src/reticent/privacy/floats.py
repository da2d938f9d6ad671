"""Floating-point numbers in upper bounds: the array type, the rounding unit, and conversion from above."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from reticent.exact import upward

Floats = NDArray[np.float64]
ROUNDING = 2.0**-53  # the largest relative error of one floating-point operation


def upward_or_infinite(value: Fraction) -> float:
    """Return the least float that is not below `value`; infinity from 10^300 on."""
    return upward(value) if value < Fraction(10) ** 300 else math.inf


def downward(value: Fraction) -> float:
    """Return the greatest float that is not above `value`; values above 10^100 count as 10^100, to avoid overflow."""
    return -upward(-min(value, Fraction(10) ** 100))
