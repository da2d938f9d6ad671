"""What events cost: the least ε or δ that any of several methods certifies.

Each method gives an upper bound, so the smallest of them is one too. In order of run time:

basic        ε and δ add up, in exact fractions (`pairs`).
Rényi        divergences add up order by order and are converted (`divergences`); covers zCDP.
closed form  Gaussian compositions, optimal composition of equal ε, single releases (`profiles`).
game         up to 2000 equal one-bit answers, each chosen depending on earlier ones (`games`).
losses       the composed privacy loss on a grid, for all other events (`losses`).

The list of events is fixed in advance: queries may be adaptive, the parameters of events may not. If events are chosen
adaptively, use the filters of `ledger`.

Events state exact laws, and the package draws from exactly these laws, so no distance between the two is charged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from reticent.exact import Number, rational, upward
from reticent.privacy import divergences, events, games, pairs, profiles
from reticent.privacy.events import Event, check_event, is_seeded
from reticent.privacy.floats import Floats, downward, upward_or_infinite
from reticent.privacy.guarantee import Guarantee, Protects, Unit
from reticent.privacy.losses import Composition, Losses, dominating, spread_on_grid
from reticent.privacy.parameters import check_delta, float_above
from reticent.privacy.parts import Parts, other_reading, parts
from reticent.privacy.survival import survival

_LARGEST_GRID = 1 << 19
_LEAST_EPSILON = 2.0**-40
_COARSENESS = 3e-4  # how much of the variance of the loss the grid may add
_LARGEST_LOSS = 600.0  # larger losses count as infinite
_MOST_PARTS = 1 << 128  # beyond this number, only divergences are computed
_DOTS = np.append(0.0, np.geomspace(1e-7, _LARGEST_LOSS, 80))


# ── public functions ──────────────────────────────────────────────────────────────────────────────────────────────

def epsilon(event: Event, *, delta: Number) -> float:
    """Return the least certified ε of an event at δ, rounded up; infinity if there is none.

    Parameters
    ----------
    event : Event
        What happened, or will happen.
    delta : int, float, Fraction or Decimal
        The δ, in [0, 1).

    Examples
    --------
    >>> from reticent.privacy.events import ContinuousGaussian, PureDP, Repeated
    >>> epsilon(Repeated(PureDP(0.1), 10), delta=0)
    1.0
    >>> round(epsilon(Repeated(ContinuousGaussian(10), 1000), delta=1e-6), 9)
    19.423656474
    """
    exact = check_delta(delta)
    return _epsilon(check_event(event), exact)


def delta(event: Event, *, epsilon: Number) -> float:
    """Return the least certified δ of an event at ε, rounded up; 1 if there is none.

    Parameters
    ----------
    event : Event
        What happened, or will happen.
    epsilon : int, float, Fraction or Decimal
        The ε, at least 0.

    Examples
    --------
    >>> from reticent.privacy.events import PureDP
    >>> delta(PureDP(1), epsilon=1)
    0.0
    """
    exact = _check_epsilon(epsilon)
    basic = pairs.pair(check_event(event))
    best = 1.0 if basic is None or basic[0] > exact else _decimal_above(basic[1])
    return min(best, float(_deltas(event, np.array([downward(exact)]))[0])) if best > 0 else best


def fits(event: Event, *, epsilon: Number, delta: Number) -> bool:
    """Return whether the event is certainly (ε, δ)-differentially private. The fastest method that shows it decides.

    Parameters
    ----------
    event : Event
        What happened, or will happen.
    epsilon, delta : int, float, Fraction or Decimal
        The budget.

    Examples
    --------
    >>> from reticent.privacy.events import DiscreteGaussian
    >>> fits(DiscreteGaussian(sigma=5), epsilon=1, delta=1e-6)
    True
    """
    exact_epsilon, exact_delta = _check_epsilon(epsilon), check_delta(delta)
    basic = pairs.pair(check_event(event))
    if basic is not None and basic[0] <= exact_epsilon and basic[1] <= exact_delta:
        return True
    at, most = np.array([downward(exact_epsilon)]), downward(exact_delta)
    return most > 0 and any(float(bound(at)[0]) <= most for bound in _delta_bounds(event))


def guarantee(event: Event, *, delta: Number = 0, unit: Unit = "row", protects: Protects = "rows") -> Guarantee:
    """Return the guarantee of a run with this event, at a given δ.

    Parameters
    ----------
    event : Event
        What happened, or will happen.
    delta : int, float, Fraction or Decimal, default 0
        The δ, in [0, 1).
    unit : {"row", "group"}, default "row"
        What the event was stated for; it is passed on, not proved. For "group" the event must have been stated for
        groups (see `Grouped`).
    protects : {"rows", "labels"}, default "rows"
        What the event was stated for; it is passed on, not proved. For "labels", neighbours differ in a label. "rows
        and queries" is refused, as no event states it: a service that proves it makes its own `Guarantee`.

    Examples
    --------
    >>> from reticent.privacy.events import PureDP
    >>> guarantee(PureDP(0.5))
    Guarantee(epsilon=0.5, delta=0.0, unit='row', protects='rows', neighbours='replace-one', seeded=False)
    """
    if protects == "rows and queries":
        raise ValueError("protects must be 'rows' or 'labels', got 'rows and queries': no event states it of queries")
    least = epsilon(event, delta=delta)
    if not math.isfinite(least):
        raise ValueError(f"no finite epsilon can be certified for this event at delta={delta}; ask for a larger delta")
    return Guarantee(
        epsilon=max(least, _LEAST_EPSILON),
        delta=float_above(check_delta(delta)),
        unit=unit,
        protects=protects,
        seeded=is_seeded(event),
    )


def rho(event: Event) -> Fraction | None:
    """Return the ρ for which the event is ρ-zCDP, exactly; None if it has none.

    Parameters
    ----------
    event : Event
        What happened, or will happen.

    >>> from reticent.privacy.events import DiscreteGaussian
    >>> rho(DiscreteGaussian(sigma=10))
    Fraction(1, 200)
    """
    return pairs.rho(check_event(event))


def renyi(event: Event, order: float) -> float:
    """Bound the Rényi divergence of an event from above; infinity if it has none.

    Parameters
    ----------
    event : Event
        What happened, or will happen. An event with a δ of its own has no divergence.
    order : float
        The order, above 1.
    """
    exact = rational(order, "order")
    if not 1 < exact <= 10**100:
        raise ValueError(f"order must be a finite number > 1 and at most 10^100, got {order}")
    slack, values = divergences.divergence(check_event(event), np.array([upward(exact)]))
    return float(values[0]) if slack == 0 else math.inf


@lru_cache(maxsize=4096)  # every fit asks for the guarantee of its event
def _epsilon(event: Event, exact: Fraction) -> float:
    basic = pairs.pair(event)
    best = _decimal_above(basic[0]) if basic is not None and basic[1] <= exact else math.inf
    return best if exact == 0 else min(best, _least_epsilon(event, exact))


# ── methods of pricing ────────────────────────────────────────────────────────────────────────────────────────────

DeltaBound = Callable[[Floats], Floats]


def _delta_bounds(event: Event) -> list[DeltaBound]:
    """Upper bounds on δ(ε) by all methods, the fastest first."""
    bounds: list[DeltaBound] = [lambda at: divergences.deltas(event, at)]
    bag = parts(event)
    if _too_many(bag):
        return bounds
    closed = _closed_form(bag) or _game(bag)
    if closed is not None:
        return [*bounds, closed]
    return [*bounds, lambda at: _composition(bag).deltas(at)] if _worth_a_grid(bag) else bounds


def _deltas(event: Event, at: Floats) -> Floats:
    """The least of all upper bounds on δ(ε)."""
    basic = pairs.pair(event)
    best = np.ones_like(at)
    if basic is not None:
        best = np.where(at >= upward_or_infinite(basic[0]), upward_or_infinite(basic[1]), 1.0)
    for bound in _delta_bounds(event):
        best = np.minimum(best, bound(at))
    return best


def _least_epsilon(event: Event, exact: Fraction) -> float:
    """The least ε that any method certifies at δ > 0."""
    most = downward(exact)
    best = divergences.renyi_epsilon(event, most)
    bag = parts(event)
    match bag:
        case ((events.Parallel(events=members), 1),):
            return min(best, max(epsilon(member, delta=exact) for member in members))
        case ((events.Subsampled() as part, 1),):
            return min(best, _least_subsampled_epsilon(part, exact))
    if _too_many(bag):
        return best
    closed = _closed_form(bag) or _game(bag)
    if closed is not None:
        return min(best, profiles.least_epsilon(closed, most, best))
    if not _worth_a_grid(bag):
        return best
    composition = _composition(bag)
    return min(best, composition.epsilon(most, best if best < math.inf else composition.typical) * (1 + 1e-12))


def _too_many(bag: Parts) -> bool:
    halts = (part.halts if isinstance(part, events.SparseVectorRun) else 1 for part, _ in bag)
    return sum(times * most for (_, times), most in zip(bag, halts, strict=True)) > _MOST_PARTS


def _worth_a_grid(bag: Parts) -> bool:
    """Whether losses on a grid can improve on divergences.

    On a grid, each one-bit answer would cost as much as its noisy count, so divergences are better for many of them. If
    only one order of a part is known, a grid adds nothing.
    """
    if any(isinstance(part, events.RenyiDP) for part, _ in bag):
        return False
    return not all(isinstance(part, events.GaussianBit) for part, _ in bag) or sum(times for _, times in bag) < 10


def _least_subsampled_epsilon(part: events.Subsampled, exact: Fraction) -> float:
    within = exact / part.rate
    least = epsilon(part.event, delta=within) if within < 1 else 0.0
    own = math.inf
    if least < math.inf:
        own = upward_or_infinite(pairs.amplified(max(Fraction(least), rational(least, "epsilon")), part.rate))
    other = other_reading(part)
    return own if other is None else max(own, epsilon(other, delta=exact))


def _closed_form(bag: Parts) -> DeltaBound | None:
    """The exact profile of a bag of parts, if it has a closed form."""
    gaussians = [(part, times) for part, times in bag if isinstance(part, events.ContinuousGaussian)]
    if len(gaussians) == len(bag):
        square = sum((_squared_mu(part) * times for part, times in gaussians), Fraction(0))
        return lambda at: profiles.gaussian(square, at)
    equal = _equal_pairs(bag)
    if equal is not None:
        own, count, slack, lost = equal

        def optimal(at: Floats) -> Floats:
            composed = np.array([profiles.optimal_composition(own, count, float(value)) for value in at])
            return np.minimum(1.0, (slack + lost + (1 - lost) * composed) * (1 + 1e-14))

        return optimal
    if len(bag) == 1 and bag[0][1] == 1:
        return _single(bag[0][0])
    return None


def _game(bag: Parts) -> DeltaBound | None:
    """The profile of equal one-bit answers, if it can be computed within seconds."""
    match bag:
        case ((events.GaussianBit(sigma=sigma, voters=voters), times),) if games.playable(sigma, times):
            return lambda at: games.gaussian_bits(sigma, voters, times).deltas(at)
    return None


def _single(part: Event) -> DeltaBound | None:  # noqa: PLR0911 (one case per event)
    """The profile of one release, or of one sampled, parallel or grouped event, from above."""
    match part:
        case events.BoundedRange(epsilon=own):
            return lambda at: profiles.bounded_range(own, at)
        case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=1) if survival(sigma) is not None:
            return lambda at: _known(profiles.discrete_gaussian(sigma, at))
        case events.GaussianBit(sigma=sigma, voters=voters) if survival(sigma) is not None:
            return lambda at: _known(profiles.discrete_gaussian(sigma, at, voters // 2))
        case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=1) | events.GaussianBit(sigma=sigma):
            return lambda at: profiles.wide_discrete_gaussian(sigma, at)
        case events.Subsampled(event=inner, rate=rate):
            return lambda at: _subsampled(part, inner, float(rate), at)
        case events.Grouped(event=inner, size=size):
            return lambda at: _grouped(inner, size, at)
        case events.Parallel(events=members):
            return lambda at: np.max([_deltas(member, at) for member in members], axis=0)
        case events.DiscreteGaussian(squared_sensitivity=square) if square in (2, 3):
            return None
    return lambda at: divergences.deltas(part, at)


def _subsampled(part: events.Subsampled, inner: Event, rate: float, at: Floats) -> Floats:
    """δ'(ln(1 + q(e^ε − 1))) = q·δ(ε), for subsets without replacement (Balle, Barthe, Gaboardi 2018)."""
    with np.errstate(over="ignore"):
        within = np.where(at < 700, np.log1p(np.expm1(np.minimum(at, 700.0)) / rate), at - math.log(rate))
    values = rate * _deltas(inner, within * (1 - 1e-14)) * (1 + 1e-14)
    other = other_reading(part)
    return values if other is None else np.maximum(values, _deltas(other, at))


def _grouped(inner: Event, size: int, at: Floats) -> Floats:
    """δ_k(kε) ≤ δ(ε)·(e^(kε) − 1)/(e^ε − 1): k steps from neighbour to neighbour, for any event."""
    step = at / size
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        growth = np.where(at > 0, np.expm1(at) / np.expm1(step), size)
        values = _deltas(inner, step * (1 - 1e-14)) * growth * (1 + 1e-13)
    return np.minimum(1.0, np.where(np.isnan(values), 1.0, values))


def _equal_pairs(bag: Parts) -> tuple[Fraction, int, float, float] | None:
    """(ε₀, k, slack, lost) if the parts are k releases with the same ε₀: δ = slack + lost + (1 − lost)·optimal.

    The δ of an (ε, δ)-DP release is the probability of a release that hides nothing, so the probabilities of the others
    multiply; the δ of a sparse-vector run is only known to add.
    """
    own: Fraction | None = None
    count, slack, log_keep = 0, Fraction(0), 0.0
    for part, times in bag:
        match part:
            case events.PureDP(epsilon=value):
                count += times
            case events.ApproximateDP(epsilon=value, delta=lost):
                count += times
                log_keep += times * math.log1p(-upward_or_infinite(lost))
            case events.SparseVectorRun(epsilon=value, halts=halts, delta=lost):
                count += times * halts
                slack += times * lost
            case _:
                return None
        if own not in (None, value):
            return None
        own = value
    return None if own is None else (own, count, upward_or_infinite(slack), -math.expm1(log_keep * (1 + 1e-15)))


def _squared_mu(part: events.ContinuousGaussian) -> Fraction:
    return part.squared_sensitivity / part.sigma**2


def _known(values: Floats | None) -> Floats:
    assert values is not None
    return values


# ── everything else: losses on a grid ─────────────────────────────────────────────────────────────────────────────

@lru_cache(maxsize=16)
def _composition(bag: Parts) -> Composition:
    """The composed privacy loss of a bag of parts, dominated on a common grid.

    The grid is fine enough that rounding to it adds little to the variance of the loss. It contains the losses of pure
    and discrete Gaussian parts exactly, unless their common divisor is too small.
    """
    units = _units(bag)
    # Finite losses have a second moment of about 4·∫(1 + ε)·δ(ε) dε; a grid adds about min(δ(0)·step, step²/6) to it.
    dots = [(np.minimum.accumulate(_part_deltas(part, _DOTS)), times) for part, times in units]
    finite = [(values[:-1] - values[-1], times) for values, times in dots]
    variance = 4 * sum(times * float((1 + _DOTS[:-1]) * values @ np.diff(_DOTS)) for values, times in finite) + 1e-20
    near = [(max(2.5 * float(values[0]), 1e-12), times) for values, times in finite]
    step = math.sqrt(6 * _COARSENESS * variance / sum(times for _, times in near))
    while sum(times * min(width * step, step**2 / 6) for width, times in near) > _COARSENESS * variance * (1 + 1e-9):
        step *= 0.8
    bounded = [price[0] for price in (pairs.pair(part) for part, _ in units) if price is not None]
    widest = upward_or_infinite(max(bounded, default=Fraction(0)))
    step = max(step, 40 * math.sqrt(variance) / _LARGEST_GRID, 2 * widest / _LARGEST_GRID)
    step = min(step, 10.0)
    lattice = _lattice(units)
    if lattice is not None and lattice >= step / 2:
        step = float(lattice) / math.ceil(float(lattice) / step)
    return Composition([(_losses(part, step, times), times) for part, times in units])


def _units(bag: Parts) -> Parts:
    """The bag with Gaussian parts merged into one, and releases of several units split into units."""
    square, counts = Fraction(0), Counter[Event]()
    for part, times in bag:
        match part:
            case events.ContinuousGaussian():
                square += times * _squared_mu(part)
            case events.SparseVectorRun(epsilon=own, halts=halts, delta=lost) if lost == 0:
                counts[events.PureDP(own)] += times * halts
            case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=squared) if squared in (2, 3):
                # An integer vector of squared length 2 or 3 has that many entries ±1.
                counts[events.DiscreteGaussian(sigma)] += times * squared
            case _:
                counts[part] += times
    if square:
        counts[events.ContinuousGaussian(Fraction(1), square)] = 1
    return tuple(counts.items())


def _lattice(units: Parts) -> Fraction | None:
    """The largest number of which the losses of all parts are multiples, if there is one."""
    common = Fraction(0)
    for part, _ in units:
        match part:
            case events.PureDP(epsilon=own) | events.ApproximateDP(epsilon=own):
                unit = own
            case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=1):
                unit = 1 / (2 * sigma**2)
            case _:
                continue
        scale = math.lcm(common.denominator, unit.denominator)
        common = Fraction(math.gcd(int(common * scale), int(unit * scale)), scale)
    return common or None


def _losses(part: Event, step: float, times: int) -> Losses:
    match part:
        case events.PureDP(epsilon=own) | events.ApproximateDP(epsilon=own):
            lost = upward_or_infinite(part.delta) if isinstance(part, events.ApproximateDP) else 0.0
            value = upward_or_infinite(own)
            likely = 1 / (1 + math.exp(-value))
            chances = (1 - lost) * np.array([likely, math.exp(-value) * likely])
            return spread_on_grid(np.array([value, -value]), chances, step, infinite=lost)
        case events.DiscreteGaussian(sigma=sigma, squared_sensitivity=1):
            table = survival(sigma)
            if table is not None:
                return _discrete_gaussian_losses(table.mass * (1 + table.error), table.above[-1], sigma, step)
    return dominating(lambda at: _part_deltas(part, at), step, _reach(part, step, times))


def _discrete_gaussian_losses(mass: Floats, rest: float, sigma: Fraction, step: float) -> Losses:
    last = len(mass) - 1
    points = np.arange(-last, last + 1)
    chance = np.concatenate((mass[:0:-1], mass))
    losses = (2 * points + 1) / float(2 * sigma**2)
    keep = (chance > 1e-80) & (losses < _LARGEST_LOSS)
    if not keep.any():
        return Losses(step, 0, np.zeros(1), 1.0)
    lost = float(chance[~keep].sum()) + 2 * float(rest)
    return spread_on_grid(np.maximum(losses[keep], -_LARGEST_LOSS), chance[keep], step, infinite=lost)


def _part_deltas(part: Event, at: Floats) -> Floats:
    """The profile of one part, from above."""
    basic, closed = pairs.pair(part), _closed_form(((part, 1),))
    best = np.ones_like(at) if closed is None else closed(at)
    if closed is None or isinstance(part, events.Grouped):  # the other closed forms are better than divergences
        best = np.minimum(best, divergences.deltas(part, at))
    if basic is not None:
        best = np.where(at >= upward_or_infinite(basic[0]), np.minimum(best, upward_or_infinite(basic[1])), best)
    return best


def _reach(part: Event, step: float, times: int) -> int:
    """How many steps the grid has: up to where δ is negligible or stops falling."""
    basic = pairs.pair(part)
    if basic is not None:
        return max(1, min(math.ceil(upward_or_infinite(basic[0]) / step), _LARGEST_GRID, int(_LARGEST_LOSS / step)))
    least, best, reach = math.inf, 1, 1
    while reach <= min(_LARGEST_GRID, _LARGEST_LOSS / step):
        value = float(_part_deltas(part, np.array([reach * step]))[0])
        if value < least:
            least, best = value, reach
        if value * times < 1e-25:
            break
        reach = math.ceil(reach * 1.25)
    return best


def _decimal_above(value: Fraction) -> float:
    return float_above(value) if value < Fraction(10) ** 300 else math.inf


def _check_epsilon(epsilon: Number) -> Fraction:
    exact = rational(epsilon, "epsilon")
    if exact < 0:
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon}")
    return exact
