"""What everlasting prediction can do: long streams, drift, hostile queries, and where other ways are better.

It takes hours of one core, so what was measured is kept in `everlasting.json` beside this module, case by case: a case
that is kept with the same setting is not measured again. `python -m experiments.everlasting DIR PART …`
measures some parts alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from experiments.drawing import style, svg
from experiments.everlasting_streams import (
    Checkers,
    Clusters,
    Halfspace,
    Line,
    Recorded,
    Retrained,
    Stream,
    UntilSpent,
    ask,
    by_phase,
    by_time,
    recorded,
    rounded,
)
from experiments.table import Table
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import noise_of_one
from reticent.teachers import LogisticTeacher
from reticent.teachers.pate import PATEClassifier

Setting = dict[str, Any]
Found = dict[str, Any]

MEASURED = Path(__file__).with_name("everlasting.json")
DELTA = 1e-6
SEED = 1
STEPS = 40  # parts of a stream whose accuracy is plotted
EPSILONS: tuple[float, ...] = (0.5, 1, 2, 8)  # of the map
WAYS = ("one-shot", "pate", "votes", "chain")


@dataclass(frozen=True)
class Case:
    """Something to measure: all numbers that decide what comes out, and how it is done."""

    part: str
    name: str
    setting: Setting
    run: Callable[[Setting, Path], Found]


def measure(folder: Path, *parts: str) -> None:
    """Measure what is not kept yet, with the data sets in a folder; all parts, or those named, or PART/CASE."""
    for case in CASES:
        chosen = not parts or case.part in parts or f"{case.part}/{case.name}" in parts
        if not chosen or _read().get(case.part, {}).get(case.name, {}).get("setting") == case.setting:
            continue
        start = time.process_time()
        found = case.run(case.setting, folder)
        if sys.stderr.isatty() or parts:
            print(f"{case.part}/{case.name}: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
        _keep(case, found)
    _results.cache_clear()


def _keep(case: Case, found: Found) -> None:
    """Read again before writing: another process may have measured another part."""
    kept = _read()
    kept.setdefault(case.part, {})[case.name] = {"setting": case.setting, **found}
    place = {(each.part, each.name): number for number, each in enumerate(CASES)}
    ordered: dict[str, dict[str, Any]] = {}
    for part, name in sorted(((p, n) for p in kept for n in kept[p]), key=lambda each: place.get(each, len(place))):
        ordered.setdefault(part, {})[name] = kept[part][name]
    text = json.dumps({"made by": "reticent experiment everlasting --data DIR", "results": ordered},
                      indent=1, ensure_ascii=False)  # fmt: skip
    whole = MEASURED.with_suffix(".part")
    whole.write_text(text + "\n", encoding="utf-8")
    whole.replace(MEASURED)


def _read() -> dict[str, dict[str, Any]]:
    if not MEASURED.is_file():
        return {}
    results: dict[str, dict[str, Any]] = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    return results


@cache
def _results() -> dict[str, dict[str, Any]]:
    return _read()


# ── streams that stay as they are ─────────────────────────────────────────────────────────────────────────────────


def _predictor(learner: Any, setting: Setting, **options: Any) -> EverlastingPredictor:
    known = {name: setting[name] for name in PASSED if name in setting}
    return EverlastingPredictor(
        learner, delta=setting.get("delta", DELTA), classes=(0, 1), unsafe_seed=SEED, **{**known, **options}
    )


PASSED = ("epsilon", "growth", "held_back", "rows_per_teacher", "labeller", "labeller_options", "most_noise",
          "retrain", "training_stream", "client_share", "max_rows")  # fmt: skip


def _followed(learner: Any, stream: Stream, reference: Any, setting: Setting) -> Found:
    """Phase by phase, beside a model of the same rows that is not private."""
    X, y = stream.rows(np.random.default_rng(0), setting["rows"])
    model = _predictor(learner, setting).fit(X, y)
    reference = None if reference is None else reference.fit(X, y)
    del X, y
    pieces = ask(
        model,
        stream,
        setting["queries"],
        seed=SEED,
        reference=reference,
        phases=setting.get("phases"),
        batch=setting.get("batch", 1_000_000),
        title=setting["stream"],
    )
    return {"phases": by_phase(pieces), "answered": model.answered_}


def _line(setting: Setting, folder: Path) -> Found:
    return _followed(Thresholds(), Line(), None, setting)


def _halfspace(setting: Setting, folder: Path) -> Found:
    return _followed(LogisticTeacher(), Halfspace(setting["columns"]), LogisticRegression(C=100), setting)


def _kdd99(setting: Setting, folder: Path) -> Found:
    stream = recorded("kdd99", folder, setting["private"], ordered=False)
    setting = {**setting, "rows": stream.private}
    return {"rows": stream.private, "others": stream.left, **_followed(
        LogisticTeacher(), stream, LogisticRegression(C=1, max_iter=300), setting
    )}  # fmt: skip


def _chain_halfspace(setting: Setting, folder: Path) -> Found:
    norm = 1.2 * math.sqrt(setting["columns"])
    learner = PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=norm)
    return _followed(learner, Halfspace(setting["columns"]), LogisticRegression(C=100), setting)


def _chain_line(setting: Setting, folder: Path) -> Found:
    return _followed(ThresholdLearner(bits=setting["bits"], epsilon=1), Line(setting["bits"]), None, setting)


# ── streams that change ───────────────────────────────────────────────────────────────────────────────────────────


def _drift(setting: Setting, folder: Path) -> Found:
    """Everyone on the same stream: accuracies on its equal parts."""
    stream: Stream
    if setting["stream"] == "clusters":
        stream, rows, queries = Clusters(setting["turn"]), setting["rows"], setting["queries"]
    else:
        stream = recorded(setting["stream"], folder, setting["private"], ordered=True)
        rows, queries = stream.private, stream.left
    X, y = stream.rows(np.random.default_rng(0), rows)
    setting = {**setting, "max_rows": rows, "rows": rows, "queries": queries}
    curves = {}
    for name, make in CONTESTANTS.items():
        if isinstance(stream, Recorded):
            stream.rewind()
        batch = -(-queries // (STEPS * (5 if name != "pate" else 1)))
        pieces = ask(make(setting, X, y), stream, queries, seed=SEED, batch=batch, title=name)
        curves[name] = by_time(pieces, queries, STEPS)
    return {"rows": rows, "queries": queries, "curves": curves}


def _one_shot(setting: Setting, X: Any, y: Any) -> Any:
    return PrivateLogisticRegression(
        epsilon=setting["epsilon"], delta=DELTA, row_norm=setting["row_norm"], classes=(0, 1), unsafe_seed=SEED
    ).fit(X, y)


def _chain(setting: Setting, X: Any, y: Any) -> Any:
    learner = PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=setting["row_norm"])
    return _predictor(learner, setting).fit(X, y)


def _votes(setting: Setting, X: Any, y: Any) -> Any:
    return _predictor(LogisticTeacher(), setting, most_noise=1).fit(X, y)


def _until_spent(setting: Setting, X: Any, y: Any) -> Any:
    answers = _affordable(setting)
    model = _predictor(LogisticTeacher(), setting, answers=answers, max_rows=None).fit(X, y)
    return UntilSpent(model, answers)


def _affordable(setting: Setting) -> int:
    """How many answers have noise of a tenth of all votes, as many as fit into one phase at most."""
    teachers = setting["rows"] // setting["rows_per_teacher"]
    one = noise_of_one(Fraction(setting["epsilon"]), Fraction(1, 10**6))
    return max(1, min(int((0.1 * teachers / one) ** 2), int(setting["growth"] * setting["rows"])))


CONTESTANTS: dict[str, Callable[[Setting, Any, Any], Any]] = {
    "votes": _votes,
    "chain": _chain,
    "one-shot": _one_shot,
    "pate": _until_spent,
    "non-private": lambda setting, X, y: Retrained(X, y, setting["rows"]),
}


# ── hostile queries ───────────────────────────────────────────────────────────────────────────────────────────────


HONEST = 400  # clients
ATTACKERS = 3


def _poisoned(setting: Setting, folder: Path) -> Found:
    """Attackers pile up queries where the answer is just about to change, so that the boundary moves a little.

    They see the answers to their own queries, and follow the boundary into the other class.
    """
    generator = np.random.default_rng(SEED)
    stream = Clusters(turn=0)
    X, y = stream.rows(generator, setting["rows"])
    model = _predictor(LogisticTeacher(), setting).fit(X, y)
    trusted = setting.get("training_stream") == "trusted"
    edge, accuracies = 0.0, []
    right, asked = 0, 0
    while model.phase_ <= setting["phases"]:
        phase = model.phase_
        if trusted and model.rows_gathered_ < model.phase.stream:
            model.add_unlabelled(stream.queries(generator, model.phase.stream, 0)[0])
        size = min(setting["batch"], model.answers_left_in_phase_)
        hostile = generator.random(size) < setting["hostile"]
        X, y = stream.queries(generator, size, 0)
        X[hostile] = np.column_stack([np.full(hostile.sum(), edge), generator.normal(0, 0.45, hostile.sum())])
        clients = np.where(hostile, generator.integers(0, ATTACKERS, size), generator.integers(10, 10 + HONEST, size))
        found = np.asarray(model.predict(X, clients=clients))
        if hostile.any():
            edge += -0.02 if (found[hostile] == 1).mean() > 0.8 else 0.02
        right += int((found == y)[~hostile].sum())
        asked += int((~hostile).sum())
        if model.phase_ > phase:
            accuracies.append(rounded(right / asked))
            right, asked = 0, 0
    return {"accuracies": accuracies, "best": rounded(stream.best)}


# ── trees as teachers ─────────────────────────────────────────────────────────────────────────────────────────────


def _black_box(setting: Setting, folder: Path) -> Found:
    stream = Checkers()
    learner = DecisionTreeClassifier(max_depth=setting["depth"], random_state=0)
    X, y = stream.rows(np.random.default_rng(0), setting["rows"])
    reference = DecisionTreeClassifier(max_depth=setting["depth"], random_state=0).fit(X, y)
    start = time.process_time()
    try:
        model = _predictor(learner, setting).fit(X, y)
    except InsufficientData as error:
        return {"refused": True, "required": error.required}
    trained = time.process_time() - start
    start = time.process_time()
    phases = by_phase(
        ask(model, stream, setting["queries"], seed=SEED, reference=reference, phases=setting["phases"], batch=20_000)
    )
    spent = time.process_time() - start
    return {
        "phases": phases,
        "answered": model.answered_,
        "training seconds": round(trained, 1),
        "microseconds an answer": round(1e6 * spent / model.answered_),
    }


# ── which way is best where ───────────────────────────────────────────────────────────────────────────────────────


PUBLIC = 2_000  # unlabelled rows that PATE is given
CHAIN_PHASES, VOTES_PHASES = 6, 3


def _crossover(setting: Setting, folder: Path) -> Found:
    """The mean accuracy of each way over the same stream; None where it refuses."""
    rows = setting["rows"]
    stream: Stream
    if setting["stream"] == "line":
        stream, columns = Line(setting["bits"]), 1
    elif setting["stream"] == "half-space":
        stream, columns = Halfspace(setting["columns"]), setting["columns"]
    else:
        stream, columns = Clusters(), 2
    line = setting["stream"] == "line"
    turning = setting["stream"] == "clusters"
    queries = int(rows * 2 * setting["phases"])
    X, y = stream.rows(np.random.default_rng(0), rows)
    common: Setting = {"epsilon": setting["epsilon"], "growth": 2, "max_rows": rows, "most_noise": 1, "delta": DELTA}
    norm = 2 if turning else 1.2 * math.sqrt(columns)
    chain_learner = (
        ThresholdLearner(bits=setting["bits"], epsilon=1)
        if line
        else PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=norm)
    )
    one_shot = (
        ThresholdLearner(bits=setting["bits"], epsilon=setting["epsilon"], unsafe_seed=SEED)
        if line
        else PrivateLogisticRegression(
            epsilon=setting["epsilon"], delta=DELTA, row_norm=norm, classes=(0, 1), unsafe_seed=SEED
        )
    )
    concept = Thresholds(setting["bits"]) if line else None
    pate = PATEClassifier(
        teacher=concept, student=concept, epsilon=setting["epsilon"], delta=DELTA, classes=(0, 1), unsafe_seed=SEED
    )
    public = stream.queries(np.random.default_rng(2), PUBLIC, 0)[0]
    ways: dict[str, Callable[[], Any]] = {
        "one-shot": lambda: one_shot.fit(X, y),
        "pate": lambda: pate.fit(X, y, public=public),
        "votes": lambda: _predictor(concept or LogisticTeacher(), common, rows_per_teacher=10).fit(X, y),
        "chain": lambda: _predictor(chain_learner, common).fit(X, y),
    }
    accuracy: dict[str, float | None] = {}
    for name in WAYS:
        try:
            pieces = list(ask(ways[name](), stream, queries, seed=SEED, batch=max(1, queries // 200), title=name))
        except (InsufficientData, BudgetExhausted):
            accuracy[name] = None
            continue
        accuracy[name] = rounded(sum(piece.right for piece in pieces) / sum(piece.asked for piece in pieces))
    return {"queries": queries, "accuracy": accuracy}


# ── the cases ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _cases() -> list[Case]:
    line: Setting = {"stream": "line", "rows": 100_000, "epsilon": 1, "most_noise": 1}
    half: Setting = {"stream": "half-space", "columns": 20, "rows_per_teacher": 10, "labeller": "greedy"}
    clusters: Setting = {"stream": "clusters", "rows": 100_000, "epsilon": 1, "growth": 2, "rows_per_teacher": 10,
                         "turn": 180, "row_norm": 2}  # fmt: skip
    cases = [
        Case("thresholds", "two-coin", {**line, "queries": 100_000_000, "labeller": "two-coin", "rows_per_teacher": 30,
                                        "labeller_options": {"steepness": 15}}, _line),
        Case("thresholds", "greedy", {**line, "queries": 10_000_000, "labeller": "greedy", "rows_per_teacher": 5},
             _line),
        Case("half-space", "ε = 4", {**half, "rows": 100_000, "epsilon": 4, "queries": 10_000_000,
                                     "max_rows": 2_000_000}, _halfspace),
        Case("half-space", "ε = 4, long", {**half, "rows": 100_000, "epsilon": 4, "queries": 100_000_000,
                                           "max_rows": 1_500_000}, _halfspace),
        Case("half-space", "ε = 4, long, smaller", {**half, "rows": 100_000, "epsilon": 4, "queries": 100_000_000,
                                                    "max_rows": 1_000_000}, _halfspace),
        Case("half-space", "ε = 4, capped", {**half, "rows": 100_000, "epsilon": 4, "queries": 5_000_000,
                                             "max_rows": 200_000}, _halfspace),
        Case("half-space", "ε = 4, capped, default teachers", {
            **half, "rows": 100_000, "epsilon": 4, "queries": 5_000_000, "max_rows": 200_000,
            "rows_per_teacher": 20}, _halfspace),
        Case("half-space", "ε = 4, capped, larger teachers", {
            **half, "rows": 100_000, "epsilon": 4, "queries": 5_000_000, "max_rows": 200_000,
            "rows_per_teacher": 40}, _halfspace),
        Case("chain", "half-space", {"stream": "half-space", "columns": 20, "rows": 3000, "epsilon": 1,
                                     "queries": 100_000_000, "phases": 40, "max_rows": 250_000}, _chain_halfspace),
        Case("chain", "line", {"stream": "line", "bits": 16, "rows": 1000, "epsilon": 1, "queries": 100_000_000,
                               "phases": 40, "max_rows": 250_000}, _chain_line),
        Case("drift", "clusters, slow", {**clusters, "queries": 8_000_000}, _drift),
        Case("drift", "clusters, fast", {**clusters, "queries": 1_800_000}, _drift),
        Case("drift", "elec2", {"stream": "elec2", "private": 0.2, "epsilon": 4, "growth": 1, "rows_per_teacher": 10,
                                "row_norm": 2.5}, _drift),
        Case("drift", "covtype", {"stream": "covtype", "private": 0.2, "epsilon": 4, "growth": 1,
                                  "rows_per_teacher": 50, "row_norm": 3.5}, _drift),
        Case("kdd99", "two-coin", {"stream": "kdd99", "private": 0.8, "epsilon": 1, "rows_per_teacher": 50,
                                   "labeller": "two-coin", "labeller_options": {"steepness": 15}, "most_noise": 1,
                                   "max_rows": 644_040, "growth": 1.5, "phases": 3, "queries": 100_000_000,
                                   "batch": 50_000}, _kdd99),
    ]  # fmt: skip
    for hostile in (0.0, 0.05, 0.1, 0.2):
        ways: dict[str, Setting] = {
            "caps": {"client_share": 0.01},
            "no caps": {"client_share": 1},
            "trusted": {"training_stream": "trusted"},
        }
        for name, way in ways.items():
            setting = {"hostile": hostile, "rows": 40_000, "epsilon": 4, "max_rows": 40_000, "phases": 8,
                       "batch": 4000, "rows_per_teacher": 10, **way}  # fmt: skip
            cases.append(Case("poisoning", f"{hostile:.0%}, {name}", setting, _poisoned))
    for epsilon, labeller in ((1, "greedy"), (4, "greedy"), (8, "poll")):
        setting = {"rows": 120_000, "epsilon": epsilon, "depth": 4, "rows_per_teacher": 50, "growth": 1.2,
                   "labeller": labeller, "labeller_options": {"poll": 31, "flip": 0.005} if labeller == "poll" else {},
                   "phases": 2, "queries": 10_000_000}  # fmt: skip
        cases.append(Case("black box", f"ε = {epsilon}, {labeller}", setting, _black_box))
    for rows in (500_000, 750_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000, 3_000_000):
        setting = {**half, "rows": rows, "epsilon": 1, "delta": 1e-7, "phases": 3,
                   "growth": 1.5, "queries": 100_000_000, "batch": 100_000}  # fmt: skip
        cases.append(Case("half-space", f"ε = 1, {rows:,} rows", setting, _halfspace))
    return cases + _map_cases()


def _map_cases() -> list[Case]:
    tasks: list[tuple[str, Setting, tuple[int, ...]]] = [
        ("line", {"stream": "line", "bits": 16, "phases": 3}, (1_000, 10_000, 100_000, 1_000_000)),
        ("half-space, 5 columns", {"stream": "half-space", "columns": 5, "phases": 3}, (1_000, 10_000, 100_000)),
        ("half-space, 20 columns", {"stream": "half-space", "columns": 20, "phases": 3}, (1_000, 10_000, 100_000)),
        ("clusters, slow", {"stream": "clusters", "phases": 40}, (1_000, 10_000, 30_000)),
        ("clusters, fast", {"stream": "clusters", "phases": 9}, (1_000, 10_000, 30_000)),
    ]
    return [
        Case("crossover", f"{name}, ε = {epsilon:g}, {count:,} rows", {**task, "rows": count, "epsilon": epsilon},
             _crossover)
        for epsilon in EPSILONS
        for name, task, rows in tasks
        for count in rows
    ]  # fmt: skip


CASES = _cases()


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


TITLES = {"one-shot": "one-shot", "pate": "PATE", "votes": "votes", "chain": "chain", "non-private": "non-private",
          "none": "none"}  # fmt: skip
SIMPLEST = ("one-shot", "pate", "chain", "votes")  # who wins among those that are as good
AS_GOOD, COIN = 0.005, 0.6
SHOWN = 20  # phases of a table; of later ones every fifth, and the last


def tables() -> list[Table]:
    """What was measured, part by part; parts that are not kept are left out."""
    makers = {
        "thresholds": _thresholds_table,
        "half-space": _halfspace_tables,
        "kdd99": _kdd99_table,
        "chain": _chain_table,
        "drift": _drift_table,
        "poisoning": _poisoning_table,
        "black box": _black_box_table,
        "crossover": _crossover_table,
    }
    return [table for part, make in makers.items() if part in _results() for table in make(_results()[part])]


def _thresholds_table(kept: dict[str, Any]) -> list[Table]:
    return [
        Table(
            f"Thresholds on a line, ε = {one['setting']['epsilon']}, δ = 10⁻⁶, {one['setting']['rows']:,} rows, "
            f"{name}: {one['answered']:,} queries answered",
            ("phase", "rows", "teachers", "answered", "error"),
            tuple(
                (*_numbers(phase), f"{1 - phase['accuracy']:.4f}")
                for phase in one["phases"]
            ),
        )
        for name, one in kept.items()
    ]  # fmt: skip


def _numbers(phase: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{phase[name]:,}" for name in ("phase", "rows", "teachers", "answered"))


def _beside(title: str, one: dict[str, Any]) -> Table:
    """Phases beside the model that is not private."""
    return Table(
        title,
        ("phase", "rows", "teachers", "answered", "accuracy", "non-private", "below it, points"),
        tuple(
            (*_numbers(phase), f"{phase['accuracy']:.4f}", f"{phase['non-private']:.4f}", f"{_below(phase):.2f}")
            for place, phase in enumerate(one["phases"], 1)
            if place < SHOWN or place % 5 == 0 or place == len(one["phases"])
        ),
    )


def _below(phase: dict[str, Any]) -> float:
    return 100 * float(phase["non-private"] - phase["accuracy"])


def _halfspace_tables(kept: dict[str, Any]) -> list[Table]:
    tables = []
    for one in kept.values():
        setting = one["setting"]
        if setting["epsilon"] == 4:
            title = (
                f"Half-space, {setting['columns']} columns, ε = 4, δ = 10⁻⁶, {setting['rows']:,} rows, at most "
                f"{setting['max_rows']:,} a phase, {setting['rows_per_teacher']} a teacher at least: "
                f"{one['answered']:,} queries answered"
            )
            tables.append(_beside(title, one))
    by_rows = [one for one in kept.values() if one["setting"]["epsilon"] == 1]
    if by_rows:
        tables.append(Table(
            f"Half-space, {by_rows[0]['setting']['columns']} columns, ε = 1, δ = 10⁻⁷: points below the non-private "
            "model of the same rows",
            ("rows", "rows a teacher", "labeller", "answered", "by phase", "within 1 point after the first"),
            tuple(
                (f"{one['setting']['rows']:,}", str(one["setting"]["rows_per_teacher"]), one["setting"]["labeller"],
                 f"{one['answered']:,}", ", ".join(f"{_below(phase):.2f}" for phase in one["phases"]),
                 "yes" if sustained(one["phases"]) else "no")
                for one in by_rows
            ),
        ))  # fmt: skip
    return tables


def sustained(phases: list[dict[str, Any]], points: float = 1.0) -> bool:
    """Whether every phase after the first is so close to the model that is not private."""
    return all(_below(phase) <= points for phase in phases[1:])


def _kdd99_table(kept: dict[str, Any]) -> list[Table]:
    return [
        _beside(
            f"kdd99, ε = {one['setting']['epsilon']}, δ = 10⁻⁶, {name}: {one['rows']:,} private rows, "
            f"{one['answered']:,} queries drawn from the other {one['others']:,} with replacement",
            one,
        )
        for name, one in kept.items()
    ]


def _chain_table(kept: dict[str, Any]) -> list[Table]:
    shown = (1, 2, 5, 10, 20, 30, 40)
    rows = []
    for name, one in kept.items():
        phases = {phase["phase"]: phase for phase in one["phases"]}
        best = 1.0 if name == "line" else Halfspace(one["setting"]["columns"]).best
        worst = min(phase["accuracy"] for phase in one["phases"][1:])
        reference = [phase["non-private"] for phase in one["phases"] if "non-private" in phase]
        rows.append((
            name, f"{one['setting']['rows']:,}", f"{one['answered']:,}",
            *(f"{phases[number]['accuracy']:.4f}" if number in phases else "–" for number in shown),
            f"{worst:.4f}", f"{np.mean(reference):.4f}" if reference else "–", f"{best:.4f}",
        ))  # fmt: skip
    return [
        Table(
            "Chains of private models on streams that stay as they are, ε = 1: accuracy in some of 40 phases",
            ("stream", "rows", "answered", *(f"phase {number}" for number in shown), "worst after the first",
             "non-private, same rows", "best possible"),
            tuple(rows),
        )
    ]  # fmt: skip


def _drift_table(kept: dict[str, Any]) -> list[Table]:
    """Means over the quarters of each stream."""
    rows = []
    for name, one in kept.items():
        for way, curve in one["curves"].items():
            quarters = [f"{np.mean(part):.3f}" for part in np.array_split(np.array(curve), 4)]
            rows.append((name, f"{one['rows']:,}", f"{one['queries']:,}", str(one["setting"]["epsilon"]),
                         TITLES[way], *quarters, f"{np.mean(curve):.3f}"))  # fmt: skip
    quarters = ["first quarter", "second", "third", "last"]
    return [
        Table(
            "Accuracy on streams that change",
            ("stream", "rows", "queries", "ε", "who answers", *quarters, "all"),
            tuple(rows),
        )
    ]


def _poisoning_table(kept: dict[str, Any]) -> list[Table]:
    defences = {"no caps": "no caps", "caps": "caps of 1 % a client", "trusted": "trusted stream"}
    shares = sorted({one["setting"]["hostile"] for one in kept.values()})
    phases = max(len(one["accuracies"]) for one in kept.values())
    best = next(iter(kept.values()))["best"]
    return [
        Table(
            f"Accuracy for honest clients in phase {phases}, with {ATTACKERS} hostile ones",
            ("share of hostile queries", *defences.values(), "best possible"),
            tuple(
                (f"{share:.0%}", *(_last(kept.get(f"{share:.0%}, {name}")) for name in defences), f"{best:.4f}")
                for share in shares
            ),
        )
    ]  # fmt: skip


def _last(one: dict[str, Any] | None) -> str:
    return "–" if one is None else f"{one['accuracies'][-1]:.4f}"


def _black_box_table(kept: dict[str, Any]) -> list[Table]:
    rows = []
    for one in kept.values():
        setting = one["setting"]
        first = (f"{setting['rows']:,}", str(setting["epsilon"]), setting["labeller"])
        if one.get("refused"):
            rows.append((*first, "–", "–", f"refused: {one['required']:,} rows would do", "–", "–", "–"))
            continue
        phases = one["phases"]
        rows.append((
            *first, f"{phases[0]['teachers']:,}", f"{one['answered']:,}",
            ", ".join(f"{phase['accuracy']:.4f}" for phase in phases), f"{phases[-1]['non-private']:.4f}",
            f"{one['training seconds']:.1f}", f"{one['microseconds an answer']:,}",
        ))  # fmt: skip
    return [
        Table(
            "Trees of depth 4 as teachers, 50 rows each, on checkers",
            ("rows", "ε", "labeller", "teachers", "answered", "accuracy by phase", "one tree, not private",
             "training, s", "an answer, µs"),
            tuple(rows),
        )
    ]  # fmt: skip


def winner(accuracy: dict[str, float | None]) -> str:
    """The simplest way of those that are within half a point of the best; "none" if all are about as good as a coin."""
    best = max(each for each in accuracy.values() if each is not None)
    if best < COIN:
        return "none"
    for name in SIMPLEST:
        found = accuracy.get(name)
        if found is not None and found >= best - AS_GOOD:
            return name
    raise AssertionError("the best is as good as the best")


def _task(setting: Setting) -> str:
    if setting["stream"] == "line":
        return f"line, {setting['bits']} bits"
    if setting["stream"] == "half-space":
        return f"half-space, {setting['columns']} columns"
    return f"clusters, turning {180 / setting['phases']:g}° a phase"


def _crossover_table(kept: dict[str, Any]) -> list[Table]:
    rows = []
    for one in kept.values():
        accuracy = one["accuracy"]
        shown = ("–" if accuracy[way] is None else f"{accuracy[way]:.3f}" for way in WAYS)
        rows.append((_task(one["setting"]), f"{one['setting']['epsilon']:g}", f"{one['setting']['rows']:,}",
                     *shown, TITLES[winner(accuracy)]))  # fmt: skip
    rows.sort(key=lambda row: (row[0], float(row[1]), int(row[2].replace(",", ""))))
    return [
        Table(
            f"Mean accuracy over the stream (PATE has {PUBLIC:,} public rows of its beginning; the simplest within "
            f"half a point of the best wins, if any is above {COIN:g})",
            ("stream", "ε", "rows", *(TITLES[way] for way in WAYS), "take"),
            tuple(rows),
        )
    ]


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────────────────────


COLOURS = {"votes": "#2b6a8f", "chain": "#b3553c", "one-shot": "#b8a04a", "pate": "#5f9e6e", "non-private": "#8c8c8c",
           "none": "#c8c8c8"}  # fmt: skip


def plots() -> dict[str, bytes]:
    """Accuracy against answered queries where streams change, and the map of who wins where, as SVGs."""
    drawings = {}
    with style(font_size=9):
        if "drift" in _results():
            drawings["everlasting_drift"] = _drift_plot(_results()["drift"])
        if "crossover" in _results():
            drawings["everlasting_map"] = _map(_results()["crossover"])
    return drawings


def _drift_plot(kept: dict[str, Any]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6))
    for place, (name, one) in enumerate(kept.items()):
        axes = figure.add_subplot(2, 2, place + 1)
        at = (np.arange(STEPS) + 0.5) * one["queries"] / STEPS
        for way, curve in one["curves"].items():
            axes.plot(at, curve, "--" if way == "non-private" else "-", color=COLOURS[way], label=TITLES[way])
        axes.set_title(f"{name}, {one['rows']:,} rows, ε = {one['setting']['epsilon']}")
        axes.set_ylim(0, 1)
        axes.set_xlabel("queries answered")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e6e6")
    figure.axes[0].set_ylabel("accuracy")
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, frameon=False, ncols=len(names), loc="lower center")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return svg(figure)


def _map(kept: dict[str, Any]) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    tasks: dict[str, list[dict[str, Any]]] = {}
    for one in kept.values():
        tasks.setdefault(_task(one["setting"]), []).append(one)
    figure = Figure(figsize=(10, 6.4))
    for place, (task, some) in enumerate(tasks.items()):
        axes = figure.add_subplot(2, 3, place + 1)
        rows = sorted({one["setting"]["rows"] for one in some})
        epsilons = sorted({one["setting"]["epsilon"] for one in some})
        for one in some:
            x, y = rows.index(one["setting"]["rows"]), epsilons.index(one["setting"]["epsilon"])
            name = winner(one["accuracy"])
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=COLOURS[name], edgecolor="white", linewidth=2))
            best = max(each for each in one["accuracy"].values() if each is not None)
            text = f"{TITLES[name]}\n{one['accuracy'].get(name, best):.3f}"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", color="white", fontsize=8)
        axes.set_xlim(0, len(rows))
        axes.set_ylim(0, len(epsilons))
        axes.set_xticks([x + 0.5 for x in range(len(rows))], [f"{each:,}" for each in rows])
        axes.set_yticks([y + 0.5 for y in range(len(epsilons))], [f"{each:g}" for each in epsilons])
        axes.set_xlabel("rows")
        axes.set_ylabel("ε")
        axes.set_title(task)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.tight_layout()
    return svg(figure)


if __name__ == "__main__":
    measure(Path(sys.argv[1]), *sys.argv[2:])
