// What stands still while time moves, drawn once per episode by the plotting library: the time axis and the paths.
// A cursor and dots of our own move over it; where they are follows from margins and ranges that are ours, too.
import { executedSteps, quantileAt, rankOf } from "./numbers.js";
import { BANDS, colour, lastAt } from "./canvas.js";

const MARGIN = { l: 58, r: 10, t: 6, b: 34 };
const PANEL = 74;
const SHADES = ["left", "right", "success", "l1", "flow", "l2", "quantile"];
const CONFIG = { displayModeBar: false, displaylogo: false, doubleClick: "reset", scrollZoom: false };

/** The library once it is there. */
export function plotting() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  return new Promise((done) => {
    const script = document.querySelector("script[src='/plotly.js']");
    script.addEventListener("load", () => done(window.Plotly));
  });
}

/** A line of colour per dimension, the same in every chart. */
export function shadeOf(i) {
  return colour(SHADES[i % SHADES.length]);
}

// --- time -------------------------------------------------------------------------------------

/** Everything over control steps. `other` is a second episode, drawn dashed. */
export async function drawTimeline(box, episode, other) {
  const library = await plotting(), panels = panelsOf(episode, other);
  const height = panels.length * PANEL + MARGIN.t + MARGIN.b;
  const traces = [], layout = baseLayout(box, height);
  panels.forEach((panel, number) => {
    const axis = number ? `yaxis${number + 1}` : "yaxis", y = number ? `y${number + 1}` : "y";
    const top = 1 - number / panels.length, room = 0.14 / panels.length;
    layout[axis] = axisOf(panel.title, { domain: [top - 1 / panels.length + room, top - room / 2], range: panel.range });
    for (const trace of panel.traces) traces.push({ xaxis: "x", yaxis: y, ...trace });
  });
  const last = Math.max(episode.steps, other?.steps ?? 0, 1);
  const lowest = panels.length > 1 ? `y${panels.length}` : "y";
  layout.xaxis = axisOf("control step", { range: [0, last], anchor: lowest, fixedrange: false });
  box.style.height = `${height}px`;
  await library.react(inner(box), traces, layout, CONFIG);
}

function panelsOf(episode, other) {
  const panels = [];
  for (let i = 0; i < episode.d; i++) panels.push(actionPanel(episode, other, i));
  if (episode.law) panels.push(rankPanel(episode), spreadPanel(episode, other));
  for (const name of Object.keys(episode.perQuery)) panels.push(queryPanel(name, episode, other));
  if (episode.contacts) panels.push(contactPanel(episode, other));
  return panels;
}

function actionPanel(episode, other, i) {
  const traces = [];
  if (episode.law) for (const [low, high, opacity] of BANDS) traces.push(fanTrace(episode, i, low, high, opacity));
  traces.push(lineTrace("executed", stepsOf(episode), columnOf(episode, i), colour("ink")));
  if (other?.actions && i < other.d) {
    traces.push(lineTrace("compared", stepsOf(other), columnOf(other, i), colour("right"), "dot"));
  }
  return { title: episode.names[i], traces };
}

/** The executed part of every chunk's fan: one closed outline per replan. */
function fanTrace(episode, i, low, high, opacity) {
  const { quantiles, levels, shape: [queries, h, d, k] } = episode.law, x = [], y = [];
  for (let query = 0; query < queries; query++) {
    const began = episode.querySteps[query];
    const count = executedSteps(episode, query, h);
    if (count < 1) continue;
    const edge = (rank, s) => quantileAt(levels, quantiles, ((query * h + s) * d + i) * k, rank);
    for (let s = 0; s < count; s++) { x.push(began + s); y.push(edge(low, s)); }
    for (let s = count - 1; s >= 0; s--) { x.push(began + s + (s === count - 1 ? 0.9 : 0)); y.push(edge(high, s)); }
    x.push(null);
    y.push(null);
  }
  return { x, y, mode: "lines", fill: "toself", fillcolor: faded("quantile", opacity), line: { width: 0 },
    hoverinfo: "skip", type: "scatter" };
}

function rankPanel(episode) {
  const { law, d } = episode, traces = [], x = stepsOf(episode);
  for (let i = 0; i < d; i++) {
    if (law.grippers.includes(i)) continue;
    traces.push(lineTrace(episode.names[i], x, x.map((t) => rankAt(episode, t, i)), shadeOf(i)));
  }
  return { title: "rank", traces, range: [-0.03, 1.03] };
}

/** The rank at which an executed action lies in the law that it was read from; null beyond the chunk. */
export function rankAt(episode, step, i) {
  const { quantiles, levels, shape: [, h, d, k] } = episode.law;
  const query = lastAt(episode.querySteps, step), inside = step - episode.querySteps[query];
  if (inside < 0 || inside >= h) return null;
  return rankOf(levels, quantiles, ((query * h + inside) * d + i) * k, episode.actions[step * d + i]);
}

function spreadPanel(episode, other) {
  const traces = [lineTrace("spread", stepsOf(episode), spreadsOf(episode), colour("quantile"))];
  if (other?.law) traces.push(lineTrace("compared", stepsOf(other), spreadsOf(other), colour("right"), "dot"));
  return { title: "spread", traces };
}

/** Mean central 80 % of the motion dimensions at every executed step. */
function spreadsOf(episode) {
  const { quantiles, levels, shape: [, h, d, k], grippers, scale } = episode.law;
  return stepsOf(episode).map((step) => {
    const query = lastAt(episode.querySteps, step), inside = step - episode.querySteps[query];
    if (inside < 0 || inside >= h) return null;
    let sum = 0, count = 0;
    for (let i = 0; i < d; i++) {
      if (grippers.includes(i)) continue;
      const at = ((query * h + inside) * d + i) * k, read = (rank) => quantileAt(levels, quantiles, at, rank);
      sum += (read(0.9) - read(0.1)) / (scale ? scale[i] : 1);
      count++;
    }
    return count ? sum / count : null;
  });
}

function queryPanel(name, episode, other) {
  const trace = (which, shade, dash) => ({
    ...lineTrace(name, Array.from(which.querySteps), Array.from(which.perQuery[name]), shade, dash),
    line: { color: shade, width: 1.4, shape: "hv", dash },
  });
  const traces = [trace(episode, colour("failure"), "solid")];
  if (other?.perQuery[name]) traces.push(trace(other, colour("right"), "dot"));
  return { title: name, traces };
}

function contactPanel(episode, other) {
  const traces = [lineTrace("contacts", stepsOf(episode), Array.from(episode.contacts), colour("failure"))];
  if (other?.contacts) {
    traces.push(lineTrace("compared", stepsOf(other), Array.from(other.contacts), colour("right"), "dot"));
  }
  return { title: "contacts", traces };
}

function stepsOf(episode) {
  return Array.from({ length: episode.steps }, (_, t) => t);
}

function columnOf(episode, i) {
  return stepsOf(episode).map((t) => number(episode.actions[t * episode.d + i]));
}

function number(value) {
  return Number.isFinite(value) ? value : null;
}

function lineTrace(name, x, y, shade, dash = "solid") {
  return { name, x, y, mode: "lines", type: "scatter", line: { color: shade, width: 1.4, dash }, hovertemplate: "%{x}: %{y:.4g}" };
}

function faded(name, opacity) {
  const [r, g, b] = colour(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  return `rgba(${r},${g},${b},${opacity})`;
}

// --- paths ------------------------------------------------------------------------------------

/** The hand's path in two coordinates of its state, both with the same metres per pixel. */
export async function drawPath(box, episodes, [across, up], names) {
  const library = await plotting(), height = 260, layout = baseLayout(box, height);
  const points = episodes.flatMap((e) => pathOf(e, across, up)).filter(([x, y]) => x !== null && y !== null);
  const ranges = equalRanges(points, box.clientWidth - MARGIN.l - MARGIN.r, height - MARGIN.t - MARGIN.b);
  layout.xaxis = axisOf(names[0], { range: ranges[0], fixedrange: true });
  layout.yaxis = axisOf(names[1], { range: ranges[1], fixedrange: true });
  box.style.height = `${height}px`;
  box.dataset.ranges = JSON.stringify(ranges);
  await library.react(inner(box), episodes.flatMap((e, n) => pathTraces(e, n, across, up)), layout, CONFIG);
}

function pathTraces(episode, number, across, up) {
  const path = pathOf(episode, across, up), shade = colour(number ? "right" : "quantile");
  const trace = (points, rest) => ({ x: points.map((p) => p[0]), y: points.map((p) => p[1]), type: "scatter", ...rest });
  const replans = Array.from(episode.querySteps, (step) => path[step]).filter(Boolean);
  return [
    trace(path, { mode: "lines", line: { color: shade, width: 1.6 }, hoverinfo: "skip" }),
    trace(replans, { mode: "markers", marker: { color: shade, size: 5, symbol: "circle-open" }, hoverinfo: "skip" }),
  ];
}

function pathOf(episode, across, up) {
  if (!episode.states || episode.stateDim < 3) return [];
  const count = episode.states.length / episode.stateDim;
  return Array.from({ length: count }, (_, t) => [across, up].map((c) => number(episode.states[t * episode.stateDim + c])));
}

function equalRanges(points, width, height) {
  if (!points.length) return [[0, 1], [0, 1]];
  const ends = [0, 1].map((c) => points.reduce(([a, b], p) => [Math.min(a, p[c]), Math.max(b, p[c])], [Infinity, -Infinity]));
  const scale = 1.1 * Math.max((ends[0][1] - ends[0][0]) / width, (ends[1][1] - ends[1][0]) / height, 1e-4);
  return ends.map(([a, b], c) => {
    const half = scale * (c ? height : width) / 2, middle = (a + b) / 2;
    return [middle - half, middle + half];
  });
}

// --- what moves -------------------------------------------------------------------------------

/** Put the cursor of the time axis at a step. */
export function moveCursor(box, step) {
  const cursor = child(box, "cursor"), [first, last] = shownRange(box);
  const x = MARGIN.l + (step - first) / (last - first) * (box.clientWidth - MARGIN.l - MARGIN.r);
  cursor.hidden = step < first || step > last;
  cursor.style.transform = `translateX(${x}px)`;
}

/** The step under a place of the time axis. */
export function stepUnder(box, clientX) {
  const [first, last] = shownRange(box), left = box.getBoundingClientRect().left + MARGIN.l;
  return first + (clientX - left) / (box.clientWidth - MARGIN.l - MARGIN.r) * (last - first);
}

function shownRange(box) {
  return inner(box).layout?.xaxis.range.map(Number) ?? [0, 1];
}

/** Put the dots of a path where the hands are at a step. */
export function moveDots(box, episodes, [across, up], step) {
  const ranges = JSON.parse(box.dataset.ranges ?? "[[0,1],[0,1]]");
  ["dot", "dot b"].forEach((name, n) => {
    const dot = child(box, name), episode = episodes[n];
    const t = episode?.states ? Math.min(step, episode.states.length / episode.stateDim - 1) : -1;
    const [x, y] = t < 0 ? [NaN, NaN] : [across, up].map((c) => episode.states[t * episode.stateDim + c]);
    dot.hidden = !Number.isFinite(x) || !Number.isFinite(y) || episode.stateDim < 3;
    if (dot.hidden) return;
    const wide = box.clientWidth - MARGIN.l - MARGIN.r, tall = box.clientHeight - MARGIN.t - MARGIN.b;
    const px = MARGIN.l + (x - ranges[0][0]) / (ranges[0][1] - ranges[0][0]) * wide;
    const py = MARGIN.t + (ranges[1][1] - y) / (ranges[1][1] - ranges[1][0]) * tall;
    dot.style.transform = `translate(${px}px, ${py}px)`;
  });
}

/** A part of a chart's box, made when it is first asked for; the library adds classes of its own to it. */
function child(box, className) {
  const found = [...box.children].find((each) => each.dataset.part === className);
  if (found) return found;
  const made = document.createElement("div");
  made.dataset.part = className;
  made.className = className;
  box.append(made);
  return made;
}

function inner(box) {
  return child(box, "plot");
}

function baseLayout(box, height) {
  return {
    width: box.clientWidth, height, margin: MARGIN, showlegend: false, hovermode: "closest", dragmode: coarse() ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 11, color: colour("muted") },
  };
}

function coarse() {
  return matchMedia("(pointer: coarse)").matches;
}

function axisOf(title, more) {
  return { title: { text: title, standoff: 2, font: { size: 10.5 } }, gridcolor: colour("grid"), zeroline: false, nticks: 5, automargin: false,
    fixedrange: true, ...more };
}
