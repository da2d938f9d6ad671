"""How much privacy is lost at least, judged from outside: a lower confidence bound on ε from many runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.audit.laws import Law
from reticent.exact import Number, integer, rational
from reticent.privacy.parameters import check_delta

BATCHES = 32  # pieces in which the runs of one kind are handed to workers
MOST_CUTS = 512  # thresholds tried on one statistic
MOST_COORDINATES = 16
MOST_SINGLES = 64
COMPETITORS = 1000  # about this many events compete; surer bounds keep a rare one from winning by luck

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EmpiricalBound:
    """What an empirical audit found.

    For any mechanism, `epsilon_lower` exceeds the least ε for which it is (ε, `delta`)-private with probability at most
    1 − `confidence`.

    Parameters
    ----------
    epsilon_lower : float
        Lower confidence bound on ε.
    delta : float
        The δ at which ε is bounded.
    confidence : float
        Probability with which the bound holds, at least.
    runs : int
        Runs on each input.
    event : str
        The set of outputs that distinguishes the inputs, and how often it occurred on each.
    claimed : float, optional
        The claimed ε.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    runs: int
    event: str
    claimed: float | None = None

    @property
    def passed(self) -> bool | None:
        """False if the claimed ε is refuted, True if it is not; None if none was claimed."""
        return None if self.claimed is None else self.epsilon_lower <= self.claimed

    def __str__(self) -> str:
        verdict = "" if self.claimed is None else f"; ε = {self.claimed:g} {'stands' if self.passed else 'is refuted'}"
        return (
            f"ε ≥ {self.epsilon_lower:.3g} at δ = {self.delta:g}, with {100 * self.confidence:g} % confidence, after "
            f"{self.runs} runs on each input ({self.event}){verdict}"
        )


def empirical(
    mechanism: Callable[[Any], object],
    first: Any,
    second: Any,
    *,
    delta: Number,
    runs: int = 100_000,
    confidence: float = 0.95,
    epsilon: Number | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> EmpiricalBound:
    """Bound the ε of a mechanism from below, by running it on two neighbouring inputs.

    Half of the runs look for an event E that distinguishes the inputs: a set of outputs on which a likelihood ratio,
    counted on a quarter of the runs, is high; a half-line of a numeric output or of a coordinate; a single output.
    The other half is independent of the choice and counts how often E occurs on each input. Clopper–Pearson bounds
    p ≤ P(E) and q ≥ Q(E), each missed with probability at most (1 − confidence)/2, then bound ε: from
    P(E) ≤ e^ε·Q(E) + δ follows ε ≥ ln((p − δ)/q), and from the complement, with the roles exchanged,
    ε ≥ ln((1 − q − δ)/(1 − p)). Both follow from the same two bounds, so the greater may be taken.

    Parameters
    ----------
    mechanism : callable
        Returns numbers, hashable objects, or arrays and lists of such. Nothing is seeded: it must find its own entropy,
        as in production.
    first, second : object
        The neighbouring inputs.
    delta : float or Fraction
        The δ at which ε is bounded.
    runs : int, default 100_000
        Runs on each input.
    confidence : float, default 0.95
        Probability with which the bound holds, at least.
    epsilon : float or Fraction, optional
        The claimed ε, to compare with the bound.
    jobs : int, optional
        Workers of joblib; -1 for all cores. `joblib.parallel_config` decides where they run.
    quiet : bool, default False
        Whether to hide the progress bar.

    Returns
    -------
    EmpiricalBound

    Examples
    --------
    >>> import secrets
    >>> leaky = lambda answer: answer if secrets.randbelow(10) else not answer
    >>> empirical(leaky, False, True, delta=0, runs=4000, epsilon=1, quiet=True).passed
    False
    """
    exact_delta = float(check_delta(delta))
    claimed = None if epsilon is None else float(rational(epsilon, "epsilon"))
    runs = integer(runs, "runs", least=8)
    level = error_level(confidence)
    if jobs is not None and integer(jobs, "jobs") == 0:
        raise ValueError("jobs must be an integer other than 0, or None, got 0")

    sizes = (runs // 4, runs // 2 - runs // 4, runs - runs // 2)
    learn, select, test = _run(mechanism, (first, second), sizes, jobs, quiet)
    event, forward = _best_event(learn, select, exact_delta, level / COMPETITORS)

    hits = [sum(number for output, number in counts.items() if event.holds(output)) for counts in test]
    more, less = hits if forward else hits[::-1]
    bound = float(epsilon_at_least(more, less, runs=sizes[2], delta=exact_delta, level=level))
    return EmpiricalBound(
        epsilon_lower=max(0.0, bound),
        delta=exact_delta,
        confidence=confidence,
        runs=runs,
        event=f"{event}: {hits[0]} against {hits[1]} times in {sizes[2]}" if bound > 0 else "no event found",
        claimed=claimed,
    )


def prospect(first: Law, second: Law, *, delta: Number, runs: int, confidence: float) -> float:
    """Return the bound that `empirical` can expect on two known laws, to choose where to look first."""
    outputs = list(first.low.keys() | second.low.keys())
    chances = np.array([[law.probability(output) for output in outputs] for law in (first, second)])
    order = np.argsort(-chances[0] / np.maximum(chances[1], 1e-300))
    tests = runs - runs // 2
    more, less = tests * np.minimum(chances[:, order].cumsum(axis=1), 1)
    level = error_level(confidence)
    return float(epsilon_at_least(more, less, runs=tests, delta=float(check_delta(delta)), level=level).max())


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────

Tallies = tuple[Counter[Hashable], Counter[Hashable]]  # of the outputs on the first and on the second input


def _run(
    mechanism: Callable[[Any], object],
    inputs: tuple[object, object],
    sizes: tuple[int, ...],
    jobs: int | None,
    quiet: bool,
) -> list[Tallies]:
    from joblib import Parallel, delayed

    tasks = [(kind, which, number) for kind, size in enumerate(sizes) for which in (0, 1) for number in _split(size)]
    tallies: list[Tallies] = [(Counter(), Counter()) for _ in sizes]
    with _progress(2 * sum(sizes), quiet) as advance:
        counted = Parallel(n_jobs=jobs, return_as="generator")(
            delayed(_tally)(mechanism, inputs[which], number) for _, which, number in tasks
        )
        for (kind, which, number), tally in zip(tasks, counted, strict=True):
            tallies[kind][which].update(tally)
            advance(number)
    return tallies


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal if rich is installed; otherwise nothing."""
    if quiet or find_spec("rich") is None:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield partial(progress.advance, progress.add_task("auditing", total=total))


def _split(size: int) -> Iterator[int]:
    numbers = (size * (i + 1) // BATCHES - size * i // BATCHES for i in range(BATCHES))
    return (number for number in numbers if number)


def _tally(mechanism: Callable[[Any], Any], data: Any, number: int) -> Counter[Hashable]:
    return Counter(_key(mechanism(data)) for _ in range(number))


def _key(output: object) -> Hashable:
    if isinstance(output, np.ndarray):
        output = output.tolist()
    if isinstance(output, (list, tuple)):
        return tuple(_key(item) for item in output)
    if isinstance(output, float) and math.isnan(output):
        return "nan"  # NaN differs from itself, and would count as many outputs
    if not isinstance(output, Hashable):
        raise TypeError(f"mechanism must return numbers, hashables or arrays of them, got {type(output).__name__}")
    return output


# ── choosing an event ─────────────────────────────────────────────────────────────────────────────────────────────

@dataclass(frozen=True)
class _Event:
    """The outputs on which a statistic is at least `cut`. The statistic is NaN if it is not defined."""

    statistic: Callable[[Hashable], float]
    name: Callable[[float], str]
    cut: float = 0.0

    def holds(self, output: Hashable) -> bool:
        return self.statistic(output) >= self.cut

    def __str__(self) -> str:
        return self.name(self.cut)


def _best_event(learn: Tallies, select: Tallies, delta: float, level: float) -> tuple[_Event, bool]:
    """Return the event with the highest expected bound, and whether it is likelier on the first input."""
    runs = select[0].total()
    outputs = list(select[0].keys() | select[1].keys())
    counts = np.array([[tally[output] for output in outputs] for tally in select], dtype=float)
    candidates = []
    for event in _events(learn):
        values = np.array([event.statistic(output) for output in outputs])
        cuts, hits = _half_lines(values, counts)
        for forward in (True, False) if cuts.size else ():
            more, less = hits if forward else hits[::-1]
            bounds = epsilon_at_least(more, less, runs=runs, delta=delta, level=level)
            i = int(bounds.argmax())
            candidates.append((float(bounds[i]), replace(event, cut=float(cuts[i])), forward))
    _, event, forward = max(candidates, key=lambda candidate: candidate[0])
    return event, forward


def _half_lines(values: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return cuts through `values`, and how often each input reached them. Many cuts are thinned out evenly."""
    defined = ~np.isnan(values)
    cuts, indices = np.unique(values[defined], return_inverse=True)
    totals = np.array([np.bincount(indices, row[defined], minlength=len(cuts)) for row in counts])
    reached = totals[:, ::-1].cumsum(axis=1)[:, ::-1]
    if len(cuts) > MOST_CUTS:
        share = reached.sum(axis=0)
        evenly = np.searchsorted(-share, -share[0] * np.linspace(1, 0, MOST_CUTS, endpoint=False))
        kept = np.unique(np.minimum(evenly, len(cuts) - 1))
        cuts, reached = cuts[kept], reached[:, kept]
    return cuts, reached


def _events(learn: Tallies) -> Iterator[_Event]:
    """Yield the events to choose from; the complement of an event is considered with it."""
    ratios = {o: math.log((learn[0][o] + 0.5) / (learn[1][o] + 0.5)) for o in learn[0].keys() | learn[1].keys()}
    yield _Event(partial(_lookup, ratios), partial(_name_set, ratios))
    for output, _ in (learn[0] + learn[1]).most_common(MOST_SINGLES):
        yield _Event(partial(_lookup, {output: 1.0}), partial(_name_set, {output: 1.0}))
    if any(isinstance(output, Real) for output in ratios):
        yield _Event(_number, "output ≥ {:g}".format)
    for i in range(min(MOST_COORDINATES, max(len(_flat(o)) if isinstance(o, tuple) else 0 for o in ratios))):
        yield _Event(partial(_coordinate, i), f"output[{i}] ≥ {{:g}}".format)


def _lookup(values: dict[Hashable, float], output: Hashable) -> float:
    return values.get(output, 0.0)


def _name_set(values: dict[Hashable, float], cut: float) -> str:
    chosen = [str(output) for output, value in values.items() if (value >= cut) == (cut > 0)]
    listed = ", ".join(chosen[:4]) + (f" and {len(chosen) - 4} more" if len(chosen) > 4 else "")
    return f"output {'in' if cut > 0 else 'not in'} {{{listed}}}"


def _number(output: object) -> float:
    if not isinstance(output, Real):
        return math.nan
    try:
        return float(output)
    except OverflowError:  # an integer or a fraction beyond the range of floats
        return math.inf if output > 0 else -math.inf  # type: ignore[operator]


def _coordinate(i: int, output: Hashable) -> float:
    items = _flat(output) if isinstance(output, tuple) else ()
    return _number(items[i]) if i < len(items) else math.nan


def _flat(output: Hashable) -> tuple[Hashable, ...]:
    return tuple(leaf for item in output for leaf in _flat(item)) if isinstance(output, tuple) else (output,)


# ── the bound ─────────────────────────────────────────────────────────────────────────────────────────────────────

def error_level(confidence: float) -> float:
    """Return the probability with which each of two bounds may fail; raise `ValueError` for a bad confidence."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return (1 - confidence) / 2


def epsilon_at_least(more: ArrayLike, less: ArrayLike, *, runs: int, delta: float, level: float) -> Floats:
    """Return lower bounds on ε from events that occur often on one input and rarely on the other.

    Parameters
    ----------
    more, less : array-like of int
        How often each event occurred on the two inputs.
    runs : int
        Runs on each input.
    delta : float
        The δ at which ε is bounded.
    level : float
        Probability with which the bound on each count may fail.
    """
    p, q = probability_at_least(more, runs, level), 1 - probability_at_least(runs - np.asarray(less), runs, level)
    ratio = np.maximum((p - delta) / q, (1 - q - delta) / (1 - p))
    return np.log(np.maximum(ratio, 1e-300))


def probability_at_least(hits: ArrayLike, runs: int, level: float) -> Floats:
    """Return the Clopper–Pearson bound: a lower probability gives this many hits with probability below `level`."""
    from scipy.special import betaincinv

    k = np.asarray(hits, dtype=float)
    return np.where(k > 0, betaincinv(np.maximum(k, 1e-9), runs - k + 1, level), 0.0)
