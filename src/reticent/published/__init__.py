"""Released models to take away: what a private model and its schema make of a table, as files for other programs."""

from __future__ import annotations

from reticent.published.model import NotPublic, PublishedModel

__all__ = ["NotPublic", "PublishedModel"]
