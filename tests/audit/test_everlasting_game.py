"""The everlasting game: it reproduces the known numbers, passes the real engines, and rejects every twin."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from everlasting_twins import (
    Between,
    Chain,
    Clients,
    ContentShards,
    CountedCache,
    DriftAgainstRows,
    LengthByLabels,
    OneNoisyCap,
    Rejecting,
    Relabelled,
    SplitClient,
    TwoCoins,
    UncountedCache,
    UncountedRejection,
    Votes,
    WarmStart,
    claimed,
)

from reticent.audit.adversaries import Query, Sample, Script, View, random_strategies
from reticent.audit.everlasting_game import GameValue, everlasting_attack, everlasting_game
from reticent.audit.game_rounds import unfitted
from reticent.concepts import Thresholds
from reticent.learners import ThresholdLearner
from reticent.noise import Noise
from reticent.predictors.bbl_phases import BBLPhase
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.generic_bbl import GenericBBL
from reticent.privacy.guarantee import Guarantee

ROWS = tuple((x,) for x in range(4))
SAMPLE = Sample(((0,), (1,), (2,)), (0, 1, 1))
SAME = (SAMPLE, SAMPLE)
NIL = 1e-20  # no loss, but for rounding


def play(
    make: Any, challenge: int | None, *, strategies: int = 40, rounds: int = 6, size: int = 3, **how: Any
) -> GameValue:
    rows = how.pop("rows", ROWS)
    players = random_strategies(strategies, rows=rows, size=size, challenge=challenge)
    return everlasting_game(make, players, rounds=rounds, **how)


def losses(value: GameValue) -> list[float]:
    """Upper bounds on ε at δ = 0, by phase."""
    return [upper for _, upper in value.by_phase()]


# ── the model without a fault ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_votes_cost_a_row_its_own_phase_and_nothing_later() -> None:
    value = play(Votes, None, strategies=60, rounds=7)
    assert losses(value)[:3] == pytest.approx([2.604] * 3, abs=1e-3)  # attained: the claim is tight
    assert value.passes(Guarantee(epsilon=claimed(Votes)))


@pytest.mark.slow
def test_votes_cost_a_query_nothing_in_its_phase_and_then_one_phase() -> None:
    value = play(Votes, 1, strategies=60, rounds=7)
    assert losses(value)[:3] == pytest.approx([0, 2.189, 2.189], abs=1e-3)
    assert value.passes(Guarantee(epsilon=claimed(Votes)))


@pytest.mark.slow
@pytest.mark.parametrize("model", [Votes, CountedCache])
@pytest.mark.parametrize("challenge", [None, 0, 2])
def test_models_without_a_fault_pass(model: type[Votes], challenge: int | None) -> None:
    value = play(model, challenge, strategies=15)
    assert value.passes(Guarantee(epsilon=claimed(model)))
    assert value.epsilon()[0] > 0.6 * claimed(model)  # the game has power
    assert challenge is None or losses(value)[0] < NIL


@pytest.mark.slow
def test_an_invalid_query_that_is_counted_costs_what_any_other_does() -> None:
    assert play(Rejecting, 1, rows=((-1,), *ROWS)).passes(Guarantee(epsilon=claimed(Votes)))


@pytest.mark.slow
def test_a_chain_costs_a_row_its_own_phase_and_a_query_the_next() -> None:
    claim = Guarantee(epsilon=float(Chain.model_epsilon))
    for challenge in (None, 0, 2):
        value = play(Chain, challenge, rounds=9)
        assert value.passes(claim)
        assert value.epsilon()[0] == pytest.approx(math.log(3), abs=1e-9)
        assert challenge is None or losses(value)[0] < NIL


# ── twins ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "challenge", "rows", "size"),
    [
        (UncountedCache, 1, ROWS, 3),
        (UncountedRejection, 1, ((-1,), *ROWS), 3),
        (LengthByLabels, 1, ROWS, 3),
        (Relabelled, 1, ROWS, 3),
        (ContentShards, None, ROWS, 6),
        (WarmStart, None, ROWS, 3),
    ],
)
def test_twins_of_the_votes_are_rejected(twin: type[Votes], challenge: int | None, rows: Any, size: int) -> None:
    value = play(twin, challenge, strategies=30, rows=rows, size=size)
    assert value.refutes(Guarantee(epsilon=claimed(twin))) or (challenge is not None and losses(value)[0] > 0)


@pytest.mark.slow
def test_what_the_twins_leak() -> None:
    """The figures that are known: a loss by phase, at δ = 0."""
    assert play(UncountedCache, 1, strategies=10).epsilon()[0] == math.inf
    assert play(UncountedRejection, 1, strategies=10, rows=((-1,), *ROWS)).epsilon()[0] == math.inf
    assert losses(play(LengthByLabels, 1, strategies=30))[0] > 1  # in its own phase, where there should be none
    assert losses(play(Relabelled, 1, strategies=30))[1] > 1.5 * claimed(Votes)
    assert losses(play(ContentShards, None, strategies=30, size=6, rounds=3))[0] > 1.4 * claimed(Votes)
    first, second = losses(play(WarmStart, None, strategies=30))[:2]
    assert first == pytest.approx(1.498, abs=1e-3)
    assert second > 2.12


def test_uncounted_cache_hits_leak_through_answers_alone() -> None:
    hits = play(UncountedCache, 1, strategies=20, clock=False).by_round()
    assert max(upper for _, upper in hits[:4]) < NIL
    assert hits[6][0] == math.inf


@pytest.mark.slow
def test_a_drift_test_against_the_rows_costs_them_in_every_phase() -> None:
    value = play(DriftAgainstRows, None, rounds=12)
    assert losses(value)[:4] == pytest.approx([math.log(3) * times for times in (1, 2, 3, 4)], abs=1e-9)


@pytest.mark.slow
def test_between_thresholds_tells_which_query_was_asked() -> None:
    """The last halt is left; a question with split votes uses it up, and the next question is refused."""
    attack = Script(SAME, (Query((10_000,), (20_000,)), Query((20_000,))))
    value = everlasting_game(Between, attack, rounds=2, tail_bits=20)
    assert value.delta(1)[0] > 0.8
    assert value.refutes(Guarantee(epsilon=1, delta=0.8))


def closing_attack(before: int) -> Script:
    """Questions that may hit, one that may against one that cannot, and more questions that show the closing."""
    return Script(SAME, (*[Query((4,))] * before, Query((0,), (4,)), *[Query((4,))] * 3))


@pytest.mark.parametrize("before", [0, 2])
def test_a_blurred_closing_hides_the_query_and_one_noisy_cap_does_not(before: int) -> None:
    claim = Guarantee(epsilon=float(TwoCoins.epsilon), delta=float(TwoCoins.delta))
    real, twin = (
        everlasting_game(model, closing_attack(before), rounds=before + 4, tail_bits=14)
        for model in (TwoCoins, OneNoisyCap)
    )
    assert real.passes(claim)
    assert real.epsilon(0.01)[0] > 0.4
    assert twin.refutes(claim)
    if before == 2:
        assert twin.delta(1)[0] > 0.149  # closes at the challenge: never, if it cannot hit


def test_a_client_in_one_shard_costs_one_row_and_in_two_more() -> None:
    """A client asks twice, and all that it asks differs between the worlds; then one question is asked for a phase."""
    twice = [Query((0,), (3,), client=1), Query((0,), (3,), client=1), Query((3,), client=0)]
    attack = Script(SAME, (*twice, *[Query((1,), client=2)] * 3))
    claim = Guarantee(epsilon=claimed(Clients))
    real, split = (everlasting_game(model, attack, rounds=6, unit="client") for model in (Clients, SplitClient))
    assert real.passes(claim)
    assert real.epsilon()[0] > 0.5
    assert split.refutes(claim)
    assert split.epsilon()[0] > 1.4 * claimed(Clients)


# ── the real engines ──────────────────────────────────────────────────────────────────────────────────────────────


def votes_engine(epsilon: float, labeller: str, delta: float = 0.02) -> EverlastingPredictor:
    return EverlastingPredictor(
        Thresholds(), epsilon=epsilon, delta=delta, rows_per_teacher=1, growth=1, held_back=0, labeller=labeller,
        most_noise=1e9, classes=(0, 1),
    )  # fmt: skip


REAL_ROWS = tuple((float(x),) for x in range(3))
TWO = Sample(((0.0,), (2.0,)), (0, 1))


@pytest.mark.slow
def test_the_votes_engine_passes_for_rows() -> None:
    value = play(unfitted(votes_engine(2, "greedy")), None, strategies=6, rounds=3, size=2, rows=REAL_ROWS)
    assert value.passes(Guarantee(epsilon=2, delta=0.02))
    assert value.epsilon(1e-6)[0] > 0.8


@pytest.mark.slow
def test_the_votes_engine_passes_for_queries() -> None:
    """Two rows a teacher: one with a single row would vote for its label, whatever is asked."""
    sample = Sample(((0.0,), (0.0,), (2.0,), (2.0,)), (1, 1, 0, 0))
    others = [Query((x,)) for x in (0.0, 2.0, 2.0, 1.0, 0.0)]
    attack = Script((sample, sample), (Query((0.0,), (2.0,)), *others))
    model = votes_engine(2, "greedy").set_params(rows_per_teacher=2)
    value = everlasting_game(unfitted(model), attack, rounds=6)
    assert value.passes(Guarantee(epsilon=2, delta=0.02))
    own, following = (upper for _, upper in value.by_phase(1e-6)[:2])
    assert own < NIL
    assert following == pytest.approx(0.465, abs=0.01)


@pytest.mark.slow
def test_the_votes_engine_with_too_little_noise_is_rejected() -> None:
    value = play(unfitted(votes_engine(5, "greedy")), None, strategies=8, rounds=2, size=2, rows=REAL_ROWS)
    assert value.refutes(Guarantee(epsilon=2, delta=0.02))


@pytest.mark.slow
def test_the_gaussian_labels_of_the_votes_engine_pass() -> None:
    attack = Script((TWO, TWO._replace(labels=(1, 1))), (Query((0.0,)),) * 3)
    value = everlasting_game(unfitted(votes_engine(5, "gaussian", 0.1)), attack, rounds=3, tail_bits=10)
    assert value.passes(Guarantee(epsilon=5, delta=0.1))
    assert value.epsilon(0.05)[0] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("challenge", [None, 0])
def test_the_chain_engine_passes(challenge: int | None) -> None:
    rows = tuple((x,) for x in range(4))
    chain = EverlastingPredictor(
        ThresholdLearner(bits=2, epsilon=1), epsilon=1, delta=1e-6, growth=1, held_back=0, retrain="always",
        classes=(0, 1),
    )  # fmt: skip
    size = 20
    attacks = [
        Script(neighbours(seed, rows, size, challenge), asked(seed, rows, size + 2, challenge)) for seed in range(4)
    ]
    value = everlasting_game(unfitted(chain), attacks, rounds=size + 2, tail_bits=20)
    assert value.passes(Guarantee(epsilon=1, delta=1e-6))
    assert value.epsilon(1e-6)[0] > 0.05
    assert challenge is None or losses(value)[0] < 1e-3


def neighbours(seed: int, rows: Any, size: int, challenge: int | None) -> tuple[Sample, Sample]:
    player = random_strategies(1, rows=rows, size=size, challenge=challenge, seed=seed)[0]
    return player.samples


def asked(seed: int, rows: Any, count: int, challenge: int | None) -> tuple[Query, ...]:
    drawn = np.random.default_rng(seed).integers(len(rows), size=count)
    queries = [Query(rows[int(i)]) for i in drawn]
    if challenge is not None:
        queries[challenge] = Query(rows[0], rows[3])
    return tuple(queries)


@pytest.mark.slow
@pytest.mark.parametrize("challenge", [None, 0])
def test_generic_bbl_with_gaussian_labels_passes(challenge: int | None) -> None:
    common: dict[str, Any] = {"teachers": 2, "shard": 1, "answers": 2, "vote_epsilon": 2, "vote_delta": 0.01}
    phases = [BBLPhase(**common, scored=1, drawn=2), BBLPhase(**common)]
    bbl = GenericBBL(Thresholds(bits=2), epsilon=9, delta=0.1, labeller="gaussian", phases=phases)
    value = play(unfitted(bbl), challenge, strategies=4, rounds=4, size=2, tail_bits=12)
    promised = GenericBBL(**bbl.get_params()).fit([[0], [3]], [0, 1]).guarantee_
    assert promised.protects == "rows and queries"
    assert value.passes(promised)
    assert value.epsilon(0.01)[0] > 0.3
    assert challenge is None or losses(value)[0] < 0.1


# ── the rules of the game ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_challenge_is_refused() -> None:
    twice = Script(SAME, (Query((0,), (1,)), Query((0,), (1,))))
    with pytest.raises(ValueError, match="at most once"):
        everlasting_game(Votes, twice, rounds=2)
    other = SAMPLE._replace(labels=(1, 1, 1))
    with pytest.raises(ValueError, match="at most once"):
        everlasting_game(Votes, Script((SAMPLE, other), (Query((0,), (1,)),)), rounds=1)
    clients = Script(SAME, (Query((0,), (1,), client=1), Query((0,), (1,), client=2)))
    with pytest.raises(ValueError, match="one client"):
        everlasting_game(Clients, clients, rounds=2, unit="client")


@pytest.mark.parametrize("other", [SAMPLE._replace(labels=(1, 0, 1)), Sample(((0,),), (0,))])
def test_samples_that_are_no_neighbours_are_refused(other: Sample) -> None:
    with pytest.raises(ValueError, match="training must give"):
        everlasting_game(Votes, Script((SAMPLE, other), ()), rounds=1)


def test_a_group_may_differ_in_all_its_rows() -> None:
    groups = (0, 0, 1)

    class Grouped(Votes):
        def fit(self, X: Any, y: Any, groups: Any = None) -> None:
            super().fit(X, y)

    pair = (SAMPLE._replace(groups=groups), SAMPLE._replace(labels=(1, 0, 1), groups=groups))
    assert everlasting_game(Grouped, Script(pair, (Query((1,)),)), rounds=1).epsilon()[0] > 0


def test_state_outside_of_the_predictor_is_refused() -> None:
    kept: list[int] = []

    class Elsewhere(Votes):
        def label(self, x: int) -> int:
            kept.append(x)
            return len(kept) % 2

    with pytest.raises(RuntimeError, match=r"same output|keeps all its state"):
        everlasting_game(Elsewhere, Script(SAME, (Query((0,)), Query((1,)))), rounds=2)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="unit must be"):
        everlasting_game(Votes, Script(SAME, ()), rounds=1, unit="person")
    with pytest.raises(ValueError, match="rounds"):
        everlasting_game(Votes, Script(SAME, ()), rounds=0)
    with pytest.raises(TypeError, match="adversaries"):
        everlasting_game(Votes, [], rounds=1)


# ── by chance ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Ties:
    """Asks for cached answers: whether the challenge was asked before shows in the phase."""

    def training(self) -> tuple[Sample, Sample]:
        return SAME

    def ask(self, view: View) -> Query:
        return Query((0,), (3,)) if len(view) == 2 else Query((0,) if len(view) == 1 else (2,))

    def verdict(self, view: View) -> int:
        return view[-1].left or 0


def test_the_statistical_game_refutes_a_twin_and_not_the_model() -> None:
    how: dict[str, Any] = {"rounds": 3, "delta": 0.01, "runs": 400, "epsilon": 2}
    assert everlasting_attack(CountedCache, Ties(), **how).passed
    found = everlasting_attack(UncountedCache, Ties(), **how)
    assert found.passed is False
    assert found.epsilon_lower > 3


def test_noise_is_not_needed_for_what_is_told_at_random() -> None:
    class Coin:
        def __init__(self, noise: Noise) -> None:
            self.noise = noise

        def fit(self, X: Any, y: Any) -> None:
            pass

        def predict(self, X: Any) -> list[bool]:
            return [self.noise.bernoulli(Fraction(1, 3)) for _ in X]

    assert play(Coin, None, strategies=3, rounds=4).epsilon()[1] < NIL
