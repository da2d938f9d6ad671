"""Processor time of requests about split votes against that of requests about unanimous ones.

    python -m benchmarks.answer_time [--rounds 3125]

Whole requests, through the routes and a durable service. It includes compiled code, and finds a difference of more than
two microseconds in a request. It does not look for a smaller one, which the caches of some processor may make. Time
that others take on the same machine is not counted. `tests/service/test_timing.py` compares steps, exactly.

Exit code 1 if times show votes, or if a service that thinks 20 microseconds longer about split votes is not found.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from reticent.service.answering import AnsweringService
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.processes import Folder

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "service")]

from test_timing import NO, SPLIT, YES, Telltale, asking, body_of, clinic  # noqa: E402

TOGETHER = 16  # requests at a time: batches are of the same sizes in both kinds
MARGIN = 2e-6  # seconds of a request: a tenth of what the twin takes
MEMORY = Path("/dev/shm")  # where there is one: it is quicker, and there is less unrest


def bodies(value: str) -> list[bytes]:
    """Requests of one kind; with half of the answers yes and half no in either, so that only votes differ."""
    return TOGETHER * [body_of(SPLIT)] if value == SPLIT else TOGETHER // 2 * [body_of(YES), body_of(NO)]


async def differences(service: Service, pairs: int, warm: int = 30) -> np.ndarray[Any, Any]:
    """The processor time of a round of split queries less that of one of unanimous queries, in random order."""
    ask = asking(service)

    async def one_round(bodies: list[bytes]) -> float:
        started = time.process_time()
        await asyncio.gather(*map(ask, bodies))
        return time.process_time() - started

    kinds = bodies(YES), bodies(SPLIT)
    for _ in range(warm):
        await one_round(kinds[0])
    found = np.empty(pairs)
    for pair, order in enumerate(np.random.default_rng(0).integers(0, 2, pairs)):
        first = await one_round(kinds[order])
        second = await one_round(kinds[1 - order])
        found[pair] = second - first if order == 0 else first - second
    await service.batcher.close()
    return found


def chance(folder: Path, pairs: int, answering_of: Callable[[AnsweringService], Any]) -> float:
    """How likely differences as these are, at most, if times of the two kinds differ by the margin or less."""
    folder.mkdir()
    answering, rules = clinic(folder)

    async def run() -> np.ndarray[Any, Any]:
        made = Service("clinic", rules, answering, Batcher(answering_of(answering)), dashboard=False)
        return await differences(made, pairs)

    try:
        found = asyncio.run(run())
    finally:
        answering.close()
    margin = TOGETHER * MARGIN
    longer = wilcoxon(found - margin, alternative="greater")
    shorter = wilcoxon(found + margin, alternative="less")
    least = 2 * float(min(longer.pvalue, shorter.pvalue))
    print(
        f"{answering_of.__name__:9} chance {least:8.3g}, median difference {np.median(found) / TOGETHER * 1e6:6.2f} µs "
        f"of a request, {2 * TOGETHER * pairs:,} requests"
    )
    return least


def service(answering: AnsweringService) -> AnsweringService:
    """The service as it is."""
    return answering


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3125, help="of either kind")
    pairs = parser.parse_args().rounds
    with Folder("answer-time-", MEMORY if MEMORY.is_dir() else None) as folder:
        # Three measurements one after the other: by chance all of them say so once in 10⁹ times.
        tell = all(chance(folder / str(one), pairs, service) < 1e-3 for one in range(3))
        found = chance(folder / "twin", pairs, Telltale) < 1e-3
    print(f"times {'SHOW' if tell else 'do not show'} votes; the twin is {'found' if found else 'NOT FOUND'}")
    return int(tell or not found)


if __name__ == "__main__":
    sys.exit(main())
