"""Which way to answer queries privately: one model, a student of teachers, votes or a chain of models; and why."""

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
from reticent.predictors.phases import MOST_NOISE, Phase, check_schedule, relative_noise
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.teachers.pate_settings import active_queries, auto_teachers

Reference = Literal["linear", "black box", "threshold"]
REFERENCES: dict[Reference, str] = {
    "linear": "a linear model of these columns, without privacy",
    "black box": "the black box itself, without privacy",
    "threshold": "the best threshold, without privacy",
}  # what losses are against
CHECK = (
    "No figure here says how good that linear model is. Where no line or plane parts the classes, as in XOR, it is "
    "hardly better than a coin, and so is every way that comes close to it. Find out before you spend anything: "
    "compare a linear model with trees or boosting, by cross-validation, on public rows of the same kind, or on rows "
    "that you may tell about. If the black box is clearly better, ask again with {how}."
)

WAYS = ("one-shot", "pate", "finite votes", "endless votes", "chain")

# How teachers and models are set up, for what was measured and is advised alike.
GROWTH, DRIFT_GROWTH = Fraction(2), Fraction(6, 5)  # short phases follow what drifts
BLACK_BOX_ROWS = 100  # a teacher that is no linear model needs so many
FOURIER = 400  # random features, by which one private model stands in for a black box
AXES = 100  # of the public rows, in which the student of PATE learns

# What a way loses, in shares of all answers. Rules of thumb, each from what was measured; see docs.
DROWNED = 0.1  # a private model, if its noise weighs as much as all rows that pull one way
NEAREST = 0.8  # of the noise, as a share of all votes: so often a vote is turned over where every lead is as likely
TORN, TORN_THRESHOLDS = 0.5, 0.1  # how often teachers of few rows do not all agree
STUDENT = 0.05  # a student with as many labels as columns
WORST_PROMISE = 0.25  # of the error that a threshold's promise allows
SMOOTH = 0.02  # random Fourier features, where a black box would suit the data
BLACK_BOX_STUDENT = 0.5  # a black box with as many labels as columns; it falls with the root of the labels
WEAK = 0.03  # a black box that has the rows of one teacher
OUTDATED = {"slow": 0.3, "fast": 0.45}  # what does not follow a drift
BEHIND = {"slow": 0.1, "fast": 0.4}  # a chain, which notices late
FOLLOWS = {"slow": 0.0, "fast": 0.02}  # votes, which learn anew in every phase


@dataclass(frozen=True, kw_only=True)
class Option:
    """A way to answer: what it is expected to lose to the `Advice.reference`, what it does, and why.

    `noise` is a share: of all votes, or of all rows that pull a model one way; for a threshold, the error promised.
    `phases` are the rows and answers of the first phases, where there are phases. `estimator` is an expression to be
    copied: fill in each …, and your own learner for `your_learner`. An option that is not `possible`
    says in `why` what it would take.
    """

    way: str
    possible: bool
    loss: float
    noise: float | None
    teachers: int
    phases: tuple[tuple[int, int], ...]
    estimator: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All ways, the best first; those that cannot be taken are last.

    Losses are against the `reference`, a model that is not private: "linear", "black box" or "threshold", whichever
    the user says suits the data. How good that model is, nobody knows who has not seen the data.
    """

    rows: int
    features: int
    guarantee: Guarantee
    options: tuple[Option, ...]
    remark: str
    reference: Reference

    @property
    def best(self) -> Option:
        """The way to take."""
        return self.options[0]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, black_box: str = "black_box=True") -> str:
        """All ways in words; `black_box` is how the reader asks for advice on a black box."""
        privacy = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g}"
        columns = f"{self.features:,} column{'s' * (self.features > 1)}"
        lines = [
            f"{self.rows:,} rows of {columns} at {privacy}: {self.best.way}",
            f"Losses are shares of all answers, against {REFERENCES[self.reference]}.",
        ]
        for place, each in enumerate(self.options, start=1):
            if not each.possible:
                lines.append(f"–  {each.way}: {each.why}")
                continue
            lines.append(f"{place}. {each.way}, expected to lose {each.loss:.1%} (noise {each.noise:.3g}): {each.why}")
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
    """Which way to answer queries privately, the best first, from public numbers alone.

    The ways are **one-shot**, one private model that answers for ever; **pate**, a student of teachers' private labels
    for public rows; **finite votes** and **endless votes**, the teachers' noisy majority on every query, for a given
    number of answers or for ever; and **chain**, a private model a phase. Each is given a loss that it is expected to
    have by a rule of thumb for each cause: noise, few labels, weak teachers and drift. It is against a model that is
    not private, the `reference`: a linear one, unless `black_box` or `concept` says otherwise. For the rules, where
    they come from, and how often they were right on other settings, see the documentation. They decide nothing about
    privacy, which every way keeps whether or not they hold.

    One-shot and pate learn nothing from queries; votes and chain do, and protect them as they protect the rows.
    Nothing is spent on advice.

    Parameters
    ----------
    rows, features : how many private rows there are, and of how many columns.
    epsilon, delta : the privacy.
    answers : None if it is not known how many answers are needed, a whole number, or "endless".
    public_rows : rows without labels that may be published.
    drift : "none", or how fast the best model changes where classes move but stay well apart: "slow" if it changes
        little, "fast" if it changes clearly, while as many queries are answered as there are rows. Where classes
        overlap much, drift cannot be followed without labels: then leave it at "none".
    black_box : whether only learners suit the data that have no private counterpart, such as trees.
    classes : how many there are.
    concept : "thresholds" if a threshold on one column tells the classes apart.
    bits : of the values that a threshold parts; None for floats.

    >>> advise(10_000, 20, epsilon=1, delta=1e-6).best.way
    'one-shot'
    >>> advise(20_000, 5, epsilon=4, delta=1e-6, answers="endless", drift="fast").best.way
    'endless votes'
    >>> advise(2_000, 5, epsilon=4, delta=1e-6, answers="endless", drift="slow").best.way
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
    """What the user says of the problem; a method for each way."""

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
            raise ValueError("bits are those of the values that a threshold parts: they need concept='thresholds'")

    @property
    def thresholds(self) -> bool:
        """Whether a threshold tells the classes apart."""
        return self.concept == "thresholds"

    @property
    def torn(self) -> float:
        """On which share of the questions teachers do not all agree."""
        return TORN_THRESHOLDS if self.thresholds else TORN

    # ── one private model ─────────────────────────────────────────────────────────────────────────────────────────

    def one_shot(self) -> Option:
        """A private model of all rows, which answers whatever is asked."""
        noise, loss = self.model(self.rows)
        why = "one private model answers for ever at no further cost; "
        if self.thresholds:
            why += f"it promises an error of at most {noise:.2g}" if noise < 1 else "so few rows promise nothing"
        else:
            why += f"with {self.drowned():,} rows its noise weighs as much as a tenth of them"
        if self.black_box:
            why += f"; {FOURIER} random Fourier features stand in for the black box, if a smooth kernel suits the data"
        return self.option("one-shot", loss, noise, self.learner, why, static=True)

    def chain(self) -> Option:
        """The same in every phase, with a test of drift that takes rows away from training."""
        noise, loss = self.model(max(1, self.rows * 4 // 5))
        schedule = self.schedule()
        phases = [phase for phase, _ in zip(schedule.phases(self.rows), range(3), strict=False)]
        why = "a private model a phase, learned anew when a private test sees that queries have drifted"
        if self.drift:
            loss += BEHIND[self.drift]
            why += "; it notices late" if self.drift == "slow" else "; it notices too late for a fast drift"
        estimator = f"EverlastingPredictor({self.learner}, {self.budget}, classes=…{self.followed})"
        return self.option("chain", loss, noise, estimator, why, phases=phases)

    def model(self, rows: int) -> tuple[float, float]:
        """The noise of a private model, as a share of the rows, and what it loses by it."""
        if self.thresholds:
            domain = Floats() if self.bits is None else None
            promise = threshold(bits=self.bits, domain=domain, rows=rows, epsilon=self.epsilon, delta=self.delta).error
            worst = 1.0 if promise is None else promise
            return worst, min(0.5, WORST_PROMISE * worst)
        noise = 0.1 * self.drowned() / rows
        return noise, min(0.5, DROWNED * noise) + (SMOOTH if self.black_box else 0.0)

    def drowned(self) -> int:
        """The rows at which the noise of a linear model weighs as much as a tenth of all rows."""
        columns = FOURIER if self.black_box else self.features
        model = PrivateLogisticRegression(epsilon=self.epsilon, delta=self.delta, row_norm=1)
        return model.n_required(0.1, columns=columns, classes=self.classes)

    @property
    def learner(self) -> str:
        """The private learner, as it is written down."""
        if self.thresholds:
            values = "domain=Floats()" if self.bits is None else f"bits={self.bits}"
            return f"ThresholdLearner({values}, {self.budget})"
        features = f", fourier_features={FOURIER}" if self.black_box else ""
        return f"PrivateLogisticRegression({self.budget}, row_norm=…{features})"

    @property
    def budget(self) -> str:
        """ε and δ, as they are written down."""
        return f"epsilon={_written(self.epsilon)}, delta={_written(self.delta)}"

    # ── teachers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def pate(self) -> Option:
        """A student that learned from teachers' labels for public rows."""
        estimator = f"PATEClassifier({self.teacher}{self.teacher and ', '}{self.budget}, classes=…)"
        if self.public_rows == 0:
            return self.refused("pate", estimator, "it needs public rows, without labels: some hundred at least")
        labels = active_queries(self.public_rows)
        known: dict[str, Any] = {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}
        teachers = auto_teachers(self.rows, self.rows, queries=labels, **known)
        noise = relative_noise(teachers, labels, **known)
        # A student smooths out labels that are wrong at random, as long as they are few.
        wrong = min(0.5, NEAREST * self.torn * noise**2)
        few = STUDENT * min(self.features, AXES) / labels
        if self.black_box:
            few = BLACK_BOX_STUDENT * math.sqrt(self.features / labels)
        why = f"{teachers:,} teachers label {labels:,} public rows, from which a student learns that answers for ever"
        return self.option("pate", min(0.5, wrong + few), noise, estimator, why, static=True, teachers=teachers)

    def finite_votes(self) -> Option:
        """The teachers' noisy majority, for as many answers as are needed."""
        if self.answers is None:
            return self.refused("finite votes", self.voters(", answers=…"), "the number of answers must be known")
        return self.voted("finite votes", self.answers)

    def endless_votes(self) -> Option:
        """The teachers' noisy majority, for ever."""
        return self.voted("endless votes", "endless")

    def voted(self, way: str, answers: int | str) -> Option:
        """Votes, if the predictor would accept this many rows for this many answers."""
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
            return self.refused(way, estimator, self.shortage(recipe, schedule))
        first = phases[0]
        known: dict[str, Any] = {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}
        noise = relative_noise(first.teachers, first.answers, **known)
        loss = min(0.5, NEAREST * self.torn * noise) + (WEAK if self.black_box else 0.0)
        why = f"{first.teachers:,} teachers of {recipe.rows_per_teacher} rows vote on every query"
        if self.drift:
            loss += FOLLOWS[self.drift] if first.handed_on else OUTDATED[self.drift]
            why += ", anew in every phase: so they follow what drifts" if first.handed_on else ", in a single phase"
        return self.option(way, loss, noise, estimator, why, phases=phases, teachers=first.teachers)

    def shortage(self, recipe: votes.VotesFactory, schedule: Any) -> str:
        """What votes would take."""
        try:
            recipe.complete(schedule.phase(1, self.rows, 0), self.rows, schedule)
        except InsufficientData as error:
            return f"noise would be above {MOST_NOISE:g} of all votes; it needs {error.required:,} rows"
        return "a later phase would have too few rows"

    @property
    def teacher(self) -> str:
        """What teachers are, as it is written down; nothing for the default."""
        return "Thresholds()" if self.thresholds else "your_learner" if self.black_box else ""

    def voters(self, answers: str) -> str:
        """The predictor that votes, as it is written down."""
        more = f", rows_per_teacher={BLACK_BOX_ROWS}" if self.black_box else ""
        parts = f"{self.teacher}{self.teacher and ', '}{self.budget}{answers}, classes=…{more}{self.followed}"
        return f"EverlastingPredictor({parts})"

    # ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, answers: int | str = "endless") -> Any:
        """Phases that grow; or if inputs drift, short ones of the same size."""
        return check_schedule(
            growth=DRIFT_GROWTH if self.drift else GROWTH,
            held_back=Fraction(1, 10),
            answers=answers,
            max_rows=self.rows if self.drift else None,
            training_stream="queries",
        )

    @property
    def followed(self) -> str:
        """What sets up short phases, as it is written down."""
        return f", growth={float(DRIFT_GROWTH):g}, max_rows={self.rows}" if self.drift else ""

    def option(
        self,
        way: str,
        loss: float,
        noise: float,
        estimator: str,
        why: str,
        *,
        static: bool = False,
        phases: list[Phase] | tuple[()] = (),
        teachers: int = 0,
    ) -> Option:
        """A way that can be taken; what does not follow a drift is outdated by it."""
        if static and self.drift:
            loss, why = loss + OUTDATED[self.drift], f"{why}; it does not follow what drifts"
        return Option(
            way=way,
            possible=True,
            loss=min(0.5, loss),
            noise=noise,
            teachers=teachers,
            phases=tuple((phase.rows, phase.queries) for phase in phases),
            estimator=estimator,
            why=why,
        )

    def refused(self, way: str, estimator: str, why: str) -> Option:
        """A way that cannot be taken."""
        return Option(
            way=way, possible=False, loss=1.0, noise=None, teachers=0, phases=(), estimator=estimator, why=why
        )

    def remark(self, best: Option) -> str:
        """What should be known besides."""
        if best.way == "one-shot":
            if self.black_box:
                return (
                    "One private model on random Fourier features needs the fewest rows, and its answers cost nothing. "
                    "It stands in for the black box only where a smooth kernel follows the classes: compare the two on "
                    "public rows, without privacy, before you spend anything."
                )
            return (
                "One private model is enough: it needs the fewest rows, its answers cost nothing, and it learns "
                "nothing from the queries. Votes and chains are for inputs that drift, where the next phase has to "
                "learn from queries, and protects them as it does rows."
            )
        if best.loss >= 0.25:
            return "No way is good here: more rows, a larger epsilon or labelled rows of the new kind would be."
        if self.drift:
            return "Drift is followed without labels: it fails if classes trade places faster than phases turn over."
        return "A private model that suits the data would need far fewer rows, where there is one."


def _written(number: Fraction) -> str:
    """A number as it is written down: short where that is the same float, else with all its digits."""
    short = f"{float(number):g}"
    return short if float(short) == float(number) else repr(float(number))
