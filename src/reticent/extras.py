"""Optional dependencies: what each extra of the package brings, and one message where it is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from reticent.errors import MissingExtra

# The modules that code imports of each extra. `pyproject.toml` declares the packages that hold them.
EXTRAS: dict[str, tuple[str, ...]] = {
    "service": (
        "cyclopts",
        "rich",
        "msgspec",
        "starlette",
        "uvicorn",
        "httptools",
        "h11",
        "prometheus_client",
        *(() if sys.platform == "win32" else ("uvloop",)),
    ),
    "plots": ("matplotlib",),
    "arrow": ("pyarrow",),
    "onnx": ("onnx",),
}


def require(extra: str, purpose: str) -> None:
    """Raise `MissingExtra` if a module of an extra is not installed. Nothing is imported.

    Parameters
    ----------
    extra : str
        Name of the extra, a key of `EXTRAS`.
    purpose : str
        What the caller is about to do, as in "to …": "read Parquet files".

    Raises
    ------
    MissingExtra
        If a module is missing. The message names it and the extra that brings it.
    """
    missing = next((name for name in EXTRAS[extra] if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtra(f"to {purpose}, run: pip install 'reticent[{extra}]' ({missing} is missing)", extra=extra)
