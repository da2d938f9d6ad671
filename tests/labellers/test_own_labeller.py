"""A labeller of a user's own, by class or specification, wherever a labeller can be named."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from own_labeller import Laplace
from reticent import EverlastingPredictor, PATEClassifier
from reticent.concepts import Thresholds
from reticent.labellers import NAMES, REGISTRY, Greedy, LabellerSpec, TwoCoin, find
from reticent.labellers.answers import bought
from reticent.labellers.ballots import Ballots
from reticent.plan.everlasting import everlasting
from reticent.plan.pate import pate
from reticent.privacy import fits

BUDGET: dict[str, Any] = {"epsilon": 8, "delta": 1e-6}


def line(rows: int, seed: int = 0) -> tuple[Any, Any]:
    X = np.random.default_rng(seed).random((rows, 1))
    return X, (X[:, 0] < 0.4).astype(np.int64)


def predictor(**options: Any) -> EverlastingPredictor:
    return EverlastingPredictor(Thresholds(), classes=(0, 1), most_noise=10, **{**BUDGET, "answers": 300, **options})


# ── specifications ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_a_class_and_a_specification_mean_the_same() -> None:
    assert find("two-coin", {"tries": 3}) == find(TwoCoin, {"tries": 3}) == find(TwoCoin.spec(tries=3))
    assert {find(name).kind for name in NAMES} == set(REGISTRY.values())


def test_a_specification_is_a_plain_value() -> None:
    spec = Laplace.spec(least=2)
    for other in (copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), clone(spec, safe=False)):
        assert (other, hash(other), repr(other)) == (spec, hash(spec), "LabellerSpec(Laplace, least=2)")
    with pytest.raises(TypeError):
        spec.options["least"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("labeller", "options", "error", "words"),
    [
        ("best", None, ValueError, "labeller must be one of greedy, .* or a LabellerSpec, got 'best'"),
        (int, None, ValueError, "a subclass of Labeller"),
        (Greedy.spec(), {"order": 2}, ValueError, "labeller_options must be left out"),
        (Laplace, {"scale": 2}, ValueError, "labeller_options must be among least for labeller 'laplace', got scale"),
        (Laplace, [1], TypeError, "labeller_options must be a dict or None, got list"),
        (Greedy(teachers=9, answers=1, epsilon=8, delta=0.01), None, TypeError, r"budget .* Greedy.spec\(\)"),
    ],
)
def test_what_is_no_labeller_is_refused(labeller: Any, options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        find(labeller, options)
    with pytest.raises(TypeError, match="kind must be a subclass of Labeller"):
        LabellerSpec(int)  # type: ignore[arg-type]


# ── end to end ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("labeller", [Laplace, Laplace.spec(), Laplace.spec(least=3)])
def test_a_pate_classifier_takes_it(labeller: Any) -> None:
    (X, y), (public, truth) = line(6000), line(60, seed=1)
    model = PATEClassifier(
        Thresholds(), Thresholds(), labeller=labeller, classes=(0, 1), n_teachers=200, n_queries=20, unsafe_seed=0,
        **BUDGET,
    )  # fmt: skip
    assert clone(model).get_params()["labeller"] == labeller
    model.fit(X, y, public=public)
    assert model.settings_.labeller == "laplace"
    assert len(model.labels_) == 20
    assert fits(model.event_, **BUDGET)
    assert model.score(public, truth) > 0.9


@pytest.mark.parametrize("labeller", [Laplace, Laplace.spec(least=3)])
def test_an_everlasting_predictor_takes_it_and_can_be_saved(labeller: Any, tmp_path: Path) -> None:
    model = predictor(labeller=labeller)
    assert clone(model).get_params()["labeller"] == labeller
    model.fit(*line(20_000))
    assert not model.closes_early_
    X, y = line(100, seed=1)
    assert (model.predict(X) == y).mean() > 0.9
    model.save(tmp_path / "state")
    with pytest.raises(ValueError, match="labeller must be given: the Laplace is not part of the saved state"):
        EverlastingPredictor.load(tmp_path / "state")
    again = EverlastingPredictor.load(tmp_path / "state", labeller=Laplace)
    assert again.answers_left_in_phase_ == model.answers_left_in_phase_ == 200
    assert again.clock() == model.clock()
    assert (again.predict(X) == y).mean() > 0.9
    assert again.engine_.labeller.scale == model.engine_.labeller.scale  # type: ignore[attr-defined]


def test_a_specification_of_this_package_is_saved_by_name(tmp_path: Path) -> None:
    model = predictor(labeller=Greedy.spec(order=8)).fit(*line(20_000))
    model.save(tmp_path / "state")
    again = EverlastingPredictor.load(tmp_path / "state")
    assert (again.labeller, again.labeller_options) == ("greedy", {"order": 8})


@pytest.mark.parametrize("given", [{"labeller": Laplace}, {"engine": object}])
def test_a_saved_labeller_or_engine_cannot_be_replaced(given: dict[str, Any], tmp_path: Path) -> None:
    """The guarantee of a state is that of its labeller: another one would spend something else."""
    predictor(labeller="greedy").fit(*line(20_000)).save(tmp_path / "state")
    with pytest.raises(ValueError, match="must not be given: it is part of the saved state, and of its guarantee"):
        EverlastingPredictor.load(tmp_path / "state", **given)


@pytest.mark.parametrize("given", ["greedy", Greedy.spec(), Laplace.spec(least=50), Greedy])
def test_only_the_class_that_is_missing_takes_its_place(given: Any, tmp_path: Path) -> None:
    """A name or a specification would bring another labeller, or other options, to answers that were priced."""
    predictor(labeller=Laplace).fit(*line(20_000)).save(tmp_path / "state")
    with pytest.raises(ValueError, match="labeller must be Laplace, got"):
        EverlastingPredictor.load(tmp_path / "state", labeller=given)
    EverlastingPredictor.load(tmp_path / "state", labeller=Laplace)  # a refusal claims nothing


class Forgetful(Laplace):
    resumable = False


class Declines(Laplace):
    abstains = True


class Exposes(Laplace):
    stateless = False


@pytest.mark.parametrize(
    ("labeller", "words"),
    [
        (Forgetful, "'laplace' cannot be saved and resumed"),
        (Declines, "'laplace' may decline a query"),
        (Exposes, "'laplace' remembers queries, and has no query_share"),
        ("confident", "'confident' may decline a query"),
        ("best", "labeller must be 'auto', one of greedy, .* got 'best'"),
        (TwoCoin.spec(query_epsilon=1), "labeller_options must not set query_epsilon"),
    ],
)
def test_an_everlasting_predictor_refuses_what_cannot_serve(labeller: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        predictor(labeller=labeller).fit(*line(2000))
    with pytest.raises(ValueError, match=words):
        everlasting(20_000, 1, labeller=labeller, **BUDGET)


@pytest.mark.slow
def test_plans_take_it() -> None:
    plan = everlasting(20_000, 1, learner="thresholds", labeller=Laplace.spec(least=3), answers=300, **BUDGET)
    assert (plan.phases[0].labeller, plan.phases[0].options) == ("laplace", {"least": 3})
    assert 0 <= plan.phases[0].loss < 0.1
    found = pate(200, labellers=["greedy", Laplace], **BUDGET)
    assert [each.labeller for each in found.bought] == ["greedy", "laplace"]
    assert found.best().labeller == "greedy"
    with pytest.raises(ValueError, match="labellers must include one that 'auto' chooses from"):
        pate(200, labellers=[Laplace], **BUDGET).best()


@pytest.mark.slow
def test_the_search_finds_the_most_answers_within_the_loss() -> None:
    ballots = Ballots.guess(100)
    most = bought(Laplace, ballots, **BUDGET, loss=0.01)

    def lost(answers: int) -> float:
        made = Laplace(teachers=100, answers=answers, **BUDGET)
        each = zip(ballots.counts, ballots.truth, strict=True)
        return ballots.loss([made.accuracy(row[None], truth[None]) for row, truth in each])

    assert most.answers > 10
    assert lost(most.answers) == pytest.approx(most.loss)
    assert lost(most.answers) <= 0.01 < lost(round(1.03 * most.answers) + 1)


# ── labellers that fail ───────────────────────────────────────────────────────────────────────────────────────────


class Fails(Laplace):
    """Fails where the votes are clear, and quotes them."""

    def _label(self, counts: Any) -> Any:
        if counts[0].max() > 90:
            raise KeyError(f"votes are {counts[0].tolist()}")
        return super()._label(counts)


class TooMany(Laplace):
    def _label(self, counts: Any) -> Any:
        return np.zeros(len(counts) + 1, dtype=np.int64)


class NoClass(Laplace):
    def _label(self, counts: Any) -> Any:
        return np.full(len(counts), 2)


class Fractions(Laplace):
    def _label(self, counts: Any) -> Any:
        return np.full(len(counts), 0.5)


@pytest.mark.parametrize("kind", [Fails, TooMany, NoClass, Fractions])
def test_a_labeller_fails_once_without_a_word_on_the_votes(kind: type[Laplace]) -> None:
    labeller = kind(teachers=100, epsilon=10, delta=1e-6, answers=50)
    clear, split = [[2, 98]], [[45, 55]]
    once = f"^{kind.__name__} failed with [A-Za-z]+Error and gives no more answers$"
    with pytest.raises(RuntimeError, match=once) as seen:
        labeller.label(clear)
    assert seen.value.__context__ is None
    with pytest.raises(RuntimeError, match=f"^{kind.__name__} has failed before and gives no more answers$"):
        labeller.label(split)
