"""Was this person's row used, and with which label? Attacks through `predict`, and how far they may get at most.

The attacker is a strong one: it knows all rows but one, chooses the queries by what they would tell about that row,
repeats them as often as they are answered, and weighs the answers by their likelihood under both guesses. Whoever
promises (ε, δ) promises that even this attacker is right hardly more often than one who tosses a coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from reticent.audit.predictor_states import PredictorStates
from reticent.exact import integer
from reticent.noise import system
from reticent.privacy.parameters import check_delta, check_epsilon

Floats = NDArray[np.float64]
Array = NDArray[Any]
Train = Callable[[Array, Array], Any]  # rows and labels → a fitted predictor


@dataclass(frozen=True)
class Inference:
    """How often an attack was right: on predictors that had the row (or label), and on predictors that had not.

    `advantage` is the true-positive less the false-positive rate. Both bounds hold with probability `confidence` each.
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

    def within(self, epsilon: object) -> bool:
        """False if (ε, δ) is refuted."""
        return self.epsilon_lower <= float(check_epsilon(epsilon))


def most_advantage(*, epsilon: object, delta: object) -> float:
    """The greatest advantage that (ε, δ) leaves to any attack: (e^ε − 1 + 2δ)/(e^ε + 1).

    Why. If the true-positive rate t and the false-positive rate f have t ≤ e^ε·f + δ and 1 − f ≤ e^ε·(1 − t) + δ, the
    sum of both gives (t − f)(1 + e^ε) ≤ e^ε − 1 + 2δ.

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
    place: int,
    other: tuple[Array, Any],
    queries: Array,
    runs: int,
    delta: object,
    refit: bool = True,
    confidence: float = 0.95,
) -> Inference:
    """Attack: was row `place` among the rows, or another one, `other` = (row, label), in its place?

    `train(X, y)` gives a fitted predictor with `predict`. In each of `runs` runs on either side, all `queries` are
    asked of a predictor that has answered nothing yet. On a quarter of the runs the attacker learns how likely
    the answers are on either side, on another quarter from which likelihood ratio on to say "it was"; the other half,
    which had no say in it, counts how often that is right and wrong. With `refit=False` a predictor is trained once a
    side and its copies are asked, each with noise of its own: right, and much faster, where learning draws no noise.
    """
    how: dict[str, Any] = {"runs": runs, "delta": delta, "refit": refit, "confidence": confidence}
    return _attack(train, (X, y), (place, *other), queries, **how)


def label_inference(
    train: Train,
    X: Array,
    y: Array,
    *,
    place: int,
    label: Any,
    queries: Array,
    runs: int,
    delta: object,
    refit: bool = True,
    confidence: float = 0.95,
) -> Inference:
    """Attack: has row `place` the label it has, or `label`? Otherwise as `membership_inference`."""
    place = integer(place, "place", least=0, most=len(X) - 1)
    change = place, np.asarray(X)[place], label
    how: dict[str, Any] = {"runs": runs, "delta": delta, "refit": refit, "confidence": confidence}
    return _attack(train, (X, y), change, queries, **how)


def telling_queries(first: Any, second: Any, pool: Array, count: int) -> Array:
    """The rows of `pool` whose answers tell most between two ensembles: those on which one vote decides.

    `first` and `second` are `Teachers` (or anything with `votes`) that an attacker trains with and without the row.
    Chosen are rows with different votes, those closest to a tie first; where there are fewer than `count`, they are
    repeated. With none at all the first row of the pool is taken.
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
    delta: object,
    refit: bool,
    confidence: float,
) -> Inference:
    runs = integer(runs, "runs", least=8)
    failure = float(check_delta(delta))
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    X, y = (np.asarray(part) for part in data)
    place, row, label = change
    place = integer(place, "place", least=0, most=len(X) - 1)
    Q = np.asarray(queries)
    _, kinds = np.unique(Q, axis=0, return_inverse=True)
    replaced = X.copy(), y.copy()
    replaced[0][place], replaced[1][place] = row, label
    sides = [_answers(train, side, Q, kinds.ravel(), runs=runs, refit=refit) for side in ((X, y), replaced)]

    quarter = runs // 4
    weights, shift = _likelihood(sides[0][:quarter], sides[1][:quarter], np.bincount(kinds.ravel()))
    scores = [side @ weights + shift for side in sides]
    cut = _best_cut(*(side[quarter : 2 * quarter] for side in scores))
    tests = runs - 2 * quarter
    hits = [int((side[2 * quarter :] >= cut).sum()) for side in scores]
    return Inference(
        true_positive=hits[0] / tests,
        false_positive=hits[1] / tests,
        advantage_lower=_at_least(hits[0], tests, confidence) - _at_most(hits[1], tests, confidence),
        epsilon_lower=_epsilon(hits[0], hits[1], tests, failure, confidence),
        delta=failure,
        confidence=confidence,
        runs=runs,
    )


def _answers(
    train: Train, data: tuple[Array, Array], queries: Array, kinds: Array, *, runs: int, refit: bool
) -> Floats:
    """For each run, how often each kind of query was answered by the last class."""
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
    """Weights and a shift of the log-likelihood ratio of answers that are independent coins, estimated on each side."""
    ones = [(side.sum(axis=0) + 0.5) / (len(side) * asked + 1) for side in (first, second)]
    odds = [np.log(chance) - np.log1p(-chance) for chance in ones]
    return odds[0] - odds[1], float((asked * (np.log1p(-ones[0]) - np.log1p(-ones[1]))).sum())


def _best_cut(first: Floats, second: Floats) -> float:
    """From which score on to say "it was": where true less false positives are most."""
    cuts = np.unique(np.concatenate([first, second]))
    gains = [(first >= cut).mean() - (second >= cut).mean() for cut in cuts]
    return float(cuts[int(np.argmax(gains))])


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _at_least(hits: int, runs: int, confidence: float) -> float:
    """The Clopper–Pearson lower bound, missed with probability (1 − confidence)/2."""
    return float(beta.ppf((1 - confidence) / 2, hits, runs - hits + 1)) if hits else 0.0


def _at_most(hits: int, runs: int, confidence: float) -> float:
    return 1 - _at_least(runs - hits, runs, confidence)


def _epsilon(true: int, false: int, runs: int, delta: float, confidence: float) -> float:
    """ε ≥ ln((t − δ)/f), and from the complement ε ≥ ln((1 − f − δ)/(1 − t)), as in `audit.empirical`."""
    t, f = _at_least(true, runs, confidence), _at_most(false, runs, confidence)
    ratios = (t - delta) / f, (1 - f - delta) / max(1 - t, 1e-300)
    return max(0.0, math.log(max(*ratios, 1e-300)))
