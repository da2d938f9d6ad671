"""How much privacy is certainly lost, judged from outside: a lower confidence bound on ε from many runs."""

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
from reticent.exact import integer, rational
from reticent.privacy.parameters import check_delta

BATCHES = 32  # the runs of one kind are handed to the workers in so many pieces
MOST_CUTS = 512  # thresholds tried on one statistic
MOST_COORDINATES = 16
MOST_SINGLES = 64
COMPETITORS = 1000  # about as many events compete; bounds this much surer keep a rare one from winning by luck

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EmpiricalBound:
    """What an empirical audit found.

    Whatever the mechanism, the chance that `epsilon_lower` exceeds the least ε for which it is (ε, `delta`)-private is
    at most 1 − `confidence`. `event` says by which set of outputs the inputs were told apart, and how often it occurred
    on either; `runs` is the number of runs on each input.
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
    first: object,
    second: object,
    *,
    delta: object,
    runs: int = 100_000,
    confidence: float = 0.95,
    epsilon: object = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> EmpiricalBound:
    """A lower confidence bound on the ε of `mechanism`, from `runs` runs on each of two neighbouring inputs.

    `mechanism(first)` and `mechanism(second)` may be anything that can be called; outputs are numbers, or hashable, or
    arrays and lists of such. Nothing is seeded: the mechanism must find its own entropy, as it would in earnest. The
    `epsilon` it claims, if given, is compared with the bound. The runs go through joblib: `jobs=-1` uses all cores,
    and `joblib.parallel_config` decides where they are.

    Half of the runs look for an event E that tells the inputs apart: a set of outputs on which a likelihood ratio,
    counted on a quarter of the runs, is high; a half-line of a numeric output or of a coordinate; a single output.
    The other half, which had no say in the choice, counts how often E occurs on either input. Clopper–Pearson bounds
    p ≤ P(E) and q ≥ Q(E), each missed with probability at most (1 − confidence)/2, then bound ε: from
    P(E) ≤ e^ε·Q(E) + δ follows ε ≥ ln((p − δ)/q), and from the complement, with the roles exchanged,
    ε ≥ ln((1 − q − δ)/(1 − p)). Both follow from the same two bounds, so the greater may be taken.

    >>> import secrets
    >>> leaky = lambda answer: answer if secrets.randbelow(10) else not answer
    >>> empirical(leaky, False, True, delta=0, runs=4000, epsilon=1, quiet=True).passed
    False
    """
    exact_delta = float(check_delta(delta))
    claimed = None if epsilon is None else float(rational(epsilon, "epsilon"))
    runs = integer(runs, "runs", least=8)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if jobs is not None and integer(jobs, "jobs") == 0:
        raise ValueError("jobs must be an integer other than 0, or None, got 0")

    sizes = (runs // 4, runs // 2 - runs // 4, runs - runs // 2)
    learn, select, test = _run(mechanism, (first, second), sizes, jobs, quiet)
    level = (1 - confidence) / 2
    event, forward = _best_event(learn, select, exact_delta, level / COMPETITORS)

    hits = [sum(number for output, number in counts.items() if event.holds(output)) for counts in test]
    more, less = hits if forward else hits[::-1]
    bound = float(_epsilon(more, less, sizes[2], exact_delta, level))
    return EmpiricalBound(
        epsilon_lower=max(0.0, bound),
        delta=exact_delta,
        confidence=confidence,
        runs=runs,
        event=f"{event}: {hits[0]} against {hits[1]} times in {sizes[2]}" if bound > 0 else "no event found",
        claimed=claimed,
    )


def prospect(first: Law, second: Law, *, delta: object, runs: int, confidence: float) -> float:
    """The bound that `empirical` may hope for on two laws that are known: where to look first."""
    outputs = list(first.low.keys() | second.low.keys())
    chances = np.array([[law.probability(output) for output in outputs] for law in (first, second)])
    order = np.argsort(-chances[0] / np.maximum(chances[1], 1e-300))
    tests = runs - runs // 2
    more, less = tests * np.minimum(chances[:, order].cumsum(axis=1), 1)
    return float(_epsilon(more, less, tests, float(check_delta(delta)), (1 - confidence) / 2).max())


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


def _tally(mechanism: Callable[[Any], object], data: object, number: int) -> Counter[Hashable]:
    return Counter(_key(mechanism(data)) for _ in range(number))


def _key(output: object) -> Hashable:
    if isinstance(output, np.ndarray):
        output = output.tolist()
    if isinstance(output, (list, tuple)):
        return tuple(_key(item) for item in output)
    if isinstance(output, float) and math.isnan(output):
        return "nan"  # NaN is unlike itself, and would count as many outputs
    if not isinstance(output, Hashable):
        raise TypeError(f"mechanism must return numbers, hashables or arrays of them, got {type(output).__name__}")
    return output


# ── choosing an event ─────────────────────────────────────────────────────────────────────────────────────────────

@dataclass(frozen=True)
class _Event:
    """The outputs on which a statistic is at least `cut`; the statistic is NaN where it is not defined."""

    statistic: Callable[[Hashable], float]
    name: Callable[[float], str]
    cut: float = 0.0

    def holds(self, output: Hashable) -> bool:
        return self.statistic(output) >= self.cut

    def __str__(self) -> str:
        return self.name(self.cut)


def _best_event(learn: Tallies, select: Tallies, delta: float, level: float) -> tuple[_Event, bool]:
    """The event that promises the highest bound, and whether it is meant to be the likelier on the first input."""
    runs = select[0].total()
    outputs = list(select[0].keys() | select[1].keys())
    counts = np.array([[tally[output] for output in outputs] for tally in select], dtype=float)
    candidates = []
    for event in _events(learn):
        values = np.array([event.statistic(output) for output in outputs])
        cuts, hits = _half_lines(values, counts)
        for forward in (True, False) if cuts.size else ():
            more, less = hits if forward else hits[::-1]
            bounds = _epsilon(more, less, runs, delta, level)
            i = int(bounds.argmax())
            candidates.append((float(bounds[i]), replace(event, cut=float(cuts[i])), forward))
    _, event, forward = max(candidates, key=lambda candidate: candidate[0])
    return event, forward


def _half_lines(values: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Cuts through `values` and how often each input reached them: all cuts, or enough to spread the counts evenly."""
    defined = ~np.isnan(values)
    cuts, place = np.unique(values[defined], return_inverse=True)
    totals = np.array([np.bincount(place, row[defined], minlength=len(cuts)) for row in counts])
    reached = totals[:, ::-1].cumsum(axis=1)[:, ::-1]
    if len(cuts) > MOST_CUTS:
        share = reached.sum(axis=0)
        evenly = np.searchsorted(-share, -share[0] * np.linspace(1, 0, MOST_CUTS, endpoint=False))
        kept = np.unique(np.minimum(evenly, len(cuts) - 1))
        cuts, reached = cuts[kept], reached[:, kept]
    return cuts, reached


def _events(learn: Tallies) -> Iterator[_Event]:
    """The families of events to choose from; the complement of an event is looked at with it."""
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
    except OverflowError:  # an integer or a fraction beyond all floats
        return math.inf if output > 0 else -math.inf  # type: ignore[operator]


def _coordinate(i: int, output: Hashable) -> float:
    items = _flat(output) if isinstance(output, tuple) else ()
    return _number(items[i]) if i < len(items) else math.nan


def _flat(output: Hashable) -> tuple[Hashable, ...]:
    return tuple(leaf for item in output for leaf in _flat(item)) if isinstance(output, tuple) else (output,)


# ── the bound ─────────────────────────────────────────────────────────────────────────────────────────────────────

def _epsilon(more: ArrayLike, less: ArrayLike, runs: int, delta: float, level: float) -> Floats:
    """Lower bounds on ε from events that occurred `more` and `less` often, each count being missed at `level`."""
    p, q = _at_least(more, runs, level), 1 - _at_least(runs - np.asarray(less), runs, level)
    ratio = np.maximum((p - delta) / q, (1 - q - delta) / (1 - p))
    return np.log(np.maximum(ratio, 1e-300))


def _at_least(hits: ArrayLike, runs: int, level: float) -> Floats:
    """The Clopper–Pearson bound: probabilities below it would give as many hits with probability less than `level`."""
    from scipy.special import betaincinv

    k = np.asarray(hits, dtype=float)
    return np.where(k > 0, betaincinv(np.maximum(k, 1e-9), runs - k + 1, level), 0.0)
