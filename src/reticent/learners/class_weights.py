"""Weights of classes in a private descent: public ones, or ones that balance noisy counts of the classes.

A weight is at most 1, and it shortens the residuals of the rows of its class. So no row pulls harder than without
weights, and the noise of the descent stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reticent.learners.descent import release_variance
from reticent.learners.lattice import Floats
from reticent.mechanisms.counts import gaussian_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import DiscreteGaussian, Event
from reticent.privacy.parameters import check_positive

SHARE = Fraction(1, 100)  # of μ², for counts that weights are computed from
LEAST = 0.2  # the least weight that counts lead to
SEEN = 2  # a class is seen in noisy counts from this many standard deviations of their noise on
CLEAR = 3  # and clearly from this many on: a class without rows is seen so in one of 700 releases
FINE = 10  # noise is fine if a class with one row in so many is clearly seen

ClassWeight = Literal["balanced"] | Mapping[Any, Any] | None


@dataclass(frozen=True)
class CountsPlan:
    """The release of noisy counts of the classes. All of it is public.

    Parameters
    ----------
    rows, classes : int
        The numbers of rows and of classes.
    sigma : Fraction
        The noise of each count.
    share : Fraction, default 1/100
        The share of μ² that it uses.
    missing : bool, default False
        Whether labels may be missing. It is public, and never read off the labels.
    """

    rows: int
    classes: int
    sigma: Fraction
    share: Fraction = SHARE
    missing: bool = False

    @property
    def event(self) -> Event:
        """The release."""
        return DiscreteGaussian(self.sigma, squared_sensitivity(self.classes, missing=self.missing))


def squared_sensitivity(classes: int, *, missing: bool = False) -> int:
    """By what a replaced row moves the counts: by 1 the one count of two classes, else by 1 in two of them.

    If labels may be missing, one count does not tell the other, so both of two classes are released.

    Parameters
    ----------
    classes : int
        The number of classes.
    missing : bool, default False
        Whether labels may be missing.
    """
    return 1 if classes == 2 and not missing else 2


def plan_counts(
    *,
    rows: int,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
    share: Fraction = SHARE,
    missing: bool = False,
) -> CountsPlan:
    """Plan the release of counts at a share of μ².

    Parameters
    ----------
    rows, classes : int
        The numbers of rows and of classes.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of the whole: of these counts and of all that follows.
    share : Fraction, default 1/100
        The share of μ².
    missing : bool, default False
        Whether labels may be missing.
    """
    variance = release_variance(epsilon, delta) / share
    return CountsPlan(rows, classes, sigma_of(squared_sensitivity(classes, missing=missing), variance), share, missing)


def release_class_counts(
    class_indices: NDArray[np.int64],
    classes: int,
    *,
    sigma: Fraction,
    missing: bool = False,
    unsafe_noise: Noise | None = None,
) -> Release[NDArray[np.int64]]:
    """Release how many rows each class has; of two classes whose labels are never missing, only of the second one.

    Guarantee. `DiscreteGaussian(sigma, 1)` for two classes whose labels are never missing, else
    `DiscreteGaussian(sigma, 2)`, for one replaced row.

    Why. A replaced row leaves one class, or none, and enters another, or none. The count of the second of two classes
    moves by 1 at most; of more counts, two move by 1 at most.

    Parameters
    ----------
    class_indices : array of int
        The class of each row; −1 for a row without a label, which is not counted.
    classes : int
        The number of classes.
    sigma : Fraction
        The noise.
    missing : bool, default False
        Whether labels may be missing. It is public: it must not be read off the labels.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    """
    counts = np.bincount(class_indices + 1, minlength=classes + 1)[1:].astype(np.int64)
    return gaussian_count(
        counts[1:] if classes == 2 and not missing else counts,
        sigma=sigma,
        squared_sensitivity=squared_sensitivity(classes, missing=missing),
        unsafe_noise=unsafe_noise,
    )


def noisy_counts(released: NDArray[np.int64], plan: CountsPlan) -> Floats:
    """The noisy count of each class.

    Parameters
    ----------
    released : array of int
        What `release_class_counts` released.
    plan : CountsPlan
        The plan of the release.

    >>> noisy_counts(np.array([100]), CountsPlan(400, 2, Fraction(1))).tolist()
    [300.0, 100.0]
    """
    one = len(released) < plan.classes
    return np.array([plan.rows - released[0], released[0]] if one else released, dtype=np.float64)


def row_weights(class_indices: NDArray[np.int64], weights: Floats | None, *, missing: bool = False) -> Floats | None:
    """By what the residuals of each row are multiplied: the weight of its class, and 0 for a row without a label.

    Parameters
    ----------
    class_indices : array of int
        The class of each row; −1 for a row without a label.
    weights : array of shape (classes,) or None
        The weight of each class; None is 1.
    missing : bool, default False
        Whether labels may be missing.

    Returns
    -------
    array of shape (rows,) or None
        None if every row has the weight 1, by public numbers alone.

    >>> row_weights(np.array([1, -1, 0]), np.array([0.2, 1.0]), missing=True).tolist()
    [1.0, 0.0, 0.2]
    """
    if weights is None:
        return (class_indices >= 0).astype(np.float64) if missing else None
    return np.asarray(np.append(weights, 0.0)[class_indices])  # the index −1 is the last of them


def balanced_weights(released: NDArray[np.int64], plan: CountsPlan) -> Floats:
    """Weights in inverse proportion to noisy counts: 1 for the rarest class, and never below `LEAST`.

    A class whose count does not stand out of the noise gets 1, and does not make others lighter.

    Parameters
    ----------
    released : array of int
        What `release_class_counts` released.
    plan : CountsPlan
        The plan of the release.

    >>> balanced_weights(np.array([100]), CountsPlan(400, 2, Fraction(1)))
    array([0.33333333, 1.        ])
    >>> balanced_weights(np.array([1, 500, 1000]), CountsPlan(1500, 3, Fraction(2)))
    array([1. , 1. , 0.5])
    """
    counts = noisy_counts(released, plan)
    seen = counts >= SEEN * float(plan.sigma)
    if not seen.any():
        return np.ones(plan.classes)
    return np.where(seen, np.clip(counts[seen].min() / np.where(seen, counts, 1.0), LEAST, 1.0), 1.0)


def seen_classes(released: NDArray[np.int64], plan: CountsPlan) -> NDArray[np.bool_] | None:
    """Whether each class clearly stands out of the noise of the counts; None if one row in ten would not.

    Parameters
    ----------
    released : array of int
        What `release_class_counts` released.
    plan : CountsPlan
        The plan of the release.

    >>> seen_classes(np.array([3]), CountsPlan(400, 2, Fraction(2))).tolist()
    [True, False]
    >>> seen_classes(np.array([3]), CountsPlan(400, 2, Fraction(20))) is None
    True
    """
    least = CLEAR * float(plan.sigma)
    return None if FINE * least > plan.rows else np.asarray(noisy_counts(released, plan) >= least)


def checked_class_weight(class_weight: Any) -> ClassWeight:
    """`class_weight` with exact numbers; ValueError or TypeError if it is no such parameter."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return class_weight  # type: ignore[return-value]
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight must be None, 'balanced' or a dictionary of weights by class, got "
            + (repr(class_weight) if isinstance(class_weight, str) else type(class_weight).__name__)
        )
    return {label: check_positive(weight, "class_weight") for label, weight in class_weight.items()}


def public_weights(given: Mapping[Any, Fraction], classes: NDArray[Any]) -> Floats:
    """The weights of classes by public numbers: 1 for a class without one, then divided by the largest.

    Parameters
    ----------
    given : mapping of label to Fraction
        Weights, from `checked_class_weight`.
    classes : array
        The classes, sorted.

    >>> public_weights({"yes": Fraction(4)}, np.array(["no", "yes"]))
    array([0.25, 1.  ])
    """
    labels = classes.tolist()
    if any(label not in labels for label in given):
        raise ValueError("class_weight must name no label but those in classes")
    weights = [given.get(label, Fraction(1)) for label in labels]
    return np.array([float(weight / max(weights)) for weight in weights])


def weights_by_index(class_weight: Any, classes: NDArray[Any]) -> ClassWeight:
    """`class_weight` of a learner whose labels are the indices of classes.

    Parameters
    ----------
    class_weight : "balanced", mapping or None
        The weights by label; ValueError if a label is none of the classes.
    classes : array
        The classes, sorted.

    >>> weights_by_index({2: 4}, np.array([1, 2]))
    {0: Fraction(1, 1), 1: Fraction(4, 1)}
    """
    given = checked_class_weight(class_weight)
    if not isinstance(given, Mapping):
        return given
    public_weights(given, classes)
    return {index: given.get(label, Fraction(1)) for index, label in enumerate(classes.tolist())}
