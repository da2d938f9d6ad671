"""A private concept out of any class that can be counted: the generic learner by the exponential mechanism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import ConceptClass, Dichotomies, about
from reticent.data.points import Array, Labels
from reticent.errors import OutOfReach
from reticent.exact import Number
from reticent.learners.base import ConceptLearner
from reticent.learners.sample_bounds import log_step, log_step_excess
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.events import BoundedRange
from reticent.privacy.parameters import check_epsilon
from reticent.promises import check_share, in_reach

MOST_LISTED = 1 << 20  # concepts that are scored one by one where a class does not count its dichotomies


class ExponentialLearner(ConceptLearner):
    """A concept of a class, drawn with probability ∝ e^(−ε·errors/2): nearly as good as the best, on any data.

    The candidates are public: the whole class where it is finite; otherwise, or if `net` is given, one concept for each
    way in which the class can label the points of `net`. The points of the data must *not* serve as the net. Which
    concepts stand for the labellings of the data depends on every row, so a replaced row would change the candidates
    themselves, and an outcome that is possible for one data set would be impossible for its neighbour. Take for `net`
    points that are known without the data: a grid, a public sample, the output of a sanitizer.

    A finite class may be huge, such as `Thresholds(bits=64)`, if it counts how many concepts label the rows in each
    way. A labelling is drawn with probability ∝ count·e^(−ε·errors/2), then one of its concepts uniformly. Here the
    points of the data only help to compute: the law is that of a draw from the whole class. Other finite classes are
    listed, up to 2^20 concepts. A class of one column is given its points as a one-dimensional array.

    Guarantee. ε-differential privacy for a replaced row, value and label, for the published concept, with a privacy
    loss of bounded range ε. Public are the number of rows, the concept class and the net.

    Why. A replaced row moves the number of errors of every concept by at most 1, and the candidates do not depend on
    the rows: this is the exponential mechanism (see `exponential`) with the score −errors. In the counted form a
    concept c with labelling z is drawn with probability ∝ m(z)·e^(−ε·errors/2)·(1/m(z)), where m(z) concepts share z:
    the same law, if the counts are right and `member` lists each concept once, which `concepts.check` tests.

    Promise. With n ≥ `n_required(error)` independent rows from any distribution, labelled in any way, the concept's
    error is at most α = `error` above that of the best of the candidates H, with probability 1 − failure. For let a
    candidate err more often than the best one, by more than α, and let x be its errors less those of the best one on a
    row: −1, 0 or 1. It is drawn with probability at most e^(−tΣx), for any t ≤ ε/2. By convexity E[e^(−tx)] is at most
    cosh t − α·sinh t; so some such candidate is drawn with probability at most |H|·(cosh t − α·sinh t)^n. If the best
    candidate makes no error at all (`realizable=True`), x is 0 or 1, and |H|·(1 − α(1 − e^(−ε/2)))^n does.

    Source. Kasiviswanathan, Lee, Nissim, Raskhodnikova, Smith, *What Can We Learn Privately?*, the generic learner for
    finite classes; Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential
    Privacy*, Figure 13, use it on the dichotomies of unlabelled points that need no protection, which is `net`.

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    epsilon : the privacy of the concept.
    net : None, or public points whose dichotomies are the candidates.
    error : None, or the error (above the best candidate's) that `fit` must be able to promise; else it raises
        `InsufficientData`.
    failure : the probability with which the promise may fail.
    realizable : whether the promise is for rows that some candidate labels without error. It needs fewer rows. `fit`
        cannot check this assumption; only the promise rests on it, not the privacy.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released concept, a value of the class.

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
        """The rows with which the error is at most `error` above the best candidate's, but for a `failure`.

        With `realizable=True`, the best candidate is taken to make no error. `failure` and `realizable` are the
        learner's own unless they are given. `OutOfReach` where `fit` cannot run on so many. Planning, in floating
        point.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(check_share(self.failure if failure is None else failure, "failure"))
        rate = float(check_epsilon(self.epsilon)) / 2
        fits = self.realizable if realizable is None else realizable
        step = log_step(alpha, 0, rate=rate) if fits else log_step_excess(alpha, rate=rate)
        return in_reach(math.ceil((math.log(self.n_candidates()) - math.log(beta)) / -step), self.check_size)

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The most errors on this many rows that a concept fits, but for a probability of failure/2.

        With a net no candidate need be the one that fits, and all rows may be wrong.
        """
        return rows if self.net is not None else min(rows, self._excess(float(check_share(self.failure, "failure"))))

    def _excess(self, beta: float) -> int:
        """How many errors more than the best candidate the draw makes at most, but for a probability of β/2."""
        return math.ceil(2 / float(check_epsilon(self.epsilon)) * (math.log(self.n_candidates()) + math.log(2 / beta)))

    def check_size(self, rows: int) -> None:
        """A net has no limit but its own. Without one the labellings of the rows are listed, or else all concepts."""
        super().check_size(rows)
        if self.net is not None:
            return
        if self.concept_class.counts_concepts:
            self.concept_class.check_points(
                rows, what="rows", remedy="give fewer rows or a net, or take a class of fewer concepts"
            )
        elif not self._is_listed():
            raise OutOfReach(
                f"net must be given: {type(self.concept_class).__name__} does not count how many concepts have each "
                f"labelling, and of its {about(self.n_candidates())} concepts no list of at most 2^"
                f"{MOST_LISTED.bit_length() - 1} can be made"
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
        assert self.net is not None
        try:
            self.concept_class.check_public(self.net, what="points of net", remedy="give a net of fewer points")
            return self.concept_class.dichotomies(self.net)
        except OutOfReach:
            raise
        except (TypeError, ValueError) as error:
            raise ValueError(f"net must hold points that the concept class can label: {error}") from error

    def _is_listed(self) -> bool:
        """Whether the concepts can be gone through one by one."""
        if self.n_candidates() > MOST_LISTED:
            return False
        try:
            next(iter(self.concept_class.concepts()), None)
        except NotImplementedError:
            return False
        return True

    def n_candidates(self) -> int:
        """How many concepts the draw is from."""
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
        if not isinstance(self.realizable, bool):
            raise TypeError(f"realizable must be True or False, got {type(self.realizable).__name__}")
        check_epsilon(self.epsilon)
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")
        self.n_candidates()

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class
