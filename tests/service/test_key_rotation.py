"""A rotated key is the same client."""

from __future__ import annotations

from pathlib import Path

import pytest

from reticent.service.http.access import Keyring
from reticent.service.http.problems import Problem
from reticent.service.keys import KeyTable, make_key


def test_a_rotated_key_is_the_same_client(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.sqlite")
    with pytest.raises(ValueError, match="no key of the name or id 'ward 3'; there are none yet"):
        table.rotate("ward 3")
    old, key = make_key("ward 3", ["ask"], quota=10)
    table.add(key)
    now = [0.0]
    ring = Keyring(table, used={key.id: 4}, clock=lambda: now[0])
    ring.allowance(ring.authenticate(f"Bearer {old}")).take(3)
    new, _ = table.rotate("ward 3")
    now[0] += 2
    with pytest.raises(Problem):
        ring.authenticate(f"Bearer {old}")
    same = ring.authenticate(f"Bearer {new}")
    assert (same.id, same.quota, ring.allowance(same).used) == (key.id, 10, 7)
    table.revoke("ward 3")
    for who, why in (("ward 3", "revoked"), ("ward 4", "no key of the name or id 'ward 4'; there are: 'ward 3'")):
        with pytest.raises(ValueError, match=why):
            table.rotate(who)
    table.close()
