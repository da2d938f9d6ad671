"""A schema found privately: one release for all columns, of which a row moves little; twins that it moves further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import reticent as rt
from reticent.audit import Law, exact, law
from reticent.data import schema_release
from reticent.data.frames import Columns
from reticent.data.private_schema import FrameSource, PrivateSchema
from reticent.data.schema import Schema, SchemaError
from reticent.data.schema_plan import BINS, MISSING, UNREADABLE, SchemaPlan, category_threshold, plan_schema
from reticent.data.schema_release import category_counts, number_bins, number_counts, release_columns
from reticent.errors import InsufficientData
from reticent.noise import Noise
from reticent.privacy import delta, fits
from reticent.privacy.events import ApproximateDP, Composed, DiscreteGaussian, is_seeded

Row = tuple[Any, ...]
Table = dict[str, list[Any]]
NAMES = ("one", "two", "three")

cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=3),
    st.lists(st.integers(), max_size=2), st.dates(), st.decimals(),
    st.sampled_from(["a", " a ", "1", "1.0", "1e999", "-0", "nan", "NA", "?", "1_0", "٣", "12 kg", "2020-01-01", ""]),
    st.sampled_from([10**400, -(10**400), 2**53 + 1, 1.0, True, np.float32(1.5), np.nan, pd.NA, pd.NaT]),
)  # fmt: skip
rows = st.tuples(cells, cells, cells)


def table_of(some: list[Row]) -> Table:
    return {name: [row[place] for row in some] for place, name in enumerate(NAMES)}


# ── the counts ────────────────────────────────────────────────────────────────────────────────────────────────────

Tally = Callable[[Table], Counter[Any]]


def all_counts(table: Mapping[str, list[Any]]) -> Counter[Any]:
    """Every count behind a schema: bins of numbers and categories of every column, whichever of the two it is."""
    source = FrameSource(Columns(table))
    found: Counter[Any] = Counter()
    for name, counts in number_counts(source, NAMES).items():
        found.update({(name, place): int(counts[place]) for place in np.flatnonzero(counts).tolist()})
    for name, values in category_counts(source, NAMES):
        found.update({(name, text): times for text, times in values.items()})
    return found


def moved(tally: Tally, some: list[Row], place: int, other: Row, kind: type) -> int:
    """The squared distance by which a replaced row moves the counts of numbers (int) or of categories (str)."""
    before, after = tally(table_of(some)), tally(table_of([*some[:place], other, *some[place + 1 :]]))
    keys = {key for key in before | after if isinstance(key[1], kind)}
    return sum((before[key] - after[key]) ** 2 for key in keys)


@pytest.mark.slow
@given(st.lists(rows, min_size=1, max_size=6), st.integers(0, 5), rows)
def test_a_replaced_row_moves_two_counts_of_a_column_by_one(some: list[Row], place: int, other: Row) -> None:
    place %= len(some)
    assert moved(all_counts, some, place, other, int) <= 2 * len(NAMES)
    assert moved(all_counts, some, place, other, str) <= 2 * len(NAMES)


def test_the_sensitivity_is_attained() -> None:
    some: list[Row] = [(1, "a", 0.5), (3, "b", -2)]
    assert moved(all_counts, some, 0, (5, "c", None), int) == 4  # two texts are in the same bin
    assert moved(all_counts, some, 0, (5, 7, None), int) == 2 * len(NAMES)
    assert moved(all_counts, some, 0, (5, "c", None), str) == 2 * len(NAMES)


def typed_counts(table: Mapping[str, list[Any]]) -> Counter[Any]:
    """A twin: the type of a column is read off its rows, as a frame's is, and decides which of its counts there are."""
    texts = {name: any(isinstance(cell, str) for cell in column) for name, column in table.items()}
    both = all_counts(table)
    return Counter({key: count for key, count in both.items() if isinstance(key[1], str) == texts[key[0]]})


def distinct_counts(table: Mapping[str, list[Any]]) -> Counter[Any]:
    """A twin: a column with many different values is one of identifiers, and is not counted."""
    kept = {name: column if len(set(column)) <= 2 else [None] * len(column) for name, column in table.items()}
    return all_counts(kept)


@pytest.mark.parametrize("twin", [typed_counts, distinct_counts])
def test_twins_that_look_at_all_rows_are_rejected(twin: Tally) -> None:
    some: list[Row] = [(1.5, 2, 3)] * 5 + [(2.5, 2, 3)] * 5
    other: Row = ("x", 2, 3)
    assert moved(all_counts, some, 0, other, object) <= 4
    assert moved(twin, some, 0, other, object) > 4 * len(NAMES)


@pytest.mark.slow
@given(st.lists(cells, max_size=8))
def test_every_cell_is_in_one_bin(some: list[Any]) -> None:
    counts = number_bins(some)
    assert counts.shape == (BINS,)
    assert (counts >= 0).all()
    assert counts.sum() == len(some)
    assert counts.tolist() == sum((number_bins([cell]) for cell in some), np.zeros(BINS, dtype=np.int64)).tolist()


def test_bins_are_powers_of_two() -> None:
    def bin_of(cell: Any) -> int:
        return int(np.flatnonzero(number_bins([cell]))[0])

    assert bin_of(1) == bin_of("0.75") == bin_of(True) == 40
    assert bin_of(1.0000001) == bin_of(2) == 41
    assert bin_of(0) == bin_of(1e-300) == 0
    assert bin_of(2.0**60) == bin_of(1e300) == bin_of("inf") == 100
    assert bin_of(-2) == 101 + 41
    assert {bin_of(cell) for cell in (None, "", " ? ", "n/a", "NaN", np.nan, [1], pd.NaT)} == {MISSING}
    assert {bin_of(cell) for cell in ("12 kg", "1,000", "2020-01-01", "1_0")} == {UNREADABLE}


def test_arrays_and_lists_are_counted_alike() -> None:
    numbers = np.random.default_rng(0).normal(size=300) * 1e3
    numbers[::7] = np.nan
    as_list = number_bins(numbers.tolist())
    assert as_list.tolist() == number_bins(numbers).tolist()
    assert as_list.tolist() == number_bins([repr(cell) for cell in numbers.tolist()]).tolist()
    assert as_list.tolist() == number_bins(numbers.astype(object)).tolist()


# ── what a release costs ──────────────────────────────────────────────────────────────────────────────────────────


def small_plan(sigma: Fraction = Fraction(1), slack: Fraction = Fraction(47, 10_000)) -> SchemaPlan:
    threshold = category_threshold(sigma=sigma, probability=slack)
    return SchemaPlan(
        rows=5, columns=1, undecided=0, kinds_sigma=None, sigma=sigma, threshold=threshold, slack=slack
    )


class OnlyTwoBins(Noise):
    """Noise for the bins that differ between two neighbours; that of other bins changes no divergence."""

    def __init__(self, noise: Noise, bins: tuple[int, ...]) -> None:
        self.noise, self.bins = noise, bins

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        drawn = np.zeros(size or 1, dtype=np.int64)
        drawn[list(self.bins)] = self.noise.discrete_gaussian(sigma, len(self.bins))
        return drawn


def released_counts(column: list[Any], plan: SchemaPlan, noise: Noise, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All noisy counts of a column of numbers, of which the schema is a function."""
    noisy: list[Any] = []
    monkeypatch.setattr(schema_release, "number_column", lambda name, counts, plan: noisy.append(tuple(counts)))
    release_columns(FrameSource(Columns({"x": column})), {"x": "number"}, plan, noise)
    return noisy[0]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, Fraction(1, 2)], ids=["real", "half the noise"])
def test_the_law_of_noisy_counts_keeps_the_price_of_the_event(times: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price is that of squared sensitivity 2; half the noise, and a price for 1, are rejected."""
    plan, noisier = small_plan(), small_plan(sigma=times * Fraction(1))
    bins = (40, 41)
    def law_of(column: list[float]) -> Law:
        return law(lambda noise: released_counts(column, noisier, OnlyTwoBins(noise, bins), monkeypatch))

    first, second = law_of([1.0, 2.0]), law_of([2.0, 2.0])
    real = exact(first, second).delta(2)
    assert (real[1] <= delta(DiscreteGaussian(plan.sigma, 2), epsilon=2)) == (times == 1)
    assert real[0] > delta(DiscreteGaussian(plan.sigma, 1), epsilon=2)  # twin: sensitivity d for 2d


@pytest.mark.slow
@pytest.mark.parametrize("twin", [False, True], ids=["real", "as they first occur"])
def test_of_equal_noisy_counts_the_rows_do_not_decide_which_is_kept(twin: bool) -> None:
    def kept(column: list[str], noise: Noise) -> Any:
        found = release_columns(FrameSource(Columns({"x": column})), {"x": "category"}, small_plan(), noise)
        if twin:
            first_occurring = [("x", one) for one in dict.fromkeys(column) if ("x", one) in found.counts]
            found = found._replace(counts={each: found.counts[each] for each in first_occurring})
        return tuple(one.categories for one in found.narrowed(2).columns)

    first, second = law(lambda noise: kept(["a", "b"] * 4, noise)), law(lambda noise: kept(["b", "a"] * 4, noise))
    assert (exact(first, second).delta(0)[0] > 0.01) == twin
    assert twin or first.low == second.low


@pytest.mark.slow
def test_rare_categories_are_within_the_slack() -> None:
    def kept(column: list[str], noise: Noise, plan: SchemaPlan) -> Any:
        found = release_columns(FrameSource(Columns({"x": column})), {"x": "category"}, plan, noise)
        return tuple(one.categories for one in found.columns)

    def law_of(column: list[str], plan: SchemaPlan) -> Law:
        return law(lambda noise: kept(column, noise, plan))

    def worst(plan: SchemaPlan) -> float:
        pairs = [(["a"] * k + ["b"], ["a"] * (k + 1)) for k in range(5)] + [(["a", "b"], ["a", "c"])]
        return max(exact(law_of(first, plan), law_of(second, plan)).delta(5)[0] for first, second in pairs)

    plan = small_plan()
    claim = delta(plan.event, epsilon=5)
    assert 0.5 * claim < worst(plan) <= claim
    lower = SchemaPlan(**{**vars(plan), "threshold": plan.threshold - 1})  # twin: a threshold without its + 1
    assert worst(lower) > claim


def test_the_event_is_fixed_by_public_numbers() -> None:
    plan = plan_schema(rows=10_000, columns=5, undecided=3, texts=1, epsilon=1, delta=1e-6)
    kinds, counts, rare = plan.events
    assert isinstance(kinds, DiscreteGaussian)
    assert kinds.squared_sensitivity == 3
    assert isinstance(counts, DiscreteGaussian)
    assert counts.squared_sensitivity == 10
    assert isinstance(rare, ApproximateDP)
    assert rare.delta == Fraction(1, 10**7)
    assert fits(plan.event, epsilon=1, delta=1e-6)
    assert not fits(plan.event, epsilon=0.97, delta=1e-6), "it spends what it may"
    only_numbers = plan_schema(rows=10_000, columns=5, undecided=0, epsilon=1, delta=1e-6)
    assert only_numbers.events == (DiscreteGaussian(only_numbers.sigma, 10),)


def test_a_tenth_of_the_budget_is_a_tenth() -> None:
    share = Fraction(1, 10)
    plan = plan_schema(rows=10_000, columns=5, undecided=5, epsilon=1, delta=1e-6, share=share)
    ten_times = Composed(plan.events[:2] * 10)
    assert fits(ten_times, epsilon=1, delta=1e-6)


def test_thresholds_are_the_exact_tail() -> None:
    points = np.arange(-60, 61)
    mass = np.exp(-(points**2) / 18)
    mass /= mass.sum()
    for probability in (0.1, 1e-3, 1e-6):
        threshold = category_threshold(sigma=Fraction(3), probability=Fraction(probability))
        assert mass[points >= threshold].sum() <= probability < mass[points >= threshold - 1].sum()
    assert category_threshold(sigma=Fraction(200_000), probability=Fraction(1, 10**9)) > 200_000 * 6


def test_a_plan_for_fewer_columns_is_refused() -> None:
    source = FrameSource(Columns({"x": [1], "y": [1]}))
    with pytest.raises(ValueError, match="fewer columns"):
        release_columns(source, {"x": "number", "y": "number"}, small_plan(), None)


# ── what is found ─────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = 20_000


def clinic(rows: int = ROWS) -> Table:
    generator = np.random.default_rng(0)
    wards = generator.choice(["heart", "surgery", "internal"], rows).tolist()
    return {
        "age": generator.integers(18, 99, rows).tolist(),
        "change": np.where(generator.random(rows) < 0.1, np.nan, generator.normal(size=rows) * 3).tolist(),
        "ward": wards,
        "code": [f"{generator.integers(1, 4)}" for _ in range(rows)],
        "file": [f"P-{place}" for place in range(rows)],
        "empty": [None] * rows,
        "constant": ["5"] * rows,
        "visited": [f"{place}-01-01" if place % 3 else "2024-06-01" for place in range(rows)],
        "mixed": [place if place % 2 else "unknown" for place in range(rows)],
    }


@cache
def found() -> PrivateSchema:
    return PrivateSchema(epsilon=1, delta=1e-6, kinds={"code": "category"}, unsafe_seed=1).fit(clinic())


@pytest.mark.slow
def test_ranges_and_categories_are_found() -> None:
    columns = {one.name: one for one in found().schema_.columns}
    assert columns["age"].range == (16, 128)
    assert columns["change"].range in ((-8, 8), (-4, 4))
    assert columns["change"].missing == "column"
    assert columns["ward"].categories == ("heart", "internal", "surgery")
    assert columns["code"].categories == ("1", "2", "3")
    assert columns["constant"].range == (4, 8)
    assert columns["visited"].categories == ("2024-06-01",)
    assert columns["mixed"].categories == ("unknown",)
    assert all(one.other for one in columns.values() if one.kind == "category")
    assert set(found().unfound_) == {"file", "empty"}
    assert "identifier" in found().unfound_["file"]
    assert "almost always missing" in found().unfound_["empty"]


def test_ranges_follow_signs_and_sizes() -> None:
    def range_of(*cells: float) -> Any:
        plan = replace(small_plan(), rows=1000 * len(cells))
        column = schema_release.number_column("x", 1000 * number_bins(cells), plan)
        return None if column is None else column.range

    assert range_of(3, 100) == (2, 128)
    assert range_of(0, 100) == (0, 128)
    assert range_of(*[100] * 17, 3, 0.1, -5) == (-128, 128)
    assert range_of(-3, 100) == (-128, 128)
    assert range_of(-300, 0.1) == (-512, 512)
    assert range_of(-300, -3) == (-512, -2)
    assert range_of(0, 0) == (0, 2.0**-40)
    assert range_of(1e300, -1e300) == (-(2.0**60), 2.0**60)
    assert range_of(float("nan")) is None


def test_a_range_starts_at_zero_unless_nearly_all_rows_lie_beyond() -> None:
    counts = number_bins([100] * 95 + [2] * 5) * 100
    plan = replace(small_plan(sigma=Fraction(200)), rows=10_000)  # the five in a hundred do not stand out
    assert plan.least_count > 500
    for rows, start in ((10_000, 64), (10_600, 0)):
        column = schema_release.number_column("x", counts, replace(plan, rows=rows))
        assert column is not None
        assert column.range == (start, 128)


def test_the_guarantee_is_what_was_asked_for() -> None:
    assert 0.9 < found().guarantee_.epsilon <= 1
    assert found().guarantee_.delta == 1e-6
    assert is_seeded(found().event_)
    assert found().guarantee_.seeded
    assert not is_seeded(PrivateSchema(epsilon=1, delta=1e-6).fit({"x": list(range(5000))}).event_)


def test_rows_become_numbers_each_by_itself() -> None:
    rows = found().transform(clinic(50))
    assert rows.shape == (50, found().schema_.width)
    assert (np.abs(rows) <= 1).all()
    assert (np.linalg.norm(rows, axis=1) <= found().schema_.row_norm).all()
    odd = {name: [object()] for name in clinic(1)} | {"more": [1]}
    assert np.isfinite(found().transform(odd)).all()
    assert found().get_feature_names_out().tolist() == found().schema_.features


def test_missing_numbers_have_a_column_of_their_own() -> None:
    place = found().schema_.features.index("change=?")
    table = clinic(4) | {"change": [None, "NA", 1.5, "12 kg"]}
    rows = found().transform(table)
    assert rows[:, place].tolist() == [1, 1, 0, 1]
    assert rows[[0, 1, 3], found().schema_.features.index("change")].tolist() == [0, 0, 0]


def test_the_schema_can_be_saved_and_used_again() -> None:
    again = Schema.from_toml(found().schema_.to_toml())
    assert again == found().schema_
    assert again.encode(clinic(9)).tolist() == found().transform(clinic(9)).tolist()


FRAMES: dict[str, Callable[[Table], Any]] = {
    "pandas": pd.DataFrame,
    "polars": lambda table: pl.DataFrame(table, strict=False),
    "arrays": lambda table: {name: np.array(column, dtype=object) for name, column in table.items()},
    "pandas as text": lambda table: pd.DataFrame(table).astype("string"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES)
def test_frames_go_in_as_they_are(name: str) -> None:
    table = {key: column for key, column in clinic().items() if key not in ("mixed", "empty")}
    one = PrivateSchema(epsilon=1, delta=1e-6, kinds={"code": "category"}, unsafe_seed=3).fit(FRAMES[name](table))
    other = PrivateSchema(epsilon=1, delta=1e-6, kinds={"code": "category"}, unsafe_seed=3).fit(table)
    assert one.schema_ == other.schema_
    assert one.transform(FRAMES[name](table)).tolist() == other.transform(table).tolist()


def test_an_odd_cell_does_not_decide_the_type_of_a_column() -> None:
    """Read by pandas, one cell of text turns a column of numbers into one of objects; the counts of the others stay."""
    numbers = [float(place) for place in range(100)]
    first, second = pd.DataFrame({"x": numbers}), pd.DataFrame({"x": [*numbers[:-1], "unknown"]})
    assert first["x"].dtype != second["x"].dtype
    before, after = (number_counts(FrameSource(Columns(frame)), ["x"])["x"] for frame in (first, second))
    assert int(((before - after) ** 2).sum()) == 2
    kinds = [PrivateSchema(epsilon=1, delta=1e-6).column_kinds(Columns(frame)) for frame in (first, second)]
    assert kinds == [{"x": None}] * 2
    declared = PrivateSchema(epsilon=1, delta=1e-6, types="declared")
    assert [declared.column_kinds(Columns(frame))["x"] for frame in (first, second)] == ["number", None]  # a twin


def test_declared_types_cost_nothing() -> None:
    frame = pd.DataFrame({"x": np.arange(5000.0), "y": ["a", "b"] * 2500})
    declared = PrivateSchema(epsilon=1, delta=1e-6, types="declared").fit(frame)
    released = PrivateSchema(epsilon=1, delta=1e-6).fit(frame)
    assert declared.plan_.undecided == 1
    assert released.plan_.undecided == 2
    array = PrivateSchema(epsilon=1, delta=1e-6, types="declared").fit(np.random.default_rng(0).normal(size=(5000, 3)))
    assert array.plan_.sigma < PrivateSchema(epsilon=1, delta=1e-6).plan(5000, dict.fromkeys("abc")).sigma
    assert [one.name for one in array.schema_.columns] == ["x0", "x1", "x2"]


def test_one_row_of_each_group_is_counted() -> None:
    table = {"x": [1.0] * 4000 + [1e6] * 96_000}
    groups = [f"p{place}" for place in range(4000)] + ["p0"] * 96_000
    found = PrivateSchema(epsilon=1, delta=1e-6).fit(table, groups=groups)
    assert found.schema_.columns[0].range == (0.5, 1)
    assert found.guarantee_.unit == "group"
    assert found.plan_.rows == 4000


@pytest.mark.slow
def test_it_is_a_transformer() -> None:
    schema = PrivateSchema(epsilon=1, delta=1e-6, leave_out=["file"])
    assert clone(schema).get_params() == schema.get_params()
    table = clinic(8000)
    y = [age > 50 for age in table["age"]]
    model = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3, classes=[False, True])
    both = make_pipeline(schema, model).fit(table, y)
    assert both.score(table, y) > 0.7
    assert "file" not in both[0].unfound_


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "different names.*'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", " "]), {}, "name for every column.*index 1"),
        ({"a": [1], "b": [1, 2]}, {}, "one length"),
        ({}, {}, "at least one column"),
        ({"a": "text"}, {}, "one column of cells"),
        (np.zeros(3), {}, "two dimensions"),
        ([[1, 2]], {}, "a frame, a dict"),
        (pl.LazyFrame({"a": [1]}), {}, "collect"),
        ({"a": [1]}, {"kinds": {"b": "number"}}, "kinds names 'b'"),
        ({"a": [1]}, {"kinds": {"a": "date"}}, "'number' or 'category'"),
        ({"a": [1]}, {"leave_out": ["a"]}, "at least one column"),
        ({"a": [1]}, {"leave_out": "a"}, "sequence of names"),
        ({"a": [1]}, {"types": "guess"}, "types must be"),
        ({"a": [1]}, {"epsilon": 0}, "epsilon must be"),
        ({"a": [1]}, {"delta": 0}, "delta must be"),
    ],
)
def test_bad_tables_and_parameters_are_refused_before_noise_is_drawn(table: Any, options: Any, message: str) -> None:
    schema = PrivateSchema(**{"epsilon": 1, "delta": 1e-6, **options})
    with pytest.raises((TypeError, ValueError), match=message):
        schema.fit(table)


def test_too_few_rows_are_refused_with_the_number_that_is_needed() -> None:
    with pytest.raises(InsufficientData, match="needs at least") as refused:
        PrivateSchema(epsilon=1, delta=1e-6).fit({"a": [1] * 10})
    required = refused.value.required
    PrivateSchema(epsilon=1, delta=1e-6).fit({"a": [1] * required})
    with pytest.raises(InsufficientData, match="20,000 columns"):
        PrivateSchema(epsilon=1, delta=1e-6).fit(np.zeros((10, 20_000)))


def test_nothing_found_is_an_error_that_depends_on_the_release_alone() -> None:
    schema = PrivateSchema(epsilon=1, delta=1e-6)
    with pytest.raises(SchemaError, match="no column was found"):
        schema.fit({"id": [f"p{place}" for place in range(2000)]})
    assert schema.event_ is not None
    with pytest.raises(ValueError, match="lacks 'ward'"):
        found().transform({name: column for name, column in clinic(3).items() if name != "ward"})


@pytest.mark.slow
def test_very_many_categories_and_columns() -> None:
    many = {"id": [f"{place}x" for place in range(200_000)], "sign": ["a", "b"] * 100_000}
    assert list(PrivateSchema(epsilon=1, delta=1e-6).fit(many).unfound_) == ["id"]
    wide = {f"c{place}": np.ones(4000) for place in range(500)}
    assert len(PrivateSchema(epsilon=1, delta=1e-6).fit(wide).schema_.columns) == 500


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(rows, min_size=3, max_size=3))
def test_no_content_makes_it_fail(some: list[Row]) -> None:
    filler: list[Row] = [(1, "a", 0.5)] * 1500
    found = PrivateSchema(epsilon=1, delta=1e-6).fit(table_of(filler + some))
    assert found.transform(table_of(some)).shape == (3, found.schema_.width)
