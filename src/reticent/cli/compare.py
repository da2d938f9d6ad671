"""`reticent fit --compare`: a private comparison chooses between a linear model and one on Fourier features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from reticent.cli.errors import UsageError

if TYPE_CHECKING:
    from reticent.cli.fit_plan import Learner
    from reticent.learners.comparison import PrivateComparison, Scores

COMPARED = ("linear", "Fourier features")  # in the order of the estimators
NAMES = ("the linear model", "the model on Fourier features")
NOT_CLEAR = "That is no clear difference: a lead below two standard errors may be chance."


def compared_learner(learner: Learner, *, drift: str) -> Learner:
    """The learner of a fit with --compare: one private model, whichever of the two it is."""
    if learner not in ("auto", "private-model"):
        raise UsageError(
            f"--compare chooses between two private models, and --learner {learner} is neither: leave one of them out"
        )
    if drift != "none":
        raise UsageError(
            f"--compare makes one private model, which does not follow --drift {drift}: leave one of them out"
        )
    return "private-model"


def comparison(row_norm: float, *, epsilon: Any, delta: Any) -> PrivateComparison:
    """What compares a linear model with one on Fourier features, of rows up to this length, and fits the better one."""
    from reticent.learners.comparison import PrivateComparison
    from reticent.learners.logistic import PrivateLogisticRegression
    from reticent.plan.expectations import FOURIER

    known: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "row_norm": row_norm}
    linear, fourier = (PrivateLogisticRegression(**known, fourier_features=each) for each in (None, FOURIER))
    return PrivateComparison([linear, fourier], epsilon=epsilon, delta=delta)


def in_advance(compared: PrivateComparison, rows: int, *, grouped: bool) -> str:
    """What the comparison will do, and which differences it can tell, for the terminal: from public numbers."""
    import math
    from fractions import Fraction

    from reticent.learners.comparison import CLEAR, comparison_noise
    from reticent.privacy.parameters import check_delta, check_epsilon

    share, held_out = cast(Fraction, compared.share), cast(Fraction, compared.held_out)
    noise = comparison_noise(
        len(COMPARED), epsilon=check_epsilon(compared.epsilon), delta=check_delta(compared.delta), share=share
    )
    tested = max(1, math.floor(rows * held_out))
    visible = min(1.0, CLEAR * math.sqrt(2) * float(noise) / tested)
    people, more = ("groups", ", and larger ones if groups have several rows") if grouped else ("rows", "")
    return (
        f"--compare: {float(share):.0%} of the budget pays for a comparison on {people} that are held out "
        f"({float(held_out):.0%}). A small private linear model and one on {compared.estimators[1].fourier_features} "
        "random Fourier features are trained on the others, and their right answers on the held-out ones are counted "
        "with noise. The better one is then trained on all of them with the rest of the budget. ε and δ are for "
        "everything together: the comparison costs nothing on top.\n"
        f"The noise alone hides leads below {100 * visible:.1f} points of accuracy{more}."
    )


def in_words(scores: Scores) -> str:
    """What the comparison found, for the terminal. It is released, as the model is."""
    shown = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in zip(COMPARED, scores.accuracies, strict=True))
    leader = scores.leader
    lead, error = scores.lead(leader, 1 - leader)
    found = (
        f"The comparison, of small models on {scores.held_out:,} held-out rows: {shown} right answers. "
        f"The lead of {NAMES[leader]} is {100 * lead:.1f} ± {100 * error:.1f} points (one standard error, of noise "
        "and sampling)."
    )
    doubt = "" if scores.clear else f" {NOT_CLEAR}"
    return f"{found}{doubt} So {NAMES[leader]} was fitted on all rows."
