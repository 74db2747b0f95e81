// KL from samples: where the estimates fall in 10,000 draws of n, and which gradient each gives in a loss.

const BEGIN = { p: [0.4, 0.25, 0.2, 0.1, 0.05], q: [0.15, 0.2, 0.25, 0.25, 0.15] };
const DRAWS = 10_000, QUICK = 1_000, BINS = 90, LEAST = 0.01;
const ROWS = [["k1", "k1 = −log r"], ["k2", "k2 = ½ (log r)²"], ["k3", "k3 = r − 1 − log r"], ["upside_down", "k3 with π/π_ref: wrong"]];
const COLOURS = { k1: "rl-f1", k2: "rl-f5", k3: "rl-f3", ratio_k3: "rl-f3", upside_down: "rl-f2" };
const LOSSES = [["k1", "k1: 0"], ["k2", "k2: gradient of KL(π‖π_ref)"], ["ratio_k3", "ρ·k3: gradient of KL(π‖π_ref)"],
  ["k3", "k3: gradient of KL(π_ref‖π)"], ["upside_down", "k3 with π/π_ref: gradient of neither"]];

function buildKlSamples(picture) {
  const state = { ...BEGIN, n: 16, seed: 1 };
  const top = [
    slider(picture, { label: "Samples n", low: 1, high: 64, log: true, read: () => state.n, text: () => String(state.n),
      write: (value) => { state.n = Math.round(value); } }),
    button(picture, "New samples", () => { state.seed += 1; }),
    button(picture, "Q close to P", () => { state.q = state.p.map((each, i) => each + [-0.02, 0.01, 0.01, -0.01, 0.01][i]); state.q = kept(normalised(state.q), LEAST); }),
    button(picture, "Start again", () => Object.assign(state, BEGIN))];
  controls(picture, ...top.map(({ node }) => node));
  const pair = pairOf(picture, state, 168, LEAST, ["P = π, the policy", "Q = π_ref, the reference"]);
  const spread = plot(picture, picture.root, { title: "", height: 262, left: 14 });
  const table = el("div", { class: "rl-f-scroll" });
  const sum = equation(picture, "The equation with these numbers");
  picture.root.append(table, el("h4", {}, "In a loss: the mean gradient by the logits of π, exact"));
  const row = el("div", { class: "rl-f-row rl-f-small" });
  picture.root.append(row);
  const pulls = LOSSES.map(([name, title]) => [name, plot(picture, row, { title, height: 124, left: 40, top: 22 })]);
  legend(picture.root, [["rl-f-outline", "outline: the exact gradient of KL(π‖π_ref)"]]);
  return { draw() {
    const { p, q, n, seed } = state, draws = picture.busy ? QUICK : DRAWS;
    top.forEach(({ show }) => show());
    pair.show();
    const found = estimates(p, q, n, draws, seed), exact = kl(p, q);
    const all = ROWS.map(([name, words]) => ({ name, words, values: found[name], here: measured(found[name]), truth: exactly(name, p, q, n) }));
    drawSpread(spread, all, exact, draws, n);
    showTable(table, all, exact, draws);
    sum.show(writtenSample(p, q, seed));
    const { forward } = exactGradients(p, q);
    drawPulls(pulls, p, q, forward);
    say(picture, inWordsSamples(all, exact, n));
  } };
}

function drawSpread(one, all, exact, draws, n) {
  const wide = (sign) => (each) => each.truth.mean + sign * 3.5 * each.truth.deviation;
  const low = Math.min(0, exact, ...all.map(wide(-1)).map((each, i) => Math.max(each, Math.min(0, ...all[i].values)))) - 0.01;
  const high = Math.max(exact, ...all.map(wide(1))) + 0.01;
  one.call(`Estimates of KL(P‖Q), each the mean of ${n} samples: distribution of ${draws.toLocaleString("en-US")} estimates`);
  one.fit({ x: { label: "estimate, nats", low, high }, y: { label: "", low: 0, high: all.length, ticks: [] } });
  const step = (high - low) / BINS;
  all.forEach(({ name, words, values, here }, i) => {
    const bins = histogram(values, low, high, BINS), floor = all.length - 1 - i, most = Math.max(...bins) || 1;
    stairs(one, low, step, floor, Array.from(bins, (each) => each / most * 0.72), { class: COLOURS[name], opacity: 0.75 });
    line(one, [[low, floor], [high, floor]], { class: "rl-f-grid" });
    line(one, [[here.mean, floor], [here.mean, floor + 0.8]], { class: "rl-f-mean" });
    note(one, one.width - one.right, one.y(floor + 0.78), words, { "text-anchor": "end", class: name === "upside_down" ? "rl-f-bad" : "" });
  });
  line(one, [[exact, 0], [exact, all.length]], { class: "rl-f-truth" });
  note(one, one.x(exact), one.top - 4, `exact ${fixed(exact, 3)}`, { "text-anchor": "middle" });
}

function showTable(node, all, exact, draws) {
  const head = ["", `mean, estimate from ${draws.toLocaleString("en-US")}`, "mean, exact", "bias, exact", `spread, estimate from ${draws.toLocaleString("en-US")}`, "spread, exact"];
  const rows = all.map(({ name, words, here, truth }) => {
    const cells = [here.mean, truth.mean, truth.mean - exact, here.deviation, truth.deviation].map((each, i) =>
      `<td>${i === 2 && Math.abs(each) < 1e-9 ? "0" : fixed(each, 3)}</td>`).join("");
    return `<tr><th${name === "upside_down" ? ' class="rl-f-wrong"' : ""}>${el("i", {}, words).innerHTML}</th>${cells}</tr>`;
  });
  node.innerHTML = `<table class="rl-f-table"><caption>All in nats. Spread: the standard deviation of the estimates.</caption>`
    + `<thead><tr>${head.map((each) => `<th>${each}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

// What the first sample says.
function writtenSample(p, q, seed) {
  const i = drawerOf(p, randomOf(seed))(), r = q[i] / p[i], gap = '<mspace width="0.5em"/>', is = mo("=");
  const k = (number) => sub(mi("k"), `<mn>${number}</mn>`);
  return [`${mtext(`First sample: ${String.fromCodePoint(65 + i)}.`)}${gap}${mi("r")}${is}${frac(mn(q[i]), mn(p[i]))}${is}${mn(r)}${mtext(",")}${gap}`,
    `${k(1)}${is}${mo("−")}${log(mn(r))}${is}${mn(-Math.log(r), 3)}${mtext(",")}${gap}`,
    `${k(2)}${is}${frac("<mn>1</mn>", "<mn>2</mn>")}${sup(mrow(mo("("), log(mn(r)), mo(")")), "<mn>2</mn>")}${is}${mn(ESTIMATORS.k2(p[i], q[i]), 3)}${mtext(",")}${gap}`,
    `${k(3)}${is}${mn(r)}${mo("−")}<mn>1</mn>${mo("−")}${log(mn(r))}${is}${mn(ESTIMATORS.k3(p[i], q[i]), 3)}${mtext("&nbsp;nats")}`];
}

function drawPulls(pulls, p, q, truth) {
  const of = pulls.map(([name]) => gradientOf(name, p, q));
  const most = Math.max(0.02, ...truth.map(Math.abs), ...of.slice(0, 4).flat().map(Math.abs)) * 1.15;
  pulls.forEach(([name, one], i) => {
    one.fit({ x: { label: "logit of outcome", names: p.map((_, j) => String.fromCodePoint(65 + j)) }, y: { label: "nats", low: -most, high: most, count: 6 } });
    of[i].forEach((each, j) => {
      const at = one.x(j), half = one.x.band * 0.3, inside = clamp(each, -most, most);
      column(one, at - half, at + half, 0, inside, { class: COLOURS[name] });
      if (inside !== each) note(one, at, one.y(inside) + (each > 0 ? -2 : 10), each > 0 ? "↑" : "↓", { "text-anchor": "middle" });
      column(one, at - half - 2, at + half + 2, 0, truth[j], { class: "rl-f-outline" });
    });
    line(one, [[-0.5, 0], [p.length - 0.5, 0]], { class: "rl-f-axis" });
  });
}

function inWordsSamples(all, exact, n) {
  const [k1, k2, k3, wrong] = all.map(({ truth }) => truth);
  const calm = k3.deviation < k1.deviation ? "less" : "no less";
  return `The exact KL is ${fixed(exact, 3)} nats. Means of ${n} samples by k1 and k3 are right on average; k3 spreads ${calm} than k1 `
    + `(${fixed(k3.deviation, 3)} against ${fixed(k1.deviation, 3)}). k2 is off by ${fixed(k2.mean - exact, 3)} however many samples there are. `
    + `k3 with the ratio upside down, π/π_ref, is off by ${fixed(wrong.mean - exact, 3)}.`;
}

export const update = mounting(buildKlSamples), dispose = leaving;
