"""Labels that arrive later, through the answering service: they are kept, learned from once, and show nothing else."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from later import (
    answering_of,
    ask,
    chain,
    gathered,
    labels_given,
    lesson,
    opened,
    teach,
    tell,
    tell_by_key,
    votes,
)

from reticent import BudgetExhausted
from reticent.predictors.alarms import QualityAlarm
from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import STORE, Home
from reticent.service.labels import FeedbackRequest, LabelReceipt, RefusedLabels
from reticent.service.requests import KeyReused
from reticent.service.store import verification
from reticent.service.store.slots import SlotIndex


def again(service: AnsweringService) -> AnsweringService:
    folder = service.home.folder
    service.close()
    verification.verify(folder / STORE)
    return opened(Home(folder))


# ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_labelled_rows_survive_a_restart_and_begin_phases(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40))
    first = teach(service, "monday", 30)
    assert first == LabelReceipt(rows=30, kept=30, first=0, phase=2, missing=10)
    assert teach(service, "tuesday", 5).first == 30
    service = again(service)
    assert (service.status().labelled_received, service.status().labelled_waiting) == (35, 35)
    assert teach(service, "wednesday", 100).phase == 5  # 135 rows: three phases are due, and 15 rows wait
    assert service.needs_maintenance
    assert len(ask(service, "q", 3).labels) == 3
    assert (service.status().phase, service.status().labelled_waiting) == (4, 15)
    assert [one.phase for one in service.status().quality] == [1, 2, 3]
    service = again(service)
    assert (service.status().phase, service.status().labelled_waiting) == (4, 15)
    assert [one.phase for one in service.status().quality] == [1, 2, 3]
    assert ask(service, "r", 1).tickets is None
    service.close()


def test_maintenance_begins_the_phases_that_are_due_one_at_a_time(tmp_path: Path) -> None:
    """Or whoever teaches rows for hundreds of phases would wait, between two requests, until all are learned."""
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40))
    teach(service, "monday", 85)
    service.maintain()
    assert (service.status().phase, service.needs_maintenance) == (2, True)
    service.maintain()
    assert not service.needs_maintenance
    assert (service.status().phase, service.status().labelled_waiting) == (3, 5)
    assert not service.needs_maintenance
    service.close()


def test_labelled_rows_are_taken_once_per_key(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40))
    first = teach(service, "monday", 10)
    assert teach(service, "monday", 10) == first._replace(replayed=True)
    service = again(service)
    assert teach(service, "monday", 10) == first._replace(replayed=True)
    assert isinstance(service.add_labelled(lesson(service, "monday", 10)._replace(digest=b"else")), KeyReused)
    assert teach(service, "monday", 10, client="other").first == 10
    assert service.status().labelled_received == 20
    service.close()


def test_labelled_rows_can_be_withdrawn_by_their_sender_until_the_phase_is_complete(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40, gauge_share=0))
    teach(service, "monday", 10)
    teach(service, "tuesday", 5, client="other")
    assert service.withdraw_labelled("owner", [3, 12, 99]) == 1
    assert service.withdraw_labelled("nobody", [3]) == 0
    service = again(service)
    rows, labels = gathered(service)
    assert labels == [1, 1, 1, -1] + [1] * 11
    assert rows[3] == [0, 0]
    teach(service, "wednesday", 25)
    assert service.withdraw_labelled("owner", [0]) == 0  # the phase has all of its rows
    service.maintain()
    assert service.status().phase == 2
    assert service.withdraw_labelled("owner", [0]) == 0
    service.close()


def test_a_row_that_was_carried_over_can_be_withdrawn(tmp_path: Path) -> None:
    """It is in the state of the phase, not in the journal."""
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40, gauge_share=0))
    teach(service, "monday", 45)
    service.maintain()
    assert (service.status().phase, service.status().labelled_waiting) == (2, 5)
    assert service.withdraw_labelled("owner", [41]) == 1
    for one in (service, again(service)):
        assert gathered(one)[1] == [1, -1, 1, 1, 1]
    teach(one, "tuesday", 35)
    one = again(one)
    assert gathered(one)[1].count(-1) == 1
    one.close()


def test_votes_wait_for_labelled_rows_and_go_on_with_them(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", votes(truth="rows", phase_rows=100, growth=0.2))
    left = service.status().answers_left_in_phase
    ask(service, "a", left)
    with pytest.raises(BudgetExhausted, match="needs 100 more labelled rows"):
        ask(service, "b", 5)
    service.maintain()
    assert service.halted is None
    teach(service, "monday", 60)
    with pytest.raises(BudgetExhausted, match="needs 40 more labelled rows"):
        ask(service, "b", 5)
    service = again(service)
    with pytest.raises(BudgetExhausted, match="needs 40 more labelled rows"):
        ask(service, "b", 5)
    teach(service, "tuesday", 40)
    assert ask(service, "b", 5).phase == 2
    service.close()


def test_a_request_cut_off_by_missing_rows_is_finished_when_they_come(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", votes(truth="rows", phase_rows=100, growth=0.2))
    left = service.status().answers_left_in_phase
    with pytest.raises(BudgetExhausted, match="needs 100 more labelled rows"):
        ask(service, "a", left + 5)
    teach(service, "monday", 100)
    assert len(ask(service, "a", left + 5).labels) == left + 5
    assert service.status().answered == left + 5
    service.close()


def test_labelled_rows_are_refused_by_shape_alone(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40))
    good = lesson(service, None, 3)
    assert isinstance(service.add_labelled(good._replace(rows=good.rows[:, :1])), RefusedLabels)
    assert isinstance(service.add_labelled(good._replace(labels=good.labels[:2])), RefusedLabels)
    assert isinstance(service.add_labelled(good._replace(groups=["a", "b", "c"])), RefusedLabels)
    assert isinstance(service.add_labelled(good._replace(rows=good.rows[:0], labels=good.labels[:0])), RefusedLabels)
    assert isinstance(service.feedback([FeedbackRequest("ann", np.array([1]), tickets=["x"])]), RefusedLabels)
    unreadable = good._replace(rows=np.full((3, 2), np.nan), labels=np.full(3, -1))
    assert isinstance(service.add_labelled(unreadable), LabelReceipt)
    assert (service.status().labelled_received, service.halted) == (3, None)
    service.close()


def test_groups_are_kept_with_labelled_rows(tmp_path: Path) -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    grouped = chain(truth="rows", phase_rows=40)
    grouped.fit(X, np.where(X[:, 0] < 0, "yes", "no"), groups=np.arange(400))
    service = answering_of(tmp_path / "clinic", grouped)
    given = lesson(service, "a", 4)._replace(groups=["p", "p", "q", "7"])
    found = service.add_labelled(given)
    assert isinstance(found, LabelReceipt)
    assert found.rows == 4
    assert found.kept < 4, "person 7 was there on day one"
    assert isinstance(service.add_labelled(given._replace(idempotency_key=None, groups=None)), RefusedLabels)
    service = again(service)
    assert service.status().labelled_waiting == found.kept
    assert service.status().labelled_received == 4
    service.close()


# ── feedback ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [chain, votes])
def test_feedback_survives_a_restart_and_is_learned_from(tmp_path: Path, make: Any) -> None:
    service = answering_of(tmp_path / "clinic", make(truth="feedback", phase_rows=60, gauge_share=0, epsilon=60))
    first = ask(service, "a", 10)
    assert first.tickets is not None
    assert len({*first.tickets}) == 10
    assert ask(service, "a", 10).tickets == first.tickets  # a repeat
    tell(service, first.tickets[:4], 0)
    tell_by_key(service, "a", [2, 7], 1)
    assert labels_given(service)[:10] == [0, 0, 1, 0, -1, -1, -1, 1, -1, -1]
    service = again(service)
    assert ask(service, "a", 10).tickets == first.tickets
    assert labels_given(service)[:10] == [0, 0, 1, 0, -1, -1, -1, 1, -1, -1]
    tell(service, [first.tickets[0]], -1)  # withdrawn
    service = again(service)
    assert labels_given(service)[:10] == [-1, 0, 1, 0, -1, -1, -1, 1, -1, -1]
    ask(service, "b", 51)
    assert service.status().phase == 2
    service.close()


def test_only_who_asked_may_give_feedback_and_nothing_says_whether_it_counted(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=60))
    tickets = ask(service, "a", 4).tickets or []
    store = service.home.store
    before, size = store.position, (service.home.folder / STORE).stat().st_size
    status = service.status()
    for who, given in (("bob", tickets), ("ann", ["0" * 32, "no ticket", "", "\ud800"]), ("anonymous", tickets)):
        tell(service, given, 1, client=who)
        tell_by_key(service, "a", [0, 99], 1, client="bob")
        tell_by_key(service, "unknown", [0], 1)
        assert labels_given(service) == [-1] * 4
    tell(service, tickets, 1)
    assert labels_given(service) == [1] * 4
    assert (store.refresh(), service.status()) == (before, status)
    assert (service.home.folder / STORE).stat().st_size == size
    service.close()


def test_whoever_has_no_key_may_give_labels_of_anonymous_queries(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=60))
    tickets = ask(service, "a", 2, client="anonymous").tickets or []
    named = ask(service, "b", 2).tickets or []
    tell(service, [*tickets, *named], 1, client="anonymous")
    tell(service, tickets, 0, client="ann")
    assert labels_given(service) == [1, 1, -1, -1]
    service = again(service)
    assert labels_given(service) == [1, 1, -1, -1]
    service.close()


def test_a_closed_slot_stays_closed(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=40, wait=5, gauge_share=0))
    service._predictor.background = False  # the next phase begins when it is needed
    inside = ask(service, "a", 40).tickets or []
    tell(service, inside[:1], 0)
    after = ask(service, "b", 5).tickets or []  # the last answers of the phase
    tell(service, inside[:2], 1)
    tell(service, after[:2], 1)
    assert gathered(service)[1] == [0] + [-1] * 39
    assert labels_given(service)[40:] == [1, 1, -1, -1, -1]
    service = again(service)
    service._predictor.background = False
    tell(service, inside[:3], 1)
    assert gathered(service)[1] == [0] + [-1] * 39
    ask(service, "c", 1)
    assert service.status().phase == 2
    assert gathered(service)[1] == [1, 1, -1, -1, -1, -1]  # queries after the window have slots in the next one
    tell(service, [inside[0], after[2]], 0)
    for one in (service, again(service)):
        assert gathered(one)[1] == [1, 1, 0, -1, -1, -1]
    one.close()


def test_a_cap_counts_slots(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=40, client_share=0.1))
    tickets = ask(service, "a", 10).tickets or []
    tell(service, tickets, 1)
    assert labels_given(service) == [1] * 4
    service.close()


def test_labelled_rows_after_the_last_answer_are_for_the_next_phase(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=40, gauge_share=0))
    tell(service, ask(service, "a", 40).tickets, 1)
    assert service.status().phase == 1
    teach(service, "monday", 3)
    assert (service.status().phase, service.status().labelled_waiting) == (2, 3)
    for one in (service, again(service)):
        assert gathered(one)[1] == [1, 1, 1]
    tell(one, ask(one, "b", 2).tickets, 0)
    one = again(one)
    assert gathered(one)[1] == [0, 0, 1, 1, 1]
    one.close()


def test_old_rows_and_labels_are_wiped_with_their_phase(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=40))
    teach(service, "monday", 3)
    tell(service, ask(service, "a", 39).tickets, 1)
    ask(service, "b", 1)
    db = sqlite3.connect(service.home.folder / STORE)
    assert db.execute("SELECT COUNT(*) FROM labels WHERE cells != zeroblob(4000)").fetchone() == (1,)
    service.maintain()
    assert service.status().phase == 2
    assert db.execute("SELECT COUNT(*) FROM journal").fetchone() == (0,)
    assert db.execute("SELECT COUNT(*) FROM labels").fetchone() == (0,)
    db.close()
    service.close()


def test_an_alarm_is_in_the_status_and_survives(tmp_path: Path) -> None:
    alarm = QualityAlarm(accuracy=0.9)
    service = answering_of(
        tmp_path / "clinic", chain(epsilon=50, truth="rows", phase_rows=300, gauge_share=0.5, alarm=alarm)
    )
    assert service.status().quality_warning is None
    rng = np.random.default_rng(1)
    for number in range(3):
        rows = rng.uniform(-1, 1, (300, 2))
        wrong = (rng.random(300) < 0.5).astype(np.int64)
        service.add_labelled(lesson(service, f"{number}", 300)._replace(rows=rows, labels=wrong))
        service.maintain()
    now = service.status()
    assert now.alarm_since is not None
    assert now.quality_warning == f"alarm since phase {now.alarm_since}"
    assert now.alarms[0].phase == now.alarm_since
    assert len(now.quality[-1].recall) == len(now.classes) == 2
    service = again(service)
    assert (service.status().alarms, service.status().quality) == (now.alarms, now.quality)
    service.close()


# ── backups ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_rows_are_tested_no_more_after_a_restore_that_may_lack_answers(tmp_path: Path) -> None:
    """The original may have tested them with the same noise, after its last answer."""
    service = answering_of(tmp_path / "clinic", votes(alarm=QualityAlarm(accuracy=0.6), gauge_share=0.1))
    ask(service, "a", 3)
    service = again(service)
    assert service._predictor._machine.watch._test is not None
    head = service.status().ledger_head
    service.close()
    backup.write(tmp_path / "clinic", tmp_path / "monday.backup")
    shutil.rmtree(tmp_path / "clinic")
    assert backup.restore(tmp_path / "monday.backup", tmp_path / "moved", head=head)[1]
    service = opened(Home(tmp_path / "moved"))
    for one in (service, again(service)):  # also after the next start
        assert one._predictor._machine.watch._test is None
    ask(one, "b", one.status().answers_left_in_phase + 1)
    assert (one.status().phase, one.status().alarms) == (2, ())
    one.maintain()
    assert not list((tmp_path / "moved").glob("*.restored"))
    one.close()


def test_old_rows_are_tested_on_after_a_final_backup(tmp_path: Path) -> None:
    service = answering_of(tmp_path / "clinic", votes(alarm=QualityAlarm(accuracy=0.6), gauge_share=0.1))
    service.close()
    backup.write(tmp_path / "clinic", tmp_path / "last.backup", final=True)
    assert backup.restore(tmp_path / "last.backup", tmp_path / "moved")[1]
    service = opened(Home(tmp_path / "moved"))
    assert service._predictor._machine.watch._test is not None
    service.close()


def test_with_later_labels_only_a_final_backup_continues(tmp_path: Path) -> None:
    """Phases may have begun since without an answer, and then the log ends with the same hash."""
    service = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=40))
    teach(service, "monday", 30)
    backup.write(tmp_path / "clinic", tmp_path / "monday.backup")
    head = service.status().ledger_head
    teach(service, "tuesday", 30)
    service.maintain()
    assert (service.status().phase, service.status().ledger_head) == (2, head)
    service.close()
    with pytest.raises(ValueError, match="--head is not enough for a predictor that takes later labels"):
        backup.restore(tmp_path / "monday.backup", tmp_path / "moved", head=head)
    assert not backup.restore(tmp_path / "monday.backup", tmp_path / "records")[1]
    backup.write(tmp_path / "clinic", tmp_path / "last.backup", final=True)
    assert backup.restore(tmp_path / "last.backup", tmp_path / "moved")[1]
    service = opened(Home(tmp_path / "moved"))
    assert (service.status().phase, service.status().labelled_waiting) == (2, 20)
    service.close()


def test_the_first_feedback_of_a_phase_takes_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the journal again would show, by the time it takes, that nobody had given feedback before."""
    service = answering_of(tmp_path / "home", chain(truth="feedback", phase_rows=20, wait=5))
    monkeypatch.setattr(SlotIndex, "read", lambda *_: pytest.fail("the journal was read again"))
    ask(service, "first", 25)
    carried = ask(service, "second", 4)
    assert service.status().phase == 2
    tell(service, carried.tickets, label=1)
    tell(service, ["0" * 32], client="bob")
    assert labels_given(service) == [-1] * 5 + [1] * 4
    service.close()
