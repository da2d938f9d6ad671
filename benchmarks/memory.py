"""A phase larger than memory may be: rows gathered in a file, trained on, asked, saved, loaded. Memory and time.

The limit is on what is resident of the process (VmHWM, reset before each step), so this runs on Linux. What the system
keeps of files in its own cache is not counted: it gives it back to whoever asks. Exits with the number of
steps that went beyond the limit. Needs twice the size of the phase on the disk, or once with --skip-saving.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import RowStore
from reticent.predictors import state_file
from reticent.teachers import Teachers
from reticent.teachers.saving import from_arrays, to_arrays

Array = NDArray[Any]
GB = 1e9
CHUNK = 100_000  # rows made at a time


def status(field: str) -> float:
    """A size from the status of this process, in GB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field + ":"))) / GB


class Steps:
    """Prints what each step took, and counts those that took too much."""

    def __init__(self, limit: float, phase: float) -> None:
        self.limit, self.phase, self.missed = limit, phase, 0
        print(f"{'':10}{'peak GB':>10}{'of limit':>10}{'of phase':>10}{'now: own':>10}{'of files':>10}{'seconds':>10}")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
        start = time.perf_counter()
        yield
        spent, peak = time.perf_counter() - start, status("VmHWM")
        self.missed += peak > self.limit
        print(
            f"{name:10}{peak:10.2f}{peak / self.limit:10.2f}{peak / self.phase:10.3f}{status('RssAnon'):10.2f}"
            f"{status('RssFile') + status('RssShmem'):10.2f}{spent:10.0f}",
            flush=True,
        )


def fill(store: RowStore, weights: Array) -> None:
    generator = np.random.default_rng(0)
    for start in range(0, store.capacity, CHUNK):
        X = 4 * generator.random((min(CHUNK, store.capacity - start), store.columns), dtype=np.float32) - 2
        chances = 1 / (1 + np.exp(-X @ weights))
        store.append(X, (generator.random(len(X)) < chances).astype(np.uint8))


def right(teachers: Teachers, weights: Array, queries: int) -> float:
    """How often most of the teachers are right."""
    X = 4 * np.random.default_rng(1).random((queries, len(weights)), dtype=np.float32) - 2
    votes = teachers.votes(X)
    return float(((votes[:, 1] > votes[:, 0]) == (X @ weights > 0)).mean())


def saved_and_loaded(steps: Steps, store: RowStore, teachers: Teachers, path: Path) -> RowStore:
    with steps.step("saved"):
        header, arrays = to_arrays(teachers)
        X, codes, *_ = store.rows()
        state_file.write(path, header, {**arrays, "rows/X": X, "rows/codes": codes}, release=store.release)
        store.delete()
    with steps.step("loaded"):
        state = state_file.load(path)
        from_arrays(state.header, state.arrays, None)
        again = RowStore(len(X), store.columns, dtype=X.dtype, classes=2, memory_limit=0, folder=path.parent)
        again.append(state.arrays["rows/X"], state.arrays["rows/codes"], release=state.release)
    return again


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=25_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--shards", type=int, default=25_000)
    parser.add_argument("--limit", type=float, default=2.0, help="in GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--skip-saving", action="store_true")
    chosen = parser.parse_args()
    phase = chosen.rows * (4 * chosen.columns + 1) / GB
    free = shutil.disk_usage(chosen.folder).free / GB
    needed = phase * (1 if chosen.skip_saving else 2) + 5
    if free < needed:
        raise SystemExit(f"{chosen.folder} has {free:.0f} GB free, and {needed:.0f} are needed: name another --folder")
    weights = 2 * np.random.default_rng(2).normal(size=chosen.columns).astype(np.float32) / np.sqrt(chosen.columns)
    print(
        f"a phase of {chosen.rows:,} rows with {chosen.columns} columns of single precision: {phase:.1f} GB; "
        f"{chosen.shards:,} teachers; limit {chosen.limit:g} GB"
    )
    half = int(chosen.limit * GB / 2)
    store = RowStore(
        chosen.rows, chosen.columns, dtype=np.float32, classes=2, memory_limit=half, folder=chosen.folder
    )
    print(f"rows are kept in {'a file' if store.on_disk else 'memory'}")
    steps = Steps(chosen.limit, phase)
    with steps.step("gathered"):
        fill(store, weights)
    with steps.step("trained"):
        X, codes, *_ = store.rows()
        teachers = Teachers(shards=chosen.shards).fit_rows(X, codes, classes=(0, 1), release=store.release)
    with steps.step("asked"):
        score = right(teachers, weights, 10_000)
    if not chosen.skip_saving:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            store = saved_and_loaded(steps, store, teachers, Path(folder) / "state")
    print(f"most teachers are right on {100 * score:.2f} % of 10,000 queries")
    store.delete()
    return steps.missed


if __name__ == "__main__":
    raise SystemExit(main())
