"""How many answers each labeller gives for the votes of teachers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reticent.exact import Number, integer
from reticent.labellers import REGISTRY, Labeller
from reticent.labellers.answers import automatic, bought
from reticent.labellers.ballots import Ballots, Bought
from reticent.labellers.search import FURTHEST
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share


@dataclass(frozen=True, kw_only=True)
class LabellerComparison:
    """How many answers each labeller gives, most first, if teachers agree as guessed.

    Parameters
    ----------
    teachers, classes : int
        Number of teachers, and of classes.
    guarantee : Guarantee
        The privacy of the rows that teachers learn from.
    loss : float
        Most loss against the noiseless majority.
    bought : tuple of Bought
        One entry per labeller, most answers first.
    queries : int, optional
        How many answers are needed.
    """

    teachers: int
    classes: int
    guarantee: Guarantee
    loss: float
    bought: tuple[Bought, ...]
    queries: int | None = None

    def best(self, *, stateless: bool = False) -> Bought:
        """Return the labeller to take, by the rule of `reticent.labellers.answers.best`.

        Parameters
        ----------
        stateless : bool, default False
            Whether only labellers without state are considered.

        Returns
        -------
        Bought
            Of a listed labeller that "auto" chooses from.
        """
        found = {each.labeller: each for each in self.bought}
        kinds = automatic(self.classes, stateless=stateless)
        fit = [found[kind.name] for kind in kinds if kind.name in found]
        if not fit:
            raise ValueError("labellers must include one that 'auto' chooses from, to find the best")
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
        guessed = "These numbers rest on a guess of how often teachers agree. The guarantee holds in any case."
        return "\n".join([*lines, guessed])


def pate(
    teachers: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    queries: int | None = None,
    disagreement: Number | None = None,
    loss: Number = 0.01,
    margins: Sequence[float] | None = None,
    labellers: Sequence[str | type[Labeller]] | None = None,
) -> LabellerComparison:
    """Compare labellers: how many answers each gives for the votes of teachers.

    How often noise changes an answer depends on how often teachers agree. The guess is that they all agree, except on a
    share `disagreement` of the queries, where every lead of the winner is equally likely. In its place `margins` lists
    public leads, such as those of teachers on public rows. Answers are counted as long as the expected share that
    differs from the noiseless majority is at most `loss`. If no noise could lose more, the number is 10^15 and stands
    for any. Labellers that close by themselves ("two-coin", "sparse-vector") have an expected number. Those that may
    decline a query ("confident", "sparse-vector") count what they answer.

    Nothing here depends on private data, so nothing is spent. The guess does not affect any guarantee.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithms 1 and 2, for "gaussian"
    and "sparse-vector"; the labellers' own pages for the others.

    Parameters
    ----------
    teachers : int
        Number of teachers.
    epsilon : float or Fraction
        Privacy-loss bound ε of the rows that teachers learn from.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.
    classes : int, default 2
        Number of classes.
    queries : int, optional
        How many answers are needed.
    disagreement : float or Fraction, optional
        Guessed share of queries on which teachers disagree; 0.1 by default.
    loss : float or Fraction, default 0.01
        Most loss: the share of answers that may differ from the noiseless majority.
    margins : sequence of float, optional
        Leads of the winner, as shares of the teachers, in place of `disagreement`.
    labellers : sequence of str or type, optional
        Labellers to compare; by default all that suit the number of classes.

    Returns
    -------
    LabellerComparison

    Examples
    --------
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
    return LabellerComparison(
        teachers=ballots.teachers,
        classes=ballots.classes,
        guarantee=Guarantee(epsilon=float_above(exact_epsilon), delta=float_above(exact_delta), protects="rows"),
        loss=float(check_share(loss, "loss")),
        bought=tuple(sorted(found, key=lambda each: -each.answers)),
        queries=wanted,
    )
