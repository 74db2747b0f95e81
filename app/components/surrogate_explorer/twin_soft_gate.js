// A smooth gate of the ratio: S = 4/τ σ(τ(ρ − 1)) A, with a τ for each sign of A.

const gate = (ratio, tau) => 1 / (1 + Math.exp(-tau * (ratio - 1)));
const tauOf = (advantage, knobs) => (advantage > 0 ? knobs.gate_positive : knobs.gate_negative);
const through = (ratio, advantage, knobs) => { // the share of ρA that the gate lets through
  const open = gate(ratio, tauOf(advantage, knobs));
  return 4 * open * (1 - open);
};

SURROGATES.soft_gate = { name: "SAPO", note: "gate", colour: ["7", ""],
  says: "SAPO closes a smooth gate where PPO cuts: the gradient fades as the ratio leaves 1, and never jumps to 0.",
  formula: "4/τ σ(τ(ρ − 1)) A",
  of: (ratio, advantage, knobs) => 4 / tauOf(advantage, knobs) * gate(ratio, tauOf(advantage, knobs)) * advantage,
  slope: (ratio, advantage, knobs) => through(ratio, advantage, knobs) * ratio * advantage, dead: flat,
  dials: () => ({ gate_positive: { label: "SAPO τ, A > 0", low: 0.1, high: 10, log: true },
    gate_negative: { label: "SAPO τ, A < 0", low: 0.1, high: 10, log: true } }),
  words(ratio, advantage, knobs) {
    const share = through(ratio, advantage, knobs);
    return `The gate 4σ(1 − σ) lets ${Math.round(100 * share)} % of ρA through: gradient ${at3(share * ratio * advantage)}. It closes smoothly, but never completely.`;
  } };
