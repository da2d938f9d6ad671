"""The players of the everlasting game: samples, moves, views, adversaries, and the rules that adversaries obey."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
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


class Labelled(NamedTuple):
    """A labelled row for a phase to come.

    Parameters
    ----------
    row : tuple
        The row, in the first world.
    label : hashable
        Its label, in the first world.
    other : pair of tuple and label, optional
        Row and label in the second world. A labelled row that has one is a challenge.
    group : hashable, optional
        The group that the row belongs to.
    """

    row: Row
    label: Any
    other: tuple[Row, Any] | None = None
    group: Hashable | None = None


class Same(Enum):
    """Stands for what is the same in both worlds, where None has a meaning."""

    SAME = "same"


SAME = Same.SAME


class Feedback(NamedTuple):
    """The label of an earlier query. What a function returns may depend on an answer that the adversary cannot see.

    Parameters
    ----------
    query : int
        The number of the query, from 0 on.
    label : hashable, None or callable
        The label in the first world; None if no feedback is given there. A function is called with the answer.
    other : hashable, None or callable, default SAME
        The label in the second world. Feedback that has another one is a challenge, of the unit that its query is.
    client : hashable, optional
        The client who gives it.
    """

    query: int
    label: Any
    other: Any = SAME
    client: Hashable | None = None


Move = Query | Labelled | Feedback


def is_challenge(move: Move) -> bool:
    """Whether a move differs between the worlds."""
    return move.other is not SAME if isinstance(move, Feedback) else move.other is not None


class Seen(NamedTuple):
    """What the adversary sees of one round.

    Parameters
    ----------
    answer : hashable
        The answer, the error that refused it, or `HIDDEN`. For labelled rows and feedback, the reply.
    before : int or None
        The number of the phase that answers; None during training.
    phase : int or None
        `phase_` after the round; None if the predictor has no phases.
    left : int or None
        `answers_left_in_phase_` after the round; None if the predictor has no phases.
    released : hashable, default None
        `released_` after the round: models, qualities, alarms and counts of rows; None if the predictor has none.
    """

    answer: Hashable
    before: int | None
    phase: int | None
    left: int | None
    released: Hashable = None

    def __repr__(self) -> str:
        """All fields, but nothing of `released` if there is nothing: random strategies are drawn by this text."""
        fields = self._fields if self.released is not None else self._fields[:-1]
        return f"Seen({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"


View = tuple[Seen, ...]


class Adversary(Protocol):
    """Who attacks. It may adapt to what it sees, but must be deterministic: each move is a function of the view."""

    def training(self) -> tuple[Sample, Sample]:
        """Return the samples of the two worlds: equal, or different in one row (or in the rows of one group)."""

    def ask(self, view: View) -> Move | None:
        """Return the next move, given everything seen so far; None to stop."""


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
    """An adversary that makes a fixed list of moves, whatever it sees.

    Parameters
    ----------
    samples : pair of Sample
        The training samples of the two worlds.
    queries : tuple of Query, Labelled or Feedback
        The moves, in order.
    """

    samples: tuple[Sample, Sample]
    queries: tuple[Move, ...]

    def training(self) -> tuple[Sample, Sample]:
        """Return the given samples."""
        return self.samples

    def ask(self, view: View) -> Move | None:
        """Return the next of the moves."""
        asked = len(view) - 1
        return self.queries[asked] if asked < len(self.queries) else None


@dataclass(frozen=True)
class AdaptiveScript:
    """An adversary that chooses each move among a few, by a hash of the seed and of the view.

    Parameters
    ----------
    seed : int
        Which of the strategies this is.
    samples : pair of Sample
        The training samples of the two worlds.
    choices : tuple of tuples of Query, Labelled or Feedback
        For each round, the moves that may be made. A challenge should be the only move of its round.

    Examples
    --------
    >>> sample = Sample(((0,), (1,)), (0, 1))
    >>> AdaptiveScript(7, (sample, sample), ((Query((0,)),), (Labelled((1,), 1), Labelled((1,), 0)))).ask(())
    Query(row=(0,), other=None, client=None)
    """

    seed: int
    samples: tuple[Sample, Sample]
    choices: tuple[tuple[Move, ...], ...]

    def training(self) -> tuple[Sample, Sample]:
        """Return the given samples."""
        return self.samples

    def ask(self, view: View) -> Move | None:
        """Return one of the moves of the round."""
        made = max(len(view) - 1, 0)
        if made >= len(self.choices):
            return None
        hashed = hashlib.blake2b(repr((self.seed, *view)).encode(), digest_size=8).digest()
        return self.choices[made][int.from_bytes(hashed, "little") % len(self.choices[made])]


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


def challenge_rule(adversary: Adversary, unit: str) -> Callable[[View, Move], None]:
    """Return a function that raises `ValueError` if a challenge is one too many.

    All contents that differ must belong to one unit: one training row, one labelled row, or one query with its
    feedback. With `unit="client"`: the training rows and labelled rows of one group, and the queries and feedback of
    the client with the same name.
    """
    first, second = (Sample(*sample) for sample in adversary.training())
    different = _differences(first, second)
    spent: set[Hashable] = set()
    if different:
        spent.add(_person(None if first.groups is None else first.groups[different[0]], unit) or ("a training row",))

    def check(view: View, move: Move) -> None:
        earlier, queries = set(spent), 0
        for round_ in range(len(view)):
            made = adversary.ask(view[: round_ + 1]) if round_ < len(view) - 1 else move
            if made is not None and is_challenge(made):
                earlier.add(_unit_of(made, unit, round_, queries))
            queries += isinstance(made, Query)
        if len(earlier) > 1:
            raise ValueError(
                "ask must challenge at most once: one training row, one labelled row, one query with its feedback, or "
                "all rows and queries of one client"
            )

    return check


def _unit_of(move: Move, unit: str, round_: int, queries: int) -> Hashable:
    """What is protected of which a challenge is part; `queries` came before it."""
    name = move.group if isinstance(move, Labelled) else move.client
    if (person := _person(name, unit)) is not None:
        return person
    if isinstance(move, Labelled):
        return ("a labelled row", round_)
    return ("a query", move.query if isinstance(move, Feedback) else queries)


def _person(name: Hashable | None, unit: str) -> Hashable | None:
    return ("a client", str(name)) if unit == "client" and name is not None else None


def _differences(first: Sample, second: Sample) -> list[int]:
    """Return the indices of the rows that differ."""
    pairs = zip(zip(first.rows, first.labels, strict=True), zip(second.rows, second.labels, strict=True), strict=True)
    return [index for index, (one, other) in enumerate(pairs) if repr(one) != repr(other)]
