// The mean of a curve at random places: plain, with a control variate, with mirrored places. Same random numbers.

const ESTIMATORS = [["plain", "Plain"], ["control", "Control variate"], ["antithetic", "Antithetic"]];
const CURVE_REACH = 1.5; // how far from the mean estimates are drawn
const CURVE_BINS = 75;
const CURVE_SEED = 7;
const CURVES = [["Like eᵘ", [1, Math.exp(0.5), Math.exp(1)]], ["Straight", [0, 1, 2]], ["Symmetric", [2, 0, 2]]];

function curvePart(picture) {
  const state = { heights: CURVES[0][1], n: 8, estimator: "control" };
  const top = [
    choice(picture, { label: "Estimator", options: ESTIMATORS, read: () => state.estimator,
      write: (to) => { state.estimator = to; } }),
    slider(picture, { label: "Samples n", low: 2, high: 64, step: 2, read: () => state.n, text: () => String(state.n),
      write: (to) => { state.n = 2 * Math.round(to / 2); } }),
    ...CURVES.map(([words, heights]) => button(picture, words, () => { state.heights = heights; }))];
  controls(picture, ...top.map(({ node }) => node));
  const row = el("div", { class: "rl-f-row" });
  picture.root.append(row);
  const chart = plot(picture, row, { title: "Drag the curve f(u) at its three points", height: 220 });
  const strips = plot(picture, row, { title: "", height: 220, left: 12, top: 8 });
  const knobs = [0, 0.5, 1].map((u, place) => knob(picture, chart, { label: `Height of the curve at u = ${u}`, low: -1,
    high: 3, step: 0.05, class: "rl-s1", read: () => state.heights[place], text: () => state.heights[place].toFixed(2),
    write: (to) => { state.heights = state.heights.map((each, k) => (k === place ? to : each)); },
    at: (event) => chart.at(event).y }));
  const found = table(picture.root, "Estimators of the mean", ["Estimator", "Mean of the estimates", "Variance",
    "÷ plain, measured", "÷ plain, exact"]);
  const sum = equation(picture, "The variance with these numbers");
  const draws = remembered((heights, n, repeats) => curveDraws(curveOf(heights), n, repeats, randomOf(CURVE_SEED)));
  return { draw() {
    const curve = curveOf(state.heights), truth = curveTruth(curve), repeats = picture.busy ? 400 : 4000;
    const drawn = draws(state.heights, state.n, repeats);
    top.forEach(({ show }) => show());
    drawCurve(chart, curve, truth, state);
    knobs.forEach((each, place) => each.show(chart.x(place / 2), chart.y(state.heights[place])));
    strips.call(`${repeats.toLocaleString("en-US")} estimates of the mean from ${state.n} samples each`);
    drawStrips(strips, drawn, truth.mean, state.estimator);
    found.show(curveRows(drawn, truth, state.n));
    sum.show(writtenRatio(truth, state));
    return curveWords(truth, state.estimator);
  } };
}

function drawCurve(chart, curve, truth, state) {
  chart.fit({ x: { label: "u, equally likely everywhere from 0 to 1", low: 0, high: 1 }, y: { label: "f(u)", low: -1.2, high: 3.2 } });
  const f = (u) => heightAt(curve, u), across = Array.from({ length: 61 }, (_, at) => at / 60);
  line(chart, [[0, truth.mean], [1, truth.mean]], { stroke: "currentColor", class: "rl-f-dashed" });
  note(chart, chart.left + 4, chart.y(truth.mean) - 4, `mean ${truth.mean.toFixed(3)}, exact`);
  if (state.estimator === "control") line(chart, across.map((u) => [u, truth.mean + curve.beta * (u - 0.5)]), { class: "rl-s3" });
  line(chart, across.map((u) => [u, f(u)]), { class: "rl-s1" });
  const next = randomOf(CURVE_SEED), places = Array.from({ length: Math.min(state.n, 16) }, next);
  if (state.estimator === "antithetic") {
    for (const u of places.slice(0, Math.ceil(places.length / 2))) {
      line(chart, [[u, f(u)], [1 - u, f(1 - u)]], { class: "rl-s2 rl-f-faint" });
      for (const x of [u, 1 - u]) dotAt(chart, x, f(x));
    }
    return;
  }
  for (const u of places) {
    if (state.estimator === "control") line(chart, [[u, f(u)], [u, truth.mean + curve.beta * (u - 0.5)]], { class: "rl-s2 rl-f-faint" });
    dotAt(chart, u, f(u));
  }
}

const dotAt = (chart, x, y) => draw(chart, "circle", { cx: chart.x(x), cy: chart.y(y), r: 3, class: "rl-f2" });

// One row of estimates above the other, each as a histogram.
function drawStrips(chart, drawn, mean, chosen) {
  chart.fit({ x: { label: "estimate of the mean", low: mean - CURVE_REACH, high: mean + CURVE_REACH },
    y: { label: "", low: 0, high: ESTIMATORS.length, ticks: [] } });
  ESTIMATORS.forEach(([name, words], place) => {
    const counts = Array(CURVE_BINS).fill(0), floor = ESTIMATORS.length - 1 - place, width = 2 * CURVE_REACH / CURVE_BINS;
    for (const each of drawn[name]) {
      counts[clamp(Math.floor((each - mean + CURVE_REACH) / width), 0, CURVE_BINS - 1)] += 1;
    }
    const most = Math.max(...counts);
    stairs(chart, mean - CURVE_REACH, width, floor, counts.map((count) => 0.72 * count / most),
      { class: `rl-f${place + 1}`, opacity: name === chosen ? 1 : 0.4 });
    note(chart, chart.left + 2, chart.y(floor + 0.72), words, { "font-weight": name === chosen ? 600 : 400 });
  });
  const x = chart.x(mean);
  draw(chart, "line", { x1: x, x2: x, y1: chart.y(0), y2: chart.y(ESTIMATORS.length), stroke: "currentColor", class: "rl-f-dashed" });
}

function curveRows(drawn, truth, n) {
  const plain = varianceOf(drawn.plain);
  return ESTIMATORS.map(([name, words]) => [words, format(meanOf(drawn[name]), 3), format(varianceOf(drawn[name]), 4),
    format(varianceOf(drawn[name]) / plain, 3), [format(truth.ratios[name], 3), "", name === "control"
      ? `For the best coefficient; fitted on ${n} samples it is a little worse` : ""]]);
}

// Plain: Var f / n. The others over it: 1 − ρ² with ρ the correlation of f(u) and u, 1 + ρ with that of f(u), f(1 − u).
function writtenRatio({ variance, ratios }, { n, estimator }) {
  const plain = frac(`${mi("Var")}${mo("&#8289;")}${mi("f")}`, mi("n"));
  if (estimator === "plain" || !Number.isFinite(ratios.control)) {
    return [`${plain}${mo("=")}${frac(mn(variance, 4), mn(n, 0))}`, `${mo("=")}${mn(variance / n, 4)}`];
  }
  const rest = ratios[estimator];
  const rho = estimator === "control" ? sub(mi("ρ"), mrow(mi("f"), mo(","), mi("u"))) : sub(mi("ρ"), mtext("mirror"));
  return estimator === "control" ? [`${mn(1, 0)}${mo("−")}${sup(rho, mn(2, 0))}`, `${mo("=")}${mn(1, 0)}${mo("−")}${mn(1 - rest, 3)}`,
    `${mo("=")}${mn(rest, 3)}`] : [`${mn(1, 0)}${mo("+")}${rho}`, `${mo("=")}${mn(1, 0)}${mo(rest < 1 ? "−" : "+")}${mn(Math.abs(rest - 1), 3)}`,
    `${mo("=")}${mn(rest, 3)}`];
}

function curveWords({ ratios, mean }, chosen) {
  if (!Number.isFinite(ratios.control)) return "The curve is flat: one sample gives its mean.";
  const said = (name) => format(ratios[name], 3);
  if (chosen === "plain") return `The exact mean is ${mean.toFixed(3)}. Plain Monte Carlo is what the others are compared with.`;
  if (chosen === "control") return `Subtracting c·(u − ½), whose mean is 0, leaves ${said("control")} of the variance with the `
    + "best c: only what is not a straight line remains. c is fitted on the same samples: where they are few, that adds noise and a small bias.";
  return `Each u is used together with its mirror 1 − u: ${said("antithetic")} of the variance at as many evaluations. `
    + (ratios.antithetic > 1 ? "On a nearly symmetric curve the mirrored sample adds no information, and the variance rises."
      : "Where one is too high the other is too low.");
}
