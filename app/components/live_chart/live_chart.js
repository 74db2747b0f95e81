// Live charts: one grid of Plotly charts that grows by Plotly.extendTraces.
//
// Rows are kept here by run; the server sends what is new with some overlap and duplicates are dropped. When rows
// are missing in between, `resync` asks for everything. The axis, the smoothing and the theme redraw from what is
// kept, so they never need the server.

const charts = new WeakMap();
const DASHES = ["solid", "dot", "dash", "dashdot"];

// ---- data ------------------------------------------------------------------------------------------------------

function takeRows(chart, incoming) {
  for (const [id, run] of Object.entries(incoming)) {
    const kept = (chart.runs[id] ??= { rows: [], last: 0, dots: new Map() });
    Object.assign(kept, { label: run.label, colour: run.colour, total: run.total, muted: run.muted, root: run.root,
      parent: run.parent });
    if (run.after > kept.last) return false;
    for (const row of run.rows) {
      if (row[4]) kept.dots.set(row[0], row[4]);
      if (row[0] > kept.last) { kept.rows.push(row); kept.last = row[0]; }
    }
  }
  return true;
}

// a row is [step, tokens or environment steps, seconds, {metric: value}] and, where a panel has dots, [[x, y], …] of
// what is behind its mean; x counts as the row's second number does
const positions = {
  updates: (row) => row[3].updates ?? row[0], tokens: (row) => row[1], env_steps: (row) => row[1],
  seconds: (row) => row[2], step: (row) => row[0],
};
const unitOf = {
  updates: "updates", tokens: "tokens", env_steps: "environment steps", seconds: "active seconds", step: "steps",
};

function traceData(chart, spec, from, state) {
  const run = chart.runs[spec.run];
  const out = { x: [], y: [], text: [] };
  if (spec.dots) {
    for (const row of run.rows.slice(from)) {
      for (const [x, y] of run.dots.get(row[0]) ?? []) {
        out.x.push(chart.x === "env_steps" ? x : positions[chart.x](row));
        out.y.push(y);
        out.text.push("");
      }
    }
    return out;
  }
  for (let i = from; i < run.rows.length; i += 1) {
    const value = run.rows[i][3][spec.metric.key];
    if (value === undefined) continue;
    const x = positions[chart.x](run.rows[i]);
    const y = run.rows[i][0] === run.root ? joint(chart, spec, run.rows[i]) : state ? state(x, value) : value;
    if (spec.fork && run.rows[i][0] !== run.root) break;
    out.x.push(x);
    out.y.push(spec.symlog ? symlog(y) : y);
    out.text.push(format(y, Math.max(spec.metric.digits, 3)));
  }
  return out;
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function layoutOf(chart, panel) {
  const { line } = chart.theme;
  const axis = { tickfont: { size: 12 }, fixedrange: false, zeroline: false, linecolor: line, tickcolor: line };
  const y = { ...axis, gridcolor: line, nticks: 5, automargin: false };
  if (panel.range) Object.assign(y, { range: [panel.range[0] - 0.03, panel.range[1] + 0.03], tickvals: [0, 0.5, 1] });
  const { "margin.t": top, ...marks } = markerLayout(chart);
  if (panel.symlog) Object.assign(y, symlogTicks(chart, panel, top));
  if (chart.blank) Object.assign(y, { range: [0, 1], tickvals: [0, 0.5, 1], showticklabels: false });
  return {
    ...looksOf(chart.theme), height: chart.height, margin: { l: 46, r: 10, t: top, b: 34 }, hovermode: "x unified",
    xaxis: { ...axis, showgrid: false, range: [0, chart.xmax], nticks: 6,
             title: { text: unitOf[chart.x], standoff: 2, font: { size: 12 } } }, yaxis: y, ...marks,
    uirevision: `${chart.key} ${chart.looks} ${chart.blank}`,
  };
}

function symlogTicks(chart, panel, top) {
  const keys = panel.metrics.map((metric) => metric.key);
  const values = Object.values(chart.runs).flatMap((run) => run.rows.flatMap((row) => keys.map((key) => row[3][key])))
    .filter((value) => value !== undefined);
  return symlogAxis(values, chart.height - 34 - top);
}

function traceSpecs(chart, panel) {
  const specs = [];
  const inOrder = Object.entries(chart.runs).sort(([, a], [, b]) => Boolean(b.muted) - Boolean(a.muted));
  for (const [run, kept] of inOrder) { // what steps back lies below
    if (panel.dots) specs.push({ run, metric: panel.metrics[0], place: 0, dots: true });
    panel.metrics.forEach((metric, place) => {
      const base = { run, metric, place, symlog: panel.symlog };
      if (chart.smooth) specs.push({ ...base, raw: true });
      specs.push({ ...base, smooth: chart.smooth > 0, label: kept.label });
      if (kept.root !== null) specs.push({ ...base, smooth: chart.smooth > 0, fork: true });
    });
  }
  return specs;
}

function traceOf(chart, spec) {
  const run = chart.runs[spec.run];
  spec.state = spec.smooth ? smoother(chart.smooth, breaksOf(chart, spec.run)) : null;
  const data = traceData(chart, spec, 0, spec.state);
  spec.drawn = run.rows.length;
  const colour = run.colour[chart.theme.dark ? 1 : 0];
  if (spec.dots) {
    return { ...data, type: "scatter", mode: "markers", hoverinfo: "skip", opacity: chart.theme.dark ? 0.4 : 0.28,
      marker: { size: 3.5, color: colour }, visible: !chart.hidden.has(spec.metric.key) };
  }
  if (spec.fork) {
    return { ...data, type: "scatter", mode: "markers", hoverinfo: "skip", visible: !chart.hidden.has(spec.metric.key),
      marker: { size: 7, color: chart.theme.ground, line: { width: 2, color: colour } } };
  }
  const many = Object.keys(chart.runs).length > 1;
  const name = (many ? `${run.label} · ` : "") + spec.metric.label;
  return { ...data, type: "scatter", mode: data.x.length === 1 ? "lines+markers" : "lines", name,
    opacity: (spec.raw ? 0.25 : 1) * (run.muted ? 0.5 : 1), hoverinfo: spec.raw ? "skip" : "text+name", hovertemplate: spec.raw ? undefined
      : `%{text}<extra>${name}</extra>`, visible: chart.hidden.has(spec.metric.key) ? false : true,
    line: { color: colour, width: spec.place ? 1.4 : 1.75, dash: DASHES[spec.place % 4] },
    marker: { size: 5 }, connectgaps: true };
}

function draw(chart, panel) {
  panel.specs = traceSpecs(chart, panel);
  const traces = panel.specs.map((spec) => traceOf(chart, spec));
  panel.config ??= { ...configOf(() => aboutPanel(chart, panel)), doubleClick: false };
  Plotly.react(panel.plot, traces, layoutOf(chart, panel), panel.config);
  if (!panel.listening) listen(chart, panel);
}

function aboutPanel(chart, panel) {
  const runs = Object.values(chart.runs).map((run) => run.label).join(", ");
  const smoothed = chart.smooth ? `, smoothed ${chart.smooth}` : "";
  const unit = panel.unit.toLowerCase() === panel.title.toLowerCase() ? "" : panel.unit;
  return { title: [panel.title, unit && `(${unit})`].filter(Boolean).join(" "),
    caption: `${runs}, over ${unitOf[chart.x]}${smoothed}`, name: panel.title.toLowerCase().replace(/\W+/g, "-") };
}

function listen(chart, panel) {
  panel.listening = true;
  panel.plot.on("plotly_relayout", (change) => {
    if (chart.linking || !("xaxis.range[0]" in change)) return;
    link(chart, { "xaxis.range": [change["xaxis.range[0]"], change["xaxis.range[1]"]] }, panel);
    chart.zoomed = true;
  });
  panel.plot.on("plotly_clickannotation", ({ index }) => {
    const { run, event } = chart.words[index] ?? {};
    if (event) chart.trigger("marker", { run, event, at: Date.now() });
  });
  panel.plot.on("plotly_doubleclick", () => { // back to the whole run, on every chart
    chart.zoomed = false;
    chart.looks += 1;
    shown(chart).forEach((each) => draw(chart, each));
  });
}

async function link(chart, change, except) {
  chart.linking = true;
  await Promise.all(shown(chart).filter((panel) => panel !== except)
    .map((panel) => Plotly.relayout(panel.plot, { ...change })));
  chart.linking = false;
}

function grow(chart, panel) {
  const indices = [], update = { x: [], y: [], text: [] };
  panel.specs.forEach((spec, index) => {
    const rows = chart.runs[spec.run].rows.length;
    if (rows === spec.drawn || (spec.fork && spec.drawn)) return;
    const data = traceData(chart, spec, spec.drawn, spec.state);
    spec.drawn = rows;
    if (!data.x.length) return;
    indices.push(index);
    for (const name of ["x", "y", "text"]) update[name].push(data[name]);
  });
  if (!indices.length) return;
  Plotly.extendTraces(panel.plot, update, indices);
  const single = [...panel.specs.keys()].filter((index) => panel.plot.data[index].mode === "lines+markers");
  if (single.length) Plotly.restyle(panel.plot, { mode: "lines" }, single);
  if (panel.symlog && !chart.zoomed) {
    const ticks = symlogTicks(chart, panel, panel.plot.layout.margin.t);
    if (ticks.tickvals.length !== panel.plot.layout.yaxis.tickvals?.length) {
      Plotly.relayout(panel.plot, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext });
    }
  }
}

// ---- page ------------------------------------------------------------------------------------------------------

function shown(chart) {
  return chart.open ? chart.panels : chart.panels.slice(0, chart.first);
}

function swatch(place) {
  const dash = ["", "2 3", "6 3", "6 2 2 2"][place % 4];
  return `<svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" y2="4" stroke="currentColor" ` +
    `stroke-width="2" stroke-dasharray="${dash}"/></svg>`;
}

function build(chart, data) {
  chart.root.innerHTML = "";
  const grid = document.createElement("div");
  grid.className = "rl-grid";
  chart.root.append(grid);
  chart.panels = data.panels.map((declared) => {
    const panel = { ...declared, specs: [] };
    const box = document.createElement("figure");
    const keys = panel.metrics.map((metric, place) => `<button type="button" data-metric="${metric.key}" ` +
      `title="Hide or show ${metric.label}">${swatch(place)}${metric.short}</button>`).join("");
    box.innerHTML = `<figcaption><span class="rl-name" title="${panel.help}"><b>${panel.title}</b> ` +
      `<i>${panel.symbol}</i> <small>${panel.unit}</small></span><output></output></figcaption>` +
      `<div class="rl-keys">${panel.metrics.length > 1 ? keys : ""}</div><div class="rl-plot" role="img"></div>`;
    panel.box = box;
    panel.plot = box.querySelector(".rl-plot");
    panel.value = box.querySelector("output");
    box.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
      const key = button.dataset.metric;
      if (!chart.hidden.delete(key)) chart.hidden.add(key);
      button.classList.toggle("rl-off", chart.hidden.has(key));
      draw(chart, panel);
    }));
    grid.append(box);
    return panel;
  });
  if (chart.panels.length > chart.first) {
    const more = document.createElement("button");
    more.className = "rl-more";
    more.type = "button";
    more.addEventListener("click", () => { chart.open = !chart.open; refreshOpen(chart, more); });
    chart.root.append(more);
    refreshOpen(chart, more);
  }
}

function refreshOpen(chart, more) {
  const rest = chart.panels.slice(chart.first);
  more.textContent = chart.open ? "Fewer charts" : `${rest.length} more charts: ` +
    rest.map((panel) => panel.title.toLowerCase()).join(", ");
  more.setAttribute("aria-expanded", String(chart.open));
  rest.forEach((panel) => { panel.box.hidden = !chart.open; });
  if (chart.open && chart.ready) rest.forEach((panel) => draw(chart, panel));
}

function newest(chart, key) {
  for (const run of Object.values(chart.runs)) {
    const row = run.rows.findLast((each) => each[3][key] !== undefined);
    if (row) return row[3][key];
  }
  return null;
}

function caption(chart, panel) {
  const first = panel.metrics[0];
  const last = newest(chart, first.key);
  panel.value.textContent = format(last, first.digits);
  const rows = Object.values(chart.runs)[0]?.rows ?? [];
  const start = rows.find((row) => row[3][first.key] !== undefined)?.[3][first.key];
  panel.plot.setAttribute("aria-label", last === null ? `${panel.title}: no values yet`
    : `${panel.title} over ${unitOf[chart.x]}: from ${format(start, 3)} to ${format(last, 3)} ${first.unit}`);
}

function furthest(chart) {
  const ends = Object.values(chart.runs).map((run) => {
    const last = run.rows.at(-1);
    return last ? positions[chart.x](last) : 0;
  });
  return niceCeil(Math.max(1, ...ends));
}

function signature(chart) {
  return JSON.stringify([chart.x, chart.smooth, chart.theme, chart.blank, Object.keys(chart.runs),
    Object.values(chart.runs).map((run) => run.muted)]);
}

export async function update(component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".rl-live-chart");
  let chart = charts.get(parentElement);
  if (!chart) {
    chart = { runs: {}, markers: [], hidden: new Set(), open: false, ready: false, looks: 0 };
    charts.set(parentElement, chart);
  }
  chart.root = root;
  const fresh = chart.key !== data.key;
  if (fresh) Object.assign(chart, { key: data.key, runs: {}, zoomed: false, xmax: 0, drawn: "", first: data.first });
  if (!takeRows(chart, data.runs)) { // rows are missing: start anew with everything
    chart.key = "";
    setTriggerValue("resync", Date.now());
    return;
  }
  const marks = JSON.stringify(data.markers);
  const newMarks = marks !== chart.marks;
  Object.assign(chart, { trigger: setTriggerValue, markers: data.markers, marks, x: data.x, smooth: data.smooth, theme: theme(parentElement),
    height: data.height });
  if (fresh) build(chart, data);
  const plotted = await loadPlotly(data.plotly);
  if (!plotted || charts.get(parentElement) !== chart || chart.key !== data.key) return;
  chart.ready = true;
  render(chart, newMarks);
}

function render(chart, newMarks) {
  chart.plotWidth = (chart.root.querySelector(".rl-plot")?.clientWidth ?? 300) - 56;
  const xmax = furthest(chart);
  const wider = xmax !== chart.xmax;
  chart.xmax = xmax;
  chart.panels.forEach((panel) => caption(chart, panel));
  chart.blank = Object.values(chart.runs).every((run) => !run.rows.length);
  const drawn = signature(chart);
  if (drawn !== chart.drawn || (newMarks && chart.smooth)) {
    if (chart.drawn && JSON.parse(chart.drawn)[0] !== chart.x) { // on another axis the old zoom means nothing
      chart.zoomed = false;
      chart.looks += 1;
    }
    chart.drawn = drawn;
    inTurn(chart, shown(chart), drawn);
    return;
  }
  shown(chart).forEach((panel) => (panel.specs.length ? grow(chart, panel) : draw(chart, panel)));
  if (wider || newMarks) {
    const change = markerLayout(chart);
    if (wider && !chart.zoomed) change["xaxis.range"] = [0, chart.xmax];
    link(chart, change, null);
  }
}

// One chart after the other, so that the page is painted in between: the first curve is there long before the last.
function inTurn(chart, panels, drawn) {
  setTimeout(() => {
    if (!panels.length || chart.drawn !== drawn || !chart.root.isConnected) return;
    draw(chart, panels[0]);
    inTurn(chart, panels.slice(1), drawn);
  }, 0);
}

// Streamlit also calls this when newer data came while `update` was waiting: then the charts live on.
export async function dispose(parentElement) {
  await new Promise((resolve) => setTimeout(resolve, 0));
  if (parentElement.isConnected) return;
  const chart = charts.get(parentElement);
  charts.delete(parentElement);
  chart?.panels?.forEach((panel) => Plotly?.purge(panel.plot));
}
