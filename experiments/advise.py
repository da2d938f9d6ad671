"""Whether the advice of `plan.advise` is good: every option that it ranks, measured on settings it was not made on."""

from __future__ import annotations

import json
import warnings
from collections.abc import Container
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from experiments import advise_streaming
from experiments.advise_problems import Data, made
from experiments.advise_settings import BITS, HELD_OUT, SETTINGS, TUNED, Setting
from experiments.table import Table
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.advise import OPTIONS as ALL_OPTIONS
from reticent.plan.expectations import BLACK_BOX_ROWS, DRIFT_GROWTH, FOURIER
from reticent.plan.options import LABEL_OPTIONS
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.teachers import PATEClassifier

BATCH = 5_000  # queries are asked in batches
TOLERANCE = 0.01  # advice within this of the best is good
MEASURED = Path(__file__).with_name("advise.json")
OPTIONS = tuple(name for name in ALL_OPTIONS if name not in LABEL_OPTIONS)  # no labels come later here


def tables() -> list[Table]:
    """What was advised and what would have been best, on both kinds of settings; and what constant advice would do."""
    accuracies = kept()
    advised = {one.name: one.advice().best.name for one in SETTINGS}
    return [
        _table("Settings held out", HELD_OUT, advised, accuracies),
        _table("Settings that the rules were set by", TUNED, advised, accuracies),
        _constant(advised, accuracies),
        _expected(accuracies),
        *advise_streaming.tables(),
    ]


def kept() -> dict[str, dict[str, float | None]]:
    """For each setting the mean accuracy of each option; None where it was refused."""
    stored = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    return {
        name: {option: None if None in runs else float(np.mean(runs)) for option, runs in found["accuracy"].items()}
        for name, found in stored.items()
    }


def references() -> dict[str, float]:
    """The mean accuracy of the model without privacy that losses are relative to, where it was measured."""
    stored = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    return {name: float(np.mean(found["reference"])) for name, found in stored.items() if found.get("reference")}


def surprises(
    settings: tuple[Setting, ...], accuracies: dict[str, dict[str, float | None]]
) -> dict[str, list[tuple[float, float]]]:
    """For each option, and for the advised one, what it was expected to lose and what it lost in each setting."""
    plain = references()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("the advised one", *OPTIONS)}
    for one in settings:
        if one.name not in plain:
            continue
        advice = one.advice()
        for option in advice.options:
            reached = accuracies[one.name].get(option.name)
            if reached is not None:
                pair = (option.loss, plain[one.name] - reached)
                found[option.name].append(pair)
                if option is advice.best:
                    found["the advised one"].append(pair)
    return found


def gap(option: str, accuracy: dict[str, float | None]) -> float:
    """By how much a option is below the best that was measured; 1 if it was refused or not open."""
    best = max(value for value in accuracy.values() if value is not None)
    reached = accuracy.get(option)
    return 1.0 if reached is None else best - reached


def _table(
    title: str, settings: tuple[Setting, ...], advised: dict[str, str], accuracies: dict[str, dict[str, float | None]]
) -> Table:
    lines = []
    for one in settings:
        found, option = accuracies[one.name], advised[one.name]
        best = max((option for option in found if found[option] is not None), key=lambda option: found[option] or 0)
        lines.append((
            one.name, f"{one.rows:,}", f"{one.features}", f"{one.epsilon:g}", option,
            *(_shown(found.get(each, "")) for each in OPTIONS), best, f"{gap(option, found):.3f}",
        ))  # fmt: skip
    good = sum(gap(advised[one.name], accuracies[one.name]) <= TOLERANCE for one in settings)
    return Table(
        f"{title}: within {TOLERANCE:.0%} of the best on {good} of {len(settings)}",
        ("setting", "rows", "columns", "ε", "advised", *OPTIONS, "best", "gap"),
        tuple(lines),
    )


def _constant(advised: dict[str, str], accuracies: dict[str, dict[str, float | None]]) -> Table:
    """What there is to gain by asking: the advice, beside always taking the same option."""
    lines = []
    constant = ((f"always {option}", dict.fromkeys(advised, option)) for option in OPTIONS)
    for name, options in (("as advised", advised), *constant):
        cells = []
        for settings in (HELD_OUT, TUNED):
            gaps = [gap(options[one.name], accuracies[one.name]) for one in settings]
            good, worst = sum(behind <= TOLERANCE for behind in gaps), max(gaps)
            cells += [f"{good} of {len(gaps)}", "not open" if worst == 1 else f"{worst:.3f}"]
        lines.append((name, *cells))
    return Table(
        f"How often each is within {TOLERANCE:.0%} of the best, and the widest gap",
        ("option", "held out", "widest gap", "others", "widest gap"),
        tuple(lines),
    )


def _expected(accuracies: dict[str, dict[str, float | None]]) -> Table:
    """How far from what was measured the expected losses are, of linear models and of black boxes."""
    lines = []
    for kind, black_box in (("linear, thresholds", False), ("black box", True)):
        for where, settings in (("held out", HELD_OUT), ("others", TUNED)):
            chosen = tuple(one for one in settings if one.black_box == black_box)
            for option, pairs in surprises(chosen, accuracies).items():
                if pairs:
                    expected, lost = np.array(pairs).T
                    low, middle, high = np.quantile(lost - expected, [0.1, 0.5, 0.9])
                    lines.append((kind, where, option, f"{len(pairs)}", f"{expected.mean():.3f}", f"{lost.mean():.3f}",
                                  f"{middle:+.3f}", f"{low:+.3f} to {high:+.3f}"))  # fmt: skip
    return Table(
        "Expected losses, and how much more was lost than expected",
        ("kind", "settings", "option", "number", "expected, mean", "lost, mean", "more, median", "more, 8 of 10"),
        tuple(lines),
    )


def _shown(accuracy: float | str | None) -> str:
    return "refused" if accuracy is None else accuracy if isinstance(accuracy, str) else f"{accuracy:.3f}"


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path, settings: tuple[Setting, ...] = SETTINGS) -> None:
    """Measure every option on every setting, and keep the accuracies in `advise.json` beside this module.

    Where nothing drifts, the reference is measured as well: the model without privacy that losses are relative to.
    What is kept of a setting as it is now is not measured again: delete an option from the file to measure it. All
    noise is seeded by the number of the run.
    """
    results = json.loads(MEASURED.read_text(encoding="utf-8"))["results"] if MEASURED.exists() else {}
    results = {
        one.name: results[one.name] for one in SETTINGS if results.get(one.name, {}).get("setting") == asdict(one)
    }
    for setting in settings:
        found = results.get(setting.name, {})
        known, plain = found.get("accuracy", {}), found.get("reference")
        runs = [measured(setting, folder, seed, skip=known) for seed in range(setting.seeds)]
        new = {option: [run[option] for run in runs] for option in runs[0]}
        lacking = plain is None and not setting.drift
        if not new and not lacking:
            continue
        if lacking:
            plain = [reference(setting, made(setting, folder, seed)) for seed in range(setting.seeds)]
        accuracy = {option: (known | new)[option] for option in OPTIONS if option in known | new}
        results[setting.name] = {"setting": asdict(setting), "reference": plain, "accuracy": accuracy}
        kept_in_order = {one.name: results[one.name] for one in SETTINGS if one.name in results}
        text = json.dumps({"results": kept_in_order}, indent=1, ensure_ascii=False)
        MEASURED.write_text(text + "\n", encoding="utf-8")


def measured(setting: Setting, folder: Path, seed: int, *, skip: Container[str] = ()) -> dict[str, float | None]:
    """The accuracy of every option that the setting leaves open; None where the rows are too few for it."""
    options = [option for option in open_options(setting) if option not in skip]
    found: dict[str, float | None] = {}
    data = made(setting, folder, seed) if options else None
    for option in options:
        assert data is not None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # seeded noise
                model = candidate(option, setting, data, seed)
                fitted = model.fit(data.X, data.y, **({"public": data.public} if option == "pate" else {}))
                asked = setting.asked
                if option == "finite votes" and isinstance(setting.answers, int):
                    asked = setting.answers
                right = sum(
                    int(np.sum(fitted.predict(data.queries[at : at + some]) == data.truth[at : at + some]))
                    for at in range(0, asked, BATCH)
                    if (some := min(BATCH, asked - at))
                )
            found[option] = round(right / asked, 5)
        except (InsufficientData, BudgetExhausted):
            found[option] = None
    return found


def reference(setting: Setting, data: Data) -> float:
    """The accuracy of the model without privacy that losses are relative to, on the same rows and queries."""
    if setting.concept == "thresholds":
        thresholds = Thresholds(bits=BITS)
        said = thresholds.predict(thresholds.erm(data.X, data.y), data.queries)
    else:
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        model = DecisionTreeClassifier(random_state=0) if setting.black_box else linear
        said = model.fit(data.X, data.y).predict(data.queries)
    return round(float(np.mean(said == data.truth)), 5)


def open_options(setting: Setting) -> list[str]:
    """The options that do not lack public rows, or a number of answers."""
    with_public_rows = {"one-shot with public rows", "pate"}
    closed = set() if setting.public_rows else with_public_rows
    if setting.black_box or setting.concept == "thresholds":
        closed.add("one-shot with public rows")
    if not isinstance(setting.answers, int):
        closed.add("finite votes")
    return [option for option in OPTIONS if option not in closed]


def candidate(option: str, setting: Setting, data: Data, seed: int) -> Any:
    """An option as the classes offer it, set up as the advice says."""
    budget: dict[str, Any] = {"epsilon": setting.epsilon, "delta": setting.delta}
    classes = tuple(range(setting.classes))
    named: dict[str, Any] = {**budget, "classes": classes, "unsafe_seed": seed, "random_state": seed}
    thresholds = setting.concept == "thresholds"
    private: Any = ThresholdLearner(bits=BITS, **budget)
    if not thresholds:
        fourier = FOURIER if setting.black_box else None
        private = PrivateLogisticRegression(
            **budget, row_norm=setting.row_norm, classes=classes, fourier_features=fourier,
            fourier_seed=None if fourier is None else seed, rounds="auto",
        )  # fmt: skip
    teacher: Any = DecisionTreeClassifier(random_state=0) if setting.black_box else None
    teacher = Thresholds(bits=BITS) if thresholds else teacher
    if option == "one-shot":
        return private.set_params(unsafe_seed=seed)
    if option == "one-shot with public rows":
        return private.set_params(unsafe_seed=seed, public=data.public, row_norm=None)
    if option == "pate":
        student = DecisionTreeClassifier(random_state=0) if setting.black_box else teacher
        return PATEClassifier(teacher, student, **named)
    phases: dict[str, Any] = dict(named)
    if setting.drift:
        phases |= {"growth": DRIFT_GROWTH, "max_rows": setting.rows}
    if option == "chain":
        return EverlastingPredictor(private, **phases)
    if setting.black_box:
        phases["rows_per_teacher"] = BLACK_BOX_ROWS
    if option == "finite votes":
        phases["answers"] = setting.answers
    return EverlastingPredictor(teacher, **phases)
