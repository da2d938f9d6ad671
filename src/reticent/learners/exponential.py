"""A private concept out of any class that can be counted: the generic learner by the exponential mechanism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.input import check_concept_class
from reticent.concepts.interface import ConceptClass, Dichotomies
from reticent.concepts.labellings import about
from reticent.data.points import Array, Labels
from reticent.errors import OutOfReach
from reticent.exact import Number
from reticent.learners.base import ConceptLearner
from reticent.learners.sample_bounds import log_step, log_step_excess
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.events import BoundedRange
from reticent.privacy.parameters import check_epsilon, check_flag
from reticent.promises import check_share, in_reach

MOST_LISTED = 1 << 20  # concepts that are scored one by one where a class does not count its dichotomies


class ExponentialLearner(ConceptLearner):
    """A concept drawn with probability ∝ e^(−ε·errors/2): nearly as good as the best of a class, on any data.

    The candidates are public. They are the whole class if it is finite. Otherwise, or if `net` is given, they are one
    concept for each labelling that the class gives to the points of `net`. The points of the data must *not* serve as
    the net: a replaced row would change the candidates themselves, and an outcome that is possible for one data set
    would be impossible for its neighbour. Use points that are known without the data: a grid, a public sample, the
    output of a sanitizer.

    A finite class may be huge, such as `Thresholds(bits=64)`, if it counts how many concepts share each labelling of
    the rows. A labelling is drawn with probability ∝ count·e^(−ε·errors/2), then one of its concepts uniformly. Here
    the points of the data only serve the computation: the law is that of a draw from the whole class. Other finite
    classes are listed, up to 2^20 concepts. A class of one column takes its points as a one-dimensional array.

    Guarantee. ε-differential privacy for a replaced row, value and label, for the published concept, with a privacy
    loss of bounded range ε. Public are the number of rows, the concept class and the net.

    Why. A replaced row moves the number of errors of every concept by at most 1, and the candidates do not depend on
    the rows: this is the exponential mechanism. The counted form has the same law, if the counts are correct and
    `member` lists each concept once, which `concepts.check` tests.

    Promise. With n ≥ `n_required(error)` independent rows from any distribution, labelled in any way, the error of the
    concept is at most `error` above that of the best candidate, with probability 1 − failure. See
    `docs/learners/exponential.md`.

    Source. Kasiviswanathan, Lee, Nissim, Raskhodnikova, Smith, *What Can We Learn Privately?*, the generic learner for
    finite classes; Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential
    Privacy*, Figure 13, use it on the dichotomies of unlabelled points that need no protection, which is `net`.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that the hypothesis is taken from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released concept.
    net : array-like or None, default None
        Public points whose labellings are the candidates.
    error : float, Fraction or None, default None
        The error, above that of the best candidate, that `fit` must be able to promise; otherwise it raises
        `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    realizable : bool, default False
        Whether the promise is for rows that some candidate labels without error. It needs fewer rows. `fit` cannot
        check this assumption; only the promise depends on it, not the privacy.
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

    >>> import numpy as np
    >>> from reticent.concepts import Intervals, Thresholds
    >>> x = np.arange(5000)[:, None] % 256
    >>> y = (60 <= x[:, 0]) & (x[:, 0] < 90)
    >>> learner = ExponentialLearner(Intervals(), epsilon=1, net=np.arange(0, 256, 10)).fit(x, y)
    >>> learner.hypothesis_, bool(learner.score(x, y) > 0.99)
    (Interval(low=60, high=90), True)
    >>> ExponentialLearner(Thresholds(bits=64), epsilon=1).n_required(0.1, realizable=True)
    1180
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        net: ArrayLike | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        realizable: bool = False,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.net = net
        self.error = error
        self.failure = failure
        self.realizable = realizable
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None, *, realizable: bool | None = None) -> int:
        """The number of rows with which the error is at most `error` above that of the best candidate.

        Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        realizable : bool or None, default None
            Whether some candidate makes no error; None is the learner's own.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(self._failure(failure))
        rate = float(check_epsilon(self.epsilon)) / 2
        fits = self.realizable if realizable is None else realizable
        step = log_step(alpha, 0, rate=rate) if fits else log_step_excess(alpha, rate=rate)
        return in_reach(math.ceil((math.log(self.n_candidates()) - math.log(beta)) / -step), self.check_size)

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The number of errors that is exceeded with probability at most failure/2; see `ConceptLearner`.

        With a net, no candidate needs to be the concept that fits, and all rows may be wrong.
        """
        return rows if self.net is not None else min(rows, self._excess(float(self._failure())))

    def _excess(self, beta: float) -> int:
        """How many more errors than the best candidate the draw makes, except with probability β/2."""
        return math.ceil(2 / float(check_epsilon(self.epsilon)) * (math.log(self.n_candidates()) + math.log(2 / beta)))

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if the candidates cannot be scored on this many rows.

        A net has only its own limit. Without one, the labellings of the rows are listed, or all concepts.

        Parameters
        ----------
        rows : int
            The number of training rows.
        """
        super().check_size(rows)
        if self.net is not None:
            return
        if self.concept_class.counts_concepts:
            remedy = "give fewer rows, set net of ExponentialLearner, or take a class of fewer concepts"
            self.concept_class.check_points(rows, what="rows", remedy=remedy)
        elif not self._is_listed():
            raise OutOfReach(
                f"net of ExponentialLearner must be given: {type(self.concept_class).__name__} does not count how many "
                f"concepts have each labelling, and its {about(self.n_candidates())} concepts have no list of at most "
                f"2^{MOST_LISTED.bit_length() - 1}"
            )

    # ── the draw ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        event = BoundedRange(check_epsilon(self.epsilon))
        source, rate = noise_or_system(unsafe_noise), event.epsilon / 2
        if self.net is not None:
            candidates = self._net()
            index = source.choose(-candidates.errors(labels, at=rows), rate=rate)
            return release(candidates.concept(index), event, unsafe_noise)
        if not self.concept_class.counts_concepts:
            concepts = list(self.concept_class.concepts())
            errors = [np.count_nonzero(self.concept_class.predict(concept, rows) != labels) for concept in concepts]
            return release(concepts[source.choose(-np.array(errors), rate=rate)], event, unsafe_noise)
        dichotomies = self.concept_class.dichotomies(rows)
        counts = dichotomies.multiplicities
        assert counts is not None
        index = source.choose(-dichotomies.errors(labels), rate=rate, counts=counts)
        number = source.uniform(int(counts[index]))
        return release(dichotomies.member(index, number), event, unsafe_noise)

    def _net(self) -> Dichotomies[Any]:
        """The labellings of the net."""
        assert self.net is not None
        try:
            self.concept_class.check_public(self.net, what="points of net", remedy="give a net of fewer points")
            return self.concept_class.dichotomies(self.net)
        except OutOfReach:
            raise
        except (TypeError, ValueError) as error:
            raise ValueError(f"net must hold points that the concept class can label: {error}") from error

    def _is_listed(self) -> bool:
        """Whether the concepts can be scored one by one."""
        if self.n_candidates() > MOST_LISTED:
            return False
        try:
            next(iter(self.concept_class.concepts()), None)
        except NotImplementedError:
            return False
        return True

    def n_candidates(self) -> int:
        """The number of candidates; ValueError if the class is infinite and there is no net."""
        if self.net is not None:
            return self._net().count
        size = self.concept_class.size
        if size is None:
            raise ValueError(
                "net must be given for an infinite concept class: public points, never those of the data; "
                "or declare the bits or the domain of the class"
            )
        return size

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_flag(self.realizable, "realizable")
        check_epsilon(self.epsilon)
        check_concept_class(self.concept_class)
        self.n_candidates()

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class
