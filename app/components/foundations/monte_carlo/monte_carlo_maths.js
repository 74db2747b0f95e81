// Means of samples: how they run, their 95 % interval, and how fast their error falls.

// Of each problem: one draw, the true mean and standard deviation, and the values that its chart shows.
const PROBLEMS = {
  die: { truth: 3.5, deviation: Math.sqrt(35 / 12), view: [1, 6], draw: (random) => 1 + Math.floor(6 * random()) },
  darts: { truth: Math.PI, deviation: Math.sqrt(Math.PI * (4 - Math.PI)), view: [1, 4.5],
    draw: (random) => (random() ** 2 + random() ** 2 < 1 ? 4 : 0) },
  rare: { truth: 0.001, deviation: Math.sqrt(0.001 * 0.999), view: [0, 0.008], draw: (random) => Number(random() < 0.001) },
  // Pareto with α = 1.5 from 1 up: P(X > x) = x^−1.5. Its mean is α/(α − 1), its variance infinite.
  heavy: { truth: 3, deviation: Infinity, view: [1, 9], draw: (random) => (1 - random()) ** (-1 / 1.5) },
};

const Z95 = 1.959963984540054; // a standard normal number is between −Z95 and Z95 with probability 0.95

// Half the width of the 95 % interval of a mean, from the samples themselves: z s/√n; infinite for one sample.
const halfWidth = (n, squares) => (n > 1 ? Z95 * Math.sqrt(squares / (n - 1) / n) : Infinity);

// The running mean of one sequence at each of `sizes` (increasing): [[n, mean, half width of its interval, s], …].
// Welford 1962: `squares` is the sum of (x − mean)².
function running(draw, sizes, seed) {
  const random = randomOf(seed), found = [];
  let n = 0, mean = 0, squares = 0;
  for (const size of sizes) {
    while (n < size) {
      const x = draw(random), before = x - mean;
      n += 1;
      mean += before / n;
      squares += before * (x - mean);
    }
    found.push([n, mean, halfWidth(n, squares), n > 1 ? Math.sqrt(squares / (n - 1)) : NaN]);
  }
  return found;
}

// Of `repeats` such sequences at each size: the root mean square error, and the share of intervals that hold the truth.
function errors({ draw, truth }, sizes, repeats, seed) {
  const sums = new Float64Array(sizes.length), held = new Float64Array(sizes.length);
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    running(draw, sizes, seed + 7919 * (repeat + 1)).forEach(([, mean, half], i) => {
      sums[i] += (mean - truth) ** 2;
      held[i] += Math.abs(mean - truth) <= half;
    });
  }
  return sizes.map((n, i) => [n, Math.sqrt(sums[i] / repeats), held[i] / repeats]);
}

// The straight line through (log n, log error) by least squares: { slope, at(n) }; points without an error are left out.
function slopeOf(points) {
  const logs = points.filter(([, error]) => error > 0).map(([n, error]) => [Math.log(n), Math.log(error)]);
  const x = total(logs.map(([each]) => each)) / logs.length, y = total(logs.map(([, each]) => each)) / logs.length;
  const slope = total(logs.map(([a, b]) => (a - x) * (b - y))) / total(logs.map(([a]) => (a - x) ** 2));
  return { slope, at: (n) => Math.exp(y + slope * (Math.log(n) - x)) };
}

// Whole numbers from 1 to n, about `count` of them, evenly spread by factors; the last is n.
function spacedTo(n, count) {
  const made = new Set(Array.from({ length: count }, (_, i) => Math.round(n ** (i / (count - 1)))));
  return [...made].sort((a, b) => a - b);
}

const doubledTo = (n) => [...Array.from({ length: Math.floor(Math.log2(n)) + 1 }, (_, i) => 2 ** i), n]
  .filter((each, i, all) => all.indexOf(each) === i);
