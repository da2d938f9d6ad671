"""`reticent fit`: the plan comes first, and options are refused by name."""

from __future__ import annotations

import json
import re
import shlex
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import patient
import pytest
from command_line import FIT, Reticent, served

from reticent.cli.errors import UsageError
from reticent.data.schema import Schema
from reticent.service import home, tables
from reticent.service.status import KEPT, PUBLIC

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)


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


def test_the_plan_is_printed_before_a_row_is_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> Iterator[Any]:
        raise UsageError("the rows were read")

    monkeypatch.setattr(tables.Csv, "chunks", touched)
    outcome = run(*FIT)
    assert outcome.code == 2
    assert "3,000 rows of 3 columns" in outcome.out
    assert "\n2 classes: 'no', 'yes'; any other label counts as 'no'\n" in outcome.out
    assert "It can be sustained." in outcome.out
    assert "the rows were read" in outcome.err
    assert home.predictor_names() == []
    assert run("data", "list").out == ""  # and nothing was charged


def test_a_better_option_needs_a_yes(run: Reticent, folder: Path) -> None:
    votes = (*FIT, "--learner", "linear", "--answers", "100")
    outcome = run(*votes)
    assert outcome.code == 2
    assert outcome.err == (
        "reticent: another option is better: add --yes to continue, or choose --learner private-model\n"
    )
    assert outcome.out.count("Another option is better: one-shot is expected to lose") == 1
    assert not (folder / "home").exists()
    agreed = run(*votes, "--yes")
    assert agreed.code == 0
    assert "Another option is better" in agreed.out


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
    assert re.search(r"the next phase needs [\d,]+ clients or more", outcome.out)
    assert "add --yes to continue, or choose --learner private\n" in outcome.err


def test_votes_with_groups_say_how_many_clients_a_share_needs(run: Reticent, folder: Path) -> None:
    votes = (*FIT[:4], "--epsilon", "30", *FIT[6:], "--group", "patient", "--learner", "linear")
    assert "with fewer than 20 clients each phase is smaller" in run(*votes, "--client-share", "0.05").out
    assert "--client-share" not in run(*votes).out


def test_the_plan_speaks_of_options_of_the_command(run: Reticent, folder: Path) -> None:
    """Not of what only `plan.everlasting` has: the kind "other", and a labeller of choice."""
    trees = run(*FIT[:4], "--epsilon", "4", *FIT[6:], "--learner", "trees", "--answers", "3").out
    assert "teachers: trees" in trees
    assert "other" not in trees.partition("\nphase 1")[0].partition("\n\n")[2]
    votes = run(*FIT, "--learner", "linear", "--answers", "100").out
    assert "two-coin" not in votes
    endless = run(*FIT, "--learner", "linear").out
    assert "finite votes   cannot be done: the number of answers must be known (--answers N)\n" in endless
    assert "(→ marks the chosen one):\n" in endless
    assert "see PrivateLogisticRegression.n_required" in run(*FIT).out
    assert "assume one row per person" not in endless


def test_too_few_rows_say_what_is_needed(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--learner", "linear")
    assert outcome.code == 2
    assert re.search(r"3,000 rows are too few for this; use at least [\d,]+ rows, or --epsilon \d", outcome.err)
    assert "It cannot be sustained." in outcome.out


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["trees", "private"])
def test_other_learners(run: Reticent, folder: Path, learner: str) -> None:
    assert run(*FIT[:4], "--epsilon", "4", *FIT[6:], "--learner", learner, "--answers", "3", "--yes").code == 0
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 2  # 4 rows, 3 answers
    assert not Path("answers.csv").exists()


def test_drift_makes_short_phases_of_votes(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT[:4], "--epsilon", "30", *FIT[6:], "--drift", "slow", "--learner", "linear", "--yes")
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
        (("--answers", "0"), "must be a whole number of at least 1, or endless, got '0'"),
        (("--client-phases", "0"), "--client-phases: must be a whole number of at least 1, got '0'"),
        (("--target", "age"), "--target 'age' is not the target of schema.toml, which is 'ill'"),
        (("--group", "nobody"), "has no column 'nobody'"),
        (("--learner", "thresholds"), "one column, which is a number"),
        (("--client-share", "2"), "--client-share must be above 0 and at most 1, got 2"),
        (("--schema", "nothing.toml"), "nothing.toml cannot be read"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_by_name(
    run: Reticent, folder: Path, options: tuple[str, str], message: str
) -> None:
    arguments = dict(zip(FIT[2::2], FIT[3::2], strict=True)) | {options[0]: options[1]}
    outcome = run(*FIT[:2], *(word for pair in arguments.items() for word in pair))
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""  # refused before the plan
    assert not (folder / "home").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--learner", "private"), "one client may give all rows of a phase"),
        (("--client-share", "0.01"), "with fewer than 100 clients each phase is smaller than planned"),
        (
            ("--group", "patient", "--learner", "private"),
            "A client enters at most 1 phase (--client-phases): its later queries are answered",
        ),
        (("--group", "patient", "--client-phases", "3"), "A client enters at most 3 phases"),
        (
            ("--group", "patient", "--learner", "private"),
            "So the 5,400 rows of phase 2 come from 5,400 clients. Callers without a key count",
        ),
        (
            ("--group", "patient", "--learner", "private", "--client-share", "0.05"),
            "come from 5,400 clients, whatever --client-share is. Callers without a key count as one client",
        ),
        (("--group", "patient"), "These figures assume one row per person."),
    ],
)
def test_the_plan_says_who_is_learned_from(run: Reticent, folder: Path, options: tuple[str, ...], words: str) -> None:
    outcome = run(*FIT, *options)
    assert outcome.code == 0
    assert words in outcome.out


def test_the_plan_states_the_total_of_all_phases_of_a_client(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--group", "patient", "--client-phases", "2")
    plan, _, made = outcome.out.partition("What each option")
    assert "In total ε = 1.98, δ = 2e-06: ε = 0.02 to check labels; ε = 0.98, δ = 1e-06 for the first phase" in plan
    assert "A client may enter 2 phases (--client-phases), and each costs the ε and δ above." in plan
    protected = "all rows of one 'patient' together, and all queries of one client together"
    assert f"\nProtects: {protected}, with ε = 1.98, δ = 2e-06\n" in made
    without_group = run(*FIT[:-1], "other", "--client-phases", "2", "--again", "--label-share", "0")
    assert without_group.code == 0
    assert "In total" not in without_group.out


def test_a_large_delta_is_one_line_of_the_plan(run: Reticent, folder: Path) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        outcome = run(*("1e-3" if word == "1e-6" else word for word in FIT), "--learner", "private")
    plan, _, after = outcome.out.partition("What each option")
    assert outcome.code == 0
    assert plan.count("WARNING: delta=0.001 is not below 1/3000") == 1
    assert "is not below" not in after + outcome.err
    assert not given


def test_a_place_that_cannot_be_written_is_found_before_rows_are_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(folder / "new.csv" / "home"))
    outcome = run(*FIT)
    assert (outcome.code, outcome.out) == (2, "")
    assert "set RETICENT_HOME" in outcome.err


def test_fit_ends_with_what_was_made_and_what_comes_next(run: Reticent, folder: Path) -> None:
    """In five lines, without the words of accountants; `status` has the whole guarantee."""
    outcome = run(*FIT, "--learner", "private")
    *_, end = outcome.out.split("\n\n")
    assert re.fullmatch(
        r"Made: a predictor \(chain\) of 3,000 rows and 2 columns, in \S+clinic\n"
        r"Protects: each row of the table, and each query, with ε = 1, δ = 1e-06\n"
        r"Spent: ε = 0\.02 to check labels; ε = 0\.98, δ = 1e-06 for the first phase\n"
        r"Expect: about \d\.\d% fewer right answers than a linear model of these columns, without privacy\n"
        r"Next: reticent serve clinic \(or reticent status clinic for the guarantee in words\)\n",
        end,
    )
    assert "Who is protected." in run("status", "clinic").out
    for jargon in ("in one account", "ApproximateDP", "PureDP"):
        assert jargon not in outcome.out + run("data", "show", "clinic").out


# ── one private model ─────────────────────────────────────────────────────────────────────────────────────────────

MODEL = (*FIT, "--learner", "private-model")


def test_the_plan_of_one_private_model_comes_before_the_rows(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> Iterator[Any]:
        raise UsageError("the rows were read")

    monkeypatch.setattr(tables.Csv, "chunks", touched)
    outcome = run(*MODEL, "--group", "patient")
    assert "the rows were read" in outcome.err
    assert "3,000 rows of 3 columns, one private model, ε = 0.98, δ = 1e-06 for rows\n" in outcome.out
    assert "In total ε = 1, δ = 1e-06: ε = 0.02 to check labels; ε = 0.98, δ = 1e-06 for the model" in outcome.out
    assert re.search(r"phase 1 +3,000 rows +no end of queries +one model\n", outcome.out)
    assert "phase 2" not in outcome.out
    assert "With a group, only its first row is learned from.\n" in outcome.out
    assert "PROTECTS: rows, all rows of one 'patient' together, and not queries: nothing is learned" in outcome.out
    assert "→ one-shot" in outcome.out


def test_advice_of_one_shot_names_the_learner_that_makes_it(run: Reticent, folder: Path) -> None:
    words = "never learns from queries: --learner private-model."
    chain = run(*FIT, "--learner", "private")
    assert (chain.code, words in chain.out, "→ chain" in chain.out) == (0, True, True)
    assert (
        "Better take one-shot (--learner private-model)"
        in run(*_named("b"), "--learner", "linear", "--answers", "100").out
    )
    assert "or --learner private-model\n" in run(*_named("b"), "--learner", "linear").err
    assert words not in run(*_named("b"), "--learner", "private-model").out, "it is taken already"
    assert words not in run(*_named("c"), "--drift", "slow").out, "it is taken already"


def test_a_fit_from_which_nothing_can_be_learned_needs_a_yes(run: Reticent, folder: Path) -> None:
    table = folder / "patients.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:4]))
    outcome = run(*FIT)
    assert (outcome.code, outcome.err) == (
        2,
        "reticent: no option is good: add --yes to continue, or bring more rows, learn from fewer columns, or choose a "
        "larger --epsilon\n",
    )
    assert "No option is good: one-shot is expected to lose 50% of all answers" in outcome.out
    assert run("data", "list", "--json").out == "[]\n", "nothing was charged"
    assert run(*FIT, "--yes").code == 0


def test_auto_takes_one_private_model_where_that_is_best_and_says_whom_it_protects(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT)
    assert (outcome.code, "→ one-shot" in outcome.out) == (0, True)
    assert "AUTO TAKES ONE PRIVATE MODEL" in outcome.out
    assert "PROTECTS: rows, and not queries:" in outcome.out
    found = json.loads(run("status", "clinic", "--json").out)
    assert (found["guarantee"]["protects"], found["phase_never_ends"]) == ("rows", True)
    assert 'learner = "private-model"' in (home.folder_of("clinic") / home.MODEL).read_text()
    assert "AUTO TAKES" not in run(*_named("b"), "--learner", "private-model").out


@pytest.mark.parametrize(
    "options", [("--client-share", "0.5"), ("--client-phases", "2", "--group", "patient")]
)
def test_auto_learns_from_queries_where_that_is_wanted(
    run: Reticent, folder: Path, options: tuple[str, ...]
) -> None:
    outcome = run(*FIT, *options)
    assert (outcome.code, "→ one-shot" in outcome.out) == (0, False)
    assert json.loads(run("status", "clinic", "--json").out)["guarantee"]["protects"] == "rows and queries"


def test_auto_does_not_learn_its_own_answers_where_inputs_drift(run: Reticent, folder: Path) -> None:
    """Without labels, only classes that stay well apart can be followed, and nobody said that they do."""
    outcome = run(*FIT, "--drift", "slow")
    assert (outcome.code, "→ one-shot" in outcome.out) == (0, True)
    assert json.loads(run("status", "clinic", "--json").out)["guarantee"]["protects"] == "rows"


@pytest.mark.parametrize("option", [("--client-share", "0.5"), ("--client-phases", "2")])
def test_limits_on_what_is_learned_from_clients_need_a_learner_that_does(
    run: Reticent, folder: Path, option: tuple[str, str]
) -> None:
    command_line.check_refused(run(*MODEL, *option), "--learner private-model learns nothing from them")


def test_one_private_model_answers_without_end(run: Reticent, folder: Path) -> None:
    fitted = run(*MODEL)
    assert fitted.code == 0
    assert "\nProtects: each row of the table, and not queries, with ε = 1, δ = 1e-06\n" in fitted.out
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").out == "4 answers in answers.csv\n"
    assert Path("answers.csv").read_text().splitlines()[:3] == ["ill", "no", "yes"]
    shown = run("status", "clinic", "--verify").out
    assert "\nanswered: 4 in all; no end\nnext phase: none, since queries are not learned from\n" in shown
    assert f"{PUBLIC}\n\n{KEPT}" in shown
    assert "\nmodel: public; reticent export clinic --to FILE writes the one that answers now" in shown
    assert "verified: 1 entry" in shown
    found = json.loads(run("status", "clinic", "--json").out)
    assert found["phase_never_ends"]
    assert (found["answers_in_phase"], found["answers_left_in_phase"]) == (2**53, 2**53)
    assert (found["answers_left"], found["rows_wanted"], found["guarantee"]["protects"]) == (None, 0, "rows")
    assert run("backup", "clinic", "clinic.backup", "--final").code == 0
    assert run("restore", "clinic.backup", "--name", "moved").code == 0
    assert run("ask", "moved", "--table", "new.csv", "--out", "again.csv").code == 0
    assert Path("again.csv").read_text() == Path("answers.csv").read_text()


def test_a_set_number_of_answers_of_one_private_model(run: Reticent, folder: Path) -> None:
    assert run(*MODEL, "--answers", "5").code == 0
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    assert "left in this phase: 1 of 5; left in all: 1\nnext phase: none" in run("status", "clinic").out
    assert run("ask", "clinic", "--table", "new.csv", "--out", "more.csv").code == 2


@pytest.mark.slow
def test_a_server_of_one_private_model(run: Reticent, folder: Path) -> None:
    assert run(*MODEL).code == 0
    Path("new.csv").write_text(NEW)
    with served() as url:
        assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
        assert "answered: 2 in all; no end\n" in run("status", "clinic").out
        assert patient.get(f"{url}/guarantee").text.strip().endswith(f"{PUBLIC}\n\n{KEPT}")
        found = patient.get(f"{url}/status").json()
        assert found["public_model"]
        assert (found["phase_never_ends"], found["answers_left_in_phase"], found["rows_gathered"]) == (True, 2**53, 0)
        assert "\nreticent_phase_never_ends 1.0\n" in patient.get(f"{url}/metrics").text
        assert _holding_a_query(home.folder_of("clinic")) == set()
    assert _holding_a_query(home.folder_of("clinic")) == set()


@pytest.mark.parametrize(("learner", "held"), [("private-model", set()), ("private", {"store.sqlite"})])
def test_one_private_model_stores_no_query_and_a_chain_does(
    run: Reticent, folder: Path, learner: str, held: set[str]
) -> None:
    """The chain is the twin that must fail."""
    assert run(*FIT, "--learner", learner).code == 0
    Path("new.csv").write_text(NEW)
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    assert _holding_a_query(home.folder_of("clinic")) == held


NEW = "ward,age\na,34.715297331\nb,81.226094457\n"


def _named(name: str) -> tuple[str, ...]:
    return (*FIT[:-1], name)


def _holding_a_query(folder: Path) -> set[str]:
    """The files that hold an age of NEW: as text, as a float, or as the schema encodes it."""
    schema = Schema.read("schema.toml")
    encoded = schema.encode({"age": [34.715297331, 81.226094457], "ward": ["a", "b"]})
    ages = [34.715297331, 81.226094457]
    wanted = [str(age).encode() for age in ages] + [struct.pack("<d", age) for age in ages]
    wanted += [cell.tobytes() for cell in encoded.ravel() if cell not in (0, 1, -1)]
    assert len(wanted) >= 6, "the encoded ages are looked for"
    return {
        path.name for path in folder.rglob("*") if path.is_file() and any(one in path.read_bytes() for one in wanted)
    }
