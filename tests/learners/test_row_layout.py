"""One row cannot change the integers of the others by changing the layout of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import validate_data

from reticent.data.tables import as_csr, as_table
from reticent.learners import bounded, features, lattice, logistic_fit
from reticent.learners.comparison import PrivateComparison
from reticent.learners.descent import integer_rows
from reticent.learners.logistic import PrivateLogisticRegression

Array = NDArray[Any]

ROWS = 60
WHOLE = [25165824, 1, 41943040, 8388608, 8388608]  # its length is rounded up or down, by the order of the sum


def whole_numbers(cell: float) -> pl.DataFrame:
    """Equal rows of whole numbers, but for one cell of the last row, which decides the type of its column."""
    columns = {f"x{place}": np.full(ROWS, number) for place, number in enumerate(WHOLE)}
    first = np.append(columns["x0"][:-1], [cell])
    return pl.DataFrame(columns | {"x0": first})


def stored_often(last: list[int]) -> Any:
    """Equal rows of one column, each stored in 40 parts that cancel; the last row has two entries in this order."""
    generator = np.random.default_rng(0)
    parts = generator.permutation([*[1e300] * 5, *[-1e300] * 5, *generator.normal(size=30)])
    data = np.append(np.tile(parts, ROWS - 1), [1.0, 2.0])
    indices = np.append(np.zeros(40 * (ROWS - 1), dtype=np.int64), last)
    starts = np.append(40 * np.arange(ROWS), 40 * (ROWS - 1) + 2)
    return sparse.csr_array((data, indices, starts), shape=(ROWS, 3))


def added_by_scipy(X: Any) -> Any:
    """The twin that lets SciPy add up what is stored twice."""
    found = sparse.csr_array(X, copy=True)
    found.sum_duplicates()
    return found


def as_it_comes(*given: Any, order: str, **options: Any) -> Any:
    """The twin that keeps the layout of arrays."""
    return validate_data(*given, **options)


CASES = {
    "polars": (whole_numbers(25165824), whole_numbers(0.5)),
    "csr": (stored_often([0, 2]), stored_often([2, 0])),
    "coo": (stored_often([0, 2]).tocoo(), stored_often([2, 0]).tocoo()),
}


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("form", sorted(CASES))
@pytest.mark.parametrize("compared", [False, True])
def test_a_replaced_row_leaves_the_integers_of_others_alone(
    form: str, twin: bool, compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Array] = []

    def spied(rows: Any, plan: Any, **how: Any) -> Any:
        whole = real(rows, plan, **how)
        seen.append(whole.toarray() if sparse.issparse(whole) else whole)
        return whole

    real = integer_rows
    monkeypatch.setattr(logistic_fit, "integer_rows", spied)
    if twin:
        monkeypatch.setattr(features, "validate_data", as_it_comes)
        for module in (features, lattice, bounded):
            monkeypatch.setattr(module, "as_csr", added_by_scipy)
    model: Any = PrivateLogisticRegression(
        epsilon=1, delta=1e-6, row_norm=1, rounds=0, classes=[0, 1], unsafe_seed=0
    )
    if compared:
        model = PrivateComparison([model, model], epsilon=1, delta=1e-6, classes=[0, 1], unsafe_seed=0)
    for table in CASES[form]:
        model.fit(table, np.arange(ROWS) % 2)
    pairs = list(zip(seen[: len(seen) // 2], seen[len(seen) // 2 :], strict=True))
    changed = [int((first != second).any(axis=1).sum()) for first, second in pairs]
    assert (max(changed) <= 1) != twin


def formats(dense: Array) -> list[Any]:
    stored = [sparse.csr_array(dense), sparse.coo_matrix(dense), sparse.csc_array(dense), sparse.lil_array(dense)]
    return [*stored, sparse.dok_array(dense), sparse.bsr_array(dense), sparse.dia_array(dense)]


def test_a_sparse_matrix_of_any_format_becomes_sorted_rows() -> None:
    dense = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -3.0]])
    for given in formats(dense):
        found = as_csr(given)
        assert found.format == "csr"
        assert found.has_canonical_format
        assert found.toarray().tolist() == dense.tolist()
        assert isinstance(found, sparse.sparray) == isinstance(given, sparse.sparray)


def test_parts_of_an_entry_are_added_in_the_order_in_which_they_are_stored() -> None:
    parts, column = np.array([1e300, 1.0, -1e300, 3.0]), np.array([2, 2, 2, 0])
    for kind in (sparse.csr_matrix, sparse.csr_array):
        stored = kind((parts, column, np.array([0, 4, 4])), shape=(2, 3))
        for given in (stored, stored.tocoo()):
            assert as_table(given).toarray().tolist() == [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        assert stored.nnz == 4  # the caller's matrix is left as it was
    whole = sparse.csr_array((np.array([1, 2]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    assert as_csr(whole).dtype == whole.dtype
    assert as_csr(sparse.coo_array((3, 2))).shape == (3, 2)
