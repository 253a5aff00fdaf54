// Where the page's data come from: the server that gave it out, or the file it is in.
import { restored } from "./condensed.js";

const inside = document.getElementById("data");
const embedded = inside && JSON.parse(inside.textContent);

export const LIVE = !embedded;

async function fetched(address, how) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer[how]();
}

/** { columns, rows, runs, stamp } of all episodes. */
export async function loadIndex() {
  return embedded ? embedded.index : fetched("/data/index.json", "json");
}

/** Changes when a journal has grown. */
export async function loadStamp() {
  return (await fetched("/data/stamp.json", "json")).stamp;
}

/** Place -> { spread, alarm } of some episodes. */
export async function loadSummaries(places) {
  if (embedded) return embedded.summaries;
  return fetched(`/data/summaries.json?episodes=${places.join(",")}`, "json");
}

/** One episode: its arrays, its law, its pictures. */
export async function loadEpisode(row, units) {
  const place = placeOf(row);
  const buffer = embedded ? await inflated(bytesOf(embedded.episodes[place]))
    : await fetched(`/data/episode/${place}`, "arrayBuffer");
  return unpacked(buffer, row, units);
}

/** What an episode is called in addresses and links: its run's number and its digest. */
export function placeOf(row) {
  return `${row.run}/${row.id}`;
}

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function inflated(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

async function unpacked(buffer, row, units) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, { type, shape, offset }] of Object.entries(header.arrays)) {
    arrays[name] = new TYPES[type](buffer, 4 + length + offset, shape.reduce((a, b) => a * b, 1));
  }
  const shapeOf = (name) => header.arrays[name]?.shape ?? [0, 0];
  const [steps, d] = shapeOf("actions"), querySteps = arrays.query_steps ?? new Int32Array(0);
  return {
    row, steps, d, querySteps, names: header.names, problems: header.problems, frames: header.frames,
    actions: arrays.actions, states: arrays.states, stateDim: shapeOf("states")[1], contacts: arrays.contacts,
    perQuery: Object.fromEntries(["surprise", "alarm"].filter((n) => arrays[n]).map((n) => [n, arrays[n]])),
    law: header.levels && lawOf(arrays, header, { querySteps, steps }, units),
    sheet: arrays.sheet && await createImageBitmap(new Blob([arrays.sheet], { type: `image/${header.frames.encoding}` })),
  };
}

function lawOf(arrays, header, timing, units) {
  const shape = header.law_shape;
  const known = units && units.scale.length === shape[2];
  const grippers = known ? units.grippers : shape[2] > 1 ? [shape[2] - 1] : [];
  const found = arrays.quantiles ? { quantiles: arrays.quantiles } : restored(arrays, timing, shape);
  return { ...found, levels: header.levels, shape, grippers, scale: known ? units.scale : null };
}
