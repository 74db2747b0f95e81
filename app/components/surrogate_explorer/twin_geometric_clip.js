// The geometric mean of clipped token ratios, of a completion of one token; the bounds are those of log ρ.

const geometricBounds = ({ clip_low: low, clip_high: high }) => [Math.exp(-low), Math.exp(high)];
const geometricDead = (advantage, knobs) => clipDead(...geometricBounds(knobs), advantage);

SURROGATES.geometric_clip = { name: "GMPO", note: "one token", colour: ["5", ""],
  says: "GMPO multiplies the clipped ratios of a completion's tokens and takes their geometric mean; here the completion has one token.",
  formula: "min(ρ, e^ε_high) A for A > 0, max(ρ, e^−ε_low) A for A < 0",
  of(ratio, advantage, knobs) {
    const [low, high] = geometricBounds(knobs);
    return advantage * (advantage > 0 ? Math.min(ratio, high) : Math.max(ratio, low));
  },
  slope: unlessDead(geometricDead), dead: geometricDead,
  words: (ratio, advantage, knobs) => clipWords(ratio, advantage, geometricDead(advantage, knobs),
    { low: geometricBounds(knobs)[0], high: geometricBounds(knobs)[1], names: ["e^−ε_low", "e^ε_high"],
      unbounded: "only the other side is bounded" }) };
