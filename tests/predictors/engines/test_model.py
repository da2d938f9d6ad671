"""One private model: it answers without end, stores nothing of a query, and protects the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from reticent.audit.adversaries import Query, Sample, Script
from reticent.audit.everlasting_game import everlasting_game
from reticent.audit.game_rounds import unfitted
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.learners.comparison import PrivateComparison
from reticent.noise import Seeded
from reticent.predictors import state_file
from reticent.predictors.engines import ModelEngine, ModelFactory, VotesFactory
from reticent.predictors.engines.private_model import model_state, restored_model
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import NO_END
from reticent.privacy import fits
from reticent.privacy.guarantee import Guarantee

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).integers(1024, size=(4000, 1))
Y = (X[:, 0] < 400).astype(np.int64)
QUERIES = np.random.default_rng(1).integers(1024, size=(50_000, 1))


def predictor(**options: Any) -> EverlastingPredictor:
    given: dict[str, Any] = {"epsilon": 1, "delta": 0, "classes": (0, 1), "engine": "model"}
    return EverlastingPredictor(ThresholdLearner(bits=10, epsilon=1), **given | options)


def test_it_answers_without_end_in_one_phase() -> None:
    model = predictor().fit(X, Y)
    for number in range(1, 4):
        assert (model.predict(QUERIES) == (QUERIES[:, 0] < 400)).mean() > 0.97
        assert (model.phase_, model.answered_) == (1, number * len(QUERIES))
        assert model.answers_left_in_phase_ == NO_END - number * len(QUERIES)
    assert model.phase.endless
    assert isinstance(model.engine_, ModelEngine)


def test_it_protects_rows_and_says_so() -> None:
    model = predictor().fit(X, Y)
    assert model.guarantee_ == Guarantee(epsilon=1, delta=0, unit="row", protects="rows")
    assert fits(model.event_, epsilon=1, delta=0)
    grouped = predictor(client_phases=5).fit(X, Y, groups=np.arange(4000) // 2)
    assert grouped.guarantee_ == Guarantee(epsilon=1, delta=0, unit="group", protects="rows")
    assert len(grouped.predict(QUERIES[:10])) == 10, "clients need not be named, as nothing is kept of them"


def test_nothing_of_a_query_is_stored(tmp_path: Path) -> None:
    model = predictor(delta=1e-6).fit(X, Y)
    model.save(tmp_path / "before")
    model.predict(QUERIES[:777], clients=np.arange(777) % 3)
    model.save(tmp_path / "after")
    before, after = (state_file.read(tmp_path / name) for name in ("before", "after"))
    counts = {"asked": 777, "answered": 777}
    assert after.header == before.header | counts
    assert before.arrays.keys() == after.arrays.keys() == {"point"}
    assert (model.rows_gathered_, model.client_cap_, model.rows_of_client("0")) == (0, 0, (0, 0))
    assert not model.learns_from_queries_
    assert not model.learning_
    assert model.drift_ == "not tested"


def test_it_goes_on_from_a_saved_state_and_a_clock(tmp_path: Path) -> None:
    model = predictor().fit(X, np.where(Y == 1, 1, 0))
    model.save(tmp_path / "state")
    answers = model.predict(QUERIES[:500])
    clock = json.loads(json.dumps(model.clock()))
    assert clock == {"asked": 500, "answered": 500, "closed": False, "labeller": None}
    again = EverlastingPredictor.load(tmp_path / "state")
    again.replay([], clock)
    assert again.clock() == clock
    assert (again.engine, again.phase, again.guarantee_) == ("model", model.phase, model.guarantee_)
    assert np.array_equal(again.predict(QUERIES[:500]), answers)


def test_a_number_of_answers_is_kept_to() -> None:
    model = predictor(answers=100).fit(X, Y)
    assert (model.answers_left_in_phase_, model.phase.endless) == (100, False)
    model.predict(QUERIES[:100])
    with pytest.raises(BudgetExhausted, match="1 queries were asked and 0 of answers=100"):
        model.predict(QUERIES[:1])
    with pytest.raises(BudgetExhausted, match="all answers have been given"):
        model.turn_over()


@pytest.mark.parametrize("background", [True, False])
def test_there_is_no_other_phase(background: bool) -> None:
    model = predictor(background=background).fit(X, Y)
    with pytest.raises(ValueError, match="answers left"):
        model.turn_over()
    found = model.answer(QUERIES, one_phase=True)
    assert (len(found.class_indices), found.refused) == (len(QUERIES), None)


def test_one_answer_is_told() -> None:
    with pytest.warns(UserWarning, match="gives the class"):
        model = predictor(epsilon=100).fit(X, np.zeros(4000, dtype=np.int64))
    assert model.one_answer_ == 0


def test_a_linear_model_with_labels_that_are_strings() -> None:
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    labels = np.where(rows.sum(axis=1) > 0, "yes", "no")
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3)
    model = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=("yes", "no"), engine="model")
    assert (model.fit(rows, labels).predict(rows) == labels).mean() > 0.9


# ── privacy ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_exact_game_costs_a_row_its_epsilon_and_a_query_nothing() -> None:
    points = ((0,), (1,), (2,), (3,))
    tiny = EverlastingPredictor(
        ThresholdLearner(bits=2, epsilon=1), epsilon=1, delta=0, classes=(0, 1), engine="model"
    )
    sample = Sample(points * 2, (1, 1, 0, 0) * 2)
    other = sample._replace(labels=(1, 1, 0, 0, 0, 1, 0, 0))
    queries = tuple(Query((x,)) for x in (0, 1, 2, 3))
    rows = everlasting_game(unfitted(tiny), Script((sample, other), queries), rounds=4, tail_bits=20)
    assert rows.passes(Guarantee(epsilon=1))
    assert rows.epsilon(1e-6)[0] > 0.01
    asked = Script((sample, sample), (Query((0,), (3,)), *queries))
    assert everlasting_game(unfitted(tiny), asked, rounds=5, tail_bits=20).epsilon(1e-6)[1] < 1e-3


def test_one_row_of_each_group_is_learned_from() -> None:
    answers = []
    for filler in (0, 1023):
        rows = X.copy()
        rows[2000:] = filler
        model = predictor().fit_with_noise(rows, Y, np.arange(4000) % 2000, unsafe_noise=Seeded(unsafe_seed=1))
        answers.append(model.predict(QUERIES[:2000]))
    assert np.array_equal(answers[0], answers[1])


# ── choosing an engine ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("learner", "engine", "why"),
    [
        (LogisticRegression(), "model", "learner must be a private learner for engine='model'"),
        (Thresholds(), "chain", "learner must be a private learner for engine='chain'"),
        (ThresholdLearner(bits=10, epsilon=1), "votes", "learner must not be private for engine='votes'"),
        (None, "forest", "engine must be one of 'auto', 'votes', 'chain', 'model'"),
        (None, dict, "engine must be a class of engines"),
    ],
)
def test_engines_that_do_not_suit_the_learner_are_refused(learner: Any, engine: Any, why: str) -> None:
    model = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=(0, 1), engine=engine)
    with pytest.raises((TypeError, ValueError), match=why):
        model.fit(X, Y)


def test_a_trusted_stream_is_not_for_a_single_model() -> None:
    with pytest.raises(ValueError, match="training_stream must be 'queries' for engine='model'"):
        predictor(training_stream="trusted").fit(X, Y)


class Mine(VotesFactory):
    """An engine of one's own."""


def test_an_engine_of_ones_own_is_given_again_when_it_is_loaded(tmp_path: Path) -> None:
    model = EverlastingPredictor(Thresholds(), epsilon=8, delta=1e-5, classes=(0, 1), engine=Mine)
    model.fit(X / 1024, Y).predict(QUERIES[:10] / 1024)
    assert isinstance(model._machine.factory, Mine)
    model.save(tmp_path / "state")
    with pytest.raises(ValueError, match="engine must be given: the Mine is not part of the saved state"):
        EverlastingPredictor.load(tmp_path / "state")
    with pytest.raises(ValueError, match="engine must be Mine, got str"):
        EverlastingPredictor.load(tmp_path / "state", engine="votes")
    again = EverlastingPredictor.load(tmp_path / "state", engine=Mine)
    assert isinstance(again._machine.factory, Mine)
    assert again.answered_ == 10


def test_the_engine_that_a_learner_has_by_itself_is_not_written_down(tmp_path: Path) -> None:
    """So files are as they were before there was a choice."""
    model = predictor(engine="auto").fit(X, Y)
    model.save(tmp_path / "state")
    assert "engine" not in state_file.read(tmp_path / "state").header["parameters"]
    assert not isinstance(model._machine.factory, ModelFactory)


PUBLIC = np.random.default_rng(9).normal(size=(60, 3)) * [1, 100, 10_000]
PARTS: list[dict[str, Any]] = [
    {"bounds": (-1000, [1.0, 100, 10_000])},
    {"bounds": (-1000, 20_000), "row_norm": 1},
    {"public": PUBLIC},
    {"public": sparse.csr_array(PUBLIC), "row_norm": 40_000, "fourier_features": 8},
    {"bounds": (-1000, 20_000), "public": PUBLIC, "class_weight": "balanced"},
    {"row_norm": 40_000, "class_weight": {0: 3, 1: 1}, "level": 1},
    {"row_norm": 40_000, "class_weight": "balanced", "rounds": "auto"},
]


def unscaled(rows: int) -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(rows, 3)) * [1, 100, 10_000]
    return X, (X @ [1, 0.01, 1e-4] > 0).astype(int)


@pytest.mark.parametrize("parts", PARTS)
def test_a_model_on_file_keeps_every_part_of_its_map(parts: dict[str, Any]) -> None:
    X, y = unscaled(3000)
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, classes=[0, 1], **parts)
    model = clone(learner).fit(X, y)
    header, arrays = model_state(model)
    again = restored_model(clone(learner), json.loads(json.dumps(header)), arrays)
    assert np.array_equal(again.predict_log_proba(X), model.predict_log_proba(X))
    assert again.event_ == model.event_
    assert np.array_equal(again.feature_map_.mapped_rows(X), model.feature_map_.mapped_rows(X))
    assert (again.class_weights_ is None) == (model.class_weights_ is None)
    assert model.class_weights_ is None or np.array_equal(again.class_weights_, model.class_weights_)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("engine", ["model", "auto"])
def test_predictors_on_file_restore_every_part_without_being_given_the_learner(
    parts: dict[str, Any], engine: Any, tmp_path: Path
) -> None:
    X, y = unscaled(1000)
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, classes=[0, 1], **parts)
    predictor = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=[0, 1], engine=engine)
    predictor.fit(X, y)
    predictor.save(tmp_path / "state")
    loaded = EverlastingPredictor.load(tmp_path / "state")
    assert np.array_equal(loaded.predict(X[:200]), predictor.predict(X[:200]))


def test_weights_by_label_become_weights_by_class_index() -> None:
    X, y = unscaled(500)
    labels = np.array(["no", "yes"])[y]
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=40_000, class_weight={"yes": 4})
    predictor = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=["no", "yes"], engine="model")
    with pytest.raises(ValueError, match="classes of the learner must name its 2 labels"):
        predictor.fit(X, labels)
    learner.set_params(classes=["yes", "no"])
    engine: Any = predictor.fit(X, labels)._machine.engine
    assert engine.model.class_weights_.tolist() == [0.25, 1]


def test_weights_by_label_in_a_comparison_become_weights_by_class_index() -> None:
    X, y = unscaled(500)
    labels = np.array([1, 2])[y]  # an index of one class is the label of another
    compared = [PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=40_000, class_weight={1: 4})] * 2
    learner = PrivateComparison(compared, epsilon=1, delta=1e-6)
    predictor = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=[1, 2], engine="model")
    with pytest.raises(ValueError, match="classes of the learner must name its 2 labels"):
        predictor.fit(X, labels)
    learner.set_params(classes=[2, 1])
    engine: Any = predictor.fit(X, labels)._machine.engine
    assert engine.model.class_weights_.tolist() == [1, 0.25]


def test_a_model_on_file_keeps_the_map_of_its_rounds() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 3)) * [1, 100, 10_000]
    y = (X @ [1, 0.01, 1e-4] > 0).astype(int)
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=40_000, classes=[0, 1], rounds="auto")
    model = clone(learner).fit(X, y)
    assert model.whitening_ is not None
    header, arrays = model_state(model)
    again = restored_model(clone(learner), json.loads(json.dumps(header)), arrays)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.event_ == model.event_
    assert again.seen_classes_.tolist() == model.seen_classes_.tolist() == [True, True]
    plain = clone(learner).set_params(rounds=0).fit(X, y)
    header, arrays = model_state(plain)
    assert "whitening" not in header
    assert set(arrays) == {"coef", "intercept"}  # as files were before there were rounds
    assert restored_model(clone(learner), header, arrays).whitening_ is None
