"""Private learners, as scikit-learn classifiers: fit once, and the hypothesis that comes out may be published."""

from reticent.learners.exponential import ExponentialLearner
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.points import PointLearner
from reticent.learners.thresholds import ThresholdLearner

__all__ = ["ExponentialLearner", "PointLearner", "PrivateLogisticRegression", "ThresholdLearner"]
