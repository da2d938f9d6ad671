"""Have the rows drifted? Noisy sums of the rows of each class, and a comparison of two such summaries.

A summary is released once, of rows that serve no other purpose. A comparison uses two released summaries alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2

from reticent.concepts.domains import declared
from reticent.concepts.order import Ordered
from reticent.exact import Number, integer
from reticent.learners.base import ConceptLearner
from reticent.learners.lattice import on_lattice
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.mechanisms.counts import gaussian_count, integer_array, laplace_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.events import DiscreteGaussian, Event, SeededRelease
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share
from reticent.silence import silent

Array = NDArray[Any]
Floats = NDArray[np.float64]

LEVELS = 1 << 10  # the length of an integer row that stands for a row of length 1
MOST_ROWS = 1 << 42  # so that sums of integer rows stay below 2⁵³, exact in floating point
FALSE_ALARM = Fraction(1, 100)


class Shape(NamedTuple):
    """What a summary is made of: numbers of classes and of columns, and how finely rows are rounded. All public."""

    classes: int
    columns: int

    @property
    def unit(self) -> int:
        """The integer that stands for 1, as a length and as one row of a class; without columns rows are counted."""
        return LEVELS if self.columns else 1

    @property
    def entries(self) -> int:
        """How many numbers are released: one sum per class and column, and the rows of all classes but one."""
        return self.classes * self.columns + self.classes - 1

    @property
    def squared_sensitivity(self) -> int:
        """How far a replaced row moves the summary at most, squared."""
        moved_counts = min(2, self.classes - 1)
        return 4 * self.unit**2 if self.columns else moved_counts

    @property
    def sensitivity(self) -> int:
        """How far a replaced row moves the summary at most, entries added up without their signs."""
        return 2 * math.isqrt(self.columns * self.unit**2) + min(2, self.classes - 1) * self.unit

    @property
    def variance(self) -> float:
        """The most that the variances of the entries of a row, of whatever law, add up to; 1 stands for `unit`."""
        counts = 1 / 4 if self.classes == 2 else 1 - 1 / self.classes
        return counts + bool(self.columns)


@dataclass(frozen=True, eq=False)
class Summary:
    """A released summary: noisy integers, and the public numbers that say how noisy they are."""

    values: NDArray[np.int64]  # the sums, class by class, then the numbers of rows of the classes 1, 2, …
    shape: Shape
    rows: int
    scale: Fraction  # σ of discrete Gaussian noise, or the scale of discrete Laplace noise
    pure: bool  # whether it is Laplace noise

    @property
    def variance(self) -> float:
        """The variance of the noise in each of the means; a little more than it is."""
        return float(self.scale / (self.rows * self.shape.unit)) ** 2 * (2 if self.pure else 1)

    @property
    def means(self) -> Floats:
        """The entries per row, in units of a row of length 1."""
        return np.asarray(self.values / (self.rows * self.shape.unit), dtype=np.float64)


def drift_summary(
    features: Array,
    labels: Array,
    *,
    classes: int,
    epsilon: Number,
    delta: Number,
    unsafe_noise: Noise | None = None,
) -> Release[Summary]:
    """The sums of the rows of each class, and how many rows have it, with noise.

    Rows of `features` are taken as vectors of length at most 1 (longer ones count as 0), rounded to whole numbers;
    there may be no columns at all, and then rows are only counted. `labels` are 0, 1, …, classes − 1. Sums class by
    class show what plain sums do not, such as clusters that turn around their common centre.

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label. The event is `DiscreteGaussian` for
    δ > 0, `PureDP(ε)` for δ = 0. Public are the number of rows, columns and classes.

    Why. A row becomes an integer vector whose squared length is at most L² = 1024², checked in integers. It is added to
    the sum of its class, and L to the count of its class. So a replaced row moves the released vector by a squared
    length of at most 4L². All sums are exact. The proof is in docs/predictors/drift.md.

    Source. New; the noise is that of `gaussian_count` and `laplace_count`.

    >>> import numpy as np
    >>> rows, labels = np.repeat([[0.6, 0.8], [-0.6, 0.8]], 5000, axis=0), np.repeat([0, 1], 5000)
    >>> summary, event = drift_summary(rows, labels, classes=2, epsilon=1, delta=1e-6)
    >>> np.round(summary.means, 1) + 0.0
    array([ 0.3,  0.4, -0.3,  0.4,  0.5])
    """
    exact_epsilon, exact_delta = check_epsilon(epsilon), check_delta(delta)
    kinds = integer(classes, "classes", least=2)
    rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or not 1 <= len(rows) <= MOST_ROWS:
        raise ValueError(f"features must have two dimensions and at least one row, got the shape {rows.shape}")
    class_indices = integer_array(labels, "labels", least=0, most=kinds - 1)
    if class_indices.shape != (len(rows),):
        raise ValueError(f"labels must be one per row: {len(rows)} rows, but their shape is {class_indices.shape}")
    shape = Shape(kinds, rows.shape[1])
    values = exact_sums(rows, class_indices, shape)
    if exact_delta == 0:
        value, event = laplace_count(
            values, epsilon=exact_epsilon, sensitivity=shape.sensitivity, unsafe_noise=unsafe_noise
        )
        scale = shape.sensitivity / exact_epsilon
    else:
        value, event = gaussian_count(
            values,
            epsilon=exact_epsilon,
            delta=exact_delta,
            squared_sensitivity=shape.squared_sensitivity,
            unsafe_noise=unsafe_noise,
        )
        scale = _sigma(event)
    return Release(Summary(value, shape, len(rows), scale, exact_delta == 0), event)


def _sigma(event: Event) -> Fraction:
    bare = event.event if isinstance(event, SeededRelease) else event
    assert isinstance(bare, DiscreteGaussian)
    return bare.sigma


@silent()
def exact_sums(features: Floats, class_indices: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
    """What a summary adds noise to."""
    whole = on_lattice(features * shape.unit, shape.unit**2)
    sums = [whole[class_indices == index].sum(axis=0) for index in range(shape.classes)]
    counts = shape.unit * np.bincount(class_indices, minlength=shape.classes)[1:]
    return np.concatenate([*sums, counts]).astype(np.int64)


def drifted(reference: Summary, current: Summary, *, false_alarm: Number = FALSE_ALARM) -> bool:
    """Whether the means of two summaries differ by more than chance explains, as if their rows had different laws.

    If all rows are independent and have one law, it is True with a probability of about `false_alarm` at most.

    Why. See `tolerance`. It looks at two releases and public numbers only, so it costs no privacy.
    """
    return float(np.linalg.norm(reference.means - current.means)) > tolerance(reference, current, false_alarm)


def tolerance(reference: Summary, current: Summary, false_alarm: Number = FALSE_ALARM) -> float:
    """The distance that the means of two summaries exceed by chance with a probability of about `false_alarm` at most.

    Why. The difference of the means of n and of m rows of one law is a sum of independent bounded vectors, about
    Gaussian, and its variances add up to at most V·(1/n + 1/m). Here V = 1 for the features, by their length, and 1/4
    for the counts (1 − 1/K for K > 2 classes). The noise adds the same known variance to every entry. Of all Gaussian
    vectors with such variances the squared length reaches far most often if V lies in one direction: then it is
    a·χ²(1) + b·χ²(D − 1), whose quantile is computed here. Floating point: nobody's privacy depends on it.
    """
    beta = float(check_share(false_alarm, "false_alarm"))
    shape = reference.shape
    if (current.shape, current.pure) != (shape, reference.pure):
        raise ValueError(f"current must have the shape and the noise of reference, {shape}, got {current.shape}")
    noise = sum(summary.variance for summary in (reference, current))
    return math.sqrt(_quantile(shape.variance * (1 / reference.rows + 1 / current.rows) + noise, noise, shape, beta))


def _quantile(wide: float, narrow: float, shape: Shape, beta: float) -> float:
    """What wide·χ²(1) + narrow·χ²(entries − 1) exceeds with a probability of β."""
    if shape.entries == 1:
        return wide * float(chi2.isf(beta, 1))
    heights = np.linspace(0, 9, 1801)
    weights = np.exp(-(heights**2) / 2)
    weights[0] /= 2
    weights /= weights.sum()

    def excess(length: float) -> float:
        rest = np.maximum(length - wide * heights**2, 0) / narrow
        return float(weights @ chi2.sf(rest, shape.entries - 1)) - beta

    most = wide * float(chi2.isf(beta / 2, 1)) + narrow * float(chi2.isf(beta / 2, shape.entries - 1))
    return float(brentq(excess, 0, most * 1.01))


# ── rows as vectors of length at most 1 ───────────────────────────────────────────────────────────────────────────


def unit_features(model: Any, X: Array) -> Floats:
    """The rows as a fitted private learner suggests, by public numbers alone; perhaps without any column.

    Rows of a linear learner are taken as it scales them. Values of a declared domain are scaled to [−1, 1], by rank.
    Where nothing is declared there is no public scale, and only the labels of the model are left to be summed up.
    """
    if isinstance(model, PrivateLogisticRegression):
        return np.asarray(model.feature_map_.short_rows(np.asarray(X, dtype=np.float64)))
    concepts = model.hypothesis_class() if isinstance(model, ConceptLearner) else None
    domain = declared(concepts.bits, concepts.domain) if isinstance(concepts, Ordered) else None
    if domain is None or domain.size is None or domain.first is None:
        return np.empty((len(X), 0))
    ranks, size = domain.ranks(X), domain.size
    if ranks.dtype == object:  # wider than 64 bits, perhaps than any float
        cut = max(0, size.bit_length() - 60)
        positions = np.array([float((int(rank) - domain.first) >> cut) for rank in ranks.flat]).reshape(ranks.shape)
        share = positions / float(size >> cut)
    else:
        share = (ranks.astype(np.float64) - float(domain.first)) / float(size)
    return np.asarray(np.clip(2 * share - 1, -1.0, 1.0) / math.sqrt(ranks.shape[1]))
