"""What a round of `LabelBoost` costs, and what a guarantee leaves to its parts. All bounds are rounded safely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from reticent.exact import exp_fractions, log_bounds

Variant = Literal["max", "printed"]

_BITS = 64  # of the bounds on costs
LOG4 = log_bounds(Fraction(4), _BITS)[1]  # what relabelling adds to the cost of a relabelled row


def check_variant(variant: object) -> None:
    """Raise ValueError unless it is "max" or "printed"."""
    if variant not in ("max", "printed"):
        raise ValueError(f'variant must be "max" or "printed", got {variant!r}')


@dataclass(frozen=True)
class RelabellingBudget:
    """What the guarantee of `LabelBoost` leaves to its learner and its rounds.

    Parameters
    ----------
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of the whole.
    variant : {"max", "printed"}
        How a round labels rows.
    """

    epsilon: Fraction
    delta: Fraction
    variant: Variant

    @property
    def learner_epsilon(self) -> Fraction:
        """ε_A of the learner."""
        return learner_epsilon(self.epsilon)

    @property
    def learner_delta(self) -> Fraction:
        """δ_A of the learner, at most 1/2: sampling reduces it to at most δ."""
        return min(self.delta / self.unlabelled_share, Fraction(1, 2))

    @property
    def unlabelled_cost(self) -> Fraction:
        """The cost of a row without a label that is drawn for a round."""
        return self.learner_epsilon + LOG4

    @property
    def unlabelled_share(self) -> Fraction:
        """The largest share of the rows without a label that may be drawn."""
        return largest_share(self.epsilon, self.unlabelled_cost)

    @property
    def labelled_cost(self) -> Fraction:
        """In the variant "printed": the cost of a labelled row that is drawn for a round."""
        return self.learner_epsilon + printed_cost(printed_epsilon(self.learner_epsilon))

    def unlabelled_rows(self, drawn: int) -> int:
        """How many rows without a label there must be so that `drawn` of them may be drawn."""
        return math.ceil(drawn / self.unlabelled_share)

    def round_epsilons(self, rounds: int) -> list[Fraction]:
        """ε of the draw in each round."""
        if self.variant == "printed":
            return [printed_epsilon(self.learner_epsilon)] * rounds
        return [self.epsilon] + [self.learner_epsilon] * (rounds - 1)

    def scored_share(self, *, first: bool) -> Fraction:
        """The share of its labelled rows that a round may use; `first` for the first round."""
        if self.variant == "max":
            return Fraction(1)
        return largest_share(self.epsilon if first else self.learner_epsilon, self.labelled_cost)


def learner_epsilon(epsilon: Fraction) -> Fraction:
    """ε_A of the learner: 9/10, or ε − ln 4 if that is more, where no row needs to be left out.

    >>> learner_epsilon(Fraction(1)), learner_epsilon(Fraction(5))
    (Fraction(9, 10), Fraction(3613, 1000))
    """
    return max(Fraction(9, 10), Fraction(math.floor(1000 * (epsilon - LOG4)), 1000))


def largest_share(epsilon: Fraction, cost: Fraction) -> Fraction:
    """A lower bound on the share q of rows of which a random part may be charged `cost`: ln(1 + q·(e^cost − 1)) ≤ ε."""
    if cost <= epsilon:
        return Fraction(1)
    bits = _BITS + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())  # e^ε may be close to 1
    return (exp_fractions(epsilon, bits)[0] - 1) / (exp_fractions(cost, _BITS)[1] - 1)


def printed_cost(epsilon: Fraction) -> Fraction:
    """2·ln(1 + e^(ε/2)), rounded up: what a round of the variant "printed" adds to the cost of a labelled row."""
    return 2 * log_bounds(1 + exp_fractions(epsilon / 2, _BITS)[1], _BITS)[1]


@lru_cache(maxsize=256)
def printed_epsilon(inner: Fraction) -> Fraction:
    """ε of the draw in the variant "printed", in tenths: the one with which a round needs the fewest labelled rows.

    The rows that a round uses are ∝ 1/ε, and their share is ∝ 1/((1 + e^(ε/2))²·e^inner − 1).
    """
    return min((Fraction(i, 10) for i in range(1, 101)), key=lambda e: math.expm1(float(printed_cost(e) + inner)) / e)
