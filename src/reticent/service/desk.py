"""The desk: draws, counts and stores answers in one step, and only then hands them out."""

from __future__ import annotations

import hashlib
import logging
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
from itertools import accumulate
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.predictors import saving
from reticent.predictors.chain import FOLLOW, ChainEngine
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase
from reticent.predictors.rows import Rows
from reticent.privacy.guarantee import Guarantee
from reticent.service import store
from reticent.service.home import Home, save_phase
from reticent.service.store import Entry, LedgerRow, Part, Stored, Transaction

Array = NDArray[Any]

log = logging.getLogger("reticent.service")

ANONYMOUS = "anonymous"  # the client of whoever asks without a key
DAY = 24 * 3600
SHOWN = 100  # rows of the ledger that are kept at hand
FILES = ("X", "codes", "groups")  # of rows
TRIES = 2  # at learning, if the process that learns is killed
PATIENCE = 5.0  # seconds, before what could not be wiped from the disk is wiped again


class KeyReused(ValueError):
    """An idempotency key came with another body than the first time: to be told to its owner only."""


class NothingStored(LookupError):
    """No answer is stored for a request that may have nothing else."""


class Halted(RuntimeError):
    """Nothing is answered until the service is started anew, as an answer could not be stored."""


@dataclass(frozen=True)
class Request:
    """What one request asks, already parsed and encoded by public rules.

    With `only_stored` it gets an answer that is stored, and nothing that would cost something.
    """

    client: str
    rows: NDArray[np.float64]
    idempotency_key: str | None
    digest: bytes
    only_stored: bool = False


@dataclass(frozen=True)
class Answered:
    """The labels for the rows of a request, the phase that gave the first of them, and whether it is a repeat."""

    labels: list[Any]
    phase: int
    replayed: bool


Drift = Literal["not tested", "none found", "found"]


@dataclass(frozen=True)
class Status:
    """Public numbers only: functions of who asked when and how often, never of a row, a vote or a label.

    `drift` alone is computed from questions: by a private test, which the guarantee counts.
    """

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
    client_cap: int  # the most of them that may come from one client
    learning: bool  # whether the next phase is being learned now
    drift: Drift  # whether the questions of the phase before this one had drifted
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

    *A phase ends in the store before the next one begins.* With some labellers the votes have a part in when a phase
    closes; that is stored with the answers, like them. Learning the next phase and writing its state can fail, and come
    after it, with a transaction of their own: whether they do tells nothing that was not counted, and after a restart
    the phase is as closed as it was. Queries of a batch that are left over are the next phase's.

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
        self._wipe_after = 0.0  # by a clock that nobody sets
        self._last_phase = False  # whether there is none after this one
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
        with suppress(OSError):
            self._store.forget(self._clock())
        self._wipe()

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
        draw of noise, one transaction, for each phase that answers some of them. What is refused, by public rules, has
        spent nothing:

        - `ValueError`: the rows have the wrong shape or type;
        - `KeyReused`: the idempotency key came before, from the same client, with another body;
        - `NothingStored`: the request may have a stored answer only, and there is none;
        - `BudgetExhausted`: fewer answers are left than rows;
        - `Halted`: an answer could not be stored; see `Desk`.

        A request whose rows are more than the last phase has left is refused, and the rows that were answered count.
        """
        if self.halted is not None:
            return [Halted(self.halted) for _ in requests]
        now = self._clock()
        results: list[Any] = [None] * len(requests)
        try:
            if fresh := self._sorted_out(requests, results, now):
                self._answer([requests[one] for one in fresh], fresh, results, now)
        except Exception as error:
            self._halt(error)
        for place, request in enumerate(requests):
            first = results[place]
            if first is None:  # what was stored before it failed is given out
                results[place] = Halted(str(self.halted))
            elif isinstance(first, int):  # the same key, earlier in this batch
                results[place] = _repeated(results[first], request, requests[first])
        return results

    def _sorted_out(self, requests: Sequence[Request], results: list[Any], now: int) -> list[int]:
        """Fill in what can be said without a draw; the places of the requests that need one."""
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
            elif key is not None and (found := self._store.stored(request.client, _hidden(key), now)) is not None:
                results[place] = self._again(found, key, request)
            elif request.only_stored:
                results[place] = NothingStored("no answer is stored for this request")
            elif left is not None and len(rows) > left:
                results[place] = BudgetExhausted(f"{len(rows)} queries were asked and {left} answers are left")
            else:
                left = None if left is None else left - len(rows)
                fresh.append(place)
                if key is not None:
                    seen[request.client, key] = place
        return fresh

    def _again(self, found: Stored, key: str, request: Request) -> Answered | KeyReused:
        if found.digest != _mixed(key, request.digest):
            return KeyReused("this idempotency key was used before, with another body")
        return Answered(self._labels(np.frombuffer(found.codes, self._width)), found.phase, replayed=True)

    def _answer(self, requests: list[Request], places: list[int], results: list[Any], now: int) -> None:
        """Draw, count and store, phase by phase; only then fill in the results."""
        batch = _Batch(requests, self._named(requests), self._width)
        while not batch.done:
            if self._predictor.answers_left_in_phase_ == 0:
                try:
                    self._turn_over(now)
                except BudgetExhausted as error:
                    for place in places[batch.finished :]:
                        results[place] = BudgetExhausted(str(error))
                    return
            first = batch.finished
            found = self._answer_in_phase(batch, now)
            for place, one in zip(places[first : batch.finished], found, strict=True):
                results[place] = one

    def _answer_in_phase(self, batch: _Batch, now: int) -> list[Answered]:
        """What the present phase has for a batch, durable: the answers to the requests that this one finishes."""
        phase, asked = self._predictor.phase, self._predictor.clock()["asked"]
        given = self._predictor.answer(*batch.left(), one_phase=True)
        some = batch.take(given.codes, self._labels(given.codes), phase.number)
        learned_from = slice(some.start, some.start + min(max(0, phase.window - asked), len(given.codes)))
        entries, found, kept = batch.finish(some)
        self._write(
            Transaction(
                time=now,
                clock=self._predictor.clock(),
                entries=entries,
                answers=kept,
                expires=max(now, self._store.position.time) + self._expiry,
                journal=batch.part(learned_from),
            )
        )
        return found

    def _turn_over(self, now: int) -> None:
        """Begin the next phase. Its state is on the disk before the store refers to it.

        If the process dies between the two, the store still refers to the phase before, which is over; the file is
        removed at the next start, and the next phase learned again.
        """
        self._predictor.turn_over()
        opened = save_phase(self._predictor, self.home.folder)
        self._write(Transaction(time=now, clock=self._predictor.clock(), entries=[], passed=[opened]))
        self._wipe_after = 0.0

    def _write(self, transaction: Transaction) -> None:
        made = self._store.write(transaction)
        self._tail.extend(made)
        for row in made:
            self._clients[row.client] = self._clients.get(row.client, 0) + row.answers
        self._status = self._look()

    def _named(self, requests: list[Request]) -> list[tuple[str, int]] | None:
        """Who asks, in runs. Without a key it is nobody: each such query is its own, unless clients are protected."""
        grouped = self._predictor.guarantee_.unit == "group"
        if not grouped and all(one.client == ANONYMOUS for one in requests):
            return None
        runs: list[tuple[str, int]] = []
        place = self._predictor.answered_
        for request in requests:
            count = len(request.rows)
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

    def _halt(self, error: Exception) -> None:
        # Everybody with a key sees this: what the system calls the error, never its message, which may name a place.
        why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        self.halted = f"nothing is answered until the service is started anew ({why})"
        self._status = Status(**{**self._status.__dict__, "halted": self.halted})
        self._store.close()
        log.error("%s", self.halted, exc_info=error)

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

    def added(self, client: str) -> tuple[int, int] | None:
        """How many rows of the next phase are a client's, and how many may be; None where clients have no cap.

        Both are functions of who asked how often: the first questions of a client are taken, whatever they are. A
        labeller whose phases close early is left out: how many were taken tells when, and the batch at hand is not yet
        recorded. May be called from any thread.
        """
        grouped = self._status.guarantee.unit == "group"
        nameless = client == ANONYMOUS and not grouped  # each such question counts as a client of its own
        if not self._status.rows_wanted or nameless or self._predictor.labeller == "two-coin":
            return None
        return self._predictor.rows_of_client(client)

    def tail(self) -> list[LedgerRow]:
        """The last rows of the ledger; may be called from any thread."""
        return list(self._tail.copy())

    def verify(self) -> store.Verified:
        """Check all of the store, while it is in use; may be called from any thread."""
        return store.verify(self._store.path)

    @property
    def untidy(self) -> bool:
        """Whether there is something to be done that nobody waits for: see `tidy`."""
        if self.halted is not None:
            return False
        over = self._predictor.answers_left_in_phase_ == 0 and not self._last_phase
        return over or (self._store.position.untidy and time.monotonic() >= self._wipe_after)

    def tidy(self) -> None:
        """Begin the next phase if this one is over, and delete for good what phases that are over have left.

        If the disk cannot delete now, as when someone reads the store, it is tried again some seconds later.
        """
        if not self.untidy:
            return
        try:
            if self._predictor.answers_left_in_phase_ == 0 and not self._last_phase:
                self._turn_over(self._clock())
        except BudgetExhausted:
            self._last_phase = True
        except Exception as error:
            self._halt(error)
        self._wipe()

    def _wipe(self) -> None:
        if self.halted is None and self._store.position.untidy:
            try:
                self._store.forget(self._clock())
                self.home.tidy()
            except OSError:
                self._wipe_after = time.monotonic() + PATIENCE

    def interrupt(self) -> None:
        """Wait no longer for what is being learned: it is learned again at the next start. From any thread."""
        self._closed.set()
        if (process := self._learner_process) is not None:
            process.terminate()

    def close(self) -> None:
        """Let go of the store and the folder. What is being learned is learned again at the next start."""
        self.interrupt()
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
            client_cap=predictor.client_cap_,
            learning=predictor._coming is not None,
            drift=_drift(predictor),
            ledger_length=position.length,
            ledger_head=position.head.hex(),
            last_time=position.time / 1000 if position.length else None,
            halted=self.halted,
        )


class _Batch:
    """Requests that are answered together: their rows in a line, and how far along it answers have come."""

    def __init__(self, requests: list[Request], named: list[tuple[str, int]] | None, width: Any) -> None:
        self.requests, self.named = requests, named
        self.rows = requests[0].rows if len(requests) == 1 else np.concatenate([one.rows for one in requests])
        self.who = None if named is None else _spread(named)
        self.ends = list(accumulate(len(one.rows) for one in requests))
        self.codes = np.empty(len(self.rows), dtype=width)
        self.phases = np.empty(len(self.rows), dtype=np.int64)
        self.labels: list[Any] = []
        self.finished = 0  # requests

    @property
    def done(self) -> bool:
        return len(self.labels) == len(self.rows)

    def left(self) -> tuple[Array, Array | None]:
        """The rows that have no answer yet, and who asks."""
        place = len(self.labels)
        return self.rows[place:], None if self.who is None else self.who[place:]

    def take(self, codes: Array, labels: list[Any], phase: int) -> slice:
        """Answers of a phase to the next rows; which rows these are."""
        some = slice(len(self.labels), len(self.labels) + len(labels))
        self.codes[some], self.phases[some] = codes, phase
        self.labels += labels
        return some

    def finish(self, some: slice) -> tuple[list[Entry], list[Answered], list[tuple[str, str, Stored]]]:
        """What these rows cost by client, the answers to requests that they finish, and what is kept of those."""
        entries: dict[str, Entry] = {}
        found: list[Answered] = []
        kept: list[tuple[str, str, Stored]] = []
        for request, end in zip(self.requests[self.finished :], self.ends[self.finished :], strict=True):
            begin, whole = end - len(request.rows), end <= some.stop
            if (cost := min(end, some.stop) - max(begin, some.start)) <= 0:
                break
            before = entries.get(request.client) or Entry(request.client, 0, int(self.phases[some.start]), 0)
            # Answers are told with the last of them: of a request that goes on in the next phase there may be none.
            answers = before.answers + (len(request.rows) if whole else 0)
            entries[request.client] = before._replace(answers=answers, cost=before.cost + cost)
            if not whole:
                break
            self.finished += 1
            found.append(Answered(self.labels[begin:end], int(self.phases[begin]), replayed=False))
            if (key := request.idempotency_key) is not None:
                mine = Stored(_mixed(key, request.digest), self.codes[begin:end].tobytes(), found[-1].phase)
                kept.append((request.client, _hidden(key), mine))
        return list(entries.values()), found, kept

    def part(self, some: slice) -> Part | None:
        """These rows and their answers, for the journal."""
        if some.stop == some.start:
            return None
        runs = None if self.named is None else _some(self.named, some.start, some.stop)
        return Part(runs, self.rows[some].tobytes(), self.codes[some].tobytes())


def _drift(predictor: EverlastingPredictor) -> Drift:
    """What the private test found at the end of the phase before this one; votes have none.

    It is a function of summaries that were released, and that the event of the phase counts.
    """
    engine, phase = predictor._engine, predictor.phase
    if not isinstance(engine, ChainEngine) or phase.number == 1 or engine.recipe.retrain != "drift":
        return "not tested"
    if engine.due == FOLLOW:  # as it is after an alarm, and only then
        return "found"
    return "none found" if phase.rows >= engine.recipe.fewest else "not tested"


def digest(body: bytes) -> bytes:
    """The digest of a body, for `Request`."""
    return hashlib.sha256(body).digest()


def _repeated(first: Any, request: Request, original: Request) -> Answered | Exception:
    if request.digest != original.digest:
        return KeyReused("this idempotency key was used before, with another body")
    return Answered(first.labels, first.phase, replayed=True) if isinstance(first, Answered) else first


def _hidden(key: str) -> str:
    """An idempotency key as it is kept."""
    return hashlib.sha256(b"key" + key.encode()).hexdigest()


def _mixed(key: str, digest: bytes) -> bytes:
    """The digest of a body as it is kept: without the key, which is not, nobody can try out bodies against it."""
    return hashlib.sha256(b"body" + key.encode() + digest).digest()


def _spread(runs: list[tuple[str, int]]) -> Array:
    return np.repeat(np.array([client for client, _ in runs]), [count for _, count in runs])


def _some(runs: list[tuple[str, int]], first: int, last: int) -> list[tuple[str, int]]:
    """The runs of some rows."""
    found, place = [], 0
    for client, count in runs:
        if (mine := min(place + count, last) - max(place, first)) > 0:
            found.append((client, mine))
        place += count
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
