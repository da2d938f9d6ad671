"""The private search for one side of a rectangle."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from reticent.concepts.domains import Domain
from reticent.concepts.order import Line
from reticent.data.points import Array
from reticent.learners.ranks import first_and_last, rank_type
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import SMALL, choose_depth, quasi_concave_maximum, required_promise
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, BoundedRange, Event, Repeated
from reticent.privacy.parameters import check_delta

ACCURACY = Fraction(999, 1000)  # a whole score of at least promise/1000 is at least 1, which is all that a side needs


class SideSearch(NamedTuple):
    """The search for one side.

    Parameters
    ----------
    depth : int
        The depth of the search.
    event : BoundedRange or ApproximateDP
        Its privacy.
    failure : Fraction
        The probability with which it may fail.
    promise : int
        The score that it needs some candidate to have.
    """

    depth: int
    event: BoundedRange | ApproximateDP
    failure: Fraction
    promise: int

    @property
    def cut(self) -> int:
        """The largest number of rows labelled 1 that a side cuts off if its search succeeds."""
        return 2 * self.promise - 2

    def run(self, scores: Pieces, unsafe_noise: Noise | None) -> int:
        """Run the search.

        Parameters
        ----------
        scores : Pieces
            The score of each end, from `side_scores`.
        unsafe_noise : Noise or None
            None draws from the operating system.

        Returns
        -------
        int
            The rank of the side, or the integer above all ranks for an empty rectangle.
        """
        return quasi_concave_maximum(
            scores,
            promise=self.promise,
            accuracy=ACCURACY,
            epsilon=self.event.epsilon,
            delta=getattr(self.event, "delta", 0),
            depth=self.depth,
            failure=self.failure,
            unsafe_noise=unsafe_noise,
        ).value


@lru_cache(maxsize=256)
def plan_side_search(
    size: int, *, sides: int, depth: int | Literal["auto"], epsilon: Fraction, delta: Fraction, failure: Fraction
) -> SideSearch:
    """Plan the search that needs the least promise, or the one of a given depth.

    Each side gets the largest ε with which all of them together are certified to fit (ε, δ). Searches of depth 1 leave
    all of δ to the composition; deeper ones use half of it themselves.

    Parameters
    ----------
    size : int
        The number of candidates for a side.
    sides : int
        The number of sides.
    depth : int or "auto"
        The depth of the search.
    epsilon, delta : Fraction
        The privacy of all searches together.
    failure : Fraction
        The probability with which one search may fail.
    """
    goal = {"accuracy": ACCURACY, "failure": failure}

    def search(depth: int, event: BoundedRange | ApproximateDP) -> SideSearch:
        own = {"epsilon": event.epsilon, "delta": getattr(event, "delta", 0)}
        return SideSearch(depth, event, failure, required_promise(size, depth=depth, **goal, **own))

    def largest(event_of: Callable[[Fraction], Event]) -> Fraction:
        if delta == 0:
            return epsilon / sides
        divisor = calibrate.noise(lambda x: Repeated(event_of(epsilon / x), sides), epsilon=epsilon, delta=delta)
        return epsilon / min(divisor, Fraction(sides))

    plain = search(1, BoundedRange(largest(BoundedRange)))
    if depth == 1 or size <= SMALL + 1 or (depth == "auto" and delta == 0):
        return plain
    share = check_delta(delta, positive=True) / (2 * sides)
    deeper = ApproximateDP(largest(lambda each: ApproximateDP(each, share)), share)
    if depth != "auto":
        return search(depth, deeper)
    best = choose_depth(size, epsilon=deeper.epsilon, delta=share, **goal)
    return min(plain, search(best, deeper), key=lambda found: found.promise) if best > 1 else plain


def side_scores(positives: Array, promise: int, domain: Domain) -> Pieces:
    """The score Q(a) = min(#{x ≤ a}, 2r − 1 − #{x < a}) of every lower end a, and 2r − 1 − #{x} of the empty side.

    Parameters
    ----------
    positives : array of int
        The ranks x of the rows labelled 1.
    promise : int
        r.
    domain : Domain
        The domain. The empty side is the integer above all its ranks.
    """
    first, last = first_and_last(domain)
    kind = rank_type(domain)
    line = Line(positives.astype(kind))
    ends = np.array([first, last + 1], dtype=kind)
    starts = np.unique(np.concatenate([ends, line.points, line.points + 1]))
    most = 2 * promise - 1
    scores = most - line.before(starts).astype(np.int64 if most < 1 << 62 else object)
    scores[:-1] = np.minimum(scores[:-1], line.before(starts[:-1], included=True))
    return Pieces.from_breakpoints(starts, scores, last=last + 1)
