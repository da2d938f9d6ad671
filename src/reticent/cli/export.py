"""`reticent export`: write a released model to a file that other programs can use."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.opening import existing_folder, open_to_read, schema_of
from reticent.cli.own_parts import Own, OwnParts

if TYPE_CHECKING:
    from reticent.published import PublishedModel

USE = {
    "json": 'In Python: reticent.published.PublishedModel.read("{path}").',
    "onnx": "Inputs are the columns, each of shape [rows, 1]: float64, or text. Outputs are labels and probabilities.",
    "sklearn": (
        'In Python: pickle.load(open("{path}", "rb")).predict(frame), with the same versions of scikit-learn and numpy.'
    ),
}


def export(name: str, *, to: str, out: Path | None = None, own: Own = None) -> int:
    """Write the private model of a predictor to a file, for other programs. A private model is public.

    It gives the labels and probabilities of the service. The guarantee is in the file. Votes have no model that may be
    published. Of a chain, the model that answers now is written. The predictor may be served meanwhile.

    Parameters
    ----------
    name
        The predictor.
    to
        A new file: model.json, model.onnx, or model.pkl for a scikit-learn pipeline. Or a format: json, onnx, sklearn.
    out
        The file, if --to is a format; by default the name of the predictor with the suffix of the format.
    """
    from reticent.published.files import write

    with as_usage_errors():
        kind, path = _target(name, to, out)
        existing_folder(name)
        if path.exists():
            raise UsageError(f"{path} exists: delete it, or name another file")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}")
        published = _published(name, own)
        write(published, path, kind)
    print(f"The model is in {path}. {USE[kind].format(path=path)}\n{_protects(name, published)}")
    return 0


def _protects(name: str, published: PublishedModel) -> str:
    """The guarantee of the file in two sentences."""
    promise = published.guarantee
    together = ", each group together" if promise.unit == "group" else ""
    return (
        f"Its guarantee is ε = {promise.epsilon:g}, δ = {promise.delta:g} for {promise.protects}{together}. You may "
        f"publish it. The whole guarantee is in the file, in words; to see it: reticent status {shlex.quote(name)}"
    )


def _target(name: str, to: str, out: Path | None) -> tuple[str, Path]:
    """The format and the file."""
    from reticent.published.files import FORMATS, format_of

    if to in FORMATS:
        return to, Path(name + FORMATS[to].suffixes[0]) if out is None else out
    if out is not None:
        raise UsageError(f"--out needs a format for --to, one of {', '.join(FORMATS)}, got {to!r}")
    kind = format_of(Path(to))
    if kind is None:
        suffixes = ", ".join(suffix for one in FORMATS.values() for suffix in one.suffixes)
        raise UsageError(f"--to must be a file that ends in {suffixes}, or one of {', '.join(FORMATS)}, got {to!r}")
    return kind, Path(to)


def _published(name: str, own: OwnParts | None) -> PublishedModel:
    from reticent.predictors.everlasting import EverlastingPredictor
    from reticent.published import NotPublic, PublishedModel

    with open_to_read(name) as home:
        predictor = EverlastingPredictor.load(home.state, again=True, **(own.imported() if own else {}))
        try:
            return PublishedModel.of(predictor, schema_of(home.folder, home.model))
        except NotPublic as error:
            raise UsageError(f"{name} cannot be exported: {error}") from None
