"""A private axis-aligned rectangle in any number of dimensions, side by side or by a partition of the axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import binom

from reticent.concepts.domains import Domain
from reticent.concepts.order import Line
from reticent.concepts.rectangles import Rectangle, Rectangles
from reticent.data.points import Array, Labels
from reticent.exact import Number, integer
from reticent.learners.base import ConceptLearner
from reticent.mechanisms.counts import laplace_tail
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import SMALL, choose_depth, quasi_concave_maximum, required_promise
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import calibrate, fits
from reticent.privacy.events import ApproximateDP, BoundedRange, Composed, Event, PureDP, Repeated
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_share, fewest_rows, in_reach, rows_needed
from reticent.sanitizers.thresholds import ThresholdSanitizer

Method = Literal["sides", "partition"]
Sides = tuple[list[int], list[int]]  # the ranks of the lower ends, and of the upper ends


class RectangleLearner(ConceptLearner):
    """A rectangle that labels the rows well: 1 where low_i ≤ x_i ≤ high_i in every column i, 0 elsewhere.

    `method="sides"` looks for the 2k sides of the rectangle, k being the number of columns, one after the other. A
    lower end a of column i is good if few rows labelled 1 lie below it and at least one lies at or below it. Among the
    candidates is an end above all values, by which the rectangle is empty; it wins where hardly any row is labelled 1.
    `method="partition"` is the construction of the paper: a sanitizer cuts every axis into cells of about equal
    weight, and the ends are put at the outermost cells in which a noisy count of the rows labelled 1 is large. It
    needs far more rows, and is there to be compared.

    Guarantee. (ε, δ)-differential privacy for a replaced row, values and label, for the published rectangle; with
    δ = 0, ε-differential privacy. Public are the number of rows and of columns and every parameter, the domain among
    them; the depth, the promise and the event are functions of these.

    Why. *Sides.* Let x run over the values in column i of the rows labelled 1. A lower end a has the score
    Q(a) = min(#{x ≤ a}, 2r − 1 − #{x < a}), the end above all values the score 2r − 1 − #{x}, as if #{x ≤ a} were
    infinite there. A replaced row moves each of the counts by at most 1, hence Q too. So each of the 2k searches
    (upper ends are lower ends in the mirror) is a `quasi_concave_maximum` with a score of sensitivity 1, and together
    they are the event of 2k such searches, each with the largest ε for which that event fits (ε, δ): ε/2k each where
    δ = 0, more where δ > 0, by the composition of losses of bounded range. Once a side makes the rectangle empty, no
    other is looked for; all are paid for. *Partition.* The k sanitizers and the k histograms, from which a replaced row
    takes 1 in one cell and to which it adds 1 in another, are composed likewise; cells are functions of the copies.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a rectangle
    c, then with probability 1 − failure a fresh row is mislabelled with probability at most α = `error`. #{x ≤ a}
    never falls and 2r − 1 − #{x < a} never rises with a: Q is quasi-concave on any data. max Q ≥ r on any data: with
    r rows labelled 1 or more, take the r-th least value, at or below which lie r values or more and below which at
    most r − 1, whatever the ties; with fewer, the end above all values. So r, the promise that the search needs, is
    kept, and but for half of the failure all searches find an end of score 1 or more. Such an end cuts off at most
    2r − 2 rows labelled 1, and lies inside c, or makes the rectangle empty. So no row is wrongly labelled 1, and the
    wrong 0s lie in the slabs {x in c: x_i < low_i} and {x in c: x_i > high_i}. The slabs of a side are nested. The
    least of those that are hit with probability above α/2k has 2r − 2 rows or fewer with probability
    P(Bin(n, α/2k) ≤ 2r − 2); 2k times this must be at most the other half of the failure. The partition, whose cells
    are single points or light, is analysed in the same way; see `n_required`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §3.5, Theorem 3.21 (used through `ThresholdSanitizer`) and Theorem 3.22, which `method="partition"` embodies, after
    Kearns, *Efficient Noise-Tolerant Learning from Statistical Queries*; the histogram is that of Theorem 2.24.
    Repaired: atoms (a cell of the partition may have to be a single point, or no cell is light); an end is put at the
    inner end of its cell, so that it never lies outside c. New: the search for the sides.

    Parameters
    ----------
    bits : the values of all columns are the integers of [0, 2^bits).
    domain : in place of bits, `concepts.Floats()` or `concepts.Datetimes(unit)`.
    dimensions : the number of columns, where it must be known before `fit`: to plan, or inside `LabelBoost`.
    epsilon, delta : the privacy of the rectangle; δ = 0 is allowed.
    method : "sides" or "partition".
    depth : of the search for a side, as in `quasi_concave_maximum`: "auto" or a whole number from 1 on.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released `concepts.Rectangle`.
    depth_ : the depth that was used, with `method="sides"`.

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
        method: Method = "sides",
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
        """The rows with which a fresh row is mislabelled with probability at most `error`, but for a `failure`.

        The rows are drawn from any distribution and labelled by a rectangle. `dimensions` is the number of columns, by
        default the learner's own or that of the rows it was fitted to. The learner is one made with this `failure`
        (None means its own), and for a partition with this `error`. Planning, in floating point.

        For a partition, let every threshold of every axis have the right share in the copies up to η, and all noise in
        the histograms be below B. A cell of weight at most w holds at most (w + 2η)n rows, a cell that was passed over
        less than 2B rows labelled 1, and there are K ≤ 2/w + 1 cells. So a side cuts off at most
        2BK + (w + 2η)n rows labelled 1, which takes the place of 2r − 2 above; here by Chernoff's bound, which does
        not let more rows fail where fewer do. The failure is shared by copies, noise and slabs.

        >>> RectangleLearner(bits=16, epsilon=1).n_required(0.1, dimensions=2)
        12016
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = check_share(self.failure if failure is None else failure, "failure")
        columns = self._dimensions(dimensions)
        slab = alpha / (2 * columns)
        if self.method == "partition":
            needed = plan_partition(self._sanitizer(columns, beta), columns, alpha, beta)[0]
        else:
            cut = self.side_search(2 * columns, beta).cut
            needed = fewest_rows(lambda rows: bool(2 * columns * binom.cdf(cut, rows, slab) <= beta / 2))
        return in_reach(needed, lambda rows: check_memory(rows, columns))

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The most errors on this many rows that a rectangle fits, but for a probability of failure/2.

        They are rows labelled 1 that the 2k sides cut off. For a partition no number is promised.
        """
        if self.method == "partition":
            return rows
        return min(rows, 2 * columns * self.side_search(2 * columns, check_share(self.failure, "failure")).cut)

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
        search = self.side_search(2 * ranks.shape[1], check_share(self.failure, "failure"))
        self.depth_ = search.depth
        first, last = _ends(domain)
        found: list[int] = []
        for axis in ranks[labels == 1].T:
            for column in (axis, first + last - axis):  # the upper end is the lower end in the mirror
                found.append(search.run(side_scores(column, search.promise, domain), unsafe_noise))
                if found[-1] > last:  # no point lies between the sides, wherever the others are
                    return None
        return found[::2], [first + last - end for end in found[1::2]]

    def side_search(self, sides: int, failure: Fraction) -> Search:
        """How each of so many sides is looked for; all of them fail with half of the probability of failure."""
        if self.depth != "auto":
            if isinstance(self.depth, str):
                raise ValueError(f'depth must be "auto" or a whole number ≥ 1, got {self.depth!r}')
            integer(self.depth, "depth", least=1)
        return plan_search(
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
        beta, share = check_share(self.failure, "failure"), self._share(columns)
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
            ends = _outermost(cells, counts, grid.noise, 2 / share, noise_or_system(unsafe_noise))
            if ends is None:
                return None
            low.append(ends[0])
            high.append(ends[1])
        return low, high

    def _sanitizer(self, columns: int, failure: Fraction) -> ThresholdSanitizer:
        """The sanitizer of one axis; all of them fail with a third of the probability of failure."""
        return ThresholdSanitizer(
            bits=self.bits,
            domain=self.domain,
            epsilon=self._share(columns),
            delta=check_delta(self.delta) / (2 * columns),
            failure=failure / (3 * columns),
        )

    def _share(self, columns: int) -> Fraction:
        """The ε of every sanitizer and of every histogram."""
        return _partition_share(columns, check_epsilon(self.epsilon), check_delta(self.delta))

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        if self.method not in ("sides", "partition"):
            raise ValueError(f'method must be "sides" or "partition", got {self.method!r}')
        self.side_search(2, Fraction(1, 20))

    def _dimensions(self, dimensions: object = None) -> int:
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
            return Repeated(self.side_search(2 * columns, check_share(self.failure, "failure")).event, 2 * columns)
        return _partition_event(self._share(columns), columns, check_delta(self.delta))


# ── how a side is looked for ──────────────────────────────────────────────────────────────────────────────────────


class Search(NamedTuple):
    """How one side is looked for: the depth of the search, its event, and the promise that it needs."""

    depth: int
    event: BoundedRange | ApproximateDP
    failure: Fraction
    promise: int

    @property
    def cut(self) -> int:
        """The most positive rows that a side cuts off if its search succeeds."""
        return 2 * self.promise - 2

    def run(self, scores: Pieces, unsafe_noise: Noise | None) -> int:
        """The rank of a side, or the integer above all ranks."""
        return quasi_concave_maximum(
            scores,
            promise=self.promise,
            accuracy=_ACCURACY,
            epsilon=self.event.epsilon,
            delta=getattr(self.event, "delta", 0),
            depth=self.depth,
            failure=self.failure,
            unsafe_noise=unsafe_noise,
        ).value


_ACCURACY = Fraction(999, 1000)  # a whole score of at least promise/1000 is at least 1, which is all that a side needs


@lru_cache(maxsize=256)
def plan_search(
    size: int, *, sides: int, depth: int | Literal["auto"], epsilon: Fraction, delta: Fraction, failure: Fraction
) -> Search:
    """The search that needs the least promise, or that of the given depth, on a range of `size` integers.

    `failure` is that of one search. Each of the sides gets the largest ε with which all of them together are certified
    to fit (ε, δ). The searches of depth 1 leave all of δ to the composition, the deeper ones use half of it themselves.
    """
    goal = {"accuracy": _ACCURACY, "failure": failure}

    def search(depth: int, event: BoundedRange | ApproximateDP) -> Search:
        own = {"epsilon": event.epsilon, "delta": getattr(event, "delta", 0)}
        return Search(depth, event, failure, required_promise(size, depth=depth, **goal, **own))

    def largest(event_of: Callable[[Fraction], Event]) -> Fraction:
        if delta == 0:
            return epsilon / sides
        divisor = calibrate.noise(lambda x: Repeated(event_of(epsilon / x), sides), epsilon=epsilon, delta=delta)
        return epsilon / min(divisor, Fraction(sides))

    plain = search(1, BoundedRange(largest(BoundedRange)))
    if depth == 1 or size <= SMALL + 1 or (depth == "auto" and delta == 0):
        return plain
    share = check_delta(delta, positive=True) / (2 * sides)
    deeper = ApproximateDP(largest(lambda each: ApproximateDP(each, share)), share)
    if depth != "auto":
        return search(depth, deeper)
    best = choose_depth(size, epsilon=deeper.epsilon, delta=share, **goal)
    return min(plain, search(best, deeper), key=lambda found: found.promise) if best > 1 else plain


def side_scores(positives: Array, promise: int, domain: Domain) -> Pieces:
    """The score Q(a) = min(#{x ≤ a}, 2r − 1 − #{x < a}) of every lower end a, and 2r − 1 − #{x} of the empty side.

    r is the promise; the empty side is the integer above all ranks. The counts change at and right after a value.
    """
    first, last = _ends(domain)
    kind = _rank_type(domain)
    line = Line(positives.astype(kind))
    ends = np.array([first, last + 1], dtype=kind)
    starts = np.unique(np.concatenate([ends, line.points, line.points + 1]))
    most = 2 * promise - 1
    scores = most - line.before(starts).astype(np.int64 if most < 1 << 62 else object)
    scores[:-1] = np.minimum(scores[:-1], line.before(starts[:-1], included=True))
    return Pieces.from_breakpoints(starts, scores, last=last + 1)


# ── how an axis is cut ────────────────────────────────────────────────────────────────────────────────────────────


class Grid(NamedTuple):
    """Cells of weight at most 1/size, and the level that noise in the count of a cell does not reach."""

    size: int
    noise: int
    cut: float  # rows that may be cut off, but for the error of the sanitizer


def finest_grid(rows: int, columns: int, epsilon: Fraction, failure: Fraction) -> Grid:
    """Of the grids with a power of two for their size, the one that cuts off the fewest rows."""
    grids = []
    for exponent in range(1, rows.bit_length() + 1):
        size, most = 1 << exponent, 2 * (1 << exponent) + 1
        level = laplace_tail(rate=epsilon / 2, probability=failure / (2 * columns * most))
        grids.append(Grid(size, level, 2 * level * most + rows / size))
    return min(grids, key=lambda grid: grid.cut)


def plan_partition(
    sanitizer: ThresholdSanitizer, columns: int, alpha: float, failure: Fraction
) -> tuple[int, float]:
    """The rows needed, and by how much a copy may then put the share of a threshold off."""
    parameters = sanitizer.get_params()
    return _plan_partition(tuple(sorted(parameters.items())), columns, alpha, failure)


@lru_cache(maxsize=256)
def _plan_partition(
    parameters: tuple[tuple[str, Any], ...], columns: int, alpha: float, failure: Fraction
) -> tuple[int, float]:
    sanitizer, slab = ThresholdSanitizer(**dict(parameters)), alpha / (2 * columns)
    epsilon = check_epsilon(sanitizer.epsilon)

    def rows_for(off: float) -> int:
        def suffices(rows: int) -> bool:
            cut = finest_grid(rows, columns, epsilon, failure / 3).cut / rows + 2 * off
            return cut < slab and 2 * columns * math.exp(-rows * _divergence(cut, slab)) <= failure / 3

        return max(rows_needed(sanitizer.n_required, off), fewest_rows(suffices))

    return min((rows_for(part * slab), part * slab) for part in (0.0625, 0.125, 0.25))


def axis_cells(points: list[int], weights: list[float], most: float, domain: Domain) -> list[tuple[int, int]]:
    """Ranges [low, high] that follow each other and fill the domain: single points, or of weight at most `most`.

    The points are ascending ranks. Of two cells in a row, of which the second is not the last, the weights sum to more
    than `most`; so there are at most 2/most + 1 of them where all weights sum to at most 1.
    """
    start, last = _ends(domain)
    cells, held = [], 0.0
    for point, weight in zip(points, weights, strict=True):
        if held + weight > most:
            if start < point:
                cells.append((start, point - 1))
            start, held = point, 0.0
            if weight > most:
                cells.append((point, point))
                start, weight = point + 1, 0.0  # noqa: PLW2901
        held += weight
    return [*cells, (start, last)] if start <= last else cells


def cell_counts(ranks: Array, cells: list[tuple[int, int]], domain: Domain) -> list[int]:
    """How many of the ranks lie in each cell."""
    kind = _rank_type(domain)
    highs = np.array([high for _, high in cells], dtype=kind)
    places = np.searchsorted(highs, ranks.astype(kind))
    return [int(count) for count in np.bincount(places, minlength=len(cells))]


def _outermost(
    cells: list[tuple[int, int]], counts: list[int], level: int, scale: Fraction, noise: Noise
) -> tuple[int, int] | None:
    """The inner ends of the first and the last cell whose count with noise reaches the level."""

    def reaches(index: int) -> bool:
        return noise.laplace_cell(scale, [level - counts[index]]) == 1

    # The cells between the two are of no interest, so their noise is not drawn.
    left = next((index for index in range(len(cells)) if reaches(index)), None)
    if left is None:
        return None
    right = next((index for index in range(len(cells) - 1, left, -1) if reaches(index)), left)
    return cells[left][1], cells[right][0]


@lru_cache(maxsize=256)
def _partition_share(columns: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ε that every sanitizer and every histogram may have."""
    if delta == 0:
        return epsilon / (2 * columns)
    divisor = calibrate.noise(lambda x: _partition_event(epsilon / x, columns, delta), epsilon=epsilon, delta=delta)
    return epsilon / min(divisor, Fraction(2 * columns))


def _partition_event(share: Fraction, columns: int, delta: Fraction) -> Event:
    """The sanitizers, which use half of δ, and the histograms."""
    copies = Repeated(ApproximateDP(share, delta / (2 * columns)), columns)
    return Composed((copies, Repeated(PureDP(share), columns)))


def _divergence(share: float, probability: float) -> float:
    """The exponent of Chernoff's bound: P(Bin(n, probability) ≤ share·n) ≤ e^(−n·divergence)."""
    return share * math.log(share / probability) + (1 - share) * math.log((1 - share) / (1 - probability))


def _rank_type(domain: Domain) -> Any:
    """A type that holds all ranks and the integer above them."""
    return np.int64 if _ends(domain)[1] + 1 < 1 << 63 else object


def _ends(domain: Domain) -> tuple[int, int]:
    assert domain.first is not None
    assert domain.last is not None
    return domain.first, domain.last
