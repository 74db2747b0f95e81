// Colours of lines, and their names at their right ends: a click hides or shows one.

const INK = [[27, 31, 36], [231, 234, 238]], GROUND = [[255, 255, 255], [20, 23, 27]]; // light, dark
const SHADES = [[INK, 0], [INK, 0.55], [GROUND, 0.35], [INK, 0.8]]; // of the lines of one chart, in their order

function mixed(colour, other, share) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
    .map((part, place) => Math.round((1 - share) * part + share * other[place]));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

// The shades of a hue ([light, dark]) for the line at this place.
function huesOf(hue, place) {
  const [towards, share] = SHADES[place % SHADES.length];
  return hue.map((colour, dark) => mixed(colour, towards[dark], share));
}

// What stands at the ends of a panel's lines: its metrics, of the run that is looked at; else the runs.
function endingsOf(chart, panel) {
  const runs = Object.entries(chart.runs), [{ key }] = panel.metrics;
  const named = ([run, { label, short, ghost }]) => ({ run, metric: key, label, text: short, ghost });
  if (panel.metrics.length > 1) {
    return [...panel.metrics.map(({ key: metric, label, short }) => ({ run: runs[0][0], metric, label, text: short })),
      ...runs.filter(([, { ghost }]) => ghost).map(named)];
  }
  return runs.length > 1 ? runs.map(named) : [];
}

// The place of a line's last point that is seen, in pixels of the plot.
function endOf(chart, panel, { run, metric }) {
  const line = linesOf(panel).find((each) => each.kind === "line" && each.run === run && each.metric === metric);
  const { xaxis, yaxis } = panel.plot._fullLayout;
  const at = line?.x.findLastIndex((x) => x <= xaxis.range[1]) ?? -1;
  if (at < 0) return null;
  const within = (value, length) => Math.min(Math.max(value, 0), length);
  return { hue: line.hue, x: xaxis._offset + within(xaxis.c2p(line.x[at]), xaxis._length),
    y: yaxis._offset + within(yaxis.c2p(scaled(panel, line.y[at])), yaxis._length) };
}

// The names of lines that are hidden wait on the floor of the plot.
function drawEndings(chart, panel) {
  const { yaxis } = panel.plot._fullLayout;
  const floor = yaxis._offset + yaxis._length, { width } = panel;
  const found = panel.labels.flatMap((ending) => {
    const place = endOf(chart, panel, ending), off = chart.scene.hidden.has(ending.metric);
    return place ? [{ ...ending, ...place, off, top: off ? floor : place.y - HIGH / 2 }] : [];
  });
  moveApart(found, floor + 3);
  panel.names.replaceChildren(...found.map((each) => nameOf(chart, panel, each, width)));
}

function nameOf(chart, panel, { hue, x, top, off, text, label, metric, ghost }, width) {
  const hides = panel.metrics.length > 1 && !ghost, dark = chart.theme.dark ? 1 : 0;
  const name = document.createElement(hides ? "button" : "span");
  [name.textContent, name.title, name.className] = [text, label, off ? "rl-off" : ""];
  Object.assign(name.style, { top: `${top}px`, left: `${Math.min(x + 5, width - panel.room + 3)}px`,
    color: mixed(hue[dark], INK[dark], 0.4) });
  if (hides) {
    Object.assign(name, { type: "button", title: `${label}: click to ${off ? "show" : "hide"}` });
    name.addEventListener("click", () => toggle(chart.scene, metric));
  }
  return name;
}
