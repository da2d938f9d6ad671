"""`reticent status`: what a predictor guarantees, and its current phase."""

from __future__ import annotations

import json as json_format
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.notices import PHASES_SHRINK, one_answer
from reticent.cli.opening import copied, existing_folder, open_predictor
from reticent.cli.options import Flag
from reticent.cli.own_parts import Own, OwnParts
from reticent.cli.progress import progress_bar
from reticent.cli.quality_words import SHOWN, later_labels, quality
from reticent.cli.running_server import address_of, naming_the_key, read_key, served_at

if TYPE_CHECKING:
    from reticent.service.answering import AnsweringService


def status(
    name: str | None = None,
    *,
    verify: Flag = False,
    json: Flag = False,
    url: str | None = None,
    key_file: Path | None = None,
    own: Own = None,
) -> int:
    """Show what a predictor guarantees, and its current phase; without a name, list all predictors and their states.

    Parameters
    ----------
    name
        The predictor.
    verify
        Check every entry of the answer log, and that all counts add up.
    json
        Print a JSON object instead of text.
    url
        The address of a server; by default that of the server that runs on this machine, if one does.
    key_file
        A file with the key for a running server; by default the key is in $RETICENT_KEY.
    """
    from reticent.service import home
    from reticent.service.store import verification

    if name is None:
        known = [f"{one:24} {_state(home.folder_of(one))}" for one in home.predictor_names()]
        print("\n".join(known) or "there are no predictors yet: make one with reticent fit")
        return 0
    with as_usage_errors(), naming_the_key(key_file):
        if url is not None:
            if verify:
                raise UsageError("--verify reads the answer log of a predictor on this machine: leave out --url")
            found = _status_of_server(name, url, read_key(key_file))
        else:
            folder = existing_folder(name)
            found = _status(name, folder, read_key(key_file), own)
        if verify:
            with progress_bar("checking the answer log", quiet=json):
                found["verified"] = asdict(verification.verify(folder / home.STORE))
    if json:
        print(json_format.dumps(found, indent=2, ensure_ascii=False, default=str))
        return 0
    print(_as_text(name, found))
    return 0


def _state(folder: Path) -> str:
    """The state of a predictor in a word or two. No lock is taken: a server may be about to start."""
    import sqlite3

    from reticent.service import halting, home
    from reticent.service.store import protocol, verification

    if (address := served_at(folder)) is not None:
        return f"serving at {address}"
    try:
        mark = verification.retirement(folder / home.STORE)
    except (OSError, ValueError, RuntimeError, sqlite3.Error):
        return "cannot be read"
    if mark is not None:
        return "records only" if mark == protocol.INCOMPLETE else "retired"
    return "stopped" if halting.last(folder) is None else "halted"


def _status(name: str, folder: Path, key: str | None, own: OwnParts | None) -> dict[str, Any]:
    from reticent.service.home import AlreadyServed
    from reticent.service.store.verification import can_be_written

    if not can_be_written(folder):
        return _status_of_copy(name, folder, own)
    try:
        answering = open_predictor(name, own, records=True)
    except AlreadyServed:
        return _status_of_server(name, address_of(name), key)
    return _status_and_close(name, folder, answering)


def _status_of_server(name: str, url: str, key: str | None) -> dict[str, Any]:
    from reticent.service.client import Client

    with Client(url, model=name, key=key) as client:
        return {**client.status(), "words": client.guarantee()["words"], "served": url, "retired": None}


def _status_and_close(name: str, folder: Path, answering: AnsweringService) -> dict[str, Any]:
    from reticent.service import halting
    from reticent.service.status import in_words

    try:
        now, retired, halt = answering.status(), answering.home.store.retired, halting.last(folder)
        found = {"model": name, **asdict(now), "served": None, "retired": retired}
        found["words"] = in_words(
            now.guarantee, public_model=now.public_model, besides=now.besides, truth=now.truth
        )
        if halt is not None:
            found |= {"halted": halt.words(folder), "halt": asdict(halt)}
        return found
    finally:
        answering.close()


def _status_of_copy(name: str, folder: Path, own: OwnParts | None) -> dict[str, Any]:
    """The status of a predictor whose folder is read-only: a temporary copy of it is opened."""
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home

    with copied(folder) as copy:
        print(f"reticent: {folder} is read-only: it is copied to {copy.parent}, which is then removed", file=sys.stderr)
        parts = own.imported() if own else {}
        answering = AnsweringService(Home(copy, records=True), **parts)
        return _status_and_close(name, folder, answering)


def _as_text(name: str, found: dict[str, Any]) -> str:
    left = found["answers_left"]
    lines = [
        f"{name}: {'served at ' + found['served'] if found['served'] else 'not served now'}",
        "",
        found["words"],
        "",
        f"phase {found['phase']}: {_learned(found)}",
        f"answered: {found['answered']:,} in all; {_left(found)}",
        *_next_phase(found),
        *quality(found),
        f"answer log: {_entries(found['ledger_length'])}, head {found['ledger_head']}",
    ]
    if past := found.get("past"):
        last = past[-SHOWN:]
        given = ", ".join(f"{one['answers']:,} in phase {one['number']} (from {one['rows']:,} rows)" for one in last)
        lines.insert(6, f"answers in {'earlier' if len(last) == len(past) else 'the last'} phases: {given}")
        if left is None and found["teachers"] and found["rows"] < past[-1]["rows"]:
            lines.append(PHASES_SHRINK)
    if found.get("public_model"):
        lines.append(f"model: public; reticent export {shlex.quote(name)} --to FILE writes the one that answers now")
    if found.get("one_answer") is not None:
        lines.append(one_answer(found["one_answer"]))
    return "\n".join([*lines, *_halted(found), *_verified(found)])


def _left(found: dict[str, Any]) -> str:
    """How many answers are left."""
    if found.get("phase_never_ends"):
        return "no end"
    left = found["answers_left"]
    in_phase = f"left in this phase: {found['answers_left_in_phase']:,} of {found['answers_in_phase']:,}"
    return in_phase + ("" if left is None else f"; left in all: {left:,}")


def _next_phase(found: dict[str, Any]) -> list[str]:
    """What the next phase will learn from, and what a test of drift found before this one."""
    if found["guarantee"]["protects"] == "rows":
        return ["next phase: none, since queries are not learned from"]
    if found.get("truth"):
        return later_labels(found)
    return [
        f"gathered for the next phase: {found['rows_gathered']:,} of {found['rows_wanted']:,} rows, at most "
        f"{found['client_cap']:,} from one client",
        f"drift before this phase: {found['drift']}",
    ]


def _learned(found: dict[str, Any]) -> str:
    """What the current phase learned from."""
    if found["teachers"]:
        return f"learned from {found['rows']:,} rows with {found['teachers']:,} teachers"
    if found["guarantee"]["unit"] == "group":
        return f"made from {found['rows']:,} rows; with a group, its model learned from the first row of each"
    return f"learned from {found['rows']:,} rows"


def _entries(many: int) -> str:
    return f"{many:,} {'entry' if many == 1 else 'entries'}"


def _halted(found: dict[str, Any]) -> list[str]:
    """Why it answers no more, if it does not."""
    lines = [f"HALTED: {found['halted']}"] if found["halted"] else []
    if "halt" in found:
        lines += [f"  {line}" for line in found["halt"]["trace"].splitlines()]
    if found["retired"]:
        from reticent.service.home import RETIREMENT

        lines.append(f"RECORDS ONLY: no more queries are answered: {RETIREMENT[found['retired']]}")
    return lines


def _verified(found: dict[str, Any]) -> list[str]:
    if "verified" not in found:
        return []
    counted = ", ".join(f"{many:,} in phase {phase}" for phase, many in found["verified"]["counted"].items())
    many = found["verified"]["length"]
    are, count = ("is", "counts") if many == 1 else ("are", "count")
    return [f"verified: {_entries(many)} {are} chained without a gap, and {count} {counted}, as the phases do"]
