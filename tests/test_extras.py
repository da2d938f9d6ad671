"""Without an extra the library works, and what needs the extra names it."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import reticent
from reticent import extras
from reticent.__main__ import main
from reticent.errors import MissingExtra

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HIDDEN = sorted({name for names in extras.EXTRAS.values() for name in names})

# For a fresh process: as if no extra were installed.
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}))\n"


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False)


def hide(patch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        patch.setitem(sys.modules, name, None)


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[>\[;<]", one)[0].lower().replace("-", "_") for one in requirements}


def test_the_core_is_the_library() -> None:
    core = {"numpy", "scipy", "scikit_learn", "threadpoolctl", "mpmath", "joblib"}
    assert packages(DECLARED["dependencies"]) == core


@pytest.mark.parametrize("extra", sorted(extras.EXTRAS))
def test_the_modules_of_an_extra_are_those_it_declares(extra: str) -> None:
    everywhere = {"uvloop"} if extra == "service" else set()  # the table leaves it out on Windows
    assert packages(DECLARED["optional-dependencies"][extra]) == {*extras.EXTRAS[extra]} | everywhere


@pytest.mark.parametrize("extra", sorted(extras.EXTRAS))
def test_a_missing_extra_is_named(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extras.require(extra, "do this")
    for name in extras.EXTRAS[extra]:
        with monkeypatch.context() as patch:
            hide(patch, name)
            with pytest.raises(MissingExtra) as caught:
                extras.require(extra, "do this")
        assert str(caught.value) == f"to do this, run: pip install 'reticent[{extra}]' ({name} is missing)"
        assert caught.value.extra == extra


def test_the_error_survives_pickling() -> None:
    error = MissingExtra("to see, install it", extra="plots")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.extra) == (MissingExtra, str(error), "plots")


def test_the_command_names_the_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hide(monkeypatch, "cyclopts", "uvicorn")
    assert main(["--help"]) == 2
    message = "to use the reticent command, run: pip install 'reticent[service]' (cyclopts is missing)"
    assert capsys.readouterr() == ("", f"reticent: {message}\n")


def test_the_command_runs_where_the_service_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    assert "everlasting" in capsys.readouterr().out


@pytest.mark.parametrize("client", ["Client", "AsyncClient"])
def test_a_client_names_the_service(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "h11")
    with pytest.raises(MissingExtra, match=r"^to ask a service, run: pip install 'reticent\[service\]' \(h11 is"):
        getattr(reticent, client)(model="clinic")


@pytest.mark.parametrize(
    ("module", "purpose"),
    [
        ("reticent.service.http", "serve predictions over HTTP"),
        ("reticent.service.http.service", "serve predictions over HTTP"),
        ("reticent.cli", "use the reticent command"),
    ],
)
def test_a_module_of_the_service_names_the_extra(module: str, purpose: str) -> None:
    done = without_extras(f"import {module}")
    assert done.returncode == 1
    message = f"reticent.errors.MissingExtra: to {purpose}, run: pip install 'reticent[service]' (cyclopts is missing)"
    assert done.stderr.splitlines()[-1] == message


@pytest.mark.slow
def test_the_library_works_without_any_extra() -> None:
    done = without_extras("""
import pydoc
import numpy as np
from reticent import *
import reticent as rt

assert rt.Client is Client and rt.AsyncClient.__name__ == "AsyncClient"
assert "class Client" in pydoc.render_doc(rt, renderer=pydoc.plaintext)
x = np.arange(4000) % 8
learner = rt.PointLearner(bits=3, epsilon=1, delta=1e-6).fit(x[:, None], x == 5)
assert len(learner.predict([[5]])) == 1
found = rt.audit.empirical(lambda bit: bit, 0, 1, delta=0, runs=100)
assert found.epsilon_lower > 0
print("done")
""")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
