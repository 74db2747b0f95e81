// Three estimators of KL(π‖π_ref) from samples of π, the one with its ratio upside down, and what each does in a loss.
//
// p is π, the policy; q is π_ref, the reference; both are above 0 for every outcome. All values are in nats.

// Of one outcome: what the estimator says when it is drawn (Schulman 2020, joschu.net/blog/kl-approx.html).
const ESTIMATORS = {
  k1: (p, q) => Math.log(p / q),
  k2: (p, q) => Math.log(p / q) ** 2 / 2,
  k3: (p, q) => q / p - 1 - Math.log(q / p),
  upside_down: (p, q) => p / q - 1 - Math.log(p / q),
};

// ∂/∂log π of what stands in the loss, where the samples were drawn by this π (so ρ = π/π_old = 1, ∂ρ/∂log π = 1).
const PULLS = {
  k1: () => 1,
  k2: (p, q) => Math.log(p / q),
  ratio_k3: (p, q) => ESTIMATORS.k3(p, q) + 1 - q / p,
  k3: (p, q) => 1 - q / p,
  upside_down: (p, q) => p / q - 1,
};

const meanOf = (p, values) => total(p.map((each, i) => each * values[i]));
const deviationOf = (p, values) => Math.sqrt(Math.max(0, meanOf(p, values.map((each) => each ** 2)) - meanOf(p, values) ** 2));

// { mean, deviation } of the mean of n samples, exactly: by enumeration of the outcomes.
function exactly(name, p, q, n) {
  const values = p.map((each, i) => ESTIMATORS[name](each, q[i]));
  return { mean: meanOf(p, values), deviation: deviationOf(p, values) / Math.sqrt(n) };
}

// Of each estimator `repeats` estimates, each the mean over the same n samples: { k1: Float64Array, … }.
function estimates(p, q, n, repeats, seed) {
  const names = Object.keys(ESTIMATORS), tables = names.map((name) => Float64Array.from(p, (each, i) => ESTIMATORS[name](each, q[i])));
  const found = names.map(() => new Float64Array(repeats)), draw = drawerOf(p, randomOf(seed));
  const counts = new Int32Array(p.length);
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    counts.fill(0);
    for (let i = 0; i < n; i += 1) counts[draw()] += 1;
    for (let k = 0; k < names.length; k += 1) {
      let sum = 0;
      for (let i = 0; i < counts.length; i += 1) sum += counts[i] * tables[k][i];
      found[k][repeat] = sum / n;
    }
  }
  return Object.fromEntries(names.map((name, k) => [name, found[k]]));
}

function measured(values) {
  let sum = 0, squares = 0;
  for (const each of values) sum += each;
  const mean = sum / values.length;
  for (const each of values) squares += (each - mean) ** 2;
  return { mean, deviation: Math.sqrt(squares / (values.length - 1)) };
}

// The share of values in each of `count` bins from low to high; what lies outside is in none.
function histogram(values, low, high, count) {
  const bins = new Float64Array(count);
  for (const each of values) {
    const at = Math.floor((each - low) / (high - low) * count);
    if (at >= 0 && at < count) bins[at] += 1 / values.length;
  }
  return bins;
}

// The mean gradient by the logits of π when the estimator stands in the loss, exactly, by enumeration:
// ∂/∂θ_j = Σ_i p_i c_i (1[i = j] − p_j) = p_j (c_j − Σ p c), with c = PULLS.
function gradientOf(name, p, q) {
  const pulls = p.map((each, i) => PULLS[name](each, q[i])), mean = meanOf(p, pulls);
  return p.map((each, j) => each * (pulls[j] - mean));
}

// ∇KL(π‖π_ref) and ∇KL(π_ref‖π) by the logits of π.
function exactGradients(p, q) {
  const logs = p.map((each, i) => Math.log(each / q[i])), mean = meanOf(p, logs);
  return { forward: p.map((each, j) => each * (logs[j] - mean)), other: p.map((each, j) => each - q[j]) };
}
