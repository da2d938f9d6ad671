"""PATE: teachers learn from private rows, vote on public ones, and a student learns from the private labels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import labellers, noise
from reticent.concepts.class_order import warn_of_order
from reticent.concepts.interface import ConceptClass
from reticent.data.classes import declared_classes
from reticent.data.executor import Executor
from reticent.data.groups import as_groups, most_shards, numbered
from reticent.data.labels import Labels, read_labels
from reticent.data.tables import (
    Array,
    Integers,
    Table,
    as_numbers,
    as_private_table,
    as_table,
    check_missing,
    is_frame,
    take,
)
from reticent.errors import OneAnswerWarning
from reticent.exact import Number, as_count, integer
from reticent.labellers.answers import best
from reticent.labellers.registry import LabellerLike
from reticent.noise import Noise
from reticent.privacy import calibrate, events, guarantee
from reticent.privacy.events import Event, Repeated, Seeded
from reticent.privacy.ledger import Spent, describe
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.silence import silent
from reticent.teachers import queries, students
from reticent.teachers.missing import takes_nan
from reticent.teachers.queries import Chooser, Transcript
from reticent.teachers.space import PublicSpace
from reticent.teachers.teachers import Teachers
from reticent.teachers.thresholds import points as as_points

Floats = NDArray[np.float64]

ROWS_A_TEACHER = 20  # at least
SHARE = 0.3  # of the public rows that an active learner asks
QUERIES = ("passive", "active", "disagreement")


class Recipe(NamedTuple):
    """How many teachers answer how many questions through which labeller: all of it public."""

    n_teachers: int
    n_queries: int
    labeller: str


def _has_probabilities(model: PATEClassifier) -> bool:
    student = getattr(model, "student_", model.student)
    return student is None or hasattr(student, "predict_proba")


class PATEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from private rows through the labels that their teachers give to public rows.

    The private rows are dealt to many teachers. These vote on unlabelled public rows, a labeller makes private labels
    of the votes, and a student learns from public rows and private labels. The student may be published, and answers
    any number of questions.

    Guarantee. For a replaced private row, features and label, or with `groups` for all rows of a group: everything
    the fitted estimator holds is (ε, δ)-differentially private, but for `margins_`, which is there only on request. The
    claim is the budget, also when fewer labels were asked for than it would have paid for. The public rows are not
    protected at all. `fit` warns (`OneAnswerWarning`) if all released labels, or all answers of the student to public
    rows, are of one class, as they may be where a class is rare: a function of what is released.

    Why. A replaced row changes what one teacher votes, and no other (see `Teachers`): rows are dealt by place or by
    group, and the axes in which teachers learn are those of the public rows. So each count of votes is a legitimate
    question to the labeller, and its `event` covers all questions it will ever answer, adaptively chosen. Which
    rows are asked is decided by the public rows and the labels released before; the student is made of the same. The
    numbers of teachers and questions, and the labeller, follow from the numbers of rows and classes, the sizes of
    groups, ε and δ.
    The teachers, their votes and the labeller's state are dropped when `fit` ends.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*: Algorithm 3 (PATE-PSQ,
    `queries="passive"`), Algorithm 5 (PATE-ASQ, `queries="active"` and `"disagreement"`) with Algorithm 4, Theorem 20
    (`VotingStudents`). Their ex-post ε is not claimed: it would not be differential privacy. Teachers of some twenty
    rows in the space of the public rows, queries of smallest margin and the labellers are new.

    Parameters
    ----------
    teacher : what `Teachers` takes as estimator: a classifier, a concept class, or None for logistic regression.
    student : a classifier, among them `NoiseAware` and `VotingStudents`; a concept class, for the concept with the
        fewest errors; or None for logistic regression.
    epsilon, delta : the privacy of the private rows; δ should be well below one over their number.
    classes : the labels, in any order; or "public", if it is public which occur in `y`. There is no default, as labels
        are private.
    n_teachers : how many; "auto" takes as many as the noise calls for, but leaves each 20 rows, and takes no more than
        leave the largest of the `groups` a teacher that can hold it.
    labeller : a name of `labellers.NAMES`, a subclass of `Labeller`, or a `LabellerSpec`, such as
        `TwoCoin.spec(steepness=10)`. "auto" is "greedy" for two classes, "gumbel" or "gnmax" for more: what
        `plan.pate(…).best(stateless=True)` says. `labeller_options` are passed on to it.
    queries : "passive" asks the first public rows. "active" asks those that are hard for a model of the labels so far,
        in 15 batches; with a concept class as student, those on which plausible concepts disagree. "disagreement" asks
        a row only if some model that is nearly as good as the best labels it otherwise, and takes the label that these
        models agree on for the others: a linear one, if the student is linear; else the student is fitted again for
        every public row.
    n_queries : how many rows are asked at most, those that a labeller declines among them; None for all public rows if
        passive, else 30 % of them. With labeller "confident" and its option `questions` it is how many labels are
        given at most, and `questions` how many rows are asked.
    public_space : "pca" lets teachers learn in the space of the first 100 principal axes of the public rows; None in
        the columns as they are; "auto" is "pca" for the default teacher, None for others.
    semi_supervised : whether the student also learns from public rows without a label: by self-training, or as it does
        itself if it is one of `sklearn.semi_supervised`.
    keep_margins : keeps `margins_`, which are **not private**.
    random_state : a public number, for teachers and choices that are random but need not be secret.
    n_jobs : int, Executor or None, default=None
        How many tasks run at the same time, as for joblib; or an executor of your own, see `reticent.data.executor`.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    spent_ : how much of the budget was used, where that follows from the released labels; else None. A reading, not a
        smaller guarantee: what is left may be spent on more answers within `guarantee_`.
    asked_, labels_ : the places of the public rows that were asked, in order, and the labels released; −1 as a place
        in `classes_` marks one that the labeller declined, so `labels_` are such places.
    recipe_ : the numbers of teachers and questions, and the labeller, as public as the parameters.
    student_ : the fitted student; its classes are places in `classes_`.
    margins_ : **not private**, for the data holder's eyes, only with `keep_margins=True`: by which share of all votes
        the winner leads the runner-up, for each public row. Pickles, copies and what notebooks show leave it out.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn; `classes_` are ascending, and where concepts are
        learned, their label 1 is the second. What an earlier version saved keeps the order that it was saved in.

    >>> rows = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> private, public = rows[:-500], rows[-500:]
    >>> model = PATEClassifier(epsilon=1, delta=1e-6, classes=(False, True))
    >>> model = model.fit(private, private.sum(axis=1) > 0, public=public)
    >>> bool(model.score(public, public.sum(axis=1) > 0) > 0.9), model.guarantee_.epsilon <= 1
    (True, True)
    >>> model.recipe_
    Recipe(n_teachers=311, n_queries=150, labeller='greedy')
    """

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        epsilon: Number,
        delta: Number,
        classes: Any = None,
        n_teachers: int | str = "auto",
        labeller: LabellerLike = "auto",
        labeller_options: Mapping[str, Any] | None = None,
        queries: str = "active",
        n_queries: int | None = None,
        public_space: str | None = "auto",
        semi_supervised: bool = False,
        keep_margins: bool = False,
        random_state: int = 0,
        n_jobs: int | Executor | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.n_teachers = n_teachers
        self.labeller = labeller
        self.labeller_options = labeller_options
        self.queries = queries
        self.n_queries = n_queries
        self.public_space = public_space
        self.semi_supervised = semi_supervised
        self.keep_margins = keep_margins
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("margins_", None)  # not private: they stay with the data holder
        return state

    def __dir__(self) -> list[str]:
        """Without `margins_`: scikit-learn shows in notebooks, which are passed on, all attributes that are listed."""
        return [name for name in super().__dir__() if name != "margins_"]

    def fit(self, X: Any, y: Any, *, public: Any, groups: Any = None) -> Self:
        """Learn from private rows `X` with labels `y`, by labels for rows of `public`, which has the same columns.

        `groups` names for each private row the person, or whatever else is to be protected as a whole.

        Parameters and data are checked before anything is learned from private rows, and a student of one's own is
        tried: a copy is fitted to public rows with as many made-up labels as will be asked for, going round the
        classes, or a few hundred if these are enough. It may still fail on the released labels, if it needs more of a
        class than there are, say. These are spent, and left in `asked_` and `labels_`: teach another student with
        them; to call `fit` again is to spend anew.
        """
        seeded = None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed)
        return self._fit(X, y, public, groups, seeded)

    def predict(self, X: Any) -> Array:
        """The class that the student gives to each row of `X`."""
        check_is_fitted(self)
        labels: Array = self.classes_[np.asarray(self.student_.predict(self._student_rows(X)), dtype=np.int64)]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """How likely the student holds each class; 0 for a class that was never released."""
        check_is_fitted(self)
        return students.spread(self.student_, self._student_rows(X), len(self.classes_))

    # ── fitting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit(self, X: Any, y: Any, public: Any, groups: Any, unsafe_noise: Noise | None) -> Self:
        """`fit` with any noise, such as that which an audit walks through."""
        seed = self._check_parameters()
        table, shown = as_private_table(X), as_table(public, "public")
        rows = table.shape[0]
        if min(rows, shown.shape[0]) == 0:
            raise ValueError(
                f"X and public must have at least one row (0 samples are too few), got {rows} and {shown.shape[0]}"
            )
        check_delta(self.delta, positive=True, rows=rows)
        warn_of_order(self.teacher, self.classes, stacklevel=3)
        self._check_columns(X, table, public, shown)
        table, shown = self._read(table, "X"), self._read(shown, "public")
        labels = read_labels(y, rows, self.classes)
        classes = labels.classes
        sizes = None
        if groups is not None:
            groups = as_groups(groups, rows)
            sizes = np.bincount(numbered(groups))  # public
        student = students.check_student(self.student, len(classes), semi_supervised=self.semi_supervised)
        recipe = self._recipe(rows, sizes, shown.shape[0], len(classes))
        labeller = self._labeller(recipe, len(classes), unsafe_noise)
        teachers = Teachers(
            self.teacher, shards=recipe.n_teachers, classes=range(len(classes)), random_state=seed, n_jobs=self.n_jobs
        )
        student = students.informed(student, labeller)
        self._rehearse(student, shown, recipe.n_queries, len(classes))
        space = PublicSpace().fit(as_numbers(shown, "public")) if self._needs_space() else None
        transcript = Transcript(shown.shape[0], _questions(labeller, recipe.n_queries, shown.shape[0]))
        chooser = self._chooser(transcript, shown, space=space, classes=len(classes), seed=seed)

        taught, questions = table, shown
        with silent():
            if space is not None and self._space() == "pca":
                taught, questions = space.transform(as_numbers(table)), space.transform(as_numbers(shown))
            teachers.fit(taught, Labels(np.arange(len(classes)), labels.indices), groups=groups)
            queries.run(chooser, transcript, lambda asked: teachers.votes(take(questions, asked)), labeller)

        for name in ("margins_", "student_"):  # of an earlier fit, which another guarantee is for
            self.__dict__.pop(name, None)
        validate_data(self, X, reset=True, skip_check_array=True)
        self.classes_, self.recipe_ = classes, recipe
        self.event_: Event = labeller.event
        self.guarantee_ = guarantee(labeller.event, delta=self.delta, unit="row" if groups is None else "group")
        self.spent_ = spent(labeller)
        self.asked_, self.labels_ = transcript.asked, transcript.labels
        if self.keep_margins:
            self.margins_ = queries.lead(teachers.votes(questions).astype(np.float64)) / recipe.n_teachers
        self._space_ = space if self._student_in_space() else None
        try:
            self.student_ = students.fit_student(
                student, self._in_space(shown), transcript, semi_supervised=self.semi_supervised
            )
        except Exception as error:
            error.add_note("student: the labels that were released are spent; asked_ and labels_ hold them")
            raise
        self._warn_of_one_answer(shown)
        return self

    def _warn_of_one_answer(self, shown: Table) -> None:
        """Warn if the released labels, or the student's answers to all public rows, are of one class.

        Labels and student are released, and public rows are public. So the warning is a function of what is released,
        and costs nothing. It comes last: where warnings are errors, the model is fitted, and nothing that was paid for
        is lost.
        """
        released = np.unique(self.labels_[self.labels_ >= 0])
        rows = take(self._in_space(shown), np.arange(shown.shape[0]))  # a copy: a student may work in place
        answers = np.unique(np.asarray(self.student_.predict(rows), dtype=np.int64))
        if len(answers) > 1:
            return
        one = self.classes_.tolist()[answers[0]]
        if not len(released):
            why = f"no label was released, so the student gives the class {one!r} to every row"
        elif len(released) == 1:
            many = int((self.labels_ >= 0).sum())
            why = f"all {many:,} released labels are {one!r}, and so is every answer of the student"
        else:
            why = f"labels of {len(released)} classes were released, but the student answers {one!r} to all public rows"
        warnings.warn(
            f"{why}. What may help: more public rows, with more of the rarer classes among them; a larger n_queries; "
            "a larger epsilon; another labeller, or a student that weights classes. Fitting again spends again",
            OneAnswerWarning,
            stacklevel=4,
        )

    def _recipe(self, rows: int, sizes: Integers | None, public: int, classes: int) -> Recipe:
        """What follows from public numbers: `sizes` are how many rows each group has."""
        asked = public if self.queries == "passive" else max(1, math.ceil(SHARE * public))
        if self.n_queries is not None:
            asked = as_count(self.n_queries, "n_queries", least=1, most=public, otherwise="None")
        units = rows if sizes is None else len(sizes)
        known: dict[str, Any] = {
            "queries": asked,
            "classes": classes,
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta, positive=True),
        }
        if self.n_teachers == "auto":
            most = rows if sizes is None else most_shards(sizes)
            teachers = min(most, auto_teachers(rows, units, **known))
        else:
            teachers = as_count(self.n_teachers, "n_teachers", least=1, otherwise="'auto'")
        if teachers > units:
            what = "rows" if sizes is None else "groups, none of which is split"
            raise ValueError(f"n_teachers={teachers} is more than there are {what}: at most {units} can be had")
        return Recipe(teachers, asked, self._spec(lambda: best(teachers, stateless=True, **known).labeller).kind.name)

    def _spec(self, automatic: Callable[[], str]) -> labellers.LabellerSpec:
        """The labeller that was asked for, or the one that `automatic` names."""
        return labellers.find(automatic() if self.labeller == "auto" else self.labeller, self.labeller_options)

    def _labeller(self, recipe: Recipe, classes: int, unsafe_noise: Noise | None) -> labellers.Labeller:
        with _called("answers", "n_queries"):
            return self._spec(lambda: recipe.labeller).make(
                teachers=recipe.n_teachers,
                classes=classes,
                epsilon=self.epsilon,
                delta=self.delta,
                answers=recipe.n_queries,
                unsafe_noise=unsafe_noise,
            )

    def _rehearse(self, student: Any, shown: Table, labels: int, classes: int) -> None:
        """Refuse now, before private rows are used, what the student cannot learn from; the default one can."""
        if isinstance(self.student, ConceptClass):
            with _called("X", "public"):
                self.student.erm(as_points(shown, self.student), np.zeros(shown.shape[0], dtype=np.int64))
        elif self.student is not None:
            students.rehearse(student, shown, labels, classes, semi_supervised=self.semi_supervised)

    def _chooser(
        self, transcript: Transcript, shown: Table, *, space: PublicSpace | None, classes: int, seed: int
    ) -> Chooser:
        if self.queries == "passive":
            return queries.passive(transcript)
        if isinstance(self.student, ConceptClass):
            points = as_points(shown, self.student)
            return queries.by_version_space(transcript, points, self.student, random_state=seed)
        if self._chooses_in_space():
            assert space is not None
            choose = queries.by_margin if self.queries == "active" else queries.by_ridge_disagreement
            points = space.transform(as_numbers(shown, "public"))
            return choose(transcript, points, classes=classes, random_state=seed)
        oracle = students.check_student(self.student, classes, semi_supervised=False)  # it has labelled rows only
        return queries.by_oracle(transcript, shown, oracle, classes=classes, random_state=seed)

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _check_parameters(self) -> int:
        """Refuse bad parameters before the data are touched."""
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=True)
        declared_classes(self.classes)
        if self.queries not in QUERIES:
            raise ValueError(f"queries must be one of {', '.join(map(repr, QUERIES))}, got {self.queries!r}")
        if self.public_space not in ("auto", "pca", None):
            raise ValueError(f"public_space must be 'auto', 'pca' or None, got {self.public_space!r}")
        if self.labeller != "auto":
            labellers.find(self.labeller, self.labeller_options)
        for name in ("semi_supervised", "keep_margins"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {type(getattr(self, name)).__name__}")
        if self.public_space == "pca" and isinstance(self.teacher, ConceptClass):
            raise ValueError("public_space must be None or 'auto' where the teachers are concepts, got 'pca'")
        return integer(self.random_state, "random_state", least=0)

    def _space(self) -> str | None:
        if self.public_space == "auto":
            return "pca" if self.teacher is None else None
        return self.public_space

    def _student_in_space(self) -> bool:
        """The default student learns where the default teachers do."""
        return self.student is None and self._space() == "pca"

    def _needs_space(self) -> bool:
        """Whether rows are moved into the public space, or chosen in it."""
        return self._space() == "pca" or self._chooses_in_space()

    def _chooses_in_space(self) -> bool:
        """Whether a linear model of the public space chooses which rows are asked."""
        if self.queries == "passive" or isinstance(self.student, ConceptClass):
            return False
        return self.queries == "active" or students.is_linear(self.student)

    def _read(self, table: Table, name: str) -> Table:
        if self._needs_space() or self.teacher is None or self.student is None:
            numbers = as_numbers(table, name)
            check_missing(numbers, allow_nan=False, name=name)
            # A pipeline may name its columns: frames stay frames for teachers and students of one's own.
            return numbers if self.teacher is None and self.student is None else table
        concepts = isinstance(self.teacher, ConceptClass) or isinstance(self.student, ConceptClass)
        allowed = not concepts and all(takes_nan(one) for one in (self.teacher, self.student))
        check_missing(table, allow_nan=allowed, name=name)
        return table

    def _check_columns(self, X: Any, table: Table, public: Any, shown: Table) -> None:
        if table.shape[1] != shown.shape[1]:
            raise ValueError(f"public must have the {table.shape[1]} columns of X, got {shown.shape[1]}")
        if is_frame(X) and is_frame(public) and list(X.columns) != list(public.columns):
            raise ValueError("public must have the columns of X, by the same names and in the same order")
        if hasattr(X, "dtypes") and hasattr(public, "dtypes") and self.teacher is not None:
            for name, private, known in zip(X.columns, X.dtypes, public.dtypes, strict=True):
                if private != known:
                    how = f"is {private}, not {known}" if str(private) != str(known) else "has other categories"
                    raise TypeError(
                        "X must have the column types of public, as teachers may go by them, and those of private rows "
                        f"are not public: column {name!r} {how}; give both the types of a schema, as by astype"
                    )
        if is_frame(X) != is_frame(public) and not (self.teacher is None and self.student is None):
            frame, other = ("X", "public") if is_frame(X) else ("public", "X")
            raise TypeError(
                f"{other} must be a frame with the columns of {frame}, which is one: teachers and students of one's "
                f"own may go by names; got {type(X if frame == 'public' else public).__name__}"
            )

    def _in_space(self, rows: Table) -> Table:
        return rows if self._space_ is None else self._space_.transform(as_numbers(rows))

    def _student_rows(self, X: Any) -> Table:
        table = as_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self._in_space(self._read(table, "X"))


# ── what is chosen by public numbers ──────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def _noise_of_one(epsilon: Fraction, delta: Fraction) -> float:
    """1/μ: the noise at which one Gaussian count is (ε, δ)-DP."""
    return float(calibrate.noise(events.Gaussian, epsilon=epsilon, delta=delta))


def auto_teachers(
    rows: int, units: int, *, queries: int, classes: int, epsilon: Fraction, delta: Fraction
) -> int:
    """As many teachers as 6 times the noise of this many answers, but no fewer than 20 rows each, and a unit each.

    More would only make them worse; fewer would drown in the noise. Nothing but numbers that are public enters.

    >>> auto_teachers(40_000, 40_000, queries=290, classes=2, epsilon=Fraction(1), delta=Fraction(1, 10**6))
    432
    """
    wide = 1.0 if classes == 2 else math.sqrt(2)  # a changed vote moves two counts
    needed = 6 * wide * math.sqrt(queries) * _noise_of_one(epsilon, delta)
    return max(1, min(rows // ROWS_A_TEACHER, units, math.ceil(needed)))


def spent(labeller: labellers.Labeller) -> Spent | None:
    """What was used of the budget, where the transcript says so; None where a secret of the labeller's does.

    A labeller without a memory sells one event over and over: how often is seen from outside, and stopping early, for
    whatever reason, leaves the rest to be sold. That is a filter with one event (see `Ledger`); it bounds everything by
    the whole budget, and makes no smaller claim for what was used so far.
    """
    event = labeller.event.event if isinstance(labeller.event, Seeded) else labeller.event
    if not labeller.stateless or not isinstance(event, Repeated):
        return None
    return Spent(f"answers of {describe(event.event)}", labeller.asked, event.times, 0, 0)


def _questions(labeller: labellers.Labeller, labels: int, public: int) -> int:
    """How many rows may be asked: as many as are labelled, unless the labeller pays for more questions than answers."""
    asked = labels if labeller.answers is None else labeller.answers
    if asked > public:
        raise ValueError(
            f"questions in labeller_options must be at most {public}, the number of public rows, got {asked}: those "
            "that are never asked would be paid for"
        )
    return asked


@contextmanager
def _called(theirs: str, ours: str) -> Iterator[None]:
    """Errors of others speak of a parameter by their name: here it has one of ours."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not str(error).startswith(f"{theirs} "):
            raise
        raise type(error)(f"{ours}{str(error).removeprefix(theirs)}") from None
