"""The plan of `reticent fit`: which learner to take, from public numbers alone, and what to expect of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reticent.cli.errors import UsageError
from reticent.cli.truth_options import NOTHING_LATER, TruthOptions

if TYPE_CHECKING:
    from reticent.data.schema import Schema
    from reticent.plan.advise import Advice
    from reticent.plan.options import Option
    from reticent.plan.planned_phases import Everlasting
    from reticent.privacy.guarantee import Guarantee

Learner = Literal["auto", "linear", "trees", "thresholds", "private", "private-model"]

Stage = Literal["given", "expected", "found"]

START = {
    "given": "The plan, from the header of {table}, the schema and the number of rows. No row has been read yet.",
    "expected": "The plan, from the header of {table} and the number of rows. No row has been read yet.",
    "found": "The plan with the schema that was found.",
}
NOTABLE_GAIN = 0.01  # of all answers: what another option must gain before `fit` asks for confirmation
PLANNED = {
    "linear": "linear", "trees": "other", "thresholds": "thresholds", "private": "private",
    "private-model": "private-model",
}  # fmt: skip  # what `plan.everlasting` calls these learners
LINEAR_MODELS = {"one-shot": "private-model", "chain": "private"}  # the learner that serves an option, if it is linear
OPTION_OF = {learner: option for option, learner in LINEAR_MODELS.items()}
USELESS = 0.25  # of all answers: a loss with which `fit` asks for confirmation, since half would be mere guessing
MOST_NAMED = 20  # classes that the plan names
ROWS_PER_TREE = 100  # the fewest rows with which a tree is a useful teacher
FOURIER = (
    "Here one-shot and chain are private models on random Fourier features, which follow a smooth boundary. Only "
    "Python makes them: PrivateLogisticRegression(fourier_features=…). --learner private-model and --learner private "
    "are linear. Before you spend anything, compare such a model with trees, both without privacy, on public rows."
)

COMPARE = (
    "No figure here says how good that linear model is. If no line or plane separates the classes, it is hardly better "
    "than chance. Compare it with trees on public rows first (if they are clearly better: --learner trees), or add "
    "--compare: it tries a model with curved boundaries as well, privately and within the same ε and δ."
)
ONE_MODEL = (
    "One-shot is one private model that answers without end and never learns from queries: --learner private-model. "
    "Its guarantee protects the rows, and not queries, whose contents it does not store."
)
ONE_ROW = (
    "These figures assume one row per person. If people have several rows, fewer rows are learned from, and losses are "
    "larger."
)
NO_QUERIES = (
    "PROTECTS: rows{together}, and not queries: nothing is learned from them, and their contents are not stored. The "
    "model is public: you may export it, and serve its probabilities."
)
AUTOMATIC = (
    "AUTO TAKES ONE PRIVATE MODEL (--learner private-model): one-shot is expected to lose least. To follow drift by "
    "learning from queries, which are then protected too, choose --learner private."
)


@dataclass(frozen=True)
class BetterOption:
    """An option that is better by much than the chosen one; that may be to spend nothing.

    Attributes
    ----------
    words : str
        What it is, and how much better.
    instead : str
        What to do instead of continuing, in a few words.
    title : str, default "another option is better"
        Why to stop, in a few words.
    """

    words: str
    instead: str
    title: str = "another option is better"


@dataclass(frozen=True)
class FitChoice:
    """The learner that was chosen, its plan, and the advice.

    Attributes
    ----------
    schema : Schema
        The schema of the table.
    learner : str
        What answers, never "auto".
    answers : int or str
        The number of queries to answer, or "endless".
    phases : dict
        Parameters of the predictor that set its phases.
    plan : Everlasting
        The phases that result.
    advice : Advice
        The expected loss of every option.
    epsilon, delta : Fraction, int or float
        The privacy of a phase.
    schema_price : tuple or None, default None
        What the rows of the table pay for a private schema, if there is one: ε and δ.
    labels_price : Fraction, default 0
        The ε that they pay for the check of labels; 0 if there is none.
    stage : {"given", "expected", "found"}, default "given"
        Where the schema comes from: a file, a guess of its width, or a private release.
    automatic : bool, default False
        Whether the learner was chosen here, and not named by the caller.
    later : TruthOptions
        Where labels come from after the table, and when there is an alarm.
    """

    schema: Schema
    learner: str
    answers: int | str
    phases: dict[str, Any]
    plan: Everlasting
    advice: Advice
    epsilon: Any
    delta: Any
    schema_price: tuple[Any, Any] | None = None
    labels_price: Fraction = Fraction(0)
    stage: Stage = "given"
    automatic: bool = False
    later: TruthOptions = NOTHING_LATER

    @property
    def besides(self) -> tuple[Any, Any] | None:
        """What the rows of the table pay before anything is learned from them, ε and δ; None for nothing."""
        epsilon, delta = self.schema_price or (0, 0)
        return (epsilon + self.labels_price, delta) if self.labels_price or self.schema_price else None

    @property
    def holds(self) -> bool:
        """Whether the rows are enough for the plan."""
        return bool(self.plan.phases) and self.plan.sustained

    @property
    def reference(self) -> str:
        """The model that losses are against, in words."""
        from reticent.plan.advise import REFERENCES

        return "trees, without privacy" if self.learner == "trees" else REFERENCES[self.advice.reference]

    @property
    def option_name(self) -> str:
        """What the advice calls this choice."""
        return OPTION_OF.get(self.learner) or _votes(self.answers)

    @property
    def has_phases(self) -> bool:
        """Whether there are phases that learn, and not one model for ever."""
        return self.learner != "private-model"

    def better(self) -> BetterOption | None:
        """What is better by much; None if nothing is."""
        learned = self.later.truth != "rows"  # whether queries are
        if learned and self.schema.group is not None and self.learner != "private" and len(self.plan.phases) > 1:
            least = self.plan.phases[1].teachers
            return BetterOption(
                f"with a group, all queries of a client stay together, and the next phase needs {least:,} clients or "
                "more, since every teacher learns from clients of its own. If there will be fewer, give --answers a "
                "number that one phase can give, or take --learner private",
                "choose --learner private",
            )
        best, mine = self.advice.best, self._option()
        if self.later.truth is not None:  # other options do not learn from later labels
            best = mine
        if mine.possible and mine is best and mine.loss >= USELESS:
            return BetterOption(
                f"{'the first phase' if self.later.truth else best.name} is expected to lose {best.loss:.0%} of all "
                f"answers to {self.reference}"
                + ("" if self.later.truth else ", and every other option at least as much")
                + ": little can be learned from so few rows at this ε",
                "bring more rows, learn from fewer columns, or choose a larger --epsilon",
                "no option is good",
            )
        if not mine.possible or mine.loss - best.loss < NOTABLE_GAIN:
            return None
        learner = self._serves(best)
        how = f", from Python: {best.estimator}" if learner is None else f" (--learner {learner})"
        return BetterOption(
            f"{best.name} is expected to lose {best.loss:.1%} of all answers to {self.reference}, and "
            f"{self.option_name} {mine.loss:.1%}. Better take {best.name}{how}",
            f"take {best.name} from Python" if learner is None else f"choose --learner {learner}",
        )

    def _serves(self, option: Option) -> str | None:
        """The learner that makes an option, if it is one private model or a chain; None if only Python makes it.

        These learners are linear: they are what advice means by a private model only if a linear model suits the data.
        """
        return LINEAR_MODELS.get(option.name) if self.advice.reference == "linear" else None

    def _option(self) -> Option:
        # With later labels, all rows of the table train the first model of a chain: it is as good as one model.
        name = "one-shot" if self.later.truth and self.learner == "private" else self.option_name
        return next(option for option in self.advice.options if option.name == name)

    def required(self) -> str:
        """Why this plan is refused, and what is needed."""
        plan = self.plan
        if plan.phases:
            return "this cannot be sustained: " + plan.why
        remedies = [f"at least {plan.rows_required:,} rows"]
        if plan.epsilon_required > plan.guarantee.epsilon:
            remedies.append(f"--epsilon {plan.epsilon_required:.3g}")
        if plan.finite:
            remedies.append(f"--answers {plan.finite}")
        if self.learner in ("linear", "thresholds"):
            remedies.append(f"--learner {self._serves(self.advice.best) or 'private'}")
        found = f"{plan.rows:,} rows are too few for this; use {', or '.join(remedies)}"
        if self.learner == "trees":
            return (
                f"{found}. A private model needs far fewer rows, but --learner private-model is linear: it helps only "
                "if a linear model is nearly as good as trees on your data"
            )
        return found

    def text(
        self, table: Path, promised: Guarantee, *, client_share: Any, client_phases: int, compare: bool = False
    ) -> str:
        """The plan and the advice, for the terminal; without the advice to compare models if that will be done."""
        schema = self.schema
        about = "about " if self.stage == "expected" else ""
        numbers = f"{about}{schema.width:,} number{'s' * (schema.width != 1)} per row"
        columns = f"{len(schema.columns):,} column{'s' * (len(schema.columns) != 1)} ({numbers})"
        if self.stage == "found" and not self.has_phases and self.plan.sustained:
            return f"The plan stays as it is, with {columns}."
        lines = [
            START[self.stage].format(table=table.name),
            columns + ("" if schema.group is None else f", grouped by {schema.group!r}"),
            f"{len(schema.classes)} classes: {_first(schema.classes)}; any other label counts as "
            f"{schema.classes[0]!r}",
            "",
            str(replace(self.plan, learner=self.learner, two_coin=None)),  # `fit` has no option for such a labeller
            *self._budget(promised, client_phases),
        ]
        if self.stage == "found":  # the rest was said before
            return "\n".join(lines)
        lines += [
            *self._delta(),
            *self._who_is_learned_from(client_share, client_phases),
            *self.later.words(self.plan.truth, group=schema.group),
        ]
        if self.later.truth is not None:
            known = self._option().possible
            first = f"Expect of the first phase: {self.expectation()}. Later ones follow their labels."
            return "\n".join([*lines, *([first] if known else []), *([ONE_ROW] if schema.group is not None else [])])
        lines += [
            "",
            f"What each option is expected to lose, of all answers, to {self.reference} (→ marks the "
            "chosen one):",
        ]
        for option in self.advice.options:
            if option.name == "one-shot with public rows":
                continue  # `fit` takes no public rows
            mark = "→" if option.name == self.option_name else " "
            loss = f"{option.loss:.1%}" if option.possible else f"cannot be done: {option.why}"
            if not option.possible and option.name == _votes(1) and self.answers == "endless":
                loss += " (--answers N)"
            lines.append(f"{mark} {option.name:14} {loss}")
        if schema.group is not None:
            lines.append(ONE_ROW)
        if self.learner != "private-model" and self.advice.best.name == "one-shot" and self._serves(self.advice.best):
            lines.append(ONE_MODEL)
        if self.advice.reference == "linear":
            lines += [] if compare else [COMPARE]
        elif self.learner == "trees":
            lines.append(FOURIER)
        return "\n".join(lines)

    def _budget(self, promised: Guarantee, phases: int) -> list[str]:
        """The privacy of everything together, and what it is for, if that is not what a phase costs."""
        if (promised.epsilon, promised.delta) == (self.plan.guarantee.epsilon, self.plan.guarantee.delta):
            return []
        options = ["--label-share"] if self.labels_price else []
        options += [] if self.schema_price is None else ["--schema-share"]
        shares = f" ({', '.join(options)})" if options else ""
        total = f"In total ε = {promised.epsilon:g}, δ = {promised.delta:g}: {'; '.join(self.spending())}{shares}."
        more = (
            f" A client may enter {phases} phases (--client-phases), and each costs the ε and δ above."
            if phases > 1
            else ""
        )
        return [total + more]

    def spending(self) -> list[str]:
        """What the budget is for, one part at a time, in plain words."""
        parts = [f"ε = {float(self.labels_price):.4g} to check labels"] if self.labels_price else []
        what = "the first phase" if self.has_phases else "the model"
        if self.schema_price is None:
            return [*parts, f"{_price(self.epsilon, self.delta)} for {what}"]
        epsilon, delta = self.schema_price
        if self.learner in OPTION_OF:  # both have Gaussian noise, so that together they cost less than their sum
            return [*parts, f"{_price(self.epsilon + epsilon, self.delta + delta)} for the schema and {what} together"]
        return [*parts, f"{_price(epsilon, delta)} for the schema", f"{_price(self.epsilon, self.delta)} for {what}"]

    def expectation(self) -> str:
        """How good answers will be, in one sentence."""
        mine = self._option()
        if not mine.possible:
            return "no figure is known for this option"
        loss = "less than 0.1%" if mine.loss < 0.0005 else f"about {mine.loss:.1%}"
        if self.schema.group is not None:
            return f"{loss} fewer right answers than {self.reference}, if each {self.schema.group!r} has one row"
        return f"{loss} fewer right answers than {self.reference}"

    def _delta(self) -> list[str]:
        """A warning if δ is too large for the number of rows; both are public."""
        from reticent.privacy.parameters import check_delta

        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            check_delta(self.plan.guarantee.delta, rows=self.plan.rows)
        return [f"WARNING: {one.message}" for one in given]

    def _who_is_learned_from(self, share: Any, phases: int) -> list[str]:
        """Whose rows and queries are learned from."""
        if not self.has_phases:
            first = [] if self.schema.group is None else ["With a group, only its first row is learned from."]
            together = "" if self.schema.group is None else f", all rows of one {self.schema.group!r} together"
            return [*([AUTOMATIC] if self.automatic else []), *first, NO_QUERIES.format(together=together)]
        if self.later.truth == "rows":
            return [] if self.schema.group is None else ["With a group, only its first row is learned from."]
        if self.schema.group is None:
            return [] if len(self.plan.phases) < 2 else [_share_of_clients(share)]
        if self.learner != "private":
            lines = ["With a group, there are at most as many teachers as groups, and later as many as clients."]
            return lines if len(self.plan.phases) < 2 or share == 1 else [*lines, _share_of_clients(share)]
        lines = [
            "With a group, only its first row is learned from and, in each phase, only the first query of each client."
        ]
        if len(self.plan.phases) > 1:
            least = self.plan.phases[1].rows
            lines += [
                f"So the {least:,} rows of phase 2 come from {least:,} clients"
                + (". " if share == 1 else ", whatever --client-share is. ")
                + "Callers without a key count as one client: without keys, the next phase never fills.",
                f"A client enters at most {phases} phase{'s' if phases > 1 else ''} (--client-phases): its later "
                "queries are answered, but not learned from. Where too few clients are new, the next phase keeps the "
                "model.",
            ]
        return lines


def _price(epsilon: Any, delta: Any) -> str:
    return f"ε = {float(epsilon):.4g}, δ = {float(delta):.4g}"


def _share_of_clients(share: Any) -> str:
    if share == 1:
        return "Every query is learned from, whoever asks: one client may give all rows of a phase (--client-share)."
    least = math.ceil(1 / share) if 0 < share < 1 else 1
    return (
        f"No client gives more than {float(share):.3g} of the rows of a phase (--client-share): with fewer than "
        f"{least:,} clients each phase is smaller than planned, and so are all that follow."
    )


def choose(
    schema: Schema,
    rows: int,
    learner: str,
    *,
    epsilon: Any,
    delta: Any,
    answers: int | str,
    drift: Literal["none", "slow", "fast"],
    client_share: Any = 1,
    client_phases: int = 1,
    schema_price: tuple[Any, Any] | None = None,
    labels_price: Fraction = Fraction(0),
    stage: Stage = "given",
    later: TruthOptions = NOTHING_LATER,
) -> FitChoice:
    """Choose the learner and plan its phases, from public numbers alone."""
    from reticent.plan.advise import advise
    from reticent.plan.everlasting import everlasting
    from reticent.plan.expectations import DRIFT_GROWTH

    if learner == "thresholds" and (schema.width != 1 or len(schema.classes) != 2):
        raise UsageError("--learner thresholds is for two classes and one column, which is a number")
    if learner == "private-model" and (client_share != 1 or client_phases != 1):
        raise UsageError(
            "--client-share and --client-phases limit what is learned from queries, and --learner private-model learns "
            "nothing from them: leave them out"
        )
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "classes": len(schema.classes), "answers": answers}
    advice = advise(
        rows,
        schema.width,
        drift=drift if later.truth is None else "none",  # later labels follow it: the first phase is what is expected
        black_box=learner == "trees",
        concept="thresholds" if learner == "thresholds" else None,
        **common,
    )
    automatic = learner == "auto"
    if automatic:
        # Limits on what is learned from clients are for learners that learn from queries.
        limited = client_share != 1 or client_phases != 1 or later.needs_phases
        learner = LINEAR_MODELS["chain"]  # votes need far more labels per phase
        if later.truth is None:
            learner = _automatic(advice, answers, grouped=schema.group is not None, limited=limited)
    phases: dict[str, Any] = {"rows_per_teacher": ROWS_PER_TREE if learner == "trees" else "auto"}
    if drift != "none" and learner != "private-model" and later.truth is None:
        phases |= {"growth": DRIFT_GROWTH, "max_rows": rows}  # short phases, as advised, follow the drift
    plan = everlasting(
        rows,
        schema.width,
        learner=PLANNED[learner],  # type: ignore[arg-type]
        phases=4,
        **phases,
        **later.plan_parameters(),
        **common,
    )
    return FitChoice(
        schema, learner, answers, phases, plan, advice, epsilon, delta, schema_price, labels_price, stage, automatic,
        later,
    )  # fmt: skip


def _automatic(advice: Advice, answers: int | str, *, grouped: bool, limited: bool) -> str:
    """The learner that "auto" stands for: one private model where that is best, else votes or a chain."""
    if advice.best.name == "one-shot" and not limited:
        return LINEAR_MODELS["one-shot"]
    votes = _votes(answers)
    ranked = [option for option in advice.options if option.name in (votes, "chain") and option.possible]
    # With groups, votes of later phases need as many clients as teachers, which few services have.
    takes_votes = ranked and ranked[0].name == votes and not (grouped and answers == "endless")
    return "linear" if takes_votes else "private"


def _votes(answers: int | str) -> str:
    return "endless votes" if answers == "endless" else "finite votes"


def _first(values: Sequence[Any]) -> str:
    """Public values in one line; the first ones, if there are many."""
    written = [repr(value) for value in values]
    return ", ".join(written if len(written) <= MOST_NAMED else [*written[:MOST_NAMED], "…"])
