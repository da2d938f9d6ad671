"""Table 4 of *Revisiting Model-Agnostic Private Learning*, measured again, beside what does better."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import normalize

from reticent import labellers
from reticent.experiments import datasets
from reticent.experiments.table import Table
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.noise import Seeded
from reticent.teachers import PATEClassifier, Teachers, queries, students
from reticent.teachers.queries import Chooser, Transcript
from reticent.teachers.space import PublicSpace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Row = dict[str, list[float]]  # one split: for each method its accuracy at each ε
Results = dict[str, dict[str, Floats]]  # for each data set and method: a row a split, a column an ε

EPSILONS = (0.5, 1.0, 2.0)
PRIVATE, PUBLIC = 0.8, 0.02  # of the rows; the rest is for the test
ROWS_A_TEACHER = 100  # of the paper
SHARE = 0.3  # of the public rows that are asked actively
SPLITS = {"mushrooms": 30, "a9a": 30, "phishing_urls": 10, "enron_spam": 10}
# Row lengths that are known without the rows: of so many one-hot attributes, or after normalisation.
ROW_NORMS = {"mushrooms": math.sqrt(22), "a9a": math.sqrt(14), "phishing_urls": 1.0, "enron_spam": 1.0}
MEASURED = Path(__file__).with_name("table4.json")

PSQ, ASQ, RANDOM, ASKED = "PSQ", "ASQ", "random 30 %", "asked by ASQ"
STRONGER = "PSQ, α = 0.001"  # the student's ridge, which is 0.0001 otherwise
RIDGES_ON = "mushrooms"  # where what was printed can be right, and is compared
OURS, OURS_RANDOM, ONE_SHOT, NOT_PRIVATE = "defaults", "defaults, random 30 %", "one shot", "not private"

# What the paper prints at ε = 0.5, 1, 2 and without noise: accuracy, ±; and the mean number of rows that ASQ asked.
PRINTED = {
    "mushrooms": {
        PSQ: ((0.6416, 0.0036), (0.7534, 0.0045), (0.8974, 0.0027), (0.9773, 0.0006)),
        ASQ: ((0.6418, 0.0091), (0.7727, 0.0098), (0.8858, 0.0059), (0.9146, 0.0036)),
    },
    "a9a": {
        PSQ: ((0.5040, 0.0034), (0.5171, 0.0050), (0.5176, 0.0070), (0.5555, 0.0157)),
        ASQ: ((0.5212, 0.0088), (0.5369, 0.0103), (0.5543, 0.0089), (0.5461, 0.0160)),
    },
}
PRINTED_ASKED = {"mushrooms": (40.1, 42.9, 46.5, 47.3), "a9a": (293.0, 290.8, 290.3, 225.6)}
PRINTED_SPLITS = 30


def tables() -> list[Table]:
    """The paper's method again, what does better, and whether the two measurements agree."""
    results = _results()
    return [_again(results), _better(results), _agreement(results)]


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep the accuracies of every split in `table4.json` beside this module.

    Every split is kept as soon as it is measured: if interrupted, measuring goes on after the last one. All noise is
    seeded by the number of the split, so measuring again gives the same figures, but for few cells of `PATEClassifier`,
    in which the last bits of sums seem to decide.
    """
    kept = _read() if MEASURED.exists() else {}
    if kept.get("parameters") != _parameters() or all(len(kept["results"][name]) == SPLITS[name] for name in SPLITS):
        kept = {"parameters": _parameters(), "results": {name: [] for name in SPLITS}}
    for name, count in SPLITS.items():
        X, y = rows_of(name, folder)
        for split in range(len(kept["results"][name]), count):
            kept["results"][name].append(accuracies(Split(X, y, ROW_NORMS[name], split), ridges=name == RIDGES_ON))
            _write(kept)


def rows_of(name: str, folder: Path | None) -> tuple[Any, Integers]:
    """A data set as it is learned from: text with rows of length 1, one-hot rows as they are."""
    X, y = datasets.load(name, folder)
    return (normalize(X) if ROW_NORMS[name] == 1 else X), y


def sizes(rows: int) -> tuple[int, int]:
    """How many rows are private, and how many public.

    >>> sizes(8_124), sizes(48_842)
    ((6499, 163), (39074, 976))
    """
    private = round(PRIVATE * rows)
    return private, round((PRIVATE + PUBLIC) * rows) - private


@dataclass(frozen=True)
class Split:
    """A data set with its rows in a random order: 80 % are private, 2 % public, 18 % for the test."""

    X: Any
    y: Integers
    row_norm: float
    seed: int

    @cached_property
    def parts(self) -> tuple[Integers, Integers, Integers]:
        """The places of private, public and test rows."""
        rows = len(self.y)
        order = np.random.default_rng(self.seed).permutation(rows)
        private, public = sizes(rows)
        return order[:private], order[private : private + public], order[private + public :]

    @cached_property
    def private(self) -> tuple[Any, Integers]:
        """Private rows and their labels."""
        return self.X[self.parts[0]], self.y[self.parts[0]]

    @cached_property
    def public(self) -> Any:
        """Public rows; their labels are not for use."""
        return self.X[self.parts[1]]

    @property
    def asked(self) -> int:
        """How many public rows an active learner may ask about."""
        return math.ceil(SHARE * len(self.parts[1]))

    @property
    def delta(self) -> float:
        """One over the number of private rows, as in the paper: too large for use, as it lets a row be published."""
        return 1 / len(self.private[1])

    def accuracy(self, model: Any) -> float:
        """On the test rows."""
        test = self.parts[2]
        return round(float(np.mean(np.asarray(model.predict(self.X[test])) == self.y[test])), 5)


def accuracies(split: Split, *, ridges: bool = False) -> Row:
    """The accuracy of every method on one split: at each ε, and last without noise where there is that.

    With `ridges` also that of a student of PSQ with more ridge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # δ = 1/n is warned about, rightly
        found = _theirs(split, ridges=ridges)
        known: dict[str, Any] = {"delta": split.delta, "classes": (0, 1), "unsafe_seed": split.seed}
        for epsilon in EPSILONS:
            for method, way in ((OURS, "active"), (OURS_RANDOM, "passive")):
                model = PATEClassifier(epsilon=epsilon, queries=way, n_queries=split.asked, **known)
                model.fit(*split.private, public=split.public)
                found.setdefault(method, []).append(split.accuracy(model))
            one_shot = PrivateLogisticRegression(epsilon=epsilon, row_norm=split.row_norm, **known)
            found.setdefault(ONE_SHOT, []).append(split.accuracy(one_shot.fit(*split.private)))
        found[NOT_PRIVATE] = [split.accuracy(LogisticRegression(max_iter=1000).fit(*split.private))]
    return found


def _theirs(split: Split, *, ridges: bool) -> Row:
    """The paper's set-up: linear models by stochastic gradients, a hundred rows a teacher, Gaussian noise.

    The teachers do not depend on ε or on what is asked, so they learn once.
    """
    teachers = Teachers(
        SGDClassifier(), shards=len(split.private[1]) // ROWS_A_TEACHER, classes=(0, 1), random_state=split.seed
    )
    votes = teachers.fit(*split.private).votes(split.public)
    points = PublicSpace().fit(split.public).transform(split.public)
    found: Row = {PSQ: [], ASQ: [], RANDOM: [], ASKED: []}
    for epsilon in (*EPSILONS, None):
        for method, limit in ((PSQ, len(votes)), (ASQ, split.asked), (RANDOM, split.asked)):
            transcript = Transcript(len(votes), limit)
            queries.run(
                _chooser(method, transcript, points, split.seed),
                transcript,
                votes.__getitem__,
                _labeller(teachers.n_teachers_, limit, epsilon, split),
            )
            found[method].append(_taught(split, transcript))
            if method == ASQ:
                found[ASKED].append(float(len(transcript.asked)))
            if method == PSQ and ridges:
                found.setdefault(STRONGER, []).append(_taught(split, transcript, alpha=0.001))
    return found


def _taught(split: Split, transcript: Transcript, **options: float) -> float:
    """The accuracy of a student of the released labels."""
    student = SGDClassifier(random_state=split.seed, **options)
    return split.accuracy(students.fit_student(student, split.public, transcript, semi_supervised=False))


def _chooser(method: str, transcript: Transcript, points: Floats, seed: int) -> Chooser:
    """Which rows are asked; the order of public rows is random already, so the first ones are random ones.

    ASQ asks where a linear model that is nearly as good as the best says otherwise. As in the practical algorithm that
    the paper uses, the errors of that model are a surrogate's: squared ones, for which it is found in closed form.
    """
    if method == ASQ:
        return queries.by_ridge_disagreement(transcript, points, classes=2, random_state=seed)
    return queries.passive(transcript)


class _Majority:
    """Not a labeller: the class with most votes, without noise."""

    closed = False

    def label(self, votes: Integers) -> Integers:
        return np.asarray(votes.argmax(axis=1), dtype=np.int64)


def _labeller(teachers: int, answers: int, epsilon: float | None, split: Split) -> Any:
    if epsilon is None:
        return _Majority()
    return labellers.make(
        "gaussian",
        teachers=teachers,
        epsilon=epsilon,
        delta=split.delta,
        answers=answers,
        unsafe_noise=Seeded(unsafe_seed=split.seed),
    )


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────


def _parameters() -> dict[str, Any]:
    return {
        "epsilons": list(EPSILONS),
        "delta": "1/n",
        "private": PRIVATE,
        "public": PUBLIC,
        "rows a teacher": ROWS_A_TEACHER,
        "asked": SHARE,
        "splits": SPLITS,
    }


def _read() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return kept


def _write(kept: dict[str, Any]) -> None:
    """One line a split, so that changes can be read."""
    parts = [
        json.dumps(name) + ": [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for name, rows in kept["results"].items()
    ]
    text = (
        '{"made by": "reticent experiment table4 --data DIR",\n'
        f'"parameters": {json.dumps(kept["parameters"])},\n"results": {{\n' + ",\n".join(parts) + "\n}}\n"
    )
    partial = MEASURED.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(MEASURED)


def _results() -> Results:
    """For each data set and method the accuracies, a row a split and a column an ε."""
    kept = _read()
    if kept["parameters"] != _parameters():
        raise ValueError("table4.json was measured with other parameters: measure again with --data")
    return {
        name: {method: np.array([row[method] for row in rows]) for method in rows[0]}
        for name, rows in kept["results"].items()
        if len(rows) > 1
    }


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────

NOISELESS = len(EPSILONS)  # the place of what was measured without noise


def half_width(accuracies: Floats) -> Floats:
    """1.96 standard errors of the mean over the splits, for each ε."""
    return np.asarray(1.96 * np.std(accuracies, axis=0, ddof=1) / math.sqrt(len(accuracies)))


def standard_errors_apart(again: Floats, mean: float, printed: float) -> float:
    """How far a printed mean is from what was measured again, in standard errors of their difference.

    The printed ± is 1.96 standard errors, divided once too often by the root of the number of splits: it is
    multiplied by that root.
    """
    theirs = printed * math.sqrt(PRINTED_SPLITS) / 1.96
    ours = np.std(again, ddof=1) / math.sqrt(len(again))
    return float((again.mean() - mean) / math.hypot(theirs, ours))


def width_of_test_rows(mean: float, name: str) -> float:
    """The ± that the choice of the test rows alone makes, if a model with this mean accuracy were always the same."""
    rows = datasets.DATA_SETS[name].rows
    test = rows - sum(sizes(rows))
    return 1.96 * math.sqrt(mean * (1 - mean) / test * (1 - test / rows) / PRINTED_SPLITS)


def _again(results: Results) -> Table:
    rows = []
    for name, found in results.items():
        printed = PRINTED.get(name)
        for place in range(NOISELESS + 1):
            asked = PRINTED_ASKED[name][place] if name in PRINTED_ASKED else None
            rows.append((
                name,
                str(len(found[PSQ])),
                f"{EPSILONS[place]:g}" if place < NOISELESS else "∞",
                "{:.4f} ± {:.4f}".format(*printed[PSQ][place]) if printed else "–",
                _cell(found[PSQ], place),
                "{:.4f} ± {:.4f}".format(*printed[ASQ][place]) if printed else "–",
                _cell(found[ASQ], place),
                _cell(found[RANDOM], place),
                f"{asked:g}" if asked else "–",
                f"{found[ASKED][:, place].mean():.1f}",
            ))  # fmt: skip
    return Table(
        "The paper's method: accuracy as printed, with its ±, and measured again, ± 1.96 standard errors",
        ("data", "splits", "ε", "PSQ, paper", "PSQ, again", "ASQ, paper", "ASQ, again", "random 30 %, again",
         "asked by ASQ, paper", "asked by ASQ, again"),
        tuple(rows),
    )  # fmt: skip


def _better(results: Results) -> Table:
    rows = []
    for name, found in results.items():
        ones = datasets.DATA_SETS[name].ones
        for place, epsilon in enumerate(EPSILONS):
            printed = max(PRINTED[name][way][place][0] for way in (PSQ, ASQ)) if name in PRINTED else None
            best = max((PSQ, ASQ, RANDOM), key=lambda way: found[way][:, place].mean())
            rows.append((
                name,
                f"{epsilon:g}",
                f"{max(ones, 1 - ones):.3f}",
                f"{printed:.4f}" if printed else "–",
                f"{_cell(found[best], place)} ({best})",
                _cell(found[OURS], place),
                _cell(found[OURS_RANDOM], place),
                _cell(found[ONE_SHOT], place),
                _cell(found[NOT_PRIVATE], 0),
            ))  # fmt: skip
    return Table(
        "What does better: accuracy on the test rows, ± 1.96 standard errors",
        ("data", "ε", "one class for all", "paper, best", "its method again, best", "PATEClassifier()",
         "PATEClassifier(), random 30 %", "PrivateLogisticRegression, one shot", "not private"),
        tuple(rows),
    )  # fmt: skip


def _agreement(results: Results) -> Table:
    rows = []
    for name, found in results.items():
        if name not in PRINTED:
            continue
        for method, student in ((PSQ, "α = 0.0001"), (STRONGER, "α = 0.001")):
            if method not in found:
                continue
            for place in range(NOISELESS + 1):
                mean, width = PRINTED[name][PSQ][place]
                again = found[method][:, place]
                rows.append((
                    name,
                    student,
                    f"{EPSILONS[place]:g}" if place < NOISELESS else "∞",
                    f"{mean:.4f}",
                    f"{width:.4f}",
                    f"{width_of_test_rows(mean, name):.4f}",
                    f"{width * math.sqrt(PRINTED_SPLITS):.4f}",
                    _cell(found[method], place),
                    f"{half_width(again) / width:.1f}",
                    f"{standard_errors_apart(again, mean, width):+.1f}",
                ))  # fmt: skip
    return Table(
        "PSQ as printed and again, and how far they are apart",
        ("data", "student", "ε", "paper", "its ±", "± of the test rows alone", "its ± times √30", "again",
         "± again / its ±", "standard errors apart"),
        tuple(rows),
    )  # fmt: skip


def _cell(accuracies: Floats, place: int) -> str:
    return f"{accuracies[:, place].mean():.4f} ± {half_width(accuracies)[place]:.4f}"
