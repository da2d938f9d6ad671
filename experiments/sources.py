"""Which algorithm, lemma and theorem of the papers lives where, read off the docstrings' `Source.` paragraphs.

`papers/*.toml` lists what each paper states; adding a paper means adding its file. A statement is named in a text if
its paper's title comes before it, in italics, with no other title between: "…, *Private Learning and Sanitization*,
Figure 5 (Algorithm RecConcave) and Lemmas 3.12, 3.14". The first three words of a title or more are enough.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import reticent
from experiments.table import Table

EXPERIMENTS = Path(__file__).parent
PACKAGES = (Path(reticent.__file__).parent, EXPERIMENTS)
PAPERS = EXPERIMENTS / "papers"

_CODE = "code: "
_LEFT_OUT = re.compile(r"Left\s+out: .*?(?=(?:Improved|New|Repaired|Replaced|Sharpened): |$)", flags=re.DOTALL)
_KINDS = "Algorithm|Claim|Corollary|Definition|Example|Figure|Lemma|Observation|Proposition|Remark|Theorem"
_NUMBER = r"(?:[A-Z]|\d+)\.\d+|\d+"
_MORE = rf",? and (?:{_NUMBER})|(?:, |–)(?:[A-Z]|\d+)\.\d+"  # a bare number after a comma is no theorem's
_NUMBERED = re.compile(rf"\b({_KINDS}|Corollarie)s? ((?:{_NUMBER})(?:{_MORE})*)")
_CALLED = re.compile(r"\bAlgorithm ([A-Z]\w*)(?!\.\d)")
_ITALICS = re.compile(r"(?<![*\w])\*([^*\s][^*]*)\*(?!\*)")


@dataclass(frozen=True)
class Statement:
    """What a paper states under one number, or more names.

    `home` is "code", or "code: X" where X is what runs it (a name within `reticent`, or `experiments.…`); a page; or a
    reason to need neither.
    """

    names: tuple[str, ...]
    says: str
    home: str

    @property
    def in_code(self) -> bool:
        """Whether a docstring must name it."""
        return self.home == "code" or self.runs is not None

    @property
    def runs(self) -> str | None:
        """The dotted name of the code that runs it, where the list names one."""
        if not self.home.startswith(_CODE):
            return None
        name = self.home.removeprefix(_CODE)
        return name if name.startswith("experiments.") else f"reticent.{name}"

    @property
    def page(self) -> str | None:
        """The page of the documentation that must name it, if any."""
        return self.home if self.home.endswith(".md") else None


@dataclass(frozen=True)
class Paper:
    """A paper and all that it states, in its own order."""

    title: str
    authors: str
    statements: tuple[Statement, ...]


class Mention(NamedTuple):
    """A statement's name, as some text gives it, and its paper's title."""

    title: str
    name: str


def papers(folder: Path = PAPERS) -> list[Paper]:
    """The papers whose statements are listed.

    Parameters
    ----------
    folder : Path, default PAPERS
        The folder with a file for each paper.
    """
    read = (tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml")))
    return [
        Paper(paper["title"], paper["authors"], tuple(
            Statement(tuple(names.split(", ")), says, home) for names, (says, home) in paper["statements"].items()
        ))
        for paper in read
    ]


def mentions(text: str, known: Sequence[Paper]) -> Iterator[Mention]:
    """Every statement of a known paper that the text names, each as often as it does.

    Parameters
    ----------
    text : str
        The text of a docstring.
    known : sequence of Paper
        The papers.

    >>> text = "A, *Private Learning and Sanitization*, Lemmas 4.4 and 4.5, after B, *Some Other Paper*, Theorem 1."
    >>> [mention.name for mention in mentions(text, papers())]
    ['Lemma 4.4', 'Lemma 4.5']
    """
    text = " ".join(text.split())
    titles = [match for match in _ITALICS.finditer(text) if _is_title(match[1])]
    ends = [match.start() for match in titles[1:]] + [len(text)]
    for match, end in zip(titles, ends[:len(titles)], strict=True):
        for paper in known:
            if paper.title.startswith(match[1]):
                yield from (Mention(paper.title, name) for name in _names(text[match.end():end]))


def sources(packages: Sequence[Path] = PACKAGES) -> Iterator[tuple[str, str]]:
    """Every `Source.` paragraph of the packages' docstrings, after the dotted name of what it describes.

    Parameters
    ----------
    packages : sequence of Path, default PACKAGES
        The folders of the packages.
    """
    for package, path in ((each, path) for each in packages for path in sorted(each.rglob("*.py"))):
        module = ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
        for name, docstring in _docstrings(ast.parse(path.read_text(encoding="utf-8")), module):
            for paragraph in re.split(r"\n\s*\n", docstring):
                if paragraph.startswith("Source."):
                    yield name, paragraph


def homes(
    known: Sequence[Paper], packages: Sequence[Path] = PACKAGES, *, left_out: bool = False
) -> dict[Mention, list[str]]:
    """For every statement that a `Source.` paragraph names, by that name, the things whose docstrings do.

    What a paragraph names after "Left out:" has no home there; `left_out` includes it.

    Parameters
    ----------
    known : sequence of Paper
        The papers.
    packages : sequence of Path, default PACKAGES
        The folders of the packages.
    left_out : bool, default False
        Whether to include what is named after "Left out:".
    """
    found: dict[Mention, list[str]] = {}
    for name, paragraph in sources(packages):
        for mention in mentions(paragraph if left_out else _LEFT_OUT.sub("", paragraph), known):
            places = found.setdefault(mention, [])
            if name not in places:
                places.append(name)
    return found


def places_of(statement: Statement, paper: Paper, found: dict[Mention, list[str]]) -> list[str]:
    """The things whose docstrings give one of the statement's names.

    Parameters
    ----------
    statement : Statement
        The statement.
    paper : Paper
        The paper that it is from.
    found : dict
        Where each statement is named, as `homes` returns it.
    """
    return sorted({place for name in statement.names for place in found.get(Mention(paper.title, name), ())})


def homeless(known: Sequence[Paper], found: dict[Mention, list[str]]) -> list[str]:
    """What should be named by a docstring, and is by none.

    Parameters
    ----------
    known : sequence of Paper
        The papers.
    found : dict
        Where each statement is named, as `homes` returns it.
    """
    return [
        f"{', '.join(statement.names)} ({statement.says}) of {paper.title}"
        for paper in known for statement in paper.statements
        if statement.in_code and not places_of(statement, paper, found)
    ]


def misplaced(known: Sequence[Paper], found: dict[Mention, list[str]]) -> list[str]:
    """What the list says some code runs, although the docstring of that code does not name it.

    Parameters
    ----------
    known : sequence of Paper
        The papers.
    found : dict
        Where each statement is named, as `homes` returns it.
    """
    return [
        f"{', '.join(statement.names)} of {paper.title} by {statement.runs}"
        for paper in known for statement in paper.statements
        if statement.runs is not None and statement.runs not in places_of(statement, paper, found)
    ]


def untitled(known: Sequence[Paper], packages: Sequence[Path] = PACKAGES) -> list[str]:
    """`Source.` paragraphs that name a statement before any title: it is unclear whose it is, so it is not listed.

    Parameters
    ----------
    known : sequence of Paper
        The papers.
    packages : sequence of Path, default PACKAGES
        The folders of the packages.
    """
    del known
    slips = []
    for name, paragraph in sources(packages):
        text = " ".join(paragraph.split())
        first = next((match.start() for match in _ITALICS.finditer(text) if _is_title(match[1])), len(text))
        slips += [f"{each} in {name}" for each in _names(text[:first])]
    return slips


def unknown(known: Sequence[Paper], found: dict[Mention, list[str]]) -> list[str]:
    """What docstrings name although no paper states it: a slip of the number, or a gap in the list.

    Parameters
    ----------
    known : sequence of Paper
        The papers.
    found : dict
        Where each statement is named, as `homes` returns it.
    """
    stated = {Mention(paper.title, name) for paper in known for entry in paper.statements for name in entry.names}
    return [f"{name} of {title}, in {', '.join(found[Mention(title, name)])}" for title, name in found.keys() - stated]


def tables() -> list[Table]:
    """For every paper, its statements and where each lives."""
    known = papers()
    found = homes(known)
    return [
        Table(f"{paper.authors}, *{paper.title}*", ("statement", "what it says", "where"), tuple(
            (", ".join(statement.names), statement.says, _where(statement, places_of(statement, paper, found)))
            for statement in paper.statements
        ))
        for paper in known
    ]


def _where(statement: Statement, places: list[str]) -> str:
    ordered = sorted(places, key=lambda place: place != statement.runs)
    listed = ", ".join(f"`{place.removeprefix('reticent.')}`" for place in ordered)
    if statement.runs is not None and len(places) > 1:
        return listed.replace(", ", "; also ", 1)
    if statement.in_code:
        return listed or "**nowhere**"
    elsewhere = f"[{Path(statement.page).stem}]({statement.page})" if statement.page else statement.home
    return f"{elsewhere}; {listed}" if listed else elsewhere


def _is_title(italics: str) -> bool:
    """Tells a title from an emphasis."""
    return italics[0].isupper() and len(italics.split()) >= 3


def _names(text: str) -> Iterator[str]:
    for match in _NUMBERED.finditer(text):
        kind = match[1].replace("Corollarie", "Corollary")
        yield from (f"{kind} {number}" for number in _numbers(match[2]))
    yield from (f"Algorithm {match[1]}" for match in _CALLED.finditer(text))


def _numbers(listed: str) -> Iterator[str]:
    """The numbers of a list.

    >>> list(_numbers("4.2, 4.4 and 4.7–4.9"))
    ['4.2', '4.4', '4.7', '4.8', '4.9']
    """
    for part in re.split(r",? and |, ", listed):
        first, *last = part.split("–")
        section, _, number = first.rpartition(".")
        upto = int(last[-1].rpartition(".")[2]) if last else int(number)
        yield from (f"{section}.{each}".lstrip(".") for each in range(int(number), upto + 1))


def _docstrings(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(tree)
        if docstring:
            yield name, docstring
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}")
