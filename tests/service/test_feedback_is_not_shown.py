"""Whether anyone gave feedback is shown nowhere: two worlds that differ in it show the same, but for what is released.

Each test that passes for the service has twins that it rejects: numbers that follow feedback, each in another place.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import later
import pytest
import stand_in
from shop import MODEL

from reticent import QualityAlarm
from reticent.data.schema import Column, Schema
from reticent.service import dashboard, metrics
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.status import StatusReporter

ASK, GIVE = "/v2/models/clinic/infer", "/v2/models/clinic/feedback"
SCHEMA = Schema(
    columns=(Column("a", "number", range=(-1, 1)), Column("b", "number", range=(-1, 1))),
    target="sick",
    classes=("no", "yes"),
)
RELEASED = {"quality", "alarms", "alarm_since", "one_answer"}  # functions of noisy counts and of a released model
RELEASED_METRICS = re.compile(r"reticent_(quality|quality_low|quality_high|recall|alarm|alarms_total)[ {]")
TIMES = re.compile(r"reticent_(request_seconds|requests_created|replayed_created|\w+_created)")
COVERED = ("number", "client", "answers", "phase", "cost")
ROUNDS, EACH, SLOTS = 9, 60, 120
World = Callable[[httpx.AsyncClient, list[str], list[str]], Any]


def labels(ids: list[str], label: Any = "yes") -> dict[str, Any]:
    return {"answer_ids": ids, "labels": [label] * len(ids)}


async def silent(client: httpx.AsyncClient, ids: list[str], before: list[str]) -> None:
    """Nobody gives feedback."""


async def talkative(client: httpx.AsyncClient, ids: list[str], before: list[str]) -> None:
    """Everybody does: at once, again, withdrawn, too late, for answers of nobody, and malformed."""
    bodies: list[Any] = [labels(ids), labels(ids[:9], "no"), labels(ids[:3], None), labels(ids[:2], "unknown")]
    bodies += [labels(before), labels(["00" * 16, "no ticket"])]
    for body in bodies:
        if body["labels"]:
            assert (await client.post(GIVE, json=body)).status_code == 202
    malformed: list[dict[str, Any]] = [{}, {"labels": []}, {"answer_ids": ids, "labels": ["yes"]}]
    for wrong in malformed:
        assert (await client.post(GIVE, json=wrong)).status_code == 400
    assert (await client.post(GIVE, content=b"{")).status_code == 400


def shown(folder: Path, world: World, caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """All that anyone sees of a service but the answers: after each request, over several phases."""
    model = later.chain(truth="both", phase_rows=SLOTS, wait=EACH, alarm=QualityAlarm(accuracy=0.5))
    answering = AnsweringService(Home.create(folder, model, MODEL), elsewhere=False)
    caplog.clear()
    service = Service("clinic", SCHEMA, answering, Batcher(answering))

    async def run() -> list[dict[str, Any]]:
        seen, before = [], list[str]()
        async with stand_in.connect(service) as client:
            for number in range(ROUNDS):
                rows = later.rows_of(number, EACH)
                inputs = [
                    {"name": name, "shape": [EACH, 1], "datatype": "FP64", "data": rows[:, place].tolist()}
                    for place, name in enumerate("ab")
                ]
                outputs = [{"name": "answer_ids"}]
                answer = await client.post(ASK, json={"inputs": inputs, "outputs": outputs})
                found = {one["name"]: one["data"] for one in answer.json()["outputs"]}
                seen.append(await looked_at(client, service, caplog))
                await world(client, found["answer_ids"], before)
                before = found["answer_ids"]
                seen.append(await looked_at(client, service, caplog))
            await service.batcher.close()
        answering.close()
        return seen

    return asyncio.run(run())


async def looked_at(client: httpx.AsyncClient, service: Service, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The page, its files and what it reads, the metrics, the status and the log, without times and releases."""
    await stand_in.until(lambda: service.batcher._running is None)  # type: ignore[attr-defined]  # the next phase is begun
    status = (await client.get("/status")).json()
    # Times, of requests that are counted below. Hashes begin with a random one; what they cover is compared itself.
    for name in ("load", "ledger_head", "last_time"):
        del status[name]
    judged = status["quality"]
    text = (await client.get("/metrics")).text
    lines = [line for line in text.splitlines() if not (line.startswith("#") or TIMES.match(line))]
    ledger = (await client.get("/dashboard/ledger")).json()
    return {
        "released": {name: status.pop(name) for name in sorted(RELEASED)},
        "judged": [(one["phase"], one["rows"]) for one in judged],
        "status": status,
        "requests": len(service._recent),
        "metrics": [line for line in lines if not RELEASED_METRICS.match(line)],
        "ledger": ledger | {"rows": [[one[name] for name in COVERED] for one in ledger["rows"]]},
        "guarantee": (await client.get("/guarantee")).text,
        "page": [(await client.get(path)).content for path, _, _ in dashboard.FILES],
        "log": [one.getMessage() for one in caplog.records if not one.getMessage().startswith("alarm: ")],
    }


def differences(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> set[str]:
    """Where two worlds differ, apart from releases."""
    assert len(one) == len(other) == 2 * ROUNDS
    return {
        name
        for here, there in zip(one, other, strict=True)
        for name in here
        if name != "released" and json.dumps(here[name], default=repr) != json.dumps(there[name], default=repr)
    }


def test_two_worlds_show_the_same_but_for_what_is_released(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    quiet, loud = (shown(tmp_path / world.__name__, world, caplog) for world in (silent, talkative))
    assert differences(quiet, loud) == set()
    assert quiet[-1]["status"]["phase"] >= 3  # phases have begun, and been judged
    assert quiet[-1]["released"]["quality"]
    # What is released may differ, but not before a phase ends: until then it is that of the phase before.
    for world in (quiet, loud):
        for before, after in zip(world[::2], world[1::2], strict=True):
            assert before["released"] == after["released"]
            assert before["status"] == after["status"]


def counting_requests() -> Any:
    """A twin: metrics that count requests with feedback."""
    return patch.object(metrics, "UNCOUNTED", frozenset())


def counting_labels() -> Any:
    """A twin: a status that counts labels, not slots."""
    status = StatusReporter.status

    def counted(self: StatusReporter) -> Any:
        return replace(status(self), rows_gathered=sum(one.label >= 0 for one in self._store.slot_labels()))

    return patch.object(StatusReporter, "status", counted)


def logging_labels() -> Any:
    """A twin: a service that writes a line for feedback."""
    feedback = AnsweringService.feedback

    def logged(self: AnsweringService, given: Any) -> Any:
        from reticent.service.answering import log

        log.warning("feedback came")
        return feedback(self, given)

    return patch.object(AnsweringService, "feedback", logged)


@pytest.mark.parametrize(
    ("twin", "where"), [(counting_requests, "metrics"), (counting_labels, "status"), (logging_labels, "log")]
)
def test_a_twin_that_shows_feedback_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, twin: Callable[[], Any], where: str
) -> None:
    with twin():
        quiet, loud = (shown(tmp_path / world.__name__, world, caplog) for world in (silent, talkative))
    assert where in differences(quiet, loud)
