// Monte Carlo: a running mean with its interval beside the truth, and its error by the number of samples.

const MOST = 10_000, LEAST_N = 4;
const REPEATS = 200, FEW = 30; // at rest, and while the hand moves
const WORDS = {
  die: { label: "Die", what: "the mean of a fair die", unit: "pips", digits: 3 },
  darts: { label: "π by darts", what: "4 for each dart that lands in the quarter circle, otherwise 0; the mean is π", unit: "", digits: 3 },
  rare: { label: "Rare event", what: "1 with probability 0.001, otherwise 0: the mean is that probability", unit: "", digits: 5 },
  heavy: { label: "Heavy tail", what: "a payoff with a mean of 3 whose variance is infinite", unit: "", digits: 3 },
};

function buildMonteCarlo(picture) {
  const state = { problem: "die", n: 100, seed: 1 };
  const size = { label: "Samples n", low: Math.log10(LEAST_N), high: Math.log10(MOST), step: 0.05, read: () => Math.log10(state.n),
    write: (value) => { state.n = Math.round(10 ** value); }, text: () => state.n.toLocaleString("en-US") };
  const top = [
    choice(picture, { label: "Mean of", options: Object.entries(WORDS).map(([key, { label }]) => [key, label]),
      read: () => state.problem, write: (value) => { state.problem = value; } }),
    slider(picture, size),
    button(picture, "New samples", () => { state.seed += 1; })];
  controls(picture, ...top.map(({ node }) => node));
  const mean = plot(picture, picture.root, { title: "", height: 232, right: 24 });
  legend(picture.root, [["rl-f1", "running mean, an estimate"], ["rl-f1 rl-f-faint", "its 95 % interval, from the samples"], ["rl-f-outline", "dashed: the truth"]]);
  const rows = numbers(picture), sum = equation(picture, "The equation with these numbers");
  const error = plot(picture, picture.root, { title: "", height: 218, left: 52, right: 24 });
  const end = shape("circle", { r: 8, class: "rl-f-knob rl-f-hit" });
  mean.hands.append(end);
  const announce = grip(picture, end, { ...size, at: (event) => Math.log10(mean.at(event).x) });
  return { draw() {
    const problem = PROBLEMS[state.problem], words = WORDS[state.problem];
    top.forEach(({ show }) => show());
    const run = running(problem.draw, spacedTo(state.n, 240), state.seed), last = run.at(-1);
    drawMean(mean, run, problem, words);
    set(end, { cx: mean.x(state.n), cy: mean.y(clamp(last[1], ...problem.view)) });
    announce();
    const repeats = picture.busy ? FEW : REPEATS;
    const found = errors(problem, doubledTo(state.n), repeats, state.seed), slope = slopeOf(found.slice(1));
    drawErrors(error, found, slope, problem, repeats, words.unit);
    const [, , share] = found.at(-1);
    rows.show([["True mean, exact", fixed(problem.truth, words.digits), words.unit], [`Mean of ${state.n.toLocaleString("en-US")}, estimate`, fixed(last[1], words.digits), words.unit],
      ["95 % interval", `± ${fixed(last[2], words.digits)}`, words.unit],
      ["Intervals that hold the truth", `${Math.round(100 * share)} %`, `of ${repeats}`, "they should be 95 %"],
      ["Slope of the error, fitted", fixed(slope.slope, 2), "", problem.deviation === Infinity ? "σ is infinite: no −1/2" : "−1/2 in theory"]]);
    sum.show(writtenInterval(state.n, last, words.digits));
    say(picture, inWordsMean(state, last, problem, words, share, slope));
  } };
}

function drawMean(one, run, { truth, view }, words) {
  const within = (value) => clamp(value, ...view);
  one.call(`${words.label}: ${words.what}. Drag the end of the line`);
  one.fit({ x: { label: "samples n", low: 1, high: MOST, log: true }, y: { label: words.unit || "value", low: view[0], high: view[1] } });
  const known = run.filter(([, , half]) => Number.isFinite(half));
  band(one, known.map(([n, mean, half]) => [n, within(mean - half), within(mean + half)]), { class: "rl-f1", opacity: 0.2 });
  line(one, run.map(([n, mean]) => [n, within(mean)]), { class: "rl-s1" });
  line(one, [[1, truth], [MOST, truth]], { class: "rl-f-truth" });
}

function drawErrors(one, found, slope, { deviation }, repeats, unit) {
  const there = found.filter(([, error]) => error > 0), finite = deviation !== Infinity;
  const all = [...there.map(([, error]) => error), ...(finite ? [deviation, deviation / Math.sqrt(MOST)] : [])];
  one.call(`Typical error of the mean (root mean square, estimate from ${repeats} repeats) by n; log–log axes`);
  one.fit({ x: { label: "samples n", low: 1, high: MOST, log: true }, y: { label: unit ? `error, ${unit}` : "error", low: Math.min(...all) / 1.6, high: Math.max(...all) * 1.6, log: true } });
  if (finite) {
    line(one, [[1, deviation], [MOST, deviation / Math.sqrt(MOST)]], { class: "rl-f-truth" });
    note(one, one.x(MOST), one.top + 8, "dashed: exact σ/√n", { "text-anchor": "end" });
  }
  const [first] = there[1] ?? there[0], [last] = there.at(-1);
  line(one, [[first, slope.at(first)], [last, slope.at(last)]], { class: "rl-s2" });
  note(one, one.x(last) + 8, Math.max(one.top + 4, one.y(slope.at(last)) - 12), `slope ${fixed(slope.slope, 2)}`, { "text-anchor": last > 300 ? "end" : "start", class: "rl-f2" });
  there.forEach(([n, each]) => draw(one, "circle", { cx: one.x(n), cy: one.y(each), r: 3.5, class: "rl-f1" }));
}

function writtenInterval(n, [, mean, half, s], digits) {
  const bar = `<mover>${mi("x")}${mo("¯")}</mover>`, gap = '<mspace width="0.3em"/>';
  return [`${sub(bar, mi("n"))}${mo("±")}${mn(1.96)}${mo("·")}${frac(mi("s"), sqrt(mi("n")))}`,
    `${mo("=")}${mn(mean, digits)}${mo("±")}${mn(1.96)}${mo("·")}${frac(mn(s, digits), sqrt(mn(n, 0)))}`,
    `${mo("=")}${mn(mean, digits)}${mo("±")}${mn(half, digits)}${gap}`];
}

function inWordsMean({ n, problem }, [, mean, half], { truth, deviation }, words, share, slope) {
  const off = Math.abs(mean - truth), inside = off <= half ? "holds" : "misses";
  const now = `With ${n.toLocaleString("en-US")} samples the mean is ${fixed(mean, words.digits)}, off by ${fixed(off, words.digits)}; its interval ${inside} the truth.`;
  if (deviation === Infinity) return `${now} The variance is infinite: now and then one sample moves the whole mean, the error does not follow 1/√n (fitted slope ${fixed(slope.slope, 2)}), and the interval cannot be trusted.`;
  const trust = problem === "rare" && share < 0.9 ? " Until the event has occurred several times, the interval cannot be trusted; without any event it has no width." : "";
  return `${now} Over the repeats the error falls with slope ${fixed(slope.slope, 2)}, an estimate of −1/2: four times the samples halve it.${trust}`;
}

export const update = mounting(buildMonteCarlo), dispose = leaving;
