"""Concept classes: sets of functions from points to the labels 0 and 1.

Each class knows its VC dimension, its size, an exact minimiser of errors, and all labellings of given points, with a
concept for each, which it counts and scores at once.
"""

from reticent.concepts.checking import Checked, CheckFailed, check
from reticent.concepts.combinations import OneOf, Product, Products, Unions
from reticent.concepts.domains import Datetimes, Domain, Floats, Integers
from reticent.concepts.finite import Choice, Finite
from reticent.concepts.halfspaces import Halfspace, Halfspaces
from reticent.concepts.interface import ConceptClass, Dichotomies, Dichotomy, Listed
from reticent.concepts.intervals import Interval, Intervals
from reticent.concepts.labellings import sauer
from reticent.concepts.points import KPoints, Point, Points, PointSet
from reticent.concepts.rectangles import Rectangle, Rectangles
from reticent.concepts.stumps import Stump, Stumps
from reticent.concepts.thresholds import Threshold, Thresholds
from reticent.concepts.values import Concept

__all__ = [
    "CheckFailed",
    "Checked",
    "Choice",
    "Concept",
    "ConceptClass",
    "Datetimes",
    "Dichotomies",
    "Dichotomy",
    "Domain",
    "Finite",
    "Floats",
    "Halfspace",
    "Halfspaces",
    "Integers",
    "Interval",
    "Intervals",
    "KPoints",
    "Listed",
    "OneOf",
    "Point",
    "PointSet",
    "Points",
    "Product",
    "Products",
    "Rectangle",
    "Rectangles",
    "Stump",
    "Stumps",
    "Threshold",
    "Thresholds",
    "Unions",
    "check",
    "sauer",
]
