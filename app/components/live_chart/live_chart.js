// Live charts: the panels of runs that go, made of rows that the server sends with some overlap.
//
// When rows are missing in between, `resync` asks for everything. The axis, the smoothing and the theme redraw from
// what is kept here.

const UNITS = {
  updates: "updates", tokens: "tokens", env_steps: "environment steps", seconds: "active seconds", step: "steps",
};

function swatch(place) {
  return `<svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" y2="4" stroke="currentColor" ` +
    `stroke-width="2" stroke-dasharray="${DASH_ARRAYS[DASHES[place % 4]]}"/></svg>`;
}

function build(chart, data) {
  const grid = document.createElement("div");
  grid.className = "rl-grid";
  chart.root.replaceChildren(grid);
  chart.panels = new Map(data.panels.map((panel) => [panel.key, { ...panel, height: data.height }]));
  chart.panels.forEach((panel) => grid.append(boxOf(chart, panel)));
  const rest = [...chart.panels.values()].slice(data.first);
  if (!rest.length) return;
  const more = document.createElement("button");
  [more.className, more.type] = ["rl-more", "button"];
  more.addEventListener("click", () => { chart.open = !chart.open; unfold(chart, rest, more); render(chart); });
  chart.root.append(more);
  unfold(chart, rest, more);
}

function boxOf(chart, panel) {
  const box = panel.box = document.createElement("figure");
  box.dataset.panel = panel.key;
  const keys = panel.metrics.map((metric, place) => `<button type="button" data-metric="${metric.key}" ` +
    `title="Hide or show ${metric.label}">${swatch(place)}${metric.short}</button>`).join("");
  box.innerHTML = `<figcaption><span class="rl-name" title="${panel.help}"><b>${panel.title}</b> ` +
    `<i>${panel.symbol}</i> <small>${panel.unit}</small></span><output></output></figcaption>` +
    `<div class="rl-keys">${panel.metrics.length > 1 ? keys : ""}</div><div class="rl-plot" role="img"></div>`;
  panel.plot = box.querySelector(".rl-plot");
  panel.plot.style.height = `${panel.height}px`; // nothing below it moves while Plotly is loaded
  panel.value = box.querySelector("output");
  box.querySelectorAll("button").forEach((button) => {
    const hidden = () => button.classList.toggle("rl-off", chart.scene.hidden.has(button.dataset.metric));
    button.addEventListener("click", () => { toggle(chart.scene, button.dataset.metric); hidden(); });
    hidden();
  });
  return box;
}

function unfold(chart, rest, more) {
  more.textContent = chart.open ? "Fewer charts" : `${rest.length} more charts: ` +
    rest.map((panel) => panel.title.toLowerCase()).join(", ");
  more.setAttribute("aria-expanded", String(Boolean(chart.open)));
  rest.forEach((panel) => { panel.box.hidden = !chart.open; });
}

function newest(chart, key) {
  for (const run of Object.values(chart.runs)) {
    const row = run.rows.findLast((each) => each[3][key] !== undefined);
    if (row) return row[3][key];
  }
  return null;
}

// What is said of a panel: its newest number, and in words what is seen.
function describe(chart, panel) {
  const first = panel.metrics[0];
  const last = newest(chart, first.key);
  panel.value.textContent = format(last, first.digits);
  const start = Object.values(chart.runs)[0]?.rows.find((row) => row[3][first.key] !== undefined)?.[3][first.key];
  const runs = Object.values(chart.runs).map((run) => run.label).join(", ");
  Object.assign(panel, { axis: UNITS[chart.x], digits: Math.max(first.digits, 3),
    caption: `${runs}, over ${UNITS[chart.x]}${chart.smooth ? `, smoothed ${chart.smooth}` : ""}`,
    alt: last === null ? `${panel.title}: no values yet`
      : `${panel.title} over ${UNITS[chart.x]}: from ${format(start, 3)} to ${format(last, 3)} ${first.unit}` });
}

// A click on the words of a knob's marker asks what if.
function marksFor(chart) {
  const { ground, line, ink, font } = chart.theme;
  const hoverlabel = { bgcolor: ground, bordercolor: line, font: { size: 13, color: ink, family: font } };
  return chart.markers.map((marker) => {
    const { run, event, text } = marker, asks = event !== null;
    return { x: markerAt(chart, marker), text, click: () => asks && chart.trigger("marker", { run, event, at: Date.now() }),
      more: { captureevents: asks, hoverlabel, hovertext: asks ? "What if? Fork from before this change" : "" } };
  });
}

// Bring the lines up to the rows; all of them anew where the axis, the smoothing or the breaks are others.
function refresh(chart) {
  const runs = Object.entries(chart.runs);
  const marks = marksFor(chart);
  const made = JSON.stringify([chart.x, chart.smooth, runs.map(([id, run]) => [id, run.muted, run.root, run.parent]),
    chart.smooth && chart.markers]);
  chart.groups = runs.map(([, { label, colour, muted }]) => ({ short: label, colour, muted }));
  chart.xmax = furthest(chart);
  chart.blank = runs.every(([, run]) => !run.rows.length);
  chart.panels.forEach((panel) => {
    describe(chart, panel);
    if (made !== panel.made) makeLines(chart, panel);
    panel.lines.forEach((line) => fill(chart, line));
    Object.assign(panel, { made, marks, changed: true });
  });
}

export async function update(component) {
  const { data, parentElement, setTriggerValue } = component;
  const chart = chartAt(parentElement, parentElement.querySelector(".rl-live-chart"));
  const fresh = chart.key !== data.key;
  if (!chart.scene) enter(chart, newScene());
  if (fresh) {
    Object.assign(chart, { key: data.key, runs: {}, form: FORMS.live });
    chart.scene.zoom = null;
  }
  if (!takeRows(chart, data.runs)) { // rows are missing: start anew with everything
    chart.key = "";
    setTriggerValue("resync", Date.now());
    return;
  }
  if (chart.x !== data.x) chart.scene.zoom = null; // on another axis the old zoom means nothing
  Object.assign(chart, { trigger: setTriggerValue, markers: data.markers, x: data.x, smooth: data.smooth,
    theme: theme(parentElement) });
  if (fresh) build(chart, data);
  refresh(chart);
  const plotted = await loadPlotly(data.plotly);
  if (plotted && charts.get(parentElement) === chart && chart.key === data.key) await render(chart);
}
