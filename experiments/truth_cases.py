"""The cases of `truth`: what is measured, with which numbers, and how."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from experiments import truth_river
from experiments.measurements import Case, Found, Setting
from experiments.truth_answers import (
    Answered,
    Labels,
    by_feedback,
    by_rows,
    by_votes,
    gauge_errors,
    not_private,
    predictor,
    unlabelled,
    window,
)
from experiments.truth_streams import HELD_OUT, MADE_UP, REAL, Stream, curve, scores, stream
from reticent.noise import Seeded
from reticent.predictors.alarms import OldRowsTest, QualityAlarm

RUNS = 3
RARE = {0: 0.1, 1: 1}  # weights of classes where positives are rare
METHODS = {
    "static": "static private",
    "self": "self-learning chain",
    "truth": "chain of truth",
    "fixed": "non-private, first window",
    "fresh": "non-private, last window",
    "river": "non-private, online (river)",
}
DELAYS = ((1, 1.0), (5, 1.0), (0, 0.1), (5, 0.1))  # of labels in windows, and their share
WAITS = ((0, 1.0), (1, 1.0), (5, 1.0), (0, 0.1))  # the same by feedback
SOME = 120_000  # first rows of a stream where complaints are measured
COMPLAINTS = (1.0, 0.5, 0.1)
WEIGHTS = (1.0, 0.3, 0.1, 0.05)  # of the majority
HOSTILE, LIES = (0.1, 0.3), ("always 0", "the opposite")
ACCURACY, OLD, SHORT, LONGEST = 0.8, 2000, 2500, 300  # of the alarm: declared, rows, rows of a phase, phases
FALSE_ALARM_RUNS, TESTS = 1000, 100


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────


def answered(found: Stream, setting: Setting, seed: int) -> Answered:
    """What came of one run.

    Parameters
    ----------
    found : Stream
        The stream.
    setting : dict
        Who answers, and how.
    seed : int
        The number of the run.
    """
    who, more = setting["who"], dict(setting.get("predictor", {}))
    weights = {int(one): weight for one, weight in setting.get("weights", {}).items()}
    known: dict[str, Any] = {"seed": seed, "learner": {"class_weight": weights} if weights else {}}
    epsilon = setting.get("epsilon", 1)
    rows = setting.get("rows") or window(found, epsilon=epsilon)
    labels = Labels(**setting.get("labels", {}))
    if who in ("votes of truth", "votes"):
        return by_votes(found, rows, seed=seed, epsilon=epsilon, truth=who != "votes")
    if who == "truth":
        return by_rows(found, rows, labels, epsilon=epsilon, **known, **more)
    if who == "feedback":
        return by_feedback(found, rows, labels, **known, **more)
    if who in ("static", "self"):
        return unlabelled(found, rows, **known, engine="model" if who == "static" else "chain")
    if who == "river":
        return Answered(rows, truth_river.answers(found.X, found.y))
    return not_private(found, rows, fresh=who == "fresh")


def _on_stream(setting: Setting, folder: Path) -> Found:
    """Accuracy and balanced accuracy of each run, and their mean over time."""
    each, curves, errors, rows = [], [], [], 0
    for run in range(setting["runs"]):
        drawn = setting["stream"] in MADE_UP
        found = stream(setting["stream"], folder, seed=run if drawn else 0).first(setting.get("first"))
        one = answered(found, setting, run)
        rows = one.rows
        each.append(scores(one.got, found.y, rows))
        curves.append(curve(one.got, found.y, rows))
        if setting.get("gauge"):
            errors += gauge_errors(found, one)
    kept: Found = {"rows": rows, "columns": found.X.shape[1], "scores": each}
    if setting.get("gauge"):
        kept |= {"gauge rows": -(-rows // 10), "phases": len(errors), "gauge error": round(float(np.mean(errors)), 5)}
    return kept | {"curve": [round(float(one), 4) for one in np.mean(curves, axis=0)]}


def _case(part: str, name: str, who: str, title: str, runs: int = RUNS, **more: Any) -> Case:
    setting = {"stream": name, "who": who, "runs": runs}
    if name == "rare" and "weights" not in more:
        more["weights"] = {str(one): weight for one, weight in RARE.items()}
    return Case(part, f"{name}, {title}", setting | more, _on_stream)


def _stream_cases(names: tuple[str, ...], part: str) -> Iterator[Case]:
    for name in names:
        for who, title in METHODS.items():
            private = who in ("static", "self", "truth")
            runs = RUNS if private or (name in MADE_UP and who != "river") else 1
            if name == "flights3m" and who == "self":
                runs = 1
            yield _case(part, name, who, title, runs)


def late(delay: int, share: float) -> str:
    """How a line of the table of delays is called.

    Parameters
    ----------
    delay : int
        In windows.
    share : float
        The share of queries that get a label.
    """
    return f"{delay}, {share:.0%}"


def _delay_cases() -> Iterator[Case]:
    for name in (*MADE_UP, *REAL):
        runs = 1 if name == "flights3m" else RUNS
        for delay, share in DELAYS:
            if name == "flights3m" and delay > 1:  # it takes too long
                continue
            yield _case("rows late", name, "truth", late(delay, share), runs, labels={"delay": delay, "share": share})
        if name == "flights3m":
            continue
        for delay, share in WAITS:
            yield _case("feedback", name, "feedback", late(delay, share), runs, labels={"delay": delay, "share": share},
                        predictor={} if share == 1 else {"feedback_share": share})  # fmt: skip


def _complaint_cases() -> Iterator[Case]:
    for name in ("stationary", "rotate", "flip", "elec2", "covtype"):
        known: dict[str, Any] = {"first": SOME, "runs": 2}
        yield _case("complaints", name, "feedback", "all labels", **known)
        yield _case("complaints", name, "feedback", "complaints alone", **known, labels={"complaints": 1.0})
        for chance in COMPLAINTS:
            yield _case("complaints", name, "feedback", f"silence is the answer, {chance:g}", **known,
                        labels={"complaints": chance}, predictor={"silence": "answer"})  # fmt: skip


def _self_labelled_cases() -> Iterator[Case]:
    for name in ("rotate", "flip", "stationary", "elec2", "covtype", "nycflights13"):
        for silence in ("drop", "answer"):
            yield _case("self-labelled", name, "feedback", silence, 2, first=200_000, labels={"share": 0.1},
                        predictor={"feedback_share": 0.1, "silence": silence})  # fmt: skip


def _rare_cases() -> Iterator[Case]:
    for weight in WEIGHTS:
        weights = {"0": weight, "1": 1} if weight < 1 else {}
        yield _case("rare", "rare", "truth", f"{weight:g}", weights=weights)


def _hostile_cases() -> Iterator[Case]:
    for name, first in (("stationary", None), ("elec2", None), ("covtype", 150_000)):
        yield _case("hostile", name, "truth", "none", 2, first=first)
        for share in HOSTILE:
            for lie in LIES:
                yield _case("hostile", name, "truth", f"{share:.0%}, {lie}", 2, first=first,
                            labels={"hostile": share, "lie": lie})  # fmt: skip


def _gauge_cases() -> Iterator[Case]:
    for name, first in (("stationary", None), ("rotate", None), ("flip", None), ("covtype", 200_000), ("elec2", None)):
        rows = 2500
        yield _case("gauge", name, "truth", f"{rows // 10} rows", 1, first=first, rows=rows, gauge=True,
                    predictor={"phase_rows": rows})  # fmt: skip


def _vote_cases() -> Iterator[Case]:
    for name, rows, first in (("elec2", 4000, None), ("covtype", 20_000, 200_000)):
        known: dict[str, Any] = {"first": first, "epsilon": 8, "rows": rows, "runs": 1}
        yield _case("votes", name, "votes", "votes, own answers", **known)
        yield _case("votes", name, "votes of truth", "votes of truth", **known)
        yield _case("votes", name, "truth", "chain of truth", **known, predictor={"phase_rows": rows})
        yield _case("votes", name, "truth", "chain of truth, its own windows", 1, first=first, epsilon=8)


# ── the alarm on old rows ─────────────────────────────────────────────────────────────────────────────────────────


def _false_alarms(setting: Setting, folder: Path) -> Found:
    """How often some test raises an alarm, if the answers to the rows are as often right as was declared."""
    labels = np.zeros(setting["old rows"], dtype=np.int64)
    answers = (np.arange(len(labels)) < (1 - setting["accuracy"]) * len(labels) - 1e-9).astype(np.int64)
    alarm, noise = QualityAlarm(accuracy=setting["accuracy"]), Seeded(unsafe_seed=0)
    raised = 0
    for _ in range(setting["runs"]):
        test = OldRowsTest(np.empty((0, 1)), labels, alarm, classes=2, epsilon=Fraction(1), unsafe_noise=noise)
        raised += any(test.lost(answers) for _ in range(setting["tests"]))
    return {"false alarms": raised / setting["runs"]}


def _decay(setting: Setting, folder: Path) -> Found:
    """A chain that learns its own answers, in short phases: how accurate it is when the alarm is raised."""
    at, phases = [], []
    for run in range(setting["runs"]):
        found = stream("stationary", folder, seed=run)
        test, day_one = slice(0, 50_000), slice(50_000, 50_000 + 10 * setting["old rows"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = predictor(
                found, seed=run, learner={}, retrain="always", max_rows=setting["rows"], held_back=0, growth=1,
                alarm=QualityAlarm(accuracy=setting["accuracy"]),
            ).fit(found.X[day_one], found.y[day_one])  # fmt: skip
        generator = np.random.default_rng(run)
        accuracy = 0.0
        while not model.alarms_ and model.phase_ < setting["phases"]:
            accuracy = float((model.model_.predict(found.X[test]) == found.y[test]).mean())
            model.predict(found.X[generator.integers(0, len(found.y), max(1, model.answers_left_in_phase_))])
        if not model.alarms_:
            return {"accuracies": [], "phases": [], "missed": run}
        at.append(round(accuracy, 4))
        phases.append(model.alarms_[0].phase)
    return {"accuracies": at, "phases": phases}


CASES = (
    *_stream_cases(("elec2", *MADE_UP, "covtype", "nycflights13"), "streams"),
    *_gauge_cases(),
    Case("alarm", "false alarms",
         {"accuracy": ACCURACY, "old rows": OLD, "tests": TESTS, "runs": FALSE_ALARM_RUNS}, _false_alarms),
    Case("alarm", "decay",
         {"accuracy": ACCURACY, "old rows": OLD, "rows": SHORT, "phases": LONGEST, "runs": 12}, _decay),
    *_rare_cases(),
    *(case for case in _delay_cases() if case.setting["stream"] != "flights3m"),
    *_complaint_cases(),
    *_self_labelled_cases(),
    *_hostile_cases(),
    *_vote_cases(),
    *_stream_cases(("flights3m",), "streams"),
    *(case for case in _delay_cases() if case.setting["stream"] == "flights3m"),
    *_stream_cases(HELD_OUT, "held out"),
)  # fmt: skip
