"""A private copy of a column whose frequent values matter: one stability histogram, or SanPoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from reticent import noise
from reticent.concepts.domains import Domain, required_domain
from reticent.concepts.order import Line
from reticent.concepts.points import KPoints, Point, Points, PointSet
from reticent.data.points import Array
from reticent.exact import Number, integer
from reticent.mechanisms.choosing import choosing, choosing_threshold
from reticent.mechanisms.counts import laplace_count
from reticent.mechanisms.release import Release, release
from reticent.mechanisms.stability_histogram import histogram_threshold, stability_histogram
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, Composed, Event, PureDP, Repeated
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach
from reticent.sanitizers.base import Copy, Sanitizer, public_generator

Fails = Callable[[int, float], float]  # rows, error → a bound on the probability of failure


class PointSanitizer(Sanitizer):
    """How often each value occurs, for the values that occur often; from a domain of any size.

    With `method="histogram"`, noise is added to the counts of all values that occur, and those that reach a threshold
    are published (`stability_histogram`). With `method="choosing"`, which is SanPoints as printed, a frequent value is
    found by the choosing mechanism, its noisy count is published, its rows are set aside, and so on for up to `rounds`
    values. It needs more rows, and is there for comparison.

    A value that is not published has the frequency 0. If the published weights sum to less than 1, the rest belongs to
    unpublished values, and `sample` draws it uniformly from those. If the noisy counts sum to more than the rows, the
    same amount is subtracted from all of them, down to 0; this gives the nearest weights that sum to 1.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all that is published. Public are the number of rows
    and every parameter, including the domain.

    Why. *Histogram*: see `stability_histogram`; the rest is computed from what it publishes. *Choosing*: how often a
    value occurs among the remaining rows is a count of growth 1, as `choosing` requires, and each noisy count has
    sensitivity 1. So this is an adaptive composition of 2·`rounds` mechanisms, and ε₀ is the largest with which it
    keeps (ε, δ). Rounds that do not take place are charged as well. The published points are sorted, so the order of
    discovery stays secret.

    Promise. If there are n ≥ `n_required(error)` rows, whatever they are, then with probability 1 − failure the
    frequency of *every* value of the domain is correct up to α = `error`, all at the same time; and the frequency of a
    set of k values up to kα. Errors of k values do add up: values that are not published are all underestimated. The
    proof is in `docs/sanitizers/points.md`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm SanPoints (Figure 9), Theorem 4.6, and the sanitizer for k-POINT_d (Figure 10), Theorem 4.7. Replaced by
    one stability histogram (see `stability_histogram`). In SanPoints, Theorem 2.5 is replaced by optimal composition,
    the search ends at the first ⊥, and the choosing mechanism is the repaired one (see `choosing`).

    Parameters
    ----------
    bits : int or None, default None
        Values are the integers of [0, 2^bits).
    domain : Domain or None, default None
        Given in place of bits: `concepts.Floats()`, `concepts.Datetimes(unit)`, or `concepts.Integers()`, which has no
        bounds.
    epsilon : float or Fraction
        Privacy-loss bound ε of the copy.
    delta : float or Fraction
        Failure probability δ of the privacy bound; positive, and well below one over the number of rows.
    method : {"histogram", "choosing"}, default "histogram"
        How values are found.
    rounds : int or None, default None
        For method="choosing": how many values are searched for; None is ⌈2/error⌉.
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
        The published values in ascending order, and the share of rows of each, with a sum of at most 1.
    rows_ : int
        The number of rows.

    >>> from reticent.concepts import Point, PointSet
    >>> values = [7] * 500 + [2**90] * 400 + list(range(1000, 1100))
    >>> sanitizer = PointSanitizer(bits=100, epsilon=1, delta=1e-6).fit(values)
    >>> sanitizer.points_.tolist() == [7, 2**90], sanitizer.frequency(Point(1000))
    (True, 0.0)
    >>> abs(sanitizer.frequency(PointSet((7, 2**90))) - 0.9) < 0.1
    True
    """

    def __init__(
        self,
        *,
        bits: int | None = None,
        domain: Domain | None = None,
        epsilon: Number,
        delta: Number,
        method: Literal["histogram", "choosing"] = "histogram",
        rounds: int | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.bits = bits
        self.domain = domain
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.rounds = rounds
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def sample(self, n: int, *, random_state: int | None = None) -> Array:
        """Draw synthetic rows independently from the private copy.

        The share that belongs to no published value is drawn uniformly from the other values of the domain. For an
        infinite domain this is impossible, and ValueError is raised. If there are no other values, the published ones
        share it in proportion to their weights, or equally if all weights are 0.

        Parameters
        ----------
        n : int
            The number of rows.
        random_state : int or None, default None
            The seed of the draw. The copy is public, so a seed is safe here.
        """
        check_is_fitted(self)
        count, generator = integer(n, "n", least=0), public_generator(random_state)
        source = noise.system if random_state is None else noise.Seeded(unsafe_seed=random_state)
        domain = self._domain()
        others = None if domain.size is None else domain.size - len(self.points_)
        elsewhere = max(0.0, 1.0 - float(self.weights_.sum()))
        if others is None and elsewhere > 1e-9:
            raise ValueError(
                f"a share of {elsewhere:.3g} of the rows has values that were not published, and an infinite domain "
                "has no uniform draw: declare bits or a finite domain, or sample from points_ with weights_ yourself"
            )
        shares = np.append(self.weights_, elsewhere if others else 0.0)
        if not shares.any():  # every value is published, with a noisy count of 0
            shares[:-1] = 1.0
        chosen = generator.choice(len(shares), size=count, p=shares / shares.sum())
        listed = np.append(_wide(domain.ranks(self.points_)), 0)  # the last stands for those drawn below
        ranks, strangers = listed[chosen], chosen == len(self.points_)
        if others and strangers.any():
            ranks[strangers] = _unlisted(domain, listed[:-1], source.uniform(others, int(strangers.sum())))
        return domain.values(ranks)

    def n_required(self, error: Number, failure: Number | None = None, *, k: int = 1) -> int:
        """The number of rows with which every set of at most k values has its frequency correct up to `error`.

        With method="choosing" and without `rounds`, it is for a sanitizer with the error `error`/k. Computed in
        floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.
        k : int, default 1
            The size of the sets.

        >>> PointSanitizer(bits=100, epsilon=1, delta=1e-6).n_required(0.1)
        360
        """
        self.check_parameters()
        share = check_share(error, "error") / integer(k, "k", least=1)
        beta = float(self._failure(failure))
        alpha = float(share)
        fails = self._choosing_fails(share) if self.method == "choosing" else self._histogram_fails()
        return in_reach(fewest_rows(lambda rows: fails(rows, alpha) <= beta), self.check_size)

    # ── the copy ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fit_with_noise(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """Call `fit` on a given source of noise; see `Sanitizer.fit_with_noise`."""
        if self.method == "choosing":
            self._rounds()  # raises if their number is not determined
        return super().fit_with_noise(X, unsafe_noise)

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        ranks, domain = self.query_class().ranks(rows)
        delta = check_delta(self.delta, positive=True, rows=len(rows))
        if self.method == "choosing":
            found, event = self._chosen(Line(ranks), unsafe_noise)
        else:
            found, event = stability_histogram(ranks, epsilon=self.epsilon, delta=delta, unsafe_noise=unsafe_noise)
        counts = np.array(list(found.values()), dtype=np.float64)
        listed = np.array(list(found), dtype=object).astype(ranks.dtype)
        return Release((domain.values(listed), at_most(counts, len(rows)) / len(rows)), event)

    def _chosen(self, line: Line, unsafe_noise: Noise | None) -> Release[dict[int, int]]:
        """SanPoints: the values that were found, in ascending order, and their noisy counts."""
        rounds = self._rounds()
        own, lost = calls(check_epsilon(self.epsilon), check_delta(self.delta, positive=True), rounds)
        counts, found = np.diff(line.ends), {}
        left = counts.copy()
        for _ in range(rounds):
            index = choosing(left, epsilon=own, delta=lost, unsafe_noise=unsafe_noise).value
            if index is None:
                break
            left[index] = 0
            noisy = laplace_count(int(counts[index]), epsilon=own, unsafe_noise=unsafe_noise).value
            found[line.point(index)] = max(0, noisy)
        return release(dict(sorted(found.items())), points_event(own, lost, rounds), unsafe_noise)

    # ── how likely it fails ───────────────────────────────────────────────────────────────────────────────────────

    def _histogram_fails(self) -> Fails:
        """A bound on the failure of a histogram."""
        rate = float(check_epsilon(self.epsilon)) / 2
        threshold = histogram_threshold(epsilon=self.epsilon, delta=self.delta)

        def fails(rows: int, alpha: float) -> float:
            half = alpha * rows / 2
            if rate * half < 1:
                return 1.0  # above this, more rows always help
            heavy = _tail(rate, half) + _tail(rate, min(half, math.floor(alpha * rows) + 2 - threshold))
            # A count of 1 is published most rarely; one of threshold − half is the least that is published without
            # more noise than half. The worst is one of these two, for these and for all larger numbers of rows.
            ones, others = _tail(rate, max(half, threshold - 1)), _tail(rate, half) / max(1.0, threshold - half)
            return heavy / alpha + max(rows, 2 * threshold / alpha) * max(ones, others)

        return fails

    def _choosing_fails(self, error: Fraction) -> Fails:
        """A bound on the failure of SanPoints."""
        rounds = math.ceil(2 / error) if self.rounds is None else self._rounds()
        if rounds * error < 2:
            raise ValueError(f"rounds must be at least {math.ceil(2 / error)} for this error, 2/error, got {rounds}")
        own, lost = calls(check_epsilon(self.epsilon), check_delta(self.delta, positive=True), rounds)
        threshold, rate = choosing_threshold(epsilon=own, delta=lost), float(own) / 2

        def fails(rows: int, alpha: float) -> float:
            half = alpha * rows / 2
            if rate * half < 1:
                return 1.0
            missed = _tail(rate, math.floor(alpha * rows) + 2 - threshold) + rows * math.exp(-rate * half)
            return rounds * (2 * _tail(2 * rate, half) + missed)

        return fails

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        histogram_threshold(epsilon=self.epsilon, delta=self.delta)
        self._domain()
        if self.method not in ("histogram", "choosing"):
            raise ValueError(f'method must be "histogram" or "choosing", got {self.method!r}')
        if self.rounds is not None:
            integer(self.rounds, "rounds", least=1, most=1 << 20)
            if self.method == "histogram":
                raise ValueError('rounds is for method="choosing": a histogram needs none')

    def _without_promise(self) -> str:
        """How to get a copy without a promise; SanPoints must know how many values to search for."""
        if self.method == "choosing" and self.rounds is None:
            return "set rounds, and error=None for a fit without a promise"
        return super()._without_promise()

    def _rounds(self) -> int:
        if self.rounds is not None:
            return integer(self.rounds, "rounds", least=1, most=1 << 20)
        if self.error is None:
            raise ValueError('method="choosing" needs error or rounds: it looks for 2/error values')
        return math.ceil(2 / check_share(self.error, "error"))

    def _domain(self) -> Domain:
        return required_domain(self.bits, self.domain)

    def query_class(self, concept: Any = None) -> Points | KPoints:
        """The class whose concepts `frequency` accepts, or for a given concept the class that it belongs to."""
        if concept is None or isinstance(concept, Point):
            return Points(self.bits, domain=self.domain)
        if isinstance(concept, PointSet):
            return KPoints(1, self.bits, domain=self.domain)
        raise TypeError(f"concept must be a Point or a PointSet, got {type(concept).__name__}")


@lru_cache(maxsize=256)
def calls(epsilon: Fraction, delta: Fraction, rounds: int) -> tuple[Fraction, Fraction]:
    """The largest ε₀, and δ₀, with which `rounds` calls of `choosing` and as many noisy counts fit (ε, δ).

    Half of δ is for the calls; the other half is for their composition.

    Parameters
    ----------
    epsilon, delta : Fraction
        The privacy of all calls together.
    rounds : int
        The number of calls.

    >>> own, lost = calls(Fraction(1), Fraction(1, 10**6), 20)
    >>> round(float(own), 4), lost == Fraction(1, 40 * 10**6)
    (0.0378, True)
    """
    lost = delta / (2 * rounds)
    return 1 / calibrate.noise(lambda scale: points_event(1 / scale, lost, rounds), epsilon=epsilon, delta=delta), lost


def points_event(own: Fraction, lost: Fraction, rounds: int) -> Event:
    """The event of SanPoints: `rounds` choices, each (own, lost)-private, and as many counts of ε = own."""
    return Composed((Repeated(ApproximateDP(own, lost), rounds), Repeated(PureDP(own), rounds)))


def at_most(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest non-negative numbers that sum to at most `total`: one amount is subtracted from all, down to 0.

    >>> at_most(np.array([8.0, 4.0, 1.0]), 10)
    array([7., 3., 0.])
    """
    if counts.sum() <= total:
        return counts
    descending = np.sort(counts)[::-1]
    amounts = (np.cumsum(descending) - total) / np.arange(1, len(counts) + 1)
    amount = amounts[np.flatnonzero(descending > amounts)[-1]]
    return np.asarray(np.maximum(counts - amount, 0.0))


def _tail(rate: float, least: float) -> float:
    """P(Z ≥ least) for discrete Laplace noise, or more if `least` is not a whole number."""
    if least <= 0:
        return 1 - _tail(rate, 1 - least) if least < 0 else 1 / (1 + math.exp(-rate))
    return math.exp(-rate * least) / (1 + math.exp(-rate))


def _wide(ranks: Array) -> Array:
    """Ranks as Python ints, whose sums do not overflow."""
    return np.array([int(rank) for rank in ranks], dtype=object)


def _unlisted(domain: Domain, listed: Array, numbers: Array) -> Array:
    """The ranks of the values with these numbers, counted from 0, among the values that are not listed."""
    assert domain.first is not None
    # The i-th of them lies above as many listed values as have at most i unlisted ones before them.
    gaps = listed - domain.first - np.arange(len(listed)).astype(object)
    wide = _wide(numbers)
    return np.asarray(wide + domain.first + np.searchsorted(gaps, wide, side="right").astype(object))
