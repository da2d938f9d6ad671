"""The everlasting game on the real code with later labels: both engines, groups, and rows that judge."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from reticent.audit.adversaries import Feedback, Labelled, Move, Query, Sample, Script
from reticent.audit.everlasting_game import GameValue, everlasting_game
from reticent.audit.game_rounds import unfitted
from reticent.concepts import Thresholds
from reticent.labellers.base import TableLabeller
from reticent.labellers.table import VoteTable
from reticent.learners import ThresholdLearner
from reticent.noise import Noise
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy.events import PureDP, Repeated
from reticent.privacy.guarantee import Guarantee

PHASE = 3 * math.log(2)  # 2.0794, the price of a phase of three answers
NIL = 1e-15


class Fifths(TableLabeller):
    """The answer is 1 with the chance .2, .4, .6 or .8, by the votes of three teachers: ln 2 per answer."""

    name = "fifths"

    def __init__(
        self, *, teachers: int, epsilon: Any, delta: Any, answers: int, unsafe_noise: Noise | None = None
    ) -> None:
        table = VoteTable(np.array([(1 + votes) * 2**62 // (2 + teachers) for votes in range(teachers + 1)]))
        event = Repeated(PureDP(Fraction(math.nextafter(math.log(2), 1))), answers)
        super().__init__(table, event=event, answers=answers, unsafe_noise=unsafe_noise)


def votes(**given: Any) -> Any:
    """Three teachers of one row each, three answers per phase, no row that judges."""
    options: dict[str, Any] = {
        "epsilon": 2.0795, "delta": 1e-9, "labeller": Fifths, "rows_per_teacher": 1, "growth": 1, "phase_rows": 3,
        "gauge_share": 0, "most_noise": 1e9, "classes": (0, 1), "client_share": 1, **given,
    }  # fmt: skip
    return unfitted(EverlastingPredictor(Thresholds(), **options))


def play(make: Any, moves: tuple[Move, ...], sample: Sample, **how: Any) -> GameValue:
    return everlasting_game(make, Script((sample, sample), moves), rounds=len(moves), **how)


def losses(value: GameValue) -> list[float]:
    return [upper for _, upper in value.by_phase()]


def asked(count: int, client: str | None = None) -> tuple[Query, ...]:
    return tuple(Query((1.0,), client=None if client is None else f"{client}{one}") for one in range(count))


THREE = Sample(((0.0,), (1.0,), (2.0,)), (0, 0, 0))

# ── the lines of the table ────────────────────────────────────────────────────────────────────────────────────────


def wrong(answer: int) -> int:
    return 1 - answer


def complaint(answer: int) -> int | None:
    return 1 if answer == 0 else None


@pytest.mark.slow
@pytest.mark.parametrize("silence", ["answer", "drop"])
@pytest.mark.parametrize(
    ("f", "g"), [(0, 1), (1, None), (wrong, None), (complaint, 0)], ids=["labels", "or none", "wrong", "complaint"]
)
def test_a_query_with_its_feedback(silence: str, f: Any, g: Any) -> None:
    """0 after its own phase, at most 2.0794 after the next, and no more after one more."""
    first: tuple[Move, ...] = (Query((0.0,)), Query((0.0,), (2.0,)), Query((2.0,)))
    first += (Feedback(0, 0), Feedback(1, f, g), Feedback(2, 0))
    later: tuple[Move, ...] = tuple(Feedback(one, 0) for one in (3, 4, 5))
    value = play(votes(truth="feedback", silence=silence), (*first, *asked(3), *later, *asked(3)), THREE)
    own, following, last = losses(value)
    assert own < NIL
    assert following <= PHASE + 1e-9
    assert last == pytest.approx(following, abs=1e-9)
    if f == 0 or (f == 1 and silence == "drop"):
        assert following == pytest.approx(PHASE, abs=1e-6)


@pytest.mark.slow
def test_a_labelled_row() -> None:
    rows: tuple[Move, ...] = (Labelled((0.0,), 0), Labelled((0.0,), 0, ((2.0,), 1)), Labelled((1.0,), 0))
    plain: tuple[Move, ...] = tuple(Labelled((1.0,), 0) for _ in range(3))
    moves = (Query((0.0,)), *rows, Query((1.0,)), *plain, *asked(7))
    value = play(votes(truth="rows"), moves, THREE)
    assert losses(value) == pytest.approx([0, PHASE, PHASE], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("other", [((float("nan"),), 1), ((0.0,), "neither"), ((0.0,), None), ((0.0,), [1])])
def test_what_a_labelled_row_holds_never_moves_the_clock(other: Any) -> None:
    rows: tuple[Move, ...] = (Labelled((0.0,), 0), Labelled((0.0,), 1, other), Labelled((1.0,), 0))
    value = play(votes(truth="rows"), (*rows, *asked(6)), THREE)
    own, following = losses(value)
    assert own < NIL
    assert following <= PHASE + 1e-9


@pytest.mark.slow
def test_a_day_one_row_costs_the_first_phase_only() -> None:
    moves: tuple[Move, ...] = (*(Labelled((1.0,), 0) for _ in range(6)), *asked(9))
    samples = (THREE, THREE._replace(labels=(0, 0, 1)))
    value = everlasting_game(votes(truth="rows"), Script(samples, moves), rounds=len(moves))
    assert losses(value) == pytest.approx([PHASE] * 3, abs=1e-6)


@pytest.mark.slow
def test_queries_after_the_window_cost_the_phase_after_the_next() -> None:
    moves: tuple[Move, ...] = (*asked(2), Query((0.0,), (2.0,)), Feedback(2, 0, 1), *asked(2), Feedback(2, 0, 1))
    value = play(votes(truth="feedback", wait=1, phase_rows=2), (*moves, *asked(3)), THREE)
    own, following, later, *_ = losses(value)
    assert own < NIL
    assert following < NIL
    assert later == pytest.approx(2 * math.log(2), abs=1e-6)  # two answers of a phase of two rows


# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMED = THREE._replace(groups=("a", "b", "c"))


@pytest.mark.slow
def test_all_rows_and_queries_of_a_person_together_cost_one_phase() -> None:
    """Ann asks, gives feedback and hands over rows, in every phase; all of it differs between the worlds."""
    ann: tuple[Move, ...] = (
        Query((0.0,), (2.0,), client="ann"), Feedback(0, 0, 1, client="ann"), Labelled((0.0,), 0, ((2.0,), 1), "ann"),
    )  # fmt: skip
    others: tuple[Move, ...] = (*asked(2, "p"), Feedback(1, 0, client="p0"), Feedback(2, 0, client="p1"))
    again: tuple[Move, ...] = (
        Query((0.0,), (2.0,), client="ann"), Feedback(3, 0, 1, client="ann"), Labelled((0.0,), 0, ((2.0,), 1), "ann"),
    )  # fmt: skip
    moves = (*ann, *others, *again, *asked(2, "q"), *asked(3, "r"))
    value = play(votes(truth="both", epsilon=3, rows_per_teacher=1), moves, NAMED, unit="client")
    assert losses(value)[0] < NIL
    assert value.passes(Guarantee(epsilon=PHASE + 1e-9))
    assert value.epsilon()[0] > 1


@pytest.mark.slow
def test_a_person_of_day_one_is_in_no_other_phase() -> None:
    samples = (NAMED, NAMED._replace(labels=(1, 0, 0)))
    moves: tuple[Move, ...] = (Labelled((0.0,), 0, ((2.0,), 1), "a"), Query((0.0,), (2.0,), client="a"))
    moves += (*(Labelled((1.0,), 0, group=f"p{one}") for one in range(3)), *asked(5, "q"))
    value = everlasting_game(votes(truth="rows"), Script(samples, moves), rounds=len(moves), unit="client")
    assert value.passes(Guarantee(epsilon=PHASE + 1e-9))
    assert value.epsilon()[0] > 1


# ── rows that judge, and the chain ────────────────────────────────────────────────────────────────────────────────


def chain(**given: Any) -> Any:
    """Of four rows two judge; there is little noise in their counts, so that few outcomes need to be walked."""
    options: dict[str, Any] = {
        "epsilon": 20, "delta": 1e-6, "classes": (0, 1), "phase_rows": 4, "gauge_share": 0.5, **given,
    }  # fmt: skip
    return unfitted(EverlastingPredictor(ThresholdLearner(bits=2, epsilon=20), **options))


DAY_ONE = Sample(((0,), (1,), (2,), (3,)), (1, 1, 0, 0))
FOUR = [Labelled((one,), int(one < 2)) for one in range(4)]


@pytest.mark.slow
def test_a_row_that_judges_a_chain_costs_its_counts() -> None:
    """Models and counts are in the view."""
    rows: list[Move] = [Labelled((0,), 1, ((3,), 1)), *FOUR[1:]]
    value = play(chain(truth="rows"), (*rows, Query((0,)), Query((1,))), DAY_ONE, tail_bits=10)
    assert value.passes(Guarantee(epsilon=20, delta=0.02))
    assert value.epsilon(0.05)[0] > 5


@pytest.mark.slow
def test_a_query_that_judges_a_chain_costs_its_counts() -> None:
    moves: list[Move] = [Query((0,), (3,)), *(Query((one,)) for one in range(1, 4))]
    moves += [Feedback(0, complaint, 0), *(Feedback(one, int(one < 2)) for one in range(1, 4))]
    value = play(chain(truth="feedback"), (*moves, Query((0,)), Query((1,))), DAY_ONE, tail_bits=10)
    assert value.by_phase(0.02)[0][1] < NIL
    assert value.passes(Guarantee(epsilon=20, delta=0.02))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [2, 8])
def test_a_labelled_row_that_trains_costs_one_model_and_a_twin_with_less_noise_more(epsilon: int) -> None:
    """All models are in the view, over three phases. The claim is ε = 2."""
    rows: list[Move] = [Labelled((0,), 1, ((3,), 1)), *FOUR[1:]]
    moves = (Query((0,)), *rows, Query((1,)), *FOUR, Query((1,)), Query((3,)))
    value = play(chain(truth="rows", gauge_share=0, epsilon=epsilon), moves, DAY_ONE, tail_bits=30)
    own, *later = (upper for _, upper in value.by_phase(1e-6))
    assert own < NIL
    if epsilon == 2:
        assert value.passes(Guarantee(epsilon=2, delta=1e-6))
        assert later[1] == pytest.approx(later[0], abs=1e-3)
        assert later[0] > 0.5
    else:
        assert value.refutes(Guarantee(epsilon=2, delta=1e-6))


@pytest.mark.slow
def test_a_query_that_trains_a_chain_costs_one_model() -> None:
    moves: list[Move] = [Query((0,), (3,)), *(Query((one,)) for one in range(1, 4))]
    moves += [Feedback(0, complaint, 0), *(Feedback(one, int(one < 2)) for one in range(1, 4))]
    moves += [Query((0,)), Feedback(0, 1, 0), Query((1,))]  # too late: changes nothing
    value = play(chain(truth="feedback", gauge_share=0, epsilon=2), tuple(moves), DAY_ONE, tail_bits=30)
    assert value.by_phase(1e-6)[0][1] < NIL
    assert value.passes(Guarantee(epsilon=2, delta=1e-6))
    assert value.epsilon(1e-6)[0] > 0.2
