"""A private axis-aligned rectangle in any number of dimensions, by a search for each side or by a partition."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from scipy.stats import binom

from reticent.concepts.domains import Domain
from reticent.concepts.rectangles import Rectangle, Rectangles
from reticent.data.points import Array, Labels
from reticent.exact import Number, integer
from reticent.learners.base import ConceptLearner
from reticent.learners.partitions import (
    axis_cells,
    cell_counts,
    finest_grid,
    outermost_cells,
    partition_event,
    partition_share,
    plan_partition,
)
from reticent.learners.ranks import first_and_last
from reticent.learners.sides import SideSearch, plan_side_search, side_scores
from reticent.mechanisms.quasi_concave import check_depth
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import Event, Repeated
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_share, fewest_rows, in_reach
from reticent.sanitizers.thresholds import ThresholdSanitizer

RectangleMethod = Literal["sides", "partition"]
Sides = tuple[list[int], list[int]]  # the ranks of the lower ends, and of the upper ends


class RectangleLearner(ConceptLearner):
    """A rectangle that labels the rows well: 1 where low_i ≤ x_i ≤ high_i in every column i, 0 elsewhere.

    `method="sides"` searches for the 2k sides of the rectangle one after the other, where k is the number of columns. A
    lower end a of column i is good if few rows labelled 1 lie below it and at least one lies at or below it. One more
    candidate lies above all values and makes the rectangle empty; it wins if hardly any row is labelled 1.
    `method="partition"` is the construction of the paper: a sanitizer cuts every axis into cells of about equal weight,
    and the ends are put at the outermost cells in which a noisy count of the rows labelled 1 is large. It needs far
    more rows, and is there for comparison.

    Guarantee. (ε, δ)-differential privacy for a replaced row, values and label, for the published rectangle; with δ =
    0, ε-differential privacy. Public are the number of rows and of columns and every parameter, including the domain;
    the depth, the promise and the event are functions of these.

    Why. *Sides*: a replaced row moves each count by at most 1, so each of the 2k searches is a `quasi_concave_maximum`
    with a score of sensitivity 1, and each gets the largest ε with which all of them fit (ε, δ). *Partition*: the k
    sanitizers and the k noisy histograms are composed likewise. The proof is in `docs/learners/rectangles.md`.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a rectangle,
    then with probability 1 − failure a fresh row is mislabelled with probability at most `error`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §3.5, Theorem 3.21 (used through `ThresholdSanitizer`) and Theorem 3.22, which `method="partition"` embodies, after
    Kearns, *Efficient Noise-Tolerant Learning from Statistical Queries*; the histogram is that of Theorem 2.24.
    Repaired: atoms (a cell of the partition may have to be a single point, or no cell is light); an end is put at the
    inner end of its cell, so that it never lies outside c. New: the search for the sides.

    Parameters
    ----------
    bits : int or None, default None
        The values of all columns are the integers of [0, 2^bits).
    domain : Domain or None, default None
        Given in place of bits: `concepts.Floats()` or `concepts.Datetimes(unit)`.
    dimensions : int or None, default None
        The number of columns, if it must be known before `fit`: for planning, or inside `LabelBoost`.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released rectangle.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound.
    method : {"sides", "partition"}, default "sides"
        How the rectangle is found.
    depth : int or "auto", default "auto"
        The depth of the search for a side, from 1 on; see `quasi_concave_maximum`.
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
    hypothesis_ : Rectangle
        The released rectangle.
    depth_ : int
        The depth that was used, with `method="sides"`.

    >>> import numpy as np
    >>> points = np.stack([np.arange(40_000) % 100, np.arange(40_000) % 99], axis=1)
    >>> inside = ((20 <= points) & (points < 80)).all(axis=1)
    >>> learner = RectangleLearner(bits=7, epsilon=2).fit(points, inside)
    >>> learner.hypothesis_
    Rectangle(low=(20, 20), high=(79, 79))
    >>> RectangleLearner(bits=7, epsilon=1).fit(points, np.zeros(40_000)).predict(points).any()
    np.False_
    """

    def __init__(
        self,
        *,
        bits: int | None = None,
        domain: Domain | None = None,
        dimensions: int | None = None,
        epsilon: Number,
        delta: Number = 0,
        method: RectangleMethod = "sides",
        depth: int | Literal["auto"] = "auto",
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.bits = bits
        self.domain = domain
        self.dimensions = dimensions
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.depth = depth
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None, *, dimensions: int | None = None) -> int:
        """The number of rows with which a fresh row is mislabelled with probability at most `error`.

        The rows are labelled by a rectangle. Computed in floating point, for planning.

        For a partition, let every threshold of every axis have the right share in the copies up to η, and all noise in
        the histograms be below B. A cell of weight at most w holds at most (w + 2η)n rows, a cell that was passed over
        less than 2B rows labelled 1, and there are K ≤ 2/w + 1 cells. So a side cuts off at most
        2BK + (w + 2η)n rows labelled 1. Chernoff's bound gives the rest, and the failure is shared by copies, noise and
        slabs.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        dimensions : int or None, default None
            The number of columns; None is the learner's own, or that of the rows that it was fitted to.

        >>> RectangleLearner(bits=16, epsilon=1).n_required(0.1, dimensions=2)
        12016
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = self._failure(failure)
        columns = self._dimensions(dimensions)
        slab = alpha / (2 * columns)
        if self.method == "partition":
            needed = plan_partition(self._sanitizer(columns, beta), columns, alpha, beta)[0]
        else:
            cut = self.side_search(2 * columns, beta).cut
            needed = fewest_rows(lambda rows: bool(2 * columns * binom.cdf(cut, rows, slab) <= beta / 2))
        return in_reach(needed, lambda rows: check_memory(rows, columns))

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The number of errors that is exceeded with probability at most failure/2; see `ConceptLearner`.

        They are rows labelled 1 that the 2k sides cut off. For a partition no number is promised.
        """
        if self.method == "partition":
            return rows
        return min(rows, 2 * columns * self.side_search(2 * columns, self._failure()).cut)

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Rectangle]:
        learn = self._learn_sides if self.method == "sides" else self._learn_partition
        event = self._event()
        if not fits(event, epsilon=self.epsilon, delta=0):
            check_delta(self.delta, rows=len(rows))
        rectangles = self.hypothesis_class()
        ranks, domain = rectangles.ranks(rows)
        sides = learn(ranks.reshape(len(rows), -1), labels, domain, unsafe_noise)
        if sides is None:
            return release(rectangles.nothing(domain), event, unsafe_noise)
        low, high = (tuple(domain.value(end) for end in ends) for ends in sides)
        return release(Rectangle(low, high), event, unsafe_noise)

    # ── side by side ──────────────────────────────────────────────────────────────────────────────────────────────

    def _learn_sides(self, ranks: Array, labels: Labels, domain: Domain, unsafe_noise: Noise | None) -> Sides | None:
        search = self.side_search(2 * ranks.shape[1], self._failure())
        self.depth_ = search.depth
        first, last = first_and_last(domain)
        found: list[int] = []
        for axis in ranks[labels == 1].T:
            for column in (axis, first + last - axis):  # the upper end is the lower end in the mirror
                found.append(search.run(side_scores(column, search.promise, domain), unsafe_noise))
                if found[-1] > last:  # no point lies between the sides, wherever the others are
                    return None
        return found[::2], [first + last - end for end in found[1::2]]

    def side_search(self, sides: int, failure: Fraction) -> SideSearch:
        """The search for each side; all of them together fail with at most half of the probability of failure.

        Parameters
        ----------
        sides : int
            The number of sides, two per column.
        failure : Fraction
            The probability with which the promise may fail.

        Returns
        -------
        SideSearch
            The depth, the privacy and the promise of one search.
        """
        if self.depth != "auto":
            check_depth(self.depth)
        return plan_side_search(
            self.domain_size() + 1,
            sides=sides,
            depth=self.depth,
            epsilon=check_epsilon(self.epsilon),
            delta=check_delta(self.delta),
            failure=failure / (2 * sides),
        )

    # ── by a partition of the axes ────────────────────────────────────────────────────────────────────────────────

    def _learn_partition(
        self, ranks: Array, labels: Labels, domain: Domain, unsafe_noise: Noise | None
    ) -> Sides | None:
        rows, columns = ranks.shape
        beta, share = self._failure(), self._share(columns)
        grid = finest_grid(rows, columns, share, beta / 3)
        sanitizer = self._sanitizer(columns, beta)
        if self.error is not None:
            _, off = plan_partition(sanitizer, columns, float(check_share(self.error, "error")), beta)
            sanitizer.set_params(error=off)
        low, high = [], []
        for axis in ranks.T:
            copy = sanitizer.fit_with_noise(domain.values(axis), unsafe_noise)
            cells = axis_cells(domain.ranks(copy.points_).tolist(), copy.weights_.tolist(), 1 / grid.size, domain)
            counts = cell_counts(axis[labels == 1], cells, domain)
            ends = outermost_cells(cells, counts, grid.noise, 2 / share, noise_or_system(unsafe_noise))
            if ends is None:
                return None
            low.append(ends[0])
            high.append(ends[1])
        return low, high

    def _sanitizer(self, columns: int, failure: Fraction) -> ThresholdSanitizer:
        """The sanitizer of one axis; all of them together fail with a third of the probability of failure."""
        return ThresholdSanitizer(
            bits=self.bits,
            domain=self.domain,
            epsilon=self._share(columns),
            delta=check_delta(self.delta) / (2 * columns),
            failure=failure / (3 * columns),
        )

    def _share(self, columns: int) -> Fraction:
        """The ε of every sanitizer and of every histogram."""
        return partition_share(columns, check_epsilon(self.epsilon), check_delta(self.delta))

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        if self.method not in ("sides", "partition"):
            raise ValueError(f'method must be "sides" or "partition", got {self.method!r}')
        self.side_search(2, Fraction(1, 20))

    def _dimensions(self, dimensions: int | None = None) -> int:
        """The number of columns: as given, the learner's own, or that of the rows it was fitted to."""
        if dimensions is None:
            dimensions = getattr(self, "n_features_in_", None) if self.dimensions is None else self.dimensions
        if dimensions is None:
            raise ValueError("dimensions must be given, the number of columns: the learner has not seen any rows yet")
        return integer(dimensions, "dimensions", least=1)

    def domain_size(self) -> int:
        """How many values a column may have; ValueError if the domain is not finite."""
        values = Rectangles(1, self.bits, domain=self.domain).values
        if values is None:
            raise ValueError("give bits, or a finite domain such as Floats(): a private rectangle needs a known range")
        return values

    def hypothesis_class(self) -> Rectangles:
        """The concept class that the hypothesis belongs to."""
        return Rectangles(self._dimensions(), self.bits, domain=self.domain)

    def _event(self) -> Event:
        columns = self._dimensions()
        if self.method == "sides":
            return Repeated(self.side_search(2 * columns, self._failure()).event, 2 * columns)
        return partition_event(self._share(columns), columns, check_delta(self.delta))
