"""A service to look at, and a browser to look with: what the tests of pages need."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import patient
import pytest
import stand_in
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright
from playwright.sync_api import Request as Sent

from reticent.service.http.access import Keyring
from reticent.service.http.bodies import Limits
from reticent.service.http.server import Binding
from reticent.service.http.service import Service
from reticent.service.requests import Answered, Request
from reticent.service.status import Status
from reticent.service.store import hashing
from reticent.service.store.protocol import Damaged, Entry, LogRow, Verified
from waiting import LIMIT

ARTEFACTS = Path(__file__).parent / "artefacts"
SIZES = {"desktop": (1200, 900), "phone": (390, 844), "narrow": (320, 640)}
OFTEN = Limits(status_seconds=0.05)  # and not once a second: news are waited for dozens of times
# The pauses of the page pass as much quicker. What it takes for a lost connection stays as long as it is.
QUICK = """
{
  const usual = window.setTimeout;
  window.setTimeout = (run, pause, ...rest) => usual(run, pause > 5000 ? pause : pause / 20, ...rest);
}
"""
left_out = pytest.mark.skipif(
    os.environ.get("RETICENT_NO_BROWSER") == "1", reason="RETICENT_NO_BROWSER=1 leaves the browser out"
)


def browser_test(test: Callable[..., None]) -> Any:
    """Mark a test that needs a browser."""
    return pytest.mark.slow(left_out(test))


# ── a service to look at ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class FakeAnswering(stand_in.FakeAnswering):
    """The answering service in memory, with an answer log that is chained as the real one is."""

    rows: list[LogRow] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    damaged: bool = False
    taken: dict[str, int] = field(default_factory=dict)  # rows for the next phase, by client

    def added(self, client: str) -> tuple[int, int] | None:
        return None if client == "anonymous" else (self.taken.get(client, 0), self.status().client_cap)

    def write(self, client: str, answers: int, at: int | None = None) -> None:
        previous = self.rows[-1].hash if self.rows else bytes(32)
        number, phase = len(self.rows) + 1, self.changes.get("phase", 1)
        at = int(1000 * time.time()) if at is None else at  # steady: pages show how long ago, nothing looks at it
        digest = hashlib.sha256(
            hashing.canonical(number, at, Entry(client, answers, phase, answers), previous)
        ).digest()
        self.rows.append(LogRow(number, at, client, answers, phase, answers, previous, digest))

    def answer(self, requests: Any) -> list[Answered | Exception]:
        found = super().answer(requests)
        for request in requests:
            self.write(request.client, len(request.rows))
        return found

    def status(self) -> Status:
        head = self.rows[-1].hash.hex() if self.rows else "0" * 64
        return replace(super().status(), ledger_length=len(self.rows), ledger_head=head, **self.changes)

    def tail(self) -> list[LogRow]:
        return self.rows[-100:]

    def verify(self) -> Verified:
        if self.damaged:
            raise Damaged("/secret/place is damaged")
        return Verified(len(self.rows), self.status().ledger_head)


class Drowsy(stand_in.Batcher):
    """A batcher that takes as long as a disk does, so that there is something to see."""

    def __init__(self, answering: FakeAnswering) -> None:
        super().__init__(answering)
        self._noise = np.random.default_rng(1)

    async def ask(self, request: Request) -> Answered:
        await asyncio.sleep(0.002 + float(self._noise.exponential(0.002)))  # steady: however long, there is a time
        (answered,) = self.answering.answer([request])
        assert isinstance(answered, Answered)
        return answered


@dataclass
class Running:
    address: str
    answering: FakeAnswering
    tokens: dict[str, str]

    def ask(self, rows: int = 1, name: str | None = None) -> None:
        inputs = [
            {"name": one.name, "shape": [rows, 1], "datatype": "FP64", "data": [0.0] * rows}
            for one in stand_in.Rules().columns
        ]
        url = f"{self.address}/v2/models/clinic/infer"
        patient.post(url, json={"inputs": inputs}, headers=self.headers(name)).raise_for_status()

    def headers(self, name: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}


@contextmanager
def serving(keyring: Keyring | None = None, answering: FakeAnswering | None = None, port: int = 0) -> Iterator[Running]:
    answering = answering or FakeAnswering()
    service = Service("clinic", stand_in.Rules(), answering, Drowsy(answering), keyring=keyring, limits=OFTEN)
    with stand_in.running(service, Binding(port=port)) as bound:
        yield Running(f"http://127.0.0.1:{bound}", answering, {})


# ── a browser to look with ────────────────────────────────────────────────────────────────────────────────────────


def chromium() -> str | None:
    """The machine's browser; None for the one that Playwright brings."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def browser() -> Iterator[Browser]:
    # No name but this machine's is found: what would be loaded from elsewhere fails, and shows up as an error.
    quiet = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(
                executable_path=chromium(), args=["--no-sandbox", *quiet, offline], timeout=1000 * LIMIT
            )
        except Error as error:
            advice = "apt-get install chromium, or playwright install chromium; or set RETICENT_NO_BROWSER=1"
            pytest.fail(f"no browser could be started: {advice}\n{error}")
        yield started
        started.close()


@dataclass
class Watched:
    """A page, and all that went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def listen(self) -> None:
        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.errors.append(message.text)

        def failed(error: Error) -> None:
            self.errors.append(str(error))

        def sent(request: Sent) -> None:
            self.sent.append(request)

        self.page.on("console", heard)
        self.page.on("pageerror", failed)
        self.page.on("request", sent)

    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def open(self, address: str, token: str | None = None) -> None:
        self.page.goto(address)
        if token is not None:
            self.page.get_by_label("Key", exact=True).fill(token)
            self.page.get_by_role("button", name="Show the numbers").click()
        expect(self.page.locator("#link")).to_have_text("live")

    def number(self, name: str) -> int:
        return int(self.page.locator(f"#{name}").inner_text().replace(",", ""))

    def picture(self, name: str, part: str | None = None) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        if part is None:
            self.page.screenshot(path=path, full_page=True)
        else:
            self.page.locator(part).screenshot(path=path)

    def check(self, host: str) -> None:
        """Nothing went wrong, nothing was blocked, and nothing went elsewhere."""
        assert self.errors == []
        assert self.violations() == []
        assert {one.url.split("/")[2] for one in self.sent} == {host.removeprefix("http://")}


Look = Callable[..., Watched]


def look(browser: Browser) -> Iterator[Look]:
    contexts = []

    def start(size: str = "desktop", scheme: Any = "light") -> Watched:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(1000 * LIMIT)
        contexts.append(context)
        context.add_init_script(QUICK)
        context.add_init_script(
            "window.violations = [];"
            "document.addEventListener('securitypolicyviolation', (one) => violations.push(one.violatedDirective));"
        )
        watched = Watched(context.new_page())
        watched.listen()
        return watched

    expect.set_options(timeout=1000 * LIMIT)
    yield start
    for context in contexts:
        context.close()


# What is wrong with a page for people who cannot see it, see it badly, or do not use a mouse.
FAULTS = r"""
() => {
  const faults = [];
  const all = (query) => [...document.querySelectorAll(query)].filter((one) => one.checkVisibility());
  const called = (one) => one.tagName.toLowerCase() + (one.id ? "#" + one.id : "");
  if (document.documentElement.lang !== "en") faults.push("no language");
  if (!document.title) faults.push("no title");
  for (const query of ["h1", "main", "body > header", "body > footer", "nav[aria-label]"])
    if (all(query).length !== 1) faults.push(`not one of ${query}`);
  let before = 0;
  for (const one of all("h1, h2, h3, h4")) {
    if (one.closest("dialog")) continue;
    const level = Number(one.tagName[1]);
    if (level > before + 1) faults.push(`a heading is skipped before ${called(one)}`);
    if (!one.textContent.trim()) faults.push(`${called(one)} is empty`);
    before = level;
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids.filter((one, place) => ids.indexOf(one) !== place))) faults.push(`${id} is there twice`);
  for (const attribute of ["aria-labelledby", "aria-describedby", "for"])
    for (const one of document.querySelectorAll(`[${attribute}]`))
      for (const id of one.getAttribute(attribute).split(" "))
        if (!ids.includes(id)) faults.push(`${attribute} of ${called(one)} names nothing`);
  for (const one of all("input, select, textarea"))
    if (!one.labels.length && !one.ariaLabel) faults.push(`${called(one)} has no label`);
  for (const one of all("button, a, summary"))
    if (!(one.textContent.trim() || one.ariaLabel)) faults.push(`${called(one)} has no name`);
  for (const one of all("img")) if (!one.hasAttribute("alt")) faults.push(`${called(one)} has no alt`);
  for (const one of all("section, [role=img], [role=region], [role=meter]"))
    if (!one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
      faults.push(`${called(one)} has no name`);
  for (const one of all("[role=meter]"))
    if (!one.getAttribute("aria-valuetext")) faults.push(`${called(one)} says no value`);
  for (const one of all("th")) if (!one.scope) faults.push("a column has no scope");
  for (const one of all("*")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
    if (scrolls && one.scrollWidth > one.clientWidth + 1 && one.tabIndex < 0)
      faults.push(`${called(one)} scrolls, but not by keyboard`);
  }
  for (const one of all("button, nav a, summary, input")) {
    const { width, height } = one.getBoundingClientRect();
    if (Math.min(width, height) < 24) faults.push(`${called(one)} is too small to hit`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");

  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(one).backgroundColor);
      if (a === 1) return [r, g, b];
      if (a > 0) faults.push(`${called(one)} is half transparent`);
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !one.checkVisibility() || one.closest("noscript, .hidden, .skip")) continue;
    texts += 1;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faults.push(`${called(one)} has a contrast of ${contrast.toFixed(2)}`);
  }
  if (texts < 20) faults.push("hardly any text was looked at");
  return faults;
}
"""
