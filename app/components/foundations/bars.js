// Bars of a distribution that can be grabbed at their tops.

const REACH = 22; // px above a bar's top where it can still be grabbed

// `of`: names, read() is the distribution, write(i, value), label(i), unit; `inset`: the part of its band that a bar
// takes, from 0 to 1; `class` its colour. Call `show()` in each draw, after `chart.fit`.
function bars(picture, chart, of) {
  let made = [];
  const build = (count) => {
    made.forEach(({ node }) => node.remove());
    made = Array.from({ length: count }, (_, i) => one(picture, chart, of, i));
  };
  return { show() {
    const p = of.read();
    if (made.length !== p.length) build(p.length);
    made.forEach((each, i) => each.show(p[i]));
  } };
}

function one(picture, chart, of, i) {
  const bar = shape("rect", { class: `rl-f-bar ${of.class}` }), top = shape("rect", { class: "rl-f-top", rx: 2 });
  const value = shape("text", { "text-anchor": "middle", "aria-hidden": true }), hit = shape("rect", { class: "rl-f-hit" });
  const node = shape("g", {}, bar, top, value, hit);
  chart.hands.append(node);
  const announce = grip(picture, node, { label: of.label(i), low: 0, high: 1, step: 0.01, read: () => of.read()[i],
    write: (to) => of.write(i, to), at: (event) => chart.at(event).y, text: () => of.read()[i].toFixed(3) });
  const [from, to] = of.inset ?? [0.14, 0.86];
  return { node, show(p) {
    const x = chart.x(i) + (from - 0.5) * chart.x.band, width = (to - from) * chart.x.band;
    const y = chart.y(p), floor = chart.y(0);
    set(bar, { x, width, y, height: Math.max(0, floor - y) });
    set(top, { x: x + width / 2 - Math.min(14, width / 2), width: Math.min(28, width), y: y - 2, height: 4 });
    set(value, { x: x + width / 2, y: y - 7 });
    value.textContent = width < 18 ? "" : width < 34 ? p.toFixed(2).replace(/^0/, "") : p.toFixed(2);
    set(hit, { x, width, y: Math.max(0, y - REACH), height: Math.max(0, floor - y) + REACH });
    announce();
  } };
}
