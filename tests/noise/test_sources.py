"""Where the bits come from: no two processes or threads share any, and only a seeded source can be replayed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from reticent.noise import Noise, Seeded, system

pytestmark = pytest.mark.system_noise


class Buffered(Noise):
    """Twin: reads ahead, and keeps what it has not used."""

    def __init__(self) -> None:
        self.buffer = b""

    def random_bytes(self, count: int) -> bytes:
        if len(self.buffer) < count:
            self.buffer += os.urandom(count + 4096)  # steady: about these bytes
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken


def in_children(draw: Callable[[], bytes], children: int) -> list[bytes]:
    """What `draw` returns in as many forked children."""
    results = []
    for _ in range(children):
        receiver, sender = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads; this child only draws
            child = os.fork()
        if not child:
            try:
                os.write(sender, draw())
            finally:
                os._exit(0)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            results.append(pipe.read())
        os.waitpid(child, 0)
    return results


def forks_share_noise(noise: Noise) -> bool:
    noise.discrete_gaussian(Fraction(10), 5)  # whatever is cached or buffered is there before the fork
    noise.uniform(7)
    draws: list[Callable[[], bytes]] = [
        lambda: noise.uniform(1 << 128).to_bytes(16, "little"),
        lambda: noise.discrete_gaussian(Fraction(1000), 40).tobytes(),
        lambda: noise.discrete_laplace(Fraction(500), 40).tobytes(),
        lambda: noise.permutation(50).tobytes(),
    ]
    for draw in draws:
        seen = [*in_children(draw, 3), draw(), *in_children(draw, 1), draw()]
        if len(set(seen)) < len(seen):
            return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is nothing to share without fork")
def test_forks_never_share_noise() -> None:
    assert not forks_share_noise(system)
    assert not forks_share_noise(Noise())
    assert forks_share_noise(Buffered())
    assert forks_share_noise(Seeded(unsafe_seed=1))


def threads_share_noise(draw: Callable[[int], int]) -> bool:
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(draw, range(4000)))
    return len(set(drawn)) < len(drawn)


@pytest.mark.slow
def test_threads_never_share_noise() -> None:
    assert not threads_share_noise(lambda _: int(system.uniform(1 << 128)))
    assert not threads_share_noise(lambda _: hash(system.discrete_gaussian(Fraction(1000), 30).tobytes()))
    # twin: each thread seeds a source of its own from the clock's coarse time
    assert threads_share_noise(lambda i: int(Seeded(unsafe_seed=i // 8).uniform(1 << 128)))


def test_threads_build_a_table_safely() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda i: system.discrete_gaussian(Fraction(777 + i % 2), 100), range(32)))
    assert all(len(draw) == 100 and np.abs(draw).max() < 20_000 for draw in drawn)


def test_all_bits_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """With os.urandom replaced by zeros every draw is what zeros make of it, and not a bit is read ahead."""
    asked: list[int] = []

    def zeros(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr(os, "urandom", zeros)
    noise = Noise()
    assert noise.uniform(1000) == 0
    assert noise.uniform(1000, 4).tolist() == [0, 0, 0, 0]
    assert asked == [2, 8]
    asked.clear()
    assert noise.random_words(np.uint64, 3).tolist() == [0, 0, 0]
    assert asked == [24]


def test_a_seed_replays() -> None:
    first, second, other = (Seeded(unsafe_seed=seed) for seed in (3, 3, 4))
    for _ in range(2):
        replayed = [noise.discrete_gaussian(Fraction(10), 50).tolist() for noise in (first, second, other)]
        assert replayed[0] == replayed[1] != replayed[2]
        orders = [noise.permutation(30).tolist() for noise in (first, second, other)]
        assert orders[0] == orders[1] != orders[2]


def test_a_seed_must_be_named_and_whole() -> None:
    with pytest.raises(TypeError):
        Seeded(1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="unsafe_seed must be at least 0"):
        Seeded(unsafe_seed=-1)
    with pytest.raises(TypeError, match="unsafe_seed must be a whole number"):
        Seeded(unsafe_seed=1.5)  # type: ignore[arg-type]
