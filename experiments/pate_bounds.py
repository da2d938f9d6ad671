"""Table 1 of the theory of PATE as numbers: what each theorem promises, setting by setting, and how it scales."""

from __future__ import annotations

from typing import Any

from experiments.drawing import style, svg
from experiments.table import Table
from reticent.plan.pate_bounds import PATEBound, pate_bounds

PROBLEM: dict[str, Any] = {"dimension": 10, "epsilon": 1, "delta": 1e-6}
ROWS, PUBLIC = 10**6, 10**6
SIZES = tuple(10**power for power in (4, 5, 6, 7, 8))
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("realizable", {"setting": "realizable", "theta": 4}),
    ("Tsybakov, τ = 1/2", {"setting": "tsybakov", "tau": 0.5, "theta": 4, "best_error": 0.05}),
    ("agnostic, Err(h*) = 0.05", {"setting": "agnostic", "best_error": 0.05, "unclear": 0.01, "margin": 0.25}),
)


def tables() -> list[Table]:
    """Table 1, and the number of teachers that the theorems ask for."""
    return [_orders(), _teachers()]


def plots() -> dict[str, bytes]:
    """The bounds by the number of private rows, as an SVG."""
    from matplotlib.figure import Figure

    colours = {28: "#8c8c8c", 5: "#b8a04a", 10: "#2b6a8f", 22: "#b3553c"}
    with style():
        figure = Figure(figsize=(7.2, 3.4))
        for index, (title, options) in enumerate(SETTINGS[:2], start=1):
            axes = figure.add_subplot(1, 2, index)
            for theorem, colour in colours.items():
                found = [_of(theorem, rows, options) for rows in SIZES]
                label = f"Theorem {theorem}: {found[0].algorithm}"
                axes.plot(SIZES, [each.excess for each in found], color=colour, label=label)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("private rows")
            axes.spines[["top", "right"]].set_visible(False)
            if index == 1:
                axes.set_ylabel("order of the excess error")
                axes.legend(frameon=False, fontsize=7, loc="lower left")
        figure.tight_layout()
        picture = svg(figure)
    return {"pate_bounds": picture}


def _of(theorem: int, rows: int, options: dict[str, Any]) -> PATEBound:
    bounds = pate_bounds(rows=rows, public=PUBLIC, **PROBLEM, **options).bounds
    return next(bound for bound in bounds if bound.theorem == theorem)


def _all(options: dict[str, Any]) -> tuple[PATEBound, ...]:
    return pate_bounds(rows=ROWS, public=PUBLIC, **PROBLEM, **options).bounds


def _orders() -> Table:
    return Table(
        f"Orders of the excess error, n = 10^6, m = 10^6, d = {PROBLEM['dimension']}, ε = {PROBLEM['epsilon']}, "
        f"δ = {PROBLEM['delta']:g}, θ = 4: hidden constants are 1, hidden logarithms left out",
        ("setting", "theorem", "labeller", "excess over", "formula", "labels", "order"),
        tuple(
            (title, str(each.theorem), each.algorithm, each.against, each.formula, f"{each.labels:,}",
             f"{each.excess:.3g}")
            for title, options in SETTINGS
            for each in _all(options)
        )
        + tuple(
            (SETTINGS[-1][0], str(each.theorem), each.algorithm, each.against, "Ω(Err(h*)) required", "–", "–")
            for each in _all(SETTINGS[0][1])
            if each.theorem != 5
        ),
    )  # fmt: skip


def _teachers() -> Table:
    return Table(
        "Teachers by the printed formulas, and rows left for each; Theorem 22 solved with its logarithms, C₁ = C₂ = 1",
        ("setting", "theorem", "teachers", "rows a teacher", "error solved for"),
        tuple(
            (title, str(each.theorem), f"{each.teachers:,}", f"{ROWS / each.teachers:,.1f}",
             "–" if each.solved is None else f"{each.solved:.3g}")
            for title, options in SETTINGS
            for each in _all(options)
            if each.teachers is not None
        ),
    )  # fmt: skip
