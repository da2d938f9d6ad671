"""How many answers teachers can give, by labeller, and which error the theory of PATE promises for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from reticent.exact import Number, integer, rational
from reticent.labellers import REGISTRY, Labeller
from reticent.labellers.answers import automatic, best, bought
from reticent.labellers.ballots import Ballots, Bought
from reticent.labellers.search import FURTHEST
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share

__all__ = ["Answers", "Bound", "Bounds", "Setting", "best", "pate", "pate_bounds"]


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What each labeller buys, the most first, if the teachers agree as was guessed."""

    teachers: int
    classes: int
    guarantee: Guarantee
    loss: float
    bought: tuple[Bought, ...]
    queries: int | None = None

    def best(self, *, stateless: bool = False) -> Bought:
        """The labeller to take, as `reticent.labellers.answers.best` says: of those listed that "auto" chooses from."""
        found = {each.labeller: each for each in self.bought}
        kinds = automatic(self.classes, stateless=stateless)
        fit = [found[kind.name] for kind in kinds if kind.name in found]
        if not fit:
            raise ValueError("labellers must list one that 'auto' chooses from, for a best one to be named")
        enough = [each for each in fit if each.stateless and each.answers >= (self.queries or math.inf)]
        return enough[0] if enough else max(fit, key=lambda each: each.answers)

    def __str__(self) -> str:
        lines = [
            f"{self.teachers:,} teachers at ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g} for "
            f"{self.guarantee.protects}, answers at most {self.loss:.2%} worse than their noiseless majority:"
        ]
        for each in self.bought:
            enough = "" if self.queries is None else "enough  " if each.answers >= self.queries else "too few "
            setup = ", ".join(f"{name} {value:g}" for name, value in each.options.items())
            answers = "any number" if each.answers >= FURTHEST else f"{each.answers:,}"
            lines.append(f"{each.labeller:13} {answers:>21}  {enough}{setup}".rstrip())
        guessed = "By a guess of how far the teachers agree; a labeller keeps its ε whether or not it is true."
        return "\n".join([*lines, guessed])


def pate(
    teachers: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    queries: int | None = None,
    disagreement: Number | None = None,
    loss: object = 0.01,
    margins: Sequence[float] | None = None,
    labellers: Sequence[str | type[Labeller]] | None = None,
) -> Answers:
    """How many answers the votes of some teachers buy, for each labeller, before any data are touched.

    An answer is as the noiseless majority would have it, but for a probability that depends on how far the teachers
    agree. They are guessed to agree except on a share `disagreement` of the questions, where every lead of the
    winner is equally likely; or `margins` lists leads, as shares of the teachers, that are public, such as those of
    teachers on public rows. Answers are counted as long as the expected share of those against the majority is at most
    `loss`; where no noise could lose more, any number of them is 10^15. Labellers that close by themselves ("two-coin",
    "sparse-vector") have an expected number. Those that may decline a question ("confident", "sparse-vector") count
    what is answered.

    Nothing here depends on private data, so nothing is spent; and no guess changes what a labeller guarantees.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithms 1 and 2, for "gaussian"
    and "sparse-vector"; the labellers' own pages for the others.

    Parameters
    ----------
    teachers : how many vote.
    epsilon, delta : the privacy of the rows the teachers learned from.
    classes : how many there are.
    queries : how many answers are needed, if that is known.
    disagreement : the share of the questions on which the teachers do not all agree; a tenth where nothing is said.
    loss : the share of answers that may differ from the noiseless majority.
    margins : leads of the winner, as shares of the teachers, in place of `disagreement`.
    labellers : which labellers to compare, by name or class; all that suit the number of classes by default.

    >>> plan = pate(1000, epsilon=1, delta=1e-6, queries=1000)
    >>> [each.labeller for each in plan.bought][:3], plan.best().labeller
    (['two-coin', 'greedy', 'confident'], 'greedy')
    """
    ballots = Ballots.guess(teachers, classes=classes, disagreement=disagreement, margins=margins)
    wanted = None if queries is None else integer(queries, "queries", least=1)
    exact_epsilon, exact_delta = check_epsilon(epsilon), check_delta(delta, positive=True)
    compared = [kind for kind in REGISTRY.values() if kind.is_compared(ballots.classes)]
    found = [
        bought(one, ballots, epsilon=exact_epsilon, delta=exact_delta, loss=check_share(loss, "loss"), exact=False)
        for one in (compared if labellers is None else labellers)
    ]
    return Answers(
        teachers=ballots.teachers,
        classes=ballots.classes,
        guarantee=Guarantee(epsilon=float_above(exact_epsilon), delta=float_above(exact_delta), protects="rows"),
        loss=float(check_share(loss, "loss")),
        bought=tuple(sorted(found, key=lambda each: -each.answers)),
        queries=wanted,
    )


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────

Setting = Literal["realizable", "tsybakov", "agnostic"]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a theorem promises: an error above that of `against`, with so many labels and teachers.

    `excess` is an order: printed constants are kept, those that hide in Õ(·) or are called universal are 1 and
    logarithms under a tilde are left out. `formula` is what was evaluated. So ratios of bounds and how they scale mean
    something, a bound by itself does not, and a promise above 1 is none. `labels` and `teachers` are what the theorem
    takes, `teachers` None where it has an O(·) only. `solved` is the error of Theorem 22 before its tilde, logarithms
    and all: the least α that the teachers for the labels that α itself needs can promise, with C₁ = C₂ = 1.
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
class Bounds:
    """Theorems for one setting, side by side.

    `assumed` are the quantities that some of the theorems know and that were not given, with the values taken for them,
    which are those that promise most. A bound that uses one is not compared with others on equal terms.
    """

    setting: str
    rows: int
    public: int
    bounds: tuple[Bound, ...]
    assumed: tuple[str, ...] = ()

    def vacuous(self, bound: Bound) -> bool:
        """Whether the bound promises nothing: it is not below 1, or takes more teachers than there are rows."""
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
            lines.append(f"Assumed, as not given, the values that promise most: {', '.join(self.assumed)}")
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
    setting: Setting = "realizable",
    active: bool | None = None,
    tau: object = None,
    theta: object = None,
    eta: object = None,
    best_error: object = None,
    unclear: object = None,
    margin: object = None,
    apart: object = None,
    failure: Number = 0.05,
) -> Bounds:
    """The error that the theorems on PATE promise, so that Table 1 of their paper can be printed and compared.

    As in the table, no more of the public rows are labelled than makes the bound least. What the theorems of a setting
    do not know is refused, and so is an ε above ln(2/δ) where Theorems 19 and 20, which assume it, are asked for.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*: Theorem 5 (sparse vector, after
    Bassily, Thakkar, Thakurta), Theorem 10 (sparse vector, under Tsybakov noise), Theorem 19 and Theorem 20 (against
    the vote of endlessly many teachers, Proposition 18), Theorem 22 (active), Theorem 28 (Gaussian), Table 1. In
    Theorem 28 the printed number of teachers has εm outside of the root, its proof inside; the proof is followed.
    Definition 17 is read with ≤ ξ for the printed > ξ.

    Parameters
    ----------
    rows, public : private rows with labels, public rows without.
    dimension : the VC dimension of the hypotheses.
    epsilon, delta : the privacy of the private rows.
    setting : "realizable", "tsybakov" or "agnostic".
    active : only the active bound, or only the passive ones; all by default.
    tau : the exponent of Tsybakov's noise condition, in (0, 1]; 1 by default.
    theta : the disagreement coefficient, for active learning; 1 by default.
    eta : the factor of Tsybakov's noise condition, at least 1; 1 by default.
    best_error : the error of the best hypothesis, 0 by default; not for the realizable setting, where it is 0.
    unclear, margin : a share ν of points have an expected margin of at most ξ; for the agnostic setting.
    apart : how far the best hypothesis is from the vote of endlessly many teachers, with these two; 0 by default.
    failure : the probability with which the promise may fail.

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
        raise ValueError("theta and eta must be left out with active=False: only the active bound knows them")
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
        tau=_between(1 if tau is None else tau, "tau", above=0, most=1),
        theta=_between(1 if theta is None else theta, "theta", least=1),
        eta=_between(1 if eta is None else eta, "eta", least=1),
        best_error=_between(0 if best_error is None else best_error, "best_error", least=0, most=1),
        failure=float(check_share(failure, "failure")),
    )
    found: list[Bound] = []
    if setting == "agnostic":
        if active:
            raise ValueError("active must be False or None in the agnostic setting: no theorem promises anything there")
        found.append(problem.theorem_5(agnostic=True))
        if (unclear is None) != (margin is None) or (unclear is None and apart is not None):
            raise ValueError("unclear and margin must be given together, and apart only with them")
        if unclear is not None:
            nu, xi = _between(unclear, "unclear", least=0, most=1), _between(margin, "margin", above=0, most=0.5)
            gap = _between(0 if apart is None else apart, "apart", least=0, most=1)
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
    return Bounds(setting=setting, rows=have, public=pool, bounds=tuple(found), assumed=assumed)


def _theorems(bounds: list[Bound]) -> str:
    return f"Theorem{'s' * (len(bounds) > 1)} {', '.join(str(each.theorem) for each in bounds)}"


def _assumed(given: dict[str, object], found: list[Bound], setting: str) -> tuple[str, ...]:
    """What was not given, of all that the theorems found depend on."""
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

    def theorem_28(self) -> Bound:
        power = self.tau / (2 - self.tau)
        labels, excess = self._fewest(lambda m: self.d / m + (self.d * math.sqrt(m) / (self.n * self.epsilon)) ** power)
        return Bound(
            theorem=28, algorithm="Gaussian", against="h*", excess=excess, labels=labels,
            teachers=math.ceil(self._gaussian_teachers(labels)), formula="d/m + (d√m/(nε))^(τ/(2−τ))",
        )  # fmt: skip

    def theorem_5(self, *, agnostic: bool) -> Bound:
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
        return Bound(
            theorem=5, algorithm="sparse vector", against="h*", excess=excess, labels=labels, teachers=None,
            formula=formula,
        )  # fmt: skip

    def theorem_10(self) -> Bound:
        power = self.tau / (4 - 3 * self.tau)
        labels, excess = self._fewest(
            lambda m: self.d / m + (m * self.d**2 / (self.n * self.epsilon) ** 2) ** power
        )
        return Bound(
            theorem=10, algorithm="sparse vector", against="h*", excess=excess, labels=labels, teachers=None,
            formula="d/m + (md²/(nε)²)^(τ/(4−3τ))",
        )  # fmt: skip

    def theorem_22(self) -> Bound:
        power = self.tau / (2 - self.tau)
        drawn = self.d**1.5 * math.sqrt(self.theta * self.log_delta) / (self.n * self.epsilon)
        alpha = self._active_error()
        asked = math.ceil(self._active_labels(min(alpha, 1.0)))
        return Bound(
            theorem=22, algorithm="Gaussian, active", against="h*", excess=max(drawn**power, self.d / self.m),
            labels=asked, teachers=math.ceil(self._gaussian_teachers(asked)), solved=alpha,
            formula="max{(d^(3/2)·√(θ·log(1/δ))/(nε))^(τ/(2−τ)), d/m}",
        )  # fmt: skip

    def _active_labels(self, alpha: float) -> float:
        """ℓ = θ·(1 + log(1/α))·(d·log θ + log(2·log(1/α)/γ)), with C₂ = 1, and no more than there are public rows."""
        tail = math.log(_log(1 / alpha) / (self.failure / 2))
        labels = self.theta * (1 + math.log(1 / alpha)) * (self.d * math.log(self.theta) + tail)
        return min(self.m, max(1.0, labels))

    def _active_error(self) -> float:
        """The least α ≥ max{η^(2/(2−τ))·((dK·log(n/d) + log(2K/γ))/n)^(τ/(2−τ)), (d·log((m+n)/d) + log(2/γ))/m}.

        K depends on α through the labels, and falls as α grows; so α is found by bisection. θ is one number for all α.
        """
        d, n, power = self.d, self.n, 1 / (2 - self.tau)

        def promised(alpha: float) -> float:
            teachers = self._gaussian_teachers(self._active_labels(alpha))
            drawn = (d * teachers * _log(n / d) + math.log(2 * teachers / self.failure)) / n
            unlabelled = (d * _log((self.m + n) / d) + math.log(2 / self.failure)) / self.m
            return float(max((self.eta**2 * drawn**self.tau) ** power, unlabelled))

        if promised(1.0) >= 1:
            return promised(1.0)
        low, high = -35.0, 0.0  # of log α: `high` is promised
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if promised(math.exp(middle)) <= math.exp(middle) else (middle, high)
        return math.exp(high)

    def theorems_19_and_20(self, nu: float, xi: float, apart: float) -> list[Bound]:
        m, gamma = self.m, self.failure / 2  # both hold with probability 1 − 2γ
        log_delta_2 = self.log_delta + math.log(2)
        log_gamma = math.log(3 / gamma)
        cut = nu * m + math.sqrt(2 * nu * m * log_gamma) + 2 / 3 * log_gamma
        scale = (math.sqrt(2 * cut * (self.epsilon + log_delta_2)) + math.sqrt(2 * cut * log_delta_2)) / self.epsilon
        log_m = math.log(3 * m / gamma)
        wide = 3 * scale * (math.log(4 * m) + self.log_delta + log_m) / xi
        teachers = math.ceil(max(2 * log_m / xi**2, wide))
        return [
            Bound(
                theorem=19, algorithm="sparse vector", against="endless vote", labels=m, teachers=teachers,
                excess=apart + 2 * cut / m + math.sqrt(self.d / m), formula="Dis(h, h_∞) + 2T/m + √(d/m)",
            ),
            Bound(
                theorem=20, algorithm="sparse vector, voting", against="endless vote", labels=m, teachers=teachers,
                excess=4 * cut / m + 5 * (teachers * self.d + math.log(4 / gamma)) / m,
                formula="4T/m + 5(Kd + log(4/γ))/m, as printed",
            ),
        ]  # fmt: skip

    def _gaussian_teachers(self, labels: float) -> float:
        """K = 6·√log(2n)·(√(ℓ·log(1/δ)) + √(ℓ·log(1/δ) + εℓ))/ε."""
        root = math.sqrt(labels * self.log_delta) + math.sqrt(labels * self.log_delta + self.epsilon * labels)
        return 6 * math.sqrt(math.log(2 * self.n)) * root / self.epsilon

    def _fewest(self, bound: Callable[[float], float]) -> tuple[int, float]:
        """How many of the public rows make a bound least that first falls and then grows with them, and that bound."""
        low, high = 1, self.m
        while high - low > 2:
            third = (high - low) // 3
            left, right = low + third, high - third
            low, high = (low, right) if bound(left) <= bound(right) else (left, high)
        labels = min(range(low, high + 1), key=bound)
        return labels, bound(labels)


def _log(value: float) -> float:
    """A logarithm in a bound that means to be large: no less than 1."""
    return max(1.0, math.log(value))


def _only(given: dict[str, object], setting: str, *settings: str) -> None:
    """Refuse what would be ignored."""
    for name, value in given.items():
        if value is not None and setting not in settings:
            where = " and ".join(repr(each) for each in settings)
            raise ValueError(f"{name}={value} must be left out: it is for the setting {where}, got {setting!r}")


def _between(
    value: object, name: str, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> float:
    number = float(rational(value, name))
    if not (least <= number <= most and number > above):
        low = f"above {above:g}" if math.isfinite(above) else f"at least {least:g}"
        high = f" and at most {most:g}" if math.isfinite(most) else ""
        raise ValueError(f"{name} must be {low}{high}, got {value}")
    return number
