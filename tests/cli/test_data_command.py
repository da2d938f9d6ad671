"""`reticent data`, and what `reticent fit` charges: before a row is used, never refunded, refused beyond the cap."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import FIT, SECRET, Reticent, check_refused

from reticent.cli import charging
from reticent.cli import fit as fit_command
from reticent.cli.errors import UsageError
from reticent.cli.private_schema import SchemaSearch
from reticent.privacy import Spent
from reticent.service import home, tables
from reticent.service.datasets.registry import Receipt, Registry

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
SECOND = (*FIT[:-1], "second")


def shown(run: Reticent, name: str = "clinic") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("data", "show", name, "--json").out)
    return found


def test_a_second_fit_of_the_same_rows_is_refused(run: Reticent, folder: Path) -> None:
    first = run(*FIT)
    assert first.code == 0
    assert (
        "\nCharged to a new data set 'clinic': epsilon=1 of 1, delta=1e-06 of 1e-06 is spent now.\n" in first.out
    )
    second = run(*SECOND)
    check_refused(second, "this fit costs epsilon=1, delta=1e-06, but of the data set 'clinic'")
    assert "epsilon=0, delta=0 is left" in second.err
    assert home.predictor_names() == ["clinic"]
    assert [one["purpose"] for one in shown(run)["charges"]] == ["labels", "fit"]


def test_the_ways_out_that_a_refusal_names_work(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    refusal = run(*SECOND).err
    command = refusal.partition("raise the cap (reticent ")[2].partition(")")[0]
    assert run(*shlex.split(command)).code == 0
    assert run(*SECOND).code == 0
    third = run(*FIT[:-1], "third", "--again")
    assert "whose cap was raised for it: epsilon=3 of 3, delta=3e-06 of 3e-06 is spent now" in third.out
    assert run("data", "add", "part", "new.csv", "--part-of", "clinic").code == 0


def test_another_name_another_order_another_format(run: Reticent, folder: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    assert run(*FIT).code == 0
    header, *lines = Path("patients.csv").read_text().splitlines()
    Path("copy.csv").write_text("\n".join([header, *sorted(lines)]) + "\n")
    check_refused(run("fit", "copy.csv", *SECOND[2:]), "of the data set 'clinic'")
    Path("whole.csv").write_text("\n".join([header, *lines[4:]]))
    parquet.write_table(csv.read_csv("whole.csv").drop_columns("patient"), "whole.parquet")
    assert run("fit", "whole.csv", *SECOND[2:]).code == 0  # with fewer rows it is another table
    check_refused(run("fit", "whole.parquet", *FIT[2:-1], "third"), "of the data set 'second'")


def test_deleting_a_predictor_refunds_nothing(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    shutil.rmtree(home.folder_of("clinic"))
    check_refused(run(*FIT), "also for those of predictors that were deleted")


def test_what_is_refused_for_public_reasons_costs_nothing(run: Reticent, folder: Path) -> None:
    assert run(*FIT, "--learner", "linear").code == 2  # too few rows
    assert run(*FIT, "--learner", "linear", "--answers", "100").code == 2  # another option is better
    assert run(*FIT, "--data", "nowhere").code == 2
    assert run("data", "list").out == ""


# ── a charge comes before the rows are used, and stays ────────────────────────────────────────────────────────────


def killed(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Let the command end, as a kill would, where it first uses the rows."""

    def end(*_: object, **__: object) -> None:
        raise SystemExit(9)

    monkeypatch.setattr(fit_command, at, end)


def survives(run: Reticent) -> bool:
    """Whether a charge is found after `fit` was ended when it began to use the rows."""
    with pytest.raises(SystemExit):
        run(*FIT)
    listed = run("data", "list").out.splitlines()
    return any(line.startswith("clinic ") and "epsilon=1 of 1" in line for line in listed)


def test_the_charge_is_on_the_disk_when_rows_are_first_used(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, "read_rows")
    assert survives(run)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RETICENT_HOME", str(folder / "home"))
    check_refused(run(*FIT), "epsilon=0, delta=0 is left")


def test_the_twin_that_charges_after_the_rows_are_read_is_found(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(*_: object, **__: object) -> Receipt:
        """Charge when the predictor is saved."""
        return Receipt("clinic", "clinic", True, False, Spent("epsilon", 1, 1, 0, 0))

    monkeypatch.setattr(fit_command, "charge", later)
    killed(monkeypatch, "read_rows")
    assert not survives(run)


def is_charged_after_a_failure(run: Reticent, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> bool:
    """Whether a fit that fails when it uses the rows stays charged; `before` is called just before it fails."""

    def fail(*_: object, **__: object) -> None:
        before()
        raise UsageError("the rows cannot be read")

    monkeypatch.setattr(fit_command, "read_rows", fail)
    check_refused(run(*FIT), "the rows cannot be read")
    return "epsilon=1 of 1" in run("data", "list").out


def test_a_failure_is_not_refunded(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_charged_after_a_failure(run, monkeypatch, lambda: None)


def test_the_twin_that_refunds_a_failure_is_found(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin takes the charge back when it finds that the fit fails."""
    assert not is_charged_after_a_failure(run, monkeypatch, lambda: shutil.rmtree(folder / "home" / "_data"))


def test_nothing_of_the_rows_is_shown(run: Reticent, folder: Path) -> None:
    commands = ("list", "list --json", "show clinic", "show clinic --json", "add copy patients.csv --cap-epsilon 1")
    outcomes = [run(*FIT), run(*SECOND), *(run("data", *one.split()) for one in commands)]
    with Registry() as registry:
        (kept,) = registry.named("clinic").tables
    for outcome in outcomes:
        for secret in (SECRET, kept.whole, *kept.columns):
            assert secret not in outcome.out + outcome.err


def test_homes_have_different_digests_of_the_same_rows(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin is a digest without a salt, or with one that is not random: it would be the same in both."""
    table = tables.open_table(folder / "patients.csv")
    found = []
    for one in ("one", "two"):
        monkeypatch.setenv("RETICENT_HOME", str(folder / one))
        found.append(charging.read_fingerprint(table))
    assert not {found[0].whole, *found[0].columns} & {found[1].whole, *found[1].columns}
    assert charging.read_fingerprint(table) == found[1]


@pytest.mark.parametrize(("file", "name"), [("patients.csv", "patients"), ("alle Kranken.csv", "schema")])
def test_what_makes_no_predictor_is_charged_to_the_name_of_its_table(folder: Path, file: str, name: str) -> None:
    shutil.copy("patients.csv", "alle Kranken.csv")
    table = tables.open_table(file)
    receipt = charging.charge(table, charging.recognise(table, rows=3_000), purpose="schema", epsilon=0.1, delta=0)
    assert receipt.name == name
    assert charging.in_words(receipt) == f"Charged to a new data set {name!r}: epsilon=0.1 of 0.1 is spent now."
    with pytest.raises(tables.TableError, match="has changed while it was read"):
        charging.recognise(table, rows=2_999)


@pytest.mark.parametrize("by_schema", [True, False])
def test_rows_that_were_put_in_place_of_those_that_were_charged_are_not_learned_from(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch, by_schema: bool
) -> None:
    def charge_and_replace(*given: Any, **options: Any) -> Any:
        receipt = charging.charge(*given, **options)
        lines = Path("patients.csv").read_text().splitlines(keepends=True)
        Path("new.csv").write_text("".join([lines[0], *reversed(lines[1:])]))
        Path("new.csv").replace("patients.csv")
        return receipt

    monkeypatch.setattr(fit_command, "charge", charge_and_replace)
    without = ("fit", "patients.csv", "--target", "ill", "--classes", "no,yes", *FIT[4:])
    check_refused(run(*(FIT if by_schema else without)), "patients.csv has changed while it was read")
    assert home.predictor_names() == []
    assert not list(home.root().glob("*.schema.toml"))


# ── data sets ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_add_list_show_raise(run: Reticent, folder: Path) -> None:
    assert run("data", "list").out.startswith("there are no data sets yet")
    assert run("data", "list", "--json").out == "[]\n"
    added = run("data", "add", "wards", "patients.csv", "--cap-epsilon", "3", "--cap-delta", "1e-5")
    assert added.out == "added wards                     epsilon=0 of 3, delta=0 of 1e-05 spent\n"
    assert "Charged to the data set 'wards': epsilon=1 of 3" in run(*FIT, "--group", "patient").out
    text = run("data", "show", "wards").out
    assert "left: epsilon=2, delta=9e-06, for each group of the column 'patient'\n" in text
    assert "epsilon=0.02 to check labels, before the fit of clinic, for each group of the column 'patient'\n" in text
    assert "epsilon=0.98, delta=1e-06 for the fit of clinic, for each group of the column 'patient'\n" in text
    assert "verified: 4 records of all data sets are chained without a gap, head " in text
    assert run("data", "raise", "wards", "--cap-epsilon", "4").out.startswith("raised: wards")
    found = shown(run, "wards")
    assert (found["spent"], found["limit"], found["delta_limit"], found["unit"]) == ("1", "4", "1/100000", "patient")
    assert found["verified"]["records"] == 5
    assert [one["name"] for one in json.loads(run("data", "list", "--json").out)] == ["wards"]


def test_charges_of_a_data_set_with_renyi_accounting_are_in_words_too(run: Reticent, folder: Path) -> None:
    Path("ages.csv").write_text("age,ill\n" + "".join(f"{18 + i % 80},{i % 2}\n" for i in range(2000)))
    cap = ("--cap-epsilon", "10", "--cap-delta", "1e-5", "--accounting", "renyi")
    assert run("data", "add", "ages", "ages.csv", *cap).code == 0
    find = ("schema", "ages.csv", "--private", "--target", "ill", "--classes", "0,1")
    assert run(*find, "--epsilon", "1", "--delta", "1e-6").code == 0
    text = run("data", "show", "ages").out
    assert re.search(r"noise that alone is worth epsilon=0\.\d+ at delta=1e-05 for a private schema, for each", text)
    assert "DiscreteGaussian" not in text


def test_a_table_that_grew_is_charged_by_name(run: Reticent, folder: Path) -> None:
    assert run("data", "add", "wards", "--cap-epsilon", "2", "--cap-delta", "1e-5").code == 0
    assert run(*FIT, "--data", "wards").code == 0
    table = folder / "patients.csv"
    table.write_text(table.read_text() + "40,a,p9,no\n")
    assert run(*SECOND, "--data", "wards").code == 0
    check_refused(run(*FIT[:-1], "third"), "of the data set 'wards'")


def test_a_table_that_grew_is_new_but_has_columns_that_are_known(run: Reticent, folder: Path) -> None:
    """The names of columns are public, so a hint at them tells nothing of the rows."""
    assert run(*FIT).code == 0
    assert "same columns" not in run("data", "show", "clinic").out
    table = folder / "patients.csv"
    table.write_text(table.read_text() + "40,a,p9,no\n")
    assert "Charged to a new data set 'second'" in run(*SECOND).out
    assert "other rows with the same columns: clinic. If the same people" in run("data", "show", "second").out


def test_parts_are_charged_each_for_itself(run: Reticent, folder: Path) -> None:
    header, *lines = Path("patients.csv").read_text().splitlines()
    assert run("data", "add", "year", "--cap-epsilon", "1", "--cap-delta", "1e-6").code == 0
    for month, rows in (("jan", lines[:1500]), ("feb", lines[1500:])):
        Path(f"{month}.csv").write_text("\n".join([header, *rows]) + "\n")
        assert run("data", "add", month, f"{month}.csv", "--part-of", "year").code == 0
        made = run("fit", f"{month}.csv", *FIT[2:-1], month)
        assert f"Charged to the data set '{month}', a part of 'year': epsilon=1 of 1" in made.out
    check_refused(run("fit", "jan.csv", *SECOND[2:]), "of the data set 'jan'")
    check_refused(run(*SECOND, "--data", "year"), "of the data set 'year'")  # all of the rows
    text = run("data", "show", "year").out
    assert text.startswith("year                      epsilon=1 of 1, delta=1e-06 of 1e-06 spent\n")
    assert "parts, of which each row is in one: jan, feb\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "a b", "--cap-epsilon", "1"], "name must be letters, digits"),
        (["add", "wards"], "--cap-epsilon must be given, or --part-of"),
        (["add", "wards", "--cap-epsilon", "-1"], "--cap-epsilon must be a finite number > 0, got -1"),
        (["add", "wards", "--cap-epsilon", "nan"], "must be a number such as 10, 0.1 or 1e-6, got 'nan'"),
        (["add", "wards", "--cap-epsilon", "1", "--cap-delta", "1"], "--cap-delta must be in [0, 1), got 1"),
        (["add", "wards", "nowhere.csv", "--cap-epsilon", "1"], "there is no file nowhere.csv"),
        (["add", "wards", "empty.csv", "--cap-epsilon", "1"], "empty.csv has no rows"),
        (["add", "wards", "--part-of", "nowhere"], "there is no data set 'nowhere'"),
        (["show", "wards"], "there is no data set 'wards'"),
        (["raise", "wards", "--cap-epsilon", "1"], "there is no data set 'wards'"),
        (["raise", "wards"], "nothing to change"),
    ],
)
def test_bad_input(run: Reticent, folder: Path, arguments: list[str], message: str) -> None:
    (folder / "empty.csv").write_text("age,ill\n")
    check_refused(run("data", *arguments), message)


def test_a_cap_below_what_is_spent_is_refused(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    check_refused(run("data", "raise", "clinic", "--cap-epsilon", "0.5"), "what is spent cannot be taken back")


def test_a_registry_that_was_changed_stops_fit(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    (folder / "home" / "_data" / "salt").write_bytes(bytes(32))
    check_refused(run(*SECOND), "known rows cannot be recognised")
    assert home.predictor_names() == ["clinic"]


def test_the_list_of_predictors_does_not_have_the_data(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    assert run("status").out.split() == ["clinic", "stopped"]


def test_a_private_schema_is_charged_before_it_is_found(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ages.csv").write_text("age,ill\n" + "".join(f"{18 + i % 80},{i % 2}\n" for i in range(2000)))
    public = ("--target", "ill", "--classes", "0,1")
    find = ("schema", "ages.csv", "--private", *public, "--epsilon", "1", "--delta", "1e-6")
    assert run(*find).code == 0
    assert [(each["purpose"], each["predictor"]) for each in shown(run, "ages")["charges"]] == [("schema", None)]
    monkeypatch.setattr(SchemaSearch, "release", lambda *_: pytest.fail("a row was counted"))
    check_refused(run(*find), "epsilon=0, delta=0 is left")
    with pytest.raises(BaseException, match="a row was counted"):
        run(*find, "--again")
    assert len(shown(run, "ages")["charges"]) == 2  # a failure later on refunds nothing
    check_refused(run("schema", "ages.csv", "--again"), "--again must come with --private")
