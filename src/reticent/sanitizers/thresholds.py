"""A private copy of a column of numbers or dates with accurate prefixes, intervals and quantiles."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from reticent.concepts.domains import Domain, below
from reticent.concepts.intervals import Interval, Intervals
from reticent.concepts.thresholds import Threshold, Thresholds
from reticent.concepts.values import plain_value
from reticent.data.points import Array
from reticent.exact import Number, rational
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach
from reticent.sanitizers.base import Copy, Sanitizer, usable_delta
from reticent.sanitizers.cells import copy_of_cells
from reticent.sanitizers.pivots import Pivots, best_pivots
from reticent.sanitizers.san_thresholds import SanThresholds, san_thresholds
from reticent.sanitizers.trees import Tree, best_tree

Scheme = Tree | Pivots | SanThresholds
ThresholdMethod = Literal["auto", "tree", "quantiles", "paper"]
METHODS = ("auto", "tree", "quantiles", "paper")


class ThresholdSanitizer(Sanitizer):
    """How many rows lie below each value of an ordered domain, whatever its size: a private distribution function.

    There are three methods. `"tree"` counts the rows by the digits of their values, digit by digit, and goes deeper
    only where there are many (`Tree`). `"quantiles"` cuts the line at private medians of medians, and counts the rows
    in between (`Pivots`); its depth does not depend on the width of the values. `"paper"` is SanThresholds
    (`SanThresholds`), for comparison; it needs `error` and δ > 0. `"auto"` takes whichever of the first two has the
    smaller expected error: the tree, or the medians if a tree would be deep for the number of rows.

    Guarantee. ε-differential privacy for a replaced row if δ = 0, else (ε, δ), for all that is published: the points
    and their weights. Public are the number of rows and every parameter, including the domain; the method, its levels
    and its noise are functions of these.

    Why. Each method has its own proof: see `Tree`, `Pivots`, `SanThresholds`. The rows are sorted first, so their order
    does not matter. The copy is a function of the released cells and counts.

    Promise. If n ≥ `n_required(error)`, then with probability 1 − failure the share of rows below t is correct up to
    `error`, for all thresholds t at once; hence the share of every interval up to 2·`error`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §4.3, Algorithm SanThresholds (see `SanThresholds`). The other methods are much better wherever they were measured.

    Parameters
    ----------
    bits : int or None, default None
        Values are the integers of [0, 2^bits).
    domain : Domain or None, default None
        Given in place of bits: `concepts.Floats()` or `concepts.Datetimes(unit)`.
    epsilon : float or Fraction
        Privacy-loss bound ε of the copy.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound.
    method : {"auto", "tree", "quantiles", "paper"}, default "auto"
        How the line is cut.
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
        The points of the copy in ascending order, and the share of rows of each.
    rows_ : int
        The number of rows.
    method_ : str
        The method that was used.
    error_ : float
        The error that is promised for this number of rows; a value above 1 promises nothing.

    >>> import numpy as np
    >>> amounts = (np.arange(100_000) % 1000) ** 3
    >>> sanitizer = ThresholdSanitizer(bits=64, epsilon=1, delta=1e-6).fit(amounts)
    >>> abs(sanitizer.cdf(500**3) - 0.5) < 0.02, 450**3 < sanitizer.quantile(0.5) < 550**3
    (True, True)
    >>> sanitizer.guarantee_.delta, sanitizer.method_
    (1e-06, 'tree')
    """

    def __init__(
        self,
        *,
        bits: int | None = None,
        domain: Domain | None = None,
        epsilon: Number,
        delta: Number = 0,
        method: ThresholdMethod = "auto",
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.bits = bits
        self.domain = domain
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    # ── what it answers ───────────────────────────────────────────────────────────────────────────────────────────

    def cdf(self, x: Any) -> Any:
        """Estimate the share of rows that are at most x.

        Parameters
        ----------
        x : number, date or array-like
            A value of the domain, or several.

        Returns
        -------
        float or array of float
            One share for one value.
        """
        check_is_fitted(self)
        domain, _ = self.query_class().finite_domain()
        ranks, totals = domain.ranks(self.points_), np.append(0.0, np.cumsum(self.weights_))

        def share(value: Any) -> float:
            if isinstance(value, datetime.date) and getattr(value, "tzinfo", None) is None:
                value = np.datetime64(value)
            position = domain.above(plain_value(value, "x"))
            return float(totals[np.count_nonzero(below(ranks, position))] / totals[-1])

        return _each(share, x)

    def quantile(self, q: Any) -> Any:
        """The least point of the copy up to which at least a share q of it lies.

        Parameters
        ----------
        q : number or array-like
            The share, in [0, 1], or several.

        Returns
        -------
        number, date or array
            One point for one share.
        """
        check_is_fitted(self)
        totals = np.cumsum(self.weights_)

        def index(share: Any) -> int:
            number = rational(share.item() if isinstance(share, np.generic) else share, "q")
            if not 0 <= number <= 1:
                raise ValueError(f"q must be in [0, 1], got {share}")
            # Sums of floats may be too small by about 2^-50.
            return min(int(np.searchsorted(totals, float(number) - 1e-12)), len(totals) - 1)

        found = self.points_[np.asarray(_each(index, q), dtype=np.int64)]
        return found.item() if isinstance(found, (np.integer, np.floating)) else found

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows with which all thresholds have their share correct up to `error`.

        It is for a sanitizer with this `error` and `failure`. The rows may be any. Computed in floating point, for
        planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.

        >>> ThresholdSanitizer(bits=64, epsilon=1, delta=1e-6).n_required(0.05)
        25042
        """
        self.check_parameters(fitting=False)
        alpha = check_share(error, "error")
        beta = self._failure(failure)

        epsilon, delta = check_epsilon(self.epsilon), usable_delta(self.epsilon, self.delta)
        needed = _fewest_rows(self.method, self.domain_size(), epsilon=epsilon, delta=delta, error=alpha, failure=beta)
        return in_reach(needed, self.check_size)

    # ── the copy ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        ranks, domain = self.query_class().ranks(rows)
        check_delta(self.delta, rows=len(rows))
        first, size = domain.first, self.domain_size()
        assert first is not None
        data = np.sort(_offsets(ranks, first, size))
        scheme = self._scheme(len(rows))
        levels = scheme.release(data, noise_or_system(unsafe_noise))
        points, weights = copy_of_cells(levels, len(rows), band=scheme.band)
        self.method_ = {Tree: "tree", Pivots: "quantiles", SanThresholds: "paper"}[type(scheme)]
        self.error_ = scheme.bound / len(rows)
        return release((domain.values(_ranks(points, first)), weights), scheme.event, unsafe_noise)

    def _scheme(self, rows: int) -> Scheme:
        """The scheme for this many rows; a function of public numbers only."""
        failure = self._failure()
        error = None if self.error is None else check_share(self.error, "error")
        epsilon, delta = check_epsilon(self.epsilon), usable_delta(self.epsilon, self.delta)
        return _best_scheme(
            self.method, self.domain_size(), rows, epsilon=epsilon, delta=delta, error=error, failure=failure
        )

    def _without_promise(self) -> str:
        """How to get a copy without a promise; SanThresholds always needs an error."""
        if self.method != "paper":
            return super()._without_promise()
        return 'take method="auto", which needs far fewer rows and can do without a promise'

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self, *, fitting: bool = True) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_choice(self.method, "method", METHODS)
        if self.method == "paper":
            if check_delta(self.delta, positive=True) != usable_delta(self.epsilon, self.delta):
                raise ValueError(f'delta={self.delta} is too small for method="paper" with epsilon={self.epsilon}')
            if self.error is None and fitting:
                raise ValueError(
                    'error must be given for method="paper", got None: SanThresholds looks for some 25/error '
                    "intervals, and is always fitted with a promise"
                )
        self.domain_size()

    def domain_size(self) -> int:
        """How many values a row may have; ValueError if the domain is not finite."""
        size = self.query_class().values
        if size is None:
            raise ValueError("give bits, or a finite domain such as Floats(): a private copy needs a known range")
        return int(size)

    def query_class(self, concept: Any = None) -> Thresholds | Intervals:
        """The class whose concepts `frequency` accepts, or for a given concept the class that it belongs to."""
        if concept is None or isinstance(concept, Threshold):
            return Thresholds(self.bits, domain=self.domain)
        if isinstance(concept, Interval):
            return Intervals(self.bits, domain=self.domain)
        raise TypeError(f"concept must be a Threshold or an Interval, got {type(concept).__name__}")


# ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _schemes(
    method: ThresholdMethod,
    size: int,
    rows: int,
    *,
    epsilon: Fraction,
    delta: Fraction,
    error: Fraction | None,
    failure: Fraction,
) -> list[Scheme]:
    """The schemes that a method may use for this many rows; not calibrated."""
    if method == "paper":
        alpha = check_share(error, "error")
        return [san_thresholds(size, rows, alpha=alpha, epsilon=epsilon, delta=delta, failure=failure)]
    schemes: list[Scheme] = []
    if method in ("auto", "tree"):
        schemes.append(best_tree(size, rows, epsilon=epsilon, delta=delta, failure=failure))
    if method in ("auto", "quantiles"):
        schemes += best_pivots(size, rows, epsilon=epsilon, delta=delta, failure=failure)
    return schemes


@lru_cache(maxsize=256)
def _best_scheme(
    method: ThresholdMethod,
    size: int,
    rows: int,
    *,
    epsilon: Fraction,
    delta: Fraction,
    error: Fraction | None,
    failure: Fraction,
) -> Scheme:
    """The scheme with the least expected error, among those that keep the promise if there are any; calibrated."""
    schemes = _schemes(method, size, rows, epsilon=epsilon, delta=delta, error=error, failure=failure)
    kept = [scheme for scheme in schemes if error is None or scheme.bound <= float(error) * rows]
    return min(kept or schemes, key=lambda scheme: scheme.expected).calibrated(epsilon, delta)


@lru_cache(maxsize=4096)  # learners ask for many accuracies, and for the same ones again
def _fewest_rows(
    method: ThresholdMethod, size: int, *, epsilon: Fraction, delta: Fraction, error: Fraction, failure: Fraction
) -> int:
    def reaches(rows: int) -> bool:
        schemes = _schemes(method, size, rows, epsilon=epsilon, delta=delta, error=error, failure=failure)
        return any(scheme.bound <= float(error) * rows for scheme in schemes)

    return fewest_rows(reaches)


def _each(answer: Callable[[Any], Any], values: Any) -> Any:
    """One answer for one value; for an array, an array of the same shape."""
    if isinstance(values, (list, tuple, np.ndarray)) or (hasattr(values, "__array__") and np.ndim(values)):
        array = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=object)
        return np.array([answer(value) for value in array.flat]).reshape(array.shape)
    return answer(values)


def _offsets(ranks: Array, first: int, size: int) -> Array:
    """Ranks relative to the first one of the domain."""
    if size > 1 << 64:
        return ranks.astype(object) - first
    return ranks.astype(np.uint64) - np.uint64(first % (1 << 64))  # modulo 2^64, which the result does not exceed


def _ranks(offsets: Array, first: int) -> Array:
    """The ranks of offsets, as Python ints."""
    return np.array([int(offset) + first for offset in offsets], dtype=object)
