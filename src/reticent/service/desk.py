"""The desk: draws, counts and stores answers in one step, and only then hands them out."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.predictors import saving
from reticent.predictors.everlasting import Answers, EverlastingPredictor
from reticent.predictors.phases import Phase
from reticent.predictors.rows import Rows
from reticent.privacy.guarantee import Guarantee
from reticent.service import store
from reticent.service.home import Home, save_phase
from reticent.service.store import Entry, LedgerRow, Opened, Part, Stored, Transaction

Array = NDArray[Any]

ANONYMOUS = "anonymous"  # the client of whoever asks without a key
DAY = 24 * 3600
SHOWN = 100  # rows of the ledger that are kept at hand
FILES = ("X", "codes", "groups")  # of rows
TRIES = 2  # at learning, if the process that learns is killed


class KeyReused(ValueError):
    """An idempotency key came with another body than the first time: to be told to its owner only."""


class Halted(RuntimeError):
    """Nothing is answered until the service is started anew, as an answer could not be stored."""


@dataclass(frozen=True)
class Request:
    """What one request asks, already parsed and encoded by public rules."""

    client: str
    rows: NDArray[np.float64]
    idempotency_key: str | None
    digest: bytes


@dataclass(frozen=True)
class Answered:
    """The labels for the rows of a request, the phase that gave the first of them, and whether it is a repeat."""

    labels: list[Any]
    phase: int
    replayed: bool


@dataclass(frozen=True)
class Status:
    """Public numbers only: functions of who asked when and how often, never of a row, a vote or a label."""

    guarantee: Guarantee
    phase: int
    answers_in_phase: int
    answers_left_in_phase: int
    answers_left: int | None  # in all; None for endlessly many
    answered: int
    rows: int  # that the present phase learned from
    teachers: int
    rows_gathered: int
    rows_wanted: int  # for the next phase
    learning: bool  # whether the next phase is being learned now
    ledger_length: int
    ledger_head: str
    last_time: float | None  # of the last row of the ledger, in seconds since 1970
    halted: str | None


class Clock:
    """Time that only goes forward: that of the wall when it was made, and from then on a clock that nobody sets."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._start, self._steady, self._began = wall(), steady, steady()

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        return int(1000 * (self._start + self._steady() - self._began))


class Desk:
    """Owns the predictor and the store: what was answered is what was counted is what is on the disk.

    Guarantee. That of the predictor, for all that leaves the desk, whenever and however often its process is killed.

    Why. *Nothing is spent unseen or seen unspent.* The answers of a batch are drawn in memory, then one transaction
    holds their cost in the ledger, the rows and labels that the next phase learns from, the count of the phase, the
    secret count of the labeller, and what is repeated under an idempotency key. The answers are returned after it is on
    the disk. Whoever saw an answer saw one that is counted, and whose row is kept at its place.

    *If the transaction fails*, or the process dies before it is on the disk, nobody saw an answer of the batch. The
    draws are forgotten with the process: the next one starts from the store, where they never happened, and draws
    anew. What is seen then has the law of a predictor that was asked later: a draw that nobody saw is independent of
    all that anybody sees, and noise that was drawn is never used again. It matters that *whether* a transaction fails
    does not depend on the draws. So everything drawn is stored in a fixed number of bytes, by the same statements:
    labels in as many bytes as the number of classes needs, the count of the labeller in `store.SECRET`. If the
    transaction is on the disk, but the process died before it could say so, its answers are counted and nobody saw
    them; who asked with an idempotency key gets them by asking again.

    *After a failure the desk is halted*, for good: the predictor in memory has counted what the store has not. It does
    not try again, since a disk that has once refused to write may later say that it has written what it has lost.

    *Repeats* are free: a key belongs to a client and says nothing of what was asked; the answer that was stored
    together with its cost is given again, no row is appended, nothing is drawn. Keys expire by a public `Clock`.

    Parameters
    ----------
    home : the folder, open and locked; the desk closes it.
    learner : the predictor's, where it could not be saved.
    trust_models : whether teachers that are neither linear, thresholds nor trees may be loaded from the folder.
    expiry : for how many seconds a repeat gets the stored answer.
    elsewhere : whether phases learn in another process. It starts anew, so a script needs its `__main__` guard.
    clock : the public clock, in milliseconds.
    """

    def __init__(
        self,
        home: Home,
        *,
        learner: Any = None,
        trust_models: bool = False,
        expiry: float = DAY,
        elsewhere: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.home, self._store = home, home.store
        self._learner, self._trust_models, self._expiry = learner, trust_models, int(1000 * expiry)
        self._clock = clock or Clock()
        self._learner_process: SpawnProcess | None = None
        self._closed = threading.Event()
        self._learns = threading.Lock()
        self._put_off = False
        self.halted: str | None = None
        path = home.state
        try:
            self._predictor = EverlastingPredictor.load(path, learner=learner, again=True, trust_models=trust_models)
            self._check_predictor()
            self._predictor.background = True
            if elsewhere:
                self._predictor.learn_elsewhere(self._learn)
            self._width = np.min_scalar_type(len(self._predictor.classes_) - 1)
            self._predictor.replay((self._part(one) for one in self._store.journal()), self._store.position.clock)
        except store.Damaged:
            self.close()
            raise
        except (ValueError, KeyError) as error:
            self.close()
            raise store.Damaged(f"the service cannot go on from {path} and the store: {error}") from error
        except BaseException:
            self.close()
            raise
        self._clients = self._store.clients()
        self._tail = deque(self._store.tail(SHOWN), maxlen=SHOWN)
        self._status = self._look()
        self.tidy()

    @property
    def columns(self) -> int:
        """How many numbers a row has."""
        return int(self._predictor.n_features_in_)

    @property
    def classes(self) -> list[Any]:
        """The labels that there are."""
        return list(self._predictor.classes_.tolist())

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        """What each request gets, durable before it is returned; an exception where one was refused.

        One thread at a time may call this. All rows of all requests are asked at once: one product of matrices, one
        draw of noise, one transaction. What is refused, by public rules, has spent nothing:

        - `ValueError`: the rows have the wrong shape or type;
        - `KeyReused`: the idempotency key came before, from the same client, with another body;
        - `BudgetExhausted`: fewer answers are left than rows;
        - `Halted`: an answer could not be stored; see `Desk`.

        A request whose rows are more than the last phase has left is refused, and the rows that were answered count.
        """
        if self.halted is not None:
            return [Halted(self.halted) for _ in requests]
        now = self._clock()
        try:
            results, fresh = self._sorted_out(requests, now)
            if fresh:
                self._answer([requests[one] for one in fresh], fresh, results, now)
        except Exception as error:
            return [self._halt(error) for _ in requests]
        for place, request in enumerate(requests):
            first = results[place]
            if isinstance(first, int):  # the same key, earlier in this batch
                results[place] = _repeated(results[first], request, requests[first])
        return results

    def _sorted_out(self, requests: Sequence[Request], now: int) -> tuple[list[Any], list[int]]:
        """What can be said without a draw, and the places of the requests that need one."""
        results: list[Any] = [None] * len(requests)
        fresh: list[int] = []
        seen: dict[tuple[str, str], int] = {}
        left, columns = self._left(), self.columns
        for place, request in enumerate(requests):
            rows, key = request.rows, request.idempotency_key
            if not (isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2):
                results[place] = ValueError("rows must be an array of float64 with two dimensions")
            elif rows.shape[1] != columns or len(rows) == 0:
                results[place] = ValueError(f"rows must be at least one, each of {columns} numbers")
            elif key is not None and (request.client, key) in seen:
                results[place] = seen[request.client, key]
            elif key is not None and (found := self._store.stored(request.client, key, now)) is not None:
                results[place] = self._again(found, request)
            elif left is not None and len(rows) > left:
                results[place] = BudgetExhausted(f"{len(rows)} queries were asked and {left} answers are left")
            else:
                left = None if left is None else left - len(rows)
                fresh.append(place)
                if key is not None:
                    seen[request.client, key] = place
        return results, fresh

    def _again(self, found: Stored, request: Request) -> Answered | KeyReused:
        if found.digest != request.digest:
            return KeyReused("this idempotency key was used before, with another body")
        return Answered(self._labels(np.frombuffer(found.codes, self._width)), found.phase, replayed=True)

    def _answer(self, requests: list[Request], places: list[int], results: list[Any], now: int) -> None:
        """Draw, count and store; only then fill in the results."""
        counts = np.array([len(one.rows) for one in requests])
        rows = requests[0].rows if len(requests) == 1 else np.concatenate([one.rows for one in requests])
        named = self._named(requests, counts)
        phase, asked = self._predictor.phase, self._predictor.clock()["asked"]
        given = self._predictor.answer(rows, None if named is None else _spread(named))
        codes, names = given.codes.astype(self._width), self._labels(given.codes)
        ends = np.cumsum(counts)
        stored: list[tuple[str, str, Stored]] = []
        found: list[Any] = []
        for request, end, count in zip(requests, ends.tolist(), counts.tolist(), strict=True):
            if end > len(codes):
                found.append(BudgetExhausted(str(given.refused)))
                continue
            first = int(given.phases[end - count])
            found.append(Answered(names[end - count : end], first, replayed=False))
            if (key := request.idempotency_key) is not None:
                mine = codes[end - count : end].tobytes()
                stored.append((request.client, key, Stored(request.digest, mine, first)))
        passed = self._passed(phase.number, given)
        window = 0 if passed else min(max(0, phase.window - asked), len(codes))
        part = None if window == 0 else Part(_first(named, window), rows[:window].tobytes(), codes[:window].tobytes())
        made = self._store.write(
            Transaction(
                time=now,
                clock=self._predictor.clock(),
                entries=_entries(requests, counts, ends, given.phases),
                answers=stored,
                expires=max(now, self._store.position.time) + self._expiry,
                journal=part,
                passed=passed,
            )
        )
        if passed:
            self._put_off = False
        self._tail.extend(made)
        for row in made:
            self._clients[row.client] = self._clients.get(row.client, 0) + row.answers
        self._status = self._look()
        for place, one in zip(places, found, strict=True):
            results[place] = one

    def _passed(self, before: int, given: Answers) -> list[Opened]:
        """The phases that began in this batch. The state of the last is on the disk before the store refers to it.

        It holds what this batch left there, so the journal starts empty. If the process dies between the two, the
        store still refers to the phase before, and the file is removed at the next start.
        """
        now = self._predictor.phase.number
        if now == before:
            return []
        last = save_phase(self._predictor, self.home.folder)
        # A phase that began and was over in one batch has its numbers from the ledger: they were all spent.
        between = [
            Opened(one, 0, int(np.count_nonzero(given.phases == one)), "null", "") for one in range(before + 1, now)
        ]
        return [*between, last]

    def _named(self, requests: list[Request], counts: Array) -> list[tuple[str, int]] | None:
        """Who asks, in runs. Without a key it is nobody: each such query is its own, unless clients are protected."""
        grouped = self._predictor.guarantee_.unit == "group"
        if not grouped and all(one.client == ANONYMOUS for one in requests):
            return None
        runs: list[tuple[str, int]] = []
        place = self._predictor.answered_
        for request, count in zip(requests, counts.tolist(), strict=True):
            if request.client == ANONYMOUS and not grouped:
                runs += [(f"{ANONYMOUS} {place + one}", 1) for one in range(count)]
            else:
                runs.append((request.client, count))
            place += count
        return runs

    def _labels(self, codes: Array) -> list[Any]:
        return list(self._predictor.classes_[codes].tolist())

    def _left(self) -> int | None:
        horizon = self._predictor.answers
        return None if isinstance(horizon, str) else int(str(horizon)) - self._predictor.answered_

    def _part(self, part: Part) -> tuple[Array, Array, Array | None]:
        rows = np.frombuffer(part.rows, dtype=np.float64).reshape(-1, self.columns)
        codes = np.frombuffer(part.codes, dtype=self._width)
        return rows, codes, None if part.clients is None else _spread(part.clients)

    def _halt(self, error: Exception) -> Halted:
        # Everybody with a key sees this: what the system calls the error, never its message, which may name a place.
        why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        self.halted = f"nothing is answered until the service is started anew ({why})"
        self._status = Status(**{**self._status.__dict__, "halted": self.halted})
        self._store.close()
        halted = Halted(self.halted)
        halted.__cause__ = error
        return halted

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, phase: Phase, rows: Rows) -> tuple[dict[str, Any], dict[str, Array]]:
        """What the next phase learns, in another process; rows go there by files, and so does what it has learned."""
        token = secrets.token_hex(4)
        paths = {one: self.home.next_rows(phase.number, f"{token}.{one}") for one in (*FILES, "learned")}
        with self._learns:
            try:
                for name in FILES:
                    if (array := getattr(rows, name)) is not None:
                        with open(paths[name], "wb", opener=_private) as file:
                            np.save(file, array, allow_pickle=False)
                for _ in range(TRIES):
                    if self._learned(phase, paths):
                        learned = saving.read(paths["learned"])
                        return learned.header, learned.arrays
                raise ChildProcessError("the process in which the next phase learns was killed, and once more")
            finally:
                for path in paths.values():
                    with suppress(OSError):
                        path.unlink()

    def _learned(self, phase: Phase, paths: dict[str, Path]) -> bool:
        """Whether the other process came to its end; what it could not do is raised here."""
        if self._closed.is_set():
            raise ChildProcessError("the service stops")
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe(duplex=False)
        options = {"learner": self._learner, "trust_models": self._trust_models}
        process = spawn.Process(target=_learn, args=(theirs, self.home.state, phase, paths, options), daemon=True)
        with ours:
            process.start()
            theirs.close()
            self._learner_process = process
            if self._closed.is_set():
                process.terminate()
            try:
                error = ours.recv()
            except EOFError:
                return False
            finally:
                process.join()
                self._learner_process = None
        if error is not None:
            raise error
        return True

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Status:
        """Where the service stands after the last batch; may be called from any thread."""
        return self._status

    def clients(self) -> dict[str, int]:
        """How many answers each client has had; may be called from any thread."""
        return self._clients.copy()

    def tail(self) -> list[LedgerRow]:
        """The last rows of the ledger; may be called from any thread."""
        return list(self._tail.copy())

    def verify(self) -> store.Verified:
        """Check all of the store, while it is in use; may be called from any thread."""
        return store.verify(self._store.path)

    @property
    def untidy(self) -> bool:
        """Whether phases that are over have left something behind that is to be deleted."""
        return self.halted is None and self._store.position.untidy and not self._put_off

    def tidy(self) -> None:
        """Delete for good what phases that are over have left; if the disk cannot now, at the next phase or start."""
        if self.untidy:
            try:
                self.home.tidy()
            except OSError:
                self._put_off = True

    def close(self) -> None:
        """Let go of the store and the folder. What is being learned is learned again at the next start."""
        self._closed.set()
        if (process := self._learner_process) is not None:
            process.terminate()
        with self._learns:  # its files are gone
            self.home.close()

    def _check_predictor(self) -> None:
        if self._predictor._reader.dtype != np.float64:
            raise TypeError("the predictor must have been fitted on float64")
        if self._predictor.training_stream != "queries":
            raise TypeError("training_stream must be 'queries': the service takes no rows of a trusted stream")

    def _look(self) -> Status:
        predictor, position = self._predictor, self._store.position
        phase = predictor.phase
        return Status(
            guarantee=predictor.guarantee_,
            phase=phase.number,
            answers_in_phase=phase.queries,
            answers_left_in_phase=predictor.answers_left_in_phase_,
            answers_left=self._left(),
            answered=predictor.answered_,
            rows=phase.rows,
            teachers=phase.teachers,
            rows_gathered=predictor.rows_gathered_,
            rows_wanted=phase.handed_on,
            learning=predictor._coming is not None,
            ledger_length=position.length,
            ledger_head=position.head.hex(),
            last_time=position.time / 1000 if position.length else None,
            halted=self.halted,
        )


def digest(body: bytes) -> bytes:
    """The digest of a body, for `Request`."""
    return hashlib.sha256(body).digest()


def _repeated(first: Any, request: Request, original: Request) -> Answered | Exception:
    if request.digest != original.digest:
        return KeyReused("this idempotency key was used before, with another body")
    return Answered(first.labels, first.phase, replayed=True) if isinstance(first, Answered) else first


def _entries(requests: list[Request], counts: Array, ends: Array, phases: Array) -> list[Entry]:
    """The rows of the ledger: one for each client and phase of the batch, in the order in which they first came."""
    found: dict[tuple[str, int], list[int]] = {}
    first = int(phases[0]) if len(phases) else 0
    one = bool((phases == first).all())  # nearly always: a batch is of one phase
    if one and ends[-1] <= len(phases):
        given: dict[str, int] = {}
        for request, count in zip(requests, counts.tolist(), strict=True):
            given[request.client] = given.get(request.client, 0) + count
        return [Entry(client, count, first, count) for client, count in given.items()]
    for request, count, end in zip(requests, counts.tolist(), ends.tolist(), strict=True):
        whole = end <= len(phases)
        mine = phases[end - count : end]
        if len(mine) == 0:
            continue
        spans = [(first, len(mine))] if one else zip(*np.unique(mine, return_counts=True), strict=True)
        for phase, many in spans:
            entry = found.setdefault((request.client, int(phase)), [0, 0])
            entry[0] += int(many) if whole else 0
            entry[1] += int(many)
    return [Entry(client, answers, phase, cost) for (client, phase), (answers, cost) in found.items()]


def _spread(runs: list[tuple[str, int]]) -> Array:
    return np.repeat(np.array([client for client, _ in runs]), [count for _, count in runs])


def _first(runs: list[tuple[str, int]] | None, rows: int) -> list[tuple[str, int]] | None:
    """The runs of the first rows."""
    if runs is None:
        return None
    found = []
    for client, count in runs:
        if rows > 0:
            found.append((client, min(count, rows)))
        rows -= count
    return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _learn(results: Connection, state: Path, phase: Phase, paths: dict[str, Path], options: dict[str, Any]) -> None:
    """What runs in the other process: it reads the state and the rows, learns, and writes what it has learned."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ended by the server, not by the keyboard
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        X, codes, groups = (
            np.load(paths[name], mmap_mode="r", allow_pickle=False) if paths[name].exists() else None for name in FILES
        )
        header, arrays = EverlastingPredictor.learned(
            state, phase, Rows(np.asarray(X), np.asarray(codes), groups), **options
        )
        saving.write(paths["learned"], header, arrays)
    except Exception as error:
        results.send(error)
    else:
        results.send(None)


def _end_with_parent() -> None:
    """Not to go on learning, or to leave a file behind, for a server that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
