"""An event as a bag of parts: the compositions taken apart, the groups worked into each part.

Composition is commutative as far as the price goes, so a tree of `Composed` and `Repeated` is a bag of parts with
counts. A group of k rows sees a composition as the composition of what it sees of each part, so `Grouped` moves down to
the parts, where it often has a closed form (a sensitivity times k, an ε times k).
"""

from __future__ import annotations

from functools import lru_cache

from reticent.privacy.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    GaussianBit,
    Grouped,
    Parallel,
    PureDP,
    Repeated,
    Seeded,
    SparseVector,
    Subsampled,
)

Parts = tuple[tuple[Event, int], ...]


@lru_cache(maxsize=4096)
def parts(event: Event) -> Parts:
    """The parts of `event` and how often each occurs.

    A part is a single release, or a `Subsampled`, `Parallel` or `Grouped` event that cannot be taken further apart.

    >>> parts(Composed((Repeated(PureDP(1), 3), Grouped(PureDP(1), 2))))
    ((PureDP(epsilon=Fraction(1, 1)), 3), (PureDP(epsilon=Fraction(2, 1)), 1))
    """
    counts: dict[Event, int] = {}
    _collect(event, 1, 1, counts)
    return tuple(counts.items())


def _collect(event: Event, times: int, size: int, counts: dict[Event, int]) -> None:
    match event:
        case Seeded(event=inner):
            _collect(inner, times, size, counts)
        case Composed(events=members):
            for member in members:
                _collect(member, times, size, counts)
        case Repeated(event=inner, times=more):
            _collect(inner, times * more, size, counts)
        case Grouped(event=inner, size=more):
            _collect(inner, times, size * more, counts)
        case _:
            part = event if size == 1 else _seen_by_group(event, size)
            counts[part] = counts.get(part, 0) + times


def _seen_by_group(event: Event, size: int) -> Event:  # noqa: PLR0911 (a case an event)
    """A single release as a group of `size` rows sees it: a walk of `size` steps from neighbour to neighbour."""
    match event:
        case PureDP(epsilon=epsilon):
            return PureDP(size * epsilon)
        case BoundedRange(epsilon=epsilon):  # the losses of the steps add up, and so do the lengths of their intervals
            return BoundedRange(size * epsilon)
        case ZCDP(rho=rho):  # Bun and Steinke 2016, Proposition 1.9
            return ZCDP(size**2 * rho)
        case Gaussian(sigma=sigma, squared_sensitivity=square):
            return Gaussian(sigma, size**2 * square)
        case DiscreteGaussian(sigma=sigma, squared_sensitivity=square):
            return DiscreteGaussian(sigma, size**2 * square)
        case GaussianBit(sigma=sigma):  # the count moves by up to `size`; the bit is post-processing of the noisy count
            return DiscreteGaussian(sigma, size**2)
        case SparseVector(epsilon=epsilon, halts=halts, delta=delta) if delta == 0:
            return SparseVector(size * epsilon, halts)
    return Grouped(event, size)


def ungrouped(event: Event) -> tuple[Event, int]:
    """The event without its `Grouped`, and the largest group that any part of it was seen by."""
    match event:
        case Grouped(event=inner, size=size):
            bare, more = ungrouped(inner)
            return bare, size * more
        case Repeated(event=inner, times=times):
            bare, size = ungrouped(inner)
            return Repeated(bare, times), size
        case Subsampled(event=inner, rate=rate):
            bare, size = ungrouped(inner)
            return Subsampled(bare, rate), size
        case Seeded(event=inner):
            return ungrouped(inner)
        case Composed(events=members) | Parallel(events=members):
            pairs = [ungrouped(member) for member in members]
            return type(event)(tuple(bare for bare, _ in pairs)), max(size for _, size in pairs)
    return event, 1


def other_reading(event: Subsampled) -> Event | None:
    """Where groups sit inside a sample, the reading under which rows, not whole groups, were sampled.

    `Subsampled(Grouped(e, k), q)` may mean that whole groups were drawn (then the group's view of e is amplified) or
    that rows were drawn, of which a group holds any number (then the sampled mechanism is seen by a group). Neither
    price bounds the other, so accountants charge the larger.
    """
    bare, size = ungrouped(event.event)
    return Grouped(Subsampled(bare, event.rate), size) if size > 1 else None
