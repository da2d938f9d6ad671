"""What a store keeps of labels that arrive later: labelled rows, and labels of queries that were answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TICKET = 16  # bytes of a ticket
NO_LABEL = -1


class TaughtPart(NamedTuple):
    """Labelled rows, in the order in which they were received.

    `first` is the number of the first of them, from 0 on over all phases. `labels` has a signed number of 4 bytes for
    each row, little-endian: the class index, or `NO_LABEL`. `groups` is a list of runs, or None.
    """

    first: int
    rows: bytes
    labels: bytes
    groups: list[tuple[str, int]] | None = None


class WithdrawalPart(NamedTuple):
    """The numbers of labelled rows that were withdrawn, by their owner."""

    numbers: tuple[int, ...]


class SlotLabel(NamedTuple):
    """The label of a query, by its ticket: a class index, or `NO_LABEL` to withdraw it. `client` gives it."""

    ticket: bytes
    client: str | None
    label: int


class StoredReceipt(NamedTuple):
    """What is kept of a request with labelled rows under its idempotency key: a digest of its body, and the reply."""

    digest: bytes
    reply: bytes


@dataclass(frozen=True, kw_only=True)
class LabelledTransaction:
    """Labelled rows that were received.

    Parameters
    ----------
    time : int
        Milliseconds since 1970, as for `Transaction`.
    phase : int
        The phase that receives them.
    client : str
        Who sent them.
    part : TaughtPart
        The rows. `part.first` must be how many the store has received before.
    count : int
        How many they are.
    reply : bytes, default b""
        What the sender receives, to be kept with `key` and `digest`.
    key, digest : str and bytes, default None and b""
        The hash of the idempotency key, and a digest of the body. None if there is no key.
    keep : int, default 0
        For how many milliseconds to keep the reply.
    """

    time: int
    phase: int
    client: str
    part: TaughtPart
    count: int
    reply: bytes = b""
    key: str | None = None
    digest: bytes = b""
    keep: int = 0

    def check(self) -> None:
        """Refuse a transaction that no store can accept, whatever it holds."""
        if self.count < 1 or len(self.part.labels) != 4 * self.count:
            raise ValueError("labelled rows must be at least one, with 4 bytes of label each")
