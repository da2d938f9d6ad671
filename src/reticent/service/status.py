"""The public numbers of a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reticent.predictors.engines import Drift
from reticent.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class PastPhase:
    """A phase that is over: how many rows it learned from, and how many answers it gave."""

    number: int
    rows: int
    answers: int


@dataclass(frozen=True)
class Status:
    """Public numbers only: functions of who asked when and how often, never of a row, a vote or a label.

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
GROUP = (
    "What a group is. All rows with the same value in the group column: the rows of one person. They are protected "
    "together, so it does not matter how many rows a person has."
)
GROUP_OF_QUERIES = " Queries are grouped by who asks: all queries of one client are protected together."


def in_words(
    guarantee: Guarantee, *, public_model: bool = False, besides: tuple[float, float] | None = None
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
    """
    who, *others = guarantee.explain().partition("Against what.")
    words = [who.rstrip()]
    if guarantee.unit == "group":
        words.append(GROUP + (GROUP_OF_QUERIES if guarantee.protects == "rows and queries" else ""))
    words.append("".join(others))
    if besides is not None:
        words.append(BESIDES.format(epsilon=besides[0], delta=besides[1]))
    if guarantee.protects == "rows":
        words += [PUBLIC, KEPT] if public_model else [KEPT]
    return "\n\n".join(words)
