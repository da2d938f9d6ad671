"""Votes of teachers in, private labels out: greedy, poll, two-coin, and those of the literature, by name."""

from __future__ import annotations

from typing import Any

from reticent.labellers.base import ABSTAINS, Labeller
from reticent.labellers.classic import Confident, Gaussian, GNMax, Gumbel, SparseVector
from reticent.labellers.greedy import greedy_table
from reticent.labellers.poll import poll_table
from reticent.labellers.stateless import Greedy, Poll
from reticent.labellers.table import VoteTable
from reticent.labellers.two_coin import TwoCoin

__all__ = [
    "ABSTAINS",
    "NAMES",
    "Confident",
    "GNMax",
    "Gaussian",
    "Greedy",
    "Gumbel",
    "Labeller",
    "Poll",
    "SparseVector",
    "TwoCoin",
    "VoteTable",
    "greedy_table",
    "make",
    "poll_table",
]

NAMES = ("greedy", "poll", "two-coin", "gaussian", "bit", "sparse-vector", "confident", "gnmax", "gumbel")
_TWO_CLASSES = ("greedy", "poll", "gaussian", "bit")
_UNCOUNTED = ("two-coin", "sparse-vector")  # these close by themselves, after no set number of answers


def make(
    name: str, *, teachers: int, classes: int = 2, epsilon: object, delta: object, answers: int | None, **options: Any
) -> Labeller:
    """The labeller of this name; `options` are those of its class.

    >>> make("greedy", teachers=500, epsilon=1, delta=1e-6, answers=100).answers_left
    100
    """
    kinds: dict[str, Any] = {
        "greedy": Greedy,
        "poll": Poll,
        "two-coin": TwoCoin,
        "gaussian": Gaussian,
        "bit": Gaussian,
        "sparse-vector": SparseVector,
        "confident": Confident,
        "gnmax": GNMax,
        "gumbel": Gumbel,
    }
    if name not in kinds:
        raise ValueError(f"labeller must be one of {', '.join(NAMES)}, got {name!r}")
    if name in _TWO_CLASSES:
        if classes != 2:
            raise ValueError(f"the labeller {name!r} takes two classes, got {classes}: use two-coin, gnmax or gumbel")
    else:
        options["classes"] = classes
    if name not in _UNCOUNTED:
        options["answers"] = answers
    if name == "bit":
        options["price"] = "bit"
    labeller: Labeller = kinds[name](teachers=teachers, epsilon=epsilon, delta=delta, **options)
    return labeller
