"""The best of many candidates, if it stands out: A_dist, repaired."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from reticent.exact import Number, exp_bounds
from reticent.mechanisms.counts import laplace_tail
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.noise.reading import exact_numbers
from reticent.privacy.events import ApproximateDP
from reticent.privacy.parameters import check_delta, check_epsilon

MOST_ENTRIES = 1 << 19  # a longer table would take seconds to build; only parameters like ε = 1e-6 need one


def stable_argmax(
    scores: Iterable[Any],
    *,
    epsilon: Number,
    delta: Number,
    method: Literal["table", "laplace"] = "table",
    unsafe_noise: Noise | None = None,
) -> Release[int | None]:
    """The index of the highest score if it leads the runner-up by enough, else None.

    Scores are exact numbers (integers of any size, fractions, floats read as the binary fractions they are) that
    move by at most 1 when one row is replaced. The first of several equal scores counts as the highest. A single
    candidate is public and is returned as it is.

    Guarantee. (ε, δ)-differential privacy for a replaced row, ε > 0 and 0 < δ < 1.

    Why. The leader h is released with probability π_⌈gap/2⌉, where π_0 = 0 and each next entry is the largest that
    keeps both π_{k+1} ≤ e^ε·π_k + δ and 1 − π_k ≤ e^ε·(1 − π_{k+1}) + δ. The gap moves by at most 2, for the top may
    fall by 1 while the runner-up rises by 1. If neighbours have the same leader, their indices ⌈gap/2⌉ differ by at
    most 1, and the two inequalities are what (ε, δ) asks of the outputs h and None. If the leaders h, h' differ, then
    the lead of h over h' before and that of h' over h after add up to at most 2, so both gaps are at most 2 and both
    are released with probability p, p' ≤ π_1 ≤ δ. The hockey-stick divergence is then at most p + max(0, p' − p) =
    max(p, p') ≤ δ. No rule that looks only at the gap can release more often at any positive gap: walk the gap down by
    twos until it is in (0, 2], where a neighbour may have another leader, which forces δ. The form "laplace" releases
    iff ⌊gap⌋ + Z ≥ 2 + k, Z discrete Laplace of ratio e^(−ε/2): the same leader costs e^ε since ⌊gap⌋ moves by at most
    2, and another leader is released with probability at most P(Z ≥ k) ≤ δ.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm A_dist and Proposition 2.26 (after Smith and Thakurta). Printed with Lap(1/ε), as if the gap had
    sensitivity 1; that has δ = 1 − e^(−ε/2) at ε, whatever δ was asked for. Repaired here, with the best possible
    release probabilities (the recursion of Desfontaines, Voss, Gipson, Mandayam, *Differentially Private Partition
    Selection*) by default.

    >>> stable_argmax([3, 99, 7], epsilon=1, delta=1e-6)
    Release(value=1, event=ApproximateDP(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """
    event = ApproximateDP(check_epsilon(epsilon), check_delta(delta, positive=True))
    if method not in ("table", "laplace"):
        raise ValueError(f'method must be "table" or "laplace", got {method!r}')
    # Built before the scores are read, so that the time it takes says nothing about them.
    rule = release_gap if method == "table" else _release_gap_laplace
    prepare = release_table if method == "table" else laplace_threshold
    prepare(epsilon=event.epsilon, delta=event.delta)
    leader, gap = _leader(scores)
    noise = noise_or_system(unsafe_noise)
    stands_out = gap is None or rule(gap, epsilon=event.epsilon, delta=event.delta, noise=noise)
    return release(leader if stands_out else None, event, unsafe_noise)


def release_gap(gap: int | Fraction, *, epsilon: Fraction, delta: Fraction, noise: Noise) -> bool:
    """Whether to release a leader whose score exceeds the runner-up's by `gap`: true with probability π_⌈gap/2⌉."""
    entries, unit = release_table(epsilon=epsilon, delta=delta)
    index = min(math.ceil(Fraction(gap) / 2), len(entries) - 1)
    return noise.bernoulli(Fraction(entries[index], unit))


def _release_gap_laplace(gap: Fraction, *, epsilon: Fraction, delta: Fraction, noise: Noise) -> bool:
    threshold = laplace_threshold(epsilon=epsilon, delta=delta)
    return noise.laplace_cell(2 / epsilon, [threshold - math.floor(gap)]) == 1


@lru_cache(maxsize=16)
def release_table(*, epsilon: Fraction, delta: Fraction) -> tuple[tuple[int, ...], int]:
    """The release probabilities π_0, π_1, …, 1 as whole multiples of 1/unit; returns (entries, unit).

    Rounding keeps both inequalities: each entry is computed from the *rounded* one before it, with a lower bound on
    e^ε, an upper bound on e^−ε, and the result rounded down; so it satisfies them as it stands, and is within two
    units of the largest that does. A step adds at least δ, which both inequalities always allow: the table is
    monotone (what the opposite directions need) and ends after about 1/δ entries at most.
    """
    if _half_of_the_entries(epsilon, delta) > MOST_ENTRIES // 2:
        raise ValueError(
            f"epsilon={float(epsilon):g} and delta={float(delta):g} need a table of more than {MOST_ENTRIES} entries: "
            'raise one of them, or use method="laplace"'
        )
    bits = 128 + (-(-delta.denominator // delta.numerator)).bit_length()  # δ itself keeps 128 significant bits
    unit = 1 << bits
    precision = bits + 64
    # Where e^ε exceeds 1/δ its size no longer matters: the cap loosens both bounds, in the safe direction.
    capped = min(epsilon, Fraction(bits))
    up, _, up_exponent = exp_bounds(capped, precision)
    _, down, down_exponent = exp_bounds(-capped, precision)
    step = delta.numerator * unit // delta.denominator
    entries = [0]
    while entries[-1] < unit:
        entry = entries[-1]
        grow = (entry * up << up_exponent >> precision) + step
        shrink = unit - (-(-max(0, unit - entry - step) * down >> precision - down_exponent))
        entries.append(min(unit, max(entry + step, min(grow, shrink))))
    return tuple(entries), unit


def _half_of_the_entries(epsilon: Fraction, delta: Fraction) -> Fraction:
    """About how many entries lie below 1/2: π_k ≤ δ(e^(kε) − 1)/(e^ε − 1), which is solved for k."""
    ratio = epsilon / (2 * delta)
    if ratio < Fraction(1, 1000):
        return 1 / (2 * delta)
    return Fraction(math.log(ratio.numerator + ratio.denominator) - math.log(ratio.denominator)) / epsilon


def laplace_threshold(*, epsilon: Fraction, delta: Fraction) -> int:
    """The integer threshold 2 + ⌈(2/ε)·ln(1/(δ(1 + e^(−ε/2))))⌉ of `method="laplace"`."""
    return 2 + laplace_tail(rate=epsilon / 2, probability=delta)


def _leader(scores: Iterable[Any]) -> tuple[int, Fraction | None]:
    """The index of the first highest score, and its exact distance to the runner-up (None if it has no rival)."""
    values = exact_numbers(scores, "scores")
    leader = int(values.argmax())
    rivals = [_exact(part.max()) for part in (values[:leader], values[leader + 1 :]) if len(part)]
    return leader, _exact(values[leader]) - max(rivals) if rivals else None


def _exact(score: Any) -> Fraction:
    return Fraction(score if isinstance(score, (int, Fraction)) else score.item())
