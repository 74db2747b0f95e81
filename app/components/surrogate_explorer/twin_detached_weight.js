// The capped ratio as a fixed weight: S = sg(min(ρ, ε_max)) A log π.

const capped = (ratio, advantage, knobs) => Math.min(ratio, knobs.ratio_cap) * advantage;

SURROGATES.detached_weight = { name: "CISPO", note: "weight × A", colour: ["4", ""], weighs: true,
  says: "CISPO caps the weight of a token but never its gradient: a token beyond the bound still learns, with the weight ε_max.",
  formula: "sg(min(ρ, ε_max)) A log π",
  of: capped, slope: capped, dead: flat,
  dials: (picture) => ({ ratio_cap: { label: "CISPO ε_max", ...most(picture, "ratio_cap", 8) } }),
  words: (ratio, advantage, { ratio_cap: cap }) => (ratio > cap
    ? `The weight is capped at ε_max = ${at3(cap)}, and the gradient does not vanish: ${at3(cap * advantage)}.`
    : `The weight is ρ itself: the gradient is ρA = ${at3(ratio * advantage)}. From ε_max = ${at3(cap)} on it is capped, never 0.`) };
