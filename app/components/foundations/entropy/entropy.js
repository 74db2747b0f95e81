// Entropy: bars to drag, a temperature, and how far the entropy is between 0 and log n.

const FIRST = [0.4, 0.25, 0.2, 0.1, 0.05];
const LETTERS = "ABCDEFGH";

function buildEntropy(picture) {
  const state = { p: FIRST, temperature: 1 };
  const shown = () => tempered(state.p, state.temperature);
  const reset = (p) => Object.assign(state, { p, temperature: 1 });
  const top = [
    slider(picture, { label: "Outcomes n", low: 2, high: 8, step: 1, read: () => state.p.length,
      text: () => String(state.p.length), write: (n) => resize(state, Math.round(n)) }),
    slider(picture, { label: "Temperature T", low: 0.1, high: 5, log: true, read: () => state.temperature,
      text: () => state.temperature.toFixed(2), write: (value) => { state.temperature = Math.abs(value - 1) < 0.03 ? 1 : value; } }),
    button(picture, "All equal", () => reset(state.p.map(() => 1 / state.p.length))),
    button(picture, "Certain", () => reset(state.p.map((_, i) => Number(i === 0)))),
    button(picture, "Start again", () => reset(FIRST))];
  controls(picture, ...top.map(({ node }) => node));
  const chart = plot(picture, picture.root, { title: "Drag the bars", height: 236 });
  const grips = bars(picture, chart, { class: "rl-f1", read: shown, label: (i) => `Probability of ${LETTERS[i]}`,
    write: (i, value) => reset(moved(shown(), i, value)) });
  const gauge = plot(picture, picture.root, { title: "Entropy, between its minimum and its maximum", height: 66, top: 20, bottom: 30 });
  const rows = numbers(picture), sum = equation(picture, "The equation with these numbers");
  return { draw() {
    const p = shown(), n = p.length, h = entropy(p), most = Math.log(n);
    top.forEach(({ show }) => show());
    chart.fit({ x: { label: "outcome", names: Array.from(LETTERS.slice(0, n)) }, y: { label: "probability", high: 1 } });
    grips.show();
    drawGauge(gauge, h, most);
    rows.show([["Entropy H(p), exact", h.toFixed(3), "nats"], ["In bits", inBits(h).toFixed(3), "bits"],
      ["Minimum: one outcome is certain", "0", "nats"], [`Maximum: log ${n}`, most.toFixed(3), "nats"]]);
    sum.show(written(p, h));
    say(picture, inWords(p, h, most));
  } };
}

// More outcomes begin with a small share; fewer leave theirs to the others.
function resize(state, n) {
  const p = state.p.slice(0, n);
  while (p.length < n) p.push(0.1);
  state.p = normalised(p);
}

function drawGauge(gauge, h, most) {
  gauge.fit({ x: { label: "nats", low: 0, high: most }, y: { label: "", low: 0, high: 1, ticks: [] } });
  column(gauge, gauge.x(0), gauge.x(most), 0, 1, { class: "rl-f1", opacity: 0.14 });
  column(gauge, gauge.x(0), gauge.x(h), 0, 1, { class: "rl-f1" });
}

function written(p, h) {
  return [`${mi("H")}${mo("=")}`, ...p.map((each, i) => `${i ? mo("+") : ""}${each > 0 ? `${mn(each)}${mo("·")}${mn(-Math.log(each))}` : "<mn>0</mn>"}`),
    `${mo("=")}${mn(h, 3)}<mspace width="0.3em"/>${mtext("nats")}`];
}

function inWords(p, h, most) {
  const share = most > 0 ? h / most : 0, likeliest = p.indexOf(Math.max(...p));
  const now = `The entropy is ${h.toFixed(3)} nats, ${inBits(h).toFixed(3)} bits: `;
  if (h < 1e-9) return `${now}${LETTERS[likeliest]} is certain, so nothing is left to chance.`;
  if (share > 1 - 1e-9) return `${now}the maximum of ${p.length} outcomes, as all are equally likely.`;
  return `${now}${(100 * share).toFixed(0)} % of the maximum of ${p.length} outcomes. It is as uncertain as `
    + `${Math.exp(h).toFixed(2)} outcomes that are equally likely.`;
}

export const update = mounting(buildEntropy), dispose = leaving;
