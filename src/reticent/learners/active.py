"""A private learner that asks for few labels: SubSampling of a large pool of rows, with roles by order of draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.interface import ConceptClass
from reticent.data.labels import UNLABELLED, as_binary_labels
from reticent.data.points import Array, Labels, as_point_table
from reticent.exact import Number, exp_fractions, integer, log_bounds
from reticent.learners.base import ConceptLearner, PartlyLabelled
from reticent.learners.label_private import SemiPrivateLearner
from reticent.mechanisms.release import Release, noise_from_seed, noise_or_system
from reticent.noise import Noise
from reticent.privacy.events import Event, Subsampled
from reticent.privacy.guarantee import Protects
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_rows, check_share, fewest_rows, in_reach, rows_needed

Oracle = Callable[[Any], ArrayLike]

_BITS = 192  # of the logarithm that ε* is
_KEPT = 64  # significant bits of ε*: noise with short parameters is quicker to draw
_AMPLE = Fraction(64)  # an ε at which nothing is refused for being too little
_STEEP = Fraction(1 << 12)  # e^−steep is far below every precision used here


class Draw(NamedTuple):
    """How many rows there are, are drawn and are labelled, and the privacy that this leaves to the learner inside."""

    pool: int
    rows: int
    labels: int
    epsilon: Fraction
    delta: Fraction


class ActiveLearner(ConceptLearner):
    """A private learner that is handed a random part of the rows, so that few labels are needed, and asked for.

    Of the t rows of the pool, n are drawn without replacement as a uniformly random *ordered* tuple; `oracle` is asked,
    once, for the labels of the first m of them; then the learner learns from the tuple, in the order of the draw.
    A learner that takes rows without a label (y = −1) gets n ≥ m of them; any other gets the m labelled ones, n = m.
    Whoever does not know which rows were drawn learns less about each. So the learner inside may run with an ε* far
    above ε, and the number of labels does not grow with 1/ε; only the pool does.

    Two things may be protected, by `transcript`.

    - "hidden": the hypothesis, but not the questions. The learner inside runs with ε* = ln(1 + (t/n)(e^ε − 1)) and
      δ* = (t/n)·δ. Which rows were asked for must stay between the oracle and whoever calls `fit`: to anyone who
      learns it, the guarantee is only (ε*, δ*). So the fitted learner does not hold it.
    - "private": the hypothesis *together with* the ordered list of the rows asked for, which is published as
      `transcript_`. The learner inside runs with ε and δ themselves: nothing is gained by drawing. The transcript by
      itself says nothing about anyone, as it is drawn without a look at the data.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the hypothesis ("hidden"), or for
    the hypothesis and the transcript together ("private"). Public are the number of rows, n, m and every parameter. The
    label of a row is what the oracle says of it. This must depend on that row alone: an oracle that looks at the
    other rows of the question, say by fitting a model to them, voids the guarantee.

    Why. Let q = n/t and let row i be replaced. Given that i is not drawn, the output has the same law P0 on both data
    sets; given that it is, laws P1 and P1'. If i was drawn at place k, put there an index that was not drawn,
    uniformly: the tuple becomes a uniform one without i, and *the role of every place stays* (labelled for k ≤ m). So
    P1 is an average of laws of the learner on tuples, and P0 the same average after one row of each was replaced:
    P1(F) ≤ e^ε*·P0(F) + δ*. Also P1(F) ≤ e^ε*·P1'(F) + δ*. With e^ε = 1 + q(e^ε* − 1) and β = e^(ε − ε*),
    q·P1 + (1 − q)·P0 ≤ q·e^ε*·(β·P1' + (1 − β)·P0) + (1 − q)·P0 + qδ* = e^ε·(q·P1' + (1 − q)·P0) + qδ*. The
    comparison with P0 replaces a whole row; so the learner inside has to protect rows, and one that protects only
    labels is refused. In "private" mode the tuple is independent of the data; given any one tuple, the learner is
    (ε, δ)-private, as the replaced row has at most one place in it; average over tuples.

    Promise. If the rows of the pool are drawn independently, so are those of the tuple, as its places are drawn without
    looking at them. So the promise is that of the learner inside, from n rows with ε* and δ*.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm 4 (Algorithm
    SubSampling), Claim 5.7 and Theorem 5.8 for "hidden"; Definition 5.4 and Theorem 5.5 for "private". Repaired: the
    paper labels the *smallest* m indices of the subset. A row that comes in then moves another one from labelled to
    unlabelled, and the paper pays 2ε* and (1 + e^ε*)·δ for two rows. In the order of draw every place keeps its role.
    Sharpened: t = n(e^ε* − 1)/(e^ε − 1) rows in place of (n/ε)(3 + e^(2ε*)), and δ = (n/t)·δ*.

    Parameters
    ----------
    learner : the learner inside, such as `ThresholdLearner` or `SemiSupervisedLearner`. It is cloned; the clone's
        epsilon, delta, failure, error and unsafe_seed are set from those here.
    epsilon, delta : the privacy of what is published.
    transcript : "hidden" or "private".
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released concept.
    learner_ : the fitted learner inside; its `guarantee_` is that for the rows that it was handed.
    n_labels_, n_rows_ : m and n, which are public.
    transcript_ : with transcript="private" only: the positions of the rows asked for, in order.

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
        """Learn from the rows of `X`, asking for the labels of `n_labels` of them.

        `oracle(rows)` is called once, with the rows in question as `X` held them (those of a data frame keep their
        index, so that it is known whose they are), and gives their labels, 0 or 1, in the same order. In place of an
        oracle, `y` may hold the labels of all rows; only `n_labels` of them are looked at, all by default. `n_rows`
        is how many rows are drawn, where the learner takes rows without labels. By default these are as many as leave
        it ε* ≥ 1 ("hidden"), or all ("private").
        """
        source = noise_from_seed(self.unsafe_seed)
        return self.fit_with_noise(X, y, source, oracle=oracle, n_labels=n_labels, n_rows=n_rows)

    def predict(self, X: ArrayLike) -> Labels:
        """The label, 0 or 1, that the hypothesis gives to each row of `X`."""
        check_is_fitted(self)
        rows = as_point_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.learner_.predict(rows)

    # ── how many rows, how many labels ────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None, *, n_labels: int | None = None) -> int:
        """The rows of the pool with which the learner inside keeps its promise, if so many labels are asked for.

        Without `n_labels`, `labels_required` of them. Fewer labels need a larger pool, down to some number of labels
        with which no pool would do.
        """
        self.check_parameters()
        check_share(error, "error")
        beta = check_share(self.failure if failure is None else failure, "failure")
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
        """What is drawn from this many rows must be of a size on which the learner inside can run."""
        super().check_size(rows)
        self._check_draw(self._draw(rows, rows if n_labels is None else n_labels, n_rows), self.error)

    def _check_draw(self, draw: Draw, error: Number | None) -> None:
        _check_inner(self.inner_learner(draw.epsilon, draw.delta, error), draw)

    def labels_required(self, error: Number, failure: Number | None = None) -> int:
        """The labels that the learner inside needs at ε* = max(1, ε), or at ε where the transcript is private."""
        self.check_parameters()
        epsilon = check_epsilon(self.epsilon)
        inner = self.inner_learner(max(epsilon, Fraction(1)) if self.transcript == "hidden" else epsilon, self._delta())
        return _needs(inner, error, self.failure if failure is None else failure)[1]

    def _check_promise(self, draw: Draw, *, every_row: bool) -> None:
        """Refuse what the learner inside cannot promise from these rows; `every_row` of a larger pool has a label."""
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
        """Whether the learner inside keeps its promise from what it is handed."""
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

        order = noise_or_system(unsafe_noise).subset(draw.pool, draw.rows)  # in the order of draw: roles go by place
        asked = order[: draw.labels]
        labels = np.full(draw.rows, UNLABELLED)
        labels[: draw.labels] = target[asked] if oracle is None else _answer(oracle, X, table, asked)  # type: ignore[index]
        self._keep_inner(inner.fit_with_noise(table[order], labels, unsafe_noise), draw, asked)
        return self

    def _keep_inner(self, inner: ConceptLearner, draw: Draw, asked: Array) -> None:
        event: Event = inner.event_
        if self.transcript == "private":
            self.transcript_ = asked
        else:
            event = Subsampled(event, Fraction(draw.rows, draw.pool))
            self.__dict__.pop("transcript_", None)  # of an earlier fit
        self.learner_, self.n_labels_, self.n_rows_ = inner, draw.labels, draw.rows
        self.adopt_release(Release(inner.hypothesis_, event))

    def _draw(self, pool: int, n_labels: object, n_rows: object) -> Draw:
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
        """The learner inside, with its privacy and the error that it is to promise set."""
        inner: ConceptLearner = clone(self.learner)
        settings = {
            "epsilon": epsilon,
            "delta": delta,
            "error": error,
            "failure": self.failure,
            "unsafe_seed": self.unsafe_seed,
        }
        known = inner.get_params(deep=False)
        return inner.set_params(**{name: value for name, value in settings.items() if name in known})  # type: ignore[no-any-return]

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
    """The largest ε*, but for rounding down, that a share `rate` of the rows makes an ε: ln(1 + (e^ε − 1)/rate).

    It is computed as ε + ln((1 − (1 − rate)·e^(−ε))/rate), where nothing overflows.

    >>> round(float(inner_epsilon(Fraction(1, 10), Fraction(1, 100))), 6)
    2.443832
    """
    if rate == 1:
        return epsilon
    decay = exp_fractions(-min(epsilon, _STEEP), _BITS)[1]
    exact = epsilon + log_bounds((1 - (1 - rate) * decay) / rate, _BITS)[0] if decay < 1 else epsilon
    scale = Fraction(2) ** (_KEPT + exact.denominator.bit_length() - exact.numerator.bit_length())
    found = math.floor(exact * scale) / scale
    # Below 2^−100 or so rounding eats up what the draw gains.
    return found if found > epsilon and amplified(found, rate) <= epsilon else epsilon


def rate_for_one(epsilon: Fraction) -> Fraction:
    """The share of rows, rounded down, with which ε* = 1 makes ε: (e^ε − 1)/(e − 1); more than 1 for ε > 1."""
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
    """How many rows a learner needs, and how many of them with a label: all, unless it says otherwise."""
    rows = rows_needed(inner.n_required, error, failure)
    return rows, inner.labels_required(error, failure) if hasattr(inner, "labels_required") else rows


# ── questions and answers ─────────────────────────────────────────────────────────────────────────────────────────


def _check_questions(y: ArrayLike | None, oracle: Oracle | None, n_labels: object) -> None:
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
    question = X.iloc[asked] if hasattr(X, "iloc") else table[asked]
    return as_binary_labels(oracle(question), len(asked), "oracle(rows)")
