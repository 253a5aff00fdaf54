// Numbers without a page: normal law, intervals, quantile functions, and the random stream of torch on a CPU.

/** Phi(x), the standard normal CDF: a series near the middle, a continued fraction in the tails. */
export function phi(x) {
  const z = Math.abs(x);
  if (z > 38) return x > 0 ? 1 : 0;
  const density = Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI);
  const upper = z < 4 ? 0.5 - density * middleSeries(z) : density / tailFraction(z);
  return x > 0 ? 1 - upper : upper;
}

function middleSeries(z) {
  let term = z, sum = z;
  for (let n = 3; Math.abs(term) > 1e-17 * sum; n += 2) {
    term *= z * z / n;
    sum += term;
  }
  return sum;
}

function tailFraction(z) {
  let value = z;
  for (let n = 80; n > 0; n--) value = z + n / value;
  return value;
}

/** Wilson's 95 % interval of a success rate. */
export function wilson(successes, trials) {
  const z = 1.959963984540054, rate = successes / trials, scale = 1 + z * z / trials;
  const centre = (rate + z * z / (2 * trials)) / scale;
  const half = z / scale * Math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials));
  return [Math.max(0, Math.min(rate, centre - half)), Math.min(1, Math.max(rate, centre + half))];
}

/** Index of the segment of increasing `knots` (from `at`, `count` of them) that holds or continues to a value. */
export function segment(knots, value, at = 0, count = knots.length) {
  let low = 0, high = count - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[at + middle] <= value) low = middle; else high = middle;
  }
  return low;
}

/** Steps of a query's chunk of h that were executed, or would have been: until the next query or the end. */
export function executedSteps({ querySteps, steps }, query, h) {
  return Math.max(0, Math.min(h, (querySteps[query + 1] ?? steps) - querySteps[query]));
}

/** Q(rank): linear between the knots; the first and last segments go on to 0 and 1. */
export function quantileAt(levels, quantiles, at, rank) {
  const left = segment(levels, rank);
  const weight = (rank - levels[left]) / (levels[left + 1] - levels[left]);
  return quantiles[at + left] + weight * (quantiles[at + left + 1] - quantiles[at + left]);
}

/** The largest rank in [0, 1] with Q(rank) <= value. */
export function rankOf(levels, quantiles, at, value) {
  const left = segment(quantiles, value, at, levels.length);
  const low = quantiles[at + left], high = quantiles[at + left + 1];
  if (!(high > low)) return value < low ? 0 : 1;
  const rank = levels[left] + (value - low) / (high - low) * (levels[left + 1] - levels[left]);
  return Math.min(1, Math.max(0, rank));
}

/** torch.Generator on a CPU: Mersenne twister 19937. A page's seed gives the draws that Python's gives. */
export class TorchGenerator {
  constructor(seed) {
    this.words = new Uint32Array(624);
    this.words[0] = seed >>> 0;
    for (let i = 1; i < 624; i++) {
      const before = this.words[i - 1] ^ (this.words[i - 1] >>> 30);
      this.words[i] = Math.imul(before, 1812433253) + i;
    }
    this.next = 624;
    this.kept = null;
  }

  word() {
    if (this.next === 624) this.twist();
    let word = this.words[this.next++];
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  twist() {
    const words = this.words;
    for (let i = 0; i < 624; i++) {
      const mixed = (words[i] & 0x80000000) | (words[(i + 1) % 624] & 0x7fffffff);
      words[i] = words[(i + 397) % 624] ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
    }
    this.next = 0;
  }

  /** torch.randn(count): fewer than sixteen are drawn one by one in double precision, more in blocks of sixteen. */
  normal(count) {
    return count < 16 ? Float64Array.from({ length: count }, () => this.oneNormal()) : this.manyNormal(count);
  }

  oneNormal() {
    if (this.kept !== null) {
      const value = this.kept;
      this.kept = null;
      return Math.fround(value);
    }
    const turn = 2 * Math.PI * this.fraction53(), radius = Math.sqrt(-2 * Math.log1p(-this.fraction53()));
    this.kept = radius * Math.sin(turn);
    return Math.fround(radius * Math.cos(turn));
  }

  fraction53() {
    const high = this.word() & 0x1fffff, low = this.word();
    return (high * 4294967296 + low) / 9007199254740992;
  }

  manyNormal(count) {
    const values = new Float64Array(count), fill = (at) => {
      for (let i = at; i < at + 16; i++) values[i] = (this.word() & 0xffffff) / 16777216;
    };
    for (let i = 0; i < count; i++) values[i] = (this.word() & 0xffffff) / 16777216;
    for (let at = 0; at + 16 <= count; at += 16) boxMuller(values, at);
    if (count % 16) {
      fill(count - 16);
      boxMuller(values, count - 16);
    }
    return values;
  }
}

function boxMuller(values, at) {
  for (let i = at; i < at + 8; i++) {
    const radius = Math.sqrt(-2 * Math.log(1 - values[i])), turn = 2 * Math.PI * values[i + 8];
    values[i] = Math.fround(radius * Math.cos(turn));
    values[i + 8] = Math.fround(radius * Math.sin(turn));
  }
}
