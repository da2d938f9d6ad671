"""Options of `reticent fit` for labels that arrive later, and for alarms; and what they mean in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from reticent.cli.errors import UsageError
from reticent.cli.options import Number, whole_number

if TYPE_CHECKING:
    from reticent.plan.planned_phases import PlannedTruth

ROWS = (
    "LATER LABELS: hand new labelled rows over with reticent teach. Each enters one phase in one role, so everybody "
    "pays ε and δ once. Queries are answered, and are neither kept nor learned from."
)
FEEDBACK = (
    "LATER LABELS: whoever asked gives the outcome back with reticent feedback, by the answer_id of the answer. Nobody "
    "sees whether, when or what feedback came."
)
BOTH = f"{FEEDBACK} Labelled rows (reticent teach) join the next phase. Each row enters one phase in one role."
SOURCES = {"rows": ROWS, "feedback": FEEDBACK, "both": BOTH}


@dataclass(frozen=True, kw_only=True)
class TruthOptions:
    """Where labels come from after the table, and when to raise an alarm.

    Parameters
    ----------
    truth
        Where labels come from after the table: rows, new labelled rows (reticent teach); feedback, the outcomes of
        queries that were answered (reticent feedback); or both. Phases then learn from these alone, and everybody still
        pays epsilon and delta once. It needs phases, so auto takes --learner private.
    phase_rows
        With --truth: the labelled rows of a phase; with feedback, the queries of a phase that have a slot for a label.
        auto takes as many as the learner needs for little noise.
    wait
        With feedback: the number of queries after the window of a phase during which its feedback is still taken.
    feedback_share
        With feedback: the share of queries that is expected to get a label. Choose it without looking; a wrong one
        costs accuracy, never privacy.
    silence
        With feedback: what a query without a label becomes: nothing, or a row with its answer as label. Take answer
        only if clients report wrong answers alone, and at least half of them.
    gauge_share
        The share of labelled rows that judge the phase before, and do not train; at most 1/2. With an alarm but without
        --truth, the share of the rows of the table that are kept aside for tests.
    alarm_accuracy
        Raise an alarm when fewer than this share of answers are right. Choose it without looking at the rows.
    alarm_recall
        Raise an alarm when, of the rows of some class, fewer than this share get it as their answer.
    labels_per_day
        With --truth: how many labelled rows (with feedback: queries) arrive per day. The plan then says how often a
        phase begins.
    """

    truth: Literal["rows", "feedback", "both"] | None = None
    phase_rows: Annotated[int | str, Parameter(converter=whole_number("auto", least=1))] = "auto"
    wait: Annotated[int, Parameter(converter=whole_number(least=0))] = 0
    feedback_share: Number = 1
    silence: Literal["drop", "answer"] = "drop"
    gauge_share: Number = 0.1
    alarm_accuracy: Number | None = None
    alarm_recall: Number | None = None
    labels_per_day: Number | None = None

    def check(self, learner: str, *, compare: bool) -> None:
        """Refuse options that do not go together, by their names on the command line."""
        if self.alarm_accuracy is not None and self.alarm_recall is not None:
            raise UsageError("--alarm-accuracy and --alarm-recall are two alarms: leave one of them out")
        for name, value in (("--alarm-accuracy", self.alarm_accuracy), ("--alarm-recall", self.alarm_recall)):
            if value is not None and not 0 < value < 1:
                raise UsageError(f"{name} must be above 0 and below 1, got {float(value):g}")
        if not 0 <= self.gauge_share <= Fraction(1, 2):
            raise UsageError(f"--gauge-share must be from 0 to 1/2, got {float(self.gauge_share):g}")
        if not 0 < self.feedback_share <= 1:
            raise UsageError(f"--feedback-share must be above 0 and at most 1, got {float(self.feedback_share):g}")
        if self.labels_per_day is not None and not self.labels_per_day > 0:
            raise UsageError(f"--labels-per-day must be positive, got {float(self.labels_per_day):g}")
        fed = {
            "--wait": self.wait != 0, "--feedback-share": self.feedback_share != 1, "--silence": self.silence != "drop",
        }  # fmt: skip
        needs = {"--phase-rows": self.phase_rows != "auto", "--labels-per-day": self.labels_per_day is not None}
        if self.truth is None and (given := [name for name, is_given in (needs | fed).items() if is_given]):
            raise UsageError(f"{given[0]} is for labels that arrive later: add --truth rows, feedback or both")
        if self.truth == "rows" and (given := [name for name, is_given in fed.items() if is_given]):
            raise UsageError(f"{given[0]} is for feedback, and --truth rows keeps no query: take --truth both")
        if self.truth is not None and compare:
            raise UsageError(
                "--compare makes one private model, and --truth needs phases that learn: leave out one of them"
            )
        if self.truth is not None and learner == "private-model":
            raise UsageError(
                "--truth needs phases that learn, and --learner private-model is one model that never learns again: "
                "take --learner private"
            )
        if self._alarm is not None and (compare or learner == "private-model"):
            raise UsageError(
                "an alarm watches phases, and --learner private-model has one model for ever: test it once, or take "
                "--learner private"
            )

    @property
    def needs_phases(self) -> bool:
        """Whether one model that never learns again is no choice."""
        return self.truth is not None or self._alarm is not None

    @property
    def takes_rows(self) -> bool:
        """Whether labelled rows are taken later."""
        return self.truth in ("rows", "both")

    @property
    def takes_feedback(self) -> bool:
        """Whether queries have slots for labels."""
        return self.truth in ("feedback", "both")

    @property
    def _alarm(self) -> tuple[str, Any] | None:
        values = (("accuracy", self.alarm_accuracy), ("recall", self.alarm_recall))
        return next(((name, value) for name, value in values if value is not None), None)

    def predictor_parameters(self) -> dict[str, Any]:
        """Parameters of `EverlastingPredictor`."""
        from reticent.predictors.alarms import QualityAlarm

        alarm = None if self._alarm is None else QualityAlarm(**dict([self._alarm]))
        return {**self._common(), "silence": self.silence, "alarm": alarm}

    def plan_parameters(self) -> dict[str, Any]:
        """Parameters of `plan.everlasting`."""
        return {**self._common(), "labels_per_day": self.labels_per_day}

    def _common(self) -> dict[str, Any]:
        return {
            "truth": self.truth, "phase_rows": self.phase_rows, "wait": self.wait,
            "feedback_share": self.feedback_share, "gauge_share": self.gauge_share,
        }  # fmt: skip

    def toml(self, planned: PlannedTruth | None) -> dict[str, Any]:
        """What model.toml says of it; nothing without later labels or an alarm."""
        made: dict[str, Any] = {}
        if self.truth is not None and planned is not None:
            made |= {"truth": self.truth, "phase_rows": planned.phase_rows}
            if self.takes_feedback:
                made |= {"wait": self.wait, "feedback_share": str(self.feedback_share), "silence": self.silence}
        if self.needs_phases:
            made["gauge_share"] = str(self.gauge_share)
        if self._alarm is not None:
            made[f"alarm_{self._alarm[0]}"] = str(self._alarm[1])
        return made

    def words(self, planned: PlannedTruth | None, *, group: str | None) -> list[str]:
        """What happens to labels that arrive later, and when there is an alarm; for the terminal."""
        lines = []
        if self.truth is not None and planned is not None:
            lines.append(SOURCES[self.truth])
            if planned.phase_rows < planned.fewest:
                lines.append(
                    f"WARNING: phases of {planned.phase_rows:,} are small (--phase-rows): below {planned.fewest:,} the "
                    "noise outweighs half of what the labels say."
                )
            if group is not None and self.takes_rows:
                lines.append(
                    f"Later rows name their group in the column {group!r}, too. A group enters --client-phases phases, "
                    "the table included: further rows of it are counted, and not learned from."
                )
            if self.silence == "answer":
                lines.append("A query without feedback is learned from with its answer as label (--silence answer).")
        if self._alarm is not None:
            what = "answers that are right" if self.alarm_accuracy is not None else "rows of each class that get it"
            where = "the last three phases together" if self.truth is not None else "rows of the table kept aside"
            lines.append(
                f"ALARM: if the share of {what} falls below {float(self._alarm[1]):g}, by {where} and by more than "
                "chance explains."
            )
        return lines


NOTHING_LATER = TruthOptions()

Truth = Annotated[TruthOptions | None, Parameter(name="*")]
