"""Small everlasting predictors, as simple as they can be while the proof applies, and twins with one fault each.

The game that passes a model must reject its twins. A row is (x,), x one of a few integers, and a label 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from reticent.audit.laws import law
from reticent.labellers.two_coin import blurred_closing
from reticent.mechanisms.between_thresholds import BetweenThresholds, calibrate_gap
from reticent.noise import Noise

Pair = tuple[int, int]  # of x and a label

# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Votes:
    """K teachers, each a threshold that one row decides; R noisy majorities a phase; the next learns from these."""

    teachers, answers, sigma = 3, 3, Fraction(3, 2)

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def fit(self, X: Any, y: Any) -> None:
        self.phase_ = 1
        self.models: list[int] = []
        self.begin([(int(x), int(label)) for (x,), label in zip(X, y, strict=True)])

    def begin(self, rows: Sequence[Pair]) -> None:
        self.models = [self.learn(rows[teacher :: self.teachers]) for teacher in range(self.teachers)]
        self.gathered: list[Pair] = []

    def learn(self, rows: Sequence[Pair]) -> int:
        """The least threshold with the fewest errors: x ≥ threshold is labelled 1."""
        return min(range(5), key=lambda cut: sum((x >= cut) != label for x, label in rows))

    @property
    def answers_left_in_phase_(self) -> int:
        return self.answers - len(self.gathered)

    def predict(self, X: Any) -> list[int]:
        return [self.answer(int(x)) for (x,) in X]

    def answer(self, x: int) -> int:
        label = self.label(x)
        self.gather(x, label)
        return label

    def label(self, x: int) -> int:
        return noisy_majority(self.noise, sum(x >= cut for cut in self.models), self.teachers, self.sigma)

    def gather(self, x: int, label: int) -> None:
        self.gathered.append((x, label))
        if self.over():
            self.phase_ += 1
            self.begin(self.gathered)

    def over(self) -> bool:
        return len(self.gathered) == self.answers


def noisy_majority(noise: Noise, votes: int, teachers: int, sigma: Fraction) -> int:
    return noise.gaussian_cell(sigma, [-(-teachers // 2) - votes])


def claimed(model: type[Votes]) -> float:
    """ε of one phase at δ = 0: the answers times the worst log-ratio of one answer over neighbouring votes."""
    from reticent.audit.hockey_stick import exact

    laws = [
        law(lambda noise, votes=votes: noisy_majority(noise, votes, model.teachers, model.sigma))  # type: ignore[misc]
        for votes in range(model.teachers + 1)
    ]
    return model.answers * max(exact(*pair).epsilon(0)[1] for pair in pairwise(laws))


class CountedCache(Votes):
    """Equal questions of a phase get equal answers, and are counted and kept like any other."""

    sigma = Fraction(2236068, 1000000)  # σ² = 5

    def begin(self, rows: Sequence[Pair]) -> None:
        super().begin(rows)
        self.cache: dict[int, int] = {}

    def label(self, x: int) -> int:
        if x not in self.cache:
            self.cache[x] = super().label(x)
        return self.cache[x]


class UncountedCache(CountedCache):
    """Twin: a question that is answered from the cache is neither counted nor kept."""

    def answer(self, x: int) -> int:
        return self.cache[x] if x in self.cache else super().answer(x)


class Rejecting(Votes):
    """Questions below 0 are not valid: they are taken for the fixed point 0, counted and kept."""

    def answer(self, x: int) -> int:
        return super().answer(max(x, 0))


class UncountedRejection(Votes):
    """Twin: a question that is not valid is refused and not counted."""

    def answer(self, x: int) -> int:
        if x < 0:
            raise ValueError("X must hold no negative numbers")
        return super().answer(x)


class LengthByLabels(Votes):
    """Twin: a phase ends early, after two answers of 1."""

    def over(self) -> bool:
        return super().over() or sum(label for _, label in self.gathered) == 2


class Relabelled(Votes):
    """Twin: before the next phase the gathered rows are labelled anew, by the threshold that fits all of them best."""

    def begin(self, rows: Sequence[Pair]) -> None:
        if self.models:
            cut = self.learn(rows)
            rows = [(x, int(x >= cut)) for x, _ in rows]
        super().begin(rows)


class ContentShards(Votes):
    """Twin: a row goes to the teacher that its content says; a replaced row leaves one teacher and joins another."""

    def begin(self, rows: Sequence[Pair]) -> None:
        super().begin(rows)
        self.models = [self.learn([r for r in rows if r[0] % self.teachers == k]) for k in range(self.teachers)]


class WarmStart(Votes):
    """Twin: a teacher starts from that of the last phase, and goes only half of the way to what its row says."""

    sigma = CountedCache.sigma

    def begin(self, rows: Sequence[Pair]) -> None:
        before = self.models
        super().begin(rows)
        if before:
            self.models = [(old + new) // 2 for old, new in zip(before, self.models, strict=True)]


class Clients(Votes):
    """All rows of a client go to the same teacher: the client's number says which. Teachers do not look at labels."""

    def learn(self, rows: Sequence[Pair]) -> int:
        return max((x for x, _ in rows), default=0)

    def predict(self, X: Any, clients: Any = None) -> list[int]:
        labels = []
        for (x,), client in zip(X, clients if clients is not None else [0] * len(X), strict=True):
            self.client = int(client)
            labels.append(self.answer(int(x)))
        return labels

    def fit(self, X: Any, y: Any) -> None:
        self.owners: list[int] = []
        super().fit(X, y)

    def gather(self, x: int, label: int) -> None:
        self.owners.append(self.client)
        super().gather(x, label)

    def begin(self, rows: Sequence[Pair]) -> None:
        super().begin(rows)
        if self.owners:
            shards = self.shards(self.owners)
            dealt = [[row for row, shard in zip(rows, shards, strict=True) if shard == k] for k in range(self.teachers)]
            self.models = [self.learn(shard) for shard in dealt]
        self.owners = []

    def shards(self, owners: Sequence[int]) -> list[int]:
        return [owner % self.teachers for owner in owners]


class SplitClient(Clients):
    """Twin: rows are dealt by arrival, whoever asked: a client with two rows has two teachers."""

    def shards(self, owners: Sequence[int]) -> list[int]:
        return [place % self.teachers for place in range(len(owners))]


# ── a chain of private models ─────────────────────────────────────────────────────────────────────────────────────


class Chain:
    """A private model a phase: the majority of the labels, told truly three times in four, for all questions.

    After R answers a private test asks whether the questions moved: whether most of them lie above the model's public
    reference point. Only if so, and the test tells the truth three times in four, are the gathered rows learned from.
    Tested are the first R − 1 questions, learned from is the last: a question is in one of the two only.
    """

    answers = 3
    model_epsilon = Fraction(11, 10)  # just above ln 3

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def fit(self, X: Any, y: Any) -> None:
        self.phase_ = 1
        self.rows = [(int(x), int(label)) for (x,), label in zip(X, y, strict=True)]
        self.begin(self.rows)

    def begin(self, rows: Sequence[Pair]) -> None:
        self.model = self.told(2 * sum(label for _, label in rows) > len(rows))
        self.gathered: list[Pair] = []

    def told(self, fact: bool) -> int:
        return int(fact) ^ int(self.noise.bernoulli(Fraction(1, 4)))

    @property
    def answers_left_in_phase_(self) -> int:
        return self.answers - len(self.gathered)

    def predict(self, X: Any) -> list[int]:
        return [self.answer(int(x)) for (x,) in X]

    def answer(self, x: int) -> int:
        label = self.model ^ (x % 2)
        self.gathered.append((x, label))
        if len(self.gathered) == self.answers:
            self.turn()
        return label

    def turn(self) -> None:
        self.phase_ += 1
        *tested, last = self.gathered
        if self.told(self.moved([x for x, _ in tested])):
            self.begin([last])
        self.gathered = []

    def moved(self, asked: Sequence[int]) -> bool:
        return sum(x >= 2 for x in asked) > 0


class DriftAgainstRows(Chain):
    """Twin: questions are compared with the training rows themselves, which every test tells more about."""

    def moved(self, asked: Sequence[int]) -> bool:
        return max(asked) > max(x for x, _ in self.rows)


# ── a threshold that is spent: BetweenThresholds ──────────────────────────────────────────────────────────────────


class Between:
    """Twin: answers by BetweenThresholds, as printed; it closes when `halts` questions were in between.

    The votes on x are x, of 20000: the rows do not matter, the attack is on the questions. Of the ten halts that
    (1, 10⁻⁶) is spent on, one is left.
    """

    teachers, gap, halts = 20_000, 800, 10

    def __init__(self, noise: Noise) -> None:
        middle, half = self.teachers // 2, self.gap // 2
        plan = calibrate_gap(Fraction(1), Fraction(1, 10**6), self.halts)
        self.sides = BetweenThresholds(
            middle - half,
            middle + half,
            epsilon=plan.segment,
            delta=plan.failure / self.halts,
            unsafe_noise=noise,
        )

    def fit(self, X: Any, y: Any) -> None:
        pass

    def predict(self, X: Any) -> list[int]:
        return [int(self.sides.ask(int(x)) != "low") for (x,) in X]


# ── two coins ─────────────────────────────────────────────────────────────────────────────────────────────────────


class TwoCoins:
    """Two coins of the chance x/8 for 1; they differ: a hit. Closed near N hits, by noise on the threshold and on each
    check, so that a question shows little in the time of closing (J = 1 try, scale 1/ε on both noises)."""

    hits, epsilon, delta = 8, Fraction(1), Fraction(1, 100)

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.scale, self.margin = blurred_closing(self.epsilon, self.delta, 1)

    def fit(self, X: Any, y: Any) -> None:
        self.used, self.closed = 0, False
        self.threshold = self.hits - self.margin + self.noise.discrete_laplace(self.scale)

    @property
    def phase_(self) -> int:
        return 2 if self.closed else 1

    def predict(self, X: Any) -> list[int]:
        return [self.answer(Fraction(int(x), 8)) for (x,) in X]

    def answer(self, chance: Fraction) -> int:
        if not self.closed:
            self.closed = self.used > self.hits - 1 or self.reached()
        if self.closed:
            return -1
        first, second = self.noise.bernoulli(chance), self.noise.bernoulli(chance)
        self.used += first != second
        return int(first) if first == second else 0

    def reached(self) -> bool:
        return self.noise.laplace_cell(self.scale, [self.threshold - self.used]) == 1


class OneNoisyCap(TwoCoins):
    """Twin: noise on the threshold only."""

    def reached(self) -> bool:
        return bool(self.used >= self.threshold)
