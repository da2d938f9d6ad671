"""What labels that come later are worth: a chain of truth on nine streams, with late, few, false and hostile labels.

The predictor itself is measured, through `add_labelled` and `feedback`. It takes an hour on one core, so results
are kept in `truth.json` next to this module, case by case. A case that is kept with the same setting is not measured
again, unless asked for: `python -m experiments.truth DIR [--again] PART …` measures some parts alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drawing import style, svg
from experiments.measurements import Measurements
from experiments.table import Table
from experiments.truth_cases import CASES, COMPLAINTS, DELAYS, HOSTILE, LIES, METHODS, WAITS, WEIGHTS, late
from experiments.truth_streams import HELD_OUT, MADE_UP, REAL, STEPS

MEASUREMENTS = Measurements(Path(__file__).with_name("truth.json"), CASES)
ACCURACY, BALANCED = 0, 1


def measure(folder: Path, *parts: str, again: bool = False) -> None:
    """Measure what is not kept yet, with the data sets in a folder; all parts, or those named, or PART/CASE.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    *parts : str
        The parts to measure; all of them if none is named.
    again : bool, default False
        Whether to measure what is kept as well.
    """
    MEASUREMENTS.measure(folder, *parts, again=again)
    kept.cache_clear()


@cache
def kept() -> dict[str, dict[str, Any]]:
    """What was measured with its present setting, by part and case."""
    found = MEASUREMENTS.read()
    settings = {(one.part, one.name): one.setting for one in CASES}
    return {
        part: {name: one for name, one in cases.items() if settings.get((part, name)) == one.get("setting")}
        for part, cases in found.items()
    }


def not_measured() -> list[str]:
    """The cases that are not measured yet with their present setting, as PART/CASE."""
    return [f"{one.part}/{one.name}" for one in CASES if one.name not in kept().get(one.part, {})]


def score(part: str, case: str, which: int = ACCURACY) -> float | None:
    """The mean over runs of an accuracy, or of a balanced accuracy; None if it was not measured.

    Parameters
    ----------
    part, case : str
        What was measured.
    which : int, default ACCURACY
        `ACCURACY` or `BALANCED`.
    """
    one = kept().get(part, {}).get(case)
    return None if one is None else float(np.mean([run[which] for run in one["scores"]]))


# ── targets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Target:
    """What was asked for before it was measured, and what was found."""

    name: str
    bound: float
    found: float | None
    most: bool = False  # whether `found` must be at most the bound

    @property
    def reached(self) -> bool:
        """Whether the target is reached; False if it was not measured."""
        if self.found is None:
            return False
        return self.found <= self.bound if self.most else self.found >= self.bound


LEAST = {
    "elec2": 0.75, "covtype": 0.80, "nycflights13": 0.735, "flights3m": 0.575, "rotate": 0.82, "flip": 0.81,
    "recur": 0.77, "stationary": 0.825, "rare": 0.82,
}  # fmt: skip
LEAST_OF_A_TENTH = {"rotate": 0.76, "nycflights13": 0.72, "covtype": 0.65}
DELAY_COSTS, BELOW_STATIC = 0.05, 0.02  # at most
GAUGE_ERROR, FALSE_ALARMS, CAUGHT_ABOVE = 0.025, 0.05, 0.74
TRUTH, STATIC, A_TENTH = METHODS["truth"], METHODS["static"], late(0, 0.1)


def targets() -> list[Target]:
    """Every target with what was found."""
    found = [
        Target(f"{name}: {'balanced accuracy' if name == 'rare' else 'accuracy'}", bound,
               score("streams", f"{name}, {TRUTH}", BALANCED if name == "rare" else ACCURACY))
        for name, bound in LEAST.items()
    ]  # fmt: skip
    found += [
        Target(
            f"{name}: lost if labels come one window late",
            DELAY_COSTS,
            _difference(score("streams", f"{name}, {TRUTH}"), score("rows late", f"{name}, {late(1, 1)}")),
            most=True,
        )
        for name in REAL
    ]
    found += [
        Target(f"{name}: accuracy with a tenth of the labels", bound, score("rows late", f"{name}, {A_TENTH}"))
        for name, bound in LEAST_OF_A_TENTH.items()
    ]
    for name in LEAST:
        which = BALANCED if name == "rare" else ACCURACY
        static = score("streams", f"{name}, {STATIC}", which)
        for share, one in (("all", score("streams", f"{name}, {TRUTH}", which)),
                           ("a tenth of the", score("rows late", f"{name}, {A_TENTH}", which))):  # fmt: skip
            found.append(Target(f"{name}: below static private, with {share} labels", BELOW_STATIC,
                                _difference(static, one), most=True))  # fmt: skip
    for case, one in kept().get("gauge", {}).items():
        found.append(Target(f"gauge: mean error of one phase, {case}", GAUGE_ERROR, one["gauge error"], most=True))
    alarm = kept().get("alarm", {})
    false, decay = alarm.get("false alarms"), alarm.get("decay")
    found.append(Target("alarm: false in 100 tests", FALSE_ALARMS, false and false["false alarms"], most=True))
    caught = decay["accuracies"] if decay else []
    summary: dict[str, Callable[[list[float]], Any]] = {"mean": np.mean, "worst": np.min}
    for name, of in summary.items():
        found.append(Target(f"alarm: {name} accuracy of the phase in which decay below .80 is noticed", CAUGHT_ABOVE,
                            float(of(caught)) if caught else None))  # fmt: skip
    return found


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def tables() -> list[Table]:
    """The targets, and what was measured, part by part."""
    return [
        _targets_table(),
        _streams_table("Accuracy (balanced) from the third window on, ε = 1, δ = 10⁻⁶", "streams",
                       ("elec2", "covtype", "nycflights13", "flights3m", *MADE_UP)),
        _streams_table("The same on two sets that nothing was set on", "held out", HELD_OUT),
        _delay_table("Labelled rows that come late, or few of them: accuracy by delay in windows and share of queries "
                     "with a label", "rows late", DELAYS),
        _delay_table("The same by feedback on answers, which waits for late labels", "feedback", WAITS),
        _by_name("Complaints: labels come for wrong answers only (first 120,000 rows)", "complaints",
                 ("all labels", *(f"silence is the answer, {one:g}" for one in COMPLAINTS), "complaints alone")),
        _by_name("A tenth of the answers gets its true label; the others are dropped, or learned from with the answer "
                 "as label (first 200,000 rows)", "self-labelled", ("drop", "answer")),
        _rare_table(),
        _by_name("Hostile labels: their share, and what they say (covtype: first 150,000 rows)", "hostile",
                 ("none", *(f"{share:.0%}, {lie}" for share in HOSTILE for lie in LIES))),
        _gauge_table(),
        _alarm_table(),
        _by_name("Votes at ε = 8: accuracy (balanced); elec2 with windows of 4,000 rows, covtype (first 200,000) of "
                 "20,000", "votes",
                 ("votes, own answers", "votes of truth", "chain of truth", "chain of truth, its own windows"),
                 balanced=True),
    ]  # fmt: skip


def _shown(part: str, case: str, *, balanced: bool = False) -> str:
    """Accuracy, balanced accuracy if asked for, and the standard error if there were several runs."""
    one, mean = kept().get(part, {}).get(case), score(part, case)
    if one is None or mean is None:
        return "not measured"
    runs = [run[ACCURACY] for run in one["scores"]]
    text = f"{mean:.3f}" + (f" ({score(part, case, BALANCED):.3f})" if balanced else "")
    return text + (f" ±{np.std(runs, ddof=1) / np.sqrt(len(runs)):.3f}" if len(runs) > 1 else "")


def _targets_table() -> Table:
    lines = []
    for one in targets():
        found = "not measured" if one.found is None else f"{one.found:.3f}"
        bound = f"{'at most' if one.most else 'at least'} {one.bound:g}"
        lines.append((one.name, bound, found, "yes" if one.reached else "**no**"))
    return Table("Targets", ("what", "target", "found", "reached"), tuple(lines))


def _streams_table(title: str, part: str, names: Sequence[str]) -> Table:
    lines = []
    for name in names:
        one = kept().get(part, {}).get(f"{name}, {TRUTH}", {})
        numbers = (f"{one['columns']:,}", f"{one['rows']:,}") if one else ("not measured", "not measured")
        lines.append((name, *numbers, *(_shown(part, f"{name}, {who}", balanced=True) for who in METHODS.values())))
    return Table(title, ("stream", "columns", "rows of a window", *METHODS.values()), tuple(lines))


def _delay_table(title: str, part: str, late_or_few: Sequence[tuple[int, float]]) -> Table:
    names = [name for name in (*REAL, *MADE_UP) if any(f"{name}, {late(*one)}" in kept().get(part, {})
                                                       for one in late_or_few)]  # fmt: skip
    cases = [("streams", TRUTH, "0, 100%, labelled rows"), *((part, late(*one), late(*one)) for one in late_or_few),
             ("streams", STATIC, STATIC)]  # fmt: skip
    lines = []
    for found, case, shown in cases:
        means = [score(found, f"{name}, {case}", BALANCED if name == "rare" else ACCURACY) for name in names]
        lines.append((shown, *("not measured" if mean is None else f"{mean:.3f}" for mean in means)))
    columns = ("delay, share", *(f"{name}{', balanced' if name == 'rare' else ''}" for name in names))
    return Table(title, columns, tuple(lines))


def _by_name(title: str, part: str, cases: Sequence[str], *, balanced: bool = False) -> Table:
    names = list(dict.fromkeys(one["setting"]["stream"] for one in kept().get(part, {}).values()))
    lines = tuple((name, *(_shown(part, f"{name}, {case}", balanced=balanced) for case in cases)) for name in names)
    return Table(title, ("stream", *cases), lines)


def _rare_table() -> Table:
    lines = tuple((f"{one:g}", _shown("rare", f"rare, {one:g}", balanced=True)) for one in WEIGHTS)
    return Table("Rare positives: weight of the other class", ("weight", "accuracy (balanced)"), lines)


def _gauge_table() -> Table:
    lines = tuple(
        (one["setting"]["stream"], f"{one['gauge rows']}", f"{one['phases']}", f"{one['gauge error']:.3f}")
        for one in kept().get("gauge", {}).values()
    )
    return Table("The gauge: mean absolute error of the released accuracy of one phase",
                 ("stream", "rows that judge", "phases", "mean error"), lines)  # fmt: skip


def _alarm_table() -> Table:
    false, decay = (kept().get("alarm", {}).get(name) for name in ("false alarms", "decay"))
    lines = []
    if false:
        lines.append((f"runs of {false['setting']['tests']} tests with a false alarm", f"{false['false alarms']:.1%}"))
    if decay:
        listed = ", ".join(f"{one:.3f} (phase {phase})"
                           for one, phase in zip(decay["accuracies"], decay["phases"], strict=True))  # fmt: skip
        lines.append(("accuracy of a chain that decays, when the alarm is raised", listed or "not caught"))
    title = "The alarm on 2,000 rows of day one, which declares an accuracy of .80"
    return Table(title, ("what", "found"), tuple(lines))


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────────────────────


PLOTTED = ("covtype", "rotate")
COLOURS = {"truth": "#2b6a8f", "self": "#b3553c", "static": "#b8a04a", "fresh": "#8c8c8c"}


def plots() -> dict[str, bytes]:
    """Accuracy over time of a chain of truth, beside a static model and a chain that learns its own answers."""
    with style(font_size=9):
        return {"truth": _over_time()}


def _over_time() -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6))
    for index, name in enumerate(PLOTTED):
        axes = figure.add_subplot(1, len(PLOTTED), index + 1)
        for who, colour in COLOURS.items():
            one = kept().get("streams", {}).get(f"{name}, {METHODS[who]}")
            if one is not None:
                at = (np.arange(STEPS) + 0.5) / STEPS
                axes.plot(at, one["curve"], "--" if who == "fresh" else "-", color=colour, label=METHODS[who])
        axes.set_title(f"{name}, ε = 1")
        axes.set_ylim(0, 1)
        axes.set_xlabel("share of the stream answered")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e6e6")
    figure.axes[0].set_ylabel("accuracy")
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, frameon=False, ncols=len(names), loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    return svg(figure)


if __name__ == "__main__":
    named = [one for one in sys.argv[2:] if one != "--again"]
    measure(Path(sys.argv[1]), *named, again="--again" in sys.argv)
