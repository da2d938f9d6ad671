"""Write a released model to a file, in one of several formats."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reticent.published.model import PublishedModel


class Format(NamedTuple):
    """A format: the suffixes of its files, the first of them by default, and how to make the bytes of one."""

    suffixes: tuple[str, ...]
    encoded: Callable[[PublishedModel], bytes]


def _json(published: PublishedModel) -> bytes:
    return (json.dumps(published.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _onnx(published: PublishedModel) -> bytes:
    from reticent.published.onnx_graph import to_onnx

    return bytes(to_onnx(published).SerializeToString())


def _sklearn(published: PublishedModel) -> bytes:
    from reticent.published.pipeline import to_pipeline

    return pickle.dumps(to_pipeline(published))  # joblib.load reads it too


FORMATS = {
    "json": Format((".json",), _json),
    "onnx": Format((".onnx",), _onnx),
    "sklearn": Format((".pkl", ".pickle", ".joblib"), _sklearn),
}


def format_of(path: Path) -> str | None:
    """The format of a file, by its suffix."""
    return next((name for name, one in FORMATS.items() if path.suffix.lower() in one.suffixes), None)


def write(published: PublishedModel, path: Path, kind: str) -> None:
    """Write a model to a new file, which is complete or not there at all.

    Parameters
    ----------
    published : PublishedModel
        The model.
    path : Path
        The file. One that exists is refused.
    kind : str
        A key of `FORMATS`.
    """
    content = FORMATS[kind].encoded(published)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        try:
            os.link(unfinished, path)  # fails if there is such a file, which a rename would replace
        except OSError:  # also where the file system has no links
            if path.exists():
                raise
            os.rename(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
