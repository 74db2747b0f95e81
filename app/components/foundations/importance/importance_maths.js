// Importance sampling, in numbers. First two Gaussians: samples come from q = N(0, 1), the question is about
// p = N(m, s²). Then policies over a few answers: sampled by π_old, asked about π.

const densityOf = (x, m = 0, s = 1) => Math.exp(-0.5 * ((x - m) / s) ** 2) / (s * Math.sqrt(2 * Math.PI));

const weightOf = (x, m, s) => Math.exp(0.5 * (x ** 2 - ((x - m) / s) ** 2)) / s;

// Exact moments of the weights w = p(x)/q(x), x from q, and of the terms w x, whose mean is E_p x = m. Where s² ≥ 2
// the tails of p outweigh those of q so much that the variance is infinite. `share` is what Kish's effective sample
// size tends to, over n.
function weightTruth(m, s) {
  const room = 2 - s ** 2;
  if (room <= 0) return { second: Infinity, share: 0, variance: Infinity };
  const second = Math.exp(m ** 2 / room) / (s * Math.sqrt(room)); // E w²
  const spread = s ** 2 / room, centre = 2 * m / room; // w² q is proportional to N(centre, spread)
  return { second, share: 1 / second, variance: second * (spread + centre ** 2) - m ** 2 };
}

// Kish's effective sample size of n weights: n where all are alike, 1 where one outweighs all others.
function kish(weights) {
  let sum = 0, squares = 0;
  for (const each of weights) { sum += each; squares += each ** 2; }
  return squares > 0 ? sum ** 2 / squares : 0;
}

const GRID = { from: -12, to: 12, cells: 2400 }; // in standard deviations of q; beyond them nothing counts

// Exact, by the midpoint rule: bias and variance of min(w, limit) · x about E_p x.
function clippedTruth(m, s, limit) {
  const width = (GRID.to - GRID.from) / GRID.cells;
  let mean = 0, second = 0;
  for (let cell = 0; cell < GRID.cells; cell++) {
    const x = GRID.from + (cell + 0.5) * width, term = Math.min(weightOf(x, m, s), limit) * x;
    const mass = densityOf(x) * width;
    mean += mass * term;
    second += mass * term ** 2;
  }
  return { mean, bias: mean - m, variance: second - mean ** 2 };
}

const errorsOf = ({ bias, variance }, n) => ({ bias: bias ** 2, variance: variance / n, all: bias ** 2 + variance / n });

// Squared bias, variance and their sum by the bound, [bound, errors] in rising order, down to `low`, which is three
// decades below the largest. The squared bias falls steeply to 0: where it passes `low` the step is halved again and again.
function errorCurve(m, s, n, least, largest) {
  const at = (limit) => [limit, errorsOf(clippedTruth(m, s, limit), n)];
  const rows = Array.from({ length: 41 }, (_, k) => at(least * (largest / least) ** (k / 40)));
  const most = Math.max(...rows.map(([, each]) => each.all), 1e-3), low = 10 ** Math.floor(Math.log10(most) - 3);
  const between = rows.slice(1).flatMap((right, k) => {
    const found = [];
    let [from, to] = [rows[k], right];
    if (from[1].bias >= low === to[1].bias >= low) return found;
    for (let halvings = 0; halvings < 8; halvings++) {
      const middle = at(Math.sqrt(from[0] * to[0]));
      found.push(middle);
      if (middle[1].bias >= low === from[1].bias >= low) from = middle; else to = middle;
    }
    return found;
  });
  return { rows: [...rows, ...between].sort(([one], [other]) => one - other), most, low };
}

// The estimates of `repeats` batches of n samples: mean of w x, and of min(w, limit) x, on the same samples.
function weightDraws(m, s, limit, n, repeats, normal) {
  const plain = [], clipped = [], sizes = [];
  for (let at = 0; at < repeats; at++) {
    let one = 0, other = 0;
    const weights = [];
    for (let k = 0; k < n; k++) {
      const x = normal(), w = weightOf(x, m, s);
      weights.push(w);
      one += w * x / n;
      other += Math.min(w, limit) * x / n;
    }
    plain.push(one); clipped.push(other); sizes.push(kish(weights));
  }
  return { plain, clipped, sizes };
}

// ---- the same for a policy: π_old wrote the answers, π is updated, π_ref is the reference ------------------------

// Exact, over all answers: what four weights make of E over π_old of w A, and its standard deviation for one answer.
// `advantages` are R − E over π_old of R, so the true gain is J(π) − J(π_old), what the right ratio gives without a
// clip. PPO's clip takes the smaller one of ρA and clip(ρ, 1 − ε, 1 + ε) A.
function ratioTruth(pi, old, ref, rewards, epsilon) {
  const over = (terms) => total(old.map((each, k) => each * terms[k])); // E over π_old
  const value = over(rewards);
  const advantages = rewards.map((each) => each - value);
  const gain = total(pi.map((each, k) => each * advantages[k]));
  const ratio = pi.map((each, k) => each / old[k]), wrong = pi.map((each, k) => each / ref[k]);
  const moments = (terms) => {
    const mean = over(terms), second = over(terms.map((each) => each ** 2));
    return { mean, bias: mean - gain, deviation: Math.sqrt(Math.max(0, second - mean ** 2)) };
  };
  const clipped = ratio.map((each, k) => Math.min(each * advantages[k],
    Math.min(Math.max(each, 1 - epsilon), 1 + epsilon) * advantages[k]));
  return { value, advantages, gain, ratio, wrong, share: 1 / over(ratio.map((each) => each ** 2)), cut: clipped.map((each, k) =>
    Math.abs(each - ratio[k] * advantages[k]) > 1e-12),
  none: moments(advantages), right: moments(ratio.map((each, k) => each * advantages[k])), clipped: moments(clipped),
  reference: moments(wrong.map((each, k) => each * advantages[k])) };
}
