"""Few labels, many rows: LabelBoost runs a private learner on labels that it made up itself."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.input import check_concept_class, refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.concepts.labellings import joined
from reticent.data.labels import UNLABELLED, as_binary_labels
from reticent.data.points import Array, Labels, as_array
from reticent.errors import InsufficientData
from reticent.exact import Number, integer
from reticent.learners.active import ActiveLearner
from reticent.learners.base import ConceptLearner, PartlyLabelled, clone_with
from reticent.learners.label_private import SemiPrivateLearner
from reticent.learners.relabelling_bounds import log_distance, log_error, log_excess
from reticent.learners.relabelling_costs import RelabellingBudget, Variant, check_variant
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import ApproximateDP, Event, Parallel, PureDP, Subsampled
from reticent.privacy.parameters import check_delta, check_epsilon, check_flag
from reticent.promises import check_memory, check_share, fewest_rows, in_reach

_MOST_ROUNDS = 4  # that rounds="auto" tries; sizes grow as a tower of exponentials

ROUND = {
    "what": "rows of a round",
    "remedy": "give fewer rows without a label, ask for a larger error, or take a class of fewer concepts",
}


# ── one round ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Relabelled(NamedTuple):
    """Rows with labels that a concept gave them. They are private rows: only a private learner may see them."""

    rows: Array
    labels: Labels


def label_boost(
    labelled: ArrayLike,
    labels: ArrayLike,
    unlabelled: ArrayLike,
    concept_class: ConceptClass[Any],
    *,
    epsilon: Number,
    variant: Variant = "max",
    unsafe_noise: Noise | None = None,
) -> Relabelled:
    """One round: label the rows T that have no label by a concept that does well on the rows S that have one.

    A class of VC dimension d can label T in at most (e·|T|/d)^d ways, however large it is. One labelling is drawn with
    probability ∝ e^(ε·score/2). The result is *not* private by itself. You may give it to a private algorithm A, and
    publish what A returns.

    Guarantee. Let A be (ε', δ')-differentially private for a replaced row, and publish A(label_boost(S, T)). For a
    replaced row of S, value and label, this is ε-differentially private in the variant "max", whatever A is, and
    (ε' + 2·ln(1 + e^(ε/2)), δ') in the variant "printed". For a replaced row of T it is (ε' + ln 4, δ') in both. Too
    many labellings are refused by a bound that uses the numbers of rows and the class only, which are public.

    Why. *S in "max"*: the candidates depend on T alone, scores move by at most 1, and S is dropped after the draw. *T*:
    a labelling of the other rows has one or two extensions to the replaced point, so its probability changes by a
    factor of at most 2 for the sum and 2 for the normaliser; given it, the input of A differs in one row. The proof is
    in `docs/learners/label_boost.md`.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm
    LabelBoostProcedure and Lemma 4.1. Sharpened: the printed (ε' + 3, 4eδ'), for ε = 1, is (ε' + 1.948, δ') for a row
    of S and (ε' + 1.386, δ') for one of T. New: the variant "max". Naor, Nissim, Stemmer, Yan, *Private Everlasting
    Prediction*, Algorithm LabelBoost, is the same procedure, which `GenericBBL` runs on queries.

    Parameters
    ----------
    labelled : array-like
        The rows S.
    labels : array-like
        Their labels, 0 or 1.
    unlabelled : array-like
        The rows T.
    concept_class : ConceptClass
        The class that labels are drawn from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the draw.
    variant : {"max", "printed"}, default "max"
        "max": the score of a labelling of T is the largest number of rows of S that any concept with that labelling
        labels correctly. T is returned with its labels; S is dropped. "printed": the labellings are those of S and T
        together, scored on S, and both are returned with new labels.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.

    Returns
    -------
    Relabelled
        Private rows with made-up labels.

    >>> from reticent.concepts import Thresholds
    >>> label_boost([3] * 40 + [9] * 40, [1] * 40 + [0] * 40, [1, 12, 2], Thresholds(bits=4), epsilon=5).labels
    array([1, 0, 1])
    """
    rate = check_epsilon(epsilon) / 2
    check_variant(variant)
    check_concept_class(concept_class)
    source = noise_or_system(unsafe_noise)
    rows = as_array(labelled, "labelled")
    target = as_binary_labels(labels, len(rows))
    fresh = as_array(unlabelled, "unlabelled")
    concept_class.check_points(len(rows) + len(fresh), **ROUND)
    if variant == "max":
        dichotomies = concept_class.dichotomies(fresh)
        errors = dichotomies.least_errors(target, at=rows)
    else:
        fresh = joined(rows, fresh)
        dichotomies = concept_class.dichotomies(fresh)
        errors = dichotomies.errors(target, at=rows)
    return Relabelled(fresh, dichotomies.labels(source.choose(-errors, rate=rate)))


# ── the learner ───────────────────────────────────────────────────────────────────────────────────────────────────


class BoostSchedule(NamedTuple):
    """How many rows each round uses; a function of public numbers.

    Parameters
    ----------
    labels : int
        The rows with a label that are needed.
    scored : tuple of int
        The labelled rows by which each round scores.
    fresh : tuple of int
        The rows without a label that each round labels.
    """

    labels: int
    scored: tuple[int, ...]
    fresh: tuple[int, ...]


class LabelBoost(PartlyLabelled):
    """A private learner that needs many rows, made to need few labels: it labels the other rows itself.

    A random part of the rows without a label is drawn and divided among one or more rounds. Each round labels its part
    by a concept of the class that does well on the rows labelled so far (`label_boost`). The learner then runs on the
    rows of the last round. The number of labels needed depends on the VC dimension of the class, the error and ε. After
    two rounds it hardly depends on how many rows the learner needs. Labels are 0 and 1; y = −1 marks the rows *without
    a label*. If your labels are −1 and 1, map them to 0 and 1 first.

    `learner` is a template. Its own `epsilon` and `delta` are ignored: it is cloned, and gets what the guarantee of the
    whole leaves for it. With the variant "max" this is ε_A = 0.9 at ε ≤ 2.28 and δ_A ≈ 8.8·δ/(e^ε − 1).

    Guarantee. (ε, δ)-differential privacy for a replaced row, with or without a label, for the published hypothesis;
    ε-differential privacy if the learner gets δ = 0 or does not use it. Public are the number of rows, which of them
    have a label, and every parameter. The drawn rows and the labels they get stay inside `fit`.

    Why. By the lemma of `label_boost`, a drawn row costs at most (ε_A + ln 4, δ_A), whatever its round; rows are drawn
    as an ordered tuple, so amplification by sampling applies, and as many are drawn as (ε, δ) allows. A labelled row is
    used only in the draw of the first round, which costs ε. The proof is in `docs/learners/label_boost.md`.

    Promise. Let the rows be drawn independently from any distribution, the labels given by a concept of the class, and
    the learner's hypotheses be those of the class. With n ≥ `n_required(error)` rows, `labels_required(error)` of them
    labelled, a fresh row is mislabelled with probability at most `error`, except with probability `failure`. With
    `agnostic=True` the labels may be anything, and the error is the excess over the best concept's.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm LabelBoost,
    Claim 4.2, Claim 4.3 with Remark 4.4, Lemma 4.6, Lemma 4.12, Theorem 4.13, Theorem 4.14, Remark 4.15 (a pure learner
    stays pure, a proper one proper), Theorem 4.16 (agnostic) and Corollary 4.17 (few labels for rectangles).
    Sharpened: shares computed from the guarantee, one part in 5 at ε = 1 in place of 1 in 100 a round and 1 in 300; any
    ε at once in place of 1; δ in place of 41δ; all labels are used. Left out: the i.i.d. resample of Claim 4.5 (ln 244
    as printed), since the learners of this package promise few errors on the very rows they are given.

    Parameters
    ----------
    learner : ConceptLearner
        A learner of this package for whole rows with a parameter `epsilon`, such as `ThresholdLearner`.
    concept_class : ConceptClass
        The class of the labels.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released hypothesis.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound, for a learner that can use one.
    variant : {"max", "printed"}, default "max"
        How a round labels rows; "printed" is the round of the paper.
    agnostic : bool, default False
        Whether `error` is promised for labels that no concept fits.
    rounds : int or "auto", default "auto"
        The number of rounds, from 1 on; "auto" needs the fewest labels, and is 1 if `error` is None.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Concept
        The released hypothesis of the learner.
    schedule_ : BoostSchedule
        How many rows each round used and labelled; public.

    >>> import numpy as np
    >>> from reticent.concepts import Thresholds
    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> x = (np.arange(60_000) * 40503 % 65536)[:, None]
    >>> y = np.where(np.arange(60_000) < 1500, x[:, 0] < 20_000, -1)
    >>> boost = LabelBoost(ThresholdLearner(bits=16, epsilon=1), Thresholds(bits=16), epsilon=1, error=0.1)
    >>> boost.labels_required(0.1) < 1500
    True
    >>> bool(abs(boost.fit(x, y).hypothesis_.at - 20_000) < 6554), boost.guarantee_.epsilon
    (True, 1.0)
    """

    def __init__(
        self,
        learner: ConceptLearner,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        delta: Number = 0,
        variant: Variant = "max",
        agnostic: bool = False,
        rounds: int | Literal["auto"] = "auto",
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.learner = learner
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.delta = delta
        self.variant = variant
        self.agnostic = agnostic
        self.rounds = rounds
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    # ── what happens to the rows ──────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        has_label = labels != UNLABELLED
        known, target, pool = rows[has_label], labels[has_label], rows[~has_label]
        schedule = self._schedule(len(known), len(pool))
        self._check_schedule(schedule)
        check_delta(self.delta, rows=len(rows))
        self.refuse_bad_rows(rows)
        source = noise_or_system(unsafe_noise)
        drawn = pool[source.subset(len(pool), sum(schedule.fresh))]
        parts = np.split(drawn, np.cumsum(schedule.fresh)[:-1])
        epsilons = self._budget().round_epsilons(len(parts))
        for scored, fresh, epsilon in zip(schedule.scored, parts, epsilons, strict=True):
            if scored < len(known):
                kept = source.subset(len(known), scored)
                known, target = known[kept], target[kept]
            known, target = self._relabel(known, target, fresh, epsilon, unsafe_noise)
        hypothesis, spent = self.base_learner(len(parts))._learn(known, target, unsafe_noise)
        self.schedule_ = schedule
        return release(hypothesis, self._event(spent, int(has_label.sum()), len(pool)), unsafe_noise)

    def _relabel(
        self, known: Array, target: Labels, fresh: Array, epsilon: Fraction, unsafe_noise: Noise | None
    ) -> Relabelled:
        return label_boost(
            known, target, fresh, self.concept_class, epsilon=epsilon, variant=self.variant, unsafe_noise=unsafe_noise
        )

    def _event(self, spent: Event, labelled: int, pool: int) -> Event:
        """The cost of the whole, from what the learner has spent and the numbers of rows."""
        budget = self._budget()
        inner, delta = budget.learner_epsilon, budget.learner_delta
        pure = fits(spent, epsilon=inner, delta=0)
        if not (pure or fits(spent, epsilon=inner, delta=delta)):
            raise ValueError(
                f"learner must keep to the epsilon={float(inner)} and delta={float(delta)} it is given, "
                f"{type(self.learner).__name__} spends more"
            )

        def cost(epsilon: Fraction) -> Event:
            return PureDP(epsilon) if pure else ApproximateDP(epsilon, delta)

        unlabelled = Subsampled(cost(budget.unlabelled_cost), Fraction(sum(self.schedule_.fresh), pool))
        if self.variant == "max":
            return Parallel((PureDP(budget.epsilon), unlabelled))
        rate = Fraction(self.schedule_.scored[0], labelled)
        return Parallel((Subsampled(cost(budget.labelled_cost), rate), unlabelled))

    def base_learner(self, rounds: int, failure: Number | None = None) -> ConceptLearner:
        """The learner inside, with its part of the privacy and of the failure; without a seed or an error of its own.

        Parameters
        ----------
        rounds : int
            The number of rounds, which share the failure with the learner.
        failure : float, Fraction or None, default None
            The failure of the whole; None is that of this learner.
        """
        budget = self._budget()
        return clone_with(
            self.learner,
            epsilon=budget.learner_epsilon,
            delta=budget.learner_delta,
            failure=self._failure(failure) / (rounds + 1),
            error=None,
            unsafe_seed=None,
        )

    # ── how many rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows, with and without a label, with which the promise holds; see `ConceptLearner`."""
        schedule = self._promised_schedule(error, failure)

        def check(rows: int) -> None:
            check_memory(rows, self.concept_class.columns)
            self._check_schedule(schedule)

        return in_reach(schedule.labels + self._budget().unlabelled_rows(sum(schedule.fresh)), check)

    def labels_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows that need a label for the promise to hold; the parameters are those of `n_required`."""
        return self._promised_schedule(error, failure).labels

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows.

        Parameters
        ----------
        rows : int
            The number of training rows.
        labels : int or None, default None
            How many of them have a label; None is as many as the promise needs, or one.
        """
        super().check_size(rows)
        if labels is None:
            labels = 1 if self.error is None else min(rows - 1, self.labels_required(self.error))
        self._check_schedule(self._schedule(labels, rows - labels))

    def _check_schedule(self, schedule: BoostSchedule) -> None:
        """Every round lists the labellings of its rows; the learner gets the rows of the last one."""
        for scored, labelled in zip(schedule.scored, schedule.fresh, strict=True):
            self.concept_class.check_points(scored + labelled, **ROUND)
        last = schedule.fresh[-1] + (schedule.scored[-1] if self.variant == "printed" else 0)
        self.base_learner(len(schedule.fresh)).check_size(last)

    def _check_size(self, rows: int) -> None:
        """Check memory only: which rows have a label is not known yet, and `_learn` checks the rest."""
        check_memory(rows, self.concept_class.columns)

    def _check_rows(self, rows: int) -> None:
        """Do nothing: whether the rows suffice depends on how many have a label, and `_schedule` checks it."""

    def _schedule(self, labels: int, pool: int) -> BoostSchedule:
        """The schedule for this many rows: the promised one, or otherwise the largest that privacy allows."""
        budget = self._budget()
        if self.error is not None:
            planned = self._promised_schedule(self.error)
            self._enough(labels, planned.labels, "rows with a label")
            self._enough(pool, budget.unlabelled_rows(sum(planned.fresh)), "rows without a label")
            return planned if self.variant == "printed" else planned._replace(scored=(labels, *planned.scored[1:]))
        rounds = 1 if self.rounds == "auto" else self._rounds()
        drawn = math.floor(budget.unlabelled_share * pool)
        fresh = [drawn * (1 << i) // ((1 << rounds) - 1) for i in range(rounds)]  # each twice the one before
        if min(fresh) == 0:
            self._enough(pool, budget.unlabelled_rows((1 << rounds) - 1), "rows without a label")
        scored, have = [], labels
        for i, part in enumerate(fresh):
            share = budget.scored_share(first=i == 0)
            scored.append(math.floor(share * have))
            if scored[-1] == 0:
                self._enough(have, math.ceil(1 / share), "rows with a label in each round")
            have = part + (scored[-1] if self.variant == "printed" else 0)
        return BoostSchedule(labels, tuple(scored), tuple(fresh))

    def _enough(self, have: int, required: int, which: str) -> None:
        if have < required:
            promise = "" if self.error is None else f" to promise error={self.error} with failure={self.failure}"
            raise InsufficientData(f"{required} {which} are needed{promise}, got {have}", required=required)

    def _promised_schedule(self, error: Number, failure: Number | None = None) -> BoostSchedule:
        """The schedule that promises an error; with rounds="auto", more rounds as long as they need fewer labels."""
        self.check_parameters()
        if self.hypothesis_class() != self.concept_class:
            raise ValueError(
                f"learner must have the hypotheses of concept_class, {self.concept_class}, for an error to be "
                f"promised, got {self.hypothesis_class()}; or set error=None"
            )
        alpha, beta = float(check_share(error, "error")), self._failure(failure)
        best = self._schedule_of_rounds(self._rounds(), alpha, beta)
        while self.rounds == "auto" and len(best.fresh) < _MOST_ROUNDS:
            further = self._schedule_of_rounds(len(best.fresh) + 1, alpha, beta)
            if further.labels >= best.labels:
                break
            best = further
        return best

    def _schedule_of_rounds(self, rounds: int, alpha: float, failure: Fraction) -> BoostSchedule:
        """From the learner back to the labels. Half of the error is for the first round, the rest in equal parts.

        Each round and the learner get an equal part of the failure; the learner uses half of its part for its search.
        """
        budget, learner = self._budget(), self.base_learner(rounds, failure)
        later = alpha / (2 * rounds)
        beta = float(failure) / (rounds + 1)

        def learns(rows: int) -> bool:
            errors = learner.sample_errors(rows, self.concept_class.columns)
            return log_distance(self.concept_class, rows, wrong=errors, error=later) <= math.log(beta / 2)

        try:
            size = fewest_rows(learns)
        except NotImplementedError:
            raise ValueError(
                f"learner must say how many errors it makes on its sample for an error to be promised, "
                f"{type(self.learner).__name__} has no sample_errors: set error=None"
            ) from None
        scored: list[int] = []
        fresh: list[int] = []
        for epsilon in reversed(budget.round_epsilons(rounds)):
            first = len(scored) == rounds - 1
            off = log_excess if first and self.agnostic else partial(log_error, targets=0 if first else 1)
            bound = partial(
                off, self.concept_class, labelled=size, error=alpha / 2 if first else later, rate=float(epsilon / 2)
            )
            used = fewest_rows(lambda rows, bound=bound: bound(rows=rows) <= math.log(beta))  # type: ignore[misc]
            scored.insert(0, used)
            fresh.insert(0, size if self.variant == "max" else max(1, size - used))
            size = math.ceil(used / budget.scored_share(first=first))
        return BoostSchedule(size, tuple(scored), tuple(fresh))

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_variant(self.variant)
        self._rounds()
        check_flag(self.agnostic, "agnostic")
        check_concept_class(self.concept_class)
        if not isinstance(self.learner, ConceptLearner) or "epsilon" not in self.learner.get_params(deep=False):
            raise TypeError(
                f"learner must be a private learner of a concept class with a parameter epsilon, such as "
                f"ThresholdLearner, got {type(self.learner).__name__}"
            )
        if self.learner.protects != "rows" or isinstance(self.learner, PartlyLabelled):
            raise ValueError(
                f"learner must protect whole rows and take a label for each: {type(self.learner).__name__} does not"
            )
        if isinstance(self.learner, ActiveLearner | SemiPrivateLearner):
            raise ValueError(
                f"learner must learn from labelled rows alone: {type(self.learner).__name__} takes more than these"
            )
        self.base_learner(1).check_parameters()
        if self.hypothesis_class().columns != self.concept_class.columns:
            raise ValueError(
                f"concept_class must have as many columns as the hypotheses of learner, "
                f"{self.hypothesis_class().columns}, got {self.concept_class.columns}"
            )

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if the concept class or the learner cannot read some row."""
        refuse_bad_points(self.concept_class, rows)
        self.base_learner(1).refuse_bad_rows(rows)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the learner's hypotheses belong to."""
        return self.learner.hypothesis_class()

    def _budget(self) -> RelabellingBudget:
        return RelabellingBudget(check_epsilon(self.epsilon), check_delta(self.delta), self.variant)

    def _rounds(self) -> int:
        if self.rounds == "auto":
            return 1
        if isinstance(self.rounds, str):
            raise ValueError(f'rounds must be "auto" or a whole number ≥ 1, got {self.rounds!r}')
        return integer(self.rounds, "rounds", least=1, most=16)
