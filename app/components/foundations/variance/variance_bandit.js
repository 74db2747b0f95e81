// The gradient of a policy over a few answers, estimated from groups of G: what the baseline does to its variance.

const BANDIT_SEED = 11;
const BASELINE_WORDS = { none: "None", mean: "Mean of the group", loo: "Leave one out", optimal: "Optimal constant b*" };

function banditPart(picture) {
  const state = { pi: [0.5, 0.3, 0.2], rewards: [0.2, 0.9, 0.5], shift: 0, size: 4, b: 0.3 };
  const rewards = () => state.rewards.map((each) => each + state.shift);
  const top = [
    slider(picture, { label: "Answers", low: 3, high: 5, step: 1, read: () => state.pi.length, text: () => String(state.pi.length),
      write: (to) => resizeBandit(state, Math.round(to)) }),
    slider(picture, { label: "Group size G", low: 2, high: 16, step: 1, read: () => state.size, text: () => String(state.size),
      write: (to) => { state.size = Math.round(to); } }),
    slider(picture, { label: "Add to all rewards", low: -2, high: 2, step: 0.1, read: () => state.shift,
      text: () => format(state.shift, 1), write: (to) => { state.b += to - state.shift; state.shift = to; } })];
  controls(picture, ...top.map(({ node }) => node));
  const row = el("div", { class: "rl-f-row" });
  picture.root.append(row);
  const left = plot(picture, row, { title: "Drag the policy π and the rewards R", height: 220 });
  const policy = bars(picture, left, { class: "rl-f1", inset: [0.12, 0.49], read: () => state.pi,
    label: (k) => `Probability of answer ${LETTER[k]}`, write: (k, value) => { state.pi = kept(moved(state.pi, k, value), LEAST_SHARE); } });
  const earned = bars(picture, left, { class: "rl-f2", inset: [0.51, 0.88], read: () => state.rewards,
    label: (k) => `Reward of answer ${LETTER[k]}`,
    write: (k, value) => { state.rewards = state.rewards.map((each, at) => (at === k ? value : each)); } });
  const right = plot(picture, row, { title: "Variance of the gradient against a constant b: drag b", height: 220, left: 52 });
  const own = knob(picture, right, { label: "Constant baseline b", low: -3, high: 4, step: 0.02, class: "rl-s5", read: () => state.b,
    text: () => `${state.b.toFixed(2)} reward`, write: (to) => { state.b = to; }, at: (event) => right.at(event).x });
  legend(picture.root, [["rl-f1", "π, probability"], ["rl-f2", "R, reward"], ["rl-f5", "variance with a constant b"],
    ["rl-f3", "with leave one out"], ["rl-f4", "with the group's mean"]]);
  const found = table(picture.root, "Baselines of the policy gradient", ["Baseline", "Mean ÷ ∇J, exact", "Variance, exact",
    "Variance, measured", "÷ none, exact"]);
  const sum = equation(picture, "The best constant baseline with these numbers");
  const measured = remembered((pi, earned, size, repeats) => batchEstimates(pi, earned, size, repeats, randomOf(BANDIT_SEED)));
  return { draw() {
    const now = rewards(), truth = banditTruth(state.pi, now), repeats = picture.busy ? 300 : 4000;
    const moments = Object.fromEntries(BASELINES.map((kind) => [kind, batchMoments(state.pi, now, state.size, kind)]));
    const drawn = measured(state.pi, now, state.size, repeats);
    top.forEach(({ show }) => show());
    left.fit({ x: { label: "answer", names: Array.from(LETTER.slice(0, now.length)) },
      y: { label: state.shift ? `probability; reward less ${format(state.shift, 1)}` : "probability; reward", high: 1 } });
    policy.show();
    earned.show();
    drawParabola(right, state, now, truth, moments);
    own.show(right.x(clamp(state.b, right.x.low, right.x.high)), right.y(constantVariance(state.pi, now, state.b, state.size)));
    found.show(banditRows(state, now, moments, drawn, repeats));
    sum.show(writtenBest(state.pi, now, truth.best));
    return banditWords(state, moments, truth);
  } };
}

// b* = Σ π ‖∇ log π‖² R / Σ π ‖∇ log π‖²
function writtenBest(pi, rewards, best) {
  const weights = pi.map((each, k) => each * lengthOf(scoreOf(pi, k)));
  const score = `<msup><mrow><mo>‖</mo><mo>∇</mo>${log(mi("π"))}<mo>‖</mo></mrow><mn>2</mn></msup>`;
  const over = (terms) => mrow(...terms.map((each, k) => `${k ? mo("+") : ""}${each}`));
  return [`${sup(mi("b"), mo("*"))}${mo("=")}${frac(`${mo("∑")}${mi("π")}${score}${mi("R")}`, `${mo("∑")}${mi("π")}${score}`)}`,
    `${mo("=")}${frac(over(weights.map((each, k) => `${mn(each)}${mo("·")}${mn(rewards[k])}`)), over(weights.map((each) => mn(each))))}`,
    `${mo("=")}${mn(best, 3)}`];
}

const LETTER = "ABCDE";
const LEAST_SHARE = 0.01; // so that every answer can be drawn

function resizeBandit(state, count) {
  state.pi = state.pi.slice(0, count);
  state.rewards = state.rewards.slice(0, count);
  while (state.pi.length < count) { state.pi.push(0.2); state.rewards.push(0.1 + 0.3 * (state.pi.length - 4)); }
  state.pi = kept(normalised(state.pi), LEAST_SHARE);
}

// Three constants at which the parabola is marked, and the two baselines of a group, which are no constants.
function drawParabola(chart, state, rewards, truth, moments) {
  const low = Math.min(0, ...rewards) - 0.25, high = Math.max(0, ...rewards) + 0.25;
  const at = (b) => constantVariance(state.pi, rewards, b, state.size);
  const most = 1.12 * Math.max(at(low), at(high), moments.loo.variance, 1e-6);
  chart.fit({ x: { label: "baseline b, reward", low, high }, y: { label: "variance summed over the logits, reward²", low: 0, high: most } });
  state.b = clamp(state.b, low, high);
  line(chart, Array.from({ length: 61 }, (_, k) => low + (high - low) * k / 60).map((b) => [b, at(b)]), { class: "rl-s5" });
  for (const [kind, words, css] of [["loo", "leave one out", "rl-s3"], ["mean", "group mean", "rl-s4"]]) {
    const y = moments[kind].variance;
    line(chart, [[low, y], [high, y]], { class: `${css} rl-f-dashed` });
    note(chart, kind === "loo" ? chart.left + 4 : chart.width - chart.right, chart.y(y) + (kind === "loo" ? -4 : 12), words,
      { "text-anchor": kind === "loo" ? "start" : "end" });
  }
  const left = truth.value < truth.best; // J and b* are near each other: one name to each side
  for (const [b, words, aside] of [[0, "none", 0], [truth.best, "b*", left ? 1 : -1], [truth.value, "J", left ? -1 : 1]]) {
    draw(chart, "circle", { cx: chart.x(b), cy: chart.y(at(b)), r: 4, fill: "currentColor" });
    note(chart, chart.x(b) + 3 * aside, chart.y(at(b)) - 8, words, { "text-anchor": ["end", "middle", "start"][aside + 1] });
  }
}

function banditRows(state, rewards, moments, drawn, repeats) {
  const none = moments.none.variance, title = `Estimated from ${repeats} groups, the same for all`;
  const rows = BASELINES.map((kind) => [BASELINE_WORDS[kind], format(moments[kind].scale, 3),
    format(moments[kind].variance, 4), [format(drawn[kind].variance, 4), "", title], format(moments[kind].variance / none, 3)]);
  const own = constantVariance(state.pi, rewards, state.b, state.size);
  return [...rows, [`Yours, b = ${format(state.b, 2)}`, "1.000", format(own, 4), "–", format(own / none, 3)]];
}

function banditWords({ size }, moments, truth) {
  if (!Number.isFinite(moments.none.scale)) return "All rewards are equal, so the gradient is 0.";
  return `No constant baseline changes the gradient's mean; b* = ${format(truth.best, 2)} gives the least variance, near the `
    + `mean reward J = ${format(truth.value, 2)}. The group's mean contains the answer's own reward, which shrinks the gradient `
    + `by (G − 1)/G = ${format((size - 1) / size, 3)}. Leave one out takes the mean of the other rewards and does not shrink it. `
    + "Measured variances are estimates from simulated groups.";
}
