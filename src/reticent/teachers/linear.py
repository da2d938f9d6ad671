"""Linear teachers: all of them trained at once by Newton's method."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.data.executor import Executor, as_executor
from reticent.data.shards import Shards
from reticent.data.tables import Array, Integers, Table, dense, take
from reticent.exact import integer, rational
from reticent.silence import silent

Floats = NDArray[np.float64]

RIDGE, STEPS = 0.01, 3
TOLERANCE = 1e-8  # relative: a teacher is done when no score of its rows moves by more
MOST_STEPS, HALVINGS = 100, 30
WIDEST = 1000  # systems of more unknowns are left to scikit-learn
LINEAR = (LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier, LinearSVC)


class LogisticTeacher(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression for the few rows of a shard: little ridge, few Newton steps, little bias.

    Minimised is Σ loss + ridge/2·|w|², the intercept free, as scikit-learn's `LogisticRegression(C=1/ridge)` does, but
    by at most `steps` Newton steps from zero. The stop keeps the weights in bounds where a ridge would have to;
    a ridge pulls every teacher the same way, and voting does not average that away. More than two classes are
    learned one against the rest. It is what `Teachers()` trains, all shards at once.

    >>> LogisticTeacher().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict([[0.5], [2.5]]).tolist()
    [0, 1]
    """

    def __init__(self, *, ridge: float = RIDGE, steps: int = STEPS) -> None:
        self.ridge = ridge
        self.steps = steps

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Table, y: Any) -> Self:
        """Learn from rows `X`, dense or sparse, with their labels `y`."""
        ridge, steps = check_teacher(self)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y must hold at least 2 classes, got 1 class")
        shards = Shards(X, indices, None, 1, self.classes_)
        weights, intercepts = train(shards, ridge=ridge, intercept=True, steps=steps)
        self.coef_, self.intercept_ = dense(weights), intercepts
        return self

    def decision_function(self, X: Table) -> Floats:
        """The score of the second class, or with more than two of every class."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Table) -> Array:
        """The class with the highest score."""
        scores = self.decision_function(X)
        labels: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return labels


def check_teacher(teacher: LogisticTeacher) -> tuple[float, int]:
    """The ridge and the steps, or an error that names the one that cannot be."""
    ridge = float(rational(teacher.ridge, "ridge"))
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {teacher.ridge}")
    return ridge, integer(teacher.steps, "steps", least=1)


def unscaled(estimator: Any) -> tuple[Any, bool]:
    """A classifier, and whether each of its copies first scales its rows by its own means and deviations."""
    if type(estimator) is Pipeline and len(estimator.steps) == 2 and estimator.memory is None:
        scaler, last = (step for _, step in estimator.steps)
        if type(scaler) is StandardScaler and scaler.with_mean and scaler.with_std:
            return last, True
    return estimator, False


def newton(estimator: Any, shards: Shards) -> dict[str, Any] | None:
    """How to train all of these teachers at once; None if that cannot be done, or does not pay."""
    estimator, scaled = unscaled(estimator)
    if scaled and sparse.issparse(shards.X):
        return None
    if type(estimator) is LogisticTeacher:
        ridge, steps = check_teacher(estimator)
        return {"ridge": ridge, "steps": steps, "intercept": True, "scaled": scaled}
    if type(estimator) is not LogisticRegression or len(shards.classes) > 2:
        return None
    asked = estimator.get_params()
    plain = (
        asked["solver"] in ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga")
        and asked.get("penalty", "l2") in ("l2", "deprecated")
        and not asked.get("l1_ratio")
        and asked["class_weight"] is None
        and not asked["warm_start"]
        and not asked["dual"]
        and asked["max_iter"] >= 100
        and 0 < asked["C"] < np.inf
        and min(int(shards.sizes.max()), shards.X.shape[1]) <= WIDEST
    )
    how = {"ridge": 1 / asked["C"], "steps": MOST_STEPS, "intercept": bool(asked["fit_intercept"]), "scaled": scaled}
    return how if plain else None


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────


@silent()
def train(
    shards: Shards,
    *,
    ridge: float,
    intercept: bool,
    steps: int,
    scaled: bool = False,
    n_jobs: int | Executor | None = None,
) -> tuple[Any, Floats]:
    """Weights and intercepts of all teachers: one row per teacher for two classes, else per class, then per teacher.

    The row of a teacher is computed from the rows of its shard alone, to the last bit: every product and every system
    is one of a single shard, and a teacher stops when *it* is done, whatever the others still have to do.
    Shards with a single class are trained too; the result is not used.
    """
    columns = shards.X.shape[1]
    size = int(shards.sizes.max())
    goal = Goal(
        ridge=ridge,
        intercept=intercept,
        steps=steps,
        scaled=scaled,
        targets=range(len(shards.classes)) if len(shards.classes) > 2 else range(1, 2),
        dual=columns > size,
        sparse_dual=columns > size and sparse.issparse(shards.X),
    )
    executor = as_executor(n_jobs)
    loads = shards.loads(size if goal.sparse_dual else columns + 1, executor.workers)
    bias = np.zeros((len(goal.targets), shards.count))
    weights: Any = np.zeros((len(goal.targets), shards.count, 0 if goal.sparse_dual else columns))
    sums: list[list[Any]] = [[] for _ in goal.targets]  # of sparse rows, load by load
    loaded: list[Integers] = []
    for found in executor.map(_train_some, ((goal, *load) for load in loads)):
        bias[:, found.names] = found.bias
        if goal.sparse_dual:
            loaded.append(found.names)
            for sum_of, one in zip(sums, found.weights, strict=True):
                sum_of.append(one)
        else:
            weights[:, found.names] = found.weights
    if goal.sparse_dual:
        teachers = np.argsort(np.concatenate(loaded))
        return sparse.vstack([sparse.vstack(sum_of).tocsr()[teachers] for sum_of in sums]).tocsr(), bias.ravel()
    return weights.reshape(-1, columns), bias.ravel()


class Goal(NamedTuple):
    """What is minimised, and in which form."""

    ridge: float
    intercept: bool
    steps: int
    scaled: bool
    targets: range  # the classes that are learned against the rest
    dual: bool  # whether the unknowns are weights of rows, not of columns
    sparse_dual: bool


class Trained(NamedTuple):
    """Some teachers: their numbers, and for each target their weights, dense or sparse, and intercepts."""

    names: Integers
    weights: Any
    bias: Floats


@silent()  # here too: it may run in another process
def _train_some(goal: Goal, names: Integers, held: Shards, blocks: list[Integers]) -> Trained:
    """The teachers of a load of shards, block by block."""
    columns = held.X.shape[1]
    bias = np.zeros((len(goal.targets), held.count))
    weights: Any = np.zeros((len(goal.targets), held.count, 0 if goal.sparse_dual else columns))
    of_rows = np.zeros((len(goal.targets), len(held.class_indices))) if goal.sparse_dual else None
    for block in blocks:
        sizes = held.sizes[block]
        present = np.arange(sizes.max()) < sizes[:, None]
        # Cells without a row repeat the shard's first one, and weigh nothing.
        rows = held.order[held.starts[block][:, None] + np.where(present, np.arange(sizes.max()), 0)]
        if of_rows is not None:
            values, features = None, _grams(held.X, rows)
        else:
            values = dense(take(held.X, rows.ravel())).reshape(*rows.shape, columns)
            if goal.scaled:
                means, deviations = _moments(values, present)
                values = (values - means[:, None, :]) / deviations[:, None, :]
            features = values @ np.swapaxes(values, 1, 2) if goal.dual else values
        for number, target in enumerate(goal.targets):
            positive = held.class_indices[rows] == target
            found = _minimise(
                features,
                positive,
                present,
                ridge=goal.ridge,
                intercept=goal.intercept,
                steps=goal.steps,
                dual=goal.dual,
            )
            coefficients, bias[number, block] = found[:, :-1], found[:, -1]
            if of_rows is not None:
                of_rows[number, rows[present]] = coefficients[present]
            elif values is not None:
                found_weights = (coefficients[:, None, :] @ values)[:, 0] if goal.dual else coefficients
                if goal.scaled:
                    found_weights = found_weights / deviations
                    bias[number, block] -= (found_weights * means).sum(axis=1)
                weights[number, block] = found_weights
    if of_rows is not None:
        weights = [
            sparse.csr_matrix((one[held.order], held.order, held.starts), shape=(held.count, len(one))) @ held.X
            for one in of_rows
        ]
    return Trained(names, weights, bias)


def _moments(values: Floats, present: Array) -> tuple[Floats, Floats]:
    """The mean and deviation of each column of each shard; 1 for a column that is constant there, as scikit-learn."""
    sizes = present.sum(axis=1)[:, None]
    means = (present[:, None, :] @ values)[:, 0] / sizes
    variances = (present[:, None, :] @ (values - means[:, None, :]) ** 2)[:, 0] / sizes
    tiny = np.finfo(np.float64).eps * sizes
    flat = variances <= tiny * variances + (tiny * means) ** 2
    return means, np.where(flat, 1, np.sqrt(variances))


def _grams(X: Any, rows: Integers) -> Floats:
    """The products of all pairs of rows, a shard at a time."""
    return np.array([(some @ some.T).toarray() for some in (X[shard].astype(np.float64) for shard in rows)])


def _minimise(
    features: Floats, positive: Array, present: Array, *, ridge: float, intercept: bool, steps: int, dual: bool
) -> Floats:
    """Coefficients that minimise the logistic loss plus ridge/2·|w|² for every shard, and last the intercept.

    `features` holds the rows of the shards, and coefficients are weights of columns; or, `dual`, it holds the products
    of all pairs of rows, and coefficients are the weights of the rows whose sum is w. A step is halved while it does
    not lower the sum. Nothing passes from one shard to another.
    """
    shards, _, unknowns = features.shape
    found = np.zeros((shards, unknowns + 1))
    scores = np.zeros(present.shape)
    step = _dual_step if dual else _primal_step
    signs = np.where(positive, 1.0, -1.0)

    def heights(coefficients: Floats, scores: Floats, live: Array) -> Floats:
        products = coefficients[:, :-1] * (scores - coefficients[:, -1:] if dual else coefficients[:, :-1])
        losses = np.logaddexp(0, -signs[live] * scores) * present[live]
        summed: Floats = losses.sum(axis=1) + ridge / 2 * products.sum(axis=1)
        return summed

    live = np.arange(shards)
    for _ in range(steps):
        rows = features if len(live) == shards else features[live]
        at, before = found[live], scores[live]
        chances = expit(before)
        here = Here(
            at,
            before,
            slopes=np.where(present[live], positive[live] - chances, 0),
            curvature=np.where(present[live], np.maximum(chances * (1 - chances), 1e-12), 0),
        )
        move = step(rows, here, ridge, intercept)
        shift = np.where(present[live], (rows @ move[:, :-1, None])[:, :, 0] + move[:, -1:], 0)
        height = heights(at, before, live) * (1 + 1e-12)
        length, trying = np.ones(len(live)), np.arange(len(live))
        for _ in range(HALVINGS):
            part = length[trying, None]
            tried = heights(at[trying] + part * move[trying], before[trying] + part * shift[trying], live[trying])
            worse = ~(tried <= height[trying])  # a NaN is worse as well
            trying = trying[worse]
            if not len(trying):
                break
            length[trying] /= 2
        length[trying] = 0
        found[live] = at + length[:, None] * move
        scores[live] = before + length[:, None] * shift
        done = np.abs(shift).max(axis=1) <= TOLERANCE * (1 + np.abs(before).max(axis=1))
        failed = ~np.isfinite(move).all(axis=1)
        found[live[failed]] = np.nan
        live = live[~(done | failed | (length == 0))]
        if not len(live):
            break
    return found


class Here(NamedTuple):
    """Where the shards have come to: coefficients, and for each row the score and the derivatives of minus its loss."""

    at: Floats
    scores: Floats
    slopes: Floats
    curvature: Floats


def _primal_step(rows: Floats, here: Here, ridge: float, intercept: bool) -> Floats:
    columns = rows.shape[2]
    scaled = np.empty((*rows.shape[:2], columns + 1))
    root = np.sqrt(here.curvature)
    np.multiply(rows, root[:, :, None], out=scaled[:, :, :-1])
    scaled[:, :, -1] = root if intercept else 0
    hessian = np.swapaxes(scaled, 1, 2) @ scaled  # of a matrix with itself: half the work
    diagonal = np.arange(columns)
    hessian[:, diagonal, diagonal] += ridge
    downhill = np.empty_like(here.at)
    downhill[:, :-1] = (here.slopes[:, None, :] @ rows)[:, 0] - ridge * here.at[:, :-1]
    downhill[:, -1] = here.slopes.sum(axis=1)
    if not intercept:
        hessian[:, -1, -1], downhill[:, -1] = 1, 0
    return _solve(hessian, downhill)


def _dual_step(gram: Floats, here: Here, ridge: float, intercept: bool) -> Floats:
    """The minimiser of ½Σ s(z − Gα − b)² + ridge/2·αᵀGα, with α = √s·β: (√s G √s + ridge)β + √s b = √s z, √s·β = 0."""
    size = gram.shape[1]
    root = np.sqrt(here.curvature)
    system = np.zeros((len(gram), size + 1, size + 1))
    np.multiply(gram, root[:, :, None] * root[:, None, :], out=system[:, :-1, :-1])
    diagonal = np.arange(size)
    system[:, diagonal, diagonal] += ridge
    wanted = np.zeros_like(here.at)
    wanted[:, :-1] = root * here.scores + np.divide(here.slopes, root, out=np.zeros_like(root), where=root > 0)
    if intercept:
        system[:, :-1, -1] = system[:, -1, :-1] = root
    else:
        system[:, -1, -1] = 1
    reached = _solve(system, wanted)
    reached[:, :-1] *= root
    return reached - here.at


def _solve(systems: Floats, right: Floats) -> Floats:
    """Every system by itself: one that has no solution gets NaN and does not keep the others from theirs."""
    try:
        return np.asarray(np.linalg.solve(systems, right[:, :, None])[:, :, 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        solved = np.full_like(right, np.nan)
        for one, (system, side) in enumerate(zip(systems, right, strict=True)):
            try:
                solved[one] = np.linalg.solve(system, side)
            except np.linalg.LinAlgError:
                continue
        return solved
