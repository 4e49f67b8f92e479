// Charts of a node or a queue from the broker's series, drawn by uPlot, and the small lines in tables.
// The broker keeps the series, so charts survive a change of page and a reload.

import { call } from "./api.js";
import { count, duration, h, rate, short } from "./dom.js";
import { READINGS, recent } from "./live.js";
import { put } from "./put.js";

const REFRESH_MS = 10_000;
const HEIGHT = 190;
// What is shown: the range in seconds, and how long a step is for the node and for a queue, whose fine steps go back less far.
const RANGES = [
  { name: "30 min", range: 1800, node: 10, queue: 10 },
  { name: "3 h", range: 10_800, node: 10, queue: 300 },
  { name: "24 h", range: 86_400, node: 300, queue: 300 },
];
// So many of a hundred messages took at most this long.
const shares = (what) => [["p50", "one", []], ["p95", "two", [6, 4]], ["p99", "four", [2, 3]]].map(([share, color, dash]) => ({ name: `${what}_${share}_s`, label: share, color, dash }));
const perSecond = (value) => `${rate(value)} /s`;
const whole = (value) => count(Math.round(value));

// Lines differ in colour and in dashes, so nobody needs to tell colours apart.
const CHARTS = [
  { id: "throughput", title: "Throughput", note: "messages per second", show: perSecond, tick: short, least: 1, lines: [
    { name: "published", label: "Published", color: "one", dash: [] },
    { name: "delivered", label: "Delivered", color: "two", dash: [6, 4] },
    { name: "acknowledged", label: "Acknowledged", color: "three", dash: [] },
    { name: "failed", label: "Failed", color: "four", dash: [2, 3] }],
  none: (queue) => ["No messages in this time. Publish one:", h("br"), h("code", {}, `wakeq pub ${queue || "jobs"} hello`)] },
  { id: "states", title: "Messages", note: "in each state", show: whole, tick: short, least: 4, lines: [
    { name: "ready", label: "Ready", color: "one", dash: [] },
    { name: "delayed", label: "Delayed", color: "five", dash: [6, 4] },
    { name: "leased", label: "Leased", color: "three", dash: [] }],
  none: () => ["No messages in this time."] },
  { id: "wait", title: "Time waited", note: "from ready until delivered", show: duration, tick: duration, least: 0.001, lines: shares("wait"), mayBeUnknown: true,
    none: () => ["No message was delivered in this time."] },
  { id: "work", title: "Time worked", note: "from delivered until acknowledged", show: duration, tick: duration, least: 0.001, lines: shares("work"), mayBeUnknown: true,
    none: () => ["No message was acknowledged in this time."] },
];

// What somebody has chosen stays chosen on the next page: the range, and the lines that are off.
const chosen = { range: RANGES[0], off: new Set() };
const cache = new Map(); // the last answer for each queue and range, so that a page that comes again is not empty
const CACHED_MAX = 20;

// Show the charts of a queue, or of the node, in `place`; returns the function that stops them.
export function charts(place, queue = undefined) {
  const ranges = h("div", { class: "tools ranges", role: "group", "aria-label": "Range of the charts" });
  const problem = h("p", { class: "warn", role: "status", hidden: true });
  const drawn = CHARTS.map((about) => new Chart(about, queue));
  place.replaceChildren(h("div", { class: "heading" }, h("h2", {}, "Activity"), ranges), problem, h("div", { class: "charts" }, drawn.map((one) => one.figure)));

  const showRanges = () => put(ranges, ...RANGES.map((one) =>
    h("button", { class: "small", "aria-pressed": String(one === chosen.range), onclick: () => choose(one) }, one.name)));
  const choose = (range) => {
    chosen.range = range;
    showRanges();
    refresh();
  };
  const refresh = async () => {
    const asked = chosen.range;
    const [key, step] = [`${asked.name} ${queue}`, queue === undefined ? asked.node : asked.queue];
    const draw = (answer) => drawn.forEach((one) => one.show(answer, asked.range));
    if (cache.has(key)) draw(cache.get(key));
    try {
      const answer = await call("GET", "/series", { queue, step, last_s: asked.range });
      cache.delete(key);
      cache.set(key, answer);
      if (cache.size > CACHED_MAX) cache.delete(cache.keys().next().value);
      if (asked !== chosen.range) return;
      problem.hidden = true;
      draw(answer);
    } catch (error) {
      problem.hidden = false;
      put(problem, `The charts cannot be read: ${error.message}`);
    }
  };
  const timer = setInterval(() => document.hidden || refresh(), REFRESH_MS);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolor = () => drawn.forEach((one) => one.recolor());
  scheme.addEventListener("change", recolor);
  showRanges();
  refresh();
  return () => {
    clearInterval(timer);
    scheme.removeEventListener("change", recolor);
    drawn.forEach((one) => one.stop());
  };
}

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hour12: false });
const clockWithSeconds = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

class Chart {
  constructor(about, queue) {
    this.about = about;
    this.queue = queue;
    // The values under the cursor, or the newest.
    this.keys = h("div", { class: "keys", role: "group", "aria-label": `Lines of ${about.title}` });
    this.time = h("span", { class: "soft" });
    this.nothing = h("p", { class: "nothing soft", hidden: true });
    this.plot = h("div", { class: "plot", tabindex: 0, role: "img", "aria-label": about.title, onkeydown: (event) => this.move(event) });
    this.figure = h("figure", { class: "chart", id: `chart-${about.id}` },
      h("figcaption", {}, h("strong", {}, about.title), " ", h("span", { class: "soft" }, about.note), this.time), this.plot, this.nothing, this.keys);
    this.answer = null;
    this.range = 0;
    this.uplot = null;
    this.resize = new ResizeObserver(() => this.uplot?.setSize({ width: this.plot.clientWidth, height: HEIGHT }));
    this.resize.observe(this.plot);
  }

  // Show an answer of /series, of which the last `range` seconds.
  show(answer, range) {
    const { lines, title, show } = this.about;
    [this.answer, this.range] = [answer, range];
    this.to = answer.at_s.at(-1) ?? Date.now() / 1000; // at the end of the last step
    const first = answer.at_s.findIndex((at) => at > this.to - range);
    const from = first < 0 ? answer.at_s.length : first;
    const data = [answer.at_s.slice(from), ...lines.map(({ name }) => answer.series[name].slice(from))];
    if (this.uplot === null) this.create(data);
    else this.uplot.setData(data);
    this.figure.series = Object.fromEntries([["at_s", data[0]], ...lines.map(({ name }, place) => [name, data[place + 1]])]);
    const values = data.slice(1).flat();
    this.nothing.hidden = values.some((value) => value);
    put(this.nothing, ...(data[0].length && (this.about.mayBeUnknown || values.some(isKnown)) ? this.about.none(this.queue) : [`The first figures come within ${duration(answer.step_s)}.`]));
    this.showKeys(null);
    this.plot.setAttribute("aria-label", `${title}: ${lines.map(({ label }, place) => `${label} ${this.shown(place, null)}`).join(", ")}`.replaceAll("–", "nothing"));
  }

  create(data) {
    const { lines, tick, least, id } = this.about;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: color("soft"), grid: { stroke: color("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    this.uplot = new uPlot({
      width: this.plot.clientWidth || 300, height: HEIGHT, padding: [12, 20, 0, 0], legend: { show: false },
      cursor: { sync: { key: "wakeq" }, drag: { x: false, y: false }, y: false, points: { size: 7 } },
      scales: { x: { range: () => [this.to - this.range, this.to] }, y: { range: (_, min, max) => [0, Math.max(least, (max ?? 0) * 1.12)] } },
      series: [{}, ...lines.map(({ name, color: which, dash }) => ({
        label: name, stroke: color(which), width: 1.8, dash, show: !chosen.off.has(name),
        fill: name === "published" || name === "ready" ? `${color(which)}1c` : undefined,
        // Only a value whose neighbours are unknown needs a point to be seen.
        points: { size: 5, fill: color(which), filter: (one, place, isShown) => isShown ? lonely(one.data[place]) : null },
      }))],
      axes: [
        { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => clock.format(at * 1000)) },
        { ...axis, size: 58, space: 34, incrs: id === "states" ? WHOLE : undefined, values: (_, ticks) => ticks.map((value) => (value ? tick(value) : "0")) }],
      hooks: { setCursor: [(one) => this.showKeys(one.cursor.idx ?? null)] },
    }, data, this.plot);
  }

  // The colours of a canvas do not follow the sheet by themselves.
  recolor() {
    if (this.uplot === null) return;
    this.uplot.destroy();
    this.uplot = null;
    this.show(this.answer, this.range);
  }

  shown(place, index) {
    const values = this.uplot.data[place + 1];
    const value = index === null ? values.at(-1) : values[index];
    return value === null || value === undefined ? "–" : this.about.show(value);
  }

  showKeys(index) {
    // A cursor can outlive the data that it was on.
    if (this.uplot === null) return;
    const at = index === null ? undefined : this.uplot.data[0][index];
    put(this.time, at === undefined ? "" : clockWithSeconds.format(at * 1000));
    put(this.keys, ...this.about.lines.map(({ name, label, color, dash }, place) =>
      h("button", { class: `key ${color}${dash.length ? " dashed" : ""}`, "aria-pressed": String(!chosen.off.has(name)), title: "Show or hide this line", onclick: () => this.toggle(name, place) },
        label, h("b", {}, this.shown(place, index)))));
  }

  toggle(name, place) {
    if (!chosen.off.delete(name)) chosen.off.add(name);
    this.uplot.setSeries(place + 1, { show: !chosen.off.has(name) });
    this.showKeys(null);
  }

  // The arrow keys move the cursor from step to step.
  move(event) {
    if (this.uplot === null || !this.uplot.data[0].length) return;
    const last = this.uplot.data[0].length - 1;
    const here = this.uplot.cursor.idx ?? last;
    const place = { ArrowLeft: Math.max(0, here - 1), ArrowRight: Math.min(last, here + 1), Home: 0, End: last }[event.key];
    if (place === undefined) return;
    event.preventDefault();
    this.uplot.setCursor({ left: this.uplot.valToPos(this.uplot.data[0][place], "x"), top: 10 }, true, true);
  }

  stop() {
    this.resize.disconnect();
    this.uplot?.destroy();
  }
}

const WHOLE = [1, 2, 5].flatMap((digit) => Array.from({ length: 10 }, (_, power) => digit * 10 ** power)).sort((a, b) => a - b);
const isKnown = (value) => value !== null && value !== undefined;

function lonely(values) {
  const found = [];
  values.forEach((value, place) => {
    if (isKnown(value) && !isKnown(values[place - 1]) && !isKnown(values[place + 1])) found.push(place);
  });
  return found;
}

// Messages published, as an area, and acknowledged, as a line, over the last minute; the newest is at the right.
export function spark({ ins, outs }, kind = "spark") {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const [width, height, most] = [120, 26, Math.max(1, ...ins, ...outs)];
  const step = width / (READINGS - 1);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", kind);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${rate(recent(ins))} published and ${rate(recent(outs))} acknowledged per second`);
  for (const [shape, line, values] of [["polygon", "in", ins], ["polyline", "in", ins], ["polyline", "out", outs]]) {
    const points = values.map((value, place) =>
      `${(width - (values.length - 1 - place) * step).toFixed(1)},${(height - 1 - (value / most) * (height - 3)).toFixed(1)}`);
    if (shape === "polygon") points.push(`${width},${height}`, `${(width - (values.length - 1) * step).toFixed(1)},${height}`);
    const drawn = document.createElementNS(space, shape);
    drawn.setAttribute("class", line);
    drawn.setAttribute("points", points.join(" "));
    svg.append(drawn);
  }
  return svg;
}

export const legend = () => h("span", { class: "legend" }, h("span", { class: "in" }, "published"), " ", h("span", { class: "out" }, "acknowledged"));
