"""What promise RecConcave needs, which depth is best, what its exact laws leak, and how often it fails."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from experiments.table import Table
from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import choose_depth, quasi_concave_maximum, required_promise
from reticent.noise import Seeded

PUBLIC: dict[str, Any] = {"accuracy": 0.1, "epsilon": 1, "delta": 1e-6, "failure": 0.05}
WIDTHS = (64, 250, 300, 500, 1000, 10**6)


def tables() -> list[Table]:
    """The tables of the page on RecConcave."""
    return [_promises(), _crossovers(), _laws(), _failures()]


def _promises() -> Table:
    rows = []
    for bits in WIDTHS:
        ours = [required_promise(1 << bits, depth=depth, **PUBLIC) for depth in (1, 2, 3)]
        before = [f"{_printed(bits, 1):.2g}", f"{_printed(bits, 2):.2g}", f"{_equal_shares(bits):.0f}"]
        rows.append((str(bits), *before, *map(str, ours), str(choose_depth(1 << bits, **PUBLIC))))
    return Table(
        "Promise needed on [0, 2^bits) at α = 0.1, ε = 1, δ = 10⁻⁶, β = 0.05",
        ("bits", "as printed, N = 1", "as printed, N = 2", "N = 2, equal shares", "N = 1", "N = 2", "N = 3", "best N"),
        tuple(rows),
    )


def _printed(bits: int, depth: int) -> float:
    """Inequality (2) of Theorem 3.15, with natural logarithms."""
    alpha, beta, epsilon, delta = (float(PUBLIC[name]) for name in ("accuracy", "failure", "epsilon", "delta"))
    iterated = bits * math.log(2) if depth == 1 else math.log(bits * math.log(2))
    return 36 * depth * 8.0**depth / (alpha * epsilon) * (math.log(6 * depth / (beta * delta)) + iterated)


def _equal_shares(bits: int) -> float:
    """What depth 2 would need if each of its four calls got ε/4."""
    alpha, beta, epsilon, delta = (float(PUBLIC[name]) for name in ("accuracy", "failure", "epsilon", "delta"))
    share, beta = epsilon / 4, beta / 3
    return max(
        8 / (3 * alpha) * (2 + 2 / share * math.log(1 / (4 * beta * delta / 2))),
        16 / (3 * alpha * share) * math.log(16 / beta),
        16 / (alpha * share) * math.log((bits + 1) / beta),
    )


def _crossovers() -> Table:
    rows = []
    for accuracy in (0.1, 0.5):
        for delta in (1e-6, 1e-12):
            public = PUBLIC | {"accuracy": accuracy, "delta": delta}
            low, high = 6, 10**4  # depth 1 at `low` bits, depth 2 at `high`
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if choose_depth(1 << middle, **public) > 1 else (middle, high)
            promise = required_promise(1 << high, depth=2, **public)
            rows.append((f"{accuracy:g}", f"{delta:g}", str(high), str(promise)))
    return Table(
        "The width from which on depth 2 needs a smaller promise than the exponential mechanism (ε = 1, β = 0.05)",
        ("α", "δ", "bits", "promise needed there"),
        tuple(rows),
    )


def _laws() -> Table:
    rows = []
    for name, cuts, heights, moved, public in _pairs():
        first, second = (Pieces.from_breakpoints(cuts, each, last=47) for each in (heights, moved))
        divergence = exact(_law(first, public), _law(second, public))
        epsilon, delta = Fraction(public["epsilon"]), public["delta"]
        exceeded = [share for share in range(100) if divergence.delta(epsilon * share / 100)[0] > delta]
        share = f"{max(exceeded, default=0)} %"
        worst = divergence.delta(epsilon)[1]
        rows.append((name, f"({epsilon}, {delta:g})", f"{worst:.2g}" if worst > 1e-20 else "0", share))
    return Table(
        "Exact laws on neighbours, ranges of 48 points, depth 2",
        ("neighbours", "claimed (ε, δ)", "exact δ at ε", "share of ε below which δ is exceeded"),
        tuple(rows),
    )


def _law(pieces: Pieces, public: dict[str, Any]) -> Law:
    return law(lambda noise: quasi_concave_maximum(pieces, depth=2, unsafe_noise=noise, **public).value)


def _pairs() -> list[tuple[str, list[int], list[int], list[int], dict[str, Any]]]:
    climbed = [0, 1, 3, 4, 8, 14, 19]
    heights, moved = [-6, -2, 10, 12, 5, -24, -2], [-7, -2, 9, 11, 5, -24, -2]
    steep = {"promise": 20, "accuracy": Fraction(9, 10), "epsilon": 12}
    peaks = {"promise": 10, "accuracy": Fraction(1, 2), "delta": 0.01}
    return [
        ("the best interval changes", [0, 4, 8, 36, 40], [0, 10, 0, 9, 0], [0, 9, 0, 10, 0], peaks | {"epsilon": 20}),
        ("a single peak sinks", [0, 4, 8], [0, 10, 0], [1, 9, 1], peaks | {"epsilon": 2}),
        ("found by hill climbing", climbed, heights, moved, steep | {"delta": 0.01}),
        ("found by hill climbing", climbed, heights, moved, steep | {"delta": 1e-6}),
    ]


def _failures() -> Table:
    rows = []
    for bits, depth in ((64, 1), (64, 2), (1000, 2), (10**5, 2)):
        public = PUBLIC | {"accuracy": 0.5, "depth": depth}
        promise, runs = required_promise(1 << bits, **public), 200
        middle, top = 3 ** (bits * 3 // 5), (1 << bits) - 1
        bad = math.ceil(promise / 2) - 1
        score = Pieces.from_triples([(0, middle - 1, bad), (middle, middle, promise), (middle + 1, top, bad)])
        noise = Seeded(unsafe_seed=bits)
        found = [quasi_concave_maximum(score, promise=promise, unsafe_noise=noise, **public).value for _ in range(runs)]
        rows.append((str(bits), str(depth), str(promise), str(runs), str(sum(value != middle for value in found))))
    return Table(
        "Failures with the promise that the planner asks for (α = 0.5, ε = 1, δ = 10⁻⁶, β = 0.05): one good point, and "
        "everywhere else a score just too low to be good",
        ("bits", "depth", "promise", "runs", "failures"),
        tuple(rows),
    )
