"""The file of a saved state: a zip of plain arrays and a page of JSON, sealed, and loaded once."""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import re
import secrets
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FORMAT, VERSION = "reticent-state", 1
STATE = "state.json"
SEAL = b"sha256:"
STORED_KINDS = "biufUSMm"  # of arrays: numbers, truths, strings, datetimes; never objects, which need a pickle
NAME = re.compile(r"[A-Za-z0-9_]+(?:[./-][A-Za-z0-9_]+)*")
CHUNK = 1 << 24  # bytes worked on at a time
LARGE = 1 << 26  # an array of more bytes is mapped, not read into memory
ALIGNED = 64  # arrays start at a multiple of this many bytes
PADDING = 0xD935  # the kind of extra field by which others align files in a zip


class State(NamedTuple):
    """What was saved: JSON, arrays, and a function that releases the memory of arrays mapped from the file.

    Arrays cannot be written to. The large ones are views of the file: pass `release` to what reads them.
    """

    header: dict[str, Any]
    arrays: dict[str, Array]
    release: Callable[[], None]
    identity: str


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def write(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    identity: str | None = None,
    release: Callable[[], None] | None = None,
) -> None:
    """Save a state in a file that only its owner can read; after a crash there is the whole new file or the old one.

    `identity`, 32 hexadecimal digits, is by which `claim` knows the state: one that is saved twice has the same. None
    gives it a new one. `header` is anything that JSON can hold. Names of arrays are words, joined by `/`, `.` or `-`.
    Arrays are written in parts, and `release` is called after each, for arrays that are views of larger files.
    """
    target = Path(path)
    values = {name: _checked(name, array) for name, array in arrays.items()}
    try:
        json.dumps(dict(header), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"header must be what JSON can hold: {error}") from None
    descriptor, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")  # mode 0600
    try:
        with os.fdopen(descriptor, "w+b") as file:
            _write(file, dict(header), values, identity or new_identity(), release)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    _sync_folder(target.parent)


def new_identity() -> str:
    """By which a state is known, however often it is saved."""
    return secrets.token_hex(16)


def _checked(name: str, array: Array) -> Array:
    if not NAME.fullmatch(name):
        raise ValueError(f"names of arrays must be words, joined by '/', '.' or '-', got {name!r}")
    array = np.asarray(array)
    if array.dtype.kind not in STORED_KINDS:
        raise TypeError(f"array {name!r} must hold numbers, strings or datetimes, got {array.dtype}")
    return array


def _write(
    file: IO[bytes], header: dict[str, Any], arrays: dict[str, Array], identity: str, release: Callable[[], None] | None
) -> None:
    digests = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            digest = hashlib.sha256()
            with archive.open(_member(f"{name}.npy", file.tell()), "w", force_zip64=True) as member:
                for part in _parts(array):
                    digest.update(part)
                    member.write(part)
                    if release is not None:
                        release()
            digests[name] = digest.hexdigest()
        page = {
            "format": FORMAT,
            "version": VERSION,
            "id": identity,
            "arrays": digests,
            "header": header,
        }
        with archive.open(_member(STATE, file.tell()), "w", force_zip64=True) as member:
            member.write(json.dumps(page, allow_nan=False, indent=1).encode())
        archive.comment = SEAL + b"0" * 64
    file.flush()
    seal = _digest(file, 0, file.seek(0, os.SEEK_END) - 64)
    file.seek(-64, os.SEEK_END)
    file.write(seal.encode())


def _member(name: str, offset: int) -> zipfile.ZipInfo:
    """A file in the archive whose content starts at a multiple of ALIGNED."""
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o600 << 16
    start = offset + 30 + len(name.encode()) + 20 + 4  # the fixed header, the name, sizes of 64 bits, and our own
    padding = -start % ALIGNED
    member.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
    return member


def _parts(array: Array) -> Iterator[bytes]:
    """The file of an array in NumPy's format, a part at a time; never the whole array at once."""
    start, described = io.BytesIO(), np.lib.format.dtype_to_descr(array.dtype)
    np.lib.format.write_array_header_1_0(start, {"descr": described, "fortran_order": False, "shape": array.shape})
    yield start.getvalue()
    rows = array.reshape(1) if array.ndim == 0 else array
    step = max(1, CHUNK // max(1, rows[:1].nbytes))
    for first in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[first : first + step]).tobytes()


def _sync_folder(folder: Path) -> None:
    if hasattr(os, "O_DIRECTORY"):  # elsewhere folders cannot be synced, and need not be
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: str | os.PathLike[str]) -> State:
    """Read a saved state and check every byte of it, without continuing from it: for that, `load` it."""
    with open(path, "rb") as file:
        return _read(file, path)


def load(path: str | os.PathLike[str], *, again: bool = False) -> State:
    """Read a saved state to continue from it, which can be done once; see `claim`."""
    with open(path, "rb") as file:
        state = _read(file, path)
    claim(path, state.identity, again=again)
    return state


def claim(path: str | os.PathLike[str], identity: str, *, again: bool = False) -> None:
    """Mark the state in this file as continued; refuse if it is marked already, unless `again`.

    Two copies that continue from one state would both give the answers that are left in it, each with its own noise.
    Its rows would pay twice. The mark is an empty file in the same folder, named after the identity of the state. Only
    one process can create it, and it is on the disk before this returns. It stays when a new state is saved under the
    same name, and it is the same for a state that is saved or copied under two names in one folder. So an old state
    that is put back is recognised. A copy in another folder is not.
    """
    folder = Path(path).resolve().parent
    mark = folder / f"{identity[:16]}.claimed"
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if again:
            return
        raise ValueError(
            f"{path} was loaded before ({mark.name} says so): two that continue from one state would spend its answers "
            "twice. Save from the one that runs; or, if it is gone and gave no answers since, load with again=True"
        ) from None
    _sync_folder(folder)


class _RefusedState(ValueError):
    pass


@contextmanager
def _refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever else goes wrong with the bytes of a file that could be opened, it is refused as damaged."""
    try:
        yield
    except _RefusedState:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a saved state, or it is damaged ({type(error).__name__})") from error


def _page(archive: zipfile.ZipFile, path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is written about the state, if it is one of a version that can be read."""
    page = json.loads(archive.read(STATE))
    if page["format"] != FORMAT:
        raise _RefusedState(f"{path} is not a saved state: its format is not {FORMAT!r}")
    if type(page["version"]) is not int or page["version"] > VERSION:
        raise _RefusedState(
            f"{path} was saved in version {page['version']!r} of the format, and this reticent reads up to version "
            f"{VERSION}: load it with a newer one"
        )
    if not re.fullmatch("[0-9a-f]{32}", page["id"]) or page["version"] < 1:
        raise ValueError
    return dict(page)


def _read(file: IO[bytes], path: str | os.PathLike[str]) -> State:
    with _refusing(path), zipfile.ZipFile(file) as archive:
        page = _page(archive, path)
        length = file.seek(0, os.SEEK_END)
        file.seek(length - 64 - len(SEAL))
        if file.read() != SEAL + _digest(file, 0, length - 64).encode():
            raise _RefusedState(f"{path} is damaged: its bytes are not those that were saved")
        members = {one.filename: one for one in archive.infolist()}
        named = {STATE, *(f"{one}.npy" for one in page["arrays"])}
        if len(members) < len(archive.infolist()) or members.keys() != named:
            raise _RefusedState(f"{path} is damaged: it does not hold the arrays that it names")
        mapped = None
        arrays = {}
        for name, digest in page["arrays"].items():
            start, size = _content(file, members[f"{name}.npy"])
            if start + size > length or _digest(file, start, size) != digest:
                raise _RefusedState(f"{path} is damaged: the array {name!r} is not the one that was saved")
            shape, dtype, first = _described(file, start)
            if first + int(np.prod(shape, dtype=object)) * dtype.itemsize != start + size:
                raise _RefusedState(f"{path} is damaged: the array {name!r} is not as long as it says")
            if size > LARGE:
                mapped = mapped or mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                arrays[name] = np.ndarray(shape, dtype, buffer=mapped, offset=first)
            else:
                file.seek(first)
                arrays[name] = np.ndarray(shape, dtype, buffer=file.read(start + size - first))
        return State(page["header"], arrays, partial(_release, mapped), page["id"])


def _release(mapped: mmap.mmap | None) -> None:
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _content(file: IO[bytes], member: zipfile.ZipInfo) -> tuple[int, int]:
    """Where the content of a member starts, and its length."""
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise ValueError
    file.seek(member.header_offset)
    local = file.read(30)
    if local[:4] != b"PK\3\4":
        raise ValueError
    name, extra = struct.unpack("<HH", local[26:30])
    return member.header_offset + 30 + name + extra, member.file_size


def _described(file: IO[bytes], start: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """The shape and type of an array in NumPy's format, and where its values start."""
    file.seek(start)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype.kind not in STORED_KINDS:
        raise ValueError
    return shape, dtype, file.tell()


def _digest(file: IO[bytes], start: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while size > 0 and (part := file.read(min(size, CHUNK))):
        digest.update(part)
        size -= len(part)
    return digest.hexdigest()
