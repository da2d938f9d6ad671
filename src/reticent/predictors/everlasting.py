"""Answers for ever on one guarantee: for the people in the training rows, and for those in the queries."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import noise
from reticent.concepts.interface import ConceptClass
from reticent.errors import BudgetExhausted, EndingWarning, InsufficientData, OneAnswerWarning
from reticent.exact import integer, rational
from reticent.learners.base import ConceptLearner
from reticent.noise import Noise
from reticent.predictors import state as plain
from reticent.predictors import state_file
from reticent.predictors.engines import chain, votes
from reticent.predictors.phases import MOST_NOISE, Phase, Schedule, check_schedule
from reticent.predictors.queries import Reader, as_queries
from reticent.predictors.rows import Rows, RowStore
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.silence import silent
from reticent.teachers.dealing import numbered
from reticent.teachers.reading import (
    as_classes,
    as_codes,
    as_column,
    as_groups,
    as_labels,
    as_numbers,
    as_table,
    check_missing,
    declared_classes,
    warn_of_order,
)

Array = NDArray[Any]
Integers = NDArray[np.int64]

KIND = "everlasting"


class Engine(Protocol):
    """What answers in a phase."""

    event: Event

    def label(self, X: Array) -> Integers:
        """Private labels for the first of the rows; fewer than rows only if the phase is over."""

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> Engine:
        """The engine of the next phase."""

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What is saved."""


class Answers(NamedTuple):
    """Answers to the first of some queries: to all of them, unless `refused` says why the others have none.

    `refused` is `BudgetExhausted`, or whatever else kept the next phase from being begun, such as a full disk.
    """

    codes: Integers  # places among the classes
    phases: Integers  # the phase that gave each
    refused: Exception | None


class EverlastingPredictor(Guarded, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts for ever, at one price for everybody: whose rows it learned from, and whose queries it answers.

    It works in phases. A phase learns from its rows and answers a public number of queries. These queries, with the
    labels that were released for them, are the rows of the next phase; the rows of this one are deleted. So each person
    is in one phase as a row, and pays for that phase only. What `learner` is decides how a phase answers:

    - **votes**, for any classifier of scikit-learn, a concept class or None (`LogisticTeacher`): teachers learn from
      disjoint shards of the rows, and a labeller answers by their noisy majority;
    - **chain**, for a private learner of this package: one private model a phase answers all its queries, and a private
      test of drift decides whether the next phase learns a new one.

    Guarantee. (ε, δ)-differential privacy, for all time and whoever asks adaptively, for a replaced row of the training
    set (with `groups`: all rows of a group) and for a replaced query (the answer to that query itself is not part of
    what others see; when, how often and by which client was asked is not protected). With `groups`, a query is replaced
    together with all others of its client, who enter at most `client_phases` phases; for more than one, the price is
    that many times (ε, δ). Public are the number of rows, the columns, the classes and every parameter.

    Why. Training rows: the answers of the first phase are (ε, δ)-DP in its rows; the second phase sees the queries and
    these answers only, and so on: all that follows is post-processing. A query of phase i: its label is drawn with
    fresh noise, the number of answers of the phase is public, and there is no state, so the others' answers of phase i
    have the same law whatever the query was. Given these, the rows of phase i + 1 differ in one row, and phase i + 1 is
    (ε, δ)-DP in its rows, whichever label that row got. From phase i + 2 on it is post-processing. So it is a maximum
    over phases, not a sum. It needs that rows are dealt by their place or client, that every query that reaches the
    clock counts, also a bad one (what is not finite or outside of the domain is taken for a fixed point), and that no
    teacher starts from one of an earlier phase. For "two-coin", whose phase closes when its hits are used up, a query
    pays a quarter of (ε, δ) for the blurred closing of its own phase, and three quarters as a row of the next.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*: Definition of private everlasting prediction
    (the game of Figure 1) and the shape of Algorithm GenericBBL, with labels without a state in place of
    BetweenThresholds, and released labels in place of relabelling (for which see `GenericBBL`).

    Parameters
    ----------
    learner : what a phase learns by; see above.
    epsilon, delta : the privacy.
    answers : "endless", or how many queries will be answered; then there is only as much noise as these need.
    classes : the labels, in any order; or "public", if it is public which occur in `y`. There is no default, as labels
        are private.
    growth : answers a phase, as a multiple of its rows. Below 1.5 the errors of a phase pile up in the next ones.
    held_back : the share of a phase's queries, its last ones, that are answered while the next phase learns, and that
        no phase learns from.
    rows_per_teacher : "auto" takes as many as there are columns, but 10 at least and 50 at most. (votes)
    labeller, labeller_options : "auto" is "greedy", or "poll" where teachers are many; "gumbel" for more classes; see
        `labellers`. "two-coin" answers far more where teachers agree, and closes early where they do not. (votes)
    most_noise : the noise, as a share of all votes, beyond which `fit` refuses. (votes)
    retrain : "drift", "always" or "never". (chain)
    training_stream : "queries", or "trusted": then the next phase learns from rows handed to `add_unlabelled`, whose
        labels count as answers, and queries are never learned from.
    client_share : the share of the rows of a phase that may come from one client; its first queries are taken.
    client_phases : into how many phases the queries of one client may enter, with `groups`.
    max_rows : the most rows of a phase. Phases that do not grow let the errors of teachers add up over phases.
    memory_limit : in bytes: rows that need more than this live in a file, which is mapped and deleted after use.
    folder : where such files are; None for the system's folder of temporary files.
    background : whether the next phase learns in a thread of its own, as soon as its rows are there.
    random_state, n_jobs : for the teachers.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_ : what is promised, for rows and queries.
    phase_ : the number of the phase, from 1 on.
    phase : the `Phase`, all its numbers.
    answers_left_in_phase_, answered_ : queries left in this phase at most, and answered in all.
    event_ : what the present phase costs a row.
    one_answer_ : the class that a chain's model gives to everybody, if there is one; `fit` warns of it.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn; `classes_` are ascending, and where concepts are
        learned, their label 1 is the second. What an earlier version saved keeps the order that it was saved in.

    >>> from reticent.concepts import Thresholds
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.random((100_000, 1))
    >>> model = EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-6, classes=(0, 1))
    >>> model = model.fit(rows, rows[:, 0] < 0.3)
    >>> model.guarantee_.protects, model.phase_, model.answers_left_in_phase_
    ('rows and queries', 1, 200000)
    >>> queries = rng.random((300_000, 1))
    >>> bool((model.predict(queries) == (queries[:, 0] < 0.3)).mean() > 0.98), model.phase_
    (True, 2)
    """

    _instead = "Save it, load it in the process that goes on, and use it there only; or fit one there"

    def __init__(
        self,
        learner: Any = None,
        *,
        epsilon: object,
        delta: object,
        answers: object = "endless",
        classes: Any = None,
        growth: object = 2,
        held_back: object = 0.1,
        rows_per_teacher: object = "auto",
        labeller: str = "auto",
        labeller_options: Mapping[str, Any] | None = None,
        most_noise: float = MOST_NOISE,
        retrain: str = "drift",
        training_stream: str = "queries",
        client_share: object = 0.01,
        client_phases: int = 1,
        max_rows: int | None = None,
        memory_limit: int = 1 << 30,
        folder: str | Path | None = None,
        background: bool = False,
        random_state: int = 0,
        n_jobs: int | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.answers = answers
        self.classes = classes
        self.growth = growth
        self.held_back = held_back
        self.rows_per_teacher = rows_per_teacher
        self.labeller = labeller
        self.labeller_options = labeller_options
        self.most_noise = most_noise
        self.retrain = retrain
        self.training_stream = training_stream
        self.client_share = client_share
        self.client_phases = client_phases
        self.max_rows = max_rows
        self.memory_limit = memory_limit
        self.folder = folder
        self.background = background
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Start the first phase from rows `X` with labels `y`; `groups` names whose row each is."""
        seeded = None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed)
        return self._fit(X, y, groups, seeded)

    def _fit(self, X: Any, y: Any, groups: Any, unsafe_noise: Noise | None) -> Self:
        """`fit` with any noise, such as that which an audit walks through."""
        self.__dict__.pop("guarantee_", None)  # not fitted any more, nor yet
        schedule = self._check_parameters()
        declared_classes(self.classes)
        warn_of_order(self._concepts(), self.classes, stacklevel=3)
        table = self._read(X, "X")
        count = len(table)
        labels = as_labels(y, count, self.classes)
        classes = as_classes(self.classes, labels)
        codes = as_codes(labels, classes)
        if groups is not None and self.training_stream == "trusted":
            raise ValueError("training_stream must be 'queries' with groups: rows of a stream name no group")
        if groups is not None and self.labeller == "two-coin":
            raise ValueError(
                "labeller must not be 'two-coin' with groups: the queries of one client would move its closing by more "
                "than one query does, for which it is blurred"
            )
        members = None if groups is None else numbered(as_groups(groups, count))
        units = count if members is None else int(members.max()) + 1
        check_delta(self.delta, rows=count)
        maker = self._maker(table, len(classes))
        self._check_endless(schedule, maker, count)
        phase = maker.fill_in(schedule.phase(1, count, 0), units, schedule)
        engine = maker.first(phase, Rows(table, codes, members), unsafe_noise)

        validate_data(self, X, reset=True, skip_check_array=True)
        self.classes_ = classes
        self.answered_ = 0
        self._grouped = groups is not None
        self._reader = Reader.of(table, self._concepts())
        self._schedule, self._maker_, self._noise = schedule, maker, unsafe_noise
        self._phases_of: dict[Any, int] = {}
        self._elsewhere: Callable[[Phase, Rows], tuple[dict[str, Any], dict[str, Array]]] | None = None
        self._start(phase, engine)
        self.guarantee_ = self._promise(seeded=unsafe_noise is not None)  # last: now it is fitted
        if (one := self.one_answer_) is not None:
            warnings.warn(
                f"the private model gives the class {one!r} to every row that there can be. What may help: more rows; "
                "a larger epsilon; a row_norm no larger than rows are; if a class is rare, fewer rows of the others",
                OneAnswerWarning,
                stacklevel=3,
            )
        return self

    def _start(self, phase: Phase, engine: Engine) -> None:
        """Begin the first phase, or the one that was saved, with the parameters as they are now."""
        self._given = {**self.get_params(deep=False), "labeller_options": dict(self.labeller_options or {}) or None}
        self._cap = rational(self.client_share, "client_share")
        self._identity: str | None = None  # by which a saved state is known, until it answers
        self._open(phase, engine)
        self._guard = Guard(type(self))

    def _promise(self, *, seeded: bool) -> Guarantee:
        times = self._given["client_phases"] if self._grouped else 1
        return Guarantee(
            epsilon=float_above(times * check_epsilon(self.epsilon)),
            delta=float_above(times * check_delta(self.delta)),
            unit="group" if self._grouped else "row",
            protects="rows and queries",
            seeded=seeded,
        )

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def predict(self, X: Any, clients: Any = None) -> Array:
        """An answer for every row of `X`; `clients` names who asks each, by a string or a whole number.

        A query that is not finite, or outside of the domain, is answered as a fixed point would be: it counts like any
        other. Raises `BudgetExhausted` before anything is answered if fewer of `answers` are left than rows; and, if
        there is no next phase, after the answers of this one, which count: `answer` returns those as well.
        """
        codes, _, refused = self.answer(X, clients)
        if refused is not None:
            raise refused
        answers: Array = self.classes_[codes]
        return answers

    def answer(self, X: Any, clients: Any = None, *, one_phase: bool = False) -> Answers:
        """As `predict`, but with the phase of each answer, and with the answers that were given before there were none.

        Raises `BudgetExhausted` only if nothing was answered for want of `answers`. With `one_phase` no other phase
        begins: it answers as many queries as the present one does, and then it is for `turn_over` to go on.

        Answers that count are returned, whatever happens after they were given: an error is raised only if there are
        none. If the next phase cannot be begun, the next call tries again.
        """
        check_is_fitted(self)
        refused: Exception | None = None
        with self._guard.claim():
            rows, who = self._queries(X, clients)
            self._check_left(len(rows))
            self._identity = None  # what was saved before is another state from here on
            codes, phases = np.empty((2, len(rows)), dtype=np.int64)
            done = 0
            while done < len(rows):
                if self.answers_left_in_phase_ == 0 and one_phase:
                    break
                try:
                    if self.answers_left_in_phase_ == 0:
                        self._turn_over(done)
                    some = rows[done : done + self.answers_left_in_phase_]
                    found = self._engine.label(some)
                    self._gather(some[: len(found)], found, None if who is None else who[done : done + len(found)])
                except BudgetExhausted as error:
                    refused = error
                    break
                except Exception as error:
                    if not done:
                        raise
                    refused = error
                    break
                self._asked += len(found)
                self.answered_ += len(found)
                codes[done : done + len(found)], phases[done : done + len(found)] = found, self.phase.number
                done += len(found)
                self._closed = len(found) < len(some)
                with suppress(Exception):  # what cannot be learned ahead is learned when it is needed
                    self._learn_ahead()
            if not one_phase and self.answers_left_in_phase_ == 0 and self._can_turn_over() is None:
                with suppress(Exception):  # these answers are given; the next call will say why there are no more
                    self._turn_over(0)
        return Answers(codes[:done], phases[:done], refused)

    def turn_over(self) -> None:
        """Begin the next phase, where `answer(…, one_phase=True)` has come to the end of this one.

        Raises `BudgetExhausted` if there is no next phase, or not yet.
        """
        check_is_fitted(self)
        with self._guard.claim():
            if self.answers_left_in_phase_:
                raise ValueError(f"this phase has {self.answers_left_in_phase_} answers left")
            self._identity = None
            self._turn_over(0)

    def add_unlabelled(self, X: Any) -> int:
        """Hand over rows of a trusted stream for the next phase; how many of them this phase still takes.

        They get labels at once, which count as answers. The rest must be handed over again in the next phase.
        """
        check_is_fitted(self)
        with self._guard.claim():
            if not self._schedule.trusted:
                raise ValueError("add_unlabelled needs training_stream='trusted': now the queries are learned from")
            rows, _ = self._queries(X, None)
            self._check_left(0)
            self._identity = None
            some = rows[: self.phase.stream - len(self._store)] if self._store is not None else rows[:0]
            if len(some) and not self._closed:
                found = self._engine.label(some)
                self._keep(some[: len(found)], found)
                self._closed = len(found) < len(some)
                some = some[: len(found)]
                self._learn_ahead()
        return len(some)

    def learn_elsewhere(self, learn: Callable[[Phase, Rows], tuple[dict[str, Any], dict[str, Array]]] | None) -> None:
        """Let next phases learn by a function of yours, say in another process by way of `learned`; None for here."""
        self._elsewhere = learn

    @classmethod
    def learned(
        cls, path: str | Path, phase: Phase, rows: Rows, *, learner: Any = None, trust_models: bool = False
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """What the phase after the one saved at `path` learns from these rows: for `learn_elsewhere`; no answers."""
        model, _ = cls._loaded(path, learner, trust_models=trust_models)
        return model._engine.next(phase, rows, None).state()

    @property
    def phase(self) -> Phase:
        """The numbers of the present phase."""
        return self._phase

    @property
    def phase_(self) -> int:
        """The number of the phase, from 1 on."""
        return self.phase.number

    @property
    def event_(self) -> Event:
        """What the present phase costs a row of it."""
        return self._engine.event

    @property
    def one_answer_(self) -> Any:
        """The class that the model of this phase gives to everybody, where that follows from the model; else None.

        A chain's model is released, and this is a function of it: it may be shown to everyone. Votes have no such
        model, and it is None for them. That all answers of a phase were the same is no substitute. Each answer is
        released to its asker only, and the guarantee for a query covers what the *others* see. If all but one of the
        queries are an adversary's, a word about all answers together would tell him the answer to the one that is not.
        To find out about votes, ask queries of your own, with labels that you know: those answers are yours.
        """
        code = self._engine.one_answer if isinstance(self._engine, chain.ChainEngine) else None
        return None if code is None else self.classes_.tolist()[code]

    @property
    def answers_left_in_phase_(self) -> int:
        """How many more queries this phase answers at most."""
        return 0 if self._closed else self.phase.queries - self._asked

    @property
    def rows_gathered_(self) -> int:
        """How many rows there are for the next phase."""
        return 0 if self._store is None else len(self._store)

    @property
    def client_cap_(self) -> int:
        """How many rows of the next phase one client may add: by parameters and the size of the phase."""
        cap = max(1, math.floor(self._cap * self.phase.window))
        if self._grouped:
            cap = min(cap, self._maker_.rows_of_a_group)
        return int(min(cap, self.phase.window))

    def rows_of_client(self, client: str) -> tuple[int, int]:
        """How many rows of the next phase are a client's, and how many may be: by who asked how often."""
        if (taken := self._taken.get(client)) is not None:
            return taken[1], self.client_cap_
        barred = self._grouped and self._phases_of.get(client, 0) >= self._given["client_phases"]
        return 0, 0 if barred else self.client_cap_

    # ── from phase to phase ───────────────────────────────────────────────────────────────────────────────────────

    def _open(self, phase: Phase, engine: Engine) -> None:
        """Begin a phase. What the last one learned from is gone: nothing refers to it any more."""
        store = None if not phase.handed_on else RowStore(
            phase.handed_on, self.n_features_in_, dtype=self._reader.dtype, classes=len(self.classes_),
            memory_limit=self._given["memory_limit"], folder=self._given["folder"],
        )  # fmt: skip
        # From here on nothing can fail: never is there a new phase beside rows of the old one.
        self._coming: Future[tuple[Phase, Engine]] | None = None
        self._taken: dict[Any, tuple[int, int]] = {}  # client: group, rows
        self._members: list[Integers] | None = [] if self._grouped else None
        self._groups = 0
        self._asked, self._closed = 0, False
        self._phase, self._store = phase, store
        self._engine: Engine = engine

    def _gather(self, rows: Array, codes: Integers, who: Array | None) -> None:
        """Keep the queries of the window as rows for the next phase, no more of a client than its share."""
        some = min(len(rows), max(0, self.phase.window - self._asked))
        if some == 0:
            return
        rows, codes = rows[:some], codes[:some]
        if who is None:
            self._keep(rows, codes, np.arange(self._groups, self._groups + some))
            self._groups += some
            return
        taken, members = self._admit(who[:some])
        if taken.any():
            self._keep(rows[taken], codes[taken], members[taken])

    def _admit(self, who: Array) -> tuple[NDArray[np.bool_], Integers]:
        """Which queries are taken, the first ones of each client, and the group of each: by names and places alone."""
        cap = self.client_cap_
        names, first, place, count = np.unique(who, return_index=True, return_inverse=True, return_counts=True)
        before, group = np.full(len(names), cap), np.zeros(len(names), dtype=np.int64)
        for one in np.argsort(first, kind="stable").tolist():
            client = str(names[one])
            if client not in self._taken:
                if self._grouped:
                    phases = self._phases_of.get(client, 0)
                    if phases >= self._given["client_phases"]:
                        continue
                    self._phases_of[client] = phases + 1
                self._taken[client] = self._groups, 0
                self._groups += 1
            group[one], before[one] = self._taken[client]
            self._taken[client] = int(group[one]), min(cap, int(before[one] + count[one]))
        order = np.argsort(place, kind="stable")
        earlier = np.empty(len(who), dtype=np.int64)  # of the same client in this call
        earlier[order] = np.arange(len(who)) - np.repeat(np.cumsum(count) - count, count)
        return before[place] + earlier < cap, group[place]

    def _keep(self, rows: Array, codes: Integers, members: Integers | None = None) -> None:
        if self._store is None:
            return
        self._store.append(rows, codes)
        if self._members is not None and members is not None:
            self._members.append(members)

    @property
    def _free(self) -> bool:
        """Whether an answer costs nothing: a chain goes on with the model it has if too few rows came for another."""
        return isinstance(self._maker_, chain.Recipe)

    def _gathered(self) -> Rows:
        assert self._store is not None
        rows = self._store.rows()
        if self._members is None:
            return rows
        return rows._replace(groups=np.concatenate([np.empty(0, dtype=np.int64), *self._members]))

    def _ready(self) -> bool:
        """Whether no more rows will come for the next phase: by the clock."""
        if self._store is None:
            return False
        full = len(self._store) >= self.phase.stream if self._schedule.trusted else self._asked >= self.phase.window
        return full or self._closed

    def _learn_ahead(self) -> None:
        """Let the next phase learn in the background, while the queries held back are answered."""
        if self.background and self._coming is None and self._ready():
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-phase")
            self._coming = pool.submit(self._next, self._answered_by_then())
            pool.shutdown(wait=False)

    def _answered_by_then(self) -> int:
        """How many queries will have been answered when the next phase begins."""
        return self.answered_ + self.answers_left_in_phase_

    def _next(self, answered: int) -> tuple[Phase, Engine]:
        """The next phase. While it learns, nothing that it reads is changed: the rows are complete."""
        rows = self._gathered()
        units = len(rows.X) if rows.groups is None else self._groups
        size = len(rows.X)
        if self._free:  # then a phase need not be shorter because fewer rows came
            size = max(size, math.ceil(self.phase.answers / self._schedule.growth))
        phase = replace(self._schedule.phase(self.phase.number + 1, size, answered), rows=len(rows.X))
        try:
            phase = self._maker_.fill_in(phase, units, self._schedule)
        except ValueError as error:
            raise _TooFew(str(error)) from None
        try:
            if self._elsewhere is None:
                return phase, self._engine.next(phase, rows, self._noise)
            header, arrays = self._elsewhere(phase, rows)
        except (InsufficientData, votes.NoLabeller) as error:
            raise _TooFew(str(error)) from None
        return phase, self._maker_.restore(header, arrays, phase, trust_models=True)  # our own, not someone's file

    def _can_turn_over(self) -> str | None:
        """Why there is no next phase yet, by public numbers; None if there is."""
        if self._store is None:
            left = self.phase.queries - self._asked
            return f"the last phase closed with {left} answers left" if left else "all answers have been given"
        if self._schedule.trusted and len(self._store) < self.phase.stream and not self._closed:
            return f"the next phase needs {self.phase.stream - len(self._store)} more rows by add_unlabelled"
        return None if len(self._store) or self._free else "this phase closed before it gathered a row"

    def _turn_over(self, done: int) -> None:
        """Swap to the next phase, all at once, and delete the rows that it learned from."""
        if (why := self._can_turn_over()) is not None or self._store is None:
            raise self._spent(done, str(why))
        store = self._store
        try:
            phase, engine = self._come()
        except _TooFew as error:
            raise self._spent(done, f"the rows gathered are too few for another phase: {error}") from None
        self._open(phase, engine)
        store.delete()

    def _come(self) -> tuple[Phase, Engine]:
        """The next phase, as it was learned ahead, or learned now."""
        if self._coming is not None:
            try:
                return self._coming.result()
            except OSError:  # of a disk or another process, which may have passed; what was drawn then nobody saw
                self._coming = None
        return self._next(self._answered_by_then())

    def _spent(self, done: int, why: str) -> BudgetExhausted:
        also = f"; {done} queries of this call were answered and count" if done else ""
        return BudgetExhausted(f"{why} (phase {self.phase.number}, {self.answered_} queries answered in all){also}")

    def _check_left(self, asked: int) -> None:
        horizon = self._schedule.horizon
        if horizon is not None and self.answered_ + asked > horizon:
            raise BudgetExhausted(
                f"{asked} queries were asked and {horizon - self.answered_} of answers={horizon} are left: none was "
                "answered; ask fewer, or fit anew with more answers"
            )

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, path: str | Path) -> None:
        """Write down everything that is needed to go on elsewhere. The file holds private rows: it is as secret.

        The format is described in the documentation: JSON and plain arrays, and for teachers that are neither linear,
        thresholds nor trees a file that only `load(path, trust_models=True)` opens. Nothing may be answered by this
        predictor after the last `save` that is loaded: a restored one would not count it.
        """
        check_is_fitted(self)
        with self._guard.claim():
            if self._coming is not None:
                self._coming.exception()  # wait
            header, arrays = self._engine.state()
            arrays = {f"engine/{name}": array for name, array in arrays.items()}
            if self._store is not None and len(self._store):
                rows = self._store.rows()
                arrays |= {"rows/X": rows.X, "rows/codes": rows.codes}
            if self._members:
                arrays["rows/groups"] = np.concatenate(self._members)
            arrays["point"] = self._reader.point
            state = {
                "kind": KIND,
                "parameters": plain.parameters(self._given),
                "classes": plain.described(self.classes_),
                "columns": self.n_features_in_,
                "names": [str(one) for one in getattr(self, "feature_names_in_", ())] or None,
                "dtype": self._reader.dtype.str,
                "grouped": self._grouped,
                "phase": self.phase.__dict__,
                "asked": self._asked,
                "answered": self.answered_,
                "closed": self._closed,
                "groups": self._groups,
                "taken": [[client, *counts] for client, counts in self._taken.items()],
                "phases_of": [[client, count] for client, count in self._phases_of.items()],
                "engine": header,
            }
            release = None if self._store is None else self._store.release
            self._identity = self._identity or state_file.new_identity()
            state_file.write(path, state, arrays, identity=self._identity, release=release)

    @classmethod
    def load(cls, path: str | Path, *, learner: Any = None, again: bool = False, trust_models: bool = False) -> Self:
        """The predictor that `save` wrote down; it goes on in the same phase, at the same count, with fresh noise.

        A state can be loaded once: loaded twice, two copies would spend the same answers. `again` loads it all the
        same. `learner` is needed where it is no estimator of this package or of scikit-learn with plain parameters.
        """
        model, identity = cls._loaded(path, learner, trust_models=trust_models)
        state_file.claim(path, identity, again=again)  # last, so that a load that fails can be tried again
        return model

    @classmethod
    def _loaded(cls, path: str | Path, learner: Any, *, trust_models: bool) -> tuple[Self, str]:
        state, arrays, release, identity = state_file.read(path)
        if state.get("kind") != KIND:
            raise ValueError(f"path must be a state of an EverlastingPredictor, got one of {state.get('kind')!r}")
        model = cls(**plain.arguments(state["parameters"], learner))
        model._resume(state, arrays, release, trust_models=trust_models)
        return model, identity

    def _resume(
        self, state: Mapping[str, Any], arrays: Mapping[str, Array], release: Callable[[], None], *, trust_models: bool
    ) -> None:
        schedule = self._check_parameters()
        self.classes_ = plain.built(state["classes"])
        self.n_features_in_ = state["columns"]
        if state["names"] is not None:
            self.feature_names_in_ = np.asarray(state["names"], dtype=object)
        self._grouped = state["grouped"]
        self._reader = Reader(np.dtype(state["dtype"]), arrays["point"], self._concepts())
        self._schedule, self._noise = schedule, None
        self._elsewhere = None
        self._phases_of = dict(state["phases_of"])
        self._maker_ = self._maker(np.empty((0, self.n_features_in_), self._reader.dtype), len(self.classes_))
        phase = Phase(**state["phase"])
        parts = {name.removeprefix("engine/"): one for name, one in arrays.items() if name.startswith("engine/")}
        self._start(phase, self._maker_.restore(state["engine"], parts, phase, trust_models=trust_models))
        self.answered_, self._asked, self._closed = state["answered"], state["asked"], state["closed"]
        self._groups = state["groups"]
        self._taken = {client: (group, count) for client, group, count in state["taken"]}
        if "rows/X" in arrays and self._store is not None:
            self._store.append(arrays["rows/X"], arrays["rows/codes"], release=release)
        if "rows/groups" in arrays:
            self._members = [arrays["rows/groups"]]
        self.guarantee_ = self._promise(seeded=False)

    def clock(self) -> dict[str, Any]:
        """How far this phase has come: what `replay` needs besides the rows. The labeller's part is secret."""
        self._guard.check()
        labeller = self._engine.labeller.state() if isinstance(self._engine, votes.VotesEngine) else None
        return {"asked": self._asked, "answered": self.answered_, "closed": self._closed, "labeller": labeller}

    def replay(self, parts: Iterable[tuple[Any, Any, Any]], clock: Mapping[str, Any]) -> None:
        """Go on from where this phase was when it told its `clock`, after `load` of a state saved earlier in the phase.

        `parts` are the queries since then that were in the window, in order, each with the codes of its answers and
        its clients. They are counted and kept as they were; nothing is drawn, and no noise is used again: what comes
        next is drawn anew.
        """
        check_is_fitted(self)
        with self._guard.claim():
            for X, codes, clients in parts:
                rows, who = self._queries(X, clients)
                if self._asked + len(rows) > min(self.phase.window, clock["asked"]):
                    raise ValueError("parts must be of the window of this phase, and no more than the clock counts")
                self._gather(rows, np.asarray(codes, dtype=np.int64), who)
                self._asked += len(rows)
            if clock["asked"] > self.phase.queries or min(self.phase.window, clock["asked"]) > self._asked:
                raise ValueError("parts must be all queries of the window that the clock counts")
            self._asked, self.answered_, self._closed = clock["asked"], clock["answered"], clock["closed"]
            if isinstance(self._engine, votes.VotesEngine):
                self._engine.resume(clock["labeller"])
            self._learn_ahead()

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _check_parameters(self) -> Schedule:
        """Refuse bad parameters before the data are touched."""
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=not chain.is_private_learner(self.learner))
        integer(self.random_state, "random_state", least=0)
        integer(self.client_phases, "client_phases", least=1)
        integer(self.memory_limit, "memory_limit", least=0)
        if not 0 < rational(self.client_share, "client_share") <= 1:
            raise ValueError(f"client_share must be in (0, 1], got {self.client_share}")
        if not float(rational(self.most_noise, "most_noise")) > 0:
            raise ValueError(f"most_noise must be positive, got {self.most_noise}")
        if not isinstance(self.background, bool):
            raise TypeError(f"background must be True or False, got {type(self.background).__name__}")
        if self.retrain not in get_args(chain.Retrain):
            raise ValueError(f"retrain must be 'drift', 'always' or 'never', got {self.retrain!r}")
        if self.labeller not in ("auto", *votes.NAMES):
            raise ValueError(f"labeller must be 'auto' or one of {', '.join(votes.NAMES)}, got {self.labeller!r}")
        return check_schedule(
            growth=self.growth,
            held_back=self.held_back,
            answers=self.answers,
            max_rows=self.max_rows,
            training_stream=self.training_stream,
        )

    def _check_endless(self, schedule: Schedule, maker: Any, rows: int) -> None:
        """Endless answers need phases that do not shrink, and that are large enough where they are held to a size."""
        if schedule.horizon is not None:
            return
        if schedule.handed_on < 1 and not isinstance(maker, chain.Recipe):
            warnings.warn(
                f"answers will not be endless: growth={self.growth} with held_back={self.held_back} hands on "
                f"{float(schedule.handed_on):.2g} rows for each row of a phase, so phases shrink and end; "
                "plan.everlasting says when",
                EndingWarning,
                stacklevel=4,
            )
        elif self.labeller == "two-coin" and isinstance(maker, votes.Recipe):
            worst = maker.closings(schedule, rows, split=True)
            if worst.phases and worst.ends:  # without a phase it is refused anyhow
                shown = ", then ".join(f"{answers:,}" for _, answers in worst.phases)
                warnings.warn(
                    "answers may not be endless: a two-coin labeller closes a phase early where teachers disagree. If "
                    f"they were evenly split on every query, phases would give about {shown} answers, and then none. "
                    "Take more rows, a larger epsilon or another labeller; plan.everlasting says more",
                    EndingWarning,
                    stacklevel=4,
                )
        if schedule.max_rows is not None:
            maker.fill_in(schedule.phase(2, schedule.max_rows, 0), schedule.max_rows, schedule)

    def _maker(self, table: Array, classes: int) -> Any:
        """How phases are made: by votes, or as a chain of private models."""
        common: dict[str, Any] = {
            "learner": clone(self.learner) if isinstance(self.learner, BaseEstimator) else self.learner,
            "classes": classes,
            "columns": table.shape[1],
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta),
        }
        if chain.is_private_learner(self.learner):
            return chain.Recipe(**common, retrain=cast(chain.Retrain, self.retrain))
        return votes.Recipe(
            **common,
            rows_per_teacher=votes.rows_for_a_teacher(self.rows_per_teacher, table.shape[1]),
            labeller=self.labeller,
            labeller_options=dict(self.labeller_options or {}),
            most_noise=float(self.most_noise),
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

    def _read(self, X: Any, name: str) -> Array:
        """A dense array of finite numbers: whole ones for concepts, if they were given as such."""
        table = as_numbers(as_table(X, name), name)
        rows: Array = table.toarray() if sparse.issparse(table) else table
        if len(rows) == 0:
            raise ValueError(f"{name} must have at least one row (0 samples are too few)")
        check_missing(rows, allow_nan=False, name=name)
        return self._as_numbers_of(rows, np.dtype(np.int64) if self._whole(rows) else None)

    def _whole(self, rows: Array) -> bool:
        return self._concepts() is not None and rows.dtype.kind in "biu" and rows.dtype != np.uint64

    @staticmethod
    @silent()
    def _as_numbers_of(rows: Array, dtype: Any) -> Array:
        if dtype is None:
            dtype = rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64
        return np.ascontiguousarray(rows, dtype=dtype)

    def _queries(self, X: Any, clients: Any) -> tuple[Array, Array | None]:
        """Rows and who asks; refused by shape, type and names alone, never by what a row holds."""
        rows = as_queries(X)
        if type(X) is not np.ndarray or rows.shape[1] != self.n_features_in_ or hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)
        if clients is None and self._grouped and not self._schedule.trusted:
            raise ValueError("clients must be given, one a row: with groups, a client's queries stay together")
        who = None if clients is None else as_column(clients, len(rows), "clients")
        if who is not None and who.dtype.kind not in "iuU":
            raise TypeError("clients must be strings or whole numbers")
        return self._reader.read(rows), None if who is None else who.astype(str)

    def _concepts(self) -> ConceptClass[Any] | None:
        """The concept class that the learner learns, if it learns one."""
        if isinstance(self.learner, ConceptLearner):
            return self.learner._hypotheses()
        return self.learner if isinstance(self.learner, ConceptClass) else None


class _TooFew(Exception):
    """The rows gathered do not make another phase: by their number, which is public."""
