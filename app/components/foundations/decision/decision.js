// A language model as a decision process: a tree of tokens whose probabilities and rewards one drags.

const TOKENS = ["a", "b"];
const FIRST_PROBABILITIES = [0.6, 0.5, 0.4, 0.5, 0.7, 0.5, 0.5];
const FIRST_OUTCOMES = [0, 0.2, 1, 0.5, 0.1, 0.3, 0.6, 0]; // of the completions aaa, aab … bbb
const WANTED = [0, 1, 0]; // the process reward pays a third for each of these tokens in its place

function firstDecision() {
  const outcome = Array(NODES).fill(0), process = Array(NODES).fill(0);
  FIRST_OUTCOMES.forEach((each, leaf) => { outcome[STATES + leaf] = each; });
  for (let state = 0; state < STATES; state++) {
    process[childOf(state, WANTED[depthOf(state)])] = 0.33;
  }
  return { first: [...FIRST_PROBABILITIES], outcome, process, kind: "outcome", critic: "none", lambda: 1, leaf: 2 };
}

const depthOf = (node) => Math.floor(Math.log2(node + 1));

// The text of a node: the tokens on the way to it.
function textOf(node) {
  let text = "";
  for (let at = node; at > 0; at = Math.floor((at - 1) / 2)) text = TOKENS[(at + 1) % 2] + text;
  return text;
}

const stateOf = (node) => (node ? `“${textOf(node)}”` : "the prompt");

function buildDecision(picture) {
  const state = firstDecision();
  const top = [
    choice(picture, { label: "Reward", options: [["outcome", "At the end"], ["process", "For each token"]], read: () => state.kind,
      write: (to) => { state.kind = to; } }),
    choice(picture, { label: "Critic", options: [["none", "None"], ["constant", "Constant J"], ["exact", "Exact V(s)"]], read: () => state.critic,
      write: (to) => { state.critic = to; } }),
    slider(picture, { label: "λ", low: 0, high: 1, step: 0.05, read: () => state.lambda, text: () => state.lambda.toFixed(2),
      write: (to) => { state.lambda = to; } }),
    slider(picture, { label: "Completion", low: 0, high: LEAVES - 1, step: 1, read: () => state.leaf, text: () => textOf(STATES + state.leaf),
      write: (to) => { state.leaf = Math.round(to); } }),
    button(picture, "Start again", () => Object.assign(state, firstDecision()))];
  controls(picture, ...top.map(({ node }) => node));
  const tree = treePlot(picture, state);
  const found = table(picture.root, "Credit of each token of the completion", ["Credit of each token", "Token 1", "Token 2", "Token 3"]);
  const chart = plot(picture, picture.root, { title: "", height: 190, left: 52 });
  legend(picture.root, [["rl-f1", "bandit: one action"], ["rl-f2", "MDP: token by token"]]);
  const both = table(picture.root, "The gradient over all completions", ["Over all completions, exact", "Bias: distance from ∇J", "Variance"]);
  const sum = equation(picture, "The credit of the first token with these numbers");
  return { draw() {
    const rewards = state[state.kind], { value } = treeTruth(state.first, rewards);
    const values = valuesOf(state.critic, value), baseline = state.critic === "none" ? 0 : value[0];
    const all = bothWays(state.first, rewards, baseline, values, state.lambda);
    const credit = creditOf(state.leaf, rewards, baseline, values, state.lambda);
    top.forEach(({ show }) => show());
    tree.draw(all, rewards);
    found.show(creditRows(credit, all));
    chart.call(`Gradient that ${textOf(STATES + state.leaf)} gives, by the state in which a token was chosen`);
    drawGradients(chart, all.rows[state.leaf], credit);
    both.show([["Bandit: one action", format(all.bandit.bias, 4), format(all.bandit.variance, 4)],
      [`MDP: token by token, λ = ${state.lambda.toFixed(2)}`, format(all.steps.bias, 4), format(all.steps.variance, 4)]]);
    sum.show(writtenCredit(credit, values, state.lambda));
    say(picture, decisionWords(state, all));
  } };
}

function valuesOf(critic, value) {
  return value.slice(0, STATES).map((each) => ({ none: 0, constant: value[0], exact: each })[critic]);
}

function creditRows(credit, all) {
  const advantages = credit.states.map((state, t) => all.action[state][credit.tokens[t]] - all.value[state]);
  const row = (words, values, title) => [[words, "", title], ...values.map((each) => format(each, 3))];
  return [row("Reward r", credit.rewards, "the reward of this token"), row("Bandit: R − b", credit.bandit, "the same for all tokens"),
    row("MDP: Â", credit.steps, "the rewards from this token on, compared with the critic"),
    row("Exact: Q(s, a) − V(s)", advantages, "the mean over all continuations, by enumeration")];
}

// Both gradients of one completion in the three states that it went through.
function drawGradients(chart, row, { states }) {
  const pairs = states.map((state) => [row.bandit[state], row.steps[state]]);
  const reach = 1.4 * Math.max(0.1, ...pairs.flat().map(Math.abs));
  chart.fit({ x: { label: "state: what is written so far", names: states.map(stateOf) },
    y: { label: "gradient by the logit of a, reward", low: -reach, high: reach } });
  line(chart, [[-0.5, 0], [states.length - 0.5, 0]], { stroke: "currentColor", "stroke-opacity": 0.5 });
  pairs.forEach((pair, place) => pair.forEach((value, way) => {
    const width = Math.min(40, 0.3 * chart.x.band), from = chart.x(place) + (way - 1) * (width + 2) + 1;
    column(chart, from, from + width, 0, value, { class: `rl-f${way + 1}` });
    note(chart, from + width / 2, chart.y(value) + (value < 0 ? 14 : -4), format(value, 2), { "text-anchor": "middle" });
  }));
}

// Â of the first token: Σ λ^k δ_k.
function writtenCredit({ states, rewards, steps }, values, lambda) {
  const deltas = states.map((state, t) => rewards[t] + (t + 1 < DEPTH ? values[states[t + 1]] : 0) - values[state]);
  const delta = (t) => `<msub><mi>δ</mi><mn>${t}</mn></msub>`;
  const signed = (value) => (value < 0 ? `${mo("(")}${mn(value, 3)}${mo(")")}` : mn(value, 3));
  return [`<msub><mi>Â</mi><mn>1</mn></msub>${mo("=")}${delta(1)}${mo("+")}${mi("λ")}${delta(2)}${mo("+")}${sup(mi("λ"), mn(2, 0))}${delta(3)}`,
    `${mo("=")}${deltas.map((each, t) => `${t ? `${mo("+")}${mn(lambda ** t)}${mo("·")}` : ""}${signed(each)}`).join("")}`,
    `${mo("=")}${mn(steps[0], 3)}`];
}

function decisionWords({ kind, critic, lambda }, all) {
  const value = `The mean reward is J = ${format(all.value[0], 3)}, exact over ${LEAVES} completions.`;
  if (all.apart < 1e-9) {
    return `${value} Bandit and MDP give the same gradient for every completion: the reward comes at the end, λ is 1 and no token has `
      + "a baseline of its own, so every token gets the same credit.";
  }
  const why = [kind === "process" && "a token gets no credit for rewards before it", critic === "exact" && "each token is compared with the value of its state",
    lambda < 1 && "λ below 1 relies on the critic more than on the actual reward"].filter(Boolean).join("; ");
  const mean = all.steps.bias < 1e-9 ? "Their means are equal, so both are unbiased" : `The MDP's mean misses ∇J by ${format(all.steps.bias, 3)}: `
    + "the critic is biased, and λ below 1 bootstraps from it";
  const share = all.steps.variance / all.bandit.variance;
  return `${value} The two differ for single completions: ${why}. ${mean}. Token by token has ${format(share, 2)} times the bandit's variance.`;
}

export const update = mounting(buildDecision), dispose = leaving;
