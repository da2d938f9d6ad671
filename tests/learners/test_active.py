from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from common import RANDOM
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import worst_case
from reticent.audit.neighbours import divergences, random_row_replacements, row_replacements
from reticent.concepts import Floats, Threshold, Thresholds
from reticent.concepts.interface import ConceptClass
from reticent.errors import InsufficientData
from reticent.learners.active import ActiveLearner, Draw, inner_epsilon, rate_for_one
from reticent.learners.base import ConceptLearner, PartlyLabelled
from reticent.learners.label_boost import LabelBoost
from reticent.learners.label_private import SemiPrivateLearner
from reticent.learners.points import PointLearner
from reticent.learners.rectangles import RectangleLearner
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import BoundedRange, PureDP, SeededRelease, Subsampled
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_epsilon
from reticent.sanitizers.thresholds import ThresholdSanitizer

Array = NDArray[Any]
Rows = tuple[tuple[int, int], ...]  # (value, label)

TINY = 1e-20  # what rounding, and noise that is not walked, may add to the exact δ of a pure mechanism


# ── two tiny learners that spend all of their ε ───────────────────────────────────────────────────────────────────


class Counting(ConceptLearner):
    """Publishes a noisy count of even labels in even places and odd ones in odd places: it looks at the order."""

    def __init__(
        self, *, epsilon: Any = 1, error: Any = None, failure: Any = 0.05, unsafe_seed: int | None = None
    ) -> None:
        self.epsilon = epsilon
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Any, failure: Any = None) -> int:
        return math.ceil(10 / (float(self.epsilon) * float(error)))

    def hypothesis_class(self) -> ConceptClass[Any]:
        return Thresholds(bits=7)

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Release[Any]:
        event = PureDP(check_epsilon(self.epsilon))
        cuts = [k - self._count(rows, labels) for k in range(1, len(rows) + 1)]
        found = noise_or_system(unsafe_noise).laplace_cell(1 / event.epsilon, cuts)
        return release(Threshold(found), event, unsafe_noise)

    def _count(self, rows: Array, labels: Array) -> int:
        return int(np.count_nonzero(labels == np.arange(len(rows)) % 2))


class CountingAll(Counting, PartlyLabelled):
    """Publishes a noisy count of the labels 1, and of the values 1 of the rows without a label: not of the order."""

    def _count(self, rows: Array, labels: Array) -> int:
        return int(np.count_nonzero(np.where(labels >= 0, labels, rows) == 1))

    def labels_required(self, error: Any, failure: Any = None) -> int:
        return math.ceil(self.n_required(error, failure) / 4)


class LabelsOnly(Counting):
    protects = "labels"


def table(rows: Rows) -> tuple[Array, Array]:
    values, labels = zip(*rows, strict=True)
    return np.array(values)[:, None], np.array(labels)


# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────

EPSILON = Fraction(1, 2)
ALL_ROWS = [(value, label) for value in (0, 1) for label in (0, 1)]


def published(learner: ActiveLearner, **sizes: int) -> Callable[[Noise, Rows], Any]:
    def run(noise: Noise, rows: Rows) -> Any:
        fitted = learner.fit_with_noise(*table(rows), noise, **sizes)  # type: ignore[arg-type]
        return fitted.hypothesis_, *getattr(fitted, "transcript_", ())

    return run


def neighbours(rows: int, number: int) -> list[tuple[Rows, Rows]]:
    return list(random_row_replacements(np.random.default_rng(1), number, domain=ALL_ROWS, rows=rows))


ONE: tuple[Rows, Rows] = (((0, 0),) * 4, ((0, 0),) * 3 + ((1, 1),))  # all rows are the same but for one


@pytest.mark.slow
def test_exact_law_attains_all_of_epsilon() -> None:
    learner = ActiveLearner(CountingAll(), epsilon=EPSILON)
    pairs = [pair for _, _, pair in divergences(published(learner, n_labels=1, n_rows=2), [ONE, *neighbours(4, 3)])]
    assert max(pair.delta(EPSILON)[1] for pair in pairs) < TINY
    assert pairs[0].delta(EPSILON - Fraction(1, 1000))[0] > 1e-5
    X, y = table(ONE[0])
    fitted = learner.fit(X, y, n_labels=1, n_rows=2)
    assert fitted.guarantee_ == Guarantee(epsilon=0.5)
    inside = inner_epsilon(EPSILON, Fraction(1, 2))
    assert fitted.event_ == Subsampled(PureDP(inside), Fraction(1, 2))
    assert float(inside) == pytest.approx(math.log(1 + 2 * math.expm1(0.5)), rel=1e-15)


@pytest.mark.slow
def test_exact_law_with_a_threshold_learner() -> None:
    rows = [(value, label) for value in range(4) for label in (0, 1)]
    pairs = list(random_row_replacements(np.random.default_rng(0), 3, domain=rows, rows=4))
    pairs.append((((0, 1),) * 4, ((0, 1),) * 3 + ((0, 0),)))  # only the threshold 0 gains
    learner = ActiveLearner(ThresholdLearner(bits=2, epsilon=1), epsilon=EPSILON)
    laws = [pair for _, _, pair in divergences(published(learner, n_labels=2), pairs)]
    assert max(pair.delta(EPSILON)[1] for pair in laws) < TINY
    assert max(pair.delta(0.4)[0] for pair in laws) > 1e-3  # four fifths of ε are attained


@pytest.mark.slow
def test_exact_law_with_delta() -> None:
    learner = ActiveLearner(PointLearner(bits=1, epsilon=1, delta=0.1), epsilon=1, delta=0.05)
    run = published(learner, n_labels=2)
    pairs = list(row_replacements(ALL_ROWS, 3, ordered=False))[::4]
    worst = worst_case(run, pairs, epsilon=1)
    assert 0.01 < worst.lower <= worst.upper <= 0.05
    X, y = table(ONE[0])
    assert learner.fit(X, y, n_labels=2).guarantee_ == Guarantee(epsilon=1, delta=0.05)
    assert learner.learner_.delta == Fraction(1, 10)  # t/n times as much


@pytest.mark.slow
def test_exact_law_with_a_private_transcript() -> None:
    pairs = [*neighbours(3, 2), (ONE[0][:3], ONE[1][1:])]
    learner = ActiveLearner(CountingAll(), epsilon=EPSILON, transcript="private")
    for sizes in ({"n_labels": 1}, {"n_labels": 2}, {"n_labels": 1, "n_rows": 2}):
        found = worst_case(published(learner, **sizes), pairs, epsilon=EPSILON)
        assert found.upper < TINY
        assert worst_case(published(learner, **sizes), pairs[-1:], epsilon=Fraction(49, 100)).lower > 1e-4
    order = ActiveLearner(Counting(), epsilon=EPSILON, transcript="private")
    assert worst_case(published(order, n_labels=2), pairs, epsilon=EPSILON).upper < TINY


class Wrapped(Noise):
    """Noise whose subsets are changed, or watched, on the way."""

    def __init__(self, noise: Any) -> None:
        self.noise = noise
        self.drawn: Array = np.zeros(0)

    def laplace_cell(self, scale: Fraction, cuts: Any) -> int:
        return int(self.noise.laplace_cell(scale, cuts))

    def subset(self, n: int, k: int) -> Array:
        self.drawn = np.asarray(self.noise.subset(n, k))
        return self.drawn


class InOrder(Wrapped):
    def subset(self, n: int, k: int) -> Array:
        return np.sort(super().subset(n, k))


class IndexOrder(ActiveLearner):
    """A twin: the rows drawn are put in the order of the data, and the smallest m indices are labelled, as printed."""

    def fit_with_noise(self, X: Any, y: Any, unsafe_noise: Noise | None, **sizes: Any) -> Any:
        return super().fit_with_noise(X, y, InOrder(unsafe_noise), **sizes)


class LabelsDrawn(ActiveLearner):
    """A twin: ε* is computed as if only the labelled rows had been drawn."""

    def _draw(self, pool: int, n_labels: int, n_rows: int | None) -> Draw:
        draw = super()._draw(pool, n_labels, n_rows)
        return draw._replace(epsilon=inner_epsilon(check_epsilon(self.epsilon), Fraction(draw.labels, pool)))


@pytest.mark.slow
def test_the_order_of_the_data_is_rejected() -> None:
    # An index that drops out shifts all that follow, so a learner that looks at places sees many rows replaced.
    alternating = ((0, 0), (0, 1), (0, 0), (0, 1))
    pairs = [(alternating, ((0, 1), *alternating[1:]))]
    run = published(IndexOrder(Counting(), epsilon=EPSILON), n_labels=3)
    assert worst_case(run, pairs, epsilon=EPSILON).lower > 1e-3
    real = published(ActiveLearner(Counting(), epsilon=EPSILON), n_labels=3)
    assert worst_case(real, pairs, epsilon=EPSILON).upper < TINY


def test_labels_for_the_smallest_indices_are_rejected() -> None:
    # Rows that count with a label and not without, or the other way: a row that comes in changes another one's role.
    pairs: list[tuple[Rows, Rows]] = [
        (((1, 1), (1, 0), (0, 1)), ((1, 1), (1, 0), (1, 0))),
        (((0, 1), (1, 0), (0, 1)), ((1, 0), (1, 0), (0, 1))),
    ]
    run = published(IndexOrder(CountingAll(), epsilon=EPSILON), n_labels=1, n_rows=2)
    assert worst_case(run, pairs, epsilon=EPSILON).lower > 1e-3
    real = published(ActiveLearner(CountingAll(), epsilon=EPSILON), n_labels=1, n_rows=2)
    assert worst_case(real, pairs, epsilon=EPSILON).upper < TINY


def test_other_twins_are_rejected() -> None:
    twin = published(LabelsDrawn(CountingAll(), epsilon=EPSILON), n_labels=1, n_rows=2)
    assert worst_case(twin, [ONE], epsilon=EPSILON).lower > 1e-3

    def exposed(noise: Noise, rows: Rows) -> Any:
        watched = Wrapped(noise)
        learner = ActiveLearner(Counting(), epsilon=EPSILON)
        return learner.fit_with_noise(*table(rows), watched, n_labels=2).hypothesis_, *watched.drawn.tolist()

    assert worst_case(exposed, [ONE], epsilon=EPSILON).lower > 1e-3  # hidden means hidden


def test_a_hidden_transcript_is_not_kept() -> None:
    X, y = table(ONE[0])
    learner = ActiveLearner(Counting(), epsilon=1, transcript="private").fit(X, y, n_labels=2)
    assert len(set(learner.transcript_.tolist())) == 2
    learner.set_params(transcript="hidden").fit(X, y, n_labels=2)
    assert not hasattr(learner, "transcript_")
    held = {**vars(learner), **{f"inner {name}": value for name, value in vars(learner.learner_).items()}}
    arrays = {name for name, value in held.items() if isinstance(value, np.ndarray)}
    assert arrays == {"classes_", "inner classes_"}


def test_a_learner_that_protects_labels_only_needs_a_private_transcript() -> None:
    with pytest.raises(ValueError, match='transcript must be "private"'):
        ActiveLearner(LabelsOnly(), epsilon=1).fit("no data", None)
    X, y = table(ONE[0])
    learner = ActiveLearner(LabelsOnly(), epsilon=1, transcript="private").fit(X, y, n_labels=2)
    assert learner.guarantee_ == Guarantee(epsilon=1, protects="labels")


@given(epsilon=st.fractions(Fraction(1, 10**9), 50), rate=st.fractions(Fraction(1, 10**9), 1))
def test_inner_epsilon_is_safe_and_tight(epsilon: Fraction, rate: Fraction) -> None:
    inside = inner_epsilon(epsilon, rate)
    assert epsilon <= inside
    assert amplified(inside, rate) <= epsilon
    assert amplified(inside * (1 + Fraction(1, 10**12)), rate) > epsilon


def test_rate_for_one() -> None:
    for epsilon in (Fraction(1, 1000), Fraction(1, 2), Fraction(1)):
        assert amplified(Fraction(1), rate_for_one(epsilon)) <= epsilon + Fraction(1, 1 << 100)
        assert float(rate_for_one(epsilon)) == pytest.approx(math.expm1(epsilon) / math.expm1(1))
    assert inner_epsilon(Fraction(1, 10**60), Fraction(1, 2)) >= Fraction(1, 10**60)


# ── the questions ─────────────────────────────────────────────────────────────────────────────────────────────────


class Recorder:
    """An oracle that labels values below 30 and remembers what it was asked."""

    def __init__(self) -> None:
        self.questions: list[Any] = []

    def __call__(self, rows: Any) -> Array:
        self.questions.append(rows)
        return np.asarray(rows)[:, 0] < 30


def test_the_oracle_is_asked_once_for_what_is_needed() -> None:
    X, oracle = np.arange(100)[:, None], Recorder()
    learner = ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=5).fit(X, oracle=oracle, n_labels=40)
    (question,) = oracle.questions
    assert question.shape == (40, 1)
    assert len(set(question[:, 0].tolist())) == 40
    assert (learner.n_labels_, learner.n_rows_) == (40, 40)
    assert learner.score(X, X[:, 0] < 30) > 0.8
    question[:] = 99  # the oracle's copy is its own
    assert X[0, 0] == 0


def test_a_private_transcript_lists_the_questions_in_order() -> None:
    X, oracle = np.arange(100)[:, None], Recorder()
    learner = ActiveLearner(CountingAll(), epsilon=5, transcript="private").fit(X, oracle=oracle, n_labels=7)
    assert learner.transcript_.tolist() == oracle.questions[0][:, 0].tolist()
    assert (learner.n_labels_, learner.n_rows_) == (7, 100)
    assert learner.guarantee_ == Guarantee(epsilon=5)


class Frame:
    """As much of a data frame as is needed: values, names of the rows, and rows by their position."""

    def __init__(self, values: Array, index: list[str]) -> None:
        self.values, self.index, self.shape = values, index, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    @property
    def iloc(self) -> Any:
        return self

    def __getitem__(self, places: Array) -> Frame:
        return Frame(self.values[places], [self.index[place] for place in places])


def test_a_data_frame_keeps_its_index() -> None:
    frame, oracle = Frame(np.arange(100)[:, None], [f"person {age}" for age in range(100)]), Recorder()
    ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=5).fit(frame, oracle=oracle, n_labels=3)
    (question,) = oracle.questions
    assert [f"person {age}" for age in question.values[:, 0]] == question.index
    assert len(question.index) == 3


def test_rows_without_labels() -> None:
    seen: list[Array] = []

    class Watched(CountingAll):
        def _count(self, rows: Array, labels: Array) -> int:
            seen.append(labels)
            return 0

    X = np.arange(1000)[:, None] % 4
    learner = ActiveLearner(Watched(), epsilon=0.1).fit(X, oracle=lambda rows: rows[:, 0] < 2, n_labels=5)
    assert learner.n_rows_ == math.floor(1000 * math.expm1(0.1) / math.expm1(1))
    assert learner.learner_.epsilon == pytest.approx(1, abs=0.02)
    assert learner.learner_.epsilon >= 1
    assert (seen[0][:5] >= 0).all()
    assert (seen[0][5:] == -1).all()
    assert learner.fit(X, X[:, 0] < 2, n_labels=5, n_rows=50).n_rows_ == 50


@pytest.mark.parametrize(
    "inside",
    [
        SemiSupervisedLearner(Thresholds(bits=8), epsilon=1),
        LabelBoost(ThresholdLearner(bits=8, epsilon=1), Thresholds(bits=8), epsilon=1),
    ],
)
def test_learners_that_take_rows_without_labels(inside: PartlyLabelled) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20_000, 1))
    for transcript in ("hidden", "private"):
        learner = ActiveLearner(inside, epsilon=0.5, transcript=transcript, unsafe_seed=0)
        learner.fit(x, oracle=lambda rows: rows[:, 0] < 90, n_labels=500)
        assert learner.score(x, x[:, 0] < 90) > 0.9
        assert learner.guarantee_.epsilon <= 0.5
        assert 500 < learner.n_rows_ <= 20_000


@pytest.mark.slow
def test_unlabelled_rows_are_required_where_a_learner_needs_them() -> None:
    inside = SemiSupervisedLearner(Thresholds(bits=8), epsilon=1)
    learner = ActiveLearner(inside, epsilon=0.5)
    labels, others = inside.labels_required(0.2), inside.unlabelled_required(0.2)
    assert learner.labels_required(0.2) == labels
    assert learner.n_required(0.2) == pytest.approx((labels + others) * math.expm1(1) / math.expm1(0.5), rel=0.02)


def test_labels_may_be_given_beforehand() -> None:
    X, y = np.arange(100)[:, None], np.arange(100) < 30
    learner = ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=5).fit(X, y)
    assert learner.n_labels_ == 100
    assert learner.learner_.epsilon == 5
    assert learner.learner.epsilon == 1  # the template stays as it was
    assert learner.event_ == Subsampled(BoundedRange(Fraction(5)), Fraction(1))
    seeded = clone(learner).set_params(unsafe_seed=1).fit(X, y, n_labels=50)
    assert seeded.guarantee_.seeded
    assert isinstance(seeded.learner_.event_, SeededRelease)
    assert clone(seeded).fit(X, y, n_labels=50).hypothesis_ == seeded.hypothesis_
    assert pickle.loads(pickle.dumps(seeded)).hypothesis_ == seeded.hypothesis_


def test_questions_that_make_no_sense_are_refused() -> None:
    learner, X, y = ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=1), [[1], [2], [3]], [0, 1, 1]
    ask: Any = lambda rows: [1] * len(rows)  # noqa: E731
    for words, arguments in [
        ("requires y to be passed", {}),
        ("either oracle or y", {"y": y, "oracle": ask, "n_labels": 2}),
        ("oracle must be a function", {"oracle": y, "n_labels": 2}),
        ("n_labels must be given", {"oracle": ask}),
        ("n_labels must be at least 1", {"oracle": ask, "n_labels": 0}),
        ("n_labels must be at most", {"oracle": ask, "n_labels": 4}),
        ("n_labels must be a whole number", {"oracle": ask, "n_labels": 1.5}),
        ("n_rows must be None", {"oracle": ask, "n_labels": 1, "n_rows": 2}),
    ]:
        with pytest.raises((TypeError, ValueError), match=words):
            learner.fit(X, **arguments)
    for bad in (0, 1, 4, 2.5, "3"):
        with pytest.raises((TypeError, ValueError), match="n_rows must be"):
            ActiveLearner(CountingAll(), epsilon=1).fit(X, y, n_labels=2, n_rows=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer", [[0, 777], [0.5, 1], [0, math.nan], ["no", "777"], [0], [0, 1, 1], [[0, 1], [1, 0]], None, 777, [-1, 1]]
)
def test_bad_answers_are_refused_and_not_repeated(answer: Any) -> None:
    learner = ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=1)
    with pytest.raises((TypeError, ValueError), match="oracle") as refusal:
        learner.fit([[1], [2], [3]], oracle=lambda rows: answer, n_labels=2)
    assert "777" not in str(refusal.value)


# ── the promise ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_rows_and_labels_required() -> None:
    def make(epsilon: float, **more: Any) -> ActiveLearner:
        return ActiveLearner(ThresholdLearner(bits=16, epsilon=1), epsilon=epsilon, **more)

    inside = ThresholdLearner(bits=16, epsilon=1)
    assert make(0.1).labels_required(0.1) == make(0.001).labels_required(0.1) == inside.n_required(0.1)
    exact = inside.n_required(0.1) * math.expm1(1) / math.expm1(0.1)
    assert 0.95 * exact <= make(0.1).n_required(0.1) <= exact + 2  # the last label may not need the last bit of ε*
    assert make(0.1).n_required(0.1, n_labels=300) > make(0.1).n_required(0.1)
    assert make(0.01).n_required(0.1) > 9 * make(0.1).n_required(0.1)
    assert make(0.1).n_required(0.05) > make(0.1).n_required(0.1)
    private = make(0.1, transcript="private")
    assert private.n_required(0.1) == private.labels_required(0.1) == ThresholdLearner(
        bits=16, epsilon=0.1
    ).n_required(0.1)
    with pytest.raises(ValueError, match="n_labels=2 labels are too few"):
        make(0.1).n_required(0.1, n_labels=2)


def test_rows_and_labels_required_where_not_all_rows_are_labelled() -> None:
    learner = ActiveLearner(CountingAll(), epsilon=0.1)
    assert learner.labels_required(0.1) == 25
    rows = learner.n_required(0.1)
    assert rows == pytest.approx(100 * math.expm1(1) / math.expm1(0.1), rel=0.02)
    assert learner._keeps(learner._draw(rows, 25, None), 0.1, 0.05)
    assert not learner._keeps(learner._draw(rows, 24, None), 0.1, 0.05)
    assert not learner._keeps(learner._draw(rows, 25, 50), 0.1, 0.05)
    with pytest.raises(ValueError, match="n_rows=50"):
        clone(learner).set_params(error=0.1).fit([[1]] * rows, [1] * rows, n_labels=25, n_rows=50)


def test_too_few_rows_are_refused() -> None:
    learner = ActiveLearner(ThresholdLearner(bits=8, epsilon=1), epsilon=0.5, error=0.2)
    required = learner.n_required(0.2, n_labels=150)
    X = np.arange(required)[:, None] % 256
    with pytest.raises(InsufficientData, match="error") as refusal:
        learner.fit(X[1:], X[1:, 0] < 9, n_labels=150)
    assert refusal.value.required == required
    learner.fit(X, X[:, 0] < 9, n_labels=150)


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["hidden", "private"])
@pytest.mark.parametrize("law", ["uniform", "atoms", "gap"])
def test_promise(law: str, transcript: Any) -> None:
    learner = ActiveLearner(
        ThresholdLearner(bits=16, epsilon=1), epsilon=0.5, error=0.1, failure=0.1, transcript=transcript
    )
    labels, rows = learner.labels_required(0.1), learner.n_required(0.1)
    generator = np.random.default_rng(0)
    values = {"uniform": np.arange(1 << 16), "atoms": np.array([999, 1000, 1001, 5000]), "gap": np.array([0, 65535])}
    errors = []
    for seed in range(40):
        x = generator.choice(values[law], rows)
        found = learner.set_params(unsafe_seed=seed).fit(x[:, None], x < 1001, n_labels=labels).hypothesis_
        errors.append(np.mean((values[law] < found.at) != (values[law] < 1001)) > 0.1)
    assert sum(errors) <= binom.ppf(1 - 1e-6, len(errors), 0.1)


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

OTHER_LABELS = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_classifiers_train": "no threshold on one column fits the data",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


class FirstColumn(ThresholdLearner):
    """The learner on the first of several columns, since most of the checks use several."""

    def as_points(self, rows: Array) -> Array:
        return rows[:, 0]


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    random = {} if seed is not None else RANDOM
    estimator = ActiveLearner(FirstColumn(domain=Floats(), epsilon=1), epsilon=100, unsafe_seed=seed)
    check_estimator(estimator, on_skip=None, expected_failed_checks=OTHER_LABELS | random)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_NUMBERS: list[Any] = [0, -1, math.nan, math.inf, None, "1", True, 1j]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in BAD_NUMBERS],
        *[("delta", bad) for bad in [-1, 1, 1.5, math.nan, None, "1"]],
        *[("transcript", bad) for bad in ["public", None, True, 1]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("learner", bad) for bad in [None, 5, ThresholdLearner]],
        ("bits", ThresholdLearner(bits=-1, epsilon=1)),  # of the learner inside
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    good = {"learner": ThresholdLearner(bits=8, epsilon=1), "epsilon": 1}
    with pytest.raises((TypeError, ValueError), match=name):
        ActiveLearner(**{**good, "learner" if name == "bits" else name: value}).fit("no data", None)


def test_an_inner_epsilon_or_seed_is_not_used() -> None:
    X, y = np.arange(100)[:, None], np.arange(100) < 30
    learner = ActiveLearner(ThresholdLearner(bits=7, epsilon=1, unsafe_seed=3, error=0.001), epsilon=5).fit(X, y)
    assert not learner.guarantee_.seeded
    assert learner.learner_.epsilon == 5


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[777], [1]], r"X must lie in \[0, 2\^8\)"),
        ([[0.777], [1]], "X must hold whole numbers"),
        ([[math.nan], [1]], "NaN"),
        ([[math.inf], [1]], "inf"),
        ([["777"], ["1"]], "X must hold"),
        ([[None], [1]], "X must hold"),
        ([[777, 1], [1, 2]], "single column|expecting 1 feature"),
        ([777, 1], "Reshape your data"),
        ([], "two dimensions"),
        (np.zeros((0, 1)), "0 sample"),
        (np.array([["2020-01-01"], ["2020-01-02"]], dtype="datetime64[D]"), "whole numbers"),
        (np.array([[777j], [1]]), "Complex"),
        (sparse.csr_array([[777], [1]]), "sparse"),
        ("777", "X must be"),
        (None, "X must be"),
    ],
)
def test_bad_rows_are_refused_and_not_repeated(X: Any, words: str) -> None:
    def new() -> ActiveLearner:
        return ActiveLearner(ThresholdLearner(bits=8, epsilon=1), epsilon=1)

    for run in (lambda: new().fit(X, [0, 1]), lambda: new().fit([[1], [2]], [1, 0]).predict(X)):
        with pytest.raises((TypeError, ValueError), match=words) as refusal:
            run()
        assert "777" not in str(refusal.value)


@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), delta=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, delta: Any) -> None:
    learner = ActiveLearner(ThresholdLearner(bits=4, epsilon=1), epsilon=epsilon, delta=delta)
    X, y = [[3], [9], [4]], [1, 0, 1]
    if epsilon is not None and 0 < epsilon < 1e4 and 0 <= delta < 1:
        assert learner.fit(X, y, n_labels=2).guarantee_ <= Guarantee(epsilon=max(epsilon, 1e-12))
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 <= delta < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            learner.fit(X, y, n_labels=2)


# ── what is refused does not depend on the draw ───────────────────────────────────────────────────────────────────


def test_a_bad_row_is_refused_whether_or_not_it_is_drawn() -> None:
    x = np.arange(40)[:, None]
    x[0] = 777
    for seed in range(10):
        learner = ActiveLearner(ThresholdLearner(bits=8, epsilon=1), epsilon=0.5, unsafe_seed=seed)
        with pytest.raises(ValueError, match="X must lie in") as refusal:
            learner.fit(x, x[:, 0] < 9, n_labels=1)
        assert "777" not in str(refusal.value)


def test_the_guarantee_is_what_was_asked_for_with_a_learner_that_composes() -> None:
    X = np.stack([np.arange(4000) % 100, np.arange(4000) % 99], axis=1)
    learner = ActiveLearner(RectangleLearner(bits=7, epsilon=1), epsilon=0.5, delta=1e-6)
    found = learner.fit(X, ((X >= 20) & (X < 80)).all(axis=1), n_labels=1000).guarantee_
    assert found <= Guarantee(epsilon=0.5, delta=1e-6)
    assert found.epsilon > 0.499


def test_the_learner_inside_runs_for_the_error_that_was_planned() -> None:
    errors = []

    class Watched(Counting):
        def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Release[Any]:
            errors.append((self.error, self.failure))
            return super()._learn(rows, labels, unsafe_noise)

    learner = ActiveLearner(Watched(error=0.5), epsilon=1, error=0.2, failure=0.01)
    X = np.zeros((learner.n_required(0.2), 1), dtype=int)
    learner.fit(X, X[:, 0])
    clone(learner).set_params(error=None).fit(X, X[:, 0])
    assert errors == [(0.2, 0.01), (None, 0.01)]


def test_a_learner_that_needs_public_points_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="SemiPrivateLearner takes public points"):
        ActiveLearner(SemiPrivateLearner(Thresholds(bits=8), epsilon=1), epsilon=1).fit("no data", None)


def test_the_learner_inside_is_checked_with_the_epsilon_that_it_gets() -> None:
    x = np.arange(4000)[:, None] % 128
    sanitizer = ThresholdSanitizer(bits=7, epsilon=2)
    inside = SemiSupervisedLearner(Thresholds(bits=7), epsilon=2, sanitizer=sanitizer)
    learner = ActiveLearner(inside, epsilon=0.5)
    assert learner.fit(x, x[:, 0] < 40, n_labels=100, n_rows=300).guarantee_.epsilon <= 0.5
    with pytest.raises(ValueError, match="epsilon must be at least that of the sanitizer"):
        learner.fit(x, x[:, 0] < 40, n_labels=100, n_rows=3000)


def test_too_few_rows_that_all_have_a_label() -> None:
    x = np.arange(30)[:, None]
    learner = ActiveLearner(ThresholdLearner(bits=8, epsilon=1), epsilon=1, error=0.1)
    with pytest.raises(InsufficientData) as refusal:
        learner.fit(x, x[:, 0] < 9)
    assert refusal.value.required == ThresholdLearner(bits=8, epsilon=1).n_required(0.1)
