"""The desk: one batch is one draw and one transaction; what is repeated is free; what was counted stays counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shop import MODEL, labels, new_desk, new_home, predictor, request, started

from reticent.errors import BudgetExhausted, EndingWarning
from reticent.learners import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.machine import PhaseMachine
from reticent.service import desk as desk_module
from reticent.service import halting, store
from reticent.service.desk import ANONYMOUS, Answered, Clock, Desk, Halted, KeyReused, Request, digest
from reticent.service.halting import StillHalted
from reticent.service.home import Home
from reticent.service.store import Damaged, Entry, verify
from waiting import wait_until


def reopened(desk: Desk, **options: Any) -> Desk:
    desk.close()
    return Desk(Home(desk.home.folder), elsewhere=False, **options)


def ledger(desk: Desk) -> list[Entry]:
    return [Entry(one.client, one.answers, one.phase, one.cost) for one in desk.tail()]


# ── a batch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_one_draw_and_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = new_desk(tmp_path / "clinic")
    asked: list[int] = []
    real = EverlastingPredictor.answer

    def counted(self: EverlastingPredictor, X: Any, clients: Any = None, **options: Any) -> Any:
        asked.append(len(X))
        return real(self, X, clients, **options)

    monkeypatch.setattr(EverlastingPredictor, "answer", counted)
    statements: list[str] = []
    desk._store._db.set_trace_callback(statements.append)
    batch = [request(3), request(2, client="bob", key="k"), request(1)]
    results = desk.answer(batch)
    assert [len(one) for one in labels(results)] == [3, 2, 1]
    assert {one for some in labels(results) for one in some} <= {"no", "yes"}
    assert asked == [6]
    assert statements.count("COMMIT") == 1
    assert ledger(desk) == [Entry("ann", 4, 1, 4), Entry("bob", 2, 1, 2)]
    assert desk.clients() == {"ann": 4, "bob": 2}
    assert desk.verify().counted == {1: 6}
    desk.close()


def test_answers_are_right(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    X = np.array([[0.1], [0.9]] * 20)
    (found,) = labels(desk.answer([Request("ann", X, None, b"")]))
    assert found == ["yes", "no"] * 20
    desk.close()


def test_what_has_the_wrong_shape_is_refused_alone_and_costs_nothing(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    bad: list[Any] = [np.zeros((1, 2)), np.zeros((0, 1)), np.zeros(3), np.zeros((1, 1), dtype=np.float32), [[1.0]]]
    results = desk.answer([request(1), *(Request("ann", rows, "k", b"") for rows in bad), request(1)])
    assert [type(one) for one in results] == [Answered, *[ValueError] * len(bad), Answered]
    assert desk.status().answered == 2
    desk.close()


def test_what_is_no_number_counts_like_any_other(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    labels(desk.answer([Request("ann", np.array([[np.nan], [np.inf], [-1e300]]), None, b"")]))
    assert (desk.status().answered, desk.status().rows_gathered) == (3, 3)
    again = reopened(desk)
    assert (again.status().answered, again.status().rows_gathered) == (3, 3)
    again.close()


def test_nobody_in_particular_is_not_capped_as_one_client(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", client_share=0.01)
    labels(desk.answer([request(30, client=ANONYMOUS)]))
    assert desk.status().rows_gathered == 30
    labels(desk.answer([request(30, client=ANONYMOUS), request(30, client="ann")]))
    assert desk.status().rows_gathered == 60 + 7  # 1% of a window of 720
    before = desk.status()
    again = reopened(desk)
    assert again.status() == before
    again.close()


def test_too_many_for_what_is_left_is_refused_and_the_rest_is_answered(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", answers=10)
    results = desk.answer([request(8), request(3), request(2), request(1)])
    assert [type(one) for one in results] == [Answered, BudgetExhausted, Answered, BudgetExhausted]
    assert desk.status().answers_left == 0
    again = reopened(desk)
    assert isinstance(again.answer([request(1)])[0], BudgetExhausted)
    assert again.halted is None
    assert verify(again.home.folder / "store.sqlite").counted == {1: 10}
    again.close()


def test_a_request_that_a_last_phase_cuts_short_is_refused_and_what_was_drawn_counts(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", client_share=0.001)  # a row of one client: too few to learn from
    labels(desk.answer([request(790)]))
    results = desk.answer([request(6, key="a"), request(6, key="b"), request(1, key="c")])
    assert [type(one) for one in results] == [Answered, BudgetExhausted, BudgetExhausted]
    assert ledger(desk) == [Entry("ann", 790, 1, 790), Entry("ann", 6, 1, 10)]
    again = reopened(desk)
    assert [type(one) for one in again.answer([request(6, key="a"), request(6, key="b")])] == [
        Answered,
        BudgetExhausted,
    ]
    assert isinstance(again.answer([request(1)])[0], BudgetExhausted)
    assert again.verify().counted == {1: 800}
    assert {one.cost for one in ledger(again)} == {790, 10}, "what got no answer has no row"
    again.close()


# ── repeats ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeat_gets_the_stored_answer_free_of_charge(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    first = desk.answer([request(200, key="k")])[0]
    assert isinstance(first, Answered)
    before = desk.status()
    for _ in range(2):
        (again,) = desk.answer([request(200, key="k")])
        assert again == Answered(first.labels, 1, replayed=True)
        assert desk.status() == before
        desk = reopened(desk)
    desk.close()


def test_a_repeat_is_free_when_nothing_is_left(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", answers=5)
    first = labels(desk.answer([request(5, key="k")]))
    assert labels(desk.answer([request(5, key="k")])) == first
    desk.close()


def test_a_repeat_within_one_batch_is_one_too(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    one, two, three, other = desk.answer(
        [
            request(50, key="k"),
            request(50, key="k"),
            request(50, key="k", body=b"x"),
            request(50, key="k", client="bob"),
        ]
    )
    assert isinstance(one, Answered)
    assert two == Answered(one.labels, 1, replayed=True)
    assert isinstance(three, KeyReused)
    assert isinstance(other, Answered)
    assert not other.replayed
    assert desk.status().answered == 100
    desk.close()


def test_another_body_is_told_to_the_owner_of_the_key_only(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    labels(desk.answer([request(1, key="k", body=b"a")]))
    (mine,) = desk.answer([request(1, key="k", body=b"b")])
    (theirs,) = desk.answer([request(1, key="k", body=b"b", client="bob")])
    assert isinstance(mine, KeyReused)
    assert isinstance(theirs, Answered)
    assert desk.status().answered == 2
    desk.close()


def test_the_same_content_without_a_key_is_asked_anew(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    for many in (1, 2, 3):
        (answer,) = desk.answer([request(4)])
        assert isinstance(answer, Answered)
        assert not answer.replayed
        assert desk.status().answered == 4 * many
    desk.close()


def test_keys_expire_by_the_public_clock(tmp_path: Path) -> None:
    now = [10**13]
    desk = new_desk(tmp_path / "clinic")
    desk = reopened(desk, clock=lambda: now[0], expiry=60)
    start = max(now[0], desk._store.position.time)
    now[0] = start
    labels(desk.answer([request(1, key="k")]))
    now[0] = start + 59_999
    (early,) = desk.answer([request(1, key="k")])
    now[0] = start + 60_000
    (late,) = desk.answer([request(1, key="k", body=b"another")])
    assert [one.replayed for one in (early, late) if isinstance(one, Answered)] == [True, False]
    assert desk.status().answered == 2
    desk.close()


# ── phases ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 37, 300, 5000])
def test_phases_turn_over_and_nothing_is_lost_or_doubled(tmp_path: Path, size: int) -> None:
    desk = new_desk(tmp_path / "clinic")
    if size == 1:
        labels(desk.answer([request(790)]))
    for one in range(max(4, 1600 // size) if size > 1 else 20):
        before = desk.status()
        (answer,) = desk.answer([request(size, key=str(one), seed=one)])
        assert isinstance(answer, Answered)
        assert answer.phase == before.phase
        desk.tidy()
        if desk.status().phase > before.phase:
            after = desk.status()
            desk = reopened(desk)
            assert desk.status() == after
            assert desk.answer([request(size, key=str(one), seed=one)]) == [
                Answered(answer.labels, answer.phase, replayed=True)
            ]
    desk.tidy()
    assert desk.status().phase >= 2
    assert sum(desk.verify().counted.values()) == desk.status().answered
    states = [file.name for file in desk.home.folder.glob("*.state")]
    assert states == [f"phase-{desk.status().phase}.state"]
    desk.close()


def test_rows_of_a_phase_that_is_over_leave_the_disk(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    mark = np.full((50, 1), 0.123456789012345678)
    folder = desk.home.folder

    def there() -> list[str]:
        return sorted(file.name for file in folder.iterdir() if mark.tobytes()[:64] in file.read_bytes())

    labels(desk.answer([Request("ann", mark, None, b"")]))
    assert there() == ["store.sqlite-wal"]
    labels(desk.answer([request(desk.status().answers_left_in_phase - 1)]))
    labels(desk.answer([request(1)]))
    labels(desk.answer([request(1)]))
    assert desk.status().phase == 2
    assert there(), "the negative control: until it is tidied, it is there"
    desk.tidy()
    assert there() == []
    desk.close()


def test_a_phase_learns_in_another_process_while_answers_flow(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", rows=2000, elsewhere=True, held_back=0.4)
    with started(lambda process: os.kill(int(process.pid or 0), signal.SIGSTOP)) as processes:
        labels(desk.answer([request(desk.status().rows_wanted)]))
        assert desk.status().learning
        (process,) = wait_until(lambda: processes)
        for seed in range(100):  # it has not learned yet: it is held
            labels(desk.answer([request(1, seed=seed)]))
        assert process.is_alive()
        assert process.pid != os.getpid()
        os.kill(int(process.pid or 0), signal.SIGCONT)
        labels(desk.answer([request(desk.status().answers_left_in_phase + 5)]))
    assert (desk.status().phase, desk.halted) == (2, None)
    assert len(processes) == 1
    assert sum(desk.verify().counted.values()) == desk.status().answered
    assert list(desk.home.folder.glob("next-*")) == []
    desk.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])  # a supervisor may signal all processes of a service
def test_a_learning_process_that_is_killed_is_started_once_more(tmp_path: Path, how: signal.Signals) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)
    killed: list[SpawnProcess] = []

    def kill_the_first(process: SpawnProcess) -> None:
        if not killed:
            killed.append(process)
            assert process.pid is not None
            os.kill(process.pid, how)

    with started(kill_the_first) as processes:
        labels(desk.answer([request(desk.status().rows_wanted)]))
        labels(desk.answer([request(desk.status().answers_left_in_phase)]))
        desk.tidy()
    assert [process.exitcode for process in processes] == [-how, 0]
    assert (desk.status().phase, desk.halted) == (2, None)
    desk.close()


def test_closed_while_it_learns_it_learns_again(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)
    labels(desk.answer([request(desk.status().rows_wanted)]))
    before = desk.status()
    desk.close()
    assert list(desk.home.folder.glob("next-*")) == []
    again = Desk(Home(desk.home.folder))
    assert again.status() == before
    labels(again.answer([request(before.answers_left_in_phase)]))
    again.tidy()
    assert again.status().phase == 2
    again.close()


@pytest.mark.parametrize("options", [{"labeller": "two-coin"}, {"labeller": "gaussian"}, {"held_back": 0}])
def test_other_labellers_resume_too(tmp_path: Path, options: dict[str, Any]) -> None:
    desk = new_desk(tmp_path / "clinic", rows=1000, **options)
    for one in range(12):
        labels(desk.answer([request(250, seed=one)]))
        before, clock = desk.status(), desk._predictor.clock()
        desk = reopened(desk)
        assert (desk.status(), desk._predictor.clock()) == (before, clock)
    assert desk.status().phase > 1
    desk.verify()
    desk.close()


@pytest.mark.parametrize("parts", [4, 1024])
def test_clients_that_are_protected_stay_together_over_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(store, "PARTS", parts)  # the journal is read in larger parts than it was written
    X = np.random.default_rng(0).random((400, 1))
    grouped = EverlastingPredictor(epsilon=30, delta=1e-5, classes=(0, 1), client_share=0.1, rows_per_teacher=4)
    grouped.fit(X, (X[:, 0] < 0.5).astype(np.int64), groups=np.arange(400))
    desk = Desk(Home.create(tmp_path / "clinic", grouped, MODEL), elsewhere=False)
    assert desk.status().guarantee.unit == "group"
    for one in range(20):
        labels(desk.answer([request(9, client=f"c{(one + many) % 13}", seed=one) for many in range(3)]))
        if one % 6 == 5:
            before, taken = desk.status(), desk._predictor._machine.admission.state()
            desk = reopened(desk)
            assert (desk.status(), desk._predictor._machine.admission.state()) == (before, taken)
    desk.close()


def test_a_chain_of_private_models_can_be_served(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(3000, 2))
    learner = PrivateLogisticRegression(epsilon=4, delta=1e-5, row_norm=4, classes=[0, 1])
    chain = EverlastingPredictor(learner, epsilon=4, delta=1e-5, classes=(0, 1), client_share=1)
    chain.fit(X, (X[:, 0] > 0).astype(np.int64))
    desk = Desk(Home.create(tmp_path / "clinic", chain, MODEL))
    rng = np.random.default_rng(1)
    for _ in range(7):
        labels(desk.answer([Request("ann", rng.normal(size=(1000, 2)), None, b"")]))
        before = desk.status()
        desk.close()
        desk = Desk(Home(desk.home.folder))
        assert desk.status() == before
    assert desk.status().phase == 2
    desk.close()


# ── when something goes wrong ─────────────────────────────────────────────────────────────────────────────────────


def test_why_a_desk_halted_names_no_place(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    desk._halt(OSError(28, "No space left on device", str(tmp_path / "secret")))
    assert desk.status().halted == "nothing is answered until the service is started again (No space left on device)"
    desk.close()


def test_an_answer_that_could_not_be_stored_does_not_leave_and_nothing_more_is_answered(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    labels(desk.answer([request(3, key="a")]))
    desk._store._db.execute("PRAGMA query_only = ON")
    # What was stored before can still be given out with it: it is durable.
    assert [type(one) for one in desk.answer([request(1, key="b"), request(3, key="a")])] == [Halted, Answered]
    desk_halted = desk.halted
    assert desk_halted is not None
    assert desk.status().halted == desk_halted
    assert isinstance(desk.answer([request(1, key="a")])[0], Halted)
    again = reopened(desk)
    assert again.status().answered == 3
    assert [
        one.replayed for one in again.answer([request(1, key="b"), request(3, key="a")]) if isinstance(one, Answered)
    ] == [False, True]
    again.close()


def test_what_is_not_float_cannot_be_served(tmp_path: Path) -> None:
    X = np.arange(4000).reshape(-1, 1) % 1000
    from reticent.concepts import Thresholds

    whole = EverlastingPredictor(Thresholds(bits=10), epsilon=8, delta=1e-5, classes=(0, 1))
    whole.fit(X, (X[:, 0] < 500).astype(np.int64))
    with pytest.raises(TypeError, match="float64"):
        Desk(Home.create(tmp_path / "clinic", whole, MODEL))


def test_status_tells_public_numbers_only(tmp_path: Path) -> None:
    """Two desks asked as often by the same clients tell the same, whatever was asked and answered."""
    seen = []
    for which, rows in enumerate((np.zeros((40, 1)), np.random.default_rng(3).random((40, 1)))):
        desk = Desk(Home.create(tmp_path / str(which), predictor(), MODEL, now=0), elsewhere=False, clock=lambda: 5)
        labels(desk.answer([Request("ann", rows, "k", digest(b""))]))
        told = desk.status().__dict__ | {"ledger_head": None}  # starts from a random number
        seen.append((told, desk.clients(), [(one.number, one.time, one.cost) for one in desk.tail()]))
        desk.close()
    assert seen[0] == seen[1]


def test_the_room_on_disk_does_not_tell_what_was_drawn(tmp_path: Path) -> None:
    def sizes(codes: Sequence[str]) -> tuple[int, ...]:
        desk = Desk(Home.create(tmp_path / codes[0], predictor(), MODEL, now=0), elsewhere=False, clock=lambda: 5)
        table = np.array([[0.01 if one == "yes" else 0.99] for one in codes])
        labels(desk.answer([Request("ann", table, "k", digest(b""))]))
        db = desk._store._db
        lengths = db.execute("SELECT length(codes) FROM answers UNION ALL SELECT length(codes) FROM journal UNION ALL "
                             "SELECT length(clock) FROM position").fetchall()  # fmt: skip
        desk.close()
        return tuple(one for (one,) in lengths)

    assert sizes(["yes"] * 50) == sizes(["no"] * 50) == (50, 50, store.SECRET)


def test_a_clock_that_is_set_does_not_move_ours() -> None:
    wall, steady = [1000.0], [5.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1_000_000
    wall[0], steady[0] = 9e9, 5.5
    assert clock() == 1_000_500
    wall[0] = 0.0
    assert clock() == 1_000_500


def test_a_store_that_lost_its_journal_is_refused(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    labels(desk.answer([request(3)]))
    desk._store._db.execute("DELETE FROM journal")
    desk.close()
    with pytest.raises(Damaged, match="journal"):
        Desk(Home(tmp_path / "clinic"))


# ── the end of a phase ────────────────────────────────────────────────────────────────────────────────────────────


def full(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


def close_early(desk: Desk) -> int:
    """Ask about split votes until the phase has closed by itself; how many answers it gave."""
    while desk.halted is None and desk.status().answers_left_in_phase:
        rows = np.random.default_rng(desk.status().answered).uniform(0.49, 0.51, (5, 1))
        desk.answer([Request(ANONYMOUS, rows, None, b"")])
    return desk.status().answered


def two_coin(folder: Path) -> Desk:
    with pytest.warns(EndingWarning):
        return new_desk(folder, rows=3000, labeller="two-coin", epsilon=1, delta=1e-4, most_noise=50.0)


def test_a_phase_that_closed_is_closed_after_a_restart_though_the_next_could_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Votes have a part in when it closes: were it open again, the closing would be drawn once more for each start."""
    desk = two_coin(tmp_path / "clinic")
    monkeypatch.setattr(EverlastingPredictor, "turn_over", full)
    answered = close_early(desk)
    assert desk.status().answers_left_in_phase == 0
    assert answered < desk.status().answers_in_phase
    assert desk._predictor._machine.closed
    desk.tidy()
    assert desk.halted is not None, "it could not begin the next phase"
    for _ in range(3):
        desk = reopened(desk)
        assert (desk.status().answered, desk.status().answers_left_in_phase) == (answered, 0)
        assert isinstance(desk.answer([request(1)])[0], Halted)
    monkeypatch.undo()
    desk = reopened(desk)
    (found,) = desk.answer([request(1)])
    assert isinstance(found, BudgetExhausted), "so few rows make no phase, and this one stays closed"
    assert desk.halted is None
    assert desk.verify().counted == {1: answered}
    desk.close()


def test_twin_that_turns_over_before_it_stores_draws_its_closing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""

    def answer(self: EverlastingPredictor, X: Any, clients: Any = None, *, one_phase: bool = False) -> Any:
        given = real(self, X, clients)  # goes on to the next phase by itself
        if isinstance(given.refused, OSError):  # and nothing of the call is stored where it cannot
            raise given.refused
        return given

    real = EverlastingPredictor.answer
    desk = two_coin(tmp_path / "clinic")
    monkeypatch.setattr(EverlastingPredictor, "answer", answer)
    monkeypatch.setattr(PhaseMachine, "turn_over", full)
    close_early(desk)
    assert desk.halted is not None
    desk = reopened(desk)
    assert desk.status().answers_left_in_phase > 0, "it is open again"
    desk.close()


def test_a_request_may_go_on_through_several_phases_each_learned_from_the_one_before(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)
    given: list[tuple[int, str]] = []
    real = desk._learning.learn

    def learn(phase: Any, rows: Any) -> Any:
        given.append((phase.number, desk.home.state.name))
        return real(phase, rows)

    desk._predictor.learn_elsewhere(learn)
    sizes = [5, 9000, 5]
    results = desk.answer([request(size, key=str(size), client=f"c{place}") for place, size in enumerate(sizes)])
    assert [len(one) for one in labels(results)] == sizes
    phase = desk.status().phase
    assert phase > 3
    assert given[: phase - 1] == [(one + 1, f"phase-{one}.state") for one in range(1, phase)]
    assert desk.clients() == {"c0": 5, "c1": 9000, "c2": 5}
    counted = desk.verify().counted
    assert (len(counted), sum(counted.values())) == (phase, 9010)
    again = reopened(desk)
    repeated = again.answer([request(9000, key="9000", client="c1")])[0]
    assert isinstance(repeated, Answered)
    assert (repeated.labels, repeated.replayed) == (labels(results)[1], True)
    again.close()


def test_what_was_stored_is_given_out_though_the_next_phase_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = new_desk(tmp_path / "clinic")
    monkeypatch.setattr(desk_module, "save_phase", full)
    left = desk.status().answers_left_in_phase
    results = desk.answer([request(left - 1), request(5), request(1)])
    assert [type(one) for one in results] == [Answered, Halted, Halted]
    assert ledger(desk) == [Entry("ann", left - 1, 1, left)]
    monkeypatch.undo()
    again = reopened(desk)
    (found,) = again.answer([request(1)])
    assert isinstance(found, Answered)
    assert found.phase == 2
    again.close()


@pytest.mark.parametrize("rubbish", [True, False])
def test_learning_that_fails_halts_and_is_not_taken_for_too_few_rows(tmp_path: Path, *, rubbish: bool) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)

    def learned(phase: Any, paths: dict[str, Path]) -> bool:
        if not rubbish:
            raise ValueError("mmap length is greater than file size")
        paths["learned"].write_bytes(b"x" * 1000)
        return True

    desk._learning.run = learned  # type: ignore[method-assign]
    labels(desk.answer([request(desk.status().answers_left_in_phase)]))
    assert isinstance(desk.answer([request(1)])[0], Halted)
    with pytest.raises(StillHalted):
        reopened(desk)
    (desk.home.folder / halting.FILE).unlink()
    again = reopened(desk)
    labels(again.answer([request(1)]))
    assert again.status().phase == 2
    again.close()


def test_a_disk_that_fails_once_while_a_phase_learns_does_not_end_it(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)
    real, tries = desk._learning.learn, []

    def learn(phase: Any, rows: Any) -> Any:
        tries.append(phase.number)
        return full() if len(tries) == 1 else real(phase, rows)

    desk._predictor.learn_elsewhere(learn)
    labels(desk.answer([request(desk.status().answers_left_in_phase)]))
    desk.tidy()
    assert (desk.status().phase, desk.halted, tries) == (2, None, [2, 2])
    desk.close()


def test_interrupted_it_waits_no_longer_for_what_is_learned(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic", elsewhere=True)
    desk.interrupt()
    labels(desk.answer([request(desk.status().answers_left_in_phase)]))
    desk.tidy()
    assert desk.halted is not None
    again = reopened(desk)
    again.tidy()
    assert again.status().phase == 2
    again.close()


def test_closing_twice_closes_nobody_elses_file(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    desk._halt(OSError(28, "No space left on device"))
    others = [os.open(tmp_path / str(one), os.O_CREAT | os.O_RDWR) for one in range(8)]
    desk.close()
    desk.close()
    for one in others:
        os.close(one)  # raises if someone else has


def test_what_is_kept_of_a_repeat_tells_neither_key_nor_body(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    body = b'{"age": 47}'
    labels(desk.answer([request(1, key="a7-key", body=body)]))
    rows = desk._store._db.execute("SELECT key, digest FROM answers").fetchall()
    assert len(rows) == 1
    assert "a7-key" not in rows[0][0]
    assert rows[0][1] != digest(body), "whoever reads the disk could try out bodies"
    desk.close()


def test_expired_answers_do_not_pile_up(tmp_path: Path) -> None:
    now = [10**13]
    desk = Desk(new_home(tmp_path / "clinic"), elsewhere=False, expiry=1, clock=lambda: now[0])

    def kept() -> int:
        return int(desk._store._db.execute("SELECT COUNT(*) FROM answers").fetchone()[0])

    for one in range(3):
        labels(desk.answer([request(1, key=f"{one}-{place}") for place in range(200)]))
        now[0] += 2000
    assert kept() == 200
    desk.close()
    desk = Desk(Home(desk.home.folder), elsewhere=False, clock=lambda: now[0])
    assert kept() == 0
    desk.close()
