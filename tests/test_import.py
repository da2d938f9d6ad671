"""What `import reticent` gives: every public name, without loading anything before it is used."""

from __future__ import annotations

import ast
import copy
import pickle
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import reticent

HEAVY = ("numpy", "scipy", "sklearn", "mpmath", "joblib", "matplotlib", "starlette", "uvicorn", "cyclopts", "rich")
NOT_PUBLIC = {"cli", "experiments"}  # packages that commands run


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_no_other() -> None:
    code = f"""
import sys
before = set(sys.modules)
import reticent
dir(reticent)
loaded = set(sys.modules) - before
print(sorted(loaded & set({HEAVY!r})), sorted(name for name in loaded if name.startswith("reticent")))
"""
    assert in_a_fresh_process(code) == "[] ['reticent']\n"


def test_every_public_name_is_listed_and_found() -> None:
    assert set(reticent.__all__) <= set(dir(reticent))
    for name in reticent.__all__:
        assert getattr(reticent, name) is not None


@pytest.mark.slow
def test_every_public_subpackage_is_reachable_without_importing_it() -> None:
    packages = {found.name for found in pkgutil.iter_modules(reticent.__path__) if found.ispkg} - NOT_PUBLIC
    assert packages <= set(reticent.__all__)
    code = f"import reticent; print({', '.join(f'reticent.{name}.__name__' for name in sorted(packages))})"
    assert in_a_fresh_process(code).split() == [f"reticent.{name}" for name in sorted(packages)]


def test_type_checkers_are_told_the_same_names() -> None:
    tree = ast.parse(Path(reticent.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    found = {name.name: node.module for node in imports for name in node.names}
    assert set(found) == set(reticent.__all__)
    assert reticent.__all__ == sorted(reticent.__all__, key=lambda name: (not name[0].isupper(), name))
    for name, module in found.items():
        assert getattr(reticent, name) is getattr(__import__(module or "", fromlist=[name]), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'reticent' has no attribute 'PrivateLerner'"):
        reticent.PrivateLerner  # noqa: B018
    assert not hasattr(reticent, "os")
    with pytest.raises(ImportError, match="cannot import name 'PrivateLerner'"):
        exec("from reticent import PrivateLerner", {})


def test_names_are_imported_by_name_and_by_star() -> None:
    space: dict[str, object] = {}
    exec("from reticent import Guarantee, plan", space)
    assert (space["Guarantee"], space["plan"]) == (reticent.Guarantee, reticent.plan)
    exec("from reticent import *", space)
    assert set(reticent.__all__) <= set(space)


def test_what_was_loaded_lazily_pickles_and_copies() -> None:
    learner = reticent.PointLearner(bits=3, epsilon=1, delta=1e-6)
    for other in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        assert type(other) is reticent.PointLearner
        assert other.get_params() == learner.get_params()
    assert pickle.loads(pickle.dumps(reticent.Guarantee)) is reticent.Guarantee


def test_help_describes_the_package() -> None:
    text = pydoc.render_doc(reticent, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert "never tells who taught it" in text
    assert "class EverlastingPredictor" in text


def test_its_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert reticent.__version__ == version("reticent")
