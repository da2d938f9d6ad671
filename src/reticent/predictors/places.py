"""Places of the next phase: rows that have a label, get one later, or stay without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import RowStore

Array = NDArray[Any]
Integers = NDArray[np.int64]

NO_LABEL = -1


class Places:
    """Rows of the next phase in order of arrival, each with an answer and a place for a label.

    How many there are follows from the clock. Whether a place has a label is as secret as the label.

    Parameters
    ----------
    store : RowStore
        Where the rows and their answers are kept. Labelled rows have no answer: theirs is 0 and is not used.
    """

    def __init__(self, store: RowStore) -> None:
        self.store = store
        # A column of labels and one of groups, longer than needed. They grow with rows alone: were they put together
        # when a label comes, the time of that would show whether another label had come before.
        self._columns = np.empty((2, 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.store)

    @property
    def labels(self) -> Integers:
        """The labels, in order."""
        return np.asarray(self._columns[0, : len(self)])

    @property
    def groups(self) -> Integers:
        """The groups, in order."""
        return np.asarray(self._columns[1, : len(self)])

    @property
    def space(self) -> int:
        """How many more rows there is a place for."""
        return self.store.capacity - len(self.store)

    def append(self, X: Array, answers: Integers, labels: Integers, groups: Integers) -> None:
        """Add rows."""
        start = len(self)
        self._write(start, labels, groups)
        self.store.append(X, answers)

    def _write(self, start: int, labels: Integers, groups: Integers) -> None:
        end = start + len(labels)
        if end > self._columns.shape[1]:
            longer = np.full((2, max(64, 2 * end)), NO_LABEL, dtype=np.int64)
            longer[:, :start] = self._columns[:, :start]
            self._columns = longer
        self._columns[0, start:end], self._columns[1, start:end] = labels, groups

    def set_label(self, place: int, label: int) -> None:
        """Write the label of a place, in place of an earlier one; `NO_LABEL` withdraws it."""
        self._columns[0, place] = label

    def take_back(self, rows: int) -> None:
        """Forget the last rows, so that this many remain."""
        self.labels[rows:] = NO_LABEL
        self.store.take_back(rows)

    def erase(self, place: int) -> None:
        """Forget a row and its label; its place stays, empty."""
        self.set_label(place, NO_LABEL)
        self.store.erase(np.array([place]))

    def contents(self) -> tuple[Array, Integers, Integers, Integers]:
        """Rows, answers, labels and groups, in order."""
        rows = self.store.rows()
        return rows.X, rows.class_indices.astype(np.int64), self.labels, self.groups

    def arrays(self, name: str) -> dict[str, Array]:
        """Everything it holds, for a saved state."""
        X, answers, labels, groups = self.contents()
        parts = {"X": X, "answers": answers, "labels": labels, "groups": groups}
        return {f"{name}/{part}": array for part, array in parts.items()} if len(self) else {}

    def restore(self, name: str, arrays: Mapping[str, Array], release: Callable[[], None]) -> None:
        """Fill an empty one with what `arrays` returned."""
        if f"{name}/X" in arrays:
            X, answers, labels, groups = (arrays[f"{name}/{part}"] for part in ("X", "answers", "labels", "groups"))
            self._write(0, labels, groups)
            self.store.append(X, answers, release=release)

    def delete(self) -> None:
        """Give all space back."""
        self.store.delete()
        self._columns = np.empty((2, 0), dtype=np.int64)


class Slots:
    """Queries that were answered, with a slot each for a label that may come, found by a ticket.

    Parameters
    ----------
    places : Places
        Where the queries are.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._place_of: dict[str, int] = {}
        self.tickets: list[str] = []
        self.owners: list[str | None] = []

    def __len__(self) -> int:
        return len(self.places)

    def append(
        self,
        X: Array,
        answers: Integers,
        groups: Integers,
        *,
        tickets: Sequence[str],
        owners: Sequence[str | None],
        labels: Integers | None = None,
    ) -> None:
        """Open slots for queries, each known by its ticket and its owner."""
        self.places.append(X, answers, np.full(len(X), NO_LABEL) if labels is None else labels, groups)
        self._know(tickets, owners)

    def _know(self, tickets: Sequence[str], owners: Sequence[str | None]) -> None:
        start = len(self.tickets)
        self._place_of.update(zip(tickets, range(start, start + len(tickets)), strict=True))
        self.tickets += tickets
        self.owners += owners

    def restore(
        self,
        name: str,
        arrays: Mapping[str, Array],
        release: Callable[[], None],
        *,
        tickets: Sequence[str],
        owners: Sequence[str | None],
    ) -> None:
        """Fill an empty one with what was saved."""
        self.places.restore(name, arrays, release)
        self._know(tickets, owners)

    def write(self, ticket: object, owner: str | None, label: int) -> bool:
        """Write the label of a slot; whether the ticket is one of a slot here, and of this owner."""
        place = self._place_of.get(ticket) if isinstance(ticket, str) else None
        if place is None or self.owners[place] != owner:
            return False
        self.places.set_label(place, label)
        return True

    def take_back(self, count: int) -> None:
        """Close the last slots, whose queries got no answer, so that this many remain."""
        self.places.take_back(count)
        for ticket in self.tickets[count:]:
            del self._place_of[ticket]
        del self.tickets[count:], self.owners[count:]

    def delete(self) -> None:
        """Give all space back."""
        self.places.delete()
        self._place_of, self.tickets, self.owners = {}, [], []
