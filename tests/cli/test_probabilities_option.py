"""`--probabilities` of `reticent serve` and `reticent ask`: of one private model, and refused for all others."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from command_line import FIT, Reticent, check_refused, served

from reticent.cli import ask
from reticent.published import PublishedModel

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
ASK = ("ask", "clinic", "--table", "new.csv", "--out")


def written(path: str) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def check_answers(run: Reticent, path: str) -> None:
    """A file has one column per class, with the probabilities of the exported model."""
    header, *rows = written(path)
    assert header == ["ill", "P(no)", "P(yes)"]
    found = np.array([[float(one) for one in row[1:]] for row in rows])
    assert run("export", "clinic", "--to", f"{path}.json").code == 0
    model = PublishedModel.read(f"{path}.json")
    _, *cells = written("new.csv")
    table = {"ward": [row[0] for row in cells], "age": [row[1] for row in cells]}
    assert [row[0] for row in rows] == model.predict(table).tolist()
    np.testing.assert_allclose(found, model.predict_proba(table), rtol=0, atol=1e-12)


def test_ask_writes_one_column_per_class(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    assert run(*ASK, "answers.csv", "--probabilities").code == 0
    check_answers(run, "answers.csv")
    assert run(*ASK, "plain.csv").code == 0
    assert written("plain.csv") == [row[:1] for row in written("answers.csv")]
    assert "answered: 8 in all" in run("status", "clinic").out


def test_an_interrupted_file_is_continued_with_the_same_numbers(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*FIT).code == 0
    assert run(*ASK, "whole.csv", "--probabilities").code == 0
    monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 2)
    real, calls = ask.ask_predictor, []

    def broken(*arguments: Any) -> Any:
        calls.append(real(*arguments))
        if len(calls) == 2:  # answered and counted, and the reply is lost
            raise OSError("the reply is lost")
        return calls[-1]

    monkeypatch.setattr(ask, "ask_predictor", broken)
    assert run(*ASK, "answers.csv", "--probabilities").code == 2
    check_refused(run(*ASK, "answers.csv", "--resume"), "no longer holds the answers that were written to it")
    assert run(*ASK, "answers.csv", "--probabilities", "--resume").code == 0
    found, whole = written("answers.csv"), written("whole.csv")
    assert [row[:1] for row in found] == [row[:1] for row in whole]
    np.testing.assert_allclose(np.array(found[1:])[:, 1:].astype(float), np.array(whole[1:])[:, 1:].astype(float))
    assert calls[1] == calls[2], "a repeat gives the same label and the same probabilities"
    assert "answered: 8 in all" in run("status", "clinic").out


@pytest.mark.parametrize("learner", ["private", "linear"])
def test_others_are_refused_with_the_reason(run: Reticent, folder: Path, learner: str) -> None:
    assert run(*FIT[:4], "--epsilon", "8", *FIT[6:], "--learner", learner, "--answers", "9", "--yes").code == 0
    check_refused(run(*ASK, "answers.csv", "--probabilities"), "must not carry more than the label")
    check_refused(run("serve", "clinic", "--probabilities"), "--probabilities: probabilities need engine='model'")
    assert not Path("answers.csv").exists()
    assert "answered: 0 in all" in run("status", "clinic").out


@pytest.mark.slow
def test_a_server_that_offers_them_and_one_that_does_not(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    with served("--probabilities"):
        assert run(*ASK, "answers.csv", "--probabilities").code == 0
        assert run(*ASK, "plain.csv").code == 0
    check_answers(run, "answers.csv")
    assert written("plain.csv") == [row[:1] for row in written("answers.csv")]
    with served():
        check_refused(run(*ASK, "more.csv", "--probabilities"), "the server has none. Serve one private model with")
        assert not Path("more.csv").exists()
