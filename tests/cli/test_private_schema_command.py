"""`reticent fit` without a schema, and `reticent schema --private`: what is spent, said, written and refused."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import numpy as np
import pytest
from command_line import SECRET, Reticent, check_refused

from reticent.cli import private_schema
from reticent.cli.private_schema import SchemaPurchase, SchemaSearch, TableSource, labels_of
from reticent.data.schema import Column, Schema
from reticent.data.schema_release import Found, category_counts, number_counts
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import home, tables

run = pytest.fixture(command_line.run)

ROWS = 4000
PUBLIC = ("--target", "ill", "--classes", "no,yes")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
FIT = ("fit", "raw.csv", *PUBLIC, *BUDGET, "--name", "clinic", "--quiet")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with raw.csv: semicolons, decimal commas, missing cells, text, identifiers, groups."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(0)
    age, ward = generator.integers(18, 99, ROWS), generator.choice(["a", "b"], ROWS)
    ill = np.where((age > 60) ^ (generator.random(ROWS) < 0.1), "yes", "no")
    weight = [f"{one:.1f}".replace(".", ",") if one > 60 else "" for one in generator.normal(75, 12, ROWS)]
    lines = [
        f"{age[i]};{ward[i]};{weight[i]};{SECRET}{i};p{i % 3000};{ill[i]}" for i in range(ROWS)
    ]
    text = "age;ward;weight;name;person;ill\n" + "\n".join(lines) + "\n"
    (tmp_path / "raw.csv").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_fit_says_what_auto_takes_and_whom_it_protects(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--group", "person", "--compare")
    assert outcome.code == 0, outcome.err
    assert "PROTECTS: rows, all rows of one 'person' together, and not queries" in outcome.out
    assert "add --compare" not in outcome.out, "it compares already"
    refused = run(*FIT[:-2], "other", "--quiet", "--schema-share", "1.5")
    assert refused.err == "reticent: --schema-share must be above 0 and below 1, got 1.5\n"
    assert "AUTO TAKES ONE PRIVATE MODEL" in run(*FIT[:-2], "other", "--quiet", "--again").out


@pytest.mark.slow
def test_a_table_is_fitted_without_a_schema(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(*FIT, "--learner", "private-model")
    assert outcome.code == 0, outcome.err
    assert "No row has been read yet" in outcome.out
    assert "Found 2 columns of numbers and 1 of categories." in outcome.out
    assert "\n  name: no category occurs often enough" in outcome.out
    assert '[[columns]]\nname = "name"\ncategories = []' in outcome.out
    spent = "ε = 0.02 to check labels; ε = 0.98, δ = 1e-06 for the schema and the model together"
    assert f"In total ε = 1, δ = 1e-06: {spent} (--label-share, --schema-share).\n" in outcome.out
    assert f"\nSpent: {spent}\n" in outcome.out
    assert "The plan stays as it is, with 3 columns (" in outcome.out
    assert "AUTO TAKES" not in outcome.out
    assert SECRET not in outcome.out
    schema = Schema.read(folder / "home" / "clinic.schema.toml")
    columns = {one.name: one for one in schema.columns}
    assert columns["age"].range is not None
    assert columns["weight"].missing == "column"
    assert columns["ward"].categories == ("a", "b")
    model = tomllib.loads(home.read_model(folder / "home" / "clinic"))["model"]
    assert (model["epsilon"], model["schema_share"], model["labels_epsilon"]) == ("1", "1/10", "1/50")
    monkeypatch.setenv("RETICENT_HOME", str(folder / "other"))
    again = run(*FIT, "--learner", "private-model", "--schema", "home/clinic.schema.toml")
    assert again.code == 0, again.err


def test_a_schema_that_was_paid_for_is_not_overwritten(run: Reticent, folder: Path) -> None:
    kept = folder / "home" / "clinic.schema.toml"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("edited")
    check_refused(run(*FIT), "clinic.schema.toml is a schema that was paid for")
    assert kept.read_text() == "edited"
    assert run("data", "list", "--json").out == "[]\n"


@pytest.mark.slow
def test_the_guarantee_is_that_of_schema_and_first_phase(run: Reticent, folder: Path) -> None:
    assert run(*FIT, "--learner", "private-model").code == 0
    (state,) = (folder / "home" / "clinic").glob("phase-*.state")
    predictor = EverlastingPredictor.load(state, again=True)
    assert predictor.guarantee_.epsilon == 1
    assert predictor.guarantee_.delta == 1e-6
    assert predictor.epsilon < 0.95
    assert predictor.besides is not None
    assert Fraction(predictor.epsilon) + Fraction(predictor.besides[0]) == 1
    status = run("status", "clinic", "--json")
    assert '"epsilon": 1.0' in status.out
    assert "What it is spent on. Of this, epsilon = 0.0742 and delta = 1e-07" in status.out


@pytest.mark.slow
def test_votes_add_up(run: Reticent, folder: Path) -> None:
    votes = (*FIT, "--learner", "linear", "--answers", "2", "--yes", "--schema-share", "0.5")
    outcome = run(*votes, "--leave-out", "name,person")
    assert outcome.code == 0, outcome.err
    parts = "ε = 0.49, δ = 5e-07 for the schema; ε = 0.49, δ = 5e-07 for the first phase"
    assert f"\nSpent: ε = 0.02 to check labels; {parts}\n" in outcome.out


def test_only_the_schema(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("schema", "raw.csv", "--private", *PUBLIC, *BUDGET, "--group", "person", "--quiet")
    printed = run(*command)
    assert printed.code == 0
    assert printed.out.startswith("# Found privately in 4,000 rows, at epsilon = 1, delta = 1e-06.")
    assert SECRET not in printed.out
    assert Schema.from_toml(printed.out).group == "person"
    monkeypatch.setenv("RETICENT_HOME", str(folder / "other"))  # where nothing was spent yet
    written = run(*command, "--out", "found.toml")
    assert "Spent epsilon = 1, delta = 1e-06 on found.toml." in written.out
    assert Schema.read("found.toml").target == "ill"
    check_refused(run(*command, "--out", "found.toml"), "found.toml exists")


def test_categories_in_another_encoding_are_pointed_out(run: Reticent, folder: Path) -> None:
    lines = (folder / "raw.csv").read_text(encoding="utf-8").replace(";a;", ";Köln;")
    command = ("schema", "latin.csv", "--private", *PUBLIC, *BUDGET, "--leave-out", "name,person", "--quiet")
    for encoding, warned in (("latin-1", True), ("utf-8", False)):
        (folder / "latin.csv").write_text(lines, encoding=encoding)
        outcome = run(*command, "--out", f"{encoding}.toml")
        assert (outcome.code, "NOT UTF-8" in outcome.out) == (0, warned), outcome.err


@pytest.mark.slow
def test_after_the_charge_only_a_table_without_any_column_fails(run: Reticent, folder: Path) -> None:
    alone = run(*FIT, "--leave-out", "age,ward,weight,person")
    assert (alone.code, "no column was found" in alone.err) == (2, True)
    assert "The charge stands." in alone.err
    rows = "".join(f"k{place % 20};k{place // 20 % 20};{'yes' if place % 20 < 9 else 'no'}\n" for place in range(8000))
    (folder / "wide.csv").write_text("a;b;ill\n" + rows, encoding="utf-8")
    wide = run("fit", "wide.csv", *PUBLIC, "--epsilon", "8", "--delta", "1e-6", "--name", "wide", "--quiet", "--yes",
               "--learner", "linear")  # fmt: skip
    assert wide.code == 0, wide.err  # a plan that fails after the charge would be a waste
    assert "rare categories are counted as other, since the rows are too few for all of them" in wide.out
    assert len(Schema.read(folder / "home" / "wide.schema.toml").columns) == 2


def test_one_row_of_each_group_is_counted(folder: Path) -> None:
    table = tables.open_table("raw.csv")
    source = TableSource(table, ROWS, "person", quiet=True)
    assert source.units == 3000
    assert sum(number_counts(source, ["age"])["age"]) == 3000
    ((_, counts),) = category_counts(source, ["ward"])
    assert sum(counts.values()) == 3000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "raw.csv", *BUDGET, "--name", "x"), "name the column to predict and its labels"),
        (("fit", "raw.csv", "--target", "ill", *BUDGET, "--name", "x"), "name the column to predict and its labels"),
        (("fit", "raw.csv", "--target", "sick", "--classes", "no,yes", *BUDGET, "--name", "x"), "no column 'sick'"),
        ((*FIT, "--group", "ill"), "must be different columns"),
        ((*FIT, "--schema-share", "1"), "--schema-share must be above 0 and below 1"),
        ((*FIT, "--categories", "wards"), "no column 'wards'"),
        ((*FIT, "--leave-out", "names"), "no column 'names'"),
        ((*FIT, "--leave-out", "age,ward,weight,name,person"), "at least one column"),
        ((*FIT[:3], "ill", "--classes", "no", *BUDGET, "--name", "x"), "at least two labels"),
        (("fit", "raw.csv", *PUBLIC, "--epsilon", ".01", "--delta", "1e-6", "--name", "x"), "5 columns needs at least"),
        (("schema", "raw.csv", "--private", *PUBLIC, *BUDGET, "--out", "none/s.toml"), "can be written to"),
        (("schema", "raw.csv", "--private", *PUBLIC), "--private needs --epsilon and --delta"),
        (("schema", "raw.csv", *PUBLIC[:2], "--epsilon", "1"), "--epsilon must come with --private"),
    ],
)
def test_bad_options_are_refused_before_a_cell_is_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("the rows were read")

    monkeypatch.setattr(tables.Csv, "chunks", touched)
    check_refused(run(*arguments), message)
    assert not (folder / "home").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,age,ill\n1,2,no\n", "the same name"),
        ("a\tb\x07\till\n1\t2\tno\n", "printable name"),
        ("age,ill\n", "no rows"),
    ],
)
def test_bad_headers_are_refused(run: Reticent, folder: Path, text: str, message: str) -> None:
    (folder / "raw.csv").write_text(text, encoding="utf-8")
    check_refused(run(*FIT), message)


def test_labels_are_numbers_where_all_are() -> None:
    assert labels_of("no, yes") == ("no", "yes")
    assert labels_of("0,1") == (0, 1)
    assert labels_of("0,yes") == ("0", "yes")
    assert labels_of("true,false") == ("true", "false")


def test_a_parquet_file_declares_its_types(run: Reticent, folder: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    generator = np.random.default_rng(0)
    columns = {
        "x": generator.normal(size=ROWS),
        "ward": generator.choice(["a", "b"], ROWS),
        "day": np.full(ROWS, np.datetime64("2024-01-01")),
        "ill": generator.choice(["no", "yes"], ROWS),
    }
    parquet.write_table(pyarrow.table(columns), "raw.parquet")
    outcome = run("schema", "raw.parquet", "--private", *PUBLIC, *BUDGET, "--quiet")
    assert outcome.code == 0, outcome.err
    assert "day: its type in the file is neither" in outcome.out
    assert [one.name for one in Schema.from_toml(outcome.out).columns] == ["x", "ward"]


@pytest.mark.parametrize(
    "options",
    [
        ("--target", "day", "--classes", "no,yes"),
        (*PUBLIC, "--group", "day"),
        (*PUBLIC, "--categories", "day"),
        ("--schema", "day.toml"),
    ],
)
def test_a_declared_type_that_cannot_be_read_is_refused_before_anything_is_charged(
    run: Reticent, folder: Path, options: tuple[str, ...]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = np.full(ROWS, np.datetime64("2024-01-01"))
    parquet.write_table(pyarrow.table({"x": np.arange(ROWS), "day": days, "ill": ["no", "yes"] * (ROWS // 2)}), "a.pq")
    Path("day.toml").write_text('target = "ill"\nclasses = ["no", "yes"]\n[[columns]]\nname = "day"\nrange = [0, 9]\n')
    outcome = run("fit", "a.pq", *options, *BUDGET, "--name", "clinic", "--quiet")
    check_refused(outcome, "a.pq: the column 'day' is of type")
    assert outcome.out == ""
    assert run("data", "list", "--json").out == "[]\n"


@pytest.mark.parametrize(("most", "width"), [(99, 12), (9, 9), (5, 5), (1, 5)])
def test_rare_categories_are_merged_until_there_are_enough_rows(
    monkeypatch: pytest.MonkeyPatch, most: int, width: int
) -> None:
    """What was planned before the charge is enough for few numbers; a plan that fails after it would be a waste."""
    found = Found(
        columns=(
            Column("ward", "category", categories=("a", "b", "c", "d", "e", "f"), other=True),
            Column("sex", "category", categories=("m", "w", "x"), other=True),
            Column("age", "number", range=(0, 1)),
        ),
        unfound={},
        kinds={"ward": "category", "sex": "category", "age": "number"},
        counts={("ward", one): 100 * (place + 1) for place, one in enumerate("fedcba")}
        | {("sex", "m"): 5000, ("sex", "w"): 4900, ("sex", "x"): 50},
    )

    def plan(schema: Schema, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(schema=schema, holds=schema.width <= most)

    monkeypatch.setattr(private_schema, "choose", plan)
    wanted = SchemaSearch(SimpleNamespace(), {}, {}, "ill", ("no", "yes"), None)  # type: ignore[arg-type]
    bought = SchemaPurchase(wanted, None, SimpleNamespace(learner="linear"), 10, {})  # type: ignore[arg-type]
    schema = bought.planned_with(found).schema
    assert schema.width == width
    ward, sex, _ = schema.columns
    assert ward.categories == tuple("abcdef")[: {12: 6, 9: 4, 5: 1}[width]]
    assert sex.categories == {12: ("m", "w", "x"), 9: ("m", "w"), 5: ("m",)}[width]
