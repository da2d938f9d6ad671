"""How many answers each labeller buys, for votes that are known or guessed."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from reticent.exact import integer
from reticent.labellers.base import Labels, Votes
from reticent.labellers.budget import best_order, check_budget, spendable
from reticent.labellers.classic import SparseVector
from reticent.labellers.poll import poll_table
from reticent.labellers.stateless import Greedy, Poll
from reticent.labellers.table import MOST_TEACHERS
from reticent.labellers.two_coin import TwoCoin, bought_hits
from reticent.mechanisms.above_threshold import split
from reticent.mechanisms.sparse_vector import stability
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import BoundedRange, DiscreteGaussian, Event, GaussianBit, Repeated
from reticent.privacy.events import Gaussian as GaussianNoise
from reticent.promises import check_share

Floats = NDArray[np.float64]

# What is tried for labellers that have more to set than a number of answers: fixed here, before any votes are seen.
STEEPNESS = (5, 6, 7, 8, 10, 12, 15, 20)
TRIES = (2, 3)
POLLS = (3, 5, 7, 11, 17, 31)
FLIPS = (0.001, 0.005, 0.01)
HALTS = (1, 10, 50, 200)

TORN = 0.1  # the share of the questions that teachers are guessed to be torn on
FEWEST_HITS = 50  # a two-coin labeller with fewer closes after a number of answers that nobody could plan with
STEP = 1.01  # answers are looked for among the powers of this
WIDEST = 2000  # teachers beyond which a guess need not be finer
FURTHEST = 10**15  # answers, as good as without end; none are looked for beyond
_LAST = math.floor(math.log(FURTHEST, STEP))  # the power of `STEP` that gives about so many

TWO_CLASSES = ("greedy", "poll", "two-coin", "gaussian", "bit", "gumbel", "confident", "sparse-vector")
MORE_CLASSES = ("two-coin", "gumbel", "gnmax", "confident", "sparse-vector")
AUTO_TWO, AUTO_MORE = ("greedy", "two-coin"), ("gumbel", "gnmax", "two-coin")  # these answer whatever is asked
STATELESS = frozenset({"greedy", "poll", "gaussian", "bit", "gumbel", "gnmax"})


@dataclass(frozen=True)
class Ballots:
    """Votes on some questions, a row each with the votes for every class, the right classes, and how often they come.

    For planning by what is public or guessed, or for measuring where votes may be seen. Nothing made of the votes of
    private teachers is private.
    """

    counts: Votes
    truth: Labels
    weights: Floats

    @classmethod
    def of(cls, counts: Votes, truth: Labels) -> Ballots:
        """Ballots in which every question comes once; equal ones are put together."""
        rows, times = np.unique(np.column_stack([counts, truth]), axis=0, return_counts=True)
        return cls(rows[:, :-1], rows[:, -1], times / times.sum())

    @classmethod
    def guess(cls, teachers: int, *, classes: int = 2, torn: object = None, margins: object = None) -> Ballots:
        """Ballots from a guess of how far ahead the winner is, as a share of the teachers; it is the right class.

        All teachers agree but on a share `torn` of the questions, a tenth by default, where every lead is equally
        likely; or the leads are those given as `margins`, numbers from 0 to 1. The runner-up has all other votes.
        """
        if torn is not None and margins is not None:
            raise ValueError(f"torn={torn} must be left out where margins are given: they say how far teachers agree")
        count, columns = integer(teachers, "teachers", least=1), integer(classes, "classes", least=2)
        if margins is None:
            share = float(check_share(TORN if torn is None else torn, "torn"))
            leads = np.append((np.arange(200) + 0.5) / 200, 1.0)
            weights = np.append(np.full(200, share / 200), 1 - share)
        else:
            leads = _read_margins(margins)
            weights = np.full(len(leads), 1 / len(leads))
        counts = np.zeros((len(leads), columns), dtype=np.int64)
        counts[:, 1] = np.rint((1 + leads) / 2 * count)
        counts[:, 0] = count - counts[:, 1]
        return cls(counts, np.ones(len(leads), dtype=np.int64), weights)

    @property
    def teachers(self) -> int:
        """How many vote."""
        return int(self.counts[0].sum())

    @property
    def classes(self) -> int:
        """On how many classes."""
        return int(self.counts.shape[1])

    @cached_property
    def leads(self) -> NDArray[np.int64]:
        """Votes for the right class less the votes for each of the others."""
        rows = np.arange(len(self.truth))
        others = np.ones(self.counts.shape, dtype=bool)
        others[rows, self.truth] = False
        against = self.counts[others].reshape(len(rows), -1)
        return np.asarray(self.counts[rows, self.truth][:, None] - against)

    @cached_property
    def majority(self) -> float:
        """How often the noiseless majority is right, a tie counting half."""
        closest = self.leads.min(axis=1)
        return self.mean((closest > 0) + 0.5 * (closest == 0))

    def mean(self, values: Any) -> float:
        """The mean over the questions."""
        return float(self.weights @ np.asarray(values, dtype=np.float64))

    def loss(self, right: Any) -> float:
        """By how much an expected share of right answers is below that of the noiseless majority."""
        return self.majority - self.mean(right)

    def coarse(self) -> tuple[Ballots, float]:
        """At most `WIDEST` teachers with about the same shares of votes, and by which factor there are fewer."""
        if self.teachers <= WIDEST:
            return self, 1.0
        factor = self.teachers / WIDEST
        counts = np.rint(self.counts / factor).astype(np.int64)
        counts[:, 0] += WIDEST - counts.sum(axis=1)
        return Ballots(counts, self.truth, self.weights), factor


@dataclass(frozen=True)
class Bought:
    """What a labeller buys: so many answers, an expected number where none is set, at this loss; and how it is made."""

    labeller: str
    answers: int
    loss: float
    options: dict[str, Any] = field(default_factory=dict)  # for `labellers.make`

    @property
    def stateless(self) -> bool:
        """Whether nothing of a question shows in the answers to others."""
        return self.labeller in STATELESS


def candidates(
    name: str, ballots: Ballots, *, epsilon: object, delta: object, loss: object = 0.01, exact: bool = True
) -> Iterator[Bought]:
    """What a labeller buys within (ε, δ), for each way to set it up; some may lose more than `loss`.

    Labellers with nothing to set but the number of answers give the most for which the expected share of right answers
    is at most `loss` below that of the noiseless majority. A question that is declined is neither an answer nor a loss.
    Without `exact`, many teachers are taken for fewer; answers grow with the square of their number.
    """
    exact_epsilon, exact_delta, _ = check_budget(epsilon, delta)
    most = float(check_share(loss, "loss"))
    yield from _KINDS[name](ballots, exact_epsilon, exact_delta, most, exact)


def bought(
    name: str, ballots: Ballots, *, epsilon: object, delta: object, loss: object = 0.01, exact: bool = True
) -> Bought:
    """The most answers that a labeller buys within (ε, δ) at no more than this loss; 0 if none."""
    found = candidates(name, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=exact)
    most = float(check_share(loss, "loss")) + 1e-12
    return max((each for each in found if each.loss <= most), key=lambda each: each.answers, default=Bought(name, 0, 0))


def best(
    teachers: int,
    *,
    epsilon: object,
    delta: object,
    classes: int = 2,
    queries: int | None = None,
    torn: object = None,
    loss: object = 0.01,
    stateless: bool = False,
) -> Bought:
    """The labeller to take where nothing is known of the votes, from public numbers alone.

    Of "greedy" and "two-coin", with more than two classes "gumbel", "gnmax" and "two-coin", the one that buys the most
    answers at a loss of at most `loss`, if the votes are as `Ballots.guess` has them. Where `queries` answers are
    enough and one without a state, which spends its budget on just these, buys so many, it is taken. `stateless`
    leaves out those that remember.

    >>> best(1000, epsilon=1, delta=1e-6, queries=500).labeller
    'greedy'
    """
    ballots = Ballots.guess(teachers, classes=classes, torn=torn)
    wanted = 1 if queries is None else integer(queries, "queries", least=1)
    offers = []
    for name in AUTO_TWO if classes == 2 else AUTO_MORE:
        if stateless and name not in STATELESS:
            continue
        offer = bought(name, ballots, epsilon=epsilon, delta=delta, loss=loss, exact=False)
        if queries is not None and name in STATELESS and offer.answers >= wanted:
            return offer
        offers.append(offer)
    return max(offers, key=lambda offer: offer.answers)


def _read_margins(margins: object) -> Floats:
    wanted = "margins must be numbers from 0 to 1, leads as shares of the teachers, and at least one"
    try:
        leads = np.atleast_1d(np.asarray(margins, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {reprlib.repr(margins)}") from None
    wrong = leads[~((leads >= 0) & (leads <= 1))]
    if leads.size == 0 or wrong.size:
        raise ValueError(f"{wanted}, got {wrong[0] if wrong.size else 'none'}")
    return leads


# ── one by one ────────────────────────────────────────────────────────────────────────────────────────────────────


def _greedy(
    ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool
) -> Iterator[Bought]:
    small, factor = (ballots, 1.0) if exact else ballots.coarse()
    if spendable(epsilon, delta, best_order(epsilon, delta)) is None:  # not a single answer fits
        return

    def loss(power: int) -> float:
        table = _greedy_chances(small.teachers, epsilon, delta, max(1, round(STEP**power)))
        ones = table[small.counts[:, 1]]
        return small.loss(np.where(small.truth == 1, ones, 1 - ones))

    fair = small.loss(np.full(len(small.truth), 0.5))  # what ever more answers come to
    if fair <= most:
        yield Bought("greedy", FURTHEST, fair)
        return
    # The Gaussian's answers are close enough to start from; a coarse start lets like ballots share their tables.
    start, step = next(_gaussian(small, epsilon, delta, most, exact)).answers, 64
    low = high = math.floor(math.log(max(start, 1), STEP)) // step * step
    while low > 0 and loss(low) > most:
        low, high = max(0, low - step), low
    while high < _LAST and loss(high) <= most:
        low, high = high, min(high + step, _LAST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if loss(middle) <= most else (low, middle)
    yield Bought("greedy", min(FURTHEST, int(max(1, round(STEP**low)) * factor**2)), loss(low))


@lru_cache(maxsize=256)
def _greedy_chances(teachers: int, epsilon: Fraction, delta: Fraction, answers: int) -> Floats:
    return Greedy(teachers=teachers, epsilon=epsilon, delta=delta, answers=answers).table.probabilities


def _poll(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    if ballots.teachers > MOST_TEACHERS:
        return
    for size in POLLS:
        for flip in FLIPS:
            ones = poll_table(ballots.teachers, poll=size, flip=flip).probabilities[ballots.counts[:, 1]]
            loss = ballots.loss(np.where(ballots.truth == 1, ones, 1 - ones))
            try:
                labeller = Poll(teachers=ballots.teachers, epsilon=epsilon, delta=delta, poll=size, flip=flip)
            except ValueError:  # not a single answer fits
                continue
            yield Bought("poll", labeller.answers or 0, loss, {"poll": size, "flip": flip})


def _two_coin(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    shape: dict[str, Any] = {"teachers": ballots.teachers, "classes": ballots.classes}
    if ballots.classes == 2 and ballots.teachers > MOST_TEACHERS:
        return
    for steepness in STEEPNESS:
        if bought_hits(epsilon, delta, **shape, steepness=Fraction(steepness)).number < FEWEST_HITS:
            continue
        for tries in TRIES:
            options: dict[str, Any] = {"steepness": steepness, "tries": tries}
            labeller = TwoCoin(**shape, epsilon=epsilon, delta=delta, **options)
            chances, hits = labeller.chances(ballots.counts)
            right = chances[np.arange(len(chances)), ballots.truth]
            answers = min(FURTHEST, (labeller.hits - tries) / max(ballots.mean(hits), 1e-300))
            yield Bought("two-coin", int(answers), ballots.loss(right), options)


def _gaussian(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    sigma, loss = _widest(ballots, lambda sigma: _majority_right(ballots, sigma), most)
    yield Bought("gaussian", _repeats(DiscreteGaussian, sigma, epsilon, delta), loss)


def _bit(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    """From what the noisy count buys to π/2 times as much, which is the most that a bit gains."""
    sigma, loss = _widest(ballots, lambda sigma: _majority_right(ballots, sigma), most)
    start = _repeats(DiscreteGaussian, sigma, epsilon, delta)

    def fits(power: int) -> bool:
        answers = math.floor(start * STEP**power)
        event = GaussianBit(_short(sigma), ballots.teachers)
        return accounting.fits(Repeated(event, answers), epsilon=epsilon, delta=delta)

    low, high = 0, math.ceil(math.log(math.pi / 2, STEP)) + 1
    while 0 < start < FURTHEST and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    yield Bought("bit", min(FURTHEST, math.floor(start * STEP**low)), loss)


def _gnmax(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    sigma, loss = _widest(ballots, lambda sigma: _winner_right(ballots, sigma), most)
    answers = _repeats(_two_counts, sigma, epsilon, delta, math.sqrt(2))
    yield Bought("gnmax", answers, loss)


def _gumbel(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    def right(scale: float) -> Floats:
        return np.asarray(1 / (1 + np.exp(np.minimum(-ballots.leads / scale, 700.0)).sum(axis=1)))

    scale, loss = _widest(ballots, right, most)
    yield Bought("gumbel", _repeats(_bounded_range, scale, epsilon, delta), loss)


def _confident(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    """With its usual threshold and share of the budget for the tests: the most questions whose answers lose little."""
    sigma = float(_single_noise(epsilon, delta))
    ahead = ballots.counts.max(axis=1) - 3 * ballots.teachers // 4

    def answered(questions: float) -> tuple[float, float]:
        """How many of the questions are answered, and the loss on these."""
        passes = norm.cdf(ahead / (2 * sigma * math.sqrt(questions)))
        share = max(ballots.mean(passes), 1e-12)
        spread = sigma * math.sqrt(2 * max(1.0, questions * share) / 0.75)
        closest = ballots.leads.min(axis=1)
        lost = passes * ((closest > 0) + 0.5 * (closest == 0) - _winner_right(ballots, spread))
        return questions * share, ballots.mean(lost) / share

    low, high = 0, _LAST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if answered(STEP**middle)[1] <= most else (low, middle)
    answers, loss = answered(STEP**low)
    count, questions = int(answers), math.floor(STEP**low)
    yield Bought("confident", count if loss <= most else 0, min(loss, most), {"questions": questions})


def _sparse_vector(ballots: Ballots, epsilon: Fraction, delta: Fraction, most: float, exact: bool) -> Iterator[Bought]:
    """Answers until the halts are used up; what is answered is the noiseless majority."""
    distances = np.array([stability(row)[1] for row in ballots.counts])
    for halts in HALTS:
        run = SparseVector(teachers=ballots.teachers, epsilon=epsilon, delta=delta, halts=halts)._run
        slow, fast = sorted(float(rate) for rate in split(run.event.epsilon))  # type: ignore[attr-defined]
        halting = ballots.mean(_difference_tail(distances - run.width, fast, slow))
        yield Bought("sparse-vector", int(min(FURTHEST, halts * (1 - halting) / halting)), 0.0, {"halts": halts})


_KINDS: dict[str, Callable[[Ballots, Fraction, Fraction, float, bool], Iterator[Bought]]] = {
    "greedy": _greedy,
    "poll": _poll,
    "two-coin": _two_coin,
    "gaussian": _gaussian,
    "bit": _bit,
    "gnmax": _gnmax,
    "gumbel": _gumbel,
    "confident": _confident,
    "sparse-vector": _sparse_vector,
}


def _two_counts(sigma: Fraction) -> Event:
    return DiscreteGaussian(sigma, 2)


def _bounded_range(scale: Fraction) -> Event:
    return BoundedRange(2 / scale)


@lru_cache(maxsize=256)
def _repeats(
    event_of: Callable[[Fraction], Event], scale: float, epsilon: Fraction, delta: Fraction, ratio: float = 1.0
) -> int:
    """How often an event about as costly as a count with Gaussian noise of scale/ratio fits.

    To a thousandth, from below; `FURTHEST` where the scale is infinite, or so large that no more could be needed.
    """
    guess = (scale / ratio / float(_single_noise(epsilon, delta))) ** 2
    if guess >= 4 * FURTHEST:  # events here cost up to some 1/0.8 times as much as the count
        return FURTHEST
    event = event_of(_short(scale))
    if guess < 1000:
        return calibrate.answers(event, epsilon=epsilon, delta=delta)

    def fits(power: int) -> bool:
        return accounting.fits(Repeated(event, math.floor(guess * 1.001**power)), epsilon=epsilon, delta=delta)

    low, high = -8, 8
    while not fits(low):
        if low < -4096:
            return 0
        low, high = 2 * low, low
    while high < 4096 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return min(FURTHEST, math.floor(guess * 1.001**low))


@lru_cache(maxsize=64)
def _single_noise(epsilon: Fraction, delta: Fraction) -> Fraction:
    return calibrate.noise(GaussianNoise, epsilon=epsilon, delta=delta, digits=4)


def _majority_right(ballots: Ballots, sigma: float) -> Floats:
    """The chance of a right answer of two classes by Gaussian noise on the votes for 1, ties going to 1."""
    lead = ballots.counts[:, 1] - ((ballots.teachers + 1) // 2 - 0.5)
    return np.asarray(norm.cdf(np.where(ballots.truth == 1, lead, -lead) / sigma))


def _winner_right(ballots: Ballots, sigma: float) -> Floats:
    """The chance that the right class wins under Gaussian noise on all; from below with more than two classes."""
    wrong = norm.cdf(-ballots.leads / (sigma * math.sqrt(2))).sum(axis=1)
    return np.asarray(np.maximum(0.0, 1 - wrong))


def _widest(ballots: Ballots, right: Callable[[float], Floats], most: float) -> tuple[float, float]:
    """The widest noise, to four digits, at which the loss is at most this, and the loss there; infinite if any is."""

    def over(log_scale: float) -> float:
        return ballots.loss(right(math.exp(log_scale))) - most

    if over(math.inf) <= 0:
        return math.inf, over(math.inf) + most
    low, high = math.log(1e-2), math.log(1e3 * ballots.teachers)
    if over(high) <= 0:
        return math.exp(high), over(high) + most
    if over(low) > 0:
        return math.exp(low), over(low) + most
    scale = float(_short(math.exp(brentq(over, low, high, xtol=1e-6))))
    return scale, min(over(math.log(scale)) + most, most)


def _short(value: float) -> Fraction:
    """Four digits of a number, rounded down, as an exact decimal."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 3)
    return math.floor(Fraction(value) / unit + Fraction(1, 10**6)) * unit


def _difference_tail(reach: NDArray[np.int64], fast: float, slow: float) -> Floats:
    """P(X − Y ≥ k) for Laplace variables of two rates."""

    def tail(k: Floats) -> Floats:
        return np.asarray((fast**2 * np.exp(-slow * k) - slow**2 * np.exp(-fast * k)) / (2 * (fast**2 - slow**2)))

    distance = np.abs(reach).astype(np.float64)
    return np.where(reach >= 0, tail(distance), 1 - tail(distance))
