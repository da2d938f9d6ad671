"""Few labels and many rows: a private copy of the unlabelled rows gives candidates, and the labels choose one."""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import clone

from reticent.concepts.input import refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.concepts.intervals import Intervals
from reticent.concepts.points import KPoints, Points
from reticent.concepts.rectangles import Rectangles
from reticent.concepts.thresholds import Thresholds
from reticent.data.labels import UNLABELLED
from reticent.data.points import Array, Labels
from reticent.exact import Number
from reticent.learners import sample_bounds
from reticent.learners.base import PartlyLabelled
from reticent.learners.copies import check_promise, check_sanitizer, disagreement_parts, heaviest
from reticent.learners.label_private import NetLearner
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.events import Parallel
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach, none_suffices, rows_needed
from reticent.sanitizers.base import Sanitizer, public_generator
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer
from reticent.sanitizers.thresholds import ThresholdSanitizer

# How the promise divides an error α: some candidate errs by at most α/4 more than the best concept. Of this, α/16 is
# for the points drawn from the copy, α/16 for the copy of the unlabelled rows, and the rest for the deviation of these
# from their distribution. Each of the three, and the draw, may fail with a quarter of the probability.
NEAR, MISSED = 1 / 4, 1 / 16
COPY = {"what": "points of the private copy", "remedy": "ask for a larger error, or take a class of fewer concepts"}


class SemiSupervisedLearner(PartlyLabelled, NetLearner):
    """A concept of a class from few labelled and many unlabelled rows, all of them private: GenericLearner.

    Labels are 0 and 1; rows with the label −1 *have none*. If your labels are −1 and 1, map them to 0 and 1 first. Rows
    without a label go into a sanitizer and nowhere else. It makes a private copy of them. The candidates are one
    concept for each labelling of the copy's points by the class. The exponential mechanism draws one of them by its
    errors on the labelled rows, which are used nowhere else. The number of labels needed depends on the VC dimension,
    not on the number of values a row may have.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for the copy and the concept together: ε and δ are the
    *greater* of what the sanitizer and the draw cost, not their sum; ε-differential privacy if the sanitizer's is. A
    labelled row may be replaced by any labelled row, an unlabelled one by any unlabelled one. Which rows have a label
    is public, as are the number of rows, the concept class and every parameter.

    Why. A labelled row is seen only by the draw, which is an exponential mechanism over candidates that do not depend
    on it. An unlabelled row is seen only by the sanitizer. No row is used twice, so no row pays twice (parallel
    composition).

    Promise. With `labels_required(error)` labelled rows and `unlabelled_required(error)` others, all drawn
    independently from any distribution and labelled by a concept of the class, a fresh row is mislabelled with
    probability at most `error`, with probability 1 − failure. The copy must be accurate for all sets on which two
    concepts of the class differ, `concepts.Disagreements`; for thresholds, points, intervals and rectangles, accuracy
    for simpler queries implies this. The proof is in `docs/learners/semi_supervised.md`.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 1 (Algorithm
    GenericLearner), Theorem 3.3, and Corollary 3.4 for thresholds. Sharpened: explicit numbers in place of O(·), and
    the number of labellings in place of 2^points. New: candidates from a sample of the copy where it has many points,
    and labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : ConceptClass
        The class that the hypothesis is taken from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the copy and of the concept; the draw and the sanitizer use ε each.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound, for the sanitizer.
    sanitizer : Sanitizer or None, default None
        None is the sanitizer made for thresholds, points (δ > 0), intervals or rectangles; else any sanitizer of the
        same domain, with its own parameters up to ε and δ. It is cloned; if `error` is given, the clone's error and
        failure are set. For other classes use `NetSanitizer(Disagreements(concept_class), points=…)`. Nothing is
        promised unless these are all points of the declared domain or, if none is declared, all points of the rows.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Concept
        The released concept, a value of the class.
    sanitizer_ : Sanitizer
        The fitted sanitizer, with the private copy of the unlabelled rows.

    >>> import numpy as np
    >>> from reticent.concepts import Points
    >>> values = np.repeat([3, 2**70, 2**80], [2000, 1000, 1000])[:, None]
    >>> labels = np.where(np.arange(4000) % 10 == 0, values[:, 0] == 2**70, -1)  # every tenth row has one
    >>> learner = SemiSupervisedLearner(Points(bits=100), epsilon=1, delta=1e-6).fit(values, labels)
    >>> learner.hypothesis_.at == 2**70, learner.guarantee_.epsilon, learner.guarantee_.delta
    (True, 1.0, 1e-06)
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        delta: Number = 0,
        sanitizer: Sanitizer | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.delta = delta
        self.sanitizer = sanitizer
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None, *, agnostic: bool = False) -> int:
        """The number of rows, with and without a label, with which the promise holds.

        It is `labels_required` plus `unlabelled_required`, whose parameters it has.
        """
        needed = self.labels_required(error, failure, agnostic=agnostic) + self.unlabelled_required(error, failure)
        goal = {"error": error, "failure": self.failure if failure is None else failure}
        return in_reach(needed, copy(self).set_params(**goal).check_size)

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """Raise `OutOfReach` if the labellings of the points that the promise needs cannot be listed.

        Without `error`, the heaviest points of the copy are used, as many as possible.

        Parameters
        ----------
        rows : int
            The number of training rows.
        labels : int or None, default None
            How many of them have a label; not needed here.
        """
        super().check_size(rows, labels=labels)
        if self.error is None:
            return
        alpha, beta = (float(check_share(share, "")) for share in (self.error, self.failure))
        points, sanitizer = self._net_rows(alpha, beta / 4), self._sanitizer()
        if isinstance(sanitizer, NetSanitizer):
            points = min(points, len(sanitizer.query_net().points))
        self.concept_class.check_points(points, **COPY)

    def labels_required(self, error: Number, failure: Number | None = None, *, agnostic: bool = False) -> int:
        """The number of *labelled* rows with which a fresh row is mislabelled with probability at most `error`.

        There are `unlabelled_required(error)` others. Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        agnostic : bool, default False
            False: the rows are labelled by a concept of the class. True: they are labelled in any way, and `error` is
            the excess over the best concept's.
        """
        self.check_parameters()
        alpha, log_quarter = float(check_share(error, "error")), self._log_failure(failure) - math.log(4)
        if agnostic:
            step = sample_bounds.log_step_excess(alpha * (1 - NEAR), rate=self._rate())
        else:
            step = sample_bounds.log_step(alpha, alpha * NEAR, rate=self._rate())
        candidates = sample_bounds.log_growth(self.concept_class, self._net_rows(alpha, math.exp(log_quarter)))
        if step == 0:
            raise none_suffices()
        return math.ceil((candidates - log_quarter) / -step)

    def unlabelled_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows *without a label* with which the promise of `labels_required` holds.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        """
        self.check_parameters()
        exact = check_share(error, "error")
        alpha, log_quarter = float(exact), self._log_failure(failure) - math.log(4)
        # A share 2·MISSED·α of the rows may be missed; the rate ln 2 best separates it from NEAR·α = 4·MISSED·α.
        generalises = fewest_rows(
            lambda rows: (
                sample_bounds.log_bad(
                    self.concept_class, rows, NEAR * alpha, rate=math.log(2), errors=2 * MISSED * alpha * rows
                )
                <= log_quarter
            )
        )
        sanitizer = self._sanitizer()
        check_promise(sanitizer)
        beta = self._failure(failure)
        return max(generalises, rows_needed(sanitizer.n_required, self._off(exact), beta / 4))

    def _off(self, error: Fraction) -> Fraction:
        """The error that each query of the sanitizer may have in the copy."""
        return error * Fraction(MISSED) / disagreement_parts(self.concept_class, self._sanitizer().query_class())

    # ── the copy, and the draw ────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        labelled = labels != UNLABELLED
        if bool(labelled.all()):
            raise ValueError("y must be -1 for some of the rows: the candidates come from rows without a label")
        if self.error is not None:
            self._require(int(labelled.sum()), self.labels_required(self.error), "labelled rows")
            self._require(int((~labelled).sum()), self.unlabelled_required(self.error), "rows without a label")
            check_promise(self._sanitizer(), rows[~labelled])
        self.refuse_bad_rows(rows)
        sanitizer = self._promising().fit_with_noise(rows[~labelled], unsafe_noise)
        found = self._draw(
            self._net(sanitizer, 0 if unsafe_noise is not None else None),
            rows[labelled],
            labels[labelled],
            unsafe_noise,
            name="the private copy",
            remedy=COPY["remedy"],
        )
        self.sanitizer_ = sanitizer
        return Release(found.value, Parallel((sanitizer.event_, found.event)))

    def _net(self, sanitizer: Sanitizer, random_state: int | None) -> Array:
        """The points of the copy whose labellings are the candidates; the copy is public, so this costs nothing.

        If the promise needs fewer points than there are, as many as it needs are drawn. Without a promise, the heaviest
        points are used.
        """
        kept = sanitizer.weights_ > 0
        points, weights = sanitizer.points_[kept], sanitizer.weights_[kept]
        if self.error is None:
            return heaviest(points, weights, self.concept_class.check_points)[0]
        alpha, beta = (float(check_share(share, "")) for share in (self.error, self.failure))
        if len(points) <= (needed := self._net_rows(alpha, beta / 4)):
            return points
        drawn = public_generator(random_state).choice(len(points), size=needed, p=weights / weights.sum())
        return np.asarray(points[np.unique(drawn)])

    def _net_rows(self, alpha: float, failure: float) -> int:
        return sample_bounds.net_rows(self.concept_class, MISSED * alpha, failure)

    def _check_rows(self, rows: int) -> None:
        """Do nothing: the numbers of rows with and without a label are checked once the labels are read."""

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if any row cannot be read, whichever rows are drawn later."""
        for each in (self.concept_class, self._sanitizer().query_class()):
            refuse_bad_points(each, rows)

    # ── the sanitizer ─────────────────────────────────────────────────────────────────────────────────────────────

    def _promising(self) -> Sanitizer:
        """An unfitted sanitizer, with the error that the promise leaves to it."""
        sanitizer = self._sanitizer()
        if self.error is not None:
            goal = {"error": self._off(check_share(self.error, "error")), "failure": self._failure() / 4}
            sanitizer.set_params(**goal)
        return sanitizer

    def _sanitizer(self) -> Sanitizer:
        """An unfitted sanitizer: a clone of the given one, or the one made for the class."""
        if self.sanitizer is not None:
            given: Sanitizer = clone(self.sanitizer)
            return given
        classes = self.concept_class
        rest: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "failure": self._failure() / 4,
        }
        if isinstance(classes, Thresholds | Intervals):
            return ThresholdSanitizer(bits=classes.bits, domain=classes.domain, **rest)
        if isinstance(classes, Points | KPoints):
            if check_delta(self.delta) == 0:
                raise ValueError(
                    f"delta must be > 0 for {type(classes).__name__}, since PointSanitizer needs it, got {self.delta}; "
                    "or give a sanitizer that does not, such as NetSanitizer"
                )
            return PointSanitizer(bits=classes.bits, domain=classes.domain, **rest)
        if isinstance(classes, Rectangles):
            return NetSanitizer(classes, **rest)
        raise ValueError(
            f"sanitizer must be given for {type(classes).__name__}, such as "
            "NetSanitizer(Disagreements(concept_class), points=…, epsilon=…) with public points"
        )

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_delta(self.delta)
        if self.sanitizer is not None:
            if not isinstance(self.sanitizer, Sanitizer):
                raise TypeError(f"sanitizer must be a Sanitizer, got {type(self.sanitizer).__name__}")
            own = getattr(self.sanitizer, "epsilon", self.epsilon)
            if check_epsilon(own, "the epsilon of sanitizer") > check_epsilon(self.epsilon):
                raise ValueError(f"epsilon must be at least that of the sanitizer, {own}, got {self.epsilon}")
            if check_delta(self.sanitizer.delta, "the delta of sanitizer") > check_delta(self.delta):
                raise ValueError(
                    f"delta must be at least that of the sanitizer, {self.sanitizer.delta}, got {self.delta}"
                )
        sanitizer = self._sanitizer()
        sanitizer.check_parameters()
        check_sanitizer(sanitizer, self.concept_class)
