"""A candidate with a high score, out of a few or out of 2^(10^6): the exponential mechanism, with its exact law."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.exact import Number
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.noise.reading import exact_numbers
from reticent.privacy.events import BoundedRange
from reticent.privacy.parameters import check_epsilon


def exponential(scores: Iterable[Any], *, epsilon: Number, unsafe_noise: Noise | None = None) -> Release[int]:
    """The index of a candidate, drawn with probability ∝ e^(ε·score/2).

    `scores` has one entry a candidate: integers of any size, fractions, or floats (each standing for exactly the
    binary number it is). Replacing one row must move every score by at most 1; divide them by their sensitivity if it
    is another. A score that falls t short of the best one is drawn with probability at most e^(−εt/2), so with
    probability 1 − β the answer is within (2/ε)·ln(candidates/β) of the best.

    Guarantee. ε-differential privacy for a replaced row; more precisely a privacy loss of bounded range ε, which is
    also (ε²/8)-zCDP. The number of candidates is public.

    Why. Let s, s' be the scores of two neighbours and Z, Z' their sums of weights. The privacy loss of the outcome i
    is (ε/2)(s_i − s'_i) + ln(Z'/Z). The first term lies in [−ε/2, ε/2] and the second is the same for all outcomes,
    so the loss stays within an interval of length ε; the interval holds 0, since neither law exceeds the other
    everywhere; hence |loss| ≤ ε. No weight is ever rounded: the draw compares random bits with certified bounds on
    the exact weights, at a precision that is raised until the comparison is decided.

    Source. McSherry and Talwar, *Mechanism Design via Differential Privacy*; bounded range: Durfee and Rogers,
    *Practical Differentially Private Top-k Selection*; zCDP: Cesar and Rogers, *Bounding, Concentrating, and
    Truncating*. As restated by Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate
    Differential Privacy*, Proposition 2.25, and *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 5
    and Proposition A.1. Repaired: floating-point weights, on which the usual implementations rest, do not have this
    law.

    >>> exponential([3, 0, 500, -1e300], epsilon=1)
    Release(value=2, event=BoundedRange(epsilon=Fraction(1, 1)))
    """
    event = BoundedRange(check_epsilon(epsilon))
    numbers = exact_numbers(scores, "scores")
    return release(noise_or_system(unsafe_noise).choose(numbers, rate=event.epsilon / 2), event, unsafe_noise)


def exponential_over_pieces(pieces: Pieces, *, epsilon: Number, unsafe_noise: Noise | None = None) -> Release[int]:
    """An integer of the range of `pieces`, drawn with probability ∝ e^(ε·score/2).

    The time taken depends on the number of pieces and the width of their ends, not on the number of integers: a piece
    is drawn with probability ∝ its length times e^(ε·score/2), then an integer uniformly from it.

    Guarantee. ε-differential privacy for a replaced row, with a privacy loss of bounded range ε, provided that
    replacing a row moves the score of every integer of the range by at most 1. The range is public; where the pieces
    begin and end is not, and may differ between neighbours in any way.

    Why. The integer x of a piece of length n is drawn with probability ∝ n·e^(ε·score/2)·(1/n): the law is that of
    `exponential` over all the integers of the range, whose proof applies.

    Source. McSherry and Talwar, *Mechanism Design via Differential Privacy*. Repaired: as in `exponential`.

    >>> score = Pieces.from_triples([(0, 2**1000, 0), (2**1000 + 1, 2**1000 + 2**900, 300)])
    >>> exponential_over_pieces(score, epsilon=1).value > 2**1000
    True
    """
    event = BoundedRange(check_epsilon(epsilon))
    if not isinstance(pieces, Pieces):
        raise TypeError(f"pieces must be Pieces, got {type(pieces).__name__}")
    return release(draw([pieces], rate=event.epsilon / 2, noise=noise_or_system(unsafe_noise)), event, unsafe_noise)


def draw(parts: Sequence[Pieces], *, rate: Fraction, noise: Noise) -> int:
    """An integer of the disjoint ranges of `parts`, with probability exactly ∝ e^(rate·score)."""
    values = np.concatenate([part.values for part in parts]) if len(parts) > 1 else parts[0].values
    counts = np.concatenate([part.lengths for part in parts]) if len(parts) > 1 else parts[0].lengths
    index = noise.choose(values, rate=rate, counts=counts)
    within = noise.uniform(int(counts[index]))
    for part in parts:
        if index < len(part):
            break
        index -= len(part)
    return part.first + int(part.offsets[index]) + int(within)
