"""The description of the service: the OpenAPI document, and a page of it that needs no script."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any

from reticent.service.http import open_inference
from reticent.service.http.metadata import metadata
from reticent.service.http.problems import KINDS, MEDIA_TYPE

Json = dict[str, Any]

JSON, TEXT, BINARY, HTML = "application/json", "text/plain", "application/octet-stream", "text/html"
PARTS = ("app.js", "parts.js", "quality.js", "style.css", "icon.svg", "uplot.js", "uplot.css")  # of the dashboard


def document(
    name: str,
    rules: open_inference.Rules,
    most_rows: int,
    version: str,
    *,
    offered: tuple[str, ...] = (open_inference.LABELS,),
    truth: str | None = None,
) -> Json:
    """The OpenAPI document of a model: what it describes is public.

    `offered` names the outputs that there are, and `truth` says where later labels come from.
    """
    columns = [column.name for column in rules.columns]
    infer = _inference(name, rules, most_rows, offered)
    model = f"/v2/models/{name}"
    paths: Json = {
        "/v2": _get("server", "The server and its extensions.", JSON),
        "/v2/health/live": _get("live", "Whether the server is alive.", JSON),
        "/v2/health/ready": _get("ready", "Whether questions are answered.", JSON, 503),
        model: _get("model", "Inputs, outputs and versions of the model.", JSON, scope="observe"),
        f"{model}/versions/{open_inference.VERSION}": _get("version", "The same, by version.", JSON, scope="observe"),
        f"{model}/ready": _get("modelReady", "Whether the model answers.", JSON, 503),
        f"{model}/versions/{open_inference.VERSION}/ready": _get("versionReady", "The same, by version.", JSON, 503),
        f"{model}/infer": infer("infer"),
        f"{model}/versions/{open_inference.VERSION}/infer": infer("inferVersion"),
        **_later_labels(model, rules, most_rows, truth),
        "/invocations": _invocations(columns, rules, most_rows, offered),
        "/ping": _get("ping", "Whether questions are answered, as MLflow asks it.", TEXT, 503),
        "/health": _get("health", "The same as /ping.", TEXT, 503),
        "/version": _get("packageVersion", "The version of the server.", TEXT),
        "/guarantee": _get("guarantee", "What is promised: in plain words, or as JSON by Accept.", (TEXT, JSON)),
        "/status": _get("status", "Phase, answers left, length and head of the answer log.", JSON, scope="observe"),
        "/events": _get(
            "events", "The status once a second, as server-sent events.", "text/event-stream", 503, scope="observe"
        ),
        "/metrics": _get("metrics", "Public counters for Prometheus.", TEXT, scope="observe"),
        "/": _get("dashboard", "The dashboard, a page.", HTML),
        "/dashboard/ledger": _get(
            "ledger", "The last records, the last verification, and what the caller may use.", JSON, scope="observe"
        ),
        "/dashboard/verify": {
            "post": _get("verify", "Verify the answer log, one check at a time.", JSON, 404, 503, scope="admin")["get"]
        },
        "/dashboard/{part}": _parts(),
        "/docs": _get("docs", "This document, as a page.", HTML),
        "/openapi.json": _get("openapi", "This document.", JSON),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"reticent: {name}",
            "version": version,
            "description": "Private answers without end, on one guarantee. Every answer is recorded before it leaves. "
            "Errors are problem documents (RFC 9457) with an `error` member; they never repeat what was sent.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _problem()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def without_columns(document: Json) -> Json:
    """The document for those who may not see the columns: what is asked has no schema and no examples."""
    found: Json = json.loads(json.dumps(document))
    for methods in found["paths"].values():
        for about in methods.values():
            if "requestBody" in about:
                about["requestBody"]["content"] = {kind: {} for kind in about["requestBody"]["content"]}
    found["info"]["description"] += " With a key, this document tells also what is to be asked."
    return found


def page(document: Json) -> tuple[bytes, str]:
    """The document as a page, and the Content-Security-Policy that it lives under."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<main><h1>{escape(info['title'])}</h1><p>{escape(info['description'])}</p>",
        "<p><a href=/openapi.json>openapi.json</a> · <a href=/guarantee>what is promised</a></p><h2>Endpoints</h2>",
    ]
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            parts.append(_section(path, method, about))
    parts.append("<h2>Problems</h2><dl>")
    for kind, (status, title, advice) in KINDS.items():
        parts.append(f"<dt id={kind}><code>{status}</code> {escape(title)}</dt><dd>{escape(advice)}</dd>")
    parts.append("</dl></main></html>")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
    return "".join(parts).encode(), policy + "frame-ancestors 'none'"


def _section(path: str, method: str, about: Json) -> str:
    needs = f" <small>needs a key: {about['x-scope']}</small>" if "x-scope" in about else ""
    text = f"<section><h3><code>{method.upper()} {escape(path)}</code>{needs}</h3><p>{escape(about['summary'])}</p>"
    for kind, content in about.get("requestBody", {}).get("content", {}).items():
        for example in content.get("examples", {}).values():
            value = example["value"]
            shown = value if isinstance(value, str) else json.dumps(value)
            text += f"<p>{escape(kind)}</p><pre>{escape(shown)}</pre>"
    return text + "</section>"


def _get(identity: str, summary: str, kinds: str | tuple[str, ...], *fails: int, scope: str | None = None) -> Json:
    types = (kinds,) if isinstance(kinds, str) else kinds
    content = {kind: {"schema": {"type": "object"} if kind == JSON else {"type": "string"}} for kind in types}
    about: Json = {
        "operationId": identity,
        "summary": summary,
        "responses": {"200": {"description": "OK.", "content": content}, **_problems(*fails, scope=scope)},
    }
    return {"get": about | ({} if scope is None else {"security": [{"key": []}, {}], "x-scope": scope})}


def _parts() -> Json:
    """The files of the page, which are static."""
    about = _get("dashboardPart", "A part of the dashboard.", ("text/javascript", "text/css", "image/svg+xml"), 404)
    part = {"name": "part", "in": "path", "required": True, "schema": {"enum": list(PARTS)}}
    about["get"]["parameters"] = [part]
    return about


def _problems(*fails: int, scope: str | None = None) -> Json:
    """The problems that a call may end in, by status."""
    wanted = sorted({*fails, *((401, 403) if scope else ())})
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    titles = {status: title for status, title, _ in reversed(KINDS.values())}
    return {str(status): {"description": f"{titles[status]}.", "content": content} for status in wanted}


def _problem() -> Json:
    words = {name: {"type": "string"} for name in ("type", "title", "detail", "error")}
    return {"type": "object", "required": [*words, "status"], "properties": {**words, "status": {"type": "integer"}}}


REPEAT = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A repeat with the same key and body gets the stored answer, and costs nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _asking(identity: str, summary: str, content: Json, answers: Json) -> Json:
    return {
        "post": {
            "operationId": identity,
            "summary": summary,
            "security": [{"key": []}, {}],
            "x-scope": "ask",
            "parameters": [REPEAT],
            "requestBody": {"required": True, "content": content},
            "responses": {
                "200": {"description": "Answered, and recorded.", "content": answers},
                **_problems(400, 408, 413, 415, 422, 429, 503, scope="ask"),
            },
        }
    }


def _inference(name: str, rules: open_inference.Rules, most_rows: int, offered: tuple[str, ...]) -> Any:
    about = metadata(name, rules, offered)
    tensor: Json = {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"enum": [one["name"] for one in about["inputs"]]},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 2},
            "datatype": {"enum": [*open_inference.NUMBERS, open_inference.BYTES]},
            "parameters": {"type": "object"},
            "data": {"type": "array"},
        },
    }
    output = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"enum": [one["name"] for one in about["outputs"]]},
            "parameters": {"type": "object"},
        },
    }
    body = {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "minItems": 1, "items": tensor},
            "outputs": {"type": "array", "items": output},
            "parameters": {"type": "object", "properties": {"binary_data_output": {"type": "boolean"}}},
        },
    }
    inputs = []
    for one in about["inputs"]:
        example = [0.0] * abs(one["shape"][-1]) if one["datatype"] == "FP64" else [""]
        inputs.append({**one, "shape": [1, *one["shape"][1:]], "data": example})
    content = {
        JSON: {"schema": body, "examples": {"one row": {"value": {"id": "1", "inputs": inputs}}}},
        BINARY: {"schema": {"type": "string", "format": "binary"}},
    }
    answers = {JSON: {"schema": {"type": "object", "required": ["model_name", "outputs"]}}, BINARY: {"schema": {}}}
    summary = (
        f"Ask for at most {most_rows} rows: JSON tensors, or binary ones after JSON of "
        "Inference-Header-Content-Length bytes."
    ) + (f" Outputs are {' and '.join(offered)}, unless the request names some." if len(offered) > 1 else "")
    return lambda identity: _asking(identity, summary, content, answers)


def _later_labels(model: str, rules: open_inference.Rules, most_rows: int, truth: str | None) -> Json:
    """The paths that take labels, if there are any."""
    paths: Json = {}
    numbers = {"type": "array", "minItems": 1, "items": {"type": "integer"}}
    if truth in ("rows", "both"):
        target, group = getattr(rules, "target", "label"), getattr(rules, "group", None)
        inputs: list[Json] = [*metadata("", rules)["inputs"], {"name": target, "datatype": "BYTES", "shape": [-1]}]
        inputs += [] if group is None else [{"name": group, "datatype": "BYTES", "shape": [-1]}]
        example = [
            {**one, "shape": [1, *one["shape"][1:]], "data": [0.0] * abs(one["shape"][-1])}
            if one["datatype"] == "FP64"
            else {**one, "shape": [1], "data": [str(rules.classes[0]) if one["name"] == target else ""]}
            for one in inputs
        ]
        body = {"type": "object", "required": ["inputs"], "properties": {"inputs": {"type": "array", "minItems": 2}}}
        content = {
            JSON: {"schema": body, "examples": {"one row": {"value": {"inputs": example}}}},
            BINARY: {"schema": {"type": "string", "format": "binary"}},
        }
        summary = (
            f"Send at most {most_rows} labelled rows, for the phases to come: tensors as for /infer, and one of labels "
            f"named {target!r}. They are stored when the reply is sent; a label that is not a class counts as none."
        )
        paths[f"{model}/labelled"] = _taking("labelled", summary, "teach", content, repeat=True)
        withdrawal = {"type": "object", "required": ["rows"], "properties": {"rows": numbers}}
        paths[f"{model}/labelled/withdraw"] = _taking(
            "withdraw",
            "Withdraw labelled rows by their numbers: the first of a request is in its reply. Rows of a phase that is "
            "complete cannot be withdrawn; they are deleted with it.",
            "teach",
            {JSON: {"schema": withdrawal, "examples": {"two rows": {"value": {"rows": [0, 1]}}}}},
        )
    if truth in ("feedback", "both"):
        labels = {"type": "array", "minItems": 1}
        ids = {"type": "array", "minItems": 1, "items": {"type": "string"}}
        forms: list[Json] = [
            {"labels": labels, "answer_ids": ids},
            {"labels": labels, "idempotency_key": {"type": "string"}, "rows": numbers},
        ]
        feedback = {"oneOf": [{"type": "object", "required": [*one], "properties": one} for one in forms]}
        label = str(rules.classes[0])
        examples = {
            "by answer id": {"value": {"answer_ids": ["0" * 32], "labels": [label]}},
            "by key and row": {"value": {"idempotency_key": "monday", "rows": [0], "labels": [label]}},
        }
        paths[f"{model}/feedback"] = _taking(
            "feedback",
            "Send the true labels of answers that the same key received; null withdraws one. The reply is the same "
            "whether or not they are used.",
            "ask",
            {JSON: {"schema": feedback, "examples": examples}},
        )
    return paths


def _taking(identity: str, summary: str, scope: str, content: Json, *, repeat: bool = False) -> Json:
    about: Json = {
        "operationId": identity,
        "summary": summary,
        "security": [{"key": []}, {}],
        "x-scope": scope,
        "requestBody": {"required": True, "content": content},
        "responses": {
            "202": {"description": "Received, and stored.", "content": {JSON: {"schema": {"type": "object"}}}},
            **_problems(400, 408, 413, 415, 422 if repeat else 429, 429, 503, scope=scope),
        },
    }
    return {"post": about | ({"parameters": [REPEAT]} if repeat else {})}


def _invocations(columns: list[str], rules: open_inference.Rules, most_rows: int, offered: tuple[str, ...]) -> Json:
    row = [0.0 if one.kind == "number" else "" for one in rules.columns]
    cell = {"type": ["number", "string", "boolean", "null"]}
    split = {
        "type": "object",
        "required": ["columns", "data"],
        "properties": {
            "columns": {"const": columns},
            "data": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "array", "items": cell, "minItems": len(row), "maxItems": len(row)},
            },
        },
    }
    forms: dict[str, Json] = {
        "dataframe_split": split,
        "dataframe_records": {"type": "array", "minItems": 1, "items": {"type": "object", "required": columns}},
        "instances": {"type": "array", "minItems": 1},
        "inputs": {"type": ["array", "object"]},
    }
    body = {
        "oneOf": [
            {"type": "object", "required": [form], "properties": {form: about}, "additionalProperties": False}
            for form, about in forms.items()
        ]
    }
    record = dict(zip(columns, row, strict=True))
    examples = {
        "dataframe_split": {"columns": columns, "data": [row]},
        "dataframe_records": [record],
        "instances": [row],
        "inputs": {name: [value] for name, value in record.items()},
    }
    lines = ",".join(columns) + "\n" + ",".join(map(str, row)) + "\n"
    content = {
        JSON: {"schema": body, "examples": {form: {"value": {form: value}} for form, value in examples.items()}},
        "text/csv": {"schema": {"type": "string"}, "examples": {"one row": {"value": lines}}},
    }
    members = ["predictions", *offered[1:]]
    answers = {JSON: {"schema": {"type": "object", "required": members}}}
    return _asking("invocations", f"Ask as MLflow does, for at most {most_rows} rows.", content, answers)


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0}"
    "main{max-width:52rem;margin:auto;padding:1rem}pre{overflow:auto;padding:.75rem;border:1px solid #8884;"
    "border-radius:.4rem}section{border-top:1px solid #8884}small{font-weight:normal;opacity:.75}dt{margin-top:.5rem}"
)
