// Importance sampling: samples of one distribution tell about another one; then PPO's ratio, which is such a weight.

export const update = mounting(inParts(["1. Ask about p with samples of q", gaussianPart],
  ["2. PPO's ratio is such a weight", ratioPart])), dispose = leaving;
