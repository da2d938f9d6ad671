from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import rectangles
from reticent.concepts.points import Points
from reticent.concepts.rectangles import Rectangles
from reticent.concepts.thresholds import Thresholds
from reticent.teachers import queries
from reticent.teachers.queries import (
    Chooser,
    Ridge,
    Transcript,
    by_margin,
    by_oracle,
    by_ridge_disagreement,
    by_version_space,
    passive,
    slack,
)

Array = NDArray[Any]


def answered(chooser: Chooser, transcript: Transcript, truth: Array) -> Transcript:
    """Run a chooser with a teacher who knows."""
    for asked in chooser:
        transcript.add(asked, np.asarray(truth)[asked])
    return transcript


def cloud(rows: int = 200, *, classes: int = 2, seed: int = 0) -> tuple[Array, Array]:
    points = np.random.default_rng(seed).normal(size=(rows, 2))
    cuts = np.linspace(-1, 1, classes + 1)[1:-1]
    return points, np.digitize(points @ [1.0, 0.5], cuts)


CHOOSERS: dict[str, Callable[[Transcript, Array], Chooser]] = {
    "passive": lambda transcript, points: passive(transcript),
    "margin": lambda transcript, points: by_margin(transcript, points, classes=2),
    "ridge": lambda transcript, points: by_ridge_disagreement(transcript, points, classes=2),
    "version space": lambda transcript, points: by_version_space(
        transcript, (1000 * (points[:, 0] + 10)).astype(int), Thresholds(bits=16)
    ),
    "oracle": lambda transcript, points: by_oracle(
        transcript, points, DecisionTreeClassifier(max_depth=1, random_state=0), classes=2
    ),
}


# ── what is asked is a function of what was released ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CHOOSERS)
def test_equal_transcripts_lead_to_equal_questions(name: str) -> None:
    """Two runs are asked the same up to, and including, the first question after a difference in the answers."""
    points, truth = cloud(60)
    other = truth.copy()
    runs = []
    for labels in (truth, other):
        transcript = Transcript(60, 30)
        batches = []
        for asked in CHOOSERS[name](transcript, points):
            batches.append(asked.tolist())
            transcript.add(asked, labels[asked])
        runs.append(batches)
        flipped = [row for batch in batches[-2:] for row in batch]
        other[flipped] = 1 - other[flipped]  # the second run answers differently from the last two batches on
    first, second = runs
    same = max(1, len(first) - 1)
    assert first[:same] == second[:same]


@pytest.mark.parametrize("name", CHOOSERS)
@pytest.mark.parametrize("limit", [1, 7, 40, 60, 1000])
def test_no_row_is_asked_twice_and_none_beyond_the_limit(name: str, limit: int) -> None:
    points, truth = cloud(60)
    transcript = Transcript(60, limit)
    answered(CHOOSERS[name](transcript, points), transcript, truth)
    assert 1 <= len(transcript.asked) <= min(limit, 60)
    assert len(np.unique(transcript.asked)) == len(transcript.asked)
    assert set(transcript.asked) | set(transcript.unasked) == set(range(60))


@pytest.mark.parametrize("name", CHOOSERS)
def test_a_chooser_stops_when_there_are_no_more_answers(name: str) -> None:
    points, truth = cloud(60)
    transcript = Transcript(60, 40)
    given = 0
    for asked in CHOOSERS[name](transcript, points):
        assert not transcript.closed
        answers = truth[asked][: 12 - given]
        given += len(answers)
        transcript.add(asked, answers)
    assert transcript.closed
    assert len(transcript.asked) == len(transcript.labels) == 12


@pytest.mark.parametrize("name", CHOOSERS)
def test_declined_questions_are_not_asked_again_and_not_learned_from(name: str) -> None:
    points, _ = cloud(60)
    transcript = Transcript(60, 50)
    answered(CHOOSERS[name](transcript, points), transcript, np.full(60, -1))
    assert len(np.unique(transcript.asked)) == len(transcript.asked)
    assert len(transcript.known[0]) == 0
    assert bool((transcript.implied == -1).all())


def test_choosers_take_nothing_private() -> None:
    """A chooser has no way to a vote: it is given public rows, a transcript and public numbers."""
    allowed = {"transcript", "points", "rows", "concept_class", "student", "classes", "caution", "random_state"}
    for chooser in (passive, by_margin, by_version_space, by_ridge_disagreement, by_oracle):
        assert set(inspect.signature(chooser).parameters) <= allowed


# ── passive and margin ────────────────────────────────────────────────────────────────────────────────────────────


def test_passive_asks_the_first_rows() -> None:
    transcript = Transcript(20, 6)
    assert [asked.tolist() for asked in passive(transcript)] == [[0, 1, 2, 3, 4, 5]]


def test_margin_asks_in_batches_near_the_boundary() -> None:
    points, truth = cloud(1000)
    transcript, sizes = Transcript(1000, 160), []
    for asked in by_margin(transcript, points, classes=2):
        sizes.append(len(asked))
        transcript.add(asked, truth[asked])
    assert sizes == [10, *[11] * 13, 7]
    distance = np.abs(points @ [1.0, 0.5])
    assert np.median(distance[transcript.asked[10:]]) < 0.2 * np.median(distance)


def test_margin_goes_on_at_random_while_it_knows_one_class() -> None:
    points, _ = cloud(100)
    transcript = Transcript(100, 60)
    answered(by_margin(transcript, points, classes=2), transcript, np.zeros(100, dtype=int))
    assert len(transcript.asked) == 60


def test_margin_of_several_classes_is_between_the_two_highest() -> None:
    points, truth = cloud(1000, classes=3)
    transcript = Transcript(1000, 100)
    answered(by_margin(transcript, points, classes=3), transcript, truth)
    scores = Ridge(points[transcript.asked], transcript.labels, 3).scores(points)
    assert np.median(queries.lead(scores)[transcript.asked[10:]]) < np.median(queries.lead(scores))


# ── version space ─────────────────────────────────────────────────────────────────────────────────────────────────


def brute_force(points: Array, truth: Array, limit: int, caution: float, seed: int) -> tuple[list[int], set[int]]:
    """Algorithm 4 as it is printed, row by row, with every threshold of a small domain listed."""
    order = np.random.default_rng(seed).permutation(len(points))
    version_space = list(range(int(points.max()) + 2))  # 1 below the cut
    asked: list[int] = []
    skipped: set[int] = set()
    for j, row in enumerate(order, start=1):
        labels = {int(points[row] < cut) for cut in version_space}
        if len(labels) == 2 and len(asked) < limit:
            asked.append(int(row))
        elif len(labels) == 1:
            skipped.add(int(row))
        if (j & (j - 1) == 0 or j == len(order)) and asked:
            errors = {cut: sum((points[i] < cut) != truth[i] for i in asked) for cut in version_space}
            least = min(errors.values())
            allowed = slack(j, least, dimension=1, caution=caution)
            version_space = [cut for cut in version_space if errors[cut] <= least + allowed]
    return asked, skipped


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("caution", [0, 0.1, 1])
def test_dichotomies_of_the_public_rows_are_the_version_space_of_the_class(seed: int, caution: float) -> None:
    generator = np.random.default_rng(seed)
    points = generator.integers(0, 64, 50)
    truth = (points < 23) ^ (generator.random(50) < 0.1 * (caution > 0))
    transcript = Transcript(50, 30)
    chooser = by_version_space(
        transcript, points, Thresholds(bits=6), caution=caution, random_state=seed
    )
    answered(chooser, transcript, truth.astype(int))
    asked, skipped = brute_force(points, truth.astype(int), 30, caution, seed)
    assert transcript.asked.tolist() == asked
    assert set(np.flatnonzero(transcript.implied >= 0)) == skipped


def test_without_noise_few_labels_label_every_row() -> None:
    points = np.random.default_rng(0).permutation(1 << 12)
    truth = (points < 1234).astype(int)
    transcript = Transcript(len(points), len(points))
    answered(by_version_space(transcript, points, Thresholds(bits=12), caution=0), transcript, truth)
    assert len(transcript.asked) < 60
    assert bool((transcript.implied[transcript.unasked] == truth[transcript.unasked]).all())


@pytest.mark.slow
@pytest.mark.parametrize("flips", [0.05, 0.2])
def test_with_noise_the_best_concept_stays_plausible(flips: float) -> None:
    """What is implied is what the best concept says, in nearly all runs, and it spares labels."""
    wrong, asked = 0, []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        points = generator.permutation(400)
        truth = (points < 150).astype(int)
        transcript = Transcript(400, 400)
        chooser = by_version_space(transcript, points, Thresholds(bits=9), random_state=seed)
        answered(chooser, transcript, truth ^ (generator.random(400) < flips))
        implied = transcript.implied >= 0
        wrong += bool((transcript.implied[implied] != truth[implied]).any())
        asked.append(len(transcript.asked))
    assert wrong <= 1
    assert np.mean(asked) < 300


def test_points_and_rectangles_have_version_spaces_too() -> None:
    points = np.array([3, 5, 7, 7, 9, 3])
    transcript = Transcript(6, 6)
    answered(by_version_space(transcript, points, Points(bits=4), caution=0), transcript, (points == 7).astype(int))
    assert bool((transcript.implied[transcript.unasked] == (points == 7)[transcript.unasked]).all())
    corners = np.random.default_rng(0).integers(0, 16, size=(12, 2))
    truth = ((corners >= 4) & (corners <= 12)).all(axis=1).astype(int)
    transcript = Transcript(12, 12)
    answered(by_version_space(transcript, corners, Rectangles(dimensions=2, bits=4), caution=0), transcript, truth)
    assert bool((transcript.implied[transcript.unasked] == truth[transcript.unasked]).all())


def test_too_many_labellings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_DICHOTOMIES", 10)
    with pytest.raises(ValueError, match=r"public must have fewer rows: its 50 have more than 10 labellings.*passive"):
        by_version_space(Transcript(50, 5), np.arange(50), Thresholds(bits=6))


def test_so_many_labellings_that_they_are_not_even_counted_are_refused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rectangles, "MOST_LABELLINGS", 100)
    points = np.random.default_rng(0).integers(0, 16, size=(30, 2))
    with pytest.raises(ValueError, match=r"public must have fewer rows: its 30 have more than 1048576 labellings"):
        by_version_space(Transcript(30, 5), points, Rectangles(dimensions=2, bits=4))


# ── reduction to an oracle ────────────────────────────────────────────────────────────────────────────────────────


def test_the_closed_form_is_the_least_extra_loss_of_a_model_that_says_otherwise() -> None:
    """Press the point over to the other side with a growing weight, and see what that costs on the labels."""
    points, truth = cloud(40)
    model, point = Ridge(points, truth, 2), np.array([[0.7, 0.4]])
    extra = queries.lead(model.scores(point))[0] ** 2 / (2 * model.leverage(point)[0])

    rows = np.column_stack([points, np.ones(40)])
    gram = rows.T @ rows + np.diag([queries.RIDGE, queries.RIDGE, 1e-9])
    targets = np.where(truth[:, None] == [0, 1], 1.0, -1.0)
    x = np.append(point[0], 1)
    forced = np.linalg.solve(gram + 1e9 * np.outer(x, x), rows.T @ targets)  # both scores are pressed to 0

    def loss(weights: Array) -> float:
        ridge = queries.RIDGE * (weights[:-1] ** 2).sum() + 1e-9 * (weights[-1] ** 2).sum()
        return float(((rows @ weights - targets) ** 2).sum() + ridge)

    best = np.linalg.solve(gram, rows.T @ targets)
    assert extra == pytest.approx(loss(forced) - loss(best), rel=1e-4)


def test_ridge_disagreement_asks_few_rows_and_implies_right_labels() -> None:
    points, truth = cloud(2000)
    transcript = Transcript(2000, 2000)
    answered(by_ridge_disagreement(transcript, points, classes=2), transcript, truth)
    implied = transcript.implied >= 0
    assert len(transcript.asked) < 800
    assert implied.sum() == 2000 - len(transcript.asked)
    assert np.mean(transcript.implied[implied] == truth[implied]) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize(
    "student", [DecisionTreeClassifier(max_depth=1, random_state=0), GaussianNB(), LogisticRegression(C=10)]
)
def test_the_oracle_asks_fewer_rows_and_implies_right_labels(student: Any) -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(120, 1))
    truth = (points[:, 0] > 0.3).astype(int)
    transcript = Transcript(120, 120)
    answered(by_oracle(transcript, points, student, classes=2), transcript, truth)
    implied = transcript.implied >= 0
    assert len(transcript.asked) < 110
    assert np.mean(transcript.implied[implied] == truth[implied]) > 0.97


def test_the_oracle_repeats_the_row_for_a_student_that_takes_no_weights() -> None:
    points, truth = cloud(40, classes=3)
    transcript = Transcript(40, 20)
    student = KNeighborsClassifier(1)
    answered(by_oracle(transcript, points, student, classes=3), transcript, truth)
    assert 1 <= len(transcript.asked) <= 20


@pytest.mark.parametrize("neighbours", [5, 30, 1000])
def test_while_the_student_cannot_learn_the_oracle_asks_every_row(neighbours: int) -> None:
    points, truth = cloud(60)
    transcript = Transcript(60, 60)
    answered(by_oracle(transcript, points, KNeighborsClassifier(neighbours), classes=2), transcript, truth)
    implied = transcript.implied >= 0
    assert len(transcript.asked) + implied.sum() == 60
    if neighbours == 1000:
        assert len(transcript.asked) == 60


@pytest.mark.parametrize("weights", [False, True])
def test_the_oracle_leaves_the_public_rows_as_they_are(weights: bool) -> None:
    points, truth = cloud(30)
    scaled = make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier(max_depth=1, random_state=0))
    student = BaggingClassifier(scaled, n_estimators=2, random_state=0) if weights else scaled
    before, transcript = points.copy(), Transcript(30, 30)
    answered(by_oracle(transcript, points, student, classes=2), transcript, truth)
    assert np.array_equal(points, before)


def test_slack_grows_with_errors_and_vanishes_with_caution() -> None:
    assert slack(100, 25.0, caution=0) == 0
    assert slack(100, 25.0) > slack(100, 0.0) > 0
    assert slack(100, 0.0, dimension=3) > slack(100, 0.0)
