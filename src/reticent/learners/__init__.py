"""Private learners, as scikit-learn classifiers: fit once, and the hypothesis that comes out may be published."""

from reticent.learners.active import ActiveLearner
from reticent.learners.charged import Charged
from reticent.learners.comparison import PrivateComparison
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.label_boost import LabelBoost
from reticent.learners.label_private import LabelPrivateLearner, SemiPrivateLearner
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.pipeline import PrivatePipeline
from reticent.learners.points import PointLearner
from reticent.learners.rectangles import RectangleLearner
from reticent.learners.sanitized import SanitizedLearner
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.learners.thresholds import ThresholdLearner

__all__ = [
    "ActiveLearner",
    "Charged",
    "ExponentialLearner",
    "LabelBoost",
    "LabelPrivateLearner",
    "PointLearner",
    "PrivateComparison",
    "PrivateLogisticRegression",
    "PrivatePipeline",
    "RectangleLearner",
    "SanitizedLearner",
    "SemiPrivateLearner",
    "SemiSupervisedLearner",
    "ThresholdLearner",
]
