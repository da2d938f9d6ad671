"""How many answers an ε buys: each labeller on thresholds, computed here, and on real data, measured before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments import datasets
from experiments.drawing import style, svg
from experiments.table import Table
from reticent.labellers.answers import candidates
from reticent.labellers.ballots import Ballots, Bought
from reticent.teachers import LogisticTeacher, Teachers

EPSILON, DELTA, LOSS = 1, 1e-6, 0.01
SEEDS = (0, 1, 2, 3, 4)
QUERIES = 20_000
LABELLERS = ("gaussian", "bit", "poll", "greedy", "two-coin")
MEASURED = Path(__file__).with_name("answers.json")


@dataclass(frozen=True)
class Problem:
    """Where votes come from: rows, and how many of them each teacher gets."""

    data: str
    teacher: str
    shard: int  # rows a teacher
    rows: int | None = None  # of thresholds, which are made up
    files: str | None = None  # the data set, where it is real

    def ballots(self, seed: int, folder: Path | None = None) -> tuple[Ballots, float]:
        """The votes on test questions beside the true labels, and how often a single teacher is right.

        Parameters
        ----------
        seed : int
            The seed of everything that is drawn.
        folder : Path or None, default None
            The folder with the files of the data sets; synthetic rows need none.
        """
        if self.rows is not None:
            counts, truth = threshold_votes(self.rows, self.shard, seed)
        elif self.files is not None:
            counts, truth = votes(*datasets.load(self.files, folder), TEACHERS[self.teacher](), self.shard, seed)
        else:
            counts, truth = votes(*datasets.synthetic("a9a", seed=seed), TEACHERS[self.teacher](), self.shard, seed)
        single = float(counts[np.arange(len(truth)), truth].mean() / counts[0].sum())
        return Ballots.of(counts, truth), single


LOGISTIC, LOW_BIAS, MIDDLE = "logistic, C = 1", "LogisticTeacher()", "middle of the gap"
TEACHERS: dict[str, Callable[[], Any]] = {LOGISTIC: lambda: LogisticRegression(C=1), LOW_BIAS: LogisticTeacher}

MADE_UP = (
    Problem("thresholds, 10^5 rows", MIDDLE, 100, rows=10**5),
    Problem("thresholds, 10^6 rows", MIDDLE, 100, rows=10**6),
    Problem("a9a, made up", LOW_BIAS, 50),
)
REAL = (
    Problem("a9a", LOGISTIC, 50, files="a9a"),
    Problem("a9a", LOW_BIAS, 50, files="a9a"),
    Problem("kdd99", LOGISTIC, 50, files="kdd99"),
    Problem("kdd99", LOW_BIAS, 50, files="kdd99"),
)


def tables() -> list[Table]:
    """Answers by labeller, and what the steepness of the two-coin labeller does."""
    return [_answers(), _steepness()]


def plots() -> dict[str, bytes]:
    """Answers by labeller and data, as an SVG."""
    from matplotlib.figure import Figure

    colours = dict(zip(LABELLERS, ("#8c8c8c", "#b8a04a", "#5f9e6e", "#2b6a8f", "#b3553c"), strict=True))
    with style():
        figure = Figure(figsize=(7.2, 4.2))
        axes = figure.add_subplot()
        results = list(reversed(_results()))
        for name, colour in colours.items():
            means = [each.bought[name].answers for each in results]
            at = [index for index, mean in enumerate(means) if mean > 0]
            axes.plot([means[index] for index in at], at, "o", color=colour, label=name)
        axes.set_xscale("log")
        axes.set_yticks(range(len(results)), [f"{each.problem.data}\n{each.problem.teacher}" for each in results])
        axes.set_xlabel(f"answers at ε = {EPSILON}, δ = {DELTA:g}, within {LOSS:.0%} of the noiseless majority")
        axes.grid(axis="x", color="#e6e6e6")
        axes.set_axisbelow(True)
        axes.legend(frameon=False, ncols=len(LABELLERS), loc="lower center", bbox_to_anchor=(0.4, 1.0))
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        picture = svg(figure)
    return {"answers": picture}


def measure(folder: Path) -> None:
    """Measure again on the data sets in a folder, and keep the results in `answers.json` beside this module.

    What is kept are the parameters and, for every setting of a labeller, mean answers and losses. It depends on
    nothing else, so measuring again writes the same file.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    """
    kept = {
        "made by": "reticent experiment answers --data DIR",
        "parameters": _parameters(),
        "results": [asdict(_measured(problem, folder)) for problem in REAL],
    }
    MEASURED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _results.cache_clear()


def _parameters() -> dict[str, Any]:
    return {"epsilon": EPSILON, "delta": DELTA, "loss": LOSS, "seeds": list(SEEDS), "queries": QUERIES}


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def votes(X: Any, y: datasets.Labels, teacher: Any, shard: int, seed: int) -> tuple[datasets.Labels, datasets.Labels]:
    """Votes on test rows and their labels: 80 % of the rows, in a random order, are dealt to the teachers.

    Parameters
    ----------
    X : object
        The rows.
    y : array of int
        Their labels.
    teacher : object
        The classifier that each teacher is a copy of.
    shard : int
        The number of rows of a teacher.
    seed : int
        The seed of everything that is drawn.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [len(y) * 4 // 5])
    teachers = Teachers(teacher, shards=len(train) // shard, classes=(0, 1)).fit(X[train], y[train])
    return teachers.votes(X[test[:QUERIES]]), y[test[:QUERIES]]


def threshold_votes(rows: int, shard: int, seed: int) -> tuple[datasets.Labels, datasets.Labels]:
    """Uniform points, labelled 1 below 1/2; a teacher's threshold is in the middle of the gap between its classes.

    That is what a decision stump learns from these rows, all of them here by one sort.

    Parameters
    ----------
    rows : int
        The number of rows.
    shard : int
        The number of rows of a teacher.
    seed : int
        The seed of everything that is drawn.
    """
    generator = np.random.default_rng(seed)
    points = generator.random((rows // shard, shard))
    below = np.where(points < 0.5, points, 0.0).max(axis=1)
    above = np.where(points < 0.5, 1.0, points).min(axis=1)
    questions = generator.random(QUERIES)
    zeros = np.searchsorted(np.sort((below + above) / 2), questions, side="right")
    return np.column_stack([zeros, len(points) - zeros]), (questions < 0.5).astype(np.int64)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Result:
    """Means over the seeds."""

    problem: Problem
    teachers: int
    majority: float
    single: float
    bought: dict[str, Bought]  # the best setup of each labeller, one for all seeds
    steepness: list[Bought]  # all setups of the two-coin labeller


def _measured(problem: Problem, folder: Path | None = None) -> Result:
    drawn = [problem.ballots(seed, folder) for seed in SEEDS]
    offers = {name: [_offers(name, ballots) for ballots, _ in drawn] for name in LABELLERS}
    setups = {name: _means(name, each) for name, each in offers.items()}
    return Result(
        problem,
        teachers=drawn[0][0].teachers,
        majority=float(np.mean([ballots.majority for ballots, _ in drawn])),
        single=float(np.mean([single for _, single in drawn])),
        bought={name: _best(name, each) for name, each in setups.items()},
        steepness=[each for each, _ in setups["two-coin"]],
    )


def _offers(name: str, ballots: Ballots) -> list[Bought]:
    return list(candidates(name, ballots, epsilon=EPSILON, delta=DELTA, loss=LOSS))


def _means(name: str, offers: list[list[Bought]]) -> list[tuple[Bought, float]]:
    """Return the mean of each setup of a labeller over the seeds, and its largest loss."""
    means = []
    for setup in zip(*offers, strict=True):
        answers, losses = [each.answers for each in setup], [each.loss for each in setup]
        mean = Bought(name, round(float(np.mean(answers))), float(np.mean(losses)), setup[0].options)
        means.append((mean, max(losses)))
    return means


def _best(name: str, setups: list[tuple[Bought, float]]) -> Bought:
    """The most answers of a setting that keeps within the loss for every seed."""
    kept = [mean for mean, worst in setups if worst <= LOSS + 1e-12]
    return max(kept, key=lambda each: each.answers, default=Bought(name, 0, 0.0))


@cache
def _results() -> tuple[Result, ...]:
    return (*(_measured(problem) for problem in MADE_UP), *_kept())


def _kept() -> list[Result]:
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    if kept["parameters"] != _parameters():
        raise ValueError("answers.json was measured with other parameters: measure again with --data")
    return [
        Result(
            Problem(**each["problem"]),
            each["teachers"],
            each["majority"],
            each["single"],
            {name: Bought(**setup) for name, setup in each["bought"].items()},
            [Bought(**setup) for setup in each["steepness"]],
        )
        for each in kept["results"]
    ]


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _answers() -> Table:
    return Table(
        f"Answers at ε = {EPSILON}, δ = {DELTA:g} whose expected accuracy is within {LOSS:.0%} of the noiseless "
        f"majority (mean of {len(SEEDS)} seeds; in brackets how it was set up)",
        ("data", "teacher", "rows each", "teachers", "one teacher", "majority", *LABELLERS),
        tuple(
            (
                each.problem.data,
                each.problem.teacher,
                str(each.problem.shard),
                f"{each.teachers:,}",
                f"{each.single:.4f}",
                f"{each.majority:.4f}",
                *(_shown(each.bought[name]) for name in LABELLERS),
            )
            for each in _results()
        ),
    )


def _shown(bought: Bought) -> str:
    if bought.answers == 0:
        return "–"
    formats = {"poll": "poll {poll}, flip {flip:g}", "two-coin": "steepness {steepness:g}, tries {tries}"}
    setup = formats.get(bought.labeller, "").format(**bought.options)
    return f"{bought.answers:,}" + (f" ({setup})" if setup else "")


def _steepness() -> Table:
    """The two defaults, two and three tries."""
    shown = [(6, 2), (6, 3), (15, 2), (15, 3)]

    def cell(result: Result, steepness: int, tries: int) -> str:
        for each in result.steepness:
            if each.options == {"steepness": steepness, "tries": tries}:
                return f"{each.answers:,} ({each.loss:.2%})"
        return "–"

    return Table(
        "Two-coin at its two defaults: expected answers (and expected loss against the noiseless majority)",
        ("data", "teacher", *(f"steepness {steepness}, tries {tries}" for steepness, tries in shown)),
        tuple((each.problem.data, each.problem.teacher, *(cell(each, *one) for one in shown)) for each in _results()),
    )
