"""The measurements of private schemas: all are there, and a small one can be made again."""

from __future__ import annotations

import numpy as np

from experiments import private_schema
from experiments.private_schema import AIMS, NAMES, ROWS, Measured, as_cells, measured, reached, schema_by_hand, tables


def test_every_table_was_measured_and_the_aim_is_judged_by_the_mean() -> None:
    wanted = [(name, rows) for name in NAMES for rows in ROWS]
    assert [(each.data, each.rows) for each in private_schema.kept()] == wanted
    (table,) = tables()
    assert {line[-1] for line in table.rows} <= {"yes", "no"}
    accuracy, auc = AIMS[20_000]
    for loss, enough in ((0.9, True), (1.1, False)):
        private = [[0.8 - loss * accuracy, 0.9], [0.8, 0.9]]
        found = Measured("adult", 20_000, 3, [[0.8, 0.9], [0.8, 0.9]], [private[0], private[0]], [0, 0])
        assert reached(found) == enough
    assert auc > 0


def test_at_twenty_thousand_rows_a_private_schema_is_within_two_points_of_one_by_hand() -> None:
    for each in private_schema.kept():
        if each.rows == 20_000:
            assert min(private_schema.difference(each)) > -0.02, each.data


def test_a_small_measurement() -> None:
    generator = np.random.default_rng(0)
    age = generator.integers(18, 99, 6000)
    table = {"age": as_cells(age), "ward": generator.choice(np.array(["a", "b"], dtype=object), 6000)}
    y = ((age > 60) ^ (generator.random(6000) < 0.1)).astype(np.int64)
    assert [one.kind for one in schema_by_hand(table).columns] == ["number", "category"]
    found = measured("clinic", table, y, 5000, splits=2)
    assert np.mean(found.private, axis=0)[0] > 0.8
    assert found.unfound == [0, 0]
