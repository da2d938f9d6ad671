"""The check finds uses of another module's private names, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import private_names
import pytest

FILE = Path("module.py")


def found(source: str) -> list[str]:
    return [use.name for use in private_names.uses(ast.parse(source), FILE)]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from reticent.noise import _draw", ["_draw"]),
        ("from reticent.noise import Noise, _draw as draw", ["_draw"]),
        ("from . import _draw", ["_draw"]),
        ("import reticent._noise", ["reticent._noise"]),
        ("from reticent._noise import draw", ["reticent._noise"]),
        ("from reticent import noise\nnoise._draw()", ["noise._draw"]),
        ("import reticent.noise\nreticent.noise._draw()", ["reticent.noise._draw"]),
        ("import reticent.noise as n\nn._draw()", ["n._draw"]),
        ("def f():\n    from reticent import noise\n    noise._draw()", ["noise._draw"]),
        ("from reticent.noise import Noise\nNoise._draw", ["Noise._draw"]),
        ("from reticent.noise import Noise\n_draw = Noise._draw", ["Noise._draw"]),
        ("from reticent.noise import Noise\nNoise()._draw", ["Noise()._draw"]),
        ("def f(other):\n    return other._draw", ["other._draw"]),
        ("class A:\n    def f(self):\n        return self.noise._draw", ["self.noise._draw"]),
        ("def f(other):\n    other._drawn = 1", ["other._drawn"]),
    ],
)
def test_private_names_of_others_are_found(source: str, names: list[str]) -> None:
    assert found(source) == names


@pytest.mark.parametrize(
    "source",
    [
        "from reticent.noise import Noise",
        "from numpy import _core",
        "import os\nos._exit(1)",
        "import numpy as np\nnp._core.thing",
        "class A(B):\n    def f(self):\n        return self._drawn + super()._draw() + type(self)._made",
        "class A(B):\n    @classmethod\n    def f(cls):\n        return cls._made",
        "class A:\n    def f(self):\n        self._x = 1\n    def __eq__(self, other):\n        return other._x == 1",
        "class A:\n    def _f(self): ...\ndef g(a):\n    return a._f()",
        "class A:\n    __slots__ = ('_x',)\ndef g(a):\n    return a._x",
        "def f(plan):\n    return plan._replace(width=0)._asdict()",
        "_ = 1\ndef _f(): ...\n_f()",
    ],
)
def test_other_names_are_not(source: str) -> None:
    assert found(source) == []


def test_files_are_named_and_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    assert private_names.main(tmp_path) == 0
    (tmp_path / "bad.py").write_text("\nfrom reticent.noise import _draw\n")
    capsys.readouterr()
    assert private_names.main(tmp_path) == 1
    assert capsys.readouterr().out == "bad.py:2: _draw\n1 uses of another module's private names\n"
