"""The parameters of private logistic regression as they are read, and all that follows from them and public numbers.

Nothing in this module looks at private rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.classes import sorted_classes
from reticent.exact import integer
from reticent.learners.bounded import Bounds, checked_bounds
from reticent.learners.class_weights import (
    SHARE,
    ClassWeight,
    CountsPlan,
    checked_class_weight,
    plan_counts,
    public_weights,
)
from reticent.learners.column_scales import ScalesPlan, plan_scales
from reticent.learners.descent import LEVEL, DescentPlan, plan_descent, release_variance
from reticent.learners.features import FeatureMap, fourier_frequencies
from reticent.learners.lattice import Floats, Matrix, shortened, squared_lengths
from reticent.learners.levels import MOST as MOST_LEVEL
from reticent.learners.levels import Reach, plain_level, usual_reach
from reticent.learners.linear import Linear, checked_start
from reticent.learners.public_rows import checked_public, directions_for, find_directions
from reticent.learners.second_moments import (
    MomentsPlan,
    ReleaseSchedule,
    check_rounds,
    chosen_rounds,
    plan_moments,
    schedule,
    strengths,
)
from reticent.learners.whitening import Whitening, checked_whitening
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import Composed, Event
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive

SHORTEST, LONGEST = Fraction(1, 10**100), 10**100  # of rows
RARE_SHARE = Fraction(1, 200)  # of μ², for the count that tells whether a class is rare
USUAL = 0.95  # the share of public rows that are no longer than the row norm taken from them


@dataclass(frozen=True)
class LogisticPlan:
    """All releases of one fit, in order: counts, column scales, rounds of second moments, a descent. It is public.

    Parameters
    ----------
    counts : CountsPlan or None
        The counts of classes; None for none.
    scales : ScalesPlan or None
        The column scales; None for none.
    moments : MomentsPlan
        The rounds of second moments.
    descent : DescentPlan
        The descent, at its usual level.
    reach : Reach
        The usual level, and how far rows are whitened.
    mapped : bool
        Whether the descent sees rows that were whitened, by these rounds or by a public map.
    """

    counts: CountsPlan | None
    scales: ScalesPlan | None
    moments: MomentsPlan
    descent: DescentPlan
    reach: Reach
    mapped: bool

    @property
    def event(self) -> Event:
        """The releases; those of the descent alone if there are no others."""
        first = [each.event for each in (self.counts, self.scales) if each is not None]
        before = (*first, *self.moments.events)
        return Composed((*before, self.descent.event)) if before else self.descent.event


@dataclass(frozen=True, eq=False)
class LogisticSettings:
    """The checked parameters of `PrivateLogisticRegression`, which describes them."""

    epsilon: Fraction
    delta: Fraction
    row_norm: Fraction | None
    bounds: Bounds | None
    public: Matrix | None
    classes: NDArray[Any] | None
    fit_intercept: bool
    steps: int | None
    fourier_features: int | None
    gamma: Fraction | None
    fourier_seed: int | None
    start: Linear | None
    whitening: Whitening | None
    rounds: str | int
    class_weight: ClassWeight
    level: Fraction

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> LogisticSettings:
        """Check the parameters of an estimator; ValueError or TypeError names the first that is out of range.

        Parameters
        ----------
        given : mapping
            The parameters by name.
        """
        bounds = None if given["bounds"] is None else checked_bounds(given["bounds"])
        public = None if given["public"] is None else checked_public(given["public"])
        if not isinstance(given["fit_intercept"], (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, got {type(given['fit_intercept']).__name__}")
        seed, steps = given["fourier_seed"], given["steps"]
        settings = cls(
            epsilon=check_epsilon(given["epsilon"]),
            delta=check_delta(given["delta"], positive=True),
            row_norm=_row_norm(given["row_norm"], needed=bounds is None and public is None),
            bounds=bounds,
            public=public,
            classes=None if given["classes"] is None else sorted_classes(given["classes"]),
            fit_intercept=bool(given["fit_intercept"]),
            steps=None if steps is None else integer(steps, "steps", least=1),
            fourier_features=_even(given["fourier_features"]),
            gamma=None if given["gamma"] is None else check_positive(given["gamma"], "gamma"),
            fourier_seed=None if seed is None else integer(seed, "fourier_seed", least=0),
            start=None if given["start"] is None else checked_start(given["start"]),
            whitening=_whitening(given),
            rounds=check_rounds(given["rounds"]),
            class_weight=checked_class_weight(given["class_weight"]),
            level=check_positive(given["level"], "level"),
        )
        if settings.classes is not None:
            settings.known_weights(settings.classes)
        return settings

    @property
    def mu(self) -> float:
        """μ, sensitivity over noise of a single release that uses up (ε, δ)."""
        return 1 / math.sqrt(release_variance(self.epsilon, self.delta))

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def row_map(self, *, rows: int, columns: int) -> FeatureMap:
        """The map from rows to unit rows, without Fourier features.

        Parameters
        ----------
        rows, columns : int
            The numbers of private rows and of their columns.
        """
        norm = None if self.row_norm is None else float(self.row_norm)
        if self.bounds is not None:
            longest = self.bounds.norm(columns)
            norm = longest if norm is None else norm
        if self.public is None:
            assert norm is not None
            return FeatureMap(norm, bounds=self.bounds)
        known = self.public if self.bounds is None else self.bounds.mapped(self.public)
        norm = _usual_length(known) if norm is None else norm
        directions = find_directions(shortened(known, norm), self.directions(rows))
        return FeatureMap(norm, bounds=self.bounds, directions=directions)

    def with_fourier_features(self, row_map: FeatureMap, columns: int, source: Noise) -> FeatureMap:
        """The map with random Fourier features, if there are any.

        Parameters
        ----------
        row_map : FeatureMap
            The map of rows to unit rows.
        columns : int
            The number of columns that these have.
        source : Noise
            Where a seed is drawn from if none is given.
        """
        if self.fourier_features is None:
            return row_map
        seed = source.uniform(1 << 63) if self.fourier_seed is None else self.fourier_seed
        norm = Fraction(row_map.length) if self.row_norm is None or row_map.directions is not None else self.row_norm
        frequencies = fourier_frequencies(
            row_norm=norm, columns=columns, features=self.fourier_features, gamma=self.gamma, seed=seed
        )
        return replace(row_map, frequencies=frequencies, seed=seed)

    def directions(self, rows: int) -> int:
        """The number of directions of public rows that are kept; there must be public rows."""
        assert self.public is not None
        return directions_for(rows, self.public.shape[0], self.mu)

    def seen_columns(self, *, rows: int, columns: int) -> int:
        """The number of columns of unit rows, or the most that it can be: public rows may have fewer directions.

        Parameters
        ----------
        rows, columns : int
            The numbers of private rows and of their columns.
        """
        if self.fourier_features is not None:
            return self.fourier_features
        return columns if self.public is None else min(columns, self.directions(rows))

    def jumps(self, columns: int) -> list[int]:
        """The numbers of private rows from which on there are more rounds than before.

        Parameters
        ----------
        columns : int
            The number of columns of private rows.
        """
        if self.public is not None or self.whitening is not None or not isinstance(self.rounds, str):
            return []
        seen = self.fourier_features or columns
        return [math.ceil(each / self.mu) for each in strengths(seen + self.fit_intercept) if each < math.inf]

    # ── releases ──────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(
        self, *, rows: int, columns: int, classes: int, reach: Reach | None = None, places: int | None = None
    ) -> LogisticPlan:
        """Plan all releases from public numbers.

        Parameters
        ----------
        rows, columns, classes : int
            The size of the problem: columns of unit rows, without a constant one.
        reach : Reach or None, default None
            How far the descent goes; None is what is usual. No event depends on it.
        places : int or None, default None
            If labels may be missing, the number of all rows, and `rows` is how many are expected to have a label. None
            if every row has one.

        Returns
        -------
        LogisticPlan
            A plan whose event fits (ε, δ).
        """
        budget: dict[str, Fraction] = {"epsilon": self.epsilon, "delta": self.delta}
        found = self.schedule(rows=rows, columns=columns + self.fit_intercept, places=places)
        moments = plan_moments(
            rows=rows, columns=columns + self.fit_intercept, rounds=found.rounds, places=places, **budget
        )
        # If rows are mapped, the constant column is one of those that are.
        counted, mapped = bool(found.rounds) and classes == 2, bool(found.rounds) or self.whitening is not None
        if self.whitening is not None and len(self.whitening.matrix) != columns + self.fit_intercept:
            raise ValueError(
                f"whitening must map {columns + self.fit_intercept} columns, with the constant one, got "
                f"{len(self.whitening.matrix)}"
            )
        counts = scales = None
        if self.class_weight == "balanced" or counted:
            share = SHARE if self.class_weight == "balanced" else RARE_SHARE
            counts = plan_counts(rows=rows, classes=classes, share=share, missing=places is not None, **budget)
        if found.scales:
            scales = plan_scales(rows=rows, columns=columns, share=found.scales, **budget)
        usual = self.usual_reach(found, rows=rows, columns=columns + self.fit_intercept)
        reach = reach or usual
        descent = plan_descent(
            rows=rows,
            columns=columns + (self.fit_intercept and mapped),
            classes=classes,
            intercept=self.fit_intercept and not mapped,
            steps=self.steps,
            share=1 - moments.share - sum(each.share for each in (counts, scales) if each is not None),
            level=self.scaled_level(reach.level),
            most_level=self.scaled_level(MOST_LEVEL if counted else usual.level),
            places=places,
            **budget,
        )
        return LogisticPlan(counts, scales, moments, descent, reach, mapped)

    def schedule(self, *, rows: int, columns: int, places: int | None = None) -> ReleaseSchedule:
        """What is released before the descent, but for counts of classes.

        Parameters
        ----------
        rows, columns : int
            The size of the problem: columns of unit rows, with the constant one.
        places : int or None, default None
            As for `plan`.
        """
        if not isinstance(self.rounds, str):
            return chosen_rounds(self.rounds, columns)
        # Rows that are whitened by public ones or by a public map leave nothing for rounds to do.
        if self.public is not None or self.whitening is not None:
            return chosen_rounds(0, columns)
        return schedule(rows, columns, self.mu, places=places)

    def usual_reach(self, found: ReleaseSchedule, *, rows: int, columns: int) -> Reach:
        """How far a descent goes after these releases, if no class is rare.

        Parameters
        ----------
        found : ReleaseSchedule
            What is released before the descent.
        rows, columns : int
            The size of the problem: columns of unit rows, with the constant one.
        """
        if found.rounds or self.whitening is not None:
            return usual_reach(columns, rows * self.mu, scaled=bool(found.scales) or self.whitening is not None)
        return Reach(plain_level(columns) if self.public is None and isinstance(self.rounds, str) else LEVEL)

    def scaled_level(self, level: float) -> float:
        """A level as the caller wants it: `level` = 2 leaves it as it is, 1 halves it."""
        return level * float(self.level) / LEVEL

    def check_certified(self, event: Event) -> None:
        """Refuse an event that does not fit (ε, δ), before anything is drawn.

        Parameters
        ----------
        event : Event
            All releases of one fit.
        """
        if not fits(event, epsilon=self.epsilon, delta=self.delta):
            budget = f"epsilon={float(self.epsilon):g} and delta={float(self.delta):g}"
            raise ValueError(f"{budget} cannot be certified for these releases")

    def known_weights(self, classes: NDArray[Any]) -> Floats | None:
        """The weights of classes that are public; None if there are none.

        Parameters
        ----------
        classes : array
            The classes, sorted.
        """
        return public_weights(self.class_weight, classes) if isinstance(self.class_weight, Mapping) else None


def _row_norm(row_norm: Any, *, needed: bool) -> Fraction | None:
    if row_norm is None:
        if needed:
            raise ValueError(
                "row_norm must be a number > 0 that is known without the rows, or bounds or public must be given; "
                "row_norm, bounds and public are all None"
            )
        return None
    found = check_positive(row_norm, "row_norm")
    if not SHORTEST <= found <= LONGEST:
        raise ValueError("row_norm must be between 1e-100 and 1e100")
    return found


def _usual_length(public: Matrix) -> float:
    """The length that most public rows do not exceed."""
    found = math.sqrt(float(np.quantile(squared_lengths(public), USUAL)))
    if not float(SHORTEST) <= found <= float(LONGEST):
        raise ValueError("public must have rows of lengths between 1e-100 and 1e100, or row_norm must be given")
    return found


def _whitening(given: Mapping[str, Any]) -> Whitening | None:
    if given["whitening"] is None:
        return None
    if given["rounds"] not in ("auto", 0):
        raise ValueError("rounds must be 'auto' or 0 with whitening: the map is known, and no other is bought")
    return checked_whitening(given["whitening"], constant=bool(given["fit_intercept"]))


def _even(features: Any) -> int | None:
    if features is None:
        return None
    found = integer(features, "fourier_features", least=2)
    if found % 2:
        raise ValueError(f"fourier_features must be even, a cosine and a sine each, got {found}")
    return found
