"""Print every dependency of `pyproject.toml` pinned at its declared minimum, as requirements for pip.

    python tools/oldest.py > pins.txt

There is no other list of oldest versions. `make oldest` installs these and runs tests with them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
DECLARED = re.compile(r"([A-Za-z0-9._-]+(?:\[[a-z,]+\])?)>=([0-9][0-9.]*)(?:,<[0-9][0-9.]*)?(\s*;.*)?")


def declared(project: dict[str, Any]) -> list[str]:
    """All requirements of the package and of its extras, without those on its own extras."""
    extras = project["optional-dependencies"].values()
    itself = f"{project['name']}["
    return [*project["dependencies"], *(one for extra in extras for one in extra if not one.startswith(itself))]


def pinned(requirement: str) -> str:
    """A requirement at its minimum. Besides it, only an upper bound may be declared."""
    found = DECLARED.fullmatch(requirement)
    if found is None:
        raise ValueError(f"declare a dependency as name>=version or name>=version,<version, got {requirement!r}")
    name, minimum, marker = found.groups()
    return f"{name}=={minimum}{marker or ''}"


def pins(text: str) -> list[str]:
    """The pins that follow from the text of a `pyproject.toml`; one minimum for each name."""
    found = sorted({pinned(one) for one in declared(tomllib.loads(text)["project"])})
    names = [one.partition("==")[0].partition("[")[0] for one in found]
    if twice := {one for one in names if names.count(one) > 1}:
        raise ValueError(f"declared with two minima: {', '.join(sorted(twice))}")
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(pins(PROJECT.read_text(encoding="utf-8"))) + "\n")
