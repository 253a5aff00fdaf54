// The decoders of the Python package, on the quantiles of a whole episode. Names and parameters are `qhead decoders`'.
//
// A chunk's law is { levels, quantiles, at, h, d, k }: its knots begin at `at` of a flat array with axes (h, d, k).
// Densities and widths are in normalised units where `scale` (commands per normalised unit) is known. Those of its
// first `exact` steps are computed from the knots, those of the others are in `later` (see condensed.js).
import { TorchGenerator, executedSteps, phi, quantileAt } from "./numbers.js";

export const DECODERS = {
  median: { label: "median", parameters: [] },
  shared: { label: "shared rank", parameters: ["l", "rho", "seed"] },
  independent: { label: "independent ranks", parameters: ["l", "rho", "seed"] },
  window: { label: "window", parameters: ["l", "rho", "seed"] },
  density: { label: "density-weighted", parameters: ["rho", "seed"] },
  tracking: { label: "tracking", parameters: ["seed"] },
  rank: { label: "one rank", parameters: ["rank"] },
};
export const DEFAULTS = {
  shared: { l: 0, rho: 0.9 }, independent: { l: 0, rho: 0.9 }, window: { l: 0.2, rho: 0 }, density: { rho: 0.9 },
};
const WINDOW_TEMPERATURE = 0.35, EXPONENT = 2, CHOICE_WIDTH = 0.2, HOLD = 0.1, SMALLEST_GAP = 1e-6;

/** Actions (h, d) and ranks (d) of every replan: [{ actions, ranks }], as the decoder would have answered each. */
export function decodeEpisode(episode, decoder) {
  const { quantiles, levels, shape: [queries, h, d, k], grippers, scale, later } = episode.law;
  const generator = new TorchGenerator(decoder.seed ?? 0), route = { rank: null };
  let latent = null;
  return Array.from({ length: queries }, (_, query) => {
    const law = { levels, quantiles, at: query * h * d * k, h, d, k, scale, exact: h };
    if (later) Object.assign(law, { exact: executedSteps(episode, query, h), later: laterOf(later, query, d, k) });
    latent = nextLatent(latent, temporalRho(decoder), generator.normal(d));
    const motion = Array.from({ length: d }, (_, i) => i).filter((i) => !grippers.includes(i));
    const last = query ? lastExecuted(episode, query) : null;
    const ranks = chunkRanks(decoder, law, latent, motion, route, last);
    for (const i of grippers) ranks[i] = 0.5;
    return { ranks, actions: readAt(law, ranks) };
  });
}

function laterOf({ densities, widths }, query, d, k) {
  const size = d * (k - 1);
  return { densities: densities.subarray(query * size, (query + 1) * size), widths: widths.subarray(query * d, (query + 1) * d) };
}

/** Q(rank) of every step and dimension. */
export function readAt(law, ranks) {
  const actions = new Float64Array(law.h * law.d);
  for (let step = 0; step < law.h; step++) {
    for (let i = 0; i < law.d; i++) {
      actions[step * law.d + i] = quantileAt(law.levels, law.quantiles, knotsOf(law, step, i), ranks[i]);
    }
  }
  return actions;
}

function knotsOf(law, step, i) {
  return law.at + (step * law.d + i) * law.k;
}

function temporalRho(decoder) {
  return decoder.name === "tracking" ? 1 : decoder.rho ?? 0;
}

/** z_k = rho z_{k-1} + sqrt(1 - rho^2) eps_k, z_0 = eps_0. */
function nextLatent(before, rho, drawn) {
  return before === null ? drawn : drawn.map((eps, i) => rho * before[i] + Math.sqrt(1 - rho * rho) * eps);
}

function lastExecuted(episode, query) {
  const d = episode.law.shape[2], step = episode.querySteps[query] - 1;
  return episode.actions.subarray(step * d, step * d + d);
}

function chunkRanks(decoder, law, latent, motion, route, last) {
  const everywhere = (rank) => new Float64Array(law.d).fill(rank), first = latent[motion[0] ?? 0];
  switch (decoder.name) {
    case "median": return everywhere(0.5);
    case "rank": return everywhere(decoder.rank);
    case "shared": return everywhere(windowRank(decoder.l, first));
    case "independent": return latent.map((z) => windowRank(decoder.l, z));
    case "window": return latent.map((z) => windowRank(decoder.l, WINDOW_TEMPERATURE * z));
    case "density": return everywhere(densityRank(law, motion, first));
    case "tracking": return trackedRanks(law, motion, first, route, last);
    default: throw new Error(`decoder must be one of ${Object.keys(DECODERS)}; got ${decoder.name}`);
  }
}

/** l + (1 - 2 l) Phi(z). */
function windowRank(l, z) {
  return l + (1 - 2 * l) * phi(z);
}

/** One rank, drawn in proportion to the square of the mean density of these coordinates. */
function densityRank(law, coordinates, z) {
  const { edges, cdf } = intervalCdf(law, densityScore(law, coordinates));
  const value = phi(z);
  let left = 0;
  while (left < cdf.length - 2 && cdf[left + 1] <= value) left++;
  const mass = Math.max(cdf[left + 1] - cdf[left], Number.MIN_VALUE);
  const inside = Math.min(1, Math.max(0, (value - cdf[left]) / mass));
  return edges[left] + inside * (edges[left + 1] - edges[left]);
}

function densityScore(law, coordinates) {
  const score = new Float64Array(law.k - 1), count = law.k - 1;
  if (law.later) for (const i of coordinates) for (let j = 0; j < count; j++) score[j] += law.later.densities[i * count + j];
  for (let step = 0; step < law.exact; step++) {
    for (const i of coordinates) {
      const at = knotsOf(law, step, i), unit = law.scale ? law.scale[i] : 1;
      for (let j = 0; j < count; j++) {
        const gap = (law.quantiles[at + j + 1] - law.quantiles[at + j]) / unit;
        score[j] += (law.levels[j + 1] - law.levels[j]) / Math.max(gap, SMALLEST_GAP);
      }
    }
  }
  return score;
}

/** The learned intervals plus two outer ones, which copy their neighbour's score. */
function intervalCdf(law, score) {
  const edges = [0, ...law.levels, 1], scores = [score[0], ...score, score[score.length - 1]];
  const most = Math.max(...scores);
  const weights = scores.map((s, j) => (edges[j + 1] - edges[j]) * (s / most) ** EXPONENT);
  const cdf = [0];
  for (const weight of weights) cdf.push(cdf[cdf.length - 1] + weight);
  return { edges, cdf: cdf.map((mass) => mass / cdf[cdf.length - 1]) };
}

/** A density-weighted rank at the first fork, then the rank whose chunk goes on as the executed actions went. */
function trackedRanks(law, motion, z, route, last) {
  const wide = motion.filter((i) => widest(law, i) > CHOICE_WIDTH);
  if (wide.length) {
    const known = route.rank !== null && last !== null;
    route.rank = known ? followed(law, wide, route.rank, last) : densityRank(law, wide, z);
  }
  const ranks = new Float64Array(law.d).fill(0.5);
  for (const i of wide) ranks[i] = route.rank;
  return ranks;
}

/** The largest central 80 % of a coordinate over the steps of a chunk. */
function widest(law, i) {
  let most = law.later?.widths[i] ?? -Infinity;
  for (let step = 0; step < law.exact; step++) {
    const at = knotsOf(law, step, i), read = (rank) => quantileAt(law.levels, law.quantiles, at, rank);
    most = Math.max(most, (read(0.9) - read(0.1)) / (law.scale ? law.scale[i] : 1));
  }
  return most;
}

function followed(law, wide, rank, last) {
  let best = rank, least = Infinity;
  for (const candidate of [...law.levels, rank]) {
    let away = 0;
    for (const i of wide) {
      const first = quantileAt(law.levels, law.quantiles, knotsOf(law, 0, i), candidate);
      away += Math.abs(first - last[i]) / (law.scale ? law.scale[i] : 1);
    }
    const misfit = away / wide.length + HOLD * Math.abs(candidate - rank);
    if (misfit < least) [best, least] = [candidate, misfit];
  }
  return best;
}
