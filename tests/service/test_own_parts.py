"""A predictor whose labeller, learner or engine is not of the package: it is named where the predictor is opened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from own_labellers import Laplace, Other
from shop import labels, predictor, request

from reticent import cli
from reticent.service.answering import AnsweringService
from reticent.service.home import Home

MODEL = """\
target = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
range = [0, 1]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    Home.create(tmp_path / "clinic", predictor(labeller=Laplace, rows=2000, epsilon=200), MODEL).close()
    return tmp_path / "clinic"


@pytest.mark.slow
def test_a_service_opens_it_with_the_class_and_learns_the_next_phase_with_it(folder: Path) -> None:
    answering = AnsweringService(Home(folder), labeller=Laplace)
    answering.answer([request(10)])
    answering.close()
    again = AnsweringService(Home(folder), labeller=Laplace)
    assert again.status().answered == 10
    labels(again.answer([request(again.status().answers_left_in_phase)]))
    again.maintain()
    assert (again.status().phase, again.halted) == (2, None)
    again.close()


def test_without_the_class_it_says_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="labeller must be given: clinic was fitted with one of your own, Laplace"):
        AnsweringService(Home(folder))
    for command in ("serve", "status"):
        assert cli.main([command, "clinic"]) == 2, "it is neither damaged nor an error in the program"
        assert "Add --labeller module:Laplace to the command" in capsys.readouterr().err
    Home(folder).close()  # it was released


def test_a_class_of_another_name_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="labeller must be Laplace, got Other: clinic was fitted with one of your own"):
        AnsweringService(Home(folder), labeller=Other)


@pytest.mark.parametrize("part", ["labeller", "engine"])
def test_a_class_that_is_not_needed_is_refused_as_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    Home.create(tmp_path / "plain", predictor(), MODEL).close()
    words = rf"plain was not fitted with an? {part} of your own: leave out --{part}"
    for command in ("serve", "status"):
        assert cli.main([command, "plain", f"--{part}", "own_labellers:Laplace"]) == 2, "the store is not damaged"
        assert re.search(words, capsys.readouterr().err)
    Home(tmp_path / "plain").close()  # it was released


def test_the_command_line_takes_the_class_by_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "clinic", "--labeller", "own_labellers:Laplace"]) == 0
    assert "answered: 0 in all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("Laplace", "--labeller must be module:object"),
        ("own_labellers:No", "the module 'own_labellers' has no 'No'"),
        ("no_such_module:Laplace", "there is no module 'no_such_module'; install it, or set $PYTHONPATH"),
    ],
)
def test_names_that_lead_nowhere(folder: Path, capsys: Any, written: str, message: str) -> None:
    assert cli.main(["status", "clinic", "--labeller", written]) == 2
    assert message in capsys.readouterr().err
