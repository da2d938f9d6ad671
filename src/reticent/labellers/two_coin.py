"""The two-coin labeller: only questions on which teachers disagree cost anything."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number, exp_fractions, integer
from reticent.labellers.ballots import Ballots, Bought, Floats, Labels, Votes
from reticent.labellers.base import Labeller
from reticent.labellers.budget import check_budget, spendable
from reticent.labellers.chances import draw_exponential, exponential_chances, right_chances
from reticent.labellers.search import FURTHEST
from reticent.labellers.table import (
    MOST_TEACHERS,
    ONE,
    Entries,
    VoteTable,
    check_order,
    check_teachers,
    excess_moments,
    log_ratios,
)
from reticent.mechanisms.counts import Integers
from reticent.noise import Noise
from reticent.privacy.events import RenyiDP
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive

STEEPNESS = (5, 6, 7, 8, 10, 12, 15, 20)  # settings that plans try, fixed before any votes are seen
TRIES = (2, 3)
FEWEST_HITS = 50  # with fewer, the number of answers varies too much to plan with
_PAD = 2e-12  # relative: far more than the rounding of the few operations on a certified moment

Coins = TypeVar("Coins", float, Floats)  # chances that two coins agree


class BlurredClosing(NamedTuple):
    """Noise on the closing of a labeller, so that it reveals little about any one question.

    Parameters
    ----------
    scale : Fraction
        Scale of both noises.
    margin : int
        How many hits before the hard end the blurred end lies.
    """

    scale: Fraction
    margin: int


class Hits(NamedTuple):
    """What a budget buys.

    Parameters
    ----------
    number : int
        Number of hits.
    order : Fraction
        Order of the Rényi divergence at which they are the most.
    price : Fraction or None
        Price κ of one hit; None if it is infinite.
    """

    number: int
    order: Fraction
    price: Fraction | None


class TwoCoin(Labeller):
    """Tosses two coins that favour the majority. If they agree, that is the label; if not, it pays and tosses again.

    For each question two labels are drawn independently, class j with probability ∝ e^(s·votes_j), s = `rate`. If they
    are equal, that label is the answer and nothing is charged. If they differ, one of the N `hits` is used up and two
    more are drawn, at most `tries` times; then the answer is `fallback`, a public class, or a class drawn uniformly.
    With unlimited tries, the answer would be class j with probability ∝ e^(2s·votes_j). The labeller closes when
    `tries` more hits would not fit into N. Questions on which the teachers agree rarely cause a hit, and there is no
    limit to how many of these it answers.

    Guarantee. For a replaced row, which changes one vote, over all answers and the closing, with adaptive questions:
    Rényi divergence κN/(α − 1) at one order α. This is `event`, which is within (ε, δ). A question affects later
    answers only through the time of closing. If `query_epsilon` and `query_delta` are given, the closing is blurred:
    for a replaced question, the view without its own answer is (query_epsilon, query_delta)-indistinguishable. If not,
    nothing is claimed for the questions. Running time is not protected: every hit takes two more draws. For the rows
    this reveals nothing new, as their bound covers all draws. For the questions, no claim holds against someone who can
    measure how long an answer took.

    Why. A pair of draws that agrees costs nothing, and one that differs costs at most κ: with L the likelihood ratio of
    all draws, L^α·e^(−κ·hits) is a supermartingale, and there are never more than N hits, so E[L^α] ≤ e^(κN). The
    closing compares a counter that one question moves by at most `tries` with a noisy threshold, with fresh noise each
    time. The page "Two coins" of the documentation has the proof, and κ for two and for several classes.

    Source. Two-coin target charging with exact constants. The idea to charge only for hits is from Kaplan, Mansour,
    Stemmer, *The Sparse Vector Technique, Revisited*, and Cohen, Lyu, *The Target-Charging Technique for Privacy
    Analysis across Interactive Computations*.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    steepness : float or Fraction, default 6
        2·s·teachers: 6 if teachers often disagree, 15 if they mostly agree. Do not choose it by looking at the votes.
    tries : int, default 2
        Largest number of pairs of labels that are drawn for a question.
    fallback : int or None, default None
        Public class that is the answer if all pairs differ; None for a class drawn uniformly.
    query_epsilon, query_delta : float, Fraction or None, default None
        Privacy-loss bound for the questions; None to claim nothing for them.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "two-coin"
    counted = False
    closes_early = True
    stateless = False
    query_share = Fraction(1, 4)

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: Number,
        delta: Number,
        steepness: Number = 6,
        tries: int = 2,
        fallback: int | None = None,
        query_epsilon: Number | None = None,
        query_delta: Number | None = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, _ = check_budget(epsilon, delta)
        steep, count = check_positive(steepness, "steepness"), integer(teachers, "teachers", least=1)
        self.tries = integer(tries, "tries", least=1, most=1000)
        self.fallback = None if fallback is None else integer(fallback, "fallback", least=0, most=classes - 1)
        if (query_epsilon is None) != (query_delta is None):
            raise ValueError("query_epsilon and query_delta must be given together, or neither")
        self.closing = None if query_epsilon is None else blurred_closing(query_epsilon, query_delta, self.tries)
        least = self.tries + (0 if self.closing is None else self.closing.margin)

        def hits(steep: Fraction) -> Hits:
            return bought_hits(exact_epsilon, exact_delta, teachers=count, classes=classes, steepness=steep)

        self.hits, order, kappa = hits(steep)
        if self.hits < least or kappa is None:
            gentler = _largest(lambda steep: hits(steep).number >= least, steep)
            advice = [] if gentler is None else [f"steepness of at most {float(gentler):g}"]
            advice += ["a larger epsilon", "more teachers"]
            advice += [] if self.closing is None else ["a larger query_epsilon or query_delta", "fewer tries"]
            raise ValueError(
                f"epsilon={epsilon}, delta={delta} buy {self.hits} hits with steepness={steepness} and {teachers} "
                f"teachers, at least {least} are needed"
                + ("" if self.closing is None else f" with query_epsilon={query_epsilon}, query_delta={query_delta}")
                + f" at tries={tries}: take {', '.join(advice[:-1])} or {advice[-1]}"
            )
        self.rate = steep / (2 * count)
        self.table = logistic_table(count, self.rate) if classes == 2 else None
        super().__init__(
            teachers=teachers,
            classes=classes,
            event=RenyiDP(order, kappa * self.hits / (order - 1)),
            answers=None,
            unsafe_noise=unsafe_noise,
        )
        self._used = 0  # hits so far: secret, as it depends on the votes
        self._closed = False
        self._threshold = 0 if self.closing is None else int(self._noise.discrete_laplace(self.closing.scale))

    @classmethod
    def is_automatic(cls, classes: int) -> bool:
        """For any number of classes."""
        return True

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield the expected number of answers for some settings, which are fixed before any votes are seen."""
        shape: dict[str, Any] = {"teachers": ballots.teachers, "classes": ballots.classes}
        if ballots.classes == 2 and ballots.teachers > MOST_TEACHERS:
            return
        for steepness in STEEPNESS:
            if bought_hits(epsilon, delta, **shape, steepness=Fraction(steepness)).number < FEWEST_HITS:
                continue
            for tries in TRIES:
                options: dict[str, Any] = {"steepness": steepness, "tries": tries}
                labeller = cls(**shape, epsilon=epsilon, delta=delta, **options)
                right = right_chances(labeller.chances(ballots.counts), ballots.truth)
                hits = ballots.mean(labeller.expected_hits(ballots.counts))
                answers = min(FURTHEST, (labeller.hits - tries) / max(hits, 1e-300))
                yield Bought(cls.name, int(answers), ballots.loss(right), options, cls.stateless)

    @property
    def closed(self) -> bool:
        """Whether all questions are refused from now on."""
        return self._closed

    def _memory(self) -> dict[str, int | bool]:
        """Return the count of hits and the noise of the closing."""
        return {"used": self._used, "closed": self._closed, "threshold": self._threshold}

    def _remember(self, state: Mapping[str, int | bool]) -> None:
        """Continue with the same hits, and the same noise of the closing, which is drawn once."""
        self._used = integer(state["used"], "used", least=0, most=self.hits)
        self._closed, self._threshold = bool(state["closed"]), int(state["threshold"])

    def _label(self, counts: Votes) -> Labels:
        labels, hits = self._toss(counts)
        before = self._used + np.concatenate([[0], np.cumsum(hits)[:-1]])
        ends = before > self.hits - self.tries
        if self.closing is not None:
            blur = np.asarray(self._noise.discrete_laplace(self.closing.scale, len(counts)))
            ends |= before + blur >= self.hits - self.closing.margin + self._threshold
        answered = int(np.argmax(ends)) if bool(ends.any()) else len(counts)
        self._closed = answered < len(counts)
        self._used += int(hits[:answered].sum())
        return labels[:answered]

    def _toss(self, counts: Votes) -> tuple[Labels, NDArray[np.int64]]:
        """Return a label and the number of hits for every question."""
        labels = np.empty(len(counts), dtype=np.int64)
        hits = np.zeros(len(counts), dtype=np.int64)
        left = np.arange(len(counts))  # questions whose coins have not agreed so far
        for _ in range(self.tries):
            first, second = self._draw(counts[left]), self._draw(counts[left])
            labels[left] = first
            left = left[first != second]
            hits[left] += 1
            if len(left) == 0:
                break
        if len(left):
            labels[left] = self._noise.uniform(self.classes, len(left)) if self.fallback is None else self.fallback
        return labels, hits

    def _draw(self, counts: Votes) -> Labels:
        if self.table is not None:
            return self.table.draw(counts[:, 1], self._noise)
        return draw_exponential(counts, self.rate, self._noise)

    def _chances(self, counts: Votes) -> Floats:
        single = exponential_chances(counts, self.rate)
        agree = (single**2).sum(axis=1, keepdims=True)
        never = (1 - agree) ** self.tries
        last = np.full(self.classes, 1 / self.classes) if self.fallback is None else np.eye(self.classes)[self.fallback]
        return np.asarray(single**2 * (1 - never) / agree + never * last)

    def expected_hits(self, votes: Integers) -> Floats:
        """Return the expected number of hits at known votes. **Not private**: for planning only."""
        agree = (exponential_chances(self._read(votes), self.rate) ** 2).sum(axis=1)
        return np.asarray(_hits_per_question(agree, self.tries))

    def expected_answers(self, most: int, *, split: bool) -> int:
        """Return about how many of `most` questions it answers in the worst or in the best case.

        Both follow from public numbers. The expected hits of a question, (1 − a)(1 − (1 − a)^J)/a, fall with the chance
        a that two coins agree. With L classes, a is at least 1/L, its value at an even split, and at most its value
        where all votes are for one class. A blurred end comes before the hard one, by its margin and about the largest
        noise of all checks.

        Parameters
        ----------
        most : int
            Number of questions.
        split : bool
            Whether the teachers are evenly split on all questions; if not, they agree on all.
        """
        # The weight of every other class, if that of the first is 1.
        rest = 1.0 if split else math.exp(-float(self.rate) * self.teachers)
        agree = (1 + (self.classes - 1) * rest**2) / (1 + (self.classes - 1) * rest) ** 2
        each = max(_hits_per_question(agree, self.tries), 1e-300)
        paid: float = self.hits - self.tries + 1
        if self.closing is not None:
            paid = self.hits - self.closing.margin
            paid -= float(self.closing.scale) * math.log(max(1.0, min(most, paid / each)))
        return max(1, math.floor(min(most, paid / each)))


def _hits_per_question(agree: Coins, tries: int) -> Coins:
    """The expected hits of a question on which two coins agree with this chance."""
    return (1 - agree) * (1 - (1 - agree) ** tries) / agree


# ── what a hit costs ──────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=8)
def logistic_table(teachers: int, rate: Fraction) -> VoteTable:
    """Return the table of one coin: 1 with probability 1/(1 + e^(−s(2v − K))) at v of K votes, for s = `rate`."""
    count = check_teachers(teachers)
    lead = 2 * np.arange((count + 1) // 2, count + 1) - count
    losing = np.exp(-float(rate) * lead) / (1 + np.exp(-float(rate) * lead))
    complements = np.clip(np.rint(losing * float(ONE)).astype(np.int64), 1, ONE // 2)
    return VoteTable.symmetric(complements, count)


@lru_cache(maxsize=64)
def bought_hits(epsilon: Fraction, delta: Fraction, *, teachers: int, classes: int, steepness: Fraction) -> Hits:
    """Return how many hits (ε, δ) buys, with the order, to two decimals, and the certified price κ.

    κ bounds ln E[(dQ/dP)^α] for each hit. The search for the order uses the closed form; every order is valid.
    """
    rate = steepness / (2 * teachers)
    best, found = Fraction(2), 0.0
    for alpha in (Fraction(round(100 * (1 + 10 ** (power / 40))), 100) for power in range(-20, 161)):
        most = spendable(epsilon, delta, alpha)
        price = closed_form_price(float(alpha), float(rate))
        if most is not None and price is not None and float(most * (alpha - 1)) / price > found:
            best, found = alpha, float(most * (alpha - 1)) / price
    most = spendable(epsilon, delta, best)
    if classes == 2:
        kappa = table_price(logistic_table(teachers, rate).entries, best)
    else:
        exact = closed_form_price(float(best), float(rate))
        kappa = None if exact is None else Fraction(exact * (1 + _PAD))
    return Hits(0 if most is None or kappa is None else math.floor(most * (best - 1) / kappa), best, kappa)


def _largest(enough: Callable[[Fraction], bool], steepness: Fraction) -> Fraction | None:
    """About the largest steepness of two digits below this one at which hits are enough; None if 0.01 is too much."""
    low, high = Fraction(1, 100), min(steepness, Fraction(100))
    if low >= high or not enough(low):
        return None
    for _ in range(12):  # closer than two digits
        middle = Fraction(f"{math.sqrt(low * high):.2g}")
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def closed_form_price(alpha: float, rate: float) -> float | None:
    """Return κ = −2αs − ln(1 − α(1 − e^(−2s))), an upper bound for any number of classes; None if it is infinite."""
    rest = -alpha * math.expm1(-2 * rate)
    return None if rest >= 1 else max(-2 * alpha * rate - math.log1p(-rest), 0.0) + 1e-18


def table_price(entries: Entries, order: Number) -> Fraction | None:
    """Return κ from the stored integers: the largest ln(2AB/(1 − A² − B²)) of neighbouring entries, in both directions.

    It is None if A² + B² ≥ 1, where no price covers a hit. With m = A + B − 1 from `excess_moments`,
    2AB/(1 − A² − B²) = 1 + m(2 + m)/(2AB − m(2 + m)).
    """
    alpha = check_order(order)
    worst = 0.0
    for first, second in ((entries[:-1], entries[1:]), (entries[1:], entries[:-1])):
        moment = excess_moments(first, second, alpha, both=False)
        ones, zeros = log_ratios(first, second)
        with np.errstate(over="ignore", invalid="ignore"):
            square = moment * (2 + moment)
            product = 2 * (first / ONE) * ((ONE - first) / ONE) * np.exp(alpha * (ones + zeros)) * (1 - _PAD)
            left = product - square
        if not bool(np.all(left > 0)):
            return None
        worst = max(worst, float(np.max(np.log1p(square / left))))
    return Fraction(max(worst, 1e-300) * (1 + _PAD))


# ── the blurred end ────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def blurred_closing(query_epsilon: Number, query_delta: Number, tries: int) -> BlurredClosing:
    """Return the scale J/ε of both noises, and the margin between the blurred end and the hard one.

    The hard end comes first only if threshold noise minus fresh noise is at least m, the least number at which this has
    probability at most δ·e^(−ε). The margin is m + J − 2.

    Parameters
    ----------
    query_epsilon, query_delta : float or Fraction
        Privacy-loss bound for the questions.
    tries : int
        Largest number J of hits of one question.

    >>> blurred_closing(1, 1e-6, 2).margin
    34
    """
    # An ε above 100 is treated as 100, which claims more: e^(−ε) would have too many digits.
    epsilon = min(check_epsilon(query_epsilon, "query_epsilon"), Fraction(100))
    delta = check_delta(query_delta, "query_delta", positive=True)
    scale = Fraction(tries) / epsilon
    most = delta * exp_fractions(-epsilon, 200)[0]

    def far_enough(reach: int) -> bool:
        return _discrete_difference_tail(scale, reach) <= most

    high = 1
    while not far_enough(high):
        high *= 2
    least = range(high // 2 + 1, high + 1)
    return BlurredClosing(scale, least[bisect_left(least, True, key=far_enough)] + tries - 2)


def _discrete_difference_tail(scale: Fraction, reach: int) -> Fraction:
    """P(X − Y ≥ m) for two discrete Laplace variables of this scale, where m = `reach` ≥ 1, from above.

    With a = e^(−1/scale), P(X − Y = k) = ((1−a)/(1+a))²·a^k·(k + (1 + a²)/(1 − a²)); summed from k = m on.
    """
    low, a = exp_fractions(-1 / scale, 200)
    ratio = (1 - low) ** 2 / (1 + low) ** 2
    rest = (1 + a * a) / (1 - a * a)
    return ratio * exp_fractions(-reach / scale, 200)[1] * ((reach + rest) / (1 - a) + a / (1 - a) ** 2)
