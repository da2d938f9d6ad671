"""`reticent fit --compare`: a private comparison decides which model is made, within the same ε and δ."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import command_line
import numpy as np
import pytest
from command_line import Reticent

from reticent import EverlastingPredictor
from reticent.cli.compare import comparison, in_advance, in_words
from reticent.learners.comparison import Scores
from reticent.plan import expectations
from reticent.privacy import fits

run = pytest.fixture(command_line.run)
SCHEMA = """target = "y"
classes = ["no", "yes"]

[[columns]]
name = "a"
range = [-1, 1]

[[columns]]
name = "b"
range = [-1, 1]
"""
FIT = ("fit", "rows.csv", "--schema", "schema.toml", "--epsilon", "8", "--delta", "1e-6", "--name", "xor", "--compare")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 1,500 rows, half of which say yes; no line separates them from the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    X = np.random.default_rng(0).uniform(-1, 1, (1_500, 2))
    lines = [f"{a},{b},{'yes' if (a > 0) != (b > 0) else 'no'}" for a, b in X]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")
    (tmp_path / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_better_model_is_made_within_the_budget(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "FOURIER", 60)  # to be fast
    outcome = run(*FIT)
    assert outcome.code == 0, outcome.err
    before, _, after = outcome.out.partition("The comparison, of small models on 300 held-out rows: ")
    assert "--compare: 10% of the budget pays for a comparison on rows that are held out (20%)." in before
    assert "The noise alone hides leads below" in before
    assert "So the model on Fourier features was fitted on all rows." in after
    predictor = EverlastingPredictor.load(next((folder / "home" / "xor").glob("phase-*.state")))
    assert predictor.comparison_ is not None
    assert predictor.comparison_.leader == 1
    assert (predictor.guarantee_.epsilon, predictor.guarantee_.protects) == (8, "rows")
    assert fits(predictor.event_, epsilon=8, delta=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--learner", "trees"), "--compare chooses between two private models, and --learner trees is neither"),
        (("--learner", "private"), "--learner private is neither"),
        (("--drift", "slow"), "--compare makes one private model, which does not follow --drift slow"),
    ],
)
def test_other_options_are_refused_before_a_row_is_read(
    run: Reticent, folder: Path, options: tuple[str, ...], words: str
) -> None:
    outcome = run(*FIT, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


def test_the_plan_of_a_comparison_speaks_of_groups_if_there_are_any() -> None:
    compared = comparison(1.5, epsilon=1, delta=Fraction(1, 10**6))
    rows, groups = (in_advance(compared, 20_000, grouped=each) for each in (False, True))
    assert "on rows that are held out" in rows
    assert "hides leads below 1.4 points of accuracy." in rows
    assert "on groups that are held out" in groups
    assert "and larger ones if groups have several rows." in groups


def test_a_lead_that_is_not_clear_is_said_to_be_none() -> None:
    clear, unclear = Scores((700, 900), 1000, 5.0), Scores((890, 900), 1000, 5.0)
    assert in_words(clear) == (
        "The comparison, of small models on 1,000 held-out rows: linear 70.0%, Fourier features 90.0% right answers. "
        "The lead of the model on Fourier features is 20.0 ± 2.1 points (one standard error, of noise and sampling). "
        "So the model on Fourier features was fitted on all rows."
    )
    assert "no clear difference" in in_words(unclear)
    assert "no clear difference" not in in_words(clear)
