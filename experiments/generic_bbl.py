"""GenericBBL: sizes by printed and by worked-out constants, phases that run, the counter attack, and extraction."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table import Table
from reticent.audit.extraction import membership
from reticent.audit.hockey_stick import exact
from reticent.audit.inference import most_advantage
from reticent.audit.laws import law
from reticent.concepts import ConceptClass, Finite, Halfspaces, Intervals, Thresholds
from reticent.mechanisms.between_thresholds import BetweenThresholds, required_gap
from reticent.mechanisms.votes import noisy_majority
from reticent.noise import Noise, Seeded
from reticent.plan.generic_bbl import generic_bbl
from reticent.predictors.bbl_phases import BBLPhase
from reticent.predictors.bbl_schedules import Printed
from reticent.predictors.generic_bbl import GenericBBL
from reticent.promises import rows_needed

Array = NDArray[Any]
Sample = tuple[Array, Array]

CLASSES: tuple[tuple[str, ConceptClass[Any]], ...] = (
    ("thresholds", Thresholds()),
    ("intervals", Intervals()),
    ("halfspaces in the plane", Halfspaces(2)),
)
DELTA = 1e-6


def tables() -> list[Table]:
    """Sizes, costs, a run, the attack on queries, and the attack by extraction."""
    return [_sizes(), _phases(), _costs(), _run(), _counter(), _extraction()]


def _sizes() -> Table:
    rows = []
    for name, concepts in CLASSES:
        for epsilon, error in ((0.5, 0.1), (0.9, 0.1), (0.9, 0.3)):
            public: dict[str, Any] = {"epsilon": epsilon, "error": error, "delta": DELTA}
            ours = generic_bbl(concepts, labeller="gaussian", **public)
            halting = generic_bbl(concepts, labeller="between-thresholds", **public)
            rows.append((name, f"{epsilon:g}", f"{error:g}", _scientific(ours.paper_rows), _scientific(halting.rows),
                         _scientific(ours.rows)))
    columns = ("class", "ε", "error", "printed", "calibrated, between thresholds", "calibrated, gaussian")
    return Table("Training rows that promise an error for ever, failure 0.05, δ = 10⁻⁶", columns, tuple(rows))


def _phases() -> Table:
    printed = Printed(1, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), error=Fraction(1, 10),
                      failure=Fraction(1, 20), tau=Fraction(11 * 10**9))
    ours = GenericBBL(Thresholds(), epsilon=0.5, delta=DELTA, labeller="gaussian", constants="calibrated")
    schedule = ours._source().schedule(rows_needed(ours.n_required))
    calibrated = [schedule.first, next(schedule.later), next(schedule.later)]
    rows = []
    for name, phases in (("printed", [printed.phase(i) for i in (1, 2, 3)]), ("calibrated", calibrated)):
        for i, phase in enumerate(phases, 1):
            numbers = (phase.shard, phase.teachers, phase.rows, phase.answers, phase.scored, phase.drawn)
            rows.append((name, str(i), *map(_scientific, numbers)))
    columns = ("constants", "phase", "λ", "T", "rows", "answers R", "scored", "drawn")
    return Table("Phases for thresholds, error 0.1, ε = 0.5, δ = 10⁻⁶", columns, tuple(rows))


def _costs() -> Table:
    rows = []
    for epsilon in (0.25, 0.5, 0.9):
        printed = GenericBBL(Thresholds(), epsilon=epsilon, delta=DELTA, labeller="gaussian")
        ours = GenericBBL(Thresholds(), epsilon=epsilon, delta=DELTA, labeller="gaussian", constants="calibrated")
        costs, shares = [], []
        for bbl in (printed, ours):
            source = bbl._source()
            schedule = source.schedule(source.required)
            costs.append(bbl._promised(bbl._cost(schedule, source.required), seeded=False).epsilon)
            shares.append(float(schedule.first.drawn / Fraction(schedule.first.answers)))
        rows.append((f"{epsilon:g}", f"{shares[0]:.4f}", f"{costs[0]:.4f}", f"{shares[1]:.4f}", f"{costs[1]:.4f}"))
    columns = ("ε asked for", "share of queries drawn, printed", "its true ε", "share, calibrated", "its true ε")
    return Table("What the rates cost, rows and queries", columns, tuple(rows))


def _run() -> Table:
    """Real phases, small: each teaches the next on its queries."""
    generator = np.random.default_rng(1)
    teachers, shard = 400, 30
    size = teachers * shard
    phase = BBLPhase(
        teachers=teachers, shard=shard, answers=2 * size, vote_epsilon=Fraction(6), vote_delta=Fraction(1, 10**6),
        scored=size // 4, drawn=size,
    )
    last = BBLPhase(
        teachers=teachers, shard=shard, answers=2 * size, vote_epsilon=Fraction(6), vote_delta=Fraction(1, 10**6)
    )
    bbl = GenericBBL(
        Thresholds(bits=10), epsilon=8, delta=DELTA, labeller="gaussian", phases=[phase] * 5 + [last], unsafe_seed=1
    )
    x = generator.integers(0, 1024, (size, 1))
    bbl.fit(x, x[:, 0] < 400)
    rows = []
    for number in range(1, 7):
        queries = generator.integers(0, 1024, (2 * size, 1))
        wrong = float((bbl.predict(queries) != (queries[:, 0] < 400)).mean())
        rows.append((str(number), f"{2 * size * number:,}", f"{wrong:.4f}"))
    title = f"{size:,} training rows, thresholds, ε = {bbl.guarantee_.epsilon:.3f} for rows and queries"
    return Table(title, ("phase", "queries answered so far", "share answered wrong in the phase"), tuple(rows))


def _counter() -> Table:
    """Is the next query answered? The exact δ between a split and a unanimous challenge, one halt being left."""
    rows = []
    for epsilon, halts in ((1, 1), (1, 4), (2, 1)):
        gap = required_gap(epsilon=epsilon, delta=DELTA, halts=halts)
        teachers = 20 * gap
        lower = (teachers - gap) // 2
        start = partial(BetweenThresholds, lower, lower + gap, epsilon=epsilon, delta=DELTA, halts=halts)
        split, agreed = (law(partial(_closes, start, votes)) for votes in (teachers // 2, 0))
        rows.append((f"{epsilon}", f"{halts}", f"{gap:,}", f"{split.probability(True):.4f}",
                     f"{agreed.probability(True):.4f}", f"{exact(split, agreed).delta(epsilon)[0]:.4f}"))
    columns = ("ε of the votes", "halts", "gap", "closed after a split query", "closed after a unanimous one", "δ at ε")
    return Table("Whether the next query is answered tells what the last one was", columns, tuple(rows))


def _closes(start: Callable[..., BetweenThresholds], votes: int, noise: Noise) -> Hashable:
    """Whether a query with these votes takes the last halt."""
    sides = start(unsafe_noise=noise)
    sides._left = 1  # the others were spent by queries that are public
    sides.ask(votes)
    return sides.halts_left == 0


# ── extraction ────────────────────────────────────────────────────────────────────────────────────────────────────

TEACHERS, SIGMA = 20, 8


class _Static:
    def __init__(self, ones: int, noise: Noise) -> None:
        self.ones, self.noise = ones, noise

    def predict(self, X: Array, /) -> Array:
        votes = np.where(X[:, 0] == 1, self.ones, 0)
        return np.asarray(noisy_majority(votes, voters=TEACHERS, sigma=SIGMA, unsafe_noise=self.noise).value)


def _extraction() -> Table:
    noise, points = Seeded(unsafe_seed=11), np.array([[0], [1]])
    rows = []
    for queries in (64, 512, 4096):
        attack: dict[str, Any] = {"points": points, "runs": 100, "queries": queries, "unsafe_noise": noise}
        static = membership(lambda ones: _Static(ones, noise), 9, 10, **attack)
        phase: dict[str, Any] = {"teachers": TEACHERS, "shard": 1, "answers": 2048, "vote_delta": Fraction(1, 1000),
                                 "vote_epsilon": Fraction(9, 10)}
        phases = [BBLPhase(**phase, scored=1, drawn=TEACHERS), BBLPhase(**phase)]

        def train(ones: int, phases: list[BBLPhase] = phases) -> GenericBBL:
            bbl = GenericBBL(Finite([[0, 0], [0, 1]]), epsilon=1, delta=1e-3, labeller="gaussian", phases=phases)
            X = np.ones((TEACHERS, 1), dtype=int)
            return bbl.fit_with_noise(X, (np.arange(TEACHERS) < ones).astype(int), unsafe_noise=noise)

        phased = membership(train, 9, 10, **attack)
        rows.append((f"{queries:,}", f"{static.advantage:.2f}", f"{phased.advantage:.2f}",
                     f"{most_advantage(epsilon=1, delta=1e-3):.2f}"))
    columns = ("queries asked", "advantage, static", "advantage, phases at ε = 1", "most that ε = 1 allows")
    title = f"Telling 9 votes of {TEACHERS} from 10 by asking (±{membership_spread():.2f})"
    return Table(title, columns, tuple(rows))


def membership_spread() -> float:
    """The standard deviation of an advantage over 50 runs, at most."""
    return float((0.5 / 50) ** 0.5)


def _scientific(number: int | None) -> str:
    if number is None:
        return "–"
    return f"{number:,}" if number < 10**6 else f"{number:.1e}"
