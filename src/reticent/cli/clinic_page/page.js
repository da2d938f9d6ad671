// The two curves of the demo. The numbers come from the process that made up the patients.

import { at, count, intervals, say, style } from "./dashboard/parts.js";

const EVERY = 500; // milliseconds between two looks
const percent = (part) => (part == null ? "–" : `${Math.round(100 * part)} %`);
const inside = (part) => Math.min(1, Math.max(0, part));
let plot = null;
let shown = "";
let found = null;

async function look() {
  try {
    const response = await fetch("numbers", { cache: "no-store" });
    if (!response.ok) throw new Error();
    found = await response.json();
    at("link").dataset.state = "live";
    say("link", "live");
    show();
  } catch {
    at("link").dataset.state = "lost";
    say("link", "the demo has ended");
  }
  setTimeout(look, EVERY);
}

function show() {
  const { months, judged, clinic, day_one: other } = found;
  const last = months.at(-1);
  say("month", `month ${count(found.month)}`);
  say("clinic-right", percent(last?.clinic));
  say("static-right", percent(last?.day_one));
  say("labelled", count(clinic.labelled));
  say("phase", count(clinic.phase));
  say("clinic-answered", count(clinic.answered));
  say("static-answered", count(other.answered));
  if (at("clinic-link").href !== clinic.url) at("clinic-link").href = clinic.url;
  if (at("static-link").href !== other.url) at("static-link").href = other.url;
  const text = JSON.stringify([months, judged]);
  if (text === shown || months.length === 0) return;
  shown = text;
  say("words", `Month ${count(last.month)}: ${percent(last.clinic)} right where outcomes are learned from, ${percent(last.day_one)} where not.`);
  draw();
}

function draw() {
  plot?.destroy();
  plot = null;
  const { months, judged } = found ?? { months: [] };
  if (months.length === 0) return;
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: style("--soft"), font, ticks: { show: false }, grid: { stroke: style("--edge"), width: 1 } };
  const end = Math.max(12, months.at(-1).month);
  const every = Math.ceil((end + 1) / 14);
  const numbers = months.map((one) => one.month);
  const dots = { points: { show: true, size: 7 } };
  plot = new uPlot({
    width: at("chart").clientWidth,
    height: at("chart").clientHeight,
    legend: { show: false },
    cursor: { show: false },
    padding: [10, 16, 0, 0],
    scales: { x: { time: false, range: () => [-0.5, end + 0.5] }, y: { range: () => [0.3, 1] } },
    axes: [
      {
        ...axis, grid: { show: false }, size: 26,
        splits: () => Array.from({ length: Math.floor(end / every) + 1 }, (_, place) => place * every),
        values: (_, given) => given.map(String),
      },
      { ...axis, size: 58, space: 30, values: (_, given) => given.map((one) => `${Math.round(100 * one)} %`) },
    ],
    series: [
      {},
      { stroke: style("--fill"), width: 3, ...dots, points: { ...dots.points, fill: style("--fill"), stroke: style("--fill") } },
      { stroke: style("--second"), width: 3, dash: [8, 5], points: { ...dots.points, fill: style("--second"), stroke: style("--second") } },
    ],
    hooks: {
      drawSeries: [(drawn, place) => place === 2 && intervals(drawn, judged.map((one) =>
        ({ x: one.month, low: inside(one.low), high: inside(one.high) })), style("--ink"))],
    },
  }, [numbers, months.map((one) => one.clinic), months.map((one) => one.day_one)], at("chart"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => plot?.setSize({ width: at("chart").clientWidth, height: at("chart").clientHeight })).observe(at("chart"));
look();
