"""Which queries may add rows to the next phase: caps of clients, and groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Integers = NDArray[np.int64]


class Admission:
    """Admits the first queries of each client to the rows of the next phase, up to a cap.

    Every decision is a function of who asked when, of parameters and of the size of the phase: never of a query or an
    answer. With groups, all queries of a client have one group, and a client enters at most `client_phases` phases.

    Parameters
    ----------
    client_share : Fraction
        The largest share of the rows of a phase that may come from one client.
    client_phases : int
        How many phases the queries of one client may enter, if they are grouped.
    rows_per_group : int or None
        The most rows of one group in a phase; None if queries are not grouped.
    """

    def __init__(self, *, client_share: Fraction, client_phases: int, rows_per_group: int | None) -> None:
        self._share, self._client_phases, self._rows_per_group = client_share, client_phases, rows_per_group
        self._phases_of: dict[str, int] = {}  # by client: how many phases it has entered
        self.begin(window=0)

    def begin(self, *, window: int) -> None:
        """Start a phase, of which the first `window` queries may add rows."""
        self.window = window
        cap = min(max(1, math.floor(self._share * window)), window)
        # How many rows one client may add to the next phase.
        self.cap = int(cap if self._rows_per_group is None else min(cap, self._rows_per_group))
        self._taken: dict[str, tuple[int, int]] = {}  # by client: its group, and its rows in the next phase
        self.groups = 0  # in the next phase

    @property
    def grouped(self) -> bool:
        """Whether the rows of a client are protected together."""
        return self._rows_per_group is not None

    def rows_of(self, client: str) -> tuple[int, int]:
        """How many rows of the next phase a client has added, and how many it may add."""
        if (taken := self._taken.get(client)) is not None:
            return taken[1], self.cap
        barred = self.grouped and self._phases_of.get(client, 0) >= self._client_phases
        return 0, 0 if barred else self.cap

    def admit(self, clients: Array | None, count: int) -> tuple[NDArray[np.bool_], Integers]:
        """Which of `count` queries add a row, and the group of each; without clients, each query is its own group."""
        if clients is None:
            groups = np.arange(self.groups, self.groups + count)
            self.groups += count
            return np.ones(count, dtype=bool), groups
        cap = self.cap
        names, first, which, counts = np.unique(clients, return_index=True, return_inverse=True, return_counts=True)
        before, group = np.full(len(names), cap), np.zeros(len(names), dtype=np.int64)
        for one in np.argsort(first, kind="stable").tolist():  # clients are numbered in order of arrival
            client = str(names[one])
            if not self._enters(client):
                continue
            group[one], before[one] = self._taken[client]
            more = max(0, min(cap - int(before[one]), int(counts[one])))  # labelled rows may be beyond the cap already
            self._taken[client] = int(group[one]), int(before[one]) + more
        order = np.argsort(which, kind="stable")
        earlier = np.empty(len(clients), dtype=np.int64)  # queries of the same client before it, in this call
        earlier[order] = np.arange(len(clients)) - np.repeat(np.cumsum(counts) - counts, counts)
        return before[which] + earlier < cap, group[which]

    def admit_rows(
        self, groups: Array | None, count: int, *, space: int
    ) -> tuple[NDArray[np.bool_], Integers]:
        """Which of the first labelled rows enter, and the group of each, until `space` rows are taken.

        A group enters at most `client_phases` phases, with at most `rows_per_group` rows in each. Labelled rows have no
        cap by client. Rows of a group are counted with the queries of a client of the same name: they are one person.
        """
        if self._rows_per_group is None or groups is None:
            taken = min(count, space)
            numbers = np.arange(self.groups, self.groups + taken)
            self.groups += taken
            return np.ones(taken, dtype=bool), numbers
        admitted, numbers = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
        for place, name in enumerate(groups.tolist()):
            if space == 0:
                return admitted[:place], numbers[:place]
            if self._enters(name):
                group, before = self._taken[name]
                admitted[place], numbers[place] = before < self._rows_per_group, group
                if admitted[place]:
                    self._taken[name] = group, before + 1
                    space -= 1
        return admitted, numbers

    def bar(self, names: Iterable[str]) -> None:
        """Count the groups of day one as having been in one phase."""
        self._phases_of |= dict.fromkeys(names, 1)

    def _enters(self, name: str) -> bool:
        """Whether a client or group is in the next phase; it enters if it may."""
        if name in self._taken:
            return True
        if self.grouped:
            phases = self._phases_of.get(name, 0)
            if phases >= self._client_phases:
                return False
            self._phases_of[name] = phases + 1
        self._taken[name] = self.groups, 0
        self.groups += 1
        return True

    def state(self) -> dict[str, Any]:
        """The part of a saved state that concerns clients, as JSON."""
        return {
            "groups": self.groups,
            "taken": [[client, *counts] for client, counts in self._taken.items()],
            "phases_of": [[client, count] for client, count in self._phases_of.items()],
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned, in the same phase."""
        self.groups = state["groups"]
        self._taken = {client: (group, count) for client, group, count in state["taken"]}
        self._phases_of = dict(state["phases_of"])
