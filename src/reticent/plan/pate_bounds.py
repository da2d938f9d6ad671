"""Which error the theory of PATE promises: the bounds of its theorems, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from reticent.exact import Number, integer, rational
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share

PATESetting = Literal["realizable", "tsybakov", "agnostic"]


@dataclass(frozen=True, kw_only=True)
class PATEBound:
    """The error bound of one theorem.

    It is an order of magnitude: printed constants are kept, constants that hide in Õ(·) or are called universal are 1,
    and logarithms under a tilde are left out. So ratios of bounds and their scaling are meaningful, a single bound is
    not. A bound above 1 promises nothing.

    Parameters
    ----------
    theorem : int
        Number of the theorem.
    algorithm : str
        What it is about.
    against : str
        Whose error the bound is counted from.
    excess : float
        Error above that of `against`.
    labels : int
        Public rows that are labelled.
    teachers : int or None
        Teachers that the theorem needs; None if it states an O(·) only.
    formula : str
        What is evaluated.
    solved : float, optional
        The error of Theorem 22 with its logarithms: the least α that is promised by the teachers for the labels that α
        itself needs, with C₁ = C₂ = 1.
    """

    theorem: int
    algorithm: str
    against: str
    excess: float
    labels: int
    teachers: int | None
    formula: str
    solved: float | None = None


@dataclass(frozen=True, kw_only=True)
class PATEBounds:
    """The bounds of all theorems for one setting.

    Parameters
    ----------
    setting : {"realizable", "tsybakov", "agnostic"}
        The setting.
    rows, public : int
        Private rows with labels, and public rows without.
    bounds : tuple of PATEBound
        One entry per theorem.
    assumed : tuple of str, optional
        Quantities that were not given, with the values taken for them, which promise most. A bound that uses one is not
        compared with the others on equal terms.
    """

    setting: str
    rows: int
    public: int
    bounds: tuple[PATEBound, ...]
    assumed: tuple[str, ...] = ()

    def vacuous(self, bound: PATEBound) -> bool:
        """Return whether a bound promises nothing: it is not below 1, or needs more teachers than there are rows."""
        errors = (bound.excess, 0 if bound.solved is None else bound.solved)
        return max(errors) >= 1 or (bound.teachers or 0) > self.rows

    def __str__(self) -> str:
        lines = [f"{self.setting}, {self.rows:,} private rows, {self.public:,} public (orders: hidden constants are 1)"]
        for each in self.bounds:
            teachers = "" if each.teachers is None else f", {each.teachers:,} teachers"
            teachers += ", more than there are rows" if each.teachers is not None and each.teachers > self.rows else ""
            nothing = ": this promises nothing" if self.vacuous(each) else ""
            lines.append(
                f"Theorem {each.theorem:2} {each.algorithm:20} excess {each.excess:10.3g} over {each.against}, "
                f"{each.labels:,} labels{teachers}{nothing}"
            )
        if self.assumed:
            lines.append(f"Not given, so assumed to be the values that promise most: {', '.join(self.assumed)}")
        kept = [each for each in self.bounds if "log(1/δ)" in each.formula]
        hidden = [each for each in self.bounds if each not in kept and each.theorem not in (19, 20)]
        if kept and hidden:
            lines.append(
                f"A factor of log(1/δ) is part of {_theorems(kept)} and hidden in {_theorems(hidden)}: compare these "
                "only up to it"
            )
        if self.setting == "agnostic":
            lines.append('Theorems 10, 22, 28 have no agnostic bound over h*: "Ω(Err(h*)) required" in Table 1')
        return "\n".join(lines)


def pate_bounds(
    *,
    rows: int,
    public: int,
    dimension: int,
    epsilon: Number,
    delta: Number,
    setting: PATESetting = "realizable",
    active: bool | None = None,
    tau: Number | None = None,
    theta: Number | None = None,
    eta: Number | None = None,
    best_error: Number | None = None,
    unclear: Number | None = None,
    margin: Number | None = None,
    apart: Number | None = None,
    failure: Number = 0.05,
) -> PATEBounds:
    """Compare the error bounds of the theorems on PATE, as Table 1 of their paper does.

    As in the table, the number of labelled public rows is the one with the least bound. A parameter that no theorem of
    the setting uses is refused. Theorems 19 and 20 assume ε ≤ ln(2/δ), so a larger ε is refused with them.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*: Theorem 5 (sparse vector, after
    Bassily, Thakkar, Thakurta), Theorem 10 (sparse vector, under Tsybakov noise), Theorem 19 and Theorem 20 (against
    the vote of infinitely many teachers, Proposition 18), Theorem 22 (active), Theorem 28 (Gaussian), Table 1. In
    Theorem 28 the printed number of teachers has εm outside of the root, its proof inside; the proof is followed.
    Definition 17 is read with ≤ ξ for the printed > ξ.

    Parameters
    ----------
    rows : int
        Private rows, with labels.
    public : int
        Public rows, without labels.
    dimension : int
        VC dimension of the hypotheses.
    epsilon : float or Fraction
        Privacy-loss bound ε of the private rows.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.
    setting : {"realizable", "tsybakov", "agnostic"}, default "realizable"
        What is assumed about labels.
    active : bool, optional
        True for the active bound only, False for the passive ones only; by default all.
    tau : float or Fraction, optional
        Exponent of Tsybakov's noise condition, in (0, 1]; 1 by default.
    theta : float or Fraction, optional
        Disagreement coefficient, for active learning; 1 by default.
    eta : float or Fraction, optional
        Factor of Tsybakov's noise condition, at least 1; 1 by default.
    best_error : float or Fraction, optional
        Error of the best hypothesis; 0 by default. Not for the realizable setting.
    unclear : float or Fraction, optional
        Share ν of points with an expected margin of at most `margin`. For the agnostic setting, together with `margin`.
    margin : float or Fraction, optional
        The margin ξ that a share `unclear` of points does not exceed. For the agnostic setting.
    apart : float or Fraction, optional
        How far the best hypothesis is from the vote of infinitely many teachers; 0 by default. Needs `unclear`.
    failure : float or Fraction, default 0.05
        Probability with which the bound may fail.

    Returns
    -------
    PATEBounds

    Examples
    --------
    >>> bounds = pate_bounds(rows=10**6, public=10**5, dimension=10, epsilon=1, delta=1e-6)
    >>> {bound.theorem: f"{bound.excess:.2g}" for bound in bounds.bounds}
    {28: '0.0019', 5: '0.01', 10: '0.00011', 22: '0.00012'}
    """
    have, pool, vc = (
        integer(rows, "rows", least=1), integer(public, "public", least=1), integer(dimension, "dimension", least=1)
    )  # fmt: skip
    if setting not in ("realizable", "tsybakov", "agnostic"):
        raise ValueError(f"setting must be 'realizable', 'tsybakov' or 'agnostic', got {setting!r}")
    if not (active is None or isinstance(active, bool)):
        raise TypeError(f"active must be True, False or None, got {active!r}")
    if active is False and not (theta is None and eta is None):
        raise ValueError("theta and eta must be left out with active=False: only the active bound uses them")
    _only({"tau": tau, "eta": eta}, setting, "tsybakov")
    _only({"theta": theta}, setting, "realizable", "tsybakov")
    _only({"best_error": best_error}, setting, "tsybakov", "agnostic")
    _only({"unclear": unclear, "margin": margin, "apart": apart}, setting, "agnostic")
    problem = _Problem(
        n=have,
        m=pool,
        d=vc,
        epsilon=float(check_epsilon(epsilon)),
        log_delta=-math.log(float(check_delta(delta, positive=True))),
        tau=_in_range(1 if tau is None else tau, "tau", above=0, most=1),
        theta=_in_range(1 if theta is None else theta, "theta", least=1),
        eta=_in_range(1 if eta is None else eta, "eta", least=1),
        best_error=_in_range(0 if best_error is None else best_error, "best_error", least=0, most=1),
        failure=float(check_share(failure, "failure")),
    )
    found: list[PATEBound] = []
    if setting == "agnostic":
        if active:
            raise ValueError("active must be False or None in the agnostic setting: no theorem promises anything there")
        found.append(problem.theorem_5(agnostic=True))
        if (unclear is None) != (margin is None) or (unclear is None and apart is not None):
            raise ValueError("unclear and margin must be given together, and apart only with them")
        if unclear is not None and margin is not None:
            nu, xi = _in_range(unclear, "unclear", least=0, most=1), _in_range(margin, "margin", above=0, most=0.5)
            gap = _in_range(0 if apart is None else apart, "apart", least=0, most=1)
            if problem.epsilon > problem.log_delta + math.log(2):
                raise ValueError(
                    f"epsilon must be at most log(2/delta) = {problem.log_delta + math.log(2):.4g} for Theorems 19 and "
                    f"20, got {epsilon}: leave unclear and margin out for Theorem 5 alone"
                )
            found += problem.theorems_19_and_20(nu, xi, gap)
    else:
        if not active:
            found += [problem.theorem_28(), problem.theorem_5(agnostic=setting == "tsybakov"), problem.theorem_10()]
        if active is not False:
            found.append(problem.theorem_22())
    given = {"tau": tau, "theta": theta, "eta": eta, "best_error": best_error, "apart": apart}
    assumed = _assumed(given, found, setting)
    return PATEBounds(setting=setting, rows=have, public=pool, bounds=tuple(found), assumed=assumed)


def _theorems(bounds: list[PATEBound]) -> str:
    return f"Theorem{'s' * (len(bounds) > 1)} {', '.join(str(each.theorem) for each in bounds)}"


def _assumed(given: dict[str, Number | None], found: list[PATEBound], setting: str) -> tuple[str, ...]:
    """Return what was not given, of the quantities that the theorems depend on."""
    users = {
        "tau = 1": ("tau", setting == "tsybakov", ()),
        "theta = 1": ("theta", True, (22,)),
        "eta = 1": ("eta", setting == "tsybakov", (22,)),
        "best_error = 0": ("best_error", setting != "realizable", (5,)),
        "apart = 0": ("apart", True, (19,)),
    }
    listed = []
    for words, (name, asked, only) in users.items():
        used = [each for each in found if each.theorem in only]
        if asked and given[name] is None and (used or not only):
            listed.append(f"{words} ({_theorems(used)})" if only else words)
    return tuple(listed)


@dataclass(frozen=True)
class _Problem:
    """The quantities of the theorems, in the paper's letters."""

    n: int
    m: int
    d: int
    epsilon: float
    log_delta: float  # log(1/δ)
    tau: float
    theta: float
    eta: float
    best_error: float
    failure: float

    def theorem_28(self) -> PATEBound:
        power = self.tau / (2 - self.tau)
        labels, excess = self._fewest(lambda m: self.d / m + (self.d * math.sqrt(m) / (self.n * self.epsilon)) ** power)
        return PATEBound(
            theorem=28, algorithm="Gaussian", against="h*", excess=excess, labels=labels,
            teachers=math.ceil(self._gaussian_teachers(labels)), formula="d/m + (d√m/(nε))^(τ/(2−τ))",
        )  # fmt: skip

    def theorem_5(self, *, agnostic: bool) -> PATEBound:
        scale = self.n * self.epsilon
        if agnostic:
            formula = "12·Err(h*) + m^(1/3)·d^(2/3)/(nε)^(2/3) + √(d/m)"
            labels, excess = self._fewest(
                lambda m: 12 * self.best_error + (m * self.d**2 / scale**2) ** (1 / 3) + math.sqrt(self.d / m)
            )
        else:
            formula = "d²m·log(1/δ)/(nε)² + √(d/m)"
            labels, excess = self._fewest(
                lambda m: self.d**2 * m * self.log_delta / scale**2 + math.sqrt(self.d / m)
            )
        return PATEBound(
            theorem=5, algorithm="sparse vector", against="h*", excess=excess, labels=labels, teachers=None,
            formula=formula,
        )  # fmt: skip

    def theorem_10(self) -> PATEBound:
        power = self.tau / (4 - 3 * self.tau)
        labels, excess = self._fewest(
            lambda m: self.d / m + (m * self.d**2 / (self.n * self.epsilon) ** 2) ** power
        )
        return PATEBound(
            theorem=10, algorithm="sparse vector", against="h*", excess=excess, labels=labels, teachers=None,
            formula="d/m + (md²/(nε)²)^(τ/(4−3τ))",
        )  # fmt: skip

    def theorem_22(self) -> PATEBound:
        power = self.tau / (2 - self.tau)
        drawn = self.d**1.5 * math.sqrt(self.theta * self.log_delta) / (self.n * self.epsilon)
        alpha = self._active_error()
        asked = math.ceil(self._active_labels(min(alpha, 1.0)))
        return PATEBound(
            theorem=22, algorithm="Gaussian, active", against="h*", excess=max(drawn**power, self.d / self.m),
            labels=asked, teachers=math.ceil(self._gaussian_teachers(asked)), solved=alpha,
            formula="max{(d^(3/2)·√(θ·log(1/δ))/(nε))^(τ/(2−τ)), d/m}",
        )  # fmt: skip

    def _active_labels(self, alpha: float) -> float:
        """Return ℓ = θ·(1 + log(1/α))·(d·log θ + log(2·log(1/α)/γ)), with C₂ = 1, but at most the public rows."""
        tail = math.log(_log_at_least_1(1 / alpha) / (self.failure / 2))
        labels = self.theta * (1 + math.log(1 / alpha)) * (self.d * math.log(self.theta) + tail)
        return min(self.m, max(1.0, labels))

    def _active_error(self) -> float:
        """Return the least α that Theorem 22 promises.

        That is the least α ≥ max{η^(2/(2−τ))·((dK·log(n/d) + log(2K/γ))/n)^(τ/(2−τ)), (d·log((m+n)/d) + log(2/γ))/m}.
        K depends on α through the labels and falls as α grows, so α is found by bisection. θ is the same for all α.
        """
        d, n, power = self.d, self.n, 1 / (2 - self.tau)

        def promised(alpha: float) -> float:
            teachers = self._gaussian_teachers(self._active_labels(alpha))
            drawn = (d * teachers * _log_at_least_1(n / d) + math.log(2 * teachers / self.failure)) / n
            unlabelled = (d * _log_at_least_1((self.m + n) / d) + math.log(2 / self.failure)) / self.m
            return float(max((self.eta**2 * drawn**self.tau) ** power, unlabelled))

        if promised(1.0) >= 1:
            return promised(1.0)
        low, high = -35.0, 0.0  # of log α: `high` is promised
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if promised(math.exp(middle)) <= math.exp(middle) else (middle, high)
        return math.exp(high)

    def theorems_19_and_20(self, nu: float, xi: float, apart: float) -> list[PATEBound]:
        m, gamma = self.m, self.failure / 2  # both hold with probability 1 − 2γ
        log_delta_2 = self.log_delta + math.log(2)
        log_gamma = math.log(3 / gamma)
        cut = nu * m + math.sqrt(2 * nu * m * log_gamma) + 2 / 3 * log_gamma
        scale = (math.sqrt(2 * cut * (self.epsilon + log_delta_2)) + math.sqrt(2 * cut * log_delta_2)) / self.epsilon
        log_m = math.log(3 * m / gamma)
        wide = 3 * scale * (math.log(4 * m) + self.log_delta + log_m) / xi
        teachers = math.ceil(max(2 * log_m / xi**2, wide))
        return [
            PATEBound(
                theorem=19, algorithm="sparse vector", against="infinite vote", labels=m, teachers=teachers,
                excess=apart + 2 * cut / m + math.sqrt(self.d / m), formula="Dis(h, h_∞) + 2T/m + √(d/m)",
            ),
            PATEBound(
                theorem=20, algorithm="sparse vector, voting", against="infinite vote", labels=m, teachers=teachers,
                excess=4 * cut / m + 5 * (teachers * self.d + math.log(4 / gamma)) / m,
                formula="4T/m + 5(Kd + log(4/γ))/m, as printed",
            ),
        ]  # fmt: skip

    def _gaussian_teachers(self, labels: float) -> float:
        """Return K = 6·√log(2n)·(√(ℓ·log(1/δ)) + √(ℓ·log(1/δ) + εℓ))/ε."""
        root = math.sqrt(labels * self.log_delta) + math.sqrt(labels * self.log_delta + self.epsilon * labels)
        return 6 * math.sqrt(math.log(2 * self.n)) * root / self.epsilon

    def _fewest(self, bound: Callable[[float], float]) -> tuple[int, float]:
        """Return the number of public rows with the least bound, and that bound, which first falls and then grows."""
        low, high = 1, self.m
        while high - low > 2:
            third = (high - low) // 3
            left, right = low + third, high - third
            low, high = (low, right) if bound(left) <= bound(right) else (left, high)
        labels = min(range(low, high + 1), key=bound)
        return labels, bound(labels)


def _log_at_least_1(value: float) -> float:
    """Return the logarithm, but at least 1: bounds mean it to be large."""
    return max(1.0, math.log(value))


def _only(given: dict[str, Number | None], setting: str, *settings: str) -> None:
    """Refuse parameters that would be ignored."""
    for name, value in given.items():
        if value is not None and setting not in settings:
            where = " and ".join(repr(each) for each in settings)
            raise ValueError(f"{name}={value} must be left out: it is for the setting {where}, got {setting!r}")


def _in_range(
    value: Number, name: str, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> float:
    """Return a parameter as a float; raise `ValueError` if it is out of range."""
    number = float(rational(value, name))
    if not (least <= number <= most and number > above):
        low = f"above {above:g}" if math.isfinite(above) else f"at least {least:g}"
        high = f" and at most {most:g}" if math.isfinite(most) else ""
        raise ValueError(f"{name} must be {low}{high}, got {value}")
    return number
