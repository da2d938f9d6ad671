"""Keys: what they open, how fast, how much, and what is kept of them."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import patient
import pytest
from stand_in import connect, make_service, running

from reticent.service.http.access import Keyring
from reticent.service.http.problems import Problem
from reticent.service.keys import ANONYMOUS, KeyTable, make_key

NAMELESS = [
    "\u3164", "a\u3164",
    " ", ".", "..", "-", "--rate", "_", "@", " a", "a ", "\t", "a\nb", "a\n", "a\x00", "a\x1b[2J", "\u200b", "a\u202eb",
    "x" * 65,
]  # fmt: skip
INFER = "/v2/models/clinic/infer"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def body(rows: int = 1) -> dict[str, object]:
    return {"inputs": [{"name": "rows", "shape": [rows, 2], "datatype": "FP64", "data": [0.7, 1.0] * rows}]}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def table(tmp_path: Path) -> KeyTable:
    return KeyTable(tmp_path / "keys.sqlite")


def test_only_the_hash_is_kept(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.sqlite")
    token, key = make_key("ward 3")
    table.add(key)
    assert table.all() == [key]
    assert key.digest == hashlib.sha256(token.encode()).digest()
    secret = token.partition(".")[2]
    assert len(secret) >= 43  # 256 bits
    table.close()
    assert secret.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"name": ""}, "name"),
        *(({"name": name}, "name must be .* start with a letter or digit") for name in NAMELESS),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["root"]}, "scopes"),
        ({"name": "a", "rate": 0}, "rate"),
        ({"name": "a", "rate": float("nan")}, "rate"),
        ({"name": "a", "burst": 3}, "burst"),
        ({"name": "a", "rate": 1, "burst": 0}, "burst"),
        ({"name": "a", "quota": -1}, "quota"),
    ],
)
def test_bad_keys_are_refused_by_name(arguments: dict[str, object], word: str) -> None:
    with pytest.raises((ValueError, TypeError), match=word):
        make_key(**arguments)  # type: ignore[arg-type]


def test_names_are_new(table: KeyTable) -> None:
    table.add(make_key("a")[1])
    with pytest.raises(ValueError, match="name"):
        table.add(make_key("a")[1])
    with pytest.raises(ValueError, match="no key"):
        table.revoke("b")


def test_who_holds_a_key(table: KeyTable) -> None:
    token, key = make_key("a")
    table.add(key)
    ring = Keyring(table)
    assert ring.authenticate(f"Bearer {token}") == key
    assert ring.authenticate(f"bearer  {token} ") == key
    wrong = [None, "", token, f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}", f"Bearer {key.id}."]
    wrong.append("Bearer ")
    for authorization in [*wrong, "Bearer é", "Bearer \udcff", f"Bearer {'0' * 12}.{token.partition('.')[2]}"]:
        with pytest.raises(Problem, match="key is needed"):
            ring.authenticate(authorization)


def test_without_keys_anyone_on_this_machine_may_ask() -> None:
    ring = Keyring()
    assert ring.open
    assert ring.authenticate(None).id == ANONYMOUS


def test_revoking_the_last_key_opens_nothing(table: KeyTable) -> None:
    token, key = make_key("a")
    table.add(key)
    table.revoke("a")
    ring = Keyring(table)
    assert not ring.open
    with pytest.raises(Problem):
        ring.authenticate(f"Bearer {token}")


def test_a_service_that_had_keys_is_never_open_again(tmp_path: Path) -> None:
    clock = Clock()
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a")
    table.add(key)
    ring = Keyring(table, clock=clock)
    elsewhere = sqlite3.connect(tmp_path / "keys", isolation_level=None)
    elsewhere.execute("DELETE FROM keys")
    elsewhere.close()
    clock.now += 2
    assert not ring.open
    assert ring.clients() == []
    for authorization in (None, f"Bearer {token}"):
        with pytest.raises(Problem, match="key is needed"):
            ring.authenticate(authorization)


def test_keys_made_and_revoked_elsewhere_are_seen(tmp_path: Path) -> None:
    clock = Clock()
    table, elsewhere = KeyTable(tmp_path / "keys"), KeyTable(tmp_path / "keys")
    ring = Keyring(table, clock=clock)
    token, key = make_key("a")
    elsewhere.add(key)
    clock.now += 2
    assert ring.authenticate(f"Bearer {token}").id == key.id
    elsewhere.revoke(key.id)
    clock.now += 2
    with pytest.raises(Problem):
        ring.authenticate(f"Bearer {token}")
    assert not ring.still_valid(key)


@pytest.mark.parametrize("name", ["ward 3", "a", "3", "Dr. Ö. Ähre", "ann@example.org", "x" * 64, "東京", "a-b_c."])
def test_names_of_people_and_places_are_taken(name: str) -> None:
    assert make_key(name)[1].name == name


@pytest.mark.parametrize("name", [" ", ".", "-", "--rate"])
def test_a_name_that_an_older_version_took_can_still_be_used_and_revoked(table: KeyTable, name: str) -> None:
    token, key = make_key("new")
    table.add(replace(key, name=name))
    ring = Keyring(table)
    assert ring.authenticate(f"Bearer {token}").name == name
    assert table.change(name, quota=5).quota == 5
    assert table.rotate(name)[1].id == key.id
    assert table.revoke(name).id == key.id
    assert table.all()[0].revoked is not None


def test_changed_limits_are_kept_and_hold_on_a_server_that_runs(tmp_path: Path) -> None:
    clock = Clock()
    table, elsewhere = KeyTable(tmp_path / "keys"), KeyTable(tmp_path / "keys")
    _, key = make_key("a", rate=1, burst=2, quota=2)
    table.add(key)
    ring = Keyring(table, clock=clock)
    allowance = ring.allowance(key)
    allowance.take(2)
    with pytest.raises(Problem, match="quota"):
        allowance.take(1)
    changed = elsewhere.change("a", rate=10, quota=20)
    assert (changed.rate, changed.burst, changed.quota) == (10, 10, 20)
    with pytest.raises(Problem, match="quota"):
        allowance.take(1)
    clock.now += 2
    assert ring.clients()[0]["quota"] == 20
    allowance.take(2)  # what came in at the old rate; what was taken stays taken
    with pytest.raises(Problem, match="rate"):
        allowance.take(1)
    clock.now += 1
    allowance.take(10)
    assert allowance.used == 14
    elsewhere.change("a", quota=14)
    clock.now += 2
    assert not ring.open
    with pytest.raises(Problem, match="quota"):
        allowance.take(1)
    elsewhere.change("a", rate=None, quota=None)
    clock.now += 2
    assert not ring.open
    allowance.take(1_000_000)
    table.close()
    again = KeyTable(tmp_path / "keys")
    (kept,) = again.all()
    assert kept == replace(key, rate=None, burst=None, quota=None)
    elsewhere.change("a", rate=5)  # where there was none, all may come at once first
    clock.now += 2
    assert Keyring(again, clock=clock).allowance(kept).headers()["RateLimit-Remaining"] == "5"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"rate": 0}, "rate must be"), ({"rate": float("inf")}, "rate must be"), ({"burst": 3}, "burst needs a rate"),
        ({"rate": 1, "burst": 0}, "burst must be"), ({"quota": -1}, "quota must be"),
        ({"quota": 2**63}, "quota must be"), ({"quota": 1.5}, "quota must be"),
    ],
)  # fmt: skip
def test_bad_changes_change_nothing(table: KeyTable, limits: dict[str, Any], word: str) -> None:
    _, key = make_key("a", quota=3)
    table.add(key)
    with pytest.raises((ValueError, TypeError), match=word):
        table.change("a", **limits)
    assert table.all() == [key]


def test_a_revoked_key_is_not_changed(table: KeyTable) -> None:
    table.add(make_key("a")[1])
    table.revoke("a")
    with pytest.raises(ValueError, match="the key of a is revoked"):
        table.change("a", quota=3)


def test_the_bucket_fills_by_the_monotonic_clock(table: KeyTable) -> None:
    clock = Clock()
    _, key = make_key("a", rate=10, burst=20)
    table.add(key)
    allowance = Keyring(table, clock=clock).allowance(key)
    allowance.take(20)
    assert allowance.headers() == {"RateLimit-Limit": "20", "RateLimit-Remaining": "0", "RateLimit-Reset": "2"}
    with pytest.raises(Problem) as refused:
        allowance.take(15)
    assert refused.value.headers["Retry-After"] == "2"
    assert allowance.used == 20  # nothing was taken
    clock.now += 1.5
    allowance.take(15)
    with pytest.raises(Problem):
        allowance.take(1)
    clock.now += 1e9
    with pytest.raises(Problem, match="too large"):
        allowance.take(21)
    allowance.take(20)


def test_a_quota_outlives_a_restart(table: KeyTable) -> None:
    _, key = make_key("a", quota=10)
    table.add(key)
    allowance = Keyring(table, {key.id: 7}).allowance(key)
    allowance.take(3)
    with pytest.raises(Problem) as refused:
        allowance.take(1)
    assert refused.value.kind == "quota-used-up"
    assert "Retry-After" not in refused.value.headers  # to wait would not help
    allowance.give_back(1)
    allowance.take(1)


@pytest.mark.parametrize("token", ["", "ask", "observe", "admin"])
def test_scopes(table: KeyTable, token: str) -> None:
    tokens = {"": "nonsense"}
    for scope in ("ask", "observe", "admin"):
        tokens[scope], key = make_key(scope, [scope])
        table.add(key)

    async def run() -> dict[str, int]:
        async with connect(make_service(keyring=Keyring(table))) as client:
            found = {"infer": (await client.post(INFER, json=body(), headers=bearer(tokens[token]))).status_code}
            invoked = await client.post("/invocations", json={"instances": [[1, 2]]}, headers=bearer(tokens[token]))
            found["invocations"] = invoked.status_code
            for path in ("status", "metrics", "v2/models/clinic", "guarantee", "v2", "v2/health/ready", "ping", "docs"):
                found[path] = (await client.get("/" + path, headers=bearer(tokens[token]))).status_code
            status = await client.get("/status", headers=bearer(tokens[token]))
            assert ("clients" in status.json()) == (token == "admin")
            return found

    asking = {"": 401, "ask": 200, "observe": 403, "admin": 200}[token]
    seeing = 200 if token else 401
    assert asyncio.run(run()) == {
        "infer": asking, "invocations": asking, "status": seeing, "metrics": seeing, "v2/models/clinic": seeing,
        "guarantee": 200, "v2": 200, "v2/health/ready": 200, "ping": 200, "docs": 200,
    }  # fmt: skip


def test_limits_show_in_headers_and_cost_nothing(table: KeyTable) -> None:
    token, key = make_key("a", rate=1, burst=5, quota=8)
    table.add(key)

    async def run() -> None:
        service = make_service(keyring=Keyring(table, clock=Clock()))
        async with connect(service) as client:
            first = await client.post(INFER, json=body(3), headers=bearer(token))
            assert first.headers["RateLimit-Remaining"] == "2"
            late = await client.post(INFER, json=body(4), headers=bearer(token))
            assert (late.status_code, late.headers["Retry-After"]) == (429, "2")
            assert late.headers["RateLimit-Limit"] == "5"
            assert late.json()["type"] == "/docs#too-many-requests"
            assert service.answering.status().answered == 3

    asyncio.run(run())


def test_a_repeat_is_not_charged_to_the_quota(table: KeyTable) -> None:
    token, key = make_key("a", quota=4)
    table.add(key)

    async def run() -> None:
        async with connect(make_service(keyring=Keyring(table))) as client:
            headers = {**bearer(token), "Idempotency-Key": "1"}
            for _ in range(5):
                reply = await client.post(INFER, json=body(3), headers=headers)
                assert reply.status_code == 200
                assert reply.headers["RateLimit-Remaining"] == "1"

    asyncio.run(run())


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        KeyTable(path)


@pytest.mark.slow
def test_more_than_a_burst_is_refused_for_good_not_for_now(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", rate=1000, burst=5)
    table.add(key)
    clock = Clock()
    service = make_service(keyring=Keyring(table, clock=clock))

    def post(client: httpx.Client, rows: int) -> httpx.Response:
        return client.post(INFER, json=body(rows), headers=bearer(token))

    with running(service) as port, patient.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert post(client, 5).status_code == 200
        for rows in (6, 7, 50):
            clock.now += 1  # the bucket is full again
            found = post(client, rows)
            assert found.status_code == 413
            assert "5 answers at once" in found.json()["detail"]
        clock.now += 1
        assert post(client, 5).status_code == 200
    table.close()


def test_only_their_owner_may_read_them(tmp_path: Path) -> None:
    KeyTable(tmp_path / "keys.sqlite").close()
    assert (tmp_path / "keys.sqlite").stat().st_mode & 0o777 == 0o600
