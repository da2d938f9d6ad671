// How well past phases answered, by what was released of it, and the alarms. Of feedback nothing is known here.

import { at, bar, count, intervals, made, row, say, style } from "./parts.js";

const LABELS = 10; // phases that are named below the chart, at most

const inside = (part) => (part == null ? null : Math.min(1, Math.max(0, part))); // noise may lead beyond
const percent = (part) => (part == null ? "–" : `${(100 * inside(part)).toFixed(1)} %`);
const range = (one) => (one.right == null ? "–" : `${percent(one.low)} to ${percent(one.high)}`);
const rounded = (part) => percent(part).replace(".0 ", " "); // of a number that was declared, not measured
const declared = (status) => status.alarm_accuracy ?? status.alarm_recall;

let plot = null;
let shown = null; // what the chart and the tables show, as text
let now = null; // the status that they show

export function forgetQuality() {
  plot?.destroy();
  plot = shown = now = null;
}

/** What the card shows. Without later labels, and without alarms, there is no card. */
export function showQuality(status) {
  const phases = status.quality ?? [];
  const alarms = status.alarms ?? [];
  at("quality").hidden = status.truth == null && phases.length === 0 && alarms.length === 0;
  if (at("quality").hidden) return forgetQuality();
  showLabels(status);
  const text = JSON.stringify([phases, alarms, status.alarm_since, status.classes, declared(status), status.truth]);
  if (text === shown) return;
  [shown, now] = [text, status];
  showLast(phases.at(-1), status);
  showRecall(phases.at(-1), status);
  showTable(phases, status);
  at("quality-more").hidden = phases.length === 0;
  at("quality-chart").hidden = at("quality-keys").hidden = !phases.some((one) => one.right != null);
  at("declared-key").hidden = declared(status) == null || status.alarm_accuracy == null;
  at("alarm-key").hidden = alarms.length === 0;
  redrawQuality();
}

function showLabels(status) {
  const rows = status.truth === "rows" || status.truth === "both"; // of feedback there is no number
  for (const id of ["received-line", "waiting-line"]) at(id).hidden = !rows;
  say("received", count(status.labelled_received));
  say("waiting", count(status.labelled_waiting));
  at("phase-rows-line").hidden = status.phase_rows == null;
  say("phase-rows", count(status.phase_rows));
  say("phase-rows-name", status.truth === "rows" ? "labelled rows per phase" : "questions with a slot, per phase");
  const raised = status.alarms ?? [];
  say("alarms-raised", raised.length ? `${count(raised.length)}, last in phase ${count(raised.at(-1).phase)}` : "none");
  at("alarm-below-line").hidden = declared(status) == null;
  const what = status.alarm_accuracy == null ? "of a class" : "of answers";
  say("alarm-below", declared(status) == null ? "–" : `${rounded(declared(status))} ${what}`);
}

function showLast(one, status) {
  if (one == null) {
    say("right", "–");
    say("right-words", "");
    say("right-interval", status.truth == null
      ? "No labels come later: quality is not measured. A private test on rows of the first phase raises the alarm."
      : "The first phase is judged when it ends, by rows that train nothing.");
    return;
  }
  say("right", percent(one.right));
  say("right-words", `of answers right in phase ${count(one.phase)}`);
  const judged = `judged by ${count(one.rows)} ${status.truth === "rows" ? "labelled rows" : "places for labels"}`;
  say("right-interval", one.right == null
    ? `Too few labels to say; ${judged}.`
    : `${range(one)} with 95 % confidence; ${judged}, which train nothing.`);
}

function showRecall(one, status) {
  const shares = one?.recall ?? [];
  at("recall-box").hidden = shares.length === 0;
  at("recall").replaceChildren(...shares.map((part, place) => {
    const name = String(status.classes?.[place] ?? place);
    const item = made("li");
    item.append(made("span", name, { class: "name" }), made("strong", part == null ? "too few rows" : percent(part)));
    const low = status.alarm_recall != null && part < status.alarm_recall;
    if (part != null) item.append(bar(`Recall of ${name}`, inside(part), 1, low, percent(part)));
    return item;
  }));
}

function showTable(phases, status) {
  const head = ["phase", "right", "95 % interval", "judged by"].map((one) => made("th", one, { scope: "col" }));
  const classes = phases[0]?.recall.map((_, place) => String(status.classes?.[place] ?? place)) ?? [];
  head.push(...classes.map((one) => made("th", `recall of ${one}`, { scope: "col" })), made("th", "alarm", { scope: "col" }));
  const line = made("tr");
  line.append(...head);
  at("quality-head").replaceChildren(line);
  const raised = new Set((status.alarms ?? []).map((one) => one.phase));
  at("quality-rows").replaceChildren(...phases.toReversed().map((one) =>
    row(count(one.phase), percent(one.right), range(one), count(one.rows), ...one.recall.map(percent), raised.has(one.phase) ? "raised" : "")));
}

/** Draw the chart again, as after a change from light to dark. */
export function redrawQuality() {
  plot?.destroy();
  plot = null;
  const phases = now?.quality ?? [];
  const known = phases.filter((one) => one.right != null);
  if (known.length === 0) return;
  const [first, last] = [known[0], known.at(-1)];
  const best = known.reduce((a, b) => (b.right > a.right ? b : a));
  const worst = known.reduce((a, b) => (b.right < a.right ? b : a));
  say("quality-words", `Phases ${count(first.phase)} to ${count(last.phase)}: the last ${percent(last.right)}, ` +
    `the best ${percent(best.right)} in phase ${count(best.phase)}, the worst ${percent(worst.right)} in phase ${count(worst.phase)}.`);
  plot = chart(at("quality-chart"), phases, now);
}

function chart(box, phases, status) {
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: style("--soft"), font, ticks: { show: false }, grid: { stroke: style("--edge"), width: 1 } };
  const fill = style("--fill");
  const limit = status.alarm_accuracy;
  const numbers = phases.map((one) => one.phase);
  const values = ["right", "low", "high"].map((name) => phases.map((one) => inside(one[name])));
  const all = [...values.flat(), limit].filter((one) => one != null);
  // To whole tenths, and never less than a fifth: chance alone must not look like a fall.
  let [low, high] = [Math.floor(10 * Math.min(...all) - 0.1) / 10, Math.ceil(10 * Math.max(...all) + 0.1) / 10].map(inside);
  if (high - low < 0.2) [low, high] = low >= 0.1 ? [low - 0.1, high] : [low, low + 0.2];
  const every = Math.ceil((numbers.at(-1) - numbers[0] + 1) / LABELS);
  const splits = [];
  for (let one = Math.ceil(numbers[0] / every) * every; one <= numbers.at(-1); one += every) splits.push(one);
  return new uPlot({
    width: box.clientWidth,
    height: box.clientHeight,
    legend: { show: false },
    cursor: { show: false },
    padding: [10, 16, 0, 0],
    scales: {
      x: { time: false, range: () => [numbers[0] - 0.5, numbers.at(-1) + 0.5] },
      y: { range: () => [low, high] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 26, splits: () => splits, values: (_, given) => given.map((one) => `phase ${one}`.slice(every > 1 || splits.length > 5 ? 6 : 0)) },
      { ...axis, size: 58, space: 30, values: (_, given) => given.map((one) => `${Math.round(100 * one)} %`) },
    ],
    series: [
      {},
      { stroke: fill, width: 2, points: { show: true, size: 7, fill, stroke: fill } },
      { stroke: "transparent", points: { show: false } },
      { stroke: "transparent", points: { show: false } },
    ],
    bands: [{ series: [3, 2], fill: `${fill}26` }],
    hooks: { drawSeries: [(drawn, place) => place === 1 && marks(drawn, phases, status)] },
  }, [numbers, ...values], box);
}

/** The interval of each phase, the declared share, and the alarms. */
function marks(drawn, phases, status) {
  const { ctx, bbox } = drawn;
  const pixel = uPlot.pxRatio;
  const x = (phase) => drawn.valToPos(phase, "x", true);
  const y = (part) => drawn.valToPos(inside(part), "y", true);
  const lines = (colour, width, dash, draw) => {
    ctx.save();
    [ctx.strokeStyle, ctx.fillStyle, ctx.lineWidth] = [style(colour), style(colour), width * pixel];
    ctx.setLineDash(dash.map((one) => one * pixel));
    ctx.beginPath();
    draw();
    ctx.stroke();
    ctx.restore();
  };
  const judged = phases.filter((one) => one.right != null);
  intervals(drawn, judged.map((one) => ({ x: one.phase, low: inside(one.low), high: inside(one.high) })), style("--fill"));
  if (status.alarm_accuracy != null) {
    lines("--second", 1.5, [6, 4], () => {
      ctx.moveTo(bbox.left, y(status.alarm_accuracy));
      ctx.lineTo(bbox.left + bbox.width, y(status.alarm_accuracy));
    });
  }
  const first = phases[0].phase;
  lines("--danger", 2, [2, 3], () => {
    for (const one of (status.alarms ?? []).filter((each) => each.phase >= first)) {
      ctx.moveTo(x(one.phase), bbox.top);
      ctx.lineTo(x(one.phase), bbox.top + bbox.height);
    }
  });
}

new ResizeObserver(() => {
  const box = at("quality-chart");
  if (box.clientWidth > 0) plot?.setSize({ width: box.clientWidth, height: box.clientHeight });
}).observe(at("quality-chart"));

/** The alarm that stands, as a banner: how bad it is, what to do, and the headline. */
export function qualityAlerts(status) {
  if (status.alarm_since == null) return [];
  const least = rounded(declared(status));
  const what = declared(status) == null ? "fewer answers are right than was declared"
    : status.alarm_accuracy == null ? `fewer than ${least} of the rows of some class get the right answer`
    : `fewer than ${least} of the answers are right`;
  const why = status.truth == null ? "A private test on rows of the first phase found it." : "The last phases together say so, by more than chance explains.";
  const next = status.truth != null
    ? status.teachers ? "Check whether inputs or labels have changed." : "The next rows that judge choose which of the last models answers. Check whether inputs or labels have changed."
    : status.teachers ? "No phase follows this one: fit again with newer labelled rows."
    : "The last model that passed the test answers, and learns no more: fit again with newer labelled rows.";
  return [["danger", `Quality is lost: ${what}. ${why} ${next}`, `Alarm since phase ${count(status.alarm_since)}`]];
}
