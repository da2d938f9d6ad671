"""Gradient descent on integer gradients with discrete Gaussian noise: the plan of it, and the steps.

All constants below only affect how well a descent learns. Its privacy follows from the length of rows and residuals,
which are checked in integers, and from the calibrated noise.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

from reticent.learners.lattice import WHOLE, Floats, Matrix, on_lattice, squared_lengths
from reticent.mechanisms.counts import WIDEST, gaussian_count
from reticent.noise import Noise
from reticent.privacy import calibrate, fits
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import DiscreteGaussian, Event, Repeated
from reticent.privacy.parameters import check_certifiable

LEVELS = 1 << 10  # the largest whole-number residual of a row of full length
LEAST_BITS, MOST_BITS, SPREAD = 12, 20, 8  # of the length of a row: at least, at most, and in each column
INTERCEPT = 0.3  # the constant column, as a share of the row norm
LEVEL = 2.0  # the standard deviation that the noise gives to the score of a row, over all steps
FEWEST, MOST = 20, 500  # steps
WHOLE_BUDGET = Fraction(1)
MEMORY = 10  # momentum forgets after a tenth of the steps


# ── the plan: all that is fixed before the rows are read ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DescentPlan:
    """The lattice, the noise and the steps of a descent. All of it is public.

    Parameters
    ----------
    rows : int
        The number of rows; if labels may be missing, how many are expected to have one.
    outputs : int
        Residuals per row: 1 for two classes, else one per class.
    radius : int
        R, the largest length of an integer row with its constant column.
    constant : int
        The value of the constant column; 0 if there is none.
    levels : int
        A, the largest length of the integer residuals of a row.
    sigma : Fraction
        The noise of each step.
    steps : int
        The number of steps.
    rate, momentum : float
        The step size, and the share of the velocity that is kept.
    """

    rows: int
    outputs: int
    radius: int
    constant: int
    levels: int
    sigma: Fraction
    steps: int
    rate: float
    momentum: float

    @property
    def reach(self) -> int:
        """The largest length of an integer row without its constant column, rounded down."""
        return math.isqrt(self.radius**2 - self.constant**2)

    @property
    def squared_sensitivity(self) -> int:
        """4A²R²: the squared distance by which one replaced row can move the sum of a step."""
        return (2 * self.levels * self.radius) ** 2

    @property
    def event(self) -> Event:
        """The releases of all steps."""
        return Repeated(DiscreteGaussian(self.sigma, self.squared_sensitivity), self.steps)

    @property
    def cap(self) -> float:
        """The length of the residuals at weights zero, which A stands for: 1/2, or √(1 − 1/K) for K > 2 classes."""
        return 0.5 if self.outputs == 1 else math.sqrt(1 - 1 / self.outputs)


def plan_descent(
    *,
    rows: int,
    columns: int,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
    intercept: bool = True,
    steps: int | None = None,
    share: Fraction = WHOLE_BUDGET,
    level: float = LEVEL,
    most_level: float | None = None,
    places: int | None = None,
) -> DescentPlan:
    """Plan a descent from public numbers.

    In units of the row norm, steps of total length τ (rate × steps, momentum included) add noise of standard deviation
    τ·2·cap/(μn) to every weight. Here μ is sensitivity over σ of a single release that uses up (ε, δ). The number of
    steps drops out. So τ is set to give the score of a row the noise `level`. The number of steps grows as √τ, which is
    as fast as momentum needs, up to `MOST`.

    Parameters
    ----------
    rows, columns, classes : int
        The size of the problem. If labels may be missing, `rows` is how many are expected to have one.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of the whole descent.
    intercept : bool, default True
        Whether rows get a constant column.
    steps : int or None, default None
        The number of steps; None chooses it.
    share : Fraction, default 1
        The share of μ² that the descent may use; the rest is for releases before it.
    level : float, default 2
        The standard deviation that the noise of all steps gives to the score of a row of full length.
    most_level : float or None, default None
        The greatest level that there might be; None is `level`. The number of steps is chosen for it, so it depends on
        public numbers even where the level does not.
    places : int or None, default None
        The number of all rows, with and without a label; None is `rows`.

    Returns
    -------
    DescentPlan
        A plan whose event fits (ε, δ).
    """
    outputs = 1 if classes == 2 else classes
    # The sum over all rows stays below 2^53, however many of them have a label.
    radius = 1 << min(row_bits(columns), 52 - (LEVELS * (places or rows)).bit_length())
    constant = round(radius * INTERCEPT / math.hypot(1, INTERCEPT)) if intercept else 0
    plan = DescentPlan(rows, outputs, radius, constant, LEVELS, Fraction(1), 1, 0.0, 0.0)
    squared = plan.squared_sensitivity

    sigma = partial(_sigma, squared=squared, epsilon=epsilon, delta=delta)
    if share != 1:
        variance = release_variance(epsilon, delta) / share
        sigma = partial(_sigma_within, squared=squared, variance=variance, epsilon=epsilon, delta=delta)
    steepest = 4.0 if outputs > 1 else 8.0  # twice the inverse of the greatest curvature of a unit row's loss
    apart = 1.0 if outputs == 1 else 1 / math.sqrt(2)  # the difference of two scores has the noise of both
    unit = apart * rows * math.sqrt(squared) / float(sigma(1)) / (2 * plan.cap)  # the path length of level 1
    travel = level * unit
    if steps is None:
        farthest = unit * (level if most_level is None else most_level)
        steps = round(min(max(math.sqrt(MEMORY * farthest / steepest), FEWEST), MOST))
    forget = min(1.0, MEMORY / steps)
    return DescentPlan(
        rows=rows,
        outputs=outputs,
        radius=radius,
        constant=constant,
        levels=LEVELS,
        sigma=sigma(steps),
        steps=steps,
        rate=min(forget * travel / steps, steepest),
        momentum=1 - forget,
    )


@lru_cache(maxsize=4096)
def _sigma(times: int, *, squared: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least noise with which this many releases of this squared sensitivity fit (ε, δ)."""

    # T releases cost what one of T times the squared sensitivity costs, and that is faster to look up.
    def all_steps(each: Fraction) -> Event:
        return Repeated(DiscreteGaussian(each, squared), times)

    check_certifiable(delta)
    with suppress(ValueError):
        least = calibrate.noise(lambda one: DiscreteGaussian(one, times * squared), epsilon=epsilon, delta=delta)
        if not fits(all_steps(least), epsilon=epsilon, delta=delta):
            least = calibrate.noise(all_steps, epsilon=epsilon, delta=delta)
        if least <= WIDEST:
            return least
    raise _too_small(epsilon, delta)


def _sigma_within(times: int, *, squared: int, variance: Fraction, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The noise of this many releases that together have this variance per squared sensitivity."""
    sigma = sigma_of(times * squared, variance)
    if sigma > WIDEST:
        raise _too_small(epsilon, delta)
    return sigma


def _too_small(epsilon: Fraction, delta: Fraction) -> ValueError:
    return ValueError(
        f"epsilon={float(epsilon):g} and delta={float(delta):g} are too small together: the noise would not fit "
        "into 64 bits; ask for a larger one of them"
    )


def row_bits(columns: int) -> int:
    """The bits of the length of an integer row: the entries of an evenly spread row have `SPREAD` of them or more."""
    return max(LEAST_BITS, min(SPREAD + (columns.bit_length() + 1) // 2, MOST_BITS))


def release_variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """1/μ²: the least variance of the noise, per squared sensitivity, with which one release fits (ε, δ)."""
    squared = (2 * LEVELS << LEAST_BITS) ** 2
    return _sigma(1, squared=squared, epsilon=epsilon, delta=delta) ** 2 / squared


# ── rows and residuals as integers ────────────────────────────────────────────────────────────────────────────────


def integer_rows(unit_rows: Matrix, plan: DescentPlan) -> Matrix:
    """Unit rows as integer rows of length at most R, with the constant column last.

    Parameters
    ----------
    unit_rows : array or CSR matrix of shape (rows, columns)
        Rows of length at most 1; a row that is too long on the lattice becomes zero (see `on_lattice`).
    plan : DescentPlan
        The lattice.

    Returns
    -------
    array or CSR matrix
        Whole numbers, stored as float64.
    """
    rows = on_lattice(unit_rows * plan.reach, plan.radius**2 - plan.constant**2)
    if not plan.constant:
        return rows
    column = np.full((rows.shape[0], 1), float(plan.constant))
    return sparse.hstack([rows, column], format="csr") if sparse.issparse(rows) else np.hstack([rows, column])


def integer_residuals(residuals: Floats, plan: DescentPlan, row_weights: Floats | None = None) -> Floats:
    """Residuals as integer vectors of length at most A, which stands for `plan.cap`; longer ones are shortened.

    Parameters
    ----------
    residuals : array of shape (rows, outputs)
        The residuals.
    plan : DescentPlan
        The lattice.
    row_weights : array of shape (rows,) or None, default None
        Weights from 0 to 1, which shorten residuals further. The length is checked after that, so no weight can make
        a residual longer than A.
    """
    lengths = np.sqrt(squared_lengths(residuals))
    factors = plan.levels / np.maximum(lengths, plan.cap)
    factors = factors if row_weights is None else factors * row_weights
    return np.asarray(on_lattice(residuals * factors[:, None], plan.levels**2))


def class_targets(class_indices: NDArray[np.int64], classes: int) -> Floats:
    """What probabilities are compared with: 0 or 1 for two classes, else the unit vector of the class.

    A row without a label, whose index is −1, gets zeros. It still needs the row weight 0, so that it pulls with 0.

    Parameters
    ----------
    class_indices : array of int
        The class of each row, or −1.
    classes : int
        The number of classes.
    """
    targets = np.vstack([np.eye(classes), np.zeros(classes)])  # the index −1 is the last line
    return np.asarray((targets[:, 1:] if classes == 2 else targets)[class_indices])


# ── the steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def descend(
    rows: Matrix,
    targets: Floats,
    plan: DescentPlan,
    unsafe_noise: Noise | None = None,
    start: Floats | None = None,
    *,
    row_weights: Floats | None = None,
) -> Floats:
    """Run a private descent.

    Guarantee. `plan.event`, for one replaced row and its target.

    Why. Each step releases a sum of integer vectors, to which a row adds at most AR in length, with discrete Gaussian
    noise. All else is computed from these releases and from public numbers. See `docs/learners/logistic.md`.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        Integer rows, from `integer_rows`.
    targets : array of shape (rows, outputs)
        The targets, from `class_targets`.
    plan : DescentPlan
        The plan.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    start : array of shape (columns, outputs) or None, default None
        The public weights that the descent starts from; None is zero.
    row_weights : array of shape (rows,) or None, default None
        Weights from 0 to 1, by which the residuals of rows are shortened; None is 1. That of a row is a function of
        its label, of releases and of public numbers; see `class_weights.row_weights`.

    Returns
    -------
    array of shape (columns, outputs)
        The weights for unit rows: the average over the last half of the steps.
    """
    shape = (rows.shape[1], plan.outputs)
    weights, velocity, total = (np.zeros(shape, dtype=np.float64) for _ in range(3))
    if start is not None:
        weights = start
    unit = plan.rate * plan.cap / (plan.levels * plan.radius * plan.rows)
    half = (plan.steps + 1) // 2
    for step in range(plan.steps):
        residuals = integer_residuals(targets - probabilities(rows, weights, plan), plan, row_weights)
        noisy, _ = gaussian_count(
            gradient_sum(rows, residuals),
            sigma=plan.sigma,
            squared_sensitivity=plan.squared_sensitivity,
            unsafe_noise=unsafe_noise,
        )
        velocity = plan.momentum * velocity + unit * noisy
        weights = weights + velocity
        if step >= plan.steps - half:
            total += weights
    return np.asarray(total / half)


def gradient_sum(rows: Matrix, residuals: Floats) -> NDArray[np.int64]:
    """Σ row ⊗ residuals over all rows: exact, because the absolute values of all terms sum to less than 2⁵³."""
    return np.asarray(rows.T @ residuals).astype(np.int64)


def probabilities(rows: Matrix, weights: Floats, plan: DescentPlan) -> Floats:
    """The probability of the second of two classes, or of each of several, at the given weights.

    The weights are rounded to a public lattice. It is so fine that row · weights is a whole number below 2⁵³, which is
    the same in whatever order a matrix product adds.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        Integer rows.
    weights : array of shape (columns, outputs)
        The weights.
    plan : DescentPlan
        The lattice of the rows.
    """
    capacity = WHOLE / (4 * plan.radius * max(1.0, float(np.linalg.norm(weights))))
    fine = 2.0 ** min(30, math.floor(math.log2(capacity)))
    scores = np.asarray(rows @ np.rint(weights * fine)) / (fine * plan.radius)
    return np.asarray(expit(scores) if plan.outputs == 1 else softmax(scores, axis=1))
