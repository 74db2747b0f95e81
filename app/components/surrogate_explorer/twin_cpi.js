// The unclipped surrogate of conservative policy iteration: S = ρA.

SURROGATES.cpi = { name: "Unclipped", note: "L<sup>CPI</sup>", colour: ["5", "6 4"],
  of: (ratio, advantage) => ratio * advantage, slope: (ratio, advantage) => ratio * advantage, dead: flat,
  words: (ratio, advantage) => `There is only one branch, ρA. The gradient ${at3(ratio * advantage)} grows with ρ, and nothing stops it.` };
