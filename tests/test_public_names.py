"""One name, one class: no two public classes of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import reticent

PACKAGE = Path(reticent.__file__).parent


def shared_names(folder: Path) -> dict[str, list[str]]:
    """The names that more than one module gives to a public class, with these modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(folder).as_posix())
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    assert shared_names(PACKAGE) == {}


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "events.py").write_text("class Gaussian: ...\nclass _Own: ...\nclass Other: ...\n")
    (tmp_path / "inner" / "noisy.py").write_text("class Gaussian: ...\nclass _Own: ...\n")
    assert shared_names(tmp_path) == {"Gaussian": ["events.py", "inner/noisy.py"]}
