"""A predictor that runs: who may use it, how it reads queries, and the public numbers that it shows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.data.groups import named_groups
from reticent.data.labels import any_labels, class_indices_of_any
from reticent.data.queries import as_queries, client_names
from reticent.errors import OneAnswerWarning
from reticent.exact import Number, integer
from reticent.learners.comparison import Scores
from reticent.predictors.alarms import RaisedAlarm
from reticent.predictors.answers import Answers
from reticent.predictors.engines.engine import Drift, Engine
from reticent.predictors.engines.model import ModelEngine
from reticent.predictors.engines.private_model import ModelAnswers
from reticent.predictors.gauge import Quality
from reticent.predictors.later_labels import LaterLabels, Taken
from reticent.predictors.machine import LearnElsewhere, PhaseMachine
from reticent.predictors.parameters import CheckedParameters, Fitted
from reticent.predictors.phases import Phase
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.guard import Guard, Guarded
from reticent.silence import silent

Array = NDArray[Any]


class RunningPredictor(Guarded, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted `EverlastingPredictor`: one thread of one process at a time uses its machine.

    All attributes but `engine_` may be shown to everyone. They are functions of parameters, of who asked when, and of
    models and tests that were released and are paid for.
    """

    learner: Any
    besides: tuple[Number, Number] | None
    unsafe_seed: int | None
    background: bool
    guarantee_: Guarantee
    classes_: Array
    n_features_in_: int
    _machine: PhaseMachine
    _fitted: Fitted

    def _begin(self, checked: CheckedParameters, fitted: Fitted, machine: PhaseMachine, *, seeded: bool) -> None:
        """Become fitted, now that nothing can fail."""
        self.classes_, self.n_features_in_ = fitted.classes, fitted.columns
        self._fitted, self._machine, self._guard = fitted, machine, Guard(type(self))
        self.guarantee_ = checked.guarantee(grouped=fitted.grouped, seeded=seeded)  # last: now it is fitted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def _warn_of_one_answer(self, *, stacklevel: int) -> None:
        """Warn if the released model gives every query the same answer."""
        if (one := self.one_answer_) is not None:
            warnings.warn(
                f"the private model gives the class {one!r} to nearly every row. What may help: more rows; a larger "
                "epsilon; a row_norm no larger than rows are; if a class is rare, fewer rows of the others",
                OneAnswerWarning,
                stacklevel=stacklevel,
            )

    @property
    def spent_besides_(self) -> tuple[float, float] | None:
        """ε and δ that training rows pay besides the phases, rounded; None for nothing."""
        return None if self.besides is None else (float(self.besides[0]), float(self.besides[1]))

    @contextmanager
    def _claimed(self) -> Iterator[PhaseMachine]:
        """The machine, for one thread of the process that made it."""
        if not hasattr(self, "guarantee_"):  # else scikit-learn would collect all tags for every batch
            check_is_fitted(self)
        with self._guard.claim():
            self._machine.background = self.background
            yield self._machine

    def answer(self, X: Any, clients: Any = None, *, one_phase: bool = False) -> Answers:
        """As `predict`, with the phase of each answer, and with the answers that were given before there were none.

        Raises an error only if nothing was answered. With `one_phase` no other phase begins: it answers as many queries
        as this phase does, and then `turn_over` continues. If the next phase cannot begin, the next call tries again.
        """
        with self._claimed() as machine:
            return machine.answer(*self._queries(X, clients), one_phase=one_phase)

    def turn_over(self, *, early: bool = False) -> None:
        """Begin the next phase after `answer(…, one_phase=True)`; `BudgetExhausted` if there is none, or not yet.

        If enough labelled rows are there, it begins although answers are left. With `early` it begins with the later
        labels that have arrived, if there are enough for a phase at all. Calling it is a public act.
        """
        with self._claimed() as machine:
            if machine.left and not early and not machine.rows_are_there:
                raise ValueError(f"this phase has {machine.left} answers left")
            machine.turn_over(early=early)

    # ── labels that arrive later ──────────────────────────────────────────────────────────────────────────────────

    def add_labelled(self, X: Any, y: Any, groups: Any = None) -> Taken:
        """Give labelled rows to the next phases, with truth="rows" or "both". Each enters one phase, in one role.

        The numbers of rows and their groups are public. A row that cannot be read counts, as a fixed point; a label
        that is not one of the classes leaves its place empty. Neither is refused: that would show what a row holds.

        Parameters
        ----------
        X, y : array-like of shape (n, columns) and (n,)
            The rows, and their labels.
        groups : array-like of shape (n,), default None
            The person of each row; required if `fit` had groups. A person enters at most `client_phases` phases, the
            first of them included: rows of people who have are counted, not kept.

        Returns
        -------
        Taken
        """
        with self._claimed() as machine:
            machine.later_labels("add_labelled")  # before anything is read
            rows = self._read(X)
            if (groups is None) == self._fitted.grouped:
                raise ValueError("groups must be given if and only if fit had groups, one per row")
            names = None if groups is None else named_groups(groups, len(rows))
            labels = class_indices_of_any(any_labels(y, len(rows)), self.classes_)
            return machine.add_labelled(rows, labels, names)

    def withdraw_labelled(self, numbers: Any) -> int:
        """Forget labelled rows by their numbers (see `Taken.first`); return how many were still waiting.

        Their places stay, empty, so that the clock does not move. Rows of a phase that is complete cannot be withdrawn:
        it has learned from them, or is about to, and then they are deleted.
        """
        with self._claimed() as machine:
            return machine.withdraw_labelled([integer(one, "numbers", least=0) for one in numbers])

    def feedback(self, tickets: Any, y: Any, clients: Any = None) -> int:
        """Give the labels of queries that were answered, by the tickets of `answer`, with truth="feedback" or "both".

        Until its slot closes, a later label takes the place of an earlier one, and None withdraws it. A label that is
        not one of the classes leaves the slot empty. Others see nothing of this: whether and when feedback came, and
        what it said, is protected with the query.

        Parameters
        ----------
        tickets : sequence of str
            The tickets. Unknown ones, closed ones and those of another client change nothing.
        y : array-like
            One label per ticket, or None.
        clients : array-like of str or int, default None
            Who gives each label: only the client that asked may. Required if the queries came with clients.

        Returns
        -------
        int
            How many of the slots were open. Do not show it to clients.
        """
        with self._claimed() as machine:
            machine.later_labels("feedback")
            if isinstance(tickets, (str, bytes)):
                raise TypeError("tickets must be a sequence of tickets, got one string")
            listed = list(tickets)
            labels = class_indices_of_any(any_labels(y, len(listed)), self.classes_)
            names = client_names(clients, len(listed))
            owners = [None] * len(listed) if names is None else [str(one) for one in names]
            return machine.feedback(listed, labels, owners)

    @property
    def quality_(self) -> list[Quality]:
        """What the rows that judge said of past phases: noisy counts, which everybody may see."""
        return list(self._machine.watch.qualities)

    @property
    def alarms_(self) -> list[RaisedAlarm]:
        """The alarms that were raised."""
        return list(self._machine.watch.alarms)

    @property
    def alarm_since_(self) -> int | None:
        """The phase that raised the alarm that stands; None if none does."""
        return self._machine.watch.since

    @property
    def models_(self) -> list[tuple[int, Any]]:
        """The last private models of a chain, each with the phase that it was trained in. They may be published."""
        return list(getattr(self._machine.engine, "models", ())) or (
            [] if self.model_ is None else [(self.phase_, self.model_)]
        )

    @property
    def labelled_waiting_(self) -> int:
        """How many labelled rows wait for the next phases."""
        intake = self._machine.intake
        return intake.waiting if isinstance(intake, LaterLabels) else 0

    @property
    def labelled_from_(self) -> int:
        """The number of the oldest labelled row that may wait: see `withdraw_labelled`."""
        intake = self._machine.intake
        return intake.oldest if isinstance(intake, LaterLabels) else 0

    @property
    def open_slots_(self) -> list[tuple[str, str | None]]:
        """The ticket and the client of each query that has a slot in the window of this phase, in order. Secret."""
        intake = self._machine.intake
        return intake.open_slots if isinstance(intake, LaterLabels) else []

    @property
    def takes_feedback_(self) -> bool:
        """Whether queries get tickets, by which their labels can be given later."""
        truth = self._machine.schedule.truth
        return truth is not None and truth.takes_feedback

    @property
    def takes_labelled_(self) -> bool:
        """Whether labelled rows can be added."""
        truth = self._machine.schedule.truth
        return truth is not None and truth.takes_rows

    @property
    def phase_rows_(self) -> int | None:
        """The labelled rows, or slots, of a phase; None if phases learn from their own answers."""
        truth = self._machine.schedule.truth
        return None if truth is None else truth.rows

    def add_unlabelled(self, X: Any) -> int:
        """Give rows of a trusted stream to the next phase; return how many of them this phase still takes.

        They get labels at once, which count as answers. Give the rest again in the next phase.
        """
        with self._claimed() as machine:
            if not machine.schedule.trusted:
                raise ValueError("add_unlabelled needs training_stream='trusted': now the queries are learned from")
            return machine.label_stream(self._queries(X, None)[0])

    def learn_elsewhere(self, learn: LearnElsewhere | None) -> None:
        """Let next phases learn by your function, for example in another process by `learned`; None for here."""
        self._machine.elsewhere = learn

    def _queries(self, X: Any, clients: Any) -> tuple[Array, Array | None]:
        """Rows and who asks; refused by shape, type and names alone, never by the content of a row."""
        rows = self._read(X)
        if clients is None and self._fitted.grouped and self.learns_from_queries_:
            raise ValueError("clients must be given, one per row: with groups, a client's queries stay together")
        return rows, client_names(clients, len(rows))

    def _read(self, X: Any) -> Array:
        rows = as_queries(X)
        if type(X) is not np.ndarray or rows.shape[1] != self.n_features_in_ or hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)
        return self._fitted.reader.read(rows)

    @property
    def phase(self) -> Phase:
        """The numbers of the present phase."""
        return self._machine.phase

    @property
    def phase_(self) -> int:
        """The number of the phase, from 1 on; always 1 for engine="model"."""
        return self.phase.number

    @property
    def answered_(self) -> int:
        """How many queries were answered in total."""
        return self._machine.answered

    @property
    def answers_left_in_phase_(self) -> int:
        """How many more queries this phase answers at most; counted down from `phases.NO_END` if it never ends."""
        return self._machine.left

    @property
    def rows_gathered_(self) -> int:
        """How many rows there are for the next phase."""
        return self._machine.rows_gathered

    @property
    def client_cap_(self) -> int:
        """How many rows of the next phase one client may add: by parameters and the size of the phase."""
        return self._machine.admission.cap

    def rows_of_client(self, client: str) -> tuple[int, int]:
        """How many rows of the next phase a client has added, and how many it may add: by who asked how often."""
        return self._machine.admission.rows_of(client)

    @property
    def learning_(self) -> bool:
        """Whether the next phase is being learned in the background, or has been."""
        return self._machine.learning

    def wait_until_learned(self) -> None:
        """Wait until the next phase is learned, if it is being learned in the background. Any thread may."""
        self._machine.wait_until_learned()

    @property
    def learns_from_queries_(self) -> bool:
        """Whether queries become rows of the next phase. If not, nothing of a query is stored."""
        truth = self._machine.schedule.truth
        return self._machine.factory.learns_from_queries and (truth is None or truth.takes_feedback)

    @property
    def event_(self) -> Event:
        """What the present phase costs one of its rows."""
        return self._machine.event

    @property
    def comparison_(self) -> Scores | None:
        """What a private comparison found before the model was trained; None without one. It is released."""
        return getattr(self._machine.engine, "scores", None)

    @property
    def closes_early_(self) -> bool:
        """Whether votes decide when a phase closes."""
        return self._machine.factory.closes_early

    @property
    def drift_(self) -> Drift:
        """What a private test found at the end of the last phase; "not tested" where there is no such test."""
        return self._machine.engine.drift

    @property
    def one_answer_(self) -> Any:
        """The class that the model of this phase gives to nearly every query, if its releases say so; else None.

        The model of a chain is released, and this is a function of it. Votes release no model, and it is None. That all
        answers of a phase were the same must not be shown instead; docs/predictors/everlasting.md says why.
        """
        index = self._machine.engine.one_answer
        return None if index is None else self.classes_.tolist()[index]

    @property
    def model_(self) -> Any:
        """The private model that answers now; None if votes do, or an engine of your own. It may be published.

        `fit` releases the only model of engine="model". The theorem of a chain gives the adversary all of its models:
        docs/predictors/chain.md. Its labels are class indices.
        """
        engine = self._machine.engine
        return engine.model if isinstance(engine, ModelAnswers) else None

    @property
    def no_probabilities_(self) -> str | None:
        """Why `probabilities` refuses; None if it does not."""
        engine = self._machine.engine
        if not isinstance(engine, ModelEngine):
            return (
                "probabilities need engine='model', one private model (reticent fit --learner private-model). Answers "
                "of votes and of a chain must not carry more than the label: votes are priced for the label alone, and "
                "the model of a chain may change between a request and its repeat"
            )
        if not hasattr(engine.model, "predict_proba"):
            return f"a model of the kind {type(engine.model).__name__} has labels only, and no probabilities"
        return None

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class for each row of `X`, in the order of `classes_`, with engine="model".

        They are a function of the released model and of the row, so they cost nothing, and nothing is counted.

        Parameters
        ----------
        X : array-like of shape (n, columns)
            The queries, which are read as `predict` reads them.
        """
        with self._claimed():
            if (why := self.no_probabilities_) is not None:
                raise ValueError(why)
            rows, _ = self._queries(X, None)
            with silent():
                return np.asarray(self.model_.predict_proba(rows), dtype=np.float64)

    @property
    def dtype_(self) -> np.dtype[Any]:
        """The type of numbers that rows and queries are kept in."""
        return self._fitted.reader.dtype

    @property
    def engine_(self) -> Engine:
        """What answers in the present phase. It is as secret as the rows."""
        return self._machine.engine
