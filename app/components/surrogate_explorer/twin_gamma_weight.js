// A Gamma-shaped function of the ratio as a fixed weight: S = sg(φ(ρ)) A log π with φ(ρ) = ρ^k e^(λ(1 − ρ)).

function gammaOf(ratio, advantage, knobs) {
  const side = advantage >= 0 ? "positive" : "negative";
  const logRatio = clamp(Math.log(ratio), Math.log(1e-8), 20);
  return Math.exp(knobs[`gamma_power_${side}`] * logRatio + knobs[`gamma_rate_${side}`] * (1 - Math.exp(logRatio)));
}

const gammaWeighed = (ratio, advantage, knobs) => gammaOf(ratio, advantage, knobs) * advantage;

SURROGATES.gamma_weight = { name: "VESPO", note: "weight × A", colour: ["9", "8 3 2 3"], weighs: true,
  says: "VESPO weighs a whole completion by a Gamma-shaped function of its ratio, which fades on both sides of 1.",
  formula: "sg(ρ^k e^(λ(1 − ρ))) A log π",
  of: gammaWeighed, slope: gammaWeighed, dead: flat,
  dials: (picture) => Object.fromEntries([["power", "k"], ["rate", "λ"]].flatMap(([part, letter]) =>
    [["positive", ">"], ["negative", "<"]].map(([side, sign]) => [`gamma_${part}_${side}`,
      { label: `VESPO ${letter}, A ${sign} 0`, ...most(picture, `gamma_${part}_${side}`, 6) }]))),
  words: (ratio, advantage, now) =>
    `The weight φ(ρ) = ρ^k e^(λ(1 − ρ)) is ${at3(gammaOf(ratio, advantage, now))}: gradient φA = ${at3(gammaWeighed(ratio, advantage, now))}.` };
