"""How many rows a private rectangle takes: side by side, by a partition, and by the printed bound; and how it does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from experiments.table import Table
from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.concepts import Rectangles
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.rectangles import RectangleLearner
from reticent.plan.rectangles import printed_rectangle_rows
from reticent.promises import rows_needed

ERROR, FAILURE, DELTA = 0.1, 0.05, 1e-6


def tables() -> list[Table]:
    """The tables of the page on rectangles."""
    return [_rows(), _shares(), _laws(), _errors()]


def _rows() -> Table:
    rows = []
    for dimensions, bits in ((1, 16), (2, 16), (2, 64), (2, 1000), (5, 16), (10, 16)):
        sides = [_required(dimensions, bits, delta) for delta in (0, DELTA)]
        printed = printed_rectangle_rows(
            ERROR, failure=FAILURE, epsilon=1, delta=DELTA, dimensions=dimensions, bits=bits
        )
        whole = ExponentialLearner(Rectangles(dimensions, bits), epsilon=1)
        generic = rows_needed(whole.n_required, ERROR, realizable=True)
        partition = _required(dimensions, bits, DELTA, method="partition")
        numbers = (*sides, generic, partition)
        rows.append((str(dimensions), str(bits), *(f"{number:,}" for number in numbers), f"{printed:.1e}"))
    return Table(
        f"Rows for an error of {ERROR} (ε = 1, δ = 10⁻⁶, β = {FAILURE})",
        (
            "dimensions",
            "bits",
            "sides, δ = 0",
            "sides",
            "all rectangles, δ = 0 (too many to list)",
            "partition",
            "printed, constant 1",
        ),
        tuple(rows),
    )


def _required(dimensions: int, bits: int, delta: float, **more: Any) -> int:
    learner = RectangleLearner(bits=bits, epsilon=1, delta=delta, failure=FAILURE, **more)
    return learner.n_required(ERROR, dimensions=dimensions)


def _shares() -> Table:
    rows = []
    for dimensions in (1, 2, 5, 10, 50):
        search = RectangleLearner(bits=16, epsilon=1, delta=DELTA).side_search(2 * dimensions, Fraction(1, 20))
        own = float(search.event.epsilon)
        rows.append((str(dimensions), f"{1 / (2 * dimensions):.4f}", f"{own:.4f}", str(search.cut)))
    return Table(
        "The ε of one side if all together have ε = 1, δ = 10⁻⁶, and the rows that a side may cut off (16 bits)",
        ("dimensions", "basic composition", "as used", "rows"),
        tuple(rows),
    )


def _laws() -> Table:
    pairs: list[tuple[str, int, list[list[int]], list[int], list[int]]] = [
        ("one column of 2 bits, the only positive row turns negative", 2, [[1]], [1], [0]),
        ("two columns of 1 bit, the only positive row turns negative", 1, [[0, 1]], [1], [0]),
        ("two columns of 1 bit, one of three positive rows turns negative", 1, [[0, 1], [0, 1], [1, 1]], [1, 1, 1],
         [1, 1, 0]),
    ]
    rows = []
    for name, bits, X, first, second in pairs:
        learner = RectangleLearner(bits=bits, epsilon=4, failure=0.9)
        divergence = exact(_law(learner, X, first), _law(learner, X, second))
        reached = [share for share in range(100) if divergence.delta(Fraction(4 * share, 100))[0] > 0]
        rows.append((name, "0" if divergence.delta(4)[1] < 1e-60 else "more than 0", f"{max(reached, default=0)} %"))
    return Table(
        "Exact laws of the whole learner on neighbours, ε = 4, δ = 0",
        ("neighbours", "exact δ at ε", "share of ε below which δ is positive"),
        tuple(rows),
    )


def _law(learner: RectangleLearner, X: list[list[int]], y: list[int]) -> Law:
    return law(lambda noise: learner.fit_with_noise(np.array(X), np.array(y), noise).hypothesis_)


def _errors() -> Table:
    rows = []
    generator = np.random.default_rng(0)
    learner = RectangleLearner(bits=16, epsilon=1, delta=DELTA, unsafe_seed=0)
    required = learner.n_required(ERROR, dimensions=2)
    for share in (0.02, 0.05, 0.1, 0.2, 0.5, 1):
        errors = []
        for seed in range(20):
            X = generator.integers(0, 1 << 16, size=(int(share * required), 2))
            y = ((X >= 10_000) & (X < 60_000)).all(axis=1)
            found = learner.set_params(unsafe_seed=seed).fit(X, y).hypothesis_
            sides = [max(0, min(high, 59_999) - low + 1) for low, high in zip(found.low, found.high, strict=True)]
            errors.append((50_000**2 - sides[0] * sides[1]) / 2**32)
        rows.append((f"{int(share * required):,}", f"{np.median(errors):.3f}", f"{max(errors):.3f}"))
    return Table(
        f"Error of the sides on a square, 20 runs ({required:,} rows promise {ERROR}; ε = 1, δ = 10⁻⁶, 16 bits)",
        ("rows", "median error", "greatest error"),
        tuple(rows),
    )
