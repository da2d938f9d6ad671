"""What the documentation has one type is typed, as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import command_line
import pytest
from terminal import typed_in
from test_backup import marks

from reticent.data.schema import Schema
from reticent.service import client, client_messages, home
from reticent.service.http import open_inference
from reticent.service.store.protocol import RESTORED, RETIRED
from waiting import reserved_port

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "guides" / "five-minutes.md"

clinic = pytest.fixture(command_line.clinic)


# ── docs/service/operations.md ─────────────────────────────────────────────────────────────────────────────────────


def typed(page: Path) -> str:
    """All that a page has an operator type."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    return "".join(blocks)


@pytest.mark.slow
def test_the_procedures_as_written(clinic: Path) -> None:
    with reserved_port() as port:
        check_procedures(clinic, port)


def check_procedures(clinic: Path, port: int) -> None:
    ready = f"until curl -sf http://127.0.0.1:{port}/v2/health/ready >ready; do kill -0 $server; sleep 0.1; done"
    serve = f"reticent serve clinic --port {port} &\nserver=$!\ntrap 'kill $server' EXIT\n{ready}\n"
    asked = "reticent ask clinic --table new.csv --out answers.csv\n"
    text = typed(DOCS / "service" / "operations.md").replace("127.0.0.1:8341", f"127.0.0.1:{port}")
    text = text.replace("systemctl --user stop reticent@clinic", "kill $server; wait $server; trap - EXIT")
    text = text.replace("systemctl --user start reticent@clinic\n", serve)
    before = f"reticent keys add clinic 'ward 3' >key\n{serve}export RETICENT_KEY=$(cat key)\n{asked}"
    code, shown = typed_in(clinic, before + text)
    assert code == 0, shown
    assert "It holds records only" in shown
    assert "It continues from there" in shown
    assert "RECORDS ONLY" in shown
    assert home.predictor_names() == ["clinic", "clinic-moved", "clinic-records"]
    assert marks(home.folder_of("clinic-moved")) == [RETIRED, RESTORED]


# ── docs/guides/five-minutes.md ────────────────────────────────────────────────────────────────────────────────────


def script() -> str:
    """All that the guide has one type, but for the installation; what a second terminal is for runs beside the rest."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    install, *rest = blocks
    assert "pip install" in install
    ready = "until curl -sf http://127.0.0.1:$PORT/v2/health/ready >ready; do kill -0 $!; sleep 0.1; done"
    serve = f"reticent serve clinic --port $PORT &\ntrap 'kill $!' EXIT\n{ready}\n"
    assert rest.count("reticent serve clinic\n") == 1
    typed = "".join(serve if one == "reticent serve clinic\n" else one for one in rest)
    # Another service may run on the usual port of this machine; nothing else is changed.
    return typed.replace("127.0.0.1:8341", "127.0.0.1:$PORT").replace("Client(", 'Client("http://127.0.0.1:@PORT", ')


@pytest.mark.slow
def test_the_guide_as_written(tmp_path: Path) -> None:
    with reserved_port() as port:
        check_guide(tmp_path, str(port))


def check_guide(tmp_path: Path, port: str) -> None:
    code, shown = typed_in(tmp_path, script().replace("@PORT", port), PORT=port)
    assert code == 0, shown
    assert "1,000 answers in answers.csv" in shown
    assert '{"predictions":["yes"]}' in shown
    assert "['yes']" in shown
    assert "answered: 1,002 in all" in shown
    assert "are chained without a gap" in shown
    assert "100/s, 100 at once, 50,000 in all" in shown
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 1_001


def test_the_examples_of_asking_fit_the_clinic_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    clinic = Schema.from_toml(GUIDE.read_text(encoding="utf-8").split("schema.toml <<'END'\n")[1].split("\nEND")[0])
    page = (GUIDE.parents[1] / "service" / "http.md").read_text(encoding="utf-8")
    asked = []

    def ask(_: client.Client, rows: Any) -> None:
        head, data = client_messages.encode_request(client_messages.tensors_of(rows)[0])
        asked.append(open_inference.read(head + data, str(len(head)), clinic, 100).rows)

    monkeypatch.setattr(client.Client, "ask", ask)
    for public in ("status", "guarantee"):
        monkeypatch.setattr(client.Client, public, lambda _: {})
    exec(re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[0], {})
    (body,) = re.findall(r"^curl -d '(.*?)'", page, flags=re.MULTILINE | re.DOTALL)
    asked.append(open_inference.read(body.encode(), None, clinic, 100).rows)
    assert [len(rows) for rows in asked] == [2, 1]
    assert (asked[0][1] == asked[1][0]).all()  # the same patient


# ── docs/guides/publish-a-model.md ─────────────────────────────────────────────────────────────────────────────────

PUBLISH = DOCS / "guides" / "publish-a-model.md"


@pytest.mark.slow
def test_publishing_as_written(tmp_path: Path) -> None:
    with reserved_port() as port:
        ready = f"until curl -sf http://127.0.0.1:{port}/v2/health/ready >ready; do kill -0 $!; sleep 0.1; done"
        serve = f"reticent serve readmission --probabilities --port {port} &\ntrap 'kill $!' EXIT\n{ready}\n"
        text = typed(PUBLISH)
        assert text.count("reticent serve readmission --probabilities\n") == 1
        text = text.replace("reticent serve readmission --probabilities\n", serve)
        (schema,) = re.findall(r"^cat > schema.toml <<'END'\n.*?^END\n", script(), flags=re.MULTILINE | re.DOTALL)
        before = f'export RETICENT_HOME="$PWD/home"\nreticent demo --write .\n{schema}'
        code, shown = typed_in(tmp_path, before + text)
    assert code == 0, shown
    assert "readmitted,P(no),P(yes)\n" in shown
    json, onnx = re.findall(r"^\['yes'\] (\[\[.*?\]\])", shown, flags=re.MULTILINE)
    assert json == onnx
    assert re.search(r"^\[('(yes|no)' ?){5}\] rows$", shown, flags=re.MULTILINE), shown


# ── docs/guides/labels-that-come-later.md ──────────────────────────────────────────────────────────────────────────

LATER = DOCS / "guides" / "labels-that-come-later.md"


@pytest.mark.slow
def test_labels_that_come_later_as_written(tmp_path: Path) -> None:
    with reserved_port() as port:
        ready = f"until curl -sf http://127.0.0.1:{port}/v2/health/ready >ready; do kill -0 $server; sleep 0.1; done"
        command = 'reticent serve loans --on-alarm "touch quality-is-lost"\n'
        text = typed(LATER)
        assert text.count(command) == 1
        serve = f"{command.strip()} --port {port} &\nserver=$!\ntrap 'kill $server' EXIT\n{ready}\n"
        code, shown = typed_in(tmp_path, text.replace(command, serve))
    assert code == 0, shown
    assert re.search(r"At 130 per day a new phase begins every \d", shown)
    assert "4,000 rows of month-3.csv are taught; their numbers, by which they can be withdrawn: 8,000–11,999" in shown
    assert "10 of 10 rows are withdrawn" in shown
    assert "4,000 answers in answers.csv" in shown
    assert re.search(r"^quality of phase \d+: \d", shown, flags=re.MULTILINE), shown
    assert "labelled rows: 12,000 received in all" in shown
    assert re.search(r"^answer_id,late\n[0-9a-f]{32},(no|yes)$", shown, flags=re.MULTILINE), shown
    assert "4,000 labels of known.csv are sent" in shown
