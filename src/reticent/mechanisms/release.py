"""What a mechanism returns: its result, and the event that states how it was made."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from reticent import noise
from reticent.noise import Noise, system
from reticent.privacy.events import Event, SeededRelease

T = TypeVar("T")


class Release(NamedTuple, Generic[T]):
    """A private result and its event: `value, event = exponential(scores, epsilon=1)`.

    Attributes
    ----------
    value : object
        The released result.
    event : Event
        What happened, for accountants and ledgers.
    """

    value: T
    event: Event


def release(value: T, event: Event, unsafe_noise: Noise | None) -> Release[T]:
    """Pair a result with its event, marked as `SeededRelease` if the noise is not that of the operating system.

    Parameters
    ----------
    value : object
        The released result.
    event : Event
        What happened.
    unsafe_noise : Noise or None
        The noise that a test put in place of the operating system's, if any.
    """
    return Release(value, event if unsafe_noise is None else SeededRelease(event))


def noise_from_seed(unsafe_seed: int | None) -> Noise | None:
    """The noise that the `unsafe_seed` of an estimator asks for; None for that of the operating system."""
    return None if unsafe_seed is None else noise.Seeded(unsafe_seed=unsafe_seed)


def noise_or_system(unsafe_noise: Noise | None) -> Noise:
    """Return the noise to draw from: that of the operating system unless a test passes another.

    Raises
    ------
    TypeError
        If `unsafe_noise` is not a `Noise`.
    """
    if unsafe_noise is None:
        return system
    if not isinstance(unsafe_noise, Noise):
        raise TypeError(f"unsafe_noise must be a Noise, such as noise.Seeded, got {type(unsafe_noise).__name__}")
    return unsafe_noise
