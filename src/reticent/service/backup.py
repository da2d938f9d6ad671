"""Backups: a predictor in one file, and the rule by which one that is restored may answer, or only be read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from reticent.service import home, store
from reticent.service.home import KEYS, MODEL, STORE, Home
from reticent.service.store import HANDED_OVER, INCOMPLETE, RESTORED, RETIRED, Damaged, Retired

FORMAT, VERSION = "reticent-backup", 1
MANIFEST = "backup.json"
MEMBER = re.compile(rf"{re.escape(MODEL)}|{re.escape(STORE)}|{re.escape(KEYS)}|phase-\d+\.state")
CHUNK = 1 << 20
TRIES = 5  # at finding store and state of the same phase, while phases end


@dataclass(frozen=True)
class Backup:
    """What a backup is of: all of it public."""

    name: str
    time: int  # milliseconds since 1970
    phase: int
    length: int  # of the ledger
    head: str
    retired: str | None  # whether the one that was backed up answers no more, and why
    files: dict[str, str]  # SHA-256 of each


def write(folder: Path, file: Path, *, final: bool = False) -> Backup:
    """Write a predictor to a new file, as it is at one moment, also while it is served. The file is as secret.

    A `final` backup retires the predictor first, for good, so it must not be served: then the backup knows of every
    answer that was ever given, and may go on in its place.
    """
    if file.exists():
        raise FileExistsError(f"{file} exists: name another file")
    with open(file, "xb", opener=_private) as target:  # before anything is retired: it may not be possible
        try:
            if final:
                _retire(folder)
            with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as scratch:  # mode 0700
                made = _gathered(folder, Path(scratch))
                _pack(target, made, Path(scratch))
            os.fsync(target.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    home.synced(file.parent)
    if made.retired == RETIRED:  # no other backup of it may go on
        with Home(folder, records=True) as old:
            old.store.mark(HANDED_OVER, time=_now())
    return made


def _retire(folder: Path) -> None:
    with Home(folder, records=True) as old:
        if old.store.retired in (HANDED_OVER, INCOMPLETE):
            raise Retired(f"{old.name} cannot have a final backup: {home.RETIREMENT[old.store.retired]}")
        if old.store.retired is None:
            old.store.mark(RETIRED, time=_now())


def _gathered(folder: Path, scratch: Path) -> Backup:
    """Copy what there is. The state of a phase never changes, so store and state of one phase belong together."""
    for _ in range(TRIES):
        (scratch / STORE).unlink(missing_ok=True)
        position = store.copied(folder / STORE, scratch / STORE)
        state = home.state_path(scratch, position.phase)
        with suppress(FileNotFoundError):  # the phase has just ended: the next try finds the next one
            shutil.copyfile(home.state_path(folder, position.phase), state)
            break
    else:
        raise Damaged(f"{folder} has no state of its phase, or phases end faster than they can be copied")
    if home.seal_of(state) != position.seal:
        raise Damaged(f"{home.state_path(folder, position.phase)} is not the one that the store belongs to")
    (scratch / MODEL).write_text(home.read_model(folder), encoding="utf-8")
    if (folder / KEYS).is_file():
        with closing(sqlite3.connect(f"{(folder / KEYS).resolve().as_uri()}?mode=ro", uri=True)) as db:
            db.isolation_level = None
            store.vacuumed(db, scratch / KEYS)
    return Backup(
        name=folder.name,
        time=_now(),
        phase=position.phase,
        length=position.length,
        head=position.head.hex(),
        retired=store.origin(scratch / STORE)[1],
        files={one.name: _digest(one) for one in sorted(scratch.iterdir())},
    )


def _pack(target: IO[bytes], made: Backup, scratch: Path) -> None:
    (scratch / MANIFEST).write_text(json.dumps({"format": FORMAT, "version": VERSION, **asdict(made)}, indent=1))
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in (MANIFEST, *made.files):
            archive.add(scratch / name, arcname=name, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing about the machine: no owner, no group."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def restore(file: Path, folder: Path, *, head: str | None = None) -> tuple[Backup, bool]:
    """Make a new folder of a backup; what it is of, and whether it may answer.

    Guarantee. That of the predictor over all folders together, if each was made by `fit` or by this function, none of
    them was copied in another way, a final backup is restored once, and `head`, where it is given, is true.

    Why. A restored predictor has the counts, the rows and the teachers of the moment of the backup. Had the one that
    was backed up answered since, then a second set of answers would be drawn from the same teachers, beyond the number
    for which a phase was priced, and queries would become rows of two phases. Closing the phase early does not help:
    the rows for the next phase may have been learned from already. So it may go on only if no answer is missing from
    it. Either the store was retired before it was copied: then every answer ever given is in the ledger, and none is
    given by the other after. Or `head`, the last hash of the ledger when the other stopped for good, is the hash at
    which the backup ends: a ledger with another row has another head. Otherwise it is marked as incomplete, in its
    ledger, and nothing is ever answered from it; records can be read, which draws nothing.
    """
    from reticent.predictors import saving  # slow to import

    if folder.exists():
        raise FileExistsError(f"{folder} exists: choose another name, or delete what is there")
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))  # mode 0700
    try:
        made = _unpacked(file, unfinished)
        goes_on = made.retired == RETIRED or (made.retired is None and head is not None)
        if head is not None and head.strip().lower() != made.head:
            raise ValueError(
                f"head is not the one at which the backup ends, which has {made.length} rows: the one that was backed "
                "up has answered since. Without head, records can be restored"
            )
        if goes_on:
            _check_alone(unfinished, folder.parent)
        store.witnessed(unfinished / STORE)
        with Home(unfinished, records=True) as new:
            if (new.store.position.head.hex(), new.store.retired) != (made.head, made.retired):
                raise Damaged(f"{file} is damaged: its store is not the one that it tells of")
            saving.read(new.state)
            store.verify(new.store.path)
            if goes_on:
                new.store.mark(RESTORED, time=_now())
            elif new.store.retired is None:
                new.store.mark(INCOMPLETE, time=_now())
        for one in unfinished.iterdir():
            home.synced(one)
        home.synced(unfinished)
        with _claimed(file) if goes_on else nullcontext():
            os.rename(unfinished, folder)
        home.synced(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return made, goes_on


def _check_alone(new: Path, root: Path) -> None:
    """Refuse to go on beside another folder from the same `fit` that could answer as well."""
    identity, _ = store.origin(new / STORE)
    for other in sorted(root.glob(f"[!.]*/{STORE}")):
        with suppress(Damaged, sqlite3.Error):  # what cannot be read cannot answer
            if store.origin(other) == (identity, None):
                raise Retired(
                    f"{other.parent.name} is of the same origin and may still answer: two would both spend the answers "
                    f"that are left. Make a final backup of it and restore that, or delete {other.parent}"
                )


@contextmanager
def _claimed(file: Path) -> Iterator[None]:
    """Mark a backup as restored, which can be done once."""
    mark = file.with_name(f"{file.name}.restored")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise Retired(
            f"{file} was restored before ({mark.name} says so): two that go on from it would spend its answers twice. "
            f"If that one never came to be, delete {mark.name}"
        ) from None
    home.synced(file.parent)
    try:
        yield
    except BaseException:
        mark.unlink(missing_ok=True)
        raise


def _unpacked(file: Path, folder: Path) -> Backup:
    """Unpack a backup, every byte of which is checked; nothing but the files that it may have is written."""
    try:
        with tarfile.open(file, mode="r:") as archive:
            first = archive.next()
            if first is None or first.name != MANIFEST or not first.isfile() or first.size > CHUNK:
                raise Damaged(f"{file} is no backup of reticent")
            made = _manifest(_content(archive, first).read(), file)
            found = set()
            while (member := archive.next()) is not None:
                if member.name not in made.files or member.name in found or not member.isfile():
                    raise Damaged(f"{file} is damaged: it holds what it does not name")
                found.add(member.name)
                with open(folder / member.name, "xb", opener=_private) as target:
                    shutil.copyfileobj(_content(archive, member), target, CHUNK)
    except (tarfile.TarError, EOFError) as error:
        raise Damaged(f"{file} is damaged, or is no backup of reticent ({type(error).__name__})") from None
    if any(not (folder / name).is_file() or _digest(folder / name) != made.files[name] for name in made.files):
        raise Damaged(f"{file} is damaged: a file in it is missing, or not the one that was written")
    return made


def _manifest(text: bytes, file: Path) -> Backup:
    try:
        page: dict[str, Any] = json.loads(text)
        kind, version = page.pop("format"), page.pop("version")
        if kind == FORMAT and version > VERSION:
            raise Damaged(f"{file} is a backup of version {version}; this reticent knows {VERSION}: use a newer one")
        made = Backup(**page)
        if kind != FORMAT or not {MODEL, STORE} <= set(made.files) or not all(map(MEMBER.fullmatch, made.files)):
            raise ValueError
    except Damaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Damaged(f"{file} is damaged, or is no backup of reticent") from None
    return made


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    return content


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _now() -> int:
    return int(1000 * time.time())
