// The unclipped surrogate less a penalty: S = ρA − β KL. The KL is k3 of π_old's own samples, ρ − 1 − log ρ: its mean is
// KL(π_old ‖ π).

SURROGATES.kl_penalised = { name: "KL penalty", note: "L<sup>KLPEN</sup>", colour: ["3", ""],
  says: "A KL penalty prices each move away from π_old by β instead of forbidding it: the pull back grows with the distance.",
  formula: "ρA − β (ρ − 1 − log ρ)",
  of: (ratio, advantage, { beta }) => ratio * advantage - beta * (ratio - 1 - Math.log(ratio)),
  slope: (ratio, advantage, { beta }) => ratio * advantage - beta * (ratio - 1),
  dead: (advantage, { beta }) => (beta ? [] : flat(advantage)),
  dials: (picture) => ({ beta: { label: "β of the KL penalty", ...most(picture, "beta", 3), step: 0.01 } }),
  words(ratio, advantage, { beta }) {
    const pull = ratio * advantage, price = beta * (ratio - 1), turn = beta / (beta - advantage);
    const where = beta > advantage ? ` They cancel at ρ = β/(β − A) = ${at3(turn)}.` : " β is not above A, so the gradient is positive at every ratio.";
    return `ρA pushes with ${signed(pull)}, the KL with ${signed(-price)}: together ${signed(pull - price)}.${where}`;
  } };
