"""PATE: teachers learn from private rows, vote on public ones, and a student learns from the private labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import labellers
from reticent.concepts.class_order import warn_of_order
from reticent.concepts.interface import ConceptClass
from reticent.data.classes import declared_classes
from reticent.data.executor import Executor
from reticent.data.groups import as_groups, numbered
from reticent.data.labels import ClassLabels, read_labels
from reticent.data.tables import (
    Array,
    Integers,
    Table,
    as_numeric_table,
    as_private_table,
    as_table,
    check_missing,
    is_frame,
    take,
)
from reticent.errors import OneAnswerWarning
from reticent.exact import Number, integer
from reticent.labellers.answers import best
from reticent.labellers.registry import LabellerLike
from reticent.mechanisms.release import noise_from_seed
from reticent.noise import Noise
from reticent.privacy import guarantee
from reticent.privacy.events import Event
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon, check_flag
from reticent.silence import silent
from reticent.teachers import queries, students
from reticent.teachers.missing import takes_nan
from reticent.teachers.pate_settings import PATESettings, count_queries, count_teachers, most_questions, spent
from reticent.teachers.queries import Chooser, Transcript
from reticent.teachers.space import PublicSpace
from reticent.teachers.teachers import Teachers
from reticent.teachers.thresholds import points as as_points

Floats = NDArray[np.float64]

QUERIES = ("passive", "active", "disagreement")

Recipe = PATESettings  # the name in models that version 0.1.0 pickled


def _has_probabilities(model: PATEClassifier) -> bool:
    student = getattr(model, "student_", model.student)
    return student is None or hasattr(student, "predict_proba")


class PATEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from private rows through the labels that their teachers give to public rows.

    The private rows are split among many teachers. The teachers vote on unlabelled public rows, a labeller turns votes
    into private labels, and a student learns from public rows and private labels. The student may be published, and
    answers any number of queries.

    Guarantee. For a replaced private row, features and label, or with `groups` for all rows of a group: everything
    that the fitted estimator holds is (ε, δ)-differentially private, except for `margins_`, which it keeps only on
    request. The claim is the whole budget, even if fewer labels were asked for. The public rows are not protected.
    `fit` warns (`OneAnswerWarning`) if all released labels, or all answers of the student to public rows, are of one
    class. The warning is a function of what is released.

    Why. A replaced row changes the votes of one teacher and of no other (see `Teachers`), and the axes in which
    teachers learn are those of the public rows. The labeller's `event` covers all questions that it answers, chosen
    adaptively. Everything else follows from public rows, released labels and public numbers. The teachers, their votes
    and the labeller's state are dropped when `fit` ends. The page "PATE" of the documentation has the proof.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*: Algorithm 3 (PATE-PSQ,
    `queries="passive"`), Algorithm 5 (PATE-ASQ, `queries="active"` and `"disagreement"`) with Algorithm 4, Theorem 20
    (`VotingStudents`). Their ex-post ε is not claimed: it would not be differential privacy. New are teachers of some
    twenty rows in the space of the public rows, queries of smallest margin, and the labellers.

    Parameters
    ----------
    teacher : classifier, ConceptClass or None, default None
        What `Teachers` takes as estimator; None for logistic regression.
    student : classifier, ConceptClass or None, default None
        A classifier, such as `NoiseAware` or `VotingStudents`; a concept class, for the concept with the fewest errors;
        or None for logistic regression.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the private rows. δ should be well below one over their number.
    classes : sequence or "public"
        The labels, in any order; or "public", if it is public which labels occur in `y`. They must be given, as labels
        are private.
    n_teachers : int or "auto", default "auto"
        Number of teachers. "auto" takes as many as the noise requires, but leaves each of them 20 rows, and no more
        than allow one teacher to hold the largest of the `groups`.
    labeller : str, type[Labeller] or LabellerSpec, default "auto"
        A name of `labellers.NAMES`, a subclass of `Labeller`, or a specification, such as `TwoCoin.spec(steepness=10)`.
        "auto" is "greedy" for two classes, "gumbel" or "gnmax" for more: what `plan.pate(…).best(stateless=True)`
        returns.
    labeller_options : Mapping[str, Any] or None, default None
        Options of the labeller, if it is given by its name or class.
    queries : {"passive", "active", "disagreement"}, default "active"
        Which public rows are asked. "passive": the first ones. "active": rows that are hard for a model of the labels
        so far, in 15 batches; with a concept class as student, rows on which plausible concepts disagree.
        "disagreement": a row is asked only if some model that is nearly as good as the best labels it otherwise; the
        other rows get the label that these models agree on. The model is linear if the student is; otherwise the
        student is fitted again for every public row.
    n_queries : int or None, default None
        Largest number of rows that are asked, including those that a labeller declines; None for all public rows if
        passive, else 30 % of them. With labeller "confident" and its option `questions`, it is the largest number of
        labels, and `questions` is the number of rows.
    public_space : {"auto", "pca"} or None, default "auto"
        "pca": teachers learn in the space of the first 100 principal axes of the public rows. None: in the columns as
        they are. "auto" is "pca" for the default teacher and None for others.
    semi_supervised : bool, default False
        Whether the student also learns from public rows without a label: by self-training, or by its own method if it
        is one of `sklearn.semi_supervised`.
    keep_margins : bool, default False
        Whether to keep `margins_`, which are **not private**.
    random_state : int, default 0
        Public seed of teachers and of choices that are random but need not be secret.
    n_jobs : int, Executor or None, default None
        How many tasks run at the same time, as for joblib; or an executor of your own, see `reticent.data.executor`.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised for the private rows.
    event_ : Event
        What happened to them.
    spent_ : Spent or None
        How much of the budget was used, where that follows from the released labels; else None. It is no smaller
        guarantee: what is left may be spent on more answers within `guarantee_`.
    asked_ : array of int
        Indices of the public rows that were asked, in order.
    labels_ : array of int
        The released labels of these rows, as indices in `classes_`; −1 for a row that the labeller declined.
    settings_ : PATESettings
        Numbers of teachers and queries, and the labeller, as public as the parameters.
    student_ : estimator
        The fitted student. Its classes are indices in `classes_`.
    margins_ : array of float
        **Not private**: for the data holder, and only with `keep_margins=True`. For each public row, the share of all
        votes by which the winner leads the runner-up. Pickles, copies and notebook displays leave it out.
    classes_ : array of shape (n_classes,)
        The classes, ascending. Where concepts are learned, their label 1 is the second. A model that an earlier version
        saved keeps its order.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    >>> rows = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> private, public = rows[:-500], rows[-500:]
    >>> model = PATEClassifier(epsilon=1, delta=1e-6, classes=(False, True))
    >>> model = model.fit(private, private.sum(axis=1) > 0, public=public)
    >>> bool(model.score(public, public.sum(axis=1) > 0) > 0.9), model.guarantee_.epsilon <= 1
    (True, True)
    >>> model.settings_
    PATESettings(n_teachers=311, n_queries=150, labeller='greedy')
    """

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        epsilon: Number,
        delta: Number,
        classes: Sequence[Any] | Array | str | None = None,
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "recipe_" in state:  # the name of version 0.1.0
            state = {**state, "settings_": state["recipe_"]}
            del state["recipe_"]
        super().__setstate__(state)

    def __dir__(self) -> list[str]:
        """All names but `margins_`: scikit-learn displays every listed attribute in notebooks, which are shared."""
        return [name for name in super().__dir__() if name != "margins_"]

    def fit(self, X: Any, y: ArrayLike, *, public: Any, groups: ArrayLike | None = None) -> Self:
        """Learn from private rows through labels of public rows.

        Parameters and data are checked before anything is learned from private rows. A student of your own is also
        tried first: a copy of it is fitted to public rows with made-up labels that go through the classes in turn, as
        many as will be asked for, or a few hundred if these are enough. The student may still fail on the released
        labels, for example if it needs more labels of a class than there are. The budget is spent by then; the labels
        are in `asked_` and `labels_`, to train another student with. Calling `fit` again spends the budget again.

        Parameters
        ----------
        X : array, sparse matrix or frame
            The private rows.
        y : array-like
            Their labels.
        public : array, sparse matrix or frame
            Public rows with the columns of `X`.
        groups : array-like or None, default None
            For each private row the person, or other unit, that is protected as a whole.
        """
        return self._fit(X, y, public, groups, noise_from_seed(self.unsafe_seed))

    def predict(self, X: Any) -> Array:
        """Return the class that the student gives to each row of `X`.

        Parameters
        ----------
        X : array-like
            The rows to label.
        """
        check_is_fitted(self)
        labels: Array = self.classes_[np.asarray(self.student_.predict(self._student_rows(X)), dtype=np.int64)]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the student's probabilities of all classes; 0 for a class that was never released."""
        check_is_fitted(self)
        return students.all_probabilities(self.student_, self._student_rows(X), len(self.classes_))

    # ── fitting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit(self, X: Any, y: Any, public: Any, groups: Any, unsafe_noise: Noise | None) -> Self:
        """`fit` with noise that an audit may enumerate."""
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
        group_sizes = None
        if groups is not None:
            groups = as_groups(groups, rows)
            group_sizes = np.bincount(numbered(groups))  # public
        student = students.check_student(self.student, len(classes), semi_supervised=self.semi_supervised)
        settings = self._settings(rows, group_sizes, shown.shape[0], len(classes))
        labeller = self._labeller(settings, len(classes), unsafe_noise)
        teachers = Teachers(
            self.teacher, shards=settings.n_teachers, classes=range(len(classes)), random_state=seed, n_jobs=self.n_jobs
        )
        student = students.informed(student, labeller)
        self._rehearse(student, shown, settings.n_queries, len(classes))
        space = PublicSpace().fit(as_numeric_table(shown, "public")) if self._needs_space() else None
        asked = most_questions(labeller, settings.n_queries, public_rows=shown.shape[0])
        transcript = Transcript(shown.shape[0], asked)
        chooser = self._chooser(transcript, shown, space=space, classes=len(classes), seed=seed)

        taught, questions = table, shown
        with silent():
            if space is not None and self._space() == "pca":
                taught, questions = space.transform(as_numeric_table(table)), space.transform(as_numeric_table(shown))
            teachers.fit(taught, ClassLabels(np.arange(len(classes)), labels.indices), groups=groups)
            queries.ask_all(chooser, transcript, lambda asked: teachers.votes(take(questions, asked)), labeller)

        for name in ("margins_", "student_"):  # of an earlier fit, which has its own guarantee
            self.__dict__.pop(name, None)
        validate_data(self, X, reset=True, skip_check_array=True)
        self.classes_, self.settings_ = classes, settings
        self.event_: Event = labeller.event
        self.guarantee_ = guarantee(labeller.event, delta=self.delta, unit="row" if groups is None else "group")
        self.spent_ = spent(labeller)
        self.asked_, self.labels_ = transcript.asked, transcript.labels
        if self.keep_margins:
            self.margins_ = queries.lead(teachers.votes(questions).astype(np.float64)) / settings.n_teachers
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

        Labels and student are released, and public rows are public, so the warning costs nothing. It comes last: where
        warnings are errors, the model is still fitted, and no released label is lost.
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

    def _settings(self, rows: int, group_sizes: Integers | None, public_rows: int, classes: int) -> PATESettings:
        """What follows from public numbers."""
        asked = count_queries(self.n_queries, passive=self.queries == "passive", public_rows=public_rows)
        known: dict[str, Any] = {
            "queries": asked,
            "classes": classes,
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta, positive=True),
        }
        teachers = count_teachers(self.n_teachers, rows=rows, group_sizes=group_sizes, **known)
        spec = self._spec(lambda: best(teachers, stateless=True, **known).labeller)
        return PATESettings(teachers, asked, spec.kind.name)

    def _spec(self, automatic: Callable[[], str]) -> labellers.LabellerSpec:
        """The labeller that was asked for, or the one that `automatic` names."""
        return labellers.find(automatic() if self.labeller == "auto" else self.labeller, self.labeller_options)

    def _labeller(self, settings: PATESettings, classes: int, unsafe_noise: Noise | None) -> labellers.Labeller:
        with _renamed("answers", "n_queries"):
            return self._spec(lambda: settings.labeller).make(
                teachers=settings.n_teachers,
                classes=classes,
                epsilon=self.epsilon,
                delta=self.delta,
                answers=settings.n_queries,
                unsafe_noise=unsafe_noise,
            )

    def _rehearse(self, student: Any, shown: Table, labels: int, classes: int) -> None:
        """Refuse what a student cannot learn from before private rows are used; the default one can learn from all."""
        if isinstance(self.student, ConceptClass):
            with _renamed("X", "public"):
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
            points = space.transform(as_numeric_table(shown, "public"))
            return choose(transcript, points, classes=classes, random_state=seed)
        oracle = students.check_student(self.student, classes, semi_supervised=False)  # it has labelled rows only
        return queries.by_oracle(transcript, shown, oracle, classes=classes, random_state=seed)

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _check_parameters(self) -> int:
        """Refuse bad parameters before the data are touched."""
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=True)
        declared_classes(self.classes)
        check_choice(self.queries, "queries", QUERIES)
        if self.public_space not in ("auto", "pca", None):
            raise ValueError(f"public_space must be 'auto', 'pca' or None, got {self.public_space!r}")
        if self.labeller != "auto":
            labellers.find(self.labeller, self.labeller_options)
        for name in ("semi_supervised", "keep_margins"):
            check_flag(getattr(self, name), name)
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
            numbers = as_numeric_table(table, name)
            check_missing(numbers, allow_nan=False, name=name)
            # The caller's pipelines may select columns by name: for them, frames stay frames.
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
        return rows if self._space_ is None else self._space_.transform(as_numeric_table(rows))

    def _student_rows(self, X: Any) -> Table:
        table = as_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self._in_space(self._read(table, "X"))


@contextmanager
def _renamed(theirs: str, ours: str) -> Iterator[None]:
    """Let errors of an inner call name a parameter as the caller knows it."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not str(error).startswith(f"{theirs} "):
            raise
        raise type(error)(f"{ours}{str(error).removeprefix(theirs)}") from None
