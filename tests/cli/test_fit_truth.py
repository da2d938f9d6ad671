"""`reticent fit --truth`: labels that arrive later are planned for before anything is spent."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from command_line import FIT, Reticent, check_refused

from reticent.cli.errors import UsageError
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import home, tables

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
ROWS = (*FIT, "--truth", "rows")


def opened(name: str = "clinic") -> EverlastingPredictor:
    with home.Home(home.folder_of(name), records=True) as found:
        return EverlastingPredictor.load(found.state, again=True)


def test_the_plan_says_what_a_phase_needs_before_a_row_is_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> Iterator[Any]:
        raise UsageError("the rows were read")

    monkeypatch.setattr(tables.Csv, "chunks", touched)
    outcome = run(*ROWS, "--phase-rows", "700", "--labels-per-day", "100", "--alarm-recall", "0.5")
    assert "the rows were read" in outcome.err
    assert "a phase learns from 700 labelled rows; 70 of them judge the phase before" in outcome.out
    assert "a new phase begins every 7 days" in outcome.out
    assert "LATER LABELS: hand new labelled rows over with reticent teach" in outcome.out
    assert "ALARM: if the share of rows of each class that get it falls below 0.5" in outcome.out
    assert run("data", "list").out == ""  # nothing was charged


def test_what_was_planned_is_what_was_made(run: Reticent, folder: Path) -> None:
    options = ("--truth", "both", "--wait", "50", "--feedback-share", "1/4", "--silence", "answer")
    outcome = run(*FIT, *options, "--gauge-share", "0.2", "--alarm-accuracy", "0.7")
    assert outcome.code == 0
    assert "Protects: each row of the table, each row that is taught later, and each query" in outcome.out
    made = tomllib.loads((home.folder_of("clinic") / home.MODEL).read_text())["model"]
    predictor = opened()
    assert made["learner"] == "private"
    assert f"a phase learns from {made['phase_rows']:,} queries, each with a slot" in outcome.out
    assert predictor.phase_rows_ == made["phase_rows"]
    known = predictor.get_params()
    for name, value in {
        "truth": "both", "wait": 50, "feedback_share": "1/4", "silence": "answer", "gauge_share": "1/5",
    }.items():  # fmt: skip
        assert (made[name], str(known[name])) == (value, str(value))
    assert (made["alarm_accuracy"], float(known["alarm"].accuracy)) == ("7/10", 0.7)


def test_without_truth_nothing_of_it_is_noted(run: Reticent, folder: Path) -> None:
    assert run(*FIT, "--learner", "private").code == 0
    made = tomllib.loads((home.folder_of("clinic") / home.MODEL).read_text())["model"]
    assert not {"truth", "gauge_share", "phase_rows"} & made.keys()


def test_people_of_the_table_are_not_learned_from_again_under_the_names_of_the_table(
    run: Reticent, folder: Path
) -> None:
    """Groups are barred by their names in the table, not by the numbers that they are counted with."""
    assert run(*ROWS, "--group", "patient", "--phase-rows", "600").code == 0
    predictor = opened()
    rows = np.zeros((3, predictor.n_features_in_))
    taken = predictor.add_labelled(rows, ["no"] * 3, groups=["p7", "0", "new"])
    assert taken.rows == 2  # "p7" was in the table, and no group is called 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--truth", "rows", "--learner", "private-model"), "--truth needs phases that learn"),
        (("--truth", "rows", "--compare"), "--compare makes one private model"),
        (("--phase-rows", "100"), "--phase-rows is for labels that arrive later: add --truth"),
        (("--labels-per-day", "100"), "--labels-per-day is for labels that arrive later: add --truth"),
        (("--truth", "rows", "--wait", "3"), "--wait is for feedback"),
        (("--truth", "rows", "--silence", "answer"), "--silence is for feedback"),
        (("--truth", "rows", "--feedback-share", "0.5"), "--feedback-share is for feedback"),
        (("--truth", "feedback", "--feedback-share", "0"), "--feedback-share must be above 0 and at most 1, got 0"),
        (("--truth", "rows", "--gauge-share", "0.6"), "--gauge-share must be from 0 to 1/2, got 0.6"),
        (("--truth", "rows", "--phase-rows", "0"), "at least 1"),
        (("--truth", "rows", "--labels-per-day", "0"), "--labels-per-day must be positive, got 0"),
        (("--alarm-accuracy", "1"), "--alarm-accuracy must be above 0 and below 1, got 1"),
        (("--alarm-accuracy", "0.8", "--alarm-recall", "0.5"), "leave one of them out"),
        (("--alarm-accuracy", "0.8", "--learner", "private-model"), "an alarm watches phases"),
        (("--truth", "labels"), "--truth"),
    ],
)
def test_options_that_do_not_fit(run: Reticent, folder: Path, options: tuple[str, ...], why: str) -> None:
    outcome = run(*FIT, *options)
    check_refused(outcome, why)
    assert outcome.out == ""


def test_an_alarm_alone_takes_a_learner_with_phases(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--alarm-accuracy", "0.8")
    assert outcome.code == 0
    assert "rows of the table kept aside" in outcome.out
    assert opened().get_params()["alarm"] is not None


def test_small_phases_are_warned_of(run: Reticent, folder: Path) -> None:
    outcome = run(*ROWS, "--phase-rows", "20")
    assert outcome.code == 0
    assert "WARNING: phases of 20 are small (--phase-rows)" in outcome.out


def test_drift_does_not_count_against_later_labels(run: Reticent, folder: Path) -> None:
    """They follow it, so that the first phase is as good as without drift."""
    lines = []
    for place, drift in enumerate(("none", "fast")):
        outcome = run(*ROWS[:-3], f"clinic-{place}", *ROWS[-2:], "--drift", drift, "--again")
        assert outcome.code == 0
        lines.append([line for line in outcome.out.splitlines() if line.startswith("Expect of the first phase: ")])
    assert lines[0] == lines[1] != []


def test_a_phase_without_a_figure_has_no_sentence_about_it(run: Reticent, folder: Path) -> None:
    outcome = run(*ROWS, "--learner", "trees")
    assert "rows are too few for this" in outcome.err
    assert "Expect of the first phase" not in outcome.out
