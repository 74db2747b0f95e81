// A policy so small that everything about it is exact: π = softmax(θ) over three tokens, and completions of two tokens
// that it draws from the same π, without a memory of the first. The reward of (a, b) is (r_a + r_b)/2, plus w where
// a ≠ b. So J is quadratic in π, and L^CPI, which holds π_old's prefixes fixed, is only its tangent.
//
// `world` is { rewards, pair, old }: r, w and π_old. KL is KL(π_old ‖ π) per token, in nats.

const ITERATIONS = 48; // halvings of an interval
const dot = (left, right) => total(left.map((value, i) => value * right[i]));
const along = (from, to, share) => from.map((value, i) => value + share * (to[i] - value));

const logits = (policy) => policy.map(Math.log);
const klOf = (old, policy) => dot(old, old.map((value, i) => Math.log(value / policy[i])));
const rewardOf = ({ rewards, pair }, a, b) => (rewards[a] + rewards[b]) / 2 + (a === b ? 0 : pair);

// J(π) = Σ π r + w (1 − Σ π²), the expected reward of a completion.
const valueOf = ({ rewards, pair }, policy) => dot(policy, rewards) + pair * (1 - dot(policy, policy));

// The prefixes under π_old, each with its probability and the advantages of the next token: none, then each token.
function prefixes(world) {
  const { old } = world, tokens = [0, 1, 2];
  const values = [tokens.map((b) => total(tokens.map((c) => old[c] * rewardOf(world, b, c)))),
    ...tokens.map((a) => tokens.map((b) => rewardOf(world, a, b)))];
  return values.map((q, place) => {
    const mean = dot(old, q);
    return { weight: place ? old[place - 1] : 1, advantages: q.map((value) => value - mean) };
  });
}

// E_old over completions of the surrogate's sum over tokens, less its value at π_old.
function gainOf(key, world, policy, knobs) {
  const { of } = SURROGATES[key];
  return total(prefixes(world).map(({ weight, advantages }) => weight * dot(world.old, advantages.map((advantage, b) =>
    of(policy[b] / world.old[b], advantage, knobs) - of(1, advantage, knobs)))));
}

// ∇θ of the same; with `cpi` at π_old this is ∇J.
function gradientOf(key, world, policy, knobs) {
  const { slope } = SURROGATES[key], pull = [0, 0, 0]; // on each token's log-probability
  for (const { weight, advantages } of prefixes(world)) {
    advantages.forEach((advantage, b) => {
      pull[b] += weight * world.old[b] * slope(policy[b] / world.old[b], advantage, knobs);
    });
  }
  const sum = total(pull);
  return pull.map((value, k) => value - policy[k] * sum);
}

// θ after 0, 1, … k steps up the gradient of a surrogate, all on π_old's completions.
function ascend(key, world, knobs, { rate, epochs }) {
  const path = [logits(world.old)];
  for (let epoch = 0; epoch < epochs; epoch += 1) {
    const theta = path[epoch], gradient = gradientOf(key, world, softmax(theta), knobs);
    path.push(theta.map((value, i) => value + rate * gradient[i]));
  }
  return path;
}

// The longest share of a step, up to `most`, that keeps KL ≤ δ: KL grows along it.
function within(world, step, delta, most = 1) {
  const theta = logits(world.old);
  const kl = (share) => klOf(world.old, softmax(theta.map((value, i) => value + share * step[i])));
  if (kl(most) <= delta) return most;
  let low = 0, high = most;
  for (let i = 0; i < ITERATIONS; i += 1) {
    const middle = (low + high) / 2;
    if (kl(middle) <= delta) low = middle; else high = middle;
  }
  return low;
}

// TRPO: the natural gradient F⁻¹g, F = diag π − ππᵀ; F⁻¹g is g/π up to a constant, which softmax does not see.
// `quadratic` is √(2δ / gᵀF⁻¹g) F⁻¹g, whose KL is δ to second order; `step` has exactly KL = δ.
function trust(world, delta) {
  const gradient = gradientOf("cpi", world, world.old, {});
  const natural = gradient.map((value, i) => value / world.old[i]), curvature = dot(gradient, natural);
  if (curvature < 1e-18) return { quadratic: [0, 0, 0], step: [0, 0, 0] };
  const quadratic = natural.map((value) => value * Math.sqrt(2 * delta / curvature));
  const share = within(world, quadratic, delta, 64);
  return { quadratic, step: quadratic.map((value) => share * value) };
}

// All of a method's θ, from θ_old to θ_new.
function pathOf(method, world, knobs, steps) {
  const start = logits(world.old), moved = (step) => [start, start.map((value, i) => value + step[i])];
  if (method === "trpo") return moved(trust(world, steps.delta).step);
  if (method === "vpg") {
    return moved(gradientOf("cpi", world, world.old, knobs).map((value) => steps.leap * value));
  }
  return ascend(method, world, knobs, steps);
}

// J, KL and the surrogates at θ_old + α (θ_new − θ_old).
function lineOf(world, theta, knobs, keys, alphas) {
  const start = logits(world.old), base = valueOf(world, world.old);
  const policies = alphas.map((alpha) => softmax(along(start, theta, alpha)));
  return { value: policies.map((policy) => valueOf(world, policy) - base),
    kl: policies.map((policy) => klOf(world.old, policy)),
    ...Object.fromEntries(keys.map((key) => [key, policies.map((policy) => gainOf(key, world, policy, knobs))])) };
}

// The π with the highest J: where w > 0, π_a = max(0, (r_a − λ) / 2w).
function best({ rewards, pair }) {
  const order = [0, 1, 2].sort((a, b) => rewards[b] - rewards[a]);
  if (pair <= 0) return [0, 1, 2].map((a) => Number(a === order[0]));
  for (let count = 3; count > 0; count -= 1) {
    const used = order.slice(0, count), level = (total(used.map((a) => rewards[a])) - 2 * pair) / count;
    const policy = [0, 1, 2].map((a) => (used.includes(a) ? (rewards[a] - level) / (2 * pair) : 0));
    if (policy.every((value) => value >= 0)) return policy;
  }
  return null;
}
