"""The walker against independent formulas, and against the sampler it stands in for."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.audit.laws import BITS, ONE, Law, law
from reticent.noise import Noise, Seeded, system


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    """Bits enough for what is compared, whatever other tests have set."""
    with mpmath.workprec(400):
        yield


def real(x: Fraction | int) -> Any:
    return mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator


def outputs(found: Law) -> list[Any]:
    return list(found.low)


def encloses(found: Law, output: Hashable, probability: Any, slack: int = 1 << 20) -> bool:
    """Whether the bounds hold the probability, and are not more than `slack` units of 2^-256 apart."""
    low, high = int(found.low[output]), int(found.high[output])
    return low <= probability * ONE <= high and high - low <= slack


def laplace(scale: Fraction, z: int) -> Any:
    a = mpmath.exp(-1 / real(scale))
    return (1 - a) / (1 + a) * a ** abs(z)


@cache
def gaussian_weights(sigma: Fraction) -> tuple[list[Any], Any]:
    weights = [mpmath.exp(-real(Fraction(k * k) / (2 * sigma * sigma))) for k in range(int(30 * sigma) + 30)]
    return weights, weights[0] + 2 * sum(weights[1:])


def gaussian(sigma: Fraction, z: int) -> Any:
    weights, total = gaussian_weights(sigma)
    return weights[abs(z)] / total


# ── single draws ──────────────────────────────────────────────────────────────────────────────────────────────────

def test_a_run_without_noise_is_certain() -> None:
    assert law(lambda noise: "always") == Law({"always": ONE}, {"always": ONE}, 0)


@pytest.mark.parametrize("bound", [1, 2, 7, 1000])
def test_uniform(bound: int) -> None:
    found = law(lambda noise: noise.uniform(bound))
    assert found.missing == 0
    assert set(found.low) == set(range(bound))
    assert all(encloses(found, value, real(Fraction(1, bound)), 1) for value in range(bound))


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 2), Fraction(99, 100)])
def test_bernoulli(p: Fraction) -> None:
    found = law(lambda noise: noise.bernoulli(p))
    assert encloses(found, True, real(p), 1)
    assert encloses(found, False, real(1 - p), 1)


@pytest.mark.parametrize("p", [0, 1])
def test_impossible_outcomes_are_not_walked(p: int) -> None:
    assert law(lambda noise: noise.bernoulli(Fraction(p))) == Law({bool(p): ONE}, {bool(p): ONE}, 0)


def test_very_unlikely_outcomes_are_missing() -> None:
    found = law(lambda noise: noise.bernoulli(Fraction(1, 2**100)), tail_bits=80)
    assert found == Law({False: ONE - (ONE >> 100)}, {False: ONE - (ONE >> 100)}, ONE >> 100)
    assert set(law(lambda noise: noise.bernoulli(Fraction(1, 2**100)), tail_bits=120).low) == {False, True}


@pytest.mark.parametrize("gamma", [Fraction(1, 10), Fraction(1), Fraction(17, 3)])
def test_bernoulli_exp(gamma: Fraction) -> None:
    found = law(lambda noise: noise.bernoulli_exp(gamma))
    assert encloses(found, True, mpmath.exp(-real(gamma)))
    assert encloses(found, False, 1 - mpmath.exp(-real(gamma)))


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(20)])
def test_discrete_laplace(scale: Fraction) -> None:
    found = law(lambda noise: noise.discrete_laplace(scale))
    assert all(encloses(found, z, laplace(scale, z)) for z in outputs(found))
    outside = 1 - sum(laplace(scale, z) for z in outputs(found))
    assert outside * ONE <= found.missing < 2**-80 * ONE


@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(20)])
def test_discrete_gaussian(sigma: Fraction) -> None:
    found = law(lambda noise: noise.discrete_gaussian(sigma))
    # the tails widen the enclosure, since they are only bounded in the normaliser
    assert all(encloses(found, z, gaussian(sigma, z), ONE >> 78) for z in outputs(found))
    outside = 1 - sum(gaussian(sigma, z) for z in outputs(found))
    assert outside * ONE <= found.missing < 2**-78 * ONE


@pytest.mark.parametrize(("kind", "pmf"), [("laplace_cell", laplace), ("gaussian_cell", gaussian)])
@pytest.mark.parametrize("cuts", [(), (0,), (1,), (-3, 2), (-2, -2, 0, 5), (4, 9)])
def test_cells(kind: str, pmf: Callable[[Fraction, int], Any], cuts: tuple[int, ...]) -> None:
    scale = Fraction(5, 2)
    found = law(lambda noise: getattr(noise, kind)(scale, cuts))
    mass: Counter[int] = Counter()
    for z in range(-90, 91) if kind == "gaussian_cell" else range(-700, 701):
        mass[sum(z >= cut for cut in cuts)] += pmf(scale, z)
    assert found.missing <= 1 << 20
    assert set(found.low) == {cell for cell in mass if mass[cell] > 0}
    for cell in outputs(found):
        assert found.low[cell] - 1 <= mass[cell] * ONE <= found.high[cell] + 1  # one for mpmath's own rounding


def test_cells_reach_as_far_as_the_cuts() -> None:
    far = law(lambda noise: noise.laplace_cell(Fraction(2), [100, 10**9]))
    assert set(far.low) == {0, 1}
    assert encloses(far, 1, mpmath.exp(-50) / (1 + mpmath.exp(-mpmath.mpf(1) / 2)))


@pytest.mark.slow
@given(st.fractions(Fraction(1, 5), 4), st.lists(st.integers(-20, 20), max_size=4).map(sorted))
def test_a_cell_is_a_cell_of_the_whole_draw(scale: Fraction, cuts: list[int]) -> None:
    for kind in ("laplace", "gaussian"):
        whole = law(lambda noise, draw=f"discrete_{kind}": bisect_right(cuts, getattr(noise, draw)(scale)))  # type: ignore[misc]
        cell = law(lambda noise, draw=f"{kind}_cell": getattr(noise, draw)(scale, cuts))  # type: ignore[misc]
        for output in whole.low.keys() | cell.low.keys():
            assert abs(whole.probability(output) - cell.probability(output)) < 1e-15


@pytest.mark.parametrize(("n", "k"), [(4, 2), (3, 3), (5, 0)])
def test_subset_is_ordered_and_uniform(n: int, k: int) -> None:
    found = law(lambda noise: tuple(noise.subset(n, k).tolist()))
    assert set(found.low) == set(itertools.permutations(range(n), k))
    assert all(encloses(found, subset, real(Fraction(1, math.perm(n, k))), 1) for subset in found.low)


def test_permutation() -> None:
    assert set(law(lambda noise: tuple(noise.permutation(3).tolist())).low) == set(itertools.permutations(range(3)))


@pytest.mark.parametrize("counts", [None, [1, 0, 7, 10**15]])
@pytest.mark.parametrize("scores", [[0, 1, 2, -40], [Fraction(1, 3), 0.5, 7, 7]])
def test_choose(scores: list[Any], counts: list[int] | None) -> None:
    rate = Fraction(3, 10)
    found = law(lambda noise: noise.choose(scores, rate=rate, counts=counts))
    weights = [
        n * mpmath.exp(real(rate) * real(Fraction(score))) for score, n in zip(scores, counts or [1] * 4, strict=True)
    ]
    assert all(encloses(found, i, weights[i] / sum(weights)) for i in outputs(found))
    assert set(found.low) == {i for i in range(4) if weights[i] > 0}


# ── whole runs ────────────────────────────────────────────────────────────────────────────────────────────────────

def test_draws_may_depend_on_earlier_ones() -> None:
    def run(noise: Noise) -> Any:
        if noise.bernoulli(Fraction(1, 4)):
            return noise.uniform(2)
        return noise.uniform(3)

    found = law(run)
    expected = {0: Fraction(1, 8) + Fraction(1, 4), 1: Fraction(1, 8) + Fraction(1, 4), 2: Fraction(1, 4)}
    assert all(encloses(found, output, real(p), 8) for output, p in expected.items())


def test_vectors_are_walked_entry_by_entry() -> None:
    found = law(lambda noise: tuple(noise.bernoulli_exp(Fraction(1), size=3).tolist()))
    assert encloses(found, (True, False, True), mpmath.exp(-2) * (1 - mpmath.exp(-1)))
    assert len(found.low) == 8
    assert law(lambda noise: tuple(noise.uniform(3, size=2).tolist())).low.keys() == set(
        itertools.product(range(3), repeat=2)
    )


def everything(noise: Noise) -> Hashable:
    """A run that makes each kind of draw, later ones depending on earlier ones."""
    coin = noise.bernoulli(Fraction(2, 5))
    cell = noise.laplace_cell(Fraction(3, 2), [-1, 2]) if coin else noise.gaussian_cell(Fraction(2), [0])
    order = noise.permutation(2 + cell % 2)
    pick = noise.choose([0, cell, 2], rate=Fraction(1, 2), counts=[1, 2, 1])
    decay = bool(noise.bernoulli_exp(Fraction(1 + pick, 3)))
    small = noise.discrete_gaussian(Fraction(1, 2)) if decay else noise.discrete_laplace(Fraction(1, 3))
    return coin, cell, order[0].item(), pick, small % 2, noise.uniform(2), noise.subset(3, 1).item()


@pytest.mark.slow
def test_probabilities_sum_to_one() -> None:
    found = law(everything)
    assert sum(found.low.values()) <= ONE <= sum(found.high.values()) + found.missing
    assert 0 < found.missing < ONE >> 75
    assert sum(found.high.values()) - sum(found.low.values()) < ONE >> 75


@pytest.mark.slow
def test_the_walker_agrees_with_the_sampler() -> None:
    runs = 4_000
    found, noise = law(everything), Seeded(unsafe_seed=1)
    seen = Counter(everything(noise) for _ in range(runs))
    assert seen.keys() <= found.low.keys()
    expected = {output: runs * found.probability(output) for output in found.low}
    common = [output for output in expected if expected[output] >= 5]
    statistic = sum((seen[o] - expected[o]) ** 2 / expected[o] for o in common)
    assert statistic < len(common) + 6 * math.sqrt(2 * len(common))


# ── what cannot be audited ────────────────────────────────────────────────────────────────────────────────────────

def test_raw_bytes_are_refused() -> None:
    with pytest.raises(TypeError, match="raw bytes"):
        law(lambda noise: noise.random_bytes(1))


def test_other_kinds_of_draws_on_replay_are_noticed() -> None:
    kinds = itertools.cycle([2, 2, 3])
    with pytest.raises(RuntimeError, match=r"draw 1 was uniform\(2\) and then uniform\(3\)"):
        law(lambda noise: noise.uniform(next(kinds)))


def test_fewer_draws_on_replay_are_noticed() -> None:
    sizes = itertools.cycle([2, 2, 1])
    with pytest.raises(RuntimeError, match=r"stopped before draw 2, uniform\(2\)"):
        law(lambda noise: tuple(noise.uniform(2, size=next(sizes))))


def test_randomness_of_its_own_is_noticed() -> None:
    generator = random.Random(1)
    with pytest.raises(RuntimeError, match="other randomness"):
        law(lambda noise: noise.uniform(2) + generator.random())


def test_randomness_of_its_own_is_noticed_on_whatever_path_it_is() -> None:
    with pytest.raises(RuntimeError, match="other randomness"):
        law(lambda noise: noise.uniform(50) == 49 and int(system.uniform(1 << 60)))


def test_further_draws_on_replay_are_noticed() -> None:
    sizes = itertools.cycle([1, 2])
    with pytest.raises(RuntimeError, match=r"had stopped before draw 2, uniform\(2\)"):
        law(lambda noise: tuple(noise.uniform(2, size=next(sizes))))


def test_memory_of_earlier_runs_is_noticed() -> None:
    answers: list[int] = []

    def run(noise: Noise) -> Hashable:
        answers.append(noise.uniform(2))
        return len(answers)

    with pytest.raises(RuntimeError, match="remembers earlier runs"):
        law(run)


def test_too_much_to_walk_is_refused() -> None:
    with pytest.raises(RuntimeError, match="most_paths=1000"):
        law(lambda noise: noise.uniform(10, size=5).sum(), most_paths=1000)
    with pytest.raises(ValueError, match=r"uniform\(1267650600228229401496703205376\)"):
        law(lambda noise: noise.uniform(2**100))
    with pytest.raises(ValueError, match=r"subset\(20, 10\)"):
        law(lambda noise: tuple(noise.subset(20, 10)))
    with pytest.raises(ValueError, match=r"discrete_laplace\(1000000\) has \d+ outcomes"):
        law(lambda noise: noise.discrete_laplace(Fraction(10**6)))
    with pytest.raises(ValueError, match=r"discrete_gaussian\(1000000\) has \d+ outcomes"):
        law(lambda noise: noise.gaussian_cell(Fraction(10**6), [0]))
    with pytest.raises(RuntimeError, match="most_paths"):
        law(lambda noise: noise.discrete_laplace(Fraction(10), size=3).sum())
    with pytest.raises(RuntimeError, match="most_paths=1000"):
        law(lambda noise: sum(noise.discrete_laplace(Fraction(10)) for _ in range(3)), most_paths=1000)


def test_as_many_paths_as_allowed_are_walked() -> None:
    assert len(law(lambda noise: tuple(noise.uniform(10, size=3)), most_paths=1000).low) == 1000
    with pytest.raises(RuntimeError, match="most_paths=999"):
        law(lambda noise: tuple(noise.uniform(10, size=3)), most_paths=999)


def test_loops_must_be_bounded() -> None:
    def waiting(most: int) -> Callable[[Noise], Hashable]:
        return lambda noise: next((i for i in range(most) if noise.bernoulli(Fraction(1, 2))), None)

    assert encloses(law(waiting(60)), 59, real(Fraction(1, 2**60)))
    with pytest.raises(RuntimeError, match="more than 10000 draws: bound its loops"):
        law(waiting(10**9))


@pytest.mark.parametrize(
    "draw",
    [
        lambda noise: noise.discrete_laplace(Fraction(0)),
        lambda noise: noise.discrete_gaussian(Fraction(-1)),
        lambda noise: noise.laplace_cell(-1, [0]),
        lambda noise: noise.laplace_cell(Fraction(1), [1, 0]),
        lambda noise: noise.bernoulli(Fraction(3, 2)),
        lambda noise: noise.bernoulli(Fraction(-1, 2)),
        lambda noise: noise.bernoulli_exp(Fraction(-1)),
        lambda noise: noise.choose([], rate=Fraction(1)),
        lambda noise: noise.choose([1], rate=Fraction(1), counts=[0]),
        lambda noise: noise.choose([1], rate=Fraction(-1)),
        lambda noise: noise.uniform(0),
    ],
)
def test_what_the_sampler_refuses_the_walker_refuses(draw: Callable[[Noise], Any]) -> None:
    for attempt in (lambda: law(draw), lambda: draw(Seeded(unsafe_seed=1))):
        with pytest.raises(ValueError, match=r"must|outcomes"):
            attempt()


def test_parameters_are_read_as_the_sampler_reads_them() -> None:
    """0.1 is one tenth, and a list of large numbers is not rounded on its way."""
    assert law(lambda noise: noise.bernoulli(0.1)) == law(lambda noise: noise.bernoulli(Fraction(1, 10)))  # type: ignore[arg-type]
    large = law(lambda noise: noise.choose([2**63 + 1, 2**63, -1], rate=Fraction(1)))
    assert large.probability(0) == pytest.approx(math.e / (1 + math.e))


# ── stated laws ───────────────────────────────────────────────────────────────────────────────────────────────────

def test_a_stated_law() -> None:
    stated = Law.of({"a": Fraction(1, 3), "b": (0.5, Fraction(3, 4)), "c": 0})
    assert stated.low == {"a": Fraction(ONE, 3), "b": ONE // 2, "c": 0}
    assert stated.high == {"a": Fraction(ONE, 3), "b": 3 * ONE // 4, "c": 0}
    assert stated.probability("b") == 0.5
    assert stated.probability("not there") == 0
    assert stated.missing == 0


@pytest.mark.parametrize(
    ("probabilities", "error"),
    [
        ({"a": Fraction(1, 2)}, ValueError),
        ({"a": Fraction(3, 4), "b": Fraction(3, 4)}, ValueError),
        ({"a": Fraction(3, 2), "b": Fraction(-1, 2)}, ValueError),
        ({"a": (0.9, 0.1), "b": (0, 1)}, ValueError),
        ({"a": (0.1, 0.2)}, ValueError),
        ({"a": 1.0}, TypeError),
        ({"a": "1"}, TypeError),
        ({"a": (0, 1, 1)}, TypeError),
        ([Fraction(1)], TypeError),
        ({}, ValueError),
    ],
)
def test_what_is_not_a_law(probabilities: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"probabilit|law"):
        Law.of(probabilities)


def test_units() -> None:
    assert ONE == 1 << BITS
    assert isinstance(law(lambda noise: noise.discrete_laplace(Fraction(1), size=1)[0].item()), Law)
    assert np.isclose(law(lambda noise: noise.uniform(4)).probability(3), 0.25)
