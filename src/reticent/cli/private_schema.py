"""Finding a schema privately, for `reticent schema --private` and for `reticent fit` without a schema."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from reticent.cli.errors import UsageError
from reticent.cli.fit_plan import FitChoice, choose
from reticent.cli.progress import progress_bar
from reticent.data.cells import as_number, as_text
from reticent.data.frames import column_places
from reticent.data.private_schema import known_kinds
from reticent.data.schema import Column, Kind, Schema
from reticent.data.schema_plan import Rest, SchemaPlan, plan_schema, rest_of
from reticent.data.schema_release import Chunk, Found, release_columns
from reticent.promises import check_share

if TYPE_CHECKING:
    from reticent.service.tables import TableFile

LINEAR_MODELS = ("private", "private-model")  # their releases have Gaussian noise: one accountant for schema and model
NOT_UTF_8 = (
    "NOT UTF-8: some categories have lost letters, since the file has another encoding. Queries in UTF-8 do not match "
    "them: write these letters into the schema, convert the file, and fit with --schema"
)
NO_VALUES = "its type in the file is neither for numbers nor for text; write a date as days since a fixed date"


class Split(NamedTuple):
    """How a budget is split between a schema and a predictor.

    Attributes
    ----------
    plan : SchemaPlan
        The releases of the schema.
    rest : Rest
        The budget of the predictor.
    besides : tuple of two Fractions
        What the schema adds to it for the rows of the table; both together are the whole budget.
    """

    plan: SchemaPlan
    rest: Rest
    besides: tuple[Fraction, Fraction]


@dataclass(frozen=True)
class SchemaSearch:
    """A table whose schema is to be found, and what is public about it.

    Parameters
    ----------
    source : TableSource
        The rows.
    kinds : dict
        The columns, and whether each is known to be a number or a category.
    left_out : dict of str to str
        Columns that are left out for their declared type, and why.
    target : str
        The column to be predicted.
    classes : tuple
        The labels.
    group : str or None
        The column that names the person a row belongs to.
    """

    source: TableSource
    kinds: dict[str, Kind | None]
    left_out: dict[str, str]
    target: str
    classes: tuple[Any, ...]
    group: str | None

    def expected(self, per_column: int = 3) -> Schema:
        """A schema of about the width that will be found. It stands in for plans only.

        Parameters
        ----------
        per_column : int, default 3
            The numbers that each column becomes.
        """
        known = tuple(map(str, range(per_column - 1)))
        columns = tuple(Column(name, "category", categories=known, other=True) for name in self.kinds)
        return Schema(columns, self.target, self.classes, self.group)

    def plan(self, epsilon: Fraction, delta: Fraction, share: Fraction = Fraction(1)) -> SchemaPlan:
        """The noise of the releases.

        Parameters
        ----------
        epsilon, delta : Fraction
            The budget.
        share : Fraction, default 1
            The share of μ² that the schema may use.
        """
        known = list(self.kinds.values())
        return plan_schema(
            rows=self.source.units,
            columns=len(known),
            undecided=known.count(None),
            texts=known.count("category"),
            epsilon=epsilon,
            delta=delta,
            share=share,
        )

    def split(self, epsilon: Fraction, delta: Fraction, share: Fraction, learner: str) -> Split:
        """Split a budget between the schema and a predictor.

        Parameters
        ----------
        epsilon, delta : Fraction
            The budget.
        share : Fraction
            The share of the schema: of μ² for private models, of ε and δ for votes.
        learner : str
            What answers.
        """
        if learner in LINEAR_MODELS:
            rest = rest_of(epsilon=epsilon, delta=delta, share=share)
            besides = (epsilon - rest.epsilon, delta - rest.delta)
            return Split(self.plan(epsilon, delta, share), rest, besides)
        besides = (epsilon * share, delta * share)
        rest = Rest(rho=None, epsilon=epsilon - besides[0], delta=delta - besides[1])
        return Split(self.plan(*besides), rest, besides)

    def release(self, plan: SchemaPlan) -> Found:
        """Release the histograms, once.

        Parameters
        ----------
        plan : SchemaPlan
            The noise.
        """
        return release_columns(self.source, self.kinds, plan, None)

    def schema(self, found: Found) -> Schema:
        """The schema that was found.

        Parameters
        ----------
        found : Found
            What was released.
        """
        return Schema(found.columns, self.target, self.classes, self.group)

    def report(self, found: Found) -> list[str]:
        """What was found and what was not, in words, with the lines to fill in by hand; all of it is public.

        Parameters
        ----------
        found : Found
            What was released.
        """
        numbers = sum(column.kind == "number" for column in found.columns)
        plural, categories = "s" * (numbers != 1), len(found.columns) - numbers
        lines = [f"Found {numbers} column{plural} of numbers and {categories} of categories."]
        if any("\N{REPLACEMENT CHARACTER}" in str(text) for one in found.columns for text in one.categories):
            lines.append(NOT_UTF_8)
        unfound = {**found.unfound, **self.left_out}
        if not unfound:
            return lines
        lines.append(f"Left out: {len(unfound)} of all {len(found.columns) + len(unfound)} columns")
        lines += [f"  {name}: {why}" for name, why in unfound.items()]
        if found.unfound:
            lines += ["To learn from them, add what you know about them without looking at the rows:"]
            lines += by_hand(found)
        return lines


def by_hand(found: Found) -> list[str]:
    """The lines of TOML to fill in for columns that were not found.

    Parameters
    ----------
    found : Found
        What was released.
    """
    from reticent.data.schema import toml

    lines: list[str] = []
    for name in found.unfound:
        what = "range = []" if found.kinds[name] == "number" else "categories = []"
        lines += ["", "[[columns]]", f"name = {toml(name)}", what]
    return lines


def search(
    table: TableFile,
    rows: int,
    *,
    target: str | None,
    classes: str | None,
    group: str | None,
    categories: str | None,
    leave_out: str | None,
    quiet: bool,
) -> SchemaSearch:
    """Check what is public about a table whose schema is to be found, before anything is spent.

    Parameters
    ----------
    table : TableFile
        The table.
    rows : int
        Its number of rows.
    target, classes, group, categories, leave_out : str or None
        Options of the command line; lists are separated by commas.
    quiet : bool
        Show no progress.
    """
    from reticent.service.tables import check_columns, check_readable

    if target is None or classes is None:
        options = [*(["--target", target] if target else []), *(["--group", group] if group else [])]
        command = shlex.join(["reticent", "schema", str(table.path), *options, "--out", "schema.toml"])
        raise UsageError(
            "without a schema, name the column to predict and its labels, as in --target readmitted --classes no,yes: "
            f"they are public, and never read from the rows. Or draft a schema to fill in by hand, with: {command}"
        )
    known = labels_of(classes)
    if group == target:
        raise UsageError("--group and --target must be different columns")
    column_places(table.names, str(table.path))
    given = dict.fromkeys(_listed(categories), "category")
    away = [*_listed(leave_out), target, *([] if group is None else [group])]
    check_columns(table, [*away, *given])
    check_readable(table, [target, *([] if group is None else [group]), *given])
    typed = bool(table.types) or table.path.suffix.lower() not in (".csv", ".tsv", ".txt")
    untyped = [name for name in table.names if typed and name not in table.types and name not in away]
    kinds = known_kinds(
        table.names,
        [name for name, kind in table.types.items() if kind == "number"],
        {name: "category" for name, kind in table.types.items() if kind == "category" and name not in away} | given,
        [*away, *untyped],
    )
    source = TableSource(table, rows, group, quiet=quiet)
    return SchemaSearch(source, kinds, dict.fromkeys(untyped, NO_VALUES), target, known, group)


def labels_of(classes: str) -> tuple[Any, ...]:
    """The labels of `--classes`: numbers if all of them are, else text.

    >>> labels_of("no,yes"), labels_of("0,1"), labels_of("0.5, 1.5")
    (('no', 'yes'), (0, 1), (0.5, 1.5))
    """
    texts = _listed(classes)
    numbers = [as_number(text) for text in texts]
    if np.isfinite(numbers).all() and not {text.lower() for text in texts} & {"true", "false"}:
        return tuple(int(number) if number.is_integer() else number for number in numbers)
    return tuple(texts)


def _listed(names: str | None) -> list[str]:
    return [] if names is None else [name.strip() for name in names.split(",") if name.strip()]


@dataclass
class SchemaPurchase:
    """A schema that `reticent fit` buys: first the plan with the schema that is expected, then that which was found.

    Parameters
    ----------
    search : SchemaSearch
        The table.
    split : Split
        How the budget is split.
    choice : FitChoice
        The plan.
    rows : int
        The number of rows.
    options : dict
        Options of `choose`.
    """

    search: SchemaSearch
    split: Split
    choice: FitChoice
    rows: int
    options: dict[str, Any]

    @classmethod
    def planned(
        cls,
        wanted: SchemaSearch,
        rows: int,
        learner: str,
        *,
        epsilon: Any,
        delta: Any,
        share: Fraction,
        labels: Fraction,
        options: dict[str, Any],
    ) -> Self:
        """Choose the learner and split the budget, from public numbers.

        Parameters
        ----------
        wanted : SchemaSearch
            The table.
        rows : int
            The number of rows.
        learner : str
            The learner that was asked for.
        epsilon, delta : number
            The budget.
        share : Fraction
            The share of the schema.
        labels : Fraction
            The ε that the check of labels has taken already.
        options : dict
            Options of `choose`.
        """
        expected = wanted.expected()
        chosen = choose(expected, rows, learner, epsilon=epsilon, delta=delta, **options).learner
        split = wanted.split(Fraction(epsilon), Fraction(delta), share, chosen)
        more = {
            **options, "epsilon": split.rest.epsilon, "delta": split.rest.delta, "schema_price": split.besides,
            "labels_price": labels,
        }  # fmt: skip
        choice = choose(expected, rows, chosen, stage="expected", **more)
        return cls(wanted, split, replace(choice, automatic=learner == "auto"), rows, more)

    def made(self, path: Path) -> FitChoice:
        """Release the schema, keep it in a file before anything else can fail, and plan with it.

        Parameters
        ----------
        path : Path
            The file.
        """
        found = self.search.release(self.split.plan)
        print("\n" + "\n".join(self.search.report(found)))
        if not found.columns:
            raise UsageError(
                "no column was found, so there is nothing to learn from. The charge stands. Write a schema for the "
                "columns you know (reticent schema drafts one), and fit with --schema and --again"
            )
        schema = self.search.schema(found)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(schema.to_toml(), encoding="utf-8")
        print(f"The schema is public. Edit it, or use it again for free: {path}\n")
        choice = self.planned_with(found)
        if dropped := schema.width - choice.schema.width:
            print(f"{dropped:,} rare categories are counted as other, since the rows are too few for all of them.\n")
        return choice

    def planned_with(self, found: Found) -> FitChoice:
        """The plan with as many of the categories as there are enough rows for, the most frequent ones.

        There are always enough for three numbers per column, since that was checked before anything was spent.

        Parameters
        ----------
        found : Found
            What was released.
        """
        width = self.search.schema(found).width
        choices = {width: self._choose(found)}
        if choices[width].holds:
            return choices[width]

        def holds(most: int) -> bool:
            choices[most] = self._choose(found.narrowed(most))
            return choices[most].holds

        least = len(found.columns)
        fitting = bisect_left(range(least, width), True, key=lambda most: not holds(most)) + least - 1
        return choices.get(fitting) or self._choose(found.narrowed(max(fitting, least)))

    def _choose(self, found: Found) -> FitChoice:
        return choose(self.search.schema(found), self.rows, self.choice.learner, stage="found", **self.options)


class TableSource:
    """The rows of a file, some at a time; with groups, the first row of each.

    Parameters
    ----------
    table : TableFile
        The table.
    rows : int
        The number of its rows; a table that has changed since is refused.
    group : str or None
        The column that names the group of a row.
    quiet : bool, default False
        Show no progress.
    """

    at_once: int | None = None

    def __init__(self, table: TableFile, rows: int, group: str | None, *, quiet: bool = False) -> None:
        self.table, self.rows, self.quiet = table, rows, quiet
        self._first = None if group is None else self._first_rows(group)
        self.units = rows if self._first is None else int(self._first.sum())

    def read(self, names: Sequence[str], *, numbers: bool) -> Iterator[Chunk]:
        """The named columns.

        Parameters
        ----------
        names : sequence of str
            The columns.
        numbers : bool
            Whether they are read as numbers.
        """
        from reticent.service.tables import check_unchanged

        start = 0
        with progress_bar("counting cells", self.rows, quiet=self.quiet) as advance:
            for chunk in self.table.chunks(names, advance, numbers=names if numbers else ()):
                stop = start + len(next(iter(chunk.values())))
                if stop > self.rows:
                    check_unchanged(self.table, stop, self.rows)
                yield chunk if self._first is None else _taken(chunk, self._first[start:stop])
                start = stop
        check_unchanged(self.table, start, self.rows)

    def _first_rows(self, group: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        from reticent.service.tables import check_unchanged

        first, known, place = np.zeros(self.rows, dtype=np.bool_), set[str](), 0
        for chunk in self.table.chunks([group]):
            for name in group_names(chunk[group], self.table, group):
                if place >= self.rows:
                    check_unchanged(self.table, place + 1, self.rows)
                first[place] = name not in known
                known.add(name)
                place += 1
        check_unchanged(self.table, place, self.rows)
        return first


def _taken(chunk: Mapping[str, Any], first: Any) -> Chunk:
    places = np.flatnonzero(first)
    return {
        name: cells[places] if isinstance(cells, np.ndarray) else [cells[place] for place in places]
        for name, cells in chunk.items()
    }


def group_names(cells: Iterable[Any], table: TableFile, group: str) -> list[str]:
    """The group of each row, as text; a row of an unknown group would protect nobody, so it is refused.

    Parameters
    ----------
    cells : iterable
        The cells of the column.
    table : TableFile
        The table, for the message.
    group : str
        The name of the column.
    """
    names = [as_text(cell) for cell in cells]
    if "" in names:
        raise UsageError(f"{table.path}: the column {group!r} must name the group of every row: some are missing")
    return names


def checked_schema_share(share: Any) -> Fraction:
    """The value of `--schema-share`.

    Parameters
    ----------
    share : number
        What was given.
    """
    try:
        return check_share(share, "--schema-share")
    except ValueError:
        raise UsageError(f"--schema-share must be above 0 and below 1, got {float(share):g}") from None
