"""Later labels and kills at every write: none is lost, none is learned from twice, and no slot opens again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import warm

pytestmark = pytest.mark.slow


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """What killing_labels.py found."""
    done = warm.run(str(Path(__file__).with_name("killing_labels.py")), str(folder / "clinic"), *arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("truth", "phases"), [("both", 1), ("rows", 2)])
def test_killed_at_every_write_phases_learn_from_the_same_labels(tmp_path: Path, truth: str, phases: int) -> None:
    found = run(tmp_path, truth, "whole")
    assert (found["faults"], found["phases"]) == ([], phases)
    assert found["kills"] > 100


@pytest.mark.parametrize(
    ("twin", "fault"), [("learns twice", "Superseded"), ("loses labels", "phase 2"), ("reopens", "phase 2")]
)
def test_a_store_that_loses_repeats_or_reopens_is_caught(tmp_path: Path, twin: str, fault: str) -> None:
    found = run(tmp_path, "both", twin)
    assert found["faults"]
    assert fault in found["faults"][0]
