// Quantiles of a page in one file: every digit of executed steps, eight bits of later ones, which are only drawn.
import { executedSteps } from "./numbers.js";

const STEPS_OF_RANGE = 255;

/** All quantiles, and `later`: sums of densities and largest widths of the steps that were not executed. */
export function restored(arrays, timing, [queries, h, d, k]) {
  const quantiles = new Float32Array(queries * h * d * k), size = d * k;
  let executed = 0, later = 0;
  for (let query = 0; query < queries; query++) {
    const count = executedSteps(timing, query, h), at = query * h * size;
    quantiles.set(arrays.executed.subarray(executed, executed += count * size), at);
    for (let place = count * size; place < h * size; place++) {
      const i = 2 * (query * d + Math.floor(place / k) % d), low = arrays.later_range[i], high = arrays.later_range[i + 1];
      quantiles[at + place] = low + arrays.later[later++] / STEPS_OF_RANGE * (high - low);
    }
  }
  return { quantiles, later: { densities: arrays.later_densities, widths: arrays.later_widths } };
}
