// Groups of runs over each other: a mean line with its band for each, single seeds, branches, differences.
//
// The server computes every line and sends those that changed, by key; they are kept here by panel. A panel whose
// lines are not all here asks for them by `resync`. Zoom and hidden groups belong to the scene, which is the same for
// all charts of a page as long as it shows the same groups.

function take(chart, data) {
  for (const declared of data.panels) {
    const panel = chart.panels.get(declared.key) ?? { lines: new Map() };
    chart.panels.set(declared.key, panel);
    const { lines, ...about } = declared;
    Object.assign(panel, about, { changed: panel.changed || Object.keys(lines).length > 0 || data.full,
      waits: !declared.order.length && !panel.listening }); // axes without lines would have numbers of nothing
    Object.entries(lines).forEach(([key, line]) => panel.lines.set(key, line));
    if (declared.order.some((key) => !panel.lines.has(key))) return false;
    [...panel.lines.keys()].filter((key) => !declared.order.includes(key)).forEach((key) => panel.lines.delete(key));
  }
  return true;
}

function furthest(chart) {
  const lines = [...chart.panels.values()].flatMap((panel) => [...panel.lines.values()]);
  const ends = lines.map(({ kind, x }) => (kind.endsWith("band") ? x[x.length / 2 - 1] : x.at(-1)) ?? 0);
  return niceCeil(Math.max(1, ...ends));
}

function build(chart) {
  chart.legend = document.createElement("div");
  chart.legend.className = "rl-legend";
  const grid = document.createElement("div");
  grid.className = `rl-panels${chart.main ? "" : " rl-many"}`;
  chart.root.replaceChildren(...(chart.named ? [chart.legend] : []), grid);
  chart.panels.forEach((panel) => {
    const box = panel.box = document.createElement("figure");
    const name = `<span><b>${escaped(panel.title)}</b> <small>${panel.unit}</small></span> <i>${panel.symbol}</i>`;
    box.innerHTML = `<figcaption title="${escaped(panel.help)}">${chart.main ? name
      : `<button type="button" class="rl-pick">${name}</button>`}</figcaption><div class="rl-plot" role="img"></div>` +
      `<div class="rl-ends"></div><div class="rl-empty">No values yet</div>`;
    box.querySelector("figcaption").hidden = Boolean(panel.bare);
    panel.plot = box.querySelector(".rl-plot");
    panel.plot.style.height = `${panel.height}px`;
    panel.ends = chart.main ? box.querySelector(".rl-ends") : null;
    panel.blank = box.querySelector(".rl-empty");
    panel.blank.hidden = !panel.waits;
    box.querySelector(".rl-pick")?.addEventListener("click", () => chart.trigger("metric", panel.key));
    grid.append(box);
  });
}

export async function update(component) {
  const { data, parentElement, setTriggerValue } = component;
  const chart = chartAt(parentElement, parentElement.querySelector(".rl-compare-chart"));
  if (!data.full && chart.key !== data.key) { setTriggerValue("resync", Date.now()); return; }
  const fresh = chart.key !== data.key;
  if (fresh) {
    Object.assign(chart, { key: data.key, panels: new Map(), main: data.main, form: FORMS[data.main ? "main" : "small"],
      named: data.legend,
      above: () => chart.named && drawLegend(chart), drawn: (panel) => {
        panel.blank.hidden = panel.order.length > 0;
        if (panel.ends) drawEnds(chart, panel);
      } });
    enter(chart, sceneOf(data.scene));
  }
  if (chart.axis !== data.axis) chart.scene.zoom = null; // on another axis the old zoom means nothing
  const looks = theme(parentElement);
  const restyled = JSON.stringify([looks, data.groups]) !== JSON.stringify([chart.theme, chart.groups]);
  Object.assign(chart, { groups: data.groups, axis: data.axis, theme: looks, trigger: setTriggerValue });
  if (!take(chart, data)) { chart.key = ""; setTriggerValue("resync", Date.now()); return; }
  const xmax = furthest(chart), wider = xmax !== chart.xmax;
  chart.xmax = xmax;
  if (fresh) build(chart);
  await loadPlotly(data.plotly);
  if (charts.get(parentElement) === chart && chart.key === data.key) await render(chart, restyled || fresh || wider);
}
