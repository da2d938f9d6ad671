"""Kills an answering service that takes later labels at every place where something reaches the disk.

    python killing_labels.py FOLDER TRUTH MODE

The steps are always the same. A service is killed at the first, second, … place where something reaches the disk. The
next one repeats the step that was cut off, as its client would, and does the others. What phases have learned from, and
what the next one would learn from, must be what it is without a kill. All modes but `whole` are broken on purpose.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from killing import at_point, forked
from later import answering_of, ask, chain, gathered, opened, teach, tell_by_key

from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.store.sqlite import SQLiteStore

Step = Callable[[AnsweringService], object]

STEPS: dict[str, list[Step]] = {
    "both": [
        lambda it: ask(it, "a", 4),
        lambda it: teach(it, "monday", 3, label=0),
        lambda it: tell_by_key(it, "a", [0, 2], 1),
        lambda it: ask(it, "b", 5),
        lambda it: it.withdraw_labelled("owner", [1]),
        lambda it: tell_by_key(it, "b", [0, 1, 4], 0),  # the last one is after the window
        lambda it: ask(it, "c", 1),  # the last answer of the phase
        lambda it: tell_by_key(it, "a", [1, 3], 0),  # too late
        lambda it: tell_by_key(it, "c", [0], 1),  # after the window, and so for the next
        lambda it: teach(it, "tuesday", 2, label=1),  # phase 2 begins before
        lambda it: tell_by_key(it, "b", [4, 0], 1),  # one of them is closed
        lambda it: ask(it, "d", 3),
        lambda it: it.maintain(),
    ],
    "rows": [
        lambda it: teach(it, "monday", 5, label=0),
        lambda it: ask(it, "a", 2),
        lambda it: teach(it, "tuesday", 15, label=1),  # 20 rows: two phases are due
        lambda it: it.withdraw_labelled("owner", [3, 17]),  # the first is in a phase that is complete
        lambda it: it.maintain(),
        lambda it: it.withdraw_labelled("owner", [18]),  # it is in the state of a phase
        lambda it: teach(it, "wednesday", 2, label=0),
        lambda it: ask(it, "b", 2),
    ],
}


def break_it(mode: str) -> None:
    """Break something on purpose."""
    if mode == "learns twice":
        SQLiteStore.stored_receipt = lambda *_: None  # type: ignore[method-assign]
    if mode == "loses labels":
        SQLiteStore.slot_labels = lambda *_: []  # type: ignore[method-assign]
    if mode == "reopens":
        written = SQLiteStore.write
        SQLiteStore.write = lambda self, batch: written(  # type: ignore[method-assign]
            self, type(batch)(**{**batch.__dict__, "close_slots": 0})
        )


def live(folder: Path, steps: list[Step], first: int, tell: Callable[[str], None], mode: str) -> None:
    """Do the steps from the given one on, and tell of each; at the end tell what the next phase would learn from."""
    break_it(mode)
    answering = opened(Home(folder))
    answering._predictor.background = False  # the same places each time
    begin = answering._begin_next_phase

    def begin_and_tell(now: int) -> None:
        learned = summary(gathered(answering))
        begin(now)
        tell(f"phase {answering.status().phase} {learned}")

    answering._begin_next_phase = begin_and_tell  # type: ignore[method-assign]
    for number in range(first, len(steps)):
        if isinstance(found := steps[number](answering), Exception):
            raise found
        tell(f"done {number} .")
    position = answering.home.store.position
    counts = [position.phase, position.labelled, position.slots, position.closed_slots]
    tell(f"end {json.dumps(counts).replace(' ', '')} {summary(gathered(answering))}")


def summary(found: object) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def taken_down(lines: list[str], known: dict[str, str]) -> tuple[int, list[str]]:
    """How many steps were done, and what differs from what is known."""
    done, wrong = 0, []
    for line in lines:
        what, which, _ = line.split(" ", 2)
        if what == "done":
            done = int(which) + 1
        elif what == "error":
            wrong.append(line)
        elif (before := known.setdefault(which if what == "phase" else what, line)) != line:
            wrong.append(f"{line}, where it was {before}")
    return done, wrong


def killed_at_points(folder: Path, truth: str, mode: str) -> dict[str, Any]:
    """Kill at each place, one after the other, and go on each time to the end."""
    steps, known = STEPS[truth], dict[str, str]()
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    _, wrong = taken_down(forked(lambda tell: live(copy, steps, 0, tell, "whole")), known)
    shutil.rmtree(copy)
    phases = len(known) - 1
    point, done = 0, 0
    while not wrong and done < len(steps):
        point += 1
        shutil.copytree(folder, copy)

        def run(tell: Callable[[str], None], point: int = point) -> None:
            count = at_point(point)

            def tell_counted(line: str) -> None:
                count()
                tell(line)

            live(copy, steps, 0, tell_counted, mode)

        done, wrong = taken_down(forked(run), known)
        if not wrong and done < len(steps):

            def go_on(tell: Callable[[str], None], first: int = done) -> None:
                live(copy, steps, first, tell, mode)

            _, wrong = taken_down(forked(go_on), known)
        shutil.rmtree(copy)
    return {"kills": point - 1, "faults": wrong[:2], "phases": phases}


def main(folder: str, truth: str, mode: str) -> None:
    """Print what was found, as JSON."""
    options: dict[str, Any] = {"phase_rows": 8, "gauge_share": 0}
    if truth == "both":
        options["wait"] = 2
    answering_of(Path(folder), chain(truth=truth, **options)).close()
    print(json.dumps(killed_at_points(Path(folder), truth, mode)))


if __name__ == "__main__":
    main(*sys.argv[1:])
