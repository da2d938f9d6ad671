"""A private copy for all concepts of any class at once: Blum, Ligett and Roth's, and multiplicative weights."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.concepts.interface import ConceptClass, Dichotomies
from reticent.concepts.order import Ordered
from reticent.data.points import Array, as_rows
from reticent.errors import OutOfReach
from reticent.exact import Number, integer
from reticent.mechanisms.counts import gaussian_count, laplace_count
from reticent.mechanisms.exponential import exponential
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ZCDP, BoundedRange, Composed, DiscreteGaussian, Event, PureDP, Repeated
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach
from reticent.sanitizers.base import Copy, Sanitizer, usable_delta

MOST_POINTS = 1 << 20  # candidate points
MOST_QUERIES = 1 << 22  # labellings of them
MOST_DATABASES = 1 << 20  # candidates of the exact method
MOST_SCORES = 1 << 28  # candidates times labellings, in the exact method
MOST_LABELS = 1 << 20  # labels of all points by all labellings, in the exact method
ROUNDS = tuple(1 << step for step in range(18))  # numbers of rounds to choose from
FEW_ROUNDS = 16  # up to here the noise is calibrated to the composed losses
BLOCK = 1 << 12  # databases scored at a time
_FEWER = "give fewer points"
GRAIN = 2.0**48  # public weights are summed up as multiples of 1/GRAIN


class NetSanitizer(Sanitizer):
    """Weighted points on which every concept of a class has nearly the share that it has among the rows.

    The points are public: all values of the class's domain where these are few, or the `points` given, never those
    of the data. The queries are the ways in which the class can label them, each with one concept that stands for it.

    With `method="exact"` the copy is a small database over the points, drawn by the exponential mechanism from *all*
    databases of its size, by the greatest error over all queries. That is for small domains; databases to choose from
    number at most 2^20. With `method="weights"` the weights of the points start equal. In each round the exponential
    mechanism picks the query that they answer worst, the query is answered with noise, and the weights of the points
    that it labels 1 are multiplied up or down. The copy is the average of the weights over all rounds. `method="auto"`
    takes the one that promises the lesser error for the number of rows.

    Guarantee. ε-differential privacy for a replaced row if δ = 0 or the method is exact, else (ε, δ)-differential
    privacy, for all that is published. Public are the number of rows, the concept class, the points, every parameter.

    Why. *Exact.* Let a database of m points have s_q of them labelled 1 by the query q, and let c_q of the n rows be.
    Its score is −max_q |m·c_q − n·s_q|, a whole number. A replaced row moves each c_q by at most 1, so each term, and
    hence the maximum, by at most m. The draw has weights e^(ε·score/2m): the exponential mechanism with score/m, of
    sensitivity 1, over candidates that do not depend on the rows. *Weights.* The score of a query is |c_q − p_q|,
    where p_q is n times its share by the current weights, rounded to a whole number. The weights are computed from what
    earlier rounds published, so p_q is the same number for neighbours with the same history, however it was rounded,
    and the score has sensitivity exactly 1. The count of the query that is picked has sensitivity 1 as well. So T
    rounds are an adaptive composition of T exponential mechanisms and T noisy counts, and the noise is the least with
    which that keeps ε, or (ε, δ).

    Promise. Let n ≥ `n_required(error)` rows be among the points, whatever they are. With probability 1 − failure, the
    frequency of *every* concept of the class is right up to `error`. *Exact.* Some database of m points is right up to
    γ(m), the least of three numbers: √(ln(2Q + 1)/2m) for Q queries, since m random rows do it by Hoeffding's bound;
    N/4m for N points, by rounding the counts; and t/2m, where labels change at most t times along the points, by
    rounding cumulative counts. The exponential mechanism loses (2/ε)·ln(databases/β) rows. *Weights.* By Hoeffding's
    lemma a round whose query has the error e and whose noise is ν, both as shares of n, lowers the relative entropy of
    the rows to the weights by at least 2(e² − ν²); it is at most ln N at first, and at least 2e² at the end for every
    query (Pinsker). So the mean of e² over the T + 1 weights is at most ln N/2(T + 1) + ν², and the errors of the
    average are at most √(ln N/2(T + 1) + ν²) plus what the exponential mechanism falls short of the worst query.
    Rows that are not among the points are counted by the concepts that stand for the queries, and nothing is promised.

    Source. Blum, Ligett, Roth, *A Learning Theory Approach to Noninteractive Database Privacy*, as used by Beimel,
    Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*, Theorem 2.19 and
    Theorem 2.21, and *Learning Privately with Labeled and Unlabeled Examples*, Theorem A.3; explicit constants, and the
    number of labellings in place of a bound by the VC dimension. Weights: Hardt, Ligett, McSherry, *A Simple and
    Practical Algorithm for Differentially Private Data Release*, Algorithm MWEM and Theorem 2.2. Sharpened: the step is
    eight times the printed one, as Hoeffding's lemma allows; the last weights count too; the constants. Repaired:
    scores are whole numbers of sensitivity exactly 1, and the noise is discrete. New: δ > 0 with Gaussian noise.

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    epsilon, delta : the privacy of the copy; δ = 0 is allowed.
    method : "auto", "exact" or "weights".
    points : None for the whole domain of the class, or public points.
    size : for method="exact": how many points the database has; by default what promises the least error.
    rounds : for method="weights": how many rounds there are; by default what promises the least error.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    points_, weights_ : the points of the copy in ascending order, and the share of rows of each; together 1.
    method_ : "exact" or "weights".
    rows_ : how many rows there were.

    >>> import numpy as np
    >>> from reticent.concepts import Interval, Intervals
    >>> ages = np.arange(20_000) % 90
    >>> sanitizer = NetSanitizer(Intervals(bits=7), epsilon=1).fit(ages)
    >>> abs(sanitizer.frequency(Interval(low=18, high=64)) - 47 / 90) < 0.2
    True
    >>> NetSanitizer(Intervals(bits=3), epsilon=1).n_required(0.2)
    223
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        delta: Number = 0,
        method: Literal["auto", "exact", "weights"] = "auto",
        points: ArrayLike | None = None,
        size: int | None = None,
        rounds: int | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.points = points
        self.size = size
        self.rounds = rounds
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The rows with which every concept has the right frequency up to `error`, but for a `failure`.

        The rows are any that lie among the points. `failure` is the sanitizer's own unless it is given. Planning, in
        floating point.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(check_share(self.failure if failure is None else failure, "failure"))
        ways = self._ways(self.query_net(), beta)
        return in_reach(fewest_rows(lambda rows: any(way.error(rows) <= alpha for way in ways)), self.check_size)

    # ── the copy ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        net = self.query_net()
        try:
            counts = net.dichotomies.sums(np.ones(len(rows), dtype=np.int64), at=rows)
        except (TypeError, ValueError) as error:
            reason = str(error)
            reason = f"X{reason[2:]}" if reason.startswith("at ") else f"the concept class cannot label X: {reason}"
            raise ValueError(reason) from None
        ways = self._ways(net, float(check_share(self.failure, "failure")))
        way = min(ways, key=lambda way: way.error(len(rows)))
        self.method_ = "exact" if isinstance(way, _Databases) else "weights"
        if way.delta > 0:
            check_delta(way.delta, rows=len(rows))
        return way.copy(counts, len(rows), unsafe_noise)

    def query_net(self) -> QueryNet:
        """The public points and the queries on them, as `concept_class` and `points` determine them.

        Returns
        -------
        QueryNet
            The points, and one query for each labelling that the class gives to them.

        Raises
        ------
        OutOfReach
            If there are more points or labellings than can be kept.
        ValueError
            If the class cannot label the points.
        """
        return QueryNet(self._dichotomies())

    def _ways(self, net: QueryNet, failure: float) -> list[_Databases | _Rounds]:
        """The sizes of databases and the numbers of rounds that come into question."""
        epsilon, delta = check_epsilon(self.epsilon), usable_delta(self.epsilon, self.delta)
        ways: list[_Databases | _Rounds] = []
        if self.method != "weights":
            ways += [_Databases(net, size, epsilon, failure) for size in self._sizes(net)]
        if self.method != "exact":
            rounds = ROUNDS if self.rounds is None else (self.rounds,)
            ways += [_Rounds(net, number, epsilon, delta, failure) for number in rounds]
        return ways

    def _sizes(self, net: QueryNet) -> list[int]:
        most = min(MOST_DATABASES, MOST_SCORES // net.queries) if net.listed else 0
        points = len(net.points)
        if self.size is not None:
            if databases(points, self.size) > most:
                raise ValueError(
                    f"size={self.size} makes {databases(points, self.size)} databases of {points} points to choose "
                    f'from by {net.queries} queries, and at most {most} are tried: take a lower size, or "weights"'
                )
            return [self.size]
        sizes = list(itertools.takewhile(lambda size: databases(points, size) <= most, range(1, points * 64 + 1)))
        if self.method == "exact" and not sizes:
            raise ValueError(
                f'method="exact" is for small domains: {points} points with {net.queries} queries are more than the '
                f'{MOST_LABELS} labels that are kept; give fewer points, or take method="weights"'
            )
        return sizes

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")
        if self.method not in ("auto", "exact", "weights"):
            raise ValueError(f'method must be "auto", "exact" or "weights", got {self.method!r}')
        for value, name, method in ((self.size, "size", "exact"), (self.rounds, "rounds", "weights")):
            if value is not None:
                integer(value, name, least=1, most=ROUNDS[-1])
                if self.method != method:
                    raise ValueError(f'{name} is for method="{method}", got method={self.method!r}')
        net = self.query_net()
        if self.method != "weights":
            self._sizes(net)

    def _dichotomies(self) -> Dichotomies[Any]:
        """The labellings of the candidate points."""
        try:
            points = self._domain() if self.points is None else as_rows(self.points, self.concept_class.columns)
            if len(points) > MOST_POINTS:
                raise OutOfReach(f"points must be at most {MOST_POINTS}, got {len(points)}: {_FEWER}")
            if len(points) == 0:
                raise ValueError(f"there must be between 1 and {MOST_POINTS} of them, got {len(points)}")
            self.concept_class.check_public(points, remedy=_FEWER)
            found = self.concept_class.dichotomies(np.unique(points, axis=0) if points.ndim > 1 else np.unique(points))
        except OutOfReach:
            raise
        except (TypeError, ValueError) as error:
            raise ValueError(f"points must hold points that the concept class can label: {error}") from error
        if found.count > MOST_QUERIES:
            raise OutOfReach(
                f"the class labels the points in {found.count} ways, and at most {MOST_QUERIES} can be kept: "
                f"{_FEWER}"
            )
        return found

    def _domain(self) -> Array:
        """Every point of a small domain."""
        concepts = self.concept_class
        size = concepts.values if isinstance(concepts, Ordered) else None
        if not isinstance(concepts, Ordered) or size is None or size**concepts.columns > MOST_POINTS:
            raise OutOfReach(
                f"points must be given, since the class has no declared domain of at most {MOST_POINTS} points: a "
                "grid, a public sample, never the data"
            )
        domain, ranks = concepts.finite_domain()
        values: Array = domain.values(np.arange(ranks.start, ranks.stop))
        if concepts.columns == 1:
            return values
        return np.stack(np.meshgrid(*[values] * concepts.columns, indexing="ij"), -1).reshape(-1, concepts.columns)

    def query_class(self, concept: Any = None) -> ConceptClass[Any]:
        """The class whose concepts `frequency` accepts, or for a given concept the class that it belongs to."""
        return self.concept_class


class QueryNet:
    """The public points and the queries: all their labellings."""

    def __init__(self, dichotomies: Dichotomies[Any]) -> None:
        self.dichotomies = dichotomies
        self.points: Array = dichotomies.points
        self.queries = dichotomies.count
        self.listed = self.queries * len(self.points) <= MOST_LABELS

    @cached_property
    def labels(self) -> Array:
        """One query a row."""
        return np.array([self.dichotomies.labels(index) for index in range(self.queries)])

    @cached_property
    def changes(self) -> int:
        """How often, at most, the labels of a query change along the points."""
        return int(np.count_nonzero(np.diff(self.labels, axis=1), axis=1).max())

    def radius(self, size: int) -> float:
        """γ(m): some database of m points answers all queries as any weights of the points do, up to this."""
        by_chance = math.sqrt(math.log(2 * self.queries + 1) / (2 * size))
        return min(by_chance, len(self.points) / (4 * size), self.changes / (2 * size))


@dataclass(frozen=True)
class _Databases:
    """The exact method: a draw from all databases of a size."""

    net: QueryNet
    size: int
    epsilon: Fraction
    failure: float
    delta = Fraction(0)

    def error(self, rows: int) -> float:
        """What is promised for this many rows."""
        loss = 2 / float(self.epsilon) * math.log(databases(len(self.net.points), self.size) / self.failure)
        return self.net.radius(self.size) + loss / rows

    def copy(self, counts: Array, rows: int, unsafe_noise: Noise | None) -> Release[Copy]:
        """The points of the database that was drawn, and how often it has each."""
        members = np.fromiter(
            itertools.chain.from_iterable(
                itertools.combinations_with_replacement(range(len(self.net.points)), self.size)
            ),
            dtype=np.int64,
        ).reshape(-1, self.size)
        event = BoundedRange(self.epsilon)
        blocks = (members[start : start + BLOCK] for start in range(0, len(members), BLOCK))
        scores = np.concatenate([self._scores(block, counts, rows) for block in blocks])
        index = noise_or_system(unsafe_noise).choose(scores, rate=event.epsilon / (2 * self.size))
        places, times = np.unique(members[index], return_counts=True)
        return release((self.net.points[places], times / self.size), event, unsafe_noise)

    def _scores(self, members: Array, counts: Array, rows: int) -> Array:
        """−max over the queries of |m·c_q − n·s_q|, for each database of the block."""
        ones = np.zeros((self.net.queries, len(members)), dtype=np.int64)
        for member in members.T:
            ones += self.net.labels[:, member]
        return -np.asarray(np.abs(self.size * counts[:, None] - rows * ones).max(axis=0))


@dataclass(frozen=True)
class _Rounds:
    """Multiplicative weights: so many rounds of a choice and a count."""

    net: QueryNet
    rounds: int
    epsilon: Fraction
    delta: Fraction
    failure: float

    def error(self, rows: int) -> float:
        """What is promised for this many rows."""
        choice, scale = levels(self.epsilon, self.delta, self.rounds)
        odds = math.log(4 * self.rounds / self.failure)
        noise = float(scale) * (math.sqrt(2 * odds) if self.delta else odds) / rows
        short = (2 / float(choice) * math.log(2 * self.rounds * self.net.queries / self.failure) + 1) / rows
        return short + math.sqrt(math.log(len(self.net.points)) / (2 * (self.rounds + 1)) + noise**2)

    def copy(self, counts: Array, rows: int, unsafe_noise: Noise | None) -> Release[Copy]:
        """All points, and their weights on the average."""
        choice, scale = levels(self.epsilon, self.delta, self.rounds)
        exponents = np.zeros(len(self.net.points))
        total = weights = _shares(exponents)
        for _ in range(self.rounds):
            answers = self._answers(weights)
            scores = np.abs(counts - np.rint(rows * answers).astype(np.int64))
            index = exponential(scores, epsilon=choice, unsafe_noise=unsafe_noise).value
            count = int(counts[index])
            if self.delta:
                noisy = gaussian_count(count, sigma=scale, unsafe_noise=unsafe_noise).value
            else:
                noisy = laplace_count(count, epsilon=1 / scale, unsafe_noise=unsafe_noise).value
            step = 4 * (min(max(noisy, 0), rows) / rows - answers[index])
            exponents += step * self.net.dichotomies.labels(index)
            weights = _shares(exponents)
            total = total + weights
        event = rounds_event(choice, scale, self.rounds, gaussian=self.delta > 0)
        return release((self.net.points, total / total.sum()), event, unsafe_noise)

    def _answers(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of every query by the weights; both are public."""
        grains = np.rint(weights * GRAIN).astype(np.int64)
        return np.asarray(self.net.dichotomies.sums(grains) / grains.sum())


@lru_cache(maxsize=1024)
def levels(epsilon: Fraction, delta: Fraction, rounds: int) -> tuple[Fraction, Fraction]:
    """The ε of each choice and the scale of the noise of each count with which so many rounds keep (ε, δ).

    Choice and count cost the same: ε/2T each where δ = 0; elsewhere they are (1/2σ²)-zCDP each, the choice with
    ε = 2/σ. Of many rounds the zCDP says it all; of few it gives away some noise, so that their losses are composed.
    """
    if not delta:
        return epsilon / (2 * rounds), 2 * rounds / epsilon
    if rounds > FEW_ROUNDS:
        once = calibrate.noise(lambda sigma: ZCDP(1 / sigma**2), epsilon=epsilon, delta=delta)
        squared = rounds * once**2  # zCDP adds up
        sigma = Fraction(math.isqrt(math.floor(squared * 10**6)) + 1, 1000)
    else:
        sigma = calibrate.noise(
            lambda sigma: rounds_event(2 / sigma, sigma, rounds, gaussian=True), epsilon=epsilon, delta=delta, digits=3
        )
    return 2 / sigma, sigma


def rounds_event(choice: Fraction, scale: Fraction, rounds: int, *, gaussian: bool) -> Event:
    """What happens in so many rounds."""
    count = DiscreteGaussian(scale) if gaussian else PureDP(1 / scale)
    return Composed((Repeated(BoundedRange(choice), rounds), Repeated(count, rounds)))


def databases(points: int, size: int) -> int:
    """How many databases of a size there are over so many points, the order of rows aside.

    >>> databases(4, 2)
    10
    """
    return math.comb(points + size - 1, size)


def _shares(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())
