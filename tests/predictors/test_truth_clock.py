"""Later labels: when phases begin, which rows are in which, and which judge: by the clock of rows and queries alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from truth_models import MAKERS, chain, intake, linear, next_rows, rows_for, spread, votes, whole

from reticent.errors import BudgetExhausted, InsufficientData
from reticent.predictors.phases import NO_END

# ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chain_turns_over_with_the_query_after_the_last_row() -> None:
    model = chain()
    X, y = whole(20, 1)
    assert model.add_labelled(X[:19], y[:19]) == (19, 2, 1, 0)
    model.predict(X[:7])
    assert (model.phase_, model.answered_) == (1, 7)
    assert model.add_labelled(X[19:], y[19:]) == (1, 2, 0, 19)
    assert (model.phase_, model.answers_left_in_phase_) == (1, 0)
    model.predict(X[:1])
    assert (model.phase_, model.labelled_waiting_, model.rows_gathered_) == (2, 0, 0)
    assert model.answers_left_in_phase_ == NO_END - 1


def test_votes_turn_over_when_the_answers_are_used_up_or_by_a_call() -> None:
    for call in (False, True):
        model = votes()
        X, y = rows_for(model, 20)
        model.add_labelled(X, y)
        assert model.answers_left_in_phase_ == 20  # growth · 40 rows; 2 more are reserved
        if call:
            model.turn_over()
            assert model.phase_ == 2
        assert (model.answer(X).phases == 1).all() != call
        assert model.phase_ == (2 if call else 1)
        model.predict(X[:1]) if not call else None
        assert model.phase_ == 2


@pytest.mark.parametrize("engine", MAKERS)
def test_several_phases_that_are_due_begin_one_after_another(engine: str) -> None:
    model = MAKERS[engine]()
    X, y = rows_for(model, 70)
    assert model.add_labelled(X, y) == (70, 5, 10, 0)
    if engine == "chain":
        model.predict(X[:1])
    else:
        for _ in range(3):
            model.turn_over()
    assert (model.phase_, model.labelled_waiting_) == (4, 10)
    assert [one.phase for one in model.quality_] == [1, 2, 3]
    with pytest.raises(ValueError, match="answers left"):
        model.turn_over()


@pytest.mark.parametrize("engine", MAKERS)
def test_roles_go_by_place_and_no_row_has_two(engine: str) -> None:
    model = MAKERS[engine](gauge_share=0.25)
    X, _ = rows_for(model, 20)
    y = np.arange(20) % 2
    model.add_labelled(X[:3], y[:3])
    model.add_labelled(X[3:], y[3:])
    found = next_rows(model)
    assert found.gauge is not None
    judges = np.arange(20) % 4 == 0
    np.testing.assert_array_equal(found.gauge.X, X[judges])
    np.testing.assert_array_equal(found.gauge.labels, y[judges])
    assert (found.gauge.answers == -1).all()
    assert found.gauge.all_labelled
    np.testing.assert_array_equal(found.training.X, X[~judges])
    np.testing.assert_array_equal(found.training.class_indices, y[~judges])


def test_without_a_gauge_all_rows_train() -> None:
    model = chain(gauge_share=0)
    model.add_labelled(*whole(20, 1))
    found = next_rows(model)
    assert len(found.training.X) == 20
    assert found.gauge is not None
    assert len(found.gauge.X) == 0
    model.predict(whole(1)[0])
    assert model.phase_ == 2
    assert model.quality_ == []


@pytest.mark.parametrize("engine", MAKERS)
def test_whatever_rows_hold_the_clock_is_the_same(engine: str) -> None:
    """Rows that cannot be read, and labels of any kind, count as all others do."""
    plain, odd = MAKERS[engine](), MAKERS[engine]()
    X, y = rows_for(plain, 30)
    strange: list[Any] = [[float("nan")], ["x"], [None], [1e300], *X[4:30].tolist()]
    labels: list[Any] = [0, None, "maybe", [0, 1], float("nan"), 7, {}, *y[7:30].tolist()]
    assert odd.add_labelled(strange, labels) == plain.add_labelled(X, y)
    assert (next_rows(odd).training.class_indices == -1).sum() + (next_rows(odd).gauge.labels == -1).sum() == 6  # type: ignore[union-attr]
    assert len(next_rows(odd).training.X) == 18
    for model in (plain, odd):
        model.turn_over()
        model.predict(X[:5])
    assert odd.phase == plain.phase
    assert odd.answers_left_in_phase_ == plain.answers_left_in_phase_
    assert len(odd.quality_) == len(plain.quality_) == 1


@pytest.mark.parametrize("odd", ["x", b"x", None, [1], 0.5, 2**70, True, np.datetime64("2020-01-01"), float("nan")])
def test_no_label_changes_how_another_is_read(odd: Any) -> None:
    """A list whose labels NumPy would turn into one type: a single unit would empty the places of all others."""
    truth: list[Any] = [0, 1, 1, 0, 1]
    rows = chain(gauge_share=0)
    rows.add_labelled(whole(6)[0], [*truth, odd])
    assert next_rows(rows).training.class_indices.tolist()[:5] == truth
    asked = chain(truth="feedback", gauge_share=0)
    given = asked.answer(whole(6)[0]).tickets
    assert asked.feedback(given, (*truth, odd)) == 6
    assert next_rows(asked).training.class_indices.tolist()[:5] == truth


def test_a_single_row_whose_label_is_a_list_counts_too() -> None:
    model = chain()
    labels: list[Any] = [[1], [[1]], [[0, 1]], [[[]]], [None]]
    for label in labels:
        model.add_labelled(whole(1)[0], label)
    assert model.labelled_waiting_ == 5
    assert next_rows(model).training.class_indices.tolist() == [-1] * 4


def test_equal_rows_are_all_kept() -> None:
    model = chain()
    X, y = np.zeros((20, 1), dtype=np.int64), np.ones(20, dtype=np.int64)
    assert model.add_labelled(X, y).rows == 20
    assert len(next_rows(model).training.X) == 18


@pytest.mark.parametrize("engine", MAKERS)
def test_rows_can_be_withdrawn_until_their_phase_is_complete(engine: str) -> None:
    model = MAKERS[engine]()
    X, y = rows_for(model, 25)
    model.add_labelled(X[:10], y[:10])
    assert model.withdraw_labelled([3, 3, 99]) == 1
    assert model.labelled_waiting_ == 10  # its place stays
    found = next_rows(model).training
    assert found.class_indices[2] == -1
    assert (found.X[2] == 0).all()
    model.add_labelled(X[10:], y[10:])
    assert model.withdraw_labelled([5]) == 0  # twenty rows: complete
    assert model.withdraw_labelled([22]) == 1
    model.turn_over()
    assert (model.phase_, model.labelled_waiting_) == (2, 5)
    assert model.withdraw_labelled([24, 4]) == 1


@pytest.mark.parametrize("engine", MAKERS)
def test_an_early_turn_over_takes_what_is_there_if_it_is_enough(engine: str) -> None:
    model = MAKERS[engine](phase_rows=200)
    X, y = rows_for(model, 60)
    fewest = model._machine.factory.fewest_labels()  # type: ignore[attr-defined]
    assert 1 < fewest <= 60
    model.add_labelled(X[: fewest - 1], y[: fewest - 1])
    with pytest.raises(InsufficientData, match=f"at least {fewest}") as refused:
        model.turn_over(early=True)
    assert refused.value.required == fewest
    model.add_labelled(X[:1], y[:1])
    assert model.phase_ == 1
    model.turn_over(early=True)
    assert (model.phase_, model.labelled_waiting_) == (2, 0)
    assert model.quality_[-1].rows == -(-fewest // 10)


def test_an_early_turn_over_is_refused_without_truth() -> None:
    with pytest.raises(ValueError, match="early must be False"):
        votes(truth=None, phase_rows="auto", growth=2).turn_over(early=True)


def test_a_refused_early_turn_over_leaves_all_as_it_was() -> None:
    model = votes(truth="both", phase_rows=40, most_noise=0.5, growth=2, rows_per_teacher=1, epsilon=8)
    X, y = rows_for(model, 40)
    tickets = model.answer(X[:5]).tickets
    with pytest.raises(BudgetExhausted, match="too few for another phase"):
        model.turn_over(early=True)
    assert not intake(model).sealed
    assert model.feedback(tickets, y[:5]) == 5
    assert model.add_labelled(X[:3], y[:3]).rows == 3
    assert (model.phase_, model.rows_gathered_) == (1, 8)


# ── queries and feedback ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("engine", MAKERS)
def test_feedback_fills_slots_and_silence_leaves_them_empty(engine: str) -> None:
    model = MAKERS[engine](truth="feedback", growth=1, gauge_share=0.25)
    X, _ = rows_for(model, 20)
    found = model.answer(X[:8])
    assert found.tickets is not None
    assert len({*found.tickets}) == 8
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in found.tickets)
    assert model.feedback(found.tickets[:6], [1, 0, 1, None, 5, 0]) == 6
    rows = next_rows(model)
    assert rows.gauge is not None
    assert rows.gauge.labels.tolist() == [1, -1]
    assert rows.gauge.answers.tolist() == found.class_indices[[0, 4]].tolist()
    assert rows.training.class_indices.tolist() == [0, 1, -1, 0, -1, -1]
    assert not rows.gauge.all_labelled


def clock_of(engine: str, *, tell: bool) -> list[Any]:
    """What is public after every few queries."""
    model = MAKERS[engine](truth="feedback", phase_rows=10, wait=2, growth=2)
    X, y = rows_for(model, 60)
    seen: list[Any] = []
    for start in range(0, 60, 4):
        found = model.answer(X[start : start + 4])
        if tell:
            model.feedback(found.tickets, y[start : start + 4])
        seen.append((model.phase, model.answers_left_in_phase_, model.rows_gathered_, len(model.quality_)))
    return seen


@pytest.mark.parametrize("engine", MAKERS)
def test_whether_feedback_comes_does_not_move_the_clock(engine: str) -> None:
    silent = clock_of(engine, tell=False)
    assert clock_of(engine, tell=True) == silent
    assert silent[-1][0].number > 3


def test_silence_may_stand_for_the_answer_but_never_judges() -> None:
    model = chain(truth="feedback", silence="answer", gauge_share=0.25)
    X, _ = whole(8, 1)
    found = model.answer(X)
    assert found.tickets is not None
    model.feedback(found.tickets[1:2], [1 - found.class_indices[1]])
    rows = next_rows(model)
    expected = found.class_indices[[1, 2, 3, 5, 6, 7]]
    expected[0] = 1 - expected[0]
    assert rows.training.class_indices.tolist() == expected.tolist()
    assert rows.gauge is not None
    assert rows.gauge.labels.tolist() == [-1, -1]
    assert rows.labels == 6  # all slots are taken to have a label


def test_feedback_may_be_corrected_and_withdrawn_until_the_slot_closes() -> None:
    model = chain(truth="feedback", gauge_share=0)
    found = model.answer(whole(20, 1)[0])
    assert found.tickets is not None
    for labels, expected in (([1, 1], [1, 1]), ([0, None], [0, -1]), ([None, 0], [-1, 0])):
        assert model.feedback(found.tickets[:2], labels) == 2
        assert next_rows(model).training.class_indices[:2].tolist() == expected
    model.turn_over()
    assert model.feedback(found.tickets, [1] * 20) == 0  # all are closed


def test_tickets_come_in_any_order_and_bad_ones_change_nothing() -> None:
    model = chain(truth="feedback", gauge_share=0, client_share=1)
    mine = model.answer(whole(3, 1)[0], ["ann"] * 3).tickets
    other = model.answer(whole(2, 2)[0]).tickets
    assert mine is not None
    assert other is not None
    bad: list[Any] = ["0" * 32, "", None, 7, b"x", ["a"], other[0], mine[0].upper() + "0"]
    assert model.feedback(bad, [1] * 8, ["ann"] * 8) == 0
    assert model.feedback(mine, [1] * 3) == 0  # nobody's, so not Ann's
    assert model.feedback(mine, [1] * 3, ["bob"] * 3) == 0
    assert (next_rows(model).training.class_indices == -1).all()
    assert model.feedback([mine[2], mine[0], mine[2]], [1, 0, 0], ["ann"] * 3) == 3
    assert model.feedback(other[::-1], [1, 0]) == 2
    assert next_rows(model).training.class_indices.tolist() == [0, -1, 0, 0, 1]


def test_queries_after_the_window_get_the_first_slots_of_the_next_and_never_judge() -> None:
    model = chain(truth="feedback", phase_rows=10, wait=4, gauge_share=0.5)
    X, y = whole(30, 1)
    found = model.answer(X[:14])
    assert (model.phase_, model.rows_gathered_, model.answers_left_in_phase_) == (1, 10, 0)
    assert model.feedback(found.tickets, y[:14]) == 14
    answers = found.class_indices
    model.answer(X[14:15])  # phase 2: slots of the window are closed, those of the four others open
    assert (model.phase_, model.rows_gathered_) == (2, 5)
    assert model.feedback(found.tickets, 1 - y[:14]) == 4
    rows = next_rows(model)
    assert rows.gauge is not None
    assert len(rows.gauge.X) == 1
    assert rows.gauge.X[0] == X[14]
    np.testing.assert_array_equal(rows.training.X, X[10:14])
    assert rows.training.class_indices.tolist() == (1 - y[10:14]).tolist()
    model.answer(X[15:27])
    assert (model.phase_, model.rows_gathered_) == (2, 14)
    assert answers.shape == (14,)


def test_queries_with_and_without_clients_wait_together() -> None:
    model = chain(truth="feedback", phase_rows=5, wait=3, client_share=0.2)
    X, _ = whole(20, 1)
    tickets = list(model.answer(X[:5]).tickets or [])
    for who in (["ann"], None, ["ann"]):
        tickets += model.answer(X[:1], who).tickets or []
    model.predict(X[:1])
    assert (model.phase_, model.rows_gathered_) == (2, 3)  # one of Ann's two, the nameless one and the new one
    assert model.feedback(tickets[5:7], [1, 1], ["ann", "bob"]) == 1
    assert model.feedback(tickets[6:7], [0]) == 1


def test_a_client_has_slots_up_to_its_share() -> None:
    model = chain(truth="feedback", phase_rows=20, client_share=0.1)
    found = model.answer(whole(6, 1)[0], ["ann"] * 5 + ["bob"])
    assert model.rows_of_client("ann") == (2, 2)
    assert model.rows_gathered_ == 3
    assert model.feedback(found.tickets, [1] * 6, ["ann"] * 5 + ["bob"]) == 3


def test_a_chain_whose_queries_get_no_slots_keeps_its_model() -> None:
    model = chain(truth="feedback", phase_rows=20, client_share=0.05)
    X, y = whole(200, 1)
    first = model.model_
    for start in range(0, 120, 20):
        found = model.answer(X[start : start + 20], ["ann"] * 20)
        model.feedback(found.tickets, y[start : start + 20], ["ann"] * 20)
    assert model.phase_ == 6
    assert model.model_ is first
    assert len(model.models_) == 1
    for start in range(120, 160, 20):
        found = model.answer(X[start : start + 20])
        model.feedback(found.tickets, y[start : start + 20])
    model.turn_over()
    assert model.model_ is not first
    assert [number for number, _ in model.models_] == [1, 8, 9]


def test_votes_whose_queries_get_few_slots_end_by_their_number() -> None:
    """One client asks all, and has fewer slots than `wait` needs: no error of the program, which halts a service."""
    model = votes(truth="feedback", phase_rows=20, wait=5, growth=1, client_share=0.1)
    X, _ = spread(40, 1)
    model.answer(X[:25], ["ann"] * 25)
    with pytest.raises(BudgetExhausted, match="too few for another phase: wait must be less than the 2 queries"):
        model.predict(X[:1], ["ann"])


def test_both_sources_join_with_slots_first() -> None:
    model = chain(truth="both", gauge_share=0.25)
    X, y = whole(30, 1)
    model.add_labelled(X[:2], y[:2])
    found = model.answer(X[2:5])
    model.feedback(found.tickets, y[2:5])
    model.add_labelled(X[5:9], y[5:9])
    rows = next_rows(model)
    order = [2, 3, 4, 0, 1, 5, 6, 7, 8]
    assert rows.gauge is not None
    np.testing.assert_array_equal(rows.gauge.X, X[[order[0], order[4], order[8]]])
    assert rows.gauge.answers.tolist() == [found.class_indices[0], -1, -1]
    np.testing.assert_array_equal(rows.training.X, X[[order[one] for one in (1, 2, 3, 5, 6, 7)]])
    model.answer(X[9:26])
    assert (model.phase_, model.answers_left_in_phase_) == (1, 0)
    model.answer(X[26:27])
    assert (model.phase_, model.rows_gathered_, model.labelled_waiting_) == (2, 1, 0)
    assert model.quality_[0].rows == 7  # 26 places, one in four of them


# ── horizon, background ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", ["rows", "feedback", "both"])
@pytest.mark.parametrize("engine", MAKERS)
def test_a_number_of_answers_ends_all(engine: str, source: str) -> None:
    model = MAKERS[engine](truth=source, answers=45, growth=0.5 if source == "rows" else 1)
    X, y = rows_for(model, 100)
    done = 0
    while done < 45:
        if source != "feedback":
            model.add_labelled(X[:20], y[:20])
        found = model.answer(X[done : min(done + 9, 45)])
        done += len(found.class_indices)
        assert (found.tickets is None) == (source == "rows")
    with pytest.raises(BudgetExhausted, match="0 of answers=45 are left"):
        model.predict(X[:1])
    with pytest.raises(BudgetExhausted, match="all answers have been given"):
        model.turn_over()
    assert model.phase_ >= 2


@pytest.mark.parametrize("source", ["rows", "feedback", "both"])
@pytest.mark.parametrize("engine", MAKERS)
def test_in_the_background_slots_close_with_the_last_answer(engine: str, source: str) -> None:
    model = MAKERS[engine](truth=source, background=True, growth=1)
    X, y = rows_for(model, 60)
    left = min(40, model.answers_left_in_phase_)
    found = model.answer(X[:left])
    assert model.learning_ == (source != "rows")
    if source != "rows":
        assert model.feedback(found.tickets, y[:left]) == 0
    if source != "feedback":
        taken = model.add_labelled(X[:20], y[:20])
        assert taken.rows == 20
        assert model.learning_ == (source == "rows")  # with both, they belong to the phase after the one that learned
    assert model.answer(X[:1]).phases.tolist() == [2]


def test_a_phase_that_failed_in_the_background_is_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = linear(background=True)
    engine = model.engine_
    real, failures = type(engine).next, [MemoryError("once")]

    def fails_once(self: Any, *given: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(self, *given)

    monkeypatch.setattr(type(engine), "next", fails_once)
    X, y = np.random.default_rng(1).random((20, 2)), np.arange(20) % 2
    model.add_labelled(X, y)
    with pytest.raises(MemoryError):
        model.predict(X[:1])
    assert model.phase_ == 1
    assert model.quality_ == []
    model.predict(X[:1])
    assert model.phase_ == 2
    assert len(model.quality_) == 1


@pytest.mark.parametrize("engine", MAKERS)
def test_rows_that_judge_are_counted_once_though_a_disk_is_full(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space is taken before the counts are released, so a second attempt releases nothing more."""
    model = MAKERS[engine](truth="both", phase_rows=10, wait=2, growth=0.5)
    X, y = rows_for(model, 30)
    model.add_labelled(X[:9], y[:9])
    model.answer(X[:12])
    limits = type(intake(model)._limits)
    real = limits.store
    monkeypatch.setattr(limits, "store", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        model.predict(X[:1])
    before = model._machine.admission.state()
    assert (model.phase_, model.quality_, intake(model).sealed) == (1, [], False)
    monkeypatch.setattr(limits, "store", real)
    model.predict(X[:1])
    assert model.phase_ == 2
    assert len(model.quality_) == 1
    assert model.rows_gathered_ == 3
    assert before != model._machine.admission.state() or not before["taken"]


@pytest.mark.parametrize("engine", MAKERS)
@pytest.mark.parametrize("where", ["judge", "begin"])
def test_rows_that_judge_are_read_once_though_someone_interrupts(
    engine: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are there to be seen when the interrupt comes. The same rows must not be counted again."""
    model = MAKERS[engine](truth="both", phase_rows=10, wait=2, growth=0.5, gauge_share=0.5)
    X, _ = rows_for(model, 30)
    model.add_labelled(X[:9], np.ones(9, dtype=np.int64))
    found = model.answer(X[:12])
    model.feedback(found.tickets, [1] * 12)
    machine = model._machine
    holder, name = (machine.watch, "_look") if where == "judge" else (machine, "_begin")
    monkeypatch.setattr(holder, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.predict(X[:1])
    monkeypatch.undo()
    assert (model.phase_, len(model.quality_)) == (1, 1)
    assert (next_rows(model).gauge.labels == -1).all()  # type: ignore[union-attr]
    assert not next_rows(model).gauge.X.any()  # type: ignore[union-attr]
    model.predict(X[:1])
    assert model.phase_ == 2


def test_queries_that_were_not_answered_have_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when the last queries of a batch are kept: asked again, none of them is there twice."""
    model = chain(truth="feedback", phase_rows=10, wait=4, silence="answer", gauge_share=0)
    X, y = rows_for(model, 30)
    model.feedback(model.answer(X[:3]).tickets, y[:3])
    held = intake(model)._held
    assert held is not None
    monkeypatch.setattr(held.places.store, "append", lambda *_, **__: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        model.answer(X[3:12])
    assert (model.rows_gathered_, model.answered_, len(model.open_slots_)) == (3, 3, 3)
    monkeypatch.undo()
    found = model.answer(X[3:12])
    assert model.feedback(found.tickets, y[3:12]) == 9
    assert next_rows(model).training.X.tolist() == X[:10].tolist()
    assert next_rows(model).training.class_indices.tolist() == y[:10].tolist()


def test_a_label_takes_the_same_time_whether_or_not_one_came_before() -> None:
    """Where labels are kept moves with queries alone: putting it together for the first label would take longer."""
    model = chain(truth="feedback", phase_rows=100, wait=2)
    X, _ = whole(1)
    tickets = [model.answer(X).tickets[0] for _ in range(90)]  # type: ignore[index]
    slots = intake(model)._slots
    assert slots is not None
    before = slots.places.labels.ctypes.data
    assert model.feedback(tickets[:2], [1, 0]) == 2
    assert slots.places.labels.ctypes.data == before
    assert slots.places.labels.tolist() == [1, 0] + [-1] * 88
