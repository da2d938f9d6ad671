"""How to answer queries privately: by one model, a student of teachers, votes or a chain of models; and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Floats, Thresholds
from reticent.errors import InsufficientData
from reticent.exact import Number, integer
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.plan.everlasting import follow
from reticent.plan.thresholds import threshold
from reticent.predictors.engines import votes
from reticent.predictors.phases import MOST_NOISE, Phase, Schedule, check_schedule, relative_noise
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.teachers.pate_settings import active_queries, auto_teachers

Reference = Literal["linear", "black box", "threshold"]
REFERENCES: dict[Reference, str] = {
    "linear": "a linear model of these columns, without privacy",
    "black box": "the black box itself, without privacy",
    "threshold": "the best threshold, without privacy",
}  # the models that losses are relative to
CHECK = (
    "No figure here says how good that linear model is. If no line or plane separates the classes, as in XOR, it is "
    "hardly better than chance, and so is every option that comes close to it. Check this before you spend anything: "
    "compare a linear model with trees or boosting, by cross-validation, on public rows of the same kind, or on rows "
    "that need no protection. If the black box is clearly better, ask again with {how}."
)

OPTIONS = ("one-shot", "pate", "finite votes", "endless votes", "chain")

# How teachers and models are set up, both in the measurements and in the advice.
GROWTH, DRIFT_GROWTH = Fraction(2), Fraction(6, 5)  # short phases follow a drift
BLACK_BOX_ROWS = 100  # rows per teacher that is not a linear model
FOURIER = 400  # random features, with which one private model replaces a black box
AXES = 100  # of the public rows, in which the student of PATE learns

# What an option loses, as a share of all answers. Rules of thumb, each from measurements; see the documentation.
DROWNED = 0.1  # a private model whose noise weighs as much as all rows that pull in one direction
NEAREST = 0.8  # times the noise, as a share of all votes: how often noise overturns a vote if every lead is as likely
DISPUTED, DISPUTED_THRESHOLDS = 0.5, 0.1  # how often teachers of few rows disagree
STUDENT = 0.05  # a student with as many labels as columns
WORST_PROMISE = 0.25  # of the error that a threshold's promise allows
SMOOTH = 0.02  # random Fourier features, if a black box suits the data
BLACK_BOX_STUDENT = 0.5  # a black box with as many labels as columns; it falls with the root of the labels
WEAK = 0.03  # a black box that has the rows of one teacher
OUTDATED = {"slow": 0.3, "fast": 0.45}  # an option that does not follow a drift
BEHIND = {"slow": 0.1, "fast": 0.4}  # a chain, which notices a drift late
FOLLOWS = {"slow": 0.0, "fast": 0.02}  # votes, which are trained again in every phase


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option for answering queries, and what it is expected to lose to the `Advice.reference`.

    Parameters
    ----------
    name : {"one-shot", "pate", "finite votes", "endless votes", "chain"}
        The option.
    possible : bool
        Whether the rows allow it. If not, `why` says what is missing.
    loss : float
        Expected loss, as a share of all answers.
    noise : float or None
        Noise as a share of all votes, or of all rows that pull a model in one direction; for a threshold, the promised
        error. None if the option is not possible.
    teachers : int
        Number of teachers; 0 if there are none.
    phases : tuple of pairs of int
        Rows and answers of the first phases.
    estimator : str
        An expression to copy. Fill in each …, and your own learner for `your_learner`.
    why : str
        What the option does, and what it depends on.
    """

    name: str
    possible: bool
    loss: float
    noise: float | None
    teachers: int
    phases: tuple[tuple[int, int], ...]
    estimator: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All options, best first; those that are not possible come last.

    Parameters
    ----------
    rows, features : int
        Private rows, and their columns.
    guarantee : Guarantee
        The privacy that all options keep.
    options : tuple of Option
        Best first.
    remark : str
        What to know about the best option.
    reference : {"linear", "black box", "threshold"}
        The non-private model that losses are relative to. How good that model is depends on the data, which are not
        looked at.
    """

    rows: int
    features: int
    guarantee: Guarantee
    options: tuple[Option, ...]
    remark: str
    reference: Reference

    @property
    def best(self) -> Option:
        """The option to take."""
        return self.options[0]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, black_box: str = "black_box=True") -> str:
        """Return all options in words; `black_box` is how the reader asks for advice on a black box."""
        privacy = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g}"
        columns = f"{self.features:,} column{'s' * (self.features > 1)}"
        lines = [
            f"{self.rows:,} rows of {columns} at {privacy}: {self.best.name}",
            f"Losses are shares of all answers, against {REFERENCES[self.reference]}.",
        ]
        for rank, each in enumerate(self.options, start=1):
            if not each.possible:
                lines.append(f"–  {each.name}: {each.why}")
                continue
            lines.append(f"{rank}. {each.name}, expected to lose {each.loss:.1%} (noise {each.noise:.3g}): {each.why}")
            if each.phases:
                shown = ", then ".join(f"{rows:,} rows → {answers:,} answers" for rows, answers in each.phases)
                who = f" by {each.teachers:,} teachers" if each.teachers else ""
                lines.append(f"   phases: {shown}{who}")
            lines.append(f"   {each.estimator}")
        if self.reference == "linear":
            lines.append(CHECK.format(how=black_box))
        return "\n".join([*lines, self.remark])


def advise(
    rows: int,
    features: int,
    *,
    epsilon: Number,
    delta: Number,
    answers: int | str | None = None,
    public_rows: int = 0,
    drift: Literal["none", "slow", "fast"] = "none",
    black_box: bool = False,
    classes: int = 2,
    concept: Literal["thresholds"] | None = None,
    bits: int | None = None,
) -> Advice:
    """Compare the options for answering queries privately, best first, from public numbers alone.

    The options are **one-shot**, one private model that answers indefinitely; **pate**, a student of teachers' private
    labels for public rows; **finite votes** and **endless votes**, the teachers' noisy majority on every query, for a
    given number of answers or indefinitely; and **chain**, one private model per phase.

    Each option has an expected loss, by a rule of thumb for each cause: noise, few labels, weak teachers and drift. It
    is relative to a model that is not private, the `reference`: a linear one, unless `black_box` or `concept` says
    otherwise. The documentation has the rules, their sources, and how often they were right elsewhere. Privacy does
    not depend on them: every option keeps its guarantee.

    One-shot and pate learn nothing from queries. Votes and chain do, and protect queries as they protect rows. Advice
    spends nothing.

    Parameters
    ----------
    rows : int
        Number of private rows.
    features : int
        Number of columns (features).
    epsilon : float or Fraction
        Privacy-loss bound ε.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.
    answers : int or "endless", optional
        How many answers are needed: a number, or "endless". Leave it out if that is not known.
    public_rows : int, default 0
        Number of rows without labels that may be published.
    drift : {"none", "slow", "fast"}, default "none"
        How fast the best model changes while as many queries are answered as there are rows: "slow" if a little,
        "fast" if clearly. This assumes that classes move but stay well apart. If they overlap much, drift cannot be
        followed without labels: leave it at "none".
    black_box : bool, default False
        Whether only learners without a private counterpart, such as trees, suit the data.
    classes : int, default 2
        Number of classes.
    concept : {"thresholds"}, optional
        "thresholds" if a threshold on one column separates the classes.
    bits : int, optional
        Size of the domain of that column: the integers in [0, 2^bits). By default its values are floats.

    Returns
    -------
    Advice

    Examples
    --------
    >>> advise(10_000, 20, epsilon=1, delta=1e-6).best.name
    'one-shot'
    >>> advise(20_000, 5, epsilon=4, delta=1e-6, answers="endless", drift="fast").best.name
    'endless votes'
    >>> advise(2_000, 5, epsilon=4, delta=1e-6, answers="endless", drift="slow").best.name
    'chain'
    """
    if drift not in ("none", "slow", "fast"):
        raise ValueError(f"drift must be 'none', 'slow' or 'fast', got {drift!r}")
    asked = _Asked(
        rows=integer(rows, "rows", least=1),
        features=integer(features, "features", least=1),
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta, positive=True),
        answers=None if answers in (None, "endless") else integer(answers, "answers", least=1),
        public_rows=integer(public_rows, "public_rows", least=0),
        drift=False if drift == "none" else drift,
        black_box=black_box,
        classes=integer(classes, "classes", least=2),
        concept=concept,
        bits=None if bits is None else integer(bits, "bits", least=1),
    )
    options = [asked.one_shot(), asked.pate(), asked.finite_votes(), asked.endless_votes(), asked.chain()]
    ranked = sorted(options, key=lambda each: (not each.possible, each.loss))
    return Advice(
        rows=asked.rows,
        features=asked.features,
        guarantee=Guarantee(epsilon=float_above(asked.epsilon), delta=float_above(asked.delta), protects="rows"),
        options=tuple(ranked),
        remark=asked.remark(ranked[0]),
        reference="threshold" if asked.thresholds else "black box" if asked.black_box else "linear",
    )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The problem as the user describes it, with one method per option."""

    rows: int
    features: int
    epsilon: Fraction
    delta: Fraction
    answers: int | None
    public_rows: int
    drift: Literal[False, "slow", "fast"]  # False for "none"
    black_box: bool
    classes: int
    concept: str | None
    bits: int | None

    def __post_init__(self) -> None:
        if not isinstance(self.black_box, bool):
            raise TypeError(f"black_box must be True or False, got {type(self.black_box).__name__}")
        if self.concept not in (None, "thresholds"):
            raise ValueError(f"concept must be None or 'thresholds', got {self.concept!r}")
        if self.thresholds and (self.black_box or self.classes > 2 or self.features > 1):
            raise ValueError("concept='thresholds' is for two classes and one column, and for no black box")
        if self.bits is not None and not self.thresholds:
            raise ValueError("bits are those of the column that a threshold separates: they need concept='thresholds'")

    @property
    def thresholds(self) -> bool:
        """Whether a threshold separates the classes."""
        return self.concept == "thresholds"

    @property
    def disputed(self) -> float:
        """The share of queries on which teachers disagree."""
        return DISPUTED_THRESHOLDS if self.thresholds else DISPUTED

    # ── one private model ─────────────────────────────────────────────────────────────────────────────────────────

    def one_shot(self) -> Option:
        """One private model of all rows."""
        noise, loss = self.model(self.rows)
        why = "one private model answers any number of queries at no further cost; "
        if self.thresholds:
            why += f"it promises an error of at most {noise:.2g}" if noise < 1 else "it promises nothing on so few rows"
        else:
            why += f"at {self.drowned():,} rows its noise weighs as much as a tenth of the rows"
        if self.black_box:
            why += f"; {FOURIER} random Fourier features replace the black box, if a smooth kernel suits the data"
        return self.option("one-shot", loss, noise, self.learner, why, static=True)

    def chain(self) -> Option:
        """One private model per phase, with a drift test that takes rows away from training."""
        noise, loss = self.model(max(1, self.rows * 4 // 5))
        schedule = self.schedule()
        phases = [phase for phase, _ in zip(schedule.phases(self.rows), range(3), strict=False)]
        why = "one private model per phase, trained again if a private test finds that queries have drifted"
        if self.drift:
            loss += BEHIND[self.drift]
            why += "; it notices drift late" if self.drift == "slow" else "; it notices a fast drift too late"
        estimator = f"EverlastingPredictor({self.learner}, {self.budget}, classes=…{self.followed})"
        return self.option("chain", loss, noise, estimator, why, phases=phases)

    def model(self, rows: int) -> tuple[float, float]:
        """Return the noise of a private model, as a share of the rows, and what the model loses by it."""
        if self.thresholds:
            domain = Floats() if self.bits is None else None
            promise = threshold(bits=self.bits, domain=domain, rows=rows, epsilon=self.epsilon, delta=self.delta).error
            worst = 1.0 if promise is None else promise
            return worst, min(0.5, WORST_PROMISE * worst)
        noise = 0.1 * self.drowned() / rows
        return noise, min(0.5, DROWNED * noise) + (SMOOTH if self.black_box else 0.0)

    def drowned(self) -> int:
        """Return the rows at which the noise of a linear model weighs as much as a tenth of all rows."""
        columns = FOURIER if self.black_box else self.features
        # What a model loses by its noise was measured without rounds of second moments.
        model = PrivateLogisticRegression(epsilon=self.epsilon, delta=self.delta, row_norm=1, rounds=0)
        return model.n_required(0.1, columns=columns, classes=self.classes)

    @property
    def learner(self) -> str:
        """The private learner, as an expression."""
        if self.thresholds:
            values = "domain=Floats()" if self.bits is None else f"bits={self.bits}"
            return f"ThresholdLearner({values}, {self.budget})"
        features = f", fourier_features={FOURIER}" if self.black_box else ""
        return f"PrivateLogisticRegression({self.budget}, row_norm=…{features})"

    @property
    def budget(self) -> str:
        """ε and δ, as arguments."""
        return f"epsilon={_written(self.epsilon)}, delta={_written(self.delta)}"

    # ── teachers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def pate(self) -> Option:
        """A student that learns from teachers' labels for public rows."""
        estimator = f"PATEClassifier({self.teacher}{self.teacher and ', '}{self.budget}, classes=…)"
        if self.public_rows == 0:
            return self.refused("pate", estimator, "it needs public rows without labels, at least some hundred")
        labels = active_queries(self.public_rows)
        known: dict[str, Any] = {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}
        teachers = auto_teachers(self.rows, self.rows, queries=labels, **known)
        noise = relative_noise(teachers, labels, **known)
        # A student averages out labels that are wrong at random, if they are few.
        wrong = min(0.5, NEAREST * self.disputed * noise**2)
        few = STUDENT * min(self.features, AXES) / labels
        if self.black_box:
            few = BLACK_BOX_STUDENT * math.sqrt(self.features / labels)
        why = f"{teachers:,} teachers label {labels:,} public rows; a student of these answers any number of queries"
        return self.option("pate", min(0.5, wrong + few), noise, estimator, why, static=True, teachers=teachers)

    def finite_votes(self) -> Option:
        """The teachers' noisy majority, for a given number of answers."""
        if self.answers is None:
            return self.refused("finite votes", self.voters(", answers=…"), "the number of answers must be known")
        return self.voted("finite votes", self.answers)

    def endless_votes(self) -> Option:
        """The teachers' noisy majority, without end."""
        return self.voted("endless votes", "endless")

    def voted(self, name: str, answers: int | str) -> Option:
        """Votes, if the predictor accepts this many rows for this many answers."""
        estimator = self.voters("" if answers == "endless" else f", answers={answers}")
        recipe = votes.VotesFactory(
            learner=Thresholds() if self.thresholds else DecisionTreeClassifier() if self.black_box else None,
            classes=self.classes,
            columns=self.features,
            epsilon=self.epsilon,
            delta=self.delta,
            rows_per_teacher=votes.rows_for_a_teacher(BLACK_BOX_ROWS if self.black_box else "auto", self.features),
        )
        schedule = self.schedule(answers)
        phases, _, sustained = follow(recipe, schedule, self.rows, 3)
        if not sustained:
            return self.refused(name, estimator, self.shortage(recipe, schedule))
        first = phases[0]
        known: dict[str, Any] = {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}
        noise = relative_noise(first.teachers, first.answers, **known)
        loss = min(0.5, NEAREST * self.disputed * noise) + (WEAK if self.black_box else 0.0)
        why = f"{first.teachers:,} teachers of {recipe.rows_per_teacher} rows vote on every query"
        if self.drift:
            loss += FOLLOWS[self.drift] if first.handed_on else OUTDATED[self.drift]
            why += "; they are trained again in every phase and follow a drift" if first.handed_on else ", in one phase"
        return self.option(name, loss, noise, estimator, why, phases=phases, teachers=first.teachers)

    def shortage(self, recipe: votes.VotesFactory, schedule: Schedule) -> str:
        """Return what votes lack."""
        try:
            recipe.complete(schedule.phase(1, self.rows, 0), self.rows, schedule)
        except InsufficientData as error:
            return f"the noise would exceed {MOST_NOISE:g} of all votes; at least {error.required:,} rows are needed"
        return "a later phase would have too few rows"

    @property
    def teacher(self) -> str:
        """The teachers' learner, as an expression; empty for the default."""
        return "Thresholds()" if self.thresholds else "your_learner" if self.black_box else ""

    def voters(self, answers: str) -> str:
        """Return the predictor that votes, as an expression."""
        more = f", rows_per_teacher={BLACK_BOX_ROWS}" if self.black_box else ""
        parts = f"{self.teacher}{self.teacher and ', '}{self.budget}{answers}, classes=…{more}{self.followed}"
        return f"EverlastingPredictor({parts})"

    # ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, answers: int | str = "endless") -> Schedule:
        """Return phases that grow; if inputs drift, short phases of one size."""
        return check_schedule(
            growth=DRIFT_GROWTH if self.drift else GROWTH,
            held_back=Fraction(1, 10),
            answers=answers,
            max_rows=self.rows if self.drift else None,
            training_stream="queries",
        )

    @property
    def followed(self) -> str:
        """The arguments for short phases."""
        return f", growth={float(DRIFT_GROWTH):g}, max_rows={self.rows}" if self.drift else ""

    def option(
        self,
        name: str,
        loss: float,
        noise: float,
        estimator: str,
        why: str,
        *,
        static: bool = False,
        phases: list[Phase] | tuple[()] = (),
        teachers: int = 0,
    ) -> Option:
        """Return an option that is possible. If it is `static`, a drift makes it outdated."""
        if static and self.drift:
            loss, why = loss + OUTDATED[self.drift], f"{why}; it does not follow a drift"
        return Option(
            name=name,
            possible=True,
            loss=min(0.5, loss),
            noise=noise,
            teachers=teachers,
            phases=tuple((phase.rows, phase.queries) for phase in phases),
            estimator=estimator,
            why=why,
        )

    def refused(self, name: str, estimator: str, why: str) -> Option:
        """Return an option that is not possible."""
        return Option(
            name=name, possible=False, loss=1.0, noise=None, teachers=0, phases=(), estimator=estimator, why=why
        )

    def remark(self, best: Option) -> str:
        """Return what to know about the best option."""
        if best.name == "one-shot":
            if self.black_box:
                return (
                    "One private model on random Fourier features needs the fewest rows, and its answers cost nothing. "
                    "It replaces the black box only if a smooth kernel suits the data: compare the two on public rows, "
                    "without privacy, before you spend anything."
                )
            return (
                "One private model is enough: it needs the fewest rows, its answers cost nothing, and it learns "
                "nothing from queries. Votes and chains are for inputs that drift: each phase learns from the queries "
                "of the one before, and protects them as it protects rows."
            )
        if best.loss >= 0.25:
            return "No option is good here. More rows, a larger epsilon or labelled rows of the new kind would help."
        if self.drift:
            return "Drift is followed without labels. This fails if classes swap faster than phases follow each other."
        return "A private model would need far fewer rows, if one suits the data."


def _written(number: Fraction) -> str:
    """Return a number as text: short if that is the same float, else with all its digits."""
    short = f"{float(number):g}"
    return short if float(short) == float(number) else repr(float(number))
