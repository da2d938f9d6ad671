"""Linear teachers: all of them trained at once by Newton's method."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
TOLERANCE = 1e-8  # relative: a teacher has converged when no score of its rows moves by more
MOST_STEPS, HALVINGS = 100, 30
WIDEST = 1000  # scikit-learn trains teachers with more unknowns
LINEAR = (LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier, LinearSVC)


class LogisticTeacher(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression for the few rows of a shard: little ridge, few Newton steps, little bias.

    It minimises Σ loss + ridge/2·|w|² with a free intercept, as scikit-learn's `LogisticRegression(C=1/ridge)` does,
    but takes at most `steps` Newton steps from zero. Stopping early bounds the weights without a strong ridge. A ridge
    biases every teacher in the same direction, and voting does not average that out. More than two classes are learned
    one against the rest. `Teachers()` trains this classifier by default, all shards at once.

    Parameters
    ----------
    ridge : float, default 0.01
        Weight of the penalty, positive.
    steps : int, default 3
        Largest number of Newton steps.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, ascending.
    coef_, intercept_ : array
        Weights and intercepts: one row for two classes, else one per class.

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

    def fit(self, X: Table, y: ArrayLike) -> Self:
        """Fit to rows `X`, dense or sparse, and their labels `y`."""
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
        """Return the score of the second class; with more than two classes, the score of every class."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Table) -> Array:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        labels: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return labels


def check_teacher(teacher: LogisticTeacher) -> tuple[float, int]:
    """Return the ridge and the steps, or raise an error that names the wrong one."""
    ridge = float(rational(teacher.ridge, "ridge"))
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {teacher.ridge}")
    return ridge, integer(teacher.steps, "steps", least=1)


def unscaled(estimator: Any) -> tuple[Any, bool]:
    """Return a classifier without its `StandardScaler`, and whether it had one."""
    if type(estimator) is Pipeline and len(estimator.steps) == 2 and estimator.memory is None:
        scaler, last = (step for _, step in estimator.steps)
        if type(scaler) is StandardScaler and scaler.with_mean and scaler.with_std:
            return last, True
    return estimator, False


def newton(estimator: Any, shards: Shards) -> dict[str, Any] | None:
    """Return the parameters of `train` for these teachers; None if that is impossible or slower."""
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
    """Return the weights and intercepts of all teachers: one row per teacher; with several classes, per class too.

    The row of a teacher is computed from the rows of its shard alone, to the last bit: every product and every system
    of equations belongs to a single shard, and each teacher stops when it has converged, whatever the others do. The
    shapes of these products follow from places alone: an empty place is a row of weight 0. Shards with a single class
    are trained too; the result is not used. A shard without labels has the weights 0.

    Parameters
    ----------
    shards : Shards
        The rows of all teachers.
    ridge : float
        Weight of the penalty.
    intercept : bool
        Whether to fit an intercept.
    steps : int
        Largest number of Newton steps.
    scaled : bool, default False
        Whether each teacher first scales its rows to mean 0 and deviation 1.
    n_jobs : int, Executor or None, default None
        How many loads of shards are trained at the same time.
    """
    columns = shards.X.shape[1]
    size = int(shards.sizes.max())
    task = NewtonTask(
        ridge=ridge,
        intercept=intercept,
        steps=steps,
        scaled=scaled,
        targets=range(len(shards.classes)) if len(shards.classes) > 2 else range(1, 2),
        dual=columns > size,
        sparse_dual=columns > size and sparse.issparse(shards.X),
    )
    executor = as_executor(n_jobs)
    loads = shards.loads(size if task.sparse_dual else columns + 1, executor.workers)
    bias = np.zeros((len(task.targets), shards.count))
    weights: Any = np.zeros((len(task.targets), shards.count, 0 if task.sparse_dual else columns))
    sums: list[list[Any]] = [[] for _ in task.targets]  # sums of sparse rows, load by load
    loaded: list[Integers] = []
    for found in executor.map(_train_some, ((task, *load) for load in loads)):
        bias[:, found.names] = found.bias
        if task.sparse_dual:
            loaded.append(found.names)
            for sum_of, one in zip(sums, found.weights, strict=True):
                sum_of.append(one)
        else:
            weights[:, found.names] = found.weights
    if task.sparse_dual:
        teachers = np.argsort(np.concatenate(loaded))
        return sparse.vstack([sparse.vstack(sum_of).tocsr()[teachers] for sum_of in sums]).tocsr(), bias.ravel()
    return weights.reshape(-1, columns), bias.ravel()


class NewtonTask(NamedTuple):
    """What each teacher minimises, and in which form."""

    ridge: float
    intercept: bool
    steps: int
    scaled: bool
    targets: range  # classes that are learned against the rest
    dual: bool  # whether the unknowns are weights of rows, not of columns
    sparse_dual: bool


class TrainedLoad(NamedTuple):
    """The teachers of a load of shards: their numbers, and for each target their weights and intercepts."""

    names: Integers
    weights: Any
    bias: Floats


@silent()  # again: it may run in another process
def _train_some(task: NewtonTask, names: Integers, held: Shards, blocks: list[Integers]) -> TrainedLoad:
    """Train the teachers of a load of shards, block by block."""
    columns = held.X.shape[1]
    bias = np.zeros((len(task.targets), held.count))
    weights: Any = np.zeros((len(task.targets), held.count, 0 if task.sparse_dual else columns))
    of_rows = np.zeros((len(task.targets), len(held.class_indices))) if task.sparse_dual else None
    for block in blocks:
        rows, present = _padded(held, block)
        if of_rows is not None:
            values, features = None, _grams(held.X, rows)
        else:
            values = dense(take(held.X, rows.ravel())).reshape(*rows.shape, columns)
            if task.scaled:
                means, deviations = _moments(values, present)
                values = (values - means[:, None, :]) / deviations[:, None, :]
            features = values @ np.swapaxes(values, 1, 2) if task.dual else values
        for number, target in enumerate(task.targets):
            positive = held.class_indices[rows] == target
            found = _minimise(
                features,
                positive,
                present,
                ridge=task.ridge,
                intercept=task.intercept,
                steps=task.steps,
                dual=task.dual,
            )
            coefficients, bias[number, block] = found[:, :-1], found[:, -1]
            if of_rows is not None:
                of_rows[number, rows[present]] = coefficients[present]
            elif values is not None:
                found_weights = (coefficients[:, None, :] @ values)[:, 0] if task.dual else coefficients
                if task.scaled:
                    found_weights = found_weights / deviations
                    bias[number, block] -= (found_weights * means).sum(axis=1)
                weights[number, block] = found_weights
    if of_rows is not None:
        weights = [
            sparse.csr_matrix((one[held.order], held.order, held.starts), shape=(held.count, len(one))) @ held.X
            for one in of_rows
        ]
    return TrainedLoad(names, weights, bias)


def _padded(held: Shards, block: Integers) -> tuple[Integers, Array]:
    """The rows of some shards, as many cells for each as the largest has places; and which cells hold a labelled row.

    All other cells repeat the first labelled row of their shard, and get weight 0. So it does not matter what an empty
    place holds, and whether a place is empty changes no shape.
    """
    sizes = held.sizes[block]
    place = np.arange(sizes.max())
    there = place < sizes[:, None]
    rows = held.order[held.starts[block][:, None] + np.where(there, place, 0)]
    present = there & (held.class_indices[rows] >= 0)
    first = np.take_along_axis(rows, present.argmax(axis=1)[:, None], axis=1)
    return np.where(present, rows, first), present


def _moments(values: Floats, present: Array) -> tuple[Floats, Floats]:
    """The mean and deviation of each column of each shard; a constant column has deviation 1, as in scikit-learn."""
    sizes = np.maximum(present.sum(axis=1), 1)[:, None]
    means = (present[:, None, :] @ values)[:, 0] / sizes
    variances = (present[:, None, :] @ (values - means[:, None, :]) ** 2)[:, 0] / sizes
    tiny = np.finfo(np.float64).eps * sizes
    flat = variances <= tiny * variances + (tiny * means) ** 2
    return means, np.where(flat, 1, np.sqrt(variances))


def _grams(X: Any, rows: Integers) -> Floats:
    """The products of all pairs of rows of each shard."""
    return np.array([(some @ some.T).toarray() for some in (X[shard].astype(np.float64) for shard in rows)])


def _minimise(
    features: Floats, positive: Array, present: Array, *, ridge: float, intercept: bool, steps: int, dual: bool
) -> Floats:
    """The coefficients that minimise the logistic loss plus ridge/2·|w|² for every shard; the last is the intercept.

    `features` holds the rows of the shards, and coefficients are weights of columns. If `dual`, it holds the products
    of all pairs of rows, and coefficients are the weights of the rows whose sum is w. A step is halved while it does
    not lower the objective. Nothing passes from one shard to another.
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

    live = np.flatnonzero(present.any(axis=1))  # without labels there is no unique intercept, and nothing to learn
    for _ in range(steps):
        if not len(live):
            break
        rows = features if len(live) == shards else features[live]
        at, before = found[live], scores[live]
        chances = expit(before)
        state = NewtonState(
            at,
            before,
            slopes=np.where(present[live], positive[live] - chances, 0),
            curvature=np.where(present[live], np.maximum(chances * (1 - chances), 1e-12), 0),
        )
        move = step(rows, state, ridge, intercept)
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
    return found


class NewtonState(NamedTuple):
    """The current point of each shard: coefficients, scores of rows, and derivatives of minus their losses."""

    at: Floats
    scores: Floats
    slopes: Floats
    curvature: Floats


def _primal_step(rows: Floats, state: NewtonState, ridge: float, intercept: bool) -> Floats:
    columns = rows.shape[2]
    scaled = np.empty((*rows.shape[:2], columns + 1))
    root = np.sqrt(state.curvature)
    np.multiply(rows, root[:, :, None], out=scaled[:, :, :-1])
    scaled[:, :, -1] = root if intercept else 0
    hessian = np.swapaxes(scaled, 1, 2) @ scaled  # a matrix times its own transpose: half the work
    diagonal = np.arange(columns)
    hessian[:, diagonal, diagonal] += ridge
    downhill = np.empty_like(state.at)
    downhill[:, :-1] = (state.slopes[:, None, :] @ rows)[:, 0] - ridge * state.at[:, :-1]
    downhill[:, -1] = state.slopes.sum(axis=1)
    if not intercept:
        hessian[:, -1, -1], downhill[:, -1] = 1, 0
    return _solve(hessian, downhill)


def _dual_step(gram: Floats, state: NewtonState, ridge: float, intercept: bool) -> Floats:
    """The minimiser of ½Σ s(z − Gα − b)² + ridge/2·αᵀGα, with α = √s·β: (√s G √s + ridge)β + √s b = √s z, √s·β = 0."""
    size = gram.shape[1]
    root = np.sqrt(state.curvature)
    system = np.zeros((len(gram), size + 1, size + 1))
    np.multiply(gram, root[:, :, None] * root[:, None, :], out=system[:, :-1, :-1])
    diagonal = np.arange(size)
    system[:, diagonal, diagonal] += ridge
    wanted = np.zeros_like(state.at)
    wanted[:, :-1] = root * state.scores + np.divide(state.slopes, root, out=np.zeros_like(root), where=root > 0)
    if intercept:
        system[:, :-1, -1] = system[:, -1, :-1] = root
    else:
        system[:, -1, -1] = 1
    reached = _solve(system, wanted)
    reached[:, :-1] *= root
    return reached - state.at


def _solve(systems: Floats, right: Floats) -> Floats:
    """Solve every system by itself: one without a solution gets NaN and does not affect the others."""
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
