"""The desk: draws, counts and stores answers in one step, and only then hands them out."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.predictors.engines import Drift
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.guard import Guard, Guarded
from reticent.service import halting, store, traces
from reticent.service.halting import Halt
from reticent.service.home import Home, save_phase
from reticent.service.learning import Learning
from reticent.service.requests import (
    Answered,
    Asked,
    Batch,
    Finished,
    KeyReused,
    NothingStored,
    Request,
    digest,
    hidden,
    mixed,
    spread,
)
from reticent.service.store import LedgerRow, Part, Transaction

__all__ = [
    "ANONYMOUS",
    "Answered",
    "Clock",
    "Desk",
    "Halted",
    "KeyReused",
    "NothingStored",
    "Request",
    "Status",
    "digest",
]

Array = NDArray[Any]

log = logging.getLogger("reticent.service")

ANONYMOUS = "anonymous"  # the client of whoever asks without a key
DAY = 24 * 3600
SHOWN = 100  # rows of the ledger that are kept at hand
PHASES = 20  # that are over, and shown
PATIENCE = 5.0  # seconds, before what could not be wiped from the disk is wiped again


class Halted(RuntimeError):
    """Nothing is answered until the service is started again; `soon` if a supervisor can be expected to do that."""

    def __init__(self, message: str = "", *, soon: bool = False) -> None:
        super().__init__(message)
        self.soon = soon


@dataclass(frozen=True)
class Past:
    """A phase that is over: how many rows it learned from, and how many answers it gave."""

    number: int
    rows: int
    answers: int


@dataclass(frozen=True)
class Status:
    """Public numbers only: functions of who asked when and how often, never of a row, a vote or a label.

    `drift` is computed from questions, by a private test, and `one_answer` from the model of a chain. Both tests and
    models are released, and the guarantee counts them. When a phase closes depends on votes for the labeller "two-coin"
    alone; that is blurred, and counted too. So `past` may be shown.
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
    past: tuple[Past, ...] = ()  # the last phases before this one
    one_answer: Any = None  # the class that the model of a chain gives to everybody, if there is one


class Clock:
    """Time that only goes forward: that of the wall when it was made, and from then on a clock that nobody sets."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._start, self._steady, self._began = wall(), steady, steady()

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        return int(1000 * (self._start + self._steady() - self._began))


class Desk(Guarded):
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
    `halt` says why. After an error in the program the next start is refused as well, until an operator allows it: if
    that error depends on a row or a query, each start would tell of it once more, and nothing counts that.

    *Repeats* are free: a key belongs to a client and says nothing of what was asked; the answer that was stored
    together with its cost is given again, no row is appended, nothing is drawn. Keys expire by a public `Clock`.

    *A query is asked once.* Where a phase ends in the middle of a request with a key, the transaction that counts the
    first part also keeps its answers and the rows that are left. If the process dies, the next one answers these rows
    before anything else, without being asked. So each row of the request is answered once, counted once and learned
    from by one phase, whether or not somebody repeats it. A repeat gets all answers.

    Parameters
    ----------
    home : the folder, open and locked; the desk closes it.
    learner : the predictor's, where it could not be saved.
    trust_models : whether teachers that are neither linear, thresholds nor trees may be loaded from the folder.
    expiry : for how many seconds a repeat gets the stored answer.
    elsewhere : whether phases learn in another process. It starts anew, so a script needs its `__main__` guard.
    clock : the public clock, in milliseconds.
    """

    _instead = "Open the folder in the process that answers, after it was closed here"

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
        self._guard = Guard(type(self))
        self.home, self._store = home, home.store
        self._expiry = int(1000 * expiry)
        self._clock = clock or Clock()
        self._learning = Learning(home, learner=learner, trust_models=trust_models)
        self._wipe_after = 0.0  # by a clock that nobody sets
        self._last_phase = False  # whether there is none after this one
        self.halt: Halt | None = None
        self.halted: str | None = None  # what everyone is told of it
        self._past: tuple[Past, ...] = ()
        self._one_answer: Any = None
        self._begun = 0  # the phase that the last two are of
        path = home.state
        try:
            self._predictor = EverlastingPredictor.load(path, learner=learner, again=True, trust_models=trust_models)
            self._check_predictor()
            self._predictor.background = True
            if elsewhere:
                self._predictor.learn_elsewhere(self._learning.learn)
            self._width = np.min_scalar_type(len(self._predictor.classes_) - 1)
            self._predictor.replay((self._part(one) for one in self._store.journal()), self._store.position.clock)
            self._unfinished = {(client, key): kept for client, key, kept in self._store.unfinished()}
            self._cut_off()
        except store.Damaged:
            self.close()
            raise
        except (ValueError, KeyError) as error:
            self.close()
            raise store.Damaged(f"the service cannot go on from {path} and the store: {traces.said(error)}") from error
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
        self._guard.check()  # first: a forked process must not so much as halt, which would close the store
        if self.halted is not None:
            return [self._refusal() for _ in requests]
        now = self._clock()
        results: list[Any] = [None] * len(requests)  # what each gets, or its place in the line and whether it repeats
        line: list[Asked] = []
        outcomes: list[Answered | Exception] = []
        try:
            line = self._cut_off()
            self._sorted_out(requests, results, line, now)
            if line:
                self._answer(line, outcomes, now)
        except Exception as error:
            self._halt(error)
        return [self._got(*pair, line, outcomes) for pair in zip(requests, results, strict=True)]

    def _cut_off(self) -> list[Asked]:
        """Requests that a kill or a halt cut off at the end of a phase. They go before all others, asked for or not.

        So the counts, which all may see, do not tell whether somebody has repeated one, or with which body.
        """
        if self._last_phase:
            return []
        return [Asked.unfinished(*name, kept, self.columns, self._width) for name, kept in self._unfinished.items()]

    def _sorted_out(self, requests: Sequence[Request], results: list[Any], line: list[Asked], now: int) -> None:
        """Fill in what can be said without a draw; the other requests go to the end of the line."""
        places = {(one.client, one.kept[0]): place for place, one in enumerate(line) if one.kept is not None}
        left, columns = self._left(), self.columns
        if left is not None:
            left -= sum(len(one.rows) for one in line)
        for place, request in enumerate(requests):
            rows, key = request.rows, request.idempotency_key
            name = None if key is None else (request.client, hidden(key))
            if not (isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2):
                results[place] = ValueError("rows must be an array of float64 with two dimensions")
            elif rows.shape[1] != columns or len(rows) == 0:
                results[place] = ValueError(f"rows must be at least one, each of {columns} numbers")
            elif name in places:
                results[place] = places[name], True
            elif name is not None and (found := self._store.stored(*name, now)) is not None:
                stored = Answered(self._labels(np.frombuffer(found.codes, self._width)), found.phase, replayed=True)
                results[place] = _repeated(request, found.digest, stored)
            elif request.only_stored:
                results[place] = NothingStored("no answer is stored for this request")
            elif left is not None and len(rows) > left:
                results[place] = BudgetExhausted(f"{len(rows)} queries were asked and {left} answers are left")
            else:
                left = None if left is None else left - len(rows)
                results[place] = len(line), False
                kept = None
                if name is not None and key is not None:
                    places[name], kept = len(line), (name[1], mixed(key, request.digest))
                line.append(Asked(request.client, rows, kept))

    def _got(
        self, request: Request, result: Any, line: list[Asked], outcomes: list[Answered | Exception]
    ) -> Answered | Exception:
        """What a request gets in the end."""
        if isinstance(result, Answered | Exception):
            return result
        place, repeats = result or (len(line), False)
        if place >= len(outcomes):  # what was stored before it failed is given out
            return self._refusal()
        outcome, kept = outcomes[place], line[place].kept
        if not repeats or kept is None or not isinstance(outcome, Answered):
            return outcome  # one that was not answered is refused alike, whatever its body is
        return _repeated(request, kept[1], replace(outcome, replayed=True))

    def _answer(self, line: list[Asked], outcomes: list[Answered | Exception], now: int) -> None:
        """Draw, count and store, phase by phase; only then append the outcomes."""
        batch = Batch(line, self._named(line), self._width)
        while not batch.done:
            if self._predictor.answers_left_in_phase_ == 0:
                try:
                    self._turn_over(now)
                except BudgetExhausted as error:
                    self._last_phase = True
                    outcomes += [BudgetExhausted(str(error)) for _ in line[batch.finished :]]
                    return
            outcomes += self._answer_in_phase(batch, now)

    def _answer_in_phase(self, batch: Batch, now: int) -> list[Answered]:
        """What the present phase has for a batch, durable: the answers to the requests that this one finishes."""
        phase, asked = self._predictor.phase, self._predictor.clock()["asked"]
        given = self._predictor.answer(*batch.left(), one_phase=True)
        some = batch.take(given.class_indices)
        learned_from = slice(some.start, some.start + min(max(0, phase.window - asked), len(given.class_indices)))
        entries, finished, kept = batch.finish(some, phase.number)
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
        for client, key, stored in kept:
            if stored.rest is not None:
                self._unfinished[client, key] = stored
            elif self._unfinished:
                self._unfinished.pop((client, key), None)
        return self._answered(finished)

    def _answered(self, finished: list[Finished]) -> list[Answered]:
        labels = self._labels(np.concatenate([np.empty(0, self._width), *(one.codes for one in finished)]))
        found, place = [], 0
        for codes, phase in finished:
            found.append(Answered(labels[place : place + len(codes)], phase, replayed=False))
            place += len(codes)
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

    def _named(self, requests: Sequence[Asked]) -> list[tuple[str, int]] | None:
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
        return rows, codes, None if part.clients is None else spread(part.clients)

    def _refusal(self) -> Halted:
        return Halted(str(self.halted), soon=self.halt is not None and self.halt.kind in ("system", "stop"))

    def _halt(self, error: Exception) -> None:
        self.halt = Halt.of(error)
        halting.record(self.home.folder, self.halt)  # before anyone can see that it failed
        self.halted = self.halt.public
        self._status = Status(**{**self._status.__dict__, "halted": self.halted})
        self._store.close()
        log.error("%s\n%s", self.halted, self.halt.trace)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Status:
        """Where the service stands after the last batch; may be called from any thread."""
        return self._status

    def clients(self) -> dict[str, int]:
        """How many answers each client has had; may be called from any thread."""
        return self._clients.copy()

    def charged(self) -> dict[str, int]:
        """As `clients`, with the answers to requests that were cut off: for quotas, before the first batch."""
        found = Counter(self._clients)
        for one in self._cut_off():
            found[one.client] += len(one)
        return dict(found)

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
        self._guard.check()
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
        if not self._guard.elsewhere:  # what is being learned belongs to the process that opened the desk
            self._learning.interrupt()

    def close(self) -> None:
        """Let go of the store and the folder. What is being learned is learned again at the next start."""
        if not self._guard.elsewhere:
            self._learning.close()
        self.home.close()

    def _check_predictor(self) -> None:
        if self._predictor.dtype_ != np.float64:
            raise TypeError("the predictor must have been fitted on float64")
        if self._predictor.training_stream != "queries":
            raise TypeError("training_stream must be 'queries': the service takes no rows of a trusted stream")

    def _look(self) -> Status:
        predictor, position = self._predictor, self._store.position
        phase = predictor.phase
        self._look_back(phase.number)
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
            learning=predictor.learning_,
            drift=predictor.drift_,
            ledger_length=position.length,
            ledger_head=position.head.hex(),
            last_time=position.time / 1000 if position.length else None,
            halted=self.halted,
            past=self._past,
            one_answer=self._one_answer,
        )

    def _look_back(self, phase: int) -> None:
        """See which phases are over, and what the model is like: once a phase, as neither changes in it."""
        if phase != self._begun:
            self._past = tuple(Past(*one) for one in self._store.phases(PHASES + 1) if one[0] < phase)
            self._one_answer = self._predictor.one_answer_
            self._begun = phase


def _repeated(request: Request, digest: bytes, first: Answered) -> Answered | KeyReused:
    """What a repeat gets: the answer that the first one got, if its body is the same."""
    if mixed(str(request.idempotency_key), request.digest) != digest:
        return KeyReused("this idempotency key was used before, with another body")
    return first
