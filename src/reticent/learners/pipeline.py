"""A table as it comes and a private model of it, on one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from reticent.data.classes import declared_classes
from reticent.data.frames import Columns
from reticent.data.groups import as_groups, first_of_each, numbered
from reticent.data.labels import read_labels
from reticent.data.private_schema import PrivateSchema, Types, encode_columns
from reticent.data.schema import Rows, Schema
from reticent.data.schema_plan import Rest, rest_of
from reticent.exact import Number
from reticent.learners.base import clone_with
from reticent.learners.class_weights import weights_by_index
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.mechanisms.release import noise_from_seed, release
from reticent.noise import Noise
from reticent.privacy import Guarantee, guarantee
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Unit
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share
from reticent.silence import silent


class Spending(NamedTuple):
    """What a budget was spent on, each part by itself; together they cost less than their sum.

    Attributes
    ----------
    schema : Guarantee or None
        The price of the schema alone; None if it was given.
    model : Guarantee
        The price of the model alone.
    """

    schema: Guarantee | None
    model: Guarantee


class PrivatePipeline(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A private classifier for tables as they come: a private schema, then a private learner, on one (ε, δ).

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label (with `groups`: for all rows of a
    replaced group), for the schema, the model and everything else that the fitted estimator holds. Public are the names
    and number of the columns, the number of rows, the classes, and what `PrivateSchema` says.

    Why. The schema has a fixed share of the budget of concentrated privacy, and the model has the rest. The shares are
    fixed before a row is read, so the model may depend on the schema: their ρ add up, and both together are certified
    at once. See docs/data/private_schema.md.

    Parameters
    ----------
    learner : PrivateLogisticRegression or None, default None
        The private learner, of which a clone is fitted; its privacy, `classes` and `row_norm` are set here, and
        its `class_weight` gives weights by label. None is one with rounds="auto".
    epsilon : float or Fraction
        Privacy-loss bound ε of schema and model together.
    delta : float or Fraction
        Failure probability δ of the privacy bound, above 0.
    classes : sequence of labels, default None
        The labels, in any order; None if it is public which labels occur in `y`.
    schema : Schema or None, default None
        A schema that is public, such as one that you wrote or the `schema_` of an earlier fit. It costs nothing: then
        all of the budget is for the model. None finds one privately.
    schema_share : float or Fraction, default 0.1
        The share of the budget for the schema: of μ², and so of ρ.
    kinds, leave_out, types
        As for `PrivateSchema`.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    spent_ : Spending
        What schema and model cost, each by itself.
    schema_ : Schema
        The public schema.
    unfound_ : dict of str to str
        The columns that were not found, and why.
    model_ : estimator
        The private model of the encoded rows, whose labels are indices of `classes_`.
    classes_ : array
        The classes, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"age": rng.integers(18, 99, 20_000), "ward": rng.choice(["heart", "surgery"], 20_000)}
    >>> ill = np.where((table["age"] > 60) ^ (table["ward"] == "heart"), "yes", "no")
    >>> model = PrivatePipeline(epsilon=1, delta=1e-6, classes=["no", "yes"]).fit(table, ill)
    >>> model.predict({"age": [30, "71", None], "ward": ["heart", "surgery", "none"]}).shape
    (3,)
    >>> model.guarantee_.epsilon <= 1, model.spent_.schema.epsilon < 0.3
    (True, True)
    """

    def __init__(
        self,
        learner: Any = None,
        *,
        epsilon: Number,
        delta: Number,
        classes: ArrayLike | None = None,
        schema: Schema | None = None,
        schema_share: Number = 0.1,
        kinds: Mapping[str, str] | None = None,
        leave_out: Sequence[str] = (),
        types: Types = "released",
        unsafe_seed: int | None = None,
    ) -> None:
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.schema = schema
        self.schema_share = schema_share
        self.kinds = kinds
        self.leave_out = leave_out
        self.types = types
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Find a schema, and learn a model from the rows that it encodes.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            The table, without the labels.
        y : array-like of shape (rows,)
            The labels.
        groups : array-like of shape (rows,) or None, default None
            The person that each row belongs to. The first row of each is used.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, y, groups, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: Any, y: ArrayLike, groups: ArrayLike | None, unsafe_noise: Noise | None) -> Self:
        """Call `fit` on a given source of noise, as audits do.

        Parameters
        ----------
        X, y, groups
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta, positive=True)
        template = self._template()
        classes: Any = declared_classes("public" if self.classes is None else self.classes)
        table = Columns(X)
        labels = read_labels(y, table.rows, "public" if classes is None else classes)
        weights = weights_by_index(template.class_weight, labels.classes)  # refused before anything is spent
        first = None if groups is None else first_of_each(numbered(as_groups(groups, table.rows)))
        unit: Unit = "row" if first is None else "group"
        budget = Rest(rho=None, epsilon=epsilon, delta=delta)
        schema, unfound, spent, planned = self.schema, {}, None, None
        if schema is None:
            share = check_share(self.schema_share, "schema_share")
            found = PrivateSchema(
                epsilon=epsilon, delta=delta, kinds=self.kinds, leave_out=self.leave_out, types=self.types
            )
            budget = rest_of(epsilon=epsilon, delta=delta, share=share)
            found.fit_with_noise(X, groups, unsafe_noise, share=share)
            schema, unfound, spent = found.schema_, found.unfound_, found.guarantee_
            planned = budget.after(found.plan_.event)
        with silent():
            rows, taken = encode_columns(schema, table), slice(None) if first is None else first
        model = clone_with(
            template,
            epsilon=budget.epsilon,
            delta=budget.delta,
            classes=list(range(len(labels.classes))),
            class_weight=weights,
            row_norm=schema.row_norm,
        ).fit_with_noise(rows[taken], labels.indices[taken], unsafe_noise)
        budget.check(model.event_)
        self.schema_, self.unfound_, self.model_, self.classes_ = schema, unfound, model, labels.classes
        self.event_: Event = model.event_ if planned is None else release(None, planned, unsafe_noise).event
        self.guarantee_ = guarantee(self.event_, delta=delta, unit=unit)
        self.spent_ = Spending(spent, guarantee(model.event_, delta=budget.delta, unit=unit))
        self.n_features_in_ = len(table)
        self.feature_names_in_ = np.array(list(table), dtype=object)
        return self

    def _template(self) -> PrivateLogisticRegression:
        if self.learner is None:
            return PrivateLogisticRegression(epsilon=1, delta=self.delta, row_norm=1, rounds="auto")
        if not isinstance(self.learner, PrivateLogisticRegression):
            raise TypeError(
                f"learner must be a PrivateLogisticRegression or None, got {type(self.learner).__name__}: other "
                "learners go into a Pipeline of scikit-learn, after a PrivateSchema, with a budget of their own"
            )
        if self.learner.unsafe_seed is not None:
            raise ValueError("learner must have unsafe_seed=None: seed the pipeline, not its learner")
        settings = clone_with(self.learner, row_norm=1, classes=None).settings()  # refused before anything is spent
        several = settings.bounds is not None and max(len(settings.bounds.lower), len(settings.bounds.upper)) > 1
        if self.schema is None and (settings.public is not None or settings.start is not None or several):
            raise ValueError(
                "learner must have no public rows, no start and no bounds by column unless schema is given: the "
                "columns of the model are not known before its schema is bought"
            )
        return self.learner

    # ── predicting ────────────────────────────────────────────────────────────────────────────────────────────────

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each row.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            A table with the columns of the schema; others are ignored.
        """
        rows = self.encode(X)
        return np.asarray(self.classes_[np.asarray(self.model_.predict(rows)).astype(np.int64)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class for each row, in the order of `classes_`.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            A table with the columns of the schema.
        """
        rows = self.encode(X)
        return np.asarray(self.model_.predict_proba(rows))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The scores of rows, as of the model.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            A table with the columns of the schema.
        """
        rows = self.encode(X)
        return np.asarray(self.model_.decision_function(rows))

    def encode(self, X: Any) -> Rows:
        """Rows of numbers, each made from one row of the table by the schema.

        Parameters
        ----------
        X : frame, mapping of columns, or array of two dimensions
            A table with the columns of the schema.
        """
        check_is_fitted(self, "model_")
        return encode_columns(self.schema_, Columns(X))
