"""Failing is an output: on neighbouring data everything fails alike, warns alike, logs alike and prints alike.

Each public class that learns has a case here. A case is fitted on pairs of data sets that differ in one row, or in the
rows of one group, and that are as nasty as we could think of. Whatever can be seen without the result itself must be
the same for both: the error with its message, warnings, log lines, and what is printed. A predictor then answers
queries through the end of a phase, and is looked at again. What is refused because of what a row holds is listed in
docs/what-is-protected.md; nothing else may tell two neighbours apart.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib
import inspect
import io
import logging
import pkgutil
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import reticent as rt
from reticent import cli
from reticent.concepts import Intervals, Thresholds
from reticent.data import shards as shards_module
from reticent.data.groups import LARGEST
from reticent.predictors.bbl_phases import BBLPhase
from reticent.teachers import LogisticTeacher, models

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore::reticent.OneAnswerWarning")
ROWS, TEACHERS = 61, 6  # the last deal has one row
BITS = 4
PROTECTED = Path(__file__).parents[2] / "docs" / "what-is-protected.md"


# ── what can be seen ──────────────────────────────────────────────────────────────────────────────────────────────


class Seen(NamedTuple):
    """Of a call: how it ended, and all that it said on the way."""

    ended: str
    warned: tuple[str, ...]
    logged: tuple[str, ...]
    printed: str


class Recorder(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


@contextlib.contextmanager
def listening() -> Iterator[Recorder]:
    """To all loggers, at all levels; what has no handler at all is printed by Python."""
    recorder, root = Recorder(), logging.getLogger()
    level = root.level
    root.addHandler(recorder)
    root.setLevel(1)
    try:
        yield recorder
    finally:
        root.removeHandler(recorder)
        root.setLevel(level)


def seen(action: Callable[[], object]) -> Seen:
    """What can be seen of a call; not its result, unless it is a string, nor a warning about the result."""
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        listening() as recorder,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        try:
            result = action()
            ended = result if isinstance(result, str) else "done"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            notes = getattr(error, "__notes__", [])
            ended = " ".join([f"{type(error).__name__}: {error}", *notes])
    about_the_result = rt.OneAnswerWarning  # a function of what was released
    told = tuple(
        f"{one.category.__name__}: {one.message}" for one in warned if not issubclass(one.category, about_the_result)
    )
    return Seen(ended, told, tuple(recorder.lines), printed.getvalue())


# ── what may differ ───────────────────────────────────────────────────────────────────────────────────────────────


def refusals() -> dict[str, re.Pattern[str]]:
    """The public list of what is refused because of what a row holds: errors, with … for what varies."""
    text = PROTECTED.read_text(encoding="utf-8").partition("## What `fit` refuses")[2].partition("\n## ")[0]
    quoted = re.findall(r"^\| `([A-Za-z]+: [^`]+)` \|", text, flags=re.MULTILINE)
    return {one: re.compile(".*".join(map(re.escape, one.split("…"))), re.DOTALL) for one in quoted}


def is_listed(one: Seen) -> str | None:
    """The entry of the public list that this is."""
    return next((name for name, pattern in refusals().items() if pattern.fullmatch(one.ended)), None)


# ── nasty neighbours ──────────────────────────────────────────────────────────────────────────────────────────────


class Data(NamedTuple):
    X: Array
    y: Array
    groups: Array | None = None

    def with_row(self, place: int, row: object = None, label: object = None) -> Data:
        """The same with one row replaced."""
        X, y = self.X.copy(), self.y.copy()
        if row is not None:
            X[place] = row
        if label is not None:
            y[place] = label
        return self._replace(X=X, y=y)


class Pair(NamedTuple):
    name: str
    one: Data
    other: Data


PLACE = 17  # of the replaced row


def reals(columns: int) -> Data:
    X = np.random.default_rng(columns).normal(size=(ROWS, columns))
    return Data(X, (X[:, 0] < 0).astype(np.int64))


def places(columns: int) -> Data:
    X = np.random.default_rng(columns).integers(0, 2**BITS, size=(ROWS, columns))
    return Data(X, (X[:, 0] < 2 ** (BITS - 1)).astype(np.int64))


def label_pairs(plain: Data) -> Iterator[Pair]:
    for label in (0, 1):
        all_equal = plain._replace(y=np.full(ROWS, label))
        yield Pair(f"all labels {label}, or one not", all_equal, all_equal.with_row(PLACE, label=1 - label))
        first = all_equal._replace(X=np.repeat(plain.X[:1], ROWS, axis=0))
        yield Pair(f"all rows equal, all labels {label}, or one not", first, first.with_row(PLACE, label=1 - label))
    yield Pair("an undeclared label", plain, plain.with_row(PLACE, label=7))


def row_pairs(plain: Data, odd: list[Any]) -> Iterator[Pair]:
    """A row among ordinary ones, a row among equal ones, and a column that is constant but for one value."""
    equal = plain._replace(X=np.repeat(plain.X[:1], ROWS, axis=0))
    yield Pair("all rows equal, or one not", equal, equal.with_row(PLACE, row=plain.X[PLACE]))
    constant = plain._replace(X=plain.X.copy())
    constant.X[:, -1] = constant.X[0, -1]
    other = constant.X[PLACE].copy()
    other[-1] = plain.X[plain.X[:, -1] != constant.X[0, -1]][0, -1]
    yield Pair("a constant column, or one other value", constant, constant.with_row(PLACE, row=other))
    for value in odd:
        yield Pair(f"a row of {value}", plain, plain.with_row(PLACE, row=value))
        same = plain._replace(X=np.full_like(plain.X, value))
        yield Pair(f"all rows {value}, or one not", same, same.with_row(PLACE, row=plain.X[PLACE]))


def nasty_reals(columns: int) -> list[Pair]:
    plain = reals(columns)
    opposite = plain._replace(X=np.zeros_like(plain.X))
    far = plain._replace(X=np.full_like(plain.X, 1e308))
    bound = plain.with_row(PLACE, row=3 / np.sqrt(columns))  # of length 3, the `row_norm` below
    return [
        *label_pairs(plain),
        *row_pairs(plain, [0.0, 5e-324, 1e-308, 1e308, -1e308]),
        Pair("all 0, or one -0", opposite, opposite.with_row(PLACE, row=-0.0)),
        Pair("all 1e308, or one -1e308", far, far.with_row(PLACE, row=-1e308)),
        Pair("at the bound, or beyond", bound, bound.with_row(PLACE, row=3.1 / np.sqrt(columns))),
        Pair("a NaN", plain, plain.with_row(PLACE, row=np.nan)),
        Pair("an infinite number", plain, plain.with_row(PLACE, row=-np.inf)),
    ]


def nasty_places(columns: int) -> list[Pair]:
    plain, largest = places(columns), 2**BITS - 1
    bound = plain.with_row(PLACE, row=largest)
    return [
        *label_pairs(plain),
        *row_pairs(plain, [0, largest]),
        Pair("at the bound, or beyond", bound, bound.with_row(PLACE, row=largest + 1)),
        Pair("at the bound, or below", plain.with_row(PLACE, row=0), plain.with_row(PLACE, row=-1)),
    ]


def nasty_classes() -> list[Pair]:
    """Three classes, of which some are absent."""
    plain = reals(2)
    y = np.digitize(plain.X[:, 0], [-0.5, 0.5])
    two = plain._replace(y=np.minimum(y, 1))
    none = plain._replace(y=np.full(ROWS, 2))
    return [
        Pair("a class absent, or in one row", two, two.with_row(PLACE, label=2)),
        Pair("only the last class, or one row of the first", none, none.with_row(PLACE, label=0)),
    ]


def nasty_groups() -> list[Pair]:
    """A group is replaced as a whole: one row, as many as fit, and one more. Groups are public, so they stay."""
    plain = reals(2)
    most = LARGEST * -(-ROWS // TEACHERS)
    found = []
    for size in (1, most, most + 1, ROWS):
        groups = np.maximum(np.arange(ROWS) - size + 1, 0)
        other = plain.X.copy()
        other[groups == 0] = 1e308
        for label in (0, 1):
            y = np.where(groups == 0, label, 0)
            found.append(
                Pair(f"a group of {size}, labelled {label}", plain._replace(y=0 * y, groups=groups),
                     Data(other, y, groups))
            )  # fmt: skip
    return found


KINDS: dict[str, Callable[[], list[Pair]]] = {
    "reals": lambda: nasty_reals(2),
    "column": lambda: nasty_reals(1),
    "places": lambda: nasty_places(1),
    "plane": lambda: nasty_places(2),
    "classes": nasty_classes,
    "groups": nasty_groups,
}


# ── every public class that learns ────────────────────────────────────────────────────────────────────────────────


class Case(NamedTuple):
    """How a class is fitted, and what is done with it afterwards; a string that this gives is part of what is seen."""

    learner: type
    kinds: tuple[str, ...]
    fit: Callable[[Data, str], Any]
    then: Callable[[Any, Data], object] = lambda model, data: model.predict(data.X[:5])


DP: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "unsafe_seed": 1}
PURE: dict[str, Any] = {"epsilon": 8, "unsafe_seed": 1}


def classes_of(kind: str) -> tuple[int, ...]:
    return (0, 1, 2) if kind == "classes" else (0, 1)


def fit_plainly(make: Callable[[], Any]) -> Callable[[Data, str], Any]:
    return lambda data, kind: make().fit(data.X, data.y)


def fit_grouped(make: Callable[[tuple[int, ...]], Any]) -> Callable[[Data, str], Any]:
    def fit(data: Data, kind: str) -> Any:
        if data.groups is None:
            return make(classes_of(kind)).fit(data.X, data.y)
        return make(classes_of(kind)).fit(data.X, data.y, groups=data.groups)

    return fit


def teachers(estimator: Any) -> Callable[[Data, str], Any]:
    return fit_grouped(lambda classes: rt.Teachers(estimator, shards=TEACHERS, classes=classes))


def everlasting(learner: Any, **options: Any) -> Callable[[Data, str], Any]:
    votes = {"rows_per_teacher": 10, "most_noise": 1e9}
    return fit_grouped(
        lambda classes: rt.EverlastingPredictor(learner, **DP, classes=classes, **votes | options)
    )


NASTY_QUERIES = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 2.0**BITS, -1.0)


def queries(columns: int, odd: float | None, *, whole: bool) -> Array:
    """More than a first phase answers, of which one in ten is nasty; and one more, if `odd` is given."""
    X = places(columns).X.astype(float) if whole else reals(columns).X
    asked = np.tile(X, (3, 1))[: 2 * ROWS + 9]
    for at, value in enumerate(NASTY_QUERIES):
        asked[5 + 10 * at] = value
    if odd is not None:
        asked[3] = odd
    return asked


def ask_through_a_phase(model: Any, data: Data, odd: float | None = None) -> str:
    """The queries are the same for both neighbours; what the clock shows afterwards must be the same too."""
    asked = queries(data.X.shape[1], odd, whole=data.X.dtype.kind == "i")
    clients = None if data.groups is None else [f"client {one % 40}" for one in range(len(asked))]
    found = model.answer(asked) if clients is None else model.answer(asked, clients)
    first = getattr(model, "phase_number_", None) or model.phase_
    given, left = len(found.class_indices), model.answers_left_in_phase_
    return f"{given} answers, phase {first}, {left} left, refused: {found.refused}"


def ask_votes(model: Any, data: Data) -> None:
    model.votes(np.array([[value] * data.X.shape[1] for value in NASTY_QUERIES if np.isfinite(value)]))


BBL: dict[str, Any] = {"teachers": TEACHERS, "shard": 10, "answers": 130, "vote_epsilon": 7, "vote_delta": 1e-6}
BBL_PHASES = [BBLPhase(**BBL, scored=20, drawn=60), BBLPhase(**BBL)]
THRESHOLDS, PLACES = Thresholds(), Thresholds(bits=BITS)
PUBLIC = np.linspace(-2, 2, 20)[:, None]


def pate(teacher: Any, **options: Any) -> Callable[[Data, str], Any]:
    def fit(data: Data, kind: str) -> Any:
        model = rt.PATEClassifier(
            teacher=teacher, n_teachers=TEACHERS, labeller="gnmax", epsilon=500, delta=1e-6, classes=classes_of(kind),
            unsafe_seed=1, **options,
        )  # fmt: skip
        public = reals(2).X[:20]
        return model.fit(data.X, data.y, public=public, **({} if data.groups is None else {"groups": data.groups}))

    return fit


def boosted() -> Any:
    return rt.LabelBoost(rt.ThresholdLearner(bits=BITS, epsilon=1), PLACES, **DP)


def halves(fit: Callable[[Array, Array], Any]) -> Callable[[Data, str], Any]:
    """Every second row has no label, which is public."""
    return lambda data, kind: fit(data.X, np.where(np.arange(ROWS) % 2 == 0, -1, data.y))


VOTERS = ("reals", "classes", "groups")
CASES: dict[str, Case] = {
    # learners
    "schema": Case(
        rt.PrivateSchema, ("reals", "groups"),
        fit_grouped(lambda classes: rt.PrivateSchema(**DP)),
        lambda model, data: model.transform(data.X[:5]),
    ),
    "pipeline": Case(
        rt.PrivatePipeline, ("reals", "classes", "groups"),
        fit_grouped(lambda classes: rt.PrivatePipeline(**DP, classes=classes, schema_share=0.5)),
    ),
    "point": Case(rt.PointLearner, ("places",), fit_plainly(lambda: rt.PointLearner(bits=BITS, **DP))),
    "threshold": Case(rt.ThresholdLearner, ("places",), fit_plainly(lambda: rt.ThresholdLearner(bits=BITS, **PURE))),
    "threshold, delta": Case(
        rt.ThresholdLearner, ("places",), fit_plainly(lambda: rt.ThresholdLearner(bits=BITS, depth=1, **DP))
    ),
    "charged": Case(
        rt.Charged,
        ("places",),
        fit_plainly(
            lambda: rt.Charged(rt.ThresholdLearner(bits=BITS, epsilon=1), rt.Ledger(rt.Guarantee(epsilon=1.0)))
        ),
    ),
    "rectangle": Case(rt.RectangleLearner, ("plane",), fit_plainly(lambda: rt.RectangleLearner(bits=BITS, **DP))),
    "exponential": Case(rt.ExponentialLearner, ("places",), fit_plainly(lambda: rt.ExponentialLearner(PLACES, **PURE))),
    "label-private": Case(
        rt.LabelPrivateLearner, ("column", "places"), fit_plainly(lambda: rt.LabelPrivateLearner(THRESHOLDS, **PURE))
    ),
    "semi-private": Case(
        rt.SemiPrivateLearner,
        ("column",),
        lambda data, kind: rt.SemiPrivateLearner(THRESHOLDS, **PURE).fit(data.X, data.y, public=PUBLIC),
    ),
    "semi-supervised": Case(
        rt.SemiSupervisedLearner, ("places",), halves(lambda X, y: rt.SemiSupervisedLearner(PLACES, **PURE).fit(X, y))
    ),
    "label boost": Case(rt.LabelBoost, ("places",), halves(lambda X, y: boosted().fit(X, y))),
    "active": Case(
        rt.ActiveLearner,
        ("places",),
        lambda data, kind: rt.ActiveLearner(rt.ThresholdLearner(bits=BITS, epsilon=1), **PURE).fit(
            data.X, data.y, n_labels=30
        ),
    ),
    "sanitized": Case(
        rt.SanitizedLearner,
        ("places",),
        fit_plainly(lambda: rt.SanitizedLearner(rt.ThresholdSanitizer(bits=BITS, epsilon=1), PLACES, **PURE)),
    ),
    "logistic": Case(
        rt.PrivateLogisticRegression,
        ("reals", "classes"),
        lambda data, kind: rt.PrivateLogisticRegression(**DP, row_norm=3, classes=classes_of(kind)).fit(data.X, data.y),
    ),
    "logistic, Fourier": Case(
        rt.PrivateLogisticRegression,
        ("reals",),
        fit_plainly(lambda: rt.PrivateLogisticRegression(
            **DP, row_norm=3, classes=(0, 1), fourier_features=4, fourier_seed=1
        )),
    ),
    "comparison": Case(
        rt.PrivateComparison,
        ("reals", "classes"),
        lambda data, kind: rt.PrivateComparison(
            [rt.PrivateLogisticRegression(**DP, row_norm=3, fourier_features=each) for each in (None, 4)],
            **DP, classes=classes_of(kind),
        ).fit(data.X, data.y),
    ),
    # sanitizers
    "points": Case(
        rt.PointSanitizer, ("places",), fit_plainly(lambda: rt.PointSanitizer(bits=BITS, **DP)),
        lambda model, data: model.frequency(rt.concepts.Point(3)),
    ),
    "points, choosing": Case(
        rt.PointSanitizer,
        ("places",),
        fit_plainly(lambda: rt.PointSanitizer(bits=BITS, method="choosing", rounds=2, **DP)),
        lambda model, data: model.frequency(rt.concepts.Point(3)),
    ),
    "thresholds": Case(
        rt.ThresholdSanitizer, ("places",), fit_plainly(lambda: rt.ThresholdSanitizer(bits=BITS, **PURE)),
        lambda model, data: model.frequency(rt.concepts.Threshold(3)),
    ),
    "net": Case(
        rt.NetSanitizer, ("places",), fit_plainly(lambda: rt.NetSanitizer(Thresholds(bits=2), **PURE)),
        lambda model, data: model.frequency(rt.concepts.Threshold(3)),
    ),
    # teachers
    "default teachers": Case(rt.Teachers, VOTERS, teachers(None), ask_votes),
    "teachers by Newton": Case(rt.Teachers, VOTERS, teachers(LogisticRegression()), ask_votes),
    "scaled teachers": Case(
        rt.Teachers, VOTERS, teachers(make_pipeline(StandardScaler(), LogisticTeacher())), ask_votes
    ),
    "trees": Case(rt.Teachers, VOTERS, teachers(DecisionTreeClassifier()), ask_votes),
    "naive Bayes": Case(rt.Teachers, VOTERS, teachers(GaussianNB()), ask_votes),
    "stochastic gradient": Case(rt.Teachers, ("reals",), teachers(SGDClassifier(max_iter=2)), ask_votes),
    "forests": Case(
        rt.Teachers, ("classes", "groups"), teachers(RandomForestClassifier(2, oob_score=True)), ask_votes
    ),
    "threshold teachers": Case(rt.Teachers, ("column",), teachers(THRESHOLDS), ask_votes),
    "interval teachers": Case(rt.Teachers, ("column", "places"), teachers(Intervals()), ask_votes),
    "PATE": Case(rt.PATEClassifier, VOTERS, pate(None)),
    "PATE, trees": Case(rt.PATEClassifier, VOTERS, pate(DecisionTreeClassifier(), student=DecisionTreeClassifier())),
    # predictors
    "stable": Case(
        rt.StablePredictor, ("column",),
        fit_plainly(lambda: rt.StablePredictor(THRESHOLDS, stability=0.5, unsafe_seed=1)),
    ),
    "private, votes": Case(
        rt.PrivatePredictor, ("reals", "groups"),
        fit_grouped(lambda classes: rt.PrivatePredictor(**DP, queries=5, teachers=TEACHERS)),
    ),
    "private, flip": Case(
        rt.PrivatePredictor, ("column",),
        fit_plainly(lambda: rt.PrivatePredictor(THRESHOLDS, **DP, method="flip", queries=1)),
        lambda model, data: model.predict(data.X[:1]),
    ),
    "private, net": Case(
        rt.PrivatePredictor, ("column",),
        fit_plainly(lambda: rt.PrivatePredictor(
            THRESHOLDS, epsilon=60, delta=1e-6, unsafe_seed=1, method="net", queries=1
        )),
        lambda model, data: model.predict(data.X[:1]),
    ),
    "everlasting": Case(rt.EverlastingPredictor, VOTERS, everlasting(None), ask_through_a_phase),
    "everlasting, linear": Case(
        rt.EverlastingPredictor, ("reals",), everlasting(LogisticRegression()), ask_through_a_phase
    ),
    "everlasting, trees": Case(
        rt.EverlastingPredictor, VOTERS, everlasting(DecisionTreeClassifier()), ask_through_a_phase
    ),
    "everlasting, naive Bayes": Case(
        rt.EverlastingPredictor, ("reals",), everlasting(GaussianNB()), ask_through_a_phase
    ),
    "everlasting, thresholds": Case(
        rt.EverlastingPredictor, ("column",), everlasting(THRESHOLDS), ask_through_a_phase
    ),
    "everlasting, intervals": Case(
        rt.EverlastingPredictor, ("column", "places"), everlasting(Intervals()), ask_through_a_phase
    ),
    "everlasting, from files": Case(
        rt.EverlastingPredictor, ("reals",), everlasting(DecisionTreeClassifier(max_depth=1), memory_limit=0),
        ask_through_a_phase,
    ),
    "chain": Case(
        rt.EverlastingPredictor, ("reals", "classes", "groups"),
        everlasting(rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3)), ask_through_a_phase,
    ),
    "chain, always": Case(
        rt.EverlastingPredictor, ("reals",),
        everlasting(rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3), retrain="always"),
        ask_through_a_phase,
    ),
    "chain of thresholds": Case(
        rt.EverlastingPredictor, ("places",),
        everlasting(rt.ThresholdLearner(bits=BITS, epsilon=1), retrain="always"), ask_through_a_phase,
    ),
    "BBL": Case(
        rt.GenericBBL, ("column", "places"),
        fit_plainly(lambda: rt.GenericBBL(THRESHOLDS, epsilon=12, delta=1e-5, labeller="gaussian", phases=BBL_PHASES,
                                          unsafe_seed=1)),
        ask_through_a_phase,
    ),
}  # fmt: skip

WITHOUT_A_CASE = {
    "LogisticTeacher": "a teacher; here it is fitted inside Teachers",
    "NoiseAware": "a student: it learns from released labels",
    "VotingStudents": "a student: it learns from released labels",
    "Sanitizer": "what sanitizers have in common",
}


def public_learners() -> dict[str, type]:
    """The classes with a `fit` among the public names of the package and of its packages."""
    packages = [one.name for one in pkgutil.iter_modules(rt.__path__) if one.ispkg]
    modules = [rt, *(importlib.import_module(f"reticent.{name}") for name in packages)]
    found = {
        name: getattr(module, name)
        for module in modules
        for name in getattr(module, "__all__", ())
        if inspect.isclass(getattr(module, name)) and hasattr(getattr(module, name), "fit")
    }
    assert {"ThresholdLearner", "NetSanitizer", "Teachers", "EverlastingPredictor"} <= set(found)
    return found


def test_every_public_class_that_learns_has_a_case() -> None:
    found = public_learners()
    missing = {name for name, one in found.items() if one not in {case.learner for case in CASES.values()}}
    assert missing == set(WITHOUT_A_CASE)


# ── the test ──────────────────────────────────────────────────────────────────────────────────────────────────────


def looked_at(case: Case, data: Data, kind: str) -> tuple[Seen, Seen | None]:
    """What is seen of fitting, and of what follows."""
    fitted: list[Any] = []
    first = seen(lambda: fitted.append(case.fit(data, kind)))
    return first, seen(lambda: case.then(fitted[0], data)) if fitted else None


def told_apart(case: Case, pair: Pair, kind: str) -> str | None:
    """What tells the neighbours apart, if anything does; what is on the public list may."""
    one, other = (looked_at(case, data, kind) for data in (pair.one, pair.other))
    if one == other or any(is_listed(first) for first, _ in (one, other)):
        return None
    return f"{pair.name}: {one} ≠ {other}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_neighbours_fail_alike(name: str) -> None:
    case = CASES[name]
    found = [told_apart(case, pair, kind) for kind in case.kinds for pair in KINDS[kind]()]
    assert [one for one in found if one is not None] == []


def cells(plain: Data) -> list[Pair]:
    """A text, or nothing, in a column of numbers."""
    objects = plain._replace(X=plain.X.astype(object))
    return [Pair(f"{odd!r} for a number", objects, objects.with_row(PLACE, row=odd)) for odd in ("a", np.nan)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "net"])
def test_what_is_refused_for_what_a_row_holds_is_on_the_public_list(name: str) -> None:
    case = CASES[name]
    plains = {"reals": reals(2), "column": reals(1), "places": places(1), "plane": places(2)}
    pairs = [(pair, kind) for kind in case.kinds if kind in plains for pair in cells(plains[kind])]
    assert [told for pair, kind in pairs if (told := told_apart(case, pair, kind)) is not None] == []


class Failing:
    """A value whose own code fails, with a message that holds data."""

    def __float__(self) -> float:
        raise KeyError("SECRET")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("SECRET")

    def __hash__(self) -> int:
        raise OSError("SECRET")

    def __repr__(self) -> str:
        return "SECRET"


class FailingNumber(int):
    def __int__(self) -> int:
        raise KeyError("SECRET")

    __index__ = __float__ = __int__


ODD: dict[str, Any] = {
    "text": "SECRET", "bytes": b"\xffSECRET", "none": None, "NaN": np.nan, "NA": pd.NA, "complex": 1j, "list": [1],
    "array": np.array([1.0]), "dict": {"SECRET": 1}, "large": 10**400, "date": datetime.date(2000, 1, 1),
    "signal": decimal.Decimal("sNaN"), "failing": Failing(), "failing number": FailingNumber(1), "fraction": 0.123,
}  # fmt: skip
LISTED = ["logistic", "trees", "private, votes", "private, flip", "everlasting", "threshold teachers", "threshold"]


def in_lists(name: str, odd: object, where: str) -> Seen:
    """What is seen of fitting lists, one value of which is odd: NumPy reads them by its own rules."""
    case = CASES[name]
    kind = case.kinds[0]
    plain = places(1) if kind == "places" else reals(2 if kind == "reals" else 1)
    X, y = plain.X.tolist(), plain.y.tolist()
    if where == "X":
        X[PLACE][0] = odd
    else:
        y[PLACE] = odd
    return looked_at(case, Data(X, y), kind)[0]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("name", LISTED)
def test_an_odd_value_in_a_list_is_taken_or_refused_by_the_public_list(name: str, where: str) -> None:
    found = {what: in_lists(name, odd, where) for what, odd in ODD.items()}
    assert {what: one for what, one in found.items() if one.ended != "done" and is_listed(one) is None} == {}
    assert "SECRET" not in str(found)
    assert not any(one.warned or one.logged or one.printed for one in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "trees", "private, votes", "everlasting", "threshold teachers"])
def test_one_message_refuses_all_labels_that_are_no_class(name: str) -> None:
    assert len({in_lists(name, odd, "y").ended for odd in ODD.values()} - {"done"}) == 1


def test_concept_learners_do_not_tell_the_type_of_a_bad_cell() -> None:
    odd = ("text", "none", "NA", "list", "dict", "date", "signal", "failing")
    for where in ("X", "y"):
        assert len({in_lists("threshold", ODD[one], where).ended for one in odd}) == 1


def test_the_public_list_is_not_longer_than_it_must_be() -> None:
    """Each of its entries is met by some case."""
    refusing = ("a NaN", "at the bound, or beyond", "an undeclared label")
    met = set()
    for name in ("logistic", "point", "everlasting", "threshold teachers"):
        case = CASES[name]
        kind = case.kinds[0]
        plain = places(1) if kind == "places" else reals(2 if kind == "reals" else 1)
        for pair in [pair for pair in KINDS[kind]() if pair.name in refusing] + cells(plain):
            met.add(is_listed(looked_at(case, pair.other, kind)[0]))
    for name in ("logistic", "everlasting", "threshold"):
        met |= {is_listed(in_lists(name, ODD[odd], where)) for odd in ("complex", "list", "fraction") for where in "Xy"}
    assert met - {None} == set(refusals())


PREDICTORS = [name for name, case in CASES.items() if case.then is ask_through_a_phase]


@pytest.mark.parametrize("name", PREDICTORS)
def test_neighbouring_queries_fail_alike(name: str) -> None:
    """One query is replaced. What others see, the clock and whatever is said, is the same to the end of the phase."""
    case = CASES[name]
    kind = case.kinds[0]
    data = KINDS[kind]()[0].other

    def looked(odd: float | None) -> Seen:
        model = case.fit(data, kind)
        return seen(lambda: ask_through_a_phase(model, data, odd))

    expected = looked(None)
    assert "phase 2" in expected.ended
    assert "refused: None" in expected.ended
    assert {odd: looked(odd) for odd in (np.nan, 1e308, -1e308, 5e-324)} == dict.fromkeys(
        (np.nan, 1e308, -1e308, 5e-324), expected
    )


MAY_OVERFLOW = [
    name
    for name in (*PREDICTORS, "logistic", "trees", "naive Bayes", "private, votes")
    if CASES[name].kinds[0] in ("reals", "column")  # no whole number of the other kinds makes anything overflow
]


@pytest.mark.parametrize("name", MAY_OVERFLOW)
def test_nothing_fails_where_warnings_are_errors(name: str) -> None:
    """As under `python -W error`: a warning that is not silenced would end a fit, or a phase, for some rows only."""
    case = CASES[name]
    kind = case.kinds[0]
    pairs = [pair for pair in KINDS[kind]() if pair.name in ("a row of 1e308", "all 1e308, or one -1e308")]
    for data in (data for pair in pairs for data in pair[1:]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", rt.OneAnswerWarning)  # a function of what was released
            told = case.then(case.fit(data, kind), data)
        assert not isinstance(told, str) or "phase 2" in told


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("name", ["default teachers", "trees", "interval teachers", "everlasting, trees"])
def test_neighbours_fail_alike_where_one_row_more_than_fits_is_read(
    name: str, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that are read some at a time, all are read at once, or all but the last."""
    case = CASES[name]
    kind = case.kinds[0]
    pairs = [pair for pair in KINDS[kind]() if "labels" in pair.name or "1e308" in pair.name]
    row = 64 + 8 * pairs[0].one.X.shape[1]
    monkeypatch.setattr(shards_module, "BLOCK", 1)  # one shard at a time
    monkeypatch.setattr(shards_module, "LOAD", (ROWS - spare) * row)
    assert [told for pair in pairs if (told := told_apart(case, pair, kind)) is not None] == []


# ── by the command line ───────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = """\
target = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
range = [0, 100]
"""


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["trees", "thresholds"])
def test_the_command_line_fails_alike(learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All labels equal, or one not; a row within the range, or beyond: one exit code, and the same is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    ages = np.random.default_rng(0).integers(0, 100, size=600).tolist()

    def command(first: str) -> Seen:
        shutil.rmtree("home", ignore_errors=True)
        lines = [first, *(f"{age},no" for age in ages[1:])]
        (tmp_path / "table.csv").write_text("age,ill\n" + "\n".join(lines) + "\n")
        options = ("--epsilon", "30", "--delta", "1e-6", "--learner", learner, "--answers", "3", "--yes")
        return seen(lambda: str(cli.main(["fit", "table.csv", "--schema", "schema.toml", "--name", "ill", *options])))

    found = [command(row) for row in ("1,no", "1,yes", "1e308,yes", "nan,")]
    assert found[0].ended == "0"
    assert found == [found[0]] * 4


# ── twins that must be told apart ─────────────────────────────────────────────────────────────────────────────────


class Twin(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns nothing, and behaves otherwise if some row has the label 1."""

    def __init__(self, how: str) -> None:
        self.how = how

    def fit(self, X: Array, y: Array) -> Twin:
        if len(np.unique(y)) > 1:
            behaviours: dict[str, Callable[[], object]] = {
                "raises": self._raise,
                "warns": lambda: warnings.warn("two classes", stacklevel=1),
                "logs": lambda: logging.getLogger("reticent.twin").info("two classes"),
                "prints": lambda: print("two classes"),
                "logs where nobody listens": self._log_alone,
                "exits": sys.exit,
                "nothing": lambda: None,
            }
            behaviours[self.how]()
        return self

    def _raise(self) -> None:
        raise ValueError("two classes")

    def _log_alone(self) -> None:
        log = logging.Logger("alone")  # below no other logger, and without a handler: Python prints its lines
        log.warning("two classes")

    def predict(self, X: Array) -> Array:
        return np.zeros(len(X), dtype=np.int64)


@pytest.mark.parametrize(
    "how", ["raises", "warns", "logs", "prints", "logs where nobody listens", "exits", "nothing"]
)
def test_a_twin_that_tells_of_a_label_is_told_apart(how: str) -> None:
    case = Case(Twin, ("reals",), fit_plainly(lambda: Twin(how)))
    found = [told_apart(case, pair, "reals") for pair in KINDS["reals"]() if pair.name.startswith("all labels")]
    assert all((one is None) == (how == "nothing") for one in found)


def test_the_twin_that_needs_a_model_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all shards have one class, no teacher is fitted: one that takes anything from the first model fails."""
    right = models._trees

    def trees(fitted: list[Any], shards: shards_module.Shards) -> Any:
        next(one for one in fitted if one is not None).get_depth()
        return right(fitted, shards)

    case = CASES["everlasting, trees"]
    pair = next(pair for pair in KINDS["reals"]() if pair.name == "all labels 0, or one not")
    assert told_apart(case, pair, "reals") is None
    monkeypatch.setattr(models, "_trees", trees)
    assert "StopIteration" in str(told_apart(case, pair, "reals"))
