"""The answering service: one batch is one draw and one transaction, repeats are free, and counts are never lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shop import MODEL, labels, learning_in_forks, new_answering, new_home, predictor, request, started

from reticent.errors import BudgetExhausted, EndingWarning
from reticent.learners import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.machine import PhaseMachine
from reticent.service import answering as answering_module
from reticent.service import halting
from reticent.service.answering import AnsweringService
from reticent.service.clock import Clock
from reticent.service.halting import StillHalted
from reticent.service.home import Home
from reticent.service.keys import ANONYMOUS
from reticent.service.requests import Answered, Halted, KeyReused, Request, digest
from reticent.service.store import journal as store_journal
from reticent.service.store import schema
from reticent.service.store.protocol import Damaged, Entry
from reticent.service.store.verification import verify
from waiting import wait_until

forks = pytest.fixture(learning_in_forks)


def reopened(answering: AnsweringService, **options: Any) -> AnsweringService:
    answering.close()
    return AnsweringService(Home(answering.home.folder), elsewhere=False, **options)


def log_of(answering: AnsweringService) -> list[Entry]:
    return [Entry(one.client, one.answers, one.phase, one.cost) for one in answering.tail()]


# ── a batch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_one_draw_and_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = new_answering(tmp_path / "clinic")
    asked: list[int] = []
    real = EverlastingPredictor.answer

    def counted(self: EverlastingPredictor, X: Any, clients: Any = None, **options: Any) -> Any:
        asked.append(len(X))
        return real(self, X, clients, **options)

    monkeypatch.setattr(EverlastingPredictor, "answer", counted)
    statements: list[str] = []
    answering.home.store._db.set_trace_callback(statements.append)
    batch = [request(3), request(2, client="bob", key="k"), request(1)]
    results = answering.answer(batch)
    assert [len(one) for one in labels(results)] == [3, 2, 1]
    assert {one for some in labels(results) for one in some} <= {"no", "yes"}
    assert asked == [6]
    assert statements.count("COMMIT") == 1
    assert log_of(answering) == [Entry("ann", 4, 1, 4), Entry("bob", 2, 1, 2)]
    assert answering.clients() == {"ann": 4, "bob": 2}
    assert answering.verify().counted == {1: 6}
    answering.close()


def test_answers_are_right(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    X = np.array([[0.1], [0.9]] * 20)
    (found,) = labels(answering.answer([Request("ann", X, None, b"")]))
    assert found == ["yes", "no"] * 20
    answering.close()


def test_what_has_the_wrong_shape_is_refused_alone_and_costs_nothing(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    bad: list[Any] = [np.zeros((1, 2)), np.zeros((0, 1)), np.zeros(3), np.zeros((1, 1), dtype=np.float32), [[1.0]]]
    results = answering.answer([request(1), *(Request("ann", rows, "k", b"") for rows in bad), request(1)])
    assert [type(one) for one in results] == [Answered, *[ValueError] * len(bad), Answered]
    assert answering.status().answered == 2
    answering.close()


def test_what_is_no_number_counts_like_any_other(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([Request("ann", np.array([[np.nan], [np.inf], [-1e300]]), None, b"")]))
    assert (answering.status().answered, answering.status().rows_gathered) == (3, 3)
    again = reopened(answering)
    assert (again.status().answered, again.status().rows_gathered) == (3, 3)
    again.close()


def test_nobody_in_particular_is_not_capped_as_one_client(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", client_share=0.01)
    labels(answering.answer([request(30, client=ANONYMOUS)]))
    assert answering.status().rows_gathered == 30
    labels(answering.answer([request(30, client=ANONYMOUS), request(30, client="ann")]))
    assert answering.status().rows_gathered == 60 + 7  # 1% of a window of 720
    before = answering.status()
    again = reopened(answering)
    assert again.status() == before
    again.close()


def test_too_many_for_what_is_left_is_refused_and_the_rest_is_answered(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", answers=10)
    results = answering.answer([request(8), request(3), request(2), request(1)])
    assert [type(one) for one in results] == [Answered, BudgetExhausted, Answered, BudgetExhausted]
    assert answering.status().answers_left == 0
    again = reopened(answering)
    assert isinstance(again.answer([request(1)])[0], BudgetExhausted)
    assert again.halted is None
    assert verify(again.home.folder / "store.sqlite").counted == {1: 10}
    again.close()


def test_a_request_that_a_last_phase_cuts_short_is_refused_and_what_was_drawn_counts(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", client_share=0.001)  # a row of one client: too few to learn from
    labels(answering.answer([request(790)]))
    results = answering.answer([request(6, key="a"), request(6, key="b"), request(1, key="c")])
    assert [type(one) for one in results] == [Answered, BudgetExhausted, BudgetExhausted]
    assert log_of(answering) == [Entry("ann", 790, 1, 790), Entry("ann", 6, 1, 10)]
    again = reopened(answering)
    assert [type(one) for one in again.answer([request(6, key="a"), request(6, key="b")])] == [
        Answered,
        BudgetExhausted,
    ]
    assert isinstance(again.answer([request(1)])[0], BudgetExhausted)
    assert again.verify().counted == {1: 800}
    assert {one.cost for one in log_of(again)} == {790, 10}, "what got no answer has no row"
    again.close()


# ── repeats ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeat_gets_the_stored_answer_free_of_charge(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    first = answering.answer([request(200, key="k")])[0]
    assert isinstance(first, Answered)
    before = answering.status()
    for _ in range(2):
        (again,) = answering.answer([request(200, key="k")])
        assert again == Answered(first.labels, 1, replayed=True)
        assert answering.status() == before
        answering = reopened(answering)
    answering.close()


def test_a_repeat_is_free_when_nothing_is_left(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", answers=5)
    first = labels(answering.answer([request(5, key="k")]))
    assert labels(answering.answer([request(5, key="k")])) == first
    answering.close()


def test_a_repeat_within_one_batch_is_one_too(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    one, two, three, other = answering.answer(
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
    assert answering.status().answered == 100
    answering.close()


def test_another_body_is_told_to_the_owner_of_the_key_only(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(1, key="k", body=b"a")]))
    (mine,) = answering.answer([request(1, key="k", body=b"b")])
    (theirs,) = answering.answer([request(1, key="k", body=b"b", client="bob")])
    assert isinstance(mine, KeyReused)
    assert isinstance(theirs, Answered)
    assert answering.status().answered == 2
    answering.close()


def test_the_same_content_without_a_key_is_asked_anew(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    for many in (1, 2, 3):
        (answer,) = answering.answer([request(4)])
        assert isinstance(answer, Answered)
        assert not answer.replayed
        assert answering.status().answered == 4 * many
    answering.close()


def test_keys_expire_by_the_public_clock(tmp_path: Path) -> None:
    now = [10**13]
    answering = new_answering(tmp_path / "clinic")
    answering = reopened(answering, clock=lambda: now[0], expiry=60)
    start = max(now[0], answering._store.position.time)
    now[0] = start
    labels(answering.answer([request(1, key="k")]))
    now[0] = start + 59_999
    (early,) = answering.answer([request(1, key="k")])
    now[0] = start + 60_000
    (late,) = answering.answer([request(1, key="k", body=b"another")])
    assert [one.replayed for one in (early, late) if isinstance(one, Answered)] == [True, False]
    assert answering.status().answered == 2
    answering.close()


# ── phases ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 37, 300, 5000])
def test_phases_turn_over_and_nothing_is_lost_or_doubled(tmp_path: Path, size: int) -> None:
    answering = new_answering(tmp_path / "clinic")
    if size == 1:
        labels(answering.answer([request(790)]))
    for one in range(max(4, 1600 // size) if size > 1 else 20):
        before = answering.status()
        (answer,) = answering.answer([request(size, key=str(one), seed=one)])
        assert isinstance(answer, Answered)
        assert answer.phase == before.phase
        answering.maintain()
        if answering.status().phase > before.phase:
            after = answering.status()
            answering = reopened(answering)
            assert answering.status() == after
            assert answering.answer([request(size, key=str(one), seed=one)]) == [
                Answered(answer.labels, answer.phase, replayed=True)
            ]
    answering.maintain()
    assert answering.status().phase >= 2
    assert sum(answering.verify().counted.values()) == answering.status().answered
    states = [file.name for file in answering.home.folder.glob("*.state")]
    assert states == [f"phase-{answering.status().phase}.state"]
    answering.close()


def test_rows_of_a_phase_that_is_over_leave_the_disk(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    mark = np.full((50, 1), 0.123456789012345678)
    folder = answering.home.folder

    def there() -> list[str]:
        return sorted(file.name for file in folder.iterdir() if mark.tobytes()[:64] in file.read_bytes())

    labels(answering.answer([Request("ann", mark, None, b"")]))
    assert there() == ["store.sqlite-wal"]
    labels(answering.answer([request(answering.status().answers_left_in_phase - 1)]))
    labels(answering.answer([request(1)]))
    labels(answering.answer([request(1)]))
    assert answering.status().phase == 2
    assert there(), "the negative control: until it is tidied, it is there"
    answering.maintain()
    assert there() == []
    answering.close()


@pytest.mark.slow
def test_a_phase_learns_in_another_process_while_answers_flow(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", rows=2000, elsewhere=True, held_back=0.4)
    with started(lambda process: os.kill(int(process.pid or 0), signal.SIGSTOP)) as processes:
        labels(answering.answer([request(answering.status().rows_wanted)]))
        assert answering.status().learning
        (process,) = wait_until(lambda: processes)
        for seed in range(100):  # it has not learned yet: it is held
            labels(answering.answer([request(1, seed=seed)]))
        assert process.is_alive()
        assert process.pid != os.getpid()
        os.kill(int(process.pid or 0), signal.SIGCONT)
        labels(answering.answer([request(answering.status().answers_left_in_phase + 5)]))
    assert (answering.status().phase, answering.halted) == (2, None)
    assert len(processes) == 1
    assert sum(answering.verify().counted.values()) == answering.status().answered
    assert list(answering.home.folder.glob("next-*")) == []
    answering.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])  # a supervisor may signal all processes of a service
def test_a_learning_process_that_is_killed_is_started_once_more(tmp_path: Path, how: signal.Signals) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=True)
    killed: list[SpawnProcess] = []

    def kill_the_first(process: SpawnProcess) -> None:
        if not killed:
            killed.append(process)
            assert process.pid is not None
            os.kill(process.pid, how)

    with started(kill_the_first) as processes:
        labels(answering.answer([request(answering.status().rows_wanted)]))
        labels(answering.answer([request(answering.status().answers_left_in_phase)]))
        answering.maintain()
    assert [process.exitcode for process in processes] == [-how, 0]
    assert (answering.status().phase, answering.halted) == (2, None)
    answering.close()


@pytest.mark.slow
def test_closed_while_it_learns_it_learns_again(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=True)
    labels(answering.answer([request(answering.status().rows_wanted)]))
    before = answering.status()
    answering.close()
    assert list(answering.home.folder.glob("next-*")) == []
    again = AnsweringService(Home(answering.home.folder))
    assert again.status() == before
    labels(again.answer([request(before.answers_left_in_phase)]))
    again.maintain()
    assert again.status().phase == 2
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"labeller": "two-coin"}, {"labeller": "gaussian"}, {"held_back": 0}])
def test_other_labellers_resume_too(tmp_path: Path, options: dict[str, Any]) -> None:
    answering = new_answering(tmp_path / "clinic", rows=1000, **options)
    for one in range(12):
        labels(answering.answer([request(250, seed=one)]))
        before, clock = answering.status(), answering._predictor.clock()
        answering = reopened(answering)
        assert (answering.status(), answering._predictor.clock()) == (before, clock)
    assert answering.status().phase > 1
    answering.verify()
    answering.close()


@pytest.mark.parametrize("parts", [4, 1024])
def test_clients_that_are_protected_stay_together_over_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(store_journal, "PARTS", parts)  # the journal is read in larger parts than it was written
    X = np.random.default_rng(0).random((400, 1))
    grouped = EverlastingPredictor(epsilon=30, delta=1e-5, classes=(0, 1), client_share=0.1, rows_per_teacher=4)
    grouped.fit(X, (X[:, 0] < 0.5).astype(np.int64), groups=np.arange(400))
    answering = AnsweringService(Home.create(tmp_path / "clinic", grouped, MODEL), elsewhere=False)
    assert answering.status().guarantee.unit == "group"
    for one in range(20):
        labels(answering.answer([request(9, client=f"c{(one + many) % 13}", seed=one) for many in range(3)]))
        if one % 6 == 5:
            before, taken = answering.status(), answering._predictor._machine.admission.state()
            answering = reopened(answering)
            assert (answering.status(), answering._predictor._machine.admission.state()) == (before, taken)
    answering.close()


@pytest.mark.slow
def test_a_chain_of_private_models_can_be_served(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(3000, 2))
    learner = PrivateLogisticRegression(epsilon=4, delta=1e-5, row_norm=4, classes=[0, 1])
    chain = EverlastingPredictor(learner, epsilon=4, delta=1e-5, classes=(0, 1), client_share=1)
    chain.fit(X, (X[:, 0] > 0).astype(np.int64))
    answering = AnsweringService(Home.create(tmp_path / "clinic", chain, MODEL))
    rng = np.random.default_rng(1)
    for _ in range(7):
        labels(answering.answer([Request("ann", rng.normal(size=(1000, 2)), None, b"")]))
        before = answering.status()
        answering.close()
        answering = AnsweringService(Home(answering.home.folder))
        assert answering.status() == before
    assert answering.status().phase == 2
    answering.close()


# ── when something goes wrong ─────────────────────────────────────────────────────────────────────────────────────


def test_why_a_answering_halted_names_no_place(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    answering._halt(OSError(28, "No space left on device", str(tmp_path / "secret")))
    assert (
        answering.status().halted == "nothing is answered until the service is started again (No space left on device)"
    )
    answering.close()


def test_an_answer_that_could_not_be_stored_does_not_leave_and_nothing_more_is_answered(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(3, key="a")]))
    answering.home.store._db.execute("PRAGMA query_only = ON")
    # What was stored before can still be given out with it: it is durable.
    assert [type(one) for one in answering.answer([request(1, key="b"), request(3, key="a")])] == [Halted, Answered]
    answering_halted = answering.halted
    assert answering_halted is not None
    assert answering.status().halted == answering_halted
    assert isinstance(answering.answer([request(1, key="a")])[0], Halted)
    again = reopened(answering)
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
        AnsweringService(Home.create(tmp_path / "clinic", whole, MODEL))


def test_status_tells_public_numbers_only(tmp_path: Path) -> None:
    """Two services asked equally often by the same clients show the same, whatever was asked and answered."""
    seen = []
    for which, rows in enumerate((np.zeros((40, 1)), np.random.default_rng(3).random((40, 1)))):
        answering = AnsweringService(
            Home.create(tmp_path / str(which), predictor(), MODEL, now=0), elsewhere=False, clock=lambda: 5
        )
        labels(answering.answer([Request("ann", rows, "k", digest(b""))]))
        told = answering.status().__dict__ | {"ledger_head": None}  # starts from a random number
        seen.append((told, answering.clients(), [(one.number, one.time, one.cost) for one in answering.tail()]))
        answering.close()
    assert seen[0] == seen[1]


def test_the_room_on_disk_does_not_tell_what_was_drawn(tmp_path: Path) -> None:
    def sizes(codes: Sequence[str]) -> tuple[int, ...]:
        answering = AnsweringService(
            Home.create(tmp_path / codes[0], predictor(), MODEL, now=0), elsewhere=False, clock=lambda: 5
        )
        table = np.array([[0.01 if one == "yes" else 0.99] for one in codes])
        labels(answering.answer([Request("ann", table, "k", digest(b""))]))
        db = answering.home.store._db
        lengths = db.execute("SELECT length(codes) FROM answers UNION ALL SELECT length(codes) FROM journal UNION ALL "
                             "SELECT length(clock) FROM position").fetchall()  # fmt: skip
        answering.close()
        return tuple(one for (one,) in lengths)

    assert sizes(["yes"] * 50) == sizes(["no"] * 50) == (50, 50, schema.SECRET)


def test_a_clock_that_is_set_does_not_move_ours() -> None:
    wall, steady = [1000.0], [5.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1_000_000
    wall[0], steady[0] = 9e9, 5.5
    assert clock() == 1_000_500
    wall[0] = 0.0
    assert clock() == 1_000_500


def test_a_store_that_lost_its_journal_is_refused(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(3)]))
    answering.home.store._db.execute("DELETE FROM journal")
    answering.close()
    with pytest.raises(Damaged, match="journal"):
        AnsweringService(Home(tmp_path / "clinic"))


# ── the end of a phase ────────────────────────────────────────────────────────────────────────────────────────────


def full(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


def close_early(answering: AnsweringService) -> int:
    """Ask about split votes until the phase has closed by itself; how many answers it gave."""
    while answering.halted is None and answering.status().answers_left_in_phase:
        rows = np.random.default_rng(answering.status().answered).uniform(0.49, 0.51, (5, 1))
        answering.answer([Request(ANONYMOUS, rows, None, b"")])
    return answering.status().answered


def two_coin(folder: Path) -> AnsweringService:
    with pytest.warns(EndingWarning):
        return new_answering(folder, rows=3000, labeller="two-coin", epsilon=1, delta=1e-4, most_noise=50.0)


def test_a_phase_that_closed_is_closed_after_a_restart_though_the_next_could_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Votes have a part in when it closes: were it open again, the closing would be drawn once more for each start."""
    answering = two_coin(tmp_path / "clinic")
    monkeypatch.setattr(EverlastingPredictor, "turn_over", full)
    answered = close_early(answering)
    assert answering.status().answers_left_in_phase == 0
    assert answered < answering.status().answers_in_phase
    assert answering._predictor._machine.closed
    answering.maintain()
    assert answering.halted is not None, "it could not begin the next phase"
    for _ in range(3):
        answering = reopened(answering)
        assert (answering.status().answered, answering.status().answers_left_in_phase) == (answered, 0)
        assert isinstance(answering.answer([request(1)])[0], Halted)
    monkeypatch.undo()
    answering = reopened(answering)
    (found,) = answering.answer([request(1)])
    assert isinstance(found, BudgetExhausted), "so few rows make no phase, and this one stays closed"
    assert answering.halted is None
    assert answering.verify().counted == {1: answered}
    answering.close()


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
    answering = two_coin(tmp_path / "clinic")
    monkeypatch.setattr(EverlastingPredictor, "answer", answer)
    monkeypatch.setattr(PhaseMachine, "turn_over", full)
    close_early(answering)
    assert answering.halted is not None
    answering = reopened(answering)
    assert answering.status().answers_left_in_phase > 0, "it is open again"
    answering.close()


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_request_may_go_on_through_several_phases_each_learned_from_the_one_before(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=True)
    given: list[tuple[int, str]] = []
    real = answering._learning.learn

    def learn(phase: Any, rows: Any) -> Any:
        given.append((phase.number, answering.home.state.name))
        return real(phase, rows)

    answering._predictor.learn_elsewhere(learn)
    sizes = [5, 9000, 5]
    results = answering.answer([request(size, key=str(size), client=f"c{place}") for place, size in enumerate(sizes)])
    assert [len(one) for one in labels(results)] == sizes
    phase = answering.status().phase
    assert phase > 3
    assert given[: phase - 1] == [(one + 1, f"phase-{one}.state") for one in range(1, phase)]
    assert answering.clients() == {"c0": 5, "c1": 9000, "c2": 5}
    counted = answering.verify().counted
    assert (len(counted), sum(counted.values())) == (phase, 9010)
    again = reopened(answering)
    repeated = again.answer([request(9000, key="9000", client="c1")])[0]
    assert isinstance(repeated, Answered)
    assert (repeated.labels, repeated.replayed) == (labels(results)[1], True)
    again.close()


def test_what_was_stored_is_given_out_though_the_next_phase_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = new_answering(tmp_path / "clinic")
    monkeypatch.setattr(answering_module, "save_phase", full)
    left = answering.status().answers_left_in_phase
    results = answering.answer([request(left - 1), request(5), request(1)])
    assert [type(one) for one in results] == [Answered, Halted, Halted]
    assert log_of(answering) == [Entry("ann", left - 1, 1, left)]
    monkeypatch.undo()
    again = reopened(answering)
    (found,) = again.answer([request(1)])
    assert isinstance(found, Answered)
    assert found.phase == 2
    again.close()


@pytest.mark.parametrize("rubbish", [True, False])
def test_learning_that_fails_halts_and_is_not_taken_for_too_few_rows(tmp_path: Path, *, rubbish: bool) -> None:
    class Fails:
        workers = 1

        def map(self, function: Any, tasks: Any) -> list[Any]:
            ((_, _, paths, _),) = tasks
            if not rubbish:
                raise ValueError("mmap length is greater than file size")
            paths["learned"].write_bytes(b"x" * 1000)
            return [None]

    answering = new_answering(tmp_path / "clinic", elsewhere=Fails())
    labels(answering.answer([request(answering.status().answers_left_in_phase)]))
    assert isinstance(answering.answer([request(1)])[0], Halted)
    with pytest.raises(StillHalted):
        reopened(answering)
    (answering.home.folder / halting.FILE).unlink()
    again = reopened(answering)
    labels(again.answer([request(1)]))
    assert again.status().phase == 2
    again.close()


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_disk_that_fails_once_while_a_phase_learns_does_not_end_it(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=True)
    real, tries = answering._learning.learn, []

    def learn(phase: Any, rows: Any) -> Any:
        tries.append(phase.number)
        return full() if len(tries) == 1 else real(phase, rows)

    answering._predictor.learn_elsewhere(learn)
    labels(answering.answer([request(answering.status().answers_left_in_phase)]))
    answering.maintain()
    assert (answering.status().phase, answering.halted, tries) == (2, None, [2, 2])
    answering.close()


def test_interrupted_it_waits_no_longer_for_what_is_learned(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=True)
    answering.interrupt()
    labels(answering.answer([request(answering.status().answers_left_in_phase)]))
    answering.maintain()
    assert answering.halted is not None
    again = reopened(answering)
    again.maintain()
    assert again.status().phase == 2
    again.close()


def test_closing_twice_closes_nobody_elses_file(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    answering._halt(OSError(28, "No space left on device"))
    others = [os.open(tmp_path / str(one), os.O_CREAT | os.O_RDWR) for one in range(8)]
    answering.close()
    answering.close()
    for one in others:
        os.close(one)  # raises if someone else has


def test_what_is_kept_of_a_repeat_tells_neither_key_nor_body(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    body = b'{"age": 47}'
    labels(answering.answer([request(1, key="a7-key", body=body)]))
    rows = answering.home.store._db.execute("SELECT key, digest FROM answers").fetchall()
    assert len(rows) == 1
    assert "a7-key" not in rows[0][0]
    assert rows[0][1] != digest(body), "whoever reads the disk could try out bodies"
    answering.close()


def test_expired_answers_do_not_pile_up(tmp_path: Path) -> None:
    now = [10**13]
    answering = AnsweringService(new_home(tmp_path / "clinic"), elsewhere=False, expiry=1, clock=lambda: now[0])

    def kept() -> int:
        return int(answering.home.store._db.execute("SELECT COUNT(*) FROM answers").fetchone()[0])

    for one in range(3):
        labels(answering.answer([request(1, key=f"{one}-{place}") for place in range(200)]))
        now[0] += 2000
    assert kept() == 200
    answering.close()
    answering = AnsweringService(Home(answering.home.folder), elsewhere=False, clock=lambda: now[0])
    assert kept() == 0
    answering.close()
