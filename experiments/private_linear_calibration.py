"""How far the probabilities of the private linear model can be trusted: log loss, and a reliability table.

δ = 10⁻⁶, and all else as in `private_linear`. After rounds of second moments, the descent sees mapped rows that are
shortened to a common length. `predict_proba` shortens them as well. The column "not shortened" is what the linear
scores of `hypothesis_` alone would give.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from experiments.drawing import style, svg
from experiments.private_linear_data import Integers, longest, rows_of
from experiments.table import Table
from reticent.learners import PrivateLogisticRegression

Floats = NDArray[np.float64]

DATA = ("elec2", "covtype", "synth", "donors", "skin_nonskin", "a9a", "bank_additional", "phishing", "kdd99")
EPSILONS, ROWS, DELTA = (1, 8), 5000, 1e-6
SPLITS, TESTED, BINS = 3, 6000, 10
SHOWN = 100  # rows in a bin, from which on it is drawn
LEAST = 1e-13  # a probability below this counts as this
MEASURED = Path(__file__).with_name("private_linear_calibration.json")


@dataclass(frozen=True)
class Measured:
    """What is kept of a data set at one ε: mean log losses, and sums over the bins of predicted probabilities."""

    data: str
    epsilon: int
    losses: dict[str, float]
    tested: list[int]  # rows in each bin, over all splits
    predicted: list[float]  # the sum of their predicted probabilities
    positive: list[int]  # how many of them are positive


def tables() -> list[Table]:
    """Log losses by data set, and how often predictions of some probability come true."""
    found = kept()
    kinds = ("rounds=0", 'rounds="auto"', "not shortened", "not private")
    losses = tuple(
        (each.data, f"{each.epsilon}", *(f"{each.losses[kind]:.3f}" for kind in kinds), f"{gap(each):.3f}")
        for each in found
    )
    bins = []
    for at in range(BINS):
        line = [f"{at / BINS:.1f} to {(at + 1) / BINS:.1f}"]
        for epsilon in EPSILONS:
            tested, predicted, positive = sums([each for each in found if each.epsilon == epsilon], at)
            line += [f"{tested:,}", f"{predicted / max(1, tested):.3f}", f"{positive / max(1, tested):.3f}"]
        bins.append(tuple(line))
    headings = tuple(f"{kind}, ε = {epsilon}" for epsilon in EPSILONS for kind in ("rows", "predicted", "true"))
    return [
        Table(f"Log loss, {ROWS:,} rows", ("data", "ε", *kinds, 'gap of rounds="auto"'), losses),
        Table("Reliability of rounds=\"auto\", all data sets", ("probability", *headings), tuple(bins)),
    ]


def plots() -> dict[str, bytes]:
    """The reliability plot: how often predictions of some probability come true, by data set and ε, as SVG."""
    from matplotlib.figure import Figure

    with style(font_size=8):
        figure = Figure(figsize=(7.2, 3.4))
        for index, epsilon in enumerate(EPSILONS):
            axes: Any = figure.add_subplot(1, len(EPSILONS), index + 1)
            axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
            for each in kept():
                if each.epsilon == epsilon:
                    tested = np.array(each.tested)
                    shown = tested >= SHOWN
                    predicted, true = np.array(each.predicted)[shown], np.array(each.positive)[shown]
                    axes.plot(predicted / tested[shown], true / tested[shown], "o-", markersize=2.5, label=each.data)
            axes.set_title(f"ε = {epsilon}", fontsize=9)
            axes.set_xlabel("predicted probability")
            axes.spines[["top", "right"]].set_visible(False)
        first: Any = figure.axes[0]
        first.set_ylabel("share of positive rows")
        first.legend(frameon=False, fontsize=6)
        figure.tight_layout()
        picture = svg(figure)
    return {"private_linear_calibration": picture}


def sums(found: list[Measured], at: int) -> tuple[int, float, int]:
    """Rows, predicted probabilities and positives in a bin, over several data sets."""
    return (
        sum(each.tested[at] for each in found),
        sum(each.predicted[at] for each in found),
        sum(each.positive[at] for each in found),
    )


def gap(found: Measured) -> float:
    """The expected calibration error: by how much predicted and true shares differ, weighted over the bins."""
    apart = [abs(p - true) for p, true in zip(found.predicted, found.positive, strict=True)]
    return sum(apart) / sum(found.tested)


def kept() -> list[Measured]:
    """What `measure` has kept."""
    return [Measured(**each) for each in json.loads(MEASURED.read_text(encoding="utf-8"))["results"]]


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep results beside this module."""
    found = []
    for name in DATA:
        X, y = rows_of(name, folder)
        found += [asdict(measured(name, X, y, epsilon)) for epsilon in EPSILONS]
    lines = ",\n".join(json.dumps(each) for each in found)
    text = '{"made by": "reticent experiment private_linear_calibration --data DIR",\n'
    MEASURED.write_text(text + f'"results": [\n{lines}\n]}}\n', encoding="utf-8")


def measured(name: str, X: Any, y: Integers, epsilon: int, *, splits: int = SPLITS) -> Measured:
    """Log losses and bins over random splits."""
    y, norm = (y == y.max()).astype(np.int64), longest(X)
    losses: dict[str, list[float]] = {}
    tested, predicted, positive = np.zeros(BINS, dtype=int), np.zeros(BINS), np.zeros(BINS, dtype=int)
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(y))
        test, train = order[:TESTED], order[-ROWS:]
        known: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "row_norm": norm}
        plain = PrivateLogisticRegression(**known, rounds=0).fit(X[train], y[train])
        model = PrivateLogisticRegression(**known).fit(X[train], y[train])
        found = {"rounds=0": plain.predict_proba(X[test]), 'rounds="auto"': model.predict_proba(X[test])}
        whitening, model.whitening_ = model.whitening_, None
        found["not shortened"] = model.predict_proba(X[test])
        model.whitening_ = whitening
        scaler = StandardScaler(with_mean=False).fit(X[train])
        peer = LogisticRegression(max_iter=1000).fit(scaler.transform(X[train]), y[train])
        found["not private"] = peer.predict_proba(scaler.transform(X[test]))
        for kind, probabilities in found.items():
            losses.setdefault(kind, []).append(log_loss(probabilities, y[test]))
        p = found['rounds="auto"'][:, 1]
        at = np.minimum((p * BINS).astype(int), BINS - 1)
        tested += np.bincount(at, minlength=BINS)
        predicted += np.bincount(at, weights=p, minlength=BINS)
        positive += np.bincount(at, weights=y[test], minlength=BINS).astype(int)
    means = {kind: round(float(np.mean(each)), 5) for kind, each in losses.items()}
    return Measured(name, epsilon, means, tested.tolist(), predicted.round(3).tolist(), positive.tolist())


def log_loss(probabilities: Floats, y: Integers) -> float:
    """The mean of −ln of the probability that was given to the true class."""
    right = probabilities[np.arange(len(y)), y]
    return math.fsum(-np.log(np.maximum(right, LEAST))) / len(y)
