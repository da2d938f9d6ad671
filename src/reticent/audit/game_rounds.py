"""The rounds of the everlasting game: how a predictor is trained and asked, and the exact law of each step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from reticent.audit.adversaries import (
    HIDDEN,
    SAME,
    Adversary,
    Feedback,
    Labelled,
    Move,
    Sample,
    Seen,
    View,
    is_challenge,
)
from reticent.audit.laws import law
from reticent.audit.predictor_states import PredictorStates
from reticent.errors import BudgetExhausted, OneAnswerWarning
from reticent.noise import Noise, Seeded

MOST_STATES = 200_000  # steps of predictors whose laws are kept


class GamePredictor(Protocol):
    """What is attacked: anything that learns and then answers.

    One that takes labels later also has `add_labelled(X, y, [groups])`, `answer_to(query)`, the answer to a query by
    its number, and `feedback_on(query, label, client)`. What these return is the reply. `released_`, if there is one,
    is in the view after every round.
    """

    def fit(self, X: Any, y: Any) -> object:
        """Learn from labelled rows. If the sample has groups, they are passed as a third argument."""

    def predict(self, X: Any) -> Any:
        """Label rows. If the query names a client, it is passed as `clients=`."""


MakePredictor = Callable[[Noise], Any]  # returns an unfitted GamePredictor that draws from the noise

# ── predictors of this package ────────────────────────────────────────────────────────────────────────────────────


def unfitted(predictor: Any) -> MakePredictor:
    """Return the `make` of a predictor of this package: it copies the predictor for every game.

    Parameters
    ----------
    predictor : EverlastingPredictor, PrivatePredictor or GenericBBL
        The predictor to attack. Its parameters are copied; a fitted state is not.

    Returns
    -------
    callable
        From a `Noise` to an unfitted predictor that draws from it.
    """
    return partial(_OnNoise, predictor)


class _OnNoise:
    """A copy of a predictor that draws everything from the given noise."""

    def __init__(self, predictor: Any, noise: Noise) -> None:
        from sklearn.base import clone

        self.predictor, self.noise = clone(predictor), noise
        self.given: list[tuple[Any, str | None]] = []  # the answer to each query, and its ticket

    def fit(self, X: Any, y: Any, *groups: Any) -> _OnNoise:
        """Learn from labelled rows."""
        self.predictor.fit_with_noise(X, y, *groups, unsafe_noise=self.noise)
        return self

    def predict(self, X: Any, **clients: Any) -> Any:
        """Label rows."""
        if getattr(self.predictor, "truth", None) is None:
            return self.predictor.predict(X, **clients)
        found = self.predictor.answer(X, **clients)
        answers = self.predictor.classes_[found.class_indices]
        tickets = found.tickets or [None] * len(answers)
        missing = [(None, None)] * (len(X) - len(answers))
        self.given += [*zip(answers.tolist(), tickets, strict=True), *missing]
        if found.refused is not None:
            raise found.refused
        return answers

    def add_labelled(self, X: Any, y: Any, *groups: Any) -> Any:
        """Hand over labelled rows."""
        return tuple(self.predictor.add_labelled(X, y, *groups))

    def answer_to(self, query: int) -> Any:
        """The answer to a query, by its number."""
        return self.given[query][0]

    def feedback_on(self, query: int, label: Any, client: Any) -> int:
        """Give the label of a query."""
        who = None if client is None else [client]
        found: int = self.predictor.feedback([self.given[query][1]], [label], who)
        return found

    @property
    def released_(self) -> Hashable:
        """Models, counts of rows that judge, alarms, and how many rows wait: all that is shown of later labels."""
        model = self.predictor
        if not hasattr(model, "quality_") or (model.truth is None and model.alarm is None):
            return None
        return (
            tuple((number, repr(getattr(one, "hypothesis_", None))) for number, one in model.models_),
            tuple((one.phase, one.confusion) for one in model.quality_),
            tuple((one.phase, one.answered) for one in model.alarms_),
            model.alarm_since_,
            model.rows_gathered_,
            model.labelled_waiting_,
        )

    @property
    def phase_(self) -> int | None:
        """The public number of the phase."""
        found: int | None = getattr(self.predictor, "phase_number_", getattr(self.predictor, "phase_", None))
        return found

    @property
    def answers_left_in_phase_(self) -> int | None:
        """The public number of answers left in the phase."""
        found: int | None = getattr(self.predictor, "answers_left_in_phase_", None)
        return found


# ── one round ─────────────────────────────────────────────────────────────────────────────────────────────────────


def fit_and_observe(predictor: Any, sample: Sample) -> Seen:
    """Fit the predictor to a sample; return what is seen of it."""
    X: Any = np.array(sample.rows)
    y: Any = np.array(sample.labels)
    groups = () if sample.groups is None else (np.array(sample.groups),)
    return _observe(predictor, lambda: predictor.fit(X, y, *groups), hidden=True, before=None)


def answer(predictor: Any, move: Move, world: int) -> Seen:
    """Make a move as it is in a world, 0 or 1; return what is seen of it."""
    before = getattr(predictor, "phase_", None)
    hidden = is_challenge(move)
    if isinstance(move, Labelled):
        return _observe(predictor, lambda: [_hand_over(predictor, move, world)], hidden=False, before=before)
    if isinstance(move, Feedback):
        hidden = hidden or callable(move.label)  # whether it comes may depend on a hidden answer
        return _observe(predictor, lambda: [_tell(predictor, move, world)], hidden=hidden, before=before)
    row = move.other if move.other is not None and world == 1 else move.row
    named = {} if move.client is None else {"clients": [move.client]}
    if before is not None and getattr(predictor, "answers_left_in_phase_", None) == 0:
        before += 1  # this query opens the next phase
    return _observe(predictor, lambda: predictor.predict(np.array([row]), **named), hidden=hidden, before=before)


def _hand_over(predictor: Any, move: Labelled, world: int) -> Hashable:
    """Hand a labelled row over; the reply."""
    row, label = move.other if move.other is not None and world == 1 else (move.row, move.label)
    groups = () if move.group is None else ([move.group],)
    reply: Hashable = predictor.add_labelled(np.array([row]), [label], *groups)
    return reply


def _tell(predictor: Any, move: Feedback, world: int) -> Hashable:
    """Give feedback, if there is any in this world; the reply."""
    label = move.other if move.other is not SAME and world == 1 else move.label
    if callable(label):
        label = label(predictor.answer_to(move.query))
    reply: Hashable = None if label is None else predictor.feedback_on(move.query, label, move.client)
    return reply


def _observe(predictor: Any, action: Callable[[], Any], *, hidden: bool, before: int | None) -> Seen:
    try:
        with warnings.catch_warnings():  # it depends on the released model alone, so the game need not compare it
            warnings.simplefilter("ignore", OneAnswerWarning)
            found = action()
        shown: Hashable = HIDDEN if hidden else found[0] if isinstance(found, list) else np.asarray(found).tolist()[0]
    except (ValueError, BudgetExhausted) as refusal:
        shown = HIDDEN if hidden and before is not None else f"{type(refusal).__name__}: {refusal}"
    public = (getattr(predictor, name, None) for name in ("phase_", "answers_left_in_phase_", "released_"))
    return Seen(shown, before, *public)


# ── the law of a step ─────────────────────────────────────────────────────────────────────────────────────────────

Outcomes = Mapping[tuple[Seen, bytes], tuple[int, int]]  # (what is seen, next state) → bounds on its probability


class GameSteps:
    """The exact laws of single steps, stored by the state that a step starts from and by the query.

    Parameters
    ----------
    make : callable
        From a `Noise` to an unfitted predictor that draws from it.
    clock : bool
        Whether the adversary sees the number of the phase and the answers left in it.
    tail_bits, most_paths : int
        See `audit.law`.
    """

    def __init__(self, make: MakePredictor, *, clock: bool, tail_bits: int, most_paths: int) -> None:
        self.make, self.clock, self.tail_bits, self.most_paths = make, clock, tail_bits, most_paths
        self.states = PredictorStates()
        self.known: dict[Hashable, tuple[Outcomes, int]] = {}

    def first(self, sample: Sample) -> tuple[Outcomes, int]:
        """Return the law of training, and the mass that is missing in it."""

        def run(noise: Noise) -> tuple[Seen, bytes]:
            predictor = self.make(noise)
            seen = fit_and_observe(predictor, sample)
            return self._shown(seen), self.states.keep(predictor, noise)

        return self._law(repr(sample), run)

    def next(self, state: bytes, query: Move, world: int) -> tuple[Outcomes, int]:
        """Return the law of one move in a state, and the mass that is missing in it."""

        def run(noise: Noise) -> tuple[Seen, bytes]:
            predictor = self.states.restore(state, noise)
            seen = answer(predictor, query, world)
            return self._shown(seen), self.states.keep(predictor, noise)

        functions = tuple(one for one in query if callable(one))  # kept in the key, so that no name is used again
        return self._law((state, repr(query), functions, world if is_challenge(query) else None), run)

    def compare(self, adversary: Adversary, sample: Sample, rounds: int) -> None:
        """Raise `RuntimeError` if the predictor behaves differently when its state is stored between rounds."""
        whole, pieces = (self._once(adversary, sample, rounds, restored=restored) for restored in (False, True))
        if whole != pieces:
            raise RuntimeError("make must return a predictor that keeps all its state in itself: one that was stored "
                               "and restored between rounds gave other answers")

    def _once(self, adversary: Adversary, sample: Sample, rounds: int, *, restored: bool) -> View:
        noise = Seeded(unsafe_seed=0)
        predictor = self.make(noise)
        view: View = (fit_and_observe(predictor, sample),)
        while len(view) <= rounds and (query := adversary.ask(view)) is not None:
            if restored:
                predictor = self.states.restore(self.states.keep(predictor, noise), noise)
            view = (*view, answer(predictor, query, 1))
        return view

    def _shown(self, seen: Seen) -> Seen:
        return seen if self.clock else Seen(seen.answer, None, None, None, seen.released)

    def _law(self, key: Hashable, run: Callable[[Noise], Hashable]) -> tuple[Outcomes, int]:
        if key not in self.known:
            if len(self.known) >= MOST_STATES:
                raise RuntimeError(f"the game has more than {MOST_STATES} states: play a smaller instance")
            found = law(run, tail_bits=self.tail_bits, most_paths=self.most_paths)
            outcomes = {outcome: (int(found.low[outcome]), int(found.high[outcome])) for outcome in found.high}
            self.known[key] = outcomes, found.missing
        return self.known[key]
