"""What answers by vote cost: the printed conversion, the noisy count, the bit; and answering only when sure."""

from __future__ import annotations

import math
from fractions import Fraction

from experiments.table import Table
from reticent.mechanisms.votes import ConfidentGNMax
from reticent.privacy import accounting
from reticent.privacy.events import DiscreteGaussian, GaussianBit, Repeated

DELTA = Fraction(1, 10**6)
VOTERS = 2000


def tables() -> list[Table]:
    """The price of binary answers, and that of many classes with and without a test for confidence."""
    return [_binary(), _classes()]


def _binary() -> Table:
    rows = []
    for sigma, answers in ((50, 100), (100, 1000), (200, 1000), (500, 10000)):
        printed = math.sqrt(2 * answers * math.log(1 / DELTA)) / sigma + answers / (2 * sigma**2)
        count = accounting.epsilon(Repeated(DiscreteGaussian(Fraction(sigma)), answers), delta=DELTA)
        bit = Repeated(GaussianBit(Fraction(sigma), VOTERS), answers)
        rows.append((str(sigma), str(answers), f"{printed:.3f}", f"{count:.3f}",
                     f"{accounting.epsilon(bit, delta=DELTA):.3f}"))
    columns = ("σ", "answers", "printed conversion", "noisy count", "only the bit")
    return Table(f"ε at δ = 1e-6 for answers by noisy majority of {VOTERS} voters", columns, tuple(rows))


def _classes() -> Table:
    rows = []
    for queries, answers in ((1000, 1000), (1000, 300), (1000, 100)):
        plain = Repeated(DiscreteGaussian(Fraction(100), squared_sensitivity=2), queries)
        confident = ConfidentGNMax(
            threshold=VOTERS // 2, sigma_threshold=300, sigma_answer=100, queries=queries, answers=answers
        ).event
        rows.append((str(queries), str(answers), f"{accounting.epsilon(plain, delta=DELTA):.3f}",
                     f"{accounting.epsilon(confident, delta=DELTA):.3f}"))
    columns = ("queries", "answered at most", "GNMax, all answered", "Confident-GNMax")
    return Table("ε at δ = 1e-6 for answers out of several classes, σ = 100 an answer and 300 a test", columns,
                 tuple(rows))
