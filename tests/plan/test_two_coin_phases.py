"""Phases of a two-coin labeller may shrink to their end: plan and fit foresee it by public numbers."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import reticent as rt
from reticent import noise
from reticent.concepts import Thresholds
from reticent.labellers.registry import names
from reticent.labellers.two_coin import TwoCoin
from reticent.plan.everlasting import everlasting
from reticent.predictors.engines import votes
from reticent.predictors.everlasting import EverlastingPredictor

BLURRED: dict[str, Any] = {"query_epsilon": 0.5, "query_delta": 1e-6}


def labeller(classes: int = 2, seed: int | None = None, **options: Any) -> TwoCoin:
    seeded = None if seed is None else noise.Seeded(unsafe_seed=seed)
    return TwoCoin(teachers=600, classes=classes, epsilon=2, delta=1e-6, unsafe_noise=seeded, **options)


# ── how many answers ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tries", [1, 2, 5])
def test_no_votes_use_up_hits_faster_than_an_even_split_or_slower_than_agreement(classes: int, tries: int) -> None:
    made = labeller(classes, tries=tries)
    even, agreed = np.full(classes, 600 // classes), np.eye(classes, dtype=np.int64)[0] * 600
    votes = np.random.default_rng(0).multinomial(600, np.random.default_rng(1).dirichlet(np.ones(classes), 300))
    hits = made.expected_hits(np.vstack([even, agreed, votes]))
    assert (hits[2:] <= hits[0] + 1e-12).all()
    assert (hits[2:] >= hits[1] - 1e-12).all()


@pytest.mark.parametrize("options", [{}, BLURRED, {**BLURRED, "tries": 5}], ids=["plain", "blurred", "five tries"])
@pytest.mark.parametrize("split", [True, False])
def test_so_many_questions_are_answered(split: bool, options: dict[str, Any]) -> None:
    given = []
    for seed in range(5):
        made = labeller(seed=seed, steepness=4, **options)
        votes, answers = np.tile([300, 300] if split else [600, 0], (200, 1)), 0
        while not made.closed:
            answers += len(made.label(votes))
        given.append(answers)
    expected = labeller(steepness=4, **options).expected_answers(10**6, split=split)
    assert 0.85 < np.mean(given) / expected < 1.2


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_foresees_phases_that_shrink_to_their_end() -> None:
    common: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "labeller": "two-coin"}
    plan = everlasting(62_000, 5, labeller_options={"steepness": 15}, **common)
    assert plan.phases[0].queries == 124_000
    assert plan.worst is not None
    assert plan.worst.ends
    assert plan.worst.phases[0][0] == 62_000
    assert plan.worst.phases[0][1] < 20_000
    assert plan.disagreement_at_most is not None
    assert 0.2 < plan.disagreement_at_most < 0.6
    text = str(plan)
    assert "It can be sustained only as long as teachers agree." in text
    assert f"phases would give {plan.worst.phases[0][1]:,} answers, and then none." in text
    assert f"if teachers disagree on at most {plan.disagreement_at_most:.1%} of the queries" in text
    assert json.loads(json.dumps(asdict(plan)))["worst"]["ends"] is True


def test_phases_shrink_before_they_end() -> None:
    plan = everlasting(
        300_000, 5, epsilon=1, delta=1e-6, labeller="two-coin", labeller_options={"steepness": 15}
    )
    assert plan.worst is not None
    rows = [one[0] for one in plan.worst.phases]
    assert len(rows) >= 3
    assert rows == sorted(rows, reverse=True)
    assert all(after <= answers for (_, answers), after in zip(plan.worst.phases, rows[1:], strict=False))


@pytest.mark.parametrize(("rows", "features", "epsilon"), [(3_000, 1, 8), (200_000, 5, 1)])
@pytest.mark.parametrize("phases", [1, 2, 8])
def test_the_plan_says_where_even_a_split_closes_no_phase(
    rows: int, features: int, epsilon: float, phases: int
) -> None:
    plan = everlasting(rows, features, epsilon=epsilon, delta=1e-6, labeller="two-coin", phases=phases)
    assert plan.worst is not None
    assert not plan.worst.ends
    assert plan.sustained
    planned = [(each.rows, each.answers) for each in plan.phases]
    assert list(plan.worst.phases) == planned[: len(plan.worst.phases)]
    assert "Even at worst, if they were evenly split on every query, no phase would close early." in str(plan)
    assert "phases would give" not in str(plan)
    assert "It can be sustained.\n" in str(plan)


def test_a_plan_for_two_coins_does_not_recommend_two_coins() -> None:
    common: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "phases": 1}
    other, this = everlasting(200_000, 5, **common), everlasting(200_000, 5, labeller="two-coin", **common)
    assert "A two-coin labeller (steepness" in str(other)
    assert (this.two_coin, "would give about" in str(this)) == (None, False)


def test_the_help_names_every_labeller() -> None:
    assert all(f'"{name}"' in (everlasting.__doc__ or "") for name in ("auto", *names(votes.serves)))


def test_the_plan_says_where_even_agreement_does_not() -> None:
    """A second phase of as many rows has three quarters of the budget, and then not enough for a labeller."""
    steep = {"steepness": 70}
    plan = everlasting(62_000, 5, epsilon=1, delta=1e-6, labeller="two-coin", labeller_options=steep, max_rows=62_000)
    assert len(plan.phases) > 1
    assert not plan.sustained
    assert "Even if all teachers agree, a later phase has too few rows" in plan.why
    assert "It cannot be sustained." in str(plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "greedy", "gaussian"])
def test_labellers_that_never_close_early_have_no_worst_case(name: str) -> None:
    plan = everlasting(62_000, 5, epsilon=1, delta=1e-6, labeller=name, phases=2)
    assert (plan.worst, plan.disagreement_at_most) == (None, None)
    assert "It can be sustained.\n" in str(plan)


# ── fit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def fitted(rows: int = 3_000, seed: int = 0, **options: Any) -> list[str]:
    """What `fit` warns of, on labels that are anything."""
    generator = np.random.default_rng(seed)
    X, y = generator.random((rows, 1)), generator.integers(2, size=rows)
    known = {"epsilon": 1, "delta": 1e-4, "labeller": "two-coin", "most_noise": 50, "classes": (0, 1), **options}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        EverlastingPredictor(Thresholds(), **known).fit(X, y)
    assert all(one.category is rt.EndingWarning for one in found)
    assert all(one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def test_fit_warns_by_public_numbers_alone() -> None:
    told = fitted()
    assert len(told) == 1
    assert told[0].startswith("answers may not be endless: a two-coin labeller closes a phase early")
    assert told == fitted(seed=1)  # other rows, the same words
    plan = everlasting(
        3_000, 1, epsilon=1, delta=1e-4, labeller="two-coin", most_noise=50, learner="thresholds"
    )
    assert plan.worst is not None
    assert ", then ".join(f"{answers:,}" for _, answers in plan.worst.phases) in told[0]


@pytest.mark.parametrize("options", [{"answers": 100}, {"labeller": "greedy"}, {"epsilon": 20}], ids=str)
def test_fit_is_silent_where_nothing_can_end(options: dict[str, Any]) -> None:
    assert fitted(**options) == []


def test_phases_end_as_foreseen() -> None:
    """Teachers of coin flips, asked where they are split: the predictor gives about what the plan says, and ends."""
    generator = np.random.default_rng(0)
    X, y = generator.random((3_000, 1)), generator.integers(2, size=3_000)
    known: dict[str, Any] = {"epsilon": 1, "delta": 1e-4, "labeller": "two-coin", "most_noise": 50}
    plan = everlasting(3_000, 1, learner="thresholds", **known)
    assert plan.worst is not None
    with pytest.warns(rt.EndingWarning):
        model = EverlastingPredictor(Thresholds(), **known, classes=(0, 1), unsafe_seed=0).fit(X, y)
    answers = model.answer(generator.uniform(0.49, 0.51, (6_000, 1)))
    assert isinstance(answers.refused, rt.BudgetExhausted)
    given = np.bincount(answers.phases)[1:]
    assert len(given) == len(plan.worst.phases)
    assert 0.7 < given[0] / plan.worst.phases[0][1] < 1.6
