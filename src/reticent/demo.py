"""`reticent demo`: a private threshold over 64-bit integers, its guarantee in words, and an audit of it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel

from reticent import audit, noise, privacy
from reticent.mechanisms import Pieces, Release, exponential_over_pieces
from reticent.noise import Noise

Array = NDArray[Any]

ROWS = 100_000
EPSILON = 1
WRONG = 20  # one label in so many is wrong
TOY = ([1, 3, 4, 9, 11, 14], [0, 0, 0, 1, 1, 1])  # 4-bit records, few enough to walk through every outcome
TOY_NEIGHBOUR = ([1, 3, 4, 9, 11, 14], [0, 0, 0, 0, 1, 1])  # one record replaced: the 9 has another label


def threshold_scores(values: Array, labels: Array, *, bits: int) -> Pieces:
    """How many rows the rule "1 from t on, 0 below" gets right, for every t of [0, 2^bits).

    A replaced row moves the score of each t by at most 1. It changes only right after a value of the data, so a few
    pieces tell it for all 2^bits thresholds.
    """
    order = np.argsort(values, kind="stable")
    values, labels = np.asarray(values, dtype=np.uint64)[order], np.asarray(labels)[order]
    gains = np.cumsum(np.where(labels == 1, -1, 1))  # once t has passed a row, that row is called 0
    last_of_value = np.append(values[1:] != values[:-1], True) & (values != np.uint64(2**bits - 1))
    starts = np.append(np.uint64(0), values[last_of_value] + np.uint64(1))
    scores = int(np.count_nonzero(labels == 1)) + np.append(0, gains[last_of_value])
    return Pieces.from_breakpoints(starts, scores, last=2**bits - 1)


def learn_threshold(
    values: Array, labels: Array, *, bits: int, epsilon: object, unsafe_noise: Noise | None = None
) -> Release[int]:
    """A threshold that gets nearly as many rows right as the best one, by the exponential mechanism."""
    scores = threshold_scores(values, labels, bits=bits)
    return exponential_over_pieces(scores, epsilon=epsilon, unsafe_noise=unsafe_noise)


def example(rows: int, secret: int) -> tuple[Array, Array]:
    """Made-up records: uniform 64-bit integers, 1 from the secret threshold on, with some labels wrong."""
    values = noise.uniform(2**64, rows)
    wrong = noise.uniform(WRONG, rows) == 0
    return values, (values >= np.uint64(secret)) ^ wrong


def main() -> None:
    """Learn, explain, audit."""
    console = Console()
    secret = 2**62 + 123_456_789
    values, labels = example(ROWS, secret)

    started = time.perf_counter()
    threshold, event = learn_threshold(values, labels, bits=64, epsilon=EPSILON)
    seconds = time.perf_counter() - started
    fresh, truth = example(ROWS, secret)
    right = float(np.mean((fresh >= np.uint64(threshold)) == truth))
    best = float(np.mean((fresh >= np.uint64(secret)) == truth))
    console.print(
        Panel(
            f"{ROWS:,} made-up records, each a 64-bit integer and a label; one label in {WRONG} is wrong.\n"
            f"Out of 2^64 thresholds the private learner took {threshold:,}\n"
            f"in {1000 * seconds:.0f} ms. On fresh records it is right {100 * right:.2f} % of the time; "
            f"the true rule, {100 * best:.2f} %.",
            title="A private threshold",
        )
    )
    guarantee = privacy.guarantee(event)
    console.print(Panel(guarantee.explain(), title="Its guarantee"))

    def walk(rows: tuple[list[int], list[int]], epsilon: float) -> audit.Law:
        return audit.law(
            lambda source: learn_threshold(*map(np.array, rows), bits=4, epsilon=epsilon, unsafe_noise=source).value
        )

    honest = audit.exact(walk(TOY, EPSILON), walk(TOY_NEIGHBOUR, EPSILON)).delta(EPSILON)
    broken = audit.exact(walk(TOY, 2 * EPSILON), walk(TOY_NEIGHBOUR, 2 * EPSILON)).delta(EPSILON)
    with console.status("auditing from outside …"):
        bound = audit.empirical(
            lambda rows: learn_threshold(*map(np.array, rows), bits=4, epsilon=EPSILON).value,
            TOY,
            TOY_NEIGHBOUR,
            delta=0,
            epsilon=EPSILON,
            runs=10_000,
            quiet=True,
        )
    holds, caught = honest[1] < 1e-60, broken[0] > 0
    console.print(
        Panel(
            f"On two tables of {len(TOY[0])} records that differ in one, every outcome of the noise was walked "
            "through.\n"
            f"The learner exceeds ε = {EPSILON} with a probability of at most {honest[1]:.0e}: "
            f"the claim {'holds' if holds else 'FAILS'}.\n"
            f"A copy with half the noise exceeds it by {broken[0]:.3f}: it is {'caught' if caught else 'MISSED'}.\n"
            f"From outside, by running it: {bound}.",
            title="An audit",
        )
    )
    if not (holds and caught and bound.passed):
        raise SystemExit("the audit failed: do not use this build")
