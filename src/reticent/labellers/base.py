"""The interface of labellers: votes of teachers in, private labels out, and one event for all answers."""

from __future__ import annotations

import inspect
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.exact import Number, integer
from reticent.labellers.ballots import Ballots, Bought, Floats, Labels, Votes
from reticent.labellers.chances import right_chances, two_class_chances
from reticent.labellers.search import most_answers
from reticent.labellers.table import VoteTable
from reticent.mechanisms.counts import Integers, integer_array
from reticent.mechanisms.release import noise_or_system
from reticent.mechanisms.votes import MOST_VOTERS
from reticent.noise import Noise
from reticent.privacy.events import Event, SeededRelease
from reticent.privacy.guard import Guard, Guarded

ABSTAINS = -1  # the label of a question that a labeller declines to answer
SHARED = ("teachers", "classes", "epsilon", "delta", "answers", "unsafe_noise")  # set by the code that makes a labeller
OF_QUERIES = ("query_epsilon", "query_delta")  # set by a predictor whose queries are protected


class Labeller(Guarded, ABC):
    """Private labels from the votes of teachers, each of which learned from its own rows.

    A subclass declares what it can do as class attributes, and draws labels in `_label`. Its constructor takes, by
    keyword, `teachers`, `epsilon`, `delta`, `unsafe_noise`, `classes` if it takes several, `answers` if it is counted,
    and its own options. See "How to add your own labeller" in the documentation, and `audit.check_labeller`, which
    tests one.

    Guarantee. For a replaced row, which changes the vote of one teacher to any class: `event`, over all answers. The
    event is known before the first question, and no question makes it larger.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int
        Number of classes they vote on.
    event : Event
        What all answers together cost a row.
    answers : int or None
        Number of questions that may be asked, which is public. None if the labeller closes by itself.
    unsafe_noise : Noise or None
        For tests only: replaces the noise of the operating system. The event is then marked as seeded.

    Attributes
    ----------
    name : str
        Class attribute. Its name, for `labeller=`.
    several_classes : bool, default True
        Class attribute. Whether it takes more than two classes, by a parameter `classes`.
    counted : bool, default True
        Class attribute. Whether it takes a number of `answers`. If not, it closes by itself.
    closes_early : bool, default False
        Class attribute. Whether votes decide when it closes. Such a labeller implements `expected_answers`.
    abstains : bool, default False
        Class attribute. Whether it may decline a question, with the label −1.
    stateless : bool, default True
        Class attribute. Whether every question is answered with fresh noise and a public count, so that no question
        affects the answers to others.
    resumable : bool, default True
        Class attribute. Whether an equal labeller can continue from its `state`.
    query_share : Fraction or None, default None
        Class attribute. For labellers with a memory that protect questions: the share of a query's (ε, δ) that pays
        for what the labeller remembers about it. It is passed as `query_epsilon` and `query_delta`.
    scales : bool, default False
        Class attribute. Whether R answers of K teachers are about as accurate as R/f² answers of K/f teachers. Plans
        then replace many teachers by fewer.
    asked : int
        Number of questions answered so far.
    """

    name: ClassVar[str]
    several_classes: ClassVar[bool] = True
    counted: ClassVar[bool] = True
    closes_early: ClassVar[bool] = False
    abstains: ClassVar[bool] = False
    stateless: ClassVar[bool] = True
    resumable: ClassVar[bool] = True
    query_share: ClassVar[Fraction | None] = None
    scales: ClassVar[bool] = False

    def __init__(
        self, *, teachers: int, classes: int, event: Event, answers: int | None, unsafe_noise: Noise | None
    ) -> None:
        self.teachers = integer(teachers, "teachers", least=1, most=MOST_VOTERS)
        self.classes = integer(classes, "classes", least=2)
        self.answers = None if answers is None else integer(answers, "answers", least=1)
        self.event = event if unsafe_noise is None else SeededRelease(event)
        self.asked = 0
        self._failed = False
        self._noise = noise_or_system(unsafe_noise)
        self._guard = Guard(type(self))

    # ── what a class can do ───────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def takes(cls, classes: int) -> bool:
        """Return whether it labels this number of classes."""
        return cls.several_classes or classes == 2

    @classmethod
    def protects_queries(cls) -> bool:
        """Return whether it can protect questions too: it is stateless, or queries pay for its memory."""
        return cls.stateless or cls.query_share is not None

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of its own options: keyword parameters of the constructor that not all labellers have."""
        found: list[str] = []
        for kind in cls.__mro__:
            own = vars(kind).get("__init__")
            parameters = () if own is None else inspect.signature(own).parameters.values()
            found += [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in SHARED]
            if parameters and not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
        return tuple(dict.fromkeys(found))

    @classmethod
    def spec(cls, **options: Any) -> LabellerSpec:
        """Return the specification of a labeller of this class with these options.

        >>> from reticent.labellers import TwoCoin
        >>> TwoCoin.spec(steepness=10)
        LabellerSpec(TwoCoin, steepness=10)
        """
        return LabellerSpec(cls, options)

    @classmethod
    def is_compared(cls, classes: int) -> bool:
        """Return whether `plan.pate` lists it by default for this number of classes."""
        return cls.takes(classes)

    @classmethod
    def is_automatic(cls, classes: int) -> bool:
        """Return whether `labeller="auto"` may choose it for this number of classes."""
        return False

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield what (ε, δ) buys on these ballots, for each setting that is tried; some may lose more than `loss`.

        For planning only. The default searches for the most answers at this loss by `accuracy`, which should fall as
        the number of answers grows. A labeller that closes early, or that has no `accuracy`, offers nothing unless it
        overrides this method. Without `exact` a class may replace many teachers by fewer.
        """
        if not cls.counted or cls.closes_early:
            return
        small, factor = (ballots, 1.0) if exact or not cls.scales else ballots.coarse()

        def lost(answers: int) -> float | None:
            try:
                made = cls.spec().make(
                    teachers=small.teachers, classes=small.classes, epsilon=epsilon, delta=delta, answers=answers
                )
                each = zip(small.counts, small.truth, strict=True)
                return small.loss([made.accuracy(row[None], truth[None]) for row, truth in each])
            except (NotImplementedError, ValueError):  # no closed form, or this many answers do not fit
                return None

        if (found := most_answers(lost, loss)) is not None:
            yield Bought(cls.name, int(found[0] * factor**2), found[1], stateless=cls.stateless)

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def answers_left(self) -> int | None:
        """The number of questions that may still be asked; None if it is not limited."""
        return None if self.answers is None else self.answers - self.asked

    @property
    def closed(self) -> bool:
        """Whether all questions are refused from now on."""
        return self.answers_left == 0

    def label(self, votes: Integers) -> Labels:
        """Return private labels of questions.

        Only the first questions are answered, as many as may still be asked, so there may be fewer labels than rows.
        A question that the labeller declines has the label −1. Raises `BudgetExhausted` once the labeller is closed.

        Parameters
        ----------
        votes : array of int, shape (questions, classes)
            Number of teachers that vote for each class.

        Returns
        -------
        array of int
            One label per answered question.
        """
        return self._answer(votes, self._read, self._label)

    def _answer(self, votes: Integers, read: Callable[[Integers], Votes], draw: Callable[[Votes], Labels]) -> Labels:
        """Read the votes, label the questions that may still be asked, and count them."""
        with self._guard.claim():
            if self.closed:
                raise BudgetExhausted("all answers have been given: plan for more with answers=")
            if self._failed:
                raise RuntimeError(f"{type(self).__name__} has failed before and gives no more answers")
            counts = read(votes)[: self.answers_left]
            labels = self._checked_labels(counts, draw) if len(counts) else np.empty(0, dtype=np.int64)
            self.asked += len(labels)
            return labels

    def _checked_labels(self, counts: Votes, draw: Callable[[Votes], Labels]) -> Labels:
        """Labels of the first questions. If they cannot be drawn, there are no more answers.

        Whether a labeller fails may depend on the votes, and its message may quote them: it fails once, and is named
        by its type.
        """
        try:
            labels = np.asarray(draw(counts))
            if labels.ndim != 1 or len(labels) > len(counts) or labels.dtype.kind not in "iu":
                raise TypeError("labels must be one whole number for each of the first questions")
            if len(labels) and not (labels.min() >= ABSTAINS and labels.max() < self.classes):
                raise ValueError("labels must be class indices")
        except Exception as error:
            self._failed, kind = True, type(error).__name__
        else:
            return labels
        raise RuntimeError(f"{type(self).__name__} failed with {kind} and gives no more answers")

    @abstractmethod
    def _label(self, counts: Votes) -> Labels:
        """Return labels of the first questions, as many as are answered. All noise comes from `self._noise`."""

    def _read(self, votes: Integers) -> Votes:
        counts = integer_array(votes, "votes", least=0, most=self.teachers)
        if counts.ndim != 2 or counts.shape[1] != self.classes:
            raise ValueError(f"votes must have one row per question and one column for each of {self.classes} classes")
        if bool(np.any(counts.sum(axis=1) != self.teachers)):
            raise ValueError(f"votes must add up to teachers={self.teachers} in every row")
        return counts

    # ── stopping and resuming ─────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, int | bool]:
        """Return what an equal labeller needs to continue from here. It may be as secret as the votes."""
        if not self.resumable:
            raise NotImplementedError(f"{type(self).__name__} cannot be stopped and resumed")
        with self._guard.claim():  # not while answers are drawn, which the state would not include
            return {"asked": self.asked, **self._memory()}

    def _memory(self) -> dict[str, int | bool]:
        """Return what else an equal labeller needs to continue, as plain numbers."""
        return {}

    def resume(self, state: Mapping[str, int | bool]) -> None:
        """Continue from the `state` of an equal labeller, which must give no further answers."""
        with self._guard.claim():
            asked = integer(state["asked"], "asked", least=0, most=self.answers)
            if self.asked:
                raise ValueError("resume must come before the first answer")
            self._remember(state)
            self.asked = asked

    def _remember(self, state: Mapping[str, int | bool]) -> None:
        """Take over what `_memory` of the other labeller returned."""

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def chances(self, votes: Integers) -> Floats:
        """Return the chance of every label at known votes, with one row per question and one column per class.

        **Not private**: for planning only. A labeller with a closed form implements `_chances`.
        """
        return self._chances(self._read(votes))

    def _chances(self, counts: Votes) -> Floats:
        raise NotImplementedError(f"{type(self).__name__} has no closed form for the chance of a right label")

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """Return the expected share of right labels at known votes. **Not private**: for planning only."""
        return float(right_chances(self.chances(votes), truth).mean())

    def expected_answers(self, most: int, *, split: bool) -> int:
        """Return about how many of `most` questions are answered in the worst or in the best case.

        Both follow from public numbers. A labeller that closes early must implement this method.

        Parameters
        ----------
        most : int
            Number of questions.
        split : bool
            Whether the teachers are evenly split on all questions; if not, they agree on all.
        """
        if self.closes_early:
            raise NotImplementedError(f"{type(self).__name__} closes early, so it must implement expected_answers")
        return most


class PollingLabeller(Labeller):
    """A labeller that needs the votes of a few teachers only, drawn in secret for every question.

    `label` takes the votes of all teachers. A predictor asks only those that were drawn, which is faster.
    """

    @abstractmethod
    def draw_polls(self, questions: int) -> NDArray[np.int64]:
        """Return which teachers to ask, with one row per question. Secret: with it, answers reveal single votes."""

    @abstractmethod
    def label_polls(self, votes: Integers) -> Labels:
        """Return labels from the votes of the teachers that `draw_polls` returned, with one row per question."""


class TableLabeller(Labeller):
    """A labeller of two classes that looks up the chance of the answer 1 in a table and tosses a fresh coin each time.

    Parameters
    ----------
    table : VoteTable
        The chance of the answer 1 for each number of votes.
    event : Event
        What all answers together cost a row.
    answers : int or None
        Number of questions that may be asked.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    several_classes = False

    def __init__(
        self, table: VoteTable, *, event: Event, answers: int | None, unsafe_noise: Noise | None = None
    ) -> None:
        super().__init__(teachers=table.teachers, classes=2, event=event, answers=answers, unsafe_noise=unsafe_noise)
        self.table = table

    def _label(self, counts: Votes) -> Labels:
        return self.table.draw(counts[:, 1], self._noise)

    def _chances(self, counts: Votes) -> Floats:
        return two_class_chances(self.table.probabilities[counts[:, 1]])


@dataclass(frozen=True, repr=False)
class LabellerSpec:
    """The class and the options of a labeller, before its budget and its teachers are known.

    A labeller holds a budget and cannot be copied, so estimators take a specification instead. A specification is a
    plain value: it can be copied, compared, pickled and cloned by scikit-learn.

    Parameters
    ----------
    kind : type[Labeller]
        The class.
    options : Mapping[str, Any], default {}
        Its options. `epsilon`, `delta`, `teachers`, `classes`, `answers` and `unsafe_noise` are not options: they are
        set when the labeller is made.
    """

    kind: type[Labeller]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.kind, type) and issubclass(self.kind, Labeller)):
            raise TypeError(f"kind must be a subclass of Labeller, got {reprlib.repr(self.kind)}")
        if not isinstance(self.options, Mapping):
            raise TypeError(f"labeller_options must be a dict or None, got {type(self.options).__name__}")
        known = self.kind.options()
        if odd := sorted(str(name) for name in self.options if name not in known):
            raise ValueError(
                f"labeller_options must be among {', '.join(known) or 'none'} for labeller {self.kind.name!r}, "
                f"got {', '.join(odd)}; whatever else it needs follows from the other parameters"
            )
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __repr__(self) -> str:
        return f"LabellerSpec({', '.join([self.kind.__name__, *(f'{k}={v!r}' for k, v in self.options.items())])})"

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted((name, repr(value)) for name, value in self.options.items()))))

    def __reduce__(self) -> tuple[type[LabellerSpec], tuple[type[Labeller], dict[str, Any]]]:
        return LabellerSpec, (self.kind, dict(self.options))  # a mapping proxy cannot be copied or pickled

    def make(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: Number,
        delta: Number,
        answers: int | None,
        unsafe_noise: Noise | None = None,
    ) -> Labeller:
        """Return a labeller with this budget. `answers` is ignored if the labeller closes by itself."""
        if not self.kind.takes(classes):
            raise ValueError(
                f"the labeller {self.kind.name!r} takes two classes, got {classes}: take one that "
                "takes several, such as 'gumbel'"
            )
        given: dict[str, Any] = {"classes": classes} if self.kind.several_classes else {}
        if self.kind.counted:
            given["answers"] = answers
        kind: Callable[..., Labeller] = self.kind  # subclasses take other parameters than the base
        return kind(teachers=teachers, epsilon=epsilon, delta=delta, unsafe_noise=unsafe_noise, **given, **self.options)
