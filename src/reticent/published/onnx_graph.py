"""A released model as an ONNX graph: from columns to labels and probabilities, in float64 throughout.

The graph is written node by node. A converter of scikit-learn pipelines would not do: in float64 it emits nodes that
onnxruntime does not have, in float32 labels may differ near a boundary, and it cannot state the probabilities of the
service.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.schema import Column
from reticent.extras import require
from reticent.learners.features import FeatureMap
from reticent.learners.whitening import factor_inside
from reticent.published.columns import Scale, is_text, known_values, positions
from reticent.published.model import PublishedModel
from reticent.published.probe import check

Array = NDArray[Any]

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # old enough for onnxruntime 1.12
LABELS, PROBABILITIES = "labels", "probabilities"
PREFIX = "reticent/"  # of the names within the graph; inputs have those of columns


def to_onnx(published: PublishedModel) -> Any:
    """The model as an `onnx.ModelProto`, checked against the model itself.

    Inputs are the columns of the schema, each of shape [rows, 1]: float64, or strings for categories of text. Outputs
    are `labels` and `probabilities`, of shape [rows] and [rows, classes].

    Parameters
    ----------
    published : PublishedModel
        The model.
    """
    require("onnx", "export ONNX")
    import onnx
    from onnx import helper

    graph = _Graph()
    scores = _scores(graph, published, _encoded(graph, published))
    kind = _label(graph, published, scores)
    _probabilities(graph, published, scores)
    double, text = onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING
    inputs = [
        helper.make_tensor_value_info(one.name, text if is_text(one) else double, ["rows", 1])
        for one in published.schema.columns
    ]
    outputs = [
        helper.make_tensor_value_info(LABELS, kind, ["rows"]),
        helper.make_tensor_value_info(PROBABILITIES, double, ["rows", len(published.classes)]),
    ]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "reticent", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="reticent",
        doc_string=published.guarantee.explain(),
    )
    page = published.to_json()
    helper.set_model_props(
        made,
        {
            "classes": ", ".join(map(str, page["classes"])),
            **{f"guarantee.{name}": str(value) for name, value in page["guarantee"].items()},
        },
    )
    onnx.checker.check_model(made)
    check(published, lambda table: evaluated(made, published, table), "ONNX")
    return made


def evaluated(made: Any, published: PublishedModel, table: dict[str, Array]) -> tuple[Array, Array]:
    """Labels and probabilities by the reference evaluator of ONNX."""
    from onnx.reference import ReferenceEvaluator

    labels, probabilities = ReferenceEvaluator(made).run(None, feeds(published, table))
    return np.asarray(labels), np.asarray(probabilities)


def feeds(published: PublishedModel, table: dict[str, Array]) -> dict[str, Array]:
    """The columns of a table as inputs of the graph: float64, or strings without spaces around them."""
    from reticent.data.cells import as_numbers, as_text

    return {
        one.name: np.array([[as_text(cell)] for cell in table[one.name]], dtype=object)
        if is_text(one)
        else as_numbers(table[one.name])[:, None]
        for one in published.schema.columns
    }


class _Graph:
    """Nodes and constants, with names that no column can have."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """The name of a constant."""
        from onnx import numpy_helper

        name = f"{PREFIX}constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node; the name of its output."""
        from onnx import helper

        name = f"{PREFIX}{len(self.nodes)}" if output is None else output
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def total(self, rows: str) -> str:
        """The sum of each row, as a column."""
        return self.add("ReduceSum", rows, self.constant([1], np.int64), keepdims=1)

    def length(self, rows: str) -> str:
        """The length of each row, as a column."""
        return self.add("Sqrt", self.total(self.add("Mul", rows, rows)))


# ── from columns to scores ────────────────────────────────────────────────────────────────────────────────────────


def _encoded(graph: _Graph, published: PublishedModel) -> str:
    """Encoded rows, with numbers in the order of the schema."""
    parts, order = [], []
    for column in published.schema.columns:
        scale = Scale.of(column)
        parts.append(_category(graph, column) if scale is None else _number(graph, column, scale))
        order += positions(published.schema, column)
    return graph.add("Gather", graph.add("Concat", *parts, axis=1), graph.constant(np.argsort(order), np.int64), axis=1)


def _number(graph: _Graph, column: Column, scale: Scale) -> str:
    missing = graph.add("IsNaN", column.name)
    known = graph.add("Where", missing, graph.constant([[scale.missing]]), column.name)
    moved = graph.add("Sub", _clipped(graph, known, scale.low, scale.high), graph.constant([[scale.middle]]))
    value = _clipped(graph, graph.add("Div", moved, graph.constant([[scale.half]])), -1.0, 1.0)
    return graph.add("Concat", value, _as_numbers(graph, missing), axis=1) if scale.marked else value


def _clipped(graph: _Graph, rows: str, low: Any, high: Any) -> str:
    above = graph.add("Max", rows, graph.constant(np.atleast_2d(low)))
    return graph.add("Min", above, graph.constant(np.atleast_2d(high)))


def _category(graph: _Graph, column: Column) -> str:
    known = len(column.categories)
    if is_text(column):
        index = graph.add(
            "LabelEncoder",
            column.name,
            domain="ai.onnx.ml",
            keys_strings=known_values(column),
            values_int64s=list(range(known)),
            default_int64=known,
        )
        same = graph.add("Equal", index, graph.constant([range(known + column.other)], np.int64))
        return _as_numbers(graph, same)
    same = _as_numbers(graph, graph.add("Equal", column.name, graph.constant([known_values(column)])))
    if not column.other:
        return same
    return graph.add("Concat", same, graph.add("Sub", graph.constant([[1.0]]), graph.total(same)), axis=1)


def _as_numbers(graph: _Graph, truths: str) -> str:
    from onnx import TensorProto

    return graph.add("Cast", truths, to=TensorProto.DOUBLE)


def _scores(graph: _Graph, published: PublishedModel, encoded: str) -> str:
    """The scores of `PrivateLogisticRegression.decision_function`, with one column for two classes."""
    model = published.model
    whitening, (coef, intercept) = model.whitening_, model.hypothesis_
    rows = _unit_rows(graph, model.feature_map_, encoded)
    product = graph.add("MatMul", rows, graph.constant(coef * model.feature_map_.length))
    scores = graph.add("Add", product, graph.constant(intercept[None]))
    if whitening is None:
        return scores
    matrix = whitening.matrix * factor_inside(whitening.constant)
    image = graph.add("MatMul", rows, graph.constant(matrix[: len(coef)]))
    image = graph.add("Add", image, graph.constant(matrix[len(coef) :].sum(axis=0)[None]))
    return graph.add("Div", scores, _excess(graph, image, whitening.length))


def _unit_rows(graph: _Graph, feature_map: FeatureMap, rows: str) -> str:
    """The rows that the model sees, as `FeatureMap.unit_rows` makes them."""
    bounds, directions = getattr(feature_map, "bounds", None), getattr(feature_map, "directions", None)
    if bounds is not None:
        clipped = graph.add("Sub", _clipped(graph, rows, bounds.lower, bounds.upper), graph.constant([bounds.lower]))
        rows = graph.add("Div", clipped, graph.constant([bounds.upper - bounds.lower]))
    length = feature_map.row_norm
    rows = _shortened(graph, rows, length)
    if directions is not None:
        image = graph.add("MatMul", rows, graph.constant(directions.matrix))
        image = graph.add("Sub", image, graph.constant([directions.centre]))
        rows, length = _shortened(graph, image, directions.length), 1.0
    if feature_map.frequencies is None:
        return rows
    phases = graph.add("MatMul", rows, graph.constant(feature_map.frequencies * length))
    waves = graph.add("Concat", graph.add("Cos", phases), graph.add("Sin", phases), axis=1)
    return graph.add("Div", waves, graph.constant([[math.sqrt(feature_map.frequencies.shape[1])]]))


def _shortened(graph: _Graph, rows: str, length: float) -> str:
    """Rows divided by this length, or by their own if that is greater."""
    return graph.add("Div", graph.add("Div", rows, graph.constant([[length]])), _excess(graph, rows, length))


def _excess(graph: _Graph, rows: str, length: float) -> str:
    """How many times as long as this each row is; 1 for rows that are shorter."""
    relative = graph.add("Div", graph.length(rows), graph.constant([[length]]))
    return graph.add("Max", relative, graph.constant([[1.0]]))


# ── from scores to labels and probabilities ───────────────────────────────────────────────────────────────────────


def _label(graph: _Graph, published: PublishedModel, scores: str) -> int:
    """Add the output of labels; its type."""
    from onnx import TensorProto

    classes = published.classes
    if len(classes) == 2:
        above = graph.add("Greater", scores, graph.constant([[0.0]]))
        chosen = graph.add("Reshape", graph.add("Cast", above, to=TensorProto.INT64), _flat(graph))
    else:
        chosen = graph.add("ArgMax", scores, axis=1, keepdims=0)
    kind, dtype = {
        "U": (TensorProto.STRING, object),
        "b": (TensorProto.BOOL, np.bool_),
        "i": (TensorProto.INT64, np.int64),
    }.get(classes.dtype.kind, (TensorProto.DOUBLE, np.float64))
    values = classes.astype(str).astype(object) if dtype is object else classes
    graph.add("Gather", graph.constant(values, dtype), chosen, output=LABELS)
    return int(kind)


def _flat(graph: _Graph) -> str:
    return graph.constant([-1], np.int64)


def _probabilities(graph: _Graph, published: PublishedModel, scores: str) -> None:
    """Add the output of probabilities, those of `PrivateLogisticRegression.predict_proba`."""
    one = graph.constant([[1.0]])
    if len(published.classes) == 2:
        p = graph.add(
            "Concat", graph.add("Sigmoid", graph.add("Neg", scores)), graph.add("Sigmoid", scores), axis=1
        )
        residuals = graph.add("Sub", one, p)
    else:
        p = graph.add("Softmax", scores, axis=1)
        squares = graph.add("Add", graph.total(graph.add("Mul", p, p)), one)
        difference = graph.add("Sub", squares, graph.add("Add", p, p))
        residuals = graph.add("Sqrt", graph.add("Max", difference, graph.constant([[0.0]])))
    cap = graph.constant([[published.model.descent_plan_.cap]])
    odds = graph.add("Mul", p, graph.add("Max", graph.add("Div", residuals, cap), one))
    graph.add("Div", odds, graph.total(odds), output=PROBABILITIES)
