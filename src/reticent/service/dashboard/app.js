// The dashboard. It reads the status by server-sent events and writes it into the page: text only, never HTML.

import { at, whole, figures, short, clock, count, rate, milliseconds, share, say, made, level, meter, row, bar, style } from "./parts.js";
import { forgetQuality, qualityAlerts, redrawQuality, showQuality } from "./quality.js";

const KEPT = "reticent.key"; // in sessionStorage
const SPANS = [60, 120, 300]; // seconds that the charts show, the more the longer the page is open
const SOON = 0.1; // share that is left when something is about to end
const NEAR = 0.9; // share of a quota or a cap that is near it
const FEW = 0.5; // share of the questions that become rows, below which there are few
const SILENCE = 10_000; // milliseconds without an event after which the connection counts as lost
const LEDGER_EVERY = 2_000; // milliseconds between two looks at the answer log, at least

// ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────────

let key = sessionStorage.getItem(KEPT);
let run = 0; // the present connection: what belongs to an earlier one is dropped
let last = null; // the last status
let ledger = null; // the last look at the answer log
let trouble = null; // why there is no status
let shrunk = false; // whether the answer log became shorter while this page looked
let promised = false; // whether the words of the guarantee are there
let looked = 0; // when the answer log was last looked at
let looking = false;

const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

async function problem(response) {
  try {
    return (await response.json()).error ?? response.statusText;
  } catch {
    return response.statusText;
  }
}

/** Listen for as long as the page is open. EventSource could not send a key, so this reads the stream itself. */
async function listen() {
  const mine = ++run;
  let wait = 1000;
  link("waiting", "connecting");
  while (mine === run) {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE);
    try {
      const response = await fetch("events", { headers: headers(), signal: stop.signal, cache: "no-store" });
      if (mine !== run) return stop.abort();
      if (response.status === 401 || response.status === 403) {
        const why = await problem(response);
        link("lost", "no key");
        if (response.status === 403 && key == null) trouble = why;
        else ask(key == null ? "" : "This key was refused.");
        return show();
      }
      if (!response.ok) throw new Error(await problem(response));
      wait = 1000;
      trouble = null;
      for await (const status of events(response.body)) {
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE);
        if (mine !== run) return stop.abort();
        link("live", "live");
        take(status);
      }
    } catch {
      // It is tried again, whatever the reason.
    } finally {
      clearTimeout(silence);
    }
    if (mine !== run) return;
    link("lost", "reconnecting");
    remember(null);
    show();
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(2 * wait, 15_000);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

function link(state, words) {
  at("link").dataset.state = state;
  say("link", words);
}

// ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────

function ask(error = "") {
  const dialog = at("key-dialog");
  say("key-title", error || key == null ? "A key is needed" : "Use another key");
  say("key-error", error);
  at("key-forget").hidden = key == null;
  at("key").value = "";
  if (!dialog.open) dialog.showModal();
  at("key").focus();
}

function use(next) {
  key = next;
  if (key) sessionStorage.setItem(KEPT, key);
  else sessionStorage.removeItem(KEPT);
  at("key-dialog").close();
  last = ledger = trouble = null;
  shrunk = false;
  forget();
  forgetQuality();
  listen();
}

at("key-open").addEventListener("click", () => ask());
at("key-cancel").addEventListener("click", () => at("key-dialog").close());
at("key-forget").addEventListener("click", () => use(null));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("key").value.trim();
  // A header takes no other characters; such a key cannot be one of this service.
  if (/^[\x21-\x7e]+$/.test(given)) use(given);
  else ask("This is not a key.");
});

// ── what came ───────────────────────────────────────────────────────────────────────────────────────────────────────

function take(status) {
  if (last && last.model === status.model && status.ledger_length < last.ledger_length) shrunk = true;
  const before = last;
  last = status;
  remember(status);
  show();
  if (ledger?.seen !== status.ledger_length) look();
  if (!promised || before?.guarantee?.epsilon !== status.guarantee?.epsilon) promise();
}

async function promise() {
  promised = true;
  try {
    const response = await fetch("guarantee", { headers: { ...headers(), Accept: "application/json" } });
    if (!response.ok) throw new Error();
    const guarantee = await response.json();
    showPromise(guarantee);
    const paragraphs = guarantee.words.split("\n\n").map((one) => {
      const end = one.indexOf(". ") + 1;
      const paragraph = [made("h3", one.slice(0, end).replace(/\.$/, "")), made("p", one.slice(end + 1))];
      return { open: !/^(Against|What is) /.test(one), paragraph };
    });
    at("promise").replaceChildren(...paragraphs.filter((one) => one.open).flatMap((one) => one.paragraph));
    at("promise-more").replaceChildren(...paragraphs.filter((one) => !one.open).flatMap((one) => one.paragraph));
  } catch {
    promised = false;
  }
}

/** Fetch the end of the answer log, but not too often; what came meanwhile is seen at the next event. */
async function look() {
  if (looking) return;
  looking = true;
  await new Promise((done) => setTimeout(done, Math.max(0, looked + LEDGER_EVERY - Date.now())));
  const mine = run;
  const seen = last?.ledger_length;
  try {
    const response = await fetch("dashboard/ledger", { headers: headers(), cache: "no-store" });
    if (response.ok && mine === run) {
      const found = await response.json();
      ledger = { ...found, seen, broken: await broken(found.rows), refused: ledger?.refused };
      show();
    }
  } catch {
    // The next event tries again.
  } finally {
    looked = Date.now();
    looking = false;
  }
}

/** The first record shown whose hash is wrong, or that does not hold the hash of the one before; null if there is none. */
async function broken(rows) {
  for (const [place, row] of rows.entries()) {
    const before = rows[place - 1];
    if (before && (row.previous !== before.hash || row.number !== before.number + 1)) return row.number;
    // Without the name of its client a record cannot be hashed; nor can it where a page may not use cryptography.
    if (row.client == null || !globalThis.crypto?.subtle) continue;
    const { answers, client, cost, number, phase, previous, time } = row;
    const text = JSON.stringify({ answers, client, cost, number, phase, previous, time });
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
    if ([...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") !== row.hash) return number;
  }
  return null;
}

at("verify").addEventListener("click", async () => {
  const button = at("verify");
  button.disabled = true;
  say("verify", "Verifying…");
  try {
    const response = await fetch("dashboard/verify", { method: "POST", headers: headers() });
    if (response.ok) ledger = { ...ledger, ...(await response.json()), refused: null };
    else ledger = { ...ledger, refused: await problem(response) };
  } catch {
    ledger = { ...ledger, refused: "The service could not be reached." };
  } finally {
    button.disabled = false;
    say("verify", "Verify all of it");
    show();
  }
});

// ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────────

function show() {
  if (last) {
    showPromise(last.guarantee ?? {});
    showPhase(last);
    showNext(last);
    showQuality(last);
    showLoad(last.load ?? {});
    showLedger(last);
    showClients(last.clients, ledger?.own);
    say("model", last.model ?? "reticent");
    const left = last.phase_never_ends ? "no end of answers" : `${short.format(last.answers_left_in_phase)} answers left`;
    const title = `${last.alarm_since == null ? "" : "⚠ alarm · "}${last.model} · ${left}`;
    if (document.title !== title) document.title = title;
  }
  at("metrics").hidden = !ledger?.open; // a link carries no key
  at("key-open").hidden = Boolean(ledger?.open);
  say("key-open", key ? "Key" : "Use a key");
  showAlerts();
}

/** A number to three figures, as people write it. It is rounded up: what is promised is never made to look better. */
function scientific(element, number) {
  const text = String(number ?? "–");
  if (element.dataset.value === text) return;
  element.dataset.value = text;
  if (!(number > 0)) return element.replaceChildren(text);
  let power = Math.floor(Math.log10(number));
  let digits = Number((number / 10 ** power).toPrecision(15));
  digits = Math.ceil(Number((100 * digits).toPrecision(12))) / 100;
  if (digits >= 10) [digits, power] = [digits / 10, power + 1];
  if (power >= -2 && power < 6) return element.replaceChildren(String(Number((digits * 10 ** power).toPrecision(3))));
  const exponent = made("sup", String(power).replace("-", "−"));
  element.replaceChildren(digits === 1 ? "10" : `${digits} · 10`, exponent);
}

function showPromise(guarantee) {
  scientific(at("epsilon"), guarantee.epsilon);
  scientific(at("delta"), guarantee.delta);
  say("unit", guarantee.unit === "group" ? "group (all rows of one person)" : "row");
  say("protects", guarantee.protects ?? "–");
}

function showPhase(status) {
  const { answers_left_in_phase: left, answers_in_phase: all } = status;
  say("phase", count(status.phase));
  say("left", status.phase_never_ends ? "No end" : count(left));
  say("left-words", status.phase_never_ends ? "of answers" : "answers left");
  at("left-meter").hidden = at("in-phase-line").hidden = Boolean(status.phase_never_ends);
  say("in-phase", count(all));
  say("answered", count(status.answered));
  say("left-in-all", status.answers_left == null ? "endless" : count(status.answers_left));
  say("rows", count(status.rows));
  say("teachers", status.teachers ? `${count(status.teachers)} teachers` : "one model");
  const tested = status.drift != null && status.drift !== "not tested";
  say("drift", tested ? `${status.drift} in phase ${count(status.phase - 1)}` : "not tested");
  say("past", (status.past ?? []).slice(-3).map((one) => count(one.answers)).join(" → ") || "none");
  meter(at("left-meter"), left, all, `${count(left)} of ${count(all)} answers left`);
  level(at("left-meter"), share(left, all) <= SOON ? "warn" : "good");
  const pace = status.load?.answers_per_second;
  say("pace", pace > 0 ? `, ${lasting(left / pace)} at this pace` : "");
}

function lasting(seconds) {
  for (const [unit, size] of [["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
    if (seconds >= 1.5 * size) return `about ${whole.format(Math.round(seconds / size))} ${unit}s`;
  }
  return "less than two minutes";
}

/** The questions of this phase that could have become rows: the first ones, as many as there are rows wanted. */
const offered = (status) => Math.min(status.answers_in_phase - status.answers_left_in_phase, status.rows_wanted);

function nextState(status) {
  if (status.truth === "rows") {
    if (status.labelled_waiting < status.phase_rows) return ["info", "gathering"];
    return status.learning ? ["good", "being prepared"] : ["good", "rows complete"];
  }
  if (!status.rows_wanted) return ["info", "none follows"];
  if (status.learning) return ["good", "being prepared"];
  return offered(status) >= status.rows_wanted ? ["good", "rows complete"] : ["info", "gathering"];
}

function showNext(status) {
  const [name, words] = nextState(status);
  level(at("next-state"), name);
  say("next-state", words);
  const { has, wanted, what, line } = nextRows(status);
  say("gathered", count(has));
  say("gathered-words", what);
  say("wanted", line);
  meter(at("gathered-meter"), has, wanted || 1, `${count(has)} of ${count(wanted)} rows`);
  // One private model learns from no question, and its guarantee is for the rows alone.
  const learns = status.guarantee?.protects !== "rows";
  at("gathered-line").hidden = at("gathered-meter").hidden = !learns;
  at("next-note").hidden = !learns || status.truth != null;
  at("no-next-note").hidden = learns;
  at("rows-note").hidden = status.truth !== "rows";
  at("feedback-note").hidden = status.truth !== "feedback" && status.truth !== "both";
  at("public-note").hidden = !status.public_model;
}

/** What the next phase learns from: questions, or labelled rows, as it was fitted. */
function nextRows(status) {
  const { rows_gathered: gathered, rows_wanted: wanted, labelled_waiting: labelled } = status;
  const next = `phase ${count(status.phase + 1)}`;
  if (status.truth === "rows") {
    return { has: labelled, wanted: status.phase_rows, what: "labelled rows wait", line: `of ${count(status.phase_rows)} with which ${next} begins` };
  }
  const each = status.client_cap == null || ledger?.open ? "" : `; at most ${count(status.client_cap)} from one client`;
  if (status.truth != null) {
    const beside = status.truth === "both" ? `; ${count(labelled)} labelled rows join them` : "";
    const has = Math.max(0, gathered - (status.truth === "both" ? labelled : 0));
    return { has, wanted, what: "questions with a slot for a label", line: `of at most ${count(wanted)} before ${next}${beside}${each}` };
  }
  return { has: gathered, wanted, what: "rows gathered", line: wanted ? `of at most ${count(wanted)} that ${next} learns from${each}` : "No phase follows this one." };
}

function showLoad(load) {
  say("rate", rate(load.answers_per_second));
  const { answers_per_second: answers, requests_per_second: requests } = load;
  say("requests", requests > 0 ? `in ${rate(requests)} request${rate(requests) === "1" ? "" : "s"} per second` : "");
  say("median", milliseconds(load.median_seconds));
  say("p99", milliseconds(load.p99_seconds));
  say("rate-words", `Now ${rate(answers)}; the most in five minutes was ${rate(most(history.rate))}.`);
  say("latency-words", `Median ${milliseconds(load.median_seconds)}, 99 percent within ${milliseconds(load.p99_seconds)}.`);
}

function showLedger(status) {
  say("length", count(status.ledger_length));
  say("head", status.ledger_head ? status.ledger_head.slice(0, 16) : "–");
  at("head").title = status.ledger_head ?? "";
  at("verify").hidden = !ledger?.may_verify;
  const found = ledger?.verified;
  const line = at("verified");
  if (ledger?.refused) {
    level(line, "danger");
    say("verified", ledger.refused);
  } else if (found) {
    level(line, found.intact ? "good" : "danger");
    const when = clock.format(new Date(1000 * found.time));
    say("verified", found.intact
      ? `✓ Verified at ${when}: ${count(found.length)} ${found.length === 1 ? "record" : "records"}, the chain is whole, every count adds up.`
      : `✗ Verification failed at ${when}.`);
  } else say("verified", "");
  const rows = ledger?.rows ?? [];
  at("records-box").hidden = rows.length === 0;
  const shown = `${rows.at(-1)?.hash} ${names()}`;
  if (at("records").dataset.shown === shown) return;
  at("records").dataset.shown = shown;
  at("records").replaceChildren(...rows.toReversed().map((one) => {
    const time = made("time", clock.format(new Date(one.time)), { datetime: new Date(one.time).toISOString() });
    const when = made("td");
    when.append(time);
    const hash = made("td");
    hash.append(made("code", one.hash.slice(0, 8), { title: one.hash }));
    return row(count(one.number), when, name(one.client), made("td", count(one.phase), { class: "wide" }), count(one.answers), hash);
  }));
}

const names = () => (last?.clients ?? []).map((one) => `${one.id}=${one.name}`).join(" ");
const name = (id) =>
  id == null ? "another" : (last?.clients?.find((one) => one.id === id)?.name ?? (ledger?.own?.id === id ? ledger.own.name : id));

/** How many rows of the next phase come from a client. */
function addedBy(client, added) {
  const asks = client.scopes == null || client.scopes.includes("ask") || client.scopes.includes("admin");
  if (added == null || !asks) return made("td", "–");
  if (!added.cap) return made("td", "none: it was in an earlier phase");
  const cell = made("td", `${count(added.rows)} of ${count(added.cap)}`);
  if (!client.revoked) {
    const near = last.guarantee?.unit !== "group" && capped(added) >= NEAR;
    const words = `${count(added.rows)} of at most ${count(added.cap)} rows`;
    cell.append(bar(`Rows for the next phase from ${client.name}`, added.rows, added.cap, near, words));
  }
  return cell;
}

function showClients(clients, own) {
  const shown = clients ?? (own ? [own] : []);
  say("clients-note", clients == null
    ? "Your own key. With an administrator's key, all clients are shown here."
    : ledger?.open
      ? "There are no keys: whoever reaches this service from this machine may ask and administer."
      : `${count(shown.length)} ${shown.length === 1 ? "key" : "keys"}; only administrators see this list.`);
  at("clients-box").hidden = shown.length === 0;
  const added = ledger?.added ?? {};
  const text = JSON.stringify([shown, added]);
  if (at("clients").dataset.shown === text) return;
  at("clients").dataset.shown = text;
  const sorted = shown.toSorted((a, b) => Number(a.revoked ?? 0) - Number(b.revoked ?? 0) || used(b) - used(a));
  at("clients").replaceChildren(...sorted.map((one) => {
    const use = made("td", one.quota == null ? count(one.used) : `${count(one.used)} of ${count(one.quota)}`);
    if (one.quota != null && !one.revoked) {
      const words = `${count(one.used)} of ${count(one.quota)} answers used`;
      use.append(bar(`Quota of ${one.name}`, one.used, one.quota, used(one) >= NEAR, words));
    }
    const label = made("td", one.name, { class: "name" });
    const about = one.revoked ? ["revoked"] : [one.scopes?.join(", "), one.rate != null && `≤ ${rate(one.rate)} per second`];
    label.append(made("small", about.filter(Boolean).join("; ")));
    const line = row(label, use, addedBy(one, added[one.id]));
    if (one.revoked) line.dataset.off = "";
    return line;
  }));
}

const capped = (added) => (added?.cap > 0 ? added.rows / added.cap : 0);
const used = (client) => (client.quota == null ? 0 : client.quota === 0 ? 1 : client.used / client.quota);

// ── alerts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function alerts() {
  const found = [];
  const add = (name, words, headline) => found.push([name, words, headline]);
  if (trouble) add("danger", trouble);
  if (at("link").dataset.state === "lost" && last) add("warn", "The connection is lost. The numbers are those that came last.");
  if (!last) return found;
  const { phase, answers_in_phase: all, answers_left_in_phase: left, answers_left: ever } = last;
  if (last.guarantee?.seeded) add("danger", "Nobody is protected: the noise of this service is seeded. Use it for tests only.");
  if (last.halted) {
    add("danger", "Answering has stopped, as an answer could not be stored. See why by reticent status, then start the service again.");
  }
  if (shrunk) add("danger", "The answer log is shorter than it was. Records that this page has seen are gone.");
  if (ledger?.verified?.intact === false) add("danger", "The answer log failed its verification. Do not go on without a look at it.");
  if (ledger?.broken != null) add("danger", `The answer log is broken at record ${count(ledger.broken)}: it does not fit the one before.`);
  for (const one of qualityAlerts(last)) add(...one);
  if (last.drift === "found") {
    add("warn", `The questions of phase ${count(phase - 1)} had drifted: they were no longer like those before. Phase ${count(phase)} learned a new model from them and the answers they were given; check that it still answers well.`);
  }
  if (last.one_answer != null) {
    add("warn", `Everybody gets one answer: the model of phase ${count(phase)} gives “${last.one_answer}” to nearly every question. More rows, a larger ε or narrower ranges may help.`);
  }
  const before = last.past?.at(-1);
  // Where labels come later, phases need not feed each other: their size is chosen.
  if (before && last.truth == null && ever == null && last.teachers && last.rows < before.rows) {
    add("warn", `Phases shrink: phase ${count(phase - 1)} learned from ${count(before.rows)} rows and gave ${count(before.answers)} answers; phase ${count(phase)} learned from ${count(last.rows)}. If it goes on, answers will end.`);
  }
  if (ever != null && share(ever, ever + last.answered) <= SOON) {
    add("warn", ever === 0 ? "No answers are left. Every question is refused." : `${approximately(ever)} answers are left in all.`);
  } else if (all > 0 && share(left, all) <= SOON) {
    const next = last.rows_wanted ? `; phase ${count(phase + 1)} is ${nextState(last)[1].replace("rows complete", "ready to learn")}` : "";
    add("info", `Phase ${count(phase)} is about to end: ${percent(left, all)} of its answers are left${next}.`);
  }
  if (offered(last) >= 100 && last.rows_gathered < FEW * offered(last)) {
    add("warn", "Fewer than half of the questions become rows for the next phase: clients have reached the cap on what one of them may add.");
  }
  const clients = (last.clients ?? (ledger?.own ? [ledger.own] : [])).filter((one) => !one.revoked);
  const spent = clients.filter((one) => used(one) >= 1);
  const near = clients.filter((one) => used(one) >= NEAR && used(one) < 1);
  if (spent.length) add("warn", `${listed(spent)} used up the quota.`);
  if (near.length) add("warn", `${listed(near)} nearly used up the quota.`);
  // With groups a person adds few rows by design, and everyone is at the cap soon.
  if (nextState(last)[1] === "gathering" && last.guarantee?.unit !== "group") {
    const shares = clients.map((one) => [one, capped(ledger?.added?.[one.id])]);
    const full = shares.filter(([, part]) => part >= 1).map(([one]) => one);
    const close = shares.filter(([, part]) => part >= NEAR && part < 1).map(([one]) => one);
    const most = `the most rows that one client may add to phase ${count(phase + 1)}`;
    if (full.length) add("info", `${listed(full)} reached ${most}. Further questions are answered, but not learned from.`);
    if (close.length) add("info", `${listed(close)} nearly reached ${most}.`);
  }
  return found;
}

// Rounded, so that a screen reader hears of an alert when it comes and not once a second.
const percent = (part, all) => {
  const rounded = Math.ceil(100 * share(part, all));
  return part === 0 ? "none" : rounded <= 1 ? "less than 1 %" : rounded <= 5 ? "less than 5 %" : "less than 10 %";
};
const approximately = (number) => (number < 10 ? count(number) : `Fewer than ${whole.format(10 ** Math.ceil(Math.log10(number + 1)))}`);
const listed = (clients) => {
  const shown = clients.slice(0, 3).map((one) => one.name);
  if (clients.length > 3) shown.push(`${clients.length - 3} more`);
  return `${new Intl.ListFormat("en").format(shown)} ${clients.length === 1 ? "has" : "have"}`;
};

function showAlerts() {
  const found = alerts();
  const text = JSON.stringify(found);
  const list = at("alert-list");
  if (list.dataset.shown === text) return;
  list.dataset.shown = text;
  list.replaceChildren(...found.map(([name, words, headline]) => {
    const item = made("li", null, { class: headline ? "alert banner" : "alert", "data-level": name });
    const text = made("span", words);
    if (headline) text.prepend(made("strong", headline), " ");
    item.append(text);
    return item;
  }));
  at("no-alerts").hidden = found.length > 0 || last == null;
}

// ── charts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const history = { time: [], rate: [], median: [], p99: [] };
const most = (values) => values.reduce((a, b) => Math.max(a, b ?? 0), 0);

function forget() {
  for (const values of Object.values(history)) values.length = 0;
}

/** Keep what came, or a gap where nothing did. */
function remember(status) {
  const now = performance.now() / 1000;
  const load = status?.load;
  history.time.push(now);
  history.rate.push(load?.answers_per_second ?? null);
  history.median.push(load?.median_seconds == null ? null : 1000 * load.median_seconds);
  history.p99.push(load?.p99_seconds == null ? null : 1000 * load.p99_seconds);
  while (history.time.length && history.time[0] < now - SPANS.at(-1) - 2) Object.values(history).forEach((values) => values.shift());
  draw(now);
}

const span = () => SPANS.find((one) => history.time[0] > performance.now() / 1000 - one) ?? SPANS.at(history.time.length ? -1 : 0);
const dark = matchMedia("(prefers-color-scheme: dark)");
let charts = [];

function chart(id, series, values) {
  const box = at(id);
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: style("--soft"), font, ticks: { show: false }, grid: { stroke: style("--edge"), width: 1 } };
  return new uPlot({
    width: box.clientWidth,
    height: box.clientHeight,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 14, 0, 0],
    scales: {
      x: { time: false, range: () => [-span(), 0] },
      y: { range: (_, __, top) => [0, Math.max(1, 1.15 * (top ?? 0))] },
    },
    axes: [
      {
        ...axis, grid: { show: false }, size: 26,
        splits: () => (span() < 300 ? [4, 3, 2, 1, 0] : [5, 4, 3, 2, 1, 0]).map((one, _, all) => (-one * span()) / all[0]),
        values: (_, splits) => splits.map((one) => (one === 0 ? "now" : span() < 300 ? `${-one} s` : `${-one / 60} min`)),
      },
      { ...axis, size: 58, space: 36, values: (_, splits) => splits.map(values) },
    ],
    series: [{}, ...series.map((one) => ({ width: 2, points: { show: false }, ...one }))],
  }, [[], ...series.map(() => [])], box);
}

function redraw() {
  charts.forEach((one) => one.destroy());
  charts = [
    chart("rate-chart", [{ stroke: style("--fill"), fill: `${style("--fill")}26` }], (one) => short.format(one)),
    chart("latency-chart",
      [{ stroke: style("--fill") }, { stroke: style("--second"), dash: [6, 4] }],
      (one) => (one < 1000 ? `${figures.format(one)} ms` : `${figures.format(one / 1000)} s`)),
  ];
  draw(performance.now() / 1000);
  redrawQuality();
}

function draw(now) {
  if (charts.length === 0) return;
  const ages = history.time.map((one) => one - now);
  charts[0].setData([ages, history.rate]);
  charts[1].setData([ages, history.median, history.p99]);
  if (at("minute").closest("details").open) minute(ages);
}

function minute(ages) {
  const places = ages.map((_, place) => place).filter((place) => ages[place] > -60 && history.rate[place] != null);
  const every = places.reverse().filter((_, place) => place % 5 === 0);
  const told = (value) => milliseconds(value == null ? null : value / 1000);
  at("minute").replaceChildren(...every.map((place) =>
    row(count(Math.round(-ages[place])), rate(history.rate[place]), told(history.median[place]), told(history.p99[place]))));
}

at("minute").closest("details").addEventListener("toggle", () => draw(performance.now() / 1000));
dark.addEventListener("change", redraw);
new ResizeObserver(() => charts.forEach((one) => {
  const box = one.root.parentElement;
  one.setSize({ width: box.clientWidth, height: box.clientHeight });
})).observe(at("rate-chart"));

redraw();
promise();
listen();
