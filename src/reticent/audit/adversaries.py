"""The players of the everlasting game: samples, queries, views, adversaries, and the rules that adversaries obey."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple, Protocol

import numpy as np

Row = tuple[Any, ...]
HIDDEN = "hidden"  # stands in the view for the answer to a challenge
UNITS = ("row", "client")

# ── moves and views ───────────────────────────────────────────────────────────────────────────────────────────────


class Sample(NamedTuple):
    """Labelled rows to train on.

    Parameters
    ----------
    rows : tuple of tuples
        The training rows.
    labels : tuple
        One label per row.
    groups : tuple of hashables, optional
        The group that each row belongs to, if groups are protected.
    """

    rows: tuple[Row, ...]
    labels: tuple[Any, ...]
    groups: tuple[Hashable, ...] | None = None


class Query(NamedTuple):
    """A row that the predictor must label.

    Parameters
    ----------
    row : tuple
        The row, in the first world.
    other : tuple, optional
        The row in the second world. A query that has one is a challenge.
    client : hashable, optional
        The client who asks.
    """

    row: Row
    other: Row | None = None
    client: Hashable | None = None


class Seen(NamedTuple):
    """What the adversary sees of one round.

    Parameters
    ----------
    answer : hashable
        The answer, the error that refused it, or `HIDDEN`.
    before : int or None
        The number of the phase that answers; None during training.
    phase : int or None
        `phase_` after the round; None if the predictor has no phases.
    left : int or None
        `answers_left_in_phase_` after the round; None if the predictor has no phases.
    """

    answer: Hashable
    before: int | None
    phase: int | None
    left: int | None


View = tuple[Seen, ...]


class Adversary(Protocol):
    """Who attacks. It may adapt to what it sees, but must be deterministic: each move is a function of the view."""

    def training(self) -> tuple[Sample, Sample]:
        """Return the samples of the two worlds: equal, or different in one row (or in the rows of one group)."""

    def ask(self, view: View) -> Query | None:
        """Return the next query, given everything seen so far; None to stop."""


# ── strategies ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RandomStrategy:
    """An adaptive strategy drawn at random: the next query is a hash of the seed and of the view.

    Parameters
    ----------
    seed : int
        Which of the strategies this is.
    rows : tuple of tuples
        The rows that it asks about.
    samples : pair of Sample
        The training samples of the two worlds. They must differ if `challenge` is None.
    challenge : int, optional
        The round, counted from 0, in which it asks about one row in each world.

    Examples
    --------
    >>> sample = Sample(((0,), (1,)), (0, 1))
    >>> RandomStrategy(7, rows=((0,), (1,)), samples=(sample, sample), challenge=0).ask(())
    Query(row=(0,), other=(1,), client=None)
    """

    seed: int
    rows: tuple[Row, ...]
    samples: tuple[Sample, Sample]
    challenge: int | None = None

    def training(self) -> tuple[Sample, Sample]:
        """Return the given samples."""
        return self.samples

    def ask(self, view: View) -> Query:
        """Return a row that depends on the whole view, or the challenge."""
        hashed = hashlib.blake2b(repr((self.seed, *view)).encode(), digest_size=8).digest()
        drawn = int.from_bytes(hashed, "little")
        if max(len(view) - 1, 0) != self.challenge:
            return Query(self.rows[drawn % len(self.rows)])
        pairs = list(permutations(self.rows, 2))
        return Query(*pairs[drawn % len(pairs)])


@dataclass(frozen=True)
class Script:
    """An adversary that asks a fixed list of queries, whatever it sees.

    Parameters
    ----------
    samples : pair of Sample
        The training samples of the two worlds.
    queries : tuple of Query
        The queries, in order.
    """

    samples: tuple[Sample, Sample]
    queries: tuple[Query, ...]

    def training(self) -> tuple[Sample, Sample]:
        """Return the given samples."""
        return self.samples

    def ask(self, view: View) -> Query | None:
        """Return the next of the queries."""
        asked = len(view) - 1
        return self.queries[asked] if asked < len(self.queries) else None


def random_strategies(
    number: int,
    *,
    rows: Sequence[Row],
    labels: Sequence[Any] = (0, 1),
    size: int,
    challenge: int | None,
    seed: int = 0,
) -> list[RandomStrategy]:
    """Draw random strategies, each with a random training sample.

    Parameters
    ----------
    number : int
        How many strategies.
    rows : sequence of tuples
        The rows that are trained on and asked about.
    labels : sequence, default (0, 1)
        The labels of training rows.
    size : int
        Rows per training sample.
    challenge : int or None
        The round of the challenge, counted from 0. With None the two samples differ in one random row instead.
    seed : int, default 0
        Seed of the draw.

    Returns
    -------
    list of RandomStrategy
    """
    domain = tuple(rows)
    strategies = []
    for index in range(number):
        drawn = np.random.default_rng([seed, index])
        indices = [(int(drawn.integers(len(domain))), int(drawn.integers(len(labels)))) for _ in range(size)]
        pairs = [(domain[row], labels[label]) for row, label in indices]
        first = second = _sample_of(pairs)
        if challenge is None:
            others = [(row, label) for row in domain for label in labels]
            replaced = int(drawn.integers(size))
            others.remove(pairs[replaced])
            pairs[replaced] = others[int(drawn.integers(len(others)))]
            second = _sample_of(pairs)
        strategies.append(RandomStrategy(1000 * seed + index, domain, (first, second), challenge))
    return strategies


def _sample_of(pairs: Sequence[tuple[Row, Any]]) -> Sample:
    return Sample(tuple(row for row, _ in pairs), tuple(label for _, label in pairs))


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def listed_adversaries(adversaries: Adversary | Iterable[Adversary]) -> list[Adversary]:
    """Return the adversaries as a list; raise `TypeError` unless each has the method `ask`."""
    players = list(adversaries) if isinstance(adversaries, Iterable) else [adversaries]
    if not players or not all(callable(getattr(player, "ask", None)) for player in players):
        raise TypeError("adversaries must be one or more objects with training() and ask(view)")
    return players


def neighbouring_samples(adversary: Adversary) -> tuple[Sample, Sample]:
    """Return the samples of the two worlds; raise `ValueError` unless they are neighbours."""
    first, second = (Sample(*sample) for sample in adversary.training())
    if len(first.labels) != len(second.labels) or first.groups != second.groups:
        raise ValueError("training must give two samples with the same number of rows and the same groups")
    owners = {index if first.groups is None else first.groups[index] for index in _differences(first, second)}
    if len(owners) > 1:
        raise ValueError(f"training must give samples that differ in one row or group, got {len(owners)}")
    return first, second


def challenge_rule(adversary: Adversary, unit: str) -> Callable[[View, Query], None]:
    """Return a function that raises `ValueError` if a challenge is one too many.

    An adversary may challenge once: with one training row or with one query. With `unit="client"` all challenges must
    come from one client.
    """
    first, second = adversary.training()
    spent: set[Hashable] = {("a training row",)} if _differences(Sample(*first), Sample(*second)) else set()

    def check(view: View, query: Query) -> None:
        earlier = set(spent)
        for round_, seen in enumerate(view[1:]):
            if seen.answer == HIDDEN:
                asked = adversary.ask(view[: round_ + 1])
                earlier.add(("a client", asked.client) if asked is not None and unit == "client" else ("a query",))
        if earlier and (unit != "client" or earlier != {("a client", query.client)} or query.client is None):
            raise ValueError("ask must challenge at most once: one training row, one query, or one client's queries")

    return check


def _differences(first: Sample, second: Sample) -> list[int]:
    """Return the indices of the rows that differ."""
    pairs = zip(zip(first.rows, first.labels, strict=True), zip(second.rows, second.labels, strict=True), strict=True)
    return [index for index, (one, other) in enumerate(pairs) if repr(one) != repr(other)]
