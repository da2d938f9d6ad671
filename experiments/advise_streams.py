"""The streams that the advice on drift and later labels is measured on: those that set its rules, and those held out.

Each has rows of day one, and then queries in order of time. Some queries get a true label later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reticent.plan.advise import Advice, advise

SEEDS = 6


@dataclass(frozen=True, kw_only=True)
class StreamSetting:
    """A stream: what `plan.advise` is given, and how it is measured.

    `data` is a data set in the order of its file, of which every n-th row is taken, or a kind of made-up stream with
    its numbers.
    """

    name: str
    data: str
    rows: int
    features: int
    epsilon: float
    asked: int  # queries that are measured
    drift: Literal["none", "slow", "fast"]
    classes_apart: bool = False
    answers: int | Literal["endless"] = "endless"  # what the user expects
    later_labels: float = 0
    label_delay: int = 0
    labels_by: Literal["rows", "feedback"] = "rows"
    seeds: int = SEEDS
    delta: float = 1e-6

    def advice(self) -> Advice:
        """What is advised: by public numbers alone."""
        return advise(
            self.rows,
            self.features,
            epsilon=self.epsilon,
            delta=self.delta,
            answers=self.answers,
            drift=self.drift,
            classes_apart=self.classes_apart,
            later_labels=self.later_labels,
            label_delay=self.label_delay,
            labels_by=self.labels_by,
        )


# The rules were set with these in sight,
TUNED = (
    StreamSetting(name="elec2, no labels", data="elec2 1", rows=5_000, features=6, epsilon=1, asked=40_000,
                  drift="slow"),
    StreamSetting(name="covtype, no labels", data="covtype 8", rows=5_000, features=54, epsilon=1, asked=60_000,
                  drift="fast"),
    StreamSetting(name="turning boundary, no labels", data="rotate 180", rows=4_000, features=10, epsilon=1,
                  asked=50_000, drift="fast"),
    StreamSetting(name="labels flip, no labels", data="flip 0.4", rows=4_000, features=10, epsilon=2, asked=40_000,
                  drift="fast"),
    StreamSetting(name="clusters, slow, 4 columns", data="clusters 6", rows=5_000, features=4, epsilon=4,
                  asked=60_000, drift="slow", classes_apart=True),
    StreamSetting(name="clusters, fast", data="clusters 25", rows=8_000, features=2, epsilon=4, asked=60_000,
                  drift="fast", classes_apart=True),
    StreamSetting(name="clusters, slow, very few rows", data="clusters 4", rows=1_500, features=2, epsilon=1,
                  asked=45_000, drift="slow", classes_apart=True),
    StreamSetting(name="clusters, slow, 3 columns", data="clusters 8", rows=2_500, features=3, epsilon=2,
                  asked=50_000, drift="slow", classes_apart=True),
    StreamSetting(name="elec2, all labels", data="elec2 1", rows=1_500, features=6, epsilon=1, asked=40_000,
                  drift="slow", later_labels=1),
    StreamSetting(name="elec2, 30 % of labels, late", data="elec2 1", rows=5_000, features=6, epsilon=1, asked=40_000,
                  drift="slow", later_labels=0.3, label_delay=1_000),
    StreamSetting(name="elec2, all labels, ε = 8", data="elec2 1", rows=8_000, features=6, epsilon=8, asked=35_000,
                  drift="slow", later_labels=1),
    StreamSetting(name="covtype, all labels", data="covtype 8", rows=5_000, features=54, epsilon=1, asked=60_000,
                  drift="fast", later_labels=1),
    StreamSetting(name="covtype, 10 % feedback, late", data="covtype 8", rows=20_000, features=54, epsilon=1,
                  asked=50_000, drift="fast", later_labels=0.1, label_delay=2_000, labels_by="feedback"),
    StreamSetting(name="turning boundary, all labels", data="rotate 180", rows=4_000, features=10, epsilon=1,
                  asked=50_000, drift="fast", later_labels=1),
    StreamSetting(name="turning boundary, 10 % feedback", data="rotate 90", rows=2_000, features=10, epsilon=4,
                  asked=50_000, drift="slow", later_labels=0.1, labels_by="feedback"),
    StreamSetting(name="turning boundary, 2 % of labels", data="rotate 60", rows=5_000, features=10, epsilon=1,
                  asked=20_000, drift="fast", answers=20_000, later_labels=0.02),
    StreamSetting(name="labels flip, 30 % of labels, late", data="flip 0.4", rows=4_000, features=10, epsilon=2,
                  asked=40_000, drift="fast", later_labels=0.3, label_delay=3_000),
    StreamSetting(name="clusters, fast, 30 % of labels", data="clusters 25", rows=8_000, features=2, epsilon=4,
                  asked=60_000, drift="fast", classes_apart=True, later_labels=0.3),
    StreamSetting(name="nothing moves, 500 rows", data="stationary", rows=500, features=10, epsilon=1, asked=30_000,
                  drift="none", later_labels=1),
    StreamSetting(name="nothing moves, 20,000 rows", data="stationary", rows=20_000, features=10, epsilon=1,
                  asked=40_000, drift="none", later_labels=1),
    StreamSetting(name="nothing moves, 10,000 answers", data="stationary", rows=3_000, features=30, epsilon=0.5,
                  asked=10_000, drift="none", answers=10_000, later_labels=0.3),
)  # fmt: skip
# and these were written down before any of them was measured, to be measured once when the rules are set: other real
# streams, and other kinds of change.
HELD_OUT = (
    StreamSetting(name="nycflights13, no labels", data="nycflights13 5", rows=10_000, features=163, epsilon=2,
                  asked=50_000, drift="slow"),
    StreamSetting(name="flights3m, no labels", data="flights3m 15", rows=15_000, features=497, epsilon=4,
                  asked=45_000, drift="slow", seeds=3),
    StreamSetting(name="kdd99, no labels", data="kdd99 8", rows=5_000, features=119, epsilon=1, asked=50_000,
                  drift="fast", classes_apart=True),
    StreamSetting(name="bank, no labels", data="bank_additional 1", rows=10_000, features=62, epsilon=1, asked=30_000,
                  drift="slow"),
    StreamSetting(name="three boundaries in turn, no labels", data="recur 12", rows=4_000, features=8, epsilon=2,
                  asked=40_000, drift="fast"),
    StreamSetting(name="inputs move along a curve, no labels", data="curve", rows=5_000, features=6, epsilon=1,
                  asked=40_000, drift="slow"),
    StreamSetting(name="shares of classes move, no labels", data="priors", rows=5_000, features=12, epsilon=1,
                  asked=40_000, drift="slow"),
    StreamSetting(name="a new cluster, no labels", data="newcomers", rows=5_000, features=6, epsilon=2, asked=40_000,
                  drift="fast", classes_apart=True),
    StreamSetting(name="clusters, slow, 5 columns", data="clusters 5", rows=4_000, features=5, epsilon=1,
                  asked=50_000, drift="slow", classes_apart=True),
    StreamSetting(name="clusters, fast, 3 columns", data="clusters 30", rows=12_000, features=3, epsilon=4,
                  asked=60_000, drift="fast", classes_apart=True),
    StreamSetting(name="nycflights13, all labels", data="nycflights13 5", rows=10_000, features=163, epsilon=2,
                  asked=50_000, drift="slow", later_labels=1),
    StreamSetting(name="nycflights13, 30 % of labels, late", data="nycflights13 5", rows=5_000, features=163,
                  epsilon=1, asked=50_000, drift="slow", later_labels=0.3, label_delay=2_000),
    StreamSetting(name="flights3m, all labels", data="flights3m 15", rows=15_000, features=497, epsilon=4,
                  asked=45_000, drift="slow", later_labels=1, seeds=3),
    StreamSetting(name="kdd99, 10 % feedback", data="kdd99 8", rows=5_000, features=119, epsilon=1, asked=50_000,
                  drift="fast", classes_apart=True, later_labels=0.1, labels_by="feedback"),
    StreamSetting(name="bank, all labels", data="bank_additional 1", rows=3_000, features=62, epsilon=1, asked=35_000,
                  drift="slow", later_labels=1),
    StreamSetting(name="covtype, 10 % of labels, very late", data="covtype 9", rows=3_000, features=54, epsilon=4,
                  asked=40_000, drift="fast", answers=40_000, later_labels=0.1, label_delay=5_000),
    StreamSetting(name="three boundaries in turn, late labels", data="recur 12", rows=4_000, features=8, epsilon=2,
                  asked=40_000, drift="fast", later_labels=1, label_delay=5_000),
    StreamSetting(name="inputs move along a curve, 30 % feedback", data="curve", rows=2_000, features=6, epsilon=1,
                  asked=40_000, drift="slow", later_labels=0.3, label_delay=500, labels_by="feedback"),
    StreamSetting(name="shares of classes move, 10 % of labels", data="priors", rows=5_000, features=12, epsilon=1,
                  asked=40_000, drift="slow", later_labels=0.1),
    StreamSetting(name="a new cluster, all labels", data="newcomers", rows=5_000, features=6, epsilon=2, asked=40_000,
                  drift="fast", classes_apart=True, later_labels=1),
    StreamSetting(name="new boundaries, 30 % of labels", data="redrawn 4", rows=3_000, features=15, epsilon=4,
                  asked=40_000, drift="fast", later_labels=0.3),
    StreamSetting(name="clusters, fast, all labels", data="clusters 20", rows=10_000, features=2, epsilon=8,
                  asked=50_000, drift="fast", classes_apart=True, later_labels=1),
    StreamSetting(name="nothing moves, 1,000 rows", data="stationary", rows=1_000, features=20, epsilon=2,
                  asked=30_000, drift="none", later_labels=0.5),
    StreamSetting(name="nothing moves, 30,000 rows", data="stationary", rows=30_000, features=20, epsilon=0.5,
                  asked=40_000, drift="none", later_labels=0.2, label_delay=1_000),
    StreamSetting(name="donors at random, 1,000 rows", data="donors 6 shuffled", rows=1_000, features=10, epsilon=1,
                  asked=40_000, drift="none", later_labels=0.3),
)  # fmt: skip
SETTINGS = (*TUNED, *HELD_OUT)
