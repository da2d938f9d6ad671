"""The stability-based histogram: noisy counts of the values that occur often."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number
from reticent.mechanisms.counts import add_noise, laplace_tail
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.events import ApproximateDP
from reticent.privacy.parameters import check_delta, check_epsilon


def stability_histogram(
    values: Sequence[Any] | NDArray[Any], *, epsilon: Number, delta: Number, unsafe_noise: Noise | None = None
) -> Release[dict[Any, int]]:
    """Return noisy counts of the values that occur often enough, as a dict sorted by value.

    Each value that occurs gets its count plus discrete Laplace noise, P(z) ∝ e^(−ε|z|/2), and is published if the sum
    reaches `histogram_threshold`. The domain may be infinite: values that do not occur cost nothing.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all values together. The number of rows and the type
    of the values are public: values of another type, or NaN, are refused, and a refusal is visible.

    Why. A replaced row moves two counts by 1, and the noise of each pays e^(ε/2). A value that appears or vanishes has
    count 1 and is published with probability at most δ. The output is sorted, and equal values have one representation,
    so neither reveals which row came first. The proof is in docs/mechanisms/stability_histogram.md.

    Source. Korolova, Kenthapadi, Mishra, Ntoulas, *Releasing Search Queries and Clicks Privately*; Bun, Nissim,
    Stemmer, *Simultaneous Private Learning of Multiple Concepts*; here with integer noise and its exact tail. It
    replaces Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 9 (Algorithm SanPoints), which pays for 2/α choosing mechanisms and noisy counts.

    Parameters
    ----------
    values : sequence or array
        One value per row: all whole numbers, all floats, all strings, all bytes, all booleans, or all tuples of the
        same structure.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    delta : int, float, Fraction or Decimal
        Failure probability δ of the guarantee, above 0.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of dict
        The noisy counts, and the event `ApproximateDP(epsilon, delta)`.

    Examples
    --------
    >>> stability_histogram(["tea"] * 500 + ["coffee"] * 900 + ["cocoa"], epsilon=1, delta=1e-6).value.keys()
    dict_keys(['coffee', 'tea'])
    """
    rows = _rows(values)
    event = ApproximateDP(check_epsilon(epsilon), check_delta(delta, positive=True, rows=len(rows)))
    names, counts = _counted(rows)
    threshold = histogram_threshold(epsilon=event.epsilon, delta=event.delta)
    noisy = add_noise(counts, noise_or_system(unsafe_noise).discrete_laplace, 2 / event.epsilon)
    return release({names[i]: int(noisy[i]) for i in np.flatnonzero(noisy >= threshold)}, event, unsafe_noise)


def histogram_threshold(*, epsilon: Number, delta: Number) -> int:
    """Return τ = 1 + ⌈(2/ε)·ln(1/(δ(1 + e^(−ε/2))))⌉, the least noisy count that is published.

    >>> histogram_threshold(epsilon=1, delta=1e-6)
    28
    """
    return 1 + laplace_tail(rate=check_epsilon(epsilon) / 2, probability=check_delta(delta, positive=True))


# ── one representation per value ──────────────────────────────────────────────────────────────────────────────────

def one_representation(values: list[Any], name: str) -> list[Any]:
    """Return the values, all of one type, in a form in which equal values also look the same.

    If they did not (0.0 and −0.0, 1 and True, two forms of a Decimal), the one that is shown would reveal whose row
    came first. Types with several forms of equal values are refused.

    Parameters
    ----------
    values : list
        The values.
    name : str
        The name of the parameter, for messages.
    """
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not set(map(type, values)) <= {int, str, bytes, bool}:
        values = [_canonical(value, name) for value in values]
    if len(set(map(_structure, values) if values and type(values[0]) is tuple else map(type, values))) > 1:
        raise _mixed(name)
    return values


def _canonical(value: Any, name: str) -> Any:
    kind = type(value)
    if kind is tuple:
        return tuple(_canonical(item, name) for item in value)
    if kind is float:
        _refuse_nan(math.isnan(value), name)
        return value + 0.0  # −0.0 becomes 0.0
    if kind not in (int, str, bytes, bool):
        raise _mixed(name)
    return value


def _structure(value: Any) -> Any:
    return tuple(map(_structure, value)) if type(value) is tuple else type(value)


def _mixed(name: str) -> TypeError:
    types = "all whole numbers, all floats, all strings, all bytes, all booleans, or all tuples of the same structure"
    return TypeError(f"{name} must be of one type: {types}")


def _refuse_nan(found: bool, name: str) -> None:
    if found:
        raise ValueError(f"{name} must not be NaN: NaN does not equal itself, so it cannot be counted")


def _rows(values: Sequence[Any] | NDArray[Any]) -> list[Any] | NDArray[Any]:
    """The rows as a list, or as an array where they are numbers."""
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"values must be one-dimensional, got {array.ndim} dimensions")
        if array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.dtype.itemsize <= 8):
            return array
        values = array.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(f"values must be a sequence, got {type(values).__name__}")
    return list(values)


def _counted(rows: list[Any] | NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The different values, sorted, and how often each occurs."""
    if isinstance(rows, list):
        counter = Counter(one_representation(rows, "values"))
        names = sorted(counter)
        return names, np.array([counter[name] for name in names], dtype=np.int64)
    if rows.dtype.kind == "f":
        _refuse_nan(bool(np.isnan(rows).any()), "values")
        rows = rows + 0.0  # −0.0 becomes 0.0
    uniques, counts = np.unique(rows, return_counts=True)
    return uniques.tolist(), counts.astype(np.int64)
