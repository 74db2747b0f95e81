// The clip with a bound where A < 0: S = min(min(ρ, δ) A, clip(ρ) A), at least cA where A < 0; δ and c at 0 are none.

// Where A < 0, up to 1 + ε_high the clipped term carries the gradient that δ cuts off in the first.
const ratioBound = ({ clip_delta: delta, dual_clip: highest, clip_high: high }) =>
  Math.min(delta ? Math.max(delta, 1 + high) : Infinity, highest || Infinity);

function boundedDead(advantage, knobs) {
  const { clip_low: low, clip_high: high, clip_delta: delta } = knobs, bound = ratioBound(knobs);
  const found = clipDead(1 - low, Math.min(1 + high, delta || Infinity), advantage);
  return advantage < 0 && bound < Infinity ? [...found, [bound, Infinity]] : found;
}

SURROGATES.bounded_clip = { name: "Dual clip", note: "and δ", colour: ["2", "7 3"],
  says: "The dual clip adds a bound where A < 0: a token that became far likelier than before can no longer dominate the update.",
  formula: "max(min(ρA, clip(ρ) A), cA) for A < 0",
  of(ratio, advantage, knobs) {
    const { clip_delta: delta, dual_clip: highest } = knobs, capped = clamp(ratio, ...bounds(knobs)) * advantage;
    const surrogate = Math.min((delta ? Math.min(ratio, delta) : ratio) * advantage, capped);
    return highest && advantage < 0 ? Math.max(surrogate, highest * advantage) : surrogate;
  },
  slope: unlessDead(boundedDead), dead: boundedDead,
  dials: (picture) => ({ dual_clip: { label: "Dual clip c, 0: none", ...most(picture, "dual_clip", 6) },
    clip_delta: { label: "Two-sided δ, 0: none", ...most(picture, "clip_delta", 6) } }),
  words: (ratio, advantage, knobs) => clipWords(ratio, advantage, boundedDead(advantage, knobs),
    { low: bounds(knobs)[0], high: bounds(knobs)[1], bound: ratioBound(knobs), ...unclipped(knobs) }) };
