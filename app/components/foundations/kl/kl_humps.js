// One hump fitted to two: the forward KL covers both, the reverse KL seeks one.

const SQRT_2PI = Math.sqrt(2 * Math.PI);

function buildHumps(picture) {
  const state = { weight: 0.6, means: [-2, 2], width: 0.7 }, grid = gridOf(GRID);
  const chart = plot(picture, picture.root, { title: "One hump fitted to two: drag the humps of P", height: 216 });
  legend(picture.root, [["rl-f1 rl-f-faint", "P, two humps"], ["rl-f3", "Q with the least KL(P‖Q) covers both"],
    ["rl-f4", "Q with the least KL(Q‖P) seeks one"]]);
  const width = slider(picture, { label: "Width of the humps of P", low: 0.3, high: 1.5, step: 0.01, read: () => state.width,
    write: (value) => { state.width = value; }, text: () => state.width.toFixed(2) });
  controls(picture, width.node);
  const rows = numbers(picture);
  const knobs = [0, 1].map((i) => humpGrip(picture, chart, state, i));
  return () => {
    const logP = humps(grid, state), apart = grid[1] - grid[0];
    const moments = momentsOf(grid, logP);
    const cover = fitted(grid, logP, true, [moments]);
    const seek = fitted(grid, logP, false, [moments, ...state.means.map((mean) => [mean, state.width])]);
    const density = (logs) => grid.map((x, i) => [x, Math.exp(logs[i]) / apart]);
    const lines = [logP, cover.logs, seek.logs].map(density);
    const high = Math.max(0.5, ...lines.flat().map(([, y]) => y)) * 1.15;
    chart.fit({ x: { label: "x (no unit)", low: GRID.low, high: GRID.high }, y: { label: "probability per unit of x", high } });
    band(chart, lines[0].map(([x, y]) => [x, 0, y]), { class: "rl-f1", opacity: 0.25 });
    ["rl-s1", "rl-s3", "rl-s4"].forEach((name, i) => line(chart, lines[i], { class: name }));
    width.show();
    knobs.forEach((show) => show());
    rows.show([["Covering Q", cover], ["Seeking Q", seek]].flatMap(([words, { logs }]) => [
      [`${words}: KL(P‖Q)`, fixed(klOfLogs(logP, logs), 3), "nats"], [`${words}: KL(Q‖P)`, fixed(klOfLogs(logs, logP), 3), "nats"]]));
    const at = (fit) => `${fixed(fit.mean, 2)} with width ${fixed(fit.width, 2)}`;
    return `Fitted to humps at ${state.means.map((each) => fixed(each, 1)).join(" and ")}, the forward KL puts Q at ${at(cover)}, `
      + `the reverse KL at ${at(seek)}.`;
  };
}

// The top of a hump: across moves its mean, up and down its share of the mass.
function humpGrip(picture, chart, state, i) {
  const node = shape("circle", { r: 9, class: "rl-f-knob rl-f-hit" });
  chart.hands.append(node);
  const share = () => (i ? 1 - state.weight : state.weight);
  const announce = grip(picture, node, { label: `Hump ${i + 1} of P: left and right its place, up and down its share`,
    low: -4, high: 4, step: 0.1, read: () => state.means[i],
    text: () => `at ${fixed(state.means[i], 1)}, share ${share().toFixed(2)}`,
    write: (x) => { state.means[i] = x; }, at: (event) => chart.at(event).x,
    up: { low: 0.05, high: 0.95, step: 0.02, read: share, at: (event) => chart.at(event).y * state.width * SQRT_2PI,
      write: (value) => { state.weight = i ? 1 - value : value; } } });
  return () => {
    const peak = share() / (state.width * SQRT_2PI);
    set(node, { cx: chart.x(state.means[i]), cy: chart.y(Math.min(peak, chart.y.high)) });
    announce();
  };
}

export const update = mounting(buildKl), dispose = leaving;
