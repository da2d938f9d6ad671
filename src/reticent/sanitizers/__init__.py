"""Private copies of a column or a table: fit once, and the copy may be published, counted in and sampled from."""

from reticent.sanitizers.base import Sanitizer
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer
from reticent.sanitizers.thresholds import ThresholdSanitizer

__all__ = ["NetSanitizer", "PointSanitizer", "Sanitizer", "ThresholdSanitizer"]
