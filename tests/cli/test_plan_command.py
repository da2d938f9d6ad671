"""`reticent plan`: every function of reticent.plan, with its parameters written as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import signature
from typing import Any, get_args, get_type_hints

import pytest
from command_line import Outcome, check_refused

import reticent.plan
from reticent import cli
from reticent.cli.fit import fit
from reticent.cli.plan import parameter_help
from reticent.plan import Plan
from reticent.plan.thresholds import threshold
from reticent.privacy import Guarantee

NEED_OBJECTS = ["active", "label_boost", "sanitized"]  # which no text can say


Reticent = Callable[[str], Outcome]


@pytest.fixture
def reticent_command(capsys: pytest.CaptureFixture[str]) -> Reticent:
    def run(line: str) -> Outcome:
        code = cli.main(line.split())
        return Outcome(code, *capsys.readouterr())

    return run


def test_without_a_name_it_lists_what_can_be_planned(reticent_command: Reticent) -> None:
    for line in ("plan", "plan --help", "plan -h"):
        outcome = reticent_command(line)
        assert (outcome.code, outcome.err) == (0, "")
        for name in ("point", "threshold", "exponential"):
            assert any(row.startswith(name) for row in outcome.out.splitlines())
    assert "plan" in reticent_command("--help").out


def test_a_plan_for_an_error(reticent_command: Reticent) -> None:
    outcome = reticent_command("plan threshold --bits 64 --epsilon 1 --error 0.1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{threshold(bits=64, epsilon=1, error=0.1)}\n"
    assert "1,203 rows promise an error of at most 0.1" in outcome.out


def test_a_plan_for_rows(reticent_command: Reticent) -> None:
    outcome = reticent_command("plan point --bits 64 --epsilon 1 --delta 1e-6 --rows 370")
    assert outcome.code == 0
    assert "370 rows promise an error of at most 0.09978" in outcome.out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("threshold --bits 1000 --epsilon 1 --delta 1e-6 --error 1/10 --depth 2", {"rows": 4701, "error": 0.1}),
        ("threshold --bits=1000 --epsilon=1 --delta=1e-6 --error=0.1 --depth=auto", {"rows": 4701, "error": 0.1}),
        ("threshold --bits 64 --epsilon 1 --error 0.1 --agnostic", {"rows": 5839}),
        ("threshold --domain floats --epsilon 1 --error 0.1", {"rows": 1203}),
        ("threshold --domain datetimes:s --epsilon 1 --error 0.1", {"rows": 1203}),
        ("exponential thresholds:64 --epsilon 1 --error 0.1", {"rows": 9424, "estimator": "ExponentialLearner"}),
        ("exponential --concept-class THRESHOLDS:64 --epsilon 1 --error 0.1 --realizable", {"rows": 1180}),
        ("point --bits 64 --epsilon 1 --delta 1e-6 --rows 1", {"rows": 1, "error": None, "paper_rows": None}),
    ],
)
def test_json(reticent_command: Reticent, line: str, expected: dict[str, Any]) -> None:
    outcome = reticent_command(f"plan {line} --json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert set(found) == set(Plan.__dataclass_fields__)
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", ["advise", "everlasting"])
def test_the_help_says_that_features_are_columns(name: str, reticent_command: Reticent) -> None:
    assert "Number of columns (features)." in reticent_command(f"plan {name} --help").out


def test_the_help_of_a_plan_says_what_each_parameter_is(reticent_command: Reticent) -> None:
    outcome = reticent_command("plan threshold --help")
    assert outcome.code == 0
    words = " ".join(outcome.out.replace("│", " ").split())
    assert "Usage: reticent plan threshold --epsilon" in words
    assert "values are the integers in [0, 2^bits)." in words
    assert "--agnostic" in words
    assert "--no-agnostic" not in words
    assert "thresholds:64" in reticent_command("plan exponential --help").out


@pytest.mark.parametrize("name", sorted(name for name in reticent.plan.__all__ if name != "Plan"))
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_plan_has_help(reticent_command: Reticent, name: str, flag: str) -> None:
    """As `reticent plan` announces, whether or not it can be made on the command line."""
    assert name in reticent_command("plan").out
    outcome = reticent_command(f"plan {name} {flag}")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Usage: reticent plan {name}" in outcome.out
    assert ("--epsilon" in outcome.out) == (name not in NEED_OBJECTS)
    function = getattr(reticent.plan, name)
    assert set(parameter_help(function)) == set(signature(function).parameters), "each is described"


@pytest.mark.parametrize("name", NEED_OBJECTS)
def test_a_plan_that_needs_an_object_says_where_to_make_it(reticent_command: Reticent, name: str) -> None:
    outcome = reticent_command(f"plan {name} --epsilon 1 --error 0.1")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"call reticent.plan.{name} in Python; `reticent plan {name} --help` shows how" in outcome.err
    words = " ".join(reticent_command(f"plan {name} --help").out.split())
    assert f"In Python, call reticent.plan.{name}(" in words
    assert "failure: Probability with which the promise may fail" in words
    assert "--failure" not in words, "no option that does nothing"
    assert "--json" not in words


def test_drift_is_asked_for_in_the_words_of_fit(reticent_command: Reticent) -> None:
    line = "plan advise 1000 5 --epsilon 1 --delta 1e-6"
    outcome = reticent_command(f"{line} --drift none")
    assert outcome.code == 0
    assert outcome.out == reticent_command(line).out
    assert get_args(get_type_hints(reticent.plan.advise)["drift"]) == get_args(get_type_hints(fit)["drift"])


def test_advice_on_the_command_line_names_its_options(reticent_command: Reticent) -> None:
    out = reticent_command("plan advise 1000 5 --epsilon 1 --delta 1e-6").out
    assert "ask again with --black-box." in out
    assert "black_box=True" not in out


def test_a_plan_that_cannot_be_run_says_so(reticent_command: Reticent) -> None:
    line = "plan exponential rectangles:2:16 --epsilon 1 --error 0.1 --realizable"
    outcome = reticent_command(line)
    assert outcome.code == 0
    assert "1,146 rows would promise" in outcome.out
    assert "this cannot be run: net of ExponentialLearner must be given" in outcome.out
    found = json.loads(reticent_command(f"{line} --json").out)
    assert (found["rows"], found["feasible"]) == (1146, False)
    assert found["obstacle"].startswith("net of ExponentialLearner must be given")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan teapot", "there is no plan 'teapot'; there are: "),
        ("plan threshold --bits 64 --error 0.1", "--epsilon"),
        ("plan threshold --bits 64 --epsilon 1", "give either error"),
        ("plan threshold --bits 64 --epsilon 1 --error 0.1 --rows 10", "give either error"),
        ("plan threshold --bits 64 --epsilon 1 --error 0.1 --spout 3", "--spout"),
        ("plan threshold --bits many --epsilon 1 --error 0.1", "--bits"),
        ("plan threshold --bits 64 --epsilon one --error 0.1", "--epsilon: must be a number such as 10, 0.1 or 1e-6"),
        ("plan threshold --bits 64 --epsilon 1/0 --error 0.1", "--epsilon: must be a number"),
        ("plan threshold --bits 64 --epsilon nan --error 0.1", "--epsilon: must be a number"),
        ("plan threshold --bits 64 --epsilon -1 --error 0.1", "epsilon must be a finite number > 0, got -1"),
        ("plan threshold --bits 64 --epsilon 1 --rows 2.5", "--rows: must be a whole number"),
        ("plan threshold --bits 64 --epsilon 1 --rows 25 --failure 2", "failure must be in (0, 1), got 2"),
        ("plan threshold --bits 0 --epsilon 1 --rows 25", "bits must be at least 1, got 0"),
        ("plan threshold --epsilon 1 --rows 25", "give bits"),
        ("plan threshold --domain teapots --epsilon 1 --rows 25", "no 'teapots'; there are: datetimes, floats, int"),
        ("plan threshold --domain datetimes:fortnights --epsilon 1 --rows 25", "'datetimes:fortnights' cannot be made"),
        ("plan exponential --epsilon 1 --rows 25", "--concept-class"),
        ("plan exponential threshold:64 --epsilon 1 --rows 25", "there is no 'threshold'"),
        ("plan exponential thresholds --epsilon 1 --rows 25", "net must be given for an infinite concept class"),
        (
            "plan exponential rectangles --epsilon 1 --rows 25",
            "rectangles needs dimensions, then bits, as in rectangles:2:16, got 'rectangles'",
        ),
        ("plan exponential rectangles:2:x --epsilon 1 --rows 25", "bits must be a whole number"),
        ("plan exponential thresholds:1:2:3:4 --epsilon 1 --rows 25", "thresholds needs bits, as in thresholds:16"),
        ("plan exponential finite:3 --epsilon 1 --rows 25", "there is no 'finite'; there are: halfspaces, intervals, "),
        ("plan exponential products:3 --epsilon 1 --rows 25", "there is no 'products'; there are: halfspaces, "),
        ("plan exponential rectangles:two --epsilon 1 --rows 25", "dimensions must be a whole number"),
        ("plan exponential thresholds:64 --delta 1 --epsilon 1 --rows 25", "--delta"),
    ],
)
def test_errors_are_one_line(reticent_command: Reticent, line: str, message: str) -> None:
    outcome = reticent_command(line)
    check_refused(outcome, message)
    assert outcome.out == ""


# ── a function of any other shape ─────────────────────────────────────────────────────────────────────────────────


def teapot(*, cups: int = 2, sugar: bool = False, spoons: tuple[str, ...] = ()) -> Plan:
    """Plan a pot of tea.

    Parameters
    ----------
    cups : for how many,
        and no more.
    """
    why = f"{cups} cups{', sweet' if sugar else ''}, {len(spoons)} spoons"
    return Plan(estimator="Teapot", rows=1, error=None, failure=0.5, guarantee=Guarantee(epsilon=1), why=why)


def samovar(*, tray: tuple[str, ...]) -> Plan:
    """Plan something that no text can say."""
    raise NotImplementedError


def test_any_function_of_the_module_will_do(reticent_command: Reticent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reticent.plan, "teapot", teapot, raising=False)
    monkeypatch.setattr(reticent.plan, "samovar", samovar, raising=False)
    assert "teapot" in reticent_command("plan").out
    assert reticent_command("plan teapot --cups 3 --sugar").out.endswith("\n3 cups, sweet, 0 spoons\n")
    assert "for how many, and no more." in reticent_command("plan teapot --help").out
    assert "--spoons" in reticent_command("plan teapot --spoons 3").err, "what is no text cannot be given"
    assert "plan samovar needs a tray, which cannot be written as text" in reticent_command("plan samovar --tray 1").err


def test_a_name_may_be_written_with_hyphens(reticent_command: Reticent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reticent.plan, "tea_pot", teapot, raising=False)
    assert "2 cups" in reticent_command("plan tea-pot").out
    assert "there is no plan 'coffee-pot'" in reticent_command("plan coffee-pot").err
