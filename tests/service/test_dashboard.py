"""The dashboard in a real browser: live, offline, under its policy, light and dark, by keyboard, on a phone.

Screenshots of every run are in tests/service/artefacts. Where there is no browser these tests fail; set
RETICENT_NO_BROWSER=1 to leave them out on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pages
import patient
import pytest
import shop
import stand_in
from pages import FAULTS, OFTEN, SIZES, FakeAnswering, Look, Running, browser_test, serving
from playwright.sync_api import Route, expect

from reticent.learners.logistic import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import NO_END
from reticent.service import dashboard
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http import answer_log
from reticent.service.http.access import Keyring
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.keys import KeyTable, make_key
from reticent.service.metrics import Metrics
from reticent.service.requests import Answered, Request
from reticent.service.status import PastPhase, Status

CLIENTS = (  # name, scopes, quota, answers a second, answers used, rows for the next phase
    ("ward 3", ["ask"], 50_000, 200, 21_000, 19_000),
    ("emergency room", ["ask"], 300_000, None, 143_400, 77_000),
    ("research portal", ["ask"], None, None, 180_000, 90_000),
    ("night shift", ["ask"], 20_000, 50, 18_300, 1_000),
    ("monitoring", ["observe"], None, None, 0, 0),
    ("operations", ["admin"], None, None, 12, 0),
)
forks = pytest.fixture(shop.learning_in_forks)
browser = pytest.fixture(scope="module")(pages.browser)
look = pytest.fixture(pages.look)


@pytest.fixture
def unlocked() -> Iterator[Running]:
    """A service without keys."""
    with serving() as found:
        yield found


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Running]:
    """A service with keys that has been at work for a while."""
    table, tokens, used, taken = KeyTable(tmp_path / "keys.sqlite"), {}, {}, {}
    for name, scopes, quota, rate, before, rows in CLIENTS:
        tokens[name], key = make_key(name, scopes, quota=quota, rate=rate)
        table.add(key)
        used[key.id] = before
        if rows:
            taken[key.id] = rows
    answering = FakeAnswering(left=600_000, spent=187_000, taken=taken)
    answering.changes = {"phase": 3, "answered": 1_387_000, "rows": 300_000, "teachers": 10_000}
    answering.changes |= {"rows_wanted": 300_000, "client_cap": 90_000}
    generator = np.random.default_rng(0)
    for client, answers in zip(generator.choice(list(used)[:3], 40), generator.integers(1, 65, 40), strict=True):
        answering.write(str(client), int(answers))
    with serving(Keyring(table, used), answering) as found:
        found.tokens.update(tokens)
        yield found
    table.close()


# ── without a browser ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_is_static_and_its_policy_is_strict(unlocked: Running) -> None:
    page = patient.get(unlocked.address)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(one.strip().split(" ", 1) for one in page.headers["content-security-policy"].split(";"))
    expected = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
    assert policy == expected | dict.fromkeys(("script-src", "style-src", "connect-src", "img-src"), "'self'")
    assert not re.search(r"<style|style=|<script>|\son\w+=|https?:", page.text)
    again = patient.get(unlocked.address, headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = patient.get(unlocked.address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == page.text
    for path, name, kind in dashboard.FILES:
        found = patient.get(unlocked.address + path)
        assert (found.status_code, found.headers["content-type"]) == (200, kind)
        assert found.content == (dashboard.HERE / name).read_bytes()
        assert found.headers["content-security-policy"] == dashboard.POLICY


def test_the_files_of_others_keep_their_licence() -> None:
    assert "Leon Sorokin" in (dashboard.HERE / "uplot" / "LICENSE").read_text()


def test_who_asked_is_told_to_administrators_and_to_themselves(clinic: Running) -> None:
    assert patient.get(f"{clinic.address}/dashboard/ledger").status_code == 401
    found = {
        name: patient.get(f"{clinic.address}/dashboard/ledger", headers=clinic.headers(name)).json()
        for name in clinic.tokens
    }
    everyone = [row["client"] for row in found["operations"]["rows"]]
    assert everyone == [row.client for row in clinic.answering.rows[-answer_log.SHOWN :]]
    assert [row["client"] for row in found["monitoring"]["rows"]] == [None] * answer_log.SHOWN
    own = found["ward 3"]["own"]
    assert own["name"] == "ward 3"
    assert (own["used"], own["quota"]) == (21_000, 50_000)
    assert [row["client"] for row in found["ward 3"]["rows"]] == [one if one == own["id"] else None for one in everyone]
    assert [found[name]["admin"] for name in ("operations", "ward 3")] == [True, False]


def test_only_administrators_start_a_verification_and_no_path_is_told(clinic: Running) -> None:
    def verify(name: str | None) -> httpx.Response:
        return patient.post(f"{clinic.address}/dashboard/verify", headers=clinic.headers(name))

    assert [verify(name).status_code for name in (None, "ward 3", "monitoring")] == [401, 403, 403]
    good = verify("operations").json()["verified"]
    assert (good["intact"], good["length"], good["head"]) == (True, 40, clinic.answering.rows[-1].hash.hex())
    seen = patient.get(f"{clinic.address}/dashboard/ledger", headers=clinic.headers("monitoring")).json()
    assert (seen["verified"], seen["may_verify"]) == (good, False)
    clinic.answering.damaged = True
    bad = verify("operations")
    assert bad.json()["verified"]["intact"] is False
    assert "secret" not in bad.text


def test_pages_of_other_sites_get_nothing(unlocked: Running) -> None:
    elsewhere = {"Origin": "http://elsewhere.example"}
    assert patient.post(f"{unlocked.address}/dashboard/verify", headers=elsewhere).status_code == 403
    assert patient.get(f"{unlocked.address}/dashboard/ledger", headers={"Host": "elsewhere.example"}).status_code == 403


# ── drift and caps, from the real answering service ───────────────────────────────────────────────────────────────


def ask(answering: AnsweringService, rows: Any, client: str = "ann") -> Status:
    """Where the answering service stands after these questions."""
    column = np.asarray(rows, dtype=np.float64).reshape(-1, 1)
    (answered,) = answering.answer([Request(client, column, None, b"")])
    assert isinstance(answered, Answered)
    answering.maintain()
    return answering.status()


def even(rows: int) -> Any:
    """Questions spread as the rows of the shop are, in an order that no place in it can tell."""
    return np.random.default_rng(1).permutation((np.arange(rows) + 0.5) / rows)


def private(**options: Any) -> dict[str, Any]:
    return {"learner": PrivateLogisticRegression(epsilon=1, delta=1e-5, row_norm=1), "rows": 2000, **options}


def drift_in_metrics(answering: AnsweringService) -> list[str]:
    lines = Metrics(answering.status).text().decode().splitlines()
    return [line.removeprefix("reticent_drift_") for line in lines if line.startswith("reticent_drift_")]


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_drift_is_told_when_the_private_test_found_it(tmp_path: Path, elsewhere: bool) -> None:
    answering = shop.new_answering(tmp_path / "clinic", elsewhere=elsewhere, **private())
    assert (answering.status().drift, drift_in_metrics(answering)) == ("not tested", ["tested 0.0", "found 0.0"])
    status = ask(answering, even(4000))
    assert (status.phase, status.drift, drift_in_metrics(answering)) == (2, "none found", ["tested 1.0", "found 0.0"])
    status = ask(answering, np.full(status.answers_in_phase - 1, 0.95))
    assert (status.phase, status.drift) == (2, "none found")  # nothing is told before the next phase begins
    status = ask(answering, [0.95])
    assert (status.phase, status.drift, drift_in_metrics(answering)) == (3, "found", ["tested 1.0", "found 1.0"])
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=elsewhere)
    assert again.status().drift == "found"
    status = ask(again, np.full(status.answers_in_phase, 0.95))
    assert (status.phase, status.drift) == (4, "none found")  # they are as they were
    again.close()


@pytest.mark.parametrize(
    "options",
    [
        {},  # votes: nothing private is computed about drift
        private(retrain="always"),
        private(retrain="never"),
        private(client_share=0.005),  # 18 rows are too few for a test
    ],
)
def test_drift_is_not_told_where_nothing_was_tested(tmp_path: Path, options: dict[str, Any]) -> None:
    answering = shop.new_answering(tmp_path / "clinic", **options)
    status = ask(answering, np.full(answering.status().answers_in_phase, 0.95))
    assert (status.phase, status.drift, drift_in_metrics(answering)) == (2, "not tested", ["tested 0.0", "found 0.0"])
    answering.close()


def added(answering: AnsweringService, *clients: str) -> list[tuple[int, int] | None]:
    return [answering.added(client) for client in clients]


def test_what_clients_added_depends_on_how_often_they_asked_and_on_nothing_else(tmp_path: Path) -> None:
    told = []
    for place, (here, there) in enumerate(((0.1, 0.9), (0.9, 0.1), (0.5, np.nan))):
        answering = shop.new_answering(tmp_path / str(place), client_share=0.05)
        seen = [added(answering, "ann", "bob", "eve")]
        for client, rows, value in (("ann", 20, here), ("bob", 35, there), ("bob", 15, here), ("ann", 15, there)):
            status = ask(answering, np.full(rows, value), client)
            seen.append(added(answering, "ann", "bob", "eve"))
            assert sum(one[0] for one in seen[-1] if one is not None) == status.rows_gathered
            assert status.client_cap == 36
        answering.close()
        told.append(seen)
    assert told[0] == told[1] == told[2]
    assert told[0][0] == [(0, 36)] * 3
    assert told[0][-1] == [(35, 36), (36, 36), (0, 36)]


def test_caps_with_groups(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((60, 1))
    learner = PrivateLogisticRegression(epsilon=1, delta=1e-5, row_norm=1)
    model = EverlastingPredictor(learner, epsilon=20, delta=1e-5, classes=("no", "yes"))
    model.fit(rows, np.where(rows[:, 0] < 0.5, "yes", "no"), groups=np.arange(60) // 2)
    answering = AnsweringService(Home.create(tmp_path / "clinic", model, shop.MODEL), elsewhere=False)
    assert ask(answering, [0.1, 0.2, 0.3], "ann").client_cap == 1  # one row stands for a person
    assert added(answering, "ann", "bob") == [(1, 1), (0, 1)]
    assert ask(answering, np.full(117, 0.5), "bob").phase == 2
    assert added(answering, "ann", "bob", "eve") == [(0, 0), (0, 0), (0, 1)]  # who was in a phase is in no other
    answering.close()


def test_no_caps_where_clients_have_none_or_the_closing_of_a_phase_is_drawn(tmp_path: Path) -> None:
    answering = shop.new_answering(tmp_path / "open", client_share=0.05)
    assert added(answering, "anonymous") == [None]  # each question is a client of its own
    answering.close()
    answering = shop.new_answering(tmp_path / "last", answers=100)
    assert (answering.status().client_cap, added(answering, "ann")) == (0, [None])  # no phase follows
    answering.close()
    answering = shop.new_answering(tmp_path / "drawn", labeller="two-coin")
    assert added(answering, "ann") == [None]
    answering.close()


def test_what_clients_added_is_told_to_administrators_and_to_themselves(clinic: Running) -> None:
    ids = list(clinic.answering.taken)
    found = {
        name: patient.get(f"{clinic.address}/dashboard/ledger", headers=clinic.headers(name)).json()["added"]
        for name in clinic.tokens
    }
    assert len(found["operations"]) == len(CLIENTS)
    assert {one: found["operations"][one]["rows"] for one in ids} == clinic.answering.taken
    assert found["ward 3"] == {ids[0]: {"rows": 19_000, "cap": 90_000}}
    assert set(found["monitoring"]).isdisjoint(ids)
    for path in ("status", "metrics"):  # the cap is everyone's, but not who is near it
        told = patient.get(f"{clinic.address}/{path}", headers=clinic.headers("ward 3")).text
        assert "client_cap" in told
        assert not any(client in told for client in ids)


# ── in a browser ──────────────────────────────────────────────────────────────────────────────────────────────────


@browser_test
def test_numbers_are_live_and_nothing_leaves_the_host(unlocked: Running, look: Look) -> None:
    watched = look()
    page = watched.page
    watched.open(unlocked.address)
    expect(page.locator("#answered")).to_have_text("0")
    expect(page.locator("#promise")).to_contain_text("at most e^1 = 2.72 times as likely")
    expect(page.locator("#delta")).to_have_text("10−6")
    unlocked.ask(5)
    expect(page.locator("#answered")).to_have_text("5")
    expect(page.locator("#left")).to_have_text("999,995")
    expect(page.locator("#gathered")).to_have_text("5")
    expect(page.locator("#length")).to_have_text("1")
    expect(page.locator("#records tr")).to_have_count(1)
    expect(page.locator("#rate")).to_have_text(re.compile(r"0\.\d"))
    expect(page.locator("#median")).to_contain_text("ms")
    unlocked.ask(2)
    expect(page.locator("#answered")).to_have_text("7")
    expect(page.locator("#records tr")).to_have_count(2)
    expect(page.locator("#no-alerts")).to_be_visible()
    assert page.title() == "clinic · 1M answers left"
    watched.check(unlocked.address)
    assert len(watched.sent) > 8


@browser_test
def test_the_policy_is_enforced(unlocked: Running, look: Look) -> None:
    """The control of the others: what the policy forbids is seen when it is tried."""
    watched = look()
    watched.open(unlocked.address)
    watched.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          const style = document.createElement("style");
          style.textContent = "body { display: none }";
          document.head.append(script, style);
          new Image().src = "http://elsewhere.example/seen.png";
          fetch("http://elsewhere.example/").catch(() => {});
        }"""
    )
    watched.page.wait_for_function("violations.length >= 4")
    kinds = {one.removesuffix("-elem") for one in watched.violations()}
    assert kinds == {"script-src", "style-src", "img-src", "connect-src"}
    assert watched.page.evaluate("window.ran") is None
    with pytest.raises(AssertionError):
        watched.check(unlocked.address)


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_everyone_can_read_it(clinic: Running, look: Look, size: str, scheme: str) -> None:
    if size == "narrow":  # with every kind of alert
        clinic.answering.changes |= {
            "answers_left_in_phase": 20_000,
            "answers_left": 0,
            "teachers": 0,
            "drift": "found",
        }
        clinic.answering.changes |= {"guarantee": replace(clinic.answering.status().guarantee, seeded=True)}
    watched = look(size, scheme)
    page = watched.page
    page.goto(clinic.address)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    assert page.evaluate(FAULTS) == []
    watched.picture(f"key-{size}-{scheme}")
    watched.open(clinic.address, clinic.tokens["operations"])
    while "s" not in page.inner_text("#median"):  # times are those of the last ten seconds
        clinic.ask(32, "emergency room")
    records = str(len(clinic.answering.rows))
    page.get_by_role("button", name="Verify all of it").click()
    expect(page.locator("#verified")).to_contain_text(f"{records} records, the chain is whole")
    expect(page.locator("#clients tr")).to_have_count(len(CLIENTS))
    expect(page.locator("#length")).to_have_text(records)
    expect(page.locator("#records td").first).to_have_text(records)
    expect(page.locator("#clients")).to_contain_text("77,000 of 90,000")
    page.locator("summary").last.click()
    expect(page.locator("#minute tr").first).to_be_visible()
    assert page.evaluate(FAULTS) == []
    page.locator("summary").last.click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(13, 18, 23)") == (scheme == "dark")
    watched.picture(f"{size}-{scheme}")


@browser_test
def test_the_check_of_readability_finds_faults(unlocked: Running, look: Look) -> None:
    """The control of the test above: each of these makes a good page bad."""
    watched = look()
    watched.open(unlocked.address)
    spoil = {
        "contrast": "document.getElementById('left').style.color = '#999'",
        "skipped": "document.querySelector('main h2').outerHTML = '<h4>x</h4>'",
        "no label": "document.querySelector('main').append(document.createElement('input'))",
        "no name": "document.querySelector('nav button').textContent = ''",
        "not one of main": "document.querySelector('main').outerHTML = document.querySelector('main').innerHTML",
        "sideways": "document.querySelector('footer').style.width = '3000px'",
        "twice": "document.querySelector('footer').id = 'left'",
        "too small": "document.querySelector('nav a').style.cssText = 'font-size: 6px; padding: 0'",
        "says no value": "document.querySelector('[role=meter]').removeAttribute('aria-valuetext')",
    }
    shown = "document.getElementById('key-open').hidden = false"  # in the same step: news may hide it at any time
    for fault, script in spoil.items():
        watched.page.reload()
        expect(watched.page.locator("#link")).to_have_text("live")
        assert watched.page.evaluate(f"() => {{ {shown}; return ({FAULTS})(); }}") == []
        found = watched.page.evaluate(f"() => {{ {shown}; {script}; return ({FAULTS})(); }}")
        assert any(fault in one for one in found), fault


@browser_test
def test_a_key_is_asked_for_and_stays_in_the_tab(clinic: Running, look: Look) -> None:
    watched = look()
    page = watched.page
    page.goto(clinic.address)
    field_ = page.get_by_label("Key", exact=True)
    expect(field_).to_be_focused()
    expect(page.locator("#promise")).to_contain_text("2.72 times")  # the promise needs no key
    for wrong, told in (("wrong", "This key was refused."), ("ключ", "This is not a key.")):
        field_.fill(wrong)
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_have_text(told)
        expect(field_).to_be_focused()
    field_.fill(clinic.tokens["ward 3"])
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#clients tr")).to_have_count(1)  # its own, no other's
    expect(page.locator("#clients")).to_contain_text("21,000 of 50,000")
    expect(page.locator("#clients")).to_contain_text("19,000 of 90,000")
    assert "has reached" not in page.inner_text("#alert-list")  # another has, and that is not told
    expect(page.get_by_role("button", name="Verify all of it")).to_be_hidden()
    assert page.locator("#records td:nth-child(3)").all_inner_texts().count("ward 3") in range(answer_log.SHOWN)
    assert "emergency room" not in page.inner_text("body")
    page.reload()
    expect(page.locator("#link")).to_have_text("live")
    assert page.evaluate("localStorage.length") == 0
    assert page.context.cookies() == []
    assert not any(clinic.tokens["ward 3"] in one.url for one in watched.sent)
    page.get_by_role("button", name="Key").click()
    page.get_by_role("button", name="Forget the key").click()
    expect(field_).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0
    assert watched.violations() == []


@browser_test
def test_by_keyboard_alone(clinic: Running, look: Look) -> None:
    watched = look()
    page = watched.page
    page.goto(clinic.address)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#key-dialog")).to_be_hidden()
    page.evaluate("document.activeElement.blur()")
    page.get_by_role("button", name="Use a key").focus()
    page.keyboard.press("Enter")
    page.keyboard.type(clinic.tokens["operations"])
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#verify")).to_be_visible()
    expect(page.locator("#clients-box")).to_be_visible()
    page.reload()
    expect(page.locator("#clients-box")).to_be_visible()
    expect(page.locator("#verify")).to_be_visible()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "[document.activeElement.id || document.activeElement.textContent.trim(),"
            " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
        )
        if name in reached:
            break
        reached.append(name)
        assert outline >= 2, name
    expected = ["Skip to the numbers", "Guarantee", "API", "key-open", "Against what, and what is not protected"]
    assert reached[:5] == expected
    assert {"The last minute as a table", "verify", "records-box", "clients-box"} <= set(reached)
    page.locator("#verify").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#verified")).to_contain_text("40 records, the chain is whole")
    page.locator(".words summary").focus()
    page.keyboard.press("Space")
    expect(page.locator("#promise-more")).to_contain_text("Facts about the population are not hidden")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@browser_test
def test_alerts(unlocked: Running, look: Look) -> None:
    watched = look()
    watched.open(unlocked.address)
    alerts = watched.page.locator("#alert-list")
    expect(watched.page.locator("#no-alerts")).to_be_visible()
    assert watched.page.locator("#alerts").get_attribute("aria-live") == "polite"
    window = {"rows_wanted": 1_000_000, "rows_gathered": 900_000}
    soon = "Phase 1 is about to end: less than"
    told: list[tuple[dict[str, Any], str]] = [
        (window | {"answers_left_in_phase": 40_000}, f"{soon} 5 % of its answers are left; phase 2 is gathering."),
        (
            window | {"answers_left_in_phase": 90_000, "learning": True},
            f"{soon} 10 % of its answers are left; phase 2 is b",
        ),
        (window | {"answers_left_in_phase": 999_500, "rows_gathered": 200}, "clients have reached the cap"),
        ({"answers_left": 99, "answered": 9_000}, "Fewer than 100 answers are left in all."),
        ({"answers_left": 0, "answered": 9_000}, "No answers are left. Every question is refused."),
        (
            {"phase": 4, "drift": "found", "teachers": 0},
            "The questions of phase 3 had drifted: they were no longer like those before. Phase 4 learned a new model",
        ),
        (
            {"phase": 3, "rows": 8_800, "past": (PastPhase(1, 62_000, 124_000), PastPhase(2, 62_000, 8_800))},
            "Phases shrink: phase 2 learned from 62,000 rows and gave 8,800 answers; phase 3 learned from 8,800.",
        ),
        ({"teachers": 0, "one_answer": "no"}, "Everybody gets one answer: the model of phase 1 gives “no” to nearly"),
    ]
    for changes, words in told:
        unlocked.answering.changes = changes
        expect(alerts).to_contain_text(words)
        assert "secret" not in watched.page.inner_text("body")
    assert "listitem: Warning:" in alerts.aria_snapshot().replace('"', "")  # how bad it is can be heard as well
    unlocked.answering.changes = {
        "phase": 4,
        "drift": "found",
        "teachers": 0,
        "past": (PastPhase(3, 10, 2_000), PastPhase(4, 9, 1)),
    }
    expect(watched.page.locator("#drift")).to_have_text("found in phase 3")
    expect(watched.page.locator("#teachers")).to_have_text("one model")
    expect(watched.page.locator("#past")).to_have_text("2,000 → 1")
    unlocked.answering.changes = {"phase": 4, "drift": "none found", "teachers": 0}
    expect(alerts).to_be_empty()
    expect(watched.page.locator("#drift")).to_have_text("none found in phase 3")
    unlocked.answering.changes = {}
    expect(watched.page.locator("#drift")).to_have_text("not tested")
    expect(alerts).to_be_empty()
    unlocked.ask()
    expect(watched.page.locator("#length")).to_have_text("1")
    unlocked.answering.rows.clear()
    expect(alerts).to_contain_text("The answer log is shorter than it was.")


@browser_test
def test_one_private_model_has_no_end_and_no_next_phase(unlocked: Running, look: Look) -> None:
    watched = look()
    watched.open(unlocked.address)
    page = watched.page
    expect(page.locator("#next-note")).to_be_visible()
    expect(page.locator("#left-meter")).to_be_visible()
    guarantee = replace(unlocked.answering.status().guarantee, protects="rows")
    endless = {"answers_in_phase": NO_END, "answers_left_in_phase": NO_END, "phase_never_ends": True}
    nothing = {"rows_wanted": 0, "rows_gathered": 0, "client_cap": 0, "teachers": 0}
    expect(page.locator("#public-note")).to_be_hidden()
    unlocked.answering.changes = {"guarantee": guarantee, "public_model": True, **endless, **nothing}
    expect(page.locator("#left")).to_have_text("No end")
    expect(page.locator("#left-words")).to_have_text("of answers")
    expect(page.locator("#no-next-note")).to_contain_text("never learns from questions")
    expect(page.locator("#public-note")).to_contain_text("reticent export")
    for hidden in ("#left-meter", "#in-phase-line", "#gathered-line", "#gathered-meter", "#next-note"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#protects")).to_have_text("rows")
    expect(page.locator("#no-alerts")).to_be_visible()
    assert page.title().endswith("no end of answers")
    assert "9,007" not in page.inner_text("body")
    unlocked.answering.changes = {}
    expect(page.locator("#next-note")).to_be_visible()
    expect(page.locator("#left-words")).to_have_text("answers left")


@browser_test
def test_a_service_that_halts_goes_and_the_page_says_so(look: Look) -> None:
    """The server ends when it halts: the page has heard why, or hears no more."""
    watched = look()
    with serving() as halting:
        watched.open(halting.address)
        halting.answering.changes = {"halted": "OSError: /secret/place"}
        expect(watched.page.locator("#link")).to_have_text("reconnecting")
        expect(watched.page.locator("#alert-list")).to_contain_text("The connection is lost.")
        assert "secret" not in watched.page.inner_text("body")


@browser_test
def test_clients_near_their_quota(clinic: Running, look: Look) -> None:
    watched = look()
    watched.open(clinic.address, clinic.tokens["operations"])
    alerts = watched.page.locator("#alert-list")
    expect(alerts).to_contain_text("night shift has nearly used up the quota.")
    clinic.ask(50, "night shift")
    expect(watched.page.locator("#clients")).to_contain_text("18,350 of 20,000")


@browser_test
def test_clients_near_the_cap_on_rows(clinic: Running, look: Look) -> None:
    watched = look()
    watched.open(clinic.address, clinic.tokens["operations"])
    alerts, ids = watched.page.locator("#alert-list"), list(clinic.answering.taken)
    most = "the most rows that one client may add to phase 4."
    expect(alerts).to_contain_text(f"research portal has reached {most} Further questions are answered, but not")
    assert "nearly reached" not in alerts.inner_text()
    clinic.answering.taken[ids[1]] = 81_000
    clinic.ask(1, "emergency room")
    expect(alerts).to_contain_text(f"emergency room has nearly reached {most}")
    clinic.answering.taken[ids[0]] = 90_000
    clinic.ask(1, "ward 3")
    expect(alerts).to_contain_text("ward 3 and research portal have reached")
    guarantee = replace(clinic.answering.status().guarantee, unit="group")
    for calm in ({"guarantee": guarantee}, {"learning": True}):  # so it is meant to be; there is nothing to do any more
        before, clinic.answering.changes = clinic.answering.changes, clinic.answering.changes | calm
        expect(alerts).not_to_contain_text("reached")
        clinic.answering.changes = before
        expect(alerts).to_contain_text("have reached")


@browser_test
def test_a_broken_chain_is_seen_by_the_page_itself(clinic: Running, look: Look) -> None:
    watched = look()
    watched.open(clinic.address, clinic.tokens["operations"])
    expect(watched.page.locator("#records tr")).to_have_count(answer_log.SHOWN)
    assert "broken" not in watched.page.inner_text("#alert-list")
    clinic.answering.rows[-3] = clinic.answering.rows[-3]._replace(
        answers=1_000_000
    )  # its hash and links stay as they were
    clinic.ask(1, "ward 3")
    expect(watched.page.locator("#alert-list")).to_contain_text("The answer log is broken at record 38")


@browser_test
def test_a_failed_verification_is_an_alert(clinic: Running, look: Look) -> None:
    watched = look()
    watched.open(clinic.address, clinic.tokens["operations"])
    clinic.answering.damaged = True
    watched.page.get_by_role("button", name="Verify all of it").click()
    expect(watched.page.locator("#verified")).to_contain_text("Verification failed")
    expect(watched.page.locator("#alert-list")).to_contain_text("The answer log failed its verification.")


@browser_test
def test_it_comes_back_when_the_service_does(look: Look) -> None:
    watched = look()
    answering = FakeAnswering()
    with serving(answering=answering) as first:
        watched.open(first.address)
        port = int(first.address.rpartition(":")[2])
    expect(watched.page.locator("#link")).to_have_text("reconnecting")
    expect(watched.page.locator("#alert-list")).to_contain_text("The numbers are those that came last.")
    with serving(answering=FakeAnswering(spent=77), port=port) as second:
        expect(watched.page.locator("#link")).to_have_text("live")
        expect(watched.page.locator("#answered")).to_have_text("77")
        expect(watched.page.locator("#no-alerts")).to_be_visible()
        assert second.address == first.address


@browser_test
def test_what_comes_is_shown_as_text(unlocked: Running, look: Look) -> None:
    """Names that were HTML, and fields that a later service may or may not send."""
    status = asdict(unlocked.answering.status())
    hostile = "<img src=x onerror='window.ran = true'>"
    status |= {"model": hostile, "drift": "found", "clients": [{"id": "a", "name": hostile, "quota": 10, "used": 10}]}
    del status["learning"], status["last_time"], status["client_cap"]
    watched = look()

    def send(route: Route) -> None:
        route.fulfill(body=f"event: status\ndata: {json.dumps(status)}\n\n", content_type="text/event-stream")

    watched.page.route("**/events", send)
    watched.page.goto(unlocked.address)
    expect(watched.page.locator("#model")).to_have_text(hostile)
    expect(watched.page.locator("#clients")).to_contain_text(hostile)
    expect(watched.page.locator("#alert-list")).to_contain_text("The questions of phase 0 had drifted")
    expect(watched.page.locator("#alert-list")).to_contain_text("used up the quota")
    assert watched.page.evaluate("window.ran") is None
    assert watched.errors == []


@browser_test
def test_with_the_real_answering(tmp_path: Path, look: Look) -> None:
    answering = shop.new_answering(tmp_path / "clinic")
    rules = stand_in.Rules((stand_in.Column("age"),), tuple(answering.classes))
    with stand_in.running(Service("clinic", rules, answering, Batcher(answering), limits=OFTEN)) as port:
        watched = look()
        watched.open(f"http://127.0.0.1:{port}")
        left = watched.number("left")
        inputs = [{"name": "age", "shape": [3, 1], "datatype": "FP64", "data": [0.1, 0.5, 0.9]}]
        patient.post(f"http://127.0.0.1:{port}/v2/models/clinic/infer", json={"inputs": inputs}).raise_for_status()
        expect(watched.page.locator("#answered")).to_have_text("3")
        assert watched.number("left") == left - 3
        expect(watched.page.locator("#records tr")).to_have_count(1)
        watched.page.get_by_role("button", name="Verify all of it").click()
        expect(watched.page.locator("#verified")).to_contain_text("1 record, the chain is whole")
        expect(watched.page.locator("#no-alerts")).to_be_visible()  # the page found the hashes as the store made them
        watched.check(f"http://127.0.0.1:{port}")
