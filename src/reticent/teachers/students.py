"""Students: classifiers that learn from released labels of public rows, which is post-processing."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from reticent.concepts.interface import ConceptClass
from reticent.data.tables import Array, Integers, Table, as_table, take
from reticent.exact import Number, integer, rational
from reticent.labellers import ABSTAINS, Labeller
from reticent.silence import silent
from reticent.teachers.linear import LINEAR
from reticent.teachers.queries import Transcript
from reticent.teachers.thresholds import ConceptTeacher

Floats = NDArray[np.float64]

SEMI_SUPERVISED = (LabelPropagation, LabelSpreading, SelfTrainingClassifier)
LINEAR_STEPS = (MaxAbsScaler, MinMaxScaler, PCA, RobustScaler, StandardScaler, TruncatedSVD)  # maps that are linear
ROUNDS = 30
PARTS = 5
REHEARSED = 500  # rows: a rehearsal on more takes longer and rarely finds more


def default_student() -> Any:
    """Return logistic regression with the usual ridge: a student is alone, and its labels are few and noisy."""
    return LogisticRegression(max_iter=1000)


class Constant(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gives one class to every row: the student of labels that are all of one class."""

    def __init__(self, label: int = 0) -> None:
        self.label = label

    def fit(self, X: Table, y: Any = None) -> Self:
        """Set `classes_`; there is nothing to learn."""
        self.classes_ = np.array([self.label])
        return self

    def predict(self, X: Table) -> Integers:
        """Return the one class."""
        return np.full(X.shape[0], self.label)

    def predict_proba(self, X: Table) -> Floats:
        """Return probability 1 for the one class."""
        return np.ones((X.shape[0], 1))


class NoiseAware(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A student for labels that were flipped at random, which estimates how often.

    It assumes that each label was replaced by another class with probability `flip`, independently of the row, and
    uses expectation maximisation: it computes the probabilities of the true labels given the model, fits the student
    to these, and repeats.

    The probability that a single label was flipped depends on the votes, which are private. But its value where all
    teachers agree is public, and it is nowhere smaller. This is `at_least`, a lower bound for the estimate, which would
    be too low for a student that memorises flipped labels. `PATEClassifier` sets it by its labeller.

    Parameters
    ----------
    student : classifier or None, default None
        A classifier with `predict_proba` that takes `sample_weight`; None for logistic regression.
    flip : float, Fraction or None, default None
        Probability of a flipped label; None to estimate it from the labels.
    at_least : float, Fraction or None, default None
        Lower bound for the estimate; None for 0.
    rounds : int, default 30
        Number of rounds of expectation maximisation.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, ascending.
    flip_ : float
        The probability of a flipped label, given or estimated.
    student_ : estimator
        The fitted student.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = np.linspace(-1, 1, 400)[:, None]
    >>> truth, flipped = rows[:, 0] > 0, np.arange(400) % 5 == 0
    >>> aware = NoiseAware(LogisticRegression(C=1000)).fit(rows, truth ^ flipped)
    >>> bool(abs(aware.flip_ - 0.2) < 0.05)
    True
    """

    def __init__(
        self, student: Any = None, *, flip: Number | None = None, at_least: Number | None = None, rounds: int = ROUNDS
    ) -> None:
        self.student = student
        self.flip = flip
        self.at_least = at_least
        self.rounds = rounds

    def fit(self, X: Table, y: Any) -> Self:
        """Fit to rows `X` and labels `y`, some of which are wrong."""
        X = as_table(X)
        student = _classifier(self.student)
        if not hasattr(student, "predict_proba") or not has_fit_parameter(student, "sample_weight"):
            raise TypeError(
                f"student must have predict_proba and take sample_weight to be noise-aware, {type(student).__name__} "
                "does not"
            )
        fixed = None if self.flip is None else float(rational(self.flip, "flip"))
        rounds = integer(self.rounds, "rounds", least=1)
        self.classes_, class_indices = np.unique(np.asarray(y), return_inverse=True)
        classes, rows = len(self.classes_), len(class_indices)
        if classes < 2:
            raise ValueError("y must hold at least 2 classes, got 1 class")
        least = 0.0 if self.at_least is None else float(rational(self.at_least, "at_least"))
        for name, value in (("flip", 0.0 if fixed is None else fixed), ("at_least", least)):
            if not 0 <= value < 1 - 1 / classes:
                raise ValueError(f"{name} must be in [0, {1 - 1 / classes:g}) with {classes} classes, got {value:g}")
        if fixed is not None and fixed < least:
            raise ValueError(f"flip must not be below at_least={least:g}, got {fixed:g}")
        released = np.eye(classes)[class_indices]
        # Every row occurs once with each class, weighted by the probability of that class.
        everything = take(X, np.tile(np.arange(rows), classes))
        targets = np.repeat(self.classes_, rows)
        self.flip_ = max(least, (1 - 1 / classes) / 2) if fixed is None else fixed
        weights = released
        for _ in range(rounds):
            # Weights above 0, so that no class is lost.
            flat = np.maximum(weights.T.ravel(), 1e-9)
            self.student_ = clone(student).fit(everything, targets, sample_weight=flat)
            chance = np.where(released == 1, 1 - self.flip_, self.flip_ / (classes - 1))
            joint = np.asarray(self.student_.predict_proba(X)) * chance + 1e-300
            weights = joint / joint.sum(axis=1, keepdims=True)
            if fixed is None:
                flips = min(float(1 - (weights * released).sum() / rows), 0.99 * (1 - 1 / classes))
                self.flip_ = max(least, flips)
        return self

    def predict(self, X: Table) -> Array:
        """Return the class of each row, corrected for noise."""
        check_is_fitted(self)
        labels: Array = self.student_.predict(X)
        return labels

    def predict_proba(self, X: Table) -> Floats:
        """Return the probabilities of the classes, corrected for noise."""
        check_is_fitted(self)
        return np.asarray(self.student_.predict_proba(X))


def _all_have_probabilities(voting: VotingStudents) -> bool:
    return hasattr(default_student() if voting.student is None else voting.student, "predict_proba")


class VotingStudents(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Several students that vote, each fitted to a part of the labelled rows.

    The majority of teachers may not be close to a single model of the student's kind, but it is a vote of such models.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Theorem 20: a student that is a
    vote of hypotheses, here with disjoint parts.

    Parameters
    ----------
    student : classifier or None, default None
        The classifier that is copied; None for logistic regression.
    parts : int, default 5
        Number of students.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, ascending.
    students_ : list
        The fitted students.

    >>> rows = np.arange(40.0)[:, None]
    >>> VotingStudents(parts=3).fit(rows, rows[:, 0] > 20).predict([[3.0], [33.0]]).tolist()
    [False, True]
    """

    def __init__(self, student: Any = None, *, parts: int = PARTS) -> None:
        self.student = student
        self.parts = parts

    def fit(self, X: Table, y: Any) -> Self:
        """Split the rows `X` and labels `y` among the students, and fit each."""
        X = as_table(X)
        student = _classifier(self.student)
        self.classes_, class_indices = np.unique(np.asarray(y), return_inverse=True)
        parts = min(integer(self.parts, "parts", least=1), len(class_indices))
        # Split class by class, so that all students see all classes if there are enough rows.
        order = np.argsort(class_indices, kind="stable")
        self.students_ = []
        for part in range(parts):
            rows = order[part::parts]
            found = np.unique(class_indices[rows])
            one = Constant(int(found[0])) if len(found) == 1 else clone(student)
            self.students_.append(one.fit(take(X, rows), class_indices[rows]))
        return self

    def predict(self, X: Table) -> Array:
        """Return the class that most students vote for."""
        check_is_fitted(self)
        X = as_table(X)
        votes = np.zeros((X.shape[0], len(self.classes_)), dtype=np.int64)
        rows = np.arange(len(votes))
        for student in self.students_:
            votes[rows, np.asarray(student.predict(X), dtype=np.int64)] += 1
        labels: Array = self.classes_[votes.argmax(axis=1)]
        return labels

    @available_if(_all_have_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Table) -> Floats:
        """Return the average of the students' probabilities."""
        check_is_fitted(self)
        X = as_table(X)
        shares: Floats = np.mean([all_probabilities(one, X, len(self.classes_)) for one in self.students_], axis=0)
        return shares


def all_probabilities(student: Any, X: Table, classes: int) -> Floats:
    """Return a student's probabilities of all classes; 0 for a class that it never saw."""
    shares = np.asarray(student.predict_proba(X))
    found = np.zeros((len(shares), classes))
    found[:, np.asarray(student.classes_, dtype=np.int64)] = shares
    return found


# ── checking students ─────────────────────────────────────────────────────────────────────────────────────────────


def _classifier(student: Any) -> Any:
    """A student that can be copied and fitted; the default one for None."""
    if student is None:
        return default_student()
    name = getattr(student, "__name__", type(student).__name__)
    if isinstance(student, type) or not all(hasattr(student, method) for method in ("fit", "predict", "get_params")):
        hint = f", the class: write {name}()" if isinstance(student, type) else ""
        raise TypeError(f"student must be None, a scikit-learn classifier or a concept class, got {name}{hint}")
    if hasattr(student, "__sklearn_tags__") and not is_classifier(student):
        raise TypeError(f"student must be a classifier, got {name}")
    return student


def check_student(student: Any, classes: int, *, semi_supervised: bool) -> Any:
    """Return a student that can be fitted, or raise an error."""
    if isinstance(student, ConceptClass):
        if classes > 2:
            raise ValueError(f"classes must be 2 for a student that is a concept class, got {classes}")
        student = ConceptTeacher(student, (0, 1))
    student = _classifier(student)
    if semi_supervised and not isinstance(student, SEMI_SUPERVISED):
        if not hasattr(student, "predict_proba"):
            raise TypeError(f"student must have predict_proba to train itself, {type(student).__name__} does not")
        student = SelfTrainingClassifier(student)
    return student


def is_linear(student: Any) -> bool:
    """Return whether a student is known to separate classes by hyperplanes in the columns."""
    if isinstance(student, NoiseAware):
        return is_linear(student.student)
    if isinstance(student, Pipeline):
        *first, (_, last) = student.steps
        kept = (None, "passthrough")
        return is_linear(last) and all(step in kept or isinstance(step, LINEAR_STEPS) for _, step in first)
    return student is None or isinstance(student, LINEAR)


def informed(student: Any, labeller: Labeller) -> Any:
    """Return the student; a `NoiseAware` one gets `at_least`, the chance of a wrong label where all teachers agree."""
    if not isinstance(student, NoiseAware) or student.flip is not None or student.at_least is not None:
        return student
    agreed = labeller.teachers * np.eye(labeller.classes, dtype=np.int64)
    try:
        wrong = min(1 - labeller.accuracy(agreed[[each]], np.array([each])) for each in range(labeller.classes))
    except NotImplementedError:  # it has no closed form
        return student
    return clone(student).set_params(at_least=min(max(wrong, 0.0), 0.99 * (1 - 1 / labeller.classes)))


def rehearse(student: Any, rows: Table, labels: int, classes: int, *, semi_supervised: bool) -> None:
    """Fit a copy of the student to public rows with made-up labels and let it predict, so that its errors come early.

    The labels go through the classes in turn. A few hundred are enough if the student learns from them. If it does not,
    it may need more rows, and is tried with as many as it will get before it is refused.

    Parameters
    ----------
    student : classifier
        The student.
    rows : array, sparse matrix or frame
        The public rows.
    labels : int
        Number of labels that it will get.
    classes : int
        Number of classes.
    semi_supervised : bool
        Whether it also learns from rows without a label.
    """
    for some in sorted({min(labels, REHEARSED), labels}):
        transcript = Transcript(rows.shape[0] if some == labels else some, some)
        made_up = np.arange(transcript.limit)
        transcript.add(made_up, made_up % classes)
        try:
            with silent():
                fitted = fit_student(student, rows, transcript, semi_supervised=semi_supervised)
                answer = np.asarray(fitted.predict(take(rows, made_up[:1])))
            if answer.shape != (1,) or answer[0] not in range(classes):
                name = type(student).__name__
                raise TypeError(f"student must predict one of its classes for each row, {name} does not")
            return
        except Exception as error:
            if some == labels:
                error.add_note("student: it was tried on public rows with made-up labels; no private row was used yet")
                raise


def fit_student(student: Any, rows: Table, transcript: Transcript, *, semi_supervised: bool) -> Any:
    """Fit the student to released and implied labels, and if `semi_supervised` to rows without a label."""
    targets = transcript.implied.copy()
    asked, labels = transcript.known
    targets[asked] = labels
    given = np.flatnonzero(targets != ABSTAINS)
    found = np.unique(targets[given])
    if len(found) < 2:
        return Constant(int(found[0]) if len(found) else 0).fit(rows)
    learned = np.arange(len(targets)) if semi_supervised else given
    return clone(student).fit(take(rows, learned), targets[learned])  # a copy of the rows: a step may work in place
