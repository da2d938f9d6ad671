"""The labellers of this package by name, and what the parameter `labeller` accepts."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from reticent.exact import Number
from reticent.labellers.abstaining import Confident, SparseVector
from reticent.labellers.base import Labeller, LabellerSpec
from reticent.labellers.greedy import Greedy
from reticent.labellers.noisy import Bit, Gaussian, GNMax, Gumbel
from reticent.labellers.poll import Poll
from reticent.labellers.two_coin import TwoCoin
from reticent.noise import Noise

LabellerLike: TypeAlias = str | type[Labeller] | LabellerSpec

_KINDS: tuple[type[Labeller], ...] = (
    Greedy, Poll, TwoCoin, Gaussian, Bit, Gumbel, GNMax, Confident, SparseVector
)  # fmt: skip
REGISTRY: Mapping[str, type[Labeller]] = MappingProxyType({kind.name: kind for kind in _KINDS})
NAMES = tuple(REGISTRY)


def names(suits: Callable[[type[Labeller]], bool]) -> tuple[str, ...]:
    """Return the names of the labellers for which `suits` is true.

    >>> names(lambda kind: kind.abstains)
    ('confident', 'sparse-vector')
    """
    return tuple(name for name, kind in REGISTRY.items() if suits(kind))


def find(labeller: LabellerLike, options: Mapping[str, Any] | None = None) -> LabellerSpec:
    """Return the specification of a labeller, given by its name, class or specification.

    Parameters
    ----------
    labeller : str, type[Labeller] or LabellerSpec
        A name of `NAMES`, a subclass of `Labeller`, or what `Labeller.spec` returns.
    options : Mapping[str, Any] or None, default None
        Options for a name or a class. A specification has its own.

    >>> find("two-coin", {"tries": 3}) == TwoCoin.spec(tries=3)
    True
    """
    if isinstance(labeller, LabellerSpec):
        if options:
            raise ValueError("labeller_options must be left out where labeller is a specification, which has its own")
        return labeller
    if isinstance(labeller, Labeller):
        raise TypeError(
            f"labeller must not hold a budget yet, got a {type(labeller).__name__}: give its class, or "
            f"{type(labeller).__name__}.spec() with its options"
        )
    if isinstance(labeller, type) and issubclass(labeller, Labeller):
        kind = labeller
    elif isinstance(labeller, str) and labeller in REGISTRY:
        kind = REGISTRY[labeller]
    else:
        raise ValueError(
            f"labeller must be one of {', '.join(NAMES)}, a subclass of Labeller or a LabellerSpec, "
            f"got {reprlib.repr(labeller)}"
        )
    return LabellerSpec(kind, {} if options is None else options)


def make(
    labeller: LabellerLike,
    *,
    teachers: int,
    classes: int = 2,
    epsilon: Number,
    delta: Number,
    answers: int | None,
    unsafe_noise: Noise | None = None,
    **options: Any,
) -> Labeller:
    """Return a labeller with a budget.

    Parameters
    ----------
    labeller : str, type[Labeller] or LabellerSpec
        The labeller; see `find`.
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int or None
        Number of answers. Ignored by labellers that close by themselves.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    **options : Any
        Options of the labeller.

    >>> make("greedy", teachers=500, epsilon=1, delta=1e-6, answers=100).answers_left
    100
    """
    return find(labeller, options).make(
        teachers=teachers, classes=classes, epsilon=epsilon, delta=delta, answers=answers, unsafe_noise=unsafe_noise
    )
