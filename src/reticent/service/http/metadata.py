"""What there is to know about the model and the server, as the Open Inference Protocol describes them."""

from __future__ import annotations

from typing import Any

from reticent.service.http.open_inference import (
    ANSWER_IDS,
    BYTES,
    LABELS,
    PROBABILITIES,
    ROWS,
    VERSION,
    Answer,
    Rules,
    all_numbers,
)


def metadata(
    name: str, rules: Rules, offered: tuple[str, ...] = (LABELS,), *, labelled: bool = False
) -> dict[str, Any]:
    """What there is to know about the model before one asks.

    `offered` names its outputs, and `labelled` says whether it takes labelled rows.
    """
    columns = rules.columns
    if all_numbers(columns):
        inputs = [{"name": ROWS, "datatype": "FP64", "shape": [-1, len(columns)]}]
    else:
        kinds = {"number": "FP64", "category": BYTES}
        inputs = [{"name": one.name, "datatype": kinds[one.kind], "shape": [-1]} for one in columns]
    outputs: list[dict[str, Any]] = [
        {"name": LABELS, "datatype": Answer.of(rules.classes).datatype, "shape": [-1]},
        {"name": PROBABILITIES, "datatype": "FP64", "shape": [-1, len(rules.classes)]},
        {"name": ANSWER_IDS, "datatype": BYTES, "shape": [-1]},
    ]
    parameters = {"columns": [one.name for one in columns], "classes": [str(one) for one in rules.classes]}
    if labelled:
        names = {"target": getattr(rules, "target", None), "group": getattr(rules, "group", None)}
        parameters |= {what: one for what, one in names.items() if one is not None}
    return {
        "name": name,
        "versions": [VERSION],
        "platform": "reticent",
        "inputs": inputs,
        "outputs": [one for one in outputs if one["name"] in offered],
        "parameters": parameters,
    }


def server_metadata(version: str) -> dict[str, Any]:
    """What there is to know about the server."""
    return {"name": "reticent", "version": version, "extensions": ["binary_tensor_data"]}
