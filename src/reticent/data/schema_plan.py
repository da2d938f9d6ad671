"""The plan of a private schema: how a share of the budget is spent on all columns, from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from reticent import privacy
from reticent.errors import InsufficientData
from reticent.exact import Number, integer, rational
from reticent.mechanisms.counts import WIDEST
from reticent.privacy import calibrate, fits
from reticent.privacy.events import ZCDP, ApproximateDP, Composed, DiscreteGaussian, Event, Parallel, SeededRelease
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.privacy.survival import survival
from reticent.promises import fewest_rows

LOWEST, HIGHEST = -40, 60  # exponents of the bins of numbers
EXPONENTS = HIGHEST - LOWEST + 1
POSITIVE, NEGATIVE = slice(0, EXPONENTS), slice(EXPONENTS, 2 * EXPONENTS)  # bins by sign, zero in the first
MISSING, UNREADABLE = 2 * EXPONENTS, 2 * EXPONENTS + 1  # the two other bins of a column of numbers
BINS = 2 * EXPONENTS + 2
KINDS_SHARE = Fraction(1, 10)  # of the share: for whether columns are numbers or categories
SLACK_SHARE = Fraction(1, 10)  # of δ: for categories that occur in one of two neighbours only
RARE = Fraction(1, 100)  # of the rows: the values beyond a range, at most, where the noise allows it
NEARLY_ALL = 0.9  # of the rows: those that must lie in a range that starts above zero
MISTAKES = 0.01  # the probability that noise alone makes some bin of some column count
SURE = 4.0  # standard deviations of the noise, for numbers or categories
FEWEST = 2  # of the rows, one in so many must exceed the noise of a bin; with fewer, hardly any column is found
WHOLE = Fraction(1)
MARGIN = Fraction(999, 1000)  # of the ρ that is left


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """What a private schema releases and what it costs. All of it is public.

    Parameters
    ----------
    rows : int
        The number of rows, or of groups if rows have groups.
    columns : int
        The number of columns.
    undecided : int
        Of these, the number whose kind, number or category, is released as well.
    kinds_sigma : Fraction or None
        The noise of the numbers of cells that are no numbers; None if no kind is released.
    sigma : Fraction
        The noise of every count.
    threshold : int
        What the noisy count of a category must exceed.
    slack : Fraction
        The probability, at most, that a category is kept which occurs in one of two neighbours only; 0 if no column can
        be one of categories.
    """

    rows: int
    columns: int
    undecided: int
    kinds_sigma: Fraction | None
    sigma: Fraction
    threshold: int
    slack: Fraction

    @property
    def events(self) -> tuple[Event, ...]:
        """The releases: of kinds, of all histograms together, and what rare categories add."""
        kinds = () if self.kinds_sigma is None else (DiscreteGaussian(self.kinds_sigma, self.undecided),)
        counts = DiscreteGaussian(self.sigma, 2 * self.columns)
        # −ln(1 − δ) ≤ δ/(1 − δ): see docs/data/private_schema.md
        rare = (ApproximateDP(self.slack / (1 - self.slack), self.slack),) if self.slack else ()
        return (*kinds, counts, *rare)

    @property
    def event(self) -> Event:
        """All releases."""
        return Composed(self.events)

    @property
    def least_text(self) -> float:
        """The noisy number of cells that are no numbers above which a column is one of categories."""
        noise = 0.0 if self.kinds_sigma is None else SURE * float(self.kinds_sigma)
        return max(float(self.rows * RARE), noise)

    @property
    def least_count(self) -> float:
        """What the noisy count of a bin of numbers must exceed: a hundredth of the rows, or what noise reaches."""
        return max(float(self.rows * RARE), float(self.sigma) * -float(ndtri(MISTAKES / (BINS * self.columns))))


def plan_schema(
    *,
    rows: int,
    columns: int,
    undecided: int,
    texts: int = 0,
    epsilon: Number,
    delta: Number,
    share: Fraction = WHOLE,
) -> SchemaPlan:
    """Plan the releases of a private schema.

    Parameters
    ----------
    rows : int
        The number of rows, or of groups.
    columns : int
        The number of columns, at least 1.
    undecided : int
        The number of columns of which it is not known whether they are numbers or categories.
    texts : int, default 0
        The number of columns that are known to be categories.
    epsilon, delta : int, float, Fraction or Decimal
        Privacy-loss bound and failure probability of the schema and of all that shares the budget with it.
    share : Fraction, default 1
        The share of ρ, and so of μ², that the schema may use.

    Returns
    -------
    SchemaPlan
        A plan whose event fits (ε, δ).

    Raises
    ------
    InsufficientData
        If so few rows can hardly lead to any column.

    >>> plan = plan_schema(rows=20_000, columns=13, undecided=13, epsilon=1, delta=1e-6, share=Fraction(1, 10))
    >>> round(float(plan.sigma)), plan.threshold, round(plan.least_count)
    (77, 439, 346)
    """
    integer(columns, "columns", least=1)
    exact, failure = check_epsilon(epsilon), check_delta(delta, positive=True)
    rho = schema_rho(exact, failure) * share
    slack = failure * SLACK_SHARE if undecided or texts else Fraction(0)

    def planned(rows: int) -> SchemaPlan:
        return _planned(rows, columns, undecided, rho=rho, slack=slack)

    plan = planned(rows)
    if plan.least_count * FEWEST > rows:
        required = fewest_rows(lambda more: planned(more).least_count * FEWEST <= more)
        raise InsufficientData(
            f"a private schema of {columns:,} column{'s' * (columns != 1)} needs at least {required:,} rows (or "
            f"groups) at this privacy, got {rows:,}; learn from fewer columns, spend more on the schema, or write "
            "it by hand",
            required=required,
        )
    if not fits(plan.event, epsilon=exact, delta=failure):
        raise ValueError(f"epsilon={epsilon} and delta={delta} cannot be certified for these releases")
    return plan


def _planned(rows: int, columns: int, undecided: int, *, rho: Fraction, slack: Fraction) -> SchemaPlan:
    variance = 1 / (2 * rho)  # of the noise, per squared sensitivity
    kinds = calibrate.sigma_of(undecided, variance / KINDS_SHARE) if undecided else None
    sigma = calibrate.sigma_of(2 * columns, variance / (1 - KINDS_SHARE if undecided else 1))
    if max(sigma, kinds or 0) > WIDEST:
        raise ValueError("epsilon and delta are too small together: the noise would not fit into 64 bits")
    return SchemaPlan(
        rows=rows,
        columns=columns,
        undecided=undecided,
        kinds_sigma=kinds,
        sigma=sigma,
        threshold=category_threshold(sigma=sigma, probability=slack / columns) if slack else 0,
        slack=slack,
    )


def schema_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The ρ that a schema and what follows it share: what fits (ε, δ) less the δ that rare categories may take.

    Parameters
    ----------
    epsilon, delta : Fraction
        The budget of both together.
    """
    slack = delta * SLACK_SHARE
    return calibrate.rho(epsilon=epsilon - slack / (1 - slack), delta=delta - slack)


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What a schema leaves of a budget, for releases that are concentrated: the private linear model.

    Parameters
    ----------
    rho : Fraction or None
        The ρ of all releases after the schema that see one row. It is fixed beforehand, so these may depend on the
        schema. None if there is no schema to pay for.
    epsilon, delta : Fraction
        A budget for a learner: if all of its releases have Gaussian noise, it keeps to `rho`.
    """

    rho: Fraction | None
    epsilon: Fraction
    delta: Fraction

    def after(self, schema: Event) -> Event:
        """The schema, and all releases after it.

        Parameters
        ----------
        schema : Event
            The event of the schema.
        """
        return schema if self.rho is None else Composed((schema, ZCDP(self.rho)))

    def check(self, spent: Event) -> None:
        """Refuse releases that do not keep to the budget; by public numbers alone.

        Parameters
        ----------
        spent : Event
            What happened after the schema. Of parallel events, each row sees one.
        """
        bare = spent.event if isinstance(spent, SeededRelease) else spent
        for part in bare.events if isinstance(bare, Parallel) else (bare,):
            rho = privacy.rho(part)
            if self.rho is not None and (rho is None or rho > self.rho):
                raise ValueError("what follows the schema does not keep to the budget that was left for it")


def rest_of(*, epsilon: Fraction, delta: Fraction, share: Fraction) -> Rest:
    """What a schema with a share of (ε, δ) leaves.

    Parameters
    ----------
    epsilon, delta : Fraction
        The budget of the schema and of what follows it.
    share : Fraction
        The share of the schema.

    >>> rest = rest_of(epsilon=Fraction(1), delta=Fraction(1, 10**6), share=Fraction(1, 10))
    >>> round(float(rest.epsilon), 3), float(rest.delta)
    (0.945, 9e-07)
    """
    rho = schema_rho(epsilon, delta) * (1 - share)
    left = delta * (1 - SLACK_SHARE)
    # A little less, since noise is calibrated to five digits.
    return Rest(rho=rho, epsilon=rational(privacy.epsilon(ZCDP(rho * MARGIN), delta=left), "epsilon"), delta=left)


def category_threshold(*, sigma: Fraction, probability: Fraction) -> int:
    """The least τ with P(1 + N > τ) ≤ probability, for discrete Gaussian noise N: P(N ≥ τ), as both are integers.

    Parameters
    ----------
    sigma : Fraction
        The scale of the noise.
    probability : Fraction
        The probability that a category of one row exceeds τ, at most.

    >>> category_threshold(sigma=Fraction(1), probability=Fraction(1, 10))
    2
    """
    table = survival(sigma)
    if table is None:  # P(N ≥ k) ≤ e^(−k²/2σ²), as for continuous noise
        return math.ceil(float(sigma) * math.sqrt(2 * math.log(float(1 / probability))) * (1 + 1e-9)) + 1
    above = table.above * (1 + table.error)
    return int((above > float(probability) * (1 - 1e-12)).sum())
