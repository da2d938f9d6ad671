"""What labels that come later are worth: a chain of truth on nine streams, late, few, false and hostile labels.

The predictor itself is measured, through `add_labelled` and `feedback`. That takes about an hour on one core, so results
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
    """What was measured, by part and case."""
    return MEASUREMENTS.read()


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


if __name__ == "__main__":
    named = [one for one in sys.argv[2:] if one != "--again"]
    measure(Path(sys.argv[1]), *named, again="--again" in sys.argv)
