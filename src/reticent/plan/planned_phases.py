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
        return "\n".join([*lines, self.why])

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
