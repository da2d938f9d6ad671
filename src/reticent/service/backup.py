"""Backups: a predictor in one file, and the rule by which a restored one may answer or only be read."""

from __future__ import annotations

import fcntl
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

from reticent.service import home
from reticent.service.files import private, sync
from reticent.service.home import KEYS, MODEL, STORE, Home
from reticent.service.store import schema, verification
from reticent.service.store.protocol import HANDED_OVER, INCOMPLETE, RESTORED, RETIRED, Damaged, Retired

FORMAT, VERSION = "reticent-backup", 1
MANIFEST = "backup.json"
MEMBER = re.compile(rf"{re.escape(MODEL)}|{re.escape(STORE)}|{re.escape(KEYS)}|phase-\d+\.state")
CHUNK = 1 << 20
TRIES = 5  # to copy the store and the state of the same phase while phases end


@dataclass(frozen=True)
class Backup:
    """What a backup contains. All of this is public."""

    name: str
    time: int  # milliseconds since 1970
    phase: int
    length: int  # of the answer log
    head: str
    retired: str | None  # the final mark of the original, if it answers no more
    files: dict[str, str]  # SHA-256 of each


def write(folder: Path, file: Path, *, final: bool = False) -> Backup:
    """Write a predictor to a new file, as of one moment, also while it is served. The file is as secret as the folder.

    A `final` backup first retires the predictor for good, so it must not be served. Then the backup contains every
    answer that was ever given, and may continue in its place.

    A process that is killed leaves no file of that name. Call this again to make it. If only the renaming was left
    to do, this does that: there are never two files that both continue.

    Parameters
    ----------
    folder : Path
        The folder of the predictor.
    file : Path
        The file to write.
    final : bool, default False
        Whether to retire the predictor first, so that the backup can continue in its place.
    """
    if file.exists():
        raise FileExistsError(f"{file} exists: name another file")
    unfinished, scratch = file.with_name(f".{file.name}.unfinished"), file.with_name(f".{file.name}.copies")
    with open(unfinished, "a+b", opener=private) as target:  # before anything is retired: this may fail
        _hold(target, unfinished, file)
        handed_over = False
        try:
            handed_over = final and _retire(folder)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(mode=0o700)
            if handed_over:
                made = _unnamed(folder, unfinished, scratch)
            else:
                target.truncate(0)
                target.seek(0)
                made = _gathered(folder, scratch)
                _pack(target, made, scratch)
                target.flush()
                os.fsync(target.fileno())
                sync(file.parent)
        except BaseException:
            if not handed_over or os.fstat(target.fileno()).st_size == 0:
                unfinished.unlink(missing_ok=True)
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if made.retired == RETIRED and not handed_over:  # no other backup of it may continue
            with Home(folder, records=True) as old:
                old.store.mark(HANDED_OVER, time=_now())
        os.rename(unfinished, file)
        sync(file.parent)
    return made


def _hold(target: IO[bytes], unfinished: Path, file: Path) -> None:
    """Let one process at a time write this file."""
    try:
        fcntl.flock(target.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(f"{file} is being written by another process") from None
    if file.exists() or not unfinished.exists() or not os.path.samestat(os.fstat(target.fileno()), os.stat(unfinished)):
        raise FileExistsError(f"{file} exists: name another file")


def _retire(folder: Path) -> bool:
    """Retire a predictor; return whether a final backup of it was made before."""
    with Home(folder, records=True) as old:
        if old.store.retired == INCOMPLETE:
            raise Retired(f"{old.name} cannot have a final backup: {home.RETIREMENT[INCOMPLETE]}")
        if old.store.retired is None:
            old.store.mark(RETIRED, time=_now())
        return bool(old.store.retired == HANDED_OVER)


def _unnamed(folder: Path, unfinished: Path, scratch: Path) -> Backup:
    """The final backup of a predictor, if it is this file, which was not renamed yet."""
    with Home(folder, records=True) as old:
        (last,) = old.store.tail(1)
    with suppress(Damaged):
        made = _unpacked(unfinished, scratch)
        if (made.retired, made.head) == (RETIRED, last.previous.hex()):
            return made
    raise Retired(f"{folder.name} cannot have a final backup: {home.RETIREMENT[HANDED_OVER]}")


def _gathered(folder: Path, scratch: Path) -> Backup:
    """Copy all files. The state of a phase never changes, so store and state of one phase belong together."""
    for _ in range(TRIES):
        (scratch / STORE).unlink(missing_ok=True)
        position = verification.copy_store(folder / STORE, scratch / STORE)
        state = home.state_path(scratch, position.phase)
        with suppress(FileNotFoundError):  # the phase has just ended: the next try finds the next phase
            shutil.copyfile(home.state_path(folder, position.phase), state)
            break
    else:
        raise Damaged(f"{folder} has no state of its phase, or phases end faster than they can be copied")
    if home.seal_of(state) != position.seal:
        raise Damaged(f"{home.state_path(folder, position.phase)} is not the one that the store belongs to")
    model = home.read_model(folder)
    home.check_model(folder / MODEL, model, verification.settings_of(scratch / STORE))
    (scratch / MODEL).write_text(model, encoding="utf-8")
    if (folder / KEYS).is_file():
        # Opened for writing, since an interrupted change may have to be undone.
        with closing(sqlite3.connect(f"{(folder / KEYS).resolve().as_uri()}?mode=rw", uri=True)) as db:
            db.isolation_level = None
            schema.vacuum_into(db, scratch / KEYS)
    return Backup(
        name=folder.name,
        time=_now(),
        phase=position.phase,
        length=position.length,
        head=position.head.hex(),
        retired=verification.origin(scratch / STORE)[1],
        files={one.name: _digest(one) for one in sorted(scratch.iterdir())},
    )


def copy(folder: Path, target: Path) -> None:
    """Copy a predictor to a new folder to inspect it. The copy must not answer. Its store is not checked."""
    target.mkdir(mode=0o700)
    _gathered(folder, target)
    verification.create_witness(target / STORE)


def _pack(target: IO[bytes], made: Backup, scratch: Path) -> None:
    (scratch / MANIFEST).write_text(json.dumps({"format": FORMAT, "version": VERSION, **asdict(made)}, indent=1))
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in (MANIFEST, *made.files):
            archive.add(scratch / name, arcname=name, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Record nothing about the machine: no owner, no group."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def restore(file: Path, folder: Path, *, head: str | None = None) -> tuple[Backup, bool]:
    """Restore a backup to a new folder; return what it contains, and whether the restored predictor may answer.

    Guarantee. That of the predictor over all folders together, if each was made by `fit` or by this function, none of
    them was copied in another way, a final backup is restored once, and `head`, where it is given, is true.

    Why. If the original had answered since the backup, a restored predictor would draw more answers than a phase was
    priced for, and queries would become rows of two phases. So it may answer only if no answer is missing from it:
    the store was retired before it was copied, or `head`, the last hash of the log of the original, is the last hash
    of the backup. Otherwise it is marked as incomplete and only its records can be read. See docs/service/store.md.

    Parameters
    ----------
    file : Path
        The backup.
    folder : Path
        The new folder.
    head : str or None, default None
        The last hash of the answer log when the predictor stopped, if you know it.
    """
    from reticent.predictors import state_file  # slow to import

    if folder.exists():
        raise FileExistsError(f"{folder} exists: choose another name, or delete what is there")
    _take_back(file)
    with home.unfinished(folder) as new:
        made = _unpacked(file, new)
        final = made.retired == RETIRED
        later = "truth" in verification.settings_of(new / STORE)  # then the log does not show all that was learned from
        continues = final or (made.retired is None and head is not None)
        _check_model(file, new)
        if later and head is not None and not final:
            raise ValueError(
                "--head is not enough for a predictor that takes later labels: the answer log does not show which of "
                "them the original has learned from since. A final backup continues; without --head, the records of "
                "this one can be restored"
            )
        if head is not None and head.strip().lower() != made.head:
            raise ValueError(
                f"--head {head} is not the hash at which this backup ends, after {made.length:,} entries of its answer "
                "log: it is mistyped, or the predictor has answered since. Without --head, its records can be restored"
            )
        if continues:
            _check_alone(new, folder.parent)
        verification.create_witness(new / STORE)
        with Home(new, records=True) as restored:
            if (restored.store.position.head.hex(), restored.store.retired) != (made.head, made.retired):
                raise Damaged(f"{file} is damaged: its store is not the one that it describes")
            state_file.read(restored.state)
            restored.store.verify()
            if continues:
                restored.store.mark(RESTORED, time=_now())
                if not final:
                    home.restored_path(new, restored.store.position.phase).touch(mode=0o600)
            elif restored.store.retired is None:
                restored.store.mark(INCOMPLETE, time=_now())
        if continues:
            home.keep_unfinished(new, _mark(file))
        home.sync_folder(new)  # before the mark that names it
        with _claimed(file, new) if continues else nullcontext():
            home.put_in_place(new, folder)
    return made, continues


def _check_model(file: Path, new: Path) -> None:
    """Refuse a backup, by its name, whose model.toml does not belong to its store."""
    try:
        home.check_model(new / MODEL, home.read_model(new), verification.settings_of(new / STORE))
    except Damaged:
        raise Damaged(f"{file} holds a {MODEL} that is not the one its store was made with") from None


def _check_alone(new: Path, root: Path) -> None:
    """Refuse to continue if another folder from the same `fit` could answer as well."""
    identity, _ = verification.origin(new / STORE)
    for other in sorted(root.glob(f"[!.]*/{STORE}")):
        with suppress(Damaged, sqlite3.Error):  # what cannot be read cannot answer
            if verification.origin(other) == (identity, None):
                raise Retired(
                    f"{other.parent.name} has the same origin and may still answer: both would spend the answers that "
                    f"are left. Make a final backup of it and restore that, or delete {other.parent}"
                )


def _mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.restored")


@contextmanager
def _claimed(file: Path, new: Path) -> Iterator[None]:
    """Mark a backup as restored, which can be done once. The mark names the folder that does not have its name yet.

    As long as that unfinished folder exists, the restored one does not: see `_take_back`.
    """
    mark = _mark(file)
    descriptor, part = tempfile.mkstemp(dir=file.parent, prefix=f".{mark.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            target.write(os.path.relpath(new.resolve(), file.parent.resolve()))
            target.flush()
            os.fsync(target.fileno())
        try:
            os.link(part, mark)  # unlike a rename, it overwrites nothing
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.replace(part, mark)
    except FileExistsError:
        raise Retired(
            f"{file} was restored before ({mark.name} says so): two predictors that continue it would spend its "
            f"answers twice. If that restore never finished, delete {mark.name}"
        ) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    sync(file.parent)
    try:
        yield
    except BaseException:
        mark.unlink(missing_ok=True)
        raise


def _take_back(file: Path) -> None:
    """Remove the mark of a restore that was killed before its folder got its name."""
    with suppress(FileNotFoundError):
        named = _mark(file).read_text(encoding="utf-8")
        if named and home.is_abandoned(file.parent.resolve() / named):
            _mark(file).unlink()  # the next folder that is created here removes the unfinished one
            sync(file.parent)


def _unpacked(file: Path, folder: Path) -> Backup:
    """Unpack a backup and check every byte of it; only files that it may have are written."""
    try:
        with tarfile.open(file, mode="r:") as archive:
            first = archive.next()
            if first is None or first.name != MANIFEST or not first.isfile() or first.size > CHUNK:
                raise Damaged(f"{file} is not a backup of reticent")
            made = _manifest(_content(archive, first).read(), file)
            found = set()
            while (member := archive.next()) is not None:
                if member.name not in made.files or member.name in found or not member.isfile():
                    raise Damaged(f"{file} is damaged: it contains files that it does not name")
                found.add(member.name)
                with open(folder / member.name, "xb", opener=private) as target:
                    shutil.copyfileobj(_content(archive, member), target, CHUNK)
    except (tarfile.TarError, EOFError) as error:
        raise Damaged(f"{file} is damaged, or is not a backup of reticent ({type(error).__name__})") from None
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
        raise Damaged(f"{file} is damaged, or is not a backup of reticent") from None
    return made


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    return content


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _now() -> int:
    return int(1000 * time.time())
