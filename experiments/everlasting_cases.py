"""The cases of `everlasting`: what is measured, with which numbers, and how."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

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
from experiments.measurements import Case, Found, Setting
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import noise_of_one
from reticent.teachers import LogisticTeacher
from reticent.teachers.pate import PATEClassifier

DELTA = 1e-6
SEED = 1
STEPS = 40  # parts of a stream whose accuracy is plotted
EPSILONS: tuple[float, ...] = (0.5, 1, 2, 8)  # of the map
ANSWERING = ("one-shot", "pate", "votes", "chain")


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
    learner = PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=norm, rounds=0)
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
        epsilon=setting["epsilon"],
        delta=DELTA,
        row_norm=setting["row_norm"],
        classes=(0, 1),
        rounds=0,
        unsafe_seed=SEED,
    ).fit(X, y)


def _chain(setting: Setting, X: Any, y: Any) -> Any:
    learner = PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=setting["row_norm"], rounds=0)
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


# ── which option is best where ────────────────────────────────────────────────────────────────────────────────────


PUBLIC = 2_000  # unlabelled rows that PATE is given
CHAIN_PHASES, VOTES_PHASES = 6, 3


def _crossover(setting: Setting, folder: Path) -> Found:
    """The mean accuracy of each option over the same stream; None where it refuses."""
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
        else PrivateLogisticRegression(epsilon=1, delta=DELTA, row_norm=norm, rounds=0)
    )
    one_shot = (
        ThresholdLearner(bits=setting["bits"], epsilon=setting["epsilon"], unsafe_seed=SEED)
        if line
        else PrivateLogisticRegression(
            epsilon=setting["epsilon"], delta=DELTA, row_norm=norm, classes=(0, 1), rounds=0, unsafe_seed=SEED
        )
    )
    concept = Thresholds(setting["bits"]) if line else None
    pate = PATEClassifier(
        teacher=concept, student=concept, epsilon=setting["epsilon"], delta=DELTA, classes=(0, 1), unsafe_seed=SEED
    )
    public = stream.queries(np.random.default_rng(2), PUBLIC, 0)[0]
    options: dict[str, Callable[[], Any]] = {
        "one-shot": lambda: one_shot.fit(X, y),
        "pate": lambda: pate.fit(X, y, public=public),
        "votes": lambda: _predictor(concept or LogisticTeacher(), common, rows_per_teacher=10).fit(X, y),
        "chain": lambda: _predictor(chain_learner, common).fit(X, y),
    }
    accuracy: dict[str, float | None] = {}
    for name in ANSWERING:
        try:
            pieces = list(ask(options[name](), stream, queries, seed=SEED, batch=max(1, queries // 200), title=name))
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
        options: dict[str, Setting] = {
            "caps": {"client_share": 0.01},
            "no caps": {"client_share": 1},
            "trusted": {"training_stream": "trusted"},
        }
        for name, option in options.items():
            setting = {"hostile": hostile, "rows": 40_000, "epsilon": 4, "max_rows": 40_000, "phases": 8,
                       "batch": 4000, "rows_per_teacher": 10, **option}  # fmt: skip
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
