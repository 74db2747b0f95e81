// Samples of q = N(0, 1), weighed so that they tell the mean of p = N(m, s²), with and without a bound on the weights.

const GAUSSIAN_SEED = 5;
const SHOWN_SAMPLES = 60;
const MOST_WEIGHT = 100, LEAST_WEIGHT = 0.5; // of the bound c

function gaussianPart(picture) {
  const state = { m: 1, s: 0.8, n: 100, limit: 4 };
  const top = [
    slider(picture, { label: "Samples n", low: 10, high: 1000, log: true, read: () => state.n, text: () => String(state.n),
      write: (to) => { state.n = Math.round(to); } }),
    button(picture, "p = q", () => Object.assign(state, { m: 0, s: 1 })), button(picture, "Far away", () => Object.assign(state, { m: 2.5, s: 0.8 })),
    button(picture, "Start again", () => Object.assign(state, { m: 1, s: 0.8, limit: 4, n: 100 }))];
  controls(picture, ...top.map(({ node }) => node));
  const row = el("div", { class: "rl-f-row" });
  picture.root.append(row);
  const left = plot(picture, row, { title: "Drag the top of p: sideways, up and down", height: 220 });
  const peak = knob(picture, left, { label: "Mean m of p, and with up and down its width s", low: -3, high: 3, step: 0.1, class: "rl-s2",
    read: () => state.m, text: () => `mean ${state.m.toFixed(2)}, width ${state.s.toFixed(2)}`, write: (to) => { state.m = to; },
    at: (event) => left.at(event).x, up: { low: 0.5, high: 1.6, step: -0.05, read: () => state.s, write: (to) => { state.s = to; },
      at: (event) => densityOf(0) / Math.max(0.01, left.at(event).y) } });
  const right = plot(picture, row, { title: "A bound c on the weights: drag it", height: 220, left: 52 });
  const bound = knob(picture, right, { label: "Bound c on the weights", low: LEAST_WEIGHT, high: MOST_WEIGHT, step: 0.25, class: "rl-s3",
    read: () => state.limit, text: () => `${state.limit.toFixed(2)}`, write: (to) => { state.limit = to; }, at: (event) => right.at(event).x });
  legend(picture.root, [["rl-f1", "first chart: q; second: variance / n"], ["rl-f2", "first: p; second: squared bias"], ["rl-f3", "second: their sum, the mean squared error"]]);
  const rows = numbers(picture);
  const found = table(picture.root, "Estimators of the mean of p", ["Estimator of E x under p", "Mean, exact", "Bias, exact", "Variance, exact",
    "Variance, measured"]);
  const draws = remembered((m, s, limit, n, repeats) => {
    const uniform = randomOf(GAUSSIAN_SEED);
    return weightDraws(m, s, limit, n, repeats, () => normalOf(uniform));
  });
  const curves = remembered((m, s, n) => errorCurve(m, s, n, LEAST_WEIGHT, MOST_WEIGHT));
  return { draw() {
    const { m, s, n, limit } = state, truth = weightTruth(m, s), clipped = clippedTruth(m, s, limit);
    const repeats = Math.max(50, Math.round((picture.busy ? 5_000 : 200_000) / n)), drawn = draws(m, s, limit, n, repeats);
    top.forEach(({ show }) => show());
    drawDensities(left, state);
    peak.show(left.x(m), left.y(densityOf(m, m, s)));
    const errors = errorsOf(clipped, n);
    drawErrors(right, curves(m, s, n), truth);
    bound.show(right.x(limit), right.y(clamp(errors.all, right.y.low, right.y.high)));
    rows.show([["Effective samples, limit for large n", ...limitOf(n, truth)], ["Kish on samples", format(meanOfSizes(drawn.sizes), 1), `of ${n}`,
      `estimate, mean of ${repeats.toLocaleString("en-US")} draws`], ["Variance of w, exact", truth.second < Infinity ? format(truth.second - 1, 2) : "∞"]]);
    found.show([["w x", format(m, 3), "0", truth.variance < Infinity ? format(truth.variance / n, 4) : "∞", format(spreadOf(drawn.plain), 4)],
      [`min(w, ${format(limit, 2)}) x`, format(clipped.mean, 3), format(clipped.bias, 3),
        format(clipped.variance / n, 4), format(spreadOf(drawn.clipped), 4)]]);
    return gaussianWords(state, truth, errors);
  } };
}

const meanOfSizes = (values) => total(values) / values.length;

function spreadOf(values) {
  const centre = total(values) / values.length;
  return total(values.map((each) => (each - centre) ** 2)) / (values.length - 1);
}

// Both densities, and samples of q below them whose area is their weight.
function drawDensities(chart, { m, s }) {
  chart.fit({ x: { label: "x", low: -4.5, high: 4.5 }, y: { label: "density; samples of q: area = weight", low: -0.12, high: 0.85, ticks: [0, 0.2, 0.4, 0.6, 0.8] } });
  const across = Array.from({ length: 121 }, (_, at) => -4.5 + 9 * at / 120);
  line(chart, across.map((x) => [x, densityOf(x)]), { class: "rl-s1" });
  line(chart, across.map((x) => [x, densityOf(x, m, s)]), { class: "rl-s2" });
  note(chart, chart.x(m < 0 ? 1 : -1) - 4, chart.y(0.26), "q", { "text-anchor": m < 0 ? "start" : "end" });
  note(chart, chart.x(m) + 12, chart.y(densityOf(m, m, s)) - 2, "p");
  const uniform = randomOf(GAUSSIAN_SEED);
  for (let at = 0; at < SHOWN_SAMPLES; at++) {
    const x = normalOf(uniform);
    draw(chart, "circle", { cx: chart.x(x), cy: chart.y(-0.06), r: Math.min(24, 3 * Math.sqrt(weightOf(x, m, s))), class: "rl-f1", opacity: 0.35 });
  }
}

// Squared bias, variance and their sum against the bound.
function drawErrors(chart, { rows, most, low }, truth) {
  chart.fit({ x: { label: "bound c", low: LEAST_WEIGHT, high: MOST_WEIGHT, log: true },
    y: { label: "squared error of the estimate", low, high: most * 3, log: true } });
  const over = (value) => (value >= low ? value : NaN);
  line(chart, rows.map(([limit, each]) => [limit, over(each.bias)]), { class: "rl-s2" });
  line(chart, rows.map(([limit, each]) => [limit, over(each.variance)]), { class: "rl-s1" });
  line(chart, rows.map(([limit, each]) => [limit, over(each.all)]), { class: "rl-s3", "stroke-width": 3 });
  const first = rows[0][1], last = rows.at(-1)[1];
  if (first.bias > low) note(chart, chart.left + 6, chart.y(first.bias) - 8, "bias²");
  note(chart, chart.width - chart.right, chart.y(clamp(last.variance, low, most)) - 6, truth.variance < Infinity
    ? "variance / n" : "variance / n, ∞ without a bound", { "text-anchor": "end" });
}

// n / (1 + Var w), its unit and a note: Kish's size is never below 1, so where this is, n is too small for it.
function limitOf(n, { share }) {
  if (share === 0) return ["–", "", "Var w is infinite: no n is large enough"];
  return n * share < 1 ? ["–", "", "n / (1 + Var w) is below 1: n is too small"] : [format(n * share, 1), `of ${n}`];
}

function gaussianWords({ n }, truth, errors) {
  const size = truth.share === 0 ? "The tails of p are much wider than those of q: the variance of the weights is infinite for every n."
    : n * truth.share < 1 ? `${n} samples of q are too few for p: a few weights carry the mean.`
      : `${n} samples of q are worth about ${format(n * truth.share, 1)} of p.`;
  const advice = errors.bias > errors.variance ? "mostly bias: a higher bound gives less bias and more variance"
    : "mostly variance: a lower bound gives less variance and more bias";
  return `${size} At this bound the error of the bounded estimate is ${advice}.`;
}
