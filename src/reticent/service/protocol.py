"""The Open Inference Protocol, version 2: tensors in JSON or binary, in and out."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from reticent.service.problems import Problem

Array = NDArray[Any]
Rows = NDArray[np.float64]

ROWS, LABELS, VERSION = "rows", "labels", "1"
HEADER_LENGTH = "inference-header-content-length"

# Of all datatypes of the protocol; numbers are little-endian. BF16, which numpy lacks, is the upper half of a float32.
NUMBERS = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<u2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
BYTES = "BYTES"
LONG = 1 << 16  # bytes of numbers, beyond which they are counted before they are read


class Column(Protocol):
    """A column as the schema describes it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """Either "number" or "category"."""


class Rules(Protocol):
    """What the service needs of a schema: public rules alone."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns, in order."""

    @property
    def classes(self) -> Sequence[Any]:
        """The labels that there are."""

    def encode(self, table: Mapping[str, Any], /) -> Rows:
        """Columns as rows of numbers, NaN for what is outside of the rules."""


NO_DATA = msgspec.Raw()


class Tensor(msgspec.Struct, gc=False):
    """A tensor of a request."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: msgspec.Raw = NO_DATA


class Wanted(msgspec.Struct, gc=False):
    """An output that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class Inference(msgspec.Struct):
    """The JSON of a request."""

    inputs: list[Tensor]
    id: str | None = None
    outputs: list[Wanted] | None = None
    parameters: dict[str, Any] | None = None


class Asked(NamedTuple):
    """What an inference request asks: rows, and how it wants its answer."""

    rows: Rows
    id: str | None
    binary: bool


_inference = msgspec.json.Decoder(Inference)
_flat = msgspec.json.Decoder(list[float | bool | None])
_nested = msgspec.json.Decoder(list[list[float | bool | None]])
_words = msgspec.json.Decoder(list[str | None])
_nested_words = msgspec.json.Decoder(list[list[str | None]])


# ── in ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(body: bytes, header_length: str | None, rules: Rules, most_rows: int) -> Asked:
    """The rows of a request. It is refused by form, types and shapes, never by the values of its rows."""
    head, tail = split(body, header_length)
    try:
        inference = _inference.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        inference = _read_loosely(head, error)
    binary = _wants_binary(inference)
    columns = rules.columns
    tensors = _with_bytes(inference.inputs, tail)
    if len(tensors) == 1 and _is_matrix(tensors[0][0], rules):
        table = _matrix(*tensors[0], len(columns), most_rows)
        # A schema can take a table of numbers as a whole, which is much sooner for a single row.
        if (whole := getattr(rules, "encode_numbers", None)) is not None:
            return Asked(whole(table), inference.id, binary)
        names = [column.name for column in columns]
        return Asked(encoded(rules, dict(zip(names, table.T, strict=True))), inference.id, binary)
    found: dict[str, Array] = {}
    for tensor, data in tensors:
        if tensor.name in found:
            raise Problem("wrong-tensors", "two inputs have the same name")
        found[tensor.name] = _column(tensor, data, most_rows)
    missing = [column.name for column in columns if column.name not in found]
    if missing or len(found) > len(columns):
        form = f"one of shape [n, {len(columns)}] named {ROWS!r}, or " if _all_numbers(columns) else ""
        raise Problem("wrong-tensors", f"inputs must be {form}one a column, named {listed(columns)}")
    if len({len(values) for values in found.values()}) != 1:
        raise Problem("wrong-tensors", "the inputs must have the same number of rows")
    for column in columns:
        if column.kind == "number" and found[column.name].dtype == object:
            raise Problem("wrong-tensors", f"the input {column.name!r} must hold numbers, not {BYTES}")
    return Asked(encoded(rules, found), inference.id, binary)


def split(body: bytes, header_length: str | None) -> tuple[memoryview, memoryview]:
    """The JSON and the binary data after it."""
    view = memoryview(body)
    if header_length is None:
        return view, view[:0]
    # isdigit alone would take digits of other scripts, and int() spaces, signs and underscores.
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 16):
        raise Problem("malformed", "Inference-Header-Content-Length must be a whole number")
    length = int(header_length)
    if length > len(view):
        raise Problem("malformed", "Inference-Header-Content-Length must be at most the length of the body")
    return view[:length], view[length:]


def loosely(body: bytes | memoryview | msgspec.Raw, error: Exception) -> Any:
    """JSON of which `error` was said, with NaN, Infinity and numbers beyond all floats, as many clients write them.

    They are no JSON, but to refuse them would be to refuse a query for its values.
    """
    try:
        text = str(body, "utf-8")
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # a whole number of more digits than Python takes
            found = json.loads(text, parse_int=_whole)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()  # half of a character is none
    except (ValueError, RecursionError):
        raise Problem("malformed", said(error)) from None
    return found


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 300 else float(digits)


def as_floats(values: Sequence[Any]) -> list[Any]:
    """Whole numbers that are beyond all floats as infinities."""
    return [_as_float(one) if type(one) is int else one for one in values]


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _read_loosely(head: memoryview, error: Exception) -> Inference:
    found = loosely(head, error)
    inputs = found.get("inputs") if isinstance(found, dict) else None
    for tensor in inputs if isinstance(inputs, list) else ():
        if isinstance(tensor, dict) and "data" in tensor:
            tensor["data"] = msgspec.Raw(json.dumps(tensor["data"]).encode())
    try:
        return msgspec.convert(found, Inference)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise Problem("malformed", said(wrong)) from None


def said(error: Exception) -> str:
    """What msgspec found wrong: it names types and places, and none of our types makes it name a value."""
    return str(error) if isinstance(error, msgspec.DecodeError) else "the body must be JSON in UTF-8"


def encoded(rules: Rules, table: Mapping[str, Any], kind: str = "wrong-tensors") -> Rows:
    """The columns as rows of numbers."""
    try:
        return rules.encode(table)
    except (TypeError, ValueError, OverflowError):
        raise Problem(kind, "a column holds another type than the schema declares") from None


def listed(columns: Sequence[Column]) -> str:
    """The names of columns, in words."""
    names = [repr(column.name) for column in columns]
    return ", ".join(names if len(names) <= 20 else [*names[:20], f"… ({len(names)} in all)"])


def _all_numbers(columns: Sequence[Column]) -> bool:
    return all(column.kind == "number" for column in columns)


def _is_matrix(tensor: Tensor, rules: Rules) -> bool:
    """Whether a lone tensor holds all columns; one column by its own name may be a vector."""
    if tensor.name != ROWS and any(tensor.name == one.name for one in rules.columns):
        return False
    known: bool | None = getattr(rules, "only_numbers", None)  # a schema knows it without a look at each column
    return _all_numbers(rules.columns) if known is None else known


def _wants_binary(inference: Inference) -> bool:
    binary = _flag(inference.parameters, "binary_data_output")
    for wanted in inference.outputs or ():
        if wanted.name != LABELS:
            raise Problem("wrong-tensors", f"there is one output, named {LABELS!r}")
        if wanted.parameters and wanted.parameters.get("classification"):
            raise Problem("wrong-tensors", "classification is not offered: only the label is private")
        binary = _flag(wanted.parameters, "binary_data", binary)
    return binary


def _flag(parameters: Mapping[str, Any] | None, name: str, otherwise: bool = False) -> bool:
    value = (parameters or {}).get(name, otherwise)
    if not isinstance(value, bool):
        raise Problem("malformed", f"the parameter {name} must be true or false")
    return value


def _with_bytes(inputs: Sequence[Tensor], tail: memoryview) -> list[tuple[Tensor, memoryview | None]]:
    """Each tensor with its part of the binary data, which must be used up exactly."""
    if not inputs:
        raise Problem("wrong-tensors", "inputs must hold at least one tensor")
    result: list[tuple[Tensor, memoryview | None]] = []
    for tensor in inputs:
        size = (tensor.parameters or {}).get("binary_data_size")
        if (size is None) == (tensor.data is NO_DATA):
            raise Problem("malformed", "an input must have either data or the parameter binary_data_size")
        if size is None:
            result.append((tensor, None))
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(tail):
            raise Problem("malformed", "binary_data_size must be a whole number, and no more than the data sent")
        result.append((tensor, tail[:size]))
        tail = tail[size:]
    if len(tail):
        raise Problem("malformed", "there are more binary data than the inputs declare")
    return result


def _matrix(tensor: Tensor, data: memoryview | None, width: int, most_rows: int) -> Array:
    shape = tensor.shape
    fits = (len(shape) == 2 and shape[1] == width) or (len(shape) == 1 and width == 1)
    if not fits:
        raise Problem("wrong-tensors", f"the shape of the input must be [n, {width}]")
    return _numbers(tensor, data, _checked_rows(shape[0], most_rows) * width).reshape(-1, width)


def _column(tensor: Tensor, data: memoryview | None, most_rows: int) -> Array:
    shape = tensor.shape
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        raise Problem("wrong-tensors", "the shape of an input that is a column must be [n] or [n, 1]")
    rows = _checked_rows(shape[0], most_rows)
    return _strings(tensor, data, rows) if tensor.datatype == BYTES else _numbers(tensor, data, rows)


def _checked_rows(rows: int, most_rows: int) -> int:
    if rows < 1:
        raise Problem("wrong-tensors", "there must be at least one row")
    if rows > most_rows:
        raise Problem("too-large", f"there may be at most {most_rows} rows in a request")
    return rows


def _numbers(tensor: Tensor, data: memoryview | None, count: int) -> Rows:
    dtype = NUMBERS.get(tensor.datatype)
    if dtype is None:
        raise Problem("wrong-tensors", f"the datatype must be one of {', '.join(NUMBERS)}; {BYTES} for categories")
    if data is None:
        # Values that nobody asked for are not even read: as objects they would take twenty times as much.
        if len(tensor.data) > LONG and bytes(tensor.data).count(b",") + 1 != count:
            raise Problem("wrong-tensors", "data must have as many values as the shape says")
        values = _from_json(tensor)
    elif len(data) != count * np.dtype(dtype).itemsize:
        raise Problem("wrong-tensors", "binary_data_size must be the size of the shape and datatype")
    elif tensor.datatype == "BF16":
        values = (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    elif tensor.datatype == "BOOL":  # any byte but 0 is true; numpy wants 0 and 1
        values = (np.frombuffer(data, dtype=np.uint8) != 0).astype(np.float64)
    else:
        values = np.frombuffer(data, dtype=dtype).astype(np.float64)
    if len(values) != count:
        raise Problem("wrong-tensors", "data must have as many values as the shape says")
    return values


def _from_json(tensor: Tensor) -> Rows:
    raw = tensor.data
    try:
        try:
            return np.array(_flat.decode(raw), dtype=np.float64)
        except msgspec.ValidationError:
            return np.array(_nested.decode(raw), dtype=np.float64).ravel()
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        return _numbers_loosely(raw, error)


def _numbers_loosely(raw: msgspec.Raw, error: Exception) -> Rows:
    try:
        found = loosely(raw, error)
        if isinstance(found, list) and found and isinstance(found[0], list):
            width = len(found[0])
            if any(not isinstance(row, list) or len(row) != width for row in found):
                raise ValueError
            found = [one for row in found for one in row]
        return np.array(msgspec.convert(as_floats(found), list[float | bool | None]), dtype=np.float64)
    except (Problem, ValueError, TypeError):
        raise Problem("wrong-tensors", "data must be a list of numbers, or of lists of one length") from None


def _strings(tensor: Tensor, data: memoryview | None, count: int) -> Array:
    values = _words_from_json(tensor) if data is None else _unpacked(data, count)
    if len(values) != count:
        raise Problem("wrong-tensors", "data must have as many values as the shape says")
    result = np.empty(count, dtype=object)
    result[:] = values
    return result


def _words_from_json(tensor: Tensor) -> list[str | None]:
    raw = tensor.data
    try:
        try:
            return _words.decode(raw)
        except msgspec.ValidationError:
            nested = _nested_words.decode(raw)
            if any(len(row) != 1 for row in nested):
                raise ValueError from None
            return [row[0] for row in nested]
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Problem("wrong-tensors", f"data of datatype {BYTES} must be a list of strings") from None


def _unpacked(data: memoryview, count: int) -> list[str | None]:
    """Strings, each after its length in four bytes."""
    values: list[str | None] = []
    at = 0
    try:
        while at < len(data) and len(values) <= count:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4 + size
            if at > len(data):
                raise ValueError
            values.append(str(data[at - size : at], "utf-8"))
    except (struct.error, ValueError):
        raise Problem("wrong-tensors", f"binary data of {BYTES} must be lengths in four bytes and UTF-8") from None
    return values


# ── out ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Answer(NamedTuple):
    """How labels are written down; a function of the classes, and so the same for every answer."""

    datatype: str

    @classmethod
    def of(cls, classes: Sequence[Any]) -> Answer:
        """The datatype that holds all classes."""
        values = [one.item() if isinstance(one, np.generic) else one for one in classes]
        if all(isinstance(one, bool) for one in values):
            return cls("BOOL")
        if all(isinstance(one, int) and not isinstance(one, bool) and -(2**63) <= one < 2**63 for one in values):
            return cls("INT64")
        if all(isinstance(one, float) and math.isfinite(one) for one in values):
            return cls("FP64")
        return cls(BYTES)

    def values(self, labels: Sequence[Any]) -> list[Any]:
        """Labels for JSON."""
        plain = labels.tolist() if isinstance(labels, np.ndarray) else labels
        if self.datatype == BYTES:
            return [one if type(one) is str else str(one) for one in plain]
        if plain and isinstance(plain[0], np.generic):
            return [one.item() for one in plain]
        return list(plain)

    def prefix(self, count: int, *, model: str, parameters: Mapping[str, Any]) -> bytes:
        """What comes before the labels in an answer in JSON."""
        nothing = Answer(self.datatype).written([], model=model, id=None, parameters=parameters, binary=False)[0]
        return nothing.replace(b'"shape":[0],"data":[]}]}', b'"shape":[%d],"data":[' % count)

    def plain(self, labels: Sequence[Any], prefix: bytes) -> bytes:
        """The answer in JSON that begins so: the same as is `written`, sooner."""
        return b"%b%b]}]}" % (prefix, msgspec.json.encode(self.values(labels))[1:-1])

    def packed(self, labels: Sequence[Any]) -> bytes:
        """Labels as binary data."""
        if self.datatype != BYTES:
            return np.asarray(labels, dtype=NUMBERS[self.datatype]).tobytes()
        words = [one.encode() for one in self.values(labels)]
        return b"".join(struct.pack("<I", len(word)) + word for word in words)

    def written(
        self, labels: Sequence[Any], *, model: str, id: str | None, parameters: Mapping[str, Any], binary: bool
    ) -> tuple[bytes, int | None]:
        """The body of the answer, and how much of it is JSON if the rest is not."""
        output: dict[str, Any] = {"name": LABELS, "datatype": self.datatype, "shape": [len(labels)]}
        reply: dict[str, Any] = {"model_name": model, "model_version": VERSION}
        if id is not None:
            reply["id"] = id
        reply["parameters"] = parameters
        reply["outputs"] = [output]
        if not binary:
            output["data"] = self.values(labels)
            return msgspec.json.encode(reply), None
        data = self.packed(labels)
        output["parameters"] = {"binary_data_size": len(data)}
        head = msgspec.json.encode(reply)
        return head + data, len(head)


def metadata(name: str, rules: Rules) -> dict[str, Any]:
    """What there is to know about the model before one asks."""
    columns = rules.columns
    if _all_numbers(columns):
        inputs = [{"name": ROWS, "datatype": "FP64", "shape": [-1, len(columns)]}]
    else:
        kinds = {"number": "FP64", "category": BYTES}
        inputs = [{"name": one.name, "datatype": kinds[one.kind], "shape": [-1]} for one in columns]
    return {
        "name": name,
        "versions": [VERSION],
        "platform": "reticent",
        "inputs": inputs,
        "outputs": [{"name": LABELS, "datatype": Answer.of(rules.classes).datatype, "shape": [-1]}],
        "parameters": {"columns": [one.name for one in columns], "classes": [str(one) for one in rules.classes]},
    }


def server_metadata(version: str) -> dict[str, Any]:
    """What there is to know about the server."""
    return {"name": "reticent", "version": version, "extensions": ["binary_tensor_data"]}
