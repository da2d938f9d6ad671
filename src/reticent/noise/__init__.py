"""Exact integer noise from the operating system's entropy; seeded only in tests, loudly."""

from reticent.noise.samplers import Noise, Seeded, system

__all__ = ["Noise", "Seeded", "system"]
