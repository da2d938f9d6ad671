"""The options for answering queries privately, each with what it needs and what it is expected to lose."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Thresholds
from reticent.errors import InsufficientData
from reticent.learners.public_rows import FEWEST
from reticent.plan import expectations
from reticent.plan.everlasting import follow
from reticent.plan.expectations import BLACK_BOX_ROWS, DRIFT_GROWTH, FOURIER, GROWTH
from reticent.predictors.engines import votes
from reticent.predictors.phases import MOST_NOISE, Phase, Schedule, check_schedule, relative_noise
from reticent.privacy.parameters import check_choice
from reticent.teachers.pate_settings import active_queries, auto_teachers

NO_PUBLIC_ROWS = "it needs public rows without labels, at least some hundred"
LABEL_OPTIONS = ("chain with labels", "votes with labels")
LEARN = "labels will come: learn from them, not from answers of its own"
NO_LABELS = "no labels are expected to come later; if some will, say so and ask again"
DANGER = (
    "DANGER: it learns from its own answers, and nothing shows it that they have become wrong; on most recorded "
    "streams it ended below a model that never changes"
)
GET_LABELS = (
    "Nothing here follows the drift. Learning from one's own answers does not, unless classes stay well apart, and may "
    "end below a model that never changes. Get labels for some of the later queries, and ask again: a tenth of them is "
    "enough on most streams. Until then take one private model, and test it from time to time on rows whose labels you "
    "know."
)


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option for answering queries, and what it is expected to lose to the `Advice.reference`.

    Parameters
    ----------
    name : str
        The option, one of `OPTIONS`.
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
class LearningTask:
    """The problem as the user describes it, with one method per option. `advise` describes its fields."""

    rows: int
    features: int
    epsilon: Fraction
    delta: Fraction
    answers: int | None
    public_rows: int
    raw_columns: bool
    drift: expectations.Drift
    classes_apart: bool
    later_labels: Fraction
    label_delay: int
    labels_by: Literal["rows", "feedback"]
    black_box: bool
    classes: int
    concept: str | None
    bits: int | None

    def __post_init__(self) -> None:
        for name in ("black_box", "raw_columns", "classes_apart"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {type(getattr(self, name)).__name__}")
        self._check_labels()
        if self.concept not in (None, "thresholds"):
            raise ValueError(f"concept must be None or 'thresholds', got {self.concept!r}")
        if self.thresholds and (self.black_box or self.classes > 2 or self.features > 1):
            raise ValueError("concept='thresholds' is for two classes and one column, and for no black box")
        if self.bits is not None and not self.thresholds:
            raise ValueError("bits are those of the column that a threshold separates: they need concept='thresholds'")

    def _check_labels(self) -> None:
        check_choice(self.drift, "drift", ("none", "slow", "fast"))
        check_choice(self.labels_by, "labels_by", ("rows", "feedback"))
        if self.later_labels < 0:
            raise ValueError(f"later_labels must not be negative, got {float(self.later_labels):g}")
        if self.labels_by == "feedback" and self.later_labels > 1:
            raise ValueError(
                f"later_labels must be at most 1 with feedback, which is for queries, got {float(self.later_labels):g}"
            )
        if self.label_delay and not self.later_labels:
            raise ValueError("label_delay is for labels that will come: give later_labels as well")

    @property
    def thresholds(self) -> bool:
        """Whether a threshold separates the classes."""
        return self.concept == "thresholds"

    @property
    def disputed(self) -> float:
        """The share of queries on which teachers disagree."""
        alike = self.thresholds or self.classes_apart
        return expectations.DISPUTED_APART if alike else expectations.DISPUTED

    # ── one private model ─────────────────────────────────────────────────────────────────────────────────────────

    def one_shot(self) -> Option:
        """One private model of all rows."""
        noise, loss = self.model(self.rows)
        why = "one private model answers any number of queries at no further cost; "
        if self.thresholds:
            why += f"it promises an error of at most {noise:.2g}" if noise < 1 else "it promises nothing on so few rows"
        else:
            why += self.drowned(FOURIER if self.black_box else self.features)
        if self.black_box:
            why += f"; {FOURIER} random Fourier features replace the black box, if a smooth kernel suits the data"
        if self.raw_columns and not self.thresholds:
            why += "; it loses by columns that are not scaled: give bounds, if ranges are public"
        return self.option("one-shot", loss, noise, self.learner, why, static=True)

    def public_one_shot(self) -> Option:
        """One private model of all rows, in directions and scales that public rows have."""
        name = "one-shot with public rows"
        estimator = f"PrivateLogisticRegression({self.budget}, public=…)"
        if self.thresholds or self.black_box:
            return self.refused(name, estimator, "it is a linear model")
        if self.public_rows < FEWEST:
            return self.refused(name, estimator, NO_PUBLIC_ROWS)
        kept = expectations.directions(
            self.rows, self.features, self.public_rows, epsilon=self.epsilon, delta=self.delta
        )
        noise, loss = expectations.public_model(
            self.rows, self.features, self.public_rows, scaled=not self.raw_columns, **self.size
        )
        why = f"one private model, in the {kept:,} directions in which public rows vary most; {self.drowned(kept)}"
        return self.option(name, loss, noise, estimator, why, static=True)

    def chain(self) -> Option:
        """One private model per phase, with a drift test that takes rows away from training."""
        estimator = f"EverlastingPredictor({self.learner}, {self.budget}, classes=…{self.followed})"
        if self.later_labels:
            return self.refused("chain", estimator, LEARN)
        noise, loss = self.model(max(1, self.rows * 4 // 5))
        schedule = self.schedule()
        phases = [phase for phase, _ in zip(schedule.phases(self.rows), range(3), strict=False)]
        why = "one private model per phase, trained again if a private test finds that queries have drifted"
        if self.drift != "none" and self.classes_apart:
            loss += expectations.BEHIND[self.drift]
            why += "; it notices drift late" if self.drift == "slow" else "; it notices a fast drift too late"
        elif self.drift != "none":
            loss, why = loss + self.misled, f"{why}; {DANGER}"
        return self.option("chain", loss, noise, estimator, why, phases=phases)

    @property
    def misled(self) -> float:
        """What learning from its own answers is expected to lose by drift, if classes overlap."""
        return expectations.outdated(self.drift, self.horizon) + expectations.MISLED

    @property
    def horizon(self) -> float | None:
        """How many queries will be answered for each row; None if that is not known, or without end."""
        return None if self.answers is None else self.answers / self.rows

    def model(self, rows: int) -> expectations.Expected:
        """Return the noise of a private model, as a share of the rows, and what the model loses."""
        if self.thresholds:
            return expectations.threshold_model(rows, self.bits, epsilon=self.epsilon, delta=self.delta)
        return expectations.linear_model(
            rows, self.features, scaled=not self.raw_columns, black_box=self.black_box, **self.size
        )

    def drowned(self, columns: int) -> str:
        """Return how many rows a linear model of this many columns needs."""
        rows = expectations.drowned(columns, **self.size)
        return f"at {rows:,} rows its noise weighs as much as a tenth of the rows"

    @property
    def size(self) -> dict[str, Any]:
        """What the noise of votes and models depends on, besides rows and columns."""
        return {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}

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
        return f"epsilon={written(self.epsilon)}, delta={written(self.delta)}"

    # ── teachers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def pate(self) -> Option:
        """A student that learns from teachers' labels for public rows."""
        estimator = f"PATEClassifier({self.teacher}{self.teacher and ', '}{self.budget}, classes=…)"
        if self.public_rows == 0:
            return self.refused("pate", estimator, NO_PUBLIC_ROWS)
        labels = active_queries(self.public_rows)
        teachers = auto_teachers(self.rows, self.rows, queries=labels, **self.size)
        noise = relative_noise(teachers, labels, **self.size)
        loss = expectations.student(
            noise,
            labels,
            self.features,
            rows_per_teacher=self.rows / teachers,
            disputed=self.disputed,
            black_box=self.black_box,
        )
        why = f"{teachers:,} teachers label {labels:,} public rows; a student of these answers any number of queries"
        return self.option("pate", loss, noise, estimator, why, static=True, teachers=teachers)

    def finite_votes(self) -> Option:
        """The teachers' noisy majority, for a given number of answers."""
        if self.answers is None:
            estimator = self.voters(f", answers=…{self.followed}")
            return self.refused("finite votes", estimator, "the number of answers must be known")
        return self.voted("finite votes", self.answers)

    def endless_votes(self) -> Option:
        """The teachers' noisy majority, without end."""
        return self.voted("endless votes", "endless")

    def voted(self, name: str, answers: int | str) -> Option:
        """Votes, if the predictor accepts this many rows for this many answers."""
        estimator = self.voters(("" if answers == "endless" else f", answers={answers}") + self.followed)
        recipe, schedule = self.recipe, self.schedule(answers)
        if self.later_labels and (answers == "endless" or schedule.phase(1, self.rows, 0).handed_on):
            return self.refused(name, estimator, LEARN)
        phases, _, sustained = follow(recipe, schedule, self.rows, 3)
        if not sustained:
            return self.refused(name, estimator, self.shortage(recipe, schedule))
        first = phases[0]
        noise = relative_noise(first.teachers, first.answers, **self.size)
        loss = expectations.votes(noise, disputed=self.disputed, black_box=self.black_box)
        why = f"{first.teachers:,} teachers of {recipe.rows_per_teacher} rows vote on every query"
        if not first.handed_on:
            why += ", in one phase"
        elif self.drift != "none" and self.classes_apart:
            loss += expectations.FOLLOWS[self.drift]
            why += "; they are trained again in every phase and follow a drift"
        elif self.drift != "none":
            loss, why = loss + self.misled, f"{why}; {DANGER}"
        static = not first.handed_on
        return self.option(name, loss, noise, estimator, why, static=static, phases=phases, teachers=first.teachers)

    @property
    def recipe(self) -> votes.VotesFactory:
        """What decides which phases of teachers are accepted."""
        return votes.VotesFactory(
            learner=Thresholds() if self.thresholds else DecisionTreeClassifier() if self.black_box else None,
            classes=self.classes,
            columns=self.features,
            epsilon=self.epsilon,
            delta=self.delta,
            rows_per_teacher=votes.rows_for_a_teacher(BLACK_BOX_ROWS if self.black_box else "auto", self.features),
        )

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

    def voters(self, phases: str) -> str:
        """Return the predictor that votes, as an expression."""
        more = f", rows_per_teacher={BLACK_BOX_ROWS}" if self.black_box else ""
        return f"EverlastingPredictor({self.teacher}{self.teacher and ', '}{self.budget}, classes=…{more}{phases})"

    # ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, answers: int | str = "endless") -> Schedule:
        """Return phases that grow; if inputs drift, short phases of one size."""
        return check_schedule(
            growth=DRIFT_GROWTH if self.drift != "none" else GROWTH,
            held_back=Fraction(1, 10),
            answers=answers,
            max_rows=self.rows if self.drift != "none" else None,
            training_stream="queries",
        )

    @property
    def followed(self) -> str:
        """The arguments for short phases."""
        return f", growth={float(DRIFT_GROWTH):g}, max_rows={self.rows}" if self.drift != "none" else ""

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
        if static and self.drift != "none":
            loss += expectations.outdated(self.drift, self.horizon)
            why += "; it does not follow a drift"
        return Option(
            name=name,
            possible=True,
            loss=min(expectations.HALF, loss),
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
        if best.name in LABEL_OPTIONS:
            return (
                "Learn from labels as they come: each enters one phase, so everybody still pays ε and δ once. Add "
                "alarm=QualityAlarm(accuracy=…) to be told when quality is lost. A model without later labels is not "
                "enough here."
            )
        if best.name.startswith("one-shot") or best.name == "pate":
            return self._remark_on_one_model()
        if best.loss >= 0.25:
            return "No option is good here. More rows, a larger epsilon or labelled rows of the new kind would help."
        if self.drift != "none":
            return (
                "Drift is followed without labels, which works only as long as most answers are right: if classes "
                "overlap, or swap faster than phases follow each other, errors are learned and nothing shows it. Set "
                "an alarm, and get labels if you can."
            )
        return "A private model would need far fewer rows, if one suits the data."

    def _remark_on_one_model(self) -> str:
        if self.drift != "none" and not self.later_labels:
            return GET_LABELS
        if self.black_box:
            return (
                "One private model on random Fourier features needs the fewest rows, and its answers cost nothing. "
                "It replaces the black box only if a smooth kernel suits the data: compare the two on public rows, "
                "without privacy, before you spend anything."
            )
        later = "later labels would hardly make it better"
        return (
            "One private model is enough: it needs the fewest rows, its answers cost nothing, and "
            f"{later if self.later_labels else 'it learns nothing from queries'}. Phases are for inputs that drift: "
            "they learn from labels that come later or, if none will and classes stay well apart, from their own "
            "answers."
        )


def written(number: Fraction) -> str:
    """Return a number as text: short if that is the same float, else with all its digits."""
    short = f"{float(number):g}"
    return short if float(short) == float(number) else repr(float(number))
