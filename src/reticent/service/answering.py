"""The answering service: it draws, counts and stores answers in one step, and only then hands them out."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from reticent.concepts.interface import ConceptClass
from reticent.data.executor import Executor
from reticent.errors import BudgetExhausted
from reticent.labellers import Labeller
from reticent.predictors.engines.engine import EngineFactory
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy.guard import Guard, Guarded
from reticent.service import halting
from reticent.service.clock import Clock
from reticent.service.halting import Halt
from reticent.service.home import Home, save_phase
from reticent.service.keys import ANONYMOUS
from reticent.service.labels import FeedbackRequest, LabelledRequest, LabelReceipt, LabelReceiver, RefusedLabels
from reticent.service.learning import PhaseLearner
from reticent.service.loading import explained
from reticent.service.requests import (
    Answered,
    Batch,
    Halted,
    KeyReused,
    NothingStored,
    PendingRequest,
    Request,
    client_runs,
    hashed_key,
    keyed_digest,
    repeated,
    ticket_names,
    with_probabilities,
)
from reticent.service.status import Status, StatusReporter, answers_left
from reticent.service.store.protocol import AnswerStore, LogRow, Transaction, Verified

Array = NDArray[Any]
Taken = TypeVar("Taken")

log = logging.getLogger("reticent.service")

DAY = 24 * 3600
SHOWN = 100  # rows of the answer log that are kept in memory
SETTLED = (Answered, Exception)  # what a request receives that needs no draw
PATIENCE = 5.0  # seconds before wiping is tried again


class AnsweringService(Guarded):
    """Owns a predictor and its store. What is handed out is what is counted is what is stored.

    Guarantee. That of the predictor, for all that leaves the service, however often its process is killed.

    Why. One transaction of the `AnswerStore` holds the answers of a batch, their cost, the rows that the next phase
    learns from and the state of the labeller. Answers are returned after it is durable. Draws of a transaction that
    failed are seen by nobody and never used, and whether it fails does not depend on them. The proof is in
    docs/service/store.md, "Why crashes do not weaken the guarantee".

    After a failure the service is halted for good: the predictor in memory has counted what the store has not, and
    `halt` says why. After an error in the program an operator must allow the next start.

    Parameters
    ----------
    home : Home
        The folder of the predictor, open and locked. The service closes it.
    learner : estimator or ConceptClass, default None
        The learner of the predictor, if it is not part of the saved state.
    labeller : type[Labeller], default None
        The class of its labeller, if that is your own. It must be the one that the predictor was fitted with.
    engine : type[EngineFactory], default None
        The class of its engine, if that is your own.
    trust_models : bool, default False
        Whether teachers that are neither linear, thresholds nor trees may be loaded from the folder.
    expiry : float, default 86400
        For how many seconds a repeat receives the stored answer.
    elsewhere : bool or Executor, default True
        Where phases are learned. True means another process, which starts with a fresh interpreter, so a script needs a
        `__main__` guard; False means a thread of this process; an `Executor` means wherever it runs tasks.
    ahead : bool, default True
        Whether a phase is learned as soon as its rows are there, and not only when it must answer.
    clock : callable, default None
        The public clock, in milliseconds. None means a new `Clock`.
    """

    _instead = "Open the folder in the process that answers, after it was closed here"

    def __init__(
        self,
        home: Home,
        *,
        learner: BaseEstimator | ConceptClass[Any] | None = None,
        labeller: type[Labeller] | None = None,
        engine: type[EngineFactory] | None = None,
        trust_models: bool = False,
        expiry: float = DAY,
        elsewhere: bool | Executor = True,
        ahead: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._guard = Guard(type(self))
        self.home = home
        self._store: AnswerStore = home.store
        self._expiry = int(1000 * expiry)
        self._clock = clock or Clock()
        executor = None if isinstance(elsewhere, bool) else elsewhere
        options: dict[str, Any] = {
            "learner": learner, "labeller": labeller, "engine": engine, "trust_models": trust_models,
        }  # fmt: skip
        self._learning = PhaseLearner(home, executor, **options)
        self._wipe_after = 0.0  # on the monotonic clock
        self._last_phase = False  # whether no phase follows this one
        self.halt: Halt | None = None
        self.halted: str | None = None  # what every caller may know of it
        try:
            with explained(home):
                continues = not home.may_lack_answers
                self._predictor = EverlastingPredictor.load(home.state, again=True, continues=continues, **options)
                self._check_predictor()
                self._predictor.background = ahead
                if elsewhere is not False:
                    self._predictor.learn_elsewhere(self._learning.learn)
                self._later = LabelReceiver(self._predictor, self._store, self._expiry)
                self._classes, self._dtype = self.classes, self._later.dtype
                self._later.replay()
                self._unfinished = {(client, key): kept for client, key, kept in self._store.unfinished_requests()}
                self._interrupted()
        except BaseException:
            self.close()
            raise
        self._clients: dict[str, int] = self._store.clients()
        self._tail = deque(self._store.tail(SHOWN), maxlen=SHOWN)
        self._reporter = StatusReporter(self._predictor, self._store)
        self._status = self._reporter.status()
        with suppress(OSError):
            self._store.delete_expired(self._clock())
        self._wipe()

    @property
    def columns(self) -> int:
        """How many numbers a row has."""
        return int(self._predictor.n_features_in_)

    @property
    def classes(self) -> list[Any]:
        """The possible labels."""
        return list(self._predictor.classes_.tolist())

    @property
    def no_probabilities(self) -> str | None:
        """Why a request for probabilities is refused; None if it is not."""
        return self._predictor.no_probabilities_

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        """What each request receives, durable before it is returned; an exception for each that was refused.

        One thread at a time may call this. All rows of all requests are asked at once: one product of matrices, one
        draw of noise, one transaction, for each phase that answers some of them. Refusals follow public rules and
        cost nothing:

        - `ValueError`: the rows have the wrong shape or type, or there are no probabilities;
        - `KeyReused`: the same client used the idempotency key before, with another body;
        - `NothingStored`: the request may only have a stored answer, and there is none;
        - `BudgetExhausted`: fewer answers are left than rows;
        - `Halted`: an answer could not be stored; see `AnsweringService`.

        A request with more rows than the last phase has answers left is refused, and the rows that it answered count.
        """
        self._guard.check()  # first: a forked process must not even halt, which would close the store
        if self.halted is not None:
            return [self._refusal() for _ in requests]
        now = self._clock()
        # What each request receives, or its index in the queue and whether it repeats that request.
        results: list[Any] = [None] * len(requests)
        queue: list[PendingRequest] = []
        outcomes: list[Answered | Exception] = []
        try:
            queue = self._interrupted()
            self._sort(requests, results, queue, now)
            if queue:
                self._answer(queue, outcomes, now)
        except Exception as error:
            self._halt(error)
        found = [self._outcome(*pair, queue, outcomes) for pair in zip(requests, results, strict=True)]
        if not any(request.probabilities for request in requests):
            return found
        return [with_probabilities(*pair, self._predictor.probabilities) for pair in zip(requests, found, strict=True)]

    def _interrupted(self) -> list[PendingRequest]:
        """Requests that a kill or a halt interrupted at the end of a phase. They precede all others, repeated or not.

        So the public counts do not show whether somebody has repeated one, or with which body.
        """
        if self._last_phase:
            return []
        return [
            PendingRequest.interrupted(*name, kept, self.columns, self._dtype)
            for name, kept in self._unfinished.items()
        ]

    def _sort(self, requests: Sequence[Request], results: list[Any], queue: list[PendingRequest], now: int) -> None:
        """Fill in the results that need no draw, and append the other requests to the queue."""
        queued = {(one.client, one.kept[0]): index for index, one in enumerate(queue) if one.kept is not None}
        left, columns = self._left(), self.columns
        if left is not None:
            left -= sum(len(one.rows) for one in queue)
        for index, request in enumerate(requests):
            rows, key = request.rows, request.idempotency_key
            name = None if key is None else (request.client, hashed_key(key))
            if not (isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2):
                results[index] = ValueError("rows must be an array of float64 with two dimensions")
            elif rows.shape[1] != columns or len(rows) == 0:
                results[index] = ValueError(f"rows must be at least one, each of {columns} numbers")
            elif request.probabilities and (why := self.no_probabilities) is not None:
                results[index] = ValueError(why)
            elif name in queued:
                results[index] = queued[name], True
            elif name is not None and (found := self._store.stored_answer(*name, now)) is not None:
                labels = self._labels(np.frombuffer(found.class_indices, self._dtype))
                first = Answered(labels, found.phase, replayed=True, tickets=ticket_names(found.tickets))
                results[index] = repeated(request, found.digest, first)
            elif request.only_stored:
                results[index] = NothingStored("no answer is stored for this request")
            elif left is not None and len(rows) > left:
                results[index] = BudgetExhausted(f"{len(rows)} queries were asked and {left} answers are left")
            else:
                left = None if left is None else left - len(rows)
                results[index] = len(queue), False
                kept = None
                if name is not None and key is not None:
                    queued[name], kept = len(queue), (name[1], keyed_digest(key, request.digest))
                queue.append(PendingRequest(request.client, rows, kept))

    def _outcome(
        self, request: Request, result: Any, queue: list[PendingRequest], outcomes: list[Answered | Exception]
    ) -> Answered | Exception:
        """What a request receives in the end."""
        if isinstance(result, SETTLED):
            found: Answered | Exception = result
            return found
        index, repeats = result or (len(queue), False)
        if index >= len(outcomes):  # answers that were stored before a failure are handed out
            return self._refusal()
        outcome, kept = outcomes[index], queue[index].kept
        if not repeats or kept is None or not isinstance(outcome, Answered):
            return outcome  # repeats of a refused request are refused in the same way, whatever their body
        return repeated(request, kept[1], outcome._replace(replayed=True))

    def _answer(self, queue: list[PendingRequest], outcomes: list[Answered | Exception], now: int) -> None:
        """Draw, count and store, phase by phase; append the outcomes only then."""
        batch = Batch(queue, self._runs(queue), self._dtype)
        while not batch.done:
            try:
                self._begin_due_phases(now)
            except BudgetExhausted as error:
                self._last_phase = True
                refusal = self._later.rows_needed() or BudgetExhausted(str(error))
                outcomes += [type(refusal)(*refusal.args) for _ in queue[batch.finished :]]
                return
            outcomes += self._answer_in_phase(batch, now)

    def _answer_in_phase(self, batch: Batch, now: int) -> list[Answered]:
        """Let the current phase answer what it can; return the answers to requests that this finishes, durable."""
        phase, asked = self._predictor.phase, self._predictor.clock()["asked"]
        given = self._predictor.answer(*batch.left(), one_phase=True)
        some = batch.take(given.class_indices, given.tickets)
        wanted = phase.queries if given.tickets and phase.window else phase.window
        learned_from = slice(some.start, some.start + min(max(0, wanted - asked), len(given.class_indices)))
        entries, finished, kept = batch.finish(some, phase.number)
        progress = self._predictor.clock()
        over = given.tickets and (progress["closed"] or progress["asked"] >= phase.queries)
        rows = self._store.write(
            Transaction(
                time=now,
                phase=phase.number,
                after=asked,
                entries=entries,
                closed=progress["closed"],
                labeller=progress["labeller"],
                answers=kept,
                keep=self._expiry,
                journal=batch.journal_part(learned_from),
                close_slots=self._slots_of_window(asked, progress["asked"]) if over else 0,
            )
        )
        self._tail.extend(rows)
        for row in rows:
            self._clients[row.client] = self._clients.get(row.client, 0) + row.answers
        self._status = self._reporter.status()
        for client, key, stored in kept:
            if stored.rest is not None:
                self._unfinished[client, key] = stored
            elif self._unfinished:
                self._unfinished.pop((client, key), None)
        return [
            Answered(self._labels(indices), first, replayed=False, tickets=ticket_names(tickets) if tickets else None)
            for indices, first, tickets in finished
        ]

    def _slots_of_window(self, before: int, asked: int) -> int:
        """How many slots the next phase learns from: those carried over, and those of the window."""
        return self._store.position.slots - before + min(asked, self._predictor.phase.window)

    def _begin_due_phases(self, now: int, *, one: bool = False) -> None:
        """Begin the next phase if this one is over. Labelled rows may be there for several, or for `one` at a time."""
        while self._predictor.answers_left_in_phase_ == 0:
            self._begin_next_phase(now)
            if one:
                return

    def _begin_next_phase(self, now: int) -> None:
        """Begin the next phase. Its state is on the disk before the store refers to it.

        If the process dies between the two, the store still refers to the phase before, which is over. The next start
        removes the file and learns the phase again.
        """
        self._predictor.turn_over()
        opened = save_phase(self._predictor, self.home.folder)
        self._store.begin_phase(opened, time=now, labeller=self._predictor.clock()["labeller"])
        self._status = self._reporter.status()
        self._wipe_after = 0.0

    def _runs(self, requests: Sequence[PendingRequest]) -> list[tuple[str, int]] | None:
        """The clients as runs of rows. Each anonymous query counts as a client, unless groups are protected."""
        grouped = self._predictor.guarantee_.unit == "group"
        named = grouped or self._predictor.takes_feedback_  # whoever gives a label must be known
        if not named and all(one.client == ANONYMOUS for one in requests):
            return None
        return client_runs(requests, first=self._predictor.answered_, grouped=grouped)

    def _labels(self, class_indices: Array) -> list[Any]:
        return list(map(self._classes.__getitem__, class_indices.tolist()))  # sooner than by NumPy for a single row

    def _left(self) -> int | None:
        return answers_left(self._predictor)

    def _refusal(self) -> Halted:
        return Halted(str(self.halted), soon=self.halt is not None and self.halt.kind in ("system", "stop"))

    def _halt(self, error: Exception) -> None:
        self.halt = Halt.of(error)
        halting.record(self.home.folder, self.halt)  # before anyone can see that it failed
        self.halted = self.halt.public
        self._status = replace(self._status, halted=self.halted)
        self._store.close()
        log.error("%s\n%s", self.halted, self.halt.trace)

    # ── later labels ──────────────────────────────────────────────────────────────────────────────────────────────

    def add_labelled(self, request: LabelledRequest) -> LabelReceipt | Exception:
        """Take labelled rows for the phases to come; they are durable when this returns. One thread at a time.

        Refusals follow public rules: `RefusedLabels` by shape, or if the predictor takes none; `KeyReused`; `Halted`.
        """
        found = self._taking(lambda now: self._later.add_labelled(request, now, lambda: self._try_to_begin(now)))
        if isinstance(found, LabelReceipt):
            self._last_phase = False  # what was missing may be there now
            self._status = self._reporter.status()
        return found

    def withdraw_labelled(self, client: str, numbers: Sequence[int]) -> int | Exception:
        """Forget labelled rows of a client, by the numbers of its receipts; how many of them still waited.

        Their places stay, empty. Rows of a phase that is complete cannot be withdrawn: it learns from and deletes them.
        """
        return self._taking(lambda now: self._later.withdraw_labelled(client, numbers, now))

    def feedback(self, given: Sequence[FeedbackRequest]) -> Exception | None:
        """Take labels of answered queries, durable when this returns; None whether or not they count. One thread."""
        return self._taking(lambda now: self._later.feedback(given, now))

    def taught(self, since: int) -> dict[str, int]:
        """How many labelled rows each client has sent since a time in milliseconds: for limits, before the first."""
        return self._store.labelled_since(since)

    def _taking(self, take: Callable[[int], Taken]) -> Taken | Exception:
        """Take something, or say why not; a failure halts, as for answers."""
        self._guard.check()
        if self.halted is not None:
            return self._refusal()
        try:
            return take(self._clock())
        except (RefusedLabels, KeyReused, NothingStored) as error:  # by public rules, before anything was changed
            return error
        except Exception as error:
            self._halt(error)
            return self._refusal()

    def _try_to_begin(self, now: int, *, one: bool = False) -> None:
        """Begin the next phase if this one is over and there can be one."""
        try:
            self._begin_due_phases(now, one=one)
        except BudgetExhausted:
            self._last_phase = True

    # ── observing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Status:
        """The public numbers after the last batch. May be called from any thread."""
        return self._status

    def clients(self) -> dict[str, int]:
        """How many answers each client has received. May be called from any thread."""
        return self._clients.copy()

    def charged(self) -> dict[str, int]:
        """As `clients`, with the answers to interrupted requests: for quotas, before the first batch."""
        found = Counter(self._clients)
        for one in self._interrupted():
            found[one.client] += len(one)
        return dict(found)

    def added(self, client: str) -> tuple[int, int] | None:
        """How many rows of the next phase come from a client, and how many may; None if clients have no cap.

        Both are functions of who asked how often. A labeller whose phases close early has no such numbers: they would
        show when it closes, before the current batch is recorded. May be called from any thread.
        """
        grouped = self._status.guarantee.unit == "group"
        nameless = client == ANONYMOUS and not grouped  # each such query counts as a client of its own
        if not self._status.rows_wanted or nameless or self._predictor.closes_early_:
            return None
        return self._predictor.rows_of_client(client)

    def tail(self) -> list[LogRow]:
        """The last rows of the answer log. May be called from any thread."""
        return list(self._tail.copy())

    def verify(self) -> Verified:
        """Check all of the store, while it is in use. May be called from any thread."""
        return self._store.verify()

    # ── maintenance ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def needs_maintenance(self) -> bool:
        """Whether there is work that no answer waits for: see `maintain`."""
        if self.halted is not None:
            return False
        over = self._predictor.answers_left_in_phase_ == 0 and not self._last_phase
        return over or (self._store.position.needs_wiping and time.monotonic() >= self._wipe_after)

    def wait_until_learned(self) -> None:
        """Wait for what is being learned, so that `maintain` does not have to. From any thread."""
        self._predictor.wait_until_learned()

    def maintain(self) -> None:
        """Begin the next phase if this one is over, one at a time, and wipe what past phases have left on the disk.

        If wiping is not possible now, as when someone reads the store, it is tried again some seconds later.
        """
        self._guard.check()
        if not self.needs_maintenance:
            return
        try:
            if not self._last_phase:
                self._try_to_begin(self._clock(), one=True)
        except Exception as error:
            self._halt(error)
        self._wipe()

    def _wipe(self) -> None:
        if self.halted is None and self._store.position.needs_wiping:
            try:
                self._store.delete_expired(self._clock())
                self.home.wipe()
            except OSError:
                self._wipe_after = time.monotonic() + PATIENCE

    def interrupt(self) -> None:
        """Stop waiting for a phase that is being learned; the next start learns it again. From any thread."""
        if not self._guard.elsewhere:  # what is being learned belongs to the process that opened the service
            self._learning.interrupt()

    def close(self) -> None:
        """Release the store and the folder. The next start learns again what is being learned."""
        if not self._guard.elsewhere:
            self._learning.close()
        self.home.close()

    def _check_predictor(self) -> None:
        if self._predictor.dtype_ != np.float64:
            raise TypeError("the predictor must have been fitted on float64")
        if self._predictor.training_stream != "queries":
            raise TypeError("training_stream must be 'queries': the service takes no rows of a trusted stream")
