"""The empirical audit keeps its confidence, finds what there is to find, and refutes broken mechanisms."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.audit import EmpiricalBound, empirical, law
from reticent.audit.lower_bound import _best_event, _run, epsilon_at_least, probability_at_least, prospect
from reticent.noise import Seeded, system


def audit(mechanism: Callable[[Any], object], *, runs: int = 4000, **keywords: Any) -> EmpiricalBound:
    return empirical(mechanism, 0, 1, runs=runs, quiet=True, **{"delta": 0} | keywords)


def randomized_response(generator: random.Random, epsilon: float) -> Callable[[int], int]:
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return lambda bit: bit if generator.random() < truth else 1 - bit


# ── confidence ────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_the_bound_exceeds_the_truth_no_more_often_than_stated() -> None:
    """At 80 % the bound may be too high in one audit of five; the audits must not be idle, either."""
    mechanism = randomized_response(random.Random(1), math.log(3))
    bounds = [audit(mechanism, runs=200, confidence=0.8).epsilon_lower for _ in range(200)]
    assert sum(bound > math.log(3) for bound in bounds) <= 0.2 * len(bounds)
    assert sum(bound > math.log(3) / 2 for bound in bounds) >= 0.5 * len(bounds)


@pytest.mark.slow
def test_an_audit_that_tests_on_what_it_chose_by_is_too_confident() -> None:
    """The twin: fifty equally likely outputs tell nothing, but some set of them always looks as if it did."""
    generator = random.Random(2)

    def tallies() -> tuple[Counter[Any], Counter[Any]]:
        return Counter(generator.choices(range(50), k=400)), Counter(generator.choices(range(50), k=400))

    honest = cheating = 0
    for _ in range(60):
        learn, select, test = tallies(), tallies(), tallies()
        for training, fails in (((learn, select), False), ((test, test), True)):
            event, forward = _best_event(*training, delta=0.0, level=0.025)
            hits = [sum(n for output, n in counts.items() if event.holds(output)) for counts in test]
            more, less = hits if forward else hits[::-1]
            too_high = float(epsilon_at_least(more, less, runs=400, delta=0.0, level=0.025)) > 0
            cheating, honest = cheating + (fails and too_high), honest + (not fails and too_high)
    assert honest <= 0.05 * 60
    assert cheating > 0.5 * 60


@pytest.mark.parametrize(("hits", "runs"), [(1, 10), (5, 10), (10, 10), (30, 2000), (1999, 2000)])
@pytest.mark.parametrize("level", [0.025, 1e-5])
def test_clopper_pearson(hits: int, runs: int, level: float) -> None:
    """At the bound, as many hits or more have probability `level`."""
    assert stats.binom.sf(hits - 1, runs, probability_at_least(hits, runs, level)) == pytest.approx(level, rel=1e-6)
    assert probability_at_least(0, runs, level) == 0


def test_both_inequalities_follow_from_the_two_bounds() -> None:
    p, q = probability_at_least(990, 1000, 0.01), 1 - probability_at_least(1000 - 900, 1000, 0.01)
    assert epsilon_at_least(990, 900, runs=1000, delta=0.0, level=0.01) == pytest.approx(math.log((1 - q) / (1 - p)))
    p, q = probability_at_least(100, 1000, 0.01), 1 - probability_at_least(1000 - 10, 1000, 0.01)
    assert epsilon_at_least(100, 10, runs=1000, delta=0.02, level=0.01) == pytest.approx(math.log((p - 0.02) / q))
    assert epsilon_at_least(10, 10, runs=1000, delta=0.5, level=0.01) < 0, "nothing is shown"
    assert epsilon_at_least(10, 10, runs=1000, delta=0.999, level=0.01) < -100


# ── power ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(("scale", "passes"), [(Fraction(1), True), (Fraction(7, 10), False)])
def test_noise_that_is_too_small_is_refuted(scale: Fraction, passes: bool) -> None:
    noise = Seeded(unsafe_seed=3)
    found = audit(lambda count: count + noise.discrete_laplace(scale), runs=10_000, epsilon=1)
    assert found.passed is passes
    assert 0.85 / scale < found.epsilon_lower < 1 / scale


@pytest.mark.parametrize("inputs", [(0, 1), (1, 0)])
def test_both_directions_and_complements_are_looked_at(inputs: tuple[int, int]) -> None:
    """That it did not happen tells more: 0.01 against 0.1 is ln 10, where 0.99 against 0.9 is next to nothing."""
    generator = random.Random(4)
    found = empirical(
        lambda bit: generator.random() < (0.99, 0.9)[bit], *inputs, delta=0, runs=8000, quiet=True
    )
    assert 1.5 < found.epsilon_lower < math.log(10)


@pytest.mark.parametrize(
    ("output", "event"),
    [
        (lambda x: x, "output ≥"),
        (lambda x: ("same", x), "output[1] ≥"),
        (lambda x: np.array([0.0, x]), "output[1] ≥"),
        (lambda x: [0, [x]], "output[1] ≥"),
        (Fraction, "output ≥"),
        (lambda x: math.inf if x > 2 else x, "output"),
        (lambda x: math.nan if x > 1 else 0, "output"),
        (lambda x: 10**400 if x > 1 else -(10**400), "output"),
        (lambda x: None if x > 1 else "yes", "output"),
    ],
)
def test_all_kinds_of_outputs(output: Callable[[float], object], event: str) -> None:
    generator = random.Random(5)
    found = audit(lambda mean: output(generator.gauss(2 * mean, 1)))
    assert found.epsilon_lower > 0.5
    assert event in found.event


def test_delta_is_taken_off() -> None:
    """A mechanism that publishes one time in ten is (0, 0.1)-private: at δ = 0.1 there is nothing to find."""
    generator = random.Random(6)

    def leaks(bit: int) -> int | None:
        return bit if generator.random() < 0.1 else None

    assert audit(leaks, delta=0.1).epsilon_lower == 0
    assert audit(leaks, delta=0.05).epsilon_lower > 2


def test_where_there_is_nothing_to_find_no_event_is_named() -> None:
    found = audit(lambda bit: "always")
    assert (found.epsilon_lower, found.event) == (0, "no event found")


@pytest.mark.slow
def test_the_prospect_is_about_what_is_found() -> None:
    laws = [law(lambda noise, n=n: n + noise.discrete_laplace(Fraction(1))) for n in (0, 1)]  # type: ignore[misc]
    noise = Seeded(unsafe_seed=7)
    found = audit(lambda n: n + noise.discrete_laplace(Fraction(1)), runs=20_000)
    assert prospect(*laws, delta=0, runs=20_000, confidence=0.95) == pytest.approx(found.epsilon_lower, abs=0.1)


# ── how it runs ───────────────────────────────────────────────────────────────────────────────────────────────────

def fresh(_: int) -> int:
    return int(system.uniform(1 << 60))


@pytest.mark.slow
def test_workers_have_entropy_of_their_own() -> None:
    tallies = _run(fresh, (0, 1), (100, 100, 200), jobs=2, quiet=True)
    everything = sum((counts for pair in tallies for counts in pair), Counter())
    assert everything.total() == len(everything) == 2 * 400
    assert [counts.total() for pair in tallies for counts in pair] == [100, 100, 100, 100, 200, 200]


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_is_shown_unless_quiet(
    quiet: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    empirical(fresh, 0, 1, delta=0, runs=64, quiet=quiet)
    shown = capsys.readouterr()
    assert ("auditing" in shown.err) is not quiet
    assert shown.out == ""


def test_the_result_says_what_was_found() -> None:
    found = audit(randomized_response(random.Random(8), 3), epsilon=2, confidence=0.99)
    assert found.passed is False
    assert (found.delta, found.confidence, found.runs, found.claimed) == (0.0, 0.99, 4000, 2.0)
    assert "99 % confidence" in str(found)
    assert "ε = 2 is refuted" in str(found)
    assert audit(randomized_response(random.Random(8), 1), epsilon=2).passed is True
    assert audit(randomized_response(random.Random(8), 1)).passed is None


@pytest.mark.parametrize(
    "keywords",
    [
        {"delta": -0.1},
        {"delta": 1},
        {"delta": math.nan},
        {"runs": 7},
        {"runs": 0},
        {"confidence": 0.0},
        {"confidence": 1.0},
        {"confidence": math.nan},
        {"epsilon": math.inf},
        {"jobs": 0},
    ],
)
def test_bad_parameters(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(keywords))} must be"):
        audit(fresh, **keywords)


def test_outputs_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(TypeError, match="must return numbers, hashables or arrays of them, got dict"):
        audit(lambda bit: {})
