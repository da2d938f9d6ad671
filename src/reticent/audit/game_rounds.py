"""The rounds of the everlasting game: how a predictor is trained and asked, and the exact law of each step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from reticent.audit.adversaries import HIDDEN, Adversary, Query, Sample, Seen, View
from reticent.audit.laws import law
from reticent.audit.predictor_states import PredictorStates
from reticent.errors import BudgetExhausted, OneAnswerWarning
from reticent.noise import Noise, Seeded

MOST_STATES = 200_000  # steps of predictors whose laws are kept


class GamePredictor(Protocol):
    """What is attacked: anything that learns and then answers."""

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

    def fit(self, X: Any, y: Any, *groups: Any) -> _OnNoise:
        """Learn from labelled rows."""
        self.predictor.fit_with_noise(X, y, *groups, unsafe_noise=self.noise)
        return self

    def predict(self, X: Any, **clients: Any) -> Any:
        """Label rows."""
        return self.predictor.predict(X, **clients)

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


def answer(predictor: Any, query: Query, world: int) -> Seen:
    """Ask the predictor a query as it is in a world, 0 or 1; return what is seen of it."""
    row = query.other if query.other is not None and world == 1 else query.row
    named = {} if query.client is None else {"clients": [query.client]}
    before = getattr(predictor, "phase_", None)
    if before is not None and getattr(predictor, "answers_left_in_phase_", None) == 0:
        before += 1  # this query opens the next phase
    return _observe(
        predictor, lambda: predictor.predict(np.array([row]), **named), hidden=query.other is not None, before=before
    )


def _observe(predictor: Any, action: Callable[[], Any], *, hidden: bool, before: int | None) -> Seen:
    try:
        with warnings.catch_warnings():  # it depends on the released model alone, so the game need not compare it
            warnings.simplefilter("ignore", OneAnswerWarning)
            found = action()
        shown: Hashable = HIDDEN if hidden else np.asarray(found).tolist()[0]
    except (ValueError, BudgetExhausted) as refusal:
        shown = HIDDEN if hidden and before is not None else f"{type(refusal).__name__}: {refusal}"
    return Seen(shown, before, getattr(predictor, "phase_", None), getattr(predictor, "answers_left_in_phase_", None))


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

    def next(self, state: bytes, query: Query, world: int) -> tuple[Outcomes, int]:
        """Return the law of one query in a state, and the mass that is missing in it."""

        def run(noise: Noise) -> tuple[Seen, bytes]:
            predictor = self.states.restore(state, noise)
            seen = answer(predictor, query, world)
            return self._shown(seen), self.states.keep(predictor, noise)

        return self._law((state, repr(query), world if query.other is not None else None), run)

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
        return seen if self.clock else Seen(seen.answer, None, None, None)

    def _law(self, key: Hashable, run: Callable[[Noise], Hashable]) -> tuple[Outcomes, int]:
        if key not in self.known:
            if len(self.known) >= MOST_STATES:
                raise RuntimeError(f"the game has more than {MOST_STATES} states: play a smaller instance")
            found = law(run, tail_bits=self.tail_bits, most_paths=self.most_paths)
            outcomes = {outcome: (int(found.low[outcome]), int(found.high[outcome])) for outcome in found.high}
            self.known[key] = outcomes, found.missing
        return self.known[key]
