// The unclipped surrogate of conservative policy iteration: S = ρA.

SURROGATES.cpi = { name: "Unclipped", note: "L<sup>CPI</sup>", colour: ["8", "6 4"],
  says: "Without a clip every token is pushed in proportion to its ratio, however far the policy has moved: nothing stops it.",
  formula: "ρA",
  of: (ratio, advantage) => ratio * advantage, slope: (ratio, advantage) => ratio * advantage, dead: flat,
  words: (ratio, advantage) => `There is only one branch, ρA. The gradient ${at3(ratio * advantage)} grows with ρ, and nothing stops it.` };
