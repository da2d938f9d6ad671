"""Events as bags of parts: compositions are taken apart, and groups are applied to each part.

The price of a composition does not depend on the order, so a tree of `Composed` and `Repeated` is a bag of parts with
counts. A group of k rows sees a composition as the composition of what it sees of each part. So `Grouped` moves down to
the parts, where it often has a closed form (a sensitivity times k, an ε times k).
"""

from __future__ import annotations

from functools import lru_cache

from reticent.privacy import events
from reticent.privacy.events import Event

Parts = tuple[tuple[Event, int], ...]


@lru_cache(maxsize=4096)
def parts(event: Event) -> Parts:
    """Return the parts of `event` and how often each occurs.

    A part is a single release, or a `Subsampled`, `Parallel` or `Grouped` event that cannot be taken apart further.

    >>> from reticent.privacy.events import Composed, Grouped, PureDP, Repeated
    >>> parts(Composed((Repeated(PureDP(1), 3), Grouped(PureDP(1), 2))))
    ((PureDP(epsilon=Fraction(1, 1)), 3), (PureDP(epsilon=Fraction(2, 1)), 1))
    """
    counts: dict[Event, int] = {}
    _collect(event, 1, 1, counts)
    return tuple(counts.items())


def _collect(event: Event, times: int, size: int, counts: dict[Event, int]) -> None:
    match event:
        case events.SeededRelease(event=inner):
            _collect(inner, times, size, counts)
        case events.Composed(events=members):
            for member in members:
                _collect(member, times, size, counts)
        case events.Repeated(event=inner, times=more):
            _collect(inner, times * more, size, counts)
        case events.Grouped(event=inner, size=more):
            _collect(inner, times, size * more, counts)
        case _:
            part = event if size == 1 else _seen_by_group(event, size)
            counts[part] = counts.get(part, 0) + times


def _seen_by_group(event: Event, size: int) -> Event:  # noqa: PLR0911 (one case per event)
    """A single release as a group of `size` rows sees it: a walk of `size` steps from neighbour to neighbour."""
    match event:
        case events.PureDP(epsilon=epsilon):
            return events.PureDP(size * epsilon)
        case events.BoundedRange(epsilon=epsilon):
            # The losses of the steps add up, and so do the lengths of their intervals.
            return events.BoundedRange(size * epsilon)
        case events.ZCDP(rho=rho):  # Bun and Steinke 2016, Proposition 1.9
            return events.ZCDP(size**2 * rho)
        case events.ContinuousGaussian(sigma=sigma, squared_sensitivity=square):
            return events.ContinuousGaussian(sigma, size**2 * square)
        case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=square):
            return events.DiscreteGaussian(sigma, size**2 * square)
        case events.GaussianBit(sigma=sigma):
            # The count moves by up to `size`, and the bit is post-processing of the noisy count.
            return events.DiscreteGaussian(sigma, size**2)
        case events.SparseVectorRun(epsilon=epsilon, halts=halts, delta=delta) if delta == 0:
            return events.SparseVectorRun(size * epsilon, halts)
    return events.Grouped(event, size)


def ungrouped(event: Event) -> tuple[Event, int]:
    """Return the event without its `Grouped`, and the largest group size of any part."""
    match event:
        case events.Grouped(event=inner, size=size):
            bare, more = ungrouped(inner)
            return bare, size * more
        case events.Repeated(event=inner, times=times):
            bare, size = ungrouped(inner)
            return events.Repeated(bare, times), size
        case events.Subsampled(event=inner, rate=rate):
            bare, size = ungrouped(inner)
            return events.Subsampled(bare, rate), size
        case events.SeededRelease(event=inner):
            return ungrouped(inner)
        case events.Composed(events=members) | events.Parallel(events=members):
            pairs = [ungrouped(member) for member in members]
            return type(event)(tuple(bare for bare, _ in pairs)), max(size for _, size in pairs)
    return event, 1


def other_reading(event: events.Subsampled) -> Event | None:
    """Return the second reading of a sample that contains groups: rows, not whole groups, were sampled.

    `Subsampled(Grouped(e, k), q)` may mean that whole groups were drawn (then the group's view of e is amplified) or
    that rows were drawn, of which a group has any number (then a group sees the sampled mechanism). Neither price
    bounds the other, so accountants charge the larger. None if the sample contains no groups.
    """
    bare, size = ungrouped(event.event)
    return events.Grouped(events.Subsampled(bare, event.rate), size) if size > 1 else None
