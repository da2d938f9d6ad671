"""Declared minimum versions are tried: the oldest environment has exactly those that `pyproject.toml` declares."""

from __future__ import annotations

import os
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import oldest
import pytest
from packaging.markers import Marker
from packaging.version import Version

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[\w+\])?==(?P<minimum>[\d.]+)(\s*;\s*(?P<marker>.+))?")


def minima() -> dict[str, Version]:
    """The minimum of every dependency that is wanted on this machine."""
    found = {}
    for pin in oldest.pins(TEXT):
        parts = REQUIREMENT.fullmatch(pin)
        assert parts is not None, pin
        if parts["marker"] is None or Marker(parts["marker"]).evaluate():
            found[parts["name"]] = Version(parts["minimum"])
    return found


def test_every_dependency_has_a_minimum_that_is_pinned() -> None:
    project = tomllib.loads(TEXT)["project"]
    extras = project["optional-dependencies"]
    everything = {one for extra in extras.values() for one in extra} | set(project["dependencies"])
    itself = {one for one in everything if one.startswith("reticent[")}
    assert set(oldest.declared(project)) == everything - itself
    expected = {re.sub(r",<[\d.]+", "", one).replace(">=", "==") for one in oldest.declared(project)}
    assert set(oldest.pins(TEXT)) == expected


def test_those_who_work_on_it_have_all_extras() -> None:
    extras = tomllib.loads(TEXT)["project"]["optional-dependencies"]
    assert f"reticent[{','.join(name for name in extras if name != 'dev')}]" in extras["dev"]


@pytest.mark.parametrize("name", sorted(minima()))
def test_the_environment_keeps_to_it(name: str) -> None:
    """At the minimum exactly in the oldest environment; elsewhere at least that."""
    installed, minimum = Version(version(name)), minima()[name]
    assert installed == minimum if os.environ.get("RETICENT_OLDEST") else installed >= minimum


@pytest.mark.parametrize(
    "requirement", ["numpy", "numpy<2", "numpy<2,>=1", "numpy>=1.26,<3,<4", "numpy==1.26", "numpy ~= 1.26"]
)
def test_what_has_no_single_minimum_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="name>=version"):
        oldest.pinned(requirement)


@pytest.mark.parametrize("requirement", ["numpy>=1.26", "numpy>=1.26,<3"])
def test_an_upper_bound_does_not_move_the_minimum(requirement: str) -> None:
    assert oldest.pinned(requirement) == "numpy==1.26"


def test_two_minima_are_refused() -> None:
    text = '[project]\nname = "c"\ndependencies = ["a>=1"]\noptional-dependencies = {b = ["a>=2"]}\n'
    with pytest.raises(ValueError, match="two minima: a"):
        oldest.pins(text)


def test_it_is_tried_before_anything_lands() -> None:
    for file in (".ci/run", ".github/workflows/ci.yml"):
        assert re.search(r"^\W*(run: )?make oldest", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), file
