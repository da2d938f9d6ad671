"""Rows gathered for a training set: in memory, or in a file without a name where they would take too much of it."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reticent.exact import integer
from reticent.privacy.guard import Guard, Guarded

Array = NDArray[Any]

CHUNK = 1 << 24  # bytes copied at a time
KINDS = "biufM"  # what a column may hold: numbers and datetimes


class Rows(NamedTuple):
    """Rows to train on: their numbers, the indices of their classes, and their groups, if they have any.

    `release` lets go of what was read of them into memory, if they are in a file.
    """

    X: Array
    class_indices: Array
    groups: Array | None = None
    release: Callable[[], None] | None = None


class RowStore(Guarded):
    """Keeps up to `capacity` rows, which arrive in any number of parts, in the order of their arrival.

    If all of them would take at most `memory_limit` bytes, or there is no limit, they are kept in memory, else in files
    that are mapped. Memory is taken as rows arrive, so a large capacity costs nothing by itself. What is mapped is
    resident only while it is read, and `release` lets go of it.

    The rows are private. Their files have no name: no other process can open them, and when this one ends, however it
    ends, the system reclaims their space. (Where it has no files without a name, they are readable by the owner
    alone, and removed with the process.) `delete` gives all space back at once; else it is given back when neither the
    store nor a view of it is referred to. What was on the disk is not overwritten: against one who takes the disk
    away, encrypt it. Forked processes share the files, so only the process that made the store may touch it.

    Parameters
    ----------
    capacity : int
        The most rows that the store holds.
    columns : int
        How many numbers a row has.
    dtype : dtype
        The type of these numbers. They are kept as they are: `append` refuses those that would be rounded.
    classes : int
        The number of classes. Class indices are kept in the fewest bytes that hold them.
    grouped : bool, default False
        Whether rows come with their groups, whole numbers.
    memory_limit : int or None, default None
        How many bytes rows may take in memory; None for any number.
    folder : path or None, default None
        Where files are; None for the system's folder for temporary files, which on some systems is in memory.

    >>> store = RowStore(1_000, 2, dtype=np.float32, classes=2)
    >>> store.append(np.array([[1, 2], [3, 4]], dtype=np.float32), np.array([0, 1]))
    >>> store.append(np.array([[5, 6]], dtype=np.float32), np.array([1]))
    >>> store.rows().class_indices.tolist(), len(store), store.on_disk
    ([0, 1, 1], 3, False)
    """

    _twice = "two would write and delete the same rows"

    def __init__(
        self,
        capacity: int,
        columns: int,
        *,
        dtype: DTypeLike,
        classes: int,
        grouped: bool = False,
        memory_limit: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._guard = Guard(type(self))
        self.capacity = integer(capacity, "capacity", least=1)
        self.columns = integer(columns, "columns", least=1)
        self.classes = integer(classes, "classes", least=2)
        self.dtype = np.dtype(dtype)
        if self.dtype.kind not in KINDS or not self.dtype.isnative:
            raise TypeError(f"dtype must be one of numbers or datetimes, got {self.dtype}")
        limit = None if memory_limit is None else integer(memory_limit, "memory_limit", least=0)
        if folder is not None and not Path(folder).is_dir():
            raise ValueError(f"folder must be a folder that exists, got {folder}")
        class_indices = np.min_scalar_type(self.classes - 1)
        row = self.columns * self.dtype.itemsize + class_indices.itemsize + (8 if grouped else 0)
        self.on_disk = limit is not None and self.capacity * row > limit
        shapes = [((self.capacity, self.columns), self.dtype), ((self.capacity,), class_indices)]
        if grouped:
            shapes.append(((self.capacity,), np.dtype(np.int64)))
        self._columns = [StoredColumn(shape, kind, self.on_disk, folder) for shape, kind in shapes]
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(
        self, X: Array, class_indices: Array, groups: Array | None = None, *, release: Callable[[], None] | None = None
    ) -> None:
        """Add rows with their labels and, in a grouped store, their groups: all of them, or none in case of an error.

        `release` is called after every part that was copied, for rows that come from a mapped file themselves.
        """
        self._check_alive()
        X, class_indices = np.asarray(X), np.asarray(class_indices)
        if X.ndim != 2 or X.shape[1] != self.columns:
            raise ValueError(f"X must have two dimensions and {self.columns} columns, got the shape {X.shape}")
        if X.dtype != self.dtype:
            raise TypeError(f"X must hold {self.dtype} as the store does, got {X.dtype}")
        if class_indices.shape != X.shape[:1] or class_indices.dtype.kind not in "iu":
            raise ValueError("class_indices must be whole numbers, one per row")
        if len(class_indices) and not 0 <= int(class_indices.min()) <= int(class_indices.max()) < self.classes:
            raise ValueError(f"class_indices must be indices among the {self.classes} classes")
        if (groups is None) != (len(self._columns) == 2):
            raise ValueError("groups must be given to a store that was made with grouped=True, and to no other")
        if self._rows + len(X) > self.capacity:
            raise ValueError(
                f"there is space for {self.capacity - self._rows} of {self.capacity} rows, got {len(X)}: nothing added"
            )
        parts = [X, class_indices]
        if groups is not None:
            parts.append(np.asarray(groups))
            if parts[-1].shape != class_indices.shape or not np.can_cast(parts[-1].dtype, np.int64):
                raise ValueError("groups must be whole numbers of at most 64 bits with a sign, one per row")
        for column, part in zip(self._columns, parts, strict=True):
            column.write(self._rows, part, release)
        self._rows += len(X)  # only now: what a failed write left behind is written over by the next

    def erase(self, indices: Array) -> None:
        """Overwrite rows with zeros, in place; their number stays."""
        self._check_alive()
        for index in np.asarray(indices).tolist():
            if not 0 <= index < self._rows:
                raise ValueError(f"indices must be below {self._rows}, the number of rows")
            for column in self._columns[:2]:
                column.write(index, np.zeros_like(column.view(1)), None)

    def take_back(self, rows: int) -> None:
        """Forget the last rows, so that this many remain."""
        self._check_alive()
        if not 0 <= rows <= self._rows:
            raise ValueError(f"rows must be at most {self._rows}, the number of rows, got {rows}")
        self.erase(np.arange(rows, self._rows))
        self._rows = rows

    def rows(self) -> Rows:
        """All rows so far, without a copy; they can be read but not written."""
        self._check_alive()
        views = [column.view(self._rows) for column in self._columns]
        groups = views[2] if len(views) > 2 else None
        return Rows(views[0], views[1], groups, self.release if self.on_disk else None)

    def release(self) -> None:
        """Let go of the memory that holds pages of the files. They are read again when they are needed."""
        for column in self._columns:
            column.release()

    def delete(self) -> None:
        """Give all space back now, for good. Views that someone still holds read zeros where the system can do that."""
        self._guard.check()  # files are shared with forked processes: they would lose the rows of this one
        for column in self._columns:
            column.delete()
        self._rows, self._columns = 0, []

    def _check_alive(self) -> None:
        self._guard.check()
        if not self._columns:
            raise ValueError("these rows were deleted")


class StoredColumn:
    """An array of fixed length whose space is taken as it is written, in memory or in a file without a name.

    A file is written by calls and read through a map: were it written through the map, a full disk would end the
    process instead of raising an error.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], on_disk: bool, folder: str | os.PathLike[str] | None
    ) -> None:
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        self._file: IO[bytes] | None = None
        if on_disk:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # closed with the column
            self._file.truncate(size)
            self._map = mmap.mmap(self._file.fileno(), size)
        else:
            self._map = _memory(size)
        self._array = np.frombuffer(self._map, dtype=dtype).reshape(shape)
        if self._file is not None:  # the map has a descriptor of its own, and views keep the map
            weakref.finalize(self, self._file.close)

    def write(self, start: int, values: Array, release: Callable[[], None] | None) -> None:
        """Write values from row `start` on, a part at a time."""
        step = max(1, CHUNK // max(1, values[:1].nbytes))
        for first in range(0, len(values), step):
            part = values[first : first + step]
            if self._file is None:
                self._array[start + first : start + first + len(part)] = part
            else:
                self._file.seek((start + first) * self._array[:1].nbytes)
                rest = np.ascontiguousarray(part, dtype=self._array.dtype).reshape(-1).view(np.uint8).data
                while rest.nbytes:
                    rest = rest[self._file.write(rest) :]
            if release is not None:
                release()

    def view(self, rows: int) -> Array:
        """The first rows, not to be written."""
        view = self._array[:rows]
        view.flags.writeable = False
        return view

    def release(self) -> None:
        """Let go of pages that can be read again from the file."""
        if self._file is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def delete(self) -> None:
        """Give the space back, also while there are views."""
        forget = "MADV_DONTNEED" if self._file is None else "MADV_REMOVE"
        if hasattr(mmap, forget):
            with suppress(OSError):  # a file system that cannot: the space is given back when the last view is gone
                self._map.madvise(getattr(mmap, forget))
        if self._file is not None:
            self._file.close()
        del self._array, self._map


def _memory(size: int) -> mmap.mmap:
    """Memory that is taken page by page as it is written; asking for more than there is is not an error yet."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size)
    unreserved = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | unreserved)
