"""Privacy-loss distributions on a grid: upper bounds for any composition.

A pair of laws P, Q is represented by a measure m on a grid of losses, with a mass at infinity, whose curve
H(ε) = m(∞) + Σ m(ℓ)·(1 − e^(ε−ℓ))₊ is nowhere below the pair's δ(ε), for ε of either sign. Composition convolves such
measures, and keeps the property: writing δ(ε; P₁P₂) = E_{P₁}[δ(ε − ℓ₁; P₂)] ≤ E_{P₁}[H₂(ε − ℓ₁)] =
E_{m₂}[δ(ε − ℓ₂; P₁)] ≤ E_{m₂}[H₁(ε − ℓ₂)], where nothing needs m to have total mass one (Zhu, Dong, Wang 2022, Theorem
10, for measures). So a measure may be enlarged a little to cover every rounding error, and is.

The convolution is done by the fast Fourier transform after tilting: masses are multiplied by e^(θℓ)/M(θ), with θ chosen
so that the composed, tilted loss is centred on the ε of interest. Its rounding errors are then small against δ itself,
not against one, and a bound on them is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reticent.privacy.floats import ROUNDING, Floats

_TAIL = 45.0  # e^−45 of the tilted mass may fall off the grid; it is added back


@dataclass(frozen=True)
class Losses:
    """A measure on the grid of multiples of `step`, with a mass at infinity.

    Attributes
    ----------
    step : float
        The distance of neighbouring grid points.
    first : int
        The index of the first grid point with a mass.
    masses : array
        masses[i] is the mass at (first + i)·step.
    infinite : float, default 0
        The mass at infinity.
    """

    step: float
    first: int
    masses: Floats
    infinite: float = 0.0

    @cached_property
    def grid(self) -> Floats:
        """The losses that carry the masses."""
        return np.arange(self.first, self.first + len(self.masses), dtype=np.float64) * self.step

    @cached_property
    def log_masses(self) -> Floats:
        """The logarithms of the masses."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.masses))


def spread_on_grid(losses: Floats, probabilities: Floats, step: float, *, infinite: float = 0.0) -> Losses:
    """Return a discrete loss distribution on the grid: each mass is split between its two neighbours on the grid.

    The split keeps the mass and the mean of e^(−loss). (1 − e^ε·y)₊ is convex in y = e^(−loss), so H only grows. Losses
    are first moved up by more than their rounding error.
    """
    safe = losses + 8 * ROUNDING * np.abs(losses)
    cells = np.floor(safe / step).astype(np.int64)
    upper = probabilities * np.clip(np.expm1(cells * step - safe) / math.expm1(-step), 0.0, 1.0)
    first = int(cells.min())
    size = int(cells.max()) - first + 2
    masses = np.bincount(cells - first, probabilities - upper, size) + np.bincount(cells - first + 1, upper, size)
    return Losses(step, first, np.asarray(masses * (1 + 1e-14), dtype=np.float64), infinite)


def dominating(profile: Callable[[Floats], Floats], step: float, reach: int) -> Losses:
    """Return the measure whose curve connects the values of a profile on the grid 0, step … reach·step, linearly in
    e^ε.

    `profile` bounds δ(ε) for ε ≥ 0, for both orders of every two neighbours. So for ε < 0 it is 1 − e^ε·(1 − δ(−ε)),
    and the mass at −ℓ is e^(−ℓ) times that at ℓ. δ(ε) is convex in e^ε, so the curve is nowhere below it (Doroshenko
    and others 2022, "Connect the dots"). If rounding, or a profile that is only a bound, makes a mass negative, it is
    set to zero, which raises the curve. The masses are then scaled up until the curve is above every value again.
    """
    grid = np.arange(reach + 1, dtype=np.float64) * step
    dots = np.minimum.accumulate(np.clip(profile(grid), 0.0, 1.0))
    slopes = np.append(np.diff(dots) / (np.exp(grid[:-1]) * math.expm1(step)), 0.0)
    right = np.maximum(np.exp(grid[1:]) * np.diff(slopes), 0.0)  # the masses at step … reach·step
    left = right * np.exp(-grid[1:])
    middle = max(0.0, 1 - dots[-1] - right.sum() - left.sum())
    curve = dots[-1] + _curve(np.append(0.0, right), step)
    with np.errstate(divide="ignore", invalid="ignore"):
        short = np.nanmax(np.where(dots > 0, dots / curve, 0.0))
    scale = max(1.0, float(short)) * (1 + 1e-12)
    return Losses(step, -reach, np.concatenate((left[::-1], [middle], right)) * scale, float(dots[-1]) * scale)


def _curve(masses: Floats, step: float) -> Floats:
    """Σ_{j>i} masses[j]·(1 − e^((i−j)·step)) for every i, as a sum of positive terms."""
    above = np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)
    fade = np.exp(-step * np.arange(len(masses)))
    blocks = max(1, math.ceil(len(masses) * step / 300))  # so that no weight underflows within a block
    result = np.empty_like(above)
    carry = 0.0
    for block in reversed(np.array_split(np.arange(len(masses)), blocks)):
        weights = fade[block - block[0]]
        sums = np.cumsum((weights * above[block])[::-1])[::-1]
        result[block] = (-math.expm1(-step) * sums + carry * fade[min(len(block), len(fade) - 1)]) / weights
        carry = float(result[block[0]])
    return result


class Composition:
    """A composition of losses, each repeated some number of times.

    Parameters
    ----------
    members : sequence of (Losses, int)
        The losses and how often each occurs, all on one grid.
    """

    def __init__(self, members: Sequence[tuple[Losses, int]]) -> None:
        self.members = [(losses, times) for losses, times in members]
        self.step = members[0][0].step
        self.times = sum(times for _, times in members)
        self.infinite = _infinite([(float(losses.masses.sum()), losses.infinite, times) for losses, times in members])

    @property
    def typical(self) -> float:
        """An ε to start a search with."""
        if self.infinite >= 1:
            return 1.0
        mean, variance = self._mean_and_variance(0.0)
        return max(0.0, mean) + 5 * math.sqrt(variance)

    # ── cumulants ─────────────────────────────────────────────────────────────────────────────────────────────────

    def log_moment(self, theta: float) -> float:
        """Return ln Σ m(ℓ)·e^(θℓ) over the finite losses of the composition."""
        return sum(times * _log_moment(losses, theta)[0] for losses, times in self.members)

    def _mean_and_variance(self, theta: float) -> tuple[float, float]:
        moments = [(times, *_log_moment(losses, theta)[1:]) for losses, times in self.members]
        return sum(times * mean for times, mean, _ in moments), sum(times * spread for times, _, spread in moments)

    def _tilt_towards(self, epsilon: float) -> float:
        """The θ ≥ 0 at which the tilted loss is about centred on ε, by Newton's method within a bracket."""
        low, high, theta = 0.0, 20 / self.step, 0.0
        for _ in range(40):
            mean, variance = self._mean_and_variance(theta)
            gap = epsilon - mean
            if abs(gap) <= 0.1 * math.sqrt(variance) or (theta == 0 and gap <= 0):
                break
            low, high = (theta, high) if gap > 0 else (low, theta)
            theta += gap / max(variance, 1e-300)
            if not low < theta < high:
                theta = (low + high) / 2
        return theta

    # ── the curve ─────────────────────────────────────────────────────────────────────────────────────────────────

    def curve(self, epsilon: float) -> tuple[Floats, Floats]:
        """Return points around ε, and upper bounds on δ at them that are tightest near ε."""
        theta = self._tilt_towards(epsilon)
        low, high = self._window(theta)
        size = 1 << max(4, (high - low).bit_length())
        transform_error = 16 * ROUNDING * math.log2(size)
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        log_moment, error, rounding, smallest = 0.0, 0.0, 1e-11 + 4 * size * ROUNDING, 1.0
        for losses, times in self.members:
            own = _log_moment(losses, theta)[0]
            exponents = theta * losses.grid - own
            tilted = losses.masses * np.exp(exponents)
            folded = np.bincount((losses.first + np.arange(len(tilted))) % size, tilted, minlength=size)
            spectrum *= _power(np.fft.rfft(folded), times)
            norm = float(np.sqrt(folded @ folded))
            log_moment += times * own
            error += times * transform_error * norm
            rounding += times * (8 + 4 * float(np.abs(exponents).max()) + 4 * abs(own)) * ROUNDING
            smallest = min(smallest, norm)
        error = 2 * (error + (transform_error + 8 * ROUNDING * self.times) * smallest)
        composed = np.maximum(np.fft.irfft(spectrum, size), 0.0)
        # An entry carries the losses that are congruent to it; the window holds all but e^−_TAIL of them.
        indices = low + np.arange(size)
        reach = self.step * np.arange(1, size + 1)
        effect = float(np.linalg.norm(np.exp(-theta * reach) * np.expm1(-reach)))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            anchor = max(low, min(low + size, round(epsilon / self.step)))
            weights = np.exp(-theta * self.step * (indices - anchor))  # may overflow to the left: no bound there
            sums = _curve(composed[indices % size] * weights, self.step)
            scale = np.exp(np.minimum(log_moment - theta * self.step * anchor, 700.0))
            finite = scale * (sums + weights * (error * effect + math.exp(-_TAIL))) * (1 + rounding)
            bounds = self.infinite + finite + 1e-300
        return indices.astype(np.float64) * self.step, np.minimum(1.0, np.where(np.isnan(bounds), 1.0, bounds))

    def _window(self, theta: float) -> tuple[int, int]:
        """Grid indices above which lies at most e^−_TAIL of the tilted mass, and below which about as much.

        Mass above the window is lost to the circular convolution, so it is added to the bounds. Mass below it is folded
        into the window, which only raises them.
        """
        base = self.log_moment(theta)
        _, variance = self._mean_and_variance(theta)
        unit = 1 / math.sqrt(variance + self.step**2)
        shifts = [unit * factor for factor in (1, 3, 6, 9, 14)]
        high = min((self.log_moment(theta + s) - base + _TAIL) / s for s in shifts)
        low = max(-(self.log_moment(theta - s) - base + _TAIL) / s for s in shifts)
        top = sum(times * (losses.first + len(losses.masses) - 1) for losses, times in self.members)
        bottom = sum(times * losses.first for losses, times in self.members)
        return max(bottom, math.floor(low / self.step) - 1), min(top, math.ceil(high / self.step) + 1)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def deltas(self, epsilons: Floats) -> Floats:
        """Return upper bounds on δ at every ε; a few tilts serve many of them."""
        if self.infinite >= 1:
            return np.ones_like(epsilons)
        if epsilons.size <= 4:
            centres = epsilons
        else:
            top = sum(times * losses.grid[-1] for losses, times in self.members)
            centres = np.linspace(0.0, min(float(epsilons.max()), top), 12)
        best = np.ones_like(epsilons)
        for centre in centres:
            best = np.minimum(best, _read(*self.curve(float(centre)), epsilons))
        return best

    def epsilon(self, delta: float, guess: float) -> float:
        """Return the least ε ≥ 0 whose bound on δ is at most `delta`; infinity if there is none."""
        if delta <= self.infinite:
            return math.inf
        best = math.inf
        for _ in range(6):
            points, bounds = self.curve(guess)
            good = np.flatnonzero((bounds <= delta) & (points >= 0))
            found = float(points[good[0]]) if good.size else math.inf
            if good.size and good[0] > 0 and points[good[0]] > 0:
                i = int(good[0])
                # between grid points the bound is linear in e^ε
                share = (delta - bounds[i]) / (bounds[i - 1] - bounds[i])
                inside = float(points[i]) + math.log1p(-share * -math.expm1(-self.step))
                found = max(0.0, min(found, inside + 1e-14 * abs(found)))
            if found < best * (1 - 1e-6):
                best = guess = found
            elif found < math.inf:
                return min(best, found)
            else:
                guess = 2 * guess + self.step
        return best


def _infinite(members: list[tuple[float, float, int]]) -> float:
    """The mass of the composition at infinity: all that is not finite in every member."""
    if any(finite <= infinite for finite, infinite, _ in members):
        return 1.0
    log_finite = sum(times * math.log(finite) for finite, _, times in members)
    log_more = sum(times * math.log1p(infinite / finite) for finite, infinite, times in members)
    rounding = 1e-11 + 8 * ROUNDING * sum(times for _, _, times in members)
    return min(1.0, math.exp(min(log_finite, 700.0)) * math.expm1(min(log_more, 700.0)) * (1 + rounding))


def _read(points: Floats, bounds: Floats, epsilons: Floats) -> Floats:
    """The bounds at ε, linear in e^ε between the points; 1 below them and the last bound above."""
    below = np.clip(np.searchsorted(points, epsilons, side="right") - 1, 0, len(points) - 2)
    step = points[1] - points[0]
    share = np.clip(np.expm1(np.clip(epsilons - points[below], 0.0, step)) / np.expm1(step), 0.0, 1.0)
    values = bounds[below] + share * (bounds[below + 1] - bounds[below])
    # covers the rounding of the share
    values = values * (1 + 1e-13) + 1e-12 * (bounds[below] - bounds[below + 1])
    return np.where(epsilons < points[0], 1.0, np.minimum(1.0, values))


def _log_moment(losses: Losses, theta: float) -> tuple[float, float, float]:
    """ln Σ m·e^(θℓ), and the mean and the variance of the loss under those weights."""
    grid = losses.grid
    exponents = theta * grid + losses.log_masses
    top = float(exponents.max())
    with np.errstate(under="ignore"):
        weights = np.exp(exponents - top)
    total = float(weights.sum())
    mean = float(weights @ grid) / total
    return top + math.log(total), mean, float(weights @ (grid - mean) ** 2) / total


def _power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """values**exponent by squaring: a product of `exponent` factors has that many rounding errors, in any order."""
    result = np.ones_like(values)
    with np.errstate(under="ignore"):
        while exponent:
            if exponent & 1:
                result = result * values
            values = values * values
            exponent >>= 1
    return result
