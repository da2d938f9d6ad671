"""The private test of drift: how often it raises a false alarm, and from which angle on clusters that turn are seen."""

from __future__ import annotations

import math

import numpy as np

from experiments.table import Table
from reticent import noise
from reticent.noise import Noise
from reticent.predictors.drift import Summary, drift_summary, drifted, tolerance

EPSILON, DELTA, RUNS = 1, 1e-6, 40
SIZES = (300, 1000, 3000, 10_000)


def tables() -> list[Table]:
    """Tolerances, false alarms and alarms by angle, for two clusters in the plane."""
    generator, source = np.random.default_rng(0), noise.Seeded(unsafe_seed=0)
    rows = []
    for size in SIZES:
        pairs = {angle: [_pair(generator, source, size, angle) for _ in range(RUNS)] for angle in (0, 10, 20, 30, 45)}
        alarms = [f"{sum(drifted(*pair) for pair in found) / RUNS:.0%}" for found in pairs.values()]
        rows.append((f"{size:,}", f"{tolerance(*pairs[0][0]):.3f}", *alarms))
    columns = ("rows a summary", "tolerance", "0°", "10°", "20°", "30°", "45°")
    title = f"Alarms, ε = {EPSILON}, δ = {DELTA:g}, false alarms at most 1 %; clusters turned by so much"
    return [Table(title, columns, tuple(rows))]


def _pair(generator: np.random.Generator, source: Noise, size: int, degrees: float) -> tuple[Summary, Summary]:
    return _summary(generator, source, size, 0), _summary(generator, source, size, degrees)


def _summary(generator: np.random.Generator, source: Noise, size: int, degrees: float) -> Summary:
    """Two clusters at distance 2 from the origin, summed up by a boundary that stays; 4 is the row norm."""
    side, angle = generator.choice([-1.0, 1.0], size), math.radians(degrees)
    rows = side[:, None] * [2 * math.cos(angle), 2 * math.sin(angle)] + generator.normal(size=(size, 2))
    rows /= np.maximum(4, np.linalg.norm(rows, axis=1))[:, None]
    labels = (rows[:, 0] > 0).astype(np.int64)
    return drift_summary(rows, labels, classes=2, epsilon=EPSILON, delta=DELTA, unsafe_noise=source).value
