// The tree of tokens: edges as thick as they are likely, and grips for probabilities and rewards.

const TREE_HEIGHT = 430;
const RAIL = 0.8; // how far the rail on which a probability is dragged reaches to the next states
const PAY = { leaf: 0.75, inner: 0.3 }; // positions: the length of a bar of reward 1

const heightOf = (node) => { // leaves are at 7.5 … 0.5
  const depth = depthOf(node), first = 2 ** depth - 1, width = LEAVES / 2 ** depth;
  return LEAVES - (node - first + 0.5) * width;
};

function treePlot(picture, state) {
  const chart = plot(picture, picture.root, { title: "Drag the probability of a (blue, up: likelier) and the rewards (ochre)", height: TREE_HEIGHT, left: 46, right: 44, top: 22, bottom: 40 });
  const shares = state.first.map((_, node) => knob(picture, chart, { label: `Probability of token a after ${stateOf(node)}`, low: 0.02, high: 0.98,
    step: 0.02, class: "rl-s1", read: () => state.first[node], text: () => state.first[node].toFixed(2), write: (to) => { state.first[node] = to; },
    at: (event) => 0.5 + (chart.at(event).y - heightOf(node)) / (2 * railOf(node)) }));
  const pays = Array.from({ length: NODES - 1 }, (_, at) => at + 1).map((node) => knob(picture, chart, { label: `Reward for “${textOf(node)}”`, low: -1, high: 1,
    step: 0.05, class: "rl-s5", read: () => state[state.kind][node], text: () => state[state.kind][node].toFixed(2),
    write: (to) => { state[state.kind][node] = to; }, at: (event) => (chart.at(event).x - payFrom(node)) / payLength(node) }));
  chart.svg.addEventListener("click", (event) => {
    const { x, y } = chart.at(event);
    if (x < DEPTH - 0.35 || x > payFrom(STATES) - 0.05) return;
    state.leaf = clamp(Math.floor(LEAVES - y), 0, LEAVES - 1);
    changed(picture);
  });
  return { draw(all, rewards) {
    chart.fit({ x: { label: "tokens written", low: -0.06, high: DEPTH + 0.68 + PAY.leaf, ticks: [0, 1, 2, 3] }, y: { label: "", low: 0, high: LEAVES, ticks: [] } });
    const path = new Set([0, ...creditOf(state.leaf, rewards, 0, Array(STATES).fill(0), 1).states, STATES + state.leaf]);
    for (let node = 1; node < NODES; node++) drawEdge(chart, node, all, state, path.has(node));
    for (let node = 0; node < NODES; node++) drawNode(chart, node, all, rewards, state, path.has(node));
    shares.forEach((each, node) => each.show(chart.x(depthOf(node)), chart.y(heightOf(node) + (state.first[node] - 0.5) * 2 * railOf(node))));
    pays.forEach((each, at) => {
      const node = at + 1, there = node >= STATES || state.kind === "process";
      set(each.node, there ? { display: "inline" } : { display: "none" });
      each.show(chart.x(payFrom(node) + rewards[node] * payLength(node)), chart.y(payAt(node)));
    });
  } };
}

const railOf = (node) => RAIL * LEAVES / 2 ** (depthOf(node) + 2); // leaves: half its height
const payFrom = (node) => (node >= STATES ? DEPTH + 0.64 : depthOf(node) + 0.14);
const payLength = (node) => (node >= STATES ? PAY.leaf : PAY.inner);
const payAt = (node) => (node >= STATES ? heightOf(node) : heightOf(node) - 0.42);

function drawEdge(chart, node, all, state, chosen) {
  const from = Math.floor((node - 1) / 2), token = (node + 1) % 2, p = token ? 1 - state.first[from] : state.first[from];
  const [x1, x2] = [chart.x(depthOf(from)), chart.x(depthOf(node))], [y1, y2] = [chart.y(heightOf(from)), chart.y(heightOf(node))];
  draw(chart, "line", { x1, x2, y1, y2, style: `stroke-width:${(1 + 9 * p).toFixed(1)}`, class: chosen ? "rl-s2" : "rl-s1", opacity: chosen ? 0.75 : 0.28 });
  const share = depthOf(node) === DEPTH ? 0.6 : 0.5;
  note(chart, x1 + share * (x2 - x1), y1 + share * (y2 - y1) + (token ? 13 + 4 * p : -5 - 4 * p), `${TOKENS[token]} ${p.toFixed(2).replace(/^0/, "")}`, { "text-anchor": "middle" });
}

// A state with the rail of its probability and its value; a completion with its text and the bar of its reward.
function drawNode(chart, node, all, rewards, state, chosen) {
  const x = chart.x(depthOf(node)), y = chart.y(heightOf(node));
  if (node < STATES) {
    const reach = railOf(node);
    draw(chart, "line", { x1: x, x2: x, y1: chart.y(heightOf(node) - reach), y2: chart.y(heightOf(node) + reach), stroke: "currentColor", "stroke-opacity": 0.5 });
    note(chart, x, chart.y(heightOf(node) + reach) - 5, `V ${format(all.value[node], 2)}`, { "text-anchor": "middle" });
    if (!node) note(chart, x - 10, y + 4, "prompt", { "text-anchor": "end" });
    if (node && state.kind === "process") payBar(chart, node, rewards[node]);
    return;
  }
  note(chart, x + 6, y + 4, textOf(node), { "font-weight": chosen ? 700 : 400, style: "cursor:pointer" });
  payBar(chart, node, rewards[node]);
}

function payBar(chart, node, reward) {
  const from = chart.x(payFrom(node)), to = chart.x(payFrom(node) + reward * payLength(node)), y = chart.y(payAt(node));
  draw(chart, "rect", { x: Math.min(from, to), width: Math.abs(to - from), y: y - 5, height: 10, class: "rl-f5" });
  draw(chart, "line", { x1: from, x2: from, y1: y - 8, y2: y + 8, stroke: "currentColor", "stroke-opacity": 0.5 });
  if (node >= STATES) note(chart, Math.max(from, to) + 10, y + 4, format(reward, 2));
}
