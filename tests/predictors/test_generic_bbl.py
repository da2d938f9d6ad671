from __future__ import annotations

import copy
import math
import pickle
import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit.hockey_stick import Divergence, exact
from reticent.audit.laws import Law, law
from reticent.concepts import Finite, Intervals, Points, Thresholds
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.mechanisms.between_thresholds import required_gap
from reticent.noise import Noise, Seeded
from reticent.plan.generic_bbl import generic_bbl
from reticent.predictors.bbl_phases import (
    BBLLabeller,
    BBLPhase,
    least_sigma,
    phase_cost,
    query_cost,
    training_cost,
    vote_epsilon,
)
from reticent.predictors.bbl_schedules import BBLSchedule, Calibrated, Printed
from reticent.predictors.generic_bbl import GenericBBL
from reticent.privacy.events import ApproximateDP, Event, Parallel, SeededRelease, Subsampled
from reticent.privacy.pairs import amplified
from reticent.promises import rows_needed

Array = NDArray[Any]
Rows = tuple[tuple[int, int], ...]  # (value, label)

LOG4 = math.log(4)
TAIL = 60


# ── the game: everything an adversary sees ────────────────────────────────────────────────────────────────────────


def table(rows: Rows) -> tuple[Array, Array]:
    return np.array([value for value, _ in rows])[:, None], np.array([label for _, label in rows])


def view(bbl: GenericBBL, rows: Rows, queries: tuple[int, ...], noise: Noise, hidden: int | None) -> tuple[Any, ...]:
    """All answers but that to the hidden query, up to a refusal."""
    bbl.fit_with_noise(*table(rows), unsafe_noise=noise)
    seen: list[Any] = []
    for place, query in enumerate(queries):
        try:
            answer = int(bbl.predict([[query]])[0])
        except BudgetExhausted:
            return (*seen, "closed")
        if place != hidden:
            seen.append(answer)
    return tuple(seen)


def law_of(bbl: GenericBBL, rows: Rows, queries: tuple[int, ...], hidden: int | None = None) -> Law:
    return law(lambda noise: view(bbl, rows, queries, noise, hidden), tail_bits=TAIL)


def training_pair(bbl: GenericBBL, rows: Rows, other: Rows, queries: tuple[int, ...]) -> Divergence:
    return exact(law_of(bbl, rows, queries), law_of(bbl, other, queries))


def query_pair(
    bbl: GenericBBL, rows: Rows, queries: tuple[int, ...], other: tuple[int, ...]
) -> Divergence:
    (hidden,) = (place for place, pair in enumerate(zip(queries, other, strict=True)) if pair[0] != pair[1])
    return exact(law_of(bbl, rows, queries, hidden), law_of(bbl, rows, other, hidden))


def claims(bbl: GenericBBL) -> list[tuple[Fraction, Fraction]]:
    """(ε, δ) of a training row, then of the queries of each phase, out of the event of the fitted predictor."""
    event: Event = bbl.event_
    assert isinstance(event, SeededRelease)
    members = event.event.events if isinstance(event.event, Parallel) else (event.event,)
    pairs = []
    for member in members:
        inner, rate = (member.event, member.rate) if isinstance(member, Subsampled) else (member, Fraction(1))
        assert isinstance(inner, ApproximateDP)
        pairs.append((amplified(inner.epsilon, rate), rate * inner.delta))
    return pairs


def keeps(pair: Divergence, claim: tuple[Fraction, Fraction]) -> bool:
    lower, upper = pair.delta(claim[0])
    assert upper - lower < 1e-15  # nothing that matters was left out
    return upper <= float(claim[1]) + 1e-15


# ── the twins ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ByErm(GenericBBL):
    """The labelling with the fewest errors, not a random one."""

    def _relabel(self, rows: Array, labels: Array, queries: Array, epsilon: Any, unsafe_noise: Any) -> Array:
        dichotomies = self.concept_class.dichotomies(queries)
        return dichotomies.labels(int(np.argmin(dichotomies.errors(labels, at=rows))))


class Through(Noise):
    """The noise of an audit, with one kind of draw broken."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def subset(self, n: int, k: int) -> Array:
        return self.noise.subset(n, k)

    def gaussian_cell(self, sigma: Any, cuts: Any) -> int:
        return self.noise.gaussian_cell(sigma, cuts)

    def choose(self, *arguments: Any, **keywords: Any) -> int:
        return self.noise.choose(*arguments, **keywords)


class IndexOrder(Through):
    def subset(self, n: int, k: int) -> Array:
        return np.sort(super().subset(n, k))


class HalfTheNoise(Through):
    def gaussian_cell(self, sigma: Any, cuts: Any) -> int:
        return super().gaussian_cell(sigma / 2, cuts)


def broken(bbl: GenericBBL, noise: type[Through]) -> GenericBBL:
    class Twin(GenericBBL):
        def fit_with_noise(self, X: Any, y: Any, *, unsafe_noise: Noise | None) -> Any:
            assert unsafe_noise is not None
            return super().fit_with_noise(X, y, unsafe_noise=noise(unsafe_noise))

    return Twin(**bbl.get_params(deep=False))


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────

SURE = Fraction(1, 12)  # noise that changes nothing, for phases that are not what a test is about
DELTA = Fraction(1, 1000)

# Where a is labelled 0, p may be labelled in two ways and q in one; where a is labelled 1, the reverse.
A, P, Q = 0, 1, 2
FORK = Finite([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1]])


def gaussian(phases: list[BBLPhase], concepts: Finite = FORK, kind: type[GenericBBL] = GenericBBL) -> GenericBBL:
    return kind(concepts, epsilon=10_000, delta=0.9, labeller="gaussian", phases=phases)


def three_phases() -> list[BBLPhase]:
    """Two answers a phase; the label of one row decides those of both queries, which become the next rows."""
    common: dict[str, Any] = {"teachers": 2, "shard": 1, "vote_delta": DELTA, "sigma": 1}
    turned = BBLPhase(**common, answers=2, scored=1, drawn=2)
    return [turned, turned, BBLPhase(**common, answers=1)]


@pytest.mark.slow
def test_training_row_over_two_phases() -> None:
    bbl = gaussian(three_phases()[1:])
    rows: Rows = ((A, 1), (A, 1), (A, 1))
    queries = (A, A, A)
    pair = training_pair(bbl, rows, ((A, 0), (A, 1), (A, 1)), queries)
    claim = claims(bbl)[0]
    assert claim[1] == DELTA * Fraction(2, 3)
    assert keeps(pair, claim)
    # Half of the claim is attained: the votes by themselves, of which a part is drawn, attain most of theirs.
    assert pair.epsilon(claim[1])[0] > 0.5 * float(claim[0])
    twin = broken(bbl, HalfTheNoise)
    assert not keeps(training_pair(twin, rows, ((A, 0), (A, 1), (A, 1)), queries), claim)


def test_training_row_of_a_sharp_second_phase() -> None:
    """A second phase that shows its rows costs a training row nothing; unless their labels are the best ones."""
    first = BBLPhase(teachers=1, shard=1, answers=1, vote_delta=DELTA, sigma=2, scored=1, drawn=1)
    phases = [first, BBLPhase(teachers=1, shard=1, answers=1, vote_delta=DELTA, sigma=SURE)]
    for kind in (GenericBBL, ByErm):
        bbl = gaussian(phases, kind=kind)
        pair = training_pair(bbl, ((A, 1),), ((A, 0),), (A, A))
        claim = claims(bbl)[0]
        assert float(claim[0]) == pytest.approx(float(vote_epsilon(first, "gaussian")) + 1)
        assert keeps(pair, claim) == (kind is GenericBBL)
        if kind is GenericBBL:
            assert pair.epsilon(claim[1])[0] > 0.6 * float(claim[0])


@pytest.mark.slow
def test_query_over_phases() -> None:
    """A replaced query costs nothing in its phase, something in the next, and no more after that."""
    scored = 3
    rows: Rows = ((A, 0),) * scored
    first = BBLPhase(
        teachers=1, shard=scored, answers=2, vote_delta=DELTA, sigma=SURE, scored=scored, drawn=2, relabel_epsilon=4
    )
    second = BBLPhase(teachers=2, shard=1, answers=2, vote_delta=DELTA, sigma=Fraction(1, 2), scored=1, drawn=2)
    third = BBLPhase(teachers=2, shard=1, answers=1, vote_delta=DELTA, sigma=SURE)
    bbl = gaussian([first, second, third])
    losses = []
    for asked in (2, 4, 5):
        queries = (P, A, P, P, P)[:asked]
        pair = query_pair(bbl, rows, queries, (Q, *queries[1:]))
        assert keeps(pair, claims(bbl)[1])
        losses.append(pair.epsilon(DELTA)[0])
    own, following, after = losses
    claim = float(claims(bbl)[1][0])
    cost = phase_cost(vote_epsilon(second, "gaussian"), Fraction(1), Fraction(1, 2))
    assert claim == pytest.approx(LOG4 + float(cost))
    assert own == 0 < following <= after <= claim
    assert after > 0.25 * claim


def test_query_when_relabelled_by_the_best_concept() -> None:
    """The best labelling of a, a and q has a = 1, that of a, a and p has a = 0: one query moves every vote."""
    concepts = Finite([[0, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])  # a, p, q and what is scored
    first = BBLPhase(
        teachers=1, shard=1, answers=3, vote_delta=DELTA, sigma=SURE, scored=1, drawn=3, relabel_epsilon=Fraction(1, 2)
    )
    phases = [first, BBLPhase(teachers=3, shard=1, answers=3, vote_delta=DELTA, sigma=1)]
    for kind in (GenericBBL, ByErm):
        bbl = gaussian(phases, concepts, kind)
        pair = query_pair(bbl, ((3, 1),), (A, A, P, A, A, A), (A, A, Q, A, A, A))
        assert keeps(pair, claims(bbl)[1]) == (kind is GenericBBL)
        if kind is ByErm:
            assert pair.delta(claims(bbl)[1][0])[0] > 100 * DELTA


def test_a_query_that_is_seldom_drawn() -> None:
    """Of three queries one is drawn, and shown by the next phase: a third of what it would cost otherwise."""
    first = BBLPhase(teachers=1, shard=1, answers=3, vote_delta=DELTA, sigma=SURE, scored=1, drawn=1)
    second = BBLPhase(teachers=1, shard=1, answers=2, vote_delta=DELTA, sigma=1)
    bbl = gaussian([first, second])
    pair = query_pair(bbl, ((A, 1),), (P, A, A, A, P), (Q, A, A, A, P))
    cost = phase_cost(vote_epsilon(second, "gaussian"), Fraction(1), Fraction(0))
    assert claims(bbl)[1] == query_cost(cost, DELTA, Fraction(1, 3), Fraction(1))
    assert keeps(pair, claims(bbl)[1])


@pytest.mark.slow
def test_rows_must_be_drawn_in_random_order() -> None:
    """Two teachers of two rows, of five. In index order, the row left out decides who is taught with whom."""
    concepts = Finite([[0, 0], [1, 0], [1, 1]])
    phase = BBLPhase(teachers=2, shard=2, answers=1, vote_delta=Fraction(1047, 10_000), sigma=Fraction(1, 2))
    bbl = gaussian([phase], concepts)
    others: Rows = ((0, 1), (1, 0), (1, 1), (1, 1))
    rows, other = ((0, 0), *others), ((0, 1), *others)
    assert keeps(training_pair(bbl, rows, other, (0,)), claims(bbl)[0])
    twin = training_pair(broken(bbl, IndexOrder), rows, other, (0,))
    assert twin.delta(claims(bbl)[0][0])[0] > 1.5 * float(claims(bbl)[0][1])


# ── the paper's labeller: what it does for rows, and what not for queries ─────────────────────────────────────────

TWO = Finite([[0, 0], [0, 1]])  # on the first point all concepts agree


def between(teachers: int, *, answers: int, budget: dict[str, Any], **more: Any) -> BBLPhase:
    return BBLPhase(teachers=teachers, shard=1, answers=answers, halts=1, **budget, **more)


def split(teachers: int) -> Rows:
    return ((1, 0), (1, 1)) * (teachers // 2)


@pytest.mark.slow
def test_a_halt_tells_what_the_query_was() -> None:
    """The attack on Claim E.6: whether the next query is answered shows on which side this one was."""
    budget: dict[str, Any] = {"vote_epsilon": Fraction(2), "vote_delta": Fraction(1, 1000)}
    teachers = 3 * required_gap(epsilon=2, delta=0.001) // 2 * 2
    bbl = GenericBBL(TWO, epsilon=2, delta=0.001, phases=[between(teachers, answers=4, budget=budget)])
    pair = query_pair(bbl, split(teachers), (1, 0), (0, 0))
    assert bbl.guarantee_.protects == "rows"
    assert pair.delta(2)[0] > 0.8


def test_gaussian_votes_do_not_tell() -> None:
    phase = BBLPhase(teachers=24, shard=1, answers=2, vote_delta=DELTA, sigma=4)
    pair = query_pair(gaussian([phase], TWO), split(24), (1, 0), (0, 0))
    assert pair.delta(0)[1] < 1e-15


@pytest.mark.slow
def test_training_row_of_the_papers_labeller() -> None:
    """Low and high answers pin the noise of the thresholds, and a halt closes the predictor."""
    budget: dict[str, Any] = {"vote_epsilon": Fraction(8), "vote_delta": Fraction(1, 1000)}
    teachers = required_gap(epsilon=8, delta=0.001)
    bbl = GenericBBL(TWO, epsilon=8, delta=0.001, phases=[between(teachers, answers=2, budget=budget)])
    rows: Rows = ((1, 0),) * (teachers - 1)
    pair = training_pair(bbl, ((1, 0), *rows), ((1, 1), *rows), (1, 1))
    (claim,) = claims(bbl)
    assert keeps(pair, claim)
    assert pair.epsilon(claim[1])[0] > 0.3 * float(claim[0])


# ── what is claimed ───────────────────────────────────────────────────────────────────────────────────────────────


def test_costs_by_hand() -> None:
    inner = phase_cost(Fraction(1), Fraction(1, 2), Fraction(1, 10))
    assert float(inner) == pytest.approx(1 + math.log(1 + 0.1 * math.expm1(0.5)))
    epsilon, delta = query_cost(inner, DELTA, Fraction(162, 1000), Fraction(1))
    assert float(epsilon) == pytest.approx(1, abs=0.005)  # where the paper would draw 0.0066
    assert delta == Fraction(162, 1000) * DELTA
    assert training_cost(inner, DELTA, Fraction(1)) == (inner, DELTA)
    kept, _ = query_cost(inner, DELTA, Fraction(162, 1000), Fraction(1, 2))
    assert kept < epsilon


def test_the_guarantee_is_that_of_the_phases_that_run() -> None:
    phases = [replace(phase, sigma=Fraction(9)) for phase in three_phases()]
    bbl = gaussian(phases).fit(*table(((A, 1), (A, 0), (A, 1))))
    expected = max(query_cost(Fraction(vote_epsilon(phase, "gaussian")) + part, DELTA, Fraction(1), Fraction(1))
                   for phase, part in ((phases[1], amplified(Fraction(1), Fraction(1, 2))), (phases[2], Fraction(0))))
    assert bbl.guarantee_.epsilon == pytest.approx(float(expected[0]))
    assert bbl.guarantee_.protects == "rows and queries"
    assert not bbl.guarantee_.seeded
    assert clone(bbl).set_params(unsafe_seed=1).fit(*table(((A, 1), (A, 0), (A, 1)))).guarantee_.seeded
    printed = clone(bbl).set_params(variant="printed").fit(*table(((A, 1), (A, 0), (A, 1))))
    assert printed.guarantee_.epsilon > bbl.guarantee_.epsilon


def test_phases_that_would_cost_too_much_are_refused() -> None:
    bbl = gaussian(three_phases()).set_params(epsilon=1)
    with pytest.raises(ValueError, match=r"phases would cost epsilon=.* more than epsilon=1"):
        bbl.fit(*table(((A, 1), (A, 0), (A, 1))))
    assert not hasattr(bbl, "guarantee_")


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1, 3])
def test_calibrated_budget_is_within_what_was_asked(epsilon: float) -> None:
    labeller: BBLLabeller = "gaussian"
    bbl = GenericBBL(Thresholds(), epsilon=epsilon, delta=1e-6, labeller=labeller, constants="calibrated")
    required = rows_needed(bbl.n_required)
    schedule = bbl._source().schedule(required)
    for phase in (schedule.first, next(schedule.later), next(schedule.later)):
        assert phase.scored * 50 <= phase.rows
        assert vote_epsilon(phase, labeller) == phase.vote_epsilon
    event = bbl._cost(schedule, required)
    guarantee = bbl._promised(event, seeded=False)
    assert 0.9 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.delta <= 1e-6


def test_printed_budget_is_far_within() -> None:
    bbl = GenericBBL(Thresholds(), epsilon=0.5, delta=1e-6, labeller="gaussian")
    source = bbl._source()
    guarantee = bbl._promised(bbl._cost(source.schedule(source.required), source.required), seeded=False)
    assert guarantee.epsilon < 0.5 / 5


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_printed_sizes() -> None:
    """The closed form of the initial input, and the claims on sizes that follow it."""
    alpha, beta, epsilon, delta = 0.02, 0.01, 0.5, 1e-6
    printed = Printed(
        3, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), error=Fraction(12, 100), failure=Fraction(4, 100),
        tau=Fraction(11 * 10**9),
    )
    inside = 8 * 3 * math.log2(26 / alpha) + 4 * math.log2(4 / beta)
    n = 8 * 1.1e10 / (alpha**3 * epsilon**2) * inside**2 * math.log2(1 / delta)
    n *= math.log2(8 * inside / (epsilon * alpha**2 * beta * delta)) ** 2 * (3 + math.exp(epsilon + 4))
    assert printed.required == pytest.approx(n, rel=1e-3)
    for i in range(1, 6):
        phase, following = printed.phase(i), printed.phase(i + 1)
        assert phase.drawn >= following.rows  # Claim D.6
        assert phase.halts == pytest.approx(64 * alpha / 2**i * phase.answers)


@pytest.mark.parametrize("labeller", ["gaussian", "between-thresholds"])
def test_calibrated_sizes(labeller: Any) -> None:
    sizes = [
        rows_needed(
            GenericBBL(
                Thresholds(), epsilon=e, delta=1e-6, labeller=labeller, constants="calibrated", error=a
            ).n_required
        )
        for e, a in ((1, 0.2), (1, 0.1), (0.5, 0.1))
    ]
    assert sizes == sorted(sizes)
    assert sizes[-1] < Printed(
        1, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), error=Fraction(1, 10), failure=Fraction(1, 20),
        tau=Fraction(11 * 10**9),
    ).required / 10**12


@pytest.mark.slow
def test_planned_noise_is_no_less_than_what_runs() -> None:
    for epsilon in (Fraction(1, 2), Fraction(2)):
        public: dict[str, Any] = {"epsilon": epsilon, "delta": Fraction(1, 10**6), "error": Fraction(1, 5)}
        plan = Calibrated(Thresholds(), labeller="gaussian", variant="max", failure=Fraction(1, 20), **public)
        for answers in (10**3, 10**6, 10**12):
            assert least_sigma(10**6, answers, plan.votes, plan.delta) <= plan.unit * math.sqrt(answers)
        plan = Calibrated(Thresholds(), labeller="between-thresholds", variant="max", failure=Fraction(1, 20), **public)
        for answers in (10**4, 10**7):
            gap = required_gap(epsilon=plan.votes, delta=plan.delta, halts=plan._halts(1, answers))
            assert gap / 2 < plan._doubt(1, answers)


def test_too_few_rows_name_the_number() -> None:
    bbl = GenericBBL(Thresholds(), epsilon=0.5, delta=1e-6)
    with pytest.raises(InsufficientData, match="constants='printed'") as refusal:
        bbl.fit([[1], [2]], [0, 1])
    assert refusal.value.required == rows_needed(bbl.n_required) > 10**27
    phases = [BBLPhase(teachers=3, shard=2, answers=1, vote_delta=DELTA, sigma=9)]
    with pytest.raises(InsufficientData, match="6 rows") as refusal:
        gaussian(phases).fit([[1], [2]], [0, 1])
    assert refusal.value.required == 6


@pytest.mark.slow
def test_too_many_halts_are_refused_before_the_rows_are_read() -> None:
    bbl = GenericBBL(Thresholds(bits=8), epsilon=1, delta=1e-6, constants="calibrated")
    refusal = r"at most halts=960000000000 at vote_epsilon=0.96, .*: take labeller='gaussian' or a larger epsilon"
    with pytest.raises(InsufficientData, match=f"Even that many would not suffice: .*{refusal}"):
        bbl.fit([[1], [2]], [0, 1])
    for better in ({"labeller": "gaussian"}, {"epsilon": 20}):
        with pytest.raises(InsufficientData, match=r"or give the phases(?!.*halts)"):
            clone(bbl).set_params(**better).fit([[1], [2]], [0, 1])
    required = rows_needed(bbl.n_required)
    with pytest.raises(ValueError, match=refusal):
        bbl._schedule(required)
    bbl.set_params(concept_class=Thresholds(), labeller="gaussian")
    with pytest.raises(InsufficientData, match=r"Even that many would not suffice: "):
        bbl.fit([[1], [2]], [0, 1])
    phase = BBLPhase(teachers=2, shard=1, answers=9, vote_epsilon=1, vote_delta=DELTA, halts=10**13)
    with pytest.raises(ValueError, match="at most halts=1000000000000 at vote_epsilon=1, and a phase has"):
        GenericBBL(TWO, epsilon=1, delta=0.1, phases=[phase]).fit("no rows", "no labels")


@pytest.mark.slow
def test_plan() -> None:
    plan = generic_bbl(Thresholds(), error=0.1, epsilon=0.5, delta=1e-6, labeller="gaussian")
    assert plan.paper_rows == rows_needed(GenericBBL(Thresholds(), epsilon=0.5, delta=1e-6).n_required, 0.1)
    back = generic_bbl(Thresholds(), rows=plan.rows, epsilon=0.5, delta=1e-6, labeller="gaussian")
    assert back.error == pytest.approx(0.1, rel=1e-3)
    assert plan.guarantee.protects == "rows and queries"
    assert generic_bbl(Thresholds(), error=0.1, epsilon=2, delta=1e-6).paper_rows is None


# ── real runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def endless(concepts: Any, labeller: Any, *, count: int = 5, teachers: int = 200, shard: int = 30) -> GenericBBL:
    rows = teachers * shard
    turned: dict[str, Any] = {"scored": rows // 4, "drawn": rows, "answers": 2 * rows}
    noise: dict[str, Any] = {"halts": rows // 2} if labeller == "between-thresholds" else {}
    phase = BBLPhase(
        teachers=teachers, shard=shard, vote_epsilon=6000 if noise else 20, vote_delta=1e-6, **turned, **noise
    )
    phases = [phase] * (count - 1) + [replace(phase, scored=0, drawn=0)]
    return GenericBBL(concepts, epsilon=6100, delta=1e-6, labeller=labeller, phases=phases, unsafe_seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("labeller", ["gaussian", "between-thresholds"])
def test_five_phases_of_thresholds(labeller: Any) -> None:
    generator = np.random.default_rng(1)
    bbl = endless(Thresholds(), labeller)
    x = generator.random((6000, 1))
    bbl.fit(x, x[:, 0] < 0.37)
    for number in range(1, 6):
        queries = generator.random((12_000, 1))
        wrong = 0
        for batch in np.split(queries, 8):
            wrong += int((bbl.predict(batch) != (batch[:, 0] < 0.37)).sum())
        assert bbl.phase_number_ == number
        assert bbl.answers_left_in_phase_ == 0
        assert wrong < 0.05 * len(queries)
    with pytest.raises(BudgetExhausted, match="0 more queries"):
        bbl.predict([[0.1]])


def test_phases_of_points() -> None:
    generator = np.random.default_rng(2)
    bbl = endless(Points(bits=3), "gaussian", count=3, teachers=200, shard=10)
    x = generator.integers(0, 8, (2000, 1))
    bbl.fit(x, x[:, 0] == 5)
    queries = generator.integers(0, 8, (12_000, 1))  # all phases in one call
    assert (bbl.predict(queries) == (queries[:, 0] == 5)).mean() > 0.95
    assert bbl.phase_number_ == 3


def test_phases_of_intervals() -> None:
    generator = np.random.default_rng(3)
    bbl = endless(Intervals(bits=5), "gaussian", count=2, teachers=100, shard=20)
    x = generator.integers(0, 32, (2000, 1))
    truth = np.isin(np.arange(32), np.arange(8, 20))
    bbl.fit(x, truth[x[:, 0]])
    queries = generator.integers(0, 32, (8000, 1))
    assert (bbl.predict(queries) == truth[queries[:, 0]]).mean() > 0.9


def test_the_papers_labeller_fails_for_good() -> None:
    budget: dict[str, Any] = {"vote_epsilon": Fraction(4), "vote_delta": Fraction(1, 1000)}
    bbl = GenericBBL(TWO, epsilon=4, delta=0.001, phases=[between(200, answers=100, budget=budget)])
    bbl.fit(*table(split(200)))
    with pytest.raises(BudgetExhausted, match=r"closed after halts=1.*; \d+ queries of this call were answered"):
        bbl.predict([[1]] * 50)
    with pytest.raises(BudgetExhausted, match=r"closed after halts=1.* start a new one$"):
        bbl.predict([[0]])


def test_answers_given_before_the_labeller_closed_are_not_lost() -> None:
    budget: dict[str, Any] = {"vote_epsilon": Fraction(4), "vote_delta": Fraction(1, 1000)}
    bbl = GenericBBL(TWO, epsilon=4, delta=0.001, phases=[between(400, answers=100, budget=budget)], unsafe_seed=1)
    bbl.fit(*table(split(400)))
    codes, phases, refused, _ = bbl.answer([[0]] * 5 + [[1]] * 50 + [[0]])
    assert 5 < len(codes) == len(phases) < 55
    assert codes[:5].tolist() == [0] * 5
    assert set(phases) == {1}
    assert f"; {len(codes)} queries of this call" in str(refused)
    assert bbl.answers_left_in_phase_ == 100 - len(codes)
    assert len(bbl.answer([[0]]).class_indices) == 0


def test_answers_have_the_phase_that_gave_them() -> None:
    first = BBLPhase(teachers=2, shard=1, answers=3, vote_delta=DELTA, sigma=3, scored=1, drawn=2)
    codes, phases, refused, _ = gaussian([first, PHASE], TWO).fit([[0], [1]], [0, 1]).answer([[0]] * 5)
    assert (len(codes), phases.tolist(), refused) == (5, [1, 1, 1, 2, 2], None)


class Growing(GenericBBL):
    """Phases without end, of which the second has more halts than can be."""

    def _schedule(self, rows: int) -> BBLSchedule:
        assert self.phases is not None
        phase = self.phases[0]
        return BBLSchedule(phase, iter([replace(phase, halts=10**15)]), Fraction(1), rows, endless=True)


def test_phases_without_end_end_where_the_labeller_does() -> None:
    phase = BBLPhase(
        teachers=800, shard=1, answers=800, vote_epsilon=100, vote_delta=1e-3, halts=50, scored=1, drawn=800
    )
    bbl = Growing(TWO, epsilon=110, delta=0.1, phases=[phase], unsafe_seed=1).fit([[0]] * 800, [0] * 800)
    codes, _, refused, _ = bbl.answer([[0]] * 801)
    assert len(codes) == 800
    refusal = "phase 1 was the last: .* at most halts=100000000000000 .* take labeller='gaussian' or a larger epsilon"
    assert re.match(f"{refusal}; 800 queries", str(refused))
    with pytest.raises(BudgetExhausted, match=f"{refusal}$"):
        bbl.predict([[0]])


def test_more_than_the_phases_answer_is_refused_before_any_is_answered() -> None:
    bbl = gaussian([BBLPhase(teachers=3, shard=1, answers=4, vote_delta=DELTA, sigma=3)]).fit(
        *table(((A, 1), (A, 1), (A, 0)))
    )
    with pytest.raises(BudgetExhausted, match="4 more queries, got 5"):
        bbl.predict([[A]] * 5)
    assert bbl.answers_left_in_phase_ == 4


def test_a_fitted_predictor_is_not_copied() -> None:
    bbl = gaussian([BBLPhase(teachers=3, shard=1, answers=4, vote_delta=DELTA, sigma=3)])
    assert pickle.loads(pickle.dumps(bbl.set_params(concept_class=TWO))).delta == bbl.delta
    bbl.fit(*table(((0, 0), (1, 1), (1, 0))))
    for copying in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match="budget would be spent twice"):
            copying(bbl)
    assert not hasattr(clone(bbl), "guarantee_")


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

PHASE = BBLPhase(teachers=2, shard=1, answers=9, vote_delta=DELTA, sigma=3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"error": 1}, "error"),
        ({"failure": 0}, "failure"),
        ({"labeller": "laplace"}, "labeller must be one of"),
        ({"constants": "mine"}, "constants must be one of"),
        ({"variant": "min"}, "variant must be one of"),
        ({"tau": -1}, "tau"),
        ({"phases": []}, "phases"),
        ({"phases": [3]}, "phases"),
        ({"concept_class": 3}, "concept_class"),
        ({"labeller": "between-thresholds"}, "halts"),
        ({"phases": None, "epsilon": 2}, "epsilon must be below 1 for constants='printed'"),
        ({"phases": None, "epsilon": 0.5, "error": 0.4}, "error must be below 6/16"),
    ],
)
def test_bad_parameters(change: dict[str, Any], reason: str) -> None:
    bbl = gaussian([PHASE], TWO).set_params(**({"delta": 0.01} | change))
    with pytest.raises((ValueError, TypeError), match=reason):
        bbl.fit([[0], [1]], [0, 1])


@pytest.mark.parametrize(
    "change",
    [
        {"teachers": 0}, {"shard": 0}, {"answers": 0}, {"vote_delta": 0}, {"vote_delta": 1}, {"sigma": -1},
        {"sigma": None}, {"scored": 3, "drawn": 1}, {"scored": 1}, {"scored": 1, "drawn": 10}, {"halts": 0},
        {"vote_epsilon": 0}, {"relabel_epsilon": 0}, {"teachers": 1.5},
    ],
)  # fmt: skip
def test_bad_phases(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        replace(PHASE, **change)


def test_phases_must_feed_each_other() -> None:
    first = replace(PHASE, scored=1, drawn=1)
    with pytest.raises(ValueError, match="as many queries as the next one has rows, 2, got drawn=1"):
        gaussian([first, PHASE], TWO).fit([[0], [1]], [0, 1])
    many = BBLPhase(teachers=1, shard=1, answers=10_000, vote_delta=DELTA, sigma=99, scored=1, drawn=10_000)
    with pytest.raises(ValueError, match="can list at most 2\\^24 of them"):
        gaussian([many, PHASE], TWO).set_params(concept_class=Intervals()).fit([[0], [1]], [0, 1])


def test_narrow_bands_are_refused() -> None:
    phase = BBLPhase(teachers=100, shard=1, answers=9, vote_epsilon=1, vote_delta=1e-6, halts=1, band=10)
    with pytest.raises(ValueError, match="upper − lower must be at least 59"):
        GenericBBL(TWO, epsilon=1, delta=1e-6, phases=[phase]).fit([[0]] * 100, [0] * 100)


@pytest.mark.parametrize("X", [[[0, 1]], [0], [[0], [0, 1]], np.zeros((1, 1, 1))])
def test_queries_of_another_shape_are_refused_and_not_counted(X: Any) -> None:
    bbl = gaussian([PHASE], TWO).fit([[0], [1]], [0, 1])
    with pytest.raises((ValueError, TypeError)):
        bbl.predict(X)
    assert bbl.answers_left_in_phase_ == 9


@pytest.mark.parametrize("x", [math.nan, math.inf, "a", 7, -1, 0.5, 2**64, 1j, None, object()])
def test_a_query_that_cannot_be_taken_counts_like_any_other(x: Any) -> None:
    """Were it not counted, the phase would end one query later for everybody: the clock would tell of it."""
    bbl = gaussian([PHASE], TWO).fit([[0], [1]], [0, 1])
    assert len(bbl.predict(np.array([[0], [x], [1]], dtype=object))) == 3
    assert bbl.answers_left_in_phase_ == 6


@pytest.mark.parametrize("y", [[0, 2], [0], ["a", "b"], [0.5, 1], None, [math.nan, 1]])
def test_bad_labels(y: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        gaussian([PHASE], TWO).fit([[0], [1]], y)


def test_phases_are_read_as_exact_decimals() -> None:
    phase = BBLPhase(
        teachers=2, shard=1, answers=9, vote_delta=1e-3, vote_epsilon=0.3, sigma=0.1, relabel_epsilon=0.7
    )
    assert (phase.vote_delta, phase.vote_epsilon, phase.sigma, phase.relabel_epsilon) == (
        Fraction(1, 1000), Fraction(3, 10), Fraction(1, 10), Fraction(7, 10)
    )  # fmt: skip
    assert replace(phase, drawn=1, scored=1) == replace(phase, drawn=1, scored=1) != phase == replace(phase)


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = {
    "check_estimators_nan_inf": "a query that is no number counts like any other, and is answered",
    "check_fit2d_predict1d": "refused in other words",
    "check_estimators_pickle": "a copy would answer anew",
    "check_dict_unchanged": "the number of answers left is kept count of",
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_dtype_object": "refused in other words",
    "check_classifiers_train": "no cut of the first column fits the data",
}


def cut(X: Any, at: float, above: bool) -> Array:
    first = np.reshape(np.asarray(X, dtype=np.float64), (len(X), -1))[:, 0]
    return np.asarray((first > at) == above)


@pytest.mark.slow
def test_scikit_learn_accepts_the_estimator() -> None:
    cuts = Finite([partial(cut, at=at, above=above) for at in np.linspace(-3, 3, 25) for above in (True, False)])
    phase = BBLPhase(teachers=1, shard=1, answers=10_000, sigma=0.1, vote_delta=1e-6)  # noise that changes nothing
    bbl = GenericBBL(cuts, epsilon=10**6, delta=1e-6, labeller="gaussian", phases=[phase], unsafe_seed=0)
    check_estimator(bbl, on_skip=None, expected_failed_checks=EXPECTED)


@pytest.mark.slow
@settings(max_examples=20)
@given(epsilon=st.floats(allow_nan=True, allow_infinity=True), delta=st.floats())
def test_any_numbers_are_refused_or_taken(epsilon: float, delta: float) -> None:
    bbl = gaussian([PHASE], TWO).set_params(epsilon=epsilon, delta=delta)
    try:
        bbl.fit([[0], [1]], [0, 1])
    except ValueError:
        return
    assert bbl.guarantee_.epsilon <= epsilon
    assert bbl.guarantee_.delta <= delta


def test_seeds_repeat() -> None:
    bbl = gaussian([PHASE], TWO).set_params(unsafe_seed=3)
    first, second = (bbl.fit([[0], [1]], [0, 1]).predict([[1]] * 9).tolist() for _ in range(2))
    assert first == second
    assert isinstance(Seeded(unsafe_seed=0), Noise)
