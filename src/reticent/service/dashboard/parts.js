// What all parts of the dashboard use: numbers as text, and elements of the page. Text only, never HTML.

export const at = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat("en");
export const figures = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
export const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
export const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

export const count = (number) => (number == null ? "–" : whole.format(number));
export const rate = (number) => (number == null ? "–" : number < 100 ? figures.format(number) : whole.format(Math.round(number)));
export const milliseconds = (seconds) =>
  seconds == null ? "–" : seconds < 1 ? `${figures.format(1000 * seconds)} ms` : `${figures.format(seconds)} s`;
export const share = (part, all) => (all > 0 ? Math.min(1, Math.max(0, part / all)) : 0);

export function say(id, text) {
  const element = at(id);
  if (element.textContent !== text) element.textContent = text;
}

export function made(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function level(element, name) {
  if (element.dataset.level !== name) element.dataset.level = name;
}

export function meter(element, value, most, words) {
  element.setAttribute("aria-valuemax", String(most));
  element.setAttribute("aria-valuenow", String(Math.min(value, most)));
  element.setAttribute("aria-valuetext", words);
  element.firstElementChild.style.width = `${100 * share(value, most)}%`;
}

export function row(...cells) {
  const line = made("tr");
  line.append(...cells.map((cell) => (cell instanceof Node ? cell : made("td", cell))));
  return line;
}

/** A meter in a table or a list. */
export function bar(label, value, most, near, words) {
  const element = made("div", null, { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0" });
  element.append(made("i"));
  meter(element, value, most, words);
  level(element, near ? "warn" : "good");
  return element;
}

/** A colour of the style sheet, light or dark as it is now. */
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw intervals into a chart of uPlot: each has x, low and high. */
export function intervals(drawn, points, colour) {
  const { ctx } = drawn;
  const pixel = uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * pixel;
  ctx.beginPath();
  for (const one of points) {
    const x = drawn.valToPos(one.x, "x", true);
    const [low, high] = [one.low, one.high].map((end) => drawn.valToPos(end, "y", true));
    for (const end of [low, high]) {
      ctx.moveTo(x - 3 * pixel, end);
      ctx.lineTo(x + 3 * pixel, end);
    }
    ctx.moveTo(x, low);
    ctx.lineTo(x, high);
  }
  ctx.stroke();
  ctx.restore();
}
