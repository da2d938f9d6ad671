"""The readers of what a caller gives."""
