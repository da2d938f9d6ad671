"""Saved states come back whole or not at all, are the owner's alone, and are continued from once."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from reticent.data.rows import RowStore
from reticent.predictors import state_file

Array = NDArray[Any]

HEADER = {"phase": 3, "epsilon": "1/10", "names": ["a", "ü"], "nested": {"none": None, "big": 2**200, "x": 0.1}}
ARRAYS: dict[str, Array] = {
    "teachers/weights": np.random.default_rng(0).normal(size=(7, 5)),
    "codes": np.arange(300, dtype=np.uint8)[:250],
    "classes": np.array(["no", "yes"]),
    "days": np.arange(5).astype("datetime64[D]"),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "scalar": np.array(2**62),
    "turned": np.asfortranarray(np.arange(12).reshape(3, 4)),
}


def saved(folder: Path, **more: Array) -> Path:
    state_file.write(folder / "state", HEADER, ARRAYS | more)
    return folder / "state"


def equal(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


@pytest.mark.parametrize("large", [0, 1 << 26])
@pytest.mark.parametrize("chunk", [1, 64, 1 << 24])
def test_what_is_saved_is_read(large: int, chunk: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state_file, "LARGE", large)
    monkeypatch.setattr(state_file, "CHUNK", chunk)
    header, arrays, release, _ = state_file.read(saved(tmp_path))
    assert header == HEADER
    release()
    assert equal(arrays, ARRAYS)
    for array in arrays.values():
        assert array.flags.aligned
        assert not array.flags.writeable


kinds = st.one_of(
    arrays_of.boolean_dtypes(),
    arrays_of.integer_dtypes(),
    arrays_of.floating_dtypes(),
    arrays_of.unicode_string_dtypes(max_len=5),
    arrays_of.byte_string_dtypes(max_len=5),
    arrays_of.datetime64_dtypes(),
    arrays_of.timedelta64_dtypes(),
)
everything = st.dictionaries(
    st.from_regex(state_file.NAME, fullmatch=True).map(lambda name: name[:40].strip("./-")),
    kinds.flatmap(lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0))),
    max_size=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=50)
@given(arrays=everything, header=st.dictionaries(st.text(), json_values, max_size=4))
def test_any_arrays_and_any_json_come_back(
    arrays: dict[str, Array], header: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    state_file.write(path, header, arrays)
    state = state_file.read(path)
    assert state.header == header
    assert equal(state.arrays, arrays)


def test_the_file_is_a_zip_that_others_can_read(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        page = json.loads(archive.read("state.json"))
        assert (page["format"], page["version"]) == ("reticent-state", 1)
        assert set(archive.namelist()) == {"state.json", *(f"{name}.npy" for name in ARRAYS)}
        for name, array in ARRAYS.items():
            with archive.open(f"{name}.npy") as member:
                assert np.array_equal(np.load(member, allow_pickle=False), array)


def test_rows_in_a_file_are_saved_and_restored_without_being_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state_file, "LARGE", 0)
    monkeypatch.setattr(state_file, "CHUNK", 1000)
    store, again = (RowStore(1000, 3, dtype=np.float32, classes=2, memory_limit=0, folder=tmp_path) for _ in range(2))
    X = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    store.append(X, np.arange(1000) % 2)
    calls: list[int] = []

    def release() -> None:
        store.release()
        calls.append(1)

    rows = store.rows()
    state_file.write(tmp_path / "state", {}, {"X": rows.X, "codes": rows.class_indices}, release=release)
    assert len(calls) >= 12
    state = state_file.load(tmp_path / "state")
    again.append(state.arrays["X"], state.arrays["codes"], release=state.release)
    assert np.array_equal(again.rows().X, X)


# ── whole, or not at all ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("large", [0, 1 << 26])
def test_a_file_cut_short_anywhere_is_refused(large: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state_file, "LARGE", large)
    path = saved(tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="state"):
            state_file.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="damaged"):
        state_file.load(path)
    path.write_bytes(whole)
    state_file.load(path)  # none of those was taken for a load


@pytest.mark.slow
def test_a_file_with_a_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = bytearray(path.read_bytes())
    for place in range(0, len(whole), 3):
        whole[place] ^= 1 << place % 8
        path.write_bytes(whole)
        with pytest.raises(ValueError, match="state"):
            state_file.read(path)
        whole[place] ^= 1 << place % 8


def test_pages_of_zeros_as_after_a_crash_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, X=np.ones(5000))
    whole = path.read_bytes()
    for start in range(0, len(whole), 4096):
        path.write_bytes(whole[:start] + bytes(min(4096, len(whole) - start)) + whole[start + 4096 :])
        with pytest.raises(ValueError, match="state"):
            state_file.read(path)


def forged(path: Path, **changes: Any) -> None:
    """A file by someone who knows the format: another page, and a seal that fits."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    page = json.loads(members["state.json"]) | changes.pop("page", {})
    members = {**members, "state.json": json.dumps(page).encode(), **changes}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = state_file.SEAL + b"0" * 64
    with open(path, "r+b") as file:
        seal = state_file._digest(file, 0, path.stat().st_size - 64)
        file.seek(-64, os.SEEK_END)
        file.write(seal.encode())


def test_a_newer_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = saved(tmp_path)
    forged(path)
    state_file.read(path)
    forged(path, page={"version": 7})
    with pytest.raises(ValueError, match=r"version 7 .* up to version 1"):
        state_file.read(path)
    with pytest.raises(ValueError, match="version 7"):
        state_file.load(path)


def object_array() -> bytes:
    path = Path("objects.npy")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    return path.read_bytes()


def test_edited_and_foreign_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickled = object_array()
    digest = hashlib.sha256(pickled).hexdigest()
    digests = json.loads(zipfile.ZipFile(saved(tmp_path)).read("state.json"))["arrays"]
    for changes, message in (
        ({"page": {"format": "other"}}, "format is not"),
        ({"page": {"version": 0}}, "damaged"),
        ({"page": {"version": "1"}}, "version '1'"),
        ({"page": {"id": "../../etc"}}, "damaged"),
        ({"page": {"arrays": {}}}, "damaged"),
        ({"page": {"arrays": []}}, "damaged"),
        ({"extra.npy": b"1"}, "does not hold the arrays"),
        ({"codes.npy": pickled}, "'codes' is not the one"),
        ({"codes.npy": pickled, "page": {"arrays": digests | {"codes": digest}}}, "damaged"),
    ):
        forged(saved(tmp_path), **changes)
        with pytest.raises(ValueError, match=message):
            state_file.load(tmp_path / "state")
    for content in (b"", b"PK", b"not a zip" * 100, pickled):
        (tmp_path / "state").write_bytes(content)
        with pytest.raises(ValueError, match="not a saved state"):
            state_file.load(tmp_path / "state")
    assert not list(tmp_path.glob("*.claimed"))
    with pytest.raises(FileNotFoundError):
        state_file.load(tmp_path / "nothing")


def test_a_compressed_array_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="damaged"):
        state_file.read(path)
    forged_names = {"codes.npy": members["codes.npy"]}
    saved(tmp_path)
    forged(path, **forged_names)
    assert equal(state_file.read(path).arrays, ARRAYS)


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"x": float("nan")}, {}, "JSON"),
        ({"x": object()}, {}, "JSON"),
        ({}, {"a b": np.ones(1)}, "names of arrays"),
        ({}, {"../a": np.ones(1)}, "names of arrays"),
        ({}, {"/a": np.ones(1)}, "names of arrays"),
        ({}, {"a": np.array([None])}, "must hold numbers"),
        ({}, {"a": np.array([1j])}, "must hold numbers"),
        ({}, {"a": np.zeros(1, dtype=[("x", int)])}, "must hold numbers"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    header: Any, arrays: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        state_file.write(tmp_path / "state", header, arrays)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)

    def full() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        state_file.write(path, {}, {"X": np.ones(3)}, release=full)
    assert equal(state_file.read(path).arrays, ARRAYS)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_killed_save_leaves_the_old_state(tmp_path: Path) -> None:
    path = saved(tmp_path)
    script = f"""
import os, numpy as np
from reticent.predictors import state_file
calls = []
def kill():
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
state_file.write({str(path)!r}, {{}}, {{"X": np.ones(9), "Y": np.ones(9), "Z": np.ones(9)}}, release=kill)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert equal(state_file.read(path).arrays, ARRAYS)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = saved(tmp_path)
        state_file.load(path)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()] == [0o600, 0o600]


# ── once ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_state_is_loaded_once(tmp_path: Path) -> None:
    path = saved(tmp_path)
    old = path.read_bytes()
    state_file.read(path)
    state_file.load(path)
    state_file.read(path)  # only looks
    with pytest.raises(ValueError, match="loaded before"):
        state_file.load(path)
    assert state_file.load(path, again=True).header == HEADER
    with pytest.raises(ValueError, match="loaded before"):
        state_file.load(path)
    saved(tmp_path)  # a new state under the same name
    state_file.load(path)
    path.write_bytes(old)  # and the old one put back
    with pytest.raises(ValueError, match="loaded before"):
        state_file.load(path)


def test_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "link").symlink_to(path)
    state_file.load(tmp_path / "link")
    with pytest.raises(ValueError, match="loaded before"):
        state_file.load(path)


def test_of_many_that_load_at_once_one_does(tmp_path: Path) -> None:
    path = saved(tmp_path)

    def attempt(_: int) -> bool:
        try:
            state_file.load(path)
        except ValueError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(64))) == 1
