"""The everlasting predictor: what it counts, what it keeps, what it refuses, and that it can be stopped and resumed."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from reticent.concepts import Products, Thresholds
from reticent.data.rows import Rows
from reticent.errors import BudgetExhausted, EndingWarning, InsufficientData
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.noise import Seeded
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy import Guarantee, fits

Array = np.ndarray[Any, Any]
BUDGET: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "classes": (0, 1)}


def line(rows: int, seed: int = 0) -> tuple[Array, Array]:
    X = np.random.default_rng(seed).random((rows, 1))
    return X, (X[:, 0] < 0.5).astype(np.int64)


def predictor(**options: Any) -> EverlastingPredictor:
    return EverlastingPredictor(Thresholds(), **BUDGET, **options)


def fitted(rows: int = 4000, **options: Any) -> EverlastingPredictor:
    return predictor(**options).fit(*line(rows))


# ── phases ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_phase_answers_growth_times_its_rows_and_hands_on_all_but_those_held_back() -> None:
    model = fitted()
    seen = []
    for _ in range(3):
        seen.append((model.phase_, model.phase.rows, model.answers_left_in_phase_, model.phase.window))
        X, truth = line(model.answers_left_in_phase_, seed=model.phase_)
        assert (model.predict(X) == truth).mean() > 0.98
    assert seen == [(1, 4000, 8000, 7200), (2, 7200, 14400, 12960), (3, 12960, 25920, 23328)]
    assert model.answered_ == 8000 + 14400 + 25920


def test_one_call_may_span_phases() -> None:
    model = fitted()
    X, truth = line(30_000, seed=3)
    assert (model.predict(X) == truth).mean() > 0.98
    assert (model.phase_, model.answered_) == (3, 30_000)
    assert model.answers_left_in_phase_ == 8000 + 14400 + 25920 - 30_000


def test_the_guarantee_is_for_rows_and_queries_and_every_phase_keeps_to_it() -> None:
    model = fitted()
    promise = Guarantee(epsilon=8, delta=1e-5, unit="row", protects="rows and queries")
    assert model.guarantee_ == promise
    for _ in range(3):
        assert fits(model.event_, epsilon=8, delta=1e-5)
        model.predict(line(model.answers_left_in_phase_)[0])
    assert model.guarantee_ == promise


def test_rows_that_were_learned_from_are_gone() -> None:
    model = fitted(held_back=0)
    X, _ = line(8000, seed=5)
    model.predict(X[:7999])
    store = model._machine.intake.store  # type: ignore[union-attr]
    assert store is not None
    assert len(store) == 7999
    model.predict(X[7999:])
    assert (model.phase_, model.rows_gathered_) == (2, 0)
    with pytest.raises(ValueError, match="delete"):
        store.rows()


def test_a_horizon_has_less_noise_and_an_end() -> None:
    model = predictor(answers=1000).fit(*line(4000))
    assert model.answers_left_in_phase_ == 1000
    X, truth = line(1001, seed=1)
    with pytest.raises(BudgetExhausted, match="1000 of answers=1000 are left: none was"):
        model.predict(X)
    assert model.answered_ == 0
    assert (model.predict(X[:1000]) == truth[:1000]).mean() > 0.98
    with pytest.raises(BudgetExhausted, match="1 queries were asked and 0 of"):
        model.predict(X[:1])


def test_a_long_horizon_goes_through_phases_and_its_last_one_keeps_nothing() -> None:
    model = predictor(answers=20_000).fit(*line(4000))
    X, truth = line(20_000, seed=2)
    assert (model.predict(X) == truth).mean() > 0.98
    assert (model.phase_, model.phase.answers, model.phase.handed_on) == (2, 12_000, 0)


def test_what_the_next_phase_learns_in_the_background_is_the_same() -> None:
    X, _ = line(30_000, seed=3)
    answers = []
    for background in (False, True):
        model = predictor(background=background).fit_with_noise(*line(4000), unsafe_noise=Seeded(unsafe_seed=1))
        answers.append(np.concatenate([model.predict(part) for part in np.array_split(X, 97)]))
        assert model.phase_ == 3
    assert (answers[0] == answers[1]).mean() > 0.99  # noise is drawn in another order


def test_more_rows_than_the_most_are_not_handed_on() -> None:
    model = fitted(max_rows=5000)
    model.predict(line(8000)[0])
    assert (model.phase_, model.phase.rows) == (2, 5000)


@pytest.mark.slow
@pytest.mark.parametrize("labeller", ["greedy", "poll", "two-coin", "gaussian", "bit"])
def test_every_labeller_answers_over_phases(labeller: str) -> None:
    options = {"poll": {"poll": 11}, "two-coin": {"steepness": 15}}.get(labeller, {})
    model = predictor(labeller=labeller, labeller_options=options, rows_per_teacher=10).fit(*line(20_000))
    X, truth = line(60_000, seed=1)
    assert (model.predict(X) == truth).mean() > 0.97
    assert model.phase_ == 2


def test_a_two_coin_phase_that_closes_early_ends_for_everybody() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 1))
    noisy = rng.integers(2, size=20_000)  # teachers that know nothing: every query is a hit
    model = EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-5, classes=(0, 1), labeller="two-coin", most_noise=1)
    with pytest.warns(EndingWarning, match="phases would give about 8,512, then 615 answers, and then none"):
        model.fit(X, noisy)
    with pytest.raises(BudgetExhausted, match=r"too few for another phase.*queries of this call were answered"):
        model.predict(rng.random((40_000, 1)))
    assert 0 < model.answered_ < 40_000
    with pytest.raises(BudgetExhausted):
        model.predict(X[:1])


@pytest.mark.slow
def test_many_classes() -> None:
    rng = np.random.default_rng(0)
    centres = 6 * np.eye(3)

    def draw(rows: int) -> tuple[Array, Array]:
        codes = rng.integers(3, size=rows)
        return centres[codes] + rng.normal(size=(rows, 3)), np.array(["a", "b", "c"])[codes]

    model = EverlastingPredictor(epsilon=8, delta=1e-5, classes=("a", "b", "c")).fit(*draw(6000))
    X, truth = draw(13_000)
    assert (model.predict(X) == truth).mean() > 0.97
    assert model.phase_ == 2


def test_a_private_learner_makes_a_chain() -> None:
    X = np.random.default_rng(0).integers(256, size=(4000, 1))
    model = EverlastingPredictor(ThresholdLearner(bits=8, epsilon=1), epsilon=1, delta=0, classes=(0, 1))
    model.fit(X, X[:, 0] < 100)
    queries = np.random.default_rng(1).integers(256, size=(20_000, 1))
    assert (model.predict(queries) == (queries[:, 0] < 100)).mean() > 0.97
    assert model.phase_ == 2
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1, 0)


def test_a_chain_of_linear_models() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 5))
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3)
    model = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=(0, 1)).fit(X, X.sum(axis=1) > 0)
    queries = rng.normal(size=(30_000, 5))
    assert (model.predict(queries) == (queries.sum(axis=1) > 0)).mean() > 0.95
    assert model.phase_ == 3


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_gives_no_more_than_its_share_of_the_next_rows() -> None:
    model = fitted(client_share=0.01)
    X, _ = line(7200, seed=1)
    model.predict(X, clients=["greedy"] * 7000 + [f"client {i}" for i in range(200)])
    assert model.rows_gathered_ == 72 + 200
    assert model.answered_ == 7200


@pytest.mark.slow
def test_the_first_queries_of_a_client_are_taken_however_they_are_batched() -> None:
    X, _ = line(3000, seed=1)
    clients = np.random.default_rng(2).integers(40, size=3000)
    rows = []
    for parts in (1, 7, 3000):
        model = predictor(client_share=0.005).fit_with_noise(*line(4000), unsafe_noise=Seeded(unsafe_seed=1))
        for batch in np.array_split(np.arange(3000), parts):
            model.predict(X[batch], clients=clients[batch])
        rows.append(model._machine.gathered().X.copy())
    first = np.concatenate([np.flatnonzero(clients == one)[:36] for one in range(40)])
    assert all(np.array_equal(found, X[np.sort(first)]) for found in rows)


def test_with_groups_a_client_stays_in_one_shard_and_in_one_phase() -> None:
    X, y = line(8000)
    model = predictor(held_back=0, rows_per_teacher=20).fit(X, y, groups=np.arange(8000) // 2)
    assert model.guarantee_.unit == "group"
    queries, _ = line(16_000, seed=1)
    clients = np.arange(16_000) // 4
    with pytest.raises(ValueError, match="clients must be given"):
        model.predict(queries)
    model.predict(queries[:15_999], clients=clients[:15_999])
    gathered = model._machine.gathered()
    assert gathered.groups is not None
    assert np.array_equal(gathered.groups, clients[:15_999])  # numbered as they came
    model.predict(queries[15_999:], clients=clients[15_999:])
    assert model.phase_ == 2
    model.predict(queries[:100], clients=clients[:100])
    assert model.rows_gathered_ == 0  # each has been in its phase
    model.predict(queries[:100], clients=clients[:100] + 10**6)
    assert model.rows_gathered_ == 100


def test_two_coins_are_not_for_groups() -> None:
    with pytest.raises(ValueError, match="must not be 'two-coin' with groups"):
        predictor(labeller="two-coin").fit(*line(8000), groups=np.arange(8000))


def test_a_stream_is_not_for_groups() -> None:
    with pytest.raises(ValueError, match="must be 'queries' with groups"):
        predictor(training_stream="trusted").fit(*line(8000), groups=np.arange(8000))


def test_a_heavy_client_does_not_end_a_predictor_of_groups() -> None:
    model = predictor(held_back=0, rows_per_teacher=10, client_share=1).fit(*line(8000), groups=np.arange(8000))
    queries, _ = line(16_000, seed=1)
    model.predict(queries, clients=[0] * 3000 + list(range(1, 13_001)))
    assert (model.phase_, model.phase.rows) == (2, 13_020)  # no more of one client than twice the rows of a teacher


@pytest.mark.parametrize("grouped", [True, False])
def test_a_chain_asked_by_one_client_alone_goes_on_with_the_model_it_has(grouped: bool) -> None:
    X, y = line(2000)
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-5, row_norm=2)
    model = EverlastingPredictor(learner, **BUDGET, client_share=0.001)
    model.fit(X, y, groups=np.arange(2000) if grouped else None)
    first = model.engine_.model  # type: ignore[attr-defined]
    answers = model.phase.answers
    queries, _ = line(1000, seed=1)
    for _ in range(5 * answers // 1000):
        model.predict(queries, clients=["ann"] * 1000)
    assert model.phase_ == 6
    assert model.phase.answers == answers, "phases are no shorter"
    assert model.phase.rows < 20, "and hardly anything was learned from"
    assert model.engine_.model is first  # type: ignore[attr-defined]


def test_a_number_and_the_string_of_it_are_one_client() -> None:
    model = fitted(client_share=0.001)
    model.predict(line(20)[0], clients=[7] * 20)
    model.predict(line(20)[0], clients=["7"] * 20)
    assert model.rows_gathered_ == 7


def test_clients_in_more_phases_pay_for_each() -> None:
    model = predictor(client_phases=3).fit(*line(8000), groups=np.arange(8000))
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (24, 3e-5)


def test_a_trusted_stream_is_learned_from_and_queries_are_not() -> None:
    model = predictor(training_stream="trusted").fit(*line(6000))
    assert (model.phase.stream, model.phase.queries) == (6480, 5520)
    X, truth = line(5520, seed=1)
    assert (model.predict(X) == truth).mean() > 0.98
    with pytest.raises(BudgetExhausted, match="6480 more rows by add_unlabelled"):
        model.predict(X[:1])
    assert model.add_unlabelled(line(6000, seed=2)[0]) == 6000
    assert model.add_unlabelled(line(6000, seed=3)[0]) == 480
    assert (model.predict(X[:1000]) == truth[:1000]).mean() > 0.98
    assert (model.phase_, model.phase.rows, model.answers_left_in_phase_) == (2, 6480, model.phase.queries - 1000)


def test_without_a_trusted_stream_no_rows_can_be_added() -> None:
    with pytest.raises(ValueError, match="training_stream='trusted'"):
        fitted().add_unlabelled([[0.5]])


class Raises:
    """A number that is none."""

    def __float__(self) -> float:
        raise RuntimeError("777")


# ── bad queries count ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_that_is_no_number_counts_like_any_other() -> None:
    model = fitted()
    answers = model.predict(np.array([[np.nan], [np.inf], [0.1], [-np.inf]]))
    assert len(answers) == 4
    assert (model.answered_, model.rows_gathered_) == (4, 4)
    assert model._machine.gathered().X.ravel().tolist() == [0.0, 0.0, 0.1, 0.0]


def test_an_object_that_is_no_number_counts_like_any_other() -> None:
    model = fitted()
    model.predict(np.array([[None], ["x"], [0.25], [10**400], [Raises()]], dtype=object))
    model.predict([["a"], ["0.5"]])
    model.predict([[1j]])
    assert model._machine.gathered().X.ravel().tolist() == [0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.5, 0.0]


def test_a_number_that_is_not_whole_counts_like_any_other() -> None:
    X = np.random.default_rng(0).integers(256, size=(4000, 1))
    model = EverlastingPredictor(Thresholds(bits=8), **BUDGET).fit(X, X[:, 0] < 100)
    model.predict([[3.0], [5.5], [np.nan], [2.0**63], [7]])
    model.predict(np.array([[2**64 - 1], [9]], dtype=np.uint64))
    assert model._machine.gathered().X.ravel().tolist() == [3, 0, 0, 0, 7, 0, 9]


def test_a_query_outside_of_a_combined_domain_counts_like_any_other() -> None:
    X = np.random.default_rng(0).integers(256, size=(4000, 2))
    both = Products([Thresholds(bits=8), Thresholds(bits=8)])
    model = EverlastingPredictor(both, answers=100, **BUDGET).fit(X, (X < 100).all(axis=1))
    model.predict(np.array([[3, 4], [-1, 5], [4, 300], [1, 1]]))
    assert model.answered_ == 4


def test_a_query_outside_of_the_domain_counts_like_any_other() -> None:
    X = np.random.default_rng(0).integers(256, size=(4000, 1))
    model = EverlastingPredictor(Thresholds(bits=8), **BUDGET).fit(X, X[:, 0] < 100)
    model.predict(np.array([[3], [-1], [256], [255]]))
    assert model._machine.gathered().X.ravel().tolist() == [3, 0, 0, 255]


def test_what_is_refused_by_its_shape_does_not_count() -> None:
    model = fitted()
    bad: list[Any] = [[[1.0, 2.0]], [0.5], [[0.5], [1.0, 2.0]], np.ma.masked_array([[0.5]])]
    for X in bad:
        with pytest.raises((TypeError, ValueError)):
            model.predict(X)
    with pytest.raises(TypeError, match="clients must be strings or whole numbers"):
        model.predict([[0.5]], clients=[0.5])
    with pytest.raises(ValueError, match="clients must have one value per row"):
        model.predict([[0.5]], clients=["a", "b"])
    assert model.answered_ == 0


# ── refusing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_too_few_rows_are_refused_with_all_that_would_do() -> None:
    with pytest.raises(InsufficientData, match=r"rows; or epsilon=.*; or answers=.*private learner") as caught:
        EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-6, classes=(0, 1)).fit(*line(2000))
    required = caught.value.required
    with pytest.raises(InsufficientData):
        EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-6, classes=(0, 1)).fit(*line(required - 20))
    EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-6, classes=(0, 1)).fit(*line(required))


@pytest.mark.parametrize(
    "shrinking", [{"held_back": 0.9}, {"growth": 1, "held_back": 0.3}, {"growth": 1.5, "training_stream": "trusted"}]
)
def test_who_wants_endless_answers_is_told_that_phases_shrink(shrinking: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="answers will not be endless: growth="):
        fitted(**shrinking)
    predictor(**shrinking, answers=5000).fit(*line(4000))


def test_phases_too_small_for_ever_are_not_endless() -> None:
    with pytest.raises(InsufficientData):
        fitted(max_rows=100)


def test_a_phase_that_cannot_be_opened_leaves_the_old_one_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    model = fitted(memory_limit=0, folder=folder, held_back=0)
    X, _ = line(8000, seed=1)
    model.predict(X[:-1])
    folder.rmdir()
    assert len(model.predict(X[-1:])) == 1  # it counts, so it is given
    for _ in range(2):
        assert (model.phase_, model.rows_gathered_, model.answers_left_in_phase_) == (1, 8000, 0)
        with pytest.raises(ValueError, match="folder must be a folder that exists"):
            model.predict(X[-1:])
    folder.mkdir()
    model.predict(X[:5])
    assert (model.phase_, model.phase.rows, model.rows_gathered_) == (2, 8000, 5)


def test_a_fit_that_fails_leaves_nothing_fitted() -> None:
    model = predictor(memory_limit=0, folder="/nowhere/at/all")
    with pytest.raises(ValueError, match="folder must be a folder that exists"):
        model.fit(*line(4000))
    with pytest.raises(NotFittedError):
        model.predict([[0.5]])


def test_parameters_are_those_of_fit(tmp_path: Path) -> None:
    options = {"steepness": 15}
    model = predictor(labeller="two-coin", labeller_options=options).fit(*line(20_000))
    model.set_params(epsilon=50, client_phases=9, client_share=1)
    options["steepness"] = 1
    again = resumed(model, tmp_path)
    assert again.guarantee_ == model.guarantee_ == Guarantee(epsilon=8, delta=1e-5, protects="rows and queries")
    assert (again.epsilon, again.labeller_options) == (8, {"steepness": 15})


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0}, {"epsilon": float("nan")}, {"delta": 0}, {"delta": 1}, {"answers": 0}, {"answers": "for ever"},
        {"answers": 1.5}, {"growth": 0.5}, {"held_back": 1}, {"held_back": -0.1}, {"rows_per_teacher": 0},
        {"labeller": "sparse-vector"}, {"labeller": "confident"}, {"most_noise": 0}, {"training_stream": "mine"},
        {"labeller_options": {"epsilon": 50}}, {"labeller_options": {"query_epsilon": None}}, {"retrain": "often"},
        {"growth": 1001}, {"client_share": 0}, {"client_share": 2}, {"client_phases": 0}, {"max_rows": 0},
        {"memory_limit": -1}, {"background": 1}, {"random_state": -1}, {"classes": None}, {"classes": (0,)},
        {"classes": (0, 2)},
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_by_name(bad: dict[str, Any]) -> None:
    (name,) = bad
    named = "y must hold" if bad == {"classes": (0, 2)} else name
    with pytest.raises((TypeError, ValueError), match=named):
        EverlastingPredictor(Thresholds(), **{**BUDGET, **bad}).fit(*line(4000))


@settings(max_examples=30)
@given(value=st.one_of(st.none(), st.text(max_size=3), st.floats(max_value=0), st.just(float("inf"))))
def test_whatever_is_no_epsilon_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        EverlastingPredictor(Thresholds(), epsilon=value, delta=1e-6, classes=(0, 1)).fit(*line(10))


def test_rows_without_labels_or_numbers_are_refused() -> None:
    X, y = line(4000)
    for rows, labels in ((X[:0], y[:0]), (X, y[:-1]), (np.where(X < 0.001, np.nan, X), y), ([["a"]] * 4, [0, 1, 0, 1])):
        with pytest.raises((TypeError, ValueError)):
            predictor().fit(rows, labels)


def test_a_fitted_predictor_cannot_be_copied() -> None:
    model = fitted()
    for way in (copy.deepcopy, pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="Save it, load it"):
            way(model)


# ── stopping and going on ─────────────────────────────────────────────────────────────────────────────────────────


def resumed(model: EverlastingPredictor, folder: Path, **options: Any) -> EverlastingPredictor:
    model.save(folder / "state")
    return EverlastingPredictor.load(folder / "state", **options)


@pytest.mark.parametrize("labeller", ["greedy", "two-coin"])
def test_a_restored_predictor_goes_on_where_it_was(tmp_path: Path, labeller: str) -> None:
    model = predictor(labeller=labeller, client_share=0.5).fit(*line(20_000))
    X, truth = line(100_000, seed=1)
    model.predict(X[:50_000], clients=np.arange(50_000) % 3)
    assert model.phase_ == 2
    again = resumed(model, tmp_path)
    for name in ("phase", "answered_", "answers_left_in_phase_", "rows_gathered_", "guarantee_", "event_"):
        assert getattr(again, name) == getattr(model, name), name
    assert np.array_equal(again.engine_.teachers.votes(X[:50]), model.engine_.teachers.votes(X[:50]))  # type: ignore[attr-defined]
    assert again.engine_.labeller.state() == model.engine_.labeller.state()  # type: ignore[attr-defined]
    assert (again.predict(X[50_000:]) == truth[50_000:]).mean() > 0.97
    assert again.answered_ == 100_000


def test_a_restored_predictor_draws_fresh_noise(tmp_path: Path) -> None:
    X, _ = line(20_000)
    model = predictor().fit(X, np.random.default_rng(3).integers(2, size=20_000))
    model.save(tmp_path / "state")
    queries = np.random.default_rng(4).random((2000, 1))
    first = EverlastingPredictor.load(tmp_path / "state").predict(queries)
    second = EverlastingPredictor.load(tmp_path / "state", again=True).predict(queries)
    assert 0 < (first != second).mean() < 1


def test_a_state_is_loaded_once(tmp_path: Path) -> None:
    resumed(fitted(), tmp_path)
    with pytest.raises(ValueError, match="again=True"):
        EverlastingPredictor.load(tmp_path / "state")


def test_a_state_is_the_same_under_any_name(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "one")
    model.save(tmp_path / "two")
    EverlastingPredictor.load(tmp_path / "one")
    with pytest.raises(ValueError, match="again=True"):
        EverlastingPredictor.load(tmp_path / "two")
    model.predict([[0.5]])
    model.save(tmp_path / "two")  # another state: it has answered
    assert EverlastingPredictor.load(tmp_path / "two").answered_ == 1


def test_learning_elsewhere_does_not_trust_files_unasked(tmp_path: Path) -> None:
    X, y = line(1000)
    options: dict[str, Any] = {"answers": 20, "rows_per_teacher": 50, "most_noise": 1, **BUDGET}
    model = EverlastingPredictor(RandomForestClassifier(n_estimators=2), **options).fit(X, y)
    model.save(tmp_path / "state")
    with pytest.raises(ValueError, match="trust_models"):
        EverlastingPredictor.learned(tmp_path / "state", model.phase, Rows(X, y))


def test_states_of_groups_and_chains(tmp_path: Path) -> None:
    X, y = line(8000)
    model = predictor(rows_per_teacher=20).fit(X, y, groups=np.arange(8000))
    model.predict(X[:100], clients=[f"client {i // 2}" for i in range(100)])
    again = resumed(model, tmp_path)
    assert again._machine.admission.state() == model._machine.admission.state()
    groups = again._machine.gathered().groups
    assert groups is not None
    assert np.array_equal(groups, np.arange(100) // 2)

    whole = (256 * X).astype(np.int64)
    chain = EverlastingPredictor(ThresholdLearner(bits=8, epsilon=1), epsilon=1, delta=0, classes=("no", "yes"))
    chain.fit(whole, np.where(y == 1, "yes", "no"))
    chain.predict(whole[:500])
    restored = resumed(chain, tmp_path)
    assert np.array_equal(restored.predict(whole), chain.predict(whole))
    assert (restored.phase_, restored.answered_) == (1, 8500)


def test_teachers_of_any_kind_are_restored_only_if_trusted(tmp_path: Path) -> None:
    X, y = line(1000)
    forest = RandomForestClassifier(n_estimators=2, max_depth=2)
    options: dict[str, Any] = {"answers": 20, "rows_per_teacher": 50, "most_noise": 1, **BUDGET}
    model = EverlastingPredictor(forest, **options).fit(X, y)
    model.save(tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = EverlastingPredictor.load(tmp_path / "state", trust_models=True)
    assert np.array_equal(again.engine_.teachers.votes(X[:9]), model.engine_.teachers.votes(X[:9]))  # type: ignore[attr-defined]


@pytest.mark.parametrize("learner", [None, LogisticRegression(C=100), DecisionTreeClassifier(max_depth=1)])
def test_linear_and_tree_teachers_are_restored_without_trust(tmp_path: Path, learner: Any) -> None:
    X, y = line(4000)
    model = EverlastingPredictor(learner, rows_per_teacher=20, answers=100, **BUDGET).fit(X, y)
    again = resumed(model, tmp_path)
    assert type(again.learner) is type(learner)
    assert np.array_equal(again.engine_.teachers.votes(X[:9]), model.engine_.teachers.votes(X[:9]))  # type: ignore[attr-defined]


class Mine(LogisticRegression):  # type: ignore[misc]
    """A learner that no file can name."""


@pytest.mark.slow
def test_a_learner_of_ones_own_is_given_again(tmp_path: Path) -> None:
    X, y = line(4000)
    model = EverlastingPredictor(Mine(), rows_per_teacher=20, answers=100, **BUDGET).fit(X, y)
    model.save(tmp_path / "state")
    with pytest.raises(ValueError, match="learner must be given: the Mine"):
        EverlastingPredictor.load(tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = EverlastingPredictor.load(tmp_path / "state", learner=Mine(), trust_models=True)
    assert again.answered_ == 0


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────


EXPECTED = {
    "check_complex_data": "a TypeError, in other words",
    "check_dtype_object": "refused in other words",
    "check_estimators_empty_data_messages": "refused in other words",
    "check_fit2d_predict1d": "refused in other words",
    "check_estimators_pickle": "a copy of a fitted predictor would answer again",
    "check_estimators_nan_inf": "a query that is no number counts like any other, and is answered",
    "check_methods_subset_invariance": "fresh noise for every answer",
    "check_methods_sample_order_invariance": "fresh noise for every answer",
    "check_dict_unchanged": "answers are counted",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::reticent.PrivacyWarning")
def test_it_is_an_estimator() -> None:
    estimator = EverlastingPredictor(
        epsilon=200, delta=0.001, classes="public", most_noise=100, rows_per_teacher=1, answers=100_000,
        labeller="gumbel", unsafe_seed=1,
    )  # fmt: skip
    check_estimator(estimator, on_skip=None, expected_failed_checks=EXPECTED)


@pytest.mark.parametrize("wrap", [sparse.csr_matrix, np.asarray, list])
def test_tables_of_many_kinds(wrap: Callable[[Any], Any]) -> None:
    X, y = line(4000)
    model = EverlastingPredictor(LogisticRegression(C=100), rows_per_teacher=20, answers=100, **BUDGET)
    assert model.fit(wrap(X), y).predict(wrap(X[:50])).shape == (50,)


def test_single_precision_stays_single() -> None:
    X, y = line(4000)
    model = predictor().fit(X.astype(np.float32), y)
    model.predict(X[:10])
    assert model._machine.gathered().X.dtype == np.float32


@pytest.mark.slow
def test_rows_beyond_the_memory_limit_live_in_a_file_and_answers_stay_as_good(tmp_path: Path) -> None:
    X, truth = line(60_000, seed=1)
    model = fitted(20_000, memory_limit=1000, folder=tmp_path)
    assert (model.predict(X[:30_000]) == truth[:30_000]).mean() > 0.98
    store = model._machine.intake.store  # type: ignore[union-attr]
    assert store is not None
    assert store.on_disk
    model.save(tmp_path / "state")
    again = EverlastingPredictor.load(tmp_path / "state")
    assert again.rows_gathered_ == model.rows_gathered_ == 30_000
    assert (again.predict(X[30_000:]) == truth[30_000:]).mean() > 0.98
    assert again.phase_ == 2
