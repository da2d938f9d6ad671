"""What a client of the service sends and receives: requests of the Open Inference Protocol with binary tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_matrix, as_numbers, as_text

Array = NDArray[Any]

LABELS, PROBABILITIES = "labels", "probabilities"
NUMBERS = {"BOOL": "?", "INT64": "<i8", "FP64": "<f8"}  # the type of an array, by the datatype of a tensor


class ServiceError(RuntimeError):
    """The service refused a request.

    Parameters
    ----------
    status : int
        Status code of HTTP.
    kind : str
        The last part of the problem's type, as in /docs.
    detail : str
        What the service says about it.
    """

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(f"{detail} ({status})")
        self.status, self.kind = status, kind


class Question(NamedTuple):
    """A request of HTTP; `left_out` names the columns that hold neither numbers, text nor booleans."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    left_out: tuple[str, ...] = ()


class Prediction(NamedTuple):
    """Labels, and the probabilities of all classes: one row per label, one column per class of `metadata`."""

    labels: Array
    probabilities: Array


class Reply(NamedTuple):
    """A response of HTTP; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def tensors_of(rows: Any) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The tensors of an array, a data frame or a mapping of columns, and the columns that cannot be sent, as dates.

    An array becomes one tensor named "rows", anything else one tensor per column. Only the service knows which columns
    are declared. It ignores those that are not, and names those that are missing.
    """
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):  # a data frame, of pandas or polars
        rows = {str(name): rows[name].to_numpy() for name in rows.columns}
    if not isinstance(rows, Mapping):
        return {"rows": _matrix(rows)}, ()
    tensors = {str(name): column_of(values) for name, values in rows.items()}
    if len({values.shape for values in tensors.values()}) > 1 or any(one.ndim != 1 for one in tensors.values()):
        raise ValueError("rows must be columns of one length")
    left_out = tuple(name for name, values in tensors.items() if values.dtype.kind in "cmMV")
    if tensors and len(left_out) == len(tensors):
        raise ValueError(f"rows must have a column of numbers, text or booleans, got {', '.join(map(repr, left_out))}")
    return {name: values for name, values in tensors.items() if name not in left_out}, left_out


def _matrix(rows: Any) -> Array:
    """Rows of numbers. A cell that is not a number counts as missing; only the shape is refused."""
    table: Array | None = None
    with suppress(Exception):  # a cell may be a list, or an object that raises what it likes
        table = np.asarray(rows)
    if (table is None or table.dtype.kind not in "biuf") and not isinstance(rows, np.ndarray):
        table = as_matrix(rows)
    if table is None:
        raise ValueError("rows must be rows of cells, all of one length")
    if table.ndim != 2:
        raise ValueError(f"rows must have two dimensions, got {table.ndim}")
    return as_numbers(table.ravel()).reshape(table.shape)


def column_of(values: Any) -> Array:
    """A column of numbers, or of cells, of an array, a column of a data frame, or a list."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        return values
    column: Array | None = None
    with suppress(Exception):
        column = np.asarray(values)
    kind = "" if column is None else column.dtype.kind
    # An array of strings would cut NULs off, and one of numbers would make 1 of a True among them.
    if column is None or kind not in "biuf" or (kind != "b" and bool in set(map(type, values))):
        some = list(values)
        column = np.empty(len(some), dtype=object)
        column[:] = some
    return column


def encode_request(tensors: Mapping[str, Array], outputs: Sequence[str] = (LABELS,)) -> tuple[bytes, bytes]:
    """The JSON of a request for these outputs with these tensors, and its binary data."""
    import msgspec

    inputs, data = [], []
    for name, values in tensors.items():
        if values.dtype.kind == "b":
            datatype, packed = "BOOL", values.tobytes()
        elif values.dtype.kind in "iuf":
            datatype, packed = "FP64", np.ascontiguousarray(values, dtype="<f8").tobytes()
        else:
            words = [as_text(one).encode("utf-8", "surrogatepass") for one in values.tolist()]
            datatype, packed = "BYTES", b"".join(map(_with_length, words))
        shape, size = list(values.shape), {"binary_data_size": len(packed)}
        inputs.append({"name": name, "shape": shape, "datatype": datatype, "parameters": size})
        data.append(packed)
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = {"inputs": inputs, "outputs": wanted, "parameters": {"binary_data_output": True}}
    return msgspec.json.encode(head), b"".join(data)


def _with_length(word: bytes) -> bytes:
    return struct.pack("<I", len(word)) + word


def decoded(reply: Reply) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a response, and its binary data."""
    import msgspec

    length = int(reply.headers["inference-header-content-length"])
    return msgspec.json.decode(reply.body[:length], type=dict[str, Any]), memoryview(reply.body)[length:]


def tensor_in(head: Mapping[str, Any], data: memoryview, name: str = LABELS) -> Array:
    """An output of a response: one label per row, or one row of probabilities."""
    found = None
    for output in head["outputs"]:
        size = output["parameters"]["binary_data_size"]
        if output["name"] == name:
            found = _unpacked(output, data[:size]).reshape(output["shape"])
        data = data[size:]
    if found is None:
        raise ValueError(f"the response has no output {name!r}")
    return found


def _unpacked(output: Mapping[str, Any], data: memoryview) -> Array:
    if output["datatype"] in NUMBERS:
        return np.frombuffer(data, dtype=NUMBERS[output["datatype"]]).copy()
    words, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        words.append(str(data[at + 4 : at + 4 + size], "utf-8"))
        at += 4 + size
    return np.array(words)


def json_object(reply: Reply) -> dict[str, Any]:
    """The JSON object that is the body of a response."""
    import msgspec

    return msgspec.json.decode(reply.body, type=dict[str, Any])


def error_in(reply: Reply, left_out: tuple[str, ...]) -> ServiceError:
    """The error that a response reports; columns that were not sent are named if tensors are missing."""
    import msgspec

    try:
        found = json_object(reply)
    except msgspec.DecodeError:
        return ServiceError(reply.status, "unknown", "the service refused")
    kind = str(found.get("type", "")).rpartition("#")[2]
    detail = str(found.get("error", "the service refused"))
    if kind == "wrong-tensors" and left_out:
        detail += f"; not sent, as they hold neither numbers, text nor booleans: {', '.join(map(repr, left_out))}"
    return ServiceError(reply.status, kind, detail)
