"""Private logistic regression with and without rounds of second moments, beside DP gradient descent, on a wide grid.

16 data sets, three numbers of rows, four values of ε, δ = 10⁻⁶. The learner without rounds, the learner with rounds and
their peer see the same random splits. The peer is full-batch gradient descent with momentum on rows that are not
mapped: the learner without rounds at six learning rates, of which the best *on the test rows* counts. Nobody could
choose it privately. The row norm is that of the longest row of the set. Columns of dense sets are scaled to [0, 1] by
their range over all rows, but not those of "covtype, raw". Both are taken to be public.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score

from experiments.private_linear_data import rows_of
from experiments.table import Table
from reticent.learners import PrivateLogisticRegression

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Scores = dict[str, list[list[float]]]  # accuracy and AUC of each split, by method; of the peer, their means

MEASURED = Path(__file__).with_name("private_linear_grid.json")
DELTA = Fraction(1, 10**6)
EPSILONS = (0.5, 1.0, 2.0, 8.0)
DATA = (
    "elec2", "skin_nonskin", "donors", "synth", "covtype", "covtype, raw", "bank_additional", "phishing", "mushrooms",
    "kdd99", "a9a", "a9a, 1 % positive", "nycflights13", "w8a", "flights3m", "mnist_parity",
)  # fmt: skip
ROWS = (500, 5_000, 50_000)
POOL, TESTED = 60_000, 6_000
SPLITS = {500: 30, 5_000: 6, 50_000: 3}
MORE_SPLITS = 30  # of a cell that seems to lose: one in forty cells does so by chance
LEVELS = (0.25, 0.5, 1.0, 4.0, 8.0)  # of the peer, besides 2: its learning rate is proportional to them
WITHOUT, WITH = "without rounds", "with rounds"
MOST_NUMBERS = 10_000_000  # rows times columns; larger cells are left out, since mapped rows are dense


class Difference(NamedTuple):
    """The mean of paired differences, and its standard error."""

    mean: float
    error: float


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────


def kept() -> dict[str, Scores]:
    """What `measure` has kept, by "data, rows, ε"."""
    found: dict[str, Scores] = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    return found


def tables() -> list[Table]:
    """How often each aim is reached, and every cell."""
    cells = kept()
    return [_summary(cells), *(_of_rows(cells, rows) for rows in ROWS)]


def difference(scores: Scores, first: str, second: str, which: int) -> Difference:
    """By how much one method is ahead of another.

    Parameters
    ----------
    scores : dict
        What was measured in a cell.
    first, second : str
        The methods.
    which : int
        0 for accuracy, 1 for AUC.
    """
    gaps = np.array(scores[first])[:, which] - np.array(scores[second])[:, which]
    return Difference(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))


def peer(scores: Scores) -> str:
    """The learning rate of the peer that was best on the test rows."""
    return max((name for name in scores if name != WITH), key=lambda name: float(np.mean(np.array(scores[name])[:, 0])))


def loses(scores: Scores) -> bool:
    """Whether rounds lose more than .004 in accuracy or .02 in AUC, and more than two standard errors."""
    return any(
        found.mean < -max(least, 2 * found.error)
        for which, least in ((0, 0.004), (1, 0.02))
        for found in [difference(scores, WITH, WITHOUT, which)]
    )


def keeps_up(scores: Scores) -> bool:
    """Whether rounds are at most .003 below the peer's best learning rate."""
    return difference(scores, WITH, peer(scores), 0).mean >= -0.003


def _summary(cells: dict[str, Scores]) -> Table:
    at_one = {name: scores for name, scores in cells.items() if name.endswith("ε = 1")}
    ahead = [name for name, scores in at_one.items() if difference(scores, WITH, WITHOUT, 0).mean >= 0.03]
    behind = [name for name, scores in cells.items() if loses(scores)]
    near = sum(map(keeps_up, cells.values()))
    return Table(
        f"Rounds of second moments on {len(cells)} cells",
        ("aim", "found"),
        (
            ("no cell below the learner without rounds by more than max(.004, 2 s.e.) in accuracy, or max(.02, 2 s.e.) "
             "in AUC", f"{len(behind)} below" + (f": {'; '.join(behind)}" if behind else "")),
            ("at ε = 1, ahead of it by .03 or more in at least six cells", f"{len(ahead)} cells"),
            ("within .003 of DP gradient descent with its best learning rate, or ahead, in 85 % of cells",
             f"{near / len(cells):.0%}"),
        ),
    )  # fmt: skip


def _of_rows(cells: dict[str, Scores], rows: int) -> Table:
    lines = []
    for data in DATA:
        found = [cells.get(cell_name(data, rows, epsilon)) for epsilon in EPSILONS]
        if any(found):
            lines.append((data, *("not measured" if each is None else _shown(each) for each in found)))
    columns = ("data", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    return Table(
        f"{rows:,} rows (fewer where a set has fewer): accuracy without → with rounds (s.e. of the difference) peer; "
        "AUC without → with",
        columns,
        tuple(lines),
    )


def _shown(scores: Scores) -> str:
    mean = {name: np.array(each).mean(axis=0) for name, each in scores.items()}
    error = difference(scores, WITH, WITHOUT, 0).error
    return (
        f"{mean[WITHOUT][0]:.3f} → {mean[WITH][0]:.3f} ({error:.3f}) {mean[peer(scores)][0]:.3f}; "
        f"{mean[WITHOUT][1]:.3f} → {mean[WITH][1]:.3f}{' **loses**' if loses(scores) else ''}"
    )


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cell_name(data: str, rows: int, epsilon: float) -> str:
    """The name of a cell on file.

    Parameters
    ----------
    data : str
        The data set.
    rows : int
        The number of training rows.
    epsilon : float
        ε.
    """
    return f"{data}, {rows} rows, ε = {epsilon:g}"


def measure(folder: Path) -> None:
    """Measure what is not yet on file, on the data sets in a folder; each cell is kept as soon as it is measured.

    Parameters
    ----------
    folder : Path
        Where the files are.
    """
    results = kept() if MEASURED.exists() else {}
    for data in DATA:
        X, y = pool(data, folder)
        for rows, epsilon in product(ROWS, EPSILONS):
            large = rows * X.shape[1] > MOST_NUMBERS or rows > 2 * len(y)
            if (name := cell_name(data, rows, epsilon)) not in results and not large:
                results[name] = measured(X, y, rows, epsilon, splits=SPLITS[rows])
                if loses(results[name]):
                    results[name] = measured(X, y, rows, epsilon, splits=MORE_SPLITS)
                _keep(results)


def _keep(results: dict[str, Scores]) -> None:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in results.items())
    text = '{"made by": "reticent experiment private_linear_grid --data DIR",\n"results": {\n' + lines + "\n}}\n"
    MEASURED.write_text(text, encoding="utf-8")


def measured(X: Any, y: Integers, rows: int, epsilon: float, *, splits: int) -> Scores:
    """Accuracy and AUC of the learner without and with rounds, and of the peer, on random splits.

    Parameters
    ----------
    X, y : array or CSR matrix, array of 0 and 1
        The pool that splits are drawn from.
    rows : int
        The number of training rows; fewer, if the pool has fewer.
    epsilon : float
        ε.
    splits : int
        The number of splits.
    """
    norm = math.sqrt(float((X.multiply(X) if sparse.issparse(X) else X * X).sum(axis=1).max()))
    tested = min(TESTED, len(y) // 4)
    trained = min(rows, len(y) - tested)
    scores: Scores = {}
    known: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "row_norm": norm, "classes": [0, 1]}
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(y))
        test, train = order[:tested], order[tested : tested + trained]
        for name, rounds in ((WITHOUT, 0), (WITH, "auto")):
            model = PrivateLogisticRegression(**known, rounds=rounds).fit(X[train], y[train])  # type: ignore[arg-type]
            scores.setdefault(name, []).append(_judged(model.decision_function(X[test]), y[test]))
        for level in LEVELS:
            model = PrivateLogisticRegression(**known, rounds=0, level=level).fit(X[train], y[train])
            scores.setdefault(f"level {level:g}", []).append(_judged(model.decision_function(X[test]), y[test]))
    return {name: each if name in (WITHOUT, WITH) else _mean(each) for name, each in scores.items()}


def _mean(scores: list[list[float]]) -> list[list[float]]:
    accuracy, auc = np.mean(scores, axis=0)
    return [[round(float(accuracy), 5), round(float(auc), 5)]]


def _judged(scores: Floats, truth: Integers) -> list[float]:
    right = float(np.mean((scores > 0) == (truth == 1)))
    return [round(right, 5), round(float(roc_auc_score(truth, scores)), 5)]


def pool(name: str, folder: Path) -> tuple[Any, Integers]:
    """At most 60,000 rows of a data set, always the same, and labels 0 and 1.

    Parameters
    ----------
    name : str
        The data set.
    folder : Path
        Where the files are.
    """
    X, y = rows_of(name, folder)
    chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:POOL])
    return X[chosen], (y[chosen] == y.max()).astype(np.int64)
