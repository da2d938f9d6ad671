"""A conformance test that every `AnswerStore` must pass: a model of the store, compared with it after each step.

Give `check` a harness that creates, opens and crashes your store. The module is installed with the package. It needs
the package hypothesis, and nothing of the project's own tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from reticent.service.store.conformance_model import CLIENTS, FIRST, KEYS, NAMELESS, SETTINGS, START, Model
from reticent.service.store.later_labels import LabelledTransaction, SlotLabel, TaughtPart
from reticent.service.store.protocol import (
    RESTORED,
    RETIRED,
    AnswerStore,
    Entry,
    JournalPart,
    NotStored,
    OpenedPhase,
    StoredAnswer,
    Transaction,
)

STORE_MEMBERS = (
    "settings", "position", "retired", "refresh", "write", "write_labelled", "withdraw_labelled", "write_labels",
    "begin_phase", "mark", "delete_expired", "wipe", "stored_answer", "unfinished_requests", "journal", "slot_labels",
    "stored_receipt", "labelled_since", "clients", "phases", "tail", "verify", "close",
)  # fmt: skip
OWNER = "whoever asked"
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

    lessons = st.tuples(
        st.sampled_from(CLIENTS), st.sampled_from((None, *KEYS)), st.integers(1, 3), st.sampled_from((0, 0, 0, 1))
    )
    # Who gives a label, or OWNER for whoever asked; the place of the slot, in any range; the label.
    answers_of = st.tuples(st.sampled_from((OWNER, *CLIENTS, NAMELESS)), st.integers(0, 40), st.integers(-1, 2))

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

        def ticket(self, number: int) -> bytes:
            return number.to_bytes(16, "big")

        def batch(
            self, asked: Any, tick: int, *, anonymous: bool, after: int | None, labeller: Any, tickets: bool = False
        ) -> Transaction:
            """Answers to some questions: client, key, rows with an answer, and rows that still have none."""
            model, kept = self.model, []
            entries: dict[str, Entry] = {}
            rows = indices = slots = b""
            runs: list[tuple[str, int]] = []
            for client, key, count, rest in asked:
                left = rest if key is not None else 0
                _, given, _, cost = entries.get(client, (client, 0, model.phase, 0))
                entries[client] = Entry(client, given + (0 if left else count), model.phase, cost + count)
                drawn = [(self.drawn + one) % 256 for one in range(count)]
                given_out = b"".join(self.ticket(self.drawn + one) for one in range(count)) if tickets else b""
                slots, self.drawn = slots + given_out, self.drawn + count
                rows, indices = rows + b"".join(bytes([one]) * 8 for one in drawn), indices + bytes(drawn)
                runs.append((client, count))
                if key is not None:
                    before = model.answers.get((client, key), (None, 0))[0]
                    digest = before.digest if before is not None and count < 3 else bytes([self.drawn % 256]) * 32
                    unasked = bytes(8 * left) or None
                    answer = StoredAnswer(digest, bytes(drawn) + bytes(left), model.phase, unasked, given_out)
                    kept.append((client, key, answer))
            journal = None if after is None else JournalPart(None if anonymous else runs, rows, indices, slots)
            return Transaction(
                time=model.time + tick,
                phase=model.phase,
                entries=list(entries.values()),
                after=after,
                labeller=labeller,
                answers=kept,
                keep=10,
                journal=journal,
                close_slots=len(model.slots) if self.drawn % 5 == 0 else 0,
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

        @rule(index=which, asked=questions, tick=ticks, anonymous=st.booleans(), journal=st.sampled_from((0, 1, 2)))
        def write(self, index: int, asked: Any, tick: int, anonymous: bool, journal: int) -> None:
            batch = self.batch(
                self.fitting(asked),
                tick,
                anonymous=anonymous,
                after=self.model.asked if journal else None,
                labeller={"n": self.drawn},
                tickets=journal == 2,
            )
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

        def lesson(self, sent: Any, tick: int) -> LabelledTransaction:
            """Labelled rows, whose number is right unless they came late."""
            client, key, count, late = sent
            self.drawn += count
            model, row = self.model, bytes([self.drawn % 256]) * 8
            first = max(0, len(model.labelled) - late)
            part = TaughtPart(first, row * count, b"\xff\xff\xff\xff" * count, [(client, count)])
            return LabelledTransaction(
                time=model.time + tick, phase=model.phase, client=client, part=part, count=count, reply=row, key=key,
                digest=row, keep=10,
            )  # fmt: skip

        @rule(index=which, sent=lessons, tick=ticks)
        def write_labelled(self, index: int, sent: Any, tick: int) -> None:
            batch = self.lesson(sent, tick)
            refused = self.model.refuses_labelled(batch)
            if refused is None:
                self.handle(index).write_labelled(batch)
                self.model.write_labelled(batch)
                return
            try:
                self.handle(index).write_labelled(batch)
            except refused:
                return
            raise AssertionError(f"the store must refuse these labelled rows with {refused.__name__}")

        @precondition(lambda self: self.model.retired is None)
        @rule(index=which, client=st.sampled_from(CLIENTS), numbers=st.lists(st.integers(0, 9), max_size=3), tick=ticks)
        def withdraw_labelled(self, index: int, client: str, numbers: list[int], tick: int) -> None:
            model, now = self.model, self.model.time + tick
            found = self.handle(index).withdraw_labelled(client, numbers, phase=model.phase, time=now)
            sent = model.labelled
            own = tuple(one for one in numbers if one < len(sent) and sent[one][1] == client)
            assert set(found) <= set(own), "a client may withdraw its own rows alone"
            assert {one for one in own if one >= model.over} <= set(found), "a row that waits may be withdrawn"
            model.withdraw(found, now)

        def labels(self, given: Any) -> list[SlotLabel]:
            """Labels for slots that may be open, closed, of others, or not there."""
            known = [*self.model.slots, (self.ticket(10**9), CLIENTS[0])]  # the last is nobody's
            found = ((*known[place % len(known)], client, label) for client, place, label in given)
            return [
                SlotLabel(ticket, owner if client == OWNER else client, label) for ticket, owner, client, label in found
            ]

        @precondition(lambda self: self.model.retired is None)
        @rule(index=which, given=st.lists(answers_of, min_size=1, max_size=4))
        def write_labels(self, index: int, given: Any) -> None:
            store, labels = self.handle(index), self.labels(given)
            before = store.refresh()
            assert store.write_labels(labels) == self.model.write_labels(labels)
            assert store.refresh() == before, "labels of queries must not move the position, the time or a hash"

        @rule(
            index=which, answers=st.integers(1, 12), skip=st.sampled_from((1, 1, 1, 0, 2)), carried=st.integers(0, 3),
            over=st.integers(0, 3),
        )  # fmt: skip
        def begin_phase(self, index: int, answers: int, skip: int, carried: int, over: int) -> None:
            number = self.model.phase + skip
            tickets = b"".join(ticket for ticket, _ in self.model.slots[::-1][:carried])
            held = JournalPart([("ann", len(tickets) // 16)], b"", b"", tickets) if tickets else None
            waiting = min(len(self.model.labelled), self.model.over + over)
            opened = OpenedPhase(number, answers, answers, "{}", f"seal-{number}", held, waiting)
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

        @rule(index=which, sent=lessons, moment=st.integers(0, 12))
        def crash_during_labelled_rows(self, index: int, sent: Any, moment: int) -> None:
            store, batch = self.handle(index), self.lesson(sent, 1)
            if self.model.refuses_labelled(batch) is not None:
                return
            self.harness.crash_during(store, lambda: store.write_labelled(batch), moment)
            self.handles = [_handle(self.harness.open(), "open")]
            if self.handles[0].position.labelled != len(self.model.labelled):  # all of them, or none
                self.model.write_labelled(batch)

        @precondition(lambda self: self.model.retired is None)
        @rule(index=which, given=st.lists(answers_of, min_size=1, max_size=4), moment=st.integers(0, 12))
        def crash_during_labels(self, index: int, given: Any, moment: int) -> None:
            store, labels = self.handle(index), self.labels(given)
            self.harness.crash_during(store, lambda: store.write_labels(labels), moment)
            self.handles = [_handle(self.harness.open(), "open")]
            after = copy.deepcopy(self.model)
            after.write_labels(labels)
            if {one.ticket: one.label for one in self.handles[0].slot_labels()} == after.labels:  # all of them, or none
                self.model = after

        @invariant()
        def every_handle_shows_what_it_must(self) -> None:
            for one in self.handles:
                self.model.compare(one)
            found = self.handles[0].verify()
            assert found.length == len(self.model.log)
            assert found.counted == {number: one[2] for number, one in self.model.phases.items()}

    return Machine
