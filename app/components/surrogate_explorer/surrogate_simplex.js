// All policies over three tokens as a triangle: level lines of J, the trust region, and where each method's steps go.

const MESH = 36; // parts of a side in which level lines are looked for
const LEVELS = 9;
const ROUND = 96; // directions in which the border of the trust region is looked for
const LETTERS3 = ["A", "B", "C"];
const LEAST = 0.001; // probability that every token keeps

function simplex(picture, parent) {
  const figure = el("figure", { class: "rl-f-plot" }), caption = el("figcaption", {}, "All policies over A, B, C: lines of equal J, region KL ≤ δ");
  const ground = shape("g", { "aria-hidden": true }), drawn = shape("g", { "aria-hidden": true }), hands = shape("g");
  const svg = shape("svg", { role: "group", "aria-label": "All policies over three tokens as a triangle" }, ground, drawn, hands);
  figure.append(caption, svg);
  parent.append(figure);
  const one = { figure, svg, ground, drawn, hands };
  const hand = policyHand(picture, one);
  return { draw(found) {
    fitSimplex(one);
    drawLevels(one, picture.now);
    drawSteps(one, picture, found);
    hand();
  } };
}

function fitSimplex(one) {
  one.width = Math.max(240, one.figure.clientWidth);
  const side = Math.min(one.width - 44, 430), height = side * Math.sqrt(3) / 2, left = (one.width - side) / 2;
  Object.assign(one, { side, left, floor: height + 24, height });
  one.at = ([, b, c]) => [left + side * (b + c / 2), one.floor - height * c];
  // Back to probabilities, each kept above LEAST.
  one.policyAt = (event) => {
    const box = one.svg.getBoundingClientRect(), c = (one.floor - (event.clientY - box.top)) / height;
    const b = (event.clientX - box.left - left) / side - c / 2;
    return normalised([1 - b - c, b, c].map((each) => Math.max(LEAST, each)));
  };
  set(one.svg, { width: one.width, height: one.floor + 26, viewBox: `0 0 ${one.width} ${one.floor + 26}` });
  one.ground.replaceChildren();
  one.drawn.replaceChildren();
}

const pathThrough = (one, policies) => `M${policies.map((policy) => one.at(policy).map((each) => each.toFixed(1)).join(" ")).join("L")}`;

// Level lines by the linear function through the corners of each small triangle.
function drawLevels(one, now) {
  const corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]], values = new Map();
  const valueAt = (i, j) => {
    const key = i * 100 + j;
    if (!values.has(key)) values.set(key, valueOf(now, [1 - (i + j) / MESH, i / MESH, j / MESH]));
    return values.get(key);
  };
  for (let i = 0; i <= MESH; i += 1) for (let j = 0; j <= MESH - i; j += 1) valueAt(i, j);
  const all = [...values.values()], low = Math.min(...all), high = Math.max(...all);
  const make = (name, attributes, ...children) => one.ground.append(shape(name, attributes, ...children));
  if (high - low > 1e-9) {
    const levels = ticks(low, high, LEVELS).filter((level) => level > low && level < high);
    for (const level of levels) {
      let path = "";
      for (let i = 0; i < MESH; i += 1) for (let j = 0; j < MESH - i; j += 1) {
        path += crossing(one, valueAt, level, [[i, j], [i + 1, j], [i, j + 1]]);
        if (i + j < MESH - 1) path += crossing(one, valueAt, level, [[i + 1, j + 1], [i + 1, j], [i, j + 1]]);
      }
      make("path", { d: path || "M0 0", class: "rl-su-level", style: `opacity:${0.25 + 0.6 * (level - low) / (high - low)}` });
    }
  }
  make("path", { d: `${pathThrough(one, corners)}Z`, class: "rl-su-side" });
  const [x, y] = one.at(best(now));
  make("path", { d: `M${x - 6} ${y}h12M${x} ${y - 6}v12`, class: "rl-su-best" });
  make("text", { x: x + 8, y: y + 14 }, `best J ${at3(valueOf(now, best(now)))}`);
  corners.forEach((corner, i) => {
    const [cx, cy] = one.at(corner);
    make("text", { x: cx, y: i === 2 ? cy - 8 : cy + 18, "text-anchor": "middle" }, `only ${LETTERS3[i]}`);
  });
}

function crossing(one, valueAt, level, corners) {
  const ends = [];
  for (let k = 0; k < 3; k += 1) {
    const [i, j] = corners[k], [m, n] = corners[(k + 1) % 3], a = valueAt(i, j) - level, b = valueAt(m, n) - level;
    if ((a < 0) !== (b < 0)) {
      const share = a / (a - b), p = i + share * (m - i), q = j + share * (n - j);
      ends.push([1 - (p + q) / MESH, p / MESH, q / MESH]);
    }
  }
  return ends.length === 2 ? pathThrough(one, ends) : "";
}

// The policies with KL(π_old ‖ π) = δ: one in each direction, as KL grows along it.
function border(old, delta) {
  return Array.from({ length: ROUND }, (_, i) => {
    const turn = 2 * Math.PI * i / ROUND, x = Math.cos(turn), y = 2 * Math.sin(turn) / Math.sqrt(3);
    const way = [-x - y / 2, x - y / 2, y]; // as far on the page in every direction
    const edge = Math.min(...way.map((each, k) => (each < 0 ? -old[k] / each : Infinity)));
    let low = 0, high = edge * (1 - 1e-12);
    for (let k = 0; k < 36; k += 1) {
      const middle = (low + high) / 2;
      if (klOf(old, old.map((each, m) => each + middle * way[m])) <= delta) low = middle; else high = middle;
    }
    return old.map((each, m) => each + low * way[m]);
  });
}

function drawSteps(one, picture, found) {
  const { now } = picture;
  const make = (name, attributes, ...children) => one.drawn.append(shape(name, attributes, ...children));
  make("path", { d: `${pathThrough(one, border(now.old, now.delta))}Z`, class: "rl-su-trust" });
  for (const { key, path, short, chosen } of found) {
    const policies = path.map(softmax), straight = key in STRAIGHT;
    const curve = straight ? Array.from({ length: 41 }, (_, i) => softmax(along(path[0], path[1], i / 40))) : policies;
    const [colour, dash] = lookOf(picture, key);
    make("path", { d: pathThrough(one, curve), class: `rl-s${colour} rl-su-way${chosen ? " rl-su-focus" : ""}`,
      "stroke-dasharray": dash, "data-way": key });
    if (!straight) {
      policies.slice(1, -1).forEach((policy) => {
        const [cx, cy] = one.at(policy);
        make("circle", { class: `rl-f${colour}`, cx, cy, r: 1.8 });
      });
    }
    const [x, y] = one.at(policies.at(-1));
    make("circle", { class: `rl-f${colour} rl-su-end`, cx: x, cy: y, r: chosen ? 6 : 4.5 });
    const left = key === "trpo";
    if (short) make("text", { class: "rl-su-name", x: x + (left ? -9 : 9), y: y + (key === "vpg" ? -8 : 4),
      "text-anchor": left ? "end" : "start" }, short);
  }
}

// π_old: across moves mass between A and B, up towards C.
function policyHand(picture, one) {
  const point = shape("circle", { class: "rl-f-knob", r: 8 }), words = shape("text", { "aria-hidden": true }, "π_old");
  const hit = shape("circle", { class: "rl-f-hit", r: 20 }), node = shape("g", { "data-hand": "old" }, point, words, hit);
  one.hands.append(node);
  const put = (policy) => write(picture, "old", normalised(policy.map((each) => Math.max(LEAST, each)))
    .map((each) => Number(each.toPrecision(4))));
  const old = () => picture.now.old;
  const announce = grip(picture, node, {
    label: "Old policy π_old: left and right between A and B, up and down towards C", low: 0, high: 1, step: 0.02,
    read: () => old()[1] / (old()[0] + old()[1]), text: () => LETTERS3.map((each, i) => `${each} ${old()[i].toFixed(3)}`).join(", "),
    write: (share) => put([(1 - old()[2]) * (1 - share), (1 - old()[2]) * share, old()[2]]),
    at(event) {
      const [a, b] = one.policyAt(event);
      return b / (a + b);
    },
    up: { low: LEAST, high: 1 - 2 * LEAST, step: 0.02, read: () => old()[2], at: (event) => one.policyAt(event)[2],
      write(value) {
        const [a, b] = old();
        put([(1 - value) * a / (a + b), (1 - value) * b / (a + b), value]);
      } } });
  return () => {
    const [x, y] = one.at(old());
    for (const each of [point, hit]) set(each, { cx: x, cy: y });
    set(words, { x: x - 12, y: y + 4, "text-anchor": "end" });
    announce();
  };
}
