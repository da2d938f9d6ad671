"""Few labels and many rows: a private copy of the unlabelled rows says what to choose from, the labels choose."""

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
from reticent.promises import check_share, fewest_rows, in_reach, rows_needed
from reticent.sanitizers.base import Sanitizer, public_generator
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer
from reticent.sanitizers.thresholds import ThresholdSanitizer

# What the promise makes of an error α: the candidate that is as good as the best one errs by α/4 more. Of this, α/16
# is what the points drawn from the copy miss of it, α/16 what the copy misses of the unlabelled rows, and the rest
# what these miss of their distribution. Each of the three, and the draw, may fail with a quarter of the probability.
NEAR, MISSED = 1 / 4, 1 / 16
COPY = {"what": "points of the private copy", "remedy": "ask for a larger error, or take a class of fewer concepts"}


class SemiSupervisedLearner(PartlyLabelled, NetLearner):
    """A concept of a class from few labelled rows and many unlabelled ones, all of them private: GenericLearner.

    Labels are 0 and 1; rows with the label −1 *have none*, so labels −1 and 1 must be turned into 0 and 1 first. Rows
    without a label go into a sanitizer and nowhere else. It makes a private copy of them,
    and the ways in which the class labels the points of the copy are the candidates, one concept for each. Of these
    the exponential mechanism draws one by its errors on the labelled rows, which go nowhere else. How many labels that
    takes depends on the VC dimension, not on the number of values a row may have; the unlabelled rows pay for that.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for the copy and the concept together: ε and δ are the
    *greater* of what the sanitizer and the draw cost, not their sum; ε-differential privacy if the sanitizer's is. A
    labelled row may be replaced by any labelled row, an unlabelled one by any unlabelled one. Which rows have a label
    is public, as are the number of rows, the concept class and every parameter.

    Why. Let a labelled row be replaced. The copy is made of the others, so its law is the same for both data sets; and
    given the copy, the draw is the exponential mechanism over candidates that do not depend on the labelled rows.
    Let an unlabelled row be replaced. The copy is (ε, δ)-differentially private, and the concept is drawn from the copy
    and the labelled rows, which are the same. No row is used twice, so no row pays twice (parallel composition).

    Promise. If there are n ≥ `labels_required(error)` labelled and N ≥ `unlabelled_required(error)` other rows, all
    drawn independently from any distribution, and c, of the class, gives the labels, then with probability 1 − failure
    a fresh row is mislabelled with probability at most α = `error`. If the copy has more points than are needed, so
    many are drawn from it: enough that the candidate h which agrees with c on them differs from c on a share of at most
    α/16 of the copy (`sample_bounds`). So on a share of at most α/8 of the N rows: the sanitizer is right up to α/16
    for all sets on which two concepts differ. These are the concepts of C⊕C, `concepts.Disagreements`; it suffices that
    it is right up to α/32 for the concepts of C, where C are thresholds or points (where two of them differ is the
    difference or the sum of two others), or up to α/64 for thresholds where C are intervals, or for C itself where it
    is rectangles. N is enough that h then differs from c with
    probability at most α/4. The draw finds a candidate of error at most α, since one of α/4 is there, as for
    `SemiPrivateLearner`.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 1 (Algorithm
    GenericLearner), Theorem 3.3, and Corollary 3.4 for thresholds. Sharpened: explicit numbers in place of O(·), and
    the number of labellings in place of 2^points. New: candidates from a sample of the copy where it has many points,
    and labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    epsilon, delta : the privacy of the rows, labelled or not. The draw uses ε, the sanitizer (ε, δ).
    sanitizer : None for the one made for thresholds, points (δ > 0), intervals or rectangles; else any `Sanitizer`,
        of the same domain, with parameters of its own up to ε and δ. It is cloned; where an error is asked for, the
        clone's error and failure are set from those here. For other classes,
        `NetSanitizer(Disagreements(concept_class), points=…)`; nothing is promised unless these are all points there
        are: those of the declared domain, or where none is declared, those of the rows.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released concept, a value of the class.
    sanitizer_ : the fitted sanitizer, with the private copy of the unlabelled rows.

    >>> import numpy as np
    >>> from reticent.concepts import Points
    >>> codes = np.repeat([3, 2**70, 2**80], [2000, 1000, 1000])[:, None]
    >>> labels = np.where(np.arange(4000) % 10 == 0, codes[:, 0] == 2**70, -1)  # every tenth row has one
    >>> learner = SemiSupervisedLearner(Points(bits=100), epsilon=1, delta=1e-6).fit(codes, labels)
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
        """How many rows, with and without a label, make the promise hold: the sum of the two numbers below.

        `OutOfReach` where `fit` cannot run on so many.
        """
        needed = self.labels_required(error, failure, agnostic=agnostic) + self.unlabelled_required(error, failure)
        goal = {"error": error, "failure": self.failure if failure is None else failure}
        return in_reach(needed, copy(self).set_params(**goal).check_size)

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """With `error` set, the labellings of as many points of the copy as that takes are listed.

        Without, as many points are taken as can be, those that stand for most rows.
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
        """The *labelled* rows with which a fresh row is mislabelled with probability at most `error`.

        There are `unlabelled_required(error)` others. All rows are drawn from any distribution and labelled by a
        concept of the class. With `agnostic=True` they are labelled in any way, and the error is what comes on top of
        the best concept's. `failure` is the learner's own unless it is given. Planning, in floating point.
        """
        self.check_parameters()
        alpha, log_quarter = float(check_share(error, "error")), self._log_failure(failure) - math.log(4)
        if agnostic:
            step = sample_bounds.log_step_excess(alpha * (1 - NEAR), rate=self._rate())
        else:
            step = sample_bounds.log_step(alpha, alpha * NEAR, rate=self._rate())
        candidates = sample_bounds.log_growth(self.concept_class, self._net_rows(alpha, math.exp(log_quarter)))
        if step == 0:
            raise ValueError("no number of rows below 2^60 would do: ask for a larger error or epsilon")
        return math.ceil((candidates - log_quarter) / -step)

    def unlabelled_required(self, error: Number, failure: Number | None = None) -> int:
        """The rows *without a label* with which the promise of `labels_required` holds."""
        self.check_parameters()
        exact = check_share(error, "error")
        alpha, log_quarter = float(exact), self._log_failure(failure) - math.log(4)
        # Of the rows a share of 2·MISSED·α may be missed; at the rate ln 2 this is best told from NEAR·α = 4·MISSED·α.
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
        beta = check_share(self.failure if failure is None else failure, "failure")
        return max(generalises, rows_needed(sanitizer.n_required, self._off(exact), beta / 4))

    def _off(self, error: Fraction) -> Fraction:
        """By how much the copy may put the share of a query of the sanitizer off."""
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
        """The points of the copy; where the promise needs fewer, so many drawn from it; and never too many to label.

        The copy is public, so all of this costs nothing.
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
        """How many rows of either kind there are is checked once their labels are read."""

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if any row cannot be read, whichever rows are drawn later."""
        for each in (self.concept_class, self._sanitizer().query_class()):
            refuse_bad_points(each, rows)

    # ── the sanitizer ─────────────────────────────────────────────────────────────────────────────────────────────

    def _promising(self) -> Sanitizer:
        """The sanitizer, made for the error that the promise leaves to it if there is one."""
        sanitizer = self._sanitizer()
        if self.error is not None:
            goal = {"error": self._off(check_share(self.error, "error")), "failure": check_share(self.failure, "") / 4}
            sanitizer.set_params(**goal)
        return sanitizer

    def _sanitizer(self) -> Sanitizer:
        """A sanitizer that is not fitted yet."""
        if self.sanitizer is not None:
            given: Sanitizer = clone(self.sanitizer)
            return given
        classes = self.concept_class
        rest: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "failure": check_share(self.failure, "failure") / 4,
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
