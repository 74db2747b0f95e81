// Parallel coordinates. Python says where on each axis a line lies, from 0 to 1; ranges are kept here, by the axis'
// name: with another metric an axis has another place.

const charts = new WeakMap();
const [TOP, TALL, SIDE, LEAST] = [40, 230, 62, 118]; // pixels: above the axes, their length, beside them, between them
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export function update({ data, parentElement, setTriggerValue }) {
  let chart = charts.get(parentElement);
  if (!chart) {
    chart = { ranges: new Map(), root: parentElement.querySelector(".rl-parallel-chart") };
    charts.set(parentElement, chart);
    chart.wide = new ResizeObserver(() => chart.data && draw(chart));
    chart.wide.observe(chart.root);
  }
  Object.assign(chart, { data, dark: theme(parentElement).dark, trigger: setTriggerValue });
  draw(chart);
  const gone = [...chart.ranges.keys()].filter((name) => !data.axes.some(({ label }) => label === name));
  if (!gone.length) return;
  gone.forEach((name) => chart.ranges.delete(name));
  draw(chart);
  say(chart);
}

// The best line is the most distinct one on either ground.
function colour(rank, dark) {
  const at = (dark ? rank : 1 - rank) * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return `rgb(${VIRIDIS[low].map((part, index) => Math.round(part + (at - low) * (VIRIDIS[low + 1][index] - part)))})`;
}

function inside(chart) {
  const ranges = chart.data.axes.map(({ label }) => chart.ranges.get(label) ?? [-Infinity, Infinity]);
  return (line) => ranges.every(([low, high], axis) => line.at[axis] >= low && line.at[axis] <= high);
}

function draw(chart) {
  const { axes, lines, alt } = chart.data;
  const wide = Math.max(chart.root.clientWidth, LEAST * (axes.length - 1) + 2 * SIDE);
  if (!chart.root.clientWidth) return; // in a tab that is not open
  const x = (axis) => SIDE + axis * (wide - 2 * SIDE) / Math.max(axes.length - 1, 1), y = (at) => TOP + TALL * (1 - at);
  const chosen = inside(chart), shown = [...lines].sort((one, other) => chosen(one) - chosen(other));
  const paths = shown.map((line) => `<path class="${chosen(line) ? "" : "rl-faint"}" d="M${
    line.at.map((at, axis) => `${x(axis).toFixed(1)},${y(at).toFixed(1)}`).join("L")}" ${
    chosen(line) ? `style="stroke:${colour(line.rank, chart.dark)}"` : ""}><title>${line.text}</title></path>`);
  const scales = axes.map(({ label, ticks }, axis) => {
    const range = chart.ranges.get(label);
    const last = axis === axes.length - 1;
    return `<g data-axis="${axis}" tabindex="0" role="group" aria-label="${label}: arrow keys choose a value, Escape all">` +
      `<line x1="${x(axis)}" x2="${x(axis)}" y1="${TOP}" y2="${TOP + TALL}"/>` +
      (range ? `<rect class="rl-range" x="${x(axis) - 7}" width="14" y="${y(range[1])}" height="${
        Math.max(2, y(range[0]) - y(range[1]))}" rx="3"/>` : "") +
      `<text class="rl-axis-name" x="${x(axis)}" y="16" text-anchor="middle">${label}</text>` +
      ticks.map(([at, text]) => `<text x="${x(axis) + (last ? 8 : -8)}" y="${y(at) + 4}" text-anchor="${
        last ? "start" : "end"}">${text}</text>`).join("") +
      `<rect class="rl-grip" x="${x(axis) - 16}" width="32" y="${TOP - 8}" height="${TALL + 16}"/></g>`;
  });
  chart.root.innerHTML = `<svg width="${wide}" height="${TOP + TALL + 16}" role="img" aria-label="${alt}">${
    paths.join("")}${scales.join("")}</svg>`;
  chart.root.querySelectorAll("g").forEach((axis) => listen(chart, axis, Number(axis.dataset.axis)));
  if (chart.focused !== undefined) chart.root.querySelector(`g[data-axis="${chart.focused}"]`)?.focus();
}

function listen(chart, element, axis) {
  const { label } = chart.data.axes[axis];
  const at = (event) => Math.min(1, Math.max(0, 1 - (event.clientY - chart.root.getBoundingClientRect().top - TOP) / TALL));
  element.querySelector(".rl-grip").addEventListener("pointerdown", (down) => {
    down.preventDefault();
    const from = at(down);
    const move = (event) => {
      const range = [Math.min(from, at(event)), Math.max(from, at(event))];
      if (range[1] - range[0] < 0.02) chart.ranges.delete(label); // a click lets go
      else chart.ranges.set(label, range);
      draw(chart);
    };
    const drag = new AbortController(), { signal } = drag;
    const end = (event) => {
      if (event.type === "pointerup") move(event);
      drag.abort();
      say(chart);
    };
    addEventListener("pointermove", move, { signal });
    addEventListener("pointerup", end, { signal });
    addEventListener("pointercancel", end, { signal }); // a finger that begins to scroll
  });
  element.addEventListener("focus", () => { chart.focused = axis; });
  element.addEventListener("blur", () => { if (chart.root.contains(element)) chart.focused = undefined; });
  element.addEventListener("keydown", (event) => stepped(chart, axis, event));
}

// By keys one value of an axis is chosen after the other.
function stepped(chart, axis, event) {
  const { label, ticks } = chart.data.axes[axis], places = ticks.map(([at]) => at).sort((one, other) => one - other);
  const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
  if (!way && event.key !== "Escape") return;
  event.preventDefault();
  const range = chart.ranges.get(label), now = range ? places.findIndex((at) => at >= range[0] && at <= range[1]) : -1;
  if (way) {
    const next = places[(now + (now < 0 && way < 0 ? 0 : way) + places.length) % places.length];
    chart.ranges.set(label, [next - 0.03, next + 0.03]);
  } else chart.ranges.delete(label);
  draw(chart);
  say(chart);
}

function say(chart) {
  chart.trigger("chosen", chart.ranges.size ? chart.data.lines.filter(inside(chart)).map(({ id }) => id) : "all");
}

export const dispose = disposing(charts, (chart) => chart.wide.disconnect());
