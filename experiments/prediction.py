"""Stable and private prediction by the number of rows: planned, and measured on the distributions of a lower bound.

The distributions are those of Theorem 4: of two points that a class of VC dimension 2 labels in all ways, one is rare,
with probability 4α, and its label is a coin's. Here the label of a row on it is also wrong with probability (1 − b)/2,
where b = 1 is the paper's. For each number of rows the error is that of the α and b that hurt most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from experiments.drawing import style, svg
from experiments.table import Table
from reticent.concepts import Thresholds
from reticent.exact import rational
from reticent.noise import Seeded
from reticent.predictors.private import PrivatePredictor
from reticent.predictors.private_setups import Flip, Net, Votes, net_cost
from reticent.predictors.stable import NetDraw, StablePredictor, draw_concept, net_draw, stability_of
from reticent.teachers import Teachers

EPSILON = 1
STABILITY = 0.05
ROWS = (1000, 4000, 16_000)
RARE = (2, 10, 50, 250, 1250)  # how many rows are on the rare point, on average; at most 0.3·n
BIAS = (1.0, 0.3)  # b
FITS = 12
CASES = ((0.2, 1.0), (0.1, 1.0), (0.2, 0.1))  # errors and ε to plan for
CLASS = Thresholds(bits=1, both_orientations=True)
MEASURED = Path(__file__).with_name("prediction.json")
METHODS = ("votes", "flip", "net", "average, flipped", "one concept, flipped")
SAYS = {"votes": "−1, some concept fits", "flip": "−1/2", "net": "−1", "average, flipped": "−1/3"}


def tables() -> list[Table]:
    """Rows needed, measured errors, and constants."""
    return [_needed(), _errors(), _stable(), _stabilities(), _nets()]


def plots() -> dict[str, bytes]:
    """The measured error above the best by the number of rows, both axes logarithmic, as an SVG."""
    from matplotlib.figure import Figure

    colours = dict(zip(METHODS, ("#2b6a8f", "#b3553c", "#5f9e6e", "#b8a04a", "#8c8c8c"), strict=True))
    with style():
        figure = Figure(figsize=(6.4, 4))
        axes = figure.add_subplot()
        for method, found in _kept()["errors"].items():
            axes.plot(ROWS, [found[str(count)] for count in ROWS], "o-", color=colours[method], label=method)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rows")
        axes.set_ylabel(f"error above the best, ε = {EPSILON} a question")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        picture = svg(figure)
    return {"prediction": picture}


def measure(folder: Path | None = None) -> None:
    """Measure again, and keep the results in `prediction.json` beside this module. It needs no data from a folder.

    Parameters
    ----------
    folder : Path or None, default None
        The folder with the files of the data sets.
    """
    kept = {
        "made by": "experiments.prediction.measure()",
        "parameters": _parameters(),
        "needed": {name: [needed(*case) for case in CASES] for name, needed in PLANNED.items()},
        "errors": {method: {str(rows): _worst(method, rows) for rows in ROWS} for method in METHODS},
        "stable": {str(rows): _worst("stable", rows) for rows in ROWS},
    }
    MEASURED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _kept.cache_clear()


def _parameters() -> dict[str, Any]:
    return {
        "epsilon": EPSILON,
        "stability": STABILITY,
        "rows": list(ROWS),
        "rare": list(RARE),
        "bias": list(BIAS),
        "fits": FITS,
        "cases": [list(case) for case in CASES],
    }


@cache
def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    if kept["parameters"] != _parameters():
        raise ValueError("prediction.json was measured with other parameters: call measure() again")
    return kept


def _private_rows(method: str) -> Callable[[float, float], int]:
    return lambda error, epsilon: PrivatePredictor(Thresholds(), epsilon=epsilon, method=method).n_required(error)


def _stable_rows(error: float, epsilon: float) -> int:
    return StablePredictor(Thresholds(), stability=epsilon / 10).n_required(error)


PLANNED: dict[str, Callable[[float, float], int]] = {
    "StablePredictor, γ = ε/10": _stable_rows,
    "votes, some concept fits": _private_rows("votes"),
    "flip": _private_rows("flip"),
    "net": _private_rows("net"),
}
ORDERS = ("d/(αγ) + d/α²", "d/(αε)", "d/(α²ε)", "d²/(αε) + d/α²")


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _worst(method: str, rows: int) -> float:
    """The largest mean excess error over the distributions; for votes and stability those that some concept fits."""
    biases = BIAS[:1] if method in ("votes", "stable") else BIAS
    return max(_excess(method, rows, rare / rows, bias) for rare in RARE if rare <= 0.3 * rows for bias in biases)


def _excess(method: str, rows: int, rare: float, bias: float) -> float:
    """The mean over rows and draws; the chance of a wrong answer that is left after these is computed."""
    generator, excess = np.random.default_rng([rows, round(rows * rare), round(10 * bias)]), 0.0
    for fit in range(FITS):
        label = int(generator.integers(2))  # the better one of the rare point; that of the other is 1
        x = (generator.random(rows) >= rare).astype(np.int64)
        wrong = generator.random(rows) < (1 - bias) / 2
        y = np.where(x == 1, 1, label ^ wrong).astype(np.int64)
        first, second = _ones(method, x, y, Seeded(unsafe_seed=fit))
        excess += rare * bias * abs(label - first) + (1 - rare) * (1 - second)
    return float(f"{excess / FITS:.4g}")


def _ones(method: str, x: Any, y: Any, noise: Seeded) -> tuple[float, float]:
    """The chance of the answer 1 to either point, at a cost of ε for a question, given the rows and concepts drawn."""
    if method == "stable":
        return _labels(draw_concept(CLASS, x, y, net_draw(len(x), rational(STABILITY, "stability")), noise))
    if method in ("votes", "flip", "net"):
        setup = PrivatePredictor(CLASS, epsilon=EPSILON, method=method).setup(len(x))
        if isinstance(setup, Votes):
            return _logistic(x, y, setup.teachers, EPSILON)
        assert isinstance(setup, (Flip, Net))
        concept = draw_concept(CLASS, x, y, setup.draw, noise)
        if isinstance(setup, Flip):
            return _flipped(_labels(concept), setup.flip)
        return _flipped(_logistic(x, CLASS.predict(concept, x), setup.teachers, 1 / setup.apart), setup.flip)
    odds, parts = math.exp(EPSILON), 1
    if method == "average, flipped":  # a random one of many concepts, each with rows of its own: (1/parts)-stable
        parts = max(1, round((len(x) / 2 / (odds - 1) ** 2) ** (1 / 3)))
    mine = slice(int(noise.uniform(parts)), None, parts)
    return _flipped(_labels(CLASS.erm(x[mine], y[mine])), 1 / ((odds - 1) * parts + 2))


def _labels(concept: Any) -> tuple[float, float]:
    first, second = CLASS.predict(concept, [0, 1]).tolist()
    return first, second


def _logistic(x: Any, y: Any, teachers: int, epsilon: float) -> tuple[float, float]:
    votes = Teachers(CLASS, shards=teachers, classes=(0, 1)).fit(x[:, None], y).votes([[0], [1]])
    first, second = expit(epsilon * (votes[:, 1] - votes[:, 0]) / 2).tolist()
    return first, second


def _flipped(ones: tuple[float, float], flip: Any) -> tuple[float, float]:
    first, second = (float(flip) + (1 - 2 * float(flip)) * one for one in ones)
    return first, second


def _slope(rows: Any, errors: Any) -> str:
    """Of the line through the points, both axes logarithmic."""
    return f"{np.polyfit(np.log(rows), np.log(np.maximum(errors, 1e-9)), 1)[0]:.2f}".replace("-", "−")


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _needed() -> Table:
    rows = []
    for (name, counts), order in zip(_kept()["needed"].items(), ORDERS, strict=True):
        ratios = [f"{counts[i] / counts[0]:.1f}" for i in (1, 2)]
        rows.append((name, *(f"{count:,}" for count in counts), *ratios, order))
    cases = [f"α = {error:g}, ε = {epsilon:g}" for error, epsilon in CASES]
    return Table(
        "Rows with which an error of α above the best is promised (thresholds, failure 0.05, one question, δ = 0)",
        ("method", *cases, "times, for half of α", "times, for a tenth of ε", "paper's order"),
        tuple(rows),
    )


def _errors() -> Table:
    rows = []
    for method, found in _kept()["errors"].items():
        errors = [found[str(count)] for count in ROWS]
        rows.append((method, *(f"{each:.2g}" for each in errors), _slope(ROWS, errors), SAYS.get(method, "0")))
    return Table(
        f"Measured: the error above the best at ε = {EPSILON} a question, on the distribution that hurts most",
        ("method", *(f"n = {count:,}" for count in ROWS), "slope", "paper's slope"),
        tuple(rows),
    )


def _stable() -> Table:
    found = [_kept()["stable"][str(count)] for count in ROWS]
    least = [(2 - 1) / (8 * STABILITY * count) for count in ROWS]
    return Table(
        f"Measured: the error of StablePredictor(stability={STABILITY:g}) on the distribution that hurts most, and "
        "what no stable predictor can beat, (d − 1)/(8γn)",
        ("", *(f"n = {count:,}" for count in ROWS), "slope"),
        (
            ("measured", *(f"{each:.2g}" for each in found), _slope(ROWS, found)),
            ("lower bound", *(f"{each:.2g}" for each in least), _slope(ROWS, least)),
        ),
    )


def _stabilities() -> Table:
    rows = []
    for count, subset, epsilon in (
        (1000, 20, Fraction(1, 10)),
        (1000, 50, Fraction(1, 2)),
        (10**5, 100, Fraction(1, 50)),
    ):
        ours = stability_of(count, NetDraw(subset, epsilon / 2))
        printed = subset / count + 2 * float(epsilon)
        rows.append((f"{count:,}", str(subset), f"{float(epsilon):g}", f"{float(ours):.4f}", f"{printed:.4f}"))
    return Table(
        "Stability of the same draw: n'/n + (1 − n'/n)·tanh(ε_e/4), and as printed, n'/n + 2ε_e",
        ("n", "n'", "ε_e", "γ", "printed"),
        tuple(rows),
    )


def _nets() -> Table:
    rows = []
    for count, subset, apart in ((20_000, 442, 998), (200_000, 4348, 1298), (200_000, 20_115, 400)):
        cost, share = net_cost(Thresholds(), count, subset, apart), subset / count
        printed = 3 / apart + math.log1p(share * (4 * math.exp(6) - 1))
        shown = (f"{math.log(cost.exp_epsilon):.3f}", f"{float(cost.delta):.1e}", f"{printed:.3f}")
        rows.append((f"{count:,}", f"{subset:,}", str(apart), *shown))
    return Table(
        "What an answer by a net costs, before it is flipped (thresholds): ours, and with the 4e⁶ of Lemma 10",
        ("n", "n'", "k = ηn", "ε₀", "δ₀", "ε₀ with 4e⁶"),
        tuple(rows),
    )
