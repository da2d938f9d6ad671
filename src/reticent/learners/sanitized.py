"""A learner from any sanitizer: private copies of the rows of each label, and the best concept on the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.input import check_concept_class, refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.concepts.labellings import joined
from reticent.data.points import Array, Labels, as_rows
from reticent.exact import Number, integer
from reticent.learners.base import ConceptLearner, clone_with
from reticent.learners.copies import check_promise, check_sanitizer, concept_parts, heaviest
from reticent.learners.sample_bounds import log_bad, log_bad_excess
from reticent.mechanisms.counts import laplace_tail
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import ApproximateDP, Composed, Event, PureDP, Repeated
from reticent.privacy.parameters import check_delta, check_epsilon, check_flag
from reticent.promises import check_rows, check_share, fewest_rows, in_reach, rows_needed
from reticent.sanitizers.base import Sanitizer
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer

_STEP = Fraction(5, 4)  # the ratio of consecutive sizes of a half for which accuracies are computed
_MASS = 52  # bits of the weights of all points together: sums stay exact in floating point too


class HalvesBudget(NamedTuple):
    """How ε and δ are divided between the noisy count and the copies of the halves.

    Parameters
    ----------
    counting : Fraction
        ε_c of the count.
    copying : Fraction
        ε_A of each copy.
    delta : Fraction
        δ_A of each copy.
    """

    counting: Fraction
    copying: Fraction
    delta: Fraction


class Accuracy(NamedTuple):
    """The number of rows that a promise needs, and the error of each query in each copy, as a share of all rows."""

    rows: int
    share: Fraction


class SanitizedLearner(ConceptLearner):
    """The concept with the fewest errors on a private copy of the labelled rows: sanitization implies learning.

    The t rows are divided by their label. A noisy count m̂0 of those labelled 0, rounded to a multiple of `step`, and
    m̂1 = t − m̂0 are published. Each half is cut down or padded to its published size, with copies of the public row
    `padding`, then shuffled and sanitized. The concept with the fewest errors on the two copies is found exactly. The
    copies are private by then, so this costs nothing, and you may try any other concept on them later.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the hypothesis, the sizes and both
    copies together. With ε_c = `count_share`·ε for the count, each copy has ε_A = (ε − ε_c)/2 and δ_A = δ/2. A replaced
    row that keeps its label costs (ε_A, δ_A) only. Public are the number of rows and every parameter.

    Why. A replaced row moves the count by at most 1. Given the published sizes, each half changes as a multiset in at
    most one entry; after the shuffle, neighbours can be coupled to differ in one position. The three releases compose.
    The padding and *all* rows are read before the count is drawn, so that no error reveals whether a half was padded or
    cut. The proof is in `docs/learners/sanitized.md`.

    Promise. With n ≥ `n_required(error)` independent rows from any distribution, labelled in any way, the error of the
    concept is at most `error` above that of the best in the class, with probability 1 − failure.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 12 (Algorithm B), Lemma 5.3, Lemma 5.4, Theorem 5.5 and Remark 5.6.
    Sharpened: one noisy count in place of two, and a count is charged once with both copies, not again with each: the
    paper's 6ε becomes ε_c + 2ε_A, and its 6M/t rows of error k/t. Repaired: "remove the last entries" is sound for
    sanitizers of multisets only; the shuffle that the paper mentions in passing is part of the algorithm here. Left
    out: Lemma 5.1, a sanitizer for more rows than it was made for, since sanitizers here take any number of rows, and
    `step` serves those that do not; Claim 5.2, VC(C) ≤ VC(C_label) ≤ 2·VC(C), since errors have the dichotomies of C.

    Parameters
    ----------
    sanitizer : Sanitizer
        A sanitizer for the class, with the same domain. It is cloned; the clones' epsilon, delta, failure, error and
        unsafe_seed are set from those here, so it must not need an error of its own.
    concept_class : ConceptClass
        The class that the hypothesis is taken from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the published result.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound.
    count_share : float or Fraction, default 0.1
        The share of ε for the noisy count.
    step : int, default 1
        Published sizes are multiples of it; it must divide the number of rows.
    padding : array-like or None, default None
        The public row that halves are padded with, never one from the data; None is a row of zeros (the epoch for
        datetimes).
    error : float, Fraction or None, default None
        The error, above that of the best concept, that `fit` must be able to promise; otherwise it raises
        `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    realizable : bool, default False
        Whether the promise is for rows that some concept labels without error. It needs fewer rows. `fit` cannot check
        this assumption; only the promise depends on it, not the privacy.
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
    sizes_ : tuple of int
        The published numbers of rows labelled 0 and 1.
    copies_ : tuple of Sanitizer or None
        The fitted sanitizers of the two halves; None for a half of size 0.

    >>> import numpy as np
    >>> from reticent.concepts import Points
    >>> from reticent.sanitizers.points import PointSanitizer
    >>> values, ill = np.array([[7]] * 300 + [[2**20]] * 300), np.repeat([0, 1], 300)
    >>> sanitizer = PointSanitizer(bits=40, epsilon=1, delta=1e-6)
    >>> learner = SanitizedLearner(sanitizer, Points(bits=40), epsilon=2, delta=1e-6).fit(values, ill)
    >>> learner.hypothesis_, learner.guarantee_.epsilon
    (Point(at=1048576), 2.0)
    >>> sum(learner.sizes_), learner.copies_[1].points_
    (600, array([1048576]))
    """

    def __init__(
        self,
        sanitizer: Sanitizer,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        delta: Number = 0,
        count_share: Number = 0.1,
        step: int = 1,
        padding: ArrayLike | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        realizable: bool = False,
        unsafe_seed: int | None = None,
    ) -> None:
        self.sanitizer = sanitizer
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.delta = delta
        self.count_share = count_share
        self.step = step
        self.padding = padding
        self.error = error
        self.failure = failure
        self.realizable = realizable
        self.unsafe_seed = unsafe_seed

    # ── how many rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None, *, realizable: bool | None = None) -> int:
        """The number of rows with which the error is at most `error` above that of the best concept.

        A quarter of the failure goes to the count, another to the copies, and half to the deviation of the rows from
        their distribution. Several accuracies of the copies are tried. Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        realizable : bool or None, default None
            Whether some concept makes no error; None is the learner's own.
        """
        return in_reach(self._accuracy(error, failure, realizable).rows, self.check_size)

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if the best concept cannot be found on the copies.

        This depends on the points of a `NetSanitizer`, which are public. Of any other copy the heaviest points are
        used, as many as possible.

        Parameters
        ----------
        rows : int
            The number of training rows.
        """
        super().check_size(rows)
        copy = self._copy()
        if isinstance(copy, NetSanitizer):
            self.concept_class.check_erm(
                len(copy.query_net().points), what="points of sanitizer", remedy="give it fewer points"
            )

    def _accuracy(self, error: Number, failure: Number | None = None, realizable: bool | None = None) -> Accuracy:
        """The accuracy of the copies with which the fewest rows are needed."""
        self.check_parameters()
        alpha = check_share(error, "error")
        beta = self._failure(failure)
        fits = self.realizable if realizable is None else realizable
        step, copy = self._step(), self._copy()
        check_promise(copy)
        parts = concept_parts(self.concept_class, copy.query_class())
        off = laplace_tail(rate=self._budget().counting, probability=beta / 8) + step // 2

        planned = copy.planner(beta / 8)

        @cache  # most accuracies are powers of the step
        def needed(accuracy: Fraction) -> int:
            return rows_needed(planned, accuracy)

        def rows_if(accuracy: Fraction) -> int:
            """The rows needed if each copy answers each query correctly up to this share of all rows."""
            copies = rows_for_halves(needed, accuracy)

            def suffices(rows: int) -> bool:
                worse = 2 * off / rows + 4 * parts * float(accuracy)  # the share of errors that the copies may add
                if rows < copies or worse >= alpha:
                    return False
                return self._log_bad(rows, float(alpha), worse, fits) <= math.log(beta / 2)

            return fewest_rows(suffices)

        rows, share = min((rows_if(share), share) for share in (alpha * part / (32 * parts) for part in range(1, 8)))
        return Accuracy(-(-rows // step) * step, share)

    def _log_bad(self, rows: int, error: float, worse: float, realizable: bool) -> float:
        """A bound on the logarithm of the probability that the best concept on the copies is bad.

        `log_bad` bounds the sum of e^(−t·errors) over bad concepts, and `log_bad_excess` that of e^(−t·excess). Times
        e^(t·spare), they bound the probability that one of these is at most `spare`, for any t > 0.
        """
        spare = worse * rows
        if realizable:
            return log_bad(self.concept_class, rows, error, rate=math.log(error / worse), errors=spare)
        rates = [(error - worse) * part for part in (0.5, 0.75, 1.0)]
        return min(log_bad_excess(self.concept_class, rows, error, rate=rate) + rate * spare for rate in rates)

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        budget, step, source = self._budget(), self._step(), noise_or_system(unsafe_noise)
        rows = as_rows(rows, self.concept_class.columns)
        accuracy = self._promised(rows)
        if len(rows) % step:
            raise ValueError(f"step must divide the number of rows, {len(rows)}, got {step}")
        together = joined(rows, self._padding(rows))  # of one type, whether or not a half gets padded
        rows, padding = together[:-1], together[-1:]
        self.refuse_bad_rows(rows)
        for each in (self.concept_class, self._copy().query_class()):
            refuse_bad_points(each, padding, "padding")
        zeros = int(np.count_nonzero(labels == 0))
        # The noisy count, rounded and kept within [0, rows], is only compared with multiples of the step.
        cuts = range(step - step // 2 - zeros, len(rows) + 1 - step // 2 - zeros, step)
        first = step * source.laplace_cell(1 / budget.counting, cuts)
        sizes = (first, len(rows) - first)
        halves = [(rows[labels == label], size) for label, size in enumerate(sizes)]
        copies = tuple(
            self._sanitized(half, size, padding, half_accuracy(accuracy, size, len(rows)), unsafe_noise)
            for half, size in halves
        )
        best = self._best(copies, sizes, padding)
        self.sizes_, self.copies_ = sizes, copies
        return release(best, self._event(), unsafe_noise)

    def _promised(self, rows: Array) -> Fraction | None:
        """The accuracy that the promise needs of the copies, if there is one; raises if it cannot be kept."""
        if self.error is None:
            return None
        required, share = self._accuracy(self.error)
        check_rows(len(rows), required=required, error=self.error, failure=self.failure)
        check_promise(self._copy(), rows)
        return share

    def _check_rows(self, rows: int) -> None:
        """Do nothing: `_promised` checks the rows together with the accuracy of the copies."""

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if any row cannot be read, whichever rows are drawn later."""
        for each in (self.concept_class, self._copy().query_class()):
            refuse_bad_points(each, rows)

    def _sanitized(
        self, half: Array, size: int, padding: Array, error: Fraction | None, unsafe_noise: Noise | None
    ) -> Sanitizer | None:
        """A private copy of a half, cut down or padded to its size; None for size 0."""
        if size == 0:
            return None
        kept = joined(half[:size], np.repeat(padding, max(0, size - len(half)), axis=0))
        copy = self._copy(error).fit_with_noise(kept[noise_or_system(unsafe_noise).permutation(size)], unsafe_noise)
        budget = self._budget()
        if not fits(copy.event_, epsilon=budget.copying, delta=budget.delta):
            raise ValueError(f"sanitizer must keep to the epsilon and delta that are set: {type(copy).__name__} fails")
        return copy

    def _best(self, copies: tuple[Sanitizer | None, ...], sizes: tuple[int, int], padding: Array) -> Any:
        """The concept with the fewest errors on the two copies, where a point weighs as many rows as it stands for.

        A point of the copy of the rows labelled 0 is an error of every concept that labels it 1. A point of the other
        copy is one error less, up to a constant.
        """
        points, weights = padding[:0], np.zeros(0, dtype=np.int64)
        unit = 1 << max(0, _MASS - sum(sizes).bit_length())  # of a row, in whole numbers
        for copy, size, sign in zip(copies, sizes, (1, -1), strict=True):
            if copy is not None and len(copy.points_):
                own, shares = heaviest(
                    copy.points_, copy.weights_, lambda count: self.concept_class.check_erm(2 * count)
                ) if not isinstance(copy, NetSanitizer) else (copy.points_, copy.weights_)
                points = joined(points, own) if len(points) else own
                weights = np.append(weights, sign * np.rint(shares * (size * unit)).astype(np.int64))
        return self.concept_class.lightest(points, weights)

    def _padding(self, rows: Array) -> Array:
        """The public row, in the form of the data."""
        if self.padding is None:
            return np.zeros_like(rows[:1])
        row = as_rows(np.atleast_1d(self.padding)[None], self.concept_class.columns, "padding")
        kinds = [_kind(row), _kind(rows)]
        if kinds == ["whole numbers", "floats"]:
            return row.astype(rows.dtype)
        if kinds[0] != kinds[1]:
            raise TypeError(f"padding must be a row of the same kind as those of X, {kinds[1]}, got {kinds[0]}")
        return row

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def _budget(self) -> HalvesBudget:
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta)
        count = epsilon * check_share(self.count_share, "count_share")
        return HalvesBudget(count, (epsilon - count) / 2, delta / 2)

    def _event(self) -> Event:
        # The same whatever the sizes are: a list of events must be fixed beforehand.
        budget = self._budget()
        copy = ApproximateDP(budget.copying, budget.delta) if budget.delta else PureDP(budget.copying)
        return Composed((PureDP(budget.counting), Repeated(copy, 2)))

    def _copy(self, error: Fraction | None = None) -> Sanitizer:
        """An unfitted sanitizer of a half, with its privacy set."""
        budget = self._budget()
        return clone_with(
            self.sanitizer,
            epsilon=budget.copying,
            delta=budget.delta,
            error=error,
            failure=self._failure() / 8,
            unsafe_seed=self.unsafe_seed,
        )

    def _step(self) -> int:
        return integer(self.step, "step", least=1)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_flag(self.realizable, "realizable")
        self._budget()
        self._step()
        check_concept_class(self.concept_class)
        if not isinstance(self.sanitizer, Sanitizer) or "epsilon" not in self.sanitizer.get_params(deep=False):
            raise TypeError(f"sanitizer must be a Sanitizer, got {type(self.sanitizer).__name__}")
        copy = self._copy()
        copy.check_parameters()
        if isinstance(copy, PointSanitizer) and copy.method == "choosing" and copy.rounds is None:
            raise ValueError('sanitizer must have rounds for method="choosing": its own error is not looked at')
        check_sanitizer(copy, self.concept_class)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class


def rows_for_halves(needed: Callable[[Fraction], int], accuracy: Fraction) -> int:
    """The number of rows with which a half of *any* size has every frequency correct up to u = rows·accuracy rows.

    A half of at most u rows need not be accurate. A half of between s and 5s/4 rows is correct up to u if s rows are
    enough for the accuracy u/(5s/4). So the sizes s = (5/4)^j·u are checked, up to all rows.

    Parameters
    ----------
    needed : callable
        `needed(a)` is the number of rows that a sanitizer needs for the accuracy a.
    accuracy : Fraction
        u as a share of all rows.
    """
    return math.ceil(max(math.ceil(needed(own) / size) for size, own in _half_sizes(accuracy)) / accuracy)


def half_accuracy(accuracy: Fraction | None, size: int, rows: int) -> Fraction | None:
    """The accuracy for which a half is sanitized, as `rows_for_halves` computes it; None if it need not be accurate.

    Parameters
    ----------
    accuracy : Fraction or None
        u as a share of all rows; None if there is no promise.
    size : int
        The size of the half.
    rows : int
        The number of all rows.

    >>> half_accuracy(Fraction(1, 50), 1, 1000), half_accuracy(Fraction(1, 50), 1000, 1000)
    (None, Fraction(1, 50))
    """
    if accuracy is None:
        return None
    asked = [own for least, own in _half_sizes(accuracy) if least * accuracy * rows <= size]
    return asked[-1] if asked else None


def _half_sizes(accuracy: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """The sizes s that are checked, in units of u, and the accuracy u/(5s/4) of halves from s rows on."""
    size = Fraction(1)
    while size * accuracy < 1:
        yield size, max(accuracy, 1 / (size * _STEP))
        size *= _STEP


def _kind(rows: Array) -> str:
    return {"f": "floats", "M": "datetimes"}.get(rows.dtype.kind, "whole numbers")
