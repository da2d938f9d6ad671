"""The audit passes every mechanism and rejects every twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reticent.mechanisms
from reticent.audit import empirical
from reticent.audit.catalogue import CatalogueEntry, catalogue
from reticent.audit.neighbours import divergences, random_row_replacements, random_score_vectors, worst_case
from reticent.audit.report import ROUNDING, TAIL_BITS, AuditRow, TwinResult, examine, load_twins, reject, to_json
from reticent.audit.twins import TWINS
from reticent.mechanisms.pieces import median_pieces
from reticent.noise import Seeded

ENTRIES = {entry.name: entry for entry in catalogue()}
LONG_LAWS = {
    "AboveThreshold",
    "ConfidentGNMax",
    "StableMajority",
    "class_counts, 3 classes",
    "class_counts, labels may be missing",
    "column_scales",
    "laplace_count, histogram",
    "private_schema",
    "quasi_concave_maximum, depth 2",
    "second_moments",
    "stability_histogram",
}


def test_every_mechanism_is_in_the_catalogue() -> None:
    names = {name.split(",")[0] for name in ENTRIES}
    elsewhere = {"class_counts", "column_scales", "private_schema", "second_moments"}
    assert names == set(reticent.mechanisms.__all__) - {"Pieces", "Release"} | elsewhere


def test_every_entry_has_a_twin() -> None:
    assert [name for name in ENTRIES if not TWINS[name]] == []


def marked(name: str, *values: Any) -> Any:
    """A parameter, marked as slow where the laws of this mechanism take long to walk."""
    return pytest.param(*values, marks=[pytest.mark.slow] if name in LONG_LAWS else [])


@pytest.mark.parametrize("entry", [marked(entry.name, entry) for entry in catalogue()], ids=lambda entry: entry.name)
def test_no_mechanism_exceeds_its_claim_and_each_comes_near(entry: CatalogueEntry) -> None:
    pairs = [pair for _, _, pair in divergences(entry.run, entry.neighbours, tail_bits=TAIL_BITS)]
    lower, upper = (max(pair.delta(entry.epsilon)[end] for pair in pairs) for end in (0, 1))
    assert lower <= entry.delta
    assert upper <= float(entry.delta) + ROUNDING
    spent = max(pair.epsilon(entry.delta)[0] for pair in pairs)
    assert spent > 0.5 * entry.epsilon, "pairs that show nothing would pass anything"


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        marked(name, name, twin)
        for name, twins in TWINS.items()
        for twin in twins
    ],
    ids=lambda part: part,
)
def test_every_twin_is_rejected(name: str, twin: str) -> None:
    result = reject(ENTRIES[name], twin, TWINS[name][twin])
    assert result.rejected
    assert result.exact_delta > 1.2 * float(ENTRIES[name].delta), "not by a hair"


Pairs = Iterator[tuple[Any, Any]]


def scores(size: int, values: range, number: int) -> Pairs:
    return random_score_vectors(np.random.default_rng(1), number, size=size, values=values)


def rows(domain: Sequence[Any], size: int, number: int) -> Pairs:
    return random_row_replacements(np.random.default_rng(1), number, domain=domain, rows=size)


def counts(domain: Sequence[Any], size: int, number: int) -> Pairs:
    for pair in rows(domain, size, number):
        first, second = (tuple(side.count(value) for value in domain) for side in pair)
        yield first, second


def medians(bits: int, size: int, number: int) -> Pairs:
    for first, second in rows(range(2**bits), size, number):
        yield median_pieces(first, bits=bits), median_pieces(second, bits=bits)


def overlapping(size: int, number: int) -> Pairs:
    """Counts of four candidates of which a row supports up to two."""
    supports = [set(some) for held in range(3) for some in combinations(range(4), held)]
    for pair in rows(supports, size, number):
        first, second = (tuple(sum(value in row for row in side) for value in range(4)) for side in pair)
        yield first, second


def tallies(questions: int, voters: int, number: int) -> Pairs:
    """The votes on some questions with two answers each; the voter who is replaced may change them all."""
    ballots = list(product(range(2), repeat=questions))
    for pair in rows(ballots, voters, number):
        first, second = (tuple((voters - sum(votes), sum(votes)) for votes in zip(*side, strict=True)) for side in pair)
        yield first, second


def single(values: range, number: int) -> Pairs:
    for (first,), (second,) in scores(1, values, number):
        yield first, second


RANDOM: dict[str, Callable[[], Pairs]] = {
    "exponential": lambda: scores(8, range(-5, 6), 200),
    "exponential_over_pieces": lambda: medians(5, 7, 100),
    "stable_argmax, table": lambda: scores(4, range(30), 500),
    "stable_argmax, laplace": lambda: scores(4, range(30), 500),
    "choosing": lambda: counts("abcd", 20, 300),
    "choosing, growth 2": lambda: overlapping(30, 300),
    "quasi_concave_maximum, depth 2": lambda: medians(6, 9, 5),
    "laplace_count, histogram": lambda: counts("ab", 5, 3),
    "gaussian_count": lambda: single(range(-50, 50), 10),
    "gaussian_count, histogram": lambda: counts("ab", 5, 5),
    "stability_histogram": lambda: rows("ab", 9, 4),
    "AboveThreshold": lambda: scores(4, range(-3, 4), 40),
    "StableMajority": lambda: tallies(4, 21, 10),
    "BetweenThresholds": lambda: scores(4, range(-2, 8), 10),
    "noisy_majority": lambda: single(range(1, 9), 20),
    "gnmax": lambda: counts("ab", 9, 10),
    "ConfidentGNMax": lambda: tallies(2, 9, 3),
}


def test_random_neighbours_with_growth_2_grow_by_2() -> None:
    rises = [sum(b > a for a, b in zip(*pair, strict=True)) for pair in RANDOM["choosing, growth 2"]()]
    assert set(rises) == {0, 1, 2}


@pytest.mark.parametrize("name", [marked(name, name) for name in RANDOM])
def test_random_neighbours_stay_within_the_claim(name: str) -> None:
    entry = ENTRIES[name]
    worst = worst_case(entry.run, RANDOM[name](), epsilon=entry.epsilon, tail_bits=TAIL_BITS)
    assert worst.lower <= entry.delta
    assert worst.upper <= float(entry.delta) + ROUNDING


EMPIRICAL = [
    ("laplace_count", "noise × 0.7", 5_000),
    ("stable_argmax, table", "A_dist as printed", 2_000),
    ("choosing", "threshold halved", 4_000),
    ("noisy_majority", "noise × 0.7", 4_000),
    ("StableMajority", "no width", 1_000),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "twin", "runs"), EMPIRICAL)
def test_the_empirical_audit_tells_them_apart_too(name: str, twin: str, runs: int) -> None:
    entry, broken = ENTRIES[name], TWINS[name][twin]
    worst = max(
        divergences(broken, entry.neighbours, tail_bits=TAIL_BITS),
        key=lambda item: item[2].delta(entry.epsilon),
    )
    claim: dict[str, Any] = {"delta": entry.delta, "epsilon": entry.epsilon, "confidence": 0.999}
    for run, passes in ((entry.run, True), (broken, False)):
        mechanism = partial(run, Seeded(unsafe_seed=1))
        assert empirical(mechanism, *worst[:2], **claim, runs=runs, quiet=True).passed is passes


# ── the report ────────────────────────────────────────────────────────────────────────────────────────────────────

def test_a_row_of_the_report() -> None:
    entry = ENTRIES["laplace_count"]
    row = examine(entry, twins=TWINS, runs=2000, confidence=0.999)
    assert row.passed
    assert (row.mechanism, row.epsilon, row.delta) == ("laplace_count", 1.0, 0.0)
    assert row.exact_delta < ROUNDING
    assert 0.4 < row.empirical_epsilon < 1
    assert row.twins is not None
    assert [twin.rejected for twin in row.twins] == [True]


@pytest.mark.slow
def test_a_broken_mechanism_fails() -> None:
    """A twin in the place of the real one: exact and empirical audit both say so."""
    entry, broken = ENTRIES["laplace_count"], TWINS["laplace_count"]["noise × 0.7"]

    class Broken(CatalogueEntry):
        run = property(lambda self: broken)

    fields = {name: getattr(entry, name) for name in ("name", "mechanism", "neighbours", "epsilon", "delta")}
    row = examine(Broken(**fields), twins=TWINS, runs=20_000, confidence=0.999)
    assert (row.exact_passed, row.empirical_passed, row.passed) == (False, False, False)


def test_what_makes_a_row_fail() -> None:
    def row(**changes: Any) -> AuditRow:
        fields: dict[str, Any] = {
            "mechanism": "x", "epsilon": 1.0, "delta": 0.0, "exact_delta": 0.0, "exact_passed": True,
            "empirical_epsilon": 0.5, "empirical_event": "output in {0}", "empirical_passed": True,
            "twins": (TwinResult("weak", 0.1, True),),
        }  # fmt: skip
        return AuditRow(**fields | changes)

    assert row().passed
    assert not row(exact_passed=False).passed
    assert not row(empirical_passed=False).passed
    assert not row(twins=(TwinResult("weak", 0.1, True), TwinResult("sly", 0.0, False))).passed
    assert not row(twins=()).passed
    assert to_json([row(), row(twins=())], runs=9, twins="here")["passed"] is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must define TWINS"),
        ("TWINS = []", "must define TWINS"),
        ("TWINS = {'laplace_count': print}", "must define TWINS"),
        ("1 / 0", "raises ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "raises SystemExit: 3"),
        ("TWINS = {'teleport': {}}", "mechanisms that do not exist: teleport"),
    ],
)
def test_files_that_hold_no_twins(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "twins.py").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_twins(tmp_path / "twins.py", catalogue())
    with pytest.raises(ValueError, match="must be in a Python file"):
        load_twins(tmp_path / "twins.txt", catalogue())
