"""A private schema: ranges and categories of a table as it comes, found with a stated part of the privacy budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from reticent.data.frames import MOST_LISTED, Columns
from reticent.data.groups import as_groups, first_of_each, numbered
from reticent.data.schema import Kind, Rows, Schema, SchemaError
from reticent.data.schema_plan import WHOLE, SchemaPlan, plan_schema
from reticent.data.schema_release import Chunk, Found, release_columns
from reticent.exact import Number
from reticent.mechanisms.release import noise_from_seed, release
from reticent.noise import Noise
from reticent.privacy import guarantee
from reticent.privacy.parameters import check_delta, check_epsilon

Types = Literal["released", "declared"]


class PrivateSchema(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Finds the ranges and categories of a table privately, and turns its rows into numbers by them.

    One release of noisy counts serves all columns. A number gets the range of the largest power of two that enough rows
    reach; a category is kept if enough rows have it, and all others are "other". What cannot be found is named in
    `unfound_` and left out. Values beyond a range are clipped, missing numbers get a column of their own where they
    are frequent, and no row is refused. The `schema_` that comes out is public: save it, edit it, use it again for
    free.

    Guarantee. (ε, δ)-differential privacy for a replaced row (with `groups`: for all rows of a replaced group), for
    everything the fitted estimator holds. Public are the names and number of the columns, the number of rows (and
    which row is of which group), `kinds` and, for types="declared", the types of the columns. The event is a list of
    releases with discrete Gaussian noise, and a δ for rare categories.

    Why. In each column a row is in one bin, so a replaced row moves two counts by one: the squared sensitivity of all
    columns together is 2d. A category that occurs in one of two neighbours only has a count of 1, and exceeds the
    threshold with a probability that is part of δ. The proof is in docs/data/private_schema.md.

    Source. New; the threshold is that of Korolova, Kenthapadi, Mishra, Ntoulas, *Releasing Search Queries and Clicks
    Privately*, with discrete Gaussian noise and for many columns at once.

    Parameters
    ----------
    epsilon : float or Fraction
        Privacy-loss bound ε of the schema.
    delta : float or Fraction
        Failure probability δ of the privacy bound, above 0.
    kinds : mapping of str to "number" or "category", or None, default None
        What is publicly known of some columns. A column of codes, such as postcodes, is a number unless you say here
        that it is a category.
    leave_out : sequence of str, default ()
        Columns that are not looked at.
    types : {"released", "declared"}, default "released"
        Who decides whether a column holds numbers or categories. "released": a small private release, cell by cell.
        "declared": columns of a numeric type are numbers and cost nothing; a release decides for the others. Choose
        it only if types were declared without looking at the rows, as in a Parquet file or a database: where a CSV file
        is read without `dtype=`, one odd cell turns a column of numbers into one of text.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    schema_ : Schema
        The columns that were found. It names neither target nor classes.
    unfound_ : dict of str to str
        The columns that were not found, and why.
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    plan_ : SchemaPlan
        The noise and the thresholds, which are public.
    n_features_in_, feature_names_in_ : int, array of str
        The columns of the table.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {
    ...     "age": rng.integers(18, 99, 20_000),
    ...     "ward": rng.choice(["heart", "surgery"], 20_000),
    ...     "file number": [f"P-{place}" for place in range(20_000)],
    ... }
    >>> schema = PrivateSchema(epsilon=0.5, delta=1e-6).fit(table)
    >>> schema.schema_.features
    ['age', 'ward=heart', 'ward=surgery', 'ward=?']
    >>> list(schema.unfound_), schema.transform(table).shape, schema.guarantee_.epsilon <= 0.5
    (['file number'], (20000, 4), True)
    """

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        kinds: Mapping[str, str] | None = None,
        leave_out: Sequence[str] = (),
        types: Types = "released",
        unsafe_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.kinds = kinds
        self.leave_out = leave_out
        self.types = types
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: Any, y: object = None, groups: ArrayLike | None = None) -> Self:
        """Find ranges and categories.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            The table, as it comes: frames of pandas, polars or pyarrow; cells of any kind.
        y : None, default None
            Not used.
        groups : array-like of shape (rows,) or None, default None
            The person that each row belongs to. The first row of each is used.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, groups, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(
        self, X: Any, groups: ArrayLike | None, unsafe_noise: Noise | None, *, share: Fraction = WHOLE
    ) -> Self:
        """Call `fit` on a given source of noise, as audits and pipelines do.

        Parameters
        ----------
        X, groups
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.
        share : Fraction, default 1
            The share of μ² of (ε, δ) that the schema may use; a pipeline has the rest.

        Returns
        -------
        self
        """
        table = Columns(X)
        kinds = self.column_kinds(table)
        first = None if groups is None else first_of_each(numbered(as_groups(groups, table.rows)))
        rows = table.rows if first is None else len(first)
        check_delta(self.delta, positive=True, rows=rows)
        plan = self.plan(rows, kinds, share=share)
        found = release_columns(FrameSource(table, first), kinds, plan, unsafe_noise)
        return self._adopt(found, plan, table, unsafe_noise, grouped=first is not None)

    def column_kinds(self, table: Columns) -> dict[str, Kind | None]:
        """What is publicly known of each column that is looked at: number, category, or None.

        Parameters
        ----------
        table : Columns
            The table, of which cells are not read.
        """
        if self.types not in get_args(Types):
            raise ValueError(f"types must be 'released' or 'declared', got {self.types!r}")
        declared = [name for name in table if self.types == "declared" and table.declares_number(name)]
        return known_kinds(list(table), declared, self.kinds or {}, self.leave_out)

    def plan(self, rows: int, kinds: Mapping[str, Kind | None], *, share: Fraction = WHOLE) -> SchemaPlan:
        """The noise for this many rows and these columns; no row is read.

        Parameters
        ----------
        rows : int
            The number of rows, or of groups.
        kinds : mapping
            As of `column_kinds`.
        share : Fraction, default 1
            The share of μ² that the schema may use.
        """
        known = list(kinds.values())
        return plan_schema(
            rows=rows,
            columns=len(known),
            undecided=known.count(None),
            texts=known.count("category"),
            epsilon=check_epsilon(self.epsilon),
            delta=check_delta(self.delta, positive=True),
            share=share,
        )

    def _adopt(
        self, found: Found, plan: SchemaPlan, table: Columns, unsafe_noise: Noise | None, *, grouped: bool
    ) -> Self:
        self.unfound_, self.plan_ = found.unfound, plan
        self.event_ = release(None, plan.event, unsafe_noise).event
        self.guarantee_ = guarantee(self.event_, delta=self.delta, unit="group" if grouped else "row")
        self.n_features_in_ = len(table)
        self.feature_names_in_ = np.array(list(table), dtype=object)
        if not found.columns:
            raise SchemaError(
                f"no column was found in {plan.rows:,} rows: {'; '.join(sorted(set(found.unfound.values())))}. The "
                "budget of the schema is spent"
            )
        self.schema_ = Schema(found.columns)
        return self

    def transform(self, X: Any) -> Rows:
        """Rows of numbers, each made from one row of the table by the schema.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            A table with the columns of the schema; others are ignored.

        Returns
        -------
        array of shape (rows, features)
            Numbers in [-1, 1].
        """
        check_is_fitted(self, "schema_")
        return encode_columns(self.schema_, Columns(X))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """The names of the numbers of an encoded row.

        Parameters
        ----------
        input_features : None, default None
            Not used.
        """
        check_is_fitted(self, "schema_")
        return np.array(self.schema_.features, dtype=object)


class FrameSource:
    """The rows of a table in memory, one column at a time; with groups, the first row of each.

    Parameters
    ----------
    table : Columns
        The table.
    first : array of int or None, default None
        The indices of the rows to take; None takes all.
    """

    at_once: int | None = 1

    def __init__(self, table: Columns, first: NDArray[np.int64] | None = None) -> None:
        self.table, self.first = table, first

    def read(self, names: Sequence[str], *, numbers: bool) -> Iterable[Chunk]:
        """The named columns.

        Parameters
        ----------
        names : sequence of str
            The columns.
        numbers : bool
            Not used: cells are read alike.
        """
        yield {name: self._taken(self.table[name]) for name in names}

    def _taken(self, cells: Any) -> Any:
        if self.first is None:
            return cells
        return cells[self.first] if isinstance(cells, np.ndarray) else [cells[place] for place in self.first]


def encode_columns(schema: Schema, table: Columns) -> Rows:
    """The rows of a table as numbers; a table without the columns of the schema is refused, by their names.

    Parameters
    ----------
    schema : Schema
        What cells mean.
    table : Columns
        The table.
    """
    if lacking := [one.name for one in schema.columns if one.name not in table]:
        raise ValueError(f"X must have the columns of the schema; it lacks {_listed(lacking)}")
    return schema.encode(table)


def known_kinds(
    names: Sequence[str], numbers: Iterable[str], kinds: Mapping[str, str], leave_out: Sequence[str]
) -> dict[str, Kind | None]:
    """What is publicly known of each column that is to be found; refuse names that are no columns.

    Parameters
    ----------
    names : sequence of str
        All columns.
    numbers : iterable of str
        The columns that are numbers by their declared type.
    kinds : mapping of str to str
        The kinds that a person gave, which come first.
    leave_out : sequence of str
        The columns that are not looked at.
    """
    if isinstance(leave_out, str):
        raise TypeError("leave_out must be a sequence of names, got a single str")
    for which, some in (("kinds", kinds), ("leave_out", leave_out)):
        if unknown := [name for name in some if name not in names]:
            raise ValueError(f"{which} names {_listed(unknown)}, which the table does not have")
    if bad := [name for name, kind in kinds.items() if kind not in get_args(Kind)]:
        raise ValueError(f"kinds must be 'number' or 'category' for each column, not so for {_listed(bad)}")
    by_type, left = set(numbers), set(leave_out)
    found: dict[str, Kind | None] = {}
    for name in names:
        if name not in left:
            given = kinds.get(name)
            found[name] = "category" if given == "category" else "number" if given or name in by_type else None
    if not found:
        raise ValueError("leave_out must leave at least one column")
    return found


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return ", ".join(map(repr, names[:MOST_LISTED])) + more
