"""Private logistic regression with and without what makes it independent of the scales of columns.

ε = 1, δ = 10⁻⁶. Accuracy is the mean over random splits, on at most 6,000 test rows, with its standard error. The row
norm is that of the longest row of the whole set, and columns of dense sets are scaled to [0, 1] by their range over all
rows, unless they are called raw; both are taken to be public.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.private_linear_data import Integers, longest, ranges, rows_of
from experiments.table import Table
from reticent.learners import PrivateLogisticRegression

Given = Literal["row norm", "row norm × 10", "bounds", "1,000 public rows"]

EPSILON, DELTA = 1, 1e-6
SPLITS, TESTED, PUBLIC = 5, 6000, 1000
MEASURED = Path(__file__).with_name("private_linear.json")


class Cell(NamedTuple):
    """One line of the table.

    Parameters
    ----------
    data : str
        The data set.
    rows : int
        The number of training rows.
    least : float or None, default None
        The accuracy that is aimed at; None for "not below the plain descent by more than .004".
    given : str, default "row norm"
        What is known about the scale of rows.
    """

    data: str
    rows: int
    least: float | None = None
    given: Given = "row norm"


CELLS = (
    Cell("elec2", 500, 0.67),
    Cell("elec2", 5000, 0.745),
    Cell("covtype", 5000, 0.735),
    Cell("covtype", 50_000, 0.755),
    Cell("covtype, 7 classes", 5000, 0.675),
    Cell("covtype, raw", 5000),
    Cell("covtype, raw", 5000, 0.735, "bounds"),
    Cell("covtype, raw", 5000, None, "1,000 public rows"),
    Cell("synth", 5000, 0.83),
    Cell("normal", 5000),
    Cell("donors", 5000, 0.965),
    Cell("skin_nonskin", 500, 0.90),
    Cell("kdd99", 5000, 0.956),
    Cell("mushrooms", 5000, 0.978),
    Cell("a9a", 5000),
    Cell("bank_additional", 5000),
    Cell("phishing", 5000),
    Cell("phishing", 5000, 0.92, "row norm × 10"),
    Cell("enron_spam", 1500, 0.90, "1,000 public rows"),
    Cell("agnews_sports", 5000, None, "1,000 public rows"),
)


@dataclass(frozen=True)
class Measured:
    """What is kept of a cell: one accuracy per split, and seconds of CPU per fit."""

    data: str
    rows: int
    given: str
    without: list[float]  # the plain descent
    accuracies: list[float]  # with all that is given
    seconds: list[float]  # of both


def tables() -> list[Table]:
    """Accuracy of the plain descent and of the learner, and whether it is what was aimed at."""
    columns = ("data", "rows", "given", "rounds=0", 'rounds="auto"', "aim", "reached", "CPU seconds per fit")
    return [Table("Private logistic regression, ε = 1", columns, tuple(_line(*pair) for pair in _pairs()))]


def kept() -> list[Measured]:
    """What `measure` has kept."""
    return [Measured(**each) for each in json.loads(MEASURED.read_text(encoding="utf-8"))["results"]]


def _pairs() -> list[tuple[Cell, Measured]]:
    found = {(each.data, each.rows, each.given): each for each in kept()}
    return [(cell, found[cell.data, cell.rows, cell.given]) for cell in CELLS]


def reached(cell: Cell, found: Measured) -> bool:
    """Whether the accuracy is what the cell aims at."""
    least = np.mean(found.without) - 0.004 if cell.least is None else cell.least
    return bool(np.mean(found.accuracies) >= least)


def _line(cell: Cell, found: Measured) -> tuple[str, ...]:
    return (
        cell.data,
        f"{cell.rows:,}",
        cell.given,
        _shown(found.without),
        _shown(found.accuracies),
        "no loss above .004" if cell.least is None else f"≥ {cell.least:.3f}",
        "yes" if reached(cell, found) else "no",
        f"{found.seconds[0]:.2f} → {found.seconds[1]:.2f}",
    )


def _shown(accuracies: list[float]) -> str:
    return f"{np.mean(accuracies):.3f} ± {np.std(accuracies, ddof=1) / math.sqrt(len(accuracies)):.3f}"


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep accuracies in `private_linear.json` beside this module."""
    found = [asdict(measured(cell, *rows_of(cell.data, folder))) for cell in CELLS]
    lines = ",\n".join(json.dumps(each) for each in found)
    text = '{"made by": "reticent experiment private_linear --data DIR",\n'
    MEASURED.write_text(text + f'"results": [\n{lines}\n]}}\n', encoding="utf-8")


def measured(cell: Cell, X: Any, y: Integers, *, splits: int = SPLITS) -> Measured:
    """Fit the plain descent on a row norm, and the learner on what is given, on the same random splits."""
    norm = longest(X) * (10 if cell.given == "row norm × 10" else 1)
    plain: list[float] = []
    scores: list[float] = []
    seconds = np.zeros(2)
    tested = min(TESTED, len(y) - cell.rows - (PUBLIC if cell.given == "1,000 public rows" else 0))
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(y))
        test, public, train = order[:tested], order[tested : tested + PUBLIC], order[len(y) - cell.rows :]
        known: dict[str, Any] = {"row_norm": norm}
        if cell.given == "bounds":
            known = {"bounds": ranges(X)}
        if cell.given == "1,000 public rows":
            known = {"public": X[public]}
        for at, (found, more) in enumerate(((plain, {"row_norm": norm, "rounds": 0}), (scores, known))):
            model = PrivateLogisticRegression(epsilon=EPSILON, delta=DELTA, **more)
            before = time.process_time()
            model.fit(X[train], y[train])
            seconds[at] += time.process_time() - before
            found.append(round(float(model.score(X[test], y[test])), 5))
    each = [round(float(value) / splits, 3) for value in seconds]
    return Measured(cell.data, cell.rows, cell.given, plain, scores, each)
