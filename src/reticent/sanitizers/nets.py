"""A private copy for all concepts of any class: the method of Blum, Ligett and Roth, and multiplicative weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.concepts.input import check_concept_class
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

    The points are public: all values of the class's domain if these are few, or the `points` given, never those of the
    data. The queries are the labellings of the points by the class, each with one concept that represents it.

    With `method="exact"` the copy is a small database over the points, drawn by the exponential mechanism from *all*
    databases of its size, by the greatest error over all queries. This is for small domains: there may be at most 2^20
    databases. With `method="weights"` the weights of the points start equal. In each round the exponential mechanism
    picks the query that they answer worst, the query is answered with noise, and the weights of the points that it
    labels 1 are multiplied up or down. The copy is the average of the weights over all rounds. `method="auto"` takes
    the one that promises the smaller error for the number of rows.

    Guarantee. ε-differential privacy for a replaced row if δ = 0 or the method is exact, else (ε, δ)-differential
    privacy, for all that is published. Public are the number of rows, the concept class, the points and every
    parameter.

    Why. *Exact*: a replaced row moves the score of a database of m points by at most m, and the candidates do not
    depend on the rows: this is the exponential mechanism with score/m. *Weights*: scores and counts are whole numbers
    of sensitivity 1, whatever earlier rounds published. So T rounds are an adaptive composition of T exponential
    mechanisms and T noisy counts, and the noise is the least with which that fits (ε, δ). The proof is in
    `docs/sanitizers/nets.md`.

    Promise. Let n ≥ `n_required(error)` rows be among the points, whatever they are. With probability 1 − failure, the
    frequency of *every* concept of the class is correct up to `error`. Rows that are not among the points are counted
    by the concepts that represent the queries, and nothing is promised.

    Source. Blum, Ligett, Roth, *A Learning Theory Approach to Noninteractive Database Privacy*, as used by Beimel,
    Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*, Theorem 2.19 and
    Theorem 2.21, and *Learning Privately with Labeled and Unlabeled Examples*, Theorem A.3; explicit constants, and the
    number of labellings in place of a bound by the VC dimension. Weights: Hardt, Ligett, McSherry, *A Simple and
    Practical Algorithm for Differentially Private Data Release*, Algorithm MWEM and Theorem 2.2. Sharpened: the step is
    eight times the printed one, as Hoeffding's lemma allows; the last weights count too; the constants. Repaired:
    scores are whole numbers of sensitivity exactly 1, and the noise is discrete. New: δ > 0 with Gaussian noise.

    Parameters
    ----------
    concept_class : ConceptClass
        The class whose concepts are counted.
    epsilon : float or Fraction
        Privacy-loss bound ε of the copy.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound.
    method : {"auto", "exact", "weights"}, default "auto"
        How the copy is made.
    points : array-like or None, default None
        Public points; None is the whole domain of the class.
    size : int or None, default None
        For method="exact": the number of points of the database; None is the one that promises the least error.
    rounds : int or None, default None
        For method="weights": the number of rounds; None is the one that promises the least error.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    points_, weights_ : array
        The points of the copy in ascending order, and the share of rows of each, with a sum of 1.
    method_ : str
        "exact" or "weights".
    rows_ : int
        The number of rows.

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
        """The number of rows with which every concept has its frequency correct up to `error`.

        The rows may be any that lie among the points. Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.
        """
        return self.planner(failure)(error)

    def planner(self, failure: Number | None = None) -> Callable[[Number], int]:
        """Return `n_required` as a function of the error. The queries are listed once.

        Parameters
        ----------
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.
        """
        self.check_parameters()
        schemes = self._schemes(self.query_net(), float(self._failure(failure)))

        def needed(error: Number) -> int:
            alpha = float(check_share(error, "error"))
            rows = fewest_rows(lambda rows: any(scheme.error(rows) <= alpha for scheme in schemes))
            return in_reach(rows, self.check_size)

        return needed

    # ── the copy ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        net = self.query_net()
        try:
            counts = net.dichotomies.sums(np.ones(len(rows), dtype=np.int64), at=rows)
        except (TypeError, ValueError) as error:
            reason = str(error)
            reason = f"X{reason[2:]}" if reason.startswith("at ") else f"the concept class cannot label X: {reason}"
            raise ValueError(reason) from None
        schemes = self._schemes(net, float(self._failure()))
        best = min(schemes, key=lambda scheme: scheme.error(len(rows)))
        self.method_ = "exact" if isinstance(best, _Databases) else "weights"
        if best.delta > 0:
            check_delta(best.delta, rows=len(rows))
        return best.copy(counts, len(rows), unsafe_noise)

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

    def _schemes(self, net: QueryNet, failure: float) -> list[_Databases | _Rounds]:
        """The sizes of databases and the numbers of rounds to choose from."""
        epsilon, delta = check_epsilon(self.epsilon), usable_delta(self.epsilon, self.delta)
        schemes: list[_Databases | _Rounds] = []
        if self.method != "weights":
            schemes += [_Databases(net, size, epsilon, failure) for size in self._sizes(net)]
        if self.method != "exact":
            rounds = ROUNDS if self.rounds is None else (self.rounds,)
            schemes += [_Rounds(net, number, epsilon, delta, failure) for number in rounds]
        return schemes

    def _sizes(self, net: QueryNet) -> list[int]:
        """The sizes of databases for which all databases can be scored."""
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
        check_concept_class(self.concept_class)
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
    """The public points, and the queries: all labellings of them by a class.

    Parameters
    ----------
    dichotomies : Dichotomies
        The labellings.

    Attributes
    ----------
    points : array
        The points.
    queries : int
        The number of labellings.
    listed : bool
        Whether all labels of all queries can be kept in memory.
    """

    def __init__(self, dichotomies: Dichotomies[Any]) -> None:
        self.dichotomies = dichotomies
        self.points: Array = dichotomies.points
        self.queries = dichotomies.count
        self.listed = self.queries * len(self.points) <= MOST_LABELS

    @cached_property
    def labels(self) -> Array:
        """The labels of the points, one row per query."""
        return np.array([self.dichotomies.labels(index) for index in range(self.queries)])

    @cached_property
    def changes(self) -> int:
        """The largest number of times that the labels of a query change along the points."""
        return int(np.count_nonzero(np.diff(self.labels, axis=1), axis=1).max())

    def radius(self, size: int) -> float:
        """γ(m): the error up to which some database of m = `size` points answers all queries as any weights do."""
        by_chance = math.sqrt(math.log(2 * self.queries + 1) / (2 * size))
        return min(by_chance, len(self.points) / (4 * size), self.changes / (2 * size))


@dataclass(frozen=True)
class _Databases:
    """The exact method: one draw from all databases of a size."""

    net: QueryNet
    size: int
    epsilon: Fraction
    failure: float
    delta = Fraction(0)

    def error(self, rows: int) -> float:
        """What is promised for this many rows."""
        return self._radius + self._loss / rows

    @cached_property
    def _radius(self) -> float:
        return self.net.radius(self.size)

    @cached_property
    def _loss(self) -> float:
        """By how many rows the drawn database is worse than the best, except with the probability of failure."""
        return 2 / float(self.epsilon) * math.log(databases(len(self.net.points), self.size) / self.failure)

    def copy(self, counts: Array, rows: int, unsafe_noise: Noise | None) -> Release[Copy]:
        """The points of the database that was drawn, and their shares in it."""
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
        indices, times = np.unique(members[index], return_counts=True)
        return release((self.net.points[indices], times / self.size), event, unsafe_noise)

    def _scores(self, members: Array, counts: Array, rows: int) -> Array:
        """−max over the queries of |m·c_q − n·s_q|, for each database of the block."""
        ones = np.zeros((self.net.queries, len(members)), dtype=np.int64)
        for member in members.T:
            ones += self.net.labels[:, member]
        return -np.asarray(np.abs(self.size * counts[:, None] - rows * ones).max(axis=0))


@dataclass(frozen=True)
class _Rounds:
    """Multiplicative weights: in each round one choice and one count."""

    net: QueryNet
    rounds: int
    epsilon: Fraction
    delta: Fraction
    failure: float

    def error(self, rows: int) -> float:
        """What is promised for this many rows."""
        steps, noise, short = self._errors
        return short / rows + math.sqrt(steps + (noise / rows) ** 2)

    @cached_property
    def _errors(self) -> tuple[float, float, float]:
        """What the rounds leave of the squared error, and the errors of counts and choices in rows."""
        choice, scale = round_noise(self.epsilon, self.delta, self.rounds)
        odds = math.log(4 * self.rounds / self.failure)
        noise = float(scale) * (math.sqrt(2 * odds) if self.delta else odds)
        short = 2 / float(choice) * math.log(2 * self.rounds * self.net.queries / self.failure) + 1
        return math.log(len(self.net.points)) / (2 * (self.rounds + 1)), noise, short

    def copy(self, counts: Array, rows: int, unsafe_noise: Noise | None) -> Release[Copy]:
        """All points, and the average of their weights over the rounds."""
        choice, scale = round_noise(self.epsilon, self.delta, self.rounds)
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
def round_noise(epsilon: Fraction, delta: Fraction, rounds: int) -> tuple[Fraction, Fraction]:
    """The ε of each choice and the scale of the noise of each count with which T = `rounds` rounds fit (ε, δ).

    Choice and count cost the same: ε/2T each if δ = 0. Otherwise they are (1/2σ²)-zCDP each, the choice with ε = 2/σ.
    For many rounds zCDP is tight enough. For few rounds it wastes some noise, so their losses are composed.

    Parameters
    ----------
    epsilon, delta : Fraction
        The privacy of all rounds together.
    rounds : int
        The number of rounds.
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
    """The event of T rounds.

    Parameters
    ----------
    choice : Fraction
        The ε of each choice.
    scale : Fraction
        The scale of the noise of each count.
    rounds : int
        The number of rounds.
    gaussian : bool
        Whether the noise is discrete Gaussian, or else discrete Laplace.
    """
    count = DiscreteGaussian(scale) if gaussian else PureDP(1 / scale)
    return Composed((Repeated(BoundedRange(choice), rounds), Repeated(count, rounds)))


def databases(points: int, size: int) -> int:
    """The number of databases of a size over this many points, up to the order of their rows.

    >>> databases(4, 2)
    10
    """
    return math.comb(points + size - 1, size)


def _shares(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights ∝ e^exponent."""
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())
