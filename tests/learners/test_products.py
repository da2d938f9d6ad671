from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from reticent.learners import products
from reticent.learners.features import FeatureMap
from reticent.learners.lattice import shortened
from reticent.learners.products import product
from reticent.learners.public_rows import Directions

Array = NDArray[Any]


def texts(rows: int, columns: int, *, seed: int = 0) -> Any:
    """Sparse rows of some ten words each, of length 1."""
    generator = np.random.default_rng(seed)
    dense = np.where(generator.random((rows, columns)) < 10 / columns, generator.exponential(size=(rows, columns)), 0.0)
    return shortened(sparse.csr_array(dense), 0.1)


def by_blas(rows: Any, matrix: Array, offset: Array | None = None) -> Array:
    """The twin that leaves all rows to one matrix product."""
    image = (rows.toarray() if sparse.issparse(rows) else rows) @ matrix
    return np.asarray(image if offset is None else image + offset)


def alone(mapped: Callable[[Any], Array], rows: Any) -> bool:
    """Whether each row becomes the same by itself, among a few and among all, to the last bit."""
    among, size = mapped(rows), rows.shape[0]
    single = all(np.array_equal(mapped(rows[at : at + 1])[0], among[at]) for at in range(size))
    return single and all(np.array_equal(mapped(rows[at : at + 7])[3], among[at + 3]) for at in range(0, size - 7, 5))


@pytest.mark.parametrize(("multiplied", "holds"), [(product, True), (by_blas, False)])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_what_becomes_of_a_row_depends_on_this_row_alone(
    multiplied: Callable[..., Array], holds: bool, is_sparse: bool
) -> None:
    generator, found = np.random.default_rng(0), []
    for columns, outputs in ((40, 7), (300, 21), (55, 55)):
        rows = texts(120, columns) if is_sparse else shortened(generator.normal(size=(120, columns)), 3.0)
        matrix = generator.normal(size=(columns, outputs)) * 10.0 ** generator.integers(-3, 4, outputs)
        offset = generator.normal(size=outputs)
        found.append(alone(partial(multiplied, matrix=matrix, offset=offset), rows))
    assert all(found) == holds


@pytest.mark.parametrize(("multiplied", "holds"), [(product, True), (by_blas, False)])
@pytest.mark.parametrize("part", ["directions", "frequencies"])
def test_every_part_of_the_map_takes_rows_one_by_one(
    multiplied: Callable[..., Array], holds: bool, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    monkeypatch.setattr("reticent.learners.features.product", multiplied)
    monkeypatch.setattr("reticent.learners.public_rows.product_blocks", lambda *known: iter([multiplied(*known)]))
    matrix = generator.normal(size=(90, 20))
    parts: Any = {part: matrix if part == "frequencies" else Directions(matrix, generator.normal(size=20), 2.0)}
    unit_rows = FeatureMap(1.5, **parts).unit_rows
    assert alone(unit_rows, generator.normal(size=(150, 90))) == holds


def test_sparse_and_dense_rows_and_blocks_agree_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, matrix = texts(200, 60), np.random.default_rng(2).normal(size=(60, 9))
    found = [product(rows, matrix), product(rows.toarray(), matrix), product(np.asfortranarray(rows.toarray()), matrix)]
    monkeypatch.setattr(products, "BLOCK", 100)
    found += [product(rows, matrix), product(rows.toarray(), matrix)]
    assert all(np.array_equal(each, found[0]) for each in found)
    assert np.allclose(found[0], by_blas(rows, matrix))


def test_empty_rows_become_the_offset() -> None:
    offset = np.array([1.0, -2.0])
    for rows in (sparse.csr_array((3, 4)), np.zeros((3, 4))):
        assert product(rows, np.ones((4, 2)), offset).tolist() == [[1, -2]] * 3
