"""Linear classifiers, as they come: with the default settings of scikit-learn, and one from the code of a paper."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.svm import LinearSVC

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class OnePass(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The learner of Yan, Chaudhuri and Javidi, *Active Learning with Logged Data* (2018), as their code has it.

    One pass of gradient steps for the squared error of labels ±1, with predictions cut to [−1, 1] and no intercept.
    Step t has the size √(rate / (rate + t)), and is made as if it were infinitely many small ones, so that it
    never goes beyond the label (Karampatziakis and Langford, *Online Importance Weight Aware Updates*, 2011).
    Columns from 0 to 1 are taken from −1 to 1 first.
    """

    def __init__(self, rate: float = 0.05, random_state: int | None = None) -> None:
        self.rate = rate
        self.random_state = random_state

    def fit(self, X: Any, y: Integers) -> Self:
        """Go through the rows once, in a random order.

        Parameters
        ----------
        X : object
            The rows.
        y : array of int
            Their labels.
        """
        self.classes_ = np.unique(y)
        rows, labels = _from_minus_to_plus(X), np.where(np.asarray(y) == self.classes_[-1], 1.0, -1.0)
        weights = np.zeros(rows.shape[1])
        for t, index in enumerate(np.random.default_rng(self.random_state).permutation(len(rows)), start=1):
            row = rows[index]
            length = float(row @ row)
            missing = labels[index] - min(1.0, max(-1.0, float(row @ weights)))
            weights -= row * missing * math.expm1(-2 * math.sqrt(self.rate / (self.rate + t)) * length) / length
        self.coef_ = weights
        return self

    def predict(self, X: Any) -> Integers:
        """The class on whose side of the plane through 0 a row lies.

        Parameters
        ----------
        X : object
            The rows.
        """
        return np.asarray(self.classes_[np.where(_from_minus_to_plus(X) @ self.coef_ > 0, -1, 0)])


def _from_minus_to_plus(X: Any) -> Floats:
    return np.asarray(2.0 * (X.toarray() if issparse(X) else np.asarray(X)) - 1)


PASSIVE_AGGRESSIVE, ONE_PASS = "passive-aggressive", "one pass (Yan et al.)"
LEARNERS = {
    PASSIVE_AGGRESSIVE: SGDClassifier(loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0),
    ONE_PASS: OnePass(),
    "SGD, hinge": SGDClassifier(),
    "SGD, logistic": SGDClassifier(loss="log_loss"),
    "SGD, squared": SGDClassifier(loss="squared_error"),
    "perceptron": Perceptron(),
    "linear SVM": LinearSVC(),
    "logistic": LogisticRegression(max_iter=1000),
    "ridge": RidgeClassifier(),
}


def make(name: str, seed: int) -> Any:
    """A new classifier of `LEARNERS`, with a seed if it draws anything.

    Parameters
    ----------
    name : str
        The name of the classifier.
    seed : int
        Its seed.
    """
    model = clone(LEARNERS[name])
    return model.set_params(random_state=seed) if "random_state" in model.get_params() else model
