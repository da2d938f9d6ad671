"""A private learner that asks for few labels: SubSampling of a large pool of rows, with roles by order of draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.interface import ConceptClass
from reticent.data.labels import UNLABELLED, as_binary_labels
from reticent.data.points import Array, Labels, as_point_table
from reticent.exact import Number, exp_fractions, integer, log_bounds
from reticent.learners.base import ConceptLearner, PartlyLabelled, clone_with
from reticent.learners.label_private import SemiPrivateLearner
from reticent.mechanisms.release import Release, noise_from_seed, noise_or_system
from reticent.noise import Noise
from reticent.privacy.events import Event, Subsampled
from reticent.privacy.guarantee import Protects
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_rows, check_share, fewest_rows, in_reach, rows_needed

Oracle = Callable[[Any], ArrayLike]

_BITS = 192  # of the logarithm that defines ε*
_KEPT = 64  # significant bits of ε*: noise with short parameters is faster to draw
_AMPLE = Fraction(64)  # an ε at which no parameter is refused for being too small
_STEEP = Fraction(1 << 12)  # e^−steep is far below every precision used here


class Draw(NamedTuple):
    """The sizes of a draw, and the privacy that it leaves to the learner inside.

    Parameters
    ----------
    pool, rows, labels : int
        How many rows there are, are drawn, and are labelled.
    epsilon, delta : Fraction
        ε* and δ* of the learner inside.
    """

    pool: int
    rows: int
    labels: int
    epsilon: Fraction
    delta: Fraction


class ActiveLearner(ConceptLearner):
    """A private learner that sees a random part of the rows, and asks for few labels.

    Of the t rows of the pool, n are drawn without replacement as a uniformly random *ordered* tuple. `oracle` is asked,
    once, for the labels of the first m of them. Then the learner inside learns from the tuple, in the order of the
    draw. A learner that takes rows without a label (y = −1) gets n ≥ m of them; any other learner gets the m labelled
    ones, n = m. Someone who does not know which rows were drawn learns less about each. So the learner inside may run
    with an ε* far above ε, and the number of labels does not grow with 1/ε; only the pool does.

    The parameter `transcript` says what is protected. "hidden" protects the hypothesis, but not the questions. The
    learner inside runs with ε* = ln(1 + (t/n)(e^ε − 1)) and δ* = (t/n)·δ. Which rows were asked for must stay secret:
    for someone who knows it, the guarantee is only (ε*, δ*). So the fitted learner does not hold it. "private" protects
    the hypothesis *together with* the ordered list of the rows asked for, which is published as `transcript_`. The
    learner inside runs with ε and δ themselves, so nothing is gained by drawing.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the hypothesis ("hidden"), or for
    the hypothesis and the transcript together ("private"). Public are the number of rows, n, m and every parameter. The
    label of a row is the oracle's answer for it. It must depend on that row alone: an oracle that looks at the other
    rows of the question, say by fitting a model to them, voids the guarantee.

    Why. A drawn row can be exchanged for one that was not drawn without changing the role of any position. So
    amplification by sampling applies to ordered tuples, and the learner inside has to protect whole rows. A private
    transcript is independent of the data. The proof is in `docs/learners/active.md`.

    Promise. If the rows of the pool are drawn independently, so are those of the tuple. So the promise is that of the
    learner inside, from n rows with ε* and δ*.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 4 (Algorithm
    SubSampling), Claim 5.7 and Theorem 5.8 for "hidden"; Definition 5.4 and Theorem 5.5 for "private". Repaired: the
    paper labels the *smallest* m indices of the subset. A row that comes in then moves another one from labelled to
    unlabelled, and the paper pays 2ε* and (1 + e^ε*)·δ for two rows. In the order of draw every place keeps its role.
    Sharpened: t = n(e^ε* − 1)/(e^ε − 1) rows in place of (n/ε)(3 + e^(2ε*)), and δ = (n/t)·δ*.

    Parameters
    ----------
    learner : ConceptLearner
        The learner inside, such as `ThresholdLearner` or `SemiSupervisedLearner`. It is cloned; the clone's epsilon,
        delta, failure, error and unsafe_seed are set from those here.
    epsilon : float or Fraction
        Privacy-loss bound ε of the published result.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound.
    transcript : {"hidden", "private"}, default "hidden"
        Whether the questions stay secret or are published.
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
        The released concept.
    learner_ : ConceptLearner
        The fitted learner inside; its `guarantee_` is the one for the rows that it received.
    n_labels_, n_rows_ : int
        m and n, which are public.
    transcript_ : array of int
        With transcript="private" only: the positions of the rows asked for, in order.

    >>> import numpy as np
    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> ages = np.arange(100_000)[:, None] % 128
    >>> asked = []
    >>> def oracle(rows):
    ...     asked.append(len(rows))
    ...     return rows[:, 0] < 65
    >>> learner = ActiveLearner(ThresholdLearner(bits=7, epsilon=1), epsilon=0.1)
    >>> learner = learner.fit(ages, oracle=oracle, n_labels=1000)
    >>> asked, bool(learner.score(ages, ages[:, 0] < 65) > 0.95), learner.guarantee_.epsilon
    ([1000], True, 0.1)
    >>> round(learner.learner_.guarantee_.epsilon, 2)
    2.44
    """

    def __init__(
        self,
        learner: ConceptLearner,
        *,
        epsilon: Number,
        delta: Number = 0,
        transcript: Literal["hidden", "private"] = "hidden",
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.transcript = transcript
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    @property
    def protects(self) -> Protects:  # type: ignore[override]
        """What the learner inside protects."""
        return self.learner.protects

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        oracle: Oracle | None = None,
        n_labels: int | None = None,
        n_rows: int | None = None,
    ) -> Self:
        """Learn from a pool of rows, asking for the labels of some of them.

        Parameters
        ----------
        X : array-like or data frame of shape (rows, columns)
            The pool.
        y : array-like or None, default None
            In place of an oracle: the labels of all rows. Only `n_labels` of them are read.
        oracle : callable or None, default None
            `oracle(rows)` is called once, with the drawn rows in the form that they have in `X`; the rows of a data
            frame keep their index, so that you know whose they are. It returns their labels, 0 or 1, in that order.
        n_labels : int or None, default None
            The number of labels to ask for; None with `y` is all.
        n_rows : int or None, default None
            The number of rows to draw, for a learner that takes rows without labels. None is the largest number with
            ε* ≥ 1 ("hidden"), or all rows ("private").

        Returns
        -------
        self
        """
        source = noise_from_seed(self.unsafe_seed)
        return self.fit_with_noise(X, y, source, oracle=oracle, n_labels=n_labels, n_rows=n_rows)

    def predict(self, X: ArrayLike) -> Labels:
        """Label rows by the hypothesis; see `ConceptLearner.predict`."""
        check_is_fitted(self)
        rows = as_point_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.learner_.predict(rows)

    # ── how many rows, how many labels ────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None, *, n_labels: int | None = None) -> int:
        """The number of rows in the pool with which the learner inside keeps its promise.

        Fewer labels need a larger pool, down to a number of labels for which no pool is large enough.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        n_labels : int or None, default None
            The number of labels that are asked for; None is `labels_required(error)`.
        """
        self.check_parameters()
        check_share(error, "error")
        beta = self._failure(failure)
        labels = self.labels_required(error, beta) if n_labels is None else integer(n_labels, "n_labels", least=1)

        def suffices(pool: int) -> bool:
            return pool >= labels and self._keeps(self._draw(pool, labels, None), error, beta)

        try:
            pool = fewest_rows(suffices)
        except ValueError:
            raise ValueError(
                f"n_labels={labels} labels are too few for error={error}, however many rows there are: "
                "ask for more labels or a larger error"
            ) from None
        return in_reach(pool, lambda rows: self._check_draw(self._draw(rows, labels, None), error))

    def check_size(self, rows: int, *, n_labels: int | None = None, n_rows: int | None = None) -> None:
        """Raise `OutOfReach` if the learner inside cannot run on what is drawn from this many rows.

        Parameters
        ----------
        rows : int
            The size of the pool.
        n_labels, n_rows : int or None, default None
            As for `fit`.
        """
        super().check_size(rows)
        self._check_draw(self._draw(rows, rows if n_labels is None else n_labels, n_rows), self.error)

    def _check_draw(self, draw: Draw, error: Number | None) -> None:
        _check_inner(self.inner_learner(draw.epsilon, draw.delta, error), draw)

    def labels_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of labels that the learner inside needs at ε* = max(1, ε), or at ε if the transcript is private.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        """
        self.check_parameters()
        epsilon = check_epsilon(self.epsilon)
        inner = self.inner_learner(max(epsilon, Fraction(1)) if self.transcript == "hidden" else epsilon, self._delta())
        return _needs(inner, error, self._failure(failure))[1]

    def _check_promise(self, draw: Draw, *, every_row: bool) -> None:
        """Raise if the learner inside cannot promise `error` from these rows; `every_row`: all rows have a label."""
        error = self.error
        if error is None or self._keeps(draw, error, self.failure):
            return
        if every_row:
            required = fewest_rows(lambda pool: self._keeps(self._draw(pool, pool, None), error, self.failure))
        else:
            required = self.n_required(error, n_labels=draw.labels)
        check_rows(draw.pool, required=required, error=error, failure=self.failure)
        raise ValueError(f"n_rows={draw.rows} rows are too few or too many for error={self.error}: leave n_rows out")

    def _keeps(self, draw: Draw, error: Number, failure: Number) -> bool:
        """Whether the learner inside keeps its promise with the rows that it gets."""
        inner = self.inner_learner(draw.epsilon, draw.delta)
        rows, labels = _needs(inner, error, failure)
        return labels <= draw.labels and rows - labels <= draw.rows - draw.labels

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fit_with_noise(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        unsafe_noise: Noise | None,
        *,
        oracle: Oracle | None = None,
        n_labels: int | None = None,
        n_rows: int | None = None,
    ) -> Self:
        """Call `fit` on a given source of noise, as audits and estimators that contain this one do.

        Parameters
        ----------
        X, y, oracle, n_labels, n_rows
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        self.check_parameters()
        _check_questions(y, oracle, n_labels)
        table = as_point_table(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        target = None if oracle is not None else self._labels(y, len(table))  # type: ignore[arg-type]
        draw = self._draw(len(table), len(table) if n_labels is None else n_labels, n_rows)
        inner = self.inner_learner(draw.epsilon, draw.delta, self.error)
        inner.check_parameters()
        self._check_promise(draw, every_row=n_labels is None)
        validate_data(inner, X, reset=True, skip_check_array=True)
        _check_inner(inner, draw)
        inner.refuse_bad_rows(inner.as_points(table))

        order = noise_or_system(unsafe_noise).subset(draw.pool, draw.rows)  # in the order of draw: roles by position
        asked = order[: draw.labels]
        labels = np.full(draw.rows, UNLABELLED)
        labels[: draw.labels] = target[asked] if oracle is None else _answer(oracle, X, table, asked)  # type: ignore[index]
        self._adopt_inner(inner.fit_with_noise(table[order], labels, unsafe_noise), draw, asked)
        return self

    def _adopt_inner(self, inner: ConceptLearner, draw: Draw, asked: Array) -> None:
        event: Event = inner.event_
        if self.transcript == "private":
            self.transcript_ = asked
        else:
            event = Subsampled(event, Fraction(draw.rows, draw.pool))
            self.__dict__.pop("transcript_", None)  # of an earlier fit
        self.learner_, self.n_labels_, self.n_rows_ = inner, draw.labels, draw.rows
        self.adopt_release(Release(inner.hypothesis_, event))

    def _draw(self, pool: int, n_labels: int, n_rows: int | None) -> Draw:
        """The sizes, checked, and the privacy that they leave to the learner inside."""
        labels = integer(n_labels, "n_labels", least=1)
        if labels > pool:
            raise ValueError(f"n_labels must be at most the number of rows, {pool}, got {labels}")
        epsilon, delta = check_epsilon(self.epsilon), self._delta()
        if not isinstance(self.learner, PartlyLabelled):
            if n_rows is not None and n_rows != labels:
                raise ValueError(
                    f"n_rows must be None or n_labels={labels}, got {n_rows}: {type(self.learner).__name__} takes no "
                    "rows without labels"
                )
            rows = labels
        elif n_rows is not None:
            rows = integer(n_rows, "n_rows", least=labels)
            if rows > pool:
                raise ValueError(f"n_rows must be at most the number of rows, {pool}, got {rows}")
        elif self.transcript == "private":
            rows = pool
        else:
            rows = max(labels, math.floor(pool * min(Fraction(1), rate_for_one(epsilon))))
        if self.transcript == "private":
            return Draw(pool, rows, labels, epsilon, delta)
        rate = Fraction(rows, pool)
        return Draw(pool, rows, labels, inner_epsilon(epsilon, rate), min(delta / rate, max(delta, Fraction(1, 2))))

    def inner_learner(self, epsilon: Fraction, delta: Fraction, error: Number | None = None) -> ConceptLearner:
        """An unfitted clone of the learner inside, with its privacy and its promise set.

        Parameters
        ----------
        epsilon, delta : Fraction
            ε* and δ*.
        error : float, Fraction or None, default None
            The error that it must promise.
        """
        return clone_with(
            self.learner,
            epsilon=epsilon,
            delta=delta,
            error=error,
            failure=self.failure,
            unsafe_seed=self.unsafe_seed,
        )

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        if not isinstance(self.learner, ConceptLearner) or "epsilon" not in self.learner.get_params(deep=False):
            raise TypeError(f"learner must be a private learner of concepts, got {type(self.learner).__name__}")
        super().check_parameters()
        epsilon, delta = check_epsilon(self.epsilon), self._delta()
        if isinstance(self.learner, SemiPrivateLearner):
            raise ValueError("learner must learn from rows and labels alone: SemiPrivateLearner takes public points")
        if self.transcript not in ("hidden", "private"):
            raise ValueError(f'transcript must be "hidden" or "private", got {self.transcript!r}')
        if self.transcript == "hidden" and self.protects != "rows":
            raise ValueError(
                f'transcript must be "private" for a learner that protects only {self.protects}, such as '
                f"{type(self.learner).__name__}: what it shows of the rows themselves would show which were drawn"
            )
        if self.transcript == "hidden":  # ε* and δ* depend on the draw, after which they are checked
            epsilon, delta = max(epsilon, _AMPLE), max(delta, Fraction(1, 2)) if delta else delta
        self.inner_learner(epsilon, delta).check_parameters()

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if any row cannot be read, whichever rows are drawn later."""
        self.learner.refuse_bad_rows(rows)

    def _delta(self) -> Fraction:
        return check_delta(self.delta)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.learner.hypothesis_class()


# ── how private the learner inside is ─────────────────────────────────────────────────────────────────────────────


def inner_epsilon(epsilon: Fraction, rate: Fraction) -> Fraction:
    """ε* = ln(1 + (e^ε − 1)/rate), rounded down: the ε that sampling a share `rate` of the rows reduces to `epsilon`.

    It is computed as ε + ln((1 − (1 − rate)·e^(−ε))/rate), which does not overflow.

    >>> round(float(inner_epsilon(Fraction(1, 10), Fraction(1, 100))), 6)
    2.443832
    """
    if rate == 1:
        return epsilon
    decay = exp_fractions(-min(epsilon, _STEEP), _BITS)[1]
    exact = epsilon + log_bounds((1 - (1 - rate) * decay) / rate, _BITS)[0] if decay < 1 else epsilon
    scale = Fraction(2) ** (_KEPT + exact.denominator.bit_length() - exact.numerator.bit_length())
    found = math.floor(exact * scale) / scale
    # Below about 2^−100, rounding cancels what the draw gains.
    return found if found > epsilon and amplified(found, rate) <= epsilon else epsilon


def rate_for_one(epsilon: Fraction) -> Fraction:
    """The share of rows, rounded down, that reduces ε* = 1 to `epsilon`: (e^ε − 1)/(e − 1), or 1 for ε ≥ 1."""
    if epsilon >= 1:
        return Fraction(1)
    return (exp_fractions(epsilon, _BITS)[0] - 1) / (exp_fractions(Fraction(1), _BITS)[1] - 1)


def _check_inner(inner: ConceptLearner, draw: Draw) -> None:
    """Raise `OutOfReach` if the learner inside cannot run on what is drawn."""
    if isinstance(inner, PartlyLabelled):
        inner.check_size(draw.rows, labels=draw.labels)
    else:
        inner.check_size(draw.rows)


def _needs(inner: ConceptLearner, error: Number, failure: Number) -> tuple[int, int]:
    """How many rows a learner needs, and how many of them with a label: all, unless it has `labels_required`."""
    rows = rows_needed(inner.n_required, error, failure)
    return rows, inner.labels_required(error, failure) if hasattr(inner, "labels_required") else rows


# ── questions and answers ─────────────────────────────────────────────────────────────────────────────────────────


def _check_questions(y: ArrayLike | None, oracle: Oracle | None, n_labels: int | None) -> None:
    """Raise unless there is either an oracle with a number of labels, or y."""
    if oracle is None:
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: give oracle=, a function from rows to labels, "
                "or y, a label for every row"
            )
        return
    if y is not None:
        raise ValueError("give either oracle or y, not both: y would hold the labels that the oracle is asked for")
    if not callable(oracle):
        raise TypeError(f"oracle must be a function from rows to their labels, got {type(oracle).__name__}")
    if n_labels is None:
        raise ValueError("n_labels must be given with an oracle: the number of labels that it is asked for")


def _answer(oracle: Oracle, X: Any, table: Array, asked: Array) -> Labels:
    """Ask the oracle, once."""
    question = X.iloc[asked] if hasattr(X, "iloc") else table[asked]
    return as_binary_labels(oracle(question), len(asked), "oracle(rows)")
