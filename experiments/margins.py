"""How far teachers agree, with each other and with the best model: Figures 3 and 4 of the paper on PATE.

Margins are **not private**. They are shown here because these data are public; of private rows they are for the data
holder's eyes only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from experiments.drawing import style, svg
from experiments.table import Table
from experiments.table4 import rows_of
from reticent.teachers import LogisticTeacher, Teachers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Problem = tuple[Any, Integers, Any, Integers]

TEACHERS, QUERIES, SUMMED = 250, 2000, 200  # of the paper, on a9a; and how many queries its Figure 4 adds up
ROWS_A_TEACHER = 130  # what 250 teachers have on a9a; as many on the other data sets
BINS = 20  # of the agreement, from −½ to ½
TRAINED = 32_561  # the rows of a9a that were published as its training part
LOGISTIC, LOW_BIAS = "logistic, C = 1", "LogisticTeacher()"
KINDS: dict[str, Callable[[], Any]] = {LOGISTIC: LogisticRegression, LOW_BIAS: LogisticTeacher}
DATA = ("a9a", "mushrooms", "phishing_urls", "enron_spam")
MEASURED = Path(__file__).with_name("margins.json")


@dataclass(frozen=True)
class Margins:
    """What is kept of the votes on the queries of a data set."""

    data: str
    teacher: str
    teachers: int
    queries: int
    single: float  # how often a teacher is right,
    majority: float  # the vote,
    best: float  # and the model of all private rows
    bins: list[int]  # queries by agreement with that model, from −½ (all against it) to ½
    right: list[int]  # queries in each bin on which the vote is right
    sums: list[list[float]]  # of margins and of agreements, over more and more queries

    def margins(self) -> list[tuple[int, int, int]]:
        """Queries by margin, from 0 to ½: how many, on how many the vote is against the best model, and is right."""
        half = BINS // 2
        with_it, against = self.bins[half:], self.bins[:half][::-1]
        right = [more + less for more, less in zip(self.right[half:], self.right[:half][::-1], strict=True)]
        return [(more + less, less, good) for more, less, good in zip(with_it, against, right, strict=True)]


def tables() -> list[Table]:
    """How far the teachers agree on each data set, and how the margins are distributed."""
    return [_summary(_kept()), _distribution(_kept())]


def measure(folder: Path) -> None:
    """Measure on the data sets in a folder, and keep counts and sums in `margins.json` beside this module.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    """
    found = [asdict(measured(problem(name, folder), name, kind)) for name in DATA for kind in KINDS]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
    text = f'{{"made by": "reticent experiment margins --data DIR",\n"parameters": {json.dumps(_parameters())},\n'
    MEASURED.write_text(text + f'"results": [\n{lines}\n]}}\n', encoding="utf-8")


def problem(name: str, folder: Path | None = None) -> Problem:
    """Private rows and labels, then queries and theirs: a9a as it was published, 80 % at random of the others.

    Parameters
    ----------
    name : str
        The name of the data set.
    folder : Path or None, default None
        The folder with the files of the data sets.
    """
    X, y = rows_of(name, folder)
    generator = np.random.default_rng(0)
    if name == "a9a":
        private, rest = np.arange(TRAINED), TRAINED + generator.permutation(len(y) - TRAINED)
    else:
        private, rest = np.split(generator.permutation(len(y)), [len(y) * 4 // 5])
    asked = rest[:QUERIES]
    return X[private], y[private], X[asked], y[asked]


def measured(given: Problem, data: str, kind: str) -> Margins:
    """Let teachers vote on the queries, and compare them with a model of all private rows.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Figure 3 and Figure 4, both of its
    Appendix E: 250 logistic models on the training part of the Adult data, 2,000 queries from its test part. The
    numbers of rows that are printed there, 36,631 and 10,211, are not those of the Adult data.

    Parameters
    ----------
    given : Problem
        The rows and queries.
    data : str
        The name of the data set.
    kind : str
        The name of the kind of teacher.
    """
    X, y, queries, truth = given
    count = TEACHERS if data == "a9a" else max(1, len(y) // ROWS_A_TEACHER)
    votes = Teachers(KINDS[kind](), shards=count, classes=(0, 1)).fit(X, y).votes(queries)
    best = LogisticRegression(max_iter=1000).fit(X, y).predict(queries)
    ones = votes[:, 1] / count
    agreement = np.where(best == 1, ones, 1 - ones) - 0.5
    majority = (2 * votes[:, 1] >= count).astype(np.int64)  # a tie is 1, as the labellers have it
    bin_ = np.clip(((agreement + 0.5) * BINS).astype(np.int64), 0, BINS - 1)
    # With a tie for 1 and the best model for 0 the vote is against it: agreement 0 belongs below.
    bin_ = np.where((agreement == 0) & (majority != best), BINS // 2 - 1, bin_)
    sums = np.cumsum(np.column_stack([np.abs(agreement), agreement])[:SUMMED], axis=0)
    return Margins(
        data=data,
        teacher=kind,
        teachers=count,
        queries=len(truth),
        single=round(float(np.where(truth == 1, ones, 1 - ones).mean()), 5),
        majority=round(float((majority == truth).mean()), 5),
        best=round(float((best == truth).mean()), 5),
        bins=np.bincount(bin_, minlength=BINS).tolist(),
        right=np.bincount(bin_[majority == truth], minlength=BINS).tolist(),
        sums=sums[9::10].round(4).tolist(),
    )


def _parameters() -> dict[str, Any]:
    return {
        "teachers on a9a": TEACHERS,
        "rows a teacher": ROWS_A_TEACHER,
        "queries": QUERIES,
        "summed": SUMMED,
        "bins": BINS,
    }


def _kept() -> list[Margins]:
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    if kept["parameters"] != _parameters():
        raise ValueError("margins.json was measured with other parameters: measure again with --data")
    return [Margins(**each) for each in kept["results"]]


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _summary(kept: list[Margins]) -> Table:
    rows = []
    for each in kept:
        margins = each.margins()
        clear = margins[-2:]  # four fifths of the way and beyond
        many = sum(count for count, _, _ in clear)
        rows.append((
            each.data,
            each.teacher,
            f"{each.teachers:,}",
            f"{each.single:.4f}",
            f"{each.majority:.4f}",
            f"{each.best:.4f}",
            f"{many / each.queries:.1%}",
            f"{sum(count for count, _, _ in margins[:2]) / each.queries:.1%}",
            f"{sum(against for _, against, _ in margins) / each.queries:.1%}",
            f"{sum(against for _, against, _ in clear)} of {many:,}",
            f"{each.sums[-1][1] / each.sums[-1][0]:.3f}",
        ))  # fmt: skip
    return Table(
        "Margins Δ(x) = |share of teachers for 1 − ½| on test rows; h* is a logistic model of all private rows",
        ("data", "teacher", "teachers", "one teacher", "vote", "h*", "Δ ≥ 0.4", "Δ < 0.1", "vote against h*",
         "against h* at Δ ≥ 0.4", "slope of Figure 4"),
        tuple(rows),
    )  # fmt: skip


def _distribution(kept: list[Margins]) -> Table:
    shown = [each for each in kept if each.teacher == LOGISTIC]
    step = 0.5 / (BINS // 2)
    columns = [[f"{count / each.queries:.1%} ({against / each.queries:.1%})" for count, against, _ in each.margins()]
               for each in shown]  # fmt: skip
    return Table(
        f"Figure 3: share of the queries by margin, teachers {LOGISTIC} (in brackets with the vote against h*)",
        ("Δ", *(each.data for each in shown)),
        tuple(
            (f"{bin_ * step:.2f} – {(bin_ + 1) * step:.2f}", *cells)
            for bin_, cells in enumerate(zip(*columns, strict=True))
        ),
    )


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plots() -> dict[str, bytes]:
    """Figures 3 and 4 for every data set, as SVG."""
    from matplotlib.figure import Figure

    shown = [each for each in _kept() if each.teacher == LOGISTIC]

    def drawn(draw: Callable[[Any, Margins], None], legend: str) -> bytes:
        with style(font_size=8):
            figure = Figure(figsize=(7.2, 2.4))
            for index, each in enumerate(shown):
                axes = figure.add_subplot(1, len(shown), index + 1)
                draw(axes, each)
                axes.set_title(each.data, fontsize=9)
                axes.spines[["top", "right"]].set_visible(False)
            first: Any = figure.axes[0]
            first.legend(frameon=False, fontsize=7, loc=legend)
            figure.tight_layout()
            picture = svg(figure)
        return picture

    return {"margins": drawn(_histogram, "upper left"), "margins_summed": drawn(_line, "lower right")}


def _histogram(axes: Any, each: Margins) -> None:
    half = BINS // 2
    middles = (np.arange(half) + 0.5) / BINS
    shares = np.array([[count - against, against] for count, against, _ in each.margins()]) / each.queries
    axes.bar(middles, shares[:, 0], 0.8 / BINS, color="#2b6a8f", label="with h*")
    axes.bar(middles, shares[:, 1], 0.8 / BINS, bottom=shares[:, 0], color="#b3553c", label="against")
    axes.set_xlabel("Δ")


def _line(axes: Any, each: Margins) -> None:
    margin, agreement = np.array([[0.0, 0.0], *each.sums]).T
    axes.plot(margin, margin, color="#b0b0b0", linewidth=0.8, label="Σ Δ")
    axes.plot(margin, agreement, ".-", color="#2b6a8f", markersize=3, label="agreement")
    axes.set_xlabel("Σ Δ")
