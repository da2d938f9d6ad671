"""What happened: frozen values that mechanisms return, accountants price and ledgers store.

An event states a fact about one run: the law of its noise and its sensitivity under replace-one neighbours. It does not
state a cost, which `accounting` computes. The meaning of an event never changes: its fields are exact numbers, and JSON
keeps them exactly. Stored files name an event by its `kind`, which is the name of the class unless the class states
another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from reticent.exact import Number, integer, rational
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events. `to_json` and `event_from_json` are exact inverses.

    Attributes
    ----------
    kind : str
        The name of this kind of event in stored files. It never changes, even if the class is renamed.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    kind: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        cls.kind = vars(cls).get("kind", cls.__name__)
        # A dataclass with slots is created twice; the second class is the one that is kept.
        Event.kinds[cls.kind] = cls

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object: the kind of the event and its fields, fractions as strings "p/q"."""
        return {"kind": self.kind} | {f.name: _encode(getattr(self, f.name)) for f in fields(self)}

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _encode(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return event_from_json(value)
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, str):
        return value
    if not _FRACTION.fullmatch(value):
        raise ValueError('a fraction must be written "p" or "p/q", with q > 0')
    return Fraction(value)


_FRACTION = re.compile(r"-?[0-9]+(/0*[1-9][0-9]*)?")


def event_from_json(data: Mapping[str, Any]) -> Event:
    """Read an event that `to_json` wrote.

    Parameters
    ----------
    data : Mapping
        What `to_json` returned.

    Raises
    ------
    ValueError
        If `data` is not an event; the message states why.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"an event must be a JSON object, got {type(data).__name__}")
    kind = Event.kinds.get(str(data.get("kind")))
    if kind is None:
        raise ValueError(f"kind must be one of {', '.join(sorted(Event.kinds))}")
    names = [field.name for field in fields(kind)]
    if set(data) != {"kind", *names}:
        raise ValueError(f"{kind.kind} must have exactly the fields {', '.join(names)}")
    try:
        return kind(**{name: _decode(data[name]) for name in names})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{kind.kind} cannot be read: {error}") from None


def check_event(event: object) -> Event:
    """Return the event itself; raise a TypeError for anything else."""
    if isinstance(event, Event):
        return event
    hint = ": pass its .event" if isinstance(getattr(event, "event", None), Event) else ""
    raise TypeError(f"event must be an Event, got {type(event).__name__}{hint}")


# ── single releases ───────────────────────────────────────────────────────────────────────────────────────────────

@dataclass(frozen=True, slots=True)
class PureDP(Event):
    """A release that is (ε, 0)-differentially private.

    Parameters
    ----------
    epsilon : Fraction
        Privacy-loss bound ε.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        self._set(epsilon=check_epsilon(self.epsilon))


@dataclass(frozen=True, slots=True)
class ApproximateDP(Event):
    """A release that is (ε, δ)-differentially private.

    Parameters
    ----------
    epsilon : Fraction
        Privacy-loss bound ε.
    delta : Fraction
        Failure probability δ, in [0, 1).
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        self._set(epsilon=check_epsilon(self.epsilon), delta=check_delta(self.delta))


def stated(epsilon: Number, delta: Number) -> Event:
    """Return the event of a release of which only ε and δ are known.

    >>> stated(1, 0)
    PureDP(epsilon=Fraction(1, 1))
    """
    exact, chance = check_epsilon(epsilon), check_delta(delta)
    return ApproximateDP(exact, chance) if chance else PureDP(exact)


@dataclass(frozen=True, slots=True)
class BoundedRange(Event):
    """A release whose privacy loss, on any pair of neighbours, stays within an interval of length ε.

    The exponential mechanism with weights e^(ε·score/2) and scores of sensitivity 1 is one. It is ε-DP and (ε²/8)-zCDP.

    Parameters
    ----------
    epsilon : Fraction
        The length ε of the interval.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        self._set(epsilon=check_epsilon(self.epsilon))


@dataclass(frozen=True, slots=True)
class ZCDP(Event):
    """A release that is ρ-zero-concentrated differentially private: D_α ≤ ρα for every α > 1.

    Parameters
    ----------
    rho : Fraction
        The ρ, above 0.
    """

    rho: Fraction

    def __post_init__(self) -> None:
        self._set(rho=check_positive(self.rho, "rho"))


@dataclass(frozen=True, slots=True)
class RenyiDP(Event):
    """A release whose Rényi divergence of one order α > 1, on any pair of neighbours, is bounded.

    Nothing is known about higher orders; at lower ones the divergence is no larger.

    Parameters
    ----------
    order : Fraction
        The order α.
    divergence : Fraction
        The bound on the divergence of that order.
    """

    order: Fraction
    divergence: Fraction

    def __post_init__(self) -> None:
        order = rational(self.order, "order")
        if order <= 1:
            raise ValueError(f"order must be > 1, got {self.order}")
        self._set(order=order, divergence=check_positive(self.divergence, "divergence"))


@dataclass(frozen=True, slots=True)
class ContinuousGaussian(Event):
    """A vector released with continuous Gaussian noise in each coordinate.

    Nothing in this package samples continuous noise: the event prices releases made elsewhere.

    Parameters
    ----------
    sigma : Fraction
        Standard deviation of the noise.
    squared_sensitivity : Fraction, default 1
        Square of the L2 sensitivity of the vector.
    """

    kind: ClassVar[str] = "Gaussian"
    sigma: Fraction
    squared_sensitivity: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        self._set(
            sigma=check_positive(self.sigma, "sigma"),
            squared_sensitivity=check_positive(self.squared_sensitivity, "squared_sensitivity"),
        )


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Event):
    """An integer vector released with discrete Gaussian noise, P(z) ∝ e^(−z²/2σ²), in each coordinate.

    Parameters
    ----------
    sigma : Fraction
        Scale σ of the noise.
    squared_sensitivity : int, default 1
        Square of the L2 sensitivity of the vector.
    """

    sigma: Fraction
    squared_sensitivity: int = 1

    def __post_init__(self) -> None:
        self._set(
            sigma=check_positive(self.sigma, "sigma"),
            squared_sensitivity=integer(self.squared_sensitivity, "squared_sensitivity", least=1),
        )


@dataclass(frozen=True, slots=True)
class GaussianBit(Event):
    """One bit: whether a count of votes plus discrete Gaussian noise reaches half of the voters.

    Neighbours move the count by at most one. Only the sign is released, which costs less than the noisy count.

    Parameters
    ----------
    sigma : Fraction
        Scale σ of the noise, in votes.
    voters : int
        The number of voters.
    """

    sigma: Fraction
    voters: int

    def __post_init__(self) -> None:
        self._set(sigma=check_positive(self.sigma, "sigma"), voters=integer(self.voters, "voters", least=1))


@dataclass(frozen=True, slots=True)
class SparseVectorRun(Event):
    """A sparse-vector run of at most `halts` segments, each ε-DP except with a total probability of at most `delta`.

    Parameters
    ----------
    epsilon : Fraction
        ε of each segment.
    halts : int, default 1
        The most segments.
    delta : Fraction, default 0
        Failure probability of all segments together.
    """

    kind: ClassVar[str] = "SparseVector"
    epsilon: Fraction
    halts: int = 1
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self._set(
            epsilon=check_epsilon(self.epsilon),
            halts=integer(self.halts, "halts", least=1),
            delta=check_delta(self.delta),
        )


# ── combinations ──────────────────────────────────────────────────────────────────────────────────────────────────

@dataclass(frozen=True, slots=True)
class Composed(Event):
    """Events one after another on the same rows.

    Each query may be chosen depending on earlier answers, but the list of events is fixed in advance.

    Parameters
    ----------
    events : tuple of Event
        The events.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        self._set(events=_events(self.events))


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """The same event several times on the same rows, adaptively.

    Parameters
    ----------
    event : Event
        The event.
    times : int
        How often it occurs.
    """

    event: Event
    times: int

    def __post_init__(self) -> None:
        _events((self.event,))
        self._set(times=integer(self.times, "times", least=1))


@dataclass(frozen=True, slots=True)
class Subsampled(Event):
    """An event on a uniformly random subset of the rows, drawn without replacement.

    The subset must reach the mechanism as a uniformly random *ordered* tuple (unless the mechanism ignores the order),
    and which rows were drawn must stay secret. In index order, a subset gains less than is accounted here.

    Parameters
    ----------
    event : Event
        The event on the subset.
    rate : Fraction
        The public share of the rows that is drawn, in (0, 1].
    """

    event: Event
    rate: Fraction

    def __post_init__(self) -> None:
        _events((self.event,))
        rate = rational(self.rate, "rate")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1], got {self.rate}")
        self._set(rate=rate)


@dataclass(frozen=True, slots=True)
class Grouped(Event):
    """An event as seen by a group of rows that change together.

    Parameters
    ----------
    event : Event
        The event, stated for single rows.
    size : int
        The most rows of a group.
    """

    event: Event
    size: int

    def __post_init__(self) -> None:
        _events((self.event,))
        self._set(size=integer(self.size, "size", least=1))


@dataclass(frozen=True, slots=True)
class Parallel(Event):
    """Events on disjoint sets of rows, assigned by a rule that does not read the data. Each row is in one of them.

    Parameters
    ----------
    events : tuple of Event
        The events.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        self._set(events=_events(self.events))


@dataclass(frozen=True, slots=True)
class SeededRelease(Event):
    """An event whose noise came from a seeded generator: anyone who learns the seed can remove the noise.

    Parameters
    ----------
    event : Event
        The event.
    """

    kind: ClassVar[str] = "Seeded"
    event: Event

    def __post_init__(self) -> None:
        _events((self.event,))


def _events(events: object) -> tuple[Event, ...]:
    members = tuple(events) if isinstance(events, (tuple, list)) else ()
    if not members or not all(isinstance(event, Event) for event in members):
        raise TypeError("events must be a non-empty sequence of events")
    return members


def is_seeded(event: Event) -> bool:
    """Return whether any noise of `event` came from a seeded generator.

    Parameters
    ----------
    event : Event
        The event.
    """
    if isinstance(event, SeededRelease):
        return True
    if isinstance(event, (Composed, Parallel)):
        return any(is_seeded(member) for member in event.events)
    return isinstance(event, (Repeated, Subsampled, Grouped)) and is_seeded(event.event)


if not TYPE_CHECKING:  # it would let a type checker accept any name

    def __getattr__(name: str) -> type[Event]:
        """Find a renamed class for pickled models, which have it under its earlier name: its kind."""
        if name in Event.kinds:
            return Event.kinds[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
