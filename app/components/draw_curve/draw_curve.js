// A sheet to draw a curve on: as many points as `data.points`, evenly over the run. A pointer draws across all of them,
// the arrow keys move one. Nothing counts as drawn before a point was moved.

const sheets = new WeakMap();
const [WIDE, HIGH] = [400, 230];
const ROOM = { left: 44, right: 12, top: 10, bottom: 34 };
const KEY_STEPS = 20; // key presses from the lowest to the highest value
const SVG = "http://www.w3.org/2000/svg";

const across = (share) => ROOM.left + share * (WIDE - ROOM.left - ROOM.right);
const up = ({ data }, value) => HIGH - ROOM.bottom - (value - data.low) / (data.high - data.low) *
  (HIGH - ROOM.top - ROOM.bottom);

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.textContent = text;
  return made;
}

const ticks = ({ low, high }) => [0, 0.25, 0.5, 0.75, 1].map((share) => low + share * (high - low));
const digits = ({ low, high }) => (high - low >= 20 ? 0 : high - low >= 2 ? 1 : 2);

function build(sheet) {
  const { data, root } = sheet;
  const svg = element("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "group",
    "aria-label": `${data.title}: draw the curve that you expect` });
  ticks(data).forEach((value) => {
    const y = up(sheet, value);
    svg.append(element("line", { x1: ROOM.left, x2: WIDE - ROOM.right, y1: y, y2: y, class: "rl-grid" }));
    svg.append(element("text", { x: ROOM.left - 6, y: y + 4, "text-anchor": "end" }, format(value, digits(data))));
  });
  [0, 0.5, 1].forEach((share) => svg.append(element("text", { x: across(share), y: HIGH - 18,
    "text-anchor": share === 1 ? "end" : "middle" }, String(Math.round(1 + share * (data.steps - 1))))));
  svg.append(element("text", { x: across(0.5), y: HIGH - 3, "text-anchor": "middle" }, "Steps"));
  sheet.path = element("polyline", { class: "rl-drawn" });
  svg.append(sheet.path);
  sheet.knots = sheet.values.map((_, place) => {
    const knot = element("circle", { r: 6, role: "slider", tabindex: data.fixed ? -1 : 0, "aria-valuemin": data.low,
      "aria-valuemax": data.high, "aria-orientation": "vertical" });
    knot.addEventListener("keydown", (event) => pressed(sheet, place, event));
    svg.append(knot);
    return knot;
  });
  const head = document.createElement("p");
  head.textContent = data.unit ? `${data.title}, ${data.unit}` : data.title;
  const hint = document.createElement("small");
  hint.textContent = data.fixed ? "" : "Draw across the sheet with a pointer, or move the points with the arrow keys.";
  root.replaceChildren(head, svg, hint);
  if (data.fixed) return;
  svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); draw(sheet, svg, event); });
  svg.addEventListener("pointermove", (event) => { if (event.buttons) draw(sheet, svg, event); });
  svg.addEventListener("lostpointercapture", () => { sheet.last = null; send(sheet); });
}

// The points that the pointer passed since its last place follow it.
function draw(sheet, svg, event) {
  const box = svg.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width * WIDE, y = (event.clientY - box.top) / box.height * HIGH;
  const place = (x - ROOM.left) / (WIDE - ROOM.left - ROOM.right) * (sheet.values.length - 1);
  const { low, high } = sheet.data;
  const value = Math.min(high, Math.max(low,
    low + (HIGH - ROOM.bottom - y) / (HIGH - ROOM.top - ROOM.bottom) * (high - low)));
  const before = sheet.last ?? { place, value };
  const [from, to] = [Math.min(before.place, place), Math.max(before.place, place)];
  sheet.values.forEach((_, at) => {
    if (Math.round(place) !== at && (at < from || at > to)) return;
    const share = to > from ? (at - before.place) / (place - before.place) : 1;
    sheet.values[at] = before.value + Math.min(1, Math.max(0, share)) * (value - before.value);
  });
  sheet.last = { place, value };
  sheet.touched = true;
  event.preventDefault();
  show(sheet);
}

function pressed(sheet, place, event) {
  const { low, high, fixed } = sheet.data;
  const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[event.key];
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1 }[event.key];
  if (fixed || (by === undefined && next === undefined)) return;
  event.preventDefault();
  if (next !== undefined) { sheet.knots[next]?.focus(); return; }
  const moved = sheet.values[place] + by * (high - low) / KEY_STEPS;
  sheet.values[place] = Math.min(high, Math.max(low, moved));
  sheet.touched = true;
  show(sheet);
  clearTimeout(sheet.waits);
  sheet.waits = setTimeout(() => send(sheet), 300);
}

const send = (sheet) => sheet.component.setStateValue("curve", sheet.values.map((value) => Number(value.toPrecision(6))));

function show(sheet) {
  const { data, values } = sheet, last = values.length - 1;
  sheet.root.classList.toggle("rl-blank", !sheet.touched);
  sheet.path.setAttribute("points", values.map((value, at) => `${across(at / last)},${up(sheet, value)}`).join(" "));
  sheet.knots.forEach((knot, at) => {
    const value = format(values[at], digits(data) + 1);
    knot.setAttribute("cx", across(at / last));
    knot.setAttribute("cy", up(sheet, values[at]));
    knot.setAttribute("aria-valuenow", values[at]);
    knot.setAttribute("aria-label", `step ${Math.round(1 + at / last * (data.steps - 1))}`);
    knot.setAttribute("aria-valuetext", `${value} ${data.unit}`);
  });
}

export function update(component) {
  const { data, parentElement } = component;
  let sheet = sheets.get(parentElement);
  if (!sheet) {
    const drawn = data.curve.map(([, value]) => value);
    sheet = { root: parentElement.querySelector(".rl-draw-curve"), data, last: null, touched: drawn.length > 0,
      values: drawn.length ? drawn : Array(data.points).fill((data.low + data.high) / 2) };
    sheets.set(parentElement, sheet);
    build(sheet);
  }
  Object.assign(sheet, { component });
  show(sheet);
}

export const dispose = disposing(sheets, (sheet) => clearTimeout(sheet.waits));
