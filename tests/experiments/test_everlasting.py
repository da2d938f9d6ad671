"""What the page on everlasting prediction says, read off the results that were kept; and that they can be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments import everlasting, everlasting_cases, everlasting_streams
from experiments.everlasting import sustained, winner
from experiments.everlasting_streams import (
    Checkers,
    Clusters,
    Halfspace,
    Line,
    Piece,
    Recorded,
    Retrained,
    Stream,
    UntilSpent,
    ask,
    by_phase,
    by_time,
)
from reticent import cli
from reticent.errors import BudgetExhausted
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase

KEPT = everlasting._results()
CASE = {f"{case.part}/{case.name}": case for case in everlasting_cases.CASES}


# ── what was measured, and kept ───────────────────────────────────────────────────────────────────────────────────


def test_what_is_kept_was_measured_with_the_settings_of_the_module() -> None:
    for part, cases in KEPT.items():
        for name, one in cases.items():
            assert one["setting"] == CASE[f"{part}/{name}"].setting, f"{part}/{name}"
    assert {"thresholds", "chain", "drift", "half-space", "poisoning", "crossover"} <= set(KEPT)


def test_thresholds_are_answered_a_hundred_million_times() -> None:
    one = KEPT["thresholds"]["two-coin"]
    assert one["answered"] == sum(phase["answered"] for phase in one["phases"]) >= 10**8
    assert (one["setting"]["epsilon"], one["setting"]["rows"]) == (1, 10**5)
    assert all(phase["accuracy"] >= 0.99 for phase in one["phases"][1:])


def test_half_spaces_stay_within_a_point_at_four() -> None:
    one = KEPT["half-space"]["ε = 4"]
    assert one["answered"] >= 10**7
    assert one["setting"]["rows"] == 10**5
    assert sustained(one["phases"])


def test_small_teachers_in_phases_that_do_not_grow_end_as_a_coin() -> None:
    """What `max_rows` costs, if it is small: the page warns of it."""
    small, large = (KEPT["half-space"][f"ε = 4, capped{more}"]["phases"] for more in ("", ", larger teachers"))
    for phases in (small, large):
        assert {phase["rows"] for phase in phases[2:]} == {200_000}
        assert phases[2]["accuracy"] > 0.82
    assert small[-1]["accuracy"] < 0.55
    assert min(phase["accuracy"] for phase in large[2:]) > 0.82


@pytest.mark.parametrize(("stream", "best"), [("half-space", Halfspace().best), ("line", 1.0)])
def test_chains_lose_little_in_forty_phases(stream: str, best: float) -> None:
    one = KEPT["chain"][stream]
    assert len(one["phases"]) == 40
    assert one["answered"] >= 10**7
    assert all(phase["accuracy"] >= best - 0.015 for phase in one["phases"][1:])


def test_votes_follow_clusters_that_turn_and_one_model_does_not() -> None:
    for name in ("clusters, slow", "clusters, fast"):
        curves = {option: np.array(curve) for option, curve in KEPT["drift"][name]["curves"].items()}
        assert curves["votes"].min() > 0.9
        assert max(curves["one-shot"][-1], curves["pate"][-1]) < 0.05
    assert min(KEPT["drift"]["clusters, slow"]["curves"]["chain"]) > 0.9


@pytest.mark.parametrize("name", ["elec2", "covtype"])
def test_where_labels_change_their_meaning_one_model_is_better(name: str) -> None:
    means = {option: np.mean(curve) for option, curve in KEPT["drift"][name]["curves"].items()}
    assert means["one-shot"] > max(means["votes"], means["chain"])
    assert means["non-private"] > means["one-shot"]


def test_a_trusted_stream_cannot_be_poisoned() -> None:
    kept = {name: one["accuracies"][-1] for name, one in KEPT["poisoning"].items()}
    for share in ("5%", "10%", "20%"):
        assert kept[f"{share}, trusted"] > kept["0%, trusted"] - 0.002
        assert kept[f"{share}, caps"] > kept[f"{share}, no caps"]


def test_the_map_has_every_cell() -> None:
    for case in everlasting_cases.CASES:
        if case.part == "crossover":
            accuracy = KEPT["crossover"][case.name]["accuracy"]
            assert set(accuracy) == set(everlasting_cases.ANSWERING)
            assert all(each is None or 0 <= each <= 1 for each in accuracy.values())


@pytest.mark.slow
def test_tables_and_plots_are_the_same_every_time() -> None:
    first, second = everlasting.tables(), everlasting.tables()
    assert first == second
    assert all(len(row) == len(table.columns) for table in first for row in table.rows)
    drawn = everlasting.plots()
    assert set(drawn) == {"everlasting_drift", "everlasting_map"}
    assert drawn == everlasting.plots()


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("thresholds/greedy", {"rows": 20_000, "queries": 60_000}),
        ("half-space/ε = 4", {"rows": 10_000, "queries": 50_000, "max_rows": 10_000}),
        ("chain/line", {"phases": 4}),
    ],
)
def test_small_streams_are_answered_as_the_large_ones_were(name: str, smaller: dict[str, Any]) -> None:
    case = CASE[name]
    found = case.run({**case.setting, **smaller}, Path())
    again = case.run({**case.setting, **smaller}, Path())
    assert found == again, "seeded"
    assert found["answered"] == sum(phase["answered"] for phase in found["phases"])
    assert [phase["phase"] for phase in found["phases"]] == list(range(1, len(found["phases"]) + 1))
    assert all(phase["accuracy"] > 0.6 for phase in found["phases"])


@pytest.mark.slow
def test_drift_is_measured_on_one_stream_for_all() -> None:
    case = CASE["drift/clusters, fast"]
    found = case.run({**case.setting, "rows": 4000, "epsilon": 8, "queries": 40_000}, Path())
    assert set(found["curves"]) == {"votes", "chain", "one-shot", "pate", "non-private"}
    assert all(len(curve) == everlasting_cases.STEPS for curve in found["curves"].values())
    assert found["curves"]["one-shot"][0] > 0.95
    assert found["curves"]["one-shot"][-1] < 0.05


@pytest.mark.slow
def test_piling_up_at_the_boundary_moves_it() -> None:
    found = {}
    for name in ("no caps", "trusted"):
        case = CASE[f"poisoning/20%, {name}"]
        found[name] = case.run({**case.setting, "rows": 20_000, "max_rows": 20_000, "epsilon": 8, "phases": 4}, Path())
    assert found["no caps"]["accuracies"][-1] < found["trusted"]["accuracies"][-1] - 0.01


@pytest.mark.slow
def test_every_way_is_tried_for_the_map() -> None:
    case = CASE["crossover/half-space, 5 columns, ε = 8, 1,000 rows"]
    found = case.run(case.setting, Path())
    assert found["queries"] == 6000
    assert found["accuracy"]["one-shot"] > 0.75


def test_the_simplest_of_the_best_wins() -> None:
    assert winner({"one-shot": 0.9, "pate": None, "votes": 0.904, "chain": 0.9}) == "one-shot"
    assert winner({"one-shot": 0.9, "pate": None, "votes": 0.95, "chain": 0.94}) == "votes"
    assert winner({"one-shot": None, "pate": None, "votes": 0.951, "chain": 0.95}) == "chain"
    assert winner({"one-shot": 0.5, "pate": 0.49, "votes": None, "chain": 0.51}) == "none"


def test_a_data_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file elec2.npz in"):
        everlasting_streams.recorded("elec2", tmp_path, 0.2, ordered=True)
    with pytest.raises(FileNotFoundError, match=r"there is no file kdd99.npz in"):
        everlasting_streams.recorded("kdd99", tmp_path, 0.8, ordered=False)


def test_both_are_experiments_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment", "everlasting_streams"]) == 0
    assert "half-space" in capsys.readouterr().out


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [Line(), Line(bits=8), Halfspace(3), Clusters(), Checkers()])
def test_streams_can_be_drawn_again(stream: Stream) -> None:
    for draw in (stream.rows, lambda generator, count: stream.queries(generator, count, 0.5)):
        (X, y), (again, labels) = (draw(np.random.default_rng(0), 500) for _ in range(2))
        assert (again == X).all()
        assert (y == labels).all()
        assert len(X) == len(y)
        assert set(np.unique(y)) == {0, 1}


@pytest.mark.parametrize("stream", [Halfspace(), Clusters()])
def test_the_best_accuracy_is_that_of_the_best_classifier(stream: Halfspace | Clusters) -> None:
    X, y = stream.rows(np.random.default_rng(1), 200_000)
    direction = stream.direction if isinstance(stream, Halfspace) else np.array([1, 0])
    assert ((X @ direction > 0) == y).mean() == pytest.approx(stream.best, abs=0.004)


def test_clusters_end_where_the_other_began() -> None:
    stream, generator = Clusters(turn=180), np.random.default_rng(0)
    X, y = stream.queries(generator, 10_000, 1.0)
    assert ((X[:, 0] > 0) == y).mean() == pytest.approx(1 - stream.best, abs=0.01)


def test_recorded_rows_come_in_order_once_or_at_random() -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    stream, generator = Recorded(X, y, 5, ordered=True), np.random.default_rng(0)
    assert stream.rows(generator, 5)[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert stream.queries(generator, 3, 0)[0][:, 0].tolist() == [5, 6, 7]
    assert stream.queries(generator, 2, 0)[0][:, 0].tolist() == [8, 9]
    stream.rewind()
    assert stream.queries(generator, 1, 0)[0][:, 0].tolist() == [5]
    drawn = Recorded(X, y, 5, ordered=False).queries(generator, 200, 0)[0]
    assert set(drawn[:, 0]) == set(range(5, 20))


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clockwork:
    """Phases of `length` queries; closes the first one early, in the middle of a call. It answers 1 in even phases."""

    def __init__(self, length: int, early: int) -> None:
        self.length, self.asked = early, 0
        self._full = length
        self.phase = Phase(number=1, rows=10, answers=length, window=length, teachers=3)

    @property
    def answers_left_in_phase_(self) -> int:
        return self._full - self.asked

    def predict(self, X: Any) -> Any:
        found = []
        for _ in range(len(X)):
            if self.asked == self.length:
                number = self.phase.number + 1
                self.phase = Phase(number=number, rows=10, answers=self._full, window=1, teachers=3)
                self.length, self.asked = self._full, 0
            self.asked += 1
            found.append(int(self.phase.number % 2 == 0))
        return np.array(found)


class Ones:
    def rows(self, generator: np.random.Generator, count: int) -> tuple[Any, Any]:
        return np.zeros((count, 1)), np.ones(count, dtype=np.int64)

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Any, Any]:
        return self.rows(generator, count)


def test_answers_count_for_the_phase_that_gave_them() -> None:
    """The first phase closes after 7 of a call of 10: the other 3 are of the second."""
    phases = by_phase(ask(Clockwork(10, early=7), Ones(), 30, seed=0, batch=10))
    found = [(phase["phase"], phase["answered"], phase["accuracy"]) for phase in phases]
    assert found == [(1, 7, 0.0), (2, 10, 1.0), (3, 10, 0.0), (4, 3, 1.0)]


def test_asking_one_that_is_spent_ends_with_its_error() -> None:
    X, y = Clusters().rows(np.random.default_rng(0), 10_000)
    model = EverlastingPredictor(epsilon=8, delta=1e-6, classes=(0, 1), answers=700, unsafe_seed=0).fit(X, y)
    with pytest.raises(BudgetExhausted):
        list(ask(model, Clusters(), 1000, seed=0, batch=100))


def test_parts_of_a_stream_are_summed_up_by_time() -> None:
    pieces = [Piece(1, 0, 0, 5, 5, None), Piece(1, 0, 0, 5, 0, None), Piece(2, 0, 0, 10, 4, None)]
    assert by_time(iter(pieces), 20, 2) == [0.5, 0.4]


def test_teachers_answer_until_they_are_spent_and_a_student_after_that() -> None:
    stream, generator = Clusters(), np.random.default_rng(0)
    X, y = stream.rows(generator, 10_000)
    teachers = EverlastingPredictor(epsilon=8, delta=1e-6, classes=(0, 1), answers=700, unsafe_seed=0).fit(X, y)
    model = UntilSpent(teachers, 700)
    found = [model.predict(stream.rows(generator, 500)[0]) for _ in range(3)]
    assert [len(each) for each in found] == [500, 500, 500]
    assert model.student is not None
    assert teachers.answered_ == 700
    with pytest.raises(BudgetExhausted):
        teachers.predict(X[:1])


def test_retraining_learns_from_the_true_labels_of_a_window() -> None:
    stream, generator = Clusters(), np.random.default_rng(0)
    model = Retrained(*stream.rows(generator, 1000), window=1000)
    turned = stream.queries(generator, 1000, 1.0)
    assert (model.predict(turned[0]) == turned[1]).mean() < 0.1
    model.tell(*turned)
    assert (model.predict(turned[0]) == turned[1]).mean() > 0.95
    assert isinstance(model.model, LogisticRegression)
