"""The end of a phase: it tells of no query by a warning, and answers that count are returned whatever happens."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from reticent import BudgetExhausted, EverlastingPredictor, GenericBBL, PrivateLogisticRegression, silence
from reticent.concepts import Thresholds
from reticent.predictors.answers import Answers
from reticent.predictors.bbl_phases import BBLPhase
from reticent.predictors.bbl_running import RunningPhases

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore::reticent.OneAnswerWarning")
ROWS = 60
PHASE = 2 * ROWS  # queries of the first phase
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] < 0).astype(np.int64)
QUERIES = np.random.default_rng(1).normal(size=(3 * PHASE, 2))
FAR = np.where(np.arange(len(QUERIES))[:, None] % 7 < 2, np.where(np.arange(len(QUERIES)) % 2, 1e308, -1e308)[:, None],
               QUERIES)  # fmt: skip


def predictor(learner: Any, kind: type[EverlastingPredictor] = EverlastingPredictor, **options: Any) -> Any:
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "classes": (0, 1), "rows_per_teacher": 10, "most_noise": 1e9}
    return kind(learner, **given | options).fit(X, Y)


CHAIN = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3)


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Seen(NamedTuple):
    warned: list[str]
    failed: str | None
    answers: int
    phase: int
    left: int


def seen(queries: Array, action: Any, **options: Any) -> Seen:
    """What there is to see when a phase ends, besides the answers."""
    model = predictor(CHAIN, **options)
    failed = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter(action)
        try:
            model.predict(queries)
        except Exception as error:
            failed = type(error).__name__
    said = [str(one.message) for one in warned]
    return Seen(said, failed, model.answered_, model.phase_, model.answers_left_in_phase_)


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("retrain", ["always", "drift"])
@pytest.mark.parametrize("background", [False, True])
def test_a_phase_that_learns_from_far_queries_says_nothing(action: str, retrain: str, background: bool) -> None:
    options = {"retrain": retrain, "background": background, "unsafe_seed": 1}
    near, far = (seen(queries[: PHASE + 1], action, **options) for queries in (QUERIES, FAR))
    assert near == far == Seen([], None, PHASE + 1, 2, near.left)


@pytest.mark.parametrize("action", ["always", "error"])
def test_the_twin_that_is_not_silenced_is_told_apart(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "np", SimpleNamespace(errstate=lambda **_: nullcontext()))
    monkeypatch.setattr(silence, "_in_private_work", lambda: False)
    near, far = (seen(queries[: PHASE + 1], action, retrain="always", unsafe_seed=1) for queries in (QUERIES, FAR))
    assert near != far


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Losing(EverlastingPredictor):
    """A twin that begins the next phase before it returns the answers of the last, whatever comes of it."""

    def answer(self, X: Any, clients: Any = None, *, one_phase: bool = False) -> Answers:
        found = super().answer(X, clients, one_phase=True)
        if self.answers_left_in_phase_ == 0:
            self.turn_over()
        return found


def lost(model: Any, queries: Array) -> int:
    """How many answers of a call counted and were not returned."""
    before, returned = model.answered_, 0
    try:
        returned = len(model.answer(queries).class_indices)
    except Exception:
        returned = 0
    return int(model.answered_ - before - returned)


class Faulty:
    """A disk that is full, say, until `mended`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
        self.mended = False
        learn = model.engine_.next

        def fails(*given: Any) -> Any:
            if not self.mended:
                raise MemoryError("no room for another phase")
            return learn(*given)

        monkeypatch.setattr(model.engine_, "next", fails)


LEARNERS = [DecisionTreeClassifier(max_depth=1), CHAIN]


@pytest.mark.parametrize("asked", [PHASE, PHASE + 1, 2 * PHASE])
@pytest.mark.parametrize("learner", LEARNERS, ids=["votes", "chain"])
def test_answers_that_count_are_returned_though_the_next_phase_fails(
    learner: Any, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = predictor(learner)
    fault = Faulty(monkeypatch, model)
    found = model.answer(QUERIES[:asked])
    assert len(found.class_indices) == model.answered_ == PHASE
    assert (found.phases == 1).all()
    assert (found.refused is None) == (asked == PHASE)
    if asked > PHASE:
        assert isinstance(found.refused, MemoryError)
    with pytest.raises(MemoryError):  # nothing is answered, and nothing counts
        model.answer(QUERIES[:1])
    assert model.answered_ == PHASE
    fault.mended = True
    assert model.answer(QUERIES[:1]).phases.tolist() == [2]


@pytest.mark.parametrize("learner", LEARNERS, ids=["votes", "chain"])
def test_the_twin_that_loses_answers_is_told_apart(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, losses in ((EverlastingPredictor, 0), (Losing, PHASE)):
        model = predictor(learner, kind)
        Faulty(monkeypatch, model)
        assert lost(model, QUERIES[:PHASE]) == losses


def test_predict_raises_what_kept_it_from_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    model = predictor(CHAIN)
    Faulty(monkeypatch, model)
    with pytest.raises(MemoryError):
        model.predict(QUERIES[: PHASE + 1])


def test_a_background_that_cannot_be_had_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread can be started: the next phase learns when it is needed, and no answer is lost."""

    def none(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    model = predictor(CHAIN, background=True)
    monkeypatch.setattr("reticent.predictors.machine.ThreadPoolExecutor", none)
    found = model.answer(QUERIES[: PHASE + 5])
    assert len(found.class_indices) == model.answered_ == PHASE + 5
    assert (found.refused, model.phase_) == (None, 2)


def test_bbl_returns_answers_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    public: dict[str, Any] = {"teachers": 6, "shard": 10, "answers": PHASE, "vote_epsilon": 7, "vote_delta": 1e-6}
    phases = [BBLPhase(**public, scored=20, drawn=60), BBLPhase(**public)]
    bbl = GenericBBL(Thresholds(), epsilon=12, delta=1e-5, labeller="gaussian", phases=phases).fit(X[:, :1], Y)
    with monkeypatch.context() as patched:

        def fails(self: RunningPhases) -> None:
            raise MemoryError("no room for another phase")

        patched.setattr(RunningPhases, "_turn_over", fails)
        found = bbl.answer(QUERIES[: PHASE + 9, :1])
        assert len(found.class_indices) == PHASE
        assert isinstance(found.refused, MemoryError)
        with pytest.raises(MemoryError):
            bbl.answer(QUERIES[:1, :1])
    assert len(bbl.answer(QUERIES[:PHASE, :1]).class_indices) == PHASE
    with pytest.raises(BudgetExhausted):
        bbl.answer(QUERIES[:1, :1])
