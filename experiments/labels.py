"""How many labels LabelBoost needs from 16 to 4096 bits: planned, measured, and plotted beside a plain learner."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from experiments.drawing import style, svg
from experiments.table import Table
from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.concepts import Finite, Thresholds
from reticent.learners.label_boost import LabelBoost, label_boost
from reticent.learners.relabelling_costs import (
    LOG4,
    Variant,
    largest_share,
    learner_epsilon,
    printed_cost,
    printed_epsilon,
)
from reticent.learners.thresholds import ThresholdLearner
from reticent.noise import Noise

WIDTHS = (16, 64, 256, 1024, 4096)
ERROR, FAILURE, EPSILON, DELTA = 0.2, 0.05, 1, 1e-6
ROUNDS = (1, 2, 3)
RUNS = 4
POINTS = 5000  # different values in the data of a run


def tables() -> list[Table]:
    """The tables of the page on LabelBoost and of the guide on few labels."""
    return [_labels(), _runs(), _shares(), _lemma()]


def plots() -> dict[str, bytes]:
    """The labels needed by the width of the values, as an SVG: lines are planned, marks are measured."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6.4, 4))
        axes = figure.add_subplot()
        for delta, dashes in ((0.0, "--"), (DELTA, "-")):
            plain = [_plain(bits, delta) for bits in WIDTHS]
            axes.plot(WIDTHS, plain, dashes, color="#b3553c", label=f"ThresholdLearner, δ = {delta:g}")
        boosted = [_planned(bits, ROUNDS[-1]).labels for bits in WIDTHS]
        axes.plot(WIDTHS, boosted, "-", color="#2b6a8f", label=f"LabelBoost, {ROUNDS[-1]} rounds, δ = {DELTA:g}")
        kept = [bits for bits in WIDTHS if _measured(bits).failures == 0]
        axes.plot(kept, [_measured(bits).labels for bits in kept], "o", color="#2b6a8f", label="measured: promise kept")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(WIDTHS, [str(bits) for bits in WIDTHS])
        axes.set_xlabel("bits of a value")
        axes.set_ylabel(f"labels for an error of {ERROR}")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        picture = svg(figure)
    return {"labels": picture}


# ── labels by width ───────────────────────────────────────────────────────────────────────────────────────────────


class Needed(NamedTuple):
    """How many rows a promise takes, and how many of them with a label."""

    labels: int
    rows: int


class Measured(NamedTuple):
    """What came of some runs with as many labels and rows as the plan says."""

    labels: int
    rows: int
    failures: int
    worst: float
    plain_failures: int  # of a plain learner that has the same labels


def _boost(bits: int, rounds: int) -> LabelBoost:
    learner = ThresholdLearner(bits=bits, epsilon=EPSILON)
    return LabelBoost(learner, Thresholds(bits), epsilon=EPSILON, delta=DELTA, rounds=rounds, failure=FAILURE)


@cache
def _planned(bits: int, rounds: int) -> Needed:
    boost = _boost(bits, rounds)
    return Needed(boost.labels_required(ERROR), boost.n_required(ERROR))


@cache
def _plain(bits: int, delta: float) -> int:
    return ThresholdLearner(bits=bits, epsilon=EPSILON, delta=delta, failure=FAILURE).n_required(ERROR)


@cache
def _measured(bits: int) -> Measured:
    """Half of the rows lie on the two values beside the threshold, which must be found exactly; the others anywhere."""
    generator = np.random.default_rng(bits)
    labels, rows = _planned(bits, ROUNDS[-1])
    points = np.array(sorted(int.from_bytes(generator.bytes(bits // 8), "big") for _ in range(POINTS)), dtype=object)
    target = POINTS * 2 // 5
    boost = _boost(bits, ROUNDS[-1]).set_params(error=ERROR)
    plain = ThresholdLearner(bits=bits, epsilon=EPSILON, delta=DELTA, failure=FAILURE)
    errors: list[float] = []
    plain_errors: list[float] = []
    for run in range(RUNS):
        near = generator.integers(0, 4, rows)
        drawn = np.where(near < 2, target - near, generator.integers(0, POINTS, rows))
        x, y = points[drawn][:, None], drawn < target
        boost.set_params(unsafe_seed=run).fit(x, np.where(np.arange(rows) < labels, y, -1))
        plain.set_params(unsafe_seed=run).fit(x[:labels], y[:labels])
        for found, kept in ((boost, errors), (plain, plain_errors)):
            kept.append(float(np.mean((x[:, 0] < found.hypothesis_.at) != y)))
    failures, plain_failures = (sum(error > ERROR for error in kept) for kept in (errors, plain_errors))
    return Measured(labels, rows, failures, max(errors), plain_failures)


def _labels() -> Table:
    rows = []
    for bits in WIDTHS:
        boosted = [_planned(bits, rounds) for rounds in ROUNDS]
        plain = [f"{_plain(bits, delta):,}" for delta in (0.0, DELTA)]
        rows.append((str(bits), *plain, *(f"{each.labels} of {each.rows:,}" for each in boosted)))
    names = [f"LabelBoost, {rounds} round{'s' if rounds > 1 else ''}" for rounds in ROUNDS]
    return Table(
        f"Labels needed for an error of {ERROR} (failure {FAILURE}, ε = {EPSILON}); for LabelBoost at δ = 10⁻⁶, "
        "labels of all rows",
        ("bits", "ThresholdLearner, δ = 0", "ThresholdLearner, δ = 10⁻⁶", *names),
        tuple(rows),
    )


def _runs() -> Table:
    rows = []
    for bits in WIDTHS:
        found = _measured(bits)
        came = [found.failures, f"{found.worst:.3f}", found.plain_failures]
        rows.append(tuple(str(each) for each in [bits, found.labels, f"{found.rows:,}", RUNS, *came]))
    return Table(
        f"Measured: LabelBoost of {ROUNDS[-1]} rounds with the planned labels and rows, and a ThresholdLearner with "
        f"the same labels (error {ERROR}, ε = {EPSILON}, δ = 10⁻⁶)",
        ("bits", "labels", "rows", "runs", "error above", "worst error", "error above, ThresholdLearner"),
        tuple(rows),
    )


# ── costs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _shares() -> Table:
    rows = []
    for epsilon in (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3)):
        inner = learner_epsilon(epsilon)
        drawn = largest_share(epsilon, inner + LOG4)
        scored = largest_share(epsilon, inner + printed_cost(printed_epsilon(inner)))
        rows.append((f"{float(epsilon):g}", f"{float(inner):g}", f"{float(drawn):.4f}", "1", f"{float(scored):.4f}"))
    return Table(
        "Shares of the rows that may be used; the paper has 0.01 a round and 0.0033 at the end, at ε = 1",
        ("ε", "ε of the learner", "drawn, no label", "looked at, labelled, max", "looked at, labelled, printed"),
        tuple(rows),
    )


FORK = Finite([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1]])  # on the points a, p, q


def _lemma() -> Table:
    ones = [(0, 1)] * 20
    cases: list[tuple[str, Variant, list[Any], list[Any], float, float]] = [
        ("without a label", "max", [(ones, [0, last]) for last in (1, 2)], [1], math.log(4), math.log(4 * math.e)),
        ("without a label", "printed", [(ones, [0, last]) for last in (1, 2)], [1], math.log(4), math.log(4 * math.e)),
        ("labelled", "max", [([(0, 1), (0, last)], [0]) for last in (0, 1)], [0], 1.0, math.log(4 * math.e)),
        (
            "labelled",
            "printed",
            [([*ones, (last, 1)], []) for last in (1, 2)],
            [1],
            float(printed_cost(Fraction(1))),
            math.log(4 * math.e),
        ),
    ]
    rows = []
    for row, variant, pair, (hidden,), proved, printed in cases:
        laws = [_law(known, fresh, variant, hidden) for known, fresh in pair]
        low, _ = exact(*laws).epsilon(0)
        rows.append((row, variant, f"{low:.4f}", f"{proved:.4f}", f"{printed:.4f}"))
    return Table(
        "What a replaced row adds to the cost of the learner in a round with ε = 1: the greatest loss of an exact law, "
        "what is proved, and what the paper proves",
        ("replaced row", "variant", "exact law", "proved", "paper"),
        tuple(rows),
    )


def _law(known: list[tuple[int, int]], fresh: list[int], variant: Variant, hidden: int) -> Law:
    """The law of the labels of all rows but the last `hidden` ones."""
    values, labels = (list(each) for each in zip(*known, strict=True))

    def run(noise: Noise) -> tuple[int, ...]:
        points = np.array(fresh, dtype=np.int64)
        found = label_boost(values, labels, points, FORK, epsilon=1, variant=variant, unsafe_noise=noise)
        return tuple(found.labels[: len(found.labels) - hidden].tolist())

    return law(run)
