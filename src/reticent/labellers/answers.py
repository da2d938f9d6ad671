"""How many answers a budget buys from each labeller, for known or guessed votes."""

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
    """Yield what (ε, δ) buys from a labeller, for each setting that is tried; some settings may lose more than `loss`.

    A labeller without other settings offers the most answers at which the expected share of right answers is at most
    `loss` below that of the noiseless majority. A declined question is neither an answer nor a loss.

    Parameters
    ----------
    labeller : str or type[Labeller]
        The labeller.
    ballots : Ballots
        The votes.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    loss : float or Fraction, default 0.01
        Largest acceptable loss.
    exact : bool, default True
        Whether to compute with all teachers. If not, many teachers may be replaced by fewer, as the number of answers
        grows with the square of the number of teachers.
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
    """Return the offer of `candidates` with the most answers at a loss of at most `loss`; 0 answers if none is."""
    kind = find(labeller).kind
    found = candidates(kind, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=exact)
    most = float(check_share(loss, "loss")) + 1e-12
    nothing = Bought(kind.name, 0, 0, stateless=kind.stateless)
    return max((each for each in found if each.loss <= most), key=lambda each: each.answers, default=nothing)


def automatic(classes: int, *, stateless: bool = False) -> list[type[Labeller]]:
    """Return the labellers that "auto" chooses from: stateless ones first, and no others if `stateless`."""
    found = [kind for kind in REGISTRY.values() if kind.is_automatic(classes) and (kind.stateless or not stateless)]
    return sorted(found, key=lambda kind: not kind.stateless)


def best(
    teachers: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    queries: int | None = None,
    disagreement: Number | None = None,
    loss: Number = 0.01,
    stateless: bool = False,
) -> Bought:
    """Return the labeller to use where nothing is known about the votes; it follows from public numbers alone.

    It is the labeller of `automatic` that buys the most answers if the votes are as `Ballots.guess` assumes. But if
    `queries` answers are enough, and a stateless labeller buys as many, it is that one: it spends its whole budget on
    them.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    classes : int, default 2
        Number of classes they vote on.
    queries : int or None, default None
        Number of answers that are enough, if it is known.
    disagreement : float, Fraction or None, default None
        Share of the questions on which teachers disagree; see `Ballots.guess`.
    loss : float or Fraction, default 0.01
        Largest acceptable loss against the noiseless majority.
    stateless : bool, default False
        Whether to leave out labellers with a memory.

    >>> best(1000, epsilon=1, delta=1e-6, queries=500).labeller
    'greedy'
    """
    ballots = Ballots.guess(teachers, classes=classes, disagreement=disagreement)
    wanted = 1 if queries is None else integer(queries, "queries", least=1)
    offers = []
    for kind in automatic(classes, stateless=stateless):
        offer = bought(kind, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=False)
        if queries is not None and kind.stateless and offer.answers >= wanted:
            return offer
        offers.append(offer)
    return max(offers, key=lambda offer: offer.answers)
