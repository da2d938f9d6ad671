"""The exponential mechanism with its exact law, over a list of candidates or over up to 2^(10^6) integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.exact import Number
from reticent.mechanisms.pieces import Pieces, check_pieces
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.noise.reading import exact_numbers
from reticent.privacy.events import BoundedRange
from reticent.privacy.parameters import check_epsilon


def exponential(scores: Iterable[Any], *, epsilon: Number, unsafe_noise: Noise | None = None) -> Release[int]:
    """Draw the index of a candidate with probability ∝ e^(ε·score/2).

    With probability 1 − β, the score of the answer is within (2/ε)·ln(candidates/β) of the best.

    Guarantee. ε-differential privacy for a replaced row; more precisely a privacy loss of bounded range ε, which is
    also (ε²/8)-zCDP. The number of candidates is public.

    Why. The privacy loss of an outcome is (ε/2)·(change of its score) plus a term that is the same for all outcomes, so
    all losses lie in one interval of length ε, which contains 0. No weight is rounded. The proof is in
    docs/mechanisms/exponential.md.

    Source. McSherry and Talwar, *Mechanism Design via Differential Privacy*; bounded range: Durfee and Rogers,
    *Practical Differentially Private Top-k Selection*; zCDP: Cesar and Rogers, *Bounding, Concentrating, and
    Truncating*. As restated by Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate
    Differential Privacy*, Proposition 2.25, and *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 5
    and Proposition A.1. Repaired: floating-point weights, which most implementations use, do not have this law.

    Parameters
    ----------
    scores : iterable of int, float or Fraction
        One score per candidate. Integers may have any size; a float is exactly the binary number that it stores.
        Replacing one row must move every score by at most 1: divide scores of another sensitivity by it.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int
        The index, and the event `BoundedRange(epsilon)`.

    Examples
    --------
    >>> exponential([3, 0, 500, -1e300], epsilon=1)
    Release(value=2, event=BoundedRange(epsilon=Fraction(1, 1)))
    """
    event = BoundedRange(check_epsilon(epsilon))
    numbers = exact_numbers(scores, "scores")
    return release(noise_or_system(unsafe_noise).choose(numbers, rate=event.epsilon / 2), event, unsafe_noise)


def exponential_over_pieces(pieces: Pieces, *, epsilon: Number, unsafe_noise: Noise | None = None) -> Release[int]:
    """Draw an integer from the range of `pieces` with probability ∝ e^(ε·score/2).

    The time depends on the number of pieces and the width of their ends, not on the number of integers: a piece is
    drawn with probability ∝ its length times e^(ε·score/2), then a uniform integer from it.

    Guarantee. ε-differential privacy for a replaced row, with a privacy loss of bounded range ε, provided that
    replacing a row moves the score of every integer by at most 1. The range is public. Where the pieces begin and end
    is not, and may differ between neighbours in any way.

    Why. An integer in a piece of length n is drawn with probability ∝ n·e^(ε·score/2)·(1/n). So the law is that of
    `exponential` over all integers of the range, whose proof applies.

    Source. McSherry and Talwar, *Mechanism Design via Differential Privacy*. Repaired: as in `exponential`.

    Parameters
    ----------
    pieces : Pieces
        The score of each integer of the range.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int
        The integer, and the event `BoundedRange(epsilon)`.

    Examples
    --------
    >>> score = Pieces.from_triples([(0, 2**1000, 0), (2**1000 + 1, 2**1000 + 2**900, 300)])
    >>> exponential_over_pieces(score, epsilon=1).value > 2**1000
    True
    """
    event = BoundedRange(check_epsilon(epsilon))
    check_pieces(pieces)
    noise = noise_or_system(unsafe_noise)
    return release(draw_integer([pieces], rate=event.epsilon / 2, noise=noise), event, unsafe_noise)


def draw_integer(parts: Sequence[Pieces], *, rate: Fraction, noise: Noise) -> int:
    """Draw an integer from the disjoint ranges of `parts`, with probability exactly ∝ e^(rate·score).

    Parameters
    ----------
    parts : sequence of Pieces
        Scores on disjoint ranges.
    rate : Fraction
        The factor of the scores.
    noise : Noise
        The source of randomness.
    """
    values = np.concatenate([part.values for part in parts]) if len(parts) > 1 else parts[0].values
    counts = np.concatenate([part.lengths for part in parts]) if len(parts) > 1 else parts[0].lengths
    index = noise.choose(values, rate=rate, counts=counts)
    within = noise.uniform(int(counts[index]))
    for part in parts:
        if index < len(part):
            break
        index -= len(part)
    return part.first + int(part.offsets[index]) + int(within)
