from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from experiments import answers, datasets
from reticent import cli
from reticent.labellers import make
from reticent.labellers.answers import bought
from reticent.labellers.ballots import Ballots
from reticent.noise import Seeded
from reticent.teachers import LogisticTeacher, Teachers

# ── data sets ─────────────────────────────────────────────────────────────────────────────────────────────────────


def written(folder: Path, rows: int) -> None:
    """Files as `load` expects them for a9a, with so many rows in the first."""
    import bz2

    lines = [f"{'+1' if row % 4 == 0 else '-1'} {row % 123 + 1}:1" for row in range(rows + 16_281)]
    (folder / "a9a.svm.bz2").write_bytes(bz2.compress("\n".join(lines[:rows]).encode()))
    (folder / "a9a.t.svm.bz2").write_bytes(bz2.compress("\n".join(lines[rows:]).encode()))


def test_a_data_set_is_read_from_the_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 32_561)
    X, y = datasets.load("a9a", tmp_path)
    assert X.shape == (48_842, 123)
    assert y.sum() == 48_842 // 4 + 1
    assert datasets.available("a9a", tmp_path)
    monkeypatch.setenv(datasets.FOLDER, str(tmp_path))
    assert (datasets.load("a9a")[1] == y).all()


def test_another_data_set_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 100)
    with pytest.raises(ValueError, match=r"must hold 48,842 rows of 123 columns, got 16,381 of 123"):
        datasets.load("a9a", tmp_path)


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(datasets.FOLDER, raising=False)
    assert not datasets.available("kdd99")
    assert not datasets.available("kdd99", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"name the folder that holds it, or set RETICENT_DATA.*synthetic"):
        datasets.load("kdd99")
    with pytest.raises(FileNotFoundError, match=r"there is no file kdd99.npz in"):
        datasets.load("kdd99", tmp_path)
    with pytest.raises(ValueError, match="name must be one of a9a, mushrooms"):
        datasets.load("a8a", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(datasets.DATA_SETS))
def test_synthetic_rows_have_the_shape_of_the_real_ones(name: str) -> None:
    X, y = datasets.synthetic(name, seed=1, rows=2000)
    found = datasets.DATA_SETS[name]
    assert X.shape == (2000, found.columns)
    assert y.mean() == pytest.approx(found.ones, abs=0.01)
    assert X.nnz / 2000 == pytest.approx(found.filled, rel=0.15)
    again = datasets.synthetic(name, seed=1, rows=2000)
    assert (again[0] != X).nnz == 0
    assert (again[1] == y).all()


# ── votes and answers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_thresholds_vote_as_decision_stumps_do() -> None:
    counts, truth = answers.threshold_votes(6000, 100, seed=3)
    generator = np.random.default_rng(3)
    points = generator.random((60, 100))
    questions = generator.random(answers.QUERIES)
    rows = points.T.reshape(-1, 1)  # row i goes to shard i mod 60
    stumps = Teachers(DecisionTreeClassifier(max_depth=1), shards=60, classes=(0, 1)).fit(rows, rows[:, 0] < 0.5)
    asked = stumps.votes(questions[:, None])
    assert np.abs(asked - counts).max() <= 1, "trees round their cuts to 32 bits"
    assert (asked != counts).any(axis=1).mean() < 1e-3
    assert (truth == (questions < 0.5)).all()


def test_two_coin_answers_thresholds_as_long_as_predicted() -> None:
    counts, truth = answers.threshold_votes(10**5, 100, seed=0)
    found = bought("two-coin", Ballots.of(counts, truth), epsilon=1, delta=1e-6)
    lengths, right = [], []
    for seed in range(5):
        noise = Seeded(unsafe_seed=seed)
        labeller = make(
            "two-coin", teachers=1000, epsilon=1, delta=1e-6, answers=None, unsafe_noise=noise, **found.options
        )
        asked = np.random.default_rng(seed).integers(0, len(truth), 3 * found.answers)
        labels = labeller.label(counts[asked])
        assert labeller.closed
        lengths.append(len(labels))
        right.append(float((labels == truth[asked[: len(labels)]]).mean()))
    assert np.mean(lengths) == pytest.approx(found.answers, rel=0.2)
    assert np.mean(right) >= Ballots.of(counts, truth).majority - 0.01


@pytest.mark.slow
def test_made_up_linear_rows_buy_answers() -> None:
    """What is measured on real data, on rows that are always at hand: two-coin and greedy well beyond the Gaussian."""
    X, y = datasets.synthetic("a9a", seed=0)
    ballots = Ballots.of(*answers.votes(X, y, LogisticTeacher(), 50, seed=0))
    gaussian, greedy, two_coin = (
        bought(name, ballots, epsilon=1, delta=1e-6).answers for name in ("gaussian", "greedy", "two-coin")
    )
    assert min(two_coin, greedy) > 1.3 * gaussian > 0


# ── what was measured on real data, and kept ──────────────────────────────────────────────────────────────────────


def kept(data: str, teacher: str, labeller: str) -> int:
    for each in answers._kept():
        if (each.problem.data, each.problem.teacher) == (data, teacher):
            return each.bought[labeller].answers
    raise LookupError(f"{data} with {teacher} was not measured")


def test_kept_results_have_the_parameters_of_the_module() -> None:
    stored = json.loads(answers.MEASURED.read_text(encoding="utf-8"))
    assert stored["parameters"] == answers._parameters()
    assert tuple(each.problem for each in answers._kept()) == answers.REAL
    assert all(set(each.bought) == set(answers.LABELLERS) for each in answers._kept())


def test_answers_on_real_data() -> None:
    assert kept("kdd99", answers.LOGISTIC, "two-coin") >= 10**6
    assert kept("kdd99", answers.LOGISTIC, "greedy") >= 8 * 10**5
    assert kept("kdd99", answers.LOGISTIC, "gaussian") == pytest.approx(4e5, rel=0.1)
    assert kept("a9a", answers.LOGISTIC, "two-coin") >= 2500
    assert kept("a9a", answers.LOGISTIC, "greedy") >= 2000
    assert kept("a9a", answers.LOGISTIC, "gaussian") == pytest.approx(1050, rel=0.1)


@pytest.mark.slow
def test_measuring_again_writes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On made-up rows, and on those of a9a where they are at hand."""
    small = answers.Problem("thresholds", answers.MIDDLE, 50, rows=10_000)
    real = answers.REAL[:1] if datasets.available("a9a") else ()
    folder = Path(os.environ.get(datasets.FOLDER, tmp_path))
    monkeypatch.setattr(answers, "REAL", (small, *real))
    stored = kept("a9a", answers.LOGISTIC, "greedy")
    texts = []
    for name in ("first.json", "second.json"):
        monkeypatch.setattr(answers, "MEASURED", tmp_path / name)
        answers.measure(folder)
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert kept("thresholds", answers.MIDDLE, "greedy") > 0
    assert not real or kept("a9a", answers.LOGISTIC, "greedy") == stored
    monkeypatch.setattr(answers, "SEEDS", (0,))
    with pytest.raises(ValueError, match="measured with other parameters"):
        answers._kept()


@pytest.mark.slow
def test_answers_on_thresholds() -> None:
    found = answers._measured(answers.MADE_UP[1])
    assert found.bought["two-coin"].answers >= 5 * 10**6
    assert found.bought["gaussian"].answers == pytest.approx(2.4e5, rel=0.05)
    assert found.bought["greedy"].answers >= 5.5e5


def test_a_folder_without_the_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment", "answers", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("reticent: --data: there is no file a9a.svm.bz2 or a9a.t.svm.bz2 in")
    assert error.count("\n") == 1
