"""Attack ourselves: exact output laws of the real code, the everlasting game, and lower bounds on ε from outside."""

from reticent.audit.everlasting_game import everlasting_game
from reticent.audit.hockey_stick import Divergence, exact
from reticent.audit.labellers import Conformance, check_labeller
from reticent.audit.laws import Law, law
from reticent.audit.lower_bound import EmpiricalBound, empirical
from reticent.audit.neighbours import WorstCase, worst_case

__all__ = [
    "Conformance",
    "Divergence",
    "EmpiricalBound",
    "Law",
    "WorstCase",
    "check_labeller",
    "empirical",
    "everlasting_game",
    "exact",
    "law",
    "worst_case",
]
