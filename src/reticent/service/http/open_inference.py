"""The Open Inference Protocol, version 2: tensors in JSON or binary, in and out."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_numbers
from reticent.service.http.json_bodies import decode_loosely, decoding_error
from reticent.service.http.problems import Problem

Array = NDArray[Any]
Rows = NDArray[np.float64]
Cells = Array | list[Any]  # of a column, or of all columns row by row

ROWS, LABELS, PROBABILITIES, ANSWER_IDS, VERSION = "rows", "labels", "probabilities", "answer_ids", "1"
HEADER_LENGTH = "inference-header-content-length"

# Of all datatypes of the protocol; numbers are little-endian. BF16, which numpy lacks, is the upper half of a float32.
NUMBERS = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<u2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
BYTES = "BYTES"
LONG = 1 << 16  # bytes of numbers, beyond which they are counted before they are read
SIZE = "data must have as many values as the shape says"


class DeclaredColumn(Protocol):
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
    def columns(self) -> Sequence[DeclaredColumn]:
        """The columns, in order."""

    @property
    def classes(self) -> Sequence[Any]:
        """The labels that there are."""

    def encode(self, table: Mapping[str, Any], /) -> Rows:
        """Columns as rows of numbers, whatever their cells hold."""


NO_DATA = msgspec.Raw()


class Tensor(msgspec.Struct, gc=False, omit_defaults=True):
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
    """What an inference request asks: rows, and how it wants its answer.

    `probabilities` and `answer_ids` say whether they are wanted as binary data; None if they are not wanted.
    """

    rows: Rows
    id: str | None
    binary: bool
    probabilities: bool | None = None
    answer_ids: bool | None = None


class LabelledTensors(NamedTuple):
    """Rows with their labels, and the names of their groups if the schema has groups; as cells, nothing is refused."""

    rows: Rows
    labels: Cells
    groups: Cells | None


_inference = msgspec.json.Decoder(Inference)
_flat = msgspec.json.Decoder(list[float | bool | None])
_nested = msgspec.json.Decoder(list[list[float | bool | None]])
_words = msgspec.json.Decoder(list[str | None])
_nested_words = msgspec.json.Decoder(list[list[str | None]])
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


# ── in ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(
    body: bytes, header_length: str | None, rules: Rules, most_rows: int, offered: tuple[str, ...] = (LABELS,)
) -> Asked:
    """The rows of a request. It is refused by form, names and shapes, never for what a cell holds.

    `offered` names the outputs that there are. As the protocol has it, a request that names no outputs wants all.
    """
    head, tail = split(body, header_length)
    try:
        inference = _inference.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        inference = _read_loosely(head, error)
    wanted = _wanted(inference, offered)
    columns = rules.columns
    tensors = _with_bytes(inference.inputs, tail)
    if len(tensors) == 1 and _is_matrix(tensors[0][0], rules):
        table = _matrix(*tensors[0], len(columns), most_rows)
        # A schema can take a table of numbers as a whole, which is much sooner for a single row.
        if (whole := getattr(rules, "encode_numbers", None)) is not None:
            return Asked(whole(table), inference.id, *wanted)
        names = [column.name for column in columns]
        return Asked(encoded(rules, dict(zip(names, table.T, strict=True))), inference.id, *wanted)
    by_name = {tensor.name: (tensor, data) for tensor, data in tensors}
    if len(by_name) < len(tensors):
        raise Problem("wrong-tensors", "two inputs have the same name")
    # Of an input that is no column, neither the shape nor the cells are looked at.
    found = {one.name: _column(*by_name[one.name], most_rows) for one in columns if one.name in by_name}
    if missing := [column for column in columns if column.name not in found]:
        form = f"one of shape [n, {len(columns)}] named {ROWS!r}, or " if all_numbers(columns) else ""
        lacking = f"there is none named {listed(missing)}"
        raise Problem("wrong-tensors", f"inputs must be {form}one per column, named {listed(columns)}; {lacking}")
    if len({len(values) for values in found.values()}) != 1:
        raise Problem("wrong-tensors", "the inputs must have the same number of rows")
    return Asked(encoded(rules, found), inference.id, *wanted)


def read_labelled(
    body: bytes, header_length: str | None, rules: Rules, most_rows: int, *, target: str, group: str | None
) -> LabelledTensors:
    """Labelled rows: the tensors of a query, one with the labels, named as the target, and one with groups, if any."""
    head, tail = split(body, header_length)
    try:
        inference = _inference.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        inference = _read_loosely(head, error)
    names = (target,) if group is None else (target, group)
    others: list[Tensor] = []
    data: list[memoryview] = []
    found: dict[str, Cells] = {}
    for tensor, part in _with_bytes(inference.inputs, tail):
        if tensor.name in names:
            found[tensor.name] = _column(tensor, part, most_rows)
        else:
            others.append(tensor)
            data += [] if part is None else [part]
    if missing := [name for name in names if name not in found]:
        raise Problem("wrong-tensors", f"there must be an input for the {'label' if missing[0] == target else 'group'} "
                      f"of each row, named {missing[0]!r}")  # fmt: skip
    queries = msgspec.json.encode(Inference(others))
    rows = read(b"".join([queries, *data]), str(len(queries)), rules, most_rows).rows  # as queries are read
    if any(len(cells) != len(rows) for cells in found.values()):
        raise Problem("wrong-tensors", "the inputs must have the same number of rows")
    return LabelledTensors(rows, found[target], None if group is None else found[group])


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


def _read_loosely(head: memoryview, error: Exception) -> Inference:
    found = decode_loosely(head, error)
    inputs = found.get("inputs") if isinstance(found, dict) else None
    for tensor in inputs if isinstance(inputs, list) else ():
        if isinstance(tensor, dict) and "data" in tensor:
            tensor["data"] = msgspec.Raw(json.dumps(tensor["data"]).encode())
    try:
        inference = msgspec.convert(found, Inference)
        (inference.id or "").encode()  # it is sent back, and half of a character cannot be
    except msgspec.ValidationError as wrong:
        raise Problem("malformed", decoding_error(wrong)) from None
    except UnicodeEncodeError:
        raise Problem("malformed", "the id must be text") from None
    return inference


def encoded(rules: Rules, table: Mapping[str, Any]) -> Rows:
    """The columns as rows of numbers; no cell is refused."""
    numbers = {one.name: as_numbers(table[one.name]) for one in rules.columns if one.kind == "number"}
    return rules.encode({**table, **numbers})


def in_one_column(entry: Any) -> Any:
    """The cell of a row of one column, which stands alone or in a list."""
    return entry[0] if isinstance(entry, list) and len(entry) == 1 else entry


def listed(columns: Sequence[DeclaredColumn]) -> str:
    """The names of columns, in words."""
    names = [repr(column.name) for column in columns]
    return ", ".join(names if len(names) <= 20 else [*names[:20], f"… ({len(names)} in all)"])


def all_numbers(columns: Sequence[DeclaredColumn]) -> bool:
    """Whether all columns hold numbers."""
    return all(column.kind == "number" for column in columns)


def _is_matrix(tensor: Tensor, rules: Rules) -> bool:
    """Whether a lone tensor holds all columns. A vector is one column, by its name, unless it is named `rows`."""
    if tensor.name != ROWS and (len(tensor.shape) == 1 or any(tensor.name == one.name for one in rules.columns)):
        return False
    known: bool | None = getattr(rules, "only_numbers", None)  # a schema knows it without a look at each column
    return all_numbers(rules.columns) if known is None else known


def _wanted(inference: Inference, offered: tuple[str, ...]) -> tuple[bool, bool | None, bool | None]:
    """Whether labels, probabilities and answer ids are wanted as binary data; None for what is not wanted."""
    binary = _flag(inference.parameters, "binary_data_output")
    if not inference.outputs:
        return binary, *(binary if one in offered else None for one in (PROBABILITIES, ANSWER_IDS))  # type: ignore[return-value]
    found: dict[str, bool] = {}
    for wanted in inference.outputs:
        if wanted.name not in offered:
            others = f"there is one output, named {LABELS!r}"
            raise Problem("wrong-tensors", others if len(offered) == 1 else f"the outputs are {' and '.join(offered)}")
        if wanted.parameters and wanted.parameters.get("classification"):
            instead = f"ask for the output {PROBABILITIES!r}"
            instead = instead if PROBABILITIES in offered else "only the label is private"
            raise Problem("wrong-tensors", f"classification is not offered: {instead}")
        found[wanted.name] = _flag(wanted.parameters, "binary_data", binary)
    return found.get(LABELS, binary), found.get(PROBABILITIES), found.get(ANSWER_IDS)


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
    return as_numbers(_cells(tensor, data, _checked_rows(shape[0], most_rows), width)).reshape(-1, width)


def _column(tensor: Tensor, data: memoryview | None, most_rows: int) -> Cells:
    shape = tensor.shape
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        raise Problem("wrong-tensors", "the shape of an input that is a column must be [n] or [n, 1]")
    return _cells(tensor, data, _checked_rows(shape[0], most_rows), 1)


def _checked_rows(rows: int, most_rows: int) -> int:
    if rows < 1:
        raise Problem("wrong-tensors", "there must be at least one row")
    if rows > most_rows:
        raise Problem("too-large", f"there may be at most {most_rows} rows in a request")
    return rows


def _cells(tensor: Tensor, data: memoryview | None, rows: int, width: int) -> Cells:
    """The cells of a tensor, row by row. A tensor is refused by its datatype and size, never for what a cell holds."""
    dtype = NUMBERS.get(tensor.datatype)
    if dtype is None and tensor.datatype != BYTES:
        raise Problem("wrong-tensors", f"the datatype must be one of {', '.join(NUMBERS)} or {BYTES}")
    if data is None:
        return _from_json(tensor, rows, width)
    if dtype is None:
        return _unpacked(data, rows * width)
    if len(data) != rows * width * np.dtype(dtype).itemsize:
        raise Problem("wrong-tensors", "binary_data_size must be the size of the shape and datatype")
    if tensor.datatype == "BF16":
        return (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    if tensor.datatype == "BOOL":  # any byte but 0 is true; numpy wants 0 and 1
        return np.frombuffer(data, dtype=np.uint8).astype(np.bool_)
    return np.frombuffer(data, dtype=dtype).astype(np.float64)


def _from_json(tensor: Tensor, rows: int, width: int) -> Cells:
    """The cells of a tensor in JSON: a list of rows, or of all cells. Its datatype says nothing that JSON does not."""
    raw = tensor.data
    if len(raw) > LONG and _is_too_long(bytes(raw), rows, width):
        raise Problem("wrong-tensors", SIZE)
    flat, nested = (_words, _nested_words) if tensor.datatype == BYTES else (_flat, _nested)
    try:  # sooner, where all cells are what the datatype says
        try:
            found: Any = flat.decode(raw)
        except msgspec.ValidationError:
            found = nested.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = decode_loosely(raw, error)
    if not isinstance(found, list):
        raise Problem("wrong-tensors", "data must be a list of cells, or of rows of cells")
    return _arranged(found, rows, width)


def _arranged(found: list[Any], rows: int, width: int) -> list[Any]:
    """Cells row by row, of a list of them or of rows. Only its size, and that of its rows, is looked at."""
    if width == 1 and len(found) == rows:
        return [in_one_column(entry) for entry in found]
    if len(found) == rows and all(isinstance(row, list) and len(row) == width for row in found):
        return [cell for row in found for cell in row]
    if len(found) != rows * width:
        raise Problem("wrong-tensors", SIZE)
    return found


def _is_too_long(raw: bytes, rows: int, width: int) -> bool:
    """Whether the number of cells is wrong, if that can be seen without reading them.

    Values that nobody asked for are not even read: as objects they would take twenty times as much. Where cells are
    nested or text, they are read before they are counted.
    """
    bare = _STRING.sub(b"0", raw).translate(None, b" \t\r\n")
    if b"{" in bare:
        return False
    lists = bare.count(b"[")
    of_rows = width > 1 and (  # in one column such a list is a cell
        lists == rows + 1 and bare.startswith(b"[[") and bare.endswith(b"]]") and bare.count(b"],[") == rows - 1
    )
    return (lists == 1 or of_rows) and bare.count(b",") + 1 != rows * width


def _unpacked(data: memoryview, count: int) -> list[str]:
    """Strings, each after its length in four bytes; bytes that are no text are read as marks for that."""
    values: list[str] = []
    at = 0
    try:
        while at < len(data) and len(values) <= count:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4 + size
            if at > len(data):
                raise ValueError
            values.append(str(data[at - size : at], "utf-8", "replace"))
    except (struct.error, ValueError):
        raise Problem("wrong-tensors", f"binary data of {BYTES} must be strings, each after its length") from None
    if len(values) != count:
        raise Problem("wrong-tensors", SIZE)
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
        self,
        labels: Sequence[Any],
        *,
        model: str,
        id: str | None,
        parameters: Mapping[str, Any],
        binary: bool,
        probabilities: tuple[Rows, bool] | None = None,
        answer_ids: tuple[Sequence[str], bool] | None = None,
    ) -> tuple[bytes, int | None]:
        """The body of the answer, and how much of it is JSON if the rest is not.

        `probabilities` are those of all classes, and whether they are binary data; so are `answer_ids`.
        """
        outputs: list[dict[str, Any]] = [{"name": LABELS, "datatype": self.datatype, "shape": [len(labels)]}]
        data = b""
        if binary:
            data = self.packed(labels)
            outputs[0]["parameters"] = {"binary_data_size": len(data)}
        else:
            outputs[0]["data"] = self.values(labels)
        if probabilities is not None:
            values, packed = probabilities
            outputs.append({"name": PROBABILITIES, "datatype": "FP64", "shape": list(values.shape)})
            if packed:
                outputs[1]["parameters"] = {"binary_data_size": values.size * 8}
                data += np.ascontiguousarray(values, dtype=NUMBERS["FP64"]).tobytes()
            else:
                outputs[1]["data"] = values.ravel().tolist()
        if answer_ids is not None:
            ids, packed = answer_ids
            outputs.append({"name": ANSWER_IDS, "datatype": BYTES, "shape": [len(ids)]})
            if packed:
                data += (words := Answer(BYTES).packed(ids))
                outputs[-1]["parameters"] = {"binary_data_size": len(words)}
            else:
                outputs[-1]["data"] = list(ids)
        reply: dict[str, Any] = {"model_name": model, "model_version": VERSION}
        if id is not None:
            reply["id"] = id
        reply["parameters"] = parameters
        reply["outputs"] = outputs
        head = msgspec.json.encode(reply)
        return head + data, len(head) if any("data" not in one for one in outputs) else None
