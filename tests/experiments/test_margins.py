"""Figures 3 and 4: what the page says of them, and that margins are those of `PATEClassifier`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments import datasets, margins
from experiments.margins import BINS, LOGISTIC, LOW_BIAS, Margins, Problem, measured
from reticent.teachers import PATEClassifier

KEPT = {(each.data, each.teacher): each for each in margins._kept()}


def small() -> Problem:
    X, y = datasets.synthetic("a9a", seed=0, rows=4000)
    return X[:3000], y[:3000], X[3000:], y[3000:]


@pytest.mark.slow
def test_margins_are_those_that_pate_keeps() -> None:
    X, y, queries, truth = small()
    found = measured((X, y, queries, truth), "made up", LOGISTIC)
    model = PATEClassifier(
        LogisticRegression(), epsilon=1, delta=1e-5, classes=(0, 1), n_teachers=found.teachers, keep_margins=True
    ).fit(X, y, public=queries)
    half = model.margins_ / 2
    assert found.teachers == 3000 // 130
    assert found.sums[-1][0] == pytest.approx(half[: margins.SUMMED].sum(), abs=1e-3)
    by_margin = np.bincount(np.minimum((half * BINS + 1e-9).astype(int), BINS // 2 - 1), minlength=BINS // 2)
    assert [count for count, _, _ in found.margins()] == pytest.approx(by_margin, abs=len(truth) // 50)


def test_bins_and_sums_add_up() -> None:
    found = measured(small(), "made up", LOW_BIAS)
    assert sum(found.bins) == found.queries == 1000
    assert sum(found.right) == round(found.majority * found.queries)
    assert sum(count for count, _, _ in found.margins()) == found.queries
    assert all(right <= count for count, right in zip(found.bins, found.right, strict=True))
    assert sum(good for _, _, good in found.margins()) == sum(found.right)
    for margin, agreement in found.sums:
        assert abs(agreement) <= margin + 1e-9
    assert len(found.sums) == margins.SUMMED // 10


def test_teachers_of_one_mind_are_all_in_the_last_bin() -> None:
    X = np.repeat([[-1.0], [1.0]], 2000, axis=0)[np.random.default_rng(0).permutation(4000)]
    y = (X[:, 0] > 0).astype(np.int64)
    found = measured((X[:3000], y[:3000], X[3000:], y[3000:]), "made up", LOGISTIC)
    assert found.bins[-1] == found.right[-1] == 1000
    assert found.sums[-1] == [100.0, 100.0]


# ── what was measured, and kept ───────────────────────────────────────────────────────────────────────────────────


def torn(each: Margins) -> list[tuple[int, int, int]]:
    return each.margins()[:2]


def clear(each: Margins) -> list[tuple[int, int, int]]:
    return each.margins()[-2:]


def test_the_parameters_are_those_of_the_module() -> None:
    assert json.loads(margins.MEASURED.read_text(encoding="utf-8"))["parameters"] == margins._parameters()
    assert set(KEPT) == {(name, kind) for name in margins.DATA for kind in margins.KINDS}
    assert KEPT["a9a", LOGISTIC].teachers == 250
    assert KEPT["a9a", LOGISTIC].queries == 2000


def test_on_a9a_teachers_agree_and_then_with_the_best_model() -> None:
    """What the paper reads off its Figures 3 and 4."""
    adult = KEPT["a9a", LOGISTIC]
    assert sum(count for count, _, _ in clear(adult)) > 0.6 * adult.queries
    assert sum(against for _, against, _ in clear(adult)) <= 0.002 * sum(count for count, _, _ in clear(adult))
    margin, agreement = np.array(adult.sums).T
    assert np.corrcoef(margin, agreement)[0, 1] > 0.999
    assert agreement[-1] / margin[-1] > 0.95
    against = [against for _, against, _ in adult.margins()]
    assert sum(against[:3]) > 0.7 * sum(against)
    assert sum(good for _, _, good in torn(adult)) < 0.55 * sum(count for count, _, _ in torn(adult))
    half = BINS // 2
    best = sum(adult.right[half : half + 2]) + sum(adult.bins[half - 2 : half]) - sum(adult.right[half - 2 : half])
    assert best < 2 / 3 * sum(count for count, _, _ in torn(adult))


def test_on_text_the_vote_is_far_from_the_best_model() -> None:
    slopes = {name: KEPT[name, LOGISTIC].sums[-1][1] / KEPT[name, LOGISTIC].sums[-1][0] for name in margins.DATA}
    for name in ("phishing_urls", "enron_spam"):
        assert 1 - KEPT[name, LOGISTIC].majority > 3 * (1 - KEPT[name, LOGISTIC].best)
        assert slopes[name] < min(slopes["a9a"], slopes["mushrooms"])


def test_less_regularised_teachers_are_worse_alone_and_better_together() -> None:
    usual, low = KEPT["a9a", LOGISTIC], KEPT["a9a", LOW_BIAS]
    assert low.single < usual.single
    assert low.majority > usual.majority
    assert low.sums[-1][0] < usual.sums[-1][0]


@pytest.mark.slow
def test_tables_and_plots() -> None:
    summary, distribution = margins.tables()
    assert len(summary.rows) == len(KEPT)
    assert len(distribution.rows) == BINS // 2
    assert all(len(row) == len(table.columns) for table in (summary, distribution) for row in table.rows)
    drawn = margins.plots()
    assert set(drawn) == {"margins", "margins_summed"}
    assert all(drawing.startswith(b"<?xml") and b"enron_spam" in drawing for drawing in drawn.values())
    assert drawn == margins.plots()


@pytest.mark.slow
def test_measuring_again_writes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margins, "problem", lambda name, folder: small())
    monkeypatch.setattr(margins, "DATA", ("mushrooms",))
    texts = []
    for name in ("first.json", "second.json"):
        monkeypatch.setattr(margins, "MEASURED", tmp_path / name)
        margins.measure(tmp_path)
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert [each.teacher for each in margins._kept()] == list(margins.KINDS)
    monkeypatch.setattr(margins, "QUERIES", 17)
    with pytest.raises(ValueError, match="measured with other parameters"):
        margins.tables()
