"""Every class against brute force: all its concepts on tiny domains, all labels of few rows."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import law
from reticent.concepts import (
    ConceptClass,
    Datetimes,
    Finite,
    Floats,
    Halfspaces,
    Integers,
    Intervals,
    KPoints,
    Points,
    Products,
    Rectangles,
    Stumps,
    Thresholds,
    Unions,
    sauer,
    stumps,
)
from reticent.noise import Noise

Array = NDArray[Any]

FINITE: list[tuple[ConceptClass[Any], int]] = [  # with the number of values in a column
    (Thresholds(bits=1), 2),
    (Thresholds(bits=3), 8),
    (Thresholds(bits=1, both_orientations=True), 2),
    (Thresholds(bits=3, both_orientations=True), 8),
    (Points(bits=1), 2),
    (Points(bits=3), 8),
    (KPoints(1, bits=2), 4),
    (KPoints(2, bits=2), 4),
    (KPoints(3, bits=2), 4),
    (KPoints(4, bits=2), 4),
    (KPoints(2, bits=3), 8),
    (KPoints(3, bits=3), 8),
    (KPoints(5, bits=3), 8),
    (Intervals(bits=1), 2),
    (Intervals(bits=3), 8),
    (Rectangles(1, bits=3), 8),
    (Rectangles(2, bits=1), 2),
    (Rectangles(2, bits=2), 4),
    (Rectangles(3, bits=1), 2),
    (Rectangles(4, bits=1), 2),
    (Stumps(1, bits=3), 8),
    (Stumps(2, bits=2), 4),
    (Stumps(3, bits=1), 2),
    (Stumps(4, bits=3), 8),
    (Finite(np.random.default_rng(1).integers(0, 2, (7, 8))), 8),
    (Finite([lambda x: x < 3, lambda x: x % 2, lambda x: x % 2 == 0, lambda x: x > 100, lambda x: 0 * x]), 8),
    (Products([Intervals(bits=2), Thresholds(bits=2)]), 4),
    (Products([Thresholds(bits=1), Rectangles(2, bits=1)]), 2),
    (Unions([Thresholds(bits=3), Points(bits=3), Intervals(bits=3)]), 8),
]


def sets_of_rows(concept_class: ConceptClass[Any], values: int, sizes: list[int]) -> Iterator[Array]:
    """Random rows of the domain, with repetitions."""
    rng = np.random.default_rng(7)
    for size in sizes:
        X = rng.integers(0, values, (size, concept_class.columns))
        yield X[:, 0] if concept_class.columns == 1 else X


def whole_domain(concept_class: ConceptClass[Any], values: int) -> Array:
    X = np.array(list(itertools.product(range(values), repeat=concept_class.columns)))
    return X[:, 0] if concept_class.columns == 1 else X


def table(concept_class: ConceptClass[Any], X: Array) -> Array:
    """The labels that all concepts of the class give to the rows."""
    return np.array([concept_class.predict(concept, X) for concept in concept_class.concepts()])


@pytest.mark.parametrize(("concept_class", "values"), FINITE, ids=lambda value: repr(value)[:60])
class TestFiniteClasses:
    def test_dichotomies_are_the_labellings_of_all_concepts(
        self, concept_class: ConceptClass[Any], values: int
    ) -> None:
        for X in sets_of_rows(concept_class, values, [0, 1, 2, 3, 4, 5, 6, 9]):
            dichotomies = concept_class.dichotomies(X)
            labellings = [tuple(dichotomy.labels.tolist()) for dichotomy in dichotomies]
            assert len(labellings) == len(set(labellings)) == len(dichotomies) == dichotomies.count
            assert set(labellings) == set(map(tuple, table(concept_class, X).tolist()))
            for labels, concept in dichotomies:
                assert np.array_equal(concept_class.predict(concept, X), labels)

    def test_the_minimiser_is_the_first_best_dichotomy(self, concept_class: ConceptClass[Any], values: int) -> None:
        for X in sets_of_rows(concept_class, values, [1, 2, 4, 5, 6]):
            dichotomies, all_labels = concept_class.dichotomies(X), table(concept_class, X)
            labels = np.array([dichotomy.labels for dichotomy in dichotomies])
            for y in itertools.islice(itertools.product((0, 1), repeat=len(X)), 0, None, 1 if len(X) < 5 else 3):
                errors = (labels != np.array(y)).sum(axis=1)
                assert np.array_equal(dichotomies.errors(y), errors)
                concept = concept_class.erm(X, y)
                assert concept == dichotomies.concept(int(np.argmin(errors)))
                made = int((concept_class.predict(concept, X) != np.array(y)).sum())
                assert made == (all_labels != np.array(y)).sum(axis=1).min()

    def test_scores_on_other_rows(self, concept_class: ConceptClass[Any], values: int) -> None:
        others = list(sets_of_rows(concept_class, values, [7, 3, 0, 1, 5]))
        for X, at in zip(sets_of_rows(concept_class, values, [0, 1, 3, 5, 6]), others, strict=True):
            dichotomies = concept_class.dichotomies(X)
            y = np.arange(len(at)) % 2
            weights = np.arange(len(at)) ** 2 - 3
            given = np.array([concept_class.predict(dichotomy.concept, at) for dichotomy in dichotomies])
            assert np.array_equal(dichotomies.errors(y, at=at), (given != y).sum(axis=1))
            assert np.array_equal(dichotomies.sums(weights, at=at), given @ weights)
            huge = dichotomies.sums([int(weight) << 70 for weight in weights], at=at)
            assert [int(total) for total in huge] == [int(total) << 70 for total in given @ weights]

    def test_least_errors_over_all_extensions(self, concept_class: ConceptClass[Any], values: int) -> None:
        others = list(sets_of_rows(concept_class, values, [4, 3, 6, 1]))
        for X, at in zip(sets_of_rows(concept_class, values, [0, 1, 3, 5]), others, strict=True):
            dichotomies = concept_class.dichotomies(X)
            y = np.arange(len(at)) // 2 % 2
            best: dict[tuple[int, ...], int] = {}
            for own, other in zip(table(concept_class, X).tolist(), table(concept_class, at), strict=True):
                errors = int((other != y).sum())
                best[tuple(own)] = min(errors, best.get(tuple(own), errors))
            expected = [best[tuple(dichotomy.labels.tolist())] for dichotomy in dichotomies]
            assert dichotomies.least_errors(y, at=at).tolist() == expected

    def test_multiplicities_number_all_concepts(self, concept_class: ConceptClass[Any], values: int) -> None:
        for X in sets_of_rows(concept_class, values, [0, 1, 3, 6]):
            dichotomies = concept_class.dichotomies(X)
            multiplicities = dichotomies.multiplicities
            if multiplicities is None:
                continue
            counted = Counter(map(tuple, table(concept_class, X).tolist()))
            assert multiplicities.tolist() == [counted[tuple(d.labels.tolist())] for d in dichotomies]
            members = []
            for index, multiplicity in enumerate(multiplicities.tolist()):
                for number in range(multiplicity):
                    member = dichotomies.member(index, number)
                    assert np.array_equal(concept_class.predict(member, X), dichotomies.labels(index))
                    members.append(tuple(concept_class.predict(member, whole_domain(concept_class, values)).tolist()))
            everything = table(concept_class, whole_domain(concept_class, values)).tolist()
            assert sorted(members) == sorted(map(tuple, everything))

    def test_size_counts_the_concepts(self, concept_class: ConceptClass[Any], values: int) -> None:
        concepts = list(concept_class.concepts())
        assert len(concepts) == len(set(concepts)) == concept_class.size
        if not isinstance(concept_class, (Finite, Products, Unions)):  # which may list one function twice
            domain = whole_domain(concept_class, values)
            assert len(set(map(tuple, table(concept_class, domain).tolist()))) == concept_class.size

    def test_the_vc_dimension(self, concept_class: ConceptClass[Any], values: int) -> None:
        domain = whole_domain(concept_class, values)
        if len(domain) > 100:
            domain = np.concatenate([concept_class.example_points(), domain[:: len(domain) // 12]])
        labels = np.unique(table(concept_class, domain), axis=0).astype(bool)
        shattered: list[tuple[int, ...]] = [()]
        size = 0
        while larger := [
            (*some, new)
            for some in shattered
            for new in range(some[-1] + 1 if some else 0, len(domain))
            if len(np.unique(labels[:, [*some, new]], axis=0)) == 2 ** (size + 1)
        ]:
            size, shattered = size + 1, larger
        assert size == concept_class.vc_dimension or (
            size < concept_class.vc_dimension and not concept_class.vc_dimension_is_exact
        )


def test_multiplicities_are_known_where_the_docs_say_so() -> None:
    for concept_class in (Thresholds(bits=64), Points(bits=100), KPoints(3, bits=64), Intervals(bits=64)):
        multiplicities = concept_class.dichotomies([5, 2**63, 77]).multiplicities
        assert multiplicities is not None
        assert sum(multiplicities.tolist()) == concept_class.size
    for undeclared in (Thresholds(), Points(), Intervals()):
        assert undeclared.dichotomies([5, 77]).multiplicities is None
        assert undeclared.size is None


@given(st.integers(0, 2**100), st.integers(0, 10**6))
def test_members_of_wide_classes(seed: int, number: int) -> None:
    rng = random.Random(seed)
    X = [rng.randrange(2**70) for _ in range(rng.randint(0, 4))]
    classes: list[ConceptClass[Any]] = [Thresholds(bits=70, both_orientations=True), KPoints(3, bits=70)]
    for concept_class in (*classes, Intervals(bits=70)):
        dichotomies = concept_class.dichotomies(X)
        multiplicities = dichotomies.multiplicities
        assert multiplicities is not None
        for index, multiplicity in enumerate(multiplicities.tolist()):
            if multiplicity:
                member = dichotomies.member(index, number * 2**60 % multiplicity)
                assert np.array_equal(concept_class.predict(member, X), dichotomies.labels(index))


@pytest.mark.parametrize(
    "concept_class",
    [
        Thresholds(bits=2),
        Thresholds(bits=2, both_orientations=True),
        Points(bits=2),
        KPoints(2, bits=2),
        Intervals(bits=2),
    ],
    ids=repr,
)
def test_a_draw_by_multiplicities_is_the_exponential_mechanism_over_the_class(concept_class: ConceptClass[Any]) -> None:
    X, y = [1, 3, 1], [0, 1, 0]
    everything = whole_domain(concept_class, 4)
    dichotomies = concept_class.dichotomies(X)

    def function(concept: Any) -> tuple[int, ...]:
        return tuple(concept_class.predict(concept, everything).tolist())

    def by_labellings(noise: Noise) -> tuple[int, ...]:
        multiplicities = dichotomies.multiplicities
        assert multiplicities is not None
        index = noise.choose(-dichotomies.errors(y), rate=Fraction(1, 2), counts=multiplicities)
        return function(dichotomies.member(index, noise.uniform(int(multiplicities[index]))))

    def by_concepts(noise: Noise) -> tuple[int, ...]:
        concepts = list(concept_class.concepts())
        errors = [(concept_class.predict(concept, X) != np.array(y)).sum() for concept in concepts]
        return function(concepts[noise.choose([-int(error) for error in errors], rate=Fraction(1, 2))])

    assert exact(law(by_labellings), law(by_concepts)).delta(0)[1] < 1e-60


# ── lines of every kind ───────────────────────────────────────────────────────────────────────────────────────────


def line_of(kind: str, ranks: list[int]) -> Any:
    if kind == "wide":
        return [rank * 2**100 - 2**200 for rank in ranks]
    if kind == "float":
        return np.array(ranks) / 7
    if kind == "datetime":
        return np.array(ranks).astype("datetime64[h]")
    return np.array(ranks, dtype=kind)


LINES = ["int64", "uint64", "int8", "float32", "float", "wide", "datetime"]


@pytest.mark.slow
@given(
    st.sampled_from(LINES),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), max_size=12),
)
def test_every_kind_of_line_is_like_the_small_one(
    kind: str, rows: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    ranks, y = [rank for rank, _ in rows], [label for _, label in rows]
    at, z = [rank for rank, _ in more], [label for _, label in more]
    pairs: list[tuple[ConceptClass[Any], ConceptClass[Any]]] = [
        (Thresholds(), Thresholds(bits=5)),
        (Thresholds(both_orientations=True), Thresholds(bits=5, both_orientations=True)),
        (Intervals(), Intervals(bits=5)),
    ]
    for infinite, finite in pairs:
        real = infinite.dichotomies(line_of(kind, ranks))
        model = finite.dichotomies(ranks)
        assert len(real) == len(model)
        assert np.array_equal(real.errors(y), model.errors(y))
        if ranks and at:
            assert np.array_equal(real.least_errors(z, at=line_of(kind, at)), model.least_errors(z, at=at))
            # The ends of representatives are points, so other rows fall on the same sides of them.
            last = max(ranks)
            within = [rank for rank in at if rank <= last]
            labels = [label for rank, label in more if rank <= last]
            if within:
                shifted = real.errors(labels, at=line_of(kind, within))
                assert np.array_equal(shifted, model.errors(labels, at=within))
        concept = infinite.erm(line_of(kind, ranks), y)
        same = finite.predict(finite.erm(ranks, y), ranks)
        assert np.array_equal(infinite.predict(concept, line_of(kind, ranks)), same)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 1)), min_size=1, max_size=9),
    st.sampled_from(["int", "float", "wide"]),
)
@settings(max_examples=60, deadline=None)
def test_minimisers_in_the_plane_are_the_first_best_dichotomies(rows: list[tuple[int, int, int]], kind: str) -> None:
    X = np.array([row[:2] for row in rows], dtype=object) * (2**90 if kind == "wide" else 1)
    X = X.astype(np.float64) / 3 if kind == "float" else X
    y = [row[2] for row in rows]
    classes: list[ConceptClass[Any]] = [Rectangles(2), Stumps(2), Halfspaces(2)]
    for concept_class in classes:
        dichotomies = concept_class.dichotomies(X)
        errors = np.array([(dichotomy.labels != np.array(y)).sum() for dichotomy in dichotomies])
        assert np.array_equal(dichotomies.errors(y), errors)
        assert concept_class.erm(X, y) == dichotomies.concept(int(errors.argmin()))
        assert len(dichotomies) <= sauer(concept_class.vc_dimension, len({row[:2] for row in rows}))


@pytest.mark.parametrize(
    "concept_class",
    [Thresholds(), Points(), KPoints(2), Intervals(), Rectangles(2), Stumps(3), Halfspaces(2), Halfspaces(3)],
    ids=repr,
)
def test_representatives_depend_on_the_set_of_points_alone(concept_class: ConceptClass[Any]) -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 5, (7, concept_class.columns))
    X = X[:, 0] if concept_class.columns == 1 else X
    expected = [dichotomy.concept for dichotomy in concept_class.dichotomies(np.unique(X, axis=0))]
    for _ in range(5):
        rows = np.concatenate([rng.permutation(len(X)), rng.integers(0, len(X), 4)])
        assert [dichotomy.concept for dichotomy in concept_class.dichotomies(X[rows])] == expected


def test_products_and_unions_are_what_they_say() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        X = rng.integers(0, 5, (6, 2))
        boxes, product = Rectangles(2, bits=4), Products([Intervals(bits=4), Intervals(bits=4)], vc_dimension=4)
        assert labellings(boxes, X) == labellings(product, X)
        both = Unions([Thresholds(), Finite([lambda x: 0 * x, lambda x: 0 * x + 1])])
        assert labellings(both, X[:, 0]) == labellings(Thresholds(), X[:, 0])
    assert Products([Intervals(), Intervals()]).vc_dimension >= 4
    assert Unions([Thresholds(), Thresholds()]).vc_dimension == 3  # 1 + 1 + 1, the general bound


def labellings(concept_class: ConceptClass[Any], X: Array) -> set[tuple[int, ...]]:
    return {tuple(dichotomy.labels.tolist()) for dichotomy in concept_class.dichotomies(X)}


# ── stumps ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stumps_are_compared_exactly_whatever_their_fingerprints(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    X = rng.integers(0, 4, (12, 6))
    X[:, 3], X[:, 4] = X[:, 1], 3 - X[:, 0]  # a copied and a mirrored feature: the same cuts
    expected = [(d.labels.tolist(), d.concept) for d in Stumps(6).dichotomies(X)]
    assert len({tuple(labels) for labels, _ in expected}) == len(expected)
    assert {concept.feature for _, concept in expected} == {0, 1, 2, 5}
    for keys in (np.zeros(12, dtype=np.uint64), np.arange(12, dtype=np.uint64) % np.uint64(3)):
        monkeypatch.setattr(stumps, "_scrambled", lambda rows, keys=keys: keys)
        assert [(d.labels.tolist(), d.concept) for d in Stumps(6).dichotomies(X)] == expected


@given(st.integers(1, 5), st.integers(0, 10**9), st.booleans())
@settings(max_examples=40, deadline=None)
def test_stumps_by_brute_force(features: int, seed: int, collide: bool) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, rng.integers(2, 6), (rng.integers(1, 9), features))
    X = X[:, 0] if features == 1 else X
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(stumps, "_scrambled", lambda rows: np.ones(rows, dtype=np.uint64))
        assert labellings(Stumps(features), X) == set(map(tuple, table(Stumps(features, bits=3), X).tolist()))


@pytest.mark.parametrize("features", range(1, 10))
def test_the_vc_dimension_of_stumps_is_attained(features: int) -> None:
    concept_class = Stumps(features)
    X = concept_class.example_points()
    v = concept_class.vc_dimension
    assert math.comb(v, v // 2) <= 2 * features < math.comb(v + 1, (v + 1) // 2)
    assert any(
        len(concept_class.dichotomies(X[list(some)])) == 2**v for some in itertools.combinations(range(len(X)), v)
    )


# ── halfspaces ────────────────────────────────────────────────────────────────────────────────────────────────────


def separable(X: Array, y: tuple[int, ...]) -> bool:
    """Whether some hyperplane leaves a margin: a linear programme, safe for coordinates as small as these."""
    signs = 2 * np.array(y) - 1
    rows = np.column_stack([-signs[:, None] * X, signs, np.ones(len(X))])
    bounds = [(-1, 1)] * (X.shape[1] + 1) + [(None, 1)]
    solved = linprog([0] * (X.shape[1] + 1) + [-1], A_ub=rows, b_ub=np.zeros(len(X)), bounds=bounds)
    return bool(-solved.fun > 1e-6)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_halfspaces_by_linear_programming(dimensions: int) -> None:
    rng = np.random.default_rng(2)
    for size in (1, 3, 4, 5, 6):
        X = rng.integers(0, 3, (size, dimensions))  # a small grid: many points on a line or plane, many repeated
        expected = {y for y in itertools.product((0, 1), repeat=size) if separable(X, y)}
        assert labellings(Halfspaces(dimensions), X) == expected


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_points_in_general_position_have_as_many_partings_as_cover_counted(dimensions: int) -> None:
    for size in (1, 2, 5, 9):
        X = np.array([[t**power for power in range(1, dimensions + 1)] for t in range(size)])  # on the moment curve
        expected = 2 * sum(math.comb(size - 1, i) for i in range(dimensions + 1))
        assert len(Halfspaces(dimensions).dichotomies(X)) == expected


def test_degenerate_points_in_the_plane_have_as_many_partings_as_zaslavsky_counted() -> None:
    rng = np.random.default_rng(8)
    for grid in (2, 3, 4):
        points = sorted({tuple(point) for point in rng.integers(0, grid, (12, 2)).tolist()})
        lines = set()
        for (a, b), (c, d) in itertools.combinations(points, 2):
            lines.add(tuple(p for p in points if (c - a) * (p[1] - b) == (d - b) * (p[0] - a)))
        expected = 2 * (1 + sum(len(line) - 1 for line in lines))
        assert len(Halfspaces(2).dichotomies(points)) == expected


@pytest.mark.parametrize(
    "X",
    [
        [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]],  # on a line in space
        [[0, 0, 5], [1, 0, 5], [0, 1, 5], [1, 1, 5], [2, 2, 5]],  # on a plane
        [[4, 4, 4], [4, 4, 4]],
        [[1e300, 1e-300, 0.0], [-1e300, 5e-324, 1.0], [0.1, 0.2, 0.3], [0.1, 0.2, 0.30000000000000004]],
        [[2**200, 1, 0], [2**200, 0, 1], [2**200 + 1, 0, 0], [-(2**200), 7, 7]],
    ],
)
def test_halfspaces_at_hard_positions(X: list[list[float]]) -> None:
    halfspaces = Halfspaces(3)
    dichotomies = halfspaces.dichotomies(X)
    listed = [tuple(dichotomies._table(i, i + 1, None)[0]) for i in range(len(dichotomies))]
    assert len(set(listed)) == len(listed)
    for index, labels in enumerate(listed):  # the mask and the witness, which are found apart, agree
        assert np.array_equal(halfspaces.predict(dichotomies.concept(index), X), labels)
    opposite = {tuple(not label for label in labels) for labels in listed}
    assert opposite == set(listed)


@pytest.mark.parametrize("width", [17, 20, 21, 24, 40, 62])
def test_halfspaces_do_not_mind_the_scale(width: int) -> None:
    """Machine integers serve small coordinates, Python's the others; heights of wide ones would overflow the former."""
    rng = np.random.default_rng(width)
    X = rng.integers(-(2**width), 2**width, (8, 3))
    X[4] = X[0] // 2 * 2  # and points near a common plane, where signs are decided by the last digit
    X[5] = X[4] // 2
    assert labellings(Halfspaces(3), X) == labellings(Halfspaces(3), X.astype(object) << 100)


def test_a_halfspace_is_decided_exactly_on_its_border() -> None:
    halfspaces = Halfspaces(2)
    tenth = 3602879701896397  # 0.1 is this number of 2^-55
    border = type(halfspaces.erm([[0, 0]], [0]))(normal=(2**55, 0), offset=tenth)
    X = [[0.1, 9.0], [math.nextafter(0.1, 1), 9.0], [math.nextafter(0.1, 0), 9.0]]
    assert halfspaces.predict(border, X).tolist() == [0, 1, 0]


# ── many points ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_million_points() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2**40, (10**6, 2))
    y = rng.integers(0, 2, 10**6)
    cuts = Thresholds(bits=40, both_orientations=True).dichotomies(X[:, 0])
    errors = cuts.errors(y)
    assert len(cuts) == len(errors) == 2 * len(np.unique(X[:, 0]))
    both = Stumps(2, bits=40).dichotomies(X)
    assert len(both) == 2 * (len(np.unique(X[:, 0])) + len(np.unique(X[:, 1])) - 1)
    scores = both.errors(y)
    for index in rng.integers(0, len(both), 5).tolist():
        assert scores[index] == (both.labels(index) != y).sum()
    for index in rng.integers(0, len(cuts), 5).tolist():
        assert errors[index] == (cuts.labels(index) != y).sum()
    best = Intervals(bits=40).erm(X[:, 0], y)
    assert 2 * (Intervals(bits=40).predict(best, X[:, 0]) != y).sum() <= 10**6


def test_ties_among_many_points_go_to_the_first_dichotomy() -> None:
    X, y = np.arange(1000), np.arange(1000) % 3 == 0
    dichotomies = KPoints(2, bits=12).dichotomies(X)
    first = dichotomies.concept(int(np.argmin(dichotomies.errors(y))))
    assert KPoints(2, bits=12).erm(X, y) == first
    assert first.points == (0, 3)
    runs = Intervals(bits=12).dichotomies(X)
    assert Intervals(bits=12).erm(X, y) == runs.concept(int(np.argmin(runs.errors(y))))


def test_counts_beyond_len() -> None:
    points = KPoints(40, bits=64).dichotomies(np.arange(1000))
    assert points.count == sum(math.comb(1000, i) for i in range(41))
    with pytest.raises(OverflowError):
        len(points)
    with pytest.raises(ValueError, match="too many to score"):
        points.errors([0] * 1000)
    last = points.concept(points.count - 1)
    assert last.points == tuple(range(960, 1000))
    assert KPoints(40, bits=64).erm(np.arange(1000), [1] * 30 + [0] * 970).points == (*range(30), *range(1000, 1010))


def test_declared_domains_make_classes_finite() -> None:
    assert Thresholds(domain=Integers(3)).size == Thresholds(bits=3).size == 9
    assert Thresholds(domain=Floats(16)).size == 63488
    assert Points(domain=Datetimes("s")).size == 2**64 - 2
    assert Thresholds(domain=Integers()).size is None


def test_numbers_wider_than_any_float_are_compared_exactly() -> None:
    wide = Thresholds(bits=4096)
    points = np.array([1, 2**2000, 2**4000], dtype=object)
    labels = [wide.predict(concept, points).tolist() for concept in map(wide.dichotomies(points).concept, range(4))]
    assert sorted(labels) == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
