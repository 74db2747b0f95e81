// The small policy: what can be grabbed of it, where the methods' steps go, and J, KL and the surrogates along one.

const STRAIGHT = { trpo: ["-ink", ""], vpg: ["-ink", "3 4"] }; // methods of one step
const nameOf = (key) => ({ trpo: "TRPO", vpg: "One large step", clip: "PPO" })[key] ?? titleOf(key);
const lookOf = (picture, key) => STRAIGHT[key] ?? curveOf(picture, key);
const NAMED = ["trpo", "vpg", "clip"]; // beside their steps, besides the chosen one
const ALPHAS = Array.from({ length: 61 }, (_, i) => i / 30);

function below(picture, parent) {
  const grid = el("div", { class: "rl-su-below" }), left = el("div"), middle = el("div"), right = el("div");
  grid.append(left, middle, right);
  parent.append(grid);
  const rewards = rewardBars(picture, left);
  const sliders = [
    dial(picture, "pair", { label: "w, if the tokens differ", low: 0, high: 2, step: 0.05 }),
    dial(picture, "rate", { label: "Step size η", low: 0.05, high: 20, log: true }),
    dial(picture, "epochs", { label: "Epochs k", low: 1, high: 50, step: 1 }),
    dial(picture, "delta", { label: "TRPO's δ, nats/token", low: 0.001, high: 1, log: true }),
    dial(picture, "leap", { label: "The large step's size", low: 0.5, high: 60, log: true })];
  const beside = el("div", { class: "rl-su-sliders" }, ...sliders.map(({ node }) => node));
  left.append(beside);
  const triangle = simplex(picture, middle);
  const gains = plot(picture, right, { title: "Along the line θ_old → θ_new and beyond", height: 236, left: 50 });
  const kls = plot(picture, right, { title: "", height: 150, left: 50, top: 18 });
  const steps = stepTable(picture, parent), words = el("p", { class: "rl-f-words" });
  parent.append(words);
  return { draw() {
    sliders.forEach(({ show }) => show());
    rewards.draw();
    const found = methods(picture);
    triangle.draw(found);
    drawLine(picture, gains, kls, found);
    steps.show(found);
    return stepWords(picture, found, words);
  } };
}

// Each method's way from θ_old with J and KL at its end. The surrogates are those that are drawn above.
function methods({ now, data }) {
  const keys = ["trpo", "vpg", ...data.drawn.filter((key) => now.shown.includes(key) || key === now.along || key === "clip")];
  const start = valueOf(now, now.old);
  return keys.map((key) => {
    const path = pathOf(key, now, now, now), policy = softmax(path.at(-1)), chosen = key === now.along;
    return { key, path, policy, chosen, value: valueOf(now, policy), gain: valueOf(now, policy) - start, kl: klOf(now.old, policy),
      short: chosen || NAMED.includes(key) ? nameOf(key) : "" };
  });
}

function rewardBars(picture, parent) {
  const chart = plot(picture, parent, { title: "Rewards r of the tokens: drag", height: 176, bottom: 40 });
  const grips = LETTERS3.map((letter, i) => {
    const bar = shape("rect", { class: "rl-f-bar rl-f1" }), top = shape("rect", { class: "rl-f-top", rx: 2, height: 4 });
    const value = shape("text", { "text-anchor": "middle", "aria-hidden": true }), hit = shape("rect", { class: "rl-f-hit" });
    const node = shape("g", { "data-hand": `reward-${letter}` }, bar, top, value, hit);
    chart.hands.append(node);
    const announce = grip(picture, node, { label: `Reward of ${letter}`, low: -1, high: 2, step: 0.05,
      read: () => picture.now.rewards[i], text: () => `${letter}: ${inShort(picture.now.rewards[i])}`, at: (event) => chart.at(event).y,
      write: (to) => write(picture, "rewards", picture.now.rewards.map((each, k) => (k === i ? Number(to.toFixed(3)) : each))) });
    return () => {
      const reward = picture.now.rewards[i], x = chart.x(i), wide = chart.x.band * 0.56, y = chart.y(reward), floor = chart.y(0);
      set(bar, { x: x - wide / 2, width: wide, y: Math.min(y, floor), height: Math.abs(floor - y) });
      set(top, { x: x - 14, width: 28, y: y - 2 });
      set(value, { x, y: reward < 0 ? y + 16 : y - 7 });
      value.textContent = (Math.abs(reward) < 5e-3 ? 0 : reward).toFixed(2).replace("-", "−");
      set(hit, { x: x - wide / 2, width: wide, y: Math.min(y, floor) - 16, height: Math.abs(floor - y) + 32 });
      announce();
    };
  });
  return { draw() {
    chart.fit({ x: { label: "token", names: LETTERS3 }, y: { label: "reward", low: -1, high: 2, ticks: [-1, 0, 1, 2] } });
    grips.forEach((show) => show());
  } };
}

function drawLine(picture, gains, kls, found) {
  const { now } = picture, { path } = found.find(({ chosen }) => chosen);
  const keys = picture.data.drawn.filter((key) => !SURROGATES[key].weighs && now.shown.includes(key));
  const drawn = lineOf(now, path.at(-1), now, keys, ALPHAS), points = (values) => ALPHAS.map((alpha, i) => [alpha, values[i]]);
  const x = { label: "α: θ_old + α (θ_new − θ_old)", low: 0, high: 2 };
  const limit = 4 * Math.max(0.05, ...drawn.value.map(Math.abs));
  gains.fit({ x, y: { label: "gain over π_old, reward per completion",
    ...roundRange(["value", ...keys].flatMap((key) => drawn[key]).filter((each) => Math.abs(each) < limit)) } });
  gains.call(`Along the line from θ_old to θ_new of ${nameOf(now.along)}, and beyond`);
  const inside = drawn.kl.filter((kl) => kl <= now.delta).length, last = ALPHAS[inside - 1];
  const reach = inside < ALPHAS.length ? last + (now.delta - drawn.kl[inside - 1]) / (drawn.kl[inside] - drawn.kl[inside - 1]) / 30 : 2;
  kls.fit({ x, y: { label: "KL(π_old ‖ π), nats/token", high: 1.12 * Math.max(now.delta * 1.3, ...drawn.kl) } });
  for (const chart of [gains, kls]) {
    draw(chart, "rect", { class: "rl-su-trusted", x: chart.x(0), width: chart.x(reach) - chart.x(0), y: chart.top,
      height: chart.height - chart.bottom - chart.top });
    line(chart, [[1, chart.y.low], [1, chart.y.high]], { class: "rl-su-edge" });
    line(chart, [[0, 0], [2, 0]], { class: "rl-f-axis" });
  }
  note(gains, gains.x(1) + 4, gains.top + 11, "θ_new", { class: "rl-f-unit" });
  for (const key of keys) {
    const [colour, dash] = curveOf(picture, key);
    line(gains, points(drawn[key]).map(([a, y]) => [a, drawable(y, gains.y)]), { class: `rl-s${colour} rl-su-line`, "stroke-dasharray": dash, "data-line": key });
  }
  line(gains, points(drawn.value), { class: "rl-su-true", "data-line": "J" });
  const top = ALPHAS.length - 1, y = clamp(gains.y(drawn.value[top]), gains.top + 10, gains.height - gains.bottom - 4);
  note(gains, gains.x(2) - 4, y - 6, "true J", { "text-anchor": "end", class: "rl-su-name" });
  line(kls, points(drawn.kl), { class: "rl-su-true" });
  line(kls, [[0, now.delta], [2, now.delta]], { class: "rl-s-ink", "stroke-dasharray": "4 4" });
  note(kls, kls.x(2) - 4, kls.y(now.delta) - 5, `δ = ${inShort(now.delta)}`, { "text-anchor": "end" });
}

function stepTable(picture, parent) {
  const body = el("tbody"), node = el("table", { class: "rl-f-table rl-su-table" }, el("thead"), body), rows = new Map();
  node.tHead.innerHTML = "<tr><th>Step from π<sub>old</sub></th><th>J after the step</th><th>true gain</th><th>KL, nats/token</th><th>within δ</th><th>π: A, B, C</th></tr>";
  parent.append(el("div", { class: "rl-f-scroll" }, node));
  const rowOf = (key) => {
    const cells = Array.from({ length: 5 }, () => el("td"));
    const name = el("button", { type: "button" });
    name.addEventListener("click", () => {
      write(picture, "along", key);
      changed(picture);
    });
    return { name, cells, row: el("tr", {}, el("th", { scope: "row" }, swatchOf(picture, key), name), ...cells) };
  };
  return { show(found) {
    const { now } = picture, kept = found.map(({ key }) => rows.get(key) ?? rows.set(key, rowOf(key)).get(key));
    if (!same(found.map(({ key }) => key), [...body.children].map((each) => each.dataset.key))) body.replaceChildren(...kept.map(({ row }) => row));
    found.forEach(({ key, value, gain, kl, policy, chosen }, i) => {
      const { name, cells, row } = kept[i], epochs = `${now.epochs} epoch${now.epochs === 1 ? "" : "s"}`;
      row.dataset.key = key;
      row.toggleAttribute("data-focus", chosen);
      name.setAttribute("aria-pressed", String(chosen));
      name.textContent = STRAIGHT[key] ? nameOf(key) : `${nameOf(key)}, ${epochs}`;
      const inside = kl <= now.delta * (1 + 1e-6);
      [at3(value), signed(gain), at3(kl), inside ? "yes" : `no, ${(kl / now.delta).toFixed(1)} ×`, policy.map((each) => each.toFixed(3)).join(", ")]
        .forEach((text, k) => { cells[k].textContent = text; });
    });
  } };
}

function stepWords({ now }, found, place) {
  const of = (key) => found.find((each) => each.key === key), ppo = of("clip"), large = of("vpg"), trpo = of("trpo");
  const start = valueOf(now, now.old), quadratic = trust(now, now.delta).quadratic;
  const reached = klOf(now.old, softmax(logits(now.old).map((each, i) => each + quadratic[i])));
  const words = [`J of π_old is ${at3(start)}. TRPO's step ends on the border of the trust region, KL = δ, and gains ${signed(trpo.gain)}`
    + ` (the length √(2δ/gᵀF⁻¹g) alone would reach KL ${at3(reached)}).`,
  `PPO after ${now.epochs} epochs gains ${signed(ppo.gain)} at KL ${at3(ppo.kl)}${ppo.kl > now.delta ? `, outside the region: the clip bounds the ratios it is pushed through, not the KL` : ""}.`,
  `One large step along the plain gradient ${large.gain < 0 ? "loses" : "gains"} ${at3(Math.abs(large.gain))} at KL ${at3(large.kl)}.`,
  now.pair === 0 ? "With w = 0 the second token's reward does not depend on the first: J is exactly L^CPI." : "L^CPI keeps the first tokens of π_old: the further the step, the more it misses J."];
  reword(place, words.join(" "));
  return place.textContent;
}
