"""A single private model behind the service: the same answer log and repeats, and no query is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shop import labels, new_answering, predictor, request

from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted
from reticent.learners import PrivateLogisticRegression
from reticent.predictors.phases import NO_END
from reticent.privacy.guarantee import Guarantee
from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.metrics import Metrics
from reticent.service.requests import Request, digest
from reticent.service.status import GROUP, GROUP_OF_QUERIES, KEPT, in_words

LEARNER = PrivateLogisticRegression(epsilon=1, delta=1e-5, row_norm=2)


def test_a_single_model_is_served_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=4000)
    first = labels(answering.answer([request(300, "key"), request(200, client="bob", seed=1)]))
    status = answering.status()
    assert (status.guarantee.protects, status.phase, status.answered, status.answers_left) == ("rows", 1, 500, None)
    assert (status.rows, status.teachers, status.rows_gathered, status.rows_wanted, status.client_cap) == (
        4000, 0, 0, 0, 0,
    )  # fmt: skip
    assert (status.drift, status.learning, status.ledger_length) == ("not tested", False, 2)
    assert answering.added("ann") is None
    assert list(answering._store.journal()) == [], "no query is stored"
    assert not answering.needs_maintenance
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=True)
    assert (again.status().answered, again.clients()) == (500, {"ann": 300, "bob": 200})
    assert labels(again.answer([request(300, "key")])) == first[:1], "a repeat is free"
    assert again.status().answered == 500
    whole = again.status().rows * 5
    assert len(labels(again.answer([request(whole)]))[0]) == whole
    now = again.status()
    assert (now.phase, now.phase_never_ends) == (1, True)
    assert (now.answers_in_phase, now.answers_left_in_phase) == (NO_END, NO_END)
    again.close()


def test_what_is_shown_of_a_phase_that_never_ends(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=400)
    labels(answering.answer([request(30)]))
    shown = Metrics(answering.status).text().decode().splitlines()
    assert {"reticent_phase_never_ends 1.0", "reticent_answered_total 30.0", "reticent_rows_wanted 0.0"} <= set(shown)
    numbers = dict(line.rsplit(" ", 1) for line in shown if not line.startswith("#"))
    for name in ("reticent_answers_in_phase", "reticent_answers_left_in_phase"):
        assert float(numbers[name]) == NO_END
    assert in_words(answering.status().guarantee).endswith(KEPT)
    answering.close()


def test_a_set_number_of_answers_is_counted_down(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=400, answers=50)
    labels(answering.answer([request(30)]))
    now = answering.status()
    assert not now.phase_never_ends
    assert (now.answers_in_phase, now.answers_left_in_phase, now.answers_left) == (50, 20, 20)
    refused, taken = answering.answer([request(21, "key"), request(20, "other key")])
    assert isinstance(refused, BudgetExhausted)
    assert len(labels([taken])[0]) == 20
    assert not answering._unfinished, "no request is cut off, so none leaves rows behind"
    answering.close()


def test_votes_and_chains_say_nothing_of_what_is_kept() -> None:
    assert in_words(predictor().guarantee_) == predictor().guarantee_.explain()


def test_with_groups_the_words_say_what_a_group_is() -> None:
    grouped = Guarantee(epsilon=1, delta=1e-6, unit="group", protects="rows and queries")
    words = in_words(grouped).split("\n\n")
    assert words[1] == GROUP + GROUP_OF_QUERIES
    assert "\n\n".join([words[0], *words[2:]]) == grouped.explain()
    model = in_words(replace(grouped, protects="rows"))
    assert (GROUP in model, GROUP_OF_QUERIES in model, model.endswith(KEPT)) == (True, False, True)


def test_a_final_backup_goes_on(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=400)
    first = labels(answering.answer([request(30, "key")]))
    answering.close()
    backup.write(tmp_path / "clinic", tmp_path / "clinic.backup", final=True)
    backup.restore(tmp_path / "clinic.backup", tmp_path / "moved")
    moved = AnsweringService(Home(tmp_path / "moved"))
    assert labels(moved.answer([request(30, "key")])) == first
    assert labels(moved.answer([request(30)])) == first, "the same model"
    assert (moved.status().answered, moved.status().phase_never_ends) == (60, True)
    moved.close()


# ── no query is stored ────────────────────────────────────────────────────────────────────────────────────────────


def found_in(folder: Path, values: np.ndarray) -> set[str]:
    """The files of a folder that hold one of the values: as a float64 of either byte order, or as text."""
    wanted = [form for one in values for form in (one.tobytes(), one.byteswap().tobytes(), repr(float(one)).encode())]
    return {
        path.name for path in folder.rglob("*") if path.is_file() and any(one in path.read_bytes() for one in wanted)
    }


def ask_many_times(folder: Path, **options: Any) -> set[str]:
    """Ask with and without keys, repeat, stop in between; the files that held a query at any time."""
    answering = new_answering(folder, rows=2000, **options)
    rng = np.random.default_rng(7)
    every, found = np.empty(0), set()
    for turn in range(4):
        values = rng.random(40)
        every = np.concatenate([every, values])
        asked = [
            Request("ann", values[:10, None], f"key {turn}", digest(values[:10].tobytes())),
            Request("bob", values[10:20, None], None, digest(values[10:20].tobytes())),
            Request("anonymous", values[20:, None], f"key {turn}", digest(values[20:].tobytes())),
        ]
        first = labels(answering.answer(asked))
        assert labels(answering.answer(asked[::2])) == first[::2]
        answering.maintain()
        found |= found_in(folder, every)  # while it is open, with the write-ahead log
        backup.write(folder, folder.parent / f"{folder.name}.{turn}.backup")
        answering.close()
        found |= found_in(folder, every)
        answering = AnsweringService(Home(folder), elsewhere=False)
    answering.close()
    found |= {"backup" for turn in range(4) if found_in_backup(folder.parent / f"{folder.name}.{turn}.backup", every)}
    return found


def found_in_backup(path: Path, values: np.ndarray) -> bool:
    return any(one.tobytes() in path.read_bytes() for one in values)


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["endless", 1000])
def test_no_file_ever_holds_a_query(tmp_path: Path, answers: int | str) -> None:
    assert ask_many_times(tmp_path / "clinic", learner=LEARNER, engine="model", answers=answers) == set()


@pytest.mark.parametrize("learner", [LEARNER, Thresholds()], ids=["chain", "votes"])
def test_the_search_finds_the_queries_of_engines_that_learn_from_them(tmp_path: Path, learner: Any) -> None:
    """The twin that must fail."""
    assert {"store.sqlite", "backup"} <= ask_many_times(tmp_path / "clinic", learner=learner)
