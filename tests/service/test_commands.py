"""From a table to a running service, by the commands that a data holder types."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from reticent import cli
from reticent.service import commands, home, tables
from reticent.service.http.access import Keyring
from reticent.service.keys import KeyTable, make_key
from reticent.service.processes import Child
from reticent.service.schema import Schema
from reticent.service.store import protocol, schema, verification
from waiting import LIMIT, reserved_port, wait_until

SCHEMA = """\
target = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
range = [0, 100]

[[columns]]
name = "ward"
categories = ["a", "b"]
"""
SECRET = "Xantippe"  # a value of the table that no message may repeat


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Reticent = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Reticent:
    def run(*arguments: object) -> Outcome:
        code = cli.main([str(one) for one in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a table of 3,000 patients, some of whose cells are outside of the schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RETICENT_KEY", raising=False)
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, size=3_000)
    lines = [f"{one},{'ab'[one % 2]},p{place // 2},{'yes' if one > 50 else 'no'}" for place, one in enumerate(age)]
    lines[:4] = ["999,c,p0,yes", ",,p0,", f"{SECRET},{SECRET},{SECRET},{SECRET}", "nan,,p1"]
    (tmp_path / "patients.csv").write_text("age,ward,patient,ill\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.csv").write_text("ward,age\na,10\nb,90\n,\nz,inf\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


FIT = ("fit", "patients.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--name", "clinic")


# ── schema ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schema_is_drafted_from_the_header_alone(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run("schema", "patients.csv", "--target", "ill", "--group", "patient")
    assert (printed.code, printed.err) == (0, "")
    assert SECRET not in printed.out
    assert "yes" not in printed.out.replace('["no", "yes"]', "")
    with open("patients.csv", "rb") as file:
        header = file.readline()
    Path("header.csv").write_bytes(header)
    assert run("schema", "header.csv", "--target", "ill", "--group", "patient").out == printed.out
    for reading in ("count", "chunks"):
        monkeypatch.setattr(tables.Csv, reading, None)
    assert run("schema", "patients.csv", "--target", "ill", "--out", "draft.toml").code == 0
    again = run("schema", "patients.csv", "--out", "draft.toml")
    assert again.code == 2
    assert "draft.toml exists" in again.err


def test_types_come_from_the_schema_of_a_file_that_has_one(run: Reticent, folder: Path) -> None:
    pq.write_table(pyarrow.csv.read_csv("new.csv"), "new.parquet")
    drafted = run("schema", "new.parquet").out
    assert 'name = "ward"\ncategories = []\n\n' in drafted
    assert drafted.endswith('name = "age"\nrange = []\n')


# ── fit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_schema_the_command_that_drafts_one_is_named(run: Reticent, folder: Path) -> None:
    command = ("fit", "patients.csv", "--target", "ill", "--epsilon", "1", "--delta", "1e-6", "--name", "clinic")
    outcome = run(*command)
    assert (outcome.code, outcome.out) == (2, "")
    named = re.search(r"reticent (schema .* --out) schema.toml", outcome.err)
    assert named is not None
    assert run(*shlex.split(named[1]), "draft.toml").code == 0
    unfilled = run(*command, "--schema", "draft.toml")
    assert unfilled.code == 2
    assert "still to be filled in: classes, range or categories of age" in unfilled.err


def test_the_plan_is_printed_before_a_row_is_read(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> Iterator[Any]:
        raise commands.UsageError("the rows were read")

    monkeypatch.setattr(tables.Csv, "chunks", touched)
    outcome = run(*FIT)
    assert outcome.code == 2
    assert "3,000 rows of 3 columns" in outcome.out
    assert "\n2 classes: 'no', 'yes'; any other label counts as 'no'\n" in outcome.out
    assert "It can be sustained." in outcome.out
    assert "the rows were read" in outcome.err
    assert not (folder / "home").exists()


def test_fit_takes_every_row_whatever_it_holds(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT)
    assert (outcome.code, outcome.err) == (0, "")
    assert SECRET not in outcome.out
    assert "epsilon = 1" in outcome.out
    made = home.read_model(home.folder_of("clinic"))
    assert Schema.from_toml(made) == Schema.from_toml(SCHEMA)
    assert "rows = 3000" in made
    assert 'delta = "1/1000000"' in made
    again = run(*FIT)
    assert again.code == 2
    assert "there is a predictor 'clinic' already" in again.err


def test_what_fit_would_do_does_not_depend_on_what_rows_hold(run: Reticent, folder: Path) -> None:
    """All that `fit` prints, and the public file, are the same for tables whose rows share nothing but their number.

    Only what the released model is like may differ, as that is a function of the release.
    """
    first = run(*FIT)
    public = home.read_model(home.folder_of("clinic"))
    (folder / "patients.csv").write_text("age,ward,patient,ill\n" + "".join(f"{SECRET},é\n" for _ in range(3_000)))
    second = run(*FIT[:-1], "klinik")
    out, _, told = second.out.partition("ONE ANSWER: ")
    assert out.replace("klinik", "clinic") == first.out
    assert told.startswith("the model of this phase gives 'no' to everybody")
    assert first.err == second.err == ""
    assert home.read_model(home.folder_of("klinik")) == public


def test_another_way_that_is_better_needs_a_yes(run: Reticent, folder: Path) -> None:
    votes = (*FIT, "--learner", "linear", "--answers", "100")
    outcome = run(*votes)
    assert outcome.code == 2
    assert "add --yes to go on all the same" in outcome.err
    assert "--learner private" in outcome.err
    assert not (folder / "home").exists()
    agreed = run(*votes, "--yes")
    assert agreed.code == 0
    assert "Another way would be better" in agreed.out


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2)])
def test_at_a_terminal_it_is_asked(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert run(*FIT, "--learner", "linear", "--answers", "100").code == code


def test_votes_with_groups_say_how_many_clients_they_need(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT[:4], "--epsilon", "30", *FIT[6:], "--group", "patient", "--learner", "linear")
    assert outcome.code == 2
    assert re.search(r"the next phase needs [\d,]+ clients or more", outcome.err)


def test_groups_are_protected_together(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--group", "patient")
    assert outcome.code == 0
    assert "Every group of rows" in outcome.out
    assert Schema.from_toml(home.read_model(home.folder_of("clinic"))).group == "patient"


@pytest.mark.parametrize("cell", ["", "  "])
def test_a_row_without_a_group_is_refused(run: Reticent, folder: Path, cell: str) -> None:
    table = folder / "patients.csv"
    table.write_text(table.read_text().replace(",p7,", f",{cell},"))
    outcome = run(*FIT, "--group", "patient")
    assert outcome.code == 2
    assert "patients.csv: the column 'patient' must name the group of every row" in outcome.err
    assert not (folder / "home" / "clinic").exists()
    assert run(*FIT).code == 0  # without groups nobody needs to know


def test_a_group_is_the_same_with_and_without_blanks_around_its_name(folder: Path) -> None:
    table = folder / "patients.csv"
    table.write_text(table.read_text().replace(",p7,", ", p7 ,", 1))
    rules = replace(Schema.from_toml(SCHEMA), group="patient")
    groups = commands._read(tables.open_table(table), rules, 3_000, quiet=True).groups
    assert groups is not None
    assert groups[14] == groups[15]
    assert len(set(groups.tolist())) == 1_501  # one of them the secret


def test_too_few_rows_say_what_would_do(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--learner", "linear")
    assert outcome.code == 2
    assert re.search(r"3,000 rows are too few for this; what would do: [\d,]+ rows, or --epsilon \d", outcome.err)
    assert "It cannot be sustained." in outcome.out


@pytest.mark.parametrize("learner", ["trees", "private"])
def test_other_learners(run: Reticent, folder: Path, learner: str) -> None:
    assert run(*FIT[:4], "--epsilon", "4", *FIT[6:], "--learner", learner, "--answers", "3", "--yes").code == 0
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 2  # 4 rows, 3 answers
    assert not Path("answers.csv").exists()


def test_drift_makes_short_phases_of_votes(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT[:4], "--epsilon", "30", *FIT[6:], "--drift", "slow")
    assert outcome.code == 0
    assert "→ endless votes" in outcome.out
    assert "phase 2           3,000 rows          3,600 queries" in outcome.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "0"), "epsilon must be"),
        (("--epsilon", "many"), "must be a number such as"),
        (("--delta", "2"), "delta must be"),
        (("--name", "../x"), "name must be letters"),
        (("--answers", "0"), "must be a whole number, or endless"),
        (("--target", "age"), "--target 'age' is not the target of schema.toml, which is 'ill'"),
        (("--group", "nobody"), "has no column 'nobody'"),
        (("--learner", "thresholds"), "one column, which is a number"),
        (("--client-share", "2"), "client_share must be in"),
        (("--schema", "nothing.toml"), "nothing.toml cannot be read"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_by_name(run: Reticent, folder: Path, options: tuple[str, str], message: str) -> None:
    arguments = dict(zip(FIT[2::2], FIT[3::2], strict=True)) | {options[0]: options[1]}
    outcome = run(*FIT[:2], *(word for pair in arguments.items() for word in pair))
    assert outcome.code == 2
    assert message in outcome.err
    assert not (folder / "home").exists()


def test_a_table_without_rows(run: Reticent, folder: Path) -> None:
    (folder / "patients.csv").write_text("age,ward,patient,ill\n")
    assert "has no rows" in run(*FIT).err


def test_a_table_that_grows_while_it_is_read(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (2_999, 3_001):
        monkeypatch.setattr(tables.Csv, "count", lambda *_, count=count: count)
        assert "has changed while it was read" in run(*FIT).err


SEPARATED = {
    "semicolons.csv": lambda text: text.replace(",", ";").encode(),
    "tabs.tsv": lambda text: text.replace(",", "\t").encode(),
    "bom.csv": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
    "utf16.csv": lambda text: text.encode("utf-16"),
    "gaps.csv": lambda text: text.replace("\n", "\n\n").encode(),
    "quotes.csv": lambda text: text.replace(",ill", ',"no\nte",ill').replace(",yes", ',"a,\nb",yes').encode(),
}


@pytest.mark.parametrize("name", SEPARATED)
def test_tables_as_other_programs_write_them(run: Reticent, folder: Path, name: str) -> None:
    text = (folder / "patients.csv").read_text()
    if name == "quotes.csv":
        text = text.replace(",no", ",,no")
    (folder / name).write_bytes(SEPARATED[name](text))
    outcome = run(FIT[0], name, *FIT[2:])
    assert (outcome.code, outcome.err) == (0, "")
    assert "3,000 rows of 3 columns" in outcome.out


def test_a_decimal_comma_is_read_between_semicolons_only(folder: Path) -> None:
    (folder / "a.csv").write_text("age;ward\n1,5;1,5\n1.5;x\n1.000,5;x\n")
    (folder / "b.csv").write_text('age,ward\n"1,5",x\n')
    (one,) = tables.open_table("a.csv").chunks(["age", "ward"], numbers={"age"})
    assert one == {"age": ["1.5", "1.5", "1.000,5"], "ward": ["1,5", "x", "x"]}
    (two,) = tables.open_table("b.csv").chunks(["age", "ward"], numbers={"age"})
    assert two["age"] == ["1,5"]


def test_a_first_line_that_is_a_row_is_not_repeated(run: Reticent, folder: Path) -> None:
    (folder / "patients.csv").write_text(f"{SECRET},a,p1,yes\n" * 100)
    outcome = run(*FIT)
    assert outcome.code == 2
    assert SECRET not in outcome.out + outcome.err
    assert "its first line must name the columns" in outcome.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "one client may give all rows of a phase"),
        (("--client-share", "0.01"), "with fewer than 100 clients each phase is smaller than planned"),
        (("--group", "patient"), "A client enters 1 phase at most (--client-phases): its later queries are answered"),
        (("--group", "patient", "--client-phases", "3"), "A client enters 3 phases at most"),
    ],
)
def test_the_plan_says_who_teaches(run: Reticent, folder: Path, options: tuple[str, ...], words: str) -> None:
    outcome = run(*FIT, *options)
    assert outcome.code == 0
    assert words in outcome.out


def test_a_place_that_cannot_be_written_is_found_before_rows_are_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(folder / "new.csv" / "home"))
    outcome = run(*FIT)
    assert (outcome.code, outcome.out) == (2, "")
    assert "set RETICENT_HOME" in outcome.err


# ── ask, status, keys: without a server ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fitted(run: Reticent, folder: Path) -> Path:
    assert run(*FIT).code == 0
    return folder


def test_asking_without_a_server_counts_as_much(run: Reticent, fitted: Path) -> None:
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert outcome == (0, "4 answers in answers.csv\n", "")
    assert Path("answers.csv").read_text().splitlines()[:3] == ["ill", "no", "yes"]
    shown = json.loads(run("status", "clinic", "--json", "--verify").out)
    assert (shown["answered"], shown["ledger_length"], shown["served"]) == (4, 1, None)
    assert shown["verified"]["counted"] == {"1": 4}
    told = run("status", "clinic", "--verify")
    assert told.code == 0
    assert "answered: 4 in all" in told.out
    assert "verified: 1 rows are chained without a gap" in told.out
    assert "Who is protected." in told.out
    again = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert again.code == 2
    assert "answers.csv exists" in again.err


def test_asking_goes_on_where_it_was_interrupted(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "AT_ONCE", 2)
    real = commands._here
    calls = []

    def broken(*arguments: Any) -> list[Any]:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is full")
        return real(*arguments)

    monkeypatch.setattr(commands, "_here", broken)
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert outcome.code == 2
    assert "2 of 4 rows are answered in answers.csv; the rest can be asked with --resume" in outcome.err
    assert len(Path("answers.csv").read_text().splitlines()) == 3
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume").code == 0
    assert len(Path("answers.csv").read_text().splitlines()) == 5
    assert json.loads(run("status", "clinic", "--json").out)["answered"] == 4
    assert not Path("answers.csv.asking").exists()
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume")
    assert "was finished" in outcome.err


def test_a_broken_ledger_does_not_verify(run: Reticent, fitted: Path) -> None:
    import sqlite3

    run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    with sqlite3.connect(home.folder_of("clinic") / home.STORE) as db:
        db.execute("DROP TRIGGER ledger_no_update")
        db.execute("UPDATE ledger SET answers = 3, cost = 3")
    db.close()
    outcome = run("status", "clinic", "--verify")
    assert outcome.code == 2
    assert "damaged" in outcome.err
    with pytest.raises(protocol.Damaged):
        verification.verify(home.folder_of("clinic") / home.STORE)


def test_what_cannot_be_opened_is_said_in_one_line(
    run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    def refused(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(schema, "connect", refused)
    outcome = run("serve", "clinic")
    assert (outcome.code, outcome.out) == (75, "")
    assert outcome.err == "reticent: the store or the keys cannot be used: unable to open database file\n"


def test_an_upgrade_is_told(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setitem(schema.UPGRADES, schema.VERSION - 1, lambda db: None)
    outcome = run("status", "clinic", "--verify")
    assert outcome.code == 0
    assert f"the store was upgraded from version {schema.VERSION - 1} to {schema.VERSION}" in outcome.err
    assert run("status", "clinic").err == ""


def test_names(run: Reticent, folder: Path) -> None:
    assert "there are no predictors yet" in run("status").out
    asking = ("ask", "x", "--table", "new.csv", "--out", "o")
    for command in (("serve", "x"), ("status", "x"), asking, ("keys", "list", "x")):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert "there is no predictor 'x'; there are none yet" in outcome.err


def test_keys(run: Reticent, fitted: Path) -> None:
    assert "there are no keys" in run("keys", "list", "clinic").out
    options = ("--scope", "ask", "--scope", "observe", "--rate", "10", "--quota", "99")
    made = run("keys", "add", "clinic", "ward 3", *options)
    assert made.code == 0
    token = made.out.strip()
    assert re.fullmatch(r"[0-9a-f]{12}\.[\w-]{43}", token)
    assert "write it down now" in made.err
    (shown,) = json.loads(run("keys", "list", "clinic", "--json").out)
    assert shown == {
        "id": token[:12], "name": "ward 3", "scopes": ["ask", "observe"], "rate": 10.0, "burst": 10, "quota": 99,
        "revoked": False,
    }  # fmt: skip
    assert "10/s, 10 at once, 99 in all" in run("keys", "list", "clinic").out
    changed = run("keys", "set", "clinic", "ward 3", "--rate", "20", "--quota", "none")
    assert changed == (0, f"the key of ward 3 ({token[:12]}) has now: 20/s, 20 at once\n", "")
    assert "50 at once" in run("keys", "set", "clinic", token[:12], "--burst", "50").out
    assert "no limits" in run("keys", "set", "clinic", "ward 3", "--rate", "none").out
    assert "give --rate, --burst or --quota" in run("keys", "set", "clinic", "ward 3").err
    assert "must be a whole number, or none" in run("keys", "set", "clinic", "ward 3", "--quota", "many").err
    assert "quota must be at least 0, got -1" in run("keys", "set", "clinic", "ward 3", "--quota=-1").err
    assert "there is no key" in run("keys", "set", "clinic", "x", "--quota", "1").err
    for name in (" ", "."):
        assert "name must be 1 to 64 letters" in run("keys", "add", "clinic", name).err
    secret = token.partition(".")[2].encode()
    assert not any(secret in one.read_bytes() for one in home.folder_of("clinic").iterdir())
    assert run("keys", "add", "clinic", "ward 3").code == 2
    rotated = run("keys", "rotate", "clinic", "ward 3")
    assert (rotated.code, rotated.out[:13]) == (0, token[:13])
    assert rotated.out.strip() != token
    assert "the old one is void" in rotated.err
    assert run("keys", "revoke", "clinic", "ward 3").code == 0
    assert "revoked" in run("keys", "list", "clinic").out
    assert "there is no key" in run("keys", "revoke", "clinic", "x").err


# ── serve ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def served(*options: str) -> Iterator[str]:
    with reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        with Child("reticent.cli", "serve", "clinic", "--port", str(port), *options, stdout=subprocess.PIPE) as child:
            process = child.process
            assert process.stdout is not None
            assert url in process.stdout.readline().decode()
            wait_until(lambda: process.poll() is not None or code_of(f"{url}/v2/health/ready") == 200)
            assert process.poll() is None
            yield url
            assert child.end(LIMIT) == 0
            assert not (home.folder_of("clinic") / commands.ADDRESS).exists()


def code_of(url: str, token: str | None = None) -> int:
    """The status that a server answers with; 0 where there is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=LIMIT).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.slow
def test_a_server_is_found_asked_and_observed(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as url:
        assert run("ask", "clinic", "--table", "new.csv", "--out", "one.csv").code == 0
        shown = json.loads(run("status", "clinic", "--json", "--verify").out)
        assert (shown["answered"], shown["served"], shown["verified"]["length"]) == (4, url, 1)
        second = run("serve", "clinic", "--port", "0")
        assert second.code == 2
        assert "one server at a time" in second.err
        token = run("keys", "add", "clinic", "ward").out.strip()
        wait_until(lambda: code_of(f"{url}/status") == 401)  # it has seen that there is a key
        refused = run("ask", "clinic", "--table", "new.csv", "--out", "two.csv")
        assert refused.code == 2
        assert "give one by $RETICENT_KEY or --key-file" in refused.err
        assert not Path("two.csv").exists()
        assert "give one by $RETICENT_KEY" in run("status", "clinic").err
        Path("key").write_text(token + "\n")
        assert run("ask", "clinic", "--table", "new.csv", "--out", "two.csv", "--key-file", "key").code == 0
        monkeypatch.setenv("RETICENT_KEY", token)
        assert f"served at {url}" in run("status", "clinic").out
        slow = run("keys", "add", "clinic", "slow", "--rate", "2").out.strip()  # it takes 2 rows at once, not 4
        Path("slow").write_text(slow)
        wait_until(lambda: code_of(f"{url}/status", slow) == 200)
        assert run("ask", "clinic", "--table", "new.csv", "--out", "slow.csv", "--key-file", "slow").code == 0
        assert len(Path("slow.csv").read_text().splitlines()) == 5
        monkeypatch.setenv("RETICENT_HOME", str(fitted / "elsewhere"))  # as on another machine
        assert run("ask", "clinic", "--table", "new.csv", "--out", "three.csv", "--url", url).code == 0
        assert len(Path("three.csv").read_text().splitlines()) == 5
    monkeypatch.setenv("RETICENT_HOME", str(fitted / "home"))
    assert json.loads(run("status", "clinic", "--json").out)["answered"] == 16


def help_of(command: str) -> str:
    done = subprocess.run([sys.executable, "-m", "reticent.cli", command, "--help"], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text.replace(b"range", b"rang[e"), r"no TOML: .*line 7"),
        (lambda text: text.replace(b'name = "age"', b'name = "\xe4ge"'), "line 5 is not UTF-8"),
        (lambda text: text.replace(b"[0, 100]", b"[0, 99]"), "was changed: put it back"),
    ],
    ids=["no TOML", "not UTF-8", "another"],
)
def test_a_damaged_model_is_named_with_the_line(
    run: Reticent, fitted: Path, damage: Callable[[bytes], bytes], place: str
) -> None:
    path = home.folder_of("clinic") / home.MODEL
    path.write_bytes(damage(path.read_bytes()))
    asking = ("ask", "clinic", "--table", "new.csv", "--out", "o.csv")
    for command, code in ((("serve", "clinic"), 65), (("status", "clinic"), 2), (asking, 2)):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (code, "")
        assert re.search(rf"{re.escape(str(path))}.*{place}", outcome.err)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text.replace(b"range", b"rang[e"), "this is no TOML: .*line 7"),
        (lambda text: text.replace(b'name = "age"', b'name = "\xe4ge"'), "line 5 is not UTF-8"),
        (lambda text: text.replace(b"[0, 100]", b"[0]"), "column 'age': range must be two numbers"),
    ],
    ids=["no TOML", "not UTF-8", "no schema"],
)
def test_it_is_named_also_where_a_server_is_asked(
    run: Reticent, fitted: Path, damage: Callable[[bytes], bytes], place: str
) -> None:
    path = home.folder_of("clinic") / home.MODEL
    path.write_bytes(damage(path.read_bytes()))
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "o.csv", "--url", "http://127.0.0.1:9")
    assert outcome.code == 2
    assert re.search(rf"{re.escape(str(path))}.*{place}", outcome.err)


def test_another_model_at_an_address_is_not_asked(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stand_in import Column, Rules, make_service, running

    service = make_service(Rules((Column("age"), Column("weight"))))
    (folder / "rows.csv").write_text("weight,age\n1,0.9\n2,0.1\n")
    with running(service) as port:
        url = f"http://127.0.0.1:{port}"
        refused = run("ask", "klinik", "--table", "rows.csv", "--out", "a.csv", "--url", url)
        assert refused.code == 2
        assert f"{url} serves no model named 'klinik'" in refused.err
        assert service.answering.status().answered == 0
        # The one that is there tells the names of its columns, also if all of them are numbers.
        assert run("ask", "clinic", "--table", "rows.csv", "--out", "a.csv", "--url", url).code == 0
        assert (folder / "a.csv").read_text().split() == ["answer", "1", "0"]
        (folder / "rows.csv").write_text("age\n1\n")
        assert (
            "rows.csv has no column 'weight'"
            in run("ask", "clinic", "--table", "rows.csv", "--out", "b.csv", "--url", url).err
        )


def test_a_part_that_the_quota_does_not_cover_is_refused_whole(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stand_in import make_service, running

    table = KeyTable(folder / "keys.sqlite")
    token, key = make_key("ward", ["ask", "observe"], quota=5)
    table.add(key)
    (folder / "rows.csv").write_text("weight,age\n" + "1,0.9\n" * 6)
    monkeypatch.setenv("RETICENT_KEY", token)
    service = make_service(keyring=Keyring(table))
    with running(service) as port:
        ask = ("ask", "clinic", "--table", "rows.csv", "--out", "a.csv", "--url", f"http://127.0.0.1:{port}")
        assert run(*ask).code == 2
        assert service.answering.status().answered == 0
        assert not (folder / "a.csv").exists()
        monkeypatch.setattr(commands, "AT_ONCE", 4)
        refused = run(*ask)
        assert refused.code == 2
        assert "4 of 6 rows are answered" in refused.err
        assert service.answering.status().answered == 4
    table.close()


def test_where_it_may_listen(run: Reticent, fitted: Path) -> None:
    assert "make a key first" in run("serve", "clinic", "--host", "0.0.0.0").err
    assert "--tls-cert must be a file, got x.pem" in run("serve", "clinic", "--tls-cert", "x.pem").err
    assert "--tls-cert must be given with --tls-key" in run("serve", "clinic", "--tls-key", "x.pem").err
    assert "--behind-proxy lets others ask" in run("serve", "clinic", "--behind-proxy").err
    assert "--port must be at most 65535, got 70000" in run("serve", "clinic", "--port", "70000").err
    assert run("keys", "add", "clinic", "ward").code == 0
    refused = run("serve", "clinic", "--host", "0.0.0.0").err
    assert "--host 0.0.0.0 would have keys and rows travel in the clear" in refused
    named = set(re.findall(r"--[a-z-]+", refused))
    assert named == {"--host", "--tls-cert", "--tls-key", "--behind-proxy"}
    assert all(f"{one.upper()}:" not in refused and one in help_of("serve") for one in named)
    assert not re.search(r"\b(certificate|private_key|behind_proxy)\b", refused)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = run("serve", "clinic", "--port", taken.getsockname()[1])  # steady: it is taken
    assert outcome.code == 2
    assert "choose another --port" in outcome.err
    assert run("status", "clinic").code == 0  # the folder was let go


def test_a_host_that_is_not_here_is_named(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "add", "clinic", "ward").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", unknown)
        for name in ("nonsense.invalid", "192.0.2.1000"):
            outcome = run("serve", "clinic", "--behind-proxy", "--host", name)
            assert outcome.code == 2
            assert f"--host must be a name or an address of this machine, got {name!r}" in outcome.err
    assert "--host must be a name" in run("serve", "clinic", "--behind-proxy", "--host", "a" * 64).err  # no name of DNS
    with pytest.raises(commands.UsageError, match=r"192\.0\.2\.1.*choose another --host") as refused:
        commands._check_free("192.0.2.1", 0)  # of no machine: RFC 5737
    assert refused.value.code == 2


def unknown(*_: Any, **__: Any) -> None:
    """A name service that does not know the name."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
