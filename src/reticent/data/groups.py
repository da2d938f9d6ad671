"""Groups: the person, or other unit, that each row belongs to. Which row is of which group is public.

Names of groups are not repeated in a message; their sizes may be.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np

from reticent.data.cells import is_missing
from reticent.data.labels import as_column
from reticent.data.tables import Array, Integers

LARGEST = 2  # average shards: a group with more rows than these is refused


def as_groups(groups: Any, rows: int) -> Array:
    """The name of each row's group, as it was given: NumPy would turn all names of a list into strings if one is."""
    if isinstance(groups, (list, tuple)) and 0 < len(groups) == rows and not isinstance(groups[0], list):
        return np.fromiter(groups, dtype=object, count=rows)
    return as_column(groups, rows, "groups")


def numbered(groups: Array) -> Integers:
    """The number of each row's group, as groups first appear; `np.bincount` of it gives their sizes.

    Objects are compared, not sorted: one that cannot be ordered, such as NaN, would leave equal names apart, and
    so a group in two shards. What names no group is refused.

    >>> numbered(np.array(["eve", "ann", "eve"])).tolist()
    [0, 1, 0]
    >>> numbered(np.array([3, True, 1.0, 3.0], dtype=object)).tolist()
    [0, 1, 1, 0]
    """
    kind = groups.dtype.kind
    if kind not in "biufSUMO":
        raise TypeError(f"groups must be numbers, strings or dates, got an array of {groups.dtype}")
    missing = any(map(is_missing, groups)) if kind == "O" else kind in "fM" and bool((groups != groups).any())  # noqa: PLR0124
    if missing:
        raise ValueError("groups must name the group of every row: some are missing")
    if kind != "O":
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        number_of = np.empty(len(first), dtype=np.int64)
        number_of[np.argsort(first)] = np.arange(len(first))
        return np.asarray(number_of[group.ravel()])
    if len({isinstance(name, (str, bytes)) for name in groups}) > 1:
        raise TypeError("groups must be all numbers or all strings, got some of both")
    known: dict[Any, int] = {}
    try:
        return np.fromiter((known.setdefault(name, len(known)) for name in groups), dtype=np.int64, count=len(groups))
    except TypeError:
        raise TypeError("groups must be numbers, strings, dates or tuples of these") from None


def named_groups(groups: Any, rows: int) -> Array:
    """`group_names` of one group per row; what names no group is refused, as by `numbered`."""
    given = as_groups(groups, rows)
    numbered(given)
    return group_names(given)


def group_names(groups: Array) -> Array:
    """One text per group: 3, 3.0 and "3" are the same name, however rows of different times write it.

    >>> group_names(np.array([3, 3.0, "3", True], dtype=object)).tolist()
    ['3', '3', '3', '1']
    """
    return np.fromiter(map(_text, groups), dtype=object, count=len(groups))


def _text(name: Any) -> str:
    if isinstance(name, (date, np.datetime64)):
        return str(np.datetime64(name).astype("datetime64[us]"))
    if isinstance(name, bytes):
        return name.decode(errors="backslashreplace")
    if isinstance(name, tuple):
        return repr(tuple(map(_text, name)))
    if isinstance(name, (bool, np.bool_)) or (isinstance(name, (float, np.floating)) and float(name).is_integer()):
        return str(int(name))
    return str(name)


def first_of_each(groups: Integers) -> Integers:
    """The indices of the first row of each group, in order of place.

    >>> first_of_each(np.array([4, 7, 4, 1])).tolist()
    [0, 1, 3]
    """
    return np.sort(np.unique(groups, return_index=True)[1])


def most_shards(sizes: Integers) -> int:
    """The most shards to which groups of these sizes can be dealt, so that no group is too large for its shard.

    >>> most_shards(np.array([21, *[1] * 79])), most_shards(np.array([2, 2, 2]))
    (9, 3)
    """
    half = -(-int(sizes.max()) // LARGEST)  # rows of an average shard: ⌈rows/k⌉ ≥ half if k·(half − 1) < rows
    return len(sizes) if half == 1 else min(len(sizes), (int(sizes.sum()) - 1) // (half - 1))


def check_sizes(sizes: Integers, shards: int) -> None:
    """Refuse a group with more rows than a shard can hold: twice those of an average shard, rounded up.

    The sizes of groups are public, so the error may tell them, and a cap that suffices. It tells no names.

    >>> check_sizes(np.array([20, *[1] * 80]), shards=10)
    >>> check_sizes(np.array([21, *[1] * 79]), shards=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: groups must have at most 20 rows each...: cap the rows of a group at 20, or take at most 9 teachers
    """

    def holds(rows: int) -> int:
        return LARGEST * -(-rows // shards)

    rows, largest = int(sizes.sum()), int(sizes.max())
    if largest <= holds(rows):
        return
    cap = holds(rows)
    while (less := holds(int(np.minimum(sizes, cap).sum()))) < cap:  # what is cut off makes the average smaller
        cap = less
    raise ValueError(
        f"groups must have at most {holds(rows)} rows each, those of two average shards, as no group is split and "
        f"{rows} rows are dealt to {shards} teachers; the largest has {largest}: cap the rows of a group at {cap}, or "
        f"take at most {most_shards(sizes)} teachers"
    )
