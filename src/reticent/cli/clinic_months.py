"""The demo's months: clients ask two predictors about the stays of a month, and its outcomes are taught to one."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.cli.clinic import Array, clinic
from reticent.service.client import Client
from reticent.service.client_messages import ServiceError

NAME, STATIC = "clinic", "day-one"  # the predictor that learns from outcomes, and the one that learned once
CLIENTS = {"ward": (1, 0.02), "surgery": (5, 0.1), "insurer": (300, 0.5)}  # rows per request, seconds between two
FEW = 50  # answers of a month, below which no share of right ones is shown


class Months:
    """What happens in the clinic: months pass, clients ask, outcomes become known.

    Parameters
    ----------
    urls : dict of str to str
        The addresses of both predictors.
    """

    def __init__(self, urls: dict[str, str]) -> None:
        self._urls = urls
        self._over, self._lock = threading.Event(), threading.Lock()
        self._right: Counter[tuple[str, int]] = Counter()  # by predictor and month
        self._asked: Counter[tuple[str, int]] = Counter()
        self._known: queue.SimpleQueue[dict[str, Array] | None] = queue.SimpleQueue()
        self._status = {name: self._read(name) for name in urls}
        self.stays = int(self._status[NAME]["phase_rows"])  # of a month: its outcomes make up a phase
        self.month, self.failed = 0, 0
        self._table = self._made_up()
        self._threads: list[threading.Thread] = []

    def _made_up(self) -> dict[str, Array]:
        table = clinic(self.stays, seed=1_000 + self.month, month=self.month)
        del table["patient_id"]
        return table

    def _read(self, name: str) -> dict[str, Any]:
        with Client(self._urls[name], model=name) as client:
            return client.status()

    # ── what the main thread does ─────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Let the clients ask, and the archive teach."""
        tasks: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(self._teach, ())]
        tasks += [(self._ask, (seed, *pace)) for seed, pace in enumerate(CLIENTS.values())]
        self._threads = [threading.Thread(target=one, args=given, daemon=True) for one, given in tasks]
        for thread in self._threads:
            thread.start()

    def look(self) -> None:
        """Read the public numbers of both predictors."""
        found = {name: self._read(name) for name in self._urls}
        with self._lock:
            self._status = found

    @property
    def learned(self) -> bool:
        """Whether all outcomes that are known have been learned: a month makes up a phase."""
        with self._lock:
            return bool(self._status[NAME]["phase"] > self.month)

    def turn(self) -> str:
        """End the month: its outcomes become known, and are taught. What became of it, in words."""
        with self._lock:
            words, before = self._words(self.month), self._table
            self.month += 1
            self._table = self._made_up()
        self._known.put(before)
        return words

    def stop(self) -> None:
        """Let everybody finish."""
        self._over.set()
        self._known.put(None)
        for thread in self._threads:
            thread.join(timeout=10)

    # ── what others do meanwhile ──────────────────────────────────────────────────────────────────────────────────

    def _ask(self, seed: int, rows: int, pause: float) -> None:
        """Ask both predictors about the same stays, and count how often each is right."""
        draw = np.random.default_rng(seed)
        clients = {name: Client(url, model=name) for name, url in self._urls.items()}
        try:
            while not self._over.wait(pause):
                with self._lock:
                    month, table = self.month, self._table
                some = draw.integers(0, self.stays, size=rows)
                part = {name: values[some] for name, values in table.items()}
                truth = part.pop("readmitted")
                for name, client in clients.items():
                    answers = client.ask(part)
                    with self._lock:
                        self._asked[name, month] += rows
                        self._right[name, month] += int(np.count_nonzero(answers == truth))
        except (ServiceError, ConnectionError):
            self._note_failure()
        finally:
            for client in clients.values():
                client.close()

    def _teach(self) -> None:
        """Hand the outcomes of each month over when they are known."""
        with Client(self._urls[NAME], model=NAME) as client:
            while (table := self._known.get()) is not None:
                try:
                    client.teach(table)
                except (ServiceError, ConnectionError):
                    self._note_failure()
                    return

    def _note_failure(self) -> None:
        if not self._over.is_set():
            self.failed = 1

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────

    def numbers(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            status = self._status
            shares = [{"month": one} | self._shares(one) for one in range(self.month + 1)]
            found = {"month": self.month, "months": [one for one in shares if None not in one.values()]}
            asked = {name: sum(self._asked[name, one] for one in range(self.month + 1)) for name in self._urls}
        # Phase k is judged by the outcomes of month k − 1, which make up the phase after it.
        judged = [
            {"month": one["phase"] - 1, "right": one["right"], "low": one["low"], "high": one["high"]}
            for one in status[NAME]["quality"]
            if one["right"] is not None
        ]
        about = {name: {"url": f"{url}/", "answered": asked[name]} for name, url in self._urls.items()}
        about[NAME] |= {"phase": status[NAME]["phase"], "labelled": status[NAME]["labelled_received"]}
        return found | {"judged": judged, "clinic": about[NAME], "day_one": about[STATIC]}

    def _shares(self, month: int) -> dict[str, float | None]:
        """The share of right answers of both; None if there are few answers."""
        found: dict[str, float | None] = {}
        for key, name in (("clinic", NAME), ("day_one", STATIC)):
            many = self._asked[name, month]
            found[key] = self._right[name, month] / many if many >= FEW else None
        return found

    def _words(self, month: int) -> str:
        shares = self._shares(month)
        learns, static = shares["clinic"], shares["day_one"]
        if learns is None or static is None:
            return f"month {month}: hardly anybody asked"
        return f"month {month}: {learns:4.0%} right where outcomes are learned from, {static:4.0%} where not"

    def now(self) -> str:
        """The month in words."""
        with self._lock:
            return self._words(self.month)

    def summary(self) -> str:
        """How many answers both gave, and how many were right."""
        with self._lock:
            totals = [(name, sum(many for (who, _), many in self._asked.items() if who == name)) for name in self._urls]
            right = Counter[str]()
            for (who, _), many in self._right.items():
                right[who] += many
        return "\n".join(
            f"{name}: {many:,} private answers, {right[name] / max(1, many):.1%} of them right" for name, many in totals
        )
