"""What the plan of an everlasting predictor holds: its phases, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reticent.labellers.ballots import Bought
from reticent.predictors.engines import votes
from reticent.predictors.phases import NO_END
from reticent.privacy import Guarantee


@dataclass(frozen=True, kw_only=True)
class PlannedPhase:
    """A phase as the predictor will have it.

    Parameters
    ----------
    number : int
        Number of the phase, from 1.
    rows : int
        Rows that it learns from.
    teachers : int
        Number of teachers; 0 if a private model answers.
    answers : int
        Most answers that it gives.
    queries : int
        Most queries of clients among them.
    handed_on : int
        Most rows that the next phase gets.
    noise : float
        Noise as a share of all votes.
    labeller : str
        Name of the labeller, or "model".
    options : dict, optional
        Options of the labeller.
    loss : float, default 0
        Guessed share of answers that differ from the noiseless majority of the teachers.
    """

    number: int
    rows: int
    teachers: int
    answers: int
    queries: int
    handed_on: int
    noise: float
    labeller: str
    options: dict[str, Any] = field(default_factory=dict)
    loss: float = 0.0

    @property
    def endless(self) -> bool:
        """Whether the phase never ends."""
        return self.answers == NO_END


@dataclass(frozen=True, kw_only=True)
class PlannedTruth:
    """What a phase needs of labels that arrive after day one.

    Parameters
    ----------
    source : {"rows", "feedback", "both"}
        Where they come from.
    phase_rows : int
        Labelled rows of a phase, or queries of a phase that have a slot for a label.
    gauge_rows : int
        How many of them judge the phase before, and do not train.
    fewest : int
        With fewer, no phase can begin, not even early.
    labels_per_day : float or None
        How many labelled rows, or queries, arrive per day, if you said so.
    wait : int
        Queries after its window during which a phase takes feedback.
    """

    source: str
    phase_rows: int
    gauge_rows: int
    fewest: int
    labels_per_day: float | None
    wait: int

    @property
    def days(self) -> float | None:
        """The days from one phase to the next."""
        return None if self.labels_per_day is None else (self.phase_rows + self.wait) / self.labels_per_day

    def __str__(self) -> str:
        what = "labelled rows" if self.source == "rows" else "queries, each with a slot for a label"
        lines = [
            f"After the first, a phase learns from {self.phase_rows:,} {what}; {self.gauge_rows:,} of them judge the "
            f"phase before and do not train. At least {self.fewest:,} are needed to begin one early."
        ]
        if self.days is not None:
            often = f"{self.days:.3g} days" if self.days >= 1 else f"{24 * self.days:.3g} hours"
            lines.append(f"At {self.labels_per_day:,g} per day a new phase begins every {often}.")
        late = "labels that come a phase late are learned from a phase late"
        if self.source != "rows":
            late = f"feedback that comes more than {self.wait:,} queries after the window has ended is lost"
        lines.append(f"Labels are worth most while they are new: {late}. A phase trains on true labels alone.")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Everlasting:
    """The phases of an everlasting predictor, and whether they go on as long as requested.

    With a labeller that closes early, such as "two-coin", a phase may hand on fewer rows than planned. Then `phases`
    are the longest possible ones, and `sustained` assumes teachers that always agree.

    Parameters
    ----------
    rows, features : int
        Private rows, and their columns.
    learner : str
        As given to `plan.everlasting`.
    guarantee : Guarantee
        The privacy of the predictor.
    phases : tuple of PlannedPhase
        The first phases; empty if `fit` refuses the first one.
    sustained : bool
        Whether every phase is accepted: without end, or until all answers are given.
    rows_required : int
        Rows with which `fit` accepts the first phase.
    epsilon_required : float
        ε at which `fit` accepts the first phase with the given rows.
    finite : int or None
        Most answers that these rows give in a single phase, with none after it. None if answers never end.
    two_coin : Bought or None
        What a two-coin labeller is expected to give in a first phase. None if that is not more than the answers of the
        phase, or if the plan is for such a labeller.
    why : str
        What decides the result.
    worst : Closings, optional
        What happens if teachers are evenly split on every query. Only for a labeller that closes early.
    disagreement_at_most : float, optional
        The share of disputed queries up to which a phase hands on as many rows as it has. Only for a labeller that
        closes early.
    truth : PlannedTruth, optional
        What a phase needs of labels that arrive later. None if phases learn from their own answers.
    """

    rows: int
    features: int
    learner: str
    guarantee: Guarantee
    phases: tuple[PlannedPhase, ...]
    sustained: bool
    rows_required: int
    epsilon_required: float
    finite: int | None
    two_coin: Bought | None
    why: str
    worst: votes.Closings | None = None
    disagreement_at_most: float | None = None
    truth: PlannedTruth | None = None

    def __str__(self) -> str:
        promise = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g} for {self.guarantee.protects}"
        models = {"private": "one private model per phase", "private-model": "one private model"}
        kind = models.get(self.learner, f"teachers: {self.learner}")
        lines = [f"{self.rows:,} rows of {self.features:,} column{'s' * (self.features > 1)}, {kind}, {promise}"]
        for each in self.phases:
            setup = "".join(f", {name} {value}" for name, value in each.options.items())
            voted = (
                f"{each.teachers:>9,} teachers  noise {each.noise:.3f}  {each.labeller}{setup}, loses {each.loss:.2%}"
            )
            lines.append(
                f"phase {each.number:<3} {each.rows:>13,} rows  "
                f"{'no end of' if each.endless else f'{each.queries:,}':>13} queries  "
                f"{voted if each.teachers else 'one model'}"
            )
        if any(each.teachers for each in self.phases):
            lines.append("Losses are guesses, against the majority of the same teachers without noise.")
        if self.sustained and self.worst is not None and self.worst.ends:
            lines.append("It can be sustained only as long as teachers agree.")
        else:
            lines.append("It can be sustained." if self.sustained else "It cannot be sustained.")
        if self.phases and self.worst is not None:
            lines.append(self._at_worst(self.worst))
        if not self.phases:
            other = f"ε = {self.epsilon_required:.3g} with these rows"
            lines.append(f"At least {self.rows_required:,} rows are needed, or {other}.")
        if self.finite is not None:
            lines.append(f"In a single phase, with none after it, these rows give {self.finite:,} answers.")
        if self.two_coin is not None:
            setup = ", ".join(f"{name} {value}" for name, value in self.two_coin.options.items())
            lines.append(
                f"A two-coin labeller ({setup}) would give about {self.two_coin.answers:,} answers in the first phase "
                f"and lose {self.two_coin.loss:.2%}, if teachers agree as guessed."
            )
        return "\n".join([*lines, *([] if self.truth is None else [str(self.truth)]), self.why])

    def _at_worst(self, worst: votes.Closings) -> str:
        """Describe the phases of a labeller that closes early."""
        name = self.phases[0].labeller
        planned = [(each.rows, each.answers) for each in self.phases]
        if not worst.ends and list(worst.phases) == planned[: len(worst.phases)]:  # later ones are larger
            return (
                f"A {name} labeller closes a phase early if teachers disagree often. Even at worst, if they were "
                "evenly split on every query, no phase would close early."
            )
        given = ", then ".join(f"{answers:,}" for _, answers in worst.phases)
        end = ", and then none" if worst.ends else ", and go on"
        held = (
            " A phase hands on as many rows as it has if teachers disagree on at most "
            f"{self.disagreement_at_most:.1%} of the queries."
            if self.disagreement_at_most is not None and self.disagreement_at_most < 1
            else ""
        )
        return (
            f"A {name} labeller closes a phase early if teachers disagree often. If they were evenly split on every "
            f"query, phases would give {given} answers{end}.{held}"
        )
