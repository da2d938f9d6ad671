"""A private point from a domain of any size: the learner for POINT_d, by stability."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from reticent.concepts.domains import Domain, required_domain
from reticent.concepts.order import Line
from reticent.concepts.points import KPoints, Point, Points, PointSet
from reticent.data.points import Array, Labels
from reticent.exact import Number
from reticent.learners.base import ConceptLearner
from reticent.mechanisms.release import Release
from reticent.mechanisms.stable_argmax import release_table, stable_argmax
from reticent.noise import Noise
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach


class PointLearner(ConceptLearner):
    """The one point that is labelled 1, if it clearly is one; otherwise the concept that labels every point 0.

    The point with the most rows labelled 1 is released if its lead over the runner-up is large enough
    (`stable_argmax`). Otherwise the hypothesis is the empty set of points, `PointSet(points=())`. It is never a point
    drawn at random, which a reader could mistake for a finding. The number of rows needed does not depend on the size
    of the domain.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the published concept. Public are
    the number of rows and every parameter, including the domain.

    Why. The score of a point x is the number of rows (x, 1). A replaced row moves each score by at most 1, which is
    what `stable_argmax` requires. Two zeros represent all points that never occur with label 1: a leader with lead 0 is
    never released. The proof is in `docs/learners/points.md`.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by one point or
    by none, then with probability 1 − failure a fresh row is mislabelled with probability at most `error`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 3.2. Repaired: A_dist (see `stable_argmax`); where it gives ⊥, the paper's learner returns a random
    concept, which needs 2^d ≥ 1/(αβ) and may name a point by chance. The answer here is that of Remark 3.3, for a
    class with the all-zero concept added. Sharpened: the exact probability in place of (8/(αε))·ln(4/(βδ)) rows.

    Parameters
    ----------
    bits : int or None, default None
        Values are the integers of [0, 2^bits).
    domain : Domain or None, default None
        Given in place of bits: `concepts.Floats()`, `concepts.Datetimes(unit)`, or `concepts.Integers()`, which has no
        bounds.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released concept.
    delta : float or Fraction
        Failure probability δ of the privacy bound; positive, and well below one over the number of rows.
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
    hypothesis_ : Point or PointSet
        The released point, or `concepts.PointSet(points=())` for none.

    >>> values, ill = [[7]] * 100 + [[2**90]] * 100, [0] * 100 + [1] * 100
    >>> PointLearner(bits=100, epsilon=1, delta=1e-6).fit(values, ill).hypothesis_.at == 2**90
    True
    >>> PointLearner(bits=100, epsilon=1, delta=1e-6).fit(values[:101], ill[:101]).hypothesis_
    PointSet(points=())
    """

    def __init__(
        self,
        *,
        bits: int | None = None,
        domain: Domain | None = None,
        epsilon: Number,
        delta: Number,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.bits = bits
        self.domain = domain
        self.epsilon = epsilon
        self.delta = delta
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows with which a fresh row is mislabelled with probability at most `error`.

        The rows are labelled by one point or none. Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.

        >>> PointLearner(bits=100, epsilon=1, delta=1e-6).n_required(0.1)
        370
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(self._failure(failure))
        withheld = self._withheld()
        counts = np.arange(len(withheld))
        needed = fewest_rows(lambda rows: float(binom.pmf(counts, rows, alpha) @ withheld) <= beta)
        return in_reach(needed, self.check_size)

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The number of errors that is exceeded with probability at most failure/2; see `ConceptLearner`.

        Only the point itself can be missed, if its count is too low to be released almost surely.
        """
        unsure = np.flatnonzero(self._withheld() > float(self._failure()) / 2)
        return min(rows, int(unsure[-1]))

    def _withheld(self) -> NDArray[np.float64]:
        """The probability with which a point of 0, 1, … rows is not released; any higher count always is."""
        entries, unit = release_table(epsilon=check_epsilon(self.epsilon), delta=check_delta(self.delta, positive=True))
        # A count of 2k − 1 or 2k is released with the k-th probability of the table.
        return np.repeat([float(1 - Fraction(entry, unit)) for entry in entries], 2)[1:]

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Point | PointSet]:
        ranks, domain = Points(self.bits, domain=self.domain).ranks(rows)
        delta = check_delta(self.delta, positive=True, rows=len(rows))
        line = Line(ranks[labels == 1])
        scores = np.append(np.diff(line.ends), [0, 0])  # two of the points that never occur with label 1
        leader, event = stable_argmax(scores, epsilon=self.epsilon, delta=delta, unsafe_noise=unsafe_noise)
        return Release(PointSet(()) if leader is None else Point(domain.value(line.point(leader))), event)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        release_table(epsilon=check_epsilon(self.epsilon), delta=check_delta(self.delta, positive=True))
        required_domain(self.bits, self.domain)

    def hypothesis_class(self) -> Points | KPoints:
        """The concept class that the hypothesis belongs to."""
        if isinstance(getattr(self, "hypothesis_", None), PointSet):
            return KPoints(1, self.bits, domain=self.domain)
        return Points(self.bits, domain=self.domain)
