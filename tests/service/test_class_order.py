"""The order of a schema's classes is for people: what is learned and answered does not depend on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reticent import cli
from reticent.data.schema import Schema
from reticent.service.answering import AnsweringService
from reticent.service.home import Home, folder_of
from reticent.service.requests import Request, digest

SCHEMA = """\
target = "ill"
classes = [{classes}]

[[columns]]
name = "age"
range = [0, 100]
"""


@pytest.mark.parametrize("learner", ["private", "thresholds"])
@pytest.mark.parametrize("classes", ['"no", "yes"', '"yes", "no"', '"old", "young"', '"young", "old"'])
def test_every_order_learns_the_same(
    learner: str, classes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    Path("schema.toml").write_text(SCHEMA.format(classes=classes))
    below, above = ("old", "young") if "old" in classes else ("no", "yes")  # of some a code 0, of some a code 1
    age = np.random.default_rng(0).integers(0, 100, size=3_000)
    Path("table.csv").write_text("age,ill\n" + "".join(f"{one},{above if one > 50 else below}\n" for one in age))
    fit = ["fit", "table.csv", "--schema", "schema.toml", "--epsilon", "10", "--delta", "1e-6", "--name", "clinic"]
    assert cli.main([*fit, "--yes", "--learner", learner]) == 0, capsys.readouterr()

    folder = folder_of("clinic")
    with Home(folder) as home:
        rules = Schema.from_toml(home.model)
        assert ", ".join(f'"{one}"' for one in rules.classes) == classes
        answering = AnsweringService(home, elsewhere=False)
        assert answering.classes == sorted(rules.classes)
        queries = rules.encode({"age": [10] * 20 + [90] * 20})
        (answered,) = answering.answer([Request("ann", queries, None, digest(b""))])
        assert not isinstance(answered, Exception)
        right = np.array([below] * 20 + [above] * 20)
        assert (np.array(answered.labels) == right).mean() > 0.9
        answering.close()
