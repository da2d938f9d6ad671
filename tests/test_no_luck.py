"""No test depends on luck, on time or on load: the noise of tests is fixed, and their source has nothing that waits.

The rules are those of `CONTRIBUTING.md`. A line that must break one says why, in a comment that begins with "steady:".
"""

from __future__ import annotations

import ast
import hashlib
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from reticent.noise import Seeded, system
from waiting import Crowd, reserved_port

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "tests").rglob("*.py"), ROOT / "conftest.py"])
SHORT = 60  # seconds: on a busy machine anything may take as long

CLOCKS = {f"time.{one}{unit}" for one in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")}
CLOCKS |= {"datetime.now", "datetime.datetime.now", "timeit.timeit", "timeit.repeat"}
SLEEPS = {"time.sleep", "sleep", "asyncio.sleep", "signal.alarm"}
ENTROPY = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", "random.SystemRandom"}
WAITS = {"join", "wait", "wait_for", "timeout", "settimeout", "timeout_at", "result"}  # whose numbers are limits
CLIENTS = {f"httpx.{one}" for one in ("get", "post", "put", "delete", "request", "stream", "Client")} | {"urlopen"}
ADDRESSED = {"bind", "create_connection", "create_server", "connect"}


def name_of(node: ast.expr) -> str:
    """The dotted name of what is called; "" where it has none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}".lstrip(".")
    return ""


def number(node: ast.expr) -> float | None:
    """The number that is written there."""
    value = node.value if isinstance(node, ast.Constant) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def faults_of(call: ast.Call) -> Iterator[str]:
    """What is wrong with a call."""
    name = name_of(call.func)
    last = name.rpartition(".")[2]
    keywords = {one.arg: one.value for one in call.keywords}
    yield from randomness(call, name, last)
    if name in CLOCKS:
        yield "reads a clock"
    if (name in SLEEPS or last == "wait_for_timeout") and not (name == "asyncio.sleep" and number(call.args[0]) == 0):
        yield "sleeps"
    limits = [value for key, value in keywords.items() if key and key.endswith("timeout")]
    if last in WAITS:
        limits += call.args
    if any((found := number(one)) is not None and found < SHORT for one in limits):
        yield "waits for a short time"
    if name in CLIENTS and "timeout" not in keywords:
        yield "waits as long as httpx does by itself, which is short"
    deadline = keywords.get("deadline")
    if last == "settings" and deadline is not None and not (isinstance(deadline, ast.Constant) and not deadline.value):
        yield "has a deadline"
    if last == "getsockname":
        yield "lets go of a port before it is used; see waiting.reserved_port"
    if last in ADDRESSED:
        for place in (one for one in call.args if isinstance(one, ast.Tuple) and len(one.elts) == 2):
            if number(place.elts[1]):
                yield "uses a fixed port"


def randomness(call: ast.Call, name: str, last: str) -> Iterator[str]:
    """What is drawn without a seed."""
    unseeded = not call.args and not call.keywords
    unseeded = unseeded or any(isinstance(one, ast.Constant) and one.value is None for one in call.args)
    if last in ("default_rng", "SeedSequence", "RandomState") and unseeded:
        yield "has no seed"
    if name == "random.Random" and unseeded:
        yield "has no seed"
    if name in ENTROPY or name.startswith("secrets."):
        yield "draws what no run repeats"
    if name.rpartition(".")[0] in ("random", "np.random") and last.islower() and last not in ("default_rng", "seed"):
        yield "draws from a generator that all share"


def faults(text: str) -> list[tuple[int, str]]:
    """Lines of a source that depend on luck or time, and how, but for those that say why."""
    lines, tree = text.splitlines(), ast.parse(text)
    found = [(node.lineno, fault) for node in ast.walk(tree) if isinstance(node, ast.Call) for fault in faults_of(node)]
    return sorted((at, fault) for at, fault in found if "# steady: " not in lines[at - 1])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_depends_on_luck_or_time(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(0.1)", "sleep(1)", "await asyncio.sleep(0.5)", "page.wait_for_timeout(100)",
        "np.random.default_rng()", "np.random.default_rng(None)", "random.Random()", "random.random()",
        "np.random.normal(3)", "random.shuffle(rows)", "os.urandom(8)", "secrets.token_hex()", "uuid.uuid4()",
        "time.monotonic() + 5", "timeit.timeit(work)", "time.perf_counter()", "time.time()",
        "httpx.get(url)", "httpx.Client()", "httpx.get(url, timeout=5)", "subprocess.run(command, timeout=10)",
        "thread.join(10)", "event.wait(0.3)", "asyncio.timeout(30)", "socket.create_connection(place, timeout=10)",
        "threading.Barrier(2, timeout=10)", "future.result(5)", "sqlite3.connect(path, timeout=30)",
        "trial.getsockname()", "server.bind(('127.0.0.1', 8000))", "socket.create_connection(('127.0.0.1', 1))",
        "settings(deadline=200)",
    ],
)  # fmt: skip
def test_what_does_is_found(line: str) -> None:
    """The twins: each of these lines has failed a run somewhere."""
    body = f"async def test():\n    {line}"
    assert len(faults(body)) == 1
    assert faults(f"{body}  # steady: this test is about it") == []


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.sleep(0)", "np.random.default_rng(0)", "random.Random(seed)", "rng.random()", "thread.join()",
        "httpx.get(url, timeout=LIMIT)", "httpx.get(url, timeout=600)", "thread.join(LIMIT)", "', '.join(names)",
        "socket.create_connection(('127.0.0.1', port))", "held.bind(('127.0.0.1', 0))", "settings(deadline=None)",
        "np.random.Generator(np.random.Philox(1))", "time.process_time()",
    ],
)  # fmt: skip
def test_what_does_not_is_left_alone(line: str) -> None:
    assert faults(f"async def test():\n    {line}") == []


# ── the noise of tests ────────────────────────────────────────────────────────────────────────────────────────────

fixed_noise = pytest.mark.skipif("config.getoption('--noise') == 'system'", reason="noise is real")


@pytest.fixture(scope="module")
def shared() -> bytes:
    """What a fixture draws that several tests share."""
    return system.random_bytes(8)


def drawn_by(name: str, choice: str, count: int = 8) -> bytes:
    seed = int.from_bytes(hashlib.sha256(f"{choice} {name}".encode()).digest(), "little")
    return np.random.Generator(np.random.Philox(seed)).bytes(count)


@fixed_noise
@pytest.mark.parametrize("which", ["a", "b"])
def test_noise_follows_from_the_name_of_the_test(which: str, shared: bytes, request: pytest.FixtureRequest) -> None:
    choice = request.config.getoption("--noise")
    assert request.node.name == f"test_noise_follows_from_the_name_of_the_test[{which}]"
    assert system.random_bytes(8) == drawn_by(request.node.nodeid, choice)
    module = request.node.nodeid.partition("::")[0]
    assert shared == drawn_by(f"{module}::shared[0]", choice), "whichever test came first"


@fixed_noise
def test_generators_without_a_seed_have_one_too(request: pytest.FixtureRequest) -> None:
    expected = int.from_bytes(drawn_by(request.node.nodeid, request.config.getoption("--noise"), 16), "little")
    found = np.random.default_rng()  # steady: that it has a seed is what is tested
    assert found.random() == np.random.default_rng(expected).random()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_draws_noise_of_its_own() -> None:
    seen = [in_fork() for _ in range(3)]
    seen.append(system.random_bytes(16))
    assert len(set(seen)) == 4


def in_fork() -> bytes:
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads; this child only draws
        child = os.fork()
    if not child:
        os.write(sender, system.random_bytes(16))
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


@pytest.mark.system_noise
def test_what_is_about_the_real_noise_has_it(request: pytest.FixtureRequest) -> None:
    assert system.random_bytes(8) != drawn_by(request.node.nodeid, request.config.getoption("--noise"))


@pytest.mark.slow
def test_users_find_no_seed_but_by_its_name() -> None:
    """What tests do from without is not in the package: a source that can be repeated is named as unsafe."""
    with pytest.raises(TypeError):
        Seeded(0)  # type: ignore[call-arg]
    used = [path for path in (ROOT / "src").rglob("*.py") if "pytest" in path.read_text(encoding="utf-8").lower()]
    assert used == []


# ── how tests wait ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crowd_meets_inside_or_at_the_door() -> None:
    for locked, most in ((True, 1), (False, 5)):
        crowd, inside, seen = Crowd(5), [0], [0]
        lock = crowd.lock()

        def work(locked: bool = locked, crowd: Crowd = crowd, inside: list[int] = inside, seen: list[int] = seen,
                 lock: object = lock) -> None:  # fmt: skip
            if locked:
                with lock:  # type: ignore[attr-defined]
                    count(crowd, inside, seen)
            else:
                count(crowd, inside, seen)

        crowd.run(work)
        assert seen[0] == most


def count(crowd: Crowd, inside: list[int], seen: list[int]) -> None:
    inside[0] += 1
    seen[0] = max(seen[0], inside[0])
    crowd.meet()
    inside[0] -= 1


def test_a_reserved_port_is_free_for_a_server_and_given_to_nobody() -> None:
    with reserved_port() as port, reserved_port() as other:
        assert port != other
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
