"""Recognising rows: under another name, in another format or order; and nothing is recognised without the salt."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reticent.service import tables
from reticent.service.datasets.fingerprint import Fingerprint, fingerprint

SALT = bytes(range(32))
HEADER = ["age", "ward", "ill", "score"]
ROWS = [
    [str(place % 90), "ab "[place % 3], ["yes", "no", ""][place % 7 % 3], repr((place * 37 % 101) / 8)]
    for place in range(300)
]


def written(path: Path, rows: list[list[str]], header: list[str] | None = None, separator: str = ",") -> Path:
    lines = [separator.join(header or HEADER), *(separator.join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def of(path: Path, salt: bytes = SALT) -> Fingerprint:
    return fingerprint(tables.open_table(path), salt)


@pytest.fixture
def known(tmp_path: Path) -> Fingerprint:
    return of(written(tmp_path / "patients.csv", ROWS))


def without(place: int) -> list[list[str]]:
    return [row[:place] + row[place + 1 :] for row in ROWS]


def test_another_name_order_or_separator(tmp_path: Path, known: Fingerprint) -> None:
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    assert of(written(tmp_path / "copy.csv", shuffled)) == known
    assert of(written(tmp_path / "semicolons.csv", ROWS, separator=";")) == known
    assert of(written(tmp_path / "renamed.csv", ROWS, ["a", "b", "c", "d"])).matches(known)
    backwards = [row[::-1] for row in ROWS]
    assert of(written(tmp_path / "backwards.csv", backwards, HEADER[::-1])) == known


def test_another_way_to_write_the_same_cells(tmp_path: Path, known: Fingerprint) -> None:
    spelt = [[f" {row[0]}.0", row[1], row[2] or "NaN", f"{float(row[3]):.6f}"] for row in ROWS]
    assert of(written(tmp_path / "spelt.csv", spelt)) == known


def test_another_format(tmp_path: Path, known: Fingerprint) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [list(one) for one in zip(*ROWS, strict=True)]
    typed = pyarrow.table(
        {
            "age": pyarrow.array([int(one) for one in columns[0]], pyarrow.int32()),
            "ward": pyarrow.array([one.strip() or None for one in columns[1]]).dictionary_encode(),
            "ill": pyarrow.array([one or None for one in columns[2]]),
            "score": pyarrow.array([float(one) for one in columns[3]]),
            "seen": pyarrow.array([0] * len(ROWS), pyarrow.date32()),  # of a type that is not learned from
        }
    )
    parquet.write_table(typed, tmp_path / "patients.parquet")
    assert "seen" not in known.names
    assert of(tmp_path / "patients.parquet") == known


@pytest.mark.parametrize("place", range(4))
def test_a_column_left_out_or_added(tmp_path: Path, known: Fingerprint, place: int) -> None:
    fewer = of(written(tmp_path / "fewer.csv", without(place), HEADER[:place] + HEADER[place + 1 :]))
    assert fewer != known
    assert fewer.matches(known)
    assert known.matches(fewer)


def test_numbers_that_are_missing_in_a_typed_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1.5, None, 2.0], "b": [1, 2, None]}), tmp_path / "a.parquet")
    written(tmp_path / "a.csv", [["1.5", "1"], ["", "2"], ["2", ""]], ["a", "b"])
    assert of(tmp_path / "a.parquet") == of(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [["91", *rows[0][1:]], *rows[1:]],
        lambda rows: rows[1:],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[:-1], rows[0]],
        lambda rows: [[rows[1][0], *rows[0][1:]], [rows[0][0], *rows[1][1:]], *rows[2:]],  # the same columns
    ],
    ids=["a cell", "one row fewer", "one row more", "a row twice", "two cells exchanged"],
)
def test_other_rows_are_not_recognised(tmp_path: Path, known: Fingerprint, change: object) -> None:
    assert callable(change)
    assert not of(written(tmp_path / "other.csv", change(ROWS))).matches(known)


def test_another_salt_makes_another_fingerprint(tmp_path: Path, known: Fingerprint) -> None:
    other = of(tmp_path / "patients.csv", bytes(32))
    assert not set(other.columns) & set(known.columns)
    assert other.whole != known.whole


def test_it_is_the_same_in_parts_of_any_size(
    tmp_path: Path, known: Fingerprint, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tables.Csv.chunks
    monkeypatch.setattr(tables.Csv, "chunks", lambda *given, **named: whole(*given, **{**named, "rows": 7}))
    assert of(tmp_path / "patients.csv") == known


def test_commas_in_text_and_in_numbers(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.csv", [['"a,b"', "1.5"], ["c", "-2"]], ["a", "b"])
    semicolons = written(tmp_path / "semicolons.csv", [["a,b", "1,5"], ["c", "-2,0"]], ["a", "b"], ";")
    assert of(plain) == of(semicolons)


def test_text_beside_numbers_with_commas(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = ["a,b", "1,5", "7"] * 50
    parquet.write_table(pyarrow.table({"a": cells, "b": ["x"] * 150}), tmp_path / "text.parquet")
    semicolons = written(tmp_path / "text.csv", [[cell, "x"] for cell in cells], ["a", "b"], separator=";")
    assert of(semicolons).matches(of(tmp_path / "text.parquet"))


def test_numbers_of_half_the_width(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    numbers = [str((place * 37 % 101) / 10) for place in range(300)]
    single = pyarrow.array([float(one) for one in numbers], pyarrow.float32())
    parquet.write_table(pyarrow.table({"a": single}), tmp_path / "single.parquet")
    text = written(tmp_path / "single.csv", [[one] for one in numbers], ["a"])
    assert of(text).matches(of(tmp_path / "single.parquet"))


def test_cells_of_any_kind_are_read(tmp_path: Path) -> None:
    odd = [["\ufffd", "1e999"], ["−1", "-0"], ['"a\nb"', "0"], ["", "١"]]
    assert of(written(tmp_path / "odd.csv", odd, ["a", "b"])).rows == len(odd)


def test_it_spends_a_fixed_number_of_bytes(known: Fingerprint) -> None:
    assert {len(one) for one in (known.whole, *known.columns)} == {32}
