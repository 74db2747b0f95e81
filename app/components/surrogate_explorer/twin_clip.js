// PPO's clip: S = min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A)

const clipDeadOf = (advantage, { clip_low: low, clip_high: high }) => clipDead(1 - low, 1 + high, advantage);

SURROGATES.clip = { name: "PPO's clip", note: "L<sup>CLIP</sup>", colour: ["1", ""],
  says: "PPO's clip stops pushing a token once its ratio has moved by ε in the direction that its advantage asks for; it still pulls back a token that moved the wrong way.",
  formula: "min(ρA, clip(ρ, 1 − ε, 1 + ε) A)",
  of: (ratio, advantage, knobs) => Math.min(ratio * advantage, clamp(ratio, ...bounds(knobs)) * advantage),
  slope: unlessDead(clipDeadOf), dead: clipDeadOf,
  dials: (picture) => ({ clip_low: { label: "ε_low", ...epsilon(picture, "clip_low") },
    clip_high: { label: "ε_high", ...epsilon(picture, "clip_high") } }),
  words: (ratio, advantage, knobs) => clipWords(ratio, advantage, clipDeadOf(advantage, knobs),
    { low: bounds(knobs)[0], high: bounds(knobs)[1], ...unclipped(knobs) }) };
