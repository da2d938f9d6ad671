"""The one release behind a private schema: noisy histograms of all columns, and the schema that follows from them.

The release is private (see `PrivateSchema` for the guarantee). What is made of it, ranges and categories and the names
of columns that were not found, depends on the noisy counts and on public numbers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_numbers, as_text, distinct, is_absent
from reticent.data.schema import OWN_COLUMN, Column, Kind
from reticent.data.schema_plan import (
    BINS,
    EXPONENTS,
    HIGHEST,
    LOWEST,
    MISSING,
    NEARLY_ALL,
    NEGATIVE,
    POSITIVE,
    UNREADABLE,
    SchemaPlan,
)
from reticent.mechanisms.counts import add_noise
from reticent.mechanisms.release import noise_or_system
from reticent.noise import Noise
from reticent.silence import silent

Integers = NDArray[np.int64]
Chunk = Mapping[str, Any]  # columns by name: some rows of them, or all


class Source(Protocol):
    """Where cells come from; they may be read twice."""

    at_once: int | None
    """How many columns are read at a time; None for all of them."""

    def read(self, names: Sequence[str], *, numbers: bool) -> Iterable[Chunk]:
        """Cells of these columns, some rows at a time. Of each group there is one row.

        Parameters
        ----------
        names : sequence of str
            The columns.
        numbers : bool
            Whether they are read as numbers.
        """


class Found(NamedTuple):
    """What a release led to.

    Attributes
    ----------
    columns : tuple of Column
        The columns that were found.
    unfound : dict of str to str
        Why the others were not, by name.
    kinds : dict of str to str
        Whether each column is a number or a category.
    counts : dict of (str, str) to int
        The noisy count of each category of each column that was found.
    """

    columns: tuple[Column, ...]
    unfound: dict[str, str]
    kinds: dict[str, Kind]
    counts: dict[tuple[str, str], int]

    def narrowed(self, most: int) -> Found:
        """With the rarest categories counted as "other", so that rows become at most so many numbers, if they can.

        It depends on noisy counts alone, so it costs nothing: of equal counts, the first goes, by the order of columns
        and then of the alphabet. A column keeps its most frequent category.

        Parameters
        ----------
        most : int
            The number of numbers.
        """
        kept = {column.name: list(column.categories) for column in self.columns}
        excess = sum(len(column.features) for column in self.columns) - most
        for name, category in sorted(self.counts, key=lambda each: self.counts[each]):
            if excess > 0 and len(kept[name]) > 1:
                kept[name].remove(category)
                excess -= 1
        return self._replace(
            columns=tuple(replace(column, categories=tuple(kept[column.name])) for column in self.columns)
        )


@silent()
def release_columns(
    source: Source, kinds: Mapping[str, Kind | None], plan: SchemaPlan, unsafe_noise: Noise | None
) -> Found:
    """Release noisy histograms of all columns, and make columns of a schema from them.

    Parameters
    ----------
    source : Source
        The rows.
    kinds : mapping of str to "number", "category" or None
        All columns, and what is publicly known of each; None is decided by a release.
    plan : SchemaPlan
        The noise, for this number of columns.
    unsafe_noise : Noise or None
        None draws from the operating system. Any other noise makes the guarantee void.
    """
    noise = noise_or_system(unsafe_noise)
    numbers = [name for name in kinds if kinds[name] != "category"]
    undecided = [name for name in numbers if kinds[name] is None]
    if plan.columns < len(kinds) or plan.undecided < len(undecided) or (len(numbers) < len(kinds) and not plan.slack):
        raise ValueError("the plan is for fewer columns")
    counts = number_counts(source, numbers)
    decided: dict[str, Kind] = {name: kind or "number" for name, kind in kinds.items()}
    if plan.kinds_sigma is not None:
        texts = np.array([counts[name][UNREADABLE] for name in undecided], dtype=np.int64)
        noisy = add_noise(texts, noise.discrete_gaussian, plan.kinds_sigma)
        decided |= {name: "category" if noisy[i] > plan.least_text else "number" for i, name in enumerate(undecided)}
    found: dict[str, Column | None] = {}
    frequent: dict[tuple[str, str], int] = {}
    for name in (name for name in numbers if decided[name] == "number"):
        found[name] = number_column(name, add_noise(counts[name], noise.discrete_gaussian, plan.sigma), plan)
    for name, values in category_counts(source, [name for name in kinds if decided[name] == "category"]):
        occurring = sorted(values)  # what is kept must not be in the order in which it first occurs
        counted = np.array([values[text] for text in occurring], dtype=np.int64)
        noisy = add_noise(counted, noise.discrete_gaussian, plan.sigma)
        kept = {occurring[i]: int(noisy[i]) for i in np.flatnonzero(noisy > plan.threshold)}
        frequent |= {(name, text): count for text, count in kept.items()}
        found[name] = Column(name, "category", categories=tuple(kept), other=True) if kept else None
    return Found(
        columns=tuple(column for name in kinds if (column := found[name]) is not None),
        unfound={name: _why(decided[name], plan) for name in kinds if found[name] is None},
        kinds=decided,
        counts=frequent,
    )


def _why(kind: Kind, plan: SchemaPlan) -> str:
    if kind == "number":
        return (
            f"no range of numbers holds enough rows: about {plan.least_count:,.0f} are needed. A column that is almost "
            "always missing, or that holds dates, has none"
        )
    return (
        f"no category occurs often enough: about {plan.threshold:,} rows are needed. An identifier, free text, dates "
        "or numbers with units have none"
    )


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def number_bins(cells: Any) -> Integers:
    """The number of cells in each bin of a column of numbers: every cell is in exactly one.

    The bins are ⌈log₂|x|⌉ from −40 to 60, for x ≥ 0 and then for x < 0, with the values beyond in the first and last
    of them; then missing cells, and cells that hold something else.

    Parameters
    ----------
    cells : array or list
        The cells.

    >>> counts = number_bins([0, 1, 1.5, 2, -3, None, "x", 1e300])
    >>> [(int(bin_), int(counts[bin_])) for bin_ in np.flatnonzero(counts)]
    [(0, 1), (40, 1), (41, 2), (100, 1), (143, 1), (202, 1), (203, 1)]
    """
    some, times = distinct(cells)
    numbers = as_numbers(some)
    known = ~np.isnan(numbers)
    values = numbers[known]
    mantissas, exponents = np.frexp(np.abs(values))
    exponents = exponents.astype(np.int64) - (mantissas == 0.5)  # of a power of two, the logarithm itself
    exponents = np.where(np.isinf(values), HIGHEST, np.where(values == 0, LOWEST, exponents))
    bins = np.full(len(numbers), MISSING)
    bins[known] = np.clip(exponents, LOWEST, HIGHEST) - LOWEST + EXPONENTS * (values < 0)
    if not isinstance(some, np.ndarray):
        bins[[place for place in np.flatnonzero(~known) if not is_absent(some[place])]] = UNREADABLE
    counts = np.zeros(BINS, dtype=np.int64)
    np.add.at(counts, bins, times)
    return counts


def number_counts(source: Source, names: Sequence[str]) -> dict[str, Integers]:
    """The counts of `number_bins` of each column.

    Parameters
    ----------
    source : Source
        The rows.
    names : sequence of str
        The columns.
    """
    counts = {name: np.zeros(BINS, dtype=np.int64) for name in names}
    for some in _parts(names, source.at_once):
        for chunk in source.read(some, numbers=True):
            for name in some:
                counts[name] += number_bins(chunk[name])
    return counts


def category_counts(source: Source, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
    """How often each text occurs in each column; the empty one stands for missing values.

    Parameters
    ----------
    source : Source
        The rows.
    names : sequence of str
        The columns.
    """
    for some in _parts(names, source.at_once):
        counts: dict[str, Counter[str]] = {name: Counter() for name in some}
        for chunk in source.read(some, numbers=False):
            for name in some:
                values, times = distinct(chunk[name])
                for text, count in zip(map(as_text, values), times.tolist(), strict=True):
                    counts[name][text] += count
        yield from counts.items()


def _parts(names: Sequence[str], size: int | None) -> Iterable[Sequence[str]]:
    step = len(names) if size is None else size
    return (names[start : start + step] for start in range(0, len(names), max(1, step)))


# ── ranges from noisy counts ──────────────────────────────────────────────────────────────────────────────────────


def number_column(name: str, noisy: Integers, plan: SchemaPlan) -> Column | None:
    """The column of numbers that noisy counts suggest; None if no bin stands out of the noise.

    The range ends at the largest power of two that a bin which stands out reaches, on either side of zero. If all bins
    that stand out are on one side, it starts at zero; or where the smallest of them does, if nearly all rows lie
    between: ages from 16 to 128, years from 1024 to 2048. What is beyond is clipped.

    Parameters
    ----------
    name : str
        The column.
    noisy : array of int
        The noisy counts of its bins.
    plan : SchemaPlan
        What counts must exceed.
    """
    above, below = _exponents(noisy[POSITIVE], plan), _exponents(noisy[NEGATIVE], plan)
    if above and below:
        end = 2.0 ** max(*above, *below)
        ends = (-end, end)
    elif above:
        ends = (_start(above, noisy[POSITIVE], noisy, plan), 2.0 ** max(above))
    elif below:
        ends = (-(2.0 ** max(below)), -_start(below, noisy[NEGATIVE], noisy, plan))
    else:
        return None
    missing = OWN_COLUMN if max(noisy[MISSING], noisy[UNREADABLE]) > plan.least_count else None
    return Column(name, "number", range=ends, missing=missing)


def _exponents(noisy: Integers, plan: SchemaPlan) -> list[int]:
    """The exponents of the bins that stand out, ascending."""
    return [int(place) + LOWEST for place in np.flatnonzero(noisy > plan.least_count)]


def _start(exponents: list[int], side: Integers, noisy: Integers, plan: SchemaPlan) -> float:
    """Where the smallest bin that stands out begins, if nearly all rows with a number lie from there on; else 0."""
    low, high = exponents[0], exponents[-1]
    between = side[low - LOWEST : high - LOWEST + 1].sum()
    known = plan.rows - max(noisy[MISSING], 0) - max(noisy[UNREADABLE], 0)
    return 0.0 if low == LOWEST or between < NEARLY_ALL * known else 2.0 ** (low - 1)
