"""Which sanitizers fit a concept class, and how well their copies count its concepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.concepts.disagreements import Disagreements
from reticent.concepts.domains import declared
from reticent.concepts.interface import ConceptClass
from reticent.concepts.intervals import Intervals
from reticent.concepts.labellings import joined
from reticent.concepts.order import Ordered, last_where
from reticent.concepts.points import KPoints, Points
from reticent.concepts.rectangles import Rectangles
from reticent.concepts.thresholds import Thresholds
from reticent.data.points import Array, as_rows
from reticent.errors import OutOfReach
from reticent.sanitizers.base import Sanitizer
from reticent.sanitizers.nets import NetSanitizer


def check_sanitizer(sanitizer: Sanitizer, concept_class: ConceptClass[Any]) -> None:
    """Raise ValueError for a sanitizer whose copies the class cannot label: other columns, or another domain.

    Parameters
    ----------
    sanitizer : Sanitizer
        The sanitizer.
    concept_class : ConceptClass
        The class that has to label its copies.
    """
    queries = sanitizer.query_class()
    if queries.columns != concept_class.columns:
        raise ValueError(
            f"sanitizer must take rows of as many columns as concept_class, {concept_class.columns}, "
            f"got {queries.columns}"
        )
    own, theirs = _domain(concept_class), _domain(queries)
    if own is not None and theirs is not None and own != theirs:
        raise ValueError(f"sanitizer must have the domain of concept_class, {own}, got {theirs}")


def check_promise(sanitizer: Sanitizer, rows: Array | None = None) -> None:
    """Raise ValueError if the copies of a sanitizer lack some points where rows may lie: nothing can be promised then.

    Rows may lie on all values of a declared domain. If none is declared, the points of the rows are checked.

    Parameters
    ----------
    sanitizer : Sanitizer
        The sanitizer.
    rows : array or None, default None
        The rows, once they are known.
    """
    if not isinstance(sanitizer, NetSanitizer) or sanitizer.points is None:
        return
    queries, points = sanitizer.query_class(), sanitizer.query_net().points
    domain = _domain(queries)
    if domain is not None and domain.size is not None:
        if len(points) < domain.size**queries.columns:
            raise ValueError(
                "sanitizer must have all values of the domain for its points if an error is to be promised: "
                "leave points out, or set error=None"
            )
    elif rows is not None:
        read = as_rows(rows, queries.columns)
        together = joined(points, read)
        if len(np.unique(together, axis=0 if together.ndim > 1 else None)) > len(points):
            raise ValueError("X must hold only points of the sanitizer for an error to be promised; or set error=None")


def heaviest(points: Array, weights: Array, check: Callable[[int], None]) -> tuple[Array, Array]:
    """The heaviest points of a copy, as many as `check` allows.

    The copy is public by then. Leaving points out costs no privacy, and avoids an error after the copy was paid for.

    Parameters
    ----------
    points, weights : array
        The copy.
    check : callable
        Raises `OutOfReach` for a number of points whose labellings cannot be listed.

    Returns
    -------
    points, weights : array
        Those that are kept, in the order of the copy.
    """

    def fits(count: int) -> bool:
        try:
            check(count)
        except OutOfReach:
            return False
        return True

    most = len(points) if fits(len(points)) else last_where(1, len(points), fits)
    kept = np.sort(np.argsort(-weights, kind="stable")[:most])
    return points[kept], weights[kept]


def concept_parts(concept_class: ConceptClass[Any], queries: ConceptClass[Any]) -> int:
    """How many queries of a sanitizer must be added or subtracted to count where a concept of a class is 1.

    A copy that is correct up to a for each query is correct up to this many times a for every concept. An interval is
    the difference of two prefixes; so is the complement of a threshold, where one prefix is all rows. A set of k points
    is a sum of k points.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    queries : ConceptClass
        What the sanitizer answers.
    """
    match concept_class, queries:
        case _ if concept_class == queries:
            return 1
        case Thresholds(both_orientations=True), Thresholds():
            return 2
        case (Thresholds(), Thresholds()) | (Points(), Points()) | (Intervals(), Intervals()):
            return 1
        case Rectangles(), Rectangles():
            return 1
        case Intervals(), Thresholds():
            return 2
        case KPoints(k=k), Points():
            return k
        case _:
            raise ValueError(
                "nothing can be promised with this sanitizer: its copy must be right for every concept of "
                f"{type(concept_class).__name__}, and it is made for {type(queries).__name__}"
            )


def disagreement_parts(concept_class: ConceptClass[Any], queries: ConceptClass[Any]) -> int:
    """How many queries of a sanitizer must be added or subtracted to count where two concepts of a class differ.

    A copy that is correct up to a for each query is correct up to this many times a for all of C⊕C. Two thresholds
    differ on an interval, the difference of two prefixes; if their orientations differ, perhaps on all the rest. Two
    sets of k points differ on at most 2k points. Two intervals that meet differ on their union less their intersection,
    both of them intervals; if they do not meet, on both of them. For rectangles f and h, count f + h − 2(f ∧ h).

    Parameters
    ----------
    concept_class : ConceptClass
        The class C.
    queries : ConceptClass
        What the sanitizer answers.
    """
    match concept_class, queries:
        case _, Disagreements(concept_class=of) if of == concept_class:
            return 1
        case Thresholds(both_orientations=True), Thresholds():
            return 3
        case (Thresholds(), Thresholds()) | (Intervals(), Intervals()) | (Points(), Points()):
            return 2
        case KPoints(k=k), Points():
            return 2 * k
        case (Intervals(), Thresholds()) | (Rectangles(), Rectangles()):
            return 4
        case _:
            raise ValueError(
                "nothing can be promised with this sanitizer: its copy must be right for all sets on which two "
                f"concepts of {type(concept_class).__name__} differ, as that of NetSanitizer(Disagreements(…)) is"
            )


def _domain(concept_class: ConceptClass[Any]) -> Any:
    """The declared domain of a class, or of the class whose disagreements it contains; None if there is none."""
    if isinstance(concept_class, Disagreements):
        return _domain(concept_class.concept_class)
    return declared(concept_class.bits, concept_class.domain) if isinstance(concept_class, Ordered) else None
