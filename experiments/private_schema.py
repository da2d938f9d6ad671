"""A schema found privately against one written by a person who knows the data, on tables with raw columns.

ε = 1, δ = 10⁻⁶, `PrivatePipeline` with its default learner. "By hand": ranges at the .5 % and 99.5 % quantiles and all
categories, *read off all rows for free*, and the whole budget for the model. "Private": the table as it comes, cells as
text as in a CSV file; a tenth of the budget finds the schema. Accuracy and AUC are means over random splits, on at most
8,000 test rows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from experiments.table import Table
from reticent.data.cells import as_numbers, as_text, is_absent
from reticent.data.schema import OWN_COLUMN, Column, Schema
from reticent.learners import PrivatePipeline

Columns = dict[str, NDArray[Any]]
Labels = NDArray[np.int64]

EPSILON, DELTA = 1, 1e-6
SPLITS, TESTED = 5, 8000
ENDS = (0.005, 0.995)  # the quantiles that are the ends of a range by hand
AIMS = {5000: (0.01, 0.03), 20_000: (0.005, 0.01)}  # the most that accuracy and AUC may lose
MEASURED = Path(__file__).with_name("private_schema.json")


class RawTable(NamedTuple):
    """A CSV file with raw columns.

    Parameters
    ----------
    file : str
        Its name in the folder.
    target, one : str
        The column to be predicted, and the label that counts as 1.
    group : str or None, default None
        The column that names the person or household of a row; it is not learned from.
    """

    file: str
    target: str
    one: str
    group: str | None = None


RAW = {
    "adult": RawTable("raw/adult.csv.gz", "income", ">50K"),
    "bank_additional": RawTable("raw/bank_additional.csv.gz", "y", "yes"),
    "meps_2015": RawTable("raw/meps_2015.csv.gz", "HIGH_USE", "yes", group="FAMILY"),
}
NAMES = (*RAW, "elec2", "covtype", "flights3m")
ROWS = (5000, 20_000)


@dataclass(frozen=True)
class Measured:
    """What is kept of a table and a number of rows: accuracy and AUC of each split."""

    data: str
    rows: int
    columns: int
    by_hand: list[list[float]]
    private: list[list[float]]
    unfound: list[int]  # columns that were not found, in each split


def tables() -> list[Table]:
    """Accuracy and AUC by hand and with a private schema."""
    columns = ("data", "columns", "rows", "by hand", "private schema", "not found", "difference", "aim reached")
    return [Table("A schema by hand and a private one, ε = 1", columns, tuple(_line(each) for each in kept()))]


def kept() -> list[Measured]:
    """What `measure` has kept."""
    return [Measured(**each) for each in json.loads(MEASURED.read_text(encoding="utf-8"))["results"]]


def difference(found: Measured) -> tuple[float, float]:
    """How much more accurate the private schema is, and its AUC."""
    both = np.mean(found.private, axis=0) - np.mean(found.by_hand, axis=0)
    return float(both[0]), float(both[1])


def reached(found: Measured) -> bool:
    """Whether accuracy and AUC lose no more than was aimed at."""
    return all(gain >= -most for gain, most in zip(difference(found), AIMS[found.rows], strict=True))


def _line(found: Measured) -> tuple[str, ...]:
    gained = difference(found)
    return (
        found.data,
        str(found.columns),
        f"{found.rows:,}",
        _shown(found.by_hand),
        _shown(found.private),
        f"{np.mean(found.unfound):.1f}",
        f"{gained[0]:+.3f} / {gained[1]:+.3f}",
        "yes" if reached(found) else "no",
    )


def _shown(scores: list[list[float]]) -> str:
    error = np.std(scores, axis=0, ddof=1)[0] / math.sqrt(len(scores))
    accuracy, auc = np.mean(scores, axis=0)
    return f"{accuracy:.3f} ± {error:.3f} / {auc:.3f}"


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(folder: Path) -> None:
    """Measure on the tables in a folder, and keep scores in `private_schema.json` beside this module."""
    found = []
    for name in NAMES:
        table, y = columns_of(name, folder)
        found += [asdict(measured(name, table, y, rows)) for rows in ROWS]
    lines = ",\n".join(json.dumps(each) for each in found)
    text = '{"made by": "reticent experiment private_schema --data DIR",\n'
    MEASURED.write_text(text + f'"results": [\n{lines}\n]}}\n', encoding="utf-8")


def measured(name: str, table: Columns, y: Labels, rows: int, *, splits: int = SPLITS) -> Measured:
    """Fit with both schemas on the same random splits."""
    hand = schema_by_hand(table)
    by_hand: list[list[float]] = []
    private: list[list[float]] = []
    unfound = []
    tested = min(TESTED, len(y) - rows)
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(y))
        test, train = order[:tested], order[len(y) - rows :]
        parts = [{key: cells[some] for key, cells in table.items()} for some in (train, test)]
        for schema, scores in ((hand, by_hand), (None, private)):
            model = PrivatePipeline(epsilon=EPSILON, delta=DELTA, classes=(0, 1), schema=schema)
            model.fit(parts[0], y[train])
            score = model.decision_function(parts[1])
            accuracy, auc = np.mean((score > 0) == y[test]), roc_auc_score(y[test], score)
            scores.append([round(float(accuracy), 5), round(float(auc), 5)])
        unfound.append(len(model.unfound_))
    return Measured(name, rows, len(table), by_hand, private, unfound)


def schema_by_hand(table: Columns) -> Schema:
    """What a careful person would write who knows all rows."""
    columns = []
    for name, cells in table.items():
        numbers = as_numbers(cells)
        known = ~np.isnan(numbers)
        if all(is_absent(cell) for cell in set(cells[~known].tolist())):
            low, high = np.quantile(numbers[known], ENDS)
            marked = OWN_COLUMN if not known.all() else None
            columns.append(Column(name, "number", range=(float(low), float(max(high, low + 1))), missing=marked))
        else:
            values = tuple(sorted(Counter(map(as_text, cells.tolist()))))
            columns.append(Column(name, "category", categories=values))
    return Schema(tuple(columns))


def columns_of(name: str, folder: Path) -> tuple[Columns, Labels]:
    """The raw columns of a table, cells as text as in a CSV file, and its labels, 0 or 1."""
    if (raw := RAW.get(name)) is not None:
        import gzip

        from reticent.service.tables import Csv

        file = Csv(raw.file.removesuffix(".gz"), gzip.decompress((folder / raw.file).read_bytes()))
        (chunk,) = file.chunks(file.names, rows=1 << 30)
        labels = np.array([cell.strip() == raw.one for cell in chunk[raw.target]], dtype=np.int64)
        used = [each for each in file.names if each not in (raw.target, raw.group)]
        return {each: np.array(chunk[each], dtype=object) for each in used}, labels
    with np.load(folder / f"{name}.npz") as file:
        y = (file["y"] > 0).astype(np.int64)
        if "X" in file:
            X = file["X"]
            names = file["feature_names"].tolist() if "feature_names" in file else [f"x{i}" for i in range(X.shape[1])]
            return {each: as_cells(X[:, place]) for place, each in enumerate(names)}, y
        some = np.random.default_rng(0).permutation(len(y))[:100_000]
        columns = {each: as_cells(file[each][some]) for each in ("month", "dow", "day", "hour", "minute", "distance")}
        codes = file["airports"]
        return columns | {each: codes[file[each][some]].astype(object) for each in ("origin", "dest")}, y[some]


def as_cells(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers as a CSV file writes them."""
    return np.array([as_text(each) for each in numbers.tolist()], dtype=object)
