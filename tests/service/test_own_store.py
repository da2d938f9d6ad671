"""A store of one's own behind an answering service: `Home` takes its class."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shop import MODEL, labels, predictor, request

from reticent import Client
from reticent.data.schema import Column, Schema
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http.batching import Batcher
from reticent.service.http.server import Binding, listening, make_server
from reticent.service.http.service import Service
from reticent.service.store.protocol import AnswerStore, Damaged, OpenedPhase
from reticent.service.store.sqlite import SQLiteStore
from waiting import wait_until


class Distant:
    """Keeps its records in another folder; the file in the folder of the predictor has their address."""

    root: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._records = SQLiteStore(self.root / Path(path).read_text(encoding="utf-8"))

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: Mapping[str, str],
        opened: OpenedPhase,
        progress: Mapping[str, Any],
        *,
        time: int,
    ) -> Distant:
        Path(path).write_text(settings["id"], encoding="utf-8")
        SQLiteStore.create(cls.root / settings["id"], settings, opened, progress, time=time).close()
        return cls(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


@pytest.fixture
def distant(tmp_path: Path) -> Any:
    (tmp_path / "records").mkdir()
    return type("Here", (Distant,), {"root": tmp_path / "records"})


def test_a_service_answers_from_a_store_of_your_own(tmp_path: Path, distant: Any) -> None:
    home = Home.create(tmp_path / "clinic", predictor(), MODEL, store=distant)
    assert isinstance(home.store, distant)
    answering = AnsweringService(home, elsewhere=False)
    first = labels(answering.answer([request(10, "k")]))
    answering.close()

    again = AnsweringService(Home(tmp_path / "clinic", store=distant), elsewhere=False)
    assert again.status().answered == 10
    assert labels(again.answer([request(10, "k")])) == first
    labels(again.answer([request(again.status().answers_left_in_phase)]))
    again.maintain()
    assert (again.status().phase, again.halted) == (2, None)
    store: AnswerStore = again.home.store
    assert store.verify().length == again.home.store.position.length > 0
    again.close()


def test_another_class_than_the_one_it_was_created_with_is_refused(tmp_path: Path, distant: Any) -> None:
    Home.create(tmp_path / "clinic", predictor(), MODEL, store=distant).close()
    with pytest.raises(Damaged):
        Home(tmp_path / "clinic")
    Home(tmp_path / "clinic", store=distant).close()


@pytest.mark.slow
def test_a_server_can_be_started_in_python(tmp_path: Path, distant: Any) -> None:
    Home.create(tmp_path / "clinic", predictor(), MODEL, store=distant).close()
    answering = AnsweringService(Home(tmp_path / "clinic", store=distant), elsewhere=False)
    schema = Schema(columns=(Column("age", "number", range=(0, 1)),), target="ill", classes=("no", "yes"))
    server = make_server(Service("clinic", schema, answering, Batcher(answering)), Binding(host="127.0.0.1", port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        host, port = listening(server)
        with Client(f"http://{host}:{port}", model="clinic") as client:
            assert len(client.ask({"age": [0.1, 0.9]})) == 2
    finally:
        server.should_exit = True
        thread.join()
    with Home(tmp_path / "clinic", store=distant) as closed:
        assert closed.store.position.progress["answered"] == 2
