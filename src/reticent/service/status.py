"""The public numbers of a service."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reticent.predictors.engines import Drift
from reticent.privacy.guarantee import Guarantee

if TYPE_CHECKING:  # it takes long to import
    from reticent.predictors.everlasting import EverlastingPredictor
    from reticent.service.store.protocol import AnswerStore

log = logging.getLogger("reticent.service")

PHASES = 20  # past phases in the status


@dataclass(frozen=True)
class PastPhase:
    """A phase that is over: how many rows it learned from, and how many answers it gave."""

    number: int
    rows: int
    answers: int


@dataclass(frozen=True)
class PhaseQuality:
    """How well a phase answered, from noisy counts that are released.

    `right` is the share of right answers, from `low` to `high` with 95 % confidence; None if too few slots have a
    label. `recall` has one share per class of `Status.classes`, None for a class with too few rows.
    """

    phase: int
    rows: int  # or slots, that judged it
    right: float | None
    low: float | None
    high: float | None
    recall: tuple[float | None, ...]


@dataclass(frozen=True)
class Alarm:
    """An alarm: the phase that raised it, and how many queries had been answered then."""

    phase: int
    answered: int


@dataclass(frozen=True)
class Status:
    """Public numbers only: functions of who asked when and how often, never of a row, a vote or a label.

    Of labels that arrive later, it says how many labelled rows came, which is public, and what was released of the
    quality of past phases. Of feedback it says nothing: nobody may know whether there was any.

    `drift` is the result of a private test on queries, and `one_answer` a property of a private model. Both the
    test and the model are released, and the guarantee covers them. Votes affect when a phase closes only for labellers
    that close early. That is noisy, and the guarantee covers it too. So `past` may be shown.

    If one private model answers without end, `phase_never_ends` is true. Then `answers_in_phase` and
    `answers_left_in_phase` are both `phases.NO_END` = 2^53 and stay so: shares of the two remain 1.

    The names of the fields are those of the JSON that clients read. `ledger_length` and `ledger_head` are the length
    and the last hash of the answer log.
    """

    guarantee: Guarantee
    phase: int
    answers_in_phase: int  # NO_END if the phase never ends
    answers_left_in_phase: int  # likewise
    answers_left: int | None  # in all; None if there is no limit
    answered: int
    rows: int  # that the current phase learned from
    teachers: int
    rows_gathered: int
    rows_wanted: int  # for the next phase
    client_cap: int  # how many of them may come from one client
    learning: bool  # whether the next phase is being learned now
    drift: Drift  # whether the queries of the phase before this one had drifted
    ledger_length: int
    ledger_head: str
    last_time: float | None  # of the last row of the answer log, in seconds since 1970
    halted: str | None
    past: tuple[PastPhase, ...] = ()  # the last phases before this one
    one_answer: Any = None  # the class that the private model gives to nearly every query, if there is one
    phase_never_ends: bool = False  # false for phases that follow each other without end
    public_model: bool = False  # whether a released model answers, which may be exported
    besides: tuple[float, float] | None = None  # ε and δ that training rows pay besides phases, such as for a schema
    classes: tuple[Any, ...] = ()
    truth: str | None = None  # where later labels come from: "rows", "feedback", "both", or None
    phase_rows: int | None = None  # labelled rows, or slots, of a phase
    labelled_received: int = 0  # labelled rows, in all
    labelled_waiting: int = 0  # for phases to come
    quality: tuple[PhaseQuality, ...] = ()  # of the last phases
    alarm_accuracy: float | None = None  # the share of right answers below which an alarm is raised, if declared
    alarm_recall: float | None = None  # likewise for each class
    alarms: tuple[Alarm, ...] = ()
    raises_alarms: bool = False  # whether there is an alarm, which may be raised
    alarm_since: int | None = None  # the phase that raised the alarm that stands

    @property
    def quality_warning(self) -> str | None:
        """What every answer says while an alarm stands: "alarm since phase 12"."""
        return None if self.alarm_since is None else f"alarm since phase {self.alarm_since}"


def answers_left(predictor: EverlastingPredictor) -> int | None:
    """How many answers are left in all; None if there is no limit."""
    horizon = predictor.answers
    return None if isinstance(horizon, str) else int(str(horizon)) - predictor.answered_


class StatusReporter:
    """Reads the public numbers of a predictor and its store.

    Parameters
    ----------
    predictor : EverlastingPredictor
        The predictor.
    store : AnswerStore
        Its store.
    """

    def __init__(self, predictor: EverlastingPredictor, store: AnswerStore) -> None:
        self._predictor, self._store = predictor, store
        self._reviewed = 0  # the phase that the next belong to
        self._of_phase: dict[str, Any] = {}

    def status(self) -> Status:
        """The public numbers now. They are those of what is stored: call it after a transaction."""
        predictor, position = self._predictor, self._store.position
        phase = predictor.phase
        if phase.number != self._reviewed:
            self._log_alarms()
            self._of_phase, self._reviewed = self._review(), phase.number
        return Status(
            guarantee=predictor.guarantee_,
            phase=phase.number,
            answers_in_phase=phase.queries,
            answers_left_in_phase=phase.queries if phase.endless else predictor.answers_left_in_phase_,
            answers_left=answers_left(predictor),
            answered=predictor.answered_,
            rows=phase.rows,
            teachers=phase.teachers,
            rows_gathered=predictor.rows_gathered_,
            rows_wanted=phase.handed_on,
            client_cap=predictor.client_cap_,
            learning=predictor.learning_,
            drift=predictor.drift_,
            ledger_length=position.length,
            ledger_head=position.head.hex(),
            last_time=position.time / 1000 if position.length else None,
            halted=None,
            phase_never_ends=phase.endless,
            public_model=predictor.model_ is not None,
            besides=predictor.spent_besides_,
            labelled_received=position.labelled,
            labelled_waiting=predictor.labelled_waiting_,
            **self._of_phase,
        )

    def _log_alarms(self) -> None:
        """One line for each alarm that was raised since the last look; the first look finds those of earlier runs."""
        known = len(self._of_phase.get("alarms", ()))
        if self._reviewed:
            for one in self._predictor.alarms_[known:]:
                log.warning("alarm: quality is lost since phase %d, after %d answers", one.phase, one.answered)

    def _review(self) -> dict[str, Any]:
        """What does not change within a phase."""
        predictor = self._predictor
        past = self._store.phases(PHASES + 1)
        truth, alarm = predictor.truth, predictor.alarm
        accuracy, recall = (None, None) if alarm is None else (alarm.accuracy, alarm.recall)
        return {
            "past": tuple(PastPhase(*one) for one in past if one[0] < predictor.phase_),
            "one_answer": predictor.one_answer_,
            "classes": tuple(predictor.classes_.tolist()),
            "truth": None if truth is None else str(truth),
            "phase_rows": predictor.phase_rows_,
            "quality": tuple(
                PhaseQuality(one.phase, one.rows, one.right, one.low, one.high, one.recall)
                for one in predictor.quality_[-PHASES:]
            ),
            "alarm_accuracy": None if accuracy is None else float(accuracy),
            "alarm_recall": None if recall is None else float(recall),
            "alarms": tuple(Alarm(one.phase, one.answered) for one in predictor.alarms_),
            "raises_alarms": predictor.alarm is not None,
            "alarm_since": predictor.alarm_since_,
        }


KEPT = (
    "What is kept of a query. Nothing learns from queries, and what they contain is not stored: each answer is a "
    "function of the released model and of its own query. The answer log keeps who was given how many answers, and "
    "when. If a request has an idempotency key, its answers are kept for repeats, with hashes of the key and of the "
    "body, until they expire."
)


PUBLIC = (
    "What may be taken away. The model that answers is released, and its guarantee covers whatever is computed from "
    "it. It may be exported to a file, published, and asked for probabilities."
)


BESIDES = (
    "What it is spent on. Of this, epsilon = {epsilon:.3g} and delta = {delta:.3g} is what training rows pay before "
    "anything is learned from them: for a count of labels that are not among the classes, and for the schema if it was "
    "found privately. The rest is for answers. Those who are not in the training rows pay for answers only."
)
LATER = {
    "rows": (
        "Whose labels come later. New labelled rows are protected as the first ones are: each enters one phase, to "
        "train or to judge, and the numbers above hold for it, however long the service runs. Queries are not learned "
        "from. How many labelled rows came and when, and of which groups, is public."
    ),
    "feedback": (
        "Whose labels come later. Whoever asked may give the true label of a query. Query and label are protected "
        "together, and so is whether, when and what feedback came: phases are counted in queries. Each query enters "
        "one phase, to train or to judge, and the numbers above hold for it, however long the service runs."
    ),
}
LATER["both"] = (
    f"{LATER['feedback']} New labelled rows are protected as the first ones are; how many came and when is public. "
    "For a person of whom both a labelled row and a query are learned from, the numbers add up."
)
GROUP = (
    "What a group is. All rows with the same value in the group column: the rows of one person. They are protected "
    "together, so it does not matter how many rows a person has."
)
GROUP_OF_QUERIES = " Queries are grouped by who asks: all queries of one client are protected together."


def in_words(
    guarantee: Guarantee,
    *,
    public_model: bool = False,
    besides: tuple[float, float] | None = None,
    truth: str | None = None,
) -> str:
    """The guarantee of a service in plain words.

    With groups it also says what a group is, and where queries are not protected, what is kept of them.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee.
    public_model : bool, default False
        Whether a released model answers. If it is the only one, the words say that it may be taken away.
    besides : tuple of float or None, default None
        ε and δ that training rows pay besides the phases; the words say so.
    truth : {"rows", "feedback", "both"} or None, default None
        Where labels come from after day one; the words say what that means for those who are in them.
    """
    who, *others = guarantee.explain().partition("Against what.")
    words = [who.rstrip()]
    if guarantee.unit == "group":
        words.append(GROUP + (GROUP_OF_QUERIES if guarantee.protects == "rows and queries" else ""))
    words.append("".join(others))
    if besides is not None:
        words.append(BESIDES.format(epsilon=besides[0], delta=besides[1]))
    if truth is not None:
        words.append(LATER[truth])
    if guarantee.protects == "rows":
        words += [PUBLIC, KEPT] if public_model else [KEPT]
    return "\n\n".join(words)
