"""What `fit` and `status` say of the model that is meant, of phases that shrink, and of one answer for everybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from shop import MODEL, new_answering, predictor

import reticent as rt
from reticent import cli
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service.answering import AnsweringService
from reticent.service.home import Home, folder_of
from reticent.service.keys import ANONYMOUS
from reticent.service.requests import Request
from reticent.service.status import PastPhase, Status

SCHEMA = """\
target = "y"
classes = ["no", "yes"]

[[columns]]
name = "a"
range = [-1, 1]

[[columns]]
name = "b"
range = [-1, 1]
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command line, in a folder with a table that no line parts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    X = np.random.default_rng(0).uniform(-1, 1, (4_000, 2)).round(3)
    lines = [f"{a},{b},{'yes' if (a > 0) != (b > 0) else 'no'}\n" for a, b in X.tolist()]
    Path("table.csv").write_text("a,b,y\n" + "".join(lines))
    Path("schema.toml").write_text(SCHEMA)

    def run(*arguments: str) -> Outcome:
        return Outcome(cli.main([*arguments]), *capsys.readouterr())

    return run


FIT = ("fit", "table.csv", "--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-6", "--name", "xor")


# ── which model is meant ──────────────────────────────────────────────────────────────────────────────────────────


def test_fit_names_the_model_that_losses_are_against(run: Callable[..., Outcome]) -> None:
    found = run(*FIT)
    assert found.code == 0
    assert "expected to lose, of all answers, to a linear model of these columns, without privacy (→ marks" in found.out
    assert "No figure here says how good that linear model is." in found.out
    assert "(if they are clearly better: --learner trees), or add --compare" in found.out
    assert "to a model that is not private" not in found.out


def test_trees_that_are_refused_are_not_sent_back_to_a_linear_model(run: Callable[..., Outcome]) -> None:
    found = run(*FIT, "--learner", "trees")
    assert found.code == 2
    assert "expected to lose, of all answers, to trees, without privacy (→ marks the" in found.out
    offered, _, rest = found.err.partition(". A private model needs far fewer rows, but ")
    assert "use at least " in offered
    assert "--learner private" not in offered
    assert rest.startswith("--learner private-model is linear: it helps only if a linear model is nearly as good as")


def test_a_better_way_than_trees_is_named_as_what_it_is(run: Callable[..., Outcome]) -> None:
    found = run(*FIT, "--learner", "trees", "--answers", "10")
    assert found.code == 2
    assert "of all answers to trees, without privacy, and finite votes" in found.out
    assert "from Python: PrivateLogisticRegression(" in found.out
    assert "fourier_features=400" in found.out
    assert "(--learner private" not in found.out + found.err
    assert found.err.endswith("add --yes to continue, or take one-shot from Python\n")


def test_linear_votes_are_still_sent_to_a_private_linear_model(run: Callable[..., Outcome]) -> None:
    found = run(*FIT, "--learner", "linear", "--answers", "200")
    assert found.code == 2
    assert "Better take one-shot (--learner private-model)" in found.out
    assert found.err.endswith("add --yes to continue, or choose --learner private-model\n")


# ── phases that shrink ────────────────────────────────────────────────────────────────────────────────────────────


def closing(folder: Path) -> AnsweringService:
    """An answering service whose phases close early where votes are split."""
    with pytest.warns(rt.EndingWarning, match="answers may not be endless"):
        return new_answering(folder, rows=3000, labeller="two-coin", epsilon=3, delta=1e-4, most_noise=50.0)


def ask(answering: AnsweringService, low: float, high: float, *, until: Callable[[Status], bool]) -> None:
    for _ in range(10_000):
        if until(answering.status()):
            return
        rows = np.random.default_rng(answering.status().answered).uniform(low, high, (20, 1))
        answering.answer([Request(ANONYMOUS, rows, None, b"")])
        answering.maintain()
    raise AssertionError("it never came")


def test_the_trend_is_shown_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    answering = closing(folder_of("clinic"))
    assert answering.status().past == ()
    ask(answering, 0.49, 0.51, until=lambda now: now.phase == 2)
    now = answering.status()
    assert now.past == (PastPhase(*answering.home.store.phases(2)[0]),) == (PastPhase(1, 3000, now.past[0].answers),)
    assert now.rows == now.past[0].answers < 3000  # at an even split it is expected to give 1,685 answers
    assert 0 <= now.answered - now.past[0].answers == now.answers_in_phase - now.answers_left_in_phase
    answering.close()
    again = AnsweringService(Home(folder_of("clinic")), elsewhere=False)
    assert again.status().past == now.past
    again.close()


def test_status_says_that_phases_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    answering = closing(folder_of("clinic"))
    ask(answering, 0.49, 0.51, until=lambda now: now.phase == 2)
    given, rows = answering.status().past[0].answers, answering.status().rows
    answering.close()
    assert cli.main(["status", "clinic"]) == 0
    told = capsys.readouterr().out
    assert f"answers in earlier phases: {given:,} in phase 1 (from 3,000 rows)" in told
    assert "PHASES SHRINK: this phase learned from fewer rows" in told
    assert cli.main(["status", "clinic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["past"], found["rows"]) == ([{"number": 1, "rows": 3000, "answers": given}], rows)


def test_phases_that_grow_are_not_said_to_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    answering = new_answering(folder_of("clinic"))
    ask(answering, 0, 1, until=lambda now: now.phase == 2)
    assert answering.status().past == (PastPhase(1, 400, 800),)
    answering.close()
    assert cli.main(["status", "clinic"]) == 0
    told = capsys.readouterr().out
    assert "answers in earlier phases: 800 in phase 1 (from 400 rows)" in told
    assert "SHRINK" not in told


# ── one answer ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rare", [True, False])
def test_status_tells_of_a_model_that_gives_one_answer(
    rare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    X = np.random.default_rng(0).uniform(-1, 1, (2_000, 1))
    y = np.full(2_000, "no") if rare else np.where(X[:, 0] < 0, "no", "yes")
    learner = PrivateLogisticRegression(epsilon=2, delta=1e-6, row_norm=1)
    model: Any = EverlastingPredictor(learner, epsilon=2, delta=1e-6, classes=("no", "yes"), client_share=1)
    if rare:
        with pytest.warns(rt.OneAnswerWarning):
            model.fit(X, y)
    else:
        model.fit(X, y)
    Home.create(folder_of("clinic"), model, MODEL).close()
    assert cli.main(["status", "clinic"]) == 0
    assert ("ONE ANSWER: the model of this phase answers 'no' to nearly every query" in capsys.readouterr().out) == rare


def test_status_says_nothing_of_all_answers_of_votes(tmp_path: Path) -> None:
    """See `EverlastingPredictor.one_answer_`: whoever gave all questions but one would learn the answer to that one."""
    shown = []
    for challenge in (0.1, 0.9):
        answering = AnsweringService(Home.create(tmp_path / str(challenge), predictor(), MODEL), elsewhere=False)
        rows = np.append(np.full(700, 0.1), challenge)[:, None]
        (answered,) = answering.answer([Request(ANONYMOUS, rows, None, b"")])
        assert not isinstance(answered, Exception)
        assert (len(set(answered.labels)) == 1) == (challenge == 0.1)
        now = answering.status()
        shown.append((now.past, now.one_answer, now.rows, now.rows_gathered, now.answered, now.drift))
        answering.close()
    assert shown[0] == shown[1]
