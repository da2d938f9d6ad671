"""A_dist, repaired: the best of many candidates, if it stands out."""

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
    """Return the index of the highest score if it leads the runner-up by enough, else None.

    The first of several equal scores counts as the highest. A single candidate is public and is returned as it is.

    Guarantee. (ε, δ)-differential privacy for a replaced row, ε > 0 and 0 < δ < 1.

    Why. The leader is released with probability π_⌈lead/2⌉, where the table π grows as fast as (ε, δ) allows from one
    entry to the next. The lead moves by at most 2. If neighbours have different leaders, both leads are at most 2, and
    each is released with probability at most δ. The proof, also for method="laplace", is in
    docs/mechanisms/stable_argmax.md.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm A_dist and Proposition 2.26 (after Smith and Thakurta). Repaired: it is printed with Lap(1/ε), as if the
    lead had sensitivity 1, and then has δ = 1 − e^(−ε/2) at ε, whatever δ was asked for. The release probabilities are
    the best possible ones (the recursion of Desfontaines, Voss, Gipson, Mandayam, *Differentially Private Partition
    Selection*).

    Parameters
    ----------
    scores : iterable of int, float or Fraction
        One score per candidate, moved by at most 1 when one row is replaced. A float is exactly the binary number that
        it stores.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    delta : int, float, Fraction or Decimal
        Failure probability δ of the guarantee, above 0.
    method : {"table", "laplace"}, default "table"
        "table" releases with the best possible probabilities. "laplace" releases if ⌊lead⌋ plus discrete Laplace noise
        reaches a threshold; it needs no table, so it also serves very small ε and δ.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int or None
        The index, and the event `ApproximateDP(epsilon, delta)`.

    Examples
    --------
    >>> stable_argmax([3, 99, 7], epsilon=1, delta=1e-6)
    Release(value=1, event=ApproximateDP(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """
    event = ApproximateDP(check_epsilon(epsilon), check_delta(delta, positive=True))
    if method not in ("table", "laplace"):
        raise ValueError(f'method must be "table" or "laplace", got {method!r}')
    # Built before the scores are read, so that its run time does not depend on them.
    rule = release_gap if method == "table" else _release_gap_laplace
    prepare = release_table if method == "table" else laplace_threshold
    prepare(epsilon=event.epsilon, delta=event.delta)
    leader, gap = _leader(scores)
    noise = noise_or_system(unsafe_noise)
    stands_out = gap is None or rule(gap, epsilon=event.epsilon, delta=event.delta, noise=noise)
    return release(leader if stands_out else None, event, unsafe_noise)


def release_gap(gap: int | Fraction, *, epsilon: Fraction, delta: Fraction, noise: Noise) -> bool:
    """Decide whether to release a leader that leads by `gap`: true with probability π_⌈gap/2⌉ of `release_table`."""
    entries, unit = release_table(epsilon=epsilon, delta=delta)
    index = min(-(-gap.numerator // (2 * gap.denominator)), len(entries) - 1)
    return noise.bernoulli(Fraction(entries[index], unit))


def _release_gap_laplace(gap: Fraction, *, epsilon: Fraction, delta: Fraction, noise: Noise) -> bool:
    threshold = laplace_threshold(epsilon=epsilon, delta=delta)
    return noise.laplace_cell(2 / epsilon, [threshold - math.floor(gap)]) == 1


@lru_cache(maxsize=16)
def release_table(*, epsilon: Fraction, delta: Fraction) -> tuple[tuple[int, ...], int]:
    """Return the release probabilities π_0, π_1, …, 1 as whole multiples of 1/unit: (entries, unit).

    Rounding keeps both inequalities of the proof: each entry is computed from the *rounded* one before it, with a lower
    bound on e^ε and an upper bound on e^−ε, and rounded down. It is within two units of the largest that is allowed. A
    step adds at least δ, so the table is monotone and has at most about 1/δ entries.
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
    """About how many entries lie below 1/2: π_k ≤ δ(e^(kε) − 1)/(e^ε − 1), solved for k."""
    ratio = epsilon / (2 * delta)
    if ratio < Fraction(1, 1000):
        return 1 / (2 * delta)
    return Fraction(math.log(ratio.numerator + ratio.denominator) - math.log(ratio.denominator)) / epsilon


def laplace_threshold(*, epsilon: Fraction, delta: Fraction) -> int:
    """Return the integer threshold 2 + ⌈(2/ε)·ln(1/(δ(1 + e^(−ε/2))))⌉ of `method="laplace"`."""
    return 2 + laplace_tail(rate=epsilon / 2, probability=delta)


def _leader(scores: Iterable[Any]) -> tuple[int, Fraction | None]:
    """The index of the first highest score, and its exact distance to the runner-up (None if it has no rival)."""
    values = exact_numbers(scores, "scores")
    leader = int(values.argmax())
    rivals = [_exact(part.max()) for part in (values[:leader], values[leader + 1 :]) if len(part)]
    return leader, _exact(values[leader]) - max(rivals) if rivals else None


def _exact(score: Any) -> Fraction:
    return Fraction(score if isinstance(score, (int, Fraction)) else score.item())
