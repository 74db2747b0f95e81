// Variance reduction, in numbers. First the mean of a curve f(U), U uniform on 0 to 1; then the gradient of a bandit.

// The curve through three heights at u = 0, ½, 1 is α + βv + γv² with v = u − ½.
function curveOf([left, middle, right]) {
  return { alpha: middle, beta: right - left, gamma: 2 * (left + right - 2 * middle) };
}

const heightAt = ({ alpha, beta, gamma }, u) => alpha + beta * (u - 0.5) + gamma * (u - 0.5) ** 2;

// Exact: the mean, the variance of one evaluation, and each estimator's variance over the plain one's at as many
// evaluations. E v² = 1/12 and Var v² = 1/180; v is the control variate, whose mean is 0.
function curveTruth({ alpha, beta, gamma }) {
  const odd = beta ** 2 / 12, even = gamma ** 2 / 180, variance = odd + even;
  const over = (value) => (variance > 0 ? value / variance : NaN);
  return { mean: alpha + gamma / 12, variance, coefficient: beta, // Cov(f, v) / Var v
    ratios: { plain: over(variance), control: over(even), antithetic: over(2 * even) } };
}

// One batch of `n` evaluations (n even), of the same random numbers `u` by all: the mirrored pairs are of the first half.
function curveEstimates(curve, u) {
  const n = u.length, f = u.map((each) => heightAt(curve, each)), plain = meanOf(f);
  const centre = meanOf(u), v = u.map((each) => each - 0.5);
  let both = 0, own = 0;
  for (let at = 0; at < n; at++) { both += (u[at] - centre) * (f[at] - plain); own += (u[at] - centre) ** 2; }
  const fitted = own > 0 ? both / own : 0;
  let pairs = 0;
  for (let at = 0; at < n / 2; at++) pairs += (f[at] + heightAt(curve, 1 - u[at])) / 2;
  return { plain, control: plain - fitted * meanOf(v), antithetic: pairs / (n / 2), fitted };
}

// `repeats` batches: each estimator's estimates. Antithetic evaluates 2 · n/2 times, as often as the others.
function curveDraws(curve, n, repeats, uniform) {
  const draws = { plain: [], control: [], antithetic: [] };
  for (let at = 0; at < repeats; at++) {
    const one = curveEstimates(curve, Array.from({ length: n }, uniform));
    for (const name of Object.keys(draws)) draws[name].push(one[name]);
  }
  return draws;
}

function meanOf(values) { return total(values) / values.length; }

function varianceOf(values) {
  const centre = meanOf(values);
  return values.reduce((sum, each) => sum + (each - centre) ** 2, 0) / (values.length - 1);
}

// ---- the gradient of a bandit: π is a softmax of logits, an action a earns rewards[a] ----------------------------

const BASELINES = ["none", "mean", "loo", "optimal"];

const scoreOf = (pi, action) => pi.map((each, k) => (k === action ? 1 : 0) - each); // ∂ log π(a) / ∂ logits

const dot = (one, other) => one.reduce((sum, each, k) => sum + each * other[k], 0);

const lengthOf = (vector) => dot(vector, vector); // squared

// J, ∇J_k = π_k (R_k − J), and the constant b that gives the least variance: rewards weighed by π ‖∇ log π‖².
function banditTruth(pi, rewards) {
  const value = dot(pi, rewards);
  const weights = pi.map((each, k) => each * lengthOf(scoreOf(pi, k)));
  const best = total(weights) > 0 ? dot(weights, rewards) / total(weights) : value;
  return { value, gradient: pi.map((each, k) => each * (rewards[k] - value)), best };
}

// Exact variance (summed over the logits) of the mean of G terms (R − b) ∇ log π with a constant b: a parabola in b.
function constantVariance(pi, rewards, b, size) {
  const { gradient } = banditTruth(pi, rewards);
  const second = pi.reduce((sum, each, k) => sum + each * (rewards[k] - b) ** 2 * lengthOf(scoreOf(pi, k)), 0);
  return (second - lengthOf(gradient)) / size;
}

// What a batch with `counts` of each action gives, with the baseline `kind`.
function batchGradient(pi, rewards, counts, kind, best) {
  const size = total(counts);
  const sum = dot(counts, rewards), mean = sum / size;
  const found = pi.map(() => 0);
  counts.forEach((count, action) => {
    if (!count) return;
    const baseline = { none: 0, mean, loo: (sum - rewards[action]) / (size - 1), optimal: best }[kind];
    const weight = (count / size) * (rewards[action] - baseline), score = scoreOf(pi, action);
    for (let k = 0; k < pi.length; k++) found[k] += weight * score[k];
  });
  return found;
}

// Exact: mean and variance (summed over the logits) of what a batch of `size` draws gives. Leave one out is the mean over
// all pairs of h(a, b) = ½ (R_a − R_b)(∇ log π(a) − ∇ log π(b)), whose variance is Hoeffding's (1948, for U-statistics):
// (4 (G − 2) Var E[h | a] + 2 Var h) / (G (G − 1)). The group's mean gives (G − 1)/G of leave one out, whatever is drawn.
function batchMoments(pi, rewards, size, kind) {
  const { gradient, best } = banditTruth(pi, rewards), norm = lengthOf(gradient), scale = kind === "mean" ? (size - 1) / size : 1;
  const mean = gradient.map((each) => scale * each), bias = (1 - scale) * Math.sqrt(norm);
  const shown = norm > 1e-18 ? scale : NaN;
  if (kind === "none" || kind === "optimal") {
    return { mean, bias, scale: shown, variance: constantVariance(pi, rewards, kind === "none" ? 0 : best, size) };
  }
  let one = 0, both = 0;
  pi.forEach((p, a) => {
    const given = pi.map(() => 0);
    pi.forEach((q, b) => {
      const half = (rewards[a] - rewards[b]) / 2; // of the two gradients π goes: e_a − e_b is left
      given[a] += q * half;
      given[b] -= q * half;
      both += a === b ? 0 : p * q * 2 * half ** 2;
    });
    one += p * lengthOf(given);
  });
  const variance = (4 * (size - 2) * (one - norm) + 2 * (both - norm)) / (size * (size - 1));
  return { mean, bias, scale: shown, variance: scale ** 2 * Math.max(0, variance) };
}

// The same estimated: mean and variance over `repeats` batches, all baselines on the same draws.
function batchEstimates(pi, rewards, size, repeats, uniform) {
  const { best } = banditTruth(pi, rewards), next = drawerOf(pi, uniform);
  const sums = Object.fromEntries(BASELINES.map((kind) => [kind, { mean: pi.map(() => 0), second: 0 }]));
  for (let at = 0; at < repeats; at++) {
    const counts = pi.map(() => 0);
    for (let n = 0; n < size; n++) counts[next()] += 1;
    for (const kind of BASELINES) {
      const one = batchGradient(pi, rewards, counts, kind, best);
      for (let k = 0; k < pi.length; k++) sums[kind].mean[k] += one[k] / repeats;
      sums[kind].second += lengthOf(one) / repeats;
    }
  }
  return Object.fromEntries(BASELINES.map((kind) => [kind, { mean: sums[kind].mean,
    variance: (sums[kind].second - lengthOf(sums[kind].mean)) * repeats / (repeats - 1) }]));
}
