"""Saved anywhere, loaded and replayed, a predictor with later labels goes on as if it had not been stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth_models import MAKERS, chain, intake, next_rows, rows_for, votes

from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.machine import LabelledPart

DAY_ONE = [f"p{one}" for one in range(40)]


def whole_state(model: EverlastingPredictor) -> Any:
    """What the model would save, arrays by their bytes."""
    header, arrays, _ = model._machine.state()
    return header, {name: (one.dtype.str, one.shape, one.tobytes()) for name, one in sorted(arrays.items())}


def acts(model: EverlastingPredictor, tickets: list[str], *, grouped: bool) -> list[Any]:
    """What happens to a model, one act at a time."""
    truth = model.truth
    X, y = rows_for(model, 60)

    def who(start: int, stop: int) -> list[str] | None:
        return [f"q{one}" for one in range(start, stop)] if grouped else None

    def add(start: int, stop: int) -> None:
        model.add_labelled(X[start:stop], y[start:stop], who(100 + start, 100 + stop))

    def ask(start: int, stop: int) -> None:
        tickets.extend(model.answer(X[start:stop], who(start, stop)).tickets or [])

    def tell(start: int, stop: int) -> None:
        model.feedback(tickets[start:stop], y[start:stop], who(start, stop))

    steps: list[Any] = [lambda: ask(0, 3)]
    if truth != "feedback":
        steps += [lambda: add(0, 5), lambda: model.withdraw_labelled([2]), lambda: add(5, 23)]
    if truth != "rows":
        steps += [lambda: tell(0, 2), lambda: ask(3, 9), lambda: tell(5, 8), lambda: ask(9, 12), lambda: tell(8, 12)]
    steps += [lambda: ask(12, 13), lambda: ask(13, 14)]
    if truth != "rows":
        steps += [lambda: tell(10, 14)]
    return steps


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("source", ["rows", "feedback", "both"])
@pytest.mark.parametrize("engine", MAKERS)
def test_saved_and_loaded_after_every_act_it_is_the_same(
    engine: str, source: str, grouped: bool, tmp_path: Path
) -> None:
    rows = 20 if source == "rows" else 10
    model = MAKERS[engine](
        groups=DAY_ONE if grouped else None, truth=source, phase_rows=rows, growth=1,
        client_share=1, **({} if source == "rows" else {"wait": 2}),
    )  # fmt: skip
    tickets: list[str] = []
    for number in range(len(acts(model, tickets, grouped=grouped))):
        path = tmp_path / f"{number}.state"
        model.save(path)
        before = whole_state(model)
        model = EverlastingPredictor.load(path)
        assert whole_state(model) == before
        assert len(model.quality_) == model.phase_ - 1
        acts(model, tickets, grouped=grouped)[number]()
    if (engine, source) == ("votes", "rows"):
        model.turn_over()  # it has answers left
    assert model.phase_ == 2
    assert model.quality_[0].phase == 1


def test_tickets_survive_and_closed_ones_stay_closed(tmp_path: Path) -> None:
    model = chain(truth="feedback", phase_rows=10, wait=3, gauge_share=0)
    X, _y = rows_for(model, 20)
    found = model.answer(X[:13], ["ann"] + ["bob"] * 12)
    assert found.tickets is not None
    model.save(tmp_path / "a")
    model = EverlastingPredictor.load(tmp_path / "a")
    assert model.feedback(found.tickets[:1], [1], ["bob"]) == 0
    assert model.feedback(found.tickets[:1], [1], ["ann"]) == 1
    model.answer(X[:1])
    model.save(tmp_path / "b")
    model = EverlastingPredictor.load(tmp_path / "b")
    assert model.feedback(found.tickets[:1], [1], ["ann"]) == 0
    assert model.feedback(found.tickets[10:11], [1], ["bob"]) == 1  # was after the window, has a slot now
    assert next_rows(model).training.class_indices[0] == 1


@pytest.mark.parametrize("source", ["rows", "feedback", "both"])
@pytest.mark.parametrize("engine", MAKERS)
@pytest.mark.parametrize("grouped", [False, True])
def test_replayed_from_any_save_it_is_the_same(engine: str, source: str, grouped: bool, tmp_path: Path) -> None:
    model = MAKERS[engine](
        groups=DAY_ONE if grouped else None, truth=source, phase_rows=30, growth=1, client_share=1,
        **({} if source == "rows" else {"wait": 4}),
    )  # fmt: skip
    X, y = rows_for(model, 40)
    names = [f"q{one}" for one in range(40)]
    who = names if grouped else None
    model.save(tmp_path / "start")
    parts: list[Any] = []
    tickets: list[str] = []
    for start in range(0, 32, 8):
        some = slice(start, start + 8)
        if source != "feedback":
            groups = [f"r{one}" for one in range(start, start + 8)] if grouped else None
            model.add_labelled(X[some], y[some], groups)
            parts.append(LabelledPart(X[some], y[some], None if groups is None else np.array(groups)))
        found = model.answer(X[some], None if who is None else who[some], one_phase=True)
        if found.tickets is not None and len(found.class_indices):
            count = len(found.class_indices)
            given = None if who is None else who[start : start + count]
            parts.append((X[start : start + count], found.class_indices, given, found.tickets))
            tickets += found.tickets
    filled = [(one, 1, f"q{place}" if grouped else None) for place, one in enumerate(tickets) if place % 3 == 0]
    if filled:
        owners = [one for _, _, one in filled] if grouped else None
        model.feedback([one for one, _, _ in filled], [1] * len(filled), owners)
    again = EverlastingPredictor.load(tmp_path / "start")
    again.replay(parts, model.clock(), filled)
    ours, theirs = (intake(one).state() for one in (again, model))
    ours[0]["truth"].pop("issued"), theirs[0]["truth"].pop("issued")  # only numbers of tickets in audits
    assert ours[0] == theirs[0]
    assert ours[1].keys() == theirs[1].keys()
    assert all(np.array_equal(ours[1][name], theirs[1][name]) for name in ours[1])
    assert again._machine.admission.state() == model._machine.admission.state()
    assert again.clock() == model.clock()
    assert again.rows_gathered_ == model.rows_gathered_


# ── the test on old rows ──────────────────────────────────────────────────────────────────────────────────────────



def still_tested(tmp_path: Path, **how: Any) -> bool:
    """Whether a loaded predictor still tests its old rows, with the same noise."""
    model = votes(
        truth=None, phase_rows="auto", growth=2, held_back=0, alarm=QualityAlarm(accuracy=0.5), gauge_share=0.25
    )
    X, _ = rows_for(model, 500)
    model.predict(X[:70])
    assert model.phase_ == 2
    before = model._machine.watch._test
    assert before is not None
    model.save(tmp_path / "state")
    if how:
        EverlastingPredictor.load(tmp_path / "state")
    loaded = EverlastingPredictor.load(tmp_path / "state", **how)
    after = loaded._machine.watch._test
    if after is None:
        loaded.predict(X[:300])  # goes on without tests
        assert loaded.phase_ > 2
        return False
    assert after.state() == before.state()
    assert after.state()["tests"] == 1
    np.testing.assert_array_equal(after.X, before.X)
    return True


def test_the_noise_of_the_test_is_kept_over_a_save(tmp_path: Path) -> None:
    assert still_tested(tmp_path)


def test_loaded_again_the_block_is_retired_unless_it_continues(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert not still_tested(tmp_path / "a", again=True)
    assert still_tested(tmp_path / "b", again=True, continues=True)


def test_alarms_and_qualities_survive(tmp_path: Path) -> None:
    model = chain(alarm=QualityAlarm(accuracy=0.99), phase_rows=40, gauge_share=0.5)
    X, y = rows_for(model, 160)
    model.add_labelled(X, 1 - y)
    model.predict(X[:1])
    model.save(tmp_path / "a")
    loaded = EverlastingPredictor.load(tmp_path / "a")
    assert loaded.quality_ == model.quality_
    assert len(loaded.quality_) >= 3
    assert loaded.alarms_ == model.alarms_
    assert loaded.alarm_since_ == model.alarm_since_
    assert [number for number, _ in loaded.models_] == [number for number, _ in model.models_]
    assert loaded.event_ == model.event_
