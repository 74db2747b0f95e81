// Charts of our own, small and quick: axes with units, lines and bars in SVG, as wide as there is room.

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  set(made, attributes);
  made.append(...children.flatMap((child) => (child instanceof Node ? child : lowered(child))));
  return made;
}

// Letters of an SVG with their subscripts, after which the line is back at its height.
const lowered = (words) => subscripts(words, (part) => shape("tspan", { dy: 3, "font-size": "80%" }, part))
  .map((part, i) => (i && typeof part === "string" && part ? shape("tspan", { dy: -3 }, part) : part));

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
}

// A scale from values to pixels, with `invert` back. `names`: bands, one for each name; `log`: by factors.
function scale({ low = 0, high = 1, log = false, names = null }, from, to) {
  if (names) {
    const band = (to - from) / names.length;
    const made = (i) => from + (i + 0.5) * band;
    return Object.assign(made, { band, invert: (pixel) => (pixel - from) / band - 0.5, low: 0, high: names.length - 1 });
  }
  const f = log ? Math.log : (value) => value, back = log ? Math.exp : (value) => value;
  const span = f(high) - f(low) || 1;
  const made = (value) => from + (f(value) - f(low)) / span * (to - from);
  return Object.assign(made, { low, high, invert: (pixel) => back(f(low) + (pixel - from) / (to - from) * span) });
}

// About `count` round values from low to high: steps of 1, 2 or 5 times a power of ten.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((each) => each * power >= raw * 0.999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / count));
  const made = [];
  for (let power = first; power <= last; power += every) made.push(10 ** power);
  return made;
}

const TICK = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 }); // made once: that takes long
const SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹";
function tickText(value, log) {
  const power = Math.round(Math.log10(Math.abs(value)));
  if (log && (power > 4 || power < -2)) {
    return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((each) => SUPER[each]).join("")}`;
  }
  return TICK.format(Number(value.toPrecision(6))).replace("-", "−");
}

// A chart in `parent`. Call `fit({ x, y })` first in each draw: x and y are { label, low, high, log, names, ticks, count }.
// It empties what was drawn; what can be grabbed is put into `hands` and stays.
function plot(picture, parent, { title = "", height = 230, left = 46, right = 12, top = 24, bottom = 42 }) {
  const figure = el("figure", { class: "rl-f-plot" });
  const caption = el("figcaption", {}, title);
  const [ground, drawn, hands] = [shape("g", { "aria-hidden": true }), shape("g", { "aria-hidden": true }), shape("g")];
  const svg = shape("svg", { role: "group", "aria-label": title, height }, ground, drawn, hands);
  figure.append(caption, svg);
  parent.append(figure);
  const one = { figure, caption, svg, ground, drawn, hands, height, left, right, top, bottom, width: 0, sized: -1 }; // its width is asked for only when it may have changed: that is slow
  one.fit = (axes) => {
    if (one.sized !== picture.sized) Object.assign(one, { sized: picture.sized, width: Math.max(140, figure.clientWidth) });
    fit(one, axes);
  };
  one.at = (event) => {
    const box = svg.getBoundingClientRect();
    return { x: one.x.invert(event.clientX - box.left), y: one.y.invert(event.clientY - box.top) };
  };
  one.call = (words) => {
    reword(caption, words);
    svg.setAttribute("aria-label", words);
  };
  return one;
}

function fit(one, { x, y }) {
  one.x = scale(x, one.left, one.width - one.right);
  one.y = scale(y, one.height - one.bottom, one.top);
  set(one.svg, { width: one.width, viewBox: `0 0 ${one.width} ${one.height}` });
  one.drawn.replaceChildren();
  const floor = one.height - one.bottom, made = [];
  for (const value of y.ticks ?? (y.log ? logTicks(one.y.low, one.y.high, 6) : ticks(one.y.low, one.y.high, y.count ?? 4))) {
    made.push(shape("line", { class: "rl-f-grid", x1: one.left, x2: one.width - one.right, y1: one.y(value), y2: one.y(value) }),
      shape("text", { x: one.left - 6, y: one.y(value) + 4, "text-anchor": "end" }, tickText(value, y.log)));
  }
  const along = x.names ? x.names.map((name, i) => [i, name])
    : (x.ticks ?? (x.log ? logTicks(one.x.low, one.x.high, 7) : ticks(one.x.low, one.x.high, one.width < 420 ? 5 : 8)))
      .map((value) => [value, tickText(value, x.log)]);
  for (const [value, words] of along) {
    made.push(shape("text", { x: one.x(value), y: floor + 16, "text-anchor": "middle" }, words));
    if (!x.names) made.push(shape("line", { class: "rl-f-tick", x1: one.x(value), x2: one.x(value), y1: floor, y2: floor + 4 }));
  }
  made.push(shape("line", { class: "rl-f-axis", x1: one.left, x2: one.width - one.right, y1: floor, y2: floor }),
    shape("text", { class: "rl-f-unit", x: (one.left + one.width - one.right) / 2, y: one.height - 6, "text-anchor": "middle" }, x.label),
    shape("text", { class: "rl-f-unit", x: 2, y: 12 }, y.label));
  one.ground.replaceChildren(...made);
}

// A line through points [x, y] in values; what is not finite breaks it.
function line(one, points, attributes) {
  let path = "", open = false;
  for (const [x, y] of points) {
    if (Number.isFinite(x) && Number.isFinite(y)) path += `${open ? "L" : "M"}${one.x(x).toFixed(1)} ${one.y(y).toFixed(1)}`;
    open = Number.isFinite(x) && Number.isFinite(y);
  }
  return draw(one, "path", { d: path || "M0 0", fill: "none", ...attributes });
}

// The ground between two lines over the same x: points [x, low, high].
function band(one, points, attributes) {
  const there = points.map(([x, , high]) => `${one.x(x).toFixed(1)} ${one.y(high).toFixed(1)}`);
  const back = points.map(([x, low]) => `${one.x(x).toFixed(1)} ${one.y(low).toFixed(1)}`).reverse();
  return draw(one, "path", { d: `M${[...there, ...back].join("L")}Z`, ...attributes });
}

// A bar between two pixels across, from one value to another up or down.
function column(one, from, to, low, high, attributes) {
  const [a, b] = [one.y(low), one.y(high)];
  return draw(one, "rect", { x: from, width: Math.max(0, to - from), y: Math.min(a, b), height: Math.abs(a - b), ...attributes });
}

// Bars without gaps from `low` up, each `step` wide: one path. `values` are heights over `floor`.
function stairs(one, low, step, floor, values, attributes) {
  const at = values.map((each, i) => `H${one.x(low + i * step).toFixed(1)}V${one.y(floor + each).toFixed(1)}`).join("");
  const end = one.x(low + values.length * step).toFixed(1), ground = one.y(floor).toFixed(1);
  return draw(one, "path", { d: `M${one.x(low).toFixed(1)} ${ground}${at}H${end}V${ground}Z`, ...attributes });
}

function note(one, x, y, words, attributes = {}) {
  return draw(one, "text", { x, y, ...attributes }, words);
}

function draw(one, name, attributes, ...children) {
  const made = shape(name, attributes, ...children);
  one.drawn.append(made);
  return made;
}
