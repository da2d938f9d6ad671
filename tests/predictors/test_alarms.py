"""Alarms: the exact law of tests on old rows, the margin, what raises an alarm, and what follows it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from truth_models import chain, linear, rows_for, spread, votes

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import law
from reticent.errors import BudgetExhausted
from reticent.mechanisms.above_threshold import AboveThreshold
from reticent.noise import Noise
from reticent.predictors import alarms
from reticent.predictors.alarms import OldRowsTest, QualityAlarm, RaisedAlarm, false_alarms, least_margin, margin
from reticent.predictors.gauge import Quality, quality_of, release_confusion

# ── values move by at most 1 ──────────────────────────────────────────────────────────────────────────────────────


class Floating(QualityAlarm):
    """Twin: values in floating point."""

    def value(self, labels: Any, answers: Any, classes: int) -> int:
        wrong, known = int(((labels != answers) & (labels >= 0)).sum()), int((labels >= 0).sum())
        return math.floor(wrong - (1 - float(self.least)) * known)


def largest_move(alarm: QualityAlarm, rows: int, classes: int) -> int:
    """The most that a replaced row moves the value, over all labels and answers."""
    cells = list(product(range(-1, classes), range(classes)))
    found = 0
    for table in product(range(len(cells)), repeat=rows - 1):
        values = []
        for last in range(len(cells)):
            labels, answers = (np.array([cells[one][side] for one in (*table, last)]) for side in (0, 1))
            values.append(alarm.value(labels, answers, classes))
        found = max(found, max(values) - min(values))
    return found


@pytest.mark.parametrize("alarm", [QualityAlarm(accuracy=0.7), QualityAlarm(recall=0.35), QualityAlarm(recall=0.999)])
def test_a_replaced_row_moves_the_value_by_one_at_most(alarm: QualityAlarm) -> None:
    assert largest_move(alarm, 4, 2) == 1
    assert largest_move(alarm, 3, 3) == 1


def test_the_twin_in_floating_point_moves_by_two() -> None:
    """8 → 7 errors of 10 at a declared accuracy of .7: floor(8 − 3) and floor(7 − 3.0000000000000004)."""
    labels = np.zeros(10, dtype=np.int64)
    eight, seven = (np.arange(10) < wrong for wrong in (8, 7))
    values = {}
    for kind in (QualityAlarm, Floating):
        alarm = kind(accuracy=0.7)
        values[kind] = [alarm.value(labels, one.astype(np.int64), 2) for one in (eight, seven)]
    assert values[QualityAlarm] == [5, 4]
    assert values[Floating][0] - values[Floating][1] == 2


# ── the law of all tests together ─────────────────────────────────────────────────────────────────────────────────

MISSED = Fraction(1, 2**18)  # of the mass, at most: outcomes of a draw less likely than 2^-24 are not walked


def law_of_tests(labels: list[int], models: list[list[int]], *, epsilon: Fraction, again: bool = False) -> Any:
    """The law of which tests raise an alarm, as models answer the block one after another."""

    def run(noise: Noise) -> tuple[bool, ...]:
        def block() -> OldRowsTest:
            return OldRowsTest(
                np.zeros((3, 1)), np.array(labels), QualityAlarm(accuracy=Fraction(1, 2)), classes=2,
                epsilon=epsilon, unsafe_noise=noise,
            )  # fmt: skip

        test = block()
        seen: list[bool] = []
        for answers in models:
            if True in seen[-1:]:
                if not again or sum(seen) == 2:
                    break
                test = block()  # the twin: the same rows in a second run
            seen.append(test.lost(np.array(answers)))
        return tuple(seen)

    return law(run, tail_bits=24)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin that a block of three rows can reach."""
    monkeypatch.setattr(alarms, "margin", lambda *_: 0)


# The label of one row is 0 in one world and 1 in the other. While no alarm is raised, models get it wrong in the first
# world; then one gets it right there, and wrong in the other.
WORST = [[1, 0, 0]] * 12 + [[0, 0, 0]]
OTHERS = [[[1, 0, 0], [0, 0, 0], [1, 1, 1]] * 3, [[1, 1, 1]] * 5 + [[0, 1, 1]], [[0, 1, 0]] * 4 + [[1, 0, 0]]]


def loss(models: list[list[int]], **how: Any) -> tuple[float, float]:
    """Bounds on ε of a replaced row, at a δ of no more than the mass that was not walked."""
    first, second = (law_of_tests([label, 0, 0], models, **how) for label in (0, 1))
    return exact(first, second).epsilon(MISSED)


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("models", [WORST, *OTHERS])
def test_all_tests_together_cost_a_row_epsilon(models: list[list[int]]) -> None:
    found = loss(models, epsilon=Fraction(1))
    assert found[1] <= 1
    assert models is not WORST or found[0] > 0.98


@pytest.mark.usefixtures("near")
def test_a_twin_with_half_the_noise_costs_twice_that() -> None:
    assert loss(WORST, epsilon=Fraction(2))[0] > 1.9


@pytest.mark.slow
@pytest.mark.usefixtures("near")
def test_a_twin_that_tests_a_block_again_after_an_alarm_costs_more() -> None:
    """An alarm spends the rows: a second run on them is a second ε."""
    models = ([[1, 0, 0]] * 3 + [[0, 0, 0]]) * 2
    claim = Fraction(4)
    assert loss(models, epsilon=claim)[1] <= claim
    assert loss(models, epsilon=claim, again=True)[0] > claim


# ── the margin ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("epsilon", "tests", "probability", "expected"),
    [
        (Fraction(1, 2), 100, 0.05, 50), (Fraction(1, 2), 10**4, 0.05, 81), (1, 100, 0.05, 26), (1, 100, 0.01, 32),
        (1, 10**4, 0.05, 41), (1, 10**4, 0.01, 47), (1, 10**6, 0.05, 56), (2, 100, 0.05, 13), (2, 10**4, 0.05, 21),
        (4, 100, 0.05, 7), (4, 10**4, 0.05, 11),
    ],
)  # fmt: skip
def test_the_margin_is_the_least_that_keeps_false_alarms_rare(
    epsilon: Any, tests: int, probability: float, expected: int
) -> None:
    exactly = Fraction(epsilon)
    assert least_margin(exactly, probability, tests) == expected
    assert false_alarms(exactly, expected, tests) <= probability < false_alarms(exactly, expected - 1, tests)


def test_false_alarms_as_the_mechanism_raises_them() -> None:
    """Computed .040 for ε = 1, a margin of 26 and 100 tests; 1,500 runs are within four standard deviations."""
    expected = false_alarms(Fraction(1), 26, 100)
    assert expected == pytest.approx(0.040, abs=0.001)
    raised = 0
    for _ in range(1500):
        above = AboveThreshold(26, epsilon=1)
        raised += any(above.ask(0) for _ in range(100))
    assert raised / 1500 == pytest.approx(expected, abs=4 * math.sqrt(expected / 1500))


def test_the_margin_rises_with_the_number_of_tests_so_that_all_false_alarms_are_rare() -> None:
    epsilon, share = Fraction(1), Fraction(1, 20)
    assert margin(epsilon, share, 1) == margin(epsilon, share, alarms.TESTS) == least_margin(epsilon, 0.025, 10**6)
    assert margin(epsilon, share, alarms.TESTS + 1) - margin(epsilon, share, alarms.TESTS) == 5
    total = false_alarms(epsilon, margin(epsilon, share, 1), alarms.TESTS)
    for doubling in range(40):
        first = alarms.TESTS * 2**doubling
        total += false_alarms(epsilon, margin(epsilon, share, first + 1), first)
    assert total == pytest.approx(0.031, abs=0.001)
    assert total <= share


# ── old rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decaying(**given: Any) -> Any:
    """A chain that learns its own labels, whose block of old rows finds them wrong in phase 2."""
    alarm = QualityAlarm(accuracy=0.9)
    return linear(
        3000, truth=None, phase_rows="auto", retrain="always", growth=1, held_back=0, alarm=alarm, gauge_share=0.25,
        epsilon=8, **given,
    )  # fmt: skip


def test_an_alarm_on_old_rows_goes_back_to_the_last_model_that_passed() -> None:
    model = decaying()
    aside = model._machine.watch._test
    assert len(aside.X) == 750
    assert model.event_.events[1] == aside.event
    first = model.model_
    X, _ = spread(2250, 5, columns=2)
    model.predict(X)  # ends phase 1, which passes
    assert (model.phase_, model.alarms_) == (2, [])
    second = model.model_
    assert second is not first
    aside.labels = 1 - aside.labels  # from now on the rows find every answer wrong
    model.predict(X)
    assert model.alarms_ == [RaisedAlarm(2, 4500)]
    assert model.alarm_since_ == 2
    assert model.model_ is first  # the model of phase 1, the last that passed
    assert model._machine.watch._test is None
    model.predict(X)
    assert model.phase_ == 4
    assert model.model_ is first
    assert len(model.models_) == 3  # the third was trained when the alarm came
    assert model.drift_ == "not tested"


def test_votes_finish_the_phase_and_refuse_the_next() -> None:
    model = votes(
        truth=None, phase_rows="auto", growth=2, held_back=0, gauge_share=0.5, alarm=QualityAlarm(accuracy=0.9),
        groups=[str(one) for one in range(400)], epsilon=8,
    )  # fmt: skip
    assert model._machine.watch.reserved == 200
    assert model.phase.reserved == 200
    model._machine.watch._test.labels = 1 - model._machine.watch._test.labels  # type: ignore[union-attr]
    X, _ = spread(401, 3)
    who = [f"q{one}" for one in range(401)]
    found = model.answer(X, who)
    assert model.alarms_ == [RaisedAlarm(1, 400)]
    assert len(found.class_indices) == 400  # the phase was finished; nothing learns from its answers
    assert "quality fell below" in str(found.refused)
    assert (model.phase_, model.alarm_since_) == (1, 1)
    with pytest.raises(BudgetExhausted, match="quality fell below what was declared in phase 1"):
        model.predict(X, who)


# ── fresh counts ──────────────────────────────────────────────────────────────────────────────────────────────────


def quality(right: float, phase: int = 1, rows: int = 400) -> Quality:
    good = round(right * rows / 2)
    counts = np.array([[good, rows // 2 - good], [rows // 2 - good, good]])
    return quality_of(counts, phase=phase, rows=rows, epsilon=1, all_labelled=True)


def test_three_qualities_below_the_declared_value_raise_an_alarm() -> None:
    alarm = QualityAlarm(accuracy=0.8)
    assert not alarm.raised([quality(0.5), quality(0.5)])
    assert alarm.raised([quality(0.7), quality(0.75), quality(0.72)])
    assert not alarm.raised([quality(0.7), quality(0.85), quality(0.84)])
    assert not alarm.raised([quality(0.79)] * 3)  # within their interval
    recall = QualityAlarm(recall=0.6)
    lost = quality_of(np.array([[190, 10], [150, 50]]), phase=1, rows=400, epsilon=1, all_labelled=True)
    assert recall.raised([lost] * 3)
    assert not recall.raised([quality(0.7)] * 3)
    rare = quality_of(np.array([[390, 2], [8, 0]]), phase=1, rows=400, epsilon=1, all_labelled=True)
    assert not recall.raised([rare] * 3)  # too few rows of that class


def test_false_alarms_on_fresh_counts_are_rare() -> None:
    """Quality is just what was declared: of 600 triples, 1 in 40 is below by chance: .051 is four deviations."""
    rng, alarm, raised = np.random.default_rng(0), QualityAlarm(accuracy=0.8), 0
    for _ in range(600):
        triple = []
        for _ in range(3):
            answers = (rng.random(400) >= 0.8).astype(np.int64)
            counts = release_confusion(np.zeros(400, dtype=np.int64), answers, classes=2, epsilon=1).value
            triple.append(quality_of(counts, phase=1, rows=400, epsilon=1, all_labelled=True))
        raised += alarm.raised(triple)
    assert raised / 600 < 0.051


def test_after_an_alarm_the_next_rows_that_judge_choose_among_models() -> None:
    model = linear(3000, phase_rows=800, alarm=QualityAlarm(accuracy=0.8), gauge_share=0.5, epsilon=8)
    X = np.random.default_rng(1).random((800, 2))
    right = (X[:, 0] < 0.5).astype(np.int64)
    noise = np.random.default_rng(2).integers(2, size=(5, 800))
    for number in range(3):  # labels without meaning: the models of phases 2 to 4 know nothing
        model.add_labelled(X, noise[number])
        model.predict(X[:1])
    assert [one.phase for one in model.quality_] == [1, 2, 3]
    assert model.alarms_ == [RaisedAlarm(3, 2)]
    assert model.alarm_since_ == 3
    # Rows that judge know the first model's labels; those that train have labels without meaning.
    mixed = np.where(np.arange(800) % 2 == 0, right, noise[3])
    model.add_labelled(X, mixed)
    model.predict(X[:1])
    assert model.phase_ == 5
    assert [one.phase for one in model.quality_] == [1, 2, 3]  # their ε went into the choice
    assert model.model_ is model.models_[0][1]
    assert model.event_.events[1].epsilon == 8  # type: ignore[attr-defined]
    assert model.alarm_since_ == 3  # until three new accuracies are fine
    for _ in range(3):
        model.add_labelled(X, right)
        model.predict(X[:1])
    assert model.alarm_since_ is None or model.quality_[-1].phase == 7
    assert model.model_ is model.models_[-1][1]
    assert len(model.alarms_) == 1


def test_only_the_last_models_are_kept() -> None:
    model = chain()
    X, y = rows_for(model, 400)
    model.add_labelled(X, y)
    model.predict(X[:1])
    assert model.phase_ == 21
    assert [number for number, _ in model.models_] == list(range(14, 22))
