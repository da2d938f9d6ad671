"""Every algorithm, lemma and theorem of the listed papers has a home, and every docstring cites what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from reticent.experiments import sources
from reticent.experiments.sources import Mention, Paper, Statement, homeless, homes, mentions, papers, unknown

DOCS = Path(__file__).parent.parent / "docs"
KNOWN = papers()
FOUND = homes(KNOWN)


def test_every_statement_has_a_home() -> None:
    assert not homeless(KNOWN, FOUND)


def test_every_docstring_cites_what_the_papers_state() -> None:
    assert not unknown(KNOWN, FOUND)


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
    found = homes([SMALL], package)
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


@pytest.mark.parametrize("slip", ["Lemma 2.3", "Lemmas 2.1–2.3", "Theorem 2.1", "Algorithm Null", "Algorithm 1"])
def test_what_the_paper_does_not_state_is_unknown(tmp_path: Path, slip: str) -> None:
    missing, slips = checked(tmp_path, f"*A Short Treatise*, Figure 1, Lemma 2.1, *rather* {slip}.")
    assert missing == []
    assert len(slips) == 1
    assert "package.part.thing.Thing.make" in slips[0]
