"""Plans for points, thresholds and any class that can be counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from reticent.concepts import Datetimes, Finite, Floats, Integers, Intervals, Points, Rectangles, Thresholds
from reticent.concepts.labellings import about
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.points import PointLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.exponential import exponential, generic_rows
from reticent.plan.plan import Plan
from reticent.plan.points import point
from reticent.plan.thresholds import iterated_logarithms, threshold

Make = Callable[..., Plan]

APPROXIMATE: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}

PLANS: list[tuple[str, Make, dict[str, Any]]] = [
    ("point", point, {"bits": 64} | APPROXIMATE),
    ("point of few bits", point, {"bits": 3} | APPROXIMATE),
    ("point among all integers", point, {"domain": Integers()} | APPROXIMATE),
    ("threshold, pure", threshold, {"bits": 64, "epsilon": 1}),
    ("threshold, small domain", threshold, {"bits": 3} | APPROXIMATE),
    ("threshold, depth 2", threshold, {"bits": 1000} | APPROXIMATE),
    ("threshold, any labels", threshold, {"bits": 1000, "agnostic": True} | APPROXIMATE),
    ("threshold, floats", threshold, {"domain": Floats(), "epsilon": 0.1}),
    ("threshold, datetimes", threshold, {"domain": Datetimes("s")} | APPROXIMATE),
    ("exponential", exponential, {"concept_class": Intervals(bits=16), "epsilon": 1, "realizable": True}),
    ("exponential, any labels", exponential, {"concept_class": Rectangles(2, bits=16), "epsilon": 1}),
    ("exponential, net", exponential, {"concept_class": Thresholds(), "net": [3, 5, 8], "epsilon": 1}),
]
every_plan = pytest.mark.parametrize(("make", "public"), [each[1:] for each in PLANS], ids=[each[0] for each in PLANS])


# ── both ways ─────────────────────────────────────────────────────────────────────────────────────────────────────


@every_plan
@pytest.mark.parametrize("rows", [1_500, 40_000, 3_000_000])
def test_there_and_back(make: Make, public: dict[str, Any], rows: int) -> None:
    """The error found for some rows takes no more rows, and one a thousandth smaller takes more."""
    found = make(rows=rows, **public)
    if found.error is None:
        assert make(error=0.9999, **public).rows > rows
        return
    again = make(error=found.error, **public)
    assert again.rows <= rows
    assert again.error == found.error
    assert again.paper_rows == found.paper_rows
    assert make(error=Fraction(found.error) * Fraction(998, 1000), **public).rows > rows


@every_plan
def test_an_error_takes_the_rows_that_it_takes(make: Make, public: dict[str, Any]) -> None:
    """rows → error is the inverse: with one row less than an error needs, the error is larger."""
    rows = make(error=0.2, **public).rows
    enough, short = make(rows=rows, **public).error, make(rows=rows - 1, **public).error
    assert enough is not None
    assert short is not None
    assert enough <= 0.2 < short


@pytest.mark.slow
@every_plan
def test_monotone(make: Make, public: dict[str, Any]) -> None:
    errors = (0.5, 0.2, 0.1, 0.01)
    for plans in ([make(error=error, **public) for error in errors],
                  [make(error=0.1, failure=failure, **public) for failure in (0.3, 0.05, 1e-6)],
                  [make(error=0.1, **public | {"epsilon": epsilon}) for epsilon in (4, 1, 0.1)]):  # fmt: skip
        assert [plan.rows for plan in plans] == sorted(plan.rows for plan in plans)
        printed = [plan.paper_rows for plan in plans if plan.paper_rows is not None]
        assert printed == sorted(printed)
    reached = [make(rows=rows, **public).error or 1 for rows in (200, 5_000, 10**6)]
    assert reached == sorted(reached, reverse=True)


@every_plan
def test_ours_takes_fewer_rows_than_the_paper(make: Make, public: dict[str, Any]) -> None:
    for error in (0.2, 0.1, 0.01):
        plan = make(error=error, **public)
        assert plan.paper_rows is None or plan.rows < plan.paper_rows
    ours = make(rows=10**6, **public)
    assert ours.error is not None
    assert ours.paper_error is None or ours.error < ours.paper_error


@every_plan
def test_exactly_one_of_error_and_rows(make: Make, public: dict[str, Any]) -> None:
    for asked in ({}, {"error": 0.1, "rows": 100}):
        with pytest.raises(ValueError, match="give either error"):
            make(**asked, **public)


# ── what a plan agrees with ───────────────────────────────────────────────────────────────────────────────────────


def test_rows_are_those_of_the_learner() -> None:
    assert point(bits=64, error=0.1, **APPROXIMATE).rows == PointLearner(bits=64, **APPROXIMATE).n_required(0.1)
    for bits in (16, 1000):
        learner = ThresholdLearner(bits=bits, failure=0.01, **APPROXIMATE)
        assert threshold(bits=bits, error=0.1, failure=0.01, **APPROXIMATE).rows == learner.n_required(0.1)
    pure = ThresholdLearner(bits=64, epsilon=1)
    assert threshold(bits=64, error=0.1, epsilon=1, agnostic=True).rows == pure.n_required(0.1, agnostic=True)
    drawn = ExponentialLearner(Points(64), epsilon=1)
    for realizable in (False, True):
        plan = exponential(Points(64), error=0.1, epsilon=1, realizable=realizable)
        assert plan.rows == drawn.n_required(0.1, realizable=realizable)


@pytest.mark.parametrize(("bits", "depth"), [(8, "auto"), (64, "auto"), (400, "auto"), (64, 2)])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_the_guarantee_is_that_of_the_fitted_learner(bits: int, depth: Any, delta: float) -> None:
    """No δ is planned for where none is spent."""
    if delta == 0 and depth == 2:
        with pytest.raises(ValueError, match="delta"):
            threshold(bits=bits, depth=depth, error=0.1, epsilon=1)
        return
    public = {"bits": bits, "depth": depth, "epsilon": 1, "delta": delta}
    fitted = ThresholdLearner(**public).fit([[0], [1], [5]], [1, 0, 0])
    assert threshold(error=0.1, **public).guarantee == fitted.guarantee_
    fitted = PointLearner(bits=bits, **APPROXIMATE).fit([[0], [1], [5]], [1, 0, 0])
    assert point(bits=bits, error=0.1, **APPROXIMATE).guarantee == fitted.guarantee_
    fitted = ExponentialLearner(Points(bits), epsilon=0.3).fit([[0], [1], [5]], [1, 0, 0])
    assert exponential(Points(bits), error=0.1, epsilon=0.3).guarantee == fitted.guarantee_


# ── the paper's numbers ───────────────────────────────────────────────────────────────────────────────────────────


def test_lemma_3_2() -> None:
    plan = point(bits=64, error=0.1, epsilon=0.5, delta=1e-6, failure=0.05)
    assert plan.paper_rows == math.ceil(8 / (0.1 * 0.5) * math.log(4 / (0.05 * 1e-6)))
    lenient = point(bits=64, error=0.1, epsilon=100, delta=0.5, failure=0.05)
    assert lenient.paper_rows == math.ceil(8 / 0.1 * math.log(2 / 0.05)), "the sample itself must show the point"


def test_the_papers_learner_draws_a_random_point_and_needs_many_of_them() -> None:
    """2^bits ≥ 1/(αβ): 200 points at α = 0.1, β = 0.05. Ours needs no such thing."""
    assert point(bits=7, error=0.1, **APPROXIMATE).paper_rows is None
    assert point(bits=8, error=0.1, **APPROXIMATE).paper_rows == 1456
    assert point(bits=7, error=0.1, **APPROXIMATE).rows == point(bits=8, error=0.1, **APPROXIMATE).rows


def test_theorem_3_18() -> None:
    def printed(bits: int, depth: int, alpha: float) -> int:
        logs = [bits * math.log(2)]
        while len(logs) < depth:
            logs.append(math.log(logs[-1]))
        search: float = 8**depth * 72 * depth / (alpha * 0.5) * (math.log(12 * depth / (0.05 * 1e-6)) + logs[-1])
        return math.ceil(max(200 / alpha**2 * math.log(4 / (alpha * 0.05)), search))

    public: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6}
    for bits in (64, 1000, 10**5):
        for depth in (1, 2, 3):
            plan = threshold(bits=bits, depth=depth, error=0.1, **public)
            assert plan.paper_rows == pytest.approx(printed(bits, depth, 0.1), abs=1)
        best = threshold(bits=bits, error=0.1, **public).paper_rows
        assert best == pytest.approx(min(printed(bits, depth, 0.1) for depth in (1, 2, 3)), abs=1)
    fine = threshold(bits=4, depth=1, error=0.001, **public).paper_rows
    assert fine == pytest.approx(200 / 0.001**2 * math.log(4 / (0.001 * 0.05)), abs=1), "generalisation prevails"


def test_iterated_logarithms() -> None:
    assert iterated_logarithms(2) == [math.log(2)]
    logs = iterated_logarithms(2**1000)
    assert len(logs) == 4
    assert all(math.exp(later) == pytest.approx(earlier) for earlier, later in pairwise(logs))


def test_generic_rows() -> None:
    """Either part prevails somewhere."""
    def rows(size: int, **changed: Any) -> int:
        return generic_rows(size, **{"vc_dimension": 2, "error": 0.1, "failure": 0.1, "epsilon": 1} | changed)

    sample = 480 * (20 * math.log(480 * math.e) + math.log(100))
    assert rows(2, agnostic=False) == math.ceil(sample)
    assert rows(2**5000, agnostic=False) == math.ceil(200 * (5000 * math.log(2) + math.log(20)))
    assert rows(2, agnostic=True) == math.ceil(90_000 * math.log(600))
    assert rows(2**50_000, agnostic=True) == math.ceil(60 * (50_000 * math.log(2) + math.log(20)))


# ── why ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_says_the_depth_and_what_the_other_would_take() -> None:
    assert "Depth 1: the exponential mechanism, over about 2^64 thresholds." in threshold(
        bits=64, error=0.1, **APPROXIMATE
    ).why
    deep = threshold(bits=4096, error=0.1, **APPROXIMATE).why
    assert "Depth 2: RecConcave, over about 2^4096 thresholds." in deep
    assert "Depth 1 would need 13 times as many rows" in deep
    assert "Without a δ there is no deeper search" in threshold(bits=4096, error=0.1, epsilon=1).why
    small = threshold(bits=3, error=0.1, **APPROXIMATE).why
    assert "over 9 thresholds" in small
    assert "would need" not in small, "no other depth is to be had on a small domain"
    anything = threshold(bits=4096, agnostic=True, error=0.1, **APPROXIMATE).why
    assert "Depth 1" in anything
    assert "arbitrary" in anything
    assert "would need" not in anything, "a deeper search cannot take labels of any kind"
    assert "out of 4 candidates" in exponential(Thresholds(), net=[3, 5, 8], error=0.1, epsilon=1).why


def test_about() -> None:
    assert [about(size) for size in (7, 999_999, 2**64, 2**100_000)] == ["7", "999,999", "about 2^64", "about 2^1e+05"]


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("asked", [{"error": 0.1}, {"rows": 1000}])
@pytest.mark.parametrize(
    ("make", "public", "message"),
    [
        (point, {"bits": 8, "epsilon": 0, "delta": 1e-6}, "epsilon must be a finite number > 0, got 0"),
        (point, {"bits": 8, "epsilon": math.nan, "delta": 1e-6}, "epsilon must be finite"),
        (point, {"bits": 8, "epsilon": 1, "delta": 0}, r"delta must be in \(0, 1\), got 0"),
        (point, {"bits": 8, "epsilon": 1, "delta": 1}, "delta"),
        (point, {"bits": 0, "epsilon": 1, "delta": 1e-6}, "bits must be at least 1, got 0"),
        (point, {"epsilon": 1, "delta": 1e-6}, "give bits, or a domain"),
        (point, {"bits": 8, "failure": 1, "epsilon": 1, "delta": 1e-6}, r"failure must be in \(0, 1\), got 1"),
        (threshold, {"epsilon": 1}, "give bits, or a finite domain"),
        (threshold, {"bits": 8, "domain": Floats(), "epsilon": 1}, "either bits or a domain"),
        (threshold, {"bits": 8, "epsilon": -1}, "epsilon"),
        (threshold, {"bits": 8, "epsilon": math.inf}, "epsilon must be finite"),
        (threshold, {"bits": 8, "epsilon": 1, "delta": -1e-6}, "delta"),
        (threshold, {"bits": 64, "epsilon": 1, "depth": "deep"}, 'depth must be "auto" or a whole number'),
        (threshold, {"bits": 64, "epsilon": 1, "delta": 1e-6, "depth": 0}, "depth must be at least 1, got 0"),
        (threshold, {"bits": 64, "epsilon": 1, "depth": 2}, "delta"),
        (threshold, {"bits": 64, "epsilon": 1, "delta": 1e-6, "depth": 2, "agnostic": True}, "agnostic=True needs"),
        (exponential, {"concept_class": Thresholds(), "epsilon": 1}, "net must be given for an infinite concept class"),
        (exponential, {"concept_class": "thresholds", "epsilon": 1}, "concept_class must be a ConceptClass, got str"),
        (exponential, {"concept_class": Points(8), "epsilon": "1"}, "epsilon must be a real number, got str"),
    ],
)
def test_bad_input(make: Make, public: dict[str, Any], message: str, asked: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(**asked, **public)


def test_a_class_that_is_listed() -> None:
    concepts = np.array([[0, 0], [0, 1], [1, 1]])
    plan = exponential(Finite(concepts), error=0.2, epsilon=1, realizable=True)
    assert "out of 3 candidates" in plan.why
