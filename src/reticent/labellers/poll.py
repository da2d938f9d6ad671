"""Ask a few teachers in secret: the price of an answer does not grow with their number."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from reticent.exact import integer, rational
from reticent.labellers.table import MOST_TEACHERS, ONE, VoteTable, check_order, excess_moments

_ERROR = 1 << 16  # of an entry, in units of 2^-62: three times the largest that exact sums found, at a poll of 9999


def poll_table(teachers: int, *, poll: int = 7, flip: object = 0.005) -> VoteTable:
    """The table of a poll: `poll` teachers drawn with replacement, and the answer of most of them, rarely a random one.

    With probability `flip` the answer is a fair coin; else it is the majority of the poll, an odd number of teachers.
    """
    count = integer(teachers, "teachers", least=1, most=MOST_TEACHERS)
    return _table(count, *check_poll(poll, flip))


@lru_cache(maxsize=8)
def _table(count: int, size: int, eta: Fraction) -> VoteTable:
    votes = np.arange(count + 1)
    most = binom.sf(size // 2, size, votes / count)
    raw = np.rint((float(eta) / 2 + (1 - float(eta)) * most) * float(ONE)).astype(np.int64)
    upper = np.clip(raw[(count + 1) // 2 :], ONE // 2, ONE - 1)
    if count % 2 == 0:
        upper[0] = ONE // 2
    upper = np.maximum.accumulate(upper)
    return VoteTable(np.concatenate([ONE - upper[::-1], upper[1 - count % 2 :]]))


def poll_price(teachers: int, *, poll: int, flip: object, order: object) -> Fraction:
    """A bound on the Rényi divergence of an answer by poll, which is drawn exactly and not from its table.

    The table is computed in floating point, so neighbouring entries are moved apart by more than it was ever found to
    be wrong by: that only adds to divergences.
    """
    size, eta = check_poll(poll, flip)
    entries, alpha = poll_table(teachers, poll=size, flip=eta).entries, check_order(order)
    low, high = entries[:-1] - _ERROR, entries[1:] + _ERROR
    if int(low.min()) <= 0:
        raise ValueError(f"flip must be at least 1e-13, got {flip}")
    worst = float(excess_moments(low, high, alpha).max())
    if not math.isfinite(worst):
        raise ValueError(
            f"flip={float(eta):g} costs more than can be said for a poll of {size} of {teachers} teachers: take a "
            "larger flip, more teachers, or a larger epsilon"
        )
    return Fraction(math.log1p(worst) / (alpha - 1) * (1 + 1e-12))


def check_poll(poll: object, flip: object) -> tuple[int, Fraction]:
    """The size of a poll, an odd number, and the chance of a random answer."""
    size = integer(poll, "poll", least=1, most=9999)
    if size % 2 == 0:
        raise ValueError(f"poll must be odd, so that it has a majority, got {size}")
    eta = rational(flip, "flip")
    if not 0 < eta <= 1:
        raise ValueError(f"flip must be in (0, 1], got {flip}: without it an answer can rule a vote out for certain")
    return size, eta
