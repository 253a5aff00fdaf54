// Two episodes on the same key: same scene, task, initial state and seed, another policy or decoder.

const APART = 0.01;

/** The episodes that one can be compared with. */
export function counterparts(rows, row) {
  const same = (other) => ["scene", "task", "index", "seed"].every((name) => other[name] === row[name]);
  return rows.filter((other) => other !== row && same(other));
}

/** The first steps at which actions differ at all and at which the hands are a centimetre apart; null for never. */
export function parting(a, b) {
  return { actions: firstStep(a, b, "actions", "d", 1e-6, maximum), hands: firstStep(a, b, "states", "stateDim", APART, distance) };
}

function firstStep(a, b, array, width, least, measure) {
  if (!a[array] || !b[array] || a[width] !== b[width]) return null;
  const n = a[width], count = Math.min(a[array].length, b[array].length) / n;
  for (let t = 0; t < count; t++) {
    if (measure(a[array].subarray(t * n, t * n + n), b[array].subarray(t * n, t * n + n)) > least) return t;
  }
  return null;
}

function maximum(x, y) {
  return Math.max(...x.map((value, i) => Math.abs(value - y[i])));
}

function distance(x, y) {
  return Math.hypot(...x.subarray(0, 3).map((value, i) => value - y[i]));
}

/** The same in words. */
export function partingWords({ actions, hands }) {
  if (actions === null) return "Their actions are the same as long as both go on.";
  const apart = hands === null ? "their hands stay within a centimetre" : `their hands are a centimetre apart at step ${hands}`;
  return `Their actions differ from step ${actions} on; ${apart}.`;
}
