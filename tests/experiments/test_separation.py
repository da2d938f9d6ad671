"""The packing bounds hold for every mechanism there is, and the hard distributions are what they claim to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from experiments import separation
from experiments.separation import PROBLEMS, Problem, most_likely, packing_rows, rows_measured, sample
from reticent.learners.points import PointLearner

every_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=[each.title for each in PROBLEMS])


def best_success(concepts: int, rows: int, share: float) -> float:
    """The success of the best 1-private learner on a packing, by a linear program.

    One may take it to treat all concepts alike: on a sample with K telling rows of c_j it gives c_j with probability
    a_K, any other concept with probability b_K each, and nothing good with probability o_K; and a_0 = b_0.
    """
    size, e = rows + 1, math.exp(separation.EPSILON)
    places = np.arange(3 * size).reshape(3, size)  # of a, b and o
    neighbours = [(each[k], each[k + 1]) for each in places for k in range(rows)]
    neighbours.append((places[0, 1], places[1, 1]))  # c_i's telling row in place of c_j's
    limits = np.zeros((2 * len(neighbours), 3 * size))
    for number, (one, other) in enumerate(neighbours):
        limits[2 * number, [one, other]] = 1, -e
        limits[2 * number + 1, [one, other]] = -e, 1
    equal = np.zeros((size + 1, 3 * size))
    for k in range(size):
        equal[k, places[:, k]] = 1, concepts - 1, 1
    equal[size, places[:2, 0]] = 1, -1
    gain = np.append(binom.pmf(np.arange(size), rows, share), np.zeros(2 * size))
    right = np.append(np.ones(size), 0)
    found = linprog(-gain, limits, np.zeros(len(limits)), equal, right, bounds=(0, 1), method="highs")
    return float(-found.fun)


@pytest.mark.parametrize("concepts", [2, 10, 1000])
@pytest.mark.parametrize("share", [0.1, 0.4])
def test_no_private_learner_beats_the_packing_bound(concepts: int, share: float) -> None:
    for rows in (1, 5, 20):
        changed = np.arange(rows + 1)
        chances = binom.pmf(changed, rows, share)
        bound = float(chances @ most_likely(changed, math.log(concepts)))
        assert best_success(concepts, rows, share) <= bound + 1e-9
        halved = np.minimum(1, np.exp(changed / 2) / concepts)  # a bound that charges too little for a changed row
        assert best_success(concepts, rows, share) > float(chances @ halved) or concepts == 2


def test_packing_rows_grow_with_the_bits_and_shrink_with_the_share() -> None:
    logs = [bits * math.log(2) for bits in (16, 64, 256, 1024)]
    points = [packing_rows(log, 0.1) for log in logs]
    assert points == sorted(points)
    assert points[-1] > 1024 * math.log(2) / 0.1, "K has to exceed bits·ln 2 nearly always"
    assert all(packing_rows(log, 0.2) < rows for log, rows in zip(logs, points, strict=True))
    assert all(separation.printed_packing_rows(bits) < rows for bits, rows in zip((16, 64), points, strict=False))


@every_problem
def test_only_one_concept_is_good_on_the_hard_distribution(problem: Problem) -> None:
    """For 3 bits, by going through all concepts."""
    atoms = problem.atoms(3)
    concepts = problem.concept_class(3)
    points = np.array([atom.point for atom in atoms]).reshape(len(atoms), -1)
    points = points[:, 0] if points.shape[1] == 1 else points
    labels, masses = np.array([atom.label for atom in atoms]), np.array([atom.mass for atom in atoms])
    assert masses.sum() == pytest.approx(1)
    errors = np.sort([masses @ (concepts.predict(concept, points) != labels) for concept in concepts.concepts()])
    assert errors[0] == 0
    assert errors[1] >= separation.ERROR
    assert np.count_nonzero(masses == separation.ERROR) == problem.telling


@every_problem
def test_samples(problem: Problem) -> None:
    for bits in (16, 64, 100):
        rows, labels = sample(problem.atoms(bits), 1000, np.random.default_rng(0))
        assert rows.shape == (1000, problem.concept_class(bits).columns)
        assert set(labels) == {0, 1}
        spread, same = sample(problem.atoms(bits), 1000, np.random.default_rng(0), spread=True)
        assert np.array_equal(labels, same)
        assert all(isinstance(value, int) for value in spread.ravel().tolist()), "no value was rounded to a float"
        assert len({tuple(row) for row in spread.tolist()}) > (500 if problem.concept_class(bits).columns == 1 else 0)


@pytest.mark.parametrize("spread", [False, True])
@every_problem
def test_the_hidden_concept_fits_every_sample(problem: Problem, spread: bool) -> None:
    concepts = problem.concept_class(16)
    rows, labels = sample(problem.atoms(16), 200, np.random.default_rng(1), spread=spread)
    points = rows[:, 0] if concepts.columns == 1 else rows
    assert np.array_equal(concepts.predict(concepts.erm(points, labels), points), labels)


def test_the_rows_measured_are_near_those_computed() -> None:
    """What `PointLearner` plans for points is exact on this distribution."""
    learner = PointLearner(bits=16, epsilon=1, delta=1e-6)
    measured = rows_measured(learner, separation.point_atoms(16), 370)
    assert measured is not None
    assert 370 / 1.5 < measured < 370 * 1.5
    assert rows_measured(learner, separation.point_atoms(16), 50) is None, "a hundred rows will not do"


@pytest.mark.slow
def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "BITS", (8,))
    monkeypatch.setattr(separation, "RUNS", 3)
    tables = separation.tables()
    assert [len(table.rows) for table in tables] == [1, 1, 1, 1]
    assert all(len(table.columns) == len(row) for table in tables for row in table.rows)
    for table in tables[:3]:
        least, pure = (int(cell.partition(" ")[0].replace(",", "")) for cell in table.rows[0][1:3])
        assert least < pure, "what is planned is never below what is needed"
