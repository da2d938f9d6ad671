"""Plan before you touch private data: the rows that an error needs, and the error that rows can promise."""

from reticent.plan.active import active
from reticent.plan.advise import advise
from reticent.plan.everlasting import everlasting
from reticent.plan.exponential import exponential
from reticent.plan.generic_bbl import generic_bbl
from reticent.plan.label_boost import label_boost
from reticent.plan.label_private import label_private, semi_private
from reticent.plan.pate import pate
from reticent.plan.pate_bounds import pate_bounds
from reticent.plan.plan import Plan
from reticent.plan.points import point
from reticent.plan.rectangles import rectangle
from reticent.plan.sanitized import sanitized
from reticent.plan.sanitizers import net_sanitizer, point_sanitizer
from reticent.plan.semi_supervised import semi_supervised
from reticent.plan.threshold_sanitizer import threshold_sanitizer
from reticent.plan.thresholds import threshold

__all__ = [
    "Plan",
    "active",
    "advise",
    "everlasting",
    "exponential",
    "generic_bbl",
    "label_boost",
    "label_private",
    "net_sanitizer",
    "pate",
    "pate_bounds",
    "point",
    "point_sanitizer",
    "rectangle",
    "sanitized",
    "semi_private",
    "semi_supervised",
    "threshold",
    "threshold_sanitizer",
]
