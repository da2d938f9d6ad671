"""The labellers of the literature: what they cost, how many they answer, and when they abstain."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit import exact, law
from reticent.errors import BudgetExhausted
from reticent.labellers import ABSTAINS, NAMES, Confident, Gaussian, Greedy, Gumbel, Labeller, SparseVector, make
from reticent.noise import Noise, Seeded
from reticent.privacy import epsilon
from reticent.privacy.events import BoundedRange, Repeated, SeededRelease, is_seeded

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
COUNTED = tuple(name for name in NAMES if name not in ("two-coin", "sparse-vector"))
SEVERAL = ("two-coin", "sparse-vector", "confident", "gnmax", "gumbel")


def made(name: str, teachers: int = 1000, classes: int = 2, answers: int | None = 20, **options: Any) -> Labeller:
    return make(name, teachers=teachers, classes=classes, answers=answers, **(BUDGET | options))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_event_fits_the_budget_and_says_whether_the_noise_was_seeded(name: str) -> None:
    labeller = made(name)
    assert not is_seeded(labeller.event)
    assert (0.9 if name != "poll" else 0.0) < epsilon(labeller.event, delta=1e-6) <= 1
    seeded = made(name, unsafe_noise=Seeded(unsafe_seed=0))
    assert seeded.event == SeededRelease(labeller.event)  # marked once, and the same event


@pytest.mark.parametrize("name", COUNTED)
def test_answers_end_where_they_should(name: str) -> None:
    labeller = made(name, unsafe_noise=Seeded(unsafe_seed=1))
    assert (labeller.answers_left, labeller.closed) == (20, False)
    clear = np.tile([0, 1000], (15, 1))
    assert labeller.label(clear).tolist() == [1] * 15 or name == "poll"
    assert labeller.answers_left == 5
    assert len(labeller.label(clear)) == 5  # the first of them
    assert labeller.closed
    with pytest.raises(BudgetExhausted, match="answers="):
        labeller.label(clear)


@pytest.mark.parametrize("name", NAMES)
def test_no_questions_cost_nothing_and_close_nothing(name: str) -> None:
    labeller = made(name, unsafe_noise=Seeded(unsafe_seed=1))
    assert labeller.label(np.empty((0, 2), dtype=np.int64)).shape == (0,)
    assert (labeller.asked, labeller.closed) == (0, False)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_classes(name: str) -> None:
    labeller = made(name, teachers=20_000, classes=4, unsafe_noise=Seeded(unsafe_seed=2))
    rows = np.tile([100, 300, 19_500, 100], (10, 1))
    assert labeller.label(rows).tolist() == [2] * 10


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SEVERAL])
def test_two_classes_only(name: str) -> None:
    with pytest.raises(ValueError, match="takes two classes"):
        made(name, classes=3)


@pytest.mark.parametrize("kind", [Confident, SparseVector])
def test_torn_questions_are_declined(kind: Any) -> None:
    options = {"answers": 5, "questions": 40} if kind is Confident else {"halts": 3}
    labeller = kind(teachers=20_000, **BUDGET, **options, unsafe_noise=Seeded(unsafe_seed=3))
    torn, clear = [10_000, 10_000], [0, 20_000]
    assert labeller.label([clear, torn, clear]).tolist() == [1, ABSTAINS, 1]
    labels = labeller.label(np.tile(clear, (30, 1)))
    assert bool((labels == 1).all())
    if kind is Confident:  # five answers, and no more
        assert len(labels) == 3
    else:  # clear ones are answered for ever, torn ones end it
        assert len(labels) == 30
        assert labeller.label(np.tile(torn, (30, 1))).tolist() == [ABSTAINS] * 2
    assert labeller.closed
    with pytest.raises(BudgetExhausted):
        labeller.label([clear])


def test_confident_ends_after_its_questions_too() -> None:
    labeller = Confident(teachers=1000, **BUDGET, answers=5, questions=8, unsafe_noise=Seeded(unsafe_seed=3))
    assert len(labeller.label(np.tile([500, 500], (30, 1)))) == 8
    assert labeller.closed


@pytest.mark.slow
def test_a_bit_costs_less_than_its_count() -> None:
    count, bit = (Gaussian(teachers=781, answers=100, price=price, **BUDGET) for price in ("count", "bit"))
    assert 1.5 < float(count.sigma / bit.sigma) ** 2 < 1.58


def test_budgets_are_not_copied() -> None:
    labeller = made("greedy")
    with pytest.raises(TypeError):
        copy.deepcopy(labeller)


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────


class TwiceTheRate(Gumbel):
    """A twin: the weights e^(2c·votes), as if a vote moved one class only."""

    def _label(self, counts: Any) -> Any:
        return np.array([self._noise.choose(row, rate=2 * self.rate) for row in counts], dtype=np.int64)


class HalfTheNoiseBit(Gaussian):
    """A twin: half of the noise that was accounted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sigma /= 2


@pytest.mark.parametrize(
    ("kind", "options", "classes", "holds"),
    [
        (Gumbel, {}, 3, True),
        (TwiceTheRate, {}, 3, False),
        (Gaussian, {"price": "bit"}, 2, True),
        (HalfTheNoiseBit, {"price": "bit"}, 2, False),
    ],
)
def test_exact_laws_keep_to_the_budget(kind: Any, options: dict[str, Any], classes: int, holds: bool) -> None:
    """Two answers, adaptive: the second question is the mirrored one after a label 1."""
    size = {"teachers": 3, "epsilon": 3, "delta": 0.05, "answers": 2}

    def run(noise: Noise, rows: list[list[int]]) -> tuple[int, ...]:
        labeller._noise, labeller.asked = noise, 0  # the same one for every path: finding its noise takes long
        first = int(labeller.label([rows[0]])[0])
        return first, int(labeller.label([rows[1 if first == 1 else 0]])[0])

    more: dict[str, Any] = {"classes": classes} if not issubclass(kind, Gaussian) else {}
    labeller = kind(unsafe_noise=Seeded(unsafe_seed=0), **size, **options, **more)
    worst = 0.0
    rest = [0] * (classes - 2)
    for v in range(3):
        worlds = [[[3 - v, v, *rest], [v + 1, 2 - v, *rest]], [[2 - v, v + 1, *rest], [v, 3 - v, *rest]]]
        laws = (law(lambda noise, rows=rows: run(noise, rows), tail_bits=24) for rows in worlds)  # type: ignore[misc]
        bounds = exact(*laws).delta(3)
        worst = max(worst, bounds[1 if holds else 0])
    assert (worst <= 0.05) == holds, worst


def test_the_rate_of_gumbel_is_what_its_event_says() -> None:
    labeller = Gumbel(teachers=100, classes=3, answers=10, **BUDGET)
    assert labeller.event == Repeated(BoundedRange(2 * labeller.rate), 10)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_VOTES: list[Any] = [
    [[3, 3]],
    [[11, -1]],
    [[5.5, 4.5]],
    [["5", "5"]],
    [[5, 5, 0]],
    [5, 5],
    [[[5, 5]]],
    [[True, False]],
    [[2**70, 10 - 2**70]],
    [[float("nan"), 10]],
    [[5, 5], [5]],
    None,
    "votes",
    np.array([[2**63, 10]], dtype=np.uint64),
    [[np.inf, 1]],
]


@pytest.mark.parametrize("votes", BAD_VOTES, ids=repr)
def test_bad_votes_are_refused_and_never_echoed(votes: Any) -> None:
    labeller = Greedy(teachers=10, answers=5, epsilon=4, delta=0.01)
    with pytest.raises((TypeError, ValueError), match="votes") as caught:
        labeller.label(votes)
    assert labeller.asked == 0
    assert not any(text in str(caught.value) for text in ("5.5", "11", "-1", str(2**63), str(2**70)))


@given(st.lists(st.lists(st.integers(-(2**66), 2**66), min_size=0, max_size=3), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_votes_that_do_not_add_up_are_refused(rows: list[list[int]]) -> None:
    labeller = Greedy(teachers=10, answers=5, epsilon=4, delta=0.01)
    good = all(len(row) == 2 and min(row) >= 0 and sum(row) == 10 for row in rows)
    if good:
        assert len(labeller.label(rows)) == len(rows)
    else:
        with pytest.raises((TypeError, ValueError), match="votes"):
            labeller.label(rows)
        assert labeller.asked == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"teachers": 0}, "teachers"),
        ({"teachers": 2.5}, "teachers"),
        ({"teachers": "many"}, "teachers"),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        made(name, **arguments)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("answers", [0, -3, 1.5, "many"])
def test_bad_answers_are_refused_by_name(name: str, answers: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="answers"):
        made(name, answers=answers)


@pytest.mark.parametrize("name", ["confident", "gnmax", "gumbel", "sparse-vector", "two-coin"])
@pytest.mark.parametrize("classes", [1, 0, 2.5])
def test_bad_classes_are_refused_by_name(name: str, classes: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="classes"):
        made(name, classes=classes)


def test_other_names_and_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="must be one of greedy"):
        made("best")
    for share in (0, 1, -0.5, float("nan")):
        with pytest.raises(ValueError, match="test_share"):
            made("confident", test_share=share)
    with pytest.raises(ValueError, match="questions must be at least 20"):
        made("confident", questions=10)
    with pytest.raises(ValueError, match="price must be"):
        Gaussian(teachers=10, answers=1, price="bits", **BUDGET)
    with pytest.raises(ValueError, match="poll must be odd"):
        made("poll", poll=4)
    for flip in (0, 1.5, 1e-14, Fraction(-1, 2)):
        with pytest.raises(ValueError, match="flip"):
            made("poll", flip=flip)
