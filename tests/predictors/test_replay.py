"""A phase that is stopped anywhere and replayed goes on as if it had not been stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.concepts import Thresholds
from reticent.data.rows import Rows
from reticent.errors import BudgetExhausted
from reticent.learners import ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase

Array = np.ndarray[Any, Any]


def fitted(learner: Any = None, rows: int = 4000, **options: Any) -> EverlastingPredictor:
    X = np.random.default_rng(0).random((rows, 1))
    budget: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "classes": (0, 1), "client_share": 0.2, **options}
    return EverlastingPredictor(learner or Thresholds(), **budget).fit(X, (X[:, 0] < 0.5).astype(np.int64))


def queries(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.random((rows, 1))
    X[::17] = np.nan
    return X, rng.choice(["ann", "bob", "cleo"], rows)


def public(model: EverlastingPredictor) -> tuple[Any, ...]:
    return (
        model.phase, model.answered_, model.answers_left_in_phase_, model.rows_gathered_,
        model._machine.admission.state(),
    )  # fmt: skip


@pytest.mark.parametrize("labeller", ["greedy", "two-coin"])
@pytest.mark.parametrize("sizes", [(100, 900, 7), (7000, 500, 100), (0, 7200, 300)])
def test_replayed_it_has_the_same_counts_and_the_same_rows(
    tmp_path: Path, labeller: str, sizes: tuple[int, ...]
) -> None:
    model = fitted(labeller=labeller)
    if sizes[0]:
        model.predict(*queries(sizes[0], 9))
    model.save(tmp_path / "a.state")
    parts = []
    for seed, size in enumerate(sizes[1:]):
        X, who = queries(size, seed)
        window = max(0, min(size, model.phase.window - model.clock()["asked"]))
        codes = model.answer(X, who).class_indices
        if window:
            parts.append((X[:window], codes[:window], who[:window]))
    again = EverlastingPredictor.load(tmp_path / "a.state")
    again.replay(parts, model.clock())
    assert public(again) == public(model)
    assert again.clock() == model.clock()
    for ours, theirs in zip(again._machine.gathered()[:2], model._machine.gathered()[:2], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    again.predict(*queries(again.answers_left_in_phase_, 5))
    assert again.phase_ == 2


def test_what_the_clock_does_not_count_or_misses_is_refused(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "a.state")
    X, who = queries(50, 0)
    codes = model.answer(X, who).class_indices
    for parts in ([], [(X[:49], codes[:49], who[:49])], [(X, codes, who), (X, codes, who)]):
        again = EverlastingPredictor.load(tmp_path / "a.state", again=True)
        with pytest.raises(ValueError, match="parts must be"):
            again.replay(parts, model.clock())


def test_a_phase_can_learn_elsewhere(tmp_path: Path) -> None:
    for learner in (None, ThresholdLearner(bits=10, epsilon=8)):
        model = EverlastingPredictor(
            learner or Thresholds(), epsilon=8, delta=1e-5, classes=(0, 1), retrain="always", held_back=0
        )
        X: Array = np.random.default_rng(0).integers(0, 1024, (4000, 1))
        X = X if learner else X / 1024
        model.fit(X, (X[:, 0] < X.max() / 2).astype(np.int64))
        path = tmp_path / f"{learner is None}.state"
        model.save(path)
        called: list[Phase] = []

        def learn(phase: Phase, rows: Rows, path: Path = path, called: list[Phase] = called) -> Any:
            called.append(phase)
            return EverlastingPredictor.learned(path, phase, rows)

        model.learn_elsewhere(learn)
        many = np.resize(X, (model.answers_left_in_phase_, 1))
        model.predict(many)
        assert model.phase_ == 2
        assert called == [model.phase]
        right = model.predict(many[:1000]) == (many[:1000, 0] < X.max() / 2)
        assert right.mean() > 0.95


def test_answers_given_before_there_were_no_more_are_told_with_the_reason() -> None:
    model = fitted(client_share=0.0002)  # one row of a client: too few for another phase
    X, _ = queries(8100, 0)
    codes, phases, refused, _ = model.answer(X, np.zeros(8100, dtype=np.int64))
    assert (len(codes), set(phases.tolist()), type(refused)) == (8000, {1}, BudgetExhausted)
    assert model.answered_ == 8000
    with pytest.raises(BudgetExhausted):
        model.predict(X[:1], np.zeros(1, dtype=np.int64))


def test_the_phase_of_each_answer_is_told() -> None:
    model = fitted()
    X = np.random.default_rng(1).random((9000, 1))
    phases = model.answer(X).phases
    assert np.unique(phases, return_counts=True)[1].tolist() == [8000, 1000]
