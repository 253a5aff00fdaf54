// What moves with time, drawn by hand: camera frames and the fan of one chunk.
import { executedSteps, quantileAt } from "./numbers.js";

export const BANDS = [[0.025, 0.975, 0.16], [0.1, 0.9, 0.22], [0.25, 0.75, 0.34]];

/** A colour of the page's scheme. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Number of the last place in an increasing list that is not beyond a step. */
export function lastAt(steps, step) {
  let found = 0;
  while (found + 1 < steps.length && steps[found + 1] <= step) found++;
  return found;
}

/** The frame that the policy saw last at a step. */
export function drawFrame(canvas, episode, step) {
  if (!episode.sheet) {
    canvas.width = 320;
    canvas.height = 24;
    const pen = canvas.getContext("2d");
    pen.fillStyle = colour("muted");
    pen.fillText("no pictures", 8, 16);
    return;
  }
  const { columns, width, height, steps } = episode.frames, number = lastAt(steps, step);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const x = number % columns * width, y = Math.floor(number / columns) * height;
  canvas.getContext("2d").drawImage(episode.sheet, x, y, width, height, 0, 0, width, height);
}

/** The law of a chunk per dimension: fan, median, what was executed, what a decoder would do. */
export function drawChunk(canvas, episode, query, step, decoded) {
  const law = episode.law, sharp = devicePixelRatio || 1, width = canvas.clientWidth;
  if (!law || !width) return;
  const columns = Math.max(2, Math.floor(width / 190)), cell = width / columns, tall = 104;
  const rows = Math.ceil(law.shape[2] / columns);
  canvas.width = width * sharp;
  canvas.height = rows * tall * sharp;
  canvas.style.height = `${rows * tall}px`;
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.font = "11px system-ui, sans-serif";
  const palette = Object.fromEntries(["quantile", "ink", "muted", "grid", "right", "failure"].map((n) => [n, colour(n)]));
  for (let i = 0; i < law.shape[2]; i++) {
    const box = { x: (i % columns) * cell + 46, y: Math.floor(i / columns) * tall + 18, w: cell - 52, h: tall - 32 };
    drawFan(pen, box, { episode, query, step, decoded, i, palette });
  }
}

function drawFan(pen, box, { episode, query, step, decoded, i, palette }) {
  const { quantiles, levels, shape: [, h, d, k] } = episode.law, began = episode.querySteps[query];
  const at = (s) => ((query * h + s) * d + i) * k;
  const edge = (rank) => Array.from({ length: h }, (_, s) => quantileAt(levels, quantiles, at(s), rank));
  const executed = Array.from({ length: executedSteps(episode, query, h) }, (_, s) => episode.actions[(began + s) * d + i]);
  const drawn = decoded && Array.from({ length: h }, (_, s) => decoded.actions[s * d + i]);
  const [low, high] = [edge(0.025), edge(0.975)];
  const values = [...low, ...high, ...executed, ...(drawn ?? [])].filter(Number.isFinite);
  const [bottom, top] = roomy(Math.min(...values), Math.max(...values));
  const px = (s) => box.x + (h > 1 ? s / (h - 1) : 0.5) * box.w;
  const py = (v) => box.y + (top - v) / (top - bottom) * box.h;
  pen.strokeStyle = palette.grid;
  pen.strokeRect(box.x, box.y, box.w, box.h);
  for (const [a, b, opacity] of BANDS) fillBand(pen, edge(a), edge(b), px, py, palette.quantile, opacity);
  line(pen, edge(0.5), px, py, palette.quantile, 1.2);
  line(pen, executed, px, py, palette.ink, 1.8);
  if (drawn) line(pen, drawn, px, py, palette.right, 1.8, [4, 2]);
  const inside = step - began;
  if (inside < h) line(pen, [top, bottom], () => px(inside), py, palette.failure, 1);
  pen.fillStyle = palette.ink;
  pen.fillText(episode.names[i], box.x, box.y - 5);
  pen.fillStyle = palette.muted;
  pen.textAlign = "right";
  for (const value of [bottom, top]) pen.fillText(brief(value), box.x - 3, py(value) + (value === top ? 8 : 0));
  pen.textAlign = "left";
}

function brief(value) {
  return Math.abs(value) < 0.001 ? value.toExponential(1) : value.toPrecision(3);
}

function roomy(low, high) {
  const room = Math.max((high - low) * 0.06, 1e-4);
  return [low - room, high + room];
}

function fillBand(pen, low, high, px, py, shade, opacity) {
  pen.globalAlpha = opacity;
  pen.fillStyle = shade;
  pen.beginPath();
  low.forEach((v, s) => (s ? pen.lineTo(px(s), py(v)) : pen.moveTo(px(s), py(v))));
  for (let s = high.length - 1; s >= 0; s--) pen.lineTo(px(s), py(high[s]));
  pen.fill();
  pen.globalAlpha = 1;
}

function line(pen, values, px, py, shade, width, dash = []) {
  pen.strokeStyle = shade;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  let down = false;
  values.forEach((v, s) => {
    if (!Number.isFinite(v)) { down = false; return; }
    if (down) pen.lineTo(px(s), py(v)); else pen.moveTo(px(s), py(v));
    down = true;
  });
  pen.stroke();
  pen.setLineDash([]);
}
