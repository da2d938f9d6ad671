"""`reticent export`: the model of a predictor in files, while it is served or not, and why some are refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pandas as pd
import pytest
from command_line import FIT, Reticent, check_refused, served

from reticent import extras
from reticent.published import PublishedModel
from reticent.service import home

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
ASK = ("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")


def answers(run: Reticent) -> list[str]:
    assert run(*ASK).code == 0
    return Path("answers.csv").read_text().splitlines()[1:]


def new_rows() -> pd.DataFrame:
    return pd.read_csv("new.csv")


def onnx_labels(path: str) -> list[Any]:
    import onnxruntime

    rows = new_rows()
    feeds = {
        "age": rows[["age"]].to_numpy(np.float64),
        "ward": rows[["ward"]].fillna("").to_numpy(object),
    }
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(["labels"], feeds)[0].tolist())


@pytest.mark.slow
def test_every_format_answers_as_the_predictor_does(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    expected = answers(run)
    assert run("export", "clinic", "--to", "model.json").code == 0
    assert PublishedModel.read("model.json").predict(new_rows()).tolist() == expected
    assert run("export", "clinic", "--to", "onnx").out.startswith("The model is in clinic.onnx. Inputs are the columns")
    assert onnx_labels("clinic.onnx") == expected
    shown = run("export", "clinic", "--to", "sklearn", "--out", "mine.bin").out
    assert shown.startswith("The model is in mine.bin.")
    assert "Its guarantee is ε = 1, δ = 1e-06 for rows. You may publish it." in shown
    with open("mine.bin", "rb") as file:
        assert pickle.load(file).predict(new_rows()).tolist() == expected
    assert run("export", "clinic", "--to", "MODEL.JOBLIB").code == 0
    shown = run("status", "clinic").out
    assert "answered: 4 in all" in shown, "an export is no answer"


@pytest.mark.slow
def test_a_model_is_exported_while_it_is_served(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    with served():
        assert run("export", "clinic", "--to", "model.json").code == 0
        expected = answers(run)
    assert PublishedModel.read("model.json").predict(new_rows()).tolist() == expected


def test_of_a_chain_the_model_that_answers_now(run: Reticent, folder: Path) -> None:
    assert run(*FIT, "--learner", "private").code == 0
    assert run("export", "clinic", "--to", "model.json").code == 0
    assert json.loads(Path("model.json").read_text())["guarantee"]["protects"] == "rows and queries"
    assert PublishedModel.read("model.json").predict(new_rows()).tolist() == answers(run)


def test_votes_are_refused_with_the_reason(run: Reticent, folder: Path) -> None:
    assert run(*FIT[:4], "--epsilon", "8", *FIT[6:], "--learner", "linear", "--answers", "3", "--yes").code == 0
    check_refused(run("export", "clinic", "--to", "json"), "each teacher is as secret as the rows")
    assert not Path("clinic.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "model.txt"), "--to must be a file that ends in .json, .onnx, .pkl, .pickle, .joblib, or one of"),
        (("--to", "model.json", "--out", "x.json"), "--out needs a format for --to, one of json, onnx, sklearn"),
        (("--to", "nowhere/model.json"), "there is no folder nowhere"),
        (("--to", "json", "--out", "new.csv"), "new.csv exists: delete it, or name another file"),
        ((), "--to must be given"),
    ],
)
def test_bad_options_are_refused_by_name(
    run: Reticent, folder: Path, options: tuple[str, ...], message: str
) -> None:
    assert run(*FIT).code == 0
    check_refused(run("export", "clinic", *options), message)


def test_a_name_that_is_not_there(run: Reticent, folder: Path) -> None:
    check_refused(run("export", "clinic", "--to", "json"), "there is no predictor 'clinic'")


def test_a_retired_predictor_may_be_exported(run: Reticent, folder: Path) -> None:
    assert run(*FIT).code == 0
    assert run("backup", "clinic", "clinic.backup", "--final").code == 0
    assert run("export", "clinic", "--to", "json").code == 0
    assert home.folder_of("clinic").is_dir()


def test_without_the_extra_it_is_named(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*FIT).code == 0
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "onnx" else True)
    check_refused(run("export", "clinic", "--to", "onnx"), "to export ONNX, run: pip install 'reticent[onnx]'")
    assert not Path("clinic.onnx").exists()
