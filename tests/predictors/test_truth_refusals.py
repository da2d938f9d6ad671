"""Later labels: bad parameters and calls are refused by name, before rows are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from truth_models import chain, linear, rows_for, votes

from reticent.learners import PrivateLogisticRegression
from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.everlasting import EverlastingPredictor


class Untouchable:
    """Rows that say when they are looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the rows were looked at: {name}")


ROWS = {"truth": "rows"}
FEEDBACK = {"truth": "feedback"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"truth": "labels"}, "truth must be None, 'rows', 'feedback' or 'both', got 'labels'"),
        ({"truth": True}, "truth must be None"),
        ({"phase_rows": 100}, "phase_rows is for labels that arrive later"),
        ({"wait": 1}, "wait is for labels that arrive later"),
        ({"feedback_share": 0.5}, "feedback_share is for labels that arrive later"),
        ({"silence": "answer"}, "silence is for labels that arrive later"),
        ({**ROWS, "phase_rows": 0}, "phase_rows must be"),
        ({**ROWS, "phase_rows": "many"}, "phase_rows must be 'auto' or a whole number, got 'many'"),
        ({**ROWS, "phase_rows": 1.5}, "phase_rows must be"),
        ({**ROWS, "wait": 3}, "wait is for feedback"),
        ({**ROWS, "feedback_share": 0.5}, "feedback_share is for feedback"),
        ({**ROWS, "silence": "answer"}, "silence is for feedback"),
        ({**FEEDBACK, "wait": -1}, "wait must be"),
        ({**FEEDBACK, "wait": 0.5}, "wait must be"),
        ({**FEEDBACK, "feedback_share": 0}, r"feedback_share must be in \(0, 1\], got 0"),
        ({**FEEDBACK, "feedback_share": 1.1}, "feedback_share must be in"),
        ({**FEEDBACK, "feedback_share": "some"}, "feedback_share"),
        ({**FEEDBACK, "silence": "no"}, "silence must be 'drop' or 'answer', got 'no'"),
        ({**ROWS, "gauge_share": 0.6}, "gauge_share must be 0, or at most 1/2, got 0.6"),
        ({**ROWS, "gauge_share": -0.1}, "gauge_share must be 0"),
        ({"gauge_share": 2}, "gauge_share must be 0"),
        ({**ROWS, "training_stream": "trusted"}, "training_stream must be 'queries' with truth"),
        ({**ROWS, "retrain": "never"}, "retrain must not be 'never' with truth"),
        ({**ROWS, "max_rows": 100}, "max_rows must be None with truth"),
        ({**ROWS, "growth": -1}, "growth must be positive"),
        ({**ROWS, "growth": 1001}, "growth must be positive and at most 1000"),
        ({**ROWS, "alarm": 0.8}, "alarm must be None or a QualityAlarm, got float"),
        ({**ROWS, "alarm": QualityAlarm(accuracy=0.8), "gauge_share": 0}, "gauge_share must be positive with alarm"),
        ({"alarm": QualityAlarm(accuracy=0.8), "gauge_share": 0}, "gauge_share must be positive with alarm"),
        ({**ROWS, "engine": "model"}, "truth needs an engine that learns"),
        ({"alarm": QualityAlarm(recall=0.8), "engine": "model"}, "alarm must be None for engine='model'"),
    ],
)
def test_parameters_are_refused_before_rows_are_read(given: dict[str, Any], message: str) -> None:
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1)
    model = EverlastingPredictor(**{"learner": learner, "epsilon": 1, "delta": 1e-6, "classes": (0, 1), **given})
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(Untouchable(), Untouchable())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of accuracy and recall"),
        ({"accuracy": 0.5, "recall": 0.5}, "give one of accuracy and recall"),
        ({"accuracy": 0}, "accuracy"),
        ({"accuracy": 1.5}, "accuracy"),
        ({"recall": -0.1}, "recall"),
        ({"accuracy": 0.5, "false_alarm": 0}, "false_alarm"),
    ],
)
def test_alarms_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QualityAlarm(**given)


def test_a_wait_as_long_as_a_phase_of_votes_is_refused() -> None:
    with pytest.raises(ValueError, match="wait must be less than the 40 queries of a phase, got 40"):
        votes(truth="feedback", wait=40, growth=1)


def test_calls_that_the_source_does_not_take_are_refused_before_rows_are_read() -> None:
    nothing: Any = Untouchable()
    for source in (None, "feedback"):
        model = chain(truth=source, phase_rows=20 if source else "auto")
        with pytest.raises(ValueError, match=r"add_labelled needs truth='rows' or truth='both', got truth="):
            model.add_labelled(nothing, nothing)
        with pytest.raises(ValueError, match="withdraw_labelled needs truth='rows'"):
            model.withdraw_labelled([0])
    for source in (None, "rows"):
        model = chain(truth=source, phase_rows=20 if source else "auto")
        with pytest.raises(ValueError, match=r"feedback needs truth='feedback' or truth='both', got truth="):
            model.feedback(nothing, nothing)
    assert chain().answer(rows_for(chain(), 3)[0]).tickets is None
    with pytest.raises(ValueError, match="add_unlabelled needs training_stream"):
        chain().add_unlabelled(nothing)


def test_shapes_are_refused_and_nothing_is_taken() -> None:
    model = linear(truth="both")
    X = np.zeros((2, 2))
    for rows, labels in ((X, [0]), (X, None), (np.zeros((2, 3)), [0, 1]), (np.zeros(2), [0, 1])):
        with pytest.raises(ValueError):  # noqa: PT011  # scikit-learn's words for the number of columns
            model.add_labelled(rows, labels)
    tickets = model.answer(X).tickets
    for labels, who in (([0], None), (None, None), ([0, 1], ["ann"])):
        with pytest.raises(ValueError, match="must have one value per row"):
            model.feedback(tickets, labels, who)
    with pytest.raises(TypeError, match="clients must be strings"):
        model.feedback(tickets, [0, 1], [0.5, 1.5])
    with pytest.raises(TypeError, match="tickets must be a sequence"):
        model.feedback("abc", [0, 1, 2])
    for wrong in ([-1], ["a"], [0.5]):
        with pytest.raises((ValueError, TypeError), match="numbers"):
            model.withdraw_labelled(wrong)
    assert (model.labelled_waiting_, model.rows_gathered_) == (0, 2)
    assert model.add_labelled(np.zeros((0, 2)), []) == (0, 2, 0, 0)
    assert model.feedback([], []) == 0


def test_groups_need_clients_where_queries_are_kept() -> None:
    names = [f"p{one}" for one in range(40)]
    model = chain(groups=names, truth="feedback")
    X, _ = rows_for(model, 2)
    with pytest.raises(ValueError, match="clients must be given"):
        model.predict(X)
    assert len(chain(groups=names).predict(X)) == 2  # queries are not kept


def test_a_learner_for_two_classes_and_a_stranger_are_refused() -> None:
    with pytest.raises(ValueError, match="learns two classes"):
        chain(classes=(0, 1, 2))
    with pytest.raises(ValueError, match="labeller must not be 'two-coin' with groups"):
        votes(groups=[str(one) for one in range(40)], labeller="two-coin")
    with pytest.raises(TypeError, match="private learner"):
        votes(engine="chain")
