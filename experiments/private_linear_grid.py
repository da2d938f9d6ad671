"""The private linear model against its plain descent on fifteen data sets, two sizes and four values of ε.

δ = 10⁻⁶, and all else as in `private_linear`. A cell is lost if accuracy falls by more than .004 and two standard
errors of the difference, or AUC by more than .02 and two standard errors.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from experiments.private_linear_data import Integers, longest, rows_of
from experiments.table import Table
from reticent.learners import PrivateLogisticRegression

DATA = (
    "elec2", "covtype", "covtype, raw", "synth", "donors", "skin_nonskin", "bank_additional", "phishing",
    "nycflights13", "a9a", "a9a, 1 % positive", "flights3m", "w8a", "kdd99", "mushrooms",
)  # fmt: skip
SPLITS = {500: 5, 5000: 3}  # by the number of rows
EPSILONS, DELTA, TESTED = (0.5, 1, 2, 8), 1e-6, 6000
ACCURACY, AUC = 0.004, 0.02  # losses that are not counted
MEASURED = Path(__file__).with_name("private_linear_grid.json")


@dataclass(frozen=True)
class Measured:
    """What is kept of a cell: accuracy and AUC of each split, without and with rounds."""

    data: str
    rows: int
    epsilon: float
    plain: list[tuple[float, float]]
    auto: list[tuple[float, float]]


def tables() -> list[Table]:
    """One line per data set and size: accuracy and AUC without and with rounds, at each ε."""
    found = kept()
    cells = {(each.data, each.rows, each.epsilon): each for each in found}
    lines = []
    for data, rows in dict.fromkeys((each.data, each.rows) for each in found):
        shown = [_shown(cells[data, rows, epsilon]) for epsilon in EPSILONS]
        lines.append((data, f"{rows:,}", *shown))
    title = 'Accuracy and AUC, rounds=0 → rounds="auto"; lost cells are marked †'
    return [Table(title, ("data", "rows", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)), tuple(lines))]


def _shown(found: Measured) -> str:
    (a, b), (c, d) = np.mean(found.plain, axis=0), np.mean(found.auto, axis=0)
    return f"{a:.3f} → {c:.3f}, {b:.3f} → {d:.3f}" + (" †" if lost(found) else "")


def lost(found: Measured) -> bool:
    """Whether rounds cost more in this cell than what chance explains."""
    change = np.array(found.auto) - np.array(found.plain)
    error = change.std(axis=0, ddof=1) / math.sqrt(len(change))
    return bool((change.mean(axis=0) < -np.maximum([ACCURACY, AUC], 2 * error)).any())


def kept() -> list[Measured]:
    """What `measure` has kept."""
    return [Measured(**each) for each in json.loads(MEASURED.read_text(encoding="utf-8"))["results"]]


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep results beside this module."""
    found: list[dict[str, Any]] = []
    for name in DATA:
        X, y = rows_of(name, folder)
        y = (y == y.max()).astype(np.int64)
        for rows in SPLITS:
            if len(y) >= rows + 2000:
                found += [asdict(measured(name, X, y, rows, epsilon)) for epsilon in EPSILONS]
    lines = ",\n".join(json.dumps(each) for each in found)
    text = '{"made by": "reticent experiment private_linear_grid --data DIR",\n'
    MEASURED.write_text(text + f'"results": [\n{lines}\n]}}\n', encoding="utf-8")


def measured(name: str, X: Any, y: Integers, rows: int, epsilon: float, *, splits: int | None = None) -> Measured:
    """Fit with and without rounds on the same random splits."""
    norm, tested = longest(X), min(TESTED, len(y) - rows)
    scores: dict[Any, list[tuple[float, float]]] = {0: [], "auto": []}
    for split in range(splits or SPLITS[rows]):
        order = np.random.default_rng(split).permutation(len(y))
        test, train = order[:tested], order[len(y) - rows :]
        for rounds, found in scores.items():
            model = PrivateLogisticRegression(
                epsilon=epsilon, delta=DELTA, row_norm=norm, rounds=rounds, classes=(0, 1)
            ).fit(X[train], y[train])
            ranks = model.decision_function(X[test])
            auc = float(roc_auc_score(y[test], ranks)) if 0 < y[test].sum() < tested else 0.5
            found.append((round(float(model.score(X[test], y[test])), 5), round(auc, 5)))
    return Measured(name, rows, epsilon, scores[0], scores["auto"])
