// The surrogates against the ratio: values above, gradients below, for A > 0 and for A < 0 beside it.

const POINTS = 161;
const FROM = 0.15; // ratio from which on all curves fit in
const NARROW = 0.12; // an ε near 0 has a slider of its own size

// The ratios that are drawn: from 0 to beyond every bound, or close around 1, three ε and all tokens wide.
function rangeOf({ now, data }) {
  const [low, high] = bounds(now), most = drawnKeys(now).includes("bounded_clip") ? now.dual_clip || now.clip_delta : 0;
  if (!now.close) return [0, Math.max(2, 1.15 * most, 1 + 3 * (high - 1) > 6 ? 2 : 1 + 3 * (high - 1))];
  const wide = Math.max(1 - low, high - 1) || 0.2, ratios = data.tokens.map(([ratio]) => ratio);
  return [Math.max(0, Math.min(1 - 3 * wide, ...ratios) - wide / 4),
    Math.min(Math.max(3, high + wide), Math.max(1 + 3 * wide, ...ratios) + wide / 4)];
}

// Where the curves are evaluated: evenly, and on both sides of every kink.
function gridOf(picture, advantage, [low, high]) {
  const { now } = picture, kinks = drawnKeys(now).flatMap((key) =>
    SURROGATES[key].dead(advantage, now).flat());
  const all = [...kinks, now.ratio_cap].flatMap((kink) => [kink - 1e-9, kink + 1e-9]);
  const least = Math.max(low, 1e-4);
  return [...Array.from({ length: POINTS }, (_, i) => least + i / (POINTS - 1) * (high - least)),
    ...all.filter((ratio) => ratio > least && ratio < high)].sort((a, b) => a - b);
}

// A round range around all that is drawn, so that it changes seldom.
function roundRange(values) {
  const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const step = ticks(0, span, 5)[1] || span;
  return { low: Math.floor(low / step - 0.05) * step, high: Math.ceil(high / step + 0.05) * step };
}

function panel(picture, parent, sign) {
  const words = sign > 0 ? "A > 0" : "A < 0", box = el("div", { class: "rl-su-panel" });
  parent.append(box);
  const value = plot(picture, box, { title: words, height: 262, left: 44 });
  const said = el("p", { class: "rl-su-said" });
  box.append(said);
  const slope = plot(picture, box, { title: `${words}: gradient`, height: 158, left: 44 });
  const hand = ratioHand(picture, value, words);
  const edges = (sign > 0 ? [["clip_high", "ε_high", 1]] : [["clip_low", "ε_low", -1], ["dual_clip", "c", 1]])
    .map((edge) => edgeHand(picture, value, edge));
  return { draw(anew) {
    const { now, range } = picture, advantage = sign * now.a;
    if (anew) drawCurves(advantage, range);
    hand(advantage);
    edges.forEach((edge) => edge());
    const branch = branchWords(now.focus, Math.max(now.rho, 1e-4), advantage, now);
    reword(said, branch);
    return `${titleOf(now.focus)} at ρ = ${inShort(now.rho)}, A = ${sized(advantage)}: ${branch}`;
  } };

  function drawCurves(advantage, range) {
    const grid = gridOf(picture, advantage, range);
    const tokens = picture.data.tokens.filter(([ratio, each]) => each * sign > 0 && ratio >= range[0] && ratio <= range[1]);
    value.call(sign > 0 ? `Better than expected, A = ${sized(advantage)}` : `Worse than expected, A = ${sized(advantage)}`);
    curves(picture, value, "of", { advantage, range, grid, tokens, unit: "objective S, reward units" });
    curves(picture, slope, "slope", { advantage, range, grid, tokens, unit: "∂S/∂log π, reward units per nat" });
    slope.call("Its gradient: how hard the token is pushed");
  }
}

function curves(picture, chart, what, { advantage, range, grid, tokens, unit }) {
  const { now } = picture, drawn = drawnKeys(now);
  const found = new Map(drawn.map((key) => [key, grid.map((ratio) => SURROGATES[key][what](ratio, advantage, now))]));
  const dots = tokens.map(([ratio, each]) => [ratio, SURROGATES[now.focus][what](ratio, each, now),
    isCut(now.focus, ratio, each, now)]);
  const first = grid.findIndex((ratio) => ratio > Math.min(FROM, range[1] / 2)); // the KL's −log ρ runs away near 0
  const kept = [...[...found.values()].flatMap((values) => values.slice(first)), ...dots.map(([, y]) => y)];
  chart.fit({ x: { label: "ratio ρ = π/π_old", low: range[0], high: range[1] }, y: { label: unit, ...roundRange(kept) } });
  for (const [from, to] of SURROGATES[now.focus].dead(advantage, now)) shade(chart, from, to);
  for (const edge of [...(isUsed(picture, "clip_high") ? bounds(now) : []), 1]) upright(chart, edge, edge === 1 ? "rl-su-one" : "rl-su-edge");
  line(chart, [[range[0], 0], [range[1], 0]], { class: "rl-f-axis" });
  for (const [key, values] of found) {
    const [colour, dash] = curveOf(picture, key);
    line(chart, grid.map((ratio, i) => [ratio, drawable(values[i], chart.y)]), { class: `rl-s${colour} rl-su-${
      key === now.focus ? "focus" : "line"}`, "stroke-dasharray": dash, "data-curve": key });
  }
  scatter(chart, dots, curveOf(picture, now.focus)[0]);
}

// Nothing is drawn beyond the axes.
const drawable = (value, { low, high }) => (Math.abs(2 * value - low - high) > 1.02 * (high - low) ? NaN : value);

// Where the gradient of the explained surrogate is 0.
function shade(chart, from, to) {
  const left = Math.max(from, chart.x.low), right = Math.min(to, chart.x.high);
  if (right <= left) return;
  const [a, b] = [chart.x(left), chart.x(right)];
  draw(chart, "rect", { class: "rl-su-dead", x: a, width: b - a, y: chart.top, height: chart.height - chart.bottom - chart.top });
  const floor = chart.height - chart.bottom, near = Math.abs(chart.y(0) - chart.top - 9) < 16; // a line at 0 is no ground for words
  if (b - a > 70) note(chart, (a + b) / 2, near ? floor - 8 : chart.top + 13, "gradient 0", { class: "rl-f-unit", "text-anchor": "middle" });
}

function upright(chart, ratio, name) {
  if (ratio <= chart.x.low || ratio >= chart.x.high) return;
  draw(chart, "line", { class: name, x1: chart.x(ratio), x2: chart.x(ratio), y1: chart.top, y2: chart.height - chart.bottom });
}

// A run's tokens, each with its own advantage; those that are cut off are open.
function scatter(chart, dots, colour) {
  for (const cut of [false, true]) {
    const path = dots.filter(([, y, isOpen]) => isOpen === cut && y >= chart.y.low && y <= chart.y.high).map(([x, y]) =>
      `M${(chart.x(x) - 3.5).toFixed(1)} ${chart.y(y).toFixed(1)}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0`).join("");
    if (path) draw(chart, "path", { d: path, class: `rl-su-dots rl-f${colour} rl-s${colour}${cut ? " rl-su-open" : ""}` });
  }
}

// The ratio that is looked at: a line with a dot on each curve, in its colour; that of the explained one is large.
function ratioHand(picture, chart, words) {
  const rule = shape("line", { class: "rl-su-rule" }), dots = shape("g");
  const hit = shape("rect", { class: "rl-f-hit", width: 30 }), node = shape("g", { "data-hand": "rho" }, rule, dots, hit);
  chart.hands.append(node);
  const announce = grip(picture, node, { label: `Ratio ρ, ${words}`, low: 0, high: 1e6, step: 0.01,
    read: () => picture.now.rho, at: (event) => Number(clamp(chart.at(event).x, chart.x.low, chart.x.high).toPrecision(4)),
    write: (value) => write(picture, "rho", Number(Math.max(0, value).toPrecision(6))),
    text: () => `ρ = ${inShort(picture.now.rho)}` });
  return (advantage) => {
    const { now } = picture, ratio = clamp(now.rho, Math.max(chart.x.low, 1e-4), chart.x.high), x = chart.x(ratio);
    set(rule, { x1: x, x2: x, y1: chart.top, y2: chart.height - chart.bottom });
    dots.replaceChildren(...drawnKeys(now).map((key) => shape("circle", { r: key === now.focus ? 8 : 4.5, cx: x, "data-dot": key,
      class: `rl-su-dot rl-f${curveOf(picture, key)[0]}`,
      cy: clamp(chart.y(SURROGATES[key].of(ratio, advantage, now)), chart.top, chart.height - chart.bottom) })));
    set(hit, { x: x - 15, y: chart.top + 26, height: chart.height - chart.bottom - chart.top - 26 });
    announce();
  };
}

// A bound that can be moved, at the head of the chart where it does not hide the ratio; where ε is one knob, both sides.
function edgeHand(picture, chart, [name, label, sign]) {
  const mark = shape("path", { class: "rl-su-mark" }), words = shape("text", { "text-anchor": "middle", "aria-hidden": true });
  const hit = shape("rect", { class: "rl-f-hit", width: 34, height: 34 });
  const node = shape("g", { "data-hand": name }, mark, words, hit), isDual = name === "dual_clip", from = isDual ? 0 : 1;
  const isBoth = () => !isDual && isJoined(picture), called = () => (isBoth() ? "ε" : label);
  chart.hands.append(node);
  const announce = grip(picture, node, { label, low: 0, high: name === "clip_low" ? 1 : 100,
    step: picture.data.usual[name] < NARROW ? 0.001 : 0.01, read: () => picture.now[name],
    write: (value) => (isBoth() ? writeBoth(picture, value) : write(picture, name, Number(value.toPrecision(3)))),
    at: (event) => sign * (clamp(chart.at(event).x, chart.x.low, chart.x.high) - from), text: () => `${called()} = ${inShort(picture.now[name])}` });
  return () => {
    const { now } = picture, at = from + sign * now[name], y = chart.top;
    const seen = isUsed(picture, name) && at > chart.x.low && at < chart.x.high && !(isDual && now[name] === 0);
    node.toggleAttribute("hidden", !seen);
    node.setAttribute("tabindex", seen ? 0 : -1);
    if (!seen) return;
    const x = chart.x(at);
    set(mark, { d: `M${x - 7} ${y - 3}h14l-7 11z` });
    set(words, { x, y: y - 7 });
    words.replaceChildren(...lowered(isDual ? label : `${from} ${sign > 0 ? "+" : "−"} ${called()}`));
    set(hit, { x: x - 17, y: y - 14 });
    announce();
  };
}
