from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from reticent.concepts import Finite
from reticent.labellers import REGISTRY, make
from reticent.labellers import greedy as greedy_module
from reticent.labellers.answers import best, bought, candidates
from reticent.labellers.ballots import Ballots
from reticent.labellers.search import FURTHEST
from reticent.labellers.table import MOST_TEACHERS
from reticent.noise import Seeded
from reticent.plan.pate import pate
from reticent.plan.pate_bounds import PATEBound, pate_bounds
from reticent.privacy import accounting
from reticent.privacy.events import BoundedRange, DiscreteGaussian, Repeated

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
COUNTED = ("greedy", "poll", "gaussian", "bit", "gumbel", "gnmax")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def known_votes(teachers: int, *, questions: int = 2000, seed: int = 0) -> Ballots:
    """Teachers that are right more often than not, on some questions much more often."""
    generator = np.random.default_rng(seed)
    right = generator.binomial(teachers, generator.beta(4, 1, questions))
    truth = generator.integers(0, 2, questions)
    ones = np.where(truth == 1, right, teachers - right)
    return Ballots.of(np.column_stack([teachers - ones, ones]), truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["greedy", "poll", "gaussian", "bit", "gumbel"])
def test_what_was_bought_can_be_had(name: str) -> None:
    """The labeller made for so many answers is within (ε, δ) and loses what was planned; with more it loses more."""
    ballots = known_votes(301)
    found = bought(name, ballots, loss=0.02, **BUDGET)
    assert found.answers > 0

    def loss(answers: int) -> float:
        labeller = make(name, teachers=301, answers=answers, **found.options, **BUDGET)
        assert accounting.fits(labeller.event, **BUDGET)
        times = np.rint(ballots.weights * 2000).astype(int)
        counts, truth = np.repeat(ballots.counts, times, axis=0), np.repeat(ballots.truth, times)
        return ballots.majority - labeller.accuracy(counts, truth)

    assert found.loss <= 0.02
    assert loss(found.answers) == pytest.approx(found.loss, abs=5e-4)
    if name != "poll":
        assert loss(math.ceil(found.answers * 1.1)) > 0.02


def test_gnmax_of_two_classes_loses_what_was_planned() -> None:
    ballots = known_votes(301, questions=200)
    found = bought("gnmax", ballots, loss=0.02, **BUDGET)
    labeller = make("gnmax", teachers=301, answers=found.answers, **BUDGET)
    assert accounting.fits(labeller.event, **BUDGET)
    sigma = float(labeller.sigma)  # type: ignore[attr-defined]
    noise = np.random.default_rng(0).normal(size=(2000, len(ballots.truth), 2)) * sigma
    right = ((ballots.counts + noise).argmax(axis=2) == ballots.truth).mean(axis=0)
    assert ballots.loss(right) == pytest.approx(0.02, abs=0.003)


@pytest.mark.parametrize("classes", [2, 4])
def test_two_coin_gives_about_as_many_answers_as_planned(classes: int) -> None:
    ballots = Ballots.guess(500, classes=classes, disagreement=0.5)
    found = bought("two-coin", ballots, loss=0.1, **BUDGET)
    generator = np.random.default_rng(0)
    asked = generator.choice(len(ballots.truth), 2 * found.answers, p=ballots.weights)
    noise = Seeded(unsafe_seed=0)
    shape: dict[str, Any] = {"teachers": 500, "classes": classes, "answers": None}
    labeller = make("two-coin", unsafe_noise=noise, **shape, **found.options, **BUDGET)
    labels = labeller.label(ballots.counts[asked])
    assert labeller.closed
    hits = labeller.hits  # type: ignore[attr-defined]
    assert abs(len(labels) / found.answers - 1) < 6 / math.sqrt(hits)
    wrong = float((labels != 1).mean())
    assert abs(wrong - found.loss) < 5 * math.sqrt(found.loss / len(labels))


def test_sparse_vector_gives_about_as_many_answers_as_planned() -> None:
    ballots = Ballots.guess(1000, disagreement=0.5)
    found = next(each for each in candidates("sparse-vector", ballots, **BUDGET) if each.options == {"halts": 10})
    asked = np.random.default_rng(0).choice(len(ballots.truth), 3000, p=ballots.weights)
    given_ = []
    for seed in range(30):
        noise = Seeded(unsafe_seed=seed)
        labeller = make("sparse-vector", teachers=1000, answers=None, unsafe_noise=noise, **found.options, **BUDGET)
        given_.append(int((labeller.label(ballots.counts[np.roll(asked, seed * 97)]) >= 0).sum()))
    assert np.mean(given_) == pytest.approx(found.answers, rel=0.3)


def test_confident_is_made_as_planned() -> None:
    ballots = Ballots.guess(500)
    found = bought("confident", ballots, **BUDGET)
    labeller = make("confident", teachers=500, answers=found.answers, **found.options, **BUDGET)
    assert accounting.fits(labeller.event, **BUDGET)


@pytest.mark.slow
def test_many_teachers_are_planned_for_as_fewer() -> None:
    ballots = Ballots.guess(4001)
    coarse, fine = (bought("greedy", ballots, exact=exact, **BUDGET).answers for exact in (False, True))
    assert coarse == pytest.approx(fine, rel=0.04)


@pytest.mark.slow
def test_more_of_anything_buys_more() -> None:
    base: dict[str, Any] = {"teachers": 400, "epsilon": 1, "delta": 1e-6, "disagreement": 0.1, "loss": 0.01}
    for name in ("greedy", "two-coin", "gaussian"):

        def answers(name: str = name, **changed: Any) -> int:
            parameters = base | changed
            ballots = Ballots.guess(parameters.pop("teachers"), disagreement=parameters.pop("disagreement"))
            return bought(name, ballots, **parameters).answers

        least = answers()
        assert least > 0
        for change in ({"teachers": 800}, {"epsilon": 2}, {"delta": 1e-4}, {"disagreement": 0.05}, {"loss": 0.02}):
            assert answers(**change) > least, (name, change)


@pytest.mark.slow
def test_a_plan_is_sorted_and_printed() -> None:
    plan = pate(400, queries=100, **BUDGET)
    assert {each.labeller for each in plan.bought} == set(REGISTRY) - {"gnmax"}
    assert [each.answers for each in plan.bought] == sorted((each.answers for each in plan.bought), reverse=True)
    text = str(plan).splitlines()
    assert text[0].startswith("400 teachers at ε = 1, δ = 1e-06 for rows")
    assert all(("enough" in line) == (each.answers >= 100) for line, each in zip(text[1:], plan.bought, strict=False))
    assert asdict(plan)["bought"][0]["labeller"] == plan.bought[0].labeller, "for JSON"
    several = {each.labeller for each in pate(400, classes=5, **BUDGET).bought}
    assert several == {"two-coin", "gumbel", "gnmax", "confident", "sparse-vector"}


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, 100, 10**6])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_auto_picks_what_can_be_made(queries: int | None, stateless: bool, classes: int) -> None:
    found = best(500, classes=classes, queries=queries, stateless=stateless, **BUDGET)
    assert found.stateless == REGISTRY[found.labeller].stateless
    assert found.stateless or not stateless
    labeller = make(found.labeller, teachers=500, classes=classes, answers=found.answers, **found.options, **BUDGET)
    assert labeller.stateless == found.stateless
    if classes == 2:
        assert (found.labeller == "greedy") == (stateless or queries == 100)
    assert pate(500, classes=classes, queries=queries, **BUDGET).best(stateless=stateless) == found


@pytest.mark.parametrize(
    ("classes", "options"),
    [
        (2, {"margins": [0.0]}),
        (2, {"margins": [0.001]}),
        (2, {"loss": 0.5}),
        (2, {"loss": 0.499}),
        (2, {"loss": 0.999}),
        (4, {"loss": 0.9}),
        (4, {"margins": [0.0]}),
    ],
)
def test_no_search_goes_on_without_end(classes: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loss is never exceeded, or hardly ever, the plan says so after a bounded number of tries."""
    tries = {"tables": 0, "prices": 0}

    def counted(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            tries[kind] += 1
            assert tries[kind] < 400
            return real(*arguments, **named)

        return run

    monkeypatch.setattr(greedy_module, "_table_chances", counted("tables", greedy_module._table_chances))
    monkeypatch.setattr(accounting, "fits", counted("prices", cheap_fits))
    plan = pate(300, classes=classes, **options, **BUDGET)
    assert all(0 <= each.answers <= FURTHEST for each in plan.bought)
    endless = options["loss"] > 1 - 1 / classes if "loss" in options else classes == 2
    endless |= options.get("loss") == 0.5
    assert (plan.bought[0].answers == FURTHEST) == endless
    assert ("any number" in str(plan)) == endless


def cheap_fits(event: Any, *, epsilon: Any, delta: Any) -> bool:
    """About what the accountant says of many answers with noise; the rest it says itself."""
    part = event.event if isinstance(event, Repeated) else event
    if not isinstance(part, DiscreteGaussian | BoundedRange):
        return real_fits(event, epsilon=epsilon, delta=delta)
    scale = part.sigma if isinstance(part, DiscreteGaussian) else 2 / part.epsilon
    return bool(scale > 4.3 * math.sqrt(event.times))


real_fits = accounting.fits


@pytest.mark.parametrize("name", ["poll", "two-coin"])
def test_more_teachers_than_a_table_has_connection_capacity_buy_nothing_by_it(name: str) -> None:
    assert bought(name, Ballots.guess(MOST_TEACHERS + 1), **BUDGET).answers == 0


@pytest.mark.parametrize("delta", [1e-6, 1e-12])
def test_an_epsilon_that_buys_nothing_is_no_error(delta: float) -> None:
    assert {each.answers for each in pate(1000, epsilon=1e-6, delta=delta).bought} == {0}


@pytest.mark.slow
def test_margins_that_are_given_are_used() -> None:
    clear, close = (pate(400, margins=[lead], **BUDGET).best(stateless=True).answers for lead in (0.9, 0.2))
    assert clear > 5 * close > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teachers": 0}, "teachers"),
        ({"teachers": 1.5}, "teachers"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"classes": 1}, "classes"),
        ({"queries": 0}, "queries"),
        ({"disagreement": 0}, "disagreement"),
        ({"disagreement": 1}, "disagreement"),
        ({"loss": 0}, "loss"),
        ({"loss": 1.5}, "loss"),
        ({"margins": []}, "margins"),
        ({"margins": [0.5, 1.5]}, "margins"),
        ({"margins": [math.nan]}, "margins.*got nan"),
        ({"margins": "abc"}, "margins must be numbers from 0 to 1.*got 'abc'"),
        ({"margins": [0.5], "disagreement": 0.2}, "disagreement=0.2 must be left out"),
    ],
)
def test_what_cannot_be_planned_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        pate(**({"teachers": 100, **BUDGET} | change))


@pytest.mark.slow
@given(st.integers(1, 60), st.sampled_from([0.1, 1, 8]), st.sampled_from([1e-9, 1e-6, 0.1]), st.integers(2, 4))
@settings(max_examples=12, deadline=None)
def test_any_number_of_teachers_has_a_plan(teachers: int, epsilon: float, delta: float, classes: int) -> None:
    plan = pate(teachers, epsilon=epsilon, delta=delta, classes=classes)
    assert all(each.answers >= 0 and each.loss <= 0.01 + 1e-12 for each in plan.bought)


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────

PROBLEM: dict[str, Any] = {"rows": 10**8, "public": 10**12, "dimension": 10, "epsilon": 1, "delta": 1e-6}


def bound(theorem: int, **changed: Any) -> PATEBound:
    return next(each for each in pate_bounds(**(PROBLEM | changed)).bounds if each.theorem == theorem)


@pytest.mark.parametrize(
    ("theorem", "options", "in_rows", "in_dimension"),
    [
        # The exponents of nε and of d in Table 1, where public rows abound.
        (28, {}, -2 / 3, 1),
        (5, {}, -2 / 3, 1),
        (10, {}, -1, 3 / 2),
        (22, {}, -1, 3 / 2),
        (28, {"setting": "tsybakov", "tau": 0.5}, -2 / 7, 3 / 7),
        (10, {"setting": "tsybakov", "tau": 0.5}, -1 / 3, 1 / 2),
        (22, {"setting": "tsybakov", "tau": 0.5}, -1 / 3, 1 / 2),
        (5, {"setting": "agnostic"}, -2 / 5, 3 / 5),
        (5, {"setting": "tsybakov", "tau": 0.5}, -2 / 5, 3 / 5),
    ],
)
def test_table_1(theorem: int, options: dict[str, Any], in_rows: float, in_dimension: float) -> None:
    base = bound(theorem, **options).excess
    assert math.log10(bound(theorem, rows=10**9, **options).excess / base) == pytest.approx(in_rows, abs=0.01)
    assert math.log10(bound(theorem, epsilon=10, **options).excess / base) == pytest.approx(in_rows, abs=0.01)
    assert math.log10(bound(theorem, dimension=100, **options).excess / base) == pytest.approx(in_dimension, abs=0.01)


@pytest.mark.parametrize(("theorem", "power"), [(28, -1), (5, -1 / 2), (10, -1), (22, -1)])
def test_table_1_where_public_rows_are_few(theorem: int, power: float) -> None:
    few, more = (bound(theorem, rows=10**12, public=public).excess for public in (1000, 10_000))
    assert math.log10(more / few) == pytest.approx(power, abs=0.01)


def test_the_best_number_of_labels_is_that_of_remark_12() -> None:
    for tau in (0.3, 0.7, 1):
        found = bound(10, setting="tsybakov", tau=tau)
        printed = (10 ** (4 - 5 * tau) * 1e8 ** (2 * tau)) ** (1 / (4 - 2 * tau))  # where the two terms are equal
        power = tau / (4 - 3 * tau)
        assert found.labels == pytest.approx(printed * power ** (-1 / (1 + power)), rel=0.01), "their sum is least"


def test_theorem_22_is_solved_by_itself() -> None:
    for theta, tau in ((1, 1), (5, 1), (5, 0.5)):
        found = bound(22, setting="tsybakov", tau=tau, theta=theta)
        assert found.teachers is not None
        assert found.solved is not None
        drawn = (10 * found.teachers * math.log(10**7) + math.log(2 * found.teachers / 0.05)) / 10**8
        assert found.solved == pytest.approx(drawn ** (tau / (2 - tau)), rel=0.02)
        assert found.solved > found.excess, "logarithms make it larger"
    assert bound(22, theta=16).excess == pytest.approx(4 * bound(22).excess)


def test_theorem_28_has_the_teachers_that_its_proof_needs() -> None:
    """K ≥ 6σ√(2·log(2n)) with the σ at which ε = √(2m·log(1/δ))/σ + m/(2σ²)."""
    found = bound(28)
    assert found.teachers is not None
    sigma = found.teachers / (6 * math.sqrt(2 * math.log(2e8)))
    spent = math.sqrt(2 * found.labels * math.log(1e6)) / sigma + found.labels / (2 * sigma**2)
    assert spent == pytest.approx(1, rel=1e-4)


def test_agnostic_bounds() -> None:
    none, some = (bound(5, setting="agnostic", best_error=error).excess for error in (0, 0.05))
    assert some == pytest.approx(none + 12 * 0.05), "13 times the error of the best, of which it has one itself"
    voting: dict[str, Any] = {"setting": "agnostic", "unclear": 0.01, "margin": 0.2, "public": 10**6}
    near, far = (bound(19, apart=apart, **voting).excess for apart in (0, 0.1))
    assert far == pytest.approx(near + 0.1)
    assert near == pytest.approx(2 * 0.01, abs=0.005), "2ν, as m grows"
    assert bound(20, **voting).excess > bound(19, **voting).excess
    assert not [each for each in pate_bounds(**PROBLEM, setting="agnostic").bounds if each.theorem in (19, 20)]


def test_what_a_table_entry_lacks_is_said() -> None:
    hopeless = pate_bounds(**(PROBLEM | {"rows": 10**6}), setting="agnostic", unclear=0.01, margin=0.01)
    assert str(hopeless).count("teachers, more than there are rows") == 2
    assert 'Theorems 10, 22, 28 have no agnostic bound over h*: "Ω(Err(h*)) required"' in str(hopeless)
    assert "more than" not in str(pate_bounds(**PROBLEM))


@pytest.mark.parametrize(("active", "theorems"), [(None, [28, 5, 10, 22]), (True, [22]), (False, [28, 5, 10])])
def test_active_or_passive(active: bool | None, theorems: list[int]) -> None:
    found = pate_bounds(**PROBLEM, active=active)
    assert [each.theorem for each in found.bounds] == theorems
    assert str(found).count("\nTheorem ") == len(theorems)


def test_what_is_assumed_is_said() -> None:
    """A default that promises most for one theorem, such as θ = 1, must not pass for a comparison."""
    assert pate_bounds(**PROBLEM).assumed == ("theta = 1 (Theorem 22)",)
    assert "the values that promise most: theta = 1 (Theorem 22)" in str(pate_bounds(**PROBLEM))
    assert pate_bounds(**PROBLEM, theta=4).assumed == ()
    assert "Not given" not in str(pate_bounds(**PROBLEM, theta=4))
    assert pate_bounds(**PROBLEM, active=False).assumed == ()
    tsybakov = pate_bounds(**PROBLEM, setting="tsybakov", tau=0.5)
    assert tsybakov.assumed == ("theta = 1 (Theorem 22)", "eta = 1 (Theorem 22)", "best_error = 0 (Theorem 5)")
    for name, worse in {"theta": 4, "eta": 2, "best_error": 0.1, "tau": 0.3}.items():
        changed: dict[str, Any] = {"tau": 0.5} | {name: worse}
        given = pate_bounds(**PROBLEM, setting="tsybakov", **changed)
        for before, after in zip(tsybakov.bounds, given.bounds, strict=True):
            assert (after.solved or after.excess) >= (before.solved or before.excess), "what is assumed promises most"


def test_logarithms_that_are_kept_in_some_only_are_said() -> None:
    assert "log(1/δ) is part of Theorems 5, 22 and hidden in Theorems 28, 10" in str(pate_bounds(**PROBLEM))
    assert "log(1/δ)" not in str(pate_bounds(**PROBLEM, active=True))


def test_a_bound_that_promises_nothing_is_said_to() -> None:
    few = pate_bounds(rows=100, public=100, dimension=50, epsilon=1, delta=1e-6)
    assert str(few).count("promises nothing") == sum(map(few.vacuous, few.bounds)) >= 3
    assert any(bound.excess >= 1 for bound in few.bounds)
    many = pate_bounds(**(PROBLEM | {"rows": 10**9}), theta=4)
    assert "promises nothing" not in str(many)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows"),
        ({"public": -1}, "public"),
        ({"dimension": 1.5}, "dimension"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"setting": "hopeful"}, "setting"),
        ({"setting": "tsybakov", "tau": 0}, "tau must be above 0 and at most 1, got 0"),
        ({"setting": "tsybakov", "tau": 1.1}, "tau"),
        ({"theta": 0.5}, "theta must be at least 1, got 0.5"),
        ({"setting": "tsybakov", "eta": 0}, "eta must be at least 1"),
        ({"setting": "agnostic", "best_error": 2}, "best_error"),
        ({"best_error": 0.3}, "best_error=0.3 must be left out: it is for the setting 'tsybakov' and 'agnostic'"),
        ({"tau": 0.5}, "tau=0.5 must be left out"),
        ({"setting": "agnostic", "tau": 0.5}, "tau=0.5 must be left out"),
        ({"setting": "agnostic", "theta": 2}, "theta=2 must be left out"),
        ({"unclear": 0.1, "margin": 0.1}, "unclear=0.1 must be left out"),
        ({"setting": "agnostic", "apart": 0.1}, "apart only with them"),
        ({"active": "yes"}, "active must be True, False or None, got 'yes'"),
        ({"active": False, "theta": 2}, "theta and eta must be left out"),
        (
            {"setting": "agnostic", "unclear": 0.1, "margin": 0.1, "epsilon": 15},
            "epsilon must be at most .* = 14.51 for Theorems 19 and 20, got 15",
        ),
        ({"failure": 0}, "failure"),
        ({"setting": "agnostic", "active": True}, "active"),
        ({"setting": "agnostic", "unclear": 0.1}, "unclear and margin"),
        ({"setting": "agnostic", "unclear": 0.1, "margin": 0}, "margin"),
    ],
)
def test_bounds_that_cannot_be_had_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        pate_bounds(**(PROBLEM | change))


# ── when voting fails, and when it wins ───────────────────────────────────────────────────────────────────────────

CONCEPTS = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])


def test_example_1_voting_fails() -> None:
    """Every hypothesis errs on half of four points that are all labelled 1; the vote of many errs on three of them."""
    generator = np.random.default_rng(0)
    hypotheses = Finite(CONCEPTS.astype(bool))
    shards = [generator.integers(0, 4, 200) for _ in range(600)]
    points = np.arange(4)
    opinions = np.array([hypotheses.predict(hypotheses.erm(shard, shard >= 0), points) for shard in shards])
    assert (1 - opinions.mean(axis=1) == 0.5).all(), "as good as the best"
    ones = opinions.sum(axis=0)
    votes = np.column_stack([len(shards) - ones, ones])
    assert 1 - (ones > len(shards) / 2).mean() == 0.75
    answers = make("greedy", teachers=len(shards), answers=40, unsafe_noise=Seeded(unsafe_seed=0), **BUDGET)
    assert 1 - answers.label(np.tile(votes, (10, 1))).mean() >= 0.7, "and so do private answers"


def test_example_1_is_worse_with_more_teachers() -> None:
    """Each of three points has a third of the teachers: a majority for 1 is less likely the more there are."""
    chances = [binom.sf(teachers // 2, teachers, 1 / 3) for teachers in (1, 11, 101, 1001)]
    assert all(later < earlier for earlier, later in pairwise(chances))
    assert chances[-1] < math.exp(-2 * 1001 / 36)


@pytest.mark.slow
@pytest.mark.parametrize("xi", [0.05, 0.1, 0.2])
def test_example_2_voting_wins(xi: float) -> None:
    """Teachers that err with probability 1/2 − ξ, independently: the vote errs with probability at most e^(−2Kξ²)."""
    for teachers in (1, 10, 100, 1000):
        assert binom.sf(math.ceil(teachers / 2) - 1, teachers, 0.5 - xi) <= math.exp(-2 * teachers * xi**2)
    teachers = 4000
    right = np.random.default_rng(0).binomial(teachers, 0.5 + xi, 2000)
    ballots = Ballots.of(np.column_stack([teachers - right, right]), np.ones(2000, dtype=np.int64))
    assert ballots.majority == pytest.approx(1)
    found = bought("greedy", ballots, **BUDGET)
    assert 1 - found.loss >= 0.99 > 0.5 + xi, "private answers, and better than any teacher"
    assert found.answers > 100 * (xi / 0.05) ** 2 / 2
