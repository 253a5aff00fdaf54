// The page: one state, one function that draws what moves, and what keys, sliders and links change.
import { DECODERS, DEFAULTS, decodeEpisode } from "./decoders.js";
import { LIVE, loadEpisode, loadIndex, loadStamp, placeOf } from "./source.js";
import { EpisodeTable, element } from "./table.js";
import { drawChunk, drawFrame, lastAt } from "./canvas.js";
import { drawPath, drawTimeline, moveCursor, moveDots, rankAt, stepUnder } from "./charts.js";
import { counterparts, parting, partingWords } from "./compare.js";

const at = (id) => document.getElementById(id);
const ABOVE = [0, 1], SIDE = [0, 2], REFRESH = 5000;
const state = { index: null, a: null, b: null, step: 0, playing: null, decoded: [], decoder: { name: "median" }, waiting: false };
const table = new EpisodeTable((row) => open(row));

// --- episodes ---------------------------------------------------------------------------------

function rowsOf(index) {
  return index.rows.map((values, place) => {
    const row = Object.fromEntries(index.columns.map((name, i) => [name, values[i]]));
    row.text = [row.scene, row.policy, row.decoder, row.status, `task=${row.task}`, index.runs[row.run].name].join(" ").toLowerCase();
    return Object.assign(row, { place });
  });
}

function showIndex(index) {
  const chosen = state.a && placeOf(state.a.row);
  state.index = index;
  table.setRows(rowsOf(index));
  table.choose(table.rows.find((row) => placeOf(row) === chosen) ?? table.chosen);
  const problems = index.runs.flatMap((run) => [
    ...run.problems.map((problem) => `${run.name}: ${problem}`),
    ...(run.more_problems ? [`${run.name}: and ${run.more_problems} more`] : []),
  ]);
  listProblems("run-problems", problems, "of the journals cannot be read");
  if (!index.rows.length) at("empty").textContent = "There are no episodes yet.";
}

function listProblems(id, problems, what) {
  const box = at(id);
  box.hidden = !problems.length;
  box.querySelector("summary").textContent = problems.length === 1 ? problems[0].slice(0, 160) : `${problems.length} things ${what}`;
  box.querySelector("ul").replaceChildren(...problems.map((problem) => element("li", problem)));
}

async function fetchEpisode(row) {
  return loadEpisode(row, state.index.runs[row.run].units[row.policy]);
}

/** Show an episode at a step, beside another one if a link or the reader says so. */
async function open(row, step = 0, otherPlace = "") {
  pause();
  const ticket = Symbol("open");
  state.opening = ticket;
  table.choose(row);
  const others = counterparts(table.rows, row), other = others.find((each) => placeOf(each) === otherPlace);
  let a, b;
  try {
    [a, b] = await Promise.all([fetchEpisode(row), other ? fetchEpisode(other) : null]);
  } catch (error) {
    at("empty").hidden = false;
    at("empty").textContent = `This episode cannot be opened: ${error.message}`;
    return;
  }
  if (state.opening !== ticket) return;
  for (const old of [state.a, state.b]) old?.sheet?.close();
  Object.assign(state, { a, b, step: Math.min(step, lastStep(a, b)) });
  at("episode").hidden = false;
  at("empty").hidden = true;
  showEpisode(others);
  redecode();
  await redraw();
}

function lastStep(a, b) {
  return Math.max(a.steps, b?.steps ?? 0, 1) - 1;
}

function showEpisode(others) {
  const { a, b } = state, row = a.row, run = state.index.runs[row.run].name;
  at("title").replaceChildren(element("span", `${row.scene} · task ${row.task} · index ${row.index} · seed ${row.seed} `), element("span", row.status, row.status));
  at("facts").textContent = `${row.policy}, decoder ${row.decoder}, ${row.steps} steps, ${row.seconds.toFixed(1)} s, ${row.contacts} contacts; run ${run}`;
  at("compare").replaceChildren(new Option("nothing", ""), ...others.map((each) => new Option(
    `${each.policy}, ${each.decoder} (${each.status}; ${state.index.runs[each.run].name})`, placeOf(each))));
  at("compare").value = b ? placeOf(b.row) : "";
  at("compare-label").hidden = !others.length;
  at("film-a-words").textContent = filmWords(a);
  at("film-b-figure").hidden = !b;
  at("film-b-words").textContent = b ? filmWords(b) : "";
  at("step").max = lastStep(a, b);
  showParting();
  const problems = [...a.problems, ...(b ? b.problems.map((each) => `compared: ${each}`) : [])];
  listProblems("problems", problems, "are missing or cannot be read");
  at("replan").hidden = !a.law;
  at("units").textContent = lawWords(a.law);
  at("legend").textContent = `Bands hold 50, 80 and 95 % of the prediction at each replan; the line is what was executed${b ? ", dotted what is compared" : ""}.`;
}

/** What a reader must know about the numbers of a law. */
function lawWords(law) {
  const units = law && !law.scale ? "Density and tracking use the robot's units here; qhead explore --policy NAME=FOLDER gives them the policy's. " : "";
  return units + (law?.later ? "In this file, chunk steps that were not executed are drawn from 8 bits; numbers are exact." : "");
}

function filmWords(episode) {
  const seen = episode.frames?.cameras > 1 ? "external camera, wrist camera" : "camera";
  return `${episode.row.policy}, ${episode.row.decoder}: ${episode.row.status}; ${episode.frames ? seen : "no pictures"}`;
}

function showParting() {
  const { a, b } = state;
  at("parting").hidden = !b;
  if (!b) return;
  const found = parting(a, b);
  at("parting").querySelector("span").textContent = partingWords(found);
  at("parting").dataset.step = found.hands ?? found.actions ?? 0;
}

// --- drawing ----------------------------------------------------------------------------------

let charts = Promise.resolve(), waitingCharts = 0;

/** Everything: after an episode was opened, the window resized or the scheme changed. One after the other. */
function redraw() {
  waitingCharts++;
  charts = charts.then(() => (--waitingCharts ? null : drawCharts()));
  return charts;
}

async function drawCharts() {
  const { a, b } = state, both = b ? [a, b] : [a];
  if (!a) return;
  render();
  await drawTimeline(at("timeline"), a, b);
  await drawPath(at("above"), both, ABOVE, ["x, m", "y, m (from above)"]);
  await drawPath(at("side"), both, SIDE, ["x, m", "z, m (from the side)"]);
  render();
  performance.mark("drawn");
  document.body.dataset.drawn = `${placeOf(a.row)}${b ? ` ${placeOf(b.row)}` : ""}`;
}

/** Only what moves with time. */
function render() {
  state.waiting = false;
  const { a, b, step } = state;
  if (!a) return;
  drawFrame(at("film-a"), a, step);
  if (b) drawFrame(at("film-b"), b, step);
  at("step").value = step;
  at("moment").textContent = `step ${step} of ${lastStep(a, b)}, ${(step / rate()).toFixed(2)} s`;
  moveCursor(at("timeline"), step);
  for (const [box, axes] of [["above", ABOVE], ["side", SIDE]]) moveDots(at(box), b ? [a, b] : [a], axes, step);
  renderReplan();
  later(writeLink);
}

function renderReplan() {
  const { a, b, step, decoded } = state;
  if (!a.law) return;
  const query = lastAt(a.querySteps, step);
  at("replan-title").textContent = `Replan ${query + 1} of ${a.querySteps.length}, at step ${a.querySteps[query]}`;
  drawChunk(at("chunk-a"), a, query, step, decoded[query]);
  at("chunk-b").hidden = !b?.law;
  if (b?.law) drawChunk(at("chunk-b"), b, lastAt(b.querySteps, step), step, null);
  drawValues(query);
}

/** Executed action, its rank, and the chosen decoder's action at this step, in numbers. */
function drawValues(query) {
  const { a, step, decoded } = state, inside = step - a.querySteps[query], d = a.d;
  const cells = (name, read) => {
    const line = element("tr");
    line.append(element("th", name), ...a.names.map((_, i) => element("td", shown(read(i)))));
    return line;
  };
  const head = element("tr");
  head.append(element("th", ""), ...a.names.map((name) => element("th", name)));
  const ranks = decoded[query].ranks, within = inside < a.law.shape[1] && step < a.steps;
  at("values").replaceChildren(head,
    cells("executed", (i) => (step < a.steps ? a.actions[step * d + i] : NaN)),
    cells("its rank", (i) => (within ? rankAt(a, step, i) : NaN)),
    cells(DECODERS[state.decoder.name].label, (i) => (within ? decoded[query].actions[inside * d + i] : NaN)),
    cells("rank read", (i) => ranks[i]));
}

function shown(value) {
  return Number.isFinite(value) ? value.toFixed(6) : "–";
}

function askRender() {
  if (state.waiting) return;
  state.waiting = true;
  requestAnimationFrame(render);
}

function moveTo(step) {
  if (!state.a) return;
  state.step = Math.max(0, Math.min(lastStep(state.a, state.b), Math.round(step)));
  askRender();
}

// --- decoders ---------------------------------------------------------------------------------

function redecode() {
  const { a, decoder } = state;
  for (const label of document.querySelectorAll("#decoding [data-for]")) {
    label.hidden = !DECODERS[decoder.name].parameters.includes(label.dataset.for);
    const told = label.querySelector("output");
    if (told) told.textContent = Number(decoder[label.dataset.for] ?? 0).toFixed(3);
    label.querySelector("input").value = decoder[label.dataset.for] ?? 0;
  }
  at("law").value = decoder.name;
  state.decoded = a?.law ? decodeEpisode(a, decoder) : [];
  askRender();
}

function chooseDecoder(name) {
  state.decoder = usual(name, state.a?.row);
  redecode();
}

/** A decoder with its usual parameters and the noise that the episode itself drew. */
function usual(name, row) {
  return { rank: 0.5, l: 0, rho: 0.9, ...DEFAULTS[name], seed: row?.noise ?? 0, name };
}

function wireDecoders() {
  for (const [name, { label }] of Object.entries(DECODERS)) at("law").append(new Option(label, name));
  at("law").addEventListener("input", () => chooseDecoder(at("law").value));
  for (const id of ["rank", "l", "rho", "seed"]) {
    at(id).addEventListener("input", () => {
      state.decoder[id] = id === "seed" ? Number(at(id).value) >>> 0 : Number(at(id).value);
      redecode();
    });
  }
  at("own-seed").addEventListener("click", () => { state.decoder.seed = state.a.row.noise; redecode(); });
}

// --- time -------------------------------------------------------------------------------------

/** Control steps per second of the robot's time. */
function rate() {
  const { steps, seconds } = state.a.row;
  return steps && seconds ? steps / seconds : 20;
}

function play() {
  const began = performance.now(), from = state.step >= lastStep(state.a, state.b) ? 0 : state.step;
  const advance = (now) => {
    moveTo(from + (now - began) / 1000 * rate());
    if (state.step >= lastStep(state.a, state.b)) pause();
    else state.playing = requestAnimationFrame(advance);
  };
  at("play").textContent = "pause";
  state.playing = requestAnimationFrame(advance);
}

function pause() {
  cancelAnimationFrame(state.playing);
  state.playing = null;
  at("play").textContent = "play";
}

function replanFrom(step, way) {
  const steps = state.a.querySteps, query = lastAt(steps, step);
  return way > 0 ? steps[query + 1] ?? step : steps[query] < step ? steps[query] : steps[Math.max(0, query - 1)] ?? 0;
}

// --- keys, links ------------------------------------------------------------------------------

const KEYS = {
  ArrowLeft: (event) => moveTo(event.shiftKey ? replanFrom(state.step, -1) : state.step - 1),
  ArrowRight: (event) => moveTo(event.shiftKey ? replanFrom(state.step, 1) : state.step + 1),
  ArrowUp: () => openNeighbour(-1),
  ArrowDown: () => openNeighbour(1),
  " ": () => (state.playing ? pause() : play()),
  n: () => openNeighbour(1, "failure"),
  p: () => openNeighbour(-1, "failure"),
};

function openNeighbour(way, only = null) {
  const row = table.neighbour(way, only);
  if (row) open(row);
}

function pressed(event) {
  const typing = event.target.matches("input[type=search], input[type=number], select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  if (!state.a && !["n", "ArrowDown"].includes(event.key)) return;
  event.preventDefault();
  KEYS[event.key](event);
}

const timers = new Map();
/** Do something once nothing asked for it for a while. */
function later(task) {
  clearTimeout(timers.get(task));
  timers.set(task, setTimeout(task, 300));
}

function writeLink() {
  const { a, b, step, decoder } = state, link = new URLSearchParams({ e: placeOf(a.row), t: step });
  if (b) link.set("c", placeOf(b.row));
  for (const [name, value] of Object.entries(decoder)) if (name === "name" || DECODERS[decoder.name].parameters.includes(name)) link.set(name, value);
  history.replaceState(null, "", `#${link}`);
}

/** Open what the address says, or the first episode. */
async function followLink() {
  const link = new URLSearchParams(location.hash.slice(1)), place = link.get("e") ?? "";
  const row = table.rows.find((each) => placeOf(each) === place) ?? table.rows.find((each) => place.endsWith(`/${each.id}`));
  if (place && !row) at("empty").textContent = "The link names an episode that is not here.";
  if (DECODERS[link.get("name")]) {
    state.decoder = usual(link.get("name"), row);
    for (const id of ["rank", "l", "rho", "seed"]) if (link.has(id)) state.decoder[id] = bounded(id, Number(link.get(id)));
  }
  if (row) await open(row, Math.max(0, Number(link.get("t")) | 0), link.get("c") ?? "");
  else if (!place && table.shown.length) await open(table.shown[0]);
}

function bounded(id, value) {
  if (!Number.isFinite(value)) return 0;
  return id === "seed" ? value >>> 0 : Math.min(Number(at(id).max), Math.max(Number(at(id).min), value));
}

async function refresh() {
  if (!document.hidden && state.index) {
    try {
      const stamp = await loadStamp();
      if (stamp !== state.index.stamp) showIndex(await loadIndex());
    } catch {
      at("facts").title = "the server does not answer";
    }
  }
  setTimeout(refresh, REFRESH);
}

function wire() {
  wireDecoders();
  at("step").addEventListener("input", () => moveTo(Number(at("step").value)));
  at("play").addEventListener("click", () => (state.playing ? pause() : play()));
  at("compare").addEventListener("input", () => open(state.a.row, state.step, at("compare").value));
  at("parting").querySelector("button").addEventListener("click", () => moveTo(Number(at("parting").dataset.step)));
  let down = 0;
  at("timeline").addEventListener("pointerdown", (event) => { down = event.clientX; }, true);
  at("timeline").addEventListener("pointerup", (event) => {
    if (Math.abs(event.clientX - down) < 4) moveTo(stepUnder(at("timeline"), event.clientX));
  }, true);
  addEventListener("keydown", pressed);
  addEventListener("hashchange", followLink);
  addEventListener("resize", () => later(redraw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

async function start() {
  wire();
  showIndex(await loadIndex());
  performance.mark("listed");
  document.body.dataset.listed = table.rows.length;
  await followLink();
  if (LIVE) setTimeout(refresh, REFRESH);
}

start();
