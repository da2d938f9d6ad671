"""Does a store grow slow? Start-up and commits with few answers on the ledger and with a million.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/ledger_growth.py [answers]

Every answer is a batch of its own under an idempotency key, the worst case: a row of the ledger and a stored answer
each, and of the journal what the store makes of so many parts. The million is written by the store itself, many to a
transaction, since a disk that syncs a million times takes hours; what is measured is one at a time, synced.
"""

from __future__ import annotations

import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.requests import Request, digest
from reticent.service.store.journal import PARTS
from reticent.service.store.protocol import Entry, JournalPart, StoredAnswer, Transaction
from reticent.service.store.verification import verify

COLUMNS, CHUNK, MEASURED = 10, PARTS, 300


def main(answers: int = 1_000_000) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, COLUMNS))
    model = EverlastingPredictor(
        epsilon=100, delta=1e-6, classes=(0, 1), client_share=1, growth=200, labeller="greedy", most_noise=10
    )
    model.fit(X, (X[:, 0] > 0).astype(np.int64))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder) / "clinic"
        Home.create(place, model, "").close()
        few = measured(place, rng)
        began = time.perf_counter()
        grow(place, answers, rng)
        print(f"{answers} rows of the ledger written in {time.perf_counter() - began:.0f} s")
        many = measured(place, rng)
        began = time.perf_counter()
        found = verify(place / "store.sqlite")
        print(f"verify: {found.length} rows in {time.perf_counter() - began:.1f} s")
    print(f"start-up: {few[0]:.2f} s -> {many[0]:.2f} s (at most 2 s)")
    print(f"a batch, median: {few[1]:.2f} ms -> {many[1]:.2f} ms, ratio {many[1] / few[1]:.2f}")
    print(f"a batch, 99%: {few[2]:.2f} ms -> {many[2]:.2f} ms")
    print(f"store: {few[3]:.0f} MB -> {many[3]:.0f} MB")


def measured(place: Path, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Seconds of start-up; median and 99% of a batch with one row, in milliseconds; megabytes."""
    began = time.perf_counter()
    answering = AnsweringService(Home(place), elsewhere=False)
    start = time.perf_counter() - began
    times = []
    for _ in range(MEASURED):
        request = Request("ann", rng.normal(size=(1, COLUMNS)), secrets.token_hex(16), digest(b""))
        began = time.perf_counter()
        (answer,) = answering.answer([request])
        times.append(1000 * (time.perf_counter() - began))
        assert not isinstance(answer, Exception), answer
    answering.close()
    size = sum(file.stat().st_size for file in place.iterdir()) / 1e6
    return start, statistics.median(times), float(np.quantile(times, 0.99)), size


def grow(place: Path, answers: int, rng: np.random.Generator) -> None:
    """Write so many rows as the answering service would have: the count, the ledger, the answers and the journal."""
    with Home(place) as home:
        store, now = home.store, home.store.position.time
        for first in range(0, answers, CHUNK):
            count = min(CHUNK, answers - first)
            asked = store.position.progress["asked"]
            now += 100
            stored = [("ann", secrets.token_hex(16), StoredAnswer(bytes(32), b"\0", 1)) for _ in range(count)]
            part = JournalPart([("ann", count)], rng.normal(size=(count, COLUMNS)).tobytes(), bytes(count))
            entries = [Entry("ann", 1, 1, 1)] * count
            store.write(
                Transaction(
                    time=now,
                    phase=1,
                    entries=entries,
                    after=asked,
                    labeller={"asked": asked + count},
                    answers=stored,
                    keep=10**9,
                    journal=part,
                )
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
