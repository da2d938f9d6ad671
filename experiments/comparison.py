"""What a private comparison of two models is worth: by a share of the budget, or by rows of its own."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from experiments.advise_problems import Data, made
from experiments.advise_settings import Setting
from experiments.table import Table
from reticent.learners.base import clone_with
from reticent.learners.comparison import CLEAR, Scores, comparison_noise, plan_comparison, share_of_budget
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.plan.expectations import FOURIER

MEASURED = Path(__file__).with_name("comparison.json")
SHARE, HELD_OUT = Fraction(1, 10), Fraction(1, 5)  # of the budget, and of the rows
OWN_ROWS = Fraction(1, 10)  # of the rows, each for training and for counting, if the comparison has rows of its own
DELTA = Fraction(1, 10**6)
ROWS = 4_000

KINDS = (
    ("linear", 20, 5.0), ("waves", 5, 4.0), ("boxes", 10, 2.0), ("rings", 4, 4.0), ("skin", 3, 2.0), ("elec2", 6, 2.0),
    ("phishing", 68, math.sqrt(30)), ("covtype", 54, 3.0), ("a9a", 123, math.sqrt(14)), ("kdd99", 119, 4.0),
)  # fmt: skip
SETTINGS = tuple(
    Setting(name=f"{data}, ε = {epsilon}", data=data, rows=ROWS, features=features, epsilon=epsilon, asked=5_000,
            row_norm=row_norm, seeds=1)
    for epsilon in (1, 4) for data, features, row_norm in KINDS
)  # fmt: skip


class Pair(NamedTuple):
    """Accuracies on queries: of a linear model, and of one on random Fourier features."""

    linear: float
    fourier: float


class Measured(NamedTuple):
    """Models of the comparison and models fitted after it, by a share of the budget and by rows of its own."""

    trial: Pair
    last: Pair
    own_trial: Pair
    own_last: Pair


def measure(folder: Path) -> None:
    """Measure every setting that is not kept as it is, and keep the accuracies in `comparison.json`."""
    results = json.loads(MEASURED.read_text(encoding="utf-8"))["results"] if MEASURED.exists() else {}
    for setting in SETTINGS:
        if results.get(setting.name, {}).get("setting") == asdict(setting):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # seeded noise
            found = measured(setting, made(setting, folder, 0))
        results[setting.name] = {"setting": asdict(setting), "accuracy": found._asdict()}
        text = json.dumps({"results": results}, indent=1, ensure_ascii=False)
        MEASURED.write_text(text + "\n", encoding="utf-8")


def measured(setting: Setting, data: Data) -> Measured:
    """All eight models of a setting."""
    epsilon, rows = Fraction(setting.epsilon), setting.rows
    estimators = [
        PrivateLogisticRegression(
            epsilon=1, delta=DELTA, row_norm=setting.row_norm, fourier_features=each,
            fourier_seed=None if each is None else 0,
        )
        for each in (None, FOURIER)
    ]  # fmt: skip
    plan = plan_comparison(
        estimators, rows=rows, columns=setting.features, classes=np.array([0, 1]), epsilon=epsilon, delta=DELTA,
        share=SHARE, held_out=HELD_OUT,
    )  # fmt: skip
    half = share_of_budget(epsilon, DELTA, Fraction(1, 2))
    own = int(rows * OWN_ROWS)

    def pair(models: Sequence[PrivateLogisticRegression], some: int, **changes: Any) -> Pair:
        return Pair(
            *(
                float(
                    clone_with(model, unsafe_seed=0, **changes)
                    .fit(data.X[:some], data.y[:some])
                    .score(data.queries, data.truth)
                )
                for model in models
            )
        )

    return Measured(
        trial=pair(plan.trials, rows - plan.held_out),
        last=pair(plan.finals, rows),
        own_trial=pair(plan.trials, own, epsilon=half),
        own_last=pair(plan.finals, rows - 2 * own, epsilon=epsilon),
    )


def kept() -> dict[str, Measured]:
    """What is on file, by the name of the setting."""
    stored = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    return {
        name: Measured(**{key: Pair(*pair) for key, pair in found["accuracy"].items()})
        for name, found in stored.items()
    }


# ── what a rule is worth, over the noise of the counts and the choice of the held-out rows ────────────────────────


def chance(trial: Pair, setting: Setting, *, share: Fraction, tested: int, errors: float = 0) -> float:
    """The probability that Fourier features lead by more than this many standard errors."""
    noise = comparison_noise(2, epsilon=Fraction(setting.epsilon), delta=DELTA, share=share)
    counts = tuple(round(accuracy * tested) for accuracy in trial)
    lead, error = Scores(counts, tested, float(noise)).lead(1, 0)
    return NormalDist().cdf(lead / error - errors)


def expected(found: Measured, setting: Setting) -> dict[str, float]:
    """The accuracy that each rule reaches on average."""
    by_budget: dict[str, Any] = {"share": SHARE, "tested": int(setting.rows * HELD_OUT)}
    leader = chance(found.trial, setting, **by_budget)
    clear = chance(found.trial, setting, **by_budget, errors=CLEAR)
    own = chance(found.own_trial, setting, share=Fraction(1), tested=int(setting.rows * OWN_ROWS))
    return {
        "what leads": found.last.linear + leader * (found.last.fourier - found.last.linear),
        "Fourier if clearly ahead": found.last.linear + clear * (found.last.fourier - found.last.linear),
        "rows of its own": found.own_last.linear + own * (found.own_last.fourier - found.own_last.linear),
    }


def tables() -> list[Table]:
    """What each rule reaches, beside always taking the same model."""
    stored, lines, all_reached = kept(), [], []
    for setting in SETTINGS:
        found = stored[setting.name]
        reached = {
            "linear": found.last.linear, "Fourier": found.last.fourier, **expected(found, setting)
        }  # fmt: skip
        all_reached.append(list(reached.values()))
        trial = f"{found.trial.linear:.3f} / {found.trial.fourier:.3f}"
        lines.append((setting.name, trial, *(f"{value:.3f}" for value in reached.values())))
    lines.append(("mean", "", *(f"{value:.3f}" for value in np.mean(all_reached, axis=0))))
    return [
        Table(
            f"Accuracy of a linear model, of one on Fourier features, and of what a comparison takes; {ROWS:,} rows",
            ("setting", "in the comparison", "linear", "Fourier", *expected(found, setting)),
            tuple(lines),
        )
    ]
