"""A conformance test that every `AnswerStore` must pass: a model of the store, compared with it after each step.

Give `check` a harness that creates, opens and crashes your store. The module is installed with the package. It needs
the package hypothesis, and nothing of the project's own tests.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from reticent.service.store.hashing import canonical, first_hash
from reticent.service.store.protocol import (
    FINAL_MARKS,
    RESTORED,
    RETIRED,
    AnswerStore,
    Entry,
    JournalPart,
    NotStored,
    OpenedPhase,
    StoredAnswer,
    Superseded,
    Transaction,
)

SETTINGS = {"format": "conformance", "id": "0" * 32}
CLIENTS, KEYS = ("ann", "bob", "Zoë"), ("k0", "k1", "k2")
FIRST = OpenedPhase(1, 10, 12, "{}", "seal-1")
START = 1_000
STORE_MEMBERS = (
    "settings", "position", "retired", "refresh", "write", "begin_phase", "mark", "delete_expired", "wipe",
    "stored_answer", "unfinished_requests", "journal", "clients", "phases", "tail", "verify", "close",
)  # fmt: skip
HARNESS_MEMBERS = ("create", "open", "crash", "crash_during")


class StoreHarness(Protocol):
    """How the test creates, opens and crashes a store. A harness has one store at a time."""

    def create(self, settings: dict[str, str], opened: OpenedPhase, progress: dict[str, Any], time: int) -> AnswerStore:
        """Create the store, and return a handle."""

    def open(self) -> AnswerStore:
        """Return another handle of the store, as another process would open it."""

    def crash(self) -> None:
        """Lose every open handle, and everything that is not durable."""

    def crash_during(self, store: AnswerStore, work: Callable[[], object], moment: int) -> None:
        """Do the work, which uses the handle, and crash in the middle of it.

        `moment` says when. It is 0 for a crash before the first step that the store takes, 1 before the second, and so
        on. If there are fewer steps, crash when the store has taken all of them but has not returned.
        """


@dataclass
class Model:
    """What a store must hold, in memory and by the plainest means."""

    time: int = START
    phase: int = 1
    asked: int = 0
    answered: int = 0
    closed: bool = False
    labeller: Any = None
    seal: str = FIRST.seal
    log: list[tuple[int, Entry]] = field(default_factory=list)
    phases: dict[int, list[int]] = field(default_factory=lambda: {1: [FIRST.rows, FIRST.answers, 0]})
    clients: dict[str, int] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[StoredAnswer, int]] = field(default_factory=dict)
    journal: list[tuple[str | None, bytes, bytes]] = field(default_factory=list)  # one item for each row

    @property
    def left(self) -> int:
        """How many answers the phase may still count."""
        return self.phases[self.phase][1] - self.asked

    @property
    def retired(self) -> str | None:
        """The final mark at the end of the log."""
        last = self.log[-1][1] if self.log else None
        return last.client if last is not None and last.cost == 0 and last.client in FINAL_MARKS else None

    def refusal(self, batch: Transaction) -> type[NotStored] | None:
        """The error that a transaction must raise, if any."""
        if self.retired is not None:
            return NotStored
        fits = batch.phase == self.phase and batch.after in (None, self.asked) and batch.cost <= self.left
        return None if fits and all(self._may_keep(batch, *one) for one in batch.answers) else Superseded

    def _may_keep(self, batch: Transaction, client: str, key: str, stored: StoredAnswer) -> bool:
        if (client, key) not in self.answers:
            return True
        before, expires = self.answers[client, key]
        if before.rest is None:
            return expires <= max(batch.time, self.time)
        return before.digest == stored.digest and len(before.rest) > len(stored.rest or b"")

    def write(self, batch: Transaction) -> None:
        """What an accepted transaction changes."""
        self.time = max(self.time, batch.time)
        for entry in batch.entries:
            self._append(entry)
        self.asked, self.answered = self.asked + batch.cost, self.answered + batch.cost
        self.phases[self.phase][2] += batch.cost
        self.closed, self.labeller = batch.closed, batch.labeller
        for client, key, stored in batch.answers:
            self.answers[client, key] = stored, self.time + batch.keep
        if batch.journal is not None:
            self.journal += rows_of(batch.journal)

    def begin(self, opened: OpenedPhase, time: int) -> None:
        """What a new phase changes."""
        self.time, self.phase = max(self.time, time), opened.number
        self.asked, self.closed, self.labeller = 0, False, None
        self.phases[opened.number] = [opened.rows, opened.answers, 0]
        self.seal, self.journal = opened.seal, []

    def mark(self, word: str, time: int) -> None:
        """What a mark changes."""
        self.time = max(self.time, time)
        self._append(Entry(word, 0, self.phase, 0))

    def _append(self, entry: Entry) -> None:
        self.log.append((self.time, entry))
        self.clients[entry.client] = self.clients.get(entry.client, 0) + entry.answers

    def compare(self, store: AnswerStore) -> None:
        """Compare everything that a handle shows with what it must show."""
        now = store.refresh()
        counts = {"asked": self.asked, "answered": self.answered, "closed": self.closed, "labeller": self.labeller}
        assert now == store.position
        assert dict(store.settings) == SETTINGS
        assert now.progress == counts
        assert (now.phase, now.seal, now.time) == (self.phase, self.seal, self.time)
        assert now.answers_in_phase == self.phases[self.phase][1]
        assert store.retired == self.retired
        head = first_hash(SETTINGS)
        found = store.tail(len(self.log) + 1)
        assert [(row.time, Entry(row.client, row.answers, row.phase, row.cost)) for row in found] == self.log
        for number, row in enumerate(found, start=1):
            assert (row.number, row.previous) == (number, head), "numbers and hashes must be one chain"
            head = hashlib.sha256(canonical(number, *self.log[number - 1], head)).digest()
            assert row.hash == head
        assert (now.length, now.head) == (len(self.log), head)
        assert store.clients() == self.clients
        assert store.phases(99) == [(number, one[0], one[2]) for number, one in sorted(self.phases.items())]
        assert [row for part in store.journal() for row in rows_of(part)] == self.journal
        open_requests = {(client, key): kept for client, key, kept in store.unfinished_requests()}
        assert open_requests == {name: kept for name, (kept, _) in self.answers.items() if kept.rest is not None}
        for client in CLIENTS:
            for key in KEYS:
                kept, expires = self.answers.get((client, key), (None, 0))
                hidden = kept is None or kept.rest is not None or expires <= self.time
                assert store.stored_answer(client, key, 0) == (None if hidden else kept)


def rows_of(part: JournalPart) -> list[tuple[str | None, bytes, bytes]]:
    """The rows of a part of the journal, one by one: client, row and class index."""
    runs = part.clients
    count = len(part.class_indices)
    names = [None] * count if runs is None else [client for client, many in runs for _ in range(many)]
    size = len(part.rows) // count
    rows = [part.rows[size * one : size * (one + 1)] for one in range(count)]
    return list(zip(names, rows, (bytes([one]) for one in part.class_indices), strict=True))


def check(
    harness: Callable[[], AbstractContextManager[StoreHarness]],
    *,
    examples: int = 50,
    steps: int = 30,
    shrink: bool = True,
) -> None:
    """Test whether a store keeps every promise of `AnswerStore` that can be tested from outside.

    It runs random sequences of transactions, conflicts, phases, marks, deletions and crashes, through up to three
    handles at a time, and compares each step with a model. It raises the error of a failing sequence.

    Parameters
    ----------
    harness : callable
        Returns a context manager that gives a new `StoreHarness`, and removes what it left.
    examples : int, default 50
        The number of sequences.
    steps : int, default 30
        The most steps of a sequence.
    shrink : bool, default True
        Whether to look for a shorter sequence when one fails. This takes time.

    Raises
    ------
    AssertionError
        If a promise is broken, or if the harness or a handle that it returns lacks a member. An exception of the store
        is raised as it is.

    Examples
    --------
    docs/extending/answer-store.md has a harness that runs. `tests/service/test_conformance.py` in the repository has
    that of the SQLite store, and stores that must fail.
    """
    try:
        from hypothesis import HealthCheck, Phase, settings
        from hypothesis.stateful import run_state_machine_as_test
    except ImportError as error:
        raise ImportError("the conformance test of stores needs hypothesis: pip install hypothesis") from error
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
    run_state_machine_as_test(_machine(harness), settings=chosen)


def _check_members(found: object, names: tuple[str, ...], what: str) -> None:
    """Whether an object has all members of a protocol."""
    for name in names:
        if not hasattr(found, name):
            raise AssertionError(f"{what}: {type(found).__name__} lacks {name}")


def _handle(found: AnswerStore, method: str) -> AnswerStore:
    """What a method of the harness returned, if it is a store."""
    _check_members(found, STORE_MEMBERS, f"{method}() must return a store")
    return found


def _machine(harness: Callable[[], AbstractContextManager[StoreHarness]]) -> Any:  # one class
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

    which, ticks = st.integers(0, 2), st.integers(-5, 20)
    questions = st.lists(
        st.tuples(st.sampled_from(CLIENTS), st.sampled_from((None, *KEYS)), st.integers(1, 3), st.integers(0, 2)),
        min_size=1,
        max_size=3,
        unique_by=lambda one: (one[0], one[1]),
    )

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.context = harness()
            self.harness = self.context.__enter__()
            progress = {"asked": 0, "answered": 0, "closed": False, "labeller": None}
            try:
                _check_members(self.harness, HARNESS_MEMBERS, "the harness must be a StoreHarness")
                self.handles = [_handle(self.harness.create(SETTINGS, FIRST, progress, START), "create")]
            except BaseException:
                self.context.__exit__(None, None, None)
                raise
            self.drawn = 0

        def teardown(self) -> None:
            for one in self.handles:
                with suppress(Exception):
                    one.close()
            self.context.__exit__(None, None, None)

        def handle(self, index: int) -> AnswerStore:
            return self.handles[index % len(self.handles)]

        def batch(self, asked: Any, tick: int, *, anonymous: bool, after: int | None, labeller: Any) -> Transaction:
            """Answers to some questions: client, key, rows with an answer, and rows that still have none."""
            model, kept = self.model, []
            entries: dict[str, Entry] = {}
            rows = indices = b""
            runs: list[tuple[str, int]] = []
            for client, key, count, rest in asked:
                left = rest if key is not None else 0
                _, given, _, cost = entries.get(client, (client, 0, model.phase, 0))
                entries[client] = Entry(client, given + (0 if left else count), model.phase, cost + count)
                drawn = [(self.drawn + one) % 256 for one in range(count)]
                self.drawn += count
                rows, indices = rows + b"".join(bytes([one]) * 8 for one in drawn), indices + bytes(drawn)
                runs.append((client, count))
                if key is not None:
                    before = model.answers.get((client, key), (None, 0))[0]
                    digest = before.digest if before is not None and count < 3 else bytes([self.drawn % 256]) * 32
                    answer = StoredAnswer(digest, bytes(drawn) + bytes(left), model.phase, bytes(8 * left) or None)
                    kept.append((client, key, answer))
            journal = None if after is None else JournalPart(None if anonymous else runs, rows, indices)
            return Transaction(
                time=model.time + tick,
                phase=model.phase,
                entries=list(entries.values()),
                after=after,
                labeller=labeller,
                answers=kept,
                keep=10,
                journal=journal,
            )

        def fitting(self, asked: Any) -> Any:
            """As many of the questions as the phase has answers left."""
            found, left = [], self.model.left
            for one in asked:
                if one[2] <= left:
                    found.append(one)
                    left -= one[2]
            return found

        def send(self, store: AnswerStore, batch: Transaction) -> None:
            refused = self.model.refusal(batch)
            if refused is None:
                made = store.write(batch)
                self.model.write(batch)
                assert [Entry(row.client, row.answers, row.phase, row.cost) for row in made] == list(batch.entries)
                assert store.position.length == len(self.model.log)
                return
            try:
                store.write(batch)
            except refused:
                return
            raise AssertionError(f"the store must refuse this transaction with {refused.__name__}")

        @rule(index=which, asked=questions, tick=ticks, anonymous=st.booleans(), journal=st.booleans())
        def write(self, index: int, asked: Any, tick: int, anonymous: bool, journal: bool) -> None:
            after = self.model.asked if journal else None
            batch = self.batch(self.fitting(asked), tick, anonymous=anonymous, after=after, labeller={"n": self.drawn})
            if batch.entries:
                self.send(self.handle(index), batch)

        @rule(index=which, asked=questions, off=st.sampled_from(("phase", "after", "left")))
        def write_what_does_not_fit(self, index: int, asked: Any, off: str) -> None:
            model = self.model
            batch = self.batch(asked, 0, anonymous=True, after=model.asked, labeller=None)
            values = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
            if off == "phase":
                entries = [entry._replace(phase=model.phase + 1) for entry in batch.entries]
                values |= {"phase": model.phase + 1, "entries": entries}
            elif off == "after":
                values["after"] = model.asked + 1
            else:
                values["entries"] = [Entry("ann", 0, model.phase, model.left + 1)]
            self.send(self.handle(index), Transaction(**values))

        @precondition(lambda self: any(kept.rest for kept, _ in self.model.answers.values()))
        @rule(index=which, same=st.booleans(), tick=ticks)
        def finish_a_request(self, index: int, same: bool, tick: int) -> None:
            (client, key), (before, _) = next(
                one for one in sorted(self.model.answers.items()) if one[1][0].rest is not None
            )
            answer = StoredAnswer(before.digest if same else bytes(32), before.class_indices, before.phase)
            now, cost = self.model, len(before.rest or b"") // 8
            entry = Entry(client, len(before.class_indices), now.phase, cost)
            batch = Transaction(
                time=now.time + tick, phase=now.phase, entries=[entry], answers=[(client, key, answer)], keep=10
            )
            self.send(self.handle(index), batch)

        @rule(index=which, answers=st.integers(1, 12), skip=st.sampled_from((1, 1, 1, 0, 2)))
        def begin_phase(self, index: int, answers: int, skip: int) -> None:
            number = self.model.phase + skip
            opened = OpenedPhase(number, answers, answers, "{}", f"seal-{number}")
            if self.model.retired is None and skip == 1:
                self.handle(index).begin_phase(opened, time=self.model.time)
                self.model.begin(opened, self.model.time)
                return
            try:
                self.handle(index).begin_phase(opened, time=self.model.time)
            except NotStored:
                return
            raise AssertionError("the store must refuse a phase that is not the next one, and any after a final mark")

        @rule(index=which, word=st.sampled_from(("noted", "noted", RETIRED, RESTORED)), tick=ticks)
        def mark(self, index: int, word: str, tick: int) -> None:
            now = self.model.time + tick
            self.handle(index).mark(word, time=now)
            self.model.mark(word, now)

        @rule(index=which)
        def delete(self, index: int) -> None:
            self.handle(index).delete_expired(self.model.time)

        @rule(index=which)
        def wipe(self, index: int) -> None:
            with suppress(NotStored):  # it may have to wait for another handle
                self.handle(index).wipe()

        @precondition(lambda self: len(self.handles) < 3)
        @rule()
        def open(self) -> None:
            self.handles.append(_handle(self.harness.open(), "open"))

        @precondition(lambda self: len(self.handles) > 1)
        @rule(index=which)
        def close(self, index: int) -> None:
            one = self.handles.pop(index % len(self.handles))
            one.close()
            one.close()

        @rule()
        def crash(self) -> None:
            self.harness.crash()
            self.handles = [_handle(self.harness.open(), "open")]

        @rule(index=which, asked=questions, moment=st.integers(0, 20))
        def crash_during_a_write(self, index: int, asked: Any, moment: int) -> None:
            store = self.handle(index)
            batch = self.batch(self.fitting(asked), 1, anonymous=False, after=self.model.asked, labeller={"n": 0})
            if not batch.entries or self.model.refusal(batch) is not None:
                return
            self.harness.crash_during(store, lambda: store.write(batch), moment)
            self.handles = [_handle(self.harness.open(), "open")]
            after = copy.deepcopy(self.model)
            after.write(batch)
            if self.handles[0].position.length != len(self.model.log):  # all of it, or nothing
                self.model = after

        @invariant()
        def every_handle_shows_what_it_must(self) -> None:
            for one in self.handles:
                self.model.compare(one)
            found = self.handles[0].verify()
            assert found.length == len(self.model.log)
            assert found.counted == {number: one[2] for number, one in self.model.phases.items()}

    return Machine
