"""Labellers: they turn the votes of teachers into private labels."""

from reticent.labellers.abstaining import Confident, SparseVector
from reticent.labellers.base import ABSTAINS, Labeller, LabellerSpec, PollingLabeller, TableLabeller
from reticent.labellers.greedy import Greedy, greedy_table
from reticent.labellers.noisy import Bit, Gaussian, GNMax, Gumbel
from reticent.labellers.poll import Poll, poll_table
from reticent.labellers.registry import NAMES, REGISTRY, find, make
from reticent.labellers.table import VoteTable
from reticent.labellers.two_coin import TwoCoin

__all__ = [
    "ABSTAINS",
    "NAMES",
    "REGISTRY",
    "Bit",
    "Confident",
    "GNMax",
    "Gaussian",
    "Greedy",
    "Gumbel",
    "Labeller",
    "LabellerSpec",
    "Poll",
    "PollingLabeller",
    "SparseVector",
    "TableLabeller",
    "TwoCoin",
    "VoteTable",
    "find",
    "greedy_table",
    "make",
    "poll_table",
]
