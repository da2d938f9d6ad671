"""The folder of one predictor: its model, its store and the state of its phase. One server at a time may open it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from reticent.privacy.guard import Guard, Guarded
from reticent.service import halting
from reticent.service.files import sync
from reticent.service.requests import runs_of
from reticent.service.store.protocol import (
    HANDED_OVER,
    INCOMPLETE,
    RETIRED,
    Damaged,
    JournalPart,
    OpenedPhase,
    Retired,
    StoreType,
)
from reticent.service.store.sqlite import SQLiteStore

if TYPE_CHECKING:  # it takes long to import, and a list of names does not need it
    from reticent.predictors.everlasting import EverlastingPredictor

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MODEL, STORE, KEYS, LOCK = "model.toml", "store.sqlite", "keys.sqlite", "lock"
UNFINISHED = "unfinished"  # a file that is locked by the process that fills a folder, as LOCK is by the server
RETIREMENT = {
    RETIRED: "it was retired for a final backup, which was not finished: make it again",
    HANDED_OVER: "it was retired by a final backup, which continues in its place",
    INCOMPLETE: (
        "it was restored from a backup, and the original may have answered since: those answers would be given, and "
        "paid for by the same people, a second time"
    ),
}
FROM_BACKUP = "restore it from a backup. Do not fit again: that would spend epsilon and delta again"
SEAL = 64  # the last bytes of a state: the SHA-256 of all bytes before them, which `state_file` checks


class AlreadyServed(RuntimeError):
    """Another process uses this folder."""


def root() -> Path:
    """The folder of all predictors and of the record of data sets: $RETICENT_HOME, or in the user's folder for data."""
    if given := os.environ.get("RETICENT_HOME"):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "reticent"


def check_name(name: str) -> str:
    """Return the name of a predictor or a data set; refuse what cannot be one."""
    if not NAME.fullmatch(name):
        raise ValueError(
            "name must be letters, digits, '.', '_' and '-', 64 at most, and start with a letter or digit, got "
            f"{name!r}"
        )
    return name


def folder_of(name: str) -> Path:
    """The folder of the predictor of this name."""
    return root() / check_name(name)


def predictor_names() -> list[str]:
    """The names of all predictors."""
    folder = root()
    return sorted(one.parent.name for one in folder.glob(f"*/{STORE}")) if folder.is_dir() else []


def read_model(folder: str | os.PathLike[str]) -> str:
    """The text of model.toml, also while a server runs."""
    path = Path(folder) / MODEL
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if (path.parent / STORE).exists():
            raise Damaged(f"{path} is missing, although there is a store next to it: {FROM_BACKUP}") from None
        raise FileNotFoundError(f"there is no predictor in {folder}: make one by `reticent fit`") from None
    except IsADirectoryError:
        raise Damaged(f"{path} is damaged (it is a folder): {FROM_BACKUP}") from None
    try:
        return raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Damaged(f"{path} is damaged (line {line} is not UTF-8): {FROM_BACKUP}") from None


def check_model(path: Path, text: str, settings: Mapping[str, str]) -> None:
    """Refuse the text of a model.toml that is not the one which the store with these settings was made with."""
    if hashlib.sha256(text.encode()).hexdigest() != settings["model"]:
        raise Damaged(f"{path} is damaged ({_difference(text)}): {FROM_BACKUP}")


class Home(Guarded):
    """The folder of one predictor, locked as long as this is open.

    | file | what it is |
    |---|---|
    | `model.toml` | schema and parameters, public; must stay as it was written |
    | `store.sqlite`, `-wal`, `-shm` | the store; as secret as the data |
    | `store-version-<v>.sqlite` | the store before an upgrade, until the phase is over; as secret as the data |
    | `keys.sqlite` | who may ask: hashes of keys, and limits |
    | `witness` | how long the answer log is, to detect a store that has lost something |
    | `phase-<i>.state` | what phase i knows; as secret as the data |
    | `phase-<i>.restored` | says that the state of phase i is from a backup that was not a final one |
    | `halted` | why the service stopped answering, if it did and has not started since |
    | `lock` | held by the server, gone with its process, however that ends |

    A predictor that is retired, or that an error in the program has stopped, is refused unless it is opened for its
    `records` alone.

    Parameters
    ----------
    folder : str or path-like
        The folder.
    records : bool, default False
        Whether to open it only to read its records.
    store : StoreType, default SQLiteStore
        The class of its store. It must be the one that the folder was created with.
    """

    _twice = "two processes would write to one folder"
    _instead = "Open it in the process that uses it"

    def __init__(
        self, folder: str | os.PathLike[str], *, records: bool = False, store: StoreType = SQLiteStore
    ) -> None:
        self._guard = Guard(type(self))
        self.folder = Path(folder)
        self.name = self.folder.name
        text = read_model(self.folder)
        if not records:
            halting.check_not_halted(self.folder)
        self._lock = _locked(self.folder)
        try:
            self.store: Any = store(self.folder / STORE)  # an `AnswerStore`, and whatever else its class has
        except BaseException:
            os.close(self._lock)
            raise
        try:
            if self.store.retired is not None and not records:
                why = RETIREMENT[self.store.retired]
                raise Retired(f"{self.name} answers no more, and only its records can be read: {why}")
            check_model(self.folder / MODEL, text, self.store.settings)
            self.model = text
            if (found := seal_of(self.state)) != self.store.position.seal:
                what = "is missing" if found is None else "is not the one that the store belongs to"
                raise Damaged(f"{self.state} {what}: nothing can be answered without it")
            self._remove_leftovers()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        predictor: EverlastingPredictor,
        model: str,
        *,
        now: float | None = None,
        store: StoreType = SQLiteStore,
    ) -> Self:
        """Create the folder of a fitted predictor, complete or not at all.

        From then on use the predictor through the folder: answers of the one in memory are not counted here.

        Parameters
        ----------
        folder : str or path-like
            The folder, which must not exist.
        predictor : EverlastingPredictor
            Fitted, and never asked.
        model : str
            The text of model.toml: `Schema.to_toml` of the schema by which rows became numbers.
        now : float, default None
            Seconds since 1970. None means the current time.
        store : StoreType, default SQLiteStore
            The class of its store.

        Returns
        -------
        Home
            The folder, open and locked.
        """
        target = Path(folder)
        if not hasattr(predictor, "answered_"):
            raise TypeError(f"predictor must be a fitted EverlastingPredictor, got {type(predictor).__name__}")
        if predictor.answered_:
            raise ValueError(
                f"predictor must be new: it has answered {predictor.answered_} queries that nobody recorded"
            )
        if target.exists():
            raise FileExistsError(f"{target} exists: choose another name, or delete what is there")
        with unfinished(target) as new:
            (new / MODEL).write_text(model, encoding="utf-8")
            opened = save_phase(predictor, new)
            settings = {
                "format": "reticent-store",
                "model": hashlib.sha256(model.encode()).hexdigest(),
                "guarantee": predictor.guarantee_.explain(),
                "classes": str(len(predictor.classes_)),
                "id": os.urandom(16).hex(),
            }
            if predictor.truth is not None:
                settings["truth"] = str(predictor.truth)
            at = int(1000 * (time.time() if now is None else now))
            store.create(new / STORE, settings, opened, predictor.clock(), time=at).close()
            sync_folder(new)
            put_in_place(new, target)
        return cls(target, store=store)

    @property
    def state(self) -> Path:
        """The file with the state of the current phase."""
        return state_path(self.folder, self.store.position.phase)

    @property
    def may_lack_answers(self) -> bool:
        """Whether the state of this phase came from a backup, after which the original may have continued unseen."""
        return restored_path(self.folder, self.store.position.phase).exists()

    def wipe(self) -> None:
        """Wipe what belonged to past phases from the disk: files, and rows in the store."""
        self._guard.check()
        self._remove_leftovers(learning=True)
        sync(self.folder)  # or files could come back after a power failure, unknown to the store
        if self.store.position.needs_wiping:
            self.store.wipe()

    def next_rows(self, phase: int, what: str) -> Path:
        """A file for what the next phase learns from, or has learned; it is removed at the end of the current phase."""
        return self.folder / f"next-{phase}.{what}"

    def _remove_leftovers(self, *, learning: bool = False) -> None:
        """Remove states of other phases, unfinished files, and rows that no process learns from."""
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        for one in self.folder.iterdir():
            found = re.match(r"\.?(phase|next)-(\d+)\.", one.name)
            if found is None:
                continue
            kind, number = found[1], int(found[2])
            current = kind == "phase" and number == self.store.position.phase and not one.name.startswith(".")
            if not current and not (learning and kind == "next" and number > self.store.position.phase):
                with suppress(FileNotFoundError):
                    one.unlink()

    def close(self) -> None:
        """Release the folder."""
        self.store.close()
        lock, self._lock = self._lock, -1  # its number may soon be another file's
        if lock >= 0:
            with suppress(OSError):
                os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _difference(text: str) -> str:
    """What is wrong with the text of a model.toml, which is public."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line \d+", str(error))
        return f"{found[0] if found else 'its end'} is no TOML"
    return "it was changed"


def state_path(folder: Path, phase: int) -> Path:
    """The file of a phase."""
    return folder / f"phase-{phase}.state"


def restored_path(folder: Path, phase: int) -> Path:
    """The file that says that a phase was restored from a backup that was not a final one."""
    return folder / f"phase-{phase}.restored"


def save_phase(predictor: EverlastingPredictor, folder: Path) -> OpenedPhase:
    """Write the state of the current phase, which is on the disk when this returns."""
    path, phase = state_path(folder, predictor.phase.number), predictor.phase
    predictor.save(path)
    seal = seal_of(path)
    assert seal is not None
    event = json.dumps(predictor.event_.to_json())
    tickets, owners = zip(*slots, strict=True) if (slots := predictor.open_slots_) else ((), ())
    carried = JournalPart(runs_of(map(str, owners)), b"", b"", bytes.fromhex("".join(tickets))) if tickets else None
    waiting = predictor.labelled_from_
    return OpenedPhase(phase.number, phase.rows, phase.answers, event, seal, carried, waiting)


def seal_of(path: Path) -> str | None:
    """The seal at the end of a saved state; None if there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - SEAL))
            return file.read().decode("ascii", "replace")
    except FileNotFoundError:
        return None


def _locked(folder: Path) -> int:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise AlreadyServed(
            f"{folder} is in use by process {holder or 'unknown'}: one server at a time, since two would both spend "
            "the answers that are left. Stop it first"
        ) from None
    with suppress(OSError):  # for the message only
        os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)
    return descriptor


# ── a new folder, complete or not at all ──────────────────────────────────────────────────────────────────────────


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A folder next to `target`, to be filled, forced to the disk and put in its place; if that fails, it is removed.

    A process that is killed leaves it behind, with private rows in it. The next process that creates a folder here
    removes it. The process that fills a folder holds a lock in it, which ends with the process.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(target.parent):
        for one in target.parent.glob(".*"):
            if is_abandoned(one) and not _is_kept(one):
                shutil.rmtree(one, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))  # mode 0700
        held = os.open(new / UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield new
        (target / UNFINISHED).unlink(missing_ok=True)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    finally:
        os.close(held)


def sync_folder(new: Path) -> None:
    """Force a folder to the disk, with all that is in it."""
    for one in new.iterdir():
        sync(one)
    sync(new)
    sync(new.parent)


def put_in_place(new: Path, target: Path) -> None:
    """Give a folder its name, which is on the disk when this returns."""
    os.rename(new, target)
    sync(target.parent)


def keep_unfinished(new: Path, mark: Path) -> None:
    """Keep others from removing an unfinished folder as long as the file `mark` exists, even if this process dies."""
    (new / UNFINISHED).write_text(os.path.relpath(mark.resolve(), new.parent.resolve()), encoding="utf-8")


def _is_kept(folder: Path) -> bool:
    mark = (folder / UNFINISHED).read_text(encoding="utf-8")
    return bool(mark) and (folder.parent.resolve() / mark).exists()


def is_abandoned(folder: Path) -> bool:
    """Whether the process that filled a folder has ended."""
    try:
        held = os.open(folder / UNFINISHED, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return folder.name.startswith(".")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: a new folder that is not locked yet must not be taken for one that was left behind."""
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems cannot lock a folder
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
