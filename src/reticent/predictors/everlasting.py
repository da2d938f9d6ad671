"""Endless answers on one guarantee, for the people in the training rows and for the people in the queries."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from reticent.concepts.class_order import warn_of_order
from reticent.data.classes import declared_classes
from reticent.data.executor import Executor
from reticent.data.groups import as_groups, group_names, numbered
from reticent.data.labels import read_labels
from reticent.data.queries import Reader
from reticent.data.rows import Rows
from reticent.data.tables import as_training_rows
from reticent.errors import EndingWarning
from reticent.exact import Number
from reticent.labellers.registry import LabellerLike
from reticent.mechanisms.release import noise_from_seed
from reticent.noise import Noise
from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.engines.choice import EngineChoice
from reticent.predictors.parameters import CheckedParameters, Fitted, concepts_of
from reticent.predictors.phases import MOST_NOISE
from reticent.predictors.state import ResumablePredictor
from reticent.privacy.parameters import check_delta

Array = NDArray[Any]


class EverlastingPredictor(ResumablePredictor):
    """Predicts without end, on one privacy guarantee for the people in its training rows and in its queries.

    It works in phases. A phase learns from its rows and answers a public number of queries. These queries, with the
    labels that were released for them, are the rows of the next phase; the rows of this phase are deleted. So each
    person is in one phase as a row, and pays for that phase only. `engine` is what answers in a phase: "votes" of
    teachers that learn from disjoint shards of the rows; a "chain" of private models, one per phase, with a private
    test of drift; or one private "model" that never learns from queries, and has a single phase.

    Guarantee. (ε, δ)-differential privacy, for any number of adaptive queries, for a replaced row of the training set
    (with `groups`: all rows of a group) and for a replaced query, whose own answer is not part of what others see. The
    fact, time and frequency of queries is not protected. With `groups`, all queries of a client are replaced together;
    a client enters at most `client_phases` phases, and the price is that many times (ε, δ). engine="model" protects
    the training rows only: it stores nothing of a query. The number of rows, the columns, the classes and every
    parameter are public.

    Why. Later phases see the rows of the first only through private answers: post-processing. A query does not change
    the other answers of its phase, and is one row of the next phase, which is private in its rows. So the price is a
    maximum over phases, not a sum. The theorem, its proof and what it needs are in docs/predictors/everlasting.md.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*: Definition of private everlasting prediction
    (the game of Figure 1) and the shape of Algorithm GenericBBL, with labels without a state in place of
    BetweenThresholds, and released labels in place of relabelling (for which see `GenericBBL`).

    Parameters
    ----------
    learner : estimator, ConceptClass or None, default None
        What a phase learns by: any classifier of scikit-learn or a concept class (votes; None is `LogisticTeacher`), or
        a private learner of this package (chain, model).
    epsilon : float or Fraction
        Privacy-loss bound ε of all answers together.
    delta : float or Fraction
        Failure probability δ of the guarantee. It may be 0 for private learners.
    answers : "endless" or int, default "endless"
        How many queries are answered in total. With a number, there is only as much noise as these need.
    classes : sequence of labels, or "public", default None
        The labels, in any order; "public" if it is public which labels occur in `y`. `fit` refuses None.
    engine : {"auto", "votes", "chain", "model"} or class, default "auto"
        What answers. "auto" is "chain" for a private learner, else "votes". Or an `engines.EngineFactory` of your own.
    growth : float or Fraction, default 2
        Answers of a phase, per row. Below 1.5, the errors of a phase add up in the next phases.
    held_back : float or Fraction, default 0.1
        The share of the queries of a phase, its last ones, that are answered while the next phase learns, and that no
        phase learns from.
    rows_per_teacher : "auto" or int, default "auto"
        "auto" is the number of columns, but at least 10 and at most 50. (votes)
    labeller : str, class or LabellerSpec, default "auto"
        "auto" is "greedy", or "poll" for many teachers; "gumbel" for more than two classes. Else a name of
        `labellers.NAMES`, a class or a `LabellerSpec`, if it answers every query and can be saved. "two-coin" answers
        far more queries where teachers agree, and closes a phase early where they do not. (votes)
    labeller_options : dict or None, default None
        Options of the labeller. (votes)
    most_noise : float, default 0.25
        The noise, as a share of all votes, above which `fit` refuses. (votes)
    retrain : {"drift", "always", "never"}, default "drift"
        When a phase trains a new model. (chain)
    training_stream : {"queries", "trusted"}, default "queries"
        "trusted": phases learn from rows given to `add_unlabelled`, whose labels count as answers; not from queries.
    client_share : float or Fraction, default 0.01
        The largest share of the rows of a phase that may come from one client; its first queries are taken.
    client_phases : int, default 1
        How many phases the queries of one client may enter, with `groups`.
    besides : tuple of two numbers or None, default None
        ε and δ that the training rows pay for something else that is released with the predictor, such as a private
        schema. They are added to the guarantee; phases have `epsilon` and `delta`.
    max_rows : int or None, default None
        The most rows of a phase. If phases do not grow, the errors of teachers add up over phases.
    memory_limit : int, default 2**30
        In bytes. Rows that need more are kept in a file, which is mapped, and deleted after use.
    folder : path or None, default None
        Where such files are; None for the folder of temporary files.
    background : bool, default False
        Whether the next phase learns in a thread, as soon as its rows are complete.
    random_state : int, default 0
        The seed of the teachers. (votes)
    n_jobs : int, Executor or None, default None
        How many processes train and ask teachers, or an `Executor` of your own. (votes)
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable, and the guarantee void.
    truth : {None, "rows", "feedback", "both"}, default None
        Where labels come from after day one: `add_labelled`, `feedback` for queries that were answered, or both. Then
        phases learn from these alone, and everybody still pays (ε, δ) once. None: phases learn from their own answers.
    phase_rows : "auto" or int, default "auto"
        Labelled rows of a phase, or with feedback the queries of a phase that have a slot for a label.
    wait : int, default 0
        Queries that a phase still answers after its window, while feedback for the window is taken. (feedback)
    feedback_share : float or Fraction, default 1
        The share of queries that is expected to get a label. It must be public. (feedback)
    silence : {"drop", "answer"}, default "drop"
        What a query without a label is: no row, or a row with its answer as label. Take "answer" only where at least
        half of the wrong answers are reported. (feedback)
    gauge_share : float or Fraction, default 0.1
        The share of labelled rows that judge the phase in place of training the next, at most 1/2. Without truth but
        with `alarm`, the share of the rows of day one that are kept aside for tests.
    alarm : QualityAlarm or None, default None
        When to raise an alarm.

    Attributes
    ----------
    guarantee_, classes_ : Guarantee, array
        What is promised, and for whom; the labels, ascending, of which the second is label 1 of a concept.
    phase_, answers_left_in_phase_, answered_ : int
        The number of the phase, how many more queries it answers at most, and how many were answered in total.
    rows_gathered_, client_cap_ : int
        How many rows there are for the next phase, and how many of them one client may add.
    event_, drift_, one_answer_ : Event; "not tested", "none found" or "found"; label or None
        What the phase costs one of its rows, what its test of drift found, and the label of every query if known.
    comparison_ : Scores or None
        What a `PrivateComparison` found before the model was trained. (model)
    quality_, alarms_, models_ : list
        What rows that judge said of past phases, the alarms raised, and the last models of a chain. All are released.
    alarm_since_, phase_rows_, spent_besides_ : int or None, int or None, tuple or None
        The phase of the alarm that stands, the labelled rows or slots of a phase, and what rows pay besides phases.
    labelled_waiting_ : int
        How many labelled rows wait for the next phases.
    takes_labelled_, takes_feedback_ : bool
        Whether labelled rows can be added, and whether queries get tickets for feedback.
    labelled_from_, open_slots_ : int, list
        The number of the oldest labelled row that may wait, and the tickets of open slots with their clients, a secret.
    learning_, learns_from_queries_, closes_early_ : bool
        Whether the next phase is being learned, whether from queries, and whether votes decide when a phase closes.
    model_, no_probabilities_ : estimator or None, str or None
        The private model that answers now, which may be published, if one does; why there are no `probabilities`.
    n_features_in_, dtype_, engine_ : int, dtype, Engine
        The number of columns, the type of their numbers, and what answers, which is as secret as the rows.

    >>> import numpy as np
    >>> from reticent.concepts import Thresholds
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.random((100_000, 1))
    >>> model = EverlastingPredictor(Thresholds(), epsilon=1, delta=1e-6, classes=(0, 1))
    >>> model = model.fit(rows, rows[:, 0] < 0.3)
    >>> model.guarantee_.protects, model.phase_, model.answers_left_in_phase_
    ('rows and queries', 1, 200000)
    >>> queries = rng.random((300_000, 1))
    >>> bool((model.predict(queries) == (queries[:, 0] < 0.3)).mean() > 0.98), model.phase_
    (True, 2)
    """

    _instead = "Save it, load it in the process that continues, and use it there only; or fit one there"

    def __init__(
        self,
        learner: Any = None,
        *,
        epsilon: Number,
        delta: Number,
        answers: int | str = "endless",
        classes: Any = None,
        engine: EngineChoice = "auto",
        growth: Number = 2,
        held_back: Number = 0.1,
        rows_per_teacher: int | str = "auto",
        labeller: LabellerLike = "auto",
        labeller_options: Mapping[str, Any] | None = None,
        most_noise: float = MOST_NOISE,
        retrain: str = "drift",
        training_stream: str = "queries",
        client_share: Number = 0.01,
        client_phases: int = 1,
        besides: tuple[Number, Number] | None = None,
        max_rows: int | None = None,
        memory_limit: int = 1 << 30,
        folder: str | Path | None = None,
        background: bool = False,
        random_state: int = 0,
        n_jobs: int | Executor | None = None,
        unsafe_seed: int | None = None,
        truth: str | None = None,
        phase_rows: int | str = "auto",
        wait: int = 0,
        feedback_share: Number = 1,
        silence: str = "drop",
        gauge_share: Number = 0.1,
        alarm: QualityAlarm | None = None,
    ) -> None:
        self.learner, self.epsilon, self.delta, self.answers, self.classes = learner, epsilon, delta, answers, classes
        self.engine, self.growth, self.held_back, self.max_rows = engine, growth, held_back, max_rows
        self.rows_per_teacher, self.most_noise, self.retrain = rows_per_teacher, most_noise, retrain
        self.labeller, self.labeller_options = labeller, labeller_options
        self.training_stream, self.client_share, self.client_phases = training_stream, client_share, client_phases
        self.memory_limit, self.folder, self.background, self.besides = memory_limit, folder, background, besides
        self.random_state, self.n_jobs, self.unsafe_seed = random_state, n_jobs, unsafe_seed
        self.truth, self.phase_rows, self.wait, self.feedback_share = truth, phase_rows, wait, feedback_share
        self.silence, self.gauge_share, self.alarm = silence, gauge_share, alarm

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Start the first phase, and return the predictor.

        Parameters
        ----------
        X, y : array-like of shape (n, columns) and (n,)
            The training rows, and their labels.
        groups : array-like of shape (n,), default None
            The person that each row belongs to. All rows of a person are then protected together.
        """
        return self.fit_with_noise(X, y, groups, unsafe_noise=noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: Any, y: Any, groups: Any = None, *, unsafe_noise: Noise | None) -> Self:
        """`fit` on a given noise, for audits; unless it is None, the guarantee is marked as seeded."""
        self.__dict__.pop("guarantee_", None)  # not fitted until this fit succeeds
        checked, concepts = CheckedParameters.of(self.get_params(deep=False)), concepts_of(self.learner)
        declared_classes(self.classes)
        warn_of_order(concepts, self.classes, stacklevel=3)
        table = as_training_rows(X, integers=concepts is not None)
        classes, class_indices = read_labels(y, len(table), self.classes)
        members = None if groups is None else numbered(as_groups(groups, len(table)))
        rows = Rows(table, class_indices, members)
        check_delta(self.delta, rows=len(table))
        factory = checked.factory(columns=table.shape[1], classes=len(classes), grouped=groups is not None)
        if checked.schedule.horizon is None and (ending := factory.ending(checked.schedule, len(table))) is not None:
            warnings.warn(ending, EndingWarning, stacklevel=3)
        fitted = Fitted(
            parameters=checked.given, classes=classes, columns=table.shape[1], names=None,
            reader=Reader.of(table.dtype, table.shape[1], concepts), grouped=groups is not None,
        )  # fmt: skip
        machine = checked.machine(fitted, factory, unsafe_noise)
        if groups is not None and checked.schedule.truth is not None:
            machine.admission.bar(group_names(as_groups(groups, len(table))))
        if checked.kept_aside is not None:
            rows = machine.watch.keep_aside(rows, checked.kept_aside)
        phase = machine.first_phase(len(rows.X), len(rows.X) if rows.groups is None else len(np.unique(rows.groups)))
        machine.open(phase, factory.first(phase, rows, unsafe_noise))
        validate_data(self, X, reset=True, skip_check_array=True)
        names = [str(one) for one in getattr(self, "feature_names_in_", ())] or None
        self._begin(checked, replace(fitted, names=names), machine, seeded=unsafe_noise is not None)
        self._warn_of_one_answer(stacklevel=4)
        return self

    def predict(self, X: Any, clients: Any = None) -> Array:
        """Return an answer for every row of `X`, as an array of labels.

        A query that is not finite, or outside of the domain, is answered as a fixed point would be, and counts. Raises
        `BudgetExhausted` before anything is answered if fewer of `answers` are left than rows. If there is no next
        phase, it is raised after the answers of this one, which count: `answer` returns those as well.

        Parameters
        ----------
        X : array-like of shape (n, columns)
            The queries.
        clients : array-like of str or int, default None
            Who asks each of them. Required with `groups`.
        """
        found = self.answer(X, clients)
        if found.refused is not None:
            raise found.refused
        answers: Array = self.classes_[found.class_indices]
        return answers
