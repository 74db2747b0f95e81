// Variance reduction: the mean of a curve by three estimators, then the gradient of a bandit with four baselines.

export const update = mounting(inParts(["1. The mean of a curve", curvePart],
  ["2. The policy gradient of REINFORCE, and its baseline b", banditPart])), dispose = leaving;
