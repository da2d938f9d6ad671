"""What a client of the service sends and receives of labels that arrive later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_text
from reticent.service.client_messages import column_of, tensors_of

Array = NDArray[Any]

ANSWER_IDS = "answer_ids"
ID = re.compile("[0-9a-f]{32}")  # of an answer


class IdentifiedAnswers(NamedTuple):
    """Labels, and an id for each, by which the true label can be given later."""

    labels: Array
    answer_ids: Array


class Taught(NamedTuple):
    """What became of labelled rows.

    Parameters
    ----------
    kept : int
        How many will be in a phase: all, unless a person may be in no more of them.
    numbers : array
        The number of each row, by which it can be withdrawn.
    phase : int
        The phase that the last row will be in.
    missing : int
        How many more rows that phase needs before it begins; 0 if it begins by the clock of queries.
    """

    kept: int
    numbers: NDArray[np.int64]
    phase: int
    missing: int


def labelled_tensors(
    rows: Any, labels: Any, groups: Any, about: Mapping[str, Any]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The tensors of labelled rows; `about` are the parameters of the model's metadata, with the names of labels."""
    if "target" not in about:
        raise ValueError("the service takes no labelled rows: its predictor was not fitted with truth='rows' or 'both'")
    tensors, left_out = tensors_of(rows)
    for name, values, what in ((about["target"], labels, "labels"), (about.get("group"), groups, "groups")):
        if values is not None:
            if name is None:
                raise ValueError(f"{what} must be left out: the schema has no group")
            tensors[name] = column_of(values)
        elif name is not None and name not in tensors:
            raise ValueError(f"{what} must be given, or be the column {name!r} of rows")
    counts = {len(values) for values in tensors.values()}
    if len(counts) != 1 or counts == {0}:
        raise ValueError("rows, labels and groups must have the same length, at least 1")
    return tensors, left_out


def taught(receipts: Sequence[Mapping[str, Any]]) -> Taught:
    """What the receipts of all parts say together."""
    numbers = [np.arange(one["first"], one["first"] + one["rows"]) for one in receipts]
    last = receipts[-1]
    return Taught(sum(one["kept"] for one in receipts), np.concatenate(numbers), last["phase"], last["missing"])


def feedback_bodies(
    labels: Any, answer_ids: Any, repeat: str | None, rows: Any, chunk: int
) -> Iterator[dict[str, Any]]:
    """The bodies of feedback: at most `chunk` labels each, and those of one request by its key."""
    given = [None if one is None else as_text(one) for one in column_of(labels).tolist()]
    if (answer_ids is None) == (repeat is None):
        raise ValueError("either answer_ids or idempotency_key must be given")
    if repeat is None:
        ids = [str(one) for one in answer_ids]
        _check(len(ids), len(given), "answer_ids")
        if not all(map(ID.fullmatch, ids)):
            raise ValueError("answer_ids must be those of answers, 32 hexadecimal digits each; labels come after them")
        for start in range(0, len(given), chunk):
            some = slice(start, start + chunk)
            yield {"answer_ids": ids[some], "labels": given[some]}
        return
    numbers = list(range(len(given))) if rows is None else [int(one) for one in rows]
    _check(len(numbers), len(given), "rows")
    asked: dict[int, list[int]] = {}  # places of labels, by the part of the question that they belong to
    for place, number in enumerate(numbers):
        asked.setdefault(number // chunk * chunk, []).append(place)
    for start, places in asked.items():
        yield {
            "idempotency_key": repeat if start == 0 else f"{repeat}-{start}",
            "rows": [numbers[one] - start for one in places],
            "labels": [given[one] for one in places],
        }


def _check(count: int, labels: int, name: str) -> None:
    if count != labels or not labels:
        raise ValueError(f"there must be one label for each of {name}, at least 1")


def json_body(body: Mapping[str, Any]) -> bytes:
    """A body in JSON."""
    import msgspec

    return msgspec.json.encode(body)
