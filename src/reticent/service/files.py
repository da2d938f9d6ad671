"""Files that must be on the disk, and that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private(path: str, flags: int) -> int:
    """An `opener` for `open`: a new file can be read by its owner only."""
    return os.open(path, flags, 0o600)
