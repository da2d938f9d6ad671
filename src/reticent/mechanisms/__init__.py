"""Private primitives, one file each. A mechanism returns its result with the event that accountants price."""

from reticent.mechanisms.above_threshold import AboveThreshold
from reticent.mechanisms.between_thresholds import BetweenThresholds
from reticent.mechanisms.choosing import choosing
from reticent.mechanisms.counts import gaussian_count, laplace_count
from reticent.mechanisms.exponential import exponential, exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import quasi_concave_maximum
from reticent.mechanisms.release import Release
from reticent.mechanisms.sparse_vector import StableMajority
from reticent.mechanisms.stability_histogram import stability_histogram
from reticent.mechanisms.stable_argmax import stable_argmax
from reticent.mechanisms.votes import ConfidentGNMax, gnmax, noisy_majority

__all__ = [
    "AboveThreshold",
    "BetweenThresholds",
    "ConfidentGNMax",
    "Pieces",
    "Release",
    "StableMajority",
    "choosing",
    "exponential",
    "exponential_over_pieces",
    "gaussian_count",
    "gnmax",
    "laplace_count",
    "noisy_majority",
    "quasi_concave_maximum",
    "stability_histogram",
    "stable_argmax",
]
