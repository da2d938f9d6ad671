"""Teachers that are concepts: the one with the fewest errors on each shard. Thresholds need one sort for all shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin

from reticent.concepts.domains import Domain, Floats
from reticent.concepts.interface import ConceptClass
from reticent.concepts.thresholds import Threshold, Thresholds
from reticent.data.executor import Executor, as_executor
from reticent.data.points import as_array
from reticent.data.shards import Shards
from reticent.data.tables import Array, Integers, Table
from reticent.silence import silent
from reticent.teachers.trees import CutVoters

_INT64 = np.iinfo(np.int64)


class ConceptTeacher(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The first concept with the fewest errors on its rows. The label 1 of the concept is the second of `classes`.

    A threshold is put in the middle of the gap between the rows that it separates. If all teachers took the same end of
    the gap, their majority would be as far off as a single one.

    Parameters
    ----------
    concept_class : ConceptClass
        The concepts.
    classes : sequence
        The two classes.

    Attributes
    ----------
    classes_ : array of shape (2,)
        The classes.
    concept_ : concept
        The concept that was found.
    """

    def __init__(self, concept_class: ConceptClass[Any], classes: Sequence[Any] | Array) -> None:
        self.concept_class = concept_class
        self.classes = classes

    def fit(self, X: Table, y: Any) -> Self:
        """Fit to rows `X` and their labels `y`."""
        self.classes_ = np.asarray(self.classes)
        rows = points(X, self.concept_class)
        concept = self.concept_class.erm(rows, y == self.classes_[1])
        self.concept_ = centred(concept, rows, self.concept_class) if isinstance(concept, Threshold) else concept
        return self

    def predict(self, X: Table) -> Array:
        """Return the labels that the concept gives."""
        ones = self.concept_class.predict(self.concept_, points(X, self.concept_class))
        labels: Array = self.classes_[ones]
        return labels


def points(X: Table, concept_class: ConceptClass[Any]) -> Array:
    """Return the rows as a concept class takes them, without rounding."""
    if sparse.issparse(X):
        raise TypeError("X must be a dense array for teachers that are concepts, got a sparse matrix")
    array = as_array(X, "X")
    return array[:, 0] if concept_class.columns == 1 and array.shape[1] == 1 else array


def centred(concept: Threshold, rows: Array, concept_class: Any) -> Threshold:
    """Return the threshold halfway between the rows that it separates; unchanged if all rows are on one side."""
    if not isinstance(concept_class, Thresholds):
        return concept
    ranks, domain = concept_class.ranks(rows)
    at = domain.at_or_above(concept.at)
    below, above = ranks[ranks < at], ranks[ranks >= at]
    if not len(below) or not len(above):
        return concept
    middle = _between(below.max(keepdims=True), above.min(keepdims=True), domain)
    return Threshold(domain.value(int(middle[0]) + 1), concept.sign)


def _between(low: Array, high: Array, domain: Domain) -> Array:
    """Ranks in [low, high) whose values lie halfway."""
    if isinstance(domain, Floats):
        values = domain.values(low) / 2 + domain.values(high) / 2
        middle = domain.ranks(values.astype(domain.values(low).dtype))
    else:
        middle = low // 2 + high // 2 + (low % 2 + high % 2) // 2
    return np.asarray(np.clip(middle, low, high - 1))


class ThresholdVoters:
    """Thresholds that vote. The label 1 of a threshold is the second class."""

    def __init__(self, cuts: CutVoters, concept_class: Thresholds, domain: Domain) -> None:
        self.cuts, self.concept_class, self.domain = cuts, concept_class, domain

    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:  # fast without jobs
        """Return how many teachers vote for each class, one row per query."""
        return self.cuts.count(self._ranks(X))

    def ask(self, X: Table, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`."""
        return self.cuts.ask(self._ranks(X), teachers)

    def _ranks(self, X: Table) -> Array:
        ranks, domain = self.concept_class.ranks(points(X, self.concept_class))
        if domain != self.domain:
            raise TypeError("X must hold the kind of numbers the teachers learned from: whole, floats or datetimes")
        return ranks[:, None]


def fit_thresholds(
    concept_class: Thresholds, shards: Shards, *, n_jobs: int | Executor | None = None
) -> ThresholdVoters | None:
    """Return for every shard the threshold with the fewest errors; None if ranks do not fit into 64 bits."""
    cut, below = np.empty(shards.count, dtype=np.int64), np.empty(shards.count, dtype=np.int64)
    domain, executor = None, as_executor(n_jobs)
    tasks = ((concept_class, names, held) for names, held, _ in shards.loads(1, executor.workers))
    for found in executor.map(_fit_some, tasks):
        if found is None:
            return None
        cut[found.names], below[found.names], domain = found.cut, found.below, found.domain
    assert domain is not None
    known = shards.constant >= 0
    below, above = (np.where(known, shards.constant, side) for side in (below, 1 - below))
    column = np.zeros(shards.count, dtype=np.int64)
    return ThresholdVoters(CutVoters(column, cut, below, above, classes=2), concept_class, domain)


class ShardCuts(NamedTuple):
    """The thresholds of some shards: their numbers, the last rank below each threshold, and the label there."""

    names: Integers
    cut: Integers
    below: Integers
    domain: Domain


@silent()  # again: it may run in another process
def _fit_some(concept_class: Thresholds, names: Integers, shards: Shards) -> ShardCuts | None:
    ranks, domain = concept_class.ranks(points(shards.X, concept_class))
    if ranks.dtype != np.int64 or int(ranks.min()) == _INT64.min or int(ranks.max()) == _INT64.max:
        return None
    return ShardCuts(names, *_best_cuts(ranks, shards, domain, concept_class.both_orientations), domain)


def _best_cuts(ranks: Integers, shards: Shards, domain: Domain, both: bool) -> tuple[Integers, Integers]:
    """For each shard the last rank below its threshold, and the label there; both 0 for a shard without labels."""
    assert shards.shard is not None
    labelled = np.flatnonzero(shards.class_indices >= 0)
    sizes = np.bincount(shards.shard[labelled], minlength=shards.count)
    found = np.zeros((2, shards.count), dtype=np.int64)
    learning = sizes > 0  # only these have a row to read a cut off; below, shards are numbered among them
    if learning.any():
        shard = (np.cumsum(learning) - 1)[shards.shard[labelled]]
        gain = 2 * shards.class_indices[labelled] - 1  # of labelling a row 1
        found[:, learning] = _cuts_of_rows(ranks[labelled], gain, shard, sizes[learning], domain=domain, both=both)
    return found[0], found[1]


def _cuts_of_rows(
    ranks: Integers, gain: Integers, shard: Integers, sizes: Integers, *, domain: Domain, both: bool
) -> tuple[Integers, Integers]:
    """`_best_cuts` of labelled rows, of which every shard has at least one."""
    starts, count = np.append(0, np.cumsum(sizes)), len(sizes)
    order = np.lexsort((ranks, shard))
    ranks, shard, gain = ranks[order], shard[order], gain[order]
    before = np.append(0, np.cumsum(gain))
    total = before[starts[1:]] - before[starts[:-1]]
    # There is a cut before each row and one after the last row of a shard. Its value is the gain of labelling the rows
    # below it with 1.
    rows = np.arange(len(ranks))
    index = rows + shard  # every earlier shard has one more cut than it has rows
    ends = starts[1:] + np.arange(count)
    firsts = starts[:-1] + np.arange(count)
    value = np.empty(len(ranks) + count, dtype=np.int64)
    value[index] = before[:-1] - before[starts[:-1]][shard]
    value[ends] = total
    cut = np.empty_like(value)
    parted = np.append(False, ranks[:-1] < ranks[1:])
    parted[starts[:-1]] = False  # nothing lies below the first row of a shard
    lower, cuts = np.append(ranks[:1], ranks[:-1]), ranks - 1
    cuts[parted] = _between(lower[parted], ranks[parted], domain)
    cut[index], cut[ends] = cuts, ranks[starts[1:] - 1]
    tied = np.zeros(len(value), dtype=bool)  # there is no cut between equal points
    tied[index[1:]] = (ranks[1:] == ranks[:-1]) & (shard[1:] == shard[:-1])
    best, chosen = _first_best(np.where(tied, _INT64.min, value), firsts)
    below = np.ones(count, dtype=np.int64)
    if both:
        inner = ~tied
        inner[firsts] = inner[ends] = False  # there the other sign gives no new labelling
        upwards = np.where(inner, np.repeat(total, np.diff(np.append(firsts, len(value)))) - value, _INT64.min)
        best_up, chosen_up = _first_best(upwards, firsts)
        up = best_up > best
        chosen, below = np.where(up, chosen_up, chosen), np.where(up, 0, 1)
    return cut[chosen], below


def _first_best(values: Integers, starts: Integers) -> tuple[Integers, Integers]:
    """The largest value of each run, and the first index where it occurs."""
    best = np.maximum.reduceat(values, starts)
    lengths = np.diff(np.append(starts, len(values)))
    hits = np.where(values == np.repeat(best, lengths), np.arange(len(values)), len(values))
    return best, np.minimum.reduceat(hits, starts)
