"""How many rows pure, approximate, label-private and semi-supervised learners need as values get wider, measured."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from experiments.table import Table
from reticent.concepts.interface import ConceptClass
from reticent.concepts.points import Points
from reticent.concepts.rectangles import Rectangles
from reticent.concepts.thresholds import Thresholds
from reticent.data.labels import UNLABELLED
from reticent.data.points import Array, Labels
from reticent.errors import OutOfReach
from reticent.learners.base import ConceptLearner
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.label_boost import LabelBoost
from reticent.learners.label_private import LabelPrivateLearner
from reticent.learners.points import PointLearner
from reticent.learners.rectangles import RectangleLearner
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.promises import fewest_rows, rows_needed

BITS = (16, 64, 256, 1024, 4096)
ERROR, FAILURE, EPSILON, DELTA = 0.1, 0.05, 1, 1e-6
RUNS = 40
GRID = 2 ** (1 / 4)  # numbers of rows that are tried: what is planned, times powers of this,
LEAST, MOST = -20, 4  # from 1/32 of it to its double
WIDEST = 150_000  # numbers in the rows planned beyond which nothing is measured
BESIDE = 10_000  # the most rows without a label that are drawn beside those that have one

PURE: dict[str, Any] = {"epsilon": EPSILON, "failure": FAILURE}
APPROXIMATE: dict[str, Any] = PURE | {"delta": DELTA}


def tables() -> list[Table]:
    """The tables of the page on separations."""
    return [_table(problem) for problem in PROBLEMS] + [_lower_bounds()]


# ── hard distributions ────────────────────────────────────────────────────────────────────────────────────────────


class Atom(NamedTuple):
    """A point, its label and its probability; this many values, from the point on, have the same label."""

    point: tuple[int, ...]
    label: int
    mass: float
    alike: int = 1


def point_atoms(bits: int) -> list[Atom]:
    """One point in 2^bits has the label 1, and is seen with probability α. To err on it is to fail.

    Parameters
    ----------
    bits : int
        The number of bits of a value.
    """
    at = _secret(bits)
    return [Atom((at,), 1, ERROR), Atom((0,), 0, 1 - ERROR, alike=at)]


def threshold_atoms(bits: int) -> list[Atom]:
    """The two points between which the label changes are seen with probability α each.

    Parameters
    ----------
    bits : int
        The number of bits of a value.
    """
    at = _secret(bits)
    return [Atom((at - 1,), 1, ERROR), Atom((at,), 0, ERROR), Atom((0,), 1, 1 - 2 * ERROR, alike=at)]


def rectangle_atoms(bits: int) -> list[Atom]:
    """The lower corner of a rectangle and a neighbour outside in each of two dimensions; the upper corner is known.

    Parameters
    ----------
    bits : int
        The number of bits of a value.
    """
    low, top = (_secret(bits), _secret(bits, 1)), (1 << bits) - 1
    outside = [Atom((low[0] - 1, low[1]), 0, ERROR), Atom((low[0], low[1] - 1), 0, ERROR)]
    return [Atom(low, 1, ERROR), *outside, Atom((top, top), 1, 1 - 3 * ERROR)]


def _secret(bits: int, number: int = 0) -> int:
    return random.Random(f"{bits} {number}").randrange(1, (1 << bits) - 1)


def sample(
    atoms: list[Atom], rows: int, generator: np.random.Generator, *, spread: bool = False
) -> tuple[Array, Labels]:
    """Independent rows and their labels, in the order of the atoms.

    With `spread`, an atom stands for all values that are alike: each of its rows has one of them, at random.

    Parameters
    ----------
    atoms : list of Atom
        The points of the distribution, with their probabilities and labels.
    rows : int
        The number of rows.
    generator : numpy.random.Generator
        Draws the rows.
    spread : bool, default False
        Whether each row of an uninformative atom has a value of its own.
    """
    counts = generator.multinomial(rows, [atom.mass for atom in atoms])
    wide = max(max(atom.point) for atom in atoms) >= 1 << 63
    points = np.array([atom.point for atom in atoms], dtype=object if wide else np.int64)
    drawn = np.repeat(points, counts, axis=0)
    if spread and atoms[-1].alike > 1:
        values = random.Random(int(generator.integers(1 << 62)))
        further = [values.randrange(atoms[-1].alike) for _ in range(counts[-1])]
        drawn[len(drawn) - counts[-1] :, 0] += np.array(further, dtype=drawn.dtype)
    return drawn, np.repeat([atom.label for atom in atoms], counts)


# ── problems and their learners ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Problem:
    """A class, a distribution that is hard for it, and how a packing of it bounds pure proper learners from below.

    In the packing, what tells a concept from the others are so many points of probability α each (`telling`); there
    are (2^bits − 1)^exponent concepts.
    """

    title: str
    concept_class: Callable[[int], ConceptClass[Any]]
    atoms: Callable[[int], list[Atom]]
    pure: Callable[[int], ConceptLearner]
    approximate: Callable[[int], ConceptLearner]
    telling: int
    exponent: int = 1
    copied: bool = True  # whether there is a sanitizer for values of any width


PROBLEMS = (
    Problem(
        "Points",
        Points,
        point_atoms,
        pure=lambda bits: ExponentialLearner(Points(bits), **PURE),
        approximate=lambda bits: PointLearner(bits=bits, **APPROXIMATE),
        telling=1,
    ),
    Problem(
        "Thresholds",
        Thresholds,
        threshold_atoms,
        pure=lambda bits: ThresholdLearner(bits=bits, **PURE),
        approximate=lambda bits: ThresholdLearner(bits=bits, **APPROXIMATE),
        telling=2,
    ),
    Problem(
        "Rectangles of two dimensions",
        lambda bits: Rectangles(2, bits),
        rectangle_atoms,
        pure=lambda bits: RectangleLearner(bits=bits, **PURE),
        approximate=lambda bits: RectangleLearner(bits=bits, **APPROXIMATE),
        telling=3,
        exponent=2,
        copied=False,
    ),
)


def _table(problem: Problem) -> Table:
    rows = []
    for bits in BITS:
        concepts = problem.concept_class(bits)
        learners = [problem.pure(bits), problem.approximate(bits), LabelPrivateLearner(concepts, **PURE)]
        cells = [f"{least_rows(problem, bits):,}", *(_cell(problem, bits, learner) for learner in learners)]
        if problem.copied:
            few = SemiSupervisedLearner(concepts, **APPROXIMATE)
            unlabelled = few.unlabelled_required(ERROR)
            cells += [_cell(problem, bits, few, unlabelled=unlabelled), f"{unlabelled:,}"]
        else:  # no sanitizer copies wide values of several columns, but labels can be boosted
            learner = problem.approximate(bits).set_params(dimensions=concepts.columns)
            boost = LabelBoost(learner, concepts, **APPROXIMATE)
            labels = boost.labels_required(ERROR)
            cells += [f"{labels:,}", f"{rows_needed(boost.n_required, ERROR) - labels:,}{_mark(boost)}"]
        rows.append((str(bits), *cells))
    return Table(
        f"{problem.title}: rows planned (and rows at which {RUNS} runs succeed; † not for points in general "
        f"position) for α = {ERROR:g}, β = {FAILURE:g}, "
        f"ε = {EPSILON}, δ = {DELTA:g}",
        ("bits", "any pure proper learner ≥", "pure", "approximate", "only labels private", "few labels",
         "rows without one"),
        tuple(rows),
    )


def _cell(problem: Problem, bits: int, learner: ConceptLearner, *, unlabelled: int = 0) -> str:
    planned = rows_planned(learner)
    mark = "" if isinstance(learner, SemiSupervisedLearner) else _mark(learner)
    if planned * problem.concept_class(bits).columns > WIDEST:
        return f"{planned:,}{mark}"
    measured = rows_measured(learner, problem.atoms(bits), planned, unlabelled=min(unlabelled, BESIDE))
    return f"{planned:,}{mark} ({'–' if measured is None else f'{measured:,}'})"


def rows_planned(learner: ConceptLearner) -> int:
    """The labelled rows that the learner asks for, for data that a concept of the class labels.

    Parameters
    ----------
    learner : ConceptLearner
        The learner.
    """
    if isinstance(learner, ExponentialLearner):
        return rows_needed(learner.n_required, ERROR, realizable=True)
    if isinstance(learner, SemiSupervisedLearner):
        return learner.labels_required(ERROR)
    return rows_needed(learner.n_required, ERROR, **{"dimensions": 2} if isinstance(learner, RectangleLearner) else {})


def _mark(learner: ConceptLearner) -> str:
    """†, if points in general position have more labellings than can be listed at the planned size."""
    try:
        learner.n_required(ERROR, **{"dimensions": 2} if isinstance(learner, RectangleLearner) else {})
    except OutOfReach:
        return " †"
    return ""


def rows_measured(learner: ConceptLearner, atoms: list[Atom], planned: int, *, unlabelled: int = 0) -> int | None:
    """The fewest rows of the grid with which at most a share of `FAILURE` of the runs errs by α or more, if any.

    Parameters
    ----------
    learner : ConceptLearner
        The learner.
    atoms : list of Atom
        The points of the distribution, with their probabilities and labels.
    planned : int
        The number of rows that the learner plans, around which the grid lies.
    unlabelled : int, default 0
        The number of rows without a label that the learner also gets.
    """

    def rows(power: int) -> int:
        return math.ceil(planned * GRID**power)

    def succeeds(power: int) -> bool:
        return runs_succeed(learner, atoms, rows(power), unlabelled=unlabelled)

    power = LEAST + bisect_left(range(LEAST, MOST + 1), True, key=succeeds)
    return rows(power) if power <= MOST else None


def runs_succeed(learner: ConceptLearner, atoms: list[Atom], rows: int, *, unlabelled: int = 0) -> bool:
    """Whether enough runs learn a concept that errs by less than α; the noise and the rows of each run are seeded.

    Where only labels are private, points that occur give themselves away; so there all rows but the telling ones have
    values of their own. A concept of the class that is right on the telling points is right on these as well.

    Parameters
    ----------
    learner : ConceptLearner
        The learner.
    atoms : list of Atom
        The points of the distribution, with their probabilities and labels.
    rows : int
        The number of rows.
    unlabelled : int, default 0
        The number of rows without a label that the learner also gets.
    """
    allowed = math.floor(RUNS * FAILURE)
    for run in range(RUNS):
        generator = np.random.default_rng(run)
        X, y = sample(atoms, rows, generator, spread=isinstance(learner, LabelPrivateLearner))
        if unlabelled:
            more, labels = sample(atoms, unlabelled, generator)
            X, y = np.concatenate([X, more]), np.concatenate([y, np.full_like(labels, UNLABELLED)])
        fitted = learner.set_params(unsafe_seed=run).fit(X, y)
        wrong = fitted.predict(np.array([atom.point for atom in atoms], dtype=X.dtype)) != [a.label for a in atoms]
        allowed -= bool(wrong @ [atom.mass for atom in atoms] >= ERROR * (1 - 1e-9))
        if allowed < 0:
            return False
    return True


# ── what no pure proper learner can do ────────────────────────────────────────────────────────────────────────────


def packing_rows(log_concepts: float, share: float) -> int:
    """The rows below which no ε-private proper learner has error α with probability 1 − β on every distribution.

    Let N concepts c_j each have a distribution under which it alone has error ≤ α, such that rows from two of the
    distributions differ with a probability of `share` only: but for these, rows are the same fixed one. On m copies of
    that row the learner gives c_j with a probability q_j, and on average q_j ≤ 1/N. A sample from the j-th distribution
    differs from these copies in K ~ Bin(m, share) rows, and so gives c_j with probability at most
    min{e^(εK)·q_j, 1 − e^(−εK)·(1 − q_j)}, by group privacy for the event and for its complement. This is concave and
    increasing in q_j; so on average over j the learner succeeds with at most its expectation at q = 1/N. That has to
    be 1 − β.

    Parameters
    ----------
    log_concepts : float
        ln N.
    share : float
        The probability with which a row is not the common one.
    """

    def suffices(rows: int) -> bool:
        changed = np.arange(rows + 1)
        return bool(binom.pmf(changed, rows, share) @ most_likely(changed, log_concepts) >= 1 - FAILURE)

    return fewest_rows(suffices)


def most_likely(changed: Array, log_concepts: float) -> Array:
    """min{e^(εK)/N, 1 − e^(−εK)·(1 − 1/N)} for numbers K of changed rows.

    Parameters
    ----------
    changed : array
        The numbers K of changed rows.
    log_concepts : float
        ln N.
    """
    likelier = np.exp(np.minimum(0, EPSILON * changed - log_concepts))
    least: Array = np.minimum(likelier, 1 + np.exp(-EPSILON * changed) * math.expm1(-log_concepts))
    return least


def least_rows(problem: Problem, bits: int) -> int:
    """`packing_rows` for the packing of a problem.

    Parameters
    ----------
    problem : Problem
        What is learned.
    bits : int
        The number of bits of a value.
    """
    return packing_rows(problem.exponent * math.log((1 << bits) - 1), problem.telling * ERROR)


def printed_packing_rows(bits: int) -> int:
    """The same for points, by inequality (6) in the proof of Lemma 5.7: k = 1, and a failure of 1/2.

    3 ≥ (B − 1)·e^(−8αεm) for a packing of B = √((2^bits − 1)/(4e²)) concepts.

    Parameters
    ----------
    bits : int
        The number of bits of a value.
    """
    log_packing = (math.log((1 << bits) - 1) - math.log(4) - 2) / 2
    log_others = log_packing + math.log(-math.expm1(-log_packing))
    return math.ceil((log_others - math.log(3)) / (8 * ERROR * EPSILON))


def _lower_bounds() -> Table:
    return Table(
        f"Rows below which no pure proper learner succeeds, by packing (α = {ERROR:g}, ε = {EPSILON})",
        ("bits", "points, as printed (β = 1/2)", *(f"{each.title.lower()} (β = {FAILURE:g})" for each in PROBLEMS)),
        tuple(
            (str(bits), f"{printed_packing_rows(bits):,}", *(f"{least_rows(each, bits):,}" for each in PROBLEMS))
            for bits in BITS
        ),
    )
