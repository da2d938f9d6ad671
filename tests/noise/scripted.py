"""A source of noise that gives out the bits it was told to."""

from __future__ import annotations

from collections.abc import Iterable

from reticent.noise import Noise


class Scripted(Noise):
    """Answers each request for bytes with the next of the given integers, little-endian."""

    def __init__(self, answers: Iterable[int]) -> None:
        self.answers = list(answers)

    def random_bytes(self, count: int) -> bytes:
        return self.answers.pop(0).to_bytes(count, "little") if count else b""
