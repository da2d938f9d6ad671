"""A single private model behind the service: the same ledger and repeats, and nothing of a query is stored."""

from __future__ import annotations

from pathlib import Path

from shop import labels, new_answering, request

from reticent.learners import PrivateLogisticRegression
from reticent.predictors.phases import NO_END
from reticent.service.answering import AnsweringService
from reticent.service.home import Home

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
    assert sum(len(part.rows) for part in answering._store.journal()) == 0, "no query is stored"
    assert not answering.needs_maintenance
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=True)
    assert (again.status().answered, again.clients()) == (500, {"ann": 300, "bob": 200})
    assert labels(again.answer([request(300, "key")])) == first[:1], "a repeat is free"
    assert again.status().answered == 500
    whole = again.status().rows * 5
    assert len(labels(again.answer([request(whole)]))[0]) == whole
    now = again.status()
    assert (now.phase, now.endless, now.answers_in_phase, now.answers_left_in_phase) == (1, True, NO_END, NO_END)
    again.close()
