from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest

from experiments import comparison
from experiments.comparison import SETTINGS, Measured, Pair, chance, expected, kept


def test_what_is_on_file_was_measured_on_the_settings_as_they_are() -> None:
    stored = json.loads(comparison.MEASURED.read_text(encoding="utf-8"))["results"]
    assert {name: found["setting"] for name, found in stored.items()} == {one.name: asdict(one) for one in SETTINGS}


def test_a_share_of_the_budget_is_worth_more_than_rows() -> None:
    """And taking what leads is worth more than always the same, or waiting for a clear lead."""
    stored = kept()
    reached = [expected(stored[one.name], one) for one in SETTINGS]
    mean = {rule: float(np.mean([each[rule] for each in reached])) for rule in reached[0]}
    always = np.mean([stored[one.name].last for one in SETTINGS], axis=0)
    best = mean.pop("what leads")
    assert best > max(*mean.values(), *always) + 0.005


def test_a_rule_is_worth_what_it_takes() -> None:
    far, none = Measured(*[Pair(0.5, 0.99)] * 4), Measured(*[Pair(0.99, 0.5)] * 4)
    assert list(expected(far, SETTINGS[-1]).values()) == pytest.approx([0.99] * 3, abs=1e-6)
    assert list(expected(none, SETTINGS[-1]).values()) == pytest.approx([0.99] * 3, abs=1e-6)
    even = chance(Pair(0.8, 0.8), SETTINGS[0], share=Fraction(1, 10), tested=800)
    assert even == pytest.approx(0.5)
    assert chance(Pair(0.8, 0.8), SETTINGS[0], share=Fraction(1, 10), tested=800, errors=2) == pytest.approx(
        0.0228, abs=1e-4
    )


def test_the_table_has_a_line_for_each_setting_and_one_for_the_mean() -> None:
    (table,) = comparison.tables()
    assert [line[0] for line in table.rows] == [*(one.name for one in SETTINGS), "mean"]
