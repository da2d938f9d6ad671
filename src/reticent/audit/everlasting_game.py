"""The game that defines private everlasting prediction: played exactly on tiny instances, by sampling on real ones.

Two worlds differ in one training row, in one labelled row that comes later, or in one query, whose own answer stays
hidden, and its feedback. An adversary chooses everything else, sees everything else, and asks for as long as it likes.
If its views have nearly the same law in both worlds, the row and the query are protected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from reticent.audit.adversaries import (
    UNITS,
    Adversary,
    Sample,
    View,
    challenge_rule,
    is_challenge,
    listed_adversaries,
    neighbouring_samples,
)
from reticent.audit.game_rounds import GameSteps, MakePredictor, answer, fit_and_observe
from reticent.audit.hockey_stick import Divergence, exact
from reticent.audit.laws import BITS, Law
from reticent.audit.lower_bound import EmpiricalBound, empirical
from reticent.exact import Number, integer
from reticent.noise import system
from reticent.privacy.guarantee import Guarantee

Masses = dict[Any, tuple[int, int]]  # bounds on probabilities, in units of 2^-BITS

# ── the exact game ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class GameValue:
    """How well each adversary distinguishes the two worlds.

    All bounds are certified. They are worst cases over the adversaries that played; that no other adversary does
    better is not shown by playing, but by the proof.

    Parameters
    ----------
    adversaries : tuple of Adversary
        Those that played.
    laws : tuple of pairs of Law
        For each adversary, the laws of its view in the two worlds.
    """

    adversaries: tuple[Adversary, ...]
    laws: tuple[tuple[Law, Law], ...]

    def delta(self, epsilon: Number) -> tuple[float, float]:
        """Return (lower, upper) bounds on the least δ for which all views are (ε, δ)-indistinguishable."""
        return _worst(exact(*pair).delta(epsilon) for pair in self.laws)

    def epsilon(self, delta: Number = 0) -> tuple[float, float]:
        """Return (lower, upper) bounds on the least ε for which all views are (ε, δ)-indistinguishable."""
        return _worst(exact(*pair).epsilon(delta) for pair in self.laws)

    def passes(self, guarantee: Guarantee) -> bool:
        """Return whether every adversary that played is certainly within the guarantee."""
        return self.delta(guarantee.epsilon)[1] <= guarantee.delta

    def refutes(self, guarantee: Guarantee) -> bool:
        """Return whether some adversary that played certainly exceeds the guarantee."""
        return self.delta(guarantee.epsilon)[0] > guarantee.delta

    def by_phase(self, delta: Number = 0) -> list[tuple[float, float]]:
        """Return `epsilon(delta)` of what is seen up to the end of the first phase, of the second, and so on."""
        last = max(seen.phase or 1 for pair in self.laws for view in pair[0].high for seen in view)
        return [self._until(partial(_until_phase, phase), delta) for phase in range(1, last + 1)]

    def by_round(self, delta: Number = 0) -> list[tuple[float, float]]:
        """Return `epsilon(delta)` of what is seen up to each round; the first entry is before any query."""
        last = max(len(view) for pair in self.laws for view in pair[0].high)
        return [self._until(partial(_until_round, length), delta) for length in range(1, last + 1)]

    def worst(self, epsilon: Number) -> Adversary:
        """Return the adversary that distinguishes the worlds best at this ε."""
        deltas = [exact(*pair).delta(epsilon)[0] for pair in self.laws]
        return self.adversaries[int(np.argmax(deltas))]

    def _until(self, cut: Callable[[View], View], delta: Number) -> tuple[float, float]:
        return _worst(Divergence(*(_mapped(side, cut) for side in pair)).epsilon(delta) for pair in self.laws)


def everlasting_game(
    make: MakePredictor,
    adversaries: Adversary | Iterable[Adversary],
    *,
    rounds: int,
    unit: str = "row",
    clock: bool = True,
    tail_bits: int = 80,
    most_paths: int = 1_000_000,
) -> GameValue:
    """Play the everlasting privacy game on every outcome of the noise.

    The predictor's real code runs. Everything observable is in the view: answers, replies, the errors that refuse them,
    and after each round `phase_`, `answers_left_in_phase_` and `released_`. Only the answer to a challenge is hidden,
    and what is said to its feedback.

    A step of the game leads from a state of the predictor, kept as bytes, to an observation and the next state.
    `audit.law` finds the law of each step once, however many adversaries take it, and equal states are merged. So the
    cost grows with the number of reachable states, not of paths. Each game is also played once on seeded noise with
    one predictor from beginning to end, and must show the same as with stored states. This refuses a predictor that
    keeps state elsewhere, in a file or a module.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Figure 1. The view is larger here, unless
    `clock=False`: in the figure it has the answers only.

    Parameters
    ----------
    make : callable
        From a `Noise` to an unfitted predictor that draws all its randomness from it. `unfitted(predictor)` makes one
        for the predictors of this package.
    adversaries : Adversary or iterable of Adversary
        Who plays. Each plays a game of its own.
    rounds : int
        Moves per game: queries, labelled rows and feedback.
    unit : {"row", "client"}, default "row"
        What is protected. With "client", all queries and feedback of one client may be challenges, and all training and
        labelled rows of the group of the same name. If samples have groups, all rows of one group may differ.
    clock : bool, default True
        Whether the adversary sees phases. With False it sees answers and errors only.
    tail_bits : int, default 80
        Outcomes of a draw less likely than 2^-tail_bits are not walked; their mass counts as missing.
    most_paths : int, default 1_000_000
        Most paths that a single step may have.

    Returns
    -------
    GameValue

    Examples
    --------
    >>> from reticent.audit.adversaries import random_strategies
    >>> class Constant:
    ...     def __init__(self, noise):
    ...         self.noise = noise
    ...     def fit(self, X, y):
    ...         self.label = int(y[0]) ^ self.noise.uniform(4) // 3  # wrong once in four times
    ...     def predict(self, X):
    ...         return [self.label] * len(X)
    >>> value = everlasting_game(
    ...     Constant, random_strategies(20, rows=((0,), (1,)), size=1, challenge=None), rounds=2
    ... )
    >>> value.epsilon()[1]  # ln 3
    1.0986122886681098
    """
    players = listed_adversaries(adversaries)
    count = integer(rounds, "rounds", least=1)
    if unit not in UNITS:
        raise ValueError(f"unit must be 'row' or 'client', got {unit!r}")
    steps = GameSteps(make, clock=clock, tail_bits=tail_bits, most_paths=most_paths)
    laws = []
    for player in players:
        samples = neighbouring_samples(player)
        steps.compare(player, samples[1], count)
        play = partial(_play, steps, player, rounds=count, unit=unit)
        laws.append((play(samples[0], world=0), play(samples[1], world=1)))
    return GameValue(tuple(players), tuple(laws))


def _play(steps: GameSteps, player: Adversary, sample: Sample, *, world: int, rounds: int, unit: str) -> Law:
    """Return the law of the view in one world, computed forward over the reachable states."""
    check = challenge_rule(player, unit)
    start, missing = steps.first(sample)
    reached: Masses = {((seen,), state): mass for (seen, state), mass in start.items()}
    ended: Masses = {}
    for _ in range(rounds):
        after: Masses = {}
        for (view, state), (low, high) in reached.items():
            query = player.ask(view)
            if query is None:
                _add(ended, view, low, high)
                continue
            if is_challenge(query):
                check(view, query)
            outcomes, lost = steps.next(state, query, world)
            missing += -(-high * lost >> BITS)
            for (seen, following), (step_low, step_high) in outcomes.items():
                _add(after, ((*view, seen), following), low * step_low >> BITS, -(-high * step_high >> BITS))
        reached = after
    for (view, _), (low, high) in reached.items():
        _add(ended, view, low, high)
    return _law_of(ended, missing)


def _add(masses: Masses, key: Any, low: int, high: int) -> None:
    before = masses.get(key, (0, 0))
    masses[key] = before[0] + low, before[1] + high


def _mapped(side: Law, cut: Callable[[View], View]) -> Law:
    masses: Masses = {}
    for view in side.high:
        _add(masses, cut(view), int(side.low[view]), int(side.high[view]))
    return _law_of(masses, side.missing)


def _law_of(masses: Mapping[View, tuple[int, int]], missing: int) -> Law:
    low, high = ({view: mass[end] for view, mass in masses.items()} for end in (0, 1))
    return Law(low, high, missing)


def _until_phase(phase: int, view: View) -> View:
    """Return the part of the view up to the first answer of the next phase, including that the next phase began."""
    return tuple(seen for seen in view if seen.before is None or seen.before <= phase)


def _until_round(length: int, view: View) -> View:
    return view[:length]


def _worst(bounds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*bounds, strict=True)
    return max(lows), max(highs)


# ── the game at real sizes ────────────────────────────────────────────────────────────────────────────────────────


def everlasting_attack(
    make: MakePredictor,
    adversary: Adversary,
    *,
    rounds: int,
    delta: Number,
    runs: int,
    unit: str = "row",
    epsilon: Number | None = None,
    confidence: float = 0.95,
    jobs: int | None = None,
    quiet: bool = True,
) -> EmpiricalBound:
    """Play the game many times with the system's noise, and bound ε at δ from below.

    The bound is that of `audit.empirical` on the views. Views of many rounds are all different, so no event would be
    found among them: give the adversary a method `verdict(view)` that returns a number (or anything hashable), and the
    verdicts are compared instead.

    Parameters
    ----------
    make : callable
        As for `everlasting_game`.
    adversary : Adversary
        Who plays.
    rounds : int
        Queries per game.
    delta : float or Fraction
        The δ at which ε is bounded.
    runs : int
        Games in each world.
    unit : {"row", "client"}, default "row"
        As for `everlasting_game`.
    epsilon : float or Fraction, optional
        The claimed ε, to compare with the bound.
    confidence : float, default 0.95
        Probability with which the bound holds, at least.
    jobs : int, optional
        Workers of joblib; -1 for all cores.
    quiet : bool, default True
        Whether to hide the progress bar.

    Returns
    -------
    EmpiricalBound
    """
    count = integer(rounds, "rounds", least=1)
    samples = neighbouring_samples(adversary)
    check = challenge_rule(adversary, unit)
    verdict: Callable[[View], Hashable] = getattr(adversary, "verdict", tuple)

    def play(world: int) -> Hashable:
        predictor = make(system)
        view: View = (fit_and_observe(predictor, samples[world]),)
        while len(view) <= count and (query := adversary.ask(view)) is not None:
            if is_challenge(query):
                check(view, query)
            view = (*view, answer(predictor, query, world))
        return verdict(view)

    return empirical(
        play, 0, 1, delta=delta, runs=runs, epsilon=epsilon, confidence=confidence, jobs=jobs, quiet=quiet
    )
