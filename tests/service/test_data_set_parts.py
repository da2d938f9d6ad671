"""Parts compose in parallel: the exact law of adaptive releases about two parts, and rules that would be too generous.

A row of January and one of February hold a bit each. Each release is randomized response, with the exact probability
that its charge allows, about one of the bits or about their parity (the whole). The next release is chosen by looking
at all earlier ones. What is found is the largest ratio of probabilities of a transcript under two neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from reticent.privacy.events import PureDP
from reticent.service.datasets import budgets
from reticent.service.datasets.budgets import Charge, DataSet

HALF = PureDP(Fraction(1, 2))
CAP = 1
NAMES = ("clinic", "jan", "feb")
Bits = tuple[int, int]
Spent = tuple[str, ...]  # the charges so far
Rule = Callable[[Spent, str], bool]


def sets_after(spent: Spent) -> dict[str, DataSet]:
    found = {
        name: DataSet(name, None if name == "clinic" else "clinic", "basic", Fraction(CAP), Fraction(0), 0)
        for name in NAMES
    }
    for name in spent:
        charge = Charge(0, "fit", None, HALF, budgets.ROW)
        found[name] = replace(found[name], charges=(*found[name].charges, charge))
    return found


def ours(spent: Spent, name: str) -> bool:
    return budgets.fits(sets_after(spent), name, HALF)


def for_itself_alone(spent: Spent, name: str) -> bool:
    """A twin: what is spent on the whole is not counted for a part."""
    return (spent.count(name) + 1) * HALF.epsilon <= CAP


def as_if_a_part_were_the_whole(spent: Spent, name: str) -> bool:
    """A twin: a charge of the whole is checked against the part that has paid least."""
    parts = ("jan", "feb") if name == "clinic" else (name,)
    least = min(spent.count(part) for part in parts)
    return (spent.count("clinic") + least + 1) * HALF.epsilon <= CAP


def reads(name: str, bits: Bits) -> int:
    return {"jan": bits[0], "feb": bits[1], "clinic": bits[0] ^ bits[1]}[name]


def largest_loss(rule: Rule, pairs: list[tuple[Bits, Bits]]) -> float:
    """The largest log-ratio of a transcript, over neighbours and over all ways to choose releases, by induction."""
    favoured = math.exp(HALF.epsilon) / (1 + math.exp(HALF.epsilon))

    def ratio(name: str, answer: int, pair: tuple[Bits, Bits]) -> float:
        chances = [favoured if reads(name, bits) == answer else 1 - favoured for bits in pair]
        return math.log(chances[0] / chances[1])

    @cache
    def worst(spent: Spent, pair: tuple[Bits, Bits]) -> float:
        found = 0.0
        for name, answer in product(NAMES, (0, 1)):
            if rule(spent, name):
                later = tuple(sorted((*spent, name)))
                found = max(found, ratio(name, answer, pair) + worst(later, pair))
        return found

    return max(worst((), pair) for pair in pairs)


EVERY = list(product((0, 1), (0, 1)))
ONE_ROW = [(a, b) for a in EVERY for b in EVERY if sum(x != y for x, y in zip(a, b, strict=True)) == 1]
BOTH_ROWS = [((a, b), (1 - a, 1 - b)) for a, b in EVERY]


def test_all_releases_together_have_the_cap_for_each_row_and_attain_it() -> None:
    assert largest_loss(ours, ONE_ROW) == pytest.approx(CAP)


@pytest.mark.parametrize("twin", [for_itself_alone, as_if_a_part_were_the_whole])
def test_rules_that_are_too_generous_are_found(twin: Rule) -> None:
    assert largest_loss(twin, ONE_ROW) > 1.4 * CAP


def test_a_person_in_two_parts_pays_in_both() -> None:
    """Why parts must be disjoint: the same rule, for someone whose rows are in both."""
    assert largest_loss(ours, BOTH_ROWS) == pytest.approx(2 * CAP)


def test_parts_allow_more_than_one_budget_for_all() -> None:
    """Four halves are released in all, two about each part."""
    assert ours(("jan", "jan", "feb"), "feb")
    assert not ours(("jan", "jan", "feb", "feb"), "feb")
    assert not ours(("clinic", "feb"), "feb")
