"""`reticent fit` counts labels that are not among the classes, privately, and stops before it spends the rest."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import FIT, SECRET, Reticent, check_refused

from reticent.cli import fit as fit_command
from reticent.cli import label_check
from reticent.data.label_check import LabelCheck
from reticent.mechanisms.release import Release
from reticent.privacy import Spent
from reticent.privacy.events import PureDP
from reticent.service import home
from reticent.service.datasets.registry import Receipt

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
MISSPELLED = ("fit", "patients.csv", "--target", "ill", "--classes", "no,Yes", *FIT[4:])


def charges(run: Reticent) -> list[tuple[str, str]]:
    found = json.loads(run("data", "show", "clinic", "--json").out)["charges"]
    return [(one["purpose"], one["event"]["epsilon"]) for one in found]


@pytest.mark.parametrize("by_schema", [True, False])
def test_a_misspelled_class_stops_fit_before_anything_is_learned(run: Reticent, folder: Path, by_schema: bool) -> None:
    if by_schema:
        schema = folder / "schema.toml"
        schema.write_text(schema.read_text().replace('"yes"', '"Yes"'))
    outcome = run(*(FIT if by_schema else MISSPELLED))
    check_refused(outcome, "of 3,000 rows have a label that is not among the classes (no, Yes), so nothing was learned")
    about = re.search(r"about ([\d,]+) of 3,000 rows", outcome.err)
    assert about is not None
    assert abs(int(about[1].replace(",", "")) - 1_470) < 400
    assert "Only this count was paid for: epsilon=0.98, delta=1e-06 is left of the data set 'clinic'." in outcome.err
    assert SECRET not in outcome.err
    assert charges(run) == [("labels", "1/50")]
    assert home.predictor_names() == []
    assert not list(home.root().glob("*.schema.toml"))


def test_the_ways_to_go_on_that_the_message_names(run: Reticent, folder: Path) -> None:
    outcome = run(*MISSPELLED)
    (rest,) = re.findall(r"Then fit again with --epsilon (\S+), or with --again", outcome.err)
    right = [rest if before == "--epsilon" else one for before, one in zip(("", *FIT), FIT, strict=False)]
    assert run(*right).code == 0
    assert "epsilon=1 of 1, delta=1e-06 of 1e-06 spent" in run("data", "list").out, "all of the cap, and no more"
    again = run(*FIT[:-1], "second", "--again")
    assert again.code == 0
    assert "whose cap was raised for it: epsilon=2 of 2" in again.out
    other = run(*(*MISSPELLED[:-1], "third"), "--again", "--label-share", "0")
    assert other.code == 0, "every other label is meant to count as the first class"
    assert "to check labels" not in other.out


def test_if_the_fit_does_not_fit_the_cap_nothing_is_counted(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = ("--cap-epsilon", "0.5", "--cap-delta", "1e-6")
    assert run("data", "add", "clinic", "patients.csv", *cap).code == 0
    monkeypatch.setattr(label_check, "check_labels", lambda *_, **__: pytest.fail("labels were counted"))
    check_refused(run(*FIT), "this fit costs epsilon=1, delta=1e-06, but of the data set 'clinic'")
    assert charges(run) == []


def test_few_other_labels_are_told_and_count_as_the_first_class(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = LabelCheck(epsilon=Fraction(1, 50), rows=100_000)
    assert check.visible < 700 < check.most
    released = Release(700, PureDP(Fraction(1, 50)))
    monkeypatch.setattr(LabelCheck, "release", lambda *_, **__: released)
    monkeypatch.setattr(LabelCheck, "most", 1_000)
    outcome = run(*FIT)
    assert outcome.code == 0
    assert "\nAbout 700 of 3,000 rows have a label that is not among the classes: they count as 'no'.\n" in outcome.out


def test_with_groups_one_row_of_each_is_counted(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def release(self: LabelCheck, schema: Any, labels: Any) -> Release[int]:
        counted.append(sum(len(some) for some in labels))
        assert self.rows == counted[0]
        return Release(0, PureDP(self.epsilon))

    monkeypatch.setattr(LabelCheck, "release", release)
    assert run(*FIT, "--group", "patient").code == 0
    assert counted == [1_501]


def test_with_few_rows_labels_are_not_counted(run: Reticent, folder: Path) -> None:
    """The noise would hide half of them. The number of rows is public."""
    lines = (folder / "patients.csv").read_text().splitlines(keepends=True)
    (folder / "patients.csv").write_text("".join(lines[:601]))
    outcome = run(*FIT, "--yes")
    assert outcome.code == 0
    assert "to check labels" not in outcome.out
    assert charges(run) == [("fit", "1")]


@pytest.mark.parametrize("share", ["1", "-0.1", "1.5"])
def test_the_share_must_leave_something(run: Reticent, folder: Path, share: str) -> None:
    check_refused(run(*FIT, "--label-share", share), "--label-share must be at least 0 and below 1")
    assert not (folder / "home").exists()


# ── the charge comes before the count, and stays ──────────────────────────────────────────────────────────────────


def survives(run: Reticent, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a charge is found after `fit` was ended, as by a kill, when it began to count labels."""

    def end(*_: object, **__: object) -> None:
        raise SystemExit(9)

    monkeypatch.setattr(LabelCheck, "release", end)
    with pytest.raises(SystemExit):
        run(*FIT)
    listed = run("data", "list").out.splitlines()
    return any(line.startswith("clinic ") and "epsilon=0.02 of 1, delta=0 of 1e-06" in line for line in listed)


def test_the_charge_is_on_the_disk_before_a_label_is_counted(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert survives(run, monkeypatch)


def test_the_twin_that_counts_without_a_charge_is_found(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uncharged(*_: object, **__: object) -> Receipt:
        return Receipt("clinic", "clinic", True, False, Spent("epsilon", 0, 1, 0, 0))

    monkeypatch.setattr(fit_command, "charge", uncharged)
    assert not survives(run, monkeypatch)
