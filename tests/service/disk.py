"""A disk that remembers: what a process did to its files, replayed up to any point, and what a loss of power leaves.

`disk.c` stands between a process and the C library and writes down every operation on files below a folder. `Disk`
does them again in memory. At any point it can be asked for the files as a process that is killed leaves them (all that
was written is there), or as a loss of power does: what was not forced to the disk may be there, or in part, or not.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

HEAD = struct.Struct("<cIIqQ")
SOURCE = Path(__file__).parent / "disk.c"


def library(folder: Path) -> Path:
    """The compiled shim."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or os.uname().sysname != "Linux":
        pytest.skip("NO C COMPILER, OR NO LINUX: kills at every write are NOT tested on this machine")
    made = folder / "disk.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", made, SOURCE, "-lpthread"], check=True)
    return made


class Operation(NamedTuple):
    """create, write, truncate, sync, unlink, rename, link, make a folder, delete one; by their first letters."""

    what: str
    name: str
    other: str
    offset: int
    data: bytes


def operations(log: Path, root: Path) -> Iterator[Operation]:
    data, place = log.read_bytes(), 0
    while place < len(data):
        what, name, other, offset, size = HEAD.unpack_from(data, place)
        place += HEAD.size
        kind = what.decode()
        parts = []
        for length in (name, other, size if kind == "w" else 0):
            parts.append(data[place : place + length])
            place += length
        yield Operation(kind, os.path.relpath(parts[0].decode(), root),
                        os.path.relpath(parts[1].decode(), root) if parts[1] else "", offset, parts[2])  # fmt: skip


@dataclass
class File:
    """Bytes, those of them that are on the disk, and what was done since."""

    content: bytearray = field(default_factory=bytearray)
    forced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # a write, or a new length

    def change(self, offset: int, data: bytes | None) -> None:
        changed(self.content, offset, data)
        self.since.append((offset, data))

    def force(self) -> None:
        self.forced, self.since = bytes(self.content), []


def changed(content: bytearray, offset: int, data: bytes | None) -> None:
    end = offset + len(data or b"")
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset:end] = data


@dataclass
class Folder:
    """Names, and those that are on the disk."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    forced: dict[str, File | Folder] = field(default_factory=dict)


class Disk:
    """Files below a folder, as operations leave them."""

    def __init__(self, start: Path) -> None:
        self.root = self._taken(start)

    def _taken(self, place: Path) -> Folder:
        folder = Folder()
        for one in place.iterdir():
            if one.is_dir():
                folder.names[one.name] = self._taken(one)
            elif not one.name.endswith("-shm"):
                file = folder.names[one.name] = File(bytearray(one.read_bytes()))
                file.force()
        folder.forced = dict(folder.names)
        return folder

    def _at(self, name: str) -> tuple[Folder, str]:
        folder: File | Folder = self.root
        *way, last = Path(name).parts
        for one in way:
            assert isinstance(folder, Folder)
            folder = folder.names[one]
        assert isinstance(folder, Folder)
        return folder, last

    def found(self, name: str) -> File | Folder:
        if name == ".":
            return self.root
        folder, last = self._at(name)
        return folder.names[last]

    def do(self, one: Operation, share: float = 1) -> None:
        """Do an operation, or, if it is a write, the first part of it."""
        what, name, other, offset, data = one
        if what in "wts":
            node = self.found(name)
            if what == "s" and isinstance(node, Folder):
                node.forced = dict(node.names)
                return
            assert isinstance(node, File), name
            if what == "s":
                node.force()
            else:
                node.change(offset, data[: int(share * len(data))] if what == "w" else None)
            return
        folder, last = self._at(name)
        if what in "ud":
            del folder.names[last]
        elif what in "rl":
            target, new = self._at(other)
            target.names[new] = folder.names[last]
            if what == "r":
                del folder.names[last]
        else:
            folder.names[last] = File() if what == "c" else Folder()

    def killed(self, place: Path) -> None:
        """The files as a process leaves them that is killed now."""
        self._write(place, lambda folder: folder.names, lambda file: bytes(file.content))

    def unpowered(self, place: Path, seed: int | None = None) -> None:
        """The files after a loss of power: all that was not forced is lost; with a seed, some of it."""
        if seed is None:
            self._write(place, lambda folder: folder.forced, lambda file: file.forced)
            return
        dice = random.Random(seed)

        def survived(file: File) -> bytes:
            content = bytearray(file.forced)
            most = dice.choice((0.0, 0.5, 1.0))
            for offset, data in file.since:
                if data is None or dice.random() < most:
                    changed(content, offset, data)
                elif dice.random() < 0.5:  # the file has got longer, and has nothing there
                    changed(content, offset, b"")
            return bytes(content)

        self._write(place, lambda folder: dice.choice((folder.names, folder.forced)), survived)

    def _write(
        self, place: Path, names: Callable[[Folder], dict[str, File | Folder]], content: Callable[[File], bytes]
    ) -> None:
        def write(folder: Folder, path: Path) -> None:
            path.mkdir(mode=0o700)
            for name, one in names(folder).items():
                if isinstance(one, Folder):
                    write(one, path / name)
                else:
                    (path / name).write_bytes(content(one))

        shutil.rmtree(place, ignore_errors=True)
        write(self.root, place)
