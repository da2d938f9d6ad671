"""Exact laws of conversations with a sparse-vector mechanism, taken from its real code.

Short ones are enumerated (`certified`). For long ones, note that within a segment all answers share one noise μ and are
independent given it. So it is enough to take P(answer | value, μ) from the real `ask`, with μ held fast (`Segment`):
then a conversation of any length is a sum over μ of products, and the best adaptive strategy is found by trying all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.audit import exact, law
from reticent.errors import BudgetExhausted
from reticent.noise import Noise

Vector = NDArray[np.float64]
Pair = tuple[int, int]  # the values of one question on the two neighbours
History = tuple[Hashable, ...]
Strategy = Callable[[History], Pair]  # the next question, in the light of the answers so far


class Askable(Protocol):
    def ask(self, value: int, /) -> Any: ...


Make = Callable[[Noise], Askable]


# ── short conversations, enumerated ───────────────────────────────────────────────────────────────────────────────


def certified(
    make: Make, strategies: Iterable[Strategy], *, questions: int, epsilon: Any, tail_bits: int = 80
) -> tuple[float, float]:
    """Certified (lower, upper) bounds on the worst δ at ε over the strategies, from the real code on all its noise."""
    bounds = []
    for strategy in strategies:
        first, second = (law(partial(_run, make, strategy, questions, side), tail_bits=tail_bits) for side in (0, 1))
        bounds.append(exact(first, second).delta(epsilon))
    return max(lower for lower, _ in bounds), max(upper for _, upper in bounds)


def _run(make: Make, strategy: Strategy, questions: int, side: int, noise: Noise) -> History:
    mechanism, history = make(noise), History()
    for _ in range(questions):
        try:
            history += (mechanism.ask(strategy(history)[side]),)
        except BudgetExhausted:
            return (*history, "closed")
    return history


def fixed(*pairs: Pair) -> Strategy:
    """Asks these questions in turn, whatever the answers."""
    return lambda history: pairs[len(history)]


def adaptive(seed: int, values: Sequence[int]) -> Strategy:
    """A random decision tree of questions near the given values."""

    def ask(history: History) -> Pair:
        draw = random.Random(f"{seed} {history}")
        value = draw.choice(values)
        return value, value + draw.choice((-1, -1, 0, 1, 1))

    return ask


# ── long conversations within a segment ───────────────────────────────────────────────────────────────────────────


class Held(Noise):
    """Draws from another noise, but for the shared noise, which is held at a given value."""

    def __init__(self, noise: Noise, shared: int) -> None:
        self.noise, self.shared = noise, shared
        self.scale = Fraction(0)

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        self.scale = scale
        return self.shared

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        return self.noise.laplace_cell(scale, cuts)


class Segment:
    """The first segment of what `make(noise)` builds: the law of μ, and that of each answer given μ.

    Probabilities are exact up to the rounding of floats, relative to each of them.
    """

    def __init__(self, make: Make, *, halting: Hashable, tail_bits: int = 60) -> None:
        self.make, self.halting = make, halting
        scales: list[Fraction] = []

        def note_scale(noise: Noise) -> None:
            held = Held(noise, 0)
            make(held).ask(0)
            scales.append(held.scale)

        law(note_scale)
        shared = law(lambda noise: noise.discrete_laplace(scales[0]), tail_bits=tail_bits)
        self.shared: list[Any] = sorted(shared.low, key=str)
        self.prior = np.array([shared.probability(mu) for mu in self.shared])
        self.likelihood = cache(self._likelihood)

    def _likelihood(self, value: int) -> dict[Hashable, Vector]:
        """P(answer | value, μ) for every answer, as a vector over μ."""
        laws = [law(partial(self._answer, value, mu), tail_bits=250) for mu in self.shared]
        answers = {answer for each in laws for answer in each.low}
        return {answer: np.array([each.probability(answer) for each in laws]) for answer in answers}

    def _answer(self, value: int, mu: int, noise: Noise) -> Hashable:
        answer: Hashable = self.make(Held(noise, mu)).ask(value)
        return answer

    def weights(self, conversation: Iterable[tuple[int, Hashable]]) -> Vector:
        """P(μ and these answers to these values), as a vector over μ."""
        weights = self.prior.copy()
        for value, answer in conversation:
            weights = weights * self.likelihood(value).get(answer, 0.0)
        return weights

    def loss(self, conversation: Sequence[tuple[Pair, Hashable]]) -> float:
        """The logarithm of how much likelier the answers are on the first of two neighbours."""
        first, second = (self.weights((pair[side], answer) for pair, answer in conversation).sum() for side in (0, 1))
        return math.log(first / second) if second > 0 else math.inf

    def worst_delta(
        self,
        pairs: Sequence[Pair],
        depth: int,
        *,
        epsilon: float,
        after: Sequence[tuple[Pair, Hashable]] = (),
    ) -> float:
        """The hockey-stick divergence at ε of the best strategy with up to `depth` of the questions, asked adaptively
        once the conversation `after` has taken place. All strategies are tried."""
        factor = math.exp(epsilon)

        def value(first: Vector, second: Vector, depth: int) -> float:
            best = 0.0
            for pair in pairs:
                here, there = (self.likelihood(each) for each in pair)
                gain = 0.0
                for answer, likelihood in here.items():
                    left, right = first * likelihood, second * there.get(answer, 0.0)
                    if answer == self.halting or depth == 1:
                        gain += max(0.0, float(left.sum() - factor * right.sum()))
                    else:
                        gain += value(left, right, depth - 1)
                best = max(best, gain)
            return best

        first, second = (self.weights((pair[side], answer) for pair, answer in after) for side in (0, 1))
        return value(first, second, depth)


def near(*values: int) -> list[Pair]:
    """Questions with these values on the first neighbour, one less, as many or one more on the second."""
    return [(value, value + step) for value in values for step in (-1, 0, 1)]
