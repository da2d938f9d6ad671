"""Every algorithm, lemma and theorem of the listed papers has a home, and every docstring cites what there is."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from experiments import sources
from experiments.sources import (
    Mention,
    Paper,
    Statement,
    homeless,
    homes,
    mentions,
    misplaced,
    papers,
    places_of,
    unknown,
    untitled,
)

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
KNOWN = papers()
FOUND = homes(KNOWN)


def test_every_statement_has_a_home() -> None:
    assert not homeless(KNOWN, FOUND)


@pytest.mark.slow
def test_every_docstring_cites_what_the_papers_state() -> None:
    assert not unknown(KNOWN, homes(KNOWN, left_out=True))
    assert not untitled(KNOWN)


def test_every_algorithm_and_figure_has_the_code_that_runs_it_for_its_home() -> None:
    assert not misplaced(KNOWN, FOUND)
    for paper in KNOWN:
        for statement in paper.statements:
            if statement.in_code and any(name.startswith(("Algorithm ", "Figure ")) for name in statement.names):
                assert statement.runs is not None, (paper.title, statement.names)


@pytest.mark.slow
def test_an_algorithm_lives_where_its_name_says() -> None:
    """If something of the package is called as the paper calls it, that is its home."""
    everlasting = next(paper for paper in KNOWN if paper.title == "Private Everlasting Prediction")
    where = {name: entry.runs for entry in everlasting.statements for name in entry.names}
    assert where["Algorithm BetweenThresholds"] == "reticent.mechanisms.between_thresholds.BetweenThresholds"
    assert where["Figure 1"] == "reticent.audit.everlasting_game.everlasting_game"
    public = {place.rpartition(".")[2].replace("_", "").lower() for place, _ in sources.sources()}
    for paper in KNOWN:
        for statement in paper.statements:
            for name in statement.names:
                called = name.removeprefix("Algorithm ").replace("_", "").lower()
                if name.startswith("Algorithm ") and called in public:
                    assert statement.runs is not None
                    assert statement.runs.rpartition(".")[2].replace("_", "").lower() == called


def home_objects() -> list[str]:
    entries = [(entry, paper) for paper in KNOWN for entry in paper.statements if entry.in_code]
    return sorted({place for entry, paper in entries for place in places_of(entry, paper, FOUND)})


def loaded(name: str) -> object:
    """The object of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if importlib.util.find_spec(parts[0]) and _is_module(".".join(parts[:length])):
            found: object = importlib.import_module(".".join(parts[:length]))
            for attribute in parts[length:]:
                found = getattr(found, attribute)
            return found
    raise ImportError(name)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("name", home_objects())
def test_code_can_be_called_and_is_run(name: str) -> None:
    """By the example in its docstring, which is a test, or by a test that calls it."""
    found = loaded(name)
    assert callable(found)
    examples = [test for test in doctest.DocTestFinder(recurse=False).find(found, name) if test.examples]
    called = re.compile(rf"\b{name.rpartition('.')[2]}\(")
    assert examples or any(called.search(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py"))


@pytest.mark.slow
def test_what_is_left_out_has_no_code_for_a_home() -> None:
    everything = homes(KNOWN, left_out=True)
    dropped = {mention for mention in everything if set(everything[mention]) - set(FOUND.get(mention, ()))}
    assert {mention.name for mention in dropped} >= {"Claim 4.5", "Lemma 5.1", "Claim 5.2", "Remark 5.4"}
    for paper in KNOWN:
        for statement in paper.statements:
            if any(Mention(paper.title, name) in dropped for name in statement.names):
                assert not statement.in_code, statement


@pytest.mark.parametrize("paper", KNOWN, ids=lambda paper: paper.title)
def test_every_page_names_what_it_is_the_home_of(paper: Paper) -> None:
    pages = {entry.page: (DOCS / entry.page).read_text("utf-8") for entry in paper.statements if entry.page}
    named = {page: set(mentions(text, KNOWN)) for page, text in pages.items()}
    for statement in paper.statements:
        if statement.page:
            assert any(Mention(paper.title, name) in named[statement.page] for name in statement.names), statement
    assert not unknown(KNOWN, {mention: [page] for page in named for mention in named[page]})


@pytest.mark.parametrize("paper", KNOWN, ids=lambda paper: paper.title)
def test_a_name_stands_for_one_statement(paper: Paper) -> None:
    names = [name for statement in paper.statements for name in statement.names]
    assert len(set(names)) == len(names)
    assert all(statement.says and statement.home for statement in paper.statements)


@pytest.mark.slow
def test_the_tables_have_a_row_a_statement() -> None:
    for table, paper in zip(sources.tables(), KNOWN, strict=True):
        assert paper.title in table.title
        assert [row[0] for row in table.rows] == [", ".join(statement.names) for statement in paper.statements]


# ── the checks can fail ───────────────────────────────────────────────────────────────────────────────────────────

SMALL = Paper("A Short Treatise on Nothing", "Nobody", (
    Statement(("Figure 1", "Algorithm Nil"), "nothing", "code"),
    Statement(("Lemma 2.1",), "still nothing", "code"),
    Statement(("Lemma 2.2",), "as was known", "background"),
))


def checked(folder: Path, source: str) -> tuple[list[str], list[str]]:
    package = folder / "package"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text('"""Lemma 2.1 outside of a Source paragraph."""')
    paragraphs = ("Make it.", f"Source. {source}", "Lemma 2.1.")
    docstring = "\n\n".join(paragraphs).replace("\n", "\n        ")
    (package / "part" / "thing.py").write_text(
        f'class Thing:\n    def make(self):\n        """{docstring}\n        """\n', encoding="utf-8"
    )
    found = homes([SMALL], [package])
    assert {place for places in found.values() for place in places} <= {"package.part.thing.Thing.make"}
    return homeless([SMALL], found), unknown([SMALL], found)


def test_what_is_cited_has_a_home(tmp_path: Path) -> None:
    assert checked(tmp_path, "Nobody, *A Short\nTreatise on Nothing*, Algorithm Nil, Lemma\n2.1.") == ([], [])


@pytest.mark.parametrize(
    "source",
    [
        "Nobody, *A Short Treatise on Nothing*, Figure 1.",
        "Nobody, *A Short Treatise on Nothing*, Figure 1, after *What Is Not There*, Lemma 2.1.",
        "Lemma 2.1 (before the title), Nobody, *A Short Treatise on Nothing*, Figure 1.",
    ],
)
def test_what_is_not_cited_has_none(tmp_path: Path, source: str) -> None:
    assert checked(tmp_path, source) == (["Lemma 2.1 (still nothing) of A Short Treatise on Nothing"], [])


def test_a_statement_before_any_title_is_found_out(tmp_path: Path) -> None:
    checked(tmp_path, "Lemma 2.1 of Nobody, *A Short Treatise on Nothing*, Figure 1.")
    assert untitled([SMALL], [tmp_path / "package"]) == ["Lemma 2.1 in package.part.thing.Thing.make"]


def test_what_is_left_out_is_found_out(tmp_path: Path) -> None:
    source = "Nobody, *A Short Treatise on Nothing*, Figure 1. Left out: Lemma 2.1. New: all of it."
    assert checked(tmp_path, source) == (["Lemma 2.1 (still nothing) of A Short Treatise on Nothing"], [])
    assert len(homes([SMALL], [tmp_path / "package"], left_out=True)) == 2


def test_a_home_whose_docstring_does_not_name_it_is_found_out(tmp_path: Path) -> None:
    checked(tmp_path, "Nobody, *A Short Treatise on Nothing*, Figure 1.")
    entries = [Statement((name,), "nothing", "code: part.thing.Thing.make") for name in ("Figure 1", "Lemma 2.1")]
    paper = Paper(SMALL.title, SMALL.authors, tuple(entries))
    found = {Mention(SMALL.title, "Figure 1"): ["reticent.part.thing.Thing.make"]}
    assert misplaced([paper], found) == [f"Lemma 2.1 of {SMALL.title} by reticent.part.thing.Thing.make"]


@pytest.mark.parametrize("slip", ["Lemma 2.3", "Lemmas 2.1–2.3", "Theorem 2.1", "Algorithm Null", "Algorithm 1"])
def test_what_the_paper_does_not_state_is_unknown(tmp_path: Path, slip: str) -> None:
    missing, slips = checked(tmp_path, f"*A Short Treatise*, Figure 1, Lemma 2.1, *rather* {slip}.")
    assert missing == []
    assert len(slips) == 1
    assert "package.part.thing.Thing.make" in slips[0]
