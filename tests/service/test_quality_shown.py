"""Quality by phase, alarms and labelled rows: on the page, in metrics and in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import later
import numpy as np
import pages
import pytest
import stand_in
from pages import FAULTS, OFTEN, Look, Running, browser_test, serving
from playwright.sync_api import expect
from prometheus_client.parser import text_string_to_metric_families

from reticent import QualityAlarm
from reticent.cli.clinic_page import Page
from reticent.data.schema import Column, Schema
from reticent.predictors.phases import NO_END
from reticent.service.answering import AnsweringService
from reticent.service.client import Client
from reticent.service.home import Home
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.metrics import Metrics
from reticent.service.status import Alarm, PastPhase, PhaseQuality

browser = pytest.fixture(scope="module")(pages.browser)
look = pytest.fixture(pages.look)


@pytest.fixture
def unlocked() -> Iterator[Running]:
    """A service without keys."""
    with serving() as found:
        yield found


def judged(phase: int, right: float | None, recall: tuple[float | None, ...] = (0.95, 0.6)) -> PhaseQuality:
    low, high = (None, None) if right is None else (right - 0.04, right + 0.04)
    return PhaseQuality(phase, 310, right, low, high, recall)


ROWS: dict[str, Any] = {
    "truth": "rows", "classes": ("no", "yes"), "phase_rows": 1_552, "labelled_received": 18_330,
    "labelled_waiting": 1_204, "phase": 13, "teachers": 0, "rows_wanted": 0, "public_model": True,
    "phase_never_ends": True, "answers_in_phase": NO_END, "answers_left_in_phase": NO_END,
}  # fmt: skip
SHARES = (0.91, 0.9, 0.885, 0.89, 0.87, 0.8, 0.74, 0.71, 0.7, 0.78, 0.84, 0.87)
JUDGED = ROWS | {"quality": tuple(judged(phase, right) for phase, right in enumerate(SHARES, start=1))}
RAISED = JUDGED | {"alarm_accuracy": 0.8, "alarms": (Alarm(8, 40_000),), "alarm_since": 8}


DRAWN = """() => {
  const drawn = document.querySelector("#quality-chart canvas");
  if (!drawn) return 0;
  const copy = new OffscreenCanvas(drawn.width, drawn.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(drawn, 0, 0);
  const { data } = copy.getImageData(0, 0, drawn.width, drawn.height);
  return data.filter((one, place) => place % 4 === 3 && one > 0).length;
}"""  # pixels of the chart that are not empty; 0 if there is no chart
PICTURE = "document.querySelector('#quality-chart canvas').toDataURL()"


def wait_until_drawn(page: Any, pixels: int) -> None:
    page.wait_for_function(f"({DRAWN})() > {pixels}")


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────


@browser_test
def test_without_later_labels_the_page_is_as_it_was(unlocked: Running, look: Look) -> None:
    watched = look()
    watched.open(unlocked.address)
    expect(watched.page.locator("#gathered-words")).to_have_text("rows gathered")
    for hidden in ("#quality", "#rows-note", "#feedback-note"):
        expect(watched.page.locator(hidden)).to_be_hidden()
    expect(watched.page.locator("#next-note")).to_be_visible()
    assert watched.page.evaluate(DRAWN) == 0
    assert "labelled" not in watched.page.inner_text("main")
    watched.check(unlocked.address)


@browser_test
def test_quality_by_phase_is_plotted_and_told(unlocked: Running, look: Look) -> None:
    watched = look()
    unlocked.answering.changes = JUDGED
    watched.open(unlocked.address)
    page = watched.page
    expect(page.locator("#right")).to_have_text("87.0 %")
    expect(page.locator("#right-words")).to_have_text("of answers right in phase 12")
    expect(page.locator("#right-interval")).to_have_text(
        "83.0 % to 91.0 % with 95 % confidence; judged by 310 labelled rows, which train nothing."
    )
    expect(page.locator("#quality-words")).to_have_text(
        "Phases 1 to 12: the last 87.0 %, the best 91.0 % in phase 1, the worst 70.0 % in phase 9."
    )
    wait_until_drawn(page, 1_000)
    expect(page.locator("#recall li")).to_have_count(2)
    assert page.get_by_role("meter", name="Recall of yes").get_attribute("aria-valuetext") == "60.0 %"
    told = {"received": "18,330", "waiting": "1,204", "phase-rows": "1,552", "alarms-raised": "none"}
    for name, words in told.items():
        expect(page.locator(f"#{name}")).to_have_text(words)
    expect(page.locator("#gathered-line")).to_have_text("1,204 labelled rows wait")
    expect(page.locator("#wanted")).to_have_text("of 1,552 with which phase 14 begins")
    expect(page.locator("#next-state")).to_have_text("gathering")
    expect(page.locator("#rows-note")).to_contain_text("Questions are not kept.")
    expect(page.locator("#next-note")).to_be_hidden()
    expect(page.locator("#no-alerts")).to_be_visible()
    page.get_by_text("Quality as a table").click()
    expect(page.locator("#quality-rows tr")).to_have_count(12)
    assert page.locator("#quality-rows tr").first.locator("td").all_inner_texts() == [
        "12", "87.0 %", "83.0 % to 91.0 %", "310", "95.0 %", "60.0 %", "",
    ]  # fmt: skip
    # What comes next replaces what is shown, and what was never there is shown as that.
    unlocked.answering.changes = JUDGED | {"quality": (*JUDGED["quality"], judged(13, None, (None, 0.5)))}
    expect(page.locator("#right")).to_have_text("–")
    expect(page.locator("#right-interval")).to_contain_text("Too few labels to say")
    expect(page.locator("#recall li").first).to_contain_text("too few rows")
    expect(page.locator("#quality-rows tr")).to_have_count(13)
    unlocked.answering.changes = {}
    expect(page.locator("#quality")).to_be_hidden()
    watched.check(unlocked.address)


@browser_test
def test_an_alarm_that_stands_is_a_banner(unlocked: Running, look: Look) -> None:
    watched = look()
    unlocked.answering.changes = JUDGED
    watched.open(unlocked.address)
    page, banner = watched.page, watched.page.locator("#alert-list .banner")
    expect(banner).to_have_count(0)
    accuracy = "Quality is lost: fewer than 80 % of the answers are right. The last phases together say so"
    passed = "The last model that passed the test answers, and learns no more: fit again"
    told: list[tuple[dict[str, Any], str, str]] = [
        ({}, accuracy, "The next rows that judge choose which of the last models answers."),
        ({"teachers": 40}, accuracy, "Check whether inputs or labels have changed."),
        (
            {"alarm_accuracy": None, "alarm_recall": 0.5},
            "fewer than 50 % of the rows of some class get the right answer.",
            "say so, by more than chance explains.",
        ),
        ({"truth": None, "quality": ()}, "A private test on rows of the first phase found it.", passed),
        ({"truth": None, "quality": (), "teachers": 40}, "found it.", "No phase follows this one: fit again"),
    ]
    for changes, what, next_ in told:
        unlocked.answering.changes = RAISED | changes
        expect(banner).to_contain_text("Alarm since phase 8")
        expect(banner).to_contain_text(what)
        expect(banner).to_contain_text(next_)
        expect(page.locator("#alarms-raised")).to_have_text("1, last in phase 8")
    expect(page).to_have_title(re.compile("^⚠ alarm · clinic"))
    assert "Danger:" in page.locator("#alert-list").aria_snapshot()  # it is heard as well as seen
    unlocked.answering.changes = RAISED
    page.get_by_text("Quality as a table").click()
    expect(page.locator("#quality-rows tr").nth(4).locator("td").last).to_have_text("raised")
    expect(page.locator("#declared-key")).to_be_visible()
    unlocked.answering.changes = RAISED | {"alarm_since": None}  # it is over: what was raised is still told
    expect(banner).to_have_count(0)
    expect(page.locator("#alarms-raised")).to_have_text("1, last in phase 8")
    expect(page).to_have_title(re.compile("^clinic"))
    watched.check(unlocked.address)


@browser_test
def test_of_feedback_the_page_has_no_number(unlocked: Running, look: Look) -> None:
    watched = look()
    feedback = {"truth": "feedback", "classes": ("no", "yes"), "phase_rows": 900, "rows_wanted": 900, "teachers": 0}
    unlocked.answering.changes = feedback | {"quality": (judged(1, 0.8),), "phase": 2, "rows_gathered": 120}
    watched.open(unlocked.address)
    page = watched.page
    expect(page.locator("#gathered-line")).to_have_text("120 questions with a slot for a label")
    expect(page.locator("#feedback-note")).to_contain_text("Whether a label came is shown nowhere.")
    expect(page.locator("#received-line")).to_be_hidden()
    expect(page.locator("#waiting-line")).to_be_hidden()
    wait_until_drawn(page, 100)  # one phase has an interval to draw
    both = {"truth": "both", "rows_gathered": 420, "labelled_waiting": 300, "labelled_received": 5_000}
    unlocked.answering.changes = feedback | both
    expect(page.locator("#gathered")).to_have_text("120")
    expect(page.locator("#wanted")).to_have_text("of at most 900 before phase 2; 300 labelled rows join them")
    expect(page.locator("#received")).to_have_text("5,000")
    expect(page.locator("#right-interval")).to_contain_text("The first phase is judged when it ends")
    watched.check(unlocked.address)


@browser_test
def test_phases_of_later_labels_do_not_count_as_shrinking(unlocked: Running, look: Look) -> None:
    """The first phase learned from the table, the next ones from as many rows as they need."""
    watched = look()
    shrunk = {"phase": 2, "rows": 1_400, "past": (PastPhase(1, 62_000, 124_000),)}
    unlocked.answering.changes = shrunk
    watched.open(unlocked.address)
    expect(watched.page.locator("#alert-list")).to_contain_text("Phases shrink")
    unlocked.answering.changes = ROWS | shrunk | {"teachers": 100}
    expect(watched.page.locator("#alert-list")).not_to_contain_text("Phases shrink")


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(pages.SIZES))
def test_everyone_can_read_it(unlocked: Running, look: Look, size: str, scheme: str) -> None:
    watched = look(size, scheme)
    many = tuple(f"class number {one}" for one in range(12))
    several = tuple(judged(phase, right, (0.9, None) * 6) for phase, right in enumerate(SHARES, start=1))
    shown = RAISED if size != "narrow" else RAISED | {"classes": many, "quality": several}
    unlocked.answering.changes = shown
    watched.open(unlocked.address)
    watched.page.get_by_text("Quality as a table").click()
    expect(watched.page.locator("#quality-rows tr").first).to_be_visible()
    watched.page.wait_for_function("document.getElementById('key-open').hidden")
    assert watched.page.evaluate(FAULTS) == []
    watched.page.get_by_text("Quality as a table").click()
    wait_until_drawn(watched.page, 1_000)
    before = watched.page.evaluate(PICTURE)
    watched.picture(f"quality-{size}-{scheme}")
    if (size, scheme) == ("desktop", "light"):
        watched.picture("quality-card", "#quality")  # for the documentation
    watched.page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    watched.page.wait_for_function(f"(before) => {PICTURE} !== before", arg=before)  # it has other colours now
    wait_until_drawn(watched.page, 1_000)
    watched.check(unlocked.address)


@browser_test
def test_with_the_real_answering(tmp_path: Path, look: Look) -> None:
    """Rows that are taught over HTTP are counted at once, and judge the phase that ends with them."""
    answering = watched_service(tmp_path / "clinic")
    columns = tuple(Column(name, "number", range=(-1, 1)) for name in "ab")
    schema = Schema(columns=columns, target="sick", classes=later.CLASSES)
    with stand_in.running(Service("clinic", schema, answering, Batcher(answering), limits=OFTEN)) as port:
        address = f"http://127.0.0.1:{port}"
        watched = look()
        watched.open(address)
        page = watched.page
        expect(page.locator("#right-interval")).to_contain_text("The first phase is judged when it ends")
        expect(page.locator("#alarm-below")).to_have_text("90 % of answers")
        with Client(address, model="clinic") as client:
            for number in range(2):
                rows = later.rows_of(number, 300)
                labels = np.where(rows[:, 0] < 0, "yes", "no")
                client.teach({"a": rows[:, 0], "b": rows[:, 1]}, labels)
                expect(page.locator("#received")).to_have_text(str(300 * (number + 1)))
                client.ask({"a": rows[:1, 0], "b": rows[:1, 1]})
            expect(page.locator("#phase")).to_have_text("2")
            expect(page.locator("#waiting")).to_have_text("200")
            (quality,) = client.status()["quality"]
        expect(page.locator("#right")).to_have_text(f"{100 * min(1, quality['right']):.1f} %")
        expect(page.locator("#right-words")).to_have_text("of answers right in phase 1")
        wait_until_drawn(page, 100)
        watched.check(address)


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(pages.SIZES))
def test_the_page_of_the_demo(look: Look, size: str, scheme: str) -> None:
    numbers: dict[str, Any] = {
        "month": 8,
        "months": [{"month": one, "clinic": 0.95 - one / 90, "day_one": 0.95 - one / 15} for one in range(8)],
        "judged": [{"month": one, "right": 0.9, "low": 0.84, "high": 0.96} for one in range(7)],
        "clinic": {"url": "http://127.0.0.1:8341/", "answered": 10_601, "phase": 8, "labelled": 13_168},
        "day_one": {"url": "http://127.0.0.1:8342/", "answered": 10_601},
    }
    watched = look(size, scheme)
    page = watched.page
    with Page(lambda: numbers, "127.0.0.1") as served:
        page.goto(served.url)
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#clinic-right")).to_have_text("87 %")
        expect(page.locator("#static-right")).to_have_text("48 %")
        words = "Month 7: 87 % right where outcomes are learned from, 48 % where not."
        expect(page.locator("#words")).to_have_text(words)
        expect(page.locator("#labelled")).to_have_text("13,168")
        assert page.get_by_role("link", name="Dashboard of day-one").get_attribute("href") == "http://127.0.0.1:8342/"
        page.wait_for_function(f"({DRAWN.replace('#quality-chart', '#chart')})() > 1000")
        assert page.evaluate(FAULTS) == []
        watched.picture(f"demo-{size}-{scheme}")
        watched.check(served.url)
    expect(page.locator("#link")).to_have_text("the demo has ended")


# ── metrics and the log ───────────────────────────────────────────────────────────────────────────────────────────


def numbers(answering: Any) -> dict[str, float]:
    """The metrics that concern labels, without their common beginning."""
    text = Metrics(answering.status).text().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            name = one.name.removeprefix("reticent_")
            if re.match("quality|recall|alarm|labelled|phase_rows", name):
                found[" ".join([name, *one.labels.values()])] = one.value
    return found


NOTHING = {"labelled_received_total": 0.0, "labelled_waiting": 0.0, "alarm": 0.0, "alarms_total": 0.0}


def test_metrics_without_later_labels(unlocked: Running) -> None:
    assert numbers(unlocked.answering) == NOTHING


def test_metrics_of_the_last_phase_that_was_judged(unlocked: Running) -> None:
    unlocked.answering.changes = RAISED
    assert numbers(unlocked.answering) == pytest.approx(
        {
            "labelled_received_total": 18_330, "labelled_waiting": 1_204, "phase_rows": 1_552, "quality": 0.87,
            "quality_low": 0.83, "quality_high": 0.91, "quality_phase": 12, "recall no": 0.95, "recall yes": 0.6,
            "alarm": 1, "alarms_total": 1,
        }
    )  # fmt: skip
    too_few = {"quality": (judged(1, 0.8), judged(2, None, (None, 0.5))), "alarm_since": None}
    unlocked.answering.changes = RAISED | too_few
    found = numbers(unlocked.answering)
    assert {name for name in found if "quality" in name or "recall" in name} == {"quality_phase", "recall yes"}
    assert (found["alarm"], found["alarms_total"], found["quality_phase"]) == (0, 1, 2)


def watched_service(folder: Path) -> AnsweringService:
    """A service that raises an alarm below 90 %."""
    return later.answering_of(folder, later.chain(truth="rows", phase_rows=400, alarm=QualityAlarm(accuracy=0.9)))


def one_phase(answering: AnsweringService, number: int, *, wrong: bool) -> None:
    """Teach a phase: of what the model answers now, all is right or all is wrong."""
    rows = later.rows_of(number, 400)
    found = answering._predictor.model_.predict(rows)
    labels = 1 - found if wrong else found
    request = later.lesson(answering, f"{number}", 400)._replace(rows=rows, labels=labels)
    assert not isinstance(answering.add_labelled(request), Exception)
    answering.maintain()


def test_an_alarm_is_one_line_in_the_log_and_once_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answering = watched_service(tmp_path / "clinic")
    for number in range(3):
        assert caplog.records == []
        assert numbers(answering)["alarm"] == 0
        one_phase(answering, number, wrong=True)
    status = answering.status()
    (raised,) = status.alarms
    assert (status.alarm_since, raised.phase, status.alarm_accuracy) == (3, 3, 0.9)
    assert caplog.record_tuples == [
        ("reticent.service", logging.WARNING, "alarm: quality is lost since phase 3, after 0 answers")
    ]
    found = numbers(answering)
    assert (found["alarm"], found["alarms_total"], found["labelled_received_total"]) == (1, 1, 1_200)
    assert found["quality"] < 0.3
    # While it stands there is no second line, and none after a restart.
    one_phase(answering, 3, wrong=True)
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert (numbers(again)["alarm"], len(caplog.records)) == (1, 1)
    one_phase(again, 4, wrong=False)
    for number in range(5, 8):
        one_phase(again, number, wrong=False)
    assert again.status().alarm_since is None  # it has ended; that it was raised stays
    assert (numbers(again)["alarm"], numbers(again)["alarms_total"], len(caplog.records)) == (0, 1, 1)
    again.close()
