"""Private predictions, one question at a time: by votes, by a flipped stable draw, or by a private net."""

from __future__ import annotations

from collections.abc import Callable, Sized
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.class_order import warn_of_order
from reticent.concepts.input import check_concept_class, refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.data.classes import as_classes, declared_classes
from reticent.data.executor import Executor
from reticent.data.groups import as_groups, numbered
from reticent.data.labels import as_class_indices, as_labels
from reticent.data.points import Array, Labels, as_point_table, points_of
from reticent.data.tables import Integers, as_private_table, as_table, kind_of
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.exact import Number, integer
from reticent.mechanisms.release import noise_from_seed, noise_or_system
from reticent.noise import Noise
from reticent.predictors.private_setups import (
    Flip,
    Net,
    Setup,
    Votes,
    answer_epsilon,
    answer_pair,
    flip_setup,
    net_setup,
    vote,
    votes_setup,
)
from reticent.predictors.stable import check_net, draw_concept
from reticent.privacy import fits, guarantee
from reticent.privacy.events import BoundedRange, Event, PureDP, Repeated, SeededRelease
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon
from reticent.promises import check_memory, check_rows, check_share, fewest_rows, in_reach, rows_needed
from reticent.silence import silent
from reticent.teachers import Teachers

METHODS = ("votes", "flip", "net")


def _binary(classes: Any) -> bool:
    """Whether two classes are declared."""
    return not isinstance(classes, str) and isinstance(classes, Sized) and len(classes) == 2


# ── the predictor ─────────────────────────────────────────────────────────────────────────────────────────────────


class LabelledRows(NamedTuple):
    """The rows that a predictor answers from: as a table, as points of the domain, and the class of each."""

    table: Array
    points: Array
    class_indices: Labels


class PrivatePredictor(Guarded, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Answers a declared number of questions privately, without ever releasing a model; then it refuses.

    Every row given to `predict` is a question, and each is answered with noise of its own, by one of three methods.

    - "votes": the rows are dealt to K teachers, and class j is answered with probability ∝ e^(ε·votes_j/2): for two
      classes, 1 with probability 1/(1 + e^(−ε(v₁ − v₀)/2)). For any scikit-learn classifier, any classes, and concept
      classes. It needs few rows where teachers agree.
    - "flip": a concept is drawn as by `StablePredictor`, again for each question, and its answer is flipped with
      probability α. For a concept class and labels of any kind.
    - "net": a concept is drawn from a net of n' random rows at rate 1/k; *all* rows are labelled by it; K teachers
      learn from them, and vote as above with ε = 1/k. If δ = 0, the answer is flipped too. For a concept class and
      many rows.

    Guarantee. (ε, δ)-differential privacy for a replaced row (a replaced group, with `groups`), value and label, for
    the answers to all `queries` questions together, which may be chosen depending on earlier answers. What a single
    answer costs is in `setup_.event`: ε for "votes", with a loss of bounded range; for "flip"
    ε = ln(1 + γ(1 − 2α)/α); for "net" (ε₀, δ₀) as in `net_cost`. Questions are not protected. Every `fit` is a release
    of its own: two fits to the same rows cost twice.

    Why. Votes: a replaced row moves one vote, so the log-weights move by at most ε/2, and the loss has range ε. Flip:
    P(1) lies between α and 1 − α, and moves by at most (1 − 2α)γ. Net: concepts that agree on a random net rarely
    differ on k rows, each relabelled row costs 1/k, and drawing the net amplifies. The proofs are in
    docs/predictors/private.md.

    Promise. As in `StablePredictor`, with n ≥ `n_required(error)`, for a concept class. For "flip" add α. For "votes"
    some concept must label all rows correctly: if all K teachers err with probability at most e, more than a quarter of
    them are wrong on at most 4e of the questions, and elsewhere the answer is wrong with probability at most
    1/(1 + e^(εK/4)). For "net" add this, with ε = 1/k, to the error of the draw: teachers learn from what some concept
    labels correctly, whichever it is.

    Source. Dagan, Feldman, *PAC Learning with Stable and Private Predictions*: "flip" is the algorithm of Corollary 1;
    "net" that of Section 4.2 for Theorem 2, restated as Theorem 5, private by Lemma 8, Lemma 10 and Lemma 11 with the
    amplification of Lemma 5, accurate by Lemma 9 and Remark 2; "votes" is the realizable learner of Lemma 6, due to
    Dwork, Feldman, *Privacy-preserving Prediction*. Repaired: explicit ε₀ and δ₀ where Lemma 8 has O(ε) and O(εα);
    4e³ for the 4e⁶ of Lemma 10; a net by counting pairs of labellings; α(e^ε − 1)/(1 − 2α) for the stability αε/2 that
    Corollary 1 asks for; Z in Equation (8) sums over H_T; Lemma 9 states 4α and 1 − β but proves 6α and
    1 − 2β. New: several classes, several questions, groups.

    Parameters
    ----------
    learner : ConceptClass, estimator or None, default None
        A concept class; for "votes" also a scikit-learn classifier, or None for `LogisticTeacher()`.
    epsilon : float or Fraction
        Privacy-loss bound ε of all answers together.
    delta : float or Fraction, default 0
        Failure probability δ of the guarantee.
    method : {"votes", "flip", "net"}, default "votes"
        How a question is answered.
    queries : int, default 1
        How many rows `predict` answers in total.
    teachers : "auto" or int, default "auto"
        The number K of teachers, for "votes" and "net".
    flip : "auto", float or Fraction, default "auto"
        The probability α of a flip, for "flip", and for "net" if δ = 0.
    classes : sequence of labels, or "public", default (0, 1)
        The labels, as in `Teachers`; exactly two for "flip" and "net".
    error : float, Fraction or None, default None
        For a concept class, the error that `fit` must be able to promise; if it cannot, it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    random_state : int, default 0
        The seed of the teachers.
    n_jobs : int, Executor or None, default None
        How many processes train and ask teachers, or an `Executor` of your own.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : Guarantee, Event
        What is promised for all questions together, and what happens.
    setup_ : Votes, Flip or Net
        How a question is answered, in numbers as public as the parameters.
    queries_left_ : int
        How many more rows will be answered.
    classes_ : array
        The labels, ascending; the label 1 of a concept is the second.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(5_000, 3))
    >>> predictor = PrivatePredictor(epsilon=1, queries=2).fit(rows, rows.sum(axis=1) > 0)
    >>> predictor.predict([[1, 1, 1], [-1, -1, -1]]), predictor.queries_left_
    (array([1, 0]), 0)
    >>> predictor.predict([[1, 1, 1]])
    Traceback (most recent call last):
        ...
    reticent.errors.BudgetExhausted: 1 more answers would exceed queries=2, of which 0 are left: nothing was answered
    """

    _instead = "Fit it in the process that uses it"

    def __init__(
        self,
        learner: Any = None,
        *,
        epsilon: Number,
        delta: Number = 0,
        method: str = "votes",
        queries: int = 1,
        teachers: int | str = "auto",
        flip: Number | str = "auto",
        classes: Any = (0, 1),
        error: Number | None = None,
        failure: Number = 0.05,
        random_state: int = 0,
        n_jobs: int | Executor | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.queries = queries
        self.teachers = teachers
        self.flip = flip
        self.classes = classes
        self.error = error
        self.failure = failure
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.unsafe_seed is None
        tags.input_tags.sparse = self.method == "votes" and not isinstance(self.learner, ConceptClass)
        tags.classifier_tags.multi_class = tags.input_tags.sparse and not _binary(self.classes)
        return tags

    @property
    def queries_left_(self) -> int:
        """How many more rows will be answered."""
        check_is_fitted(self)
        return self._left

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Take the rows; with method "votes", teachers learn from them.

        Parameters
        ----------
        X : array-like
            The training rows.
        y : array-like
            Their labels.
        groups : array-like, default None
            The person that each row belongs to, or whatever else is protected as a whole; for "votes" only.
        """
        return self.fit_with_noise(X, y, groups, unsafe_noise=noise_from_seed(self.unsafe_seed))

    def predict(self, X: Any) -> Array:
        """Return a private answer to each query.

        Raises `BudgetExhausted`, and answers none, if fewer answers are left than queries.

        Parameters
        ----------
        X : array-like
            The queries.
        """
        check_is_fitted(self)
        with self._guard.claim():
            table = self._table(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            asked = int(table.shape[0])
            if asked > self._left:
                raise BudgetExhausted(
                    f"{asked} more answers would exceed queries={self.queries}, of which {self._left} are left: "
                    "nothing was answered"
                )
            with silent():
                answer = self._ready(table)
                self._left -= asked
                class_indices = np.array([answer(row) for row in range(asked)], dtype=np.int64)
        answers: Array = self.classes_[class_indices]
        return answers

    def setup(self, rows: int) -> Setup:
        """How questions will be answered from this many rows (or groups, if given).

        Parameters
        ----------
        rows : int
            The number of rows, or of groups.
        """
        epsilon, delta, queries = self._check_parameters()
        rows = integer(rows, "rows", least=1)
        teachers = None if self.teachers == "auto" else integer(self.teachers, "teachers", least=1)
        flip = None if self.flip == "auto" else check_share(self.flip, "flip")
        if self.method == "votes":
            return votes_setup(rows, answer_epsilon(BoundedRange, epsilon, delta, queries), teachers)
        if self.method == "flip":
            return flip_setup(self.learner, rows, answer_epsilon(PureDP, epsilon, delta, queries), flip)
        each, spared = answer_pair(epsilon, delta, queries)
        return net_setup(self.learner, rows, each, spared, flip=flip, teachers=teachers)

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The rows with which an error can be promised for a concept class; see Promise.

        Raises `OutOfReach` if `fit` cannot run on that many. Planning, in floating point.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the predictor's own.
        """
        self._check_parameters()
        check_concept_class(self.learner, "learner, for a promise,")
        alpha = float(check_share(error, "error"))
        beta = float(check_share(self.failure if failure is None else failure, "failure"))

        def kept(rows: int) -> bool:
            try:
                return self.setup(rows).keeps(self.learner, rows, error=alpha, failure=beta)
            except InsufficientData:
                return False

        return in_reach(fewest_rows(kept), self.check_size)

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows (or groups); by public numbers alone.

        Parameters
        ----------
        rows : int
            The number of rows, or of groups.
        """
        setup = self.setup(rows)
        if not isinstance(self.learner, ConceptClass):
            return
        check_memory(rows, self.learner.columns)
        if isinstance(setup, (Flip, Net)):
            check_net(self.learner, setup.draw.subset)
        if isinstance(setup, (Votes, Net)):
            self.learner.check_erm(
                -(-rows // setup.teachers), what="rows of a teacher", remedy="take more teachers, or another method"
            )

    # ── fitting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fit_with_noise(self, X: Any, y: Any, groups: Any = None, *, unsafe_noise: Noise | None) -> Self:
        """`fit` on a given noise, for audits; unless it is None, the guarantee is marked as seeded."""
        epsilon, delta, queries = self._check_parameters()
        warn_of_order(self.learner, self.classes, stacklevel=3)
        if groups is not None and self.method != "votes":
            raise ValueError(f"groups must be None for method={self.method!r}, which protects rows: take 'votes'")
        table = self._table(X, private=True)
        rows = int(table.shape[0])
        if rows == 0:
            raise ValueError(f"X has 0 sample(s) (shape={table.shape}) while a minimum of 1 is required.")
        check_delta(self.delta, rows=rows)
        units = rows if groups is None else len(np.bincount(numbered(as_groups(groups, rows))))
        self.check_size(units)
        if self.error is not None:
            required = rows_needed(self.n_required, self.error)
            check_rows(units, required=required, error=self.error, failure=self.failure)
        setup = self.setup(units)
        labels = as_labels(y, rows, self.classes)
        classes = as_classes(self.classes, labels)
        if self.method != "votes" and len(classes) != 2:
            raise ValueError(f"classes must be 2 for method={self.method!r}, got {len(classes)}")
        learned = self._learned(setup, table, self._class_indices(labels, classes), classes, groups)
        event: Event = Repeated(setup.event, queries)
        seeded = event if unsafe_noise is None else SeededRelease(event)
        pure = fits(event, epsilon=epsilon, delta=0)
        unit: Any = "row" if groups is None else "group"
        promised = guarantee(seeded, delta=0 if pure else delta, unit=unit)
        source = noise_or_system(unsafe_noise)
        validate_data(self, X, reset=True, skip_check_array=True)

        # All at once, now that nothing can fail: rows of a fit that failed must not be answered from.
        self.guarantee_, self.event_, self.classes_, self.setup_ = promised, seeded, classes, setup
        self._floats = kind_of(table) == "f"
        self._learned_, self._noise, self._guard, self._left = learned, source, Guard(type(self)), queries
        return self

    @silent()
    def _learned(
        self, setup: Setup, table: Any, class_indices: Labels, classes: Array, groups: Any
    ) -> Teachers | LabelledRows:
        """What answers will need: teachers, or the rows themselves."""
        if isinstance(setup, Votes):
            return self._new_teachers(setup.teachers, range(len(classes))).fit(table, class_indices, groups=groups)
        points = points_of(table, self.learner.columns)
        refuse_bad_points(self.learner, points)  # all of them: which are drawn must not show in an error
        # Copies: the caller may change X before asking.
        return LabelledRows(np.array(table), np.array(points), class_indices)

    def _new_teachers(self, count: int, classes: Any) -> Teachers:
        return Teachers(self.learner, shards=count, classes=classes, random_state=self.random_state, n_jobs=self.n_jobs)

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _ready(self, table: Any) -> Callable[[int], int]:
        """Read the questions, refusing bad ones, and say how the one in a row is answered; nothing is drawn yet."""
        setup, noise = self.setup_, self._noise
        if isinstance(setup, Votes):
            assert isinstance(self._learned_, Teachers)
            counts = self._learned_.votes(table)
            return lambda row: vote(counts[row], setup.epsilon / 2, noise)
        questions = points_of(table, self.learner.columns)
        if len(questions):
            refuse_bad_points(self.learner, questions)
        rows = self._learned_
        assert isinstance(rows, LabelledRows)
        if isinstance(setup, Flip):
            return lambda row: self._flip(setup, rows, questions[row : row + 1], noise)
        assert isinstance(setup, Net)
        return lambda row: self._net(setup, rows, table[row : row + 1], noise)

    def _flip(self, setup: Flip, rows: LabelledRows, question: Array, noise: Noise) -> int:
        concept = draw_concept(self.learner, rows.points, rows.class_indices, setup.draw, noise)
        return int(self.learner.predict(concept, question)[0]) ^ noise.bernoulli(setup.flip)

    def _net(self, setup: Net, rows: LabelledRows, question: Array, noise: Noise) -> int:
        concept = draw_concept(self.learner, rows.points, rows.class_indices, setup.draw, noise)
        relabelled: Integers = np.asarray(self.learner.predict(concept, rows.points), dtype=np.int64)
        teachers = self._new_teachers(setup.teachers, (0, 1)).fit(rows.table, relabelled)
        answer = vote(teachers.votes(question)[0], Fraction(1, 2 * setup.apart), noise)
        return answer ^ noise.bernoulli(setup.flip) if setup.flip else answer

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _table(self, X: Any, *, private: bool = False) -> Any:
        """Dense rows for a concept class; what `Teachers` take for others."""
        if not isinstance(self.learner, ConceptClass):
            return as_private_table(X) if private else as_table(X)
        if private or (isinstance(X, (list, tuple)) and self._floats):
            return as_point_table(X, domain_declared=self.learner.declares_domain)
        return as_point_table(X)

    @staticmethod
    def _class_indices(labels: Array, classes: Array) -> Labels:
        """One message for all labels that are not classes; its words are those that scikit-learn's checks look for."""
        try:
            return as_class_indices(labels, classes)
        except ValueError as error:
            two = ". Only binary classification is supported with two classes" if len(classes) == 2 else ""
            raise ValueError(f"Unknown label type: {error}{two}") from None

    def _check_parameters(self) -> tuple[Fraction, Fraction, int]:
        """Refuse bad parameters before the data are touched."""
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta)
        queries = integer(self.queries, "queries", least=1)
        declared_classes(self.classes)
        check_choice(self.method, "method", METHODS)
        if self.method != "votes":
            check_concept_class(self.learner, f"learner, for method={self.method!r},")
        if self.teachers != "auto":
            integer(self.teachers, "teachers", least=1)
        if self.flip != "auto" and check_share(self.flip, "flip") >= Fraction(1, 2):
            raise ValueError(f"flip must be below 1/2, got {self.flip}")
        check_share(self.failure, "failure")
        if self.error is not None:
            check_share(self.error, "error")
            check_concept_class(self.learner, "learner, for a promise of an error,")
        integer(self.random_state, "random_state", least=0)
        return epsilon, delta, queries
