// Groups of runs over each other: a mean line with its band for each, single seeds, branches, differences.
//
// The server computes every line and sends those that changed, by key; they are kept here by panel. A panel whose
// lines are not all here asks for them by `resync`. Zoom and hidden groups belong to the scene, which is the same for
// all charts of a page as long as it shows the same groups.

const charts = new WeakMap();

function take(chart, data) {
  for (const declared of data.panels) {
    const panel = chart.panels.get(declared.key) ?? { lines: new Map() };
    chart.panels.set(declared.key, panel);
    const { lines, ...about } = declared;
    Object.assign(panel, about, { changed: panel.changed || Object.keys(lines).length > 0 || data.full });
    Object.entries(lines).forEach(([key, line]) => panel.lines.set(key, line));
    if (declared.order.some((key) => !panel.lines.has(key))) return false;
    [...panel.lines.keys()].filter((key) => !declared.order.includes(key)).forEach((key) => panel.lines.delete(key));
  }
  return true;
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function about(chart, panel) {
  return { title: [panel.title, panel.unit && `(${panel.unit})`].filter(Boolean).join(" "),
    caption: panel.caption, name: panel.title.toLowerCase().replace(/\W+/g, "-") };
}

function draw(chart, panel) {
  const layout = layoutOf(chart, panel);
  panel.config ??= { ...configOf(() => about(chart, panel)), doubleClick: false };
  panel.plot.style.height = `${layout.height}px`; // on a narrow screen it is lower
  Plotly.react(panel.plot, tracesOf(chart, panel), layout, panel.config);
  panel.changed = false;
  panel.width = panel.plot.clientWidth;
  panel.plot.setAttribute("aria-label", panel.alt);
  panel.blank.hidden = panel.order.length > 0;
  if (!panel.listening) listen(chart, panel);
  if (panel.ends) drawEnds(chart, panel);
}

function listen(chart, panel) {
  panel.listening = true;
  panel.plot.on("plotly_relayout", (change) => {
    if ("yaxis.range[0]" in change) panel.zoom = [change["yaxis.range[0]"], change["yaxis.range[1]"]];
    if ("yaxis2.range[0]" in change) panel.gapZoom = [change["yaxis2.range[0]"], change["yaxis2.range[1]"]];
    if (!("xaxis.range[0]" in change)) return;
    const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (panel.plane) panel.xZoom = range;
    else {
      chart.scene.zoom = range;
      redraw(chart.scene);
    }
  });
  panel.plot.on("plotly_doubleclick", () => { // back to everything, on every chart
    chart.scene.zoom = null;
    chart.scene.charts.forEach((each) => each.panels.forEach((one) => { one.zoom = one.xZoom = one.gapZoom = null; }));
    redraw(chart.scene);
  });
}

// One chart after the other, so that the page is painted in between: the first is there long before the last.
async function render(chart, all = false) {
  const turn = chart.turn = Symbol("turn");
  if (chart.main) drawLegend(chart);
  for (const panel of chart.panels.values()) {
    if (all || panel.changed) {
      draw(chart, panel);
      if (chart.panels.size > 1) await new Promise((resolve) => setTimeout(resolve, 0));
      if (chart.turn !== turn || !chart.root.isConnected) return;
    }
  }
}

function build(chart) {
  chart.legend = document.createElement("div");
  chart.legend.className = "rl-legend";
  const grid = document.createElement("div");
  grid.className = `rl-panels${chart.main ? "" : " rl-many"}`;
  chart.root.replaceChildren(...(chart.main ? [chart.legend] : []), grid);
  chart.panels.forEach((panel) => {
    const box = document.createElement("figure");
    const name = `<b>${panel.title}</b> <i>${panel.symbol}</i> <small>${panel.unit}</small>`;
    box.innerHTML = `<figcaption title="${panel.help}">${chart.main ? name
      : `<button type="button" class="rl-pick">${name}</button>`}</figcaption><div class="rl-plot" role="img"></div>` +
      `<div class="rl-ends"></div><div class="rl-empty">No values yet</div>`;
    panel.plot = box.querySelector(".rl-plot");
    panel.plot.style.height = `${panel.height}px`;
    panel.ends = chart.main ? box.querySelector(".rl-ends") : null;
    panel.blank = box.querySelector(".rl-empty");
    box.querySelector(".rl-pick")?.addEventListener("click", () => chart.trigger("metric", panel.key));
    grid.append(box);
  });
}

export async function update(component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".rl-compare-chart");
  let chart = charts.get(parentElement);
  if (!chart) {
    chart = { panels: new Map(), observer: new ResizeObserver(() => resized(chart)) };
    charts.set(parentElement, chart);
    chart.observer.observe(root);
  }
  chart.root = root;
  if (!data.full && chart.key !== data.key) { setTriggerValue("resync", Date.now()); return; }
  const fresh = chart.key !== data.key;
  if (fresh) {
    chart.scene?.charts.delete(chart);
    Object.assign(chart, { key: data.key, panels: new Map(), main: data.main, scene: sceneOf(data.scene) });
    chart.scene.charts.add(chart);
  }
  if (chart.axis !== data.axis) chart.scene.zoom = null; // on another axis the old zoom means nothing
  const looks = theme(parentElement);
  const restyled = JSON.stringify([looks, data.groups]) !== JSON.stringify([chart.theme, chart.groups]);
  Object.assign(chart, { groups: data.groups, axis: data.axis, theme: looks, trigger: setTriggerValue });
  if (!take(chart, data)) { chart.key = ""; setTriggerValue("resync", Date.now()); return; }
  if (fresh) build(chart);
  await loadPlotly(data.plotly);
  if (charts.get(parentElement) === chart && chart.key === data.key) await render(chart, restyled || fresh);
}

// Plotly follows the width by itself; names and words are placed by hand.
function resized(chart) {
  chart.panels.forEach((panel) => {
    panel.changed ||= panel.width !== undefined && panel.plot.clientWidth !== panel.width;
  });
  if (Plotly && chart.groups) render(chart);
}

// Streamlit also calls this when newer data came while `update` was waiting: then the charts live on.
export async function dispose(parentElement) {
  await new Promise((resolve) => setTimeout(resolve, 0));
  if (parentElement.isConnected) return;
  const chart = charts.get(parentElement);
  charts.delete(parentElement);
  chart?.scene?.charts.delete(chart);
  chart?.observer.disconnect();
  chart?.panels.forEach((panel) => panel.plot && Plotly?.purge(panel.plot));
}
