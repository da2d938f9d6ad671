"""Table 4 of *Revisiting Model-Agnostic Private Learning*, measured again, beside what does better."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from experiments import datasets, linear_models
from experiments.linear_models import LEARNERS, PASSIVE_AGGRESSIVE
from experiments.table import Table
from reticent import labellers
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.noise import Seeded
from reticent.teachers import PATEClassifier, Teachers, queries, students
from reticent.teachers.queries import Chooser, Transcript
from reticent.teachers.space import PublicSpace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Row = dict[str, list[float]]  # one split: for each method or learner its accuracy at each ε
Results = dict[str, dict[str, Floats]]  # for each data set and method or learner: one row per split, one column per ε

EPSILONS = (0.5, 1.0, 2.0)
PRIVATE, PUBLIC = 0.8, 0.02  # of the rows; the rest is for the test
ROWS_A_TEACHER = 100  # of the paper
SHARE = 0.3  # of the public rows that are asked actively
SPLITS = {
    "methods": {"mushrooms": 30, "a9a": 30, "phishing_urls": 10, "enron_spam": 10},
    "learners": {"mushrooms": 120, "a9a": 30},  # more where what was printed can be right, and is compared
    "without": {"mushrooms": 30, "a9a": 30},
}
# Row norms that are known without the rows: from the number of one-hot attributes, or after normalisation.
ROW_NORMS = {"mushrooms": math.sqrt(22), "a9a": math.sqrt(14), "phishing_urls": 1.0, "enron_spam": 1.0}
MEASURED = Path(__file__).with_name("table4.json")

PSQ, ASQ, RANDOM, ASKED = "PSQ", "ASQ", "random 30 %", "asked by ASQ"
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
    """The paper's method again, what does better and by what, with which linear models it agrees, and its ±."""
    methods, learners, without = (_results(part) for part in PARTS)
    return [_again(methods), _better(methods), _defaults(methods, without), _agreement(learners), _widths(learners)]


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep the accuracies of every split in `table4.json` beside this module.

    Every split is kept as soon as it is measured: if interrupted, measuring goes on after the last one. All noise is
    seeded by the number of the split, so measuring again gives the same figures, but for few cells of `PATEClassifier`,
    in which the last bits of sums seem to decide.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    """
    kept = _read() if MEASURED.exists() else {}
    if kept.get("parameters") != _parameters() or not any(_missing(kept)):
        kept = {"parameters": _parameters()} | {part: {name: [] for name in SPLITS[part]} for part in SPLITS}
    rows = cache(lambda name: rows_of(name, folder))
    for part, name, seed in _missing(kept):
        kept[part][name].append(on_split(part, Split(*rows(name), ROW_NORMS[name], seed)))
        _write(kept)


def _missing(kept: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """What is not measured yet: which part, the data set, and the number of the split."""
    for part, splits in SPLITS.items():
        for name, count in splits.items():
            for seed in range(len(kept[part][name]), count):
                yield part, name, seed


def rows_of(name: str, folder: Path | None) -> tuple[Any, Integers]:
    """A data set as it is learned from: text with rows of length 1, one-hot rows as they are.

    Parameters
    ----------
    name : str
        The name of the data set.
    folder : Path or None
        The folder with its files; None for synthetic rows.
    """
    X, y = datasets.load(name, folder)
    return (normalize(X) if ROW_NORMS[name] == 1 else X), y


def sizes(rows: int) -> tuple[int, int]:
    """How many rows are private, and how many public.

    Parameters
    ----------
    rows : int
        The number of all rows.

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

    @cached_property
    def points(self) -> Floats:
        """Public rows in the space that they span."""
        return PublicSpace().fit(self.public).transform(self.public)

    @property
    def asked(self) -> int:
        """How many public rows an active learner may ask about."""
        return math.ceil(SHARE * len(self.parts[1]))

    @property
    def delta(self) -> float:
        """One over the number of private rows, as in the paper: too large for use, as it lets a row be published."""
        return 1 / len(self.private[1])

    def accuracy(self, model: Any) -> float:
        """The accuracy of a model on the test rows.

        Parameters
        ----------
        model : object
            A fitted model.
        """
        test = self.parts[2]
        return round(float(np.mean(np.asarray(model.predict(self.X[test])) == self.y[test])), 5)


def on_split(part: str, split: Split) -> Row:
    """What a part measures on one split: accuracies at each ε, and last without noise where there is that.

    Parameters
    ----------
    part : str
        The name of the part.
    split : Split
        The rows of one split.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # δ = 1/n is warned about, rightly, and models that do not converge
        return PARTS[part](split)


def of_methods(split: Split) -> Row:
    """The accuracy of every method.

    Parameters
    ----------
    split : Split
        The rows of one split.
    """
    found = _theirs(split)
    found[OURS] = [_of_defaults(split, epsilon) for epsilon in EPSILONS]
    found[OURS_RANDOM] = [_of_defaults(split, epsilon, queries="passive") for epsilon in EPSILONS]
    found[ONE_SHOT] = [_of_one_shot(split, epsilon) for epsilon in EPSILONS]
    found[NOT_PRIVATE] = [split.accuracy(LogisticRegression(max_iter=1000).fit(*split.private))]
    return found


def of_learners(split: Split) -> Row:
    """The accuracy of PSQ with each linear model, for teachers and student alike.

    Parameters
    ----------
    split : Split
        The rows of one split.
    """
    found: Row = {}
    for learner in LEARNERS:
        votes, teachers = _votes(split, learner)
        found[learner] = [
            _taught(split, learner, _asked(split, PSQ, votes, teachers, epsilon)) for epsilon in (*EPSILONS, None)
        ]
    return found


def of_defaults(split: Split) -> Row:
    """The accuracy of `PATEClassifier` with each of its defaults set back to what the paper has, and with all.

    Parameters
    ----------
    split : Split
        The rows of one split.
    """
    theirs: dict[str, dict[str, Any]] = {
        "small teachers": {"n_teachers": len(split.private[1]) // ROWS_A_TEACHER},
        "public axes": {"public_space": None},
        "margin queries": {"queries": "passive"},
        "greedy labels": {"labeller": "gaussian"},
    }
    theirs["any of these"] = {key: value for each in theirs.values() for key, value in each.items()}
    return {
        without: [_of_defaults(split, epsilon, **options) for epsilon in EPSILONS]
        for without, options in theirs.items()
    }


PARTS = {"methods": of_methods, "learners": of_learners, "without": of_defaults}


def _of_defaults(split: Split, epsilon: float, **options: Any) -> float:
    """The accuracy of `PATEClassifier` as it comes, but for some options."""
    model = PATEClassifier(
        epsilon=epsilon, delta=split.delta, classes=(0, 1), n_queries=split.asked, unsafe_seed=split.seed, **options
    )
    return split.accuracy(model.fit(*split.private, public=split.public))


def _of_one_shot(split: Split, epsilon: float) -> float:
    """The accuracy of one private model of all private rows."""
    model = PrivateLogisticRegression(
        epsilon=epsilon,
        delta=split.delta,
        row_norm=split.row_norm,
        classes=(0, 1),
        rounds=0,  # as in what is kept on file
        unsafe_seed=split.seed,
    )
    return split.accuracy(model.fit(*split.private))


def _theirs(split: Split) -> Row:
    """The paper's set-up, with the linear model that agrees with what it prints."""
    votes, teachers = _votes(split, PASSIVE_AGGRESSIVE)
    found: Row = {PSQ: [], ASQ: [], RANDOM: [], ASKED: []}
    for epsilon in (*EPSILONS, None):
        for method in (PSQ, ASQ, RANDOM):
            transcript = _asked(split, method, votes, teachers, epsilon)
            found[method].append(_taught(split, PASSIVE_AGGRESSIVE, transcript))
            if method == ASQ:
                found[ASKED].append(float(len(transcript.asked)))
    return found


def _votes(split: Split, learner: str) -> tuple[Integers, int]:
    """The votes of teachers of a hundred rows on the public rows, and how many teachers there are.

    They do not depend on ε or on what is asked, so teachers learn once.
    """
    shards = len(split.private[1]) // ROWS_A_TEACHER
    teachers = Teachers(LEARNERS[learner], shards=shards, classes=(0, 1), random_state=split.seed).fit(*split.private)
    return teachers.votes(split.public), teachers.n_teachers_


def _asked(split: Split, method: str, votes: Integers, teachers: int, epsilon: float | None) -> Transcript:
    """What was asked by a method, and the labels that were released for it."""
    limit = len(votes) if method == PSQ else split.asked
    transcript = Transcript(len(votes), limit)
    queries.ask_all(
        _chooser(method, transcript, split),
        transcript,
        votes.__getitem__,
        _labeller(teachers, limit, epsilon, split),
    )
    return transcript


def _taught(split: Split, learner: str, transcript: Transcript) -> float:
    """The accuracy of a student of the released labels."""
    student = linear_models.make(learner, split.seed)
    return split.accuracy(students.fit_student(student, split.public, transcript, semi_supervised=False))


def _chooser(method: str, transcript: Transcript, split: Split) -> Chooser:
    """Which rows are asked; the order of public rows is random already, so the first ones are random ones.

    ASQ asks where a linear model that is nearly as good as the best says otherwise. As in the practical algorithm that
    the paper uses, the errors of that model are a surrogate's: squared ones, for which it is found in closed form.
    """
    if method == ASQ:
        return queries.by_ridge_disagreement(transcript, split.points, classes=2, random_state=split.seed)
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
        "learners": list(LEARNERS),
        "splits": SPLITS,
    }


def _read() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return kept


def _write(kept: dict[str, Any]) -> None:
    """One line a split, so that changes can be read."""
    parts = [
        f'"{part}": {{\n'
        + ",\n".join(
            json.dumps(name) + ": [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
            for name, rows in kept[part].items()
        )
        + "\n}"
        for part in SPLITS
    ]
    text = (
        '{"made by": "reticent experiment table4 --data DIR",\n'
        f'"parameters": {json.dumps(kept["parameters"])},\n' + ",\n".join(parts) + "}\n"
    )
    partial = MEASURED.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(MEASURED)


def _results(part: str) -> Results:
    """For each data set and method or learner the accuracies, one row per split and one column per ε."""
    kept = _read()
    if kept["parameters"] != _parameters():
        raise ValueError("table4.json was measured with other parameters: measure again with --data")
    return {
        name: {method: np.array([row[method] for row in rows]) for method in rows[0]}
        for name, rows in kept[part].items()
        if len(rows) > 1
    }


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────

NOISELESS = len(EPSILONS)  # the column of what was measured without noise


def half_width(accuracies: Floats) -> Floats:
    """1.96 standard errors of the mean over the splits, for each ε.

    Parameters
    ----------
    accuracies : array of float
        The accuracies, one row per split and one column per ε.
    """
    return np.asarray(1.96 * np.std(accuracies, axis=0, ddof=1) / math.sqrt(len(accuracies)))


def standard_errors_apart(again: Floats, mean: float, printed: float) -> float:
    """How far a printed mean is from what was measured again, in standard errors of their difference.

    The printed ± is 1.96 standard errors, divided once too often by the root of the number of splits: it is
    multiplied by that root.

    Parameters
    ----------
    again : array of float
        The accuracies that were measured again, one per split.
    mean : float
        The printed mean.
    printed : float
        The printed ±.
    """
    theirs = printed * math.sqrt(PRINTED_SPLITS) / 1.96
    ours = np.std(again, ddof=1) / math.sqrt(len(again))
    return float((again.mean() - mean) / math.hypot(theirs, ours))


def width_of_test_rows(mean: float, name: str) -> float:
    """The ± that the choice of the test rows alone makes, if a model with this mean accuracy were always the same.

    Parameters
    ----------
    mean : float
        The mean accuracy.
    name : str
        The name of the data set.
    """
    rows = datasets.DATA_SETS[name].rows
    test = rows - sum(sizes(rows))
    return 1.96 * math.sqrt(mean * (1 - mean) / test * (1 - test / rows) / PRINTED_SPLITS)


def _again(results: Results) -> Table:
    rows = []
    for name, found in results.items():
        printed = PRINTED.get(name)
        for column in range(NOISELESS + 1):
            asked = PRINTED_ASKED[name][column] if name in PRINTED_ASKED else None
            rows.append((
                name,
                str(len(found[PSQ])),
                f"{EPSILONS[column]:g}" if column < NOISELESS else "∞",
                "{:.4f} ± {:.4f}".format(*printed[PSQ][column]) if printed else "–",
                _cell(found[PSQ], column),
                "{:.4f} ± {:.4f}".format(*printed[ASQ][column]) if printed else "–",
                _cell(found[ASQ], column),
                _cell(found[RANDOM], column),
                f"{asked:g}" if asked else "–",
                f"{found[ASKED][:, column].mean():.1f}",
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
        for column, epsilon in enumerate(EPSILONS):
            printed = max(PRINTED[name][way][column][0] for way in (PSQ, ASQ)) if name in PRINTED else None
            best = max((PSQ, ASQ, RANDOM), key=lambda way: found[way][:, column].mean())
            rows.append((
                name,
                f"{epsilon:g}",
                f"{max(ones, 1 - ones):.3f}",
                f"{printed:.4f}" if printed else "–",
                f"{_cell(found[best], column)} ({best})",
                _cell(found[OURS], column),
                _cell(found[OURS_RANDOM], column),
                _cell(found[ONE_SHOT], column),
                _cell(found[NOT_PRIVATE], 0),
            ))  # fmt: skip
    return Table(
        "What does better: accuracy on the test rows, ± 1.96 standard errors",
        ("data", "ε", "one class for all", "paper, best", "its method again, best", "PATEClassifier()",
         "PATEClassifier(), random 30 %", "PrivateLogisticRegression, one shot", "not private"),
        tuple(rows),
    )  # fmt: skip


def _defaults(methods: Results, without: Results) -> Table:
    rows = []
    for name, found in without.items():
        for left_out, accuracies in {"none": methods[name][OURS], **found}.items():
            rows.append((name, left_out, *(_cell(accuracies, column) for column in range(len(EPSILONS)))))
    return Table(
        "What makes the defaults better: accuracy without one of them, ± 1.96 standard errors",
        ("data", "without", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)),
        tuple(rows),
    )


def _agreement(learners: Results) -> Table:
    rows = []
    for name, found in learners.items():
        printed = PRINTED[name][PSQ]
        widened = (f"{mean:.4f} ± {width * math.sqrt(PRINTED_SPLITS):.4f}" for mean, width in printed)
        rows.append((name, "printed, ± times √30", str(PRINTED_SPLITS), *widened))
        for learner, again in found.items():
            apart = (standard_errors_apart(again[:, column], *both) for column, both in enumerate(printed))
            cells = (f"{_cell(again, column)} ({each:+.1f})" for column, each in enumerate(apart))
            rows.append((name, learner, str(len(again)), *cells))
    return Table(
        "PSQ with each linear model: accuracy ± 1.96 standard errors (and standard errors from what was printed)",
        ("data", "teachers and student", "splits", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "ε = ∞"),
        tuple(rows),
    )


def _widths(learners: Results) -> Table:
    rows = []
    for name, found in learners.items():
        for column, (mean, width) in enumerate(PRINTED[name][PSQ]):
            again = found[PASSIVE_AGGRESSIVE][:, column]
            of_as_many = float(half_width(again)) * math.sqrt(len(again) / PRINTED_SPLITS)
            rows.append((
                name,
                f"{EPSILONS[column]:g}" if column < NOISELESS else "∞",
                f"{width:.4f}",
                f"{width_of_test_rows(mean, name):.4f}",
                f"{width * math.sqrt(PRINTED_SPLITS):.4f}",
                f"{of_as_many:.4f}",
                f"{of_as_many / width:.1f}",
            ))  # fmt: skip
    return Table(
        "The ± of PSQ as printed, and what it should be for so many splits",
        ("data", "ε", "printed", "of the test rows alone", "printed, times √30", "again", "again / printed"),
        tuple(rows),
    )


def _cell(accuracies: Floats, column: int) -> str:
    return f"{accuracies[:, column].mean():.4f} ± {half_width(accuracies)[column]:.4f}"
