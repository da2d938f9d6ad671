"""What events cost: our prices beside the formulas one would look up, and what a budget buys."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from experiments.table import Table
from reticent.privacy import calibrate, divergences, epsilon
from reticent.privacy.events import (
    ZCDP,
    BoundedRange,
    Composed,
    ContinuousGaussian,
    DiscreteGaussian,
    Event,
    GaussianBit,
    PureDP,
    Repeated,
    Subsampled,
)
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.ledger import Ledger
from reticent.privacy.pairs import amplified, pure, rho

DELTA = 1e-6


def tables() -> list[Table]:
    """Reference prices, what a budget buys, and what choosing events along the way costs."""
    return [_prices(), _answers(), _filters()]


def _bun_steinke(event: Event) -> float:
    concentrated = rho(event)
    assert concentrated is not None
    return float(concentrated) + 2 * math.sqrt(float(concentrated) * math.log(1 / DELTA))


def _advanced(event: Event) -> float:
    assert isinstance(event, Repeated)
    own = float(pure(event.event) or 0)
    return math.sqrt(2 * event.times * math.log(1 / DELTA)) * own + event.times * own * math.expm1(own)


def _sum(event: Event) -> float:
    return float(pure(event) or math.inf)


def _renyi(event: Event) -> float:
    return divergences.renyi_epsilon(event, DELTA)


def _sampled_pairs(event: Event) -> float:
    """Amplify an (ε, δ) of the single release, then compose optimally: what one does without the whole profile."""
    assert isinstance(event, Repeated)
    assert isinstance(event.event, Subsampled)
    lost = DELTA / 2 / event.times
    single = epsilon(event.event.event, delta=lost / float(event.event.rate))
    return epsilon(Repeated(PureDP(amplified(Fraction(single), event.event.rate)), event.times), delta=DELTA / 2)


def _prices() -> Table:
    sigma = Fraction(10)
    rows: list[tuple[str, Event, str, Callable[[Event], float]]] = [
        (
            "1000 Gaussian answers, σ = 10",
            Repeated(ContinuousGaussian(sigma), 1000),
            "Bun–Steinke conversion",
            _bun_steinke,
        ),
        ("1000 discrete Gaussian answers, σ = 10", Repeated(DiscreteGaussian(sigma), 1000), "Rényi conversion", _renyi),
        ("one release with ρ = 0.2", ZCDP(Fraction(1, 5)), "Bun–Steinke conversion", _bun_steinke),
        ("10⁶ releases with ε = 0.001", Repeated(PureDP(Fraction(1, 1000)), 10**6), "advanced composition", _advanced),
        (
            "10 releases with ε = 0.1, 10 with ε = 0.2",
            Composed((Repeated(PureDP(Fraction(1, 10)), 10), Repeated(PureDP(Fraction(1, 5)), 10))),
            "sum",
            _sum,
        ),
        (
            "50 exponential mechanisms, ε = 0.3",
            Repeated(BoundedRange(Fraction(3, 10)), 50),
            "optimal composition of pure ε",
            lambda event: epsilon(Repeated(PureDP(Fraction(3, 10)), 50), delta=DELTA),
        ),
        (
            "1000 one-bit answers, σ = 100, 1000 voters",
            Repeated(GaussianBit(Fraction(100), 1000), 1000),
            "the same as noisy counts",
            lambda event: epsilon(Repeated(DiscreteGaussian(Fraction(100)), 1000), delta=DELTA),
        ),
        (
            "100 discrete Gaussian answers, σ = 5, each on a tenth of the rows",
            Repeated(Subsampled(DiscreteGaussian(Fraction(5)), Fraction(1, 10)), 100),
            "one (ε, δ) amplified, then composed",
            _sampled_pairs,
        ),
    ]
    return Table(
        "ε at δ = 10⁻⁶",
        ("what happened", "ε", "by the formula", "ε by it"),
        tuple(
            (what, f"{epsilon(event, delta=DELTA):.4f}", formula, f"{loose(event):.4f}")
            for what, event, formula, loose in rows
        ),
    )


def _answers() -> Table:
    sigma, voters = Fraction(100), 1000
    kinds: list[tuple[str, Event]] = [
        ("noisy count, by zCDP", ZCDP(1 / (2 * sigma**2))),
        ("noisy count, exact loss", DiscreteGaussian(sigma)),
        ("one bit", GaussianBit(sigma, voters)),
    ]
    budgets = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
    return Table(
        f"Answers that fit a budget: σ = {sigma}, {voters} voters, δ = 10⁻⁶",
        ("answer", *(f"ε = {float(budget):g}" for budget in budgets)),
        tuple(
            (name, *(f"{calibrate.answers(event, epsilon=budget, delta=Fraction(1, 10**6)):,}" for budget in budgets))
            for name, event in kinds
        ),
    )


def _filters() -> Table:
    promise = Guarantee(epsilon=1.0, delta=1e-6)
    events: list[tuple[str, Event]] = [
        ("ε = 0.01", PureDP(Fraction(1, 100))),
        ("exponential mechanism, ε = 0.01", BoundedRange(Fraction(1, 100))),
        ("discrete Gaussian, σ = 100", DiscreteGaussian(Fraction(100))),
        ("one bit, σ = 100, 1000 voters", GaussianBit(Fraction(100), 1000)),
    ]
    rows = []
    for name, event in events:
        basic = str(Ledger(promise, accounting="basic").remaining(event)) if pure(event) is not None else "–"
        renyi = str(Ledger(promise, accounting="renyi").remaining(event))
        rows.append((name, basic, renyi, str(Ledger(promise, event=event).remaining())))
    return Table(
        "How many fit ε = 1, δ = 10⁻⁶, by the ledger's rule",
        ("event", "basic", "Rényi", "one event"),
        tuple(rows),
    )
