"""The private count of labels that are not among the classes: its exact law, and twins that tell too much."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.data.label_check import FALSE_ALARM, LabelCheck
from reticent.data.schema import Column, Schema
from reticent.mechanisms.counts import laplace_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.events import PureDP

EPSILON = Fraction(1, 2)
SCHEMA = Schema((Column("age", "number", range=(0, 100)),), "ill", ("no", "yes"))
CHECK = LabelCheck(epsilon=EPSILON, rows=4)
LABELS: list[Any] = ["no", "yes", "Yes", None]
NEIGHBOURS: list[list[Any]] = [["no", "yes", "no", None], ["no", "yes", "Yes", "yes"], ["perhaps", "yes", "Yes", None]]

Run = Callable[[list[Any], Noise], Release[int]]


def real(labels: list[Any], noise: Noise) -> Release[int]:
    return CHECK.release(SCHEMA, [labels[:3], labels[3:]], noise)


def without_noise(labels: list[Any], noise: Noise) -> Release[int]:
    return Release(int(SCHEMA.other_labels(labels).sum()), PureDP(EPSILON))


def half_the_noise(labels: list[Any], noise: Noise) -> Release[int]:
    released = laplace_count(int(SCHEMA.other_labels(labels).sum()), epsilon=2 * EPSILON, unsafe_noise=noise)
    return released._replace(event=PureDP(EPSILON))


def also_whether_any(labels: list[Any], noise: Noise) -> Any:
    """Tells, besides the noisy count, whether there are more such labels than two: as an error of its own would."""
    released = real(labels, noise)
    return Release((released.value, int(SCHEMA.other_labels(labels).sum()) > 2), released.event)


def keeps_its_promise(run: Run) -> bool:
    """Whether the exact law of the count changes by at most a factor of e^ε for a replaced label, both ways."""

    def law_of(labels: list[Any]) -> Law:
        return law(lambda noise: run(labels, noise).value)

    # upper bounds, in the worse direction
    return all(exact(law_of(LABELS), law_of(labels)).delta(EPSILON)[1] <= 1e-12 for labels in NEIGHBOURS)


@pytest.mark.parametrize(
    ("run", "kept"),
    [(real, True), (without_noise, False), (half_the_noise, False), (also_whether_any, False)],
)
def test_the_exact_law_of_the_count(run: Run, kept: bool) -> None:
    assert keeps_its_promise(run) == kept


def test_the_event_is_what_is_charged() -> None:
    assert CHECK.release(SCHEMA, [LABELS]).event == PureDP(EPSILON)


def test_a_replaced_row_moves_the_count_by_one_at_most() -> None:
    """Whatever it holds: the classes are public, and every label is compared with them by itself."""
    cells = ["no", "yes", " yes ", "YES", "", None, 1, 1.5, True, float("nan"), b"yes", [1], {"a": 1}, object()]
    before = int(SCHEMA.other_labels(cells).sum())
    for place in range(len(cells)):
        for cell in cells:
            after = int(SCHEMA.other_labels([*cells[:place], cell, *cells[place + 1 :]]).sum())
            assert abs(after - before) <= 1


def test_labels_that_are_counted_are_those_that_become_the_first_class() -> None:
    schema = Schema((Column("age", "number", range=(0, 100)),), "ill", (1, 0))
    labels = ["1", "0", 1.0, "1e0", "", "x", 2, None]
    assert schema.other_labels(labels).tolist() == [False, False, False, False, True, True, True, True]
    first = np.flatnonzero(schema.ascending_classes == 1)[0]
    assert set(schema.class_indices(labels)[schema.other_labels(labels)]) == {first}


def test_noise_alone_seldom_stops_a_fit() -> None:
    """P(noise > visible) from the exact law of discrete Laplace noise: e^(−ε·(k+1))/(1 + e^(−ε))."""
    for epsilon in (Fraction(1, 50), Fraction(1, 2), Fraction(3)):
        check = LabelCheck(epsilon=epsilon, rows=1_000)
        ratio = np.exp(-float(epsilon))
        assert ratio ** (check.visible + 1) / (1 + ratio) <= FALSE_ALARM
        assert ratio ** (check.visible - 1) / (1 + ratio) > FALSE_ALARM
        assert not check.too_many(check.visible)


def test_a_class_that_is_misspelled_is_found() -> None:
    """Half of 5,000 labels, at a fiftieth of ε = 1: the noise would have to be below −1,900."""
    check = LabelCheck(epsilon=Fraction(1, 50), rows=5_000)
    labels = ["no", "YES"] * 2_500
    assert all(check.too_many(check.release(SCHEMA, [labels]).value) for _ in range(20))
    assert not LabelCheck(epsilon=Fraction(1, 50), rows=1_000).useful, "so many rows are hidden by the noise"
