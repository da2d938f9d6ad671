"""Broken copies of the mechanisms: an audit that passes the real one must reject each of them.

`TWINS` maps the names of the catalogue to runs of the same signature with one thing broken. Most break the noise that
the real code draws; the others replace one function of it. `reticent audit mechanisms` runs all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import ArrayLike

from reticent.audit.catalogue import Run, catalogue
from reticent.data import schema_plan
from reticent.exact import ceiling, log_bounds
from reticent.learners import second_moments
from reticent.mechanisms.above_threshold import AboveThreshold
from reticent.noise import Noise

# ── broken noise under the real code ──────────────────────────────────────────────────────────────────────────────

class Wrapped(Noise):
    """Draws from another noise. A draw that is not passed on ends at `random_bytes`, which the audit refuses."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def random_bytes(self, count: int) -> bytes:
        """Pass on."""
        return self.noise.random_bytes(count)

    def uniform(self, bound: int, size: int | None = None) -> Any:
        """Pass on."""
        return self.noise.uniform(bound, size)

    def bernoulli(self, probability: Fraction) -> bool:
        """Pass on."""
        return self.noise.bernoulli(probability)

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        """Pass on."""
        return self.noise.discrete_laplace(scale, size)


class Weaker(Wrapped):
    """All noise 0.7 times as large as it should be."""

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        """At 0.7 of the scale."""
        return self.noise.discrete_laplace(scale * 7 / 10, size)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        """At 0.7 of the scale."""
        return self.noise.discrete_gaussian(sigma * 7 / 10, size)

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        """At 0.7 of the scale."""
        return self.noise.laplace_cell(scale * 7 / 10, cuts)

    def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
        """At 0.7 of the scale."""
        return self.noise.gaussian_cell(sigma * 7 / 10, cuts)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        """At 10/7 of the rate."""
        return self.noise.choose(scores, rate=rate * 10 / 7, counts=counts)


class Stale(Wrapped):
    """The noise of values is drawn once and used for all of them."""

    drawn: int | None = None

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        """Compare the first draw with all cuts."""
        if self.drawn is None:
            self.drawn = self.noise.discrete_laplace(scale)
        return bisect_right(cuts, self.drawn)


class UpperFollows(Wrapped):
    """The upper threshold moves up with μ, as the lower one does: the printed sign. μ is the last noise drawn whole."""

    mu = 0

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        """Remember μ."""
        self.mu = self.noise.discrete_laplace(scale, size)
        return self.mu

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        """The cuts are lower + μ and upper − μ, less the value: put upper + μ in place of upper − μ."""
        lower, upper = cuts
        return self.noise.laplace_cell(scale, [lower, upper + 2 * self.mu])


class Lengthless(Wrapped):
    """A piece is chosen by its score alone, however many integers it holds."""

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        """Leave out the lengths."""
        return self.noise.choose(scores, rate=rate)


# ── one function of the real code replaced ────────────────────────────────────────────────────────────────────────

def printed_a_dist(gap: Fraction, *, epsilon: Fraction, delta: Fraction, noise: Noise) -> bool:
    """Noise for a gap of sensitivity 1, threshold (1/ε)·ln(1/δ); with integers, the least that reaches it."""

    def threshold(bits: int) -> tuple[Fraction, Fraction]:
        low, high = log_bounds(1 / delta, bits)
        return low / epsilon, high / epsilon

    return noise.laplace_cell(1 / epsilon, [ceiling(threshold) - math.floor(gap)]) == 1


# ── the collection ────────────────────────────────────────────────────────────────────────────────────────────────

Twin = Callable[[Run], Run]  # from the real run


def under(broken: Callable[[Noise], Noise]) -> Twin:
    """The real code on broken noise."""
    return lambda real: lambda noise, data: real(broken(noise), data)


def replacing(owner: object, attribute: str, broken: Callable[..., Any]) -> Twin:
    """The real code with one function replaced."""

    def twin(real: Run) -> Run:
        def run(noise: Noise, data: Any) -> Hashable:
            with mock.patch.object(owner, attribute, broken):
                return real(noise, data)

        return run

    return twin


def halved(function: Callable[..., int]) -> Callable[..., int]:
    """A threshold of half the size."""
    return lambda **parameters: function(**parameters) // 2


def less(amount: int, function: Callable[..., int]) -> Callable[..., int]:
    """A threshold that is lower by an amount."""
    return lambda **parameters: function(**parameters) - amount


# The package exports functions of the same names as some of these modules, so `import … as` would find the functions.
choosing, histogram, quasi_concave, sparse_vector, argmax = (
    import_module(f"reticent.mechanisms.{name}")
    for name in ("choosing", "stability_histogram", "quasi_concave", "sparse_vector", "stable_argmax")
)
release_gap, draw_integer = argmax.release_gap, quasi_concave.draw_integer

BROKEN: dict[str, dict[str, Twin]] = {
    "exponential": {"noise × 0.7": under(Weaker)},
    "exponential_over_pieces": {"noise × 0.7": under(Weaker), "lengths ignored": under(Lengthless)},
    "stable_argmax, table": {
        "A_dist as printed": replacing(argmax, "release_gap", printed_a_dist),
        "gap not halved": replacing(argmax, "release_gap", lambda gap, **rest: release_gap(2 * gap, **rest)),
    },
    "stable_argmax, laplace": {
        "noise × 0.7": under(Weaker),
        "threshold 2 lower": replacing(argmax, "laplace_threshold", less(2, argmax.laplace_threshold)),
    },
    "choosing": {
        "threshold halved": replacing(choosing, "choosing_threshold", halved(choosing.choosing_threshold)),
        "noise × 0.7": under(Weaker),
    },
    "choosing, growth 2": {
        "threshold halved": replacing(choosing, "choosing_threshold", halved(choosing.choosing_threshold)),
    },
    "quasi_concave_maximum, depth 1": {"noise × 0.7": under(Weaker)},
    "quasi_concave_maximum, depth 2": {
        "A_dist as printed": replacing(quasi_concave, "release_gap", printed_a_dist),
        "draws at twice the rate": replacing(
            quasi_concave, "draw_integer", lambda parts, *, rate, noise: draw_integer(parts, rate=2 * rate, noise=noise)
        ),
    },
    "laplace_count": {"noise × 0.7": under(Weaker)},
    "laplace_count, histogram": {"noise × 0.7": under(Weaker)},
    "gaussian_count": {"noise × 0.7": under(Weaker)},
    "gaussian_count, histogram": {"noise × 0.7": under(Weaker)},
    "stability_histogram": {
        "no threshold": replacing(histogram, "histogram_threshold", lambda **_: -(10**6)),
        "noise × 0.7": under(Weaker),
    },
    "second_moments": {
        "noise × 0.7": under(Weaker),
        "lengths not checked": replacing(second_moments, "on_lattice", lambda vectors, _: np.rint(vectors)),
    },
    "class_counts, 2 classes": {"noise × 0.7": under(Weaker)},
    "class_counts, 3 classes": {"noise × 0.7": under(Weaker)},
    "class_counts, labels may be missing": {"noise × 0.7": under(Weaker)},
    "private_schema": {
        "noise × 0.7": under(Weaker),
        "threshold without + 1": replacing(
            schema_plan, "category_threshold", less(1, schema_plan.category_threshold)
        ),
    },
    "column_scales": {"noise × 0.7": under(Weaker)},
    "AboveThreshold": {"noise × 0.7": under(Weaker), "value noise not redrawn": under(Stale)},
    "StableMajority": {
        "no width": replacing(sparse_vector, "AboveThreshold", lambda _, **rest: AboveThreshold(0, **rest)),
        "value noise not redrawn": under(Stale),
    },
    "BetweenThresholds": {"upper + μ": under(UpperFollows), "noise × 0.7": under(Weaker)},
    "noisy_majority": {"noise × 0.7": under(Weaker)},
    "gnmax": {"noise × 0.7": under(Weaker)},
    "ConfidentGNMax": {"noise × 0.7": under(Weaker)},
}

TWINS: dict[str, dict[str, Run]] = {
    entry.name: {name: twin(entry.run) for name, twin in BROKEN.get(entry.name, {}).items()} for entry in catalogue()
}
