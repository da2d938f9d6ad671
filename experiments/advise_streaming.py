"""Whether the advice on drift and later labels is good: every option that is possible, measured on streams.

Each option is the expression that the advice prints, filled in. Queries are asked in order; labels of some come later.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import reticent
from experiments.advise_stream_data import StreamData, made
from experiments.advise_streams import HELD_OUT, SETTINGS, TUNED, StreamSetting
from experiments.table import Table
from reticent.errors import BudgetExhausted
from reticent.plan.advise import OPTIONS

BATCH = 200  # queries are asked in batches, after which labels come
TOLERANCE = 0.01  # advice within this of the best is good
MEASURED = Path(__file__).with_name("advise_streams.json")
SHOWN = tuple(name for name in OPTIONS if name not in ("one-shot with public rows", "pate"))


def tables() -> list[Table]:
    """What was advised and what would have been best, on streams held out and on the others."""
    accuracies = kept()
    titles = (("Streams held out", HELD_OUT), ("Streams that the rules were set by", TUNED))
    return [_table(title, settings, accuracies) for title, settings in titles]


def kept() -> dict[str, dict[str, float | None]]:
    """For each setting the mean accuracy of each option; None where answers ended early."""
    return {
        name: {
            option: None if None in runs["accuracy"] else float(np.mean(runs["accuracy"]))
            for option, runs in found["options"].items()
        }
        for name, found in stored().items()
    }


def stored() -> dict[str, Any]:
    """What is on file."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))["results"] if MEASURED.exists() else {}
    return found


def gap(option: str, accuracy: dict[str, float | None]) -> float:
    """By how much an option is below the best that was measured; 1 if its answers ended early."""
    best = max(value for value in accuracy.values() if value is not None)
    reached = accuracy[option]
    return 1.0 if reached is None else best - reached


def _table(title: str, settings: tuple[StreamSetting, ...], accuracies: dict[str, dict[str, float | None]]) -> Table:
    lines, gaps = [], []
    for one in settings:
        found, option = accuracies[one.name], one.advice().best.name
        best = max(found, key=lambda each: found[each] or 0)
        gaps.append(gap(option, found))
        lines.append((
            one.name, f"{one.rows:,}", f"{one.features}", f"{one.epsilon:g}", one.drift, f"{one.later_labels:g}",
            f"{one.label_delay:,}", option, *(_shown(found.get(each, "")) for each in SHOWN), best, f"{gaps[-1]:.3f}",
        ))  # fmt: skip
    good = sum(each <= TOLERANCE for each in gaps)
    return Table(
        f"{title}: within {TOLERANCE:.0%} of the best on {good} of {len(settings)}",
        ("stream", "rows", "columns", "ε", "drift", "later labels", "delay", "advised", *SHOWN, "best", "gap"),
        tuple(lines),
    )


def _shown(accuracy: float | str | None) -> str:
    return "ended" if accuracy is None else accuracy if isinstance(accuracy, str) else f"{accuracy:.3f}"


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path, settings: tuple[StreamSetting, ...] = SETTINGS) -> None:
    """Measure every option that is possible, and keep the accuracies in `advise_streams.json` beside this module.

    What is kept of a setting and an expression as they are now is not measured again. All noise is seeded by the number
    of the run.
    """
    for setting in settings:
        before = stored()
        found = before.get(setting.name, {})
        known = found.get("options", {}) if found.get("setting") == asdict(setting) else {}
        options: dict[str, Any] = {}
        for option in sorted(setting.advice().options, key=lambda each: OPTIONS.index(each.name)):
            if not option.possible:
                continue
            same = known.get(option.name, {}).get("estimator") == option.estimator
            options[option.name] = known[option.name] if same else {
                "estimator": option.estimator,
                "accuracy": [measured(setting, option.estimator, folder, seed) for seed in range(setting.seeds)],
            }  # fmt: skip
        before[setting.name] = {"setting": asdict(setting), "options": options}
        in_order = {one.name: before[one.name] for one in SETTINGS if one.name in before}
        text = json.dumps({"results": in_order}, indent=1, ensure_ascii=False)
        MEASURED.write_text(text + "\n", encoding="utf-8")


def measured(setting: StreamSetting, estimator: str, folder: Path, seed: int) -> float | None:
    """The accuracy of all answers; None if answers end before all queries are asked."""
    data = made(setting, folder, seed)
    text = estimator.replace("row_norm=…", f"row_norm={data.row_norm}").replace("classes=…", "classes=(0, 1)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded noise
        model = eval(text, {name: getattr(reticent, name) for name in reticent.__all__})  # as a user would
        if isinstance(model, reticent.PrivateLogisticRegression):
            model.set_params(unsafe_seed=seed, classes=(0, 1))
        else:
            model.set_params(unsafe_seed=seed, random_state=seed)
        try:
            right = sum(answered(model.fit(data.X, data.y), setting, data, seed))
        except BudgetExhausted:
            return None
    return round(right / setting.asked, 5)


def answered(model: Any, setting: StreamSetting, data: StreamData, seed: int) -> Iterator[int]:
    """How many answers are right, batch by batch; labels come `label_delay` queries after their own."""
    comes = np.random.default_rng(seed + 1_000).random(setting.asked) < setting.later_labels
    learns = getattr(model, "truth", None)
    tickets: list[str] = []
    given = 0  # queries whose labels have come, if they do
    for start in range(0, setting.asked, BATCH):
        some = slice(start, min(setting.asked, start + BATCH))
        if learns == "feedback":
            found = model.answer(data.queries[some])
            if found.refused is not None:
                raise found.refused
            tickets += found.tickets
            said = model.classes_[found.class_indices]
        else:
            said = model.predict(data.queries[some])
        yield int(np.sum(said == data.truth[some]))
        until = max(given, some.stop - setting.label_delay)
        new = given + np.flatnonzero(comes[given:until])
        given = until
        if learns == "feedback" and len(new):
            model.feedback([tickets[one] for one in new.tolist()], data.truth[new])
        elif learns == "rows" and len(new):
            model.add_labelled(data.queries[new], data.truth[new])
