"""One private fit of a logistic regression: all releases in order, from rows whose labels were read.

`fit` and all other ways to learn end here. A row whose label is missing adds 0 to every release, and keeps its place:
what is released, and how long that takes, does not depend on which rows have a label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.labels import UNLABELLED, ClassLabels
from reticent.data.tables import refuse_infinite
from reticent.exact import integer
from reticent.learners.class_weights import balanced_weights, release_class_counts, row_weights, seen_classes
from reticent.learners.column_scales import column_factors, release_exponents
from reticent.learners.descent import DescentPlan, class_targets, descend, integer_rows
from reticent.learners.features import FeatureMap
from reticent.learners.lattice import Floats, Matrix, emptied
from reticent.learners.levels import reach_for_counts
from reticent.learners.linear import Linear, Scales, check_heaviest, released_weights, start_weights
from reticent.learners.logistic_settings import LogisticSettings
from reticent.learners.second_moments import whiten
from reticent.learners.whitening import Whitening, moderate_start
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.silence import silent


class FittedParts(NamedTuple):
    """What a fit releases, and the public settings that go with it; see `PrivateLogisticRegression.adopt_release`."""

    found: Release[Linear]
    plan: DescentPlan
    feature_map: FeatureMap
    whitening: Whitening | None
    class_weights: Floats | None
    seen: NDArray[np.bool_] | None


def fit_rows(
    settings: LogisticSettings,
    X: Matrix,
    labels: ClassLabels,
    unsafe_noise: Noise | None = None,
    *,
    labelled_rows: int | None = None,
) -> FittedParts:
    """Run all releases of a plan on rows with class indices.

    Guarantee. `LogisticPlan.event` of the settings, which fits (ε, δ): for one replaced row and its label, and for
    whether it has one.

    Why. Each release depends on the rows, on releases before it and on public numbers alone. A row without a label adds
    0 to each, so a replaced row moves none of them further than two labelled rows would. See
    `docs/learners/logistic.md`.

    Parameters
    ----------
    settings : LogisticSettings
        The checked parameters.
    X : array or CSR matrix of float64, of shape (rows, columns)
        The rows.
    labels : ClassLabels
        The classes, and the index of each row's class; −1 for a row without a label.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    labelled_rows : int or None, default None
        How many rows are expected to have a label, a public number; None if all have one. It takes the place of the
        number of rows in all rules. Sums have room for all rows, whatever it says.
    """
    classes, class_indices = labels
    missing = labelled_rows is not None
    empty = class_indices == UNLABELLED if missing else None
    if empty is not None:
        X = emptied(X, empty)
    refuse_infinite(X)
    rows = X.shape[0] if labelled_rows is None else integer(labelled_rows, "labelled_rows", least=1, most=X.shape[0])
    weights_of_classes = settings.known_weights(classes)

    row_map = settings.row_map(rows=rows, columns=X.shape[1])
    inputs = X.shape[1] if row_map.directions is None else row_map.directions.matrix.shape[1]
    columns = settings.fourier_features or inputs
    size: dict[str, Any] = {"rows": rows, "columns": columns, "classes": len(classes)}
    size["places"] = X.shape[0] if missing else None
    plan = settings.plan(**size)
    settings.check_certified(plan.event)
    constant = settings.fit_intercept
    length = row_map.length if settings.fourier_features is None else 1.0  # of rows that became unit rows
    scales = Scales(length, plan.descent.reach, plan.descent.constant, plan.descent.radius)
    if plan.mapped:
        scales = Scales(length, 1, int(constant), 1)
    start, outputs = settings.start, plan.descent.outputs
    first = None if start is None else start_weights(start, scales, columns, outputs)
    if first is not None and not plan.moments.rounds:  # else it is made moderate
        first = first if settings.whitening is None else settings.whitening.carried_over(first)
        check_heaviest(first)
    feature_map = settings.with_fourier_features(row_map, inputs, noise_or_system(unsafe_noise))
    seen = factors = None
    with silent():
        if plan.counts is not None:
            counted, _ = release_class_counts(
                class_indices, len(classes), sigma=plan.counts.sigma, missing=missing, unsafe_noise=unsafe_noise
            )
            seen = seen_classes(counted, plan.counts)
            if settings.class_weight == "balanced":
                weights_of_classes = balanced_weights(counted, plan.counts)
            if plan.moments.rounds and len(classes) == 2:
                plan = settings.plan(**size, reach=reach_for_counts(plan.reach, counted, plan.counts))
        unit_rows, whitening = feature_map.unit_rows(X), settings.whitening
        if empty is not None:
            unit_rows = emptied(unit_rows, empty)
        if plan.scales is not None:
            exponents, _ = release_exponents(unit_rows, sigma=plan.scales.sigma, unsafe_noise=unsafe_noise)
            factors = np.append(column_factors(exponents, plan.scales), [1.0] * constant)
        if plan.moments.rounds:
            whitening, first = whiten(
                unit_rows,
                plan.moments,
                constant=constant,
                factors=factors,
                power=plan.reach.power,
                margin=plan.reach.margin,
                start=first,
                empty=empty,
                unsafe_noise=unsafe_noise,
            )
            first = None if first is None else moderate_start(first)
        if whitening is not None:
            unit_rows = whitening.unit_rows(unit_rows)
        weights = descend(
            integer_rows(unit_rows, plan.descent),
            class_targets(class_indices, len(classes)),
            plan.descent,
            unsafe_noise,
            first,
            row_weights=row_weights(class_indices, weights_of_classes, missing=missing),
        )
        weights = weights if whitening is None else whitening.pulled_back(weights)
    found = release(released_weights(weights, scales, columns), plan.event, unsafe_noise)
    return FittedParts(found, plan.descent, feature_map, whitening, weights_of_classes, seen)
