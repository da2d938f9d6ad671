"""Was this person's row used, and with which label? Attacks through `predict`, and how far they may get at most.

The attacker is strong: it knows all rows but one, chooses the queries that reveal most about that row, repeats them as
often as they are answered, and weighs the answers by their likelihood under both guesses. An (ε, δ) guarantee promises
that even this attacker is right hardly more often than a coin toss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.lower_bound import epsilon_at_least, error_level, probability_at_least
from reticent.audit.predictor_states import PredictorStates
from reticent.exact import Number, integer
from reticent.noise import system
from reticent.privacy.parameters import check_delta, check_epsilon

Floats = NDArray[np.float64]
Array = NDArray[Any]
Train = Callable[[Array, Array], Any]  # rows and labels → a fitted predictor


@dataclass(frozen=True)
class InferenceResult:
    """How often an inference attack was right.

    Parameters
    ----------
    true_positive, false_positive : float
        How often the attack says that the row (or label) was used: if it was, and if it was not.
    advantage_lower : float
        Lower confidence bound on the advantage, which is the true-positive less the false-positive rate.
    epsilon_lower : float
        Lower confidence bound on ε at `delta`.
    delta : float
        The δ at which ε is bounded.
    confidence : float
        Probability with which each of the two bounds holds, at least.
    runs : int
        Runs on each side.
    """

    true_positive: float
    false_positive: float
    advantage_lower: float
    epsilon_lower: float
    delta: float
    confidence: float
    runs: int

    @property
    def advantage(self) -> float:
        """True positives less false positives, as counted."""
        return self.true_positive - self.false_positive

    def within(self, epsilon: Number) -> bool:
        """Return False if the attack refutes (ε, δ)."""
        return self.epsilon_lower <= float(check_epsilon(epsilon))


def most_advantage(*, epsilon: Number, delta: Number) -> float:
    """Return the greatest advantage of any attack under (ε, δ): (e^ε − 1 + 2δ)/(e^ε + 1).

    Why. The true-positive rate t and the false-positive rate f have t ≤ e^ε·f + δ and 1 − f ≤ e^ε·(1 − t) + δ. The sum
    of both gives (t − f)(1 + e^ε) ≤ e^ε − 1 + 2δ.

    Parameters
    ----------
    epsilon : float or Fraction
        Privacy-loss bound ε.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.

    Examples
    --------
    >>> round(most_advantage(epsilon=1, delta=0), 9)  # tanh(1/2)
    0.462117157
    """
    exact, failure = float(check_epsilon(epsilon)), float(check_delta(delta))
    fallen = math.exp(-exact)
    return math.tanh(exact / 2) + 2 * failure * fallen / (1 + fallen)


def membership_inference(
    train: Train,
    X: Array,
    y: Array,
    *,
    index: int,
    other: tuple[Array, Any],
    queries: Array,
    runs: int,
    delta: Number,
    refit: bool = True,
    confidence: float = 0.95,
) -> InferenceResult:
    """Attack: was this row among the training rows, or another one instead?

    In each run a predictor that has answered nothing yet is asked all queries. On a quarter of the runs the attacker
    learns how likely the answers are on each side, and on another quarter from which likelihood ratio on to say that
    the row was used. The other half is independent of both, and counts how often that is right and wrong.

    Parameters
    ----------
    train : callable
        From rows and labels to a fitted predictor.
    X, y : ndarray
        Training rows and their labels.
    index : int
        Index of the row that is attacked.
    other : tuple of ndarray and label
        The row and label that replace it on the other side.
    queries : ndarray
        Rows to ask in every run.
    runs : int
        Runs on each side.
    delta : float or Fraction
        The δ at which ε is bounded.
    refit : bool, default True
        Whether to train in every run. With False, one predictor per side is trained, and its copies answer with noise
        of their own. This is valid, and much faster, if training draws no noise.
    confidence : float, default 0.95
        Probability with which each bound holds, at least.

    Returns
    -------
    InferenceResult
    """
    how: dict[str, Any] = {"runs": runs, "delta": delta, "refit": refit, "confidence": confidence}
    return _attack(train, (X, y), (index, *other), queries, **how)


def label_inference(
    train: Train,
    X: Array,
    y: Array,
    *,
    index: int,
    label: Any,
    queries: Array,
    runs: int,
    delta: Number,
    refit: bool = True,
    confidence: float = 0.95,
) -> InferenceResult:
    """Attack: does this row have its label, or another one?

    Parameters
    ----------
    label : object
        The label of the row on the other side.
    train, X, y, index, queries, runs, delta, refit, confidence
        As for `membership_inference`.

    Returns
    -------
    InferenceResult
    """
    index = integer(index, "index", least=0, most=len(X) - 1)
    change = index, np.asarray(X)[index], label
    how: dict[str, Any] = {"runs": runs, "delta": delta, "refit": refit, "confidence": confidence}
    return _attack(train, (X, y), change, queries, **how)


def telling_queries(first: Any, second: Any, pool: Array, count: int) -> Array:
    """Return the row of a pool whose answers distinguish two ensembles best, repeated `count` times.

    Of the rows with different votes it is the one closest to a tie; if there are none, the first row of the pool.

    Parameters
    ----------
    first, second : Teachers
        Ensembles that an attacker trains with and without the row. Any object with `votes` works.
    pool : ndarray
        Rows to choose from.
    count : int
        Number of queries.
    """
    votes = [np.asarray(side.votes(pool))[:, 1] for side in (first, second)]
    total = int(np.asarray(first.votes(pool[:1])).sum())
    moved = np.flatnonzero(votes[0] != votes[1])
    if len(moved) == 0:
        moved = np.array([0])
    order = moved[np.argsort(np.abs(votes[0][moved] + votes[1][moved] - total), kind="stable")]
    return np.asarray(pool[np.resize(order[:1], count)])


# ── attacking ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _attack(
    train: Train,
    data: tuple[Array, Array],
    change: tuple[int, Array, Any],
    queries: Array,
    *,
    runs: int,
    delta: Number,
    refit: bool,
    confidence: float,
) -> InferenceResult:
    runs = integer(runs, "runs", least=8)
    failure = float(check_delta(delta))
    level = error_level(confidence)
    X, y = (np.asarray(part) for part in data)
    index, row, label = change
    index = integer(index, "index", least=0, most=len(X) - 1)
    Q = np.asarray(queries)
    _, kinds = np.unique(Q, axis=0, return_inverse=True)
    replaced = X.copy(), y.copy()
    replaced[0][index], replaced[1][index] = row, label
    sides = [_answers(train, side, Q, kinds.ravel(), runs=runs, refit=refit) for side in ((X, y), replaced)]

    quarter = runs // 4
    weights, shift = _likelihood(sides[0][:quarter], sides[1][:quarter], np.bincount(kinds.ravel()))
    scores = [side @ weights + shift for side in sides]
    cut = _best_cut(*(side[quarter : 2 * quarter] for side in scores))
    tests = runs - 2 * quarter
    hits = [int((side[2 * quarter :] >= cut).sum()) for side in scores]
    least = probability_at_least([hits[0], tests - hits[1]], tests, level)
    return InferenceResult(
        true_positive=hits[0] / tests,
        false_positive=hits[1] / tests,
        advantage_lower=float(least[0] - (1 - least[1])),
        epsilon_lower=max(0.0, float(epsilon_at_least(*hits, runs=tests, delta=failure, level=level))),
        delta=failure,
        confidence=confidence,
        runs=runs,
    )


def _answers(
    train: Train, data: tuple[Array, Array], queries: Array, kinds: Array, *, runs: int, refit: bool
) -> Floats:
    """Return for each run how often each distinct query was answered by the last class."""
    states = PredictorStates(share_arrays=True)
    state = b"" if refit else states.keep(train(*data), system)
    high = np.unique(data[1])[-1]
    found = np.empty((runs, int(kinds.max()) + 1))
    for run in range(runs):
        predictor = train(*data) if refit else states.restore(state, system)
        answers = np.asarray(predictor.predict(queries))
        found[run] = np.bincount(kinds, weights=answers == high, minlength=found.shape[1])
    return found


def _likelihood(first: Floats, second: Floats, asked: Array) -> tuple[Floats, float]:
    """Return weights and shift of the log-likelihood ratio, if answers are independent coins on each side."""
    ones = [(side.sum(axis=0) + 0.5) / (len(side) * asked + 1) for side in (first, second)]
    odds = [np.log(chance) - np.log1p(-chance) for chance in ones]
    return odds[0] - odds[1], float((asked * (np.log1p(-ones[0]) - np.log1p(-ones[1]))).sum())


def _best_cut(first: Floats, second: Floats) -> float:
    """Return the score from which on to say that the row was used: it has the greatest advantage."""
    cuts = np.unique(np.concatenate([first, second]))
    gains = [(first >= cut).mean() - (second >= cut).mean() for cut in cuts]
    return float(cuts[int(np.argmax(gains))])
