from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.measurements import Case, Measurements


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    runs: list[str] = []

    def run(setting: dict[str, Any], folder: Path) -> dict[str, Any]:
        runs.append(setting["name"])
        return {"twice": 2 * setting["number"]}

    def cases(number: int) -> list[Case]:
        return [Case("part", name, {"name": name, "number": number}, run) for name in ("a", "b")] + [
            Case("other", "c", {"name": "c", "number": 1}, run)
        ]

    path = tmp_path / "kept.json"
    first = Measurements(path, cases(1))
    assert first.read() == {}
    first.measure(tmp_path, "part/b")
    assert runs == ["b"]
    first.measure(tmp_path)
    assert runs == ["b", "a", "c"]
    text = path.read_text(encoding="utf-8")
    first.measure(tmp_path)
    assert path.read_text(encoding="utf-8") == text
    assert list(json.loads(text)["results"]["part"]) == ["a", "b"], "in the order of the cases"
    other = Measurements(path, cases(3))
    other.measure(tmp_path)
    assert runs == ["b", "a", "c", "a", "b"], "with another setting it is another case"
    assert other.read()["part"]["a"] == {"setting": {"name": "a", "number": 3}, "twice": 6}
    other.measure(tmp_path, "other", again=True)
    assert runs[5:] == ["c"]


def test_numbers_are_kept_as_they_are_and_listed_in_one_line(tmp_path: Path) -> None:
    found = {"numbers": [1, -2.5, 1e-07], "pairs": [[0.5, 1.0], [2, 3]], "none": [], "text": ["[ 1,\n 2 ]", "b"]}
    kept = Measurements(tmp_path / "kept.json", [Case("part", "a", {}, lambda setting, folder: found)])
    kept.measure(tmp_path)
    assert kept.read()["part"]["a"] == {"setting": {}, **found}
    assert '"numbers": [ 1, -2.5, 1e-07 ]' in kept.path.read_text(encoding="utf-8")
