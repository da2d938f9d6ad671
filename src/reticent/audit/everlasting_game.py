"""The game that defines private everlasting prediction: for certain on tiny instances, by chance on real ones.

Two worlds differ in one training row, or in one query, whose own answer stays hidden. An adversary chooses everything
else, sees everything else, and asks on for as long as it likes. If what it sees has nearly the same law in both
worlds, the row and the query are protected.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import mmap
import pickle
import threading
import types
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple, Protocol

import numpy as np

from reticent.audit.hockey_stick import Divergence, exact
from reticent.audit.laws import BITS, Law, law
from reticent.audit.lower_bound import EmpiricalBound, empirical
from reticent.errors import BudgetExhausted, OneAnswerWarning
from reticent.exact import integer
from reticent.noise import Noise, Seeded, system
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.guard import Guard, Guarded

Row = tuple[Any, ...]
HIDDEN = "hidden"  # in the view, in place of what was answered to a challenge
MOST_STATES = 200_000  # steps of predictors whose laws are kept

# ── who plays ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Sample(NamedTuple):
    """Labelled rows to train on; `groups` names who each row belongs to, if that is what is protected."""

    rows: tuple[Row, ...]
    labels: tuple[Any, ...]
    groups: tuple[Hashable, ...] | None = None


class Query(NamedTuple):
    """A row to be labelled, and the client who asks. With `other`, the row in the second world, it is a challenge."""

    row: Row
    other: Row | None = None
    client: Hashable | None = None


class Seen(NamedTuple):
    """What is seen after a round: the answer, or the error that refused it, and all that the predictor makes public.

    `before` is the number of the phase that answers, `phase` and `left` what `phase_` and `answers_left_in_phase_`
    say afterwards (None where a predictor has none).
    """

    answer: Hashable
    before: int | None
    phase: int | None
    left: int | None


View = tuple[Seen, ...]


class Predictor(Protocol):
    """What is attacked: anything that learns and then answers. `clients` is passed on only where a query names one."""

    def fit(self, X: Any, y: Any) -> object:
        """Learn from labelled rows; `groups` follow where the sample has them."""

    def predict(self, X: Any) -> Any:
        """Label rows; `clients=` follows where the query names one."""


class Adversary(Protocol):
    """Who attacks. It may be adaptive, but not random or forgetful: what it does is a function of the view."""

    def training(self) -> tuple[Sample, Sample]:
        """The training rows of the two worlds: the same, or different in one row (or in the rows of one group)."""

    def ask(self, view: View) -> Query | None:
        """The next query, in the light of all that was seen so far; None to stop."""


Make = Callable[[Noise], Any]  # an unfitted Predictor that draws from the noise


@dataclass(frozen=True)
class RandomStrategy:
    """An adaptive strategy drawn at random: what it asks next is a hash of its seed and of all that it has seen.

    It asks for rows out of `rows`, and in round `challenge` for a pair of them, one for each world. With
    `challenge=None` the two samples must differ. `client` names who asks in the challenge.

    >>> sample = Sample(((0,), (1,)), (0, 1))
    >>> RandomStrategy(7, rows=((0,), (1,)), samples=(sample, sample), challenge=0).ask(())
    Query(row=(0,), other=(1,), client=None)
    """

    seed: int
    rows: tuple[Row, ...]
    samples: tuple[Sample, Sample]
    challenge: int | None = None

    def training(self) -> tuple[Sample, Sample]:
        """The samples it was given."""
        return self.samples

    def ask(self, view: View) -> Query:
        """A row that depends on all that was seen, or the challenge."""
        hashed = hashlib.blake2b(repr((self.seed, *view)).encode(), digest_size=8).digest()
        drawn = int.from_bytes(hashed, "little")
        if max(len(view) - 1, 0) != self.challenge:
            return Query(self.rows[drawn % len(self.rows)])
        pairs = list(permutations(self.rows, 2))
        return Query(*pairs[drawn % len(pairs)])


@dataclass(frozen=True)
class Script:
    """Asks the same queries, one after the other, whatever it sees."""

    samples: tuple[Sample, Sample]
    queries: tuple[Query, ...]

    def training(self) -> tuple[Sample, Sample]:
        """The samples it was given."""
        return self.samples

    def ask(self, view: View) -> Query | None:
        """The next of its queries."""
        asked = len(view) - 1
        return self.queries[asked] if asked < len(self.queries) else None


def random_strategies(
    number: int,
    *,
    rows: Sequence[Row],
    labels: Sequence[Any] = (0, 1),
    size: int,
    challenge: int | None,
    seed: int = 0,
) -> list[RandomStrategy]:
    """`number` random strategies, each with a random sample of `size` labelled rows.

    `challenge` is the round of the challenge, from 0; None for two samples that differ in one random row.
    """
    domain = tuple(rows)
    strategies = []
    for number_ in range(number):
        drawn = np.random.default_rng([seed, number_])
        pairs = [(domain[i], labels[j]) for i, j in _places(drawn, len(domain), len(labels), size)]
        first = Sample(tuple(row for row, _ in pairs), tuple(label for _, label in pairs))
        second = first
        if challenge is None:
            others = [(row, label) for row in domain for label in labels]
            place = int(drawn.integers(size))
            others.remove(pairs[place])
            pairs[place] = others[int(drawn.integers(len(others)))]
            second = Sample(tuple(row for row, _ in pairs), tuple(label for _, label in pairs))
        strategies.append(RandomStrategy(1000 * seed + number_, domain, (first, second), challenge))
    return strategies


def _places(drawn: np.random.Generator, rows: int, labels: int, size: int) -> list[tuple[int, int]]:
    return [(int(drawn.integers(rows)), int(drawn.integers(labels))) for _ in range(size)]


def unfitted(predictor: Any) -> Make:
    """`make` for a predictor of this package: a copy of it for every game, on the noise of the game."""
    return partial(_OnNoise, predictor)


class _OnNoise:
    """A predictor whose `fit` draws from the given noise, and so does all that follows."""

    def __init__(self, predictor: Any, noise: Noise) -> None:
        from sklearn.base import clone

        self.predictor, self.noise = clone(predictor), noise

    def fit(self, X: Any, y: Any, groups: Any = None) -> _OnNoise:
        """Learn from labelled rows."""
        if "groups" in inspect.signature(self.predictor._fit).parameters:
            self.predictor._fit(X, y, groups, self.noise)
        else:
            self.predictor._fit(X, y, self.noise)
        return self

    def predict(self, X: Any, **clients: Any) -> Any:
        """Label rows."""
        return self.predictor.predict(X, **clients)

    @property
    def phase_(self) -> int | None:
        """The public number of the phase."""
        found: int | None = getattr(self.predictor, "phase_number_", getattr(self.predictor, "phase_", None))
        return found

    @property
    def answers_left_in_phase_(self) -> int | None:
        """The public number of answers that are left in it."""
        found: int | None = getattr(self.predictor, "answers_left_in_phase_", None)
        return found


# ── the exact game ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class GameValue:
    """How well each adversary can tell the two worlds apart, for certain.

    All bounds are certified, and are worst cases over the adversaries that played. That no adversary does better is
    not shown by this, but by the proof.
    """

    adversaries: tuple[Adversary, ...]
    laws: tuple[tuple[Law, Law], ...]  # of the views in the two worlds, one pair an adversary

    def delta(self, epsilon: object) -> tuple[float, float]:
        """Certified (lower, upper) bounds on the least δ for which all views are (ε, δ)-indistinguishable."""
        return _worst(exact(*pair).delta(epsilon) for pair in self.laws)

    def epsilon(self, delta: object = 0) -> tuple[float, float]:
        """Certified (lower, upper) bounds on the least ε for which all views are (ε, δ)-indistinguishable."""
        return _worst(exact(*pair).epsilon(delta) for pair in self.laws)

    def passes(self, guarantee: Guarantee) -> bool:
        """Whether every adversary that played is within the guarantee, for certain."""
        return self.delta(guarantee.epsilon)[1] <= guarantee.delta

    def refutes(self, guarantee: Guarantee) -> bool:
        """Whether some adversary is beyond the guarantee, for certain."""
        return self.delta(guarantee.epsilon)[0] > guarantee.delta

    def by_phase(self, delta: object = 0) -> list[tuple[float, float]]:
        """`epsilon(delta)` of what is seen until the end of the first phase, of the second, and so on."""
        last = max(seen.phase or 1 for pair in self.laws for view in pair[0].high for seen in view)
        return [self._until(partial(_until_phase, phase), delta) for phase in range(1, last + 1)]

    def by_round(self, delta: object = 0) -> list[tuple[float, float]]:
        """`epsilon(delta)` of what is seen until each round; the first entry is before any query."""
        last = max(len(view) for pair in self.laws for view in pair[0].high)
        return [self._until(partial(_until_round, length), delta) for length in range(1, last + 1)]

    def worst(self, epsilon: object) -> Adversary:
        """The adversary that tells the worlds apart best at this ε."""
        deltas = [exact(*pair).delta(epsilon)[0] for pair in self.laws]
        return self.adversaries[int(np.argmax(deltas))]

    def _until(self, cut: Callable[[View], View], delta: object) -> tuple[float, float]:
        return _worst(Divergence(*(_mapped(side, cut) for side in pair)).epsilon(delta) for pair in self.laws)


def everlasting_game(
    make: Make,
    adversaries: Adversary | Iterable[Adversary],
    *,
    rounds: int,
    unit: str = "row",
    clock: bool = True,
    tail_bits: int = 80,
    most_paths: int = 1_000_000,
) -> GameValue:
    """Play the everlasting privacy game on every outcome of the noise, for `rounds` rounds with each adversary.

    `make(noise)` gives an unfitted predictor that draws all its randomness from `noise`; `unfitted(predictor)` does so
    for predictors of this package. Its real code runs. All that can be observed goes into the view: answers, the errors
    that refuse them, and after each round `phase_` and `answers_left_in_phase_`. Only what comes back to a challenge
    goes to whoever asked it, and is hidden. With `unit="client"` all queries of one client may be challenges, and with
    groups all rows of one group may differ. With `clock=False` the adversary sees answers and errors only, as in the
    figure.

    A step of the game leads from a state of the predictor, kept as bytes, to an observation and the next state. The
    law of each step is walked by `audit.law`, once however many adversaries take it, and states that are equal are
    merged: the cost is that of the states that can be reached, not that of the paths. Each game is also played once on
    seeded noise with one predictor from beginning to end, and must then show what it shows when states are kept: a
    predictor that has its state elsewhere, in a file or a module, is refused.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Figure 1. The view is larger here, unless
    `clock=False`: in the figure it has the answers only.

    >>> class Constant:
    ...     def __init__(self, noise):
    ...         self.noise = noise
    ...     def fit(self, X, y):
    ...         self.label = int(y[0]) ^ self.noise.uniform(4) // 3  # wrong once in four times
    ...     def predict(self, X):
    ...         return [self.label] * len(X)
    >>> value = everlasting_game(
    ...     Constant, random_strategies(20, rows=((0,), (1,)), size=1, challenge=None), rounds=2
    ... )
    >>> value.epsilon()[1]  # ln 3
    1.0986122886681098
    """
    players = _listed(adversaries)
    count = integer(rounds, "rounds", least=1)
    if unit not in ("row", "client"):
        raise ValueError(f"unit must be 'row' or 'client', got {unit!r}")
    steps = _Steps(make, clock, tail_bits, most_paths)
    laws = []
    for player in players:
        samples = _checked_samples(player)
        steps.compare(player, samples[1], count)
        play = partial(_play, steps, player, rounds=count, unit=unit)
        laws.append((play(samples[0], world=0), play(samples[1], world=1)))
    return GameValue(tuple(players), tuple(laws))


def _listed(adversaries: Adversary | Iterable[Adversary]) -> list[Adversary]:
    players = list(adversaries) if isinstance(adversaries, Iterable) else [adversaries]
    if not players or not all(callable(getattr(player, "ask", None)) for player in players):
        raise TypeError("adversaries must be one or more objects with training() and ask(view)")
    return players


def _checked_samples(player: Adversary) -> tuple[Sample, Sample]:
    """The samples of the two worlds, which must be neighbours."""
    first, second = (Sample(*sample) for sample in player.training())
    if len(first.labels) != len(second.labels) or first.groups != second.groups:
        raise ValueError("training must give two samples with the same number of rows and the same groups")
    where = _differences(first, second)
    owners = {place if first.groups is None else first.groups[place] for place in where}
    if len(owners) > 1:
        raise ValueError(f"training must give samples that differ in one row or group, got {len(owners)}")
    return first, second


def _differences(first: Sample, second: Sample) -> list[int]:
    pairs = zip(zip(first.rows, first.labels, strict=True), zip(second.rows, second.labels, strict=True), strict=True)
    return [place for place, (one, other) in enumerate(pairs) if repr(one) != repr(other)]


def _challenge_rule(player: Adversary, unit: str) -> Callable[[View, Query], None]:
    """Refuses a second challenge, as the game does; with unit="client", one by another client."""
    first, second = player.training()
    spent: set[Hashable] = {("a training row",)} if _differences(Sample(*first), Sample(*second)) else set()

    def check(view: View, query: Query) -> None:
        earlier = set(spent)
        for round_, seen in enumerate(view[1:]):
            if seen.answer == HIDDEN:
                asked = player.ask(view[: round_ + 1])
                earlier.add(("a client", asked.client) if asked is not None and unit == "client" else ("a query",))
        if earlier and (unit != "client" or earlier != {("a client", query.client)} or query.client is None):
            raise ValueError("ask must challenge at most once: one training row, one query, or one client's queries")

    return check


def _play(steps: _Steps, player: Adversary, sample: Sample, *, world: int, rounds: int, unit: str) -> Law:
    """The law of the view in one world: forward over the states that can be reached."""
    check = _challenge_rule(player, unit)
    start, missing = steps.first(sample)
    reached: dict[tuple[View, bytes], tuple[int, int]] = {((seen,), state): m for (seen, state), m in start.items()}
    ended: dict[View, tuple[int, int]] = {}
    for _ in range(rounds):
        after: dict[tuple[View, bytes], tuple[int, int]] = {}
        for (view, state), (low, high) in reached.items():
            query = player.ask(view)
            if query is None:
                _add(ended, view, low, high)
                continue
            if query.other is not None:
                check(view, query)
            outcomes, lost = steps.next(state, query, world)
            missing += -(-high * lost >> BITS)
            for (seen, following), (step_low, step_high) in outcomes.items():
                _add(after, ((*view, seen), following), low * step_low >> BITS, -(-high * step_high >> BITS))
        reached = after
    for (view, _), (low, high) in reached.items():
        _add(ended, view, low, high)
    return _law_of(ended, missing)


def _add(masses: dict[Any, tuple[int, int]], key: Any, low: int, high: int) -> None:
    before = masses.get(key, (0, 0))
    masses[key] = before[0] + low, before[1] + high


def _mapped(side: Law, cut: Callable[[View], View]) -> Law:
    masses: dict[View, tuple[int, int]] = {}
    for view in side.high:
        _add(masses, cut(view), int(side.low[view]), int(side.high[view]))
    return _law_of(masses, side.missing)


def _law_of(masses: Mapping[View, tuple[int, int]], missing: int) -> Law:
    low, high = ({view: mass[end] for view, mass in masses.items()} for end in (0, 1))
    return Law(low, high, missing)


def _until_phase(phase: int, view: View) -> View:
    """What is seen until the first answer of the next phase, that its phase began included."""
    return tuple(seen for seen in view if seen.before is None or seen.before <= phase)


def _until_round(length: int, view: View) -> View:
    return view[:length]


def _worst(bounds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*bounds, strict=True)
    return max(lows), max(highs)


# ── one round ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _train(predictor: Any, sample: Sample) -> Seen:
    X: Any = np.array(sample.rows)
    y: Any = np.array(sample.labels)
    groups = () if sample.groups is None else (np.array(sample.groups),)
    return _seen(predictor, lambda: predictor.fit(X, y, *groups), hidden=True, before=None)


def _ask(predictor: Any, query: Query, world: int) -> Seen:
    row = query.other if query.other is not None and world == 1 else query.row
    named = {} if query.client is None else {"clients": [query.client]}
    before = getattr(predictor, "phase_", None)
    if before is not None and getattr(predictor, "answers_left_in_phase_", None) == 0:
        before += 1  # which begins with this query
    return _seen(
        predictor, lambda: predictor.predict(np.array([row]), **named), hidden=query.other is not None, before=before
    )


def _seen(predictor: Any, action: Callable[[], Any], *, hidden: bool, before: int | None) -> Seen:
    try:
        with warnings.catch_warnings():  # a function of the model that is released: nothing that the game must compare
            warnings.simplefilter("ignore", OneAnswerWarning)
            found = action()
        answer: Hashable = HIDDEN if hidden else np.asarray(found).tolist()[0]
    except (ValueError, BudgetExhausted) as refusal:
        answer = HIDDEN if hidden and before is not None else f"{type(refusal).__name__}: {refusal}"
    return Seen(answer, before, getattr(predictor, "phase_", None), getattr(predictor, "answers_left_in_phase_", None))


Outcomes = Mapping[tuple[Seen, bytes], tuple[int, int]]


class _Steps:
    """The laws of single steps, kept by the state they start from and the query."""

    def __init__(self, make: Make, clock: bool, tail_bits: int, most_paths: int) -> None:
        self.make, self.clock, self.tail_bits, self.most_paths = make, clock, tail_bits, most_paths
        self.states = States()
        self.known: dict[Hashable, tuple[Outcomes, int]] = {}

    def first(self, sample: Sample) -> tuple[Outcomes, int]:
        """From nothing to a predictor that has learned."""

        def run(noise: Noise) -> tuple[Seen, bytes]:
            predictor = self.make(noise)
            seen = _train(predictor, sample)
            return self._shown(seen), self.states.keep(predictor, noise)

        return self._law(repr(sample), run)

    def next(self, state: bytes, query: Query, world: int) -> tuple[Outcomes, int]:
        """From a state to the next, by a query."""

        def run(noise: Noise) -> tuple[Seen, bytes]:
            predictor = self.states.restore(state, noise)
            seen = _ask(predictor, query, world)
            return self._shown(seen), self.states.keep(predictor, noise)

        return self._law((state, repr(query), world if query.other is not None else None), run)

    def _shown(self, seen: Seen) -> Seen:
        return seen if self.clock else Seen(seen.answer, None, None, None)

    def compare(self, player: Adversary, sample: Sample, rounds: int) -> None:
        """Refuse a predictor that behaves otherwise when its state is kept and restored between rounds."""
        whole, pieces = (self._once(player, sample, rounds, restored=restored) for restored in (False, True))
        if whole != pieces:
            raise RuntimeError("make must give a predictor that keeps all its state in itself: one that was stored and "
                               "restored between rounds answers otherwise")

    def _once(self, player: Adversary, sample: Sample, rounds: int, *, restored: bool) -> View:
        noise = Seeded(unsafe_seed=0)
        predictor = self.make(noise)
        view: View = (_train(predictor, sample),)
        while len(view) <= rounds and (query := player.ask(view)) is not None:
            if restored:
                predictor = self.states.restore(self.states.keep(predictor, noise), noise)
            view = (*view, _ask(predictor, query, 1))
        return view

    def _law(self, key: Hashable, run: Callable[[Noise], Hashable]) -> tuple[Outcomes, int]:
        if key not in self.known:
            if len(self.known) >= MOST_STATES:
                raise RuntimeError(f"the game has more than {MOST_STATES} states: play a smaller instance")
            found = law(run, tail_bits=self.tail_bits, most_paths=self.most_paths)
            outcomes = {key: (int(found.low[key]), int(found.high[key])) for key in found.high}
            self.known[key] = outcomes, found.missing
        return self.known[key]


class States:
    """Predictors as bytes. Noise is left out, locks and guards are renewed; functions and classes are references.

    With `share_arrays` arrays are too: for predictors that do not write to them while they answer.
    """

    def __init__(self, *, share_arrays: bool = False) -> None:
        self.referred = (*_REFERRED, np.ndarray) if share_arrays else _REFERRED
        self.places: dict[int, int] = {}
        self.shared: list[Any] = []
        self.bodies: dict[bytes, bytes] = {}

    def keep(self, predictor: Any, noise: Noise) -> bytes:
        """A name for the state of a predictor; equal states have equal names."""
        body = io.BytesIO()
        _Pickler(body, self, noise).dump(predictor)
        digest = hashlib.blake2b(body.getvalue(), digest_size=32).digest()
        self.bodies[digest] = body.getvalue()
        return digest

    def restore(self, state: bytes, noise: Noise) -> Any:
        """The predictor in this state, on this noise."""
        return _Unpickler(io.BytesIO(self.bodies[state]), self, noise).load()

    def place(self, thing: Any) -> int:
        """Where a thing that is kept by reference is found again."""
        if id(thing) not in self.places:
            self.places[id(thing)] = len(self.shared)
            self.shared.append(thing)
        return self.places[id(thing)]


_LOCKS = {type(make()): make for make in (threading.Lock, threading.RLock)}
_REFERRED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, states: States, noise: Noise) -> None:
        super().__init__(file, protocol=5)
        self.states, self.noise = states, noise

    def persistent_id(self, thing: Any) -> Any:
        if thing is self.noise:
            return ("noise",)
        if type(thing) in _LOCKS:
            return "lock", self.states.place(type(thing))
        if isinstance(thing, Guard):
            return "guard", self.states.place(thing.kind)
        return ("shared", self.states.place(thing)) if isinstance(thing, self.states.referred) else None

    def reducer_override(self, thing: Any) -> Any:
        """Mechanisms and predictors refuse to be copied, lest they answer twice; here they answer nobody."""
        if isinstance(thing, mmap.mmap):  # memory of a store of rows; arrays over it are kept by themselves
            return _memory, (thing[:],)
        guarded = isinstance(thing, Guarded)
        return (_blank, (type(thing),), vars(thing), None, None, _fill) if guarded else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, states: States, noise: Noise) -> None:
        super().__init__(file)
        self.states, self.noise = states, noise

    def persistent_load(self, pid: Any) -> Any:
        kind, *place = pid
        if kind == "noise":
            return self.noise
        thing = self.states.shared[place[0]]
        if kind == "lock":
            return _LOCKS[thing]()
        return Guard(thing) if kind == "guard" else thing


def _memory(content: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(content))
    memory[:] = content
    return memory


def _blank(kind: type) -> Any:
    return object.__new__(kind)


def _fill(thing: Any, attributes: dict[str, Any]) -> None:
    thing.__dict__.update(attributes)


# ── the game at real sizes ────────────────────────────────────────────────────────────────────────────────────────


def everlasting_attack(
    make: Make,
    adversary: Adversary,
    *,
    rounds: int,
    delta: object,
    runs: int,
    unit: str = "row",
    epsilon: object = None,
    confidence: float = 0.95,
    jobs: int | None = None,
    quiet: bool = True,
) -> EmpiricalBound:
    """Play the game `runs` times in each world with the system's noise: a lower confidence bound on ε at δ.

    The bound is that of `audit.empirical` on the views. An adversary with a method `verdict(view)`, which makes a
    number (or anything hashable) of its view, is judged by its verdicts instead: views of many rounds are all
    different, and no event would be found among them.
    """
    count = integer(rounds, "rounds", least=1)
    samples = _checked_samples(adversary)
    check = _challenge_rule(adversary, unit)
    verdict: Callable[[View], Hashable] = getattr(adversary, "verdict", tuple)

    def play(world: int) -> Hashable:
        predictor = make(system)
        view: View = (_train(predictor, samples[world]),)
        while len(view) <= count and (query := adversary.ask(view)) is not None:
            if query.other is not None:
                check(view, query)
            view = (*view, _ask(predictor, query, world))
        return verdict(view)

    return empirical(
        play, 0, 1, delta=delta, runs=runs, epsilon=epsilon, confidence=confidence, jobs=jobs, quiet=quiet
    )
