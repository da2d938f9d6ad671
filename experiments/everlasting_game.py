"""What the exact game finds on the real predictors, tiny ones, and what a counter gives away."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from experiments.table import Table
from reticent.audit.adversaries import Query, Sample, Script, random_strategies
from reticent.audit.everlasting_game import GameValue, everlasting_game
from reticent.audit.game_rounds import unfitted
from reticent.concepts import Thresholds
from reticent.mechanisms.between_thresholds import BetweenThresholds
from reticent.noise import Noise
from reticent.predictors.bbl_phases import BBLPhase
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.generic_bbl import GenericBBL

ROWS = tuple((x,) for x in range(3))
STRATEGIES = 2

# A teacher with a single row votes for its label, whatever is asked: for queries to matter it needs two.
_TWO = Sample(((0,), (0,), (2,), (2,)), (1, 1, 0, 0))
_SHARDS_OF_TWO = Script((_TWO, _TWO), (Query((0,), (2,)), *[Query((x,)) for x in (0, 2, 2, 1)]))


def tables() -> list[Table]:
    """Losses by phase, and the attack on a counter."""
    return [_engines(), _counter()]


def _engines() -> Table:
    columns = ("predictor", "differs", "claimed ε at δ", "after phase 1", "after phase 2")
    return Table("The loss ε that the game shows, at the claimed δ", columns, tuple(_rows()))


def _rows() -> list[tuple[str, ...]]:
    found = []
    for name, predictor, epsilon, delta in _predictors():
        for differs, challenge in (("a training row", None), ("a query of phase 1", 0)):
            players: list[Any] = list(random_strategies(STRATEGIES, rows=ROWS, size=2, challenge=challenge))
            rounds, played = 3, predictor
            if challenge == 0 and isinstance(predictor, EverlastingPredictor):
                players, rounds = [_SHARDS_OF_TWO], 5
                played = clone(predictor).set_params(rows_per_teacher=2)
            value = everlasting_game(unfitted(played), players, rounds=rounds, tail_bits=12)
            losses = [upper for _, upper in value.by_phase(delta)]
            found.append((name, differs, f"{epsilon:g} at {delta:g}", *(f"{loss:.2f}" for loss in losses[:2])))
    return found


def _predictors() -> list[tuple[str, Any, float, float]]:
    votes = EverlastingPredictor(
        Thresholds(), epsilon=2, delta=0.001, rows_per_teacher=1, growth=1, held_back=0, labeller="greedy",
        most_noise=1e9, classes=(0, 1),
    )  # fmt: skip
    sizes: dict[str, Any] = {"teachers": 2, "shard": 1, "answers": 2, "vote_epsilon": 2, "vote_delta": 0.01}
    phases = [BBLPhase(**sizes, scored=1, drawn=2), BBLPhase(**sizes)]
    bbl = GenericBBL(Thresholds(bits=2), epsilon=9, delta=0.1, labeller="gaussian", phases=phases)
    promised = GenericBBL(**bbl.get_params()).fit([[0], [2]], [0, 1]).guarantee_
    return [
        ("EverlastingPredictor, votes", votes, 2, 0.001),
        ("GenericBBL, gaussian", bbl, promised.epsilon, promised.delta),
    ]


class _Counter:
    """Answers by BetweenThresholds from the votes of 20,000 teachers, x of which say 1; one halt is left."""

    def __init__(self, noise: Noise, *, epsilon: float) -> None:
        self.sides = BetweenThresholds(9_600, 10_400, epsilon=epsilon, delta=1e-7, unsafe_noise=noise)

    def fit(self, X: Any, y: Any) -> None:
        """There is nothing to learn: the attack is on the queries."""

    def predict(self, X: Any) -> list[int]:
        """1 unless the votes are low."""
        return [int(self.sides.ask(int(x)) != "low") for (x,) in X]


def _counter() -> Table:
    rows = []
    for epsilon in (0.5, 0.2, 0.1):
        value = counter_attack(epsilon)
        rows.append((f"{epsilon:g}", "1e-7", f"{value.delta(1)[0]:.6f}"))
    columns = ("ε of the halt, for a training row", "δ", "δ at ε = 1, for a query")
    title = "BetweenThresholds with one halt left: 20,000 teachers, thresholds 800 votes apart"
    return Table(title, columns, tuple(rows))


def counter_attack(epsilon: float) -> GameValue:
    """A question with split votes against a clear one; then a clear one, to see whether it is answered.

    Parameters
    ----------
    epsilon : float
        The ε of the thresholds.
    """
    nobody = Sample(((0,),), (0,))
    attack = Script((nobody, nobody), (Query((10_000,), (20_000,)), Query((20_000,))))
    return everlasting_game(lambda noise: _Counter(noise, epsilon=epsilon), attack, rounds=2, tail_bits=20)
