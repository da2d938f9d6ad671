"""How a chain of private models learns from one phase to the next: rules of public numbers and of released models.

Nothing here looks at rows. The rules were set by measurement; see `docs/learners/phases.md`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sklearn.base import clone

from reticent.exact import rational
from reticent.learners.base import ConceptLearner
from reticent.learners.linear import Linear
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.logistic_settings import LogisticSettings
from reticent.learners.public_rows import turned_start
from reticent.learners.rectangles import RectangleLearner
from reticent.learners.second_moments import NARROW
from reticent.promises import rows_needed

NOISE = Fraction(1, 5)  # of a step in a phase, in units of the pull of all rows
ERROR = Fraction(1, 10)  # of a concept learner that promises none
EARLY = Fraction(5, 2)  # by this factor, but not beyond ½, noise or error may be larger in a phase that begins early
PERIOD = 16  # phases for which a map of many columns is used
LATER = Fraction(1, 3)  # of the level, for a descent that continues from a model


def phase_rows(learner: Any, columns: int, classes: int = 2, *, early: bool = False) -> int:
    """The number of labelled rows of a phase, by public numbers.

    For a linear learner it is `n_required(0.2)` of a descent that has all of the budget: the noise of a step weighs as
    much as a fifth of the rows. For a concept learner it is `n_required` of its own error, or of 0.1.

    Parameters
    ----------
    learner : PrivateLogisticRegression or ConceptLearner
        The learner, with the ε and δ of a phase.
    columns, classes : int
        The numbers of columns and of classes.
    early : bool, default False
        Whether to give the fewest rows with which a phase may begin before it is due, at 2.5 times the noise or error.

    >>> learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1)
    >>> phase_rows(learner, 6), phase_rows(learner, 54), phase_rows(learner, 54, early=True)
    (1377, 2999, 866)
    """
    factor = EARLY if early else Fraction(1)
    if isinstance(learner, PrivateLogisticRegression):
        bought = learner.rounds if isinstance(learner.rounds, int) else 0
        plain: PrivateLogisticRegression = clone(learner).set_params(rounds=bought, whitening=None)
        return plain.n_required(min(NOISE * factor, Fraction(1, 2)), columns=columns, classes=classes)
    assert isinstance(learner, ConceptLearner)
    error = ERROR if learner.error is None else rational(learner.error, "error")
    size = {"dimensions": columns} if isinstance(learner, RectangleLearner) else {}
    return rows_needed(learner.n_required, min(error * factor, Fraction(1, 2)), **size)


def continuation(learner: Any, previous: Any, *, phase: int, rows: int, columns: int) -> dict[str, Any]:
    """The parameters by which a learner continues from the last model of a chain, which was released.

    The descent starts from its weights, and goes a third as far as that of the first model. Columns may have changed
    their scales, so a new map is bought if there are enough rows: in every phase with few columns, and in every 16th
    with more, where a map costs more. All other phases use that of the last model again. Parameters that the caller set
    are kept: a number of `rounds`, or a map.

    Guarantee. All of it is a function of a released model and public numbers, so it costs nothing.

    Parameters
    ----------
    learner : PrivateLogisticRegression or ConceptLearner
        The learner of the first phase, unfitted.
    previous : PrivateLogisticRegression or ConceptLearner
        The last model, fitted or restored from a file.
    phase : int
        The number of the phase that begins; the first model is that of phase 1.
    rows : int
        The number of training rows; where labels may be missing, how many are expected to have one.
    columns : int
        The number of columns.

    Returns
    -------
    dict
        For `set_params` of a clone of the learner; empty for a concept learner, which starts afresh.
    """
    if not isinstance(learner, PrivateLogisticRegression):
        return {}
    settings = learner.settings()
    changed: dict[str, Any] = {
        "start": previous.hypothesis_,
        "fourier_seed": previous.fourier_seed_,
        "level": rational(learner.level, "level") * LATER,
    }
    if settings.public is not None:
        return changed | {"start": _public_start(settings, previous, rows, columns)}
    if settings.rounds == "auto" and settings.whitening is None and not _buys(settings, phase, rows, columns):
        changed["whitening"] = previous.whitening_
    return changed


def _buys(settings: LogisticSettings, phase: int, rows: int, columns: int) -> bool:
    """Whether a phase buys a map of its own, though the last model has one."""
    seen = settings.seen_columns(rows=rows, columns=columns) + settings.fit_intercept
    due = seen <= NARROW or phase % PERIOD == 1
    return due and bool(settings.schedule(rows=rows, columns=seen).scales)


def _public_start(
    settings: LogisticSettings, previous: PrivateLogisticRegression, rows: int, columns: int
) -> Linear | None:
    """The weights of the last model for the directions that these rows are projected onto."""
    before = previous.feature_map_.directions
    assert before is not None
    if settings.directions(rows) == settings.directions(previous.descent_plan_.rows):
        return previous.hypothesis_
    if settings.fourier_features is not None:  # of other columns
        return None
    after = settings.row_map(rows=rows, columns=columns).directions
    assert after is not None
    return turned_start(previous.hypothesis_, before, after)
