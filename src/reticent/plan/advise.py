"""How to answer queries privately: by one model, a student of teachers, votes or a chain of models; and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reticent.exact import Number, integer, rational
from reticent.plan.label_options import chain_with_labels, votes_with_labels
from reticent.plan.options import LABEL_OPTIONS, LearningTask, Option
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above

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

OPTIONS = ("one-shot", "one-shot with public rows", "pate", "finite votes", "endless votes", "chain", *LABEL_OPTIONS)


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
            lose = f"expected to lose {each.loss:.1%} to {REFERENCES[self.reference]}"
            lines.append(f"{rank}. {each.name}, {lose} (noise {each.noise:.3g}): {each.why}")
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
    raw_columns: bool = False,
    drift: Literal["none", "slow", "fast"] = "none",
    classes_apart: bool = False,
    later_labels: Number = 0,
    label_delay: int = 0,
    labels_by: Literal["rows", "feedback"] = "rows",
    black_box: bool = False,
    classes: int = 2,
    concept: Literal["thresholds"] | None = None,
    bits: int | None = None,
) -> Advice:
    """Compare the options for answering queries privately, best first, from public numbers alone.

    The options are **one-shot**, one private model that answers indefinitely; **one-shot with public rows**, the same
    in directions and scales that public rows have; **pate**, a student of teachers' private
    labels for public rows; **finite votes** and **endless votes**, the teachers' noisy majority on every query, for a
    given number of answers or indefinitely; **chain**, one private model per phase; and, if labels will come later,
    **chain with labels** and **votes with labels**, whose phases learn from these and not from their own answers.

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
    raw_columns : bool, default False
        Whether columns are raw numbers of very different ranges, and no bounds of them are public. One private model
        loses by that, above all with many columns or few rows. Teachers do not: each scales the columns of its own
        rows.
    drift : {"none", "slow", "fast"}, default "none"
        How fast the best model changes. Think of a model that suits today's queries, at the time when ten times as many
        queries have been answered as there are rows: "none" if it is as good as today, "slow" if it is right for up to
        five answers in a hundred less, "fast" if for more.
    classes_apart : bool, default False
        Whether classes stay well apart while they drift: a model without privacy that knows today's labels is right for
        at least 97 answers in a hundred, at all times. Only then can a predictor follow drift by its own answers.
    later_labels : float or Fraction, default 0
        How many true labels will come later, per query: 1 if the outcome of every query becomes known, 0.1 if that of
        every tenth one. New labelled rows count as well: 100 of them while 1,000 queries are asked are 0.1.
    label_delay : int, default 0
        How many queries are asked between a query and its label.
    labels_by : {"rows", "feedback"}, default "rows"
        How they will come: "rows" if you hand over new labelled rows, "feedback" if those who asked give outcomes back.
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
    >>> advise(10_000, 20, epsilon=1, delta=1e-6, drift="slow", later_labels=0.1).best.name
    'chain with labels'
    >>> advise(20_000, 5, epsilon=4, delta=1e-6, drift="fast", classes_apart=True).best.name
    'endless votes'
    """
    asked = LearningTask(
        rows=integer(rows, "rows", least=1),
        features=integer(features, "features", least=1),
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta, positive=True),
        answers=None if answers in (None, "endless") else integer(answers, "answers", least=1),
        public_rows=integer(public_rows, "public_rows", least=0),
        raw_columns=raw_columns,
        drift=drift,
        classes_apart=classes_apart,
        later_labels=rational(later_labels, "later_labels"),
        label_delay=integer(label_delay, "label_delay", least=0),
        labels_by=labels_by,
        black_box=black_box,
        classes=integer(classes, "classes", least=2),
        concept=concept,
        bits=None if bits is None else integer(bits, "bits", least=1),
    )
    options = [
        asked.one_shot(),
        asked.public_one_shot(),
        asked.pate(),
        asked.finite_votes(),
        asked.endless_votes(),
        asked.chain(),
        chain_with_labels(asked),
        votes_with_labels(asked),
    ]
    ranked = sorted(options, key=lambda each: (not each.possible, each.loss))
    return Advice(
        rows=asked.rows,
        features=asked.features,
        guarantee=Guarantee(epsilon=float_above(asked.epsilon), delta=float_above(asked.delta), protects="rows"),
        options=tuple(ranked),
        remark=asked.remark(ranked[0]),
        reference="threshold" if asked.thresholds else "black box" if asked.black_box else "linear",
    )
