"""List every use of another module's private names in the package: names that begin with one underscore.

    python tools/private_names.py [FOLDER]

Found are, by reading the source alone:

- `from reticent.x import _y` and `import reticent._x`,
- `x._y` where `x` is an imported module of the package, or a class or function imported from one,
- `object._y` where the object is neither `self`, `cls` nor `super()`, and the same module nowhere defines or assigns
  `_y`: then only another module can have set it.

A subclass may use what its base class keeps with one underscore: `self._y` is never reported. Nor are private names of
other packages, such as `os._exit`. Exit code 1 if there is any use.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "reticent"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE
# Public by their documentation: methods of namedtuples.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}


class Use(NamedTuple):
    """A private name of another module, and where it is used."""

    file: Path
    line: int
    name: str


def private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in PUBLIC


def uses(tree: ast.Module, file: Path, package: str = PACKAGE) -> Iterator[Use]:
    """The private names of other modules that a module uses."""
    own = defined(tree)
    imported: set[str] = set()
    foreign: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == package):
            imported |= {one.asname or one.name for one in node.names}
            yield from (Use(file, node.lineno, one.name) for one in node.names if private(one.name))
            if any(private(part) for part in (node.module or "").split(".")):
                yield Use(file, node.lineno, node.module or "")
        elif isinstance(node, ast.Import):
            ours = [one for one in node.names if one.name.split(".")[0] == package]
            imported |= {one.asname or package for one in ours}
            foreign |= {one.asname or one.name.split(".")[0] for one in node.names if one not in ours}
            yield from (Use(file, node.lineno, one.name) for one in ours if any(map(private, one.name.split("."))))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and private(node.attr)) or is_own(node.value):
            continue
        start = root(node.value)
        if start in imported or (node.attr not in own and start not in foreign):
            yield Use(file, node.lineno, ast.unparse(node))


def defined(tree: ast.Module) -> set[str]:
    """The private names that a module defines or assigns: its own, and those of its classes and their instances."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # __slots__
            found.add(node.value)
    return found


def is_own(value: ast.expr) -> bool:
    """Whether it is `self`, `cls`, `type(self)` or `super()`."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("super", "type")
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def root(value: ast.expr) -> str | None:
    """The name that a chain of attributes begins with."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def main(folder: Path = SOURCE) -> int:
    """Print what there is in a folder."""
    found: list[Use] = []
    for file in sorted(folder.rglob("*.py")):
        found += sorted(set(uses(ast.parse(file.read_text(encoding="utf-8")), file.relative_to(folder))))
    for use in found:
        print(f"{use.file}:{use.line}: {use.name}")
    print(f"{len(found)} uses of another module's private names")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
