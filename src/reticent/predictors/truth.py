"""Labels that arrive after day one: where they come from, and which rows judge and which train. All of it is public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from reticent.exact import integer, rational

Source = Literal["rows", "feedback", "both"]
Silence = Literal["drop", "answer"]
DEFAULTS = {
    "truth": None, "phase_rows": "auto", "wait": 0, "feedback_share": 1, "silence": "drop",
    "gauge_share": 0.1, "alarm": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Truth:
    """How labels reach the phases after the first; a function of parameters.

    Parameters
    ----------
    source : {"rows", "feedback", "both"}
        New labelled rows, labels for queries that were answered, or both.
    phase_rows : int or None
        Labelled rows of a phase, or with feedback the queries of a phase that have a slot for a label. None until
        `resolved`.
    wait : int, default 0
        How many queries after its window a phase still answers, and takes feedback for the window.
    feedback_share : Fraction, default 1
        The share of slots that is expected to get a label.
    silence : {"drop", "answer"}, default "drop"
        What a slot without a label becomes: nothing, or a row with the answer as its label.
    gauge_every : int or None, default 10
        One row (or group) in this many judges and does not train. None for no gauge.
    free_answers : bool, default False
        Whether answers cost nothing, so that a phase with `source="rows"` ends by its labelled rows alone.
    """

    source: Source
    phase_rows: int | None
    wait: int = 0
    feedback_share: Fraction = Fraction(1)
    silence: Silence = "drop"
    gauge_every: int | None = 10
    free_answers: bool = False

    @property
    def takes_rows(self) -> bool:
        """Whether labelled rows are taken."""
        return self.source != "feedback"

    @property
    def takes_feedback(self) -> bool:
        """Whether queries are kept, and have slots for labels."""
        return self.source != "rows"

    @property
    def rows(self) -> int:
        """The labelled rows, or slots, of a phase."""
        assert self.phase_rows is not None
        return self.phase_rows

    @property
    def gauge_rows(self) -> int:
        """How many of `phase_rows` labelled rows judge."""
        return 0 if self.gauge_every is None else -(-self.rows // self.gauge_every)

    @property
    def training_share(self) -> Fraction:
        """The share of rows that train."""
        return Fraction(1) if self.gauge_every is None else 1 - Fraction(1, self.gauge_every)

    def resolved(self, phase_rows: int, *, free_answers: bool) -> Truth:
        """With the size of a phase, and whether answers are free: what the engine decides."""
        return replace(self, phase_rows=self.phase_rows or phase_rows, free_answers=free_answers)

    def expected_labels(self, slots: int, rows: int) -> int:
        """The public number of labels that this many slots and labelled rows are taken to have, at least 1."""
        share = Fraction(1) if self.silence == "answer" else self.feedback_share
        return max(1, math.ceil(share * slots) + rows)

    def judges(self, units: int, *, training_first: int = 0) -> NDArray[np.bool_]:
        """Which of the units of a phase judge: by their number of arrival alone.

        A unit is a row, or with groups a group. The first `training_first` units train in any case: the answers that
        these queries got are those of an older phase.
        """
        if self.gauge_every is None:
            return np.zeros(units, dtype=bool)
        numbers = np.arange(units)
        return np.asarray((numbers % self.gauge_every == 0) & (numbers >= training_first))


def check_truth(given: Mapping[str, Any]) -> Truth | None:
    """The checked parameters of `EverlastingPredictor` that concern later labels; None without them."""
    share = rational(given["gauge_share"], "gauge_share")
    if not 0 <= share <= Fraction(1, 2):
        raise ValueError(f"gauge_share must be 0, or at most 1/2, got {given['gauge_share']}")
    if given["truth"] is None:
        for name in ("phase_rows", "wait", "feedback_share", "silence"):
            if isinstance(given[name], type(DEFAULTS[name])) and given[name] == DEFAULTS[name]:
                continue
            raise ValueError(f"{name} is for labels that arrive later: give truth as well, or leave {name} out")
        return None
    if given["truth"] not in get_args(Source):
        raise ValueError(f"truth must be None, 'rows', 'feedback' or 'both', got {given['truth']!r}")
    if given["silence"] not in get_args(Silence):
        raise ValueError(f"silence must be 'drop' or 'answer', got {given['silence']!r}")
    expected = rational(given["feedback_share"], "feedback_share")
    if not 0 < expected <= 1:
        raise ValueError(f"feedback_share must be in (0, 1], got {given['feedback_share']}")
    rows = given["phase_rows"]
    if isinstance(rows, str) and rows != "auto":
        raise ValueError(f"phase_rows must be 'auto' or a whole number, got {rows!r}")
    _refuse_what_truth_replaces(given)
    truth = Truth(
        source=cast(Source, given["truth"]),
        phase_rows=None if isinstance(rows, str) else integer(rows, "phase_rows", least=1),
        wait=integer(given["wait"], "wait", least=0),
        feedback_share=expected,
        silence=cast(Silence, given["silence"]),
        gauge_every=None if share == 0 else round(1 / share),
    )
    if not truth.takes_feedback:
        for name in ("wait", "feedback_share", "silence"):
            if given[name] != DEFAULTS[name]:
                raise ValueError(f"{name} is for feedback: truth is 'rows', which keeps no query")
    return truth


def _refuse_what_truth_replaces(given: Mapping[str, Any]) -> None:
    if given["training_stream"] != "queries":
        raise ValueError("training_stream must be 'queries' with truth: give rows of a stream to add_labelled")
    if given["retrain"] == "never":
        raise ValueError("retrain must not be 'never' with truth: every phase learns from its labels")
    if given["max_rows"] is not None:
        raise ValueError("max_rows must be None with truth: phase_rows says how many rows a phase has")
