"""Measurements that take long: kept in a JSON file next to their experiment, case by case."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMBERS = re.compile(r"\[\s+-?[\d.e+-]+(?:,\s+-?[\d.e+-]+)*\s+\]")

Setting = dict[str, Any]
Found = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Something to measure: all numbers that decide what comes out, and how it is done."""

    part: str
    name: str
    setting: Setting
    run: Callable[[Setting, Path], Found]


@dataclass(frozen=True)
class Measurements:
    """The cases of an experiment, and the file that keeps what was found. A case whose setting is kept is done.

    Parameters
    ----------
    path : Path
        The file.
    cases : sequence of Case
        In the order in which the file lists them.
    """

    path: Path
    cases: Sequence[Case]

    def measure(self, folder: Path, *parts: str, again: bool = False) -> None:
        """Measure what is not kept yet, with the data sets in a folder; each case is kept as soon as it is measured.

        Parameters
        ----------
        folder : Path
            The folder with the files of the data sets.
        *parts : str
            The parts to measure, or PART/CASE; all of them if none is named.
        again : bool, default False
            Whether to measure what is kept as well.
        """
        for case in self.cases:
            chosen = not parts or case.part in parts or f"{case.part}/{case.name}" in parts
            kept = self.read().get(case.part, {}).get(case.name, {}).get("setting") == case.setting
            if not chosen or (kept and not again):
                continue
            start = time.process_time()
            found = case.run(case.setting, folder)
            if sys.stderr.isatty() or parts:
                print(f"{case.part}/{case.name}: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
            self._keep(case, found)

    def _keep(self, case: Case, found: Found) -> None:
        """Read again before writing: another process may have measured another part."""
        kept = self.read()
        kept.setdefault(case.part, {})[case.name] = {"setting": case.setting, **found}
        index = {(each.part, each.name): number for number, each in enumerate(self.cases)}
        ordered: dict[str, dict[str, Any]] = {}
        for part, name in sorted(((p, n) for p in kept for n in kept[p]), key=lambda each: index.get(each, len(index))):
            ordered.setdefault(part, {})[name] = kept[part][name]
        made_by = f"reticent experiment {self.path.stem} --data DIR"
        text = json.dumps({"made by": made_by, "results": ordered}, indent=1, ensure_ascii=False)
        text = NUMBERS.sub(lambda found: " ".join(found[0].split()), text)  # a list of numbers in one line
        whole = self.path.with_suffix(".part")
        whole.write_text(text + "\n", encoding="utf-8")
        whole.replace(self.path)

    def read(self) -> dict[str, dict[str, Any]]:
        """What is kept, by part and case."""
        if not self.path.is_file():
            return {}
        results: dict[str, dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))["results"]
        return results
