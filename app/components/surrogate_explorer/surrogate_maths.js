// The surrogates of labcore/maths/surrogates.py for one token, as functions of its ratio ρ = π/π_old, its advantage A
// and the knobs, under the lab's own names. A test compares them with those of the lab.
//
// Each has `of(ρ, A, knobs)`: its value, in the unit of the advantages; `slope`: ∂S/∂log π, what pushes the token; and
// `dead`: the stretches [from, to] of ratios on which that slope is 0. Those that only weigh log π have no value of
// their own: for them `of` is weight × A, and S is that times log π.

const gate = (ratio, tau) => 1 / (1 + Math.exp(-tau * (ratio - 1)));
const tauOf = (advantage, knobs) => (advantage > 0 ? knobs.gate_positive : knobs.gate_negative);
const inside = (ratio, stretches) => stretches.some(([from, to]) => ratio > from && ratio < to);

// What `clip` cuts off: only the side on which the advantage pushes further out.
function clipDead(low, high, advantage) {
  if (advantage > 0) return [[high, Infinity]];
  return advantage < 0 ? [[0, low]] : [[0, Infinity]];
}

// S = min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A)
const clipped = (ratio, advantage, knobs) =>
  Math.min(ratio * advantage, clamp(ratio, 1 - knobs.clip_low, 1 + knobs.clip_high) * advantage);

// S = min(min(ρ, δ) A, clip(ρ) A), at least cA where A < 0; δ and c at 0 are none.
function bounded(ratio, advantage, knobs) {
  const { clip_delta: delta, dual_clip: most } = knobs;
  const capped = clamp(ratio, 1 - knobs.clip_low, 1 + knobs.clip_high) * advantage;
  const surrogate = Math.min((delta ? Math.min(ratio, delta) : ratio) * advantage, capped);
  return most && advantage < 0 ? Math.max(surrogate, most * advantage) : surrogate;
}

function boundedDead(advantage, { clip_low: low, clip_high: high, clip_delta: delta, dual_clip: most }) {
  const found = clipDead(1 - low, Math.min(1 + high, delta || Infinity), advantage);
  // Where A < 0, up to 1 + ε_high the clipped term carries the gradient that δ cuts off in the first.
  const bound = Math.min(delta ? Math.max(delta, 1 + high) : Infinity, most || Infinity);
  return advantage < 0 && bound < Infinity ? [...found, [bound, Infinity]] : found;
}

// φ(ρ) = ρ^k e^(λ(1 − ρ))
function gammaOf(ratio, advantage, knobs) {
  const side = advantage >= 0 ? "positive" : "negative";
  const logRatio = clamp(Math.log(ratio), Math.log(1e-8), 20);
  return Math.exp(knobs[`gamma_power_${side}`] * logRatio + knobs[`gamma_rate_${side}`] * (1 - Math.exp(logRatio)));
}

const flat = (advantage) => (advantage === 0 ? [[0, Infinity]] : []);
// ∂S/∂log π = ρA wherever the surrogate is ρA, and 0 where it is constant.
const unlessDead = (dead) => (ratio, advantage, knobs) =>
  inside(ratio, dead(advantage, knobs)) ? 0 : ratio * advantage;

const deadOf = {
  clip: (advantage, { clip_low: low, clip_high: high }) => clipDead(1 - low, 1 + high, advantage),
  bounded_clip: boundedDead,
  geometric_clip: (advantage, { clip_low: low, clip_high: high }) =>
    clipDead(Math.exp(-low), Math.exp(high), advantage),
};

const SURROGATES = {
  cpi: { of: (ratio, advantage) => ratio * advantage, slope: (ratio, advantage) => ratio * advantage, dead: flat },
  clip: { of: clipped, slope: unlessDead(deadOf.clip), dead: deadOf.clip },
  kl_penalised: { // the KL is k3 of π_old's own samples, ρ − 1 − log ρ: its mean is KL(π_old ‖ π)
    of: (ratio, advantage, { beta }) => ratio * advantage - beta * (ratio - 1 - Math.log(ratio)),
    slope: (ratio, advantage, { beta }) => ratio * advantage - beta * (ratio - 1),
    dead: (advantage, { beta }) => (beta ? [] : flat(advantage)) },
  bounded_clip: { of: bounded, slope: unlessDead(deadOf.bounded_clip), dead: deadOf.bounded_clip },
  detached_weight: { weighs: true,
    of: (ratio, advantage, knobs) => Math.min(ratio, knobs.ratio_cap) * advantage,
    slope: (ratio, advantage, knobs) => Math.min(ratio, knobs.ratio_cap) * advantage, dead: flat },
  soft_gate: {
    of: (ratio, advantage, knobs) => 4 / tauOf(advantage, knobs) * gate(ratio, tauOf(advantage, knobs)) * advantage,
    slope: (ratio, advantage, knobs) => {
      const open = gate(ratio, tauOf(advantage, knobs));
      return 4 * open * (1 - open) * ratio * advantage;
    },
    dead: flat },
  geometric_clip: { // of a completion of one token; the bounds are those of log ρ
    of: (ratio, advantage, knobs) => advantage * (advantage > 0 ? Math.min(ratio, Math.exp(knobs.clip_high))
      : Math.max(ratio, Math.exp(-knobs.clip_low))),
    slope: unlessDead(deadOf.geometric_clip), dead: deadOf.geometric_clip },
  gamma_weight: { weighs: true,
    of: (ratio, advantage, knobs) => gammaOf(ratio, advantage, knobs) * advantage,
    slope: (ratio, advantage, knobs) => gammaOf(ratio, advantage, knobs) * advantage, dead: flat },
};

// Whether a token's gradient is cut off: its advantage is not what makes it 0.
const isCut = (key, ratio, advantage, knobs) =>
  advantage !== 0 && inside(ratio, SURROGATES[key].dead(advantage, knobs));
