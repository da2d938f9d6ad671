"""Few labels, many rows: LabelBoost, which lets a private learner work on labels that it made up itself."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from reticent.concepts.input import refuse_bad_points
from reticent.concepts.interface import ConceptClass, joined
from reticent.data.labels import UNLABELLED, as_binary_labels
from reticent.data.points import Array, Labels, as_array
from reticent.errors import InsufficientData
from reticent.exact import Number, exp_fractions, integer, log_bounds
from reticent.learners.active import ActiveLearner
from reticent.learners.base import ConceptLearner, PartlyLabelled
from reticent.learners.label_private import SemiPrivateLearner
from reticent.learners.relabelling_bounds import log_distance, log_error, log_excess
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import ApproximateDP, Event, Parallel, PureDP, Subsampled
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_share, fewest_rows, in_reach

Variant = Literal["max", "printed"]

_BITS = 64  # of the bounds on costs, which are rounded up
_LOG4 = log_bounds(Fraction(4), _BITS)[1]
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

    There are only so many ways in which the class can label T, at most (e·|T|/d)^d at VC dimension d, however large
    the class is. One of them is drawn with probability ∝ e^(ε·score/2). What comes back are rows, *not* a private
    result: it may be fed to a private algorithm A, and A's result published.

    variant "max" : the score of a labelling of T is the most rows of S that any concept with that labelling gets
        right. T comes back with its labels; S has done its work and is dropped.
    variant "printed" : the labellings are those of S and T together, scored on S, and both come back relabelled.

    Guarantee. Let A be (ε', δ')-differentially private for a replaced row, and publish A(label_boost(S, T)). For a
    replaced row of S, value and label, this is ε-differentially private in the variant "max", whatever A is, and
    (ε' + 2·ln(1 + e^(ε/2)), δ') in the variant "printed". For a replaced row of T it is (ε' + ln 4, δ') in both. Too
    many labellings are refused by a bound on their number, from the numbers of rows and the class, which are public.

    Why. *S in "max".* The candidates depend on T alone. Each score is a maximum of numbers of correct rows, so it moves
    by at most 1: the draw is the exponential mechanism, and all that follows sees S no more. *T.* Let K be the points
    of the other rows of T. A labelling w of K has one or two extensions to the replaced point; the best of their scores
    is that of w itself, so their weights sum to between 1 and 2 times e^(ε·score(w)/2). Hence the probability π(w) that
    K is labelled w changes by a factor of at most 2 for the sum and 2 for the normaliser: π ≤ 4·π'. Given w, what A is
    fed differs in one row: P(F) = Σ π(w)·A_w(F) ≤ Σ π(w)·(e^ε'·A'_w(F) + δ') ≤ 4·e^ε'·P'(F) + δ'. *"printed".* The same
    with K the points of the other rows of S and T. A replaced row of T counts in no score, and the sums of weights
    are e^(ε·score(w)/2) times 1 or 2; for a row of S times 1, g, or 1 + g, where g = e^(ε/2). So π ≤ (1 + g)²·π'.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm
    LabelBoostProcedure and Lemma 4.1. Sharpened: the printed (ε' + 3, 4eδ'), for ε = 1, is (ε' + 1.948, δ') for a row
    of S and (ε' + 1.386, δ') for one of T. New: the variant "max". Naor, Nissim, Stemmer, Yan, *Private Everlasting
    Prediction*, Algorithm LabelBoost, is the same procedure, which `GenericBBL` runs on queries.

    >>> from reticent.concepts import Thresholds
    >>> label_boost([3] * 40 + [9] * 40, [1] * 40 + [0] * 40, [1, 12, 2], Thresholds(bits=4), epsilon=5).labels
    array([1, 0, 1])
    """
    rate = check_epsilon(epsilon) / 2
    _check_variant(variant)
    if not isinstance(concept_class, ConceptClass):
        raise TypeError(f"concept_class must be a ConceptClass, got {type(concept_class).__name__}")
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


class Schedule(NamedTuple):
    """What happens to how many rows; a function of public numbers."""

    labels: int  # rows with a label that are needed
    scored: tuple[int, ...]  # labelled rows that each round looks at
    fresh: tuple[int, ...]  # unlabelled rows that each round labels


class LabelBoost(PartlyLabelled):
    """A private learner that needs many rows, made to need few labels: the rest of the rows it labels itself.

    Of the rows without a label a random part is drawn and dealt out to one or more rounds. Each round labels its part
    by a concept of the class that does well on the rows labelled so far (`label_boost`). The learner is then run on
    the rows of the last round. How many labels are needed depends on the VC dimension of the class, the error and ε;
    after two rounds hardly on how many rows the learner needs. Labels are 0 and 1; y = −1 marks the rows *without a
    label*, so labels −1 and 1 must be turned into 0 and 1 first.

    `learner` is a template. Its own `epsilon` and `delta` are not looked at: it is cloned, and given what the guarantee
    of the whole leaves for it. With the variant "max" these are ε_A = 0.9 at ε ≤ 2.28 and δ_A ≈ 8.8·δ/(e^ε − 1); for
    the rows needed fall as 1/ε_A, the share of the rows that may be drawn is (e^ε − 1)/(4·e^ε_A − 1), and 0.9 makes the
    quotient least, whatever ε is.

    Guarantee. (ε, δ)-differential privacy for a replaced row, with or without a label, for the published hypothesis;
    ε-differential privacy if the learner is given δ = 0 or makes no use of it. Public are the number of rows, which of
    them have a label, and every parameter. Which rows were drawn, and the labels they got, never leave.

    Why. The drawn rows are an *ordered* uniformly random tuple, and the place in it decides the role. Let
    E = ε_A + ln 4. *The learner* is (ε_A, δ_A)-private for its rows, which are those of the last round: by the lemma of
    `label_boost`, a row drawn for the last round costs (E, δ_A). *An earlier round*, "max": its rows are the S of the
    next, whose draw has ε = ε_A and after which they are dropped; so such a row costs (E, 0). Thus the whole is
    (E, δ_A)-private for the rows of the tuple, whatever their place, and for the N rows of which its k were drawn
    (ln(1 + (k/N)·(e^E − 1)), δ_A·k/N)-private, by amplification. k is such that this is within (ε, δ).
    *A labelled row* meets only the draw of the first round, with ε itself: it needs no amplification. "printed": the
    rows stay to the end, so each round first keeps only a random ordered part of its S, small enough for
    ε_A + 2·ln(1 + g) to become ε_A again, and ε in the first round.

    Promise. Let the rows be drawn independently from any distribution, the labels given by a concept of the class, and
    the learner's hypotheses be those of the class. With n ≥ `n_required(error)` rows, `labels_required(error)` of them
    labelled, a fresh row is mislabelled with probability at most `error`, but for a probability of `failure`. With
    `agnostic=True` the labels may be anything and the error is what comes on top of the best concept's. Every round
    and the learner disagree with the labels they were given on at most k of n rows; then the true disagreement is below
    α with the stated probability (`docs/learners/label_boost.md`). The errors add up.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Algorithm LabelBoost,
    Claim 4.2, Claim 4.3 with Remark 4.4, Lemma 4.6, Lemma 4.12, Theorem 4.13, Theorem 4.14, Remark 4.15 (a pure learner
    stays pure, a proper one proper), Theorem 4.16 (agnostic) and Corollary 4.17 (few labels for rectangles).
    Sharpened: shares computed from the guarantee, one part in 5 at ε = 1 in place of 1 in 100 a round and 1 in 300; any
    ε at once in place of 1; δ in place of 41δ; all labels are used. Left out: the i.i.d. resample of Claim 4.5 (ln 244
    as printed), since the learners of this package promise few errors on the very rows they are given.

    Parameters
    ----------
    learner : a learner of this package for whole rows with a parameter `epsilon`, such as `ThresholdLearner`.
    concept_class : the `concepts.ConceptClass` of the labels.
    epsilon, delta : the privacy of the hypothesis. δ is for the learner, if it can use one.
    variant : "max", or "printed" for the paper's own round.
    agnostic : whether `error` is to be promised for labels that no concept fits.
    rounds : "auto" or a whole number from 1 on; "auto" is what needs the fewest labels, and 1 where error is None.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released hypothesis of the learner.
    schedule_ : how many rows each round looked at and labelled; public.

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

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """How many rows, with and without a label, make the promise hold; `labels_required` says how many with."""
        schedule = self._planned(error, failure)

        def check(rows: int) -> None:
            check_memory(rows, self.concept_class.columns)
            self._check_schedule(schedule)

        return in_reach(schedule.labels + self._pool(sum(schedule.fresh)), check)

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """This many rows, `labels` of them with a label; by default as many as the promise takes, or one."""
        super().check_size(rows)
        if labels is None:
            labels = 1 if self.error is None else min(rows - 1, self.labels_required(self.error))
        self._check_schedule(self._schedule(labels, rows - labels))

    def _check_schedule(self, schedule: Schedule) -> None:
        """Every round lists the labellings of its rows; the learner has those of the last."""
        for scored, labelled in zip(schedule.scored, schedule.fresh, strict=True):
            self.concept_class.check_points(scored + labelled, **ROUND)
        last = schedule.fresh[-1] + (schedule.scored[-1] if self.variant == "printed" else 0)
        self.base_learner(len(schedule.fresh)).check_size(last)

    def _check_size(self, rows: int) -> None:
        """Which rows have a label is not known yet: see `_learn`."""
        check_memory(rows, self.concept_class.columns)

    def labels_required(self, error: Number, failure: Number | None = None) -> int:
        """How many of the rows need a label for the promise to hold."""
        return self._planned(error, failure).labels

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
        for scored, fresh, epsilon in zip(schedule.scored, parts, self._epsilons(len(parts)), strict=True):
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
        """What the whole has cost, from what the learner has spent and the numbers of rows."""
        inner, delta = self._inner(), self._inner_delta()
        pure = fits(spent, epsilon=inner, delta=0)
        if not (pure or fits(spent, epsilon=inner, delta=delta)):
            raise ValueError(
                f"learner must keep to the epsilon={float(inner)} and delta={float(delta)} it is given, "
                f"{type(self.learner).__name__} spends more"
            )

        def cost(epsilon: Fraction) -> Event:
            return PureDP(epsilon) if pure else ApproximateDP(epsilon, delta)

        unlabelled = Subsampled(cost(inner + _LOG4), Fraction(sum(self.schedule_.fresh), pool))
        if self.variant == "max":
            return Parallel((PureDP(check_epsilon(self.epsilon)), unlabelled))
        rate = Fraction(self.schedule_.scored[0], labelled)
        return Parallel((Subsampled(cost(inner + printed_cost(self._printed_epsilon())), rate), unlabelled))

    def base_learner(self, rounds: int, failure: Number | None = None) -> ConceptLearner:
        """The learner with its own part of the privacy and of the failure; without a seed or a promise of its own."""
        beta = check_share(self.failure if failure is None else failure, "failure")
        given: dict[str, object] = {"epsilon": self._inner(), "delta": self._inner_delta()}
        given |= {"failure": beta / (rounds + 1), "error": None, "unsafe_seed": None}
        learner: ConceptLearner = clone(self.learner)
        taken = learner.get_params(deep=False)
        learner.set_params(**{name: value for name, value in given.items() if name in taken})
        return learner

    # ── what it costs ─────────────────────────────────────────────────────────────────────────────────────────────

    def _inner(self) -> Fraction:
        return inner_epsilon(check_epsilon(self.epsilon))

    def _inner_delta(self) -> Fraction:
        """What the learner may use: less than δ of it remains, of which 1/2 at most."""
        return min(check_delta(self.delta) / self._share(), Fraction(1, 2))

    def _share(self) -> Fraction:
        """The largest share of the rows without a label that may be drawn."""
        return largest_share(check_epsilon(self.epsilon), self._inner() + _LOG4)

    def _pool(self, drawn: int) -> int:
        """How many rows without a label it takes to draw so many."""
        return math.ceil(drawn / self._share())

    def _printed_epsilon(self) -> Fraction:
        return printed_epsilon(self._inner())

    def _epsilons(self, rounds: int) -> list[Fraction]:
        """ε of the draw in each round."""
        if self.variant == "printed":
            return [self._printed_epsilon()] * rounds
        return [check_epsilon(self.epsilon)] + [self._inner()] * (rounds - 1)

    def _scored_share(self, first: bool) -> Fraction:
        """The share of its labelled rows that a round may look at."""
        if self.variant == "max":
            return Fraction(1)
        cost = self._inner() + printed_cost(self._printed_epsilon())
        return largest_share(check_epsilon(self.epsilon) if first else self._inner(), cost)

    # ── how many rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, labels: int, pool: int) -> Schedule:
        """What to do with this many rows: as was promised, or else as much as privacy allows."""
        if self.error is not None:
            planned = self._planned(self.error)
            self._enough(labels, planned.labels, "rows with a label")
            self._enough(pool, self._pool(sum(planned.fresh)), "rows without a label")
            return planned if self.variant == "printed" else planned._replace(scored=(labels, *planned.scored[1:]))
        rounds = 1 if self.rounds == "auto" else self._rounds()
        drawn = math.floor(self._share() * pool)
        fresh = [drawn * (1 << i) // ((1 << rounds) - 1) for i in range(rounds)]  # each twice the one before
        if min(fresh) == 0:
            self._enough(pool, self._pool((1 << rounds) - 1), "rows without a label")
        scored, have = [], labels
        for i, part in enumerate(fresh):
            share = self._scored_share(first=i == 0)
            scored.append(math.floor(share * have))
            if scored[-1] == 0:
                self._enough(have, math.ceil(1 / share), "rows with a label in each round")
            have = part + (scored[-1] if self.variant == "printed" else 0)
        return Schedule(labels, tuple(scored), tuple(fresh))

    def _enough(self, have: int, required: int, which: str) -> None:
        if have < required:
            promise = "" if self.error is None else f" to promise error={self.error} with failure={self.failure}"
            raise InsufficientData(f"{required} {which} are needed{promise}, got {have}", required=required)

    def _planned(self, error: Number, failure: Number | None = None) -> Schedule:
        """The schedule that promises an error; more rounds as long as they need fewer labels."""
        self.check_parameters()
        if self.hypothesis_class() != self.concept_class:
            raise ValueError(
                f"learner must have the hypotheses of concept_class, {self.concept_class}, for an error to be "
                f"promised, got {self.hypothesis_class()}; or set error=None"
            )
        alpha = float(check_share(error, "error"))
        check_share(self.failure if failure is None else failure, "failure")
        best = self._plan(self._rounds(), alpha, failure)
        while self.rounds == "auto" and len(best.fresh) < _MOST_ROUNDS:
            further = self._plan(len(best.fresh) + 1, alpha, failure)
            if further.labels >= best.labels:
                break
            best = further
        return best

    def _plan(self, rounds: int, alpha: float, failure: Number | None) -> Schedule:
        """From the learner back to the labels. Half of the error is for the first round, the rest in equal parts.

        Each of the rounds and the learner has an equal part of the failure; the learner half of it for its search.
        """
        learner = self.base_learner(rounds, failure)
        later = alpha / (2 * rounds)
        beta = float(check_share(self.failure if failure is None else failure, "failure")) / (rounds + 1)

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
        for epsilon in reversed(self._epsilons(rounds)):
            first = len(scored) == rounds - 1
            off = log_excess if first and self.agnostic else partial(log_error, targets=0 if first else 1)
            bound = partial(
                off, self.concept_class, labelled=size, error=alpha / 2 if first else later, rate=float(epsilon / 2)
            )
            looked = fewest_rows(lambda rows, bound=bound: bound(rows=rows) <= math.log(beta))  # type: ignore[misc]
            scored.insert(0, looked)
            fresh.insert(0, size if self.variant == "max" else max(1, size - looked))
            size = math.ceil(looked / self._scored_share(first=first))
        return Schedule(size, tuple(scored), tuple(fresh))

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        _check_variant(self.variant)
        self._rounds()
        if not isinstance(self.agnostic, bool):
            raise TypeError(f"agnostic must be True or False, got {type(self.agnostic).__name__}")
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")
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

    def _check_rows(self, rows: int) -> None:
        """Whether they are enough depends on how many have a label: `_schedule` sees to it."""

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if any row cannot be read, whichever rows are drawn later."""
        refuse_bad_points(self.concept_class, rows)
        self.base_learner(1).refuse_bad_rows(rows)

    def _rounds(self) -> int:
        if self.rounds == "auto":
            return 1
        if isinstance(self.rounds, str):
            raise ValueError(f'rounds must be "auto" or a whole number ≥ 1, got {self.rounds!r}')
        return integer(self.rounds, "rounds", least=1, most=16)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.learner.hypothesis_class()


# ── costs, exactly ────────────────────────────────────────────────────────────────────────────────────────────────


def inner_epsilon(epsilon: Fraction) -> Fraction:
    """ε_A of the learner: 9/10, or as much of ε as ln 4 leaves, where that is more and no row need be left out.

    >>> inner_epsilon(Fraction(1)), inner_epsilon(Fraction(5))
    (Fraction(9, 10), Fraction(3613, 1000))
    """
    return max(Fraction(9, 10), Fraction(math.floor(1000 * (epsilon - _LOG4)), 1000))


def largest_share(epsilon: Fraction, cost: Fraction) -> Fraction:
    """A lower bound on the share q of rows of which a random part may meet a `cost`: ln(1 + q·(e^cost − 1)) ≤ ε."""
    if cost <= epsilon:
        return Fraction(1)
    bits = _BITS + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())  # e^ε may be close to 1
    return (exp_fractions(epsilon, bits)[0] - 1) / (exp_fractions(cost, _BITS)[1] - 1)


def printed_cost(epsilon: Fraction) -> Fraction:
    """2·ln(1 + e^(ε/2)), rounded up: what a round of the variant "printed" adds to the cost of a row of S."""
    return 2 * log_bounds(1 + exp_fractions(epsilon / 2, _BITS)[1], _BITS)[1]


@lru_cache(maxsize=256)
def printed_epsilon(inner: Fraction) -> Fraction:
    """ε of the draw in the variant "printed", in tenths: that for which a round needs the fewest rows of S.

    The rows looked at are ∝ 1/ε and their share is ∝ 1/((1 + g)²·e^inner − 1).
    """
    return min((Fraction(i, 10) for i in range(1, 101)), key=lambda e: math.expm1(float(printed_cost(e) + inner)) / e)


def _check_variant(variant: object) -> None:
    if variant not in ("max", "printed"):
        raise ValueError(f'variant must be "max" or "printed", got {variant!r}')
