"""What everlasting prediction can do: long streams, drift, hostile queries, and where other methods are better.

Measuring takes hours on one core, so results are kept in `everlasting.json` next to this module, case by case. A case
that is kept with the same setting is not measured again. `python -m experiments.everlasting DIR PART …` measures some
parts alone.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drawing import style, svg
from experiments.everlasting_cases import ANSWERING, ATTACKERS, CASES, PUBLIC, STEPS
from experiments.everlasting_streams import Halfspace
from experiments.measurements import Measurements, Setting
from experiments.table import Table

MEASUREMENTS = Measurements(Path(__file__).with_name("everlasting.json"), CASES)


def measure(folder: Path, *parts: str) -> None:
    """Measure what is not kept yet, with the data sets in a folder; all parts, or those named, or PART/CASE.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    *parts : str
        The parts to measure; all of them if none is named.
    """
    MEASUREMENTS.measure(folder, *parts)
    _results.cache_clear()


@cache
def _results() -> dict[str, dict[str, Any]]:
    return MEASUREMENTS.read()


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
            for index, phase in enumerate(one["phases"], 1)
            if index < SHOWN or index % 5 == 0 or index == len(one["phases"])
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
    """Whether every phase after the first is within `points` of the model that is not private.

    Parameters
    ----------
    phases : list of dict
        The phases, as `by_phase` returns them.
    points : float, default 1.0
        How far a phase may be below that model, in percentage points.
    """
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
        for option, curve in one["curves"].items():
            quarters = [f"{np.mean(part):.3f}" for part in np.array_split(np.array(curve), 4)]
            rows.append((name, f"{one['rows']:,}", f"{one['queries']:,}", str(one["setting"]["epsilon"]),
                         TITLES[option], *quarters, f"{np.mean(curve):.3f}"))  # fmt: skip
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
    """Return the simplest option within half a point of the best; "none" if all are about as good as chance.

    Parameters
    ----------
    accuracy : dict
        The accuracy of every option; None where it was refused.
    """
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
        shown = ("–" if accuracy[option] is None else f"{accuracy[option]:.3f}" for option in ANSWERING)
        rows.append((_task(one["setting"]), f"{one['setting']['epsilon']:g}", f"{one['setting']['rows']:,}",
                     *shown, TITLES[winner(accuracy)]))  # fmt: skip
    rows.sort(key=lambda row: (row[0], float(row[1]), int(row[2].replace(",", ""))))
    return [
        Table(
            f"Mean accuracy over the stream (PATE has {PUBLIC:,} public rows of its beginning; the simplest within "
            f"half a point of the best wins, if any is above {COIN:g})",
            ("stream", "ε", "rows", *(TITLES[option] for option in ANSWERING), "take"),
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
    for index, (name, one) in enumerate(kept.items()):
        axes = figure.add_subplot(2, 2, index + 1)
        at = (np.arange(STEPS) + 0.5) * one["queries"] / STEPS
        for option, curve in one["curves"].items():
            axes.plot(at, curve, "--" if option == "non-private" else "-", color=COLOURS[option], label=TITLES[option])
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
    for index, (task, some) in enumerate(tasks.items()):
        axes = figure.add_subplot(2, 3, index + 1)
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
