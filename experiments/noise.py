"""How many bits a draw of noise needs, and what cutting them off would do to its law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from experiments.table import Table
from reticent.noise import tables as noise_tables
from reticent.noise.bits import WORD
from reticent.noise.tables import GUIDE, OPEN


def tables() -> list[Table]:
    """The tables of the page on noise."""
    scales = ("1/2", "1", "10", "100", "1000")
    named = [(f"discrete Gaussian, σ = {scale}", noise_tables.gaussian(*_ratio(scale))) for scale in scales]
    named += [(f"discrete Laplace, scale {scale}", noise_tables.laplace(*_ratio(scale))) for scale in scales[:4]]
    return [_distances(named), _bits(named)]


Named = list[tuple[str, noise_tables.Table]]


def _distances(named: Named) -> Table:
    return Table(
        "Total variation distance to the law, were the random number cut off (a certified upper bound), and as drawn",
        ("law", "after 64 bits", "after 128 bits", "as drawn"),
        tuple((name, *(_power(table.total_variation(bits)) for bits in (64, 128)), "0") for name, table in named),
    )


def _bits(named: Named) -> Table:
    rows = []
    for name, table in named:
        low, high, _ = table.cuts(WORD)
        tie = Fraction(sum(above - below for below, above in zip(low, high, strict=True)), 1 << WORD)
        guided = int(np.count_nonzero(table.guide == OPEN)) / (1 << GUIDE)
        rows.append((name, str(len(low) + 1), f"{GUIDE + guided * WORD:.2f}", f"{guided:.4f}", _power(tie)))
    return Table(
        "Random bits taken for a draw of a vector, and how often more are needed",
        ("law", "cells", "bits a draw", "share beyond 16 bits", "share beyond 64 bits, at most"),
        tuple(rows),
    )


def _ratio(scale: str) -> tuple[int, int]:
    return Fraction(scale).as_integer_ratio()


def _power(bound: Fraction) -> str:
    """A power of two that is not below the bound."""
    return f"2^{math.ceil(10 * math.log2(bound)) / 10:.1f}".replace("-", "−")
