"""The ranks of a finite domain, as arrays hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.concepts.domains import Domain


def first_and_last(domain: Domain) -> tuple[int, int]:
    """The first and the last rank of a finite domain."""
    assert domain.first is not None
    assert domain.last is not None
    return domain.first, domain.last


def rank_type(domain: Domain) -> Any:
    """A numpy type that holds all ranks of a finite domain, and the integer above them."""
    return np.int64 if first_and_last(domain)[1] + 1 < 1 << 63 else object
