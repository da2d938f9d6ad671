"""How many answers each labeller buys, for votes that are known or guessed."""

from __future__ import annotations

from collections.abc import Iterator

from reticent.exact import Number, integer
from reticent.labellers.ballots import Ballots, Bought
from reticent.labellers.base import Labeller
from reticent.labellers.budget import check_budget
from reticent.labellers.registry import REGISTRY, find
from reticent.promises import check_share


def candidates(
    labeller: str | type[Labeller],
    ballots: Ballots,
    *,
    epsilon: Number,
    delta: Number,
    loss: Number = 0.01,
    exact: bool = True,
) -> Iterator[Bought]:
    """What a labeller buys within (ε, δ), for each setting that is tried; some may lose more than `loss`.

    Labellers with nothing to set but the number of answers give the most for which the expected share of right answers
    is at most `loss` below that of the noiseless majority. A declined question is neither an answer nor a loss. Without
    `exact`, many teachers are replaced by fewer; answers grow with the square of their number.
    """
    exact_epsilon, exact_delta, _ = check_budget(epsilon, delta)
    most = float(check_share(loss, "loss"))
    yield from find(labeller).kind.offers(ballots, epsilon=exact_epsilon, delta=exact_delta, loss=most, exact=exact)


def bought(
    labeller: str | type[Labeller],
    ballots: Ballots,
    *,
    epsilon: Number,
    delta: Number,
    loss: Number = 0.01,
    exact: bool = True,
) -> Bought:
    """The most answers that a labeller buys within (ε, δ) at no more than this loss; 0 if none."""
    kind = find(labeller).kind
    found = candidates(kind, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=exact)
    most = float(check_share(loss, "loss")) + 1e-12
    nothing = Bought(kind.name, 0, 0, stateless=kind.stateless)
    return max((each for each in found if each.loss <= most), key=lambda each: each.answers, default=nothing)


def automatic(classes: int, *, stateless: bool = False) -> list[type[Labeller]]:
    """The labellers that "auto" chooses from: those without a memory first, and no others if `stateless`."""
    found = [kind for kind in REGISTRY.values() if kind.is_automatic(classes) and (kind.stateless or not stateless)]
    return sorted(found, key=lambda kind: not kind.stateless)


def best(
    teachers: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    queries: int | None = None,
    torn: object = None,
    loss: Number = 0.01,
    stateless: bool = False,
) -> Bought:
    """The labeller to take where nothing is known of the votes, from public numbers alone.

    Of `automatic`, the one that buys the most answers at a loss of at most `loss`, if the votes are as `Ballots.guess`
    has them. Where `queries` answers are enough, and one without a memory, which spends its budget on exactly these,
    buys as many, it is taken. `stateless` leaves out labellers with a memory.

    >>> best(1000, epsilon=1, delta=1e-6, queries=500).labeller
    'greedy'
    """
    ballots = Ballots.guess(teachers, classes=classes, torn=torn)
    wanted = 1 if queries is None else integer(queries, "queries", least=1)
    offers = []
    for kind in automatic(classes, stateless=stateless):
        offer = bought(kind, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=False)
        if queries is not None and kind.stateless and offer.answers >= wanted:
            return offer
        offers.append(offer)
    return max(offers, key=lambda offer: offer.answers)
