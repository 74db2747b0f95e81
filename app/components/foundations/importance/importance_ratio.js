// PPO's ratio is an importance weight: answers came from π_old, the question is what π earns. π_ref has no place in it.

const FIRST_RATIO = { ref: [0.25, 0.25, 0.25, 0.25], old: [0.4, 0.3, 0.2, 0.1], rewards: [0.3, 0.8, 0.1, 1], epsilon: 0.2, n: 64 };
const FIRST_STEP = 0.6;
const SMALLEST = 0.005; // of a probability: a ratio needs one above 0

const uphill = (old, rewards, step) => {
  const value = total(old.map((each, k) => each * rewards[k]));
  return softmax(old.map((each, k) => Math.log(each) + step * (rewards[k] - value)));
};

function ratioPart(picture) {
  const first = () => ({ ...FIRST_RATIO, step: FIRST_STEP, pi: uphill(FIRST_RATIO.old, FIRST_RATIO.rewards, FIRST_STEP) });
  const state = first();
  const top = [
    slider(picture, { label: "Step from π_old uphill", low: 0, high: 6, step: 0.1, read: () => state.step ?? 0, text: () => (state.step == null ? "by hand" : state.step.toFixed(1)),
      write: (to) => { state.step = to; state.pi = uphill(state.old, state.rewards, to); } }),
    slider(picture, { label: "Clip ε", low: 0.05, high: 1, step: 0.05, read: () => state.epsilon, text: () => state.epsilon.toFixed(2),
      write: (to) => { state.epsilon = to; } }),
    slider(picture, { label: "Answers n", low: 8, high: 512, log: true, read: () => state.n, text: () => String(state.n),
      write: (to) => { state.n = Math.round(to); } }),
    button(picture, "Start again", () => Object.assign(state, first()))];
  controls(picture, ...top.map(({ node }) => node));
  const row = el("div", { class: "rl-f-row" });
  picture.root.append(row);
  const left = plot(picture, row, { title: "Drag π_ref, π_old and π", height: 220 });
  const sets = [["ref", "rl-f4", [0.06, 0.34], "reference"], ["old", "rl-f1", [0.36, 0.64], "old policy"], ["pi", "rl-f2", [0.66, 0.94], "policy"]]
    .map(([name, css, inset, words]) => bars(picture, left, { class: css, inset, read: () => state[name],
      label: (k) => `Probability of answer ${ANSWERS[k]} under the ${words}`, write: (k, value) => {
        state[name] = kept(moved(state[name], k, value), SMALLEST);
        if (name !== "ref") state.step = null;
      } }));
  const right = plot(picture, row, { title: "", height: 220, left: 52 });
  legend(picture.root, [["rl-f4", "π_ref, the reference"], ["rl-f1", "π_old, which wrote the answers"], ["rl-f2", "π, being updated"]]);
  const below = plot(picture, picture.root, { title: "Drag the rewards", height: 130, top: 18, bottom: 38 });
  const rewards = bars(picture, below, { class: "rl-f5", inset: [0.3, 0.7], read: () => state.rewards, label: (k) => `Reward of answer ${ANSWERS[k]}`,
    write: (k, value) => {
      state.rewards = state.rewards.map((each, at) => (at === k ? value : each));
      if (state.step != null) state.pi = uphill(state.old, state.rewards, state.step);
    } });
  const found = table(picture.root, "Estimators of the gain", ["Weight of an answer's advantage A", "Mean, exact", "Error of the mean",
    "Standard error at n"]);
  const sum = equation(picture, "The gain with these numbers");
  return { draw() {
    const truth = ratioTruth(state.pi, state.old, state.ref, state.rewards, state.epsilon);
    top.forEach(({ show }) => show());
    left.fit({ x: { label: "answer", names: Array.from(ANSWERS) }, y: { label: "probability", high: 1 } });
    sets.forEach((each) => each.show());
    below.fit({ x: { label: "answer", names: Array.from(ANSWERS) }, y: { label: "reward", high: 1, ticks: [0, 0.5, 1] } });
    rewards.show();
    right.call(`Estimated gain, 95 % range at n = ${state.n}; dashed: true gain ${format(truth.gain, 3)}`);
    drawGains(right, truth, state.n);
    found.show(GAINS.map(([name, words]) => [[words, name === "reference" ? "rl-f-wrong" : ""], format(truth[name].mean, 4),
      [format(truth[name].bias, 4), name === "reference" ? "rl-f-wrong" : ""], format(truth[name].deviation / Math.sqrt(state.n), 4)]));
    sum.show(writtenGain(state, truth));
    return ratioWords(state, truth);
  } };
}

const ANSWERS = "ABCD";
const GAINS = [["right", "ρ = π / π_old", "ρ"], ["clipped", "PPO: the lower of ρA and clipped ρA", "PPO"], ["none", "1: no ratio", "none"],
  ["reference", "Wrong: π / π_ref", "π / π_ref"]];

// The mean of each estimator and where 95 % of its estimates fall, with the true gain as a line.
function drawGains(chart, truth, n) {
  const reach = (name) => 1.96 * truth[name].deviation / Math.sqrt(n);
  const ends = GAINS.flatMap(([name]) => [truth[name].mean - reach(name), truth[name].mean + reach(name)]);
  const low = Math.min(0, ...ends) - 0.02, high = Math.max(0.05, ...ends) + 0.02;
  chart.fit({ x: { label: "weight", names: GAINS.map(([, , short]) => short) }, y: { label: "gain in reward", low, high } });
  const y = chart.y(truth.gain);
  draw(chart, "line", { x1: chart.left, x2: chart.width - chart.right, y1: y, y2: y, stroke: "currentColor", class: "rl-f-dashed" });
  GAINS.forEach(([name], place) => {
    const x = chart.x(place), css = name === "reference" ? "rl-f-wrong" : `rl-s${place + 1}`;
    const ink = name === "reference" ? { stroke: "currentColor", "stroke-width": 2 } : {};
    draw(chart, "line", { x1: x, x2: x, y1: chart.y(truth[name].mean - reach(name)), y2: chart.y(truth[name].mean + reach(name)), class: css, ...ink });
    draw(chart, "circle", { cx: x, cy: chart.y(truth[name].mean), r: 5, class: name === "reference" ? css : `rl-f${place + 1}`,
      ...(name === "reference" ? { fill: "currentColor" } : {}) });
    if (name === "reference") note(chart, x - 8, chart.y(truth[name].mean) + 4, "✗ wrong", { "text-anchor": "end", class: "rl-f-wrong", style: "fill:currentColor" });
  });
}

function writtenGain({ old }, { ratio, advantages, gain }) {
  return [`${mo("∑")}${sub(mi("π"), mtext("old"))}${mi("ρ")}${mi("A")}${mo("=")}`, ...old.map((each, k) =>
    `${k ? mo("+") : ""}${mn(each)}${mo("·")}${mn(ratio[k])}${mo("·")}${mrow(advantages[k] < 0 ? mo("(") : "", mn(advantages[k]), advantages[k] < 0 ? mo(")") : "")}`),
  `${mo("=")}${mn(gain, 3)}`];
}

function ratioWords({ n }, { share, gain, cut, clipped, reference }) {
  const many = cut.filter(Boolean).length;
  const clip = many ? `The clip acts on ${many} of ${cut.length} answers: the estimate falls ${format(-clipped.bias, 3)} short, and its `
    + "gradient there is 0." : "No ratio is far enough from 1 for the clip to act.";
  return `The update really gains ${format(gain, 3)}, and ${n} answers of π_old are worth ${format(n * share, 1)} of π. ${clip} `
    + `A ratio against π_ref, in place of π_old, says ${format(reference.mean, 3)}: off by ${format(Math.abs(reference.bias), 3)}. `
    + "Those answers were not written by π_ref.";
}
