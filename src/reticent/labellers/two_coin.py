"""Two coins that must agree: only questions on which teachers disagree cost anything."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

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
FEWEST_HITS = 50  # with fewer, it closes after a number of answers that nobody could plan with
_PAD = 2e-12  # far more than what the few floating-point operations on a certified moment can add


class BlurredClosing(NamedTuple):
    """How the end of a labeller is blurred, so that it tells little about any one question."""

    scale: Fraction  # of both noises
    margin: int  # how far below the hard end the blurred one lies


class Hits(NamedTuple):
    """How many hits a budget buys, the order at which they are the most, and the price κ of each; None if infinite."""

    number: int
    order: Fraction
    price: Fraction | None


class TwoCoin(Labeller):
    """Toss two coins that favour the majority; if they agree, that is the label, and if not, it is a hit: toss again.

    For each question two labels are drawn independently, class j with probability ∝ e^(s·votes_j), s = `rate`. If they
    are equal, that label is the answer and nothing is charged. If they differ, one of the N `hits` is used up and two
    more are drawn, at most `tries` times; then the answer is `fallback`, a public class, or a class drawn uniformly.
    Without that end the answer would be class j with probability ∝ e^(2s·votes_j). The labeller closes for good when
    `tries` more hits would not fit into N. On questions where the teachers agree there is hardly ever a hit: there is
    no limit to how many of these it answers.

    Guarantee. For a replaced row, which changes one vote, over all answers and the closing, the questions chosen
    adaptively: Rényi divergence κN/(α − 1) at one order α, `.event`, which is within (ε, δ). What a question was shows
    in later answers only through the time of closing. If `query_epsilon` and `query_delta` are given, the closing is
    blurred, and the view without its own answer is (query_epsilon, query_delta)-indistinguishable for a replaced
    question; if not, nothing is claimed for the questions. Running time is not protected: every hit takes two more
    draws. That tells nothing new about the rows, whose bound is on all draws, hits included; but whoever sees how long
    a question took learns of its hits, and no claim for the questions holds against them.

    Why. A pair of draws that agrees costs nothing, and one that differs costs at most κ: with L the likelihood ratio of
    all draws, L^α·e^(−κ·hits) is a supermartingale, and there are at most N hits for certain, so E[L^α] ≤ e^(κN). The
    closing compares a counter that one question moves by at most `tries` with a noisy threshold, with fresh noise each
    time. The proof, and κ for two and for several classes, are in the documentation (labellers/two-coin).

    Source. Two-coin target charging with exact constants. The idea to charge only for hits is from Kaplan, Mansour,
    Stemmer, *The Sparse Vector Technique, Revisited*, and Cohen, Lyu, *The Target-Charging Technique for Privacy
    Analysis across Interactive Computations*.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default=2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy of the rows that the teachers learned from.
    steepness : float or Fraction, default=6
        2·s·teachers: 6 where teachers often disagree, 15 where they mostly agree. Do not choose it by looking at the
        votes.
    tries : int, default=2
        Number of pairs of labels that are drawn for a question at most.
    fallback : int or None, default=None
        Public class for when all pairs differ; None for a class drawn uniformly.
    query_epsilon, query_delta : float, Fraction or None, default=None
        Privacy of the questions.
    unsafe_noise : Noise or None, default=None
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
        self._used = 0  # hits so far: never shown, it depends on the votes
        self._closed = False
        self._threshold = 0 if self.closing is None else int(self._noise.discrete_laplace(self.closing.scale))

    @classmethod
    def is_automatic(cls, classes: int) -> bool:
        """Always, where a labeller may have a memory."""
        return True

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """The expected answers of each of some settings, fixed before any votes are seen."""
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
        """Whether no more questions are answered."""
        return self._closed

    def _memory(self) -> dict[str, int | bool]:
        """The count of hits and the noise of the closing."""
        return {"used": self._used, "closed": self._closed, "threshold": self._threshold}

    def _remember(self, state: Mapping[str, int | bool]) -> None:
        """Continue with the same hits and the same noise of the closing, which is drawn once."""
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
        """A label and the number of hits for every question."""
        labels = np.empty(len(counts), dtype=np.int64)
        hits = np.zeros(len(counts), dtype=np.int64)
        left = np.arange(len(counts))  # the questions whose coins never agreed so far
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
        """About how many of `most` questions it answers if the teachers are evenly `split` on all, or agree on all.

        Public numbers, and the two extremes: the hits that a question is expected to use up, (1 − a)(1 − (1 − a)^J)/a,
        fall with the chance a that two coins agree. No votes on L classes have a below 1/L, the chance at an even
        split, or above the chance where all votes are for one class. A blurred end comes earlier than the hard one, by
        its margin and about the largest noise of so many checks.
        """
        rest = 1.0 if split else math.exp(-float(self.rate) * self.teachers)  # the weight of a class beside the first
        agree = (1 + (self.classes - 1) * rest**2) / (1 + (self.classes - 1) * rest) ** 2
        each = max(_hits_per_question(agree, self.tries), 1e-300)
        paid: float = self.hits - self.tries + 1
        if self.closing is not None:
            paid = self.hits - self.closing.margin
            paid -= float(self.closing.scale) * math.log(max(1.0, min(most, paid / each)))
        return max(1, math.floor(min(most, paid / each)))


def _hits_per_question(agree: Any, tries: int) -> Any:
    """The expected hits of a question on which two coins agree with this chance."""
    return (1 - agree) * (1 - (1 - agree) ** tries) / agree


# ── what a hit costs ──────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=8)
def logistic_table(teachers: int, rate: Fraction) -> VoteTable:
    """One coin: 1 with probability 1/(1 + e^(−s(2v − K))) at v of K votes, that is ∝ e^(s·votes) for either class."""
    count = check_teachers(teachers)
    lead = 2 * np.arange((count + 1) // 2, count + 1) - count
    losing = np.exp(-float(rate) * lead) / (1 + np.exp(-float(rate) * lead))
    complements = np.clip(np.rint(losing * float(ONE)).astype(np.int64), 1, ONE // 2)
    return VoteTable.symmetric(complements, count)


@lru_cache(maxsize=64)
def bought_hits(epsilon: Fraction, delta: Fraction, *, teachers: int, classes: int, steepness: Fraction) -> Hits:
    """How many hits (ε, δ) buys, and the order, to two decimals, and certified price κ at which it does.

    κ bounds ln E[(dQ/dP)^α] for each hit. The order is looked for with the closed form; every order is valid.
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
    """The largest steepness of two digits below this one, or nearly, at which hits are enough; None if not at 0.01."""
    low, high = Fraction(1, 100), min(steepness, Fraction(100))
    if low >= high or not enough(low):
        return None
    for _ in range(12):  # closer than two digits
        middle = Fraction(f"{math.sqrt(low * high):.2g}")
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def closed_form_price(alpha: float, rate: float) -> float | None:
    """κ = −2αs − ln(1 − α(1 − e^(−2s))), an upper bound for any number of classes; None where it is infinite."""
    rest = -alpha * math.expm1(-2 * rate)
    return None if rest >= 1 else max(-2 * alpha * rate - math.log1p(-rest), 0.0) + 1e-18


def table_price(entries: Entries, order: object) -> Fraction | None:
    """κ from the stored integers: the largest over neighbouring entries, both ways round, of ln(2AB/(1 − A² − B²)).

    None where A² + B² ≥ 1, so that no price covers a hit. With m = A + B − 1 from `excess_moments`,
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


# ── how the end is blurred ────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def blurred_closing(query_epsilon: Number, query_delta: Number, tries: int) -> BlurredClosing:
    """The scale J/ε of both noises, and by how much the blurred end must come before the hard one.

    The hard end shows only if threshold noise less fresh noise is at least m although that has probability below
    δ·e^(−ε); the margin is m + J − 2.

    >>> blurred_closing(1, 1e-6, 2).margin
    34
    """
    # An ε beyond 100 is treated as 100, which claims more: e^(−ε) would have as many digits as ε is large.
    epsilon = min(check_epsilon(query_epsilon, "query_epsilon"), Fraction(100))
    delta = check_delta(query_delta, "query_delta", positive=True)
    scale = Fraction(tries) / epsilon
    most = delta * exp_fractions(-epsilon, 200)[0]
    low, high = 0, 1  # `high` is far enough, `low` is not
    while _difference_tail(scale, high) > most:
        low, high = high, 2 * high
    reach = low + 1 + bisect_left(range(low + 1, high), True, key=lambda reach: _difference_tail(scale, reach) <= most)
    return BlurredClosing(scale, reach + tries - 2)


def _difference_tail(scale: Fraction, reach: int) -> Fraction:
    """P(X − Y ≥ m) for two discrete Laplace variables of this scale, for m ≥ 1, from above.

    With a = e^(−1/scale), P(X − Y = k) = ((1−a)/(1+a))²·a^k·(k + (1 + a²)/(1 − a²)); summed from k = m on.
    """
    low, a = exp_fractions(-1 / scale, 200)
    ratio = (1 - low) ** 2 / (1 + low) ** 2
    rest = (1 + a * a) / (1 - a * a)
    return ratio * exp_fractions(-reach / scale, 200)[1] * ((reach + rest) / (1 - a) + a / (1 - a) ** 2)
