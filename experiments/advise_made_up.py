"""Rows that are made up, for the settings that advice is measured on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.advise_settings import BITS, Setting

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = tuple[Any, Integers]


def _coin(generator: np.random.Generator, score: Floats) -> Integers:
    """Labels that are 1 with a chance that grows with the score."""
    return (generator.random(len(score)) < 1 / (1 + np.exp(-score))).astype(np.int64)


def _factors(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Columns driven by six factors and some noise, which is all that tells the classes apart."""
    fixed = np.random.default_rng(1)
    factors, load = generator.normal(size=(rows, 6)), fixed.normal(size=(6, setting.features))
    X = (factors @ load + generator.normal(size=(rows, setting.features))) / 3
    return X, _coin(generator, 3 * factors @ fixed.normal(size=6))


def _amounts(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Amounts with heavy tails, in units of their own: the larger some are, the likelier is a one."""
    fixed = np.random.default_rng(2)
    logs = generator.normal(size=(rows, setting.features))
    units = 10 ** fixed.uniform(0, 4, setting.features)
    return np.exp(1.2 * logs) * units, _coin(generator, 3 * logs @ fixed.normal(size=setting.features) / 3)


def _categories(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Categories of ten values each, most of them rare, as zeros and ones."""
    fixed = np.random.default_rng(3)
    chance = 1 / np.arange(1, 11)
    variables = setting.features // 10
    drawn = generator.choice(10, size=(rows, variables), p=chance / chance.sum())
    X = np.eye(10)[drawn].reshape(rows, -1)
    return X, _coin(generator, 2 * X @ fixed.normal(size=10 * variables))


def _bells(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """A bell for every class, all as wide."""
    centres = np.random.default_rng(4).normal(size=(setting.classes, setting.features))
    y = generator.integers(0, setting.classes, rows)
    return centres[y] + 1.2 * generator.normal(size=(rows, setting.features)), y


def _readings(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Readings far from zero that vary little, such as years or kelvins, in units of their own."""
    fixed = np.random.default_rng(6)
    z = generator.normal(size=(rows, setting.features))
    units = 10 ** fixed.uniform(0, 3, setting.features)
    offsets = fixed.uniform(0, 30, setting.features)
    return (z + offsets) * units, _coin(generator, 4 * z @ fixed.normal(size=setting.features) / 3)


def _neighbours(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Columns each of which is much like the one before; the classes differ in how the last differs from the first."""
    steps = generator.normal(size=(rows, setting.features))
    X = np.empty_like(steps)
    X[:, 0] = steps[:, 0]
    for at in range(1, setting.features):
        X[:, at] = 0.9 * X[:, at - 1] + np.sqrt(1 - 0.81) * steps[:, at]
    return X, _coin(generator, 3 * (X[:, -1] - X[:, 0]))


def _few_of_many(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Five columns tell the class, all others tell nothing."""
    X = generator.normal(size=(rows, setting.features))
    return X, _coin(generator, 2 * X[:, :5] @ np.array([1, -1, 1, -1, 1]))


def _counts(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Counts, from one in ten rows to a thousand in each, of which every second grows in one of the classes."""
    y = generator.integers(0, 2, rows)
    rates = np.geomspace(0.1, 1e3, setting.features)
    more = np.where(np.arange(setting.features) % 2, 1 + 0.8 / np.sqrt(1 + rates), 1)
    return generator.poisson(rates * np.where(y[:, None] == 1, more, 1)).astype(np.float64), y


def _bells_in_units(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """A bell for every class, in columns of units from 1 to 1,000."""
    X, y = _bells(generator, rows, setting, 0)
    return X * np.geomspace(1, 1e3, setting.features), y


def _people(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Four numbers in units of their own, and categories of ten values each as zeros and ones; all of them matter."""
    hot, _labels = _categories(generator, rows, setting, 0)
    age, income = generator.uniform(18, 90, rows), np.exp(generator.normal(10, 0.7, rows))
    height, children = generator.normal(170, 10, rows), generator.poisson(1.5, rows)
    score = (age - 54) / 10 + 1.5 * (np.log(income) - 10) + (height - 170) / 20 + (children - 1.5) / 2
    score += hot @ np.random.default_rng(8).normal(size=hot.shape[1])
    return np.column_stack([age, income, height, children, hot]), _coin(generator, score)


def _checkers(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """The label says whether two columns have the same sign."""
    X = generator.uniform(-1, 1, size=(rows, setting.features))
    return X, ((X[:, 0] > 0) == (X[:, 1] > 0)).astype(np.int64)


def _steps(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Every column adds or takes away where it is above a limit of its own."""
    fixed = np.random.default_rng(9)
    X = generator.uniform(-1, 1, size=(rows, setting.features))
    above = fixed.uniform(-0.7, 0.7, setting.features) < X
    return X, _coin(generator, 3 * (above - 0.5) @ fixed.normal(size=setting.features))


def _long_tails(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Columns with long tails (Student's t with three degrees of freedom)."""
    X = generator.standard_t(3, size=(rows, setting.features))
    weights = np.random.default_rng(10).normal(size=setting.features)
    return X, _coin(generator, 3 * X @ weights / np.linalg.norm(weights))


def _words(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Words of which the j-th occurs with a chance like 1/j, a third of them in one class more often; unit rows."""
    y = generator.integers(0, 2, rows)
    chance = np.minimum(0.5, 8 / np.arange(1, setting.features + 1))
    tilt = np.random.default_rng(11).choice([0.5, 1, 1, 1, 1, 2], size=setting.features)
    X = (generator.random((rows, setting.features)) < chance * np.where(y[:, None] == 1, tilt, 1)).astype(np.float64)
    return X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True)), y


def _sensors(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Sensors in units of their own that measure the same eight things, with errors."""
    fixed = np.random.default_rng(12)
    things, errors = generator.normal(size=(rows, 8)), generator.normal(size=(rows, setting.features))
    units = 10 ** fixed.uniform(-1, 3, setting.features)
    X = (things @ fixed.normal(size=(8, setting.features)) + 0.5 * errors) * units
    return X, _coin(generator, 2 * things @ fixed.normal(size=8))


def _survey(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Answers from 1 to 5, as shares of 5, which all lean to one side in one class; one in ten is missing, as 0."""
    y = generator.integers(0, 2, rows)
    lean = np.random.default_rng(13).normal(size=setting.features) / 4
    said = generator.normal(size=(rows, setting.features)) + np.where(y[:, None] == 1, lean, -lean)
    answers = np.clip(np.round(3 + said), 1, 5) * (generator.random(said.shape) > 0.1)
    return answers / 5, y


def _spirals(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Two arms of a spiral in two columns, which others do not help to tell apart."""
    y = generator.integers(0, 2, rows)
    angle = generator.uniform(0.5, 2 * np.pi, rows)
    X = generator.normal(size=(rows, setting.features)) / 5
    X[:, :2] += (angle / np.pi)[:, None] * np.column_stack([np.cos(angle + np.pi * y), np.sin(angle + np.pi * y)])
    return X, y


def _brackets(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Three columns in three brackets each, and a chance of a one for each of the 27 cells."""
    X = generator.random((rows, setting.features))
    cell = (3 * X[:, :3]).astype(np.int64) @ np.array([9, 3, 1])
    chance = np.random.default_rng(14).choice([0.1, 0.9], size=27)
    return X, (generator.random(rows) < chance[cell]).astype(np.int64)


def _tilted(generator: np.random.Generator, rows: int, _: Setting, __: float) -> Rows:
    """The larger a value, the rarer is a one."""
    X = generator.integers(0, 1 << BITS, size=(rows, 1))
    return X, _coin(generator, 12 * (0.4 - X[:, 0] / (1 << BITS)))


def _balls(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """The label says whether a row is near the centre."""
    X = generator.normal(size=(rows, setting.features))
    return X, (np.sum(X**2, axis=1) < setting.features - 0.6).astype(np.int64)


def _rules(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> Rows:
    """Three rules of two columns each, any of which makes a one; one label in twenty is wrong."""
    X = generator.uniform(-1, 1, size=(rows, setting.features))
    met = [(X[:, a] > up) & (X[:, b] < down) for a, b, up, down in ((0, 1, 0.2, 0), (2, 3, 0, -0.2), (4, 0, 0.5, 0.6))]
    return X, (np.any(met, axis=0) ^ (generator.random(rows) < 0.05)).astype(np.int64)


def _blurred(generator: np.random.Generator, rows: int, _: Setting, __: float) -> Rows:
    """A threshold, with one label in ten wrong."""
    X = generator.integers(0, 1 << BITS, size=(rows, 1))
    return X, ((X[:, 0] < 0.6 * (1 << BITS)) ^ (generator.random(rows) < 0.1)).astype(np.int64)


MADE_UP: dict[str, Callable[..., Rows]] = {
    "factors": _factors,
    "amounts": _amounts,
    "categories": _categories,
    "bells": _bells,
    "readings": _readings,
    "neighbours": _neighbours,
    "few-of-many": _few_of_many,
    "counts": _counts,
    "bells-in-units": _bells_in_units,
    "people": _people,
    "checkers": _checkers,
    "steps": _steps,
    "long-tails": _long_tails,
    "words": _words,
    "sensors": _sensors,
    "survey": _survey,
    "spirals": _spirals,
    "brackets": _brackets,
    "tilted": _tilted,
    "balls": _balls,
    "rules": _rules,
    "blurred": _blurred,
}
