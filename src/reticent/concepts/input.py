"""Refuse points that a concept class cannot label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import ArrayLike

from reticent.concepts.finite import Finite
from reticent.concepts.interface import ConceptClass
from reticent.data.points import as_array, as_rows
from reticent.errors import OutOfReach


@contextmanager
def read_as(name: str) -> Iterator[None]:
    """Name the argument that holds the points if a concept class refuses them."""
    try:
        yield
    except OutOfReach:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error)
        for inner in ("X ", "at "):  # the names of points in the methods of a class
            if reason.startswith(inner):
                raise type(error)(f"{name} {reason[len(inner) :]}") from error
        raise type(error)(f"{name} must hold points that the concept class can label: {reason}") from error


def refuse_bad_points(concept_class: ConceptClass[Any], points: ArrayLike, name: str = "X") -> None:
    """Let the class read all points, and raise an error for those that it cannot label.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    points : array_like
        The points.
    name : str, default "X"
        The name of the argument, for messages.
    """
    rows = as_array(points, name)
    if not isinstance(concept_class, Finite):  # its functions may take any number of columns
        rows = as_rows(rows, concept_class.columns, name)
    with read_as(name):
        concept_class.predict(concept_class.dichotomies(rows[:1]).concept(0), rows)


def check_concept_class(concept_class: object, name: str = "concept_class") -> None:
    """Raise TypeError for a parameter that is not a concept class."""
    if not isinstance(concept_class, ConceptClass):
        raise TypeError(f"{name} must be a ConceptClass, got {type(concept_class).__name__}")
