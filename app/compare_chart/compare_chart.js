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

// ---- traces ----------------------------------------------------------------------------------------------------

const scaled = (panel, y) => (panel.scale === "symlog" ? symlog(y) : y);

function hoverWords(panel, line, band) {
  const words = (value) => format(value, panel.digits);
  return line.y.map((y, at) => words(y) + (band && band.x.length === line.x.length
    ? ` [${words(band.low[at])}, ${words(band.high[at])}]` : ""));
}

const AREA = { type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip", showlegend: false };
const LINE = { type: "scatter", mode: "lines", connectgaps: true };

function traceOf(chart, panel, line) {
  const group = chart.groups[line.group];
  const colour = colourOf(chart, line.group);
  const base = { visible: !chart.scene.hidden.has(line.group), name: group.label };
  const y = (line.y ?? []).map((each) => (line.kind === "gap" ? each : scaled(panel, each)));
  const single = line.x.length === 1 ? { mode: "lines+markers", marker: { size: 5, color: colour } } : {};
  switch (line.kind) {
    case "band": case "gapband": {
      const up = line.kind === "band" ? (each) => scaled(panel, each) : (each) => each;
      return { ...base, ...AREA, x: [...line.x, ...[...line.x].reverse()], opacity: 0.18, fillcolor: colour,
        y: [...line.high.map(up), ...[...line.low].reverse().map(up)], line: { width: 0 },
        ...(line.kind === "gapband" && { yaxis: "y2" }) };
    }
    case "raw": return { ...base, ...LINE, x: line.x, y, opacity: 0.25, hoverinfo: "skip", showlegend: false,
      line: { color: colour, width: 1.5 } };
    case "seed": case "path": return { ...base, ...LINE, x: line.x, y, opacity: 0.4, hoverinfo: "skip",
      showlegend: false, line: { color: colour, width: 1, dash: group.dash } };
    case "root": return { ...base, type: "scatter", mode: "markers", x: line.x, y, hoverinfo: "skip", showlegend: false,
      marker: { size: 9, color: chart.theme.ground, line: { width: 2, color: colour } } };
    case "gap": return { ...base, ...LINE, ...single, x: line.x, y, yaxis: "y2", showlegend: false,
      line: { color: colour, width: 1.75, dash: group.dash }, hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
      text: line.y.map((each) => (each > 0 ? "+" : "") + format(each, panel.digits)) };
    case "ends": return { ...base, type: "scatter", mode: "markers", x: line.x, y, showlegend: false, text: line.text,
      hovertemplate: "%{text}<extra>%{fullData.name}</extra>", marker: { size: 7, color: colour, opacity: 0.5 } };
    case "centre": return { ...base, type: "scatter", mode: "markers+text", x: line.x, y, text: [group.short],
      customdata: line.text, hovertemplate: "%{customdata}<extra>%{fullData.name}</extra>", cliponaxis: false,
      textposition: panel.sides[line.group] ?? "top center", textfont: { color: colour, size: 13 },
      marker: { size: 13, color: colour, line: { width: 2, color: chart.theme.ground } } };
    default: return { ...base, ...LINE, ...single, x: line.x, y, hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
      text: hoverWords(panel, line, panel.lines.get(`${line.group}:band`)),
      line: { color: colour, width: group.bold ? 3.5 : 1.9, dash: group.dash } };
  }
}

// Bands below, then what is faint, then the lines; the front of a plane belongs to no group.
const DEPTH = ["band", "gapband", "seed", "path", "raw", "front", "line", "gap", "root", "ends", "centre"];

// Where the names of a plane's points stand so that they do not overlap: the first side that is free.
function sidesOf(chart, lines, width, height) {
  const all = lines.filter((line) => line.kind !== "front");
  const span = (axis) => { const values = all.flatMap((line) => line[axis]); return [Math.min(...values), Math.max(...values)]; };
  const [[left, right], [low, high]] = [span("x"), span("y")];
  const boxes = [], sides = {};
  const centres = all.filter((line) => line.kind === "centre").map((line) => ({ group: line.group,
    x: width * (line.x[0] - left) / (right - left || 1), y: height * (high - line.y[0]) / (high - low || 1) }));
  centres.forEach(({ x, y }) => boxes.push([x - 7, x + 7, y - 7, y + 7]));
  for (const { group, x, y } of centres) {
    const long = chart.groups[group].short.length * 6.8;
    const places = { "top center": [x - long / 2, x + long / 2, y - 25, y - 9], "bottom center": [x - long / 2,
      x + long / 2, y + 9, y + 25], "middle right": [x + 9, x + 9 + long, y - 8, y + 8],
    "middle left": [x - 9 - long, x - 9, y - 8, y + 8] };
    const free = Object.keys(places).find((side) => boxes.every(([a, b, c, d]) => places[side][1] < a
      || places[side][0] > b || places[side][3] < c || places[side][2] > d)) ?? "top center";
    sides[group] = free;
    boxes.push(places[free]);
  }
  return sides;
}

function tracesOf(chart, panel) {
  const lines = panel.order.map((key) => panel.lines.get(key));
  if (panel.plane) {
    const shown = lines.filter((line) => !chart.scene.hidden.has(line.group));
    panel.sides = sidesOf(chart, shown, panel.plot.clientWidth - 90, panel.height - 60);
  }
  return lines.sort((a, b) => DEPTH.indexOf(a.kind) - DEPTH.indexOf(b.kind)).map((line) => (line.kind === "front"
    ? { ...LINE, x: line.x, y: line.y, name: "front", hoverinfo: "skip", line: { color: chart.theme.mark, width: 1.5,
      dash: "dot" } } : traceOf(chart, panel, line)));
}

// ---- layout ----------------------------------------------------------------------------------------------------

function shownLines(chart, panel) {
  return panel.order.map((key) => panel.lines.get(key)).filter((line) => !chart.scene.hidden.has(line.group));
}

function xRange(chart, panel) {
  if (panel.plane) return undefined; // it chooses its own
  const ends = [...panel.lines.values()].map((line) => line.x.at(-1) ?? 0);
  return chart.scene.zoom ?? [0, niceCeil(Math.max(1, ...ends))];
}

function yAxis(chart, panel, axis, pixels) {
  const y = { ...axis, gridcolor: chart.theme.line, nticks: chart.main ? 7 : 4, automargin: false };
  if (panel.scale === "rate") Object.assign(y, { range: [-0.03, 1.03], tickvals: [0, 0.25, 0.5, 0.75, 1] });
  if (panel.scale === "symlog") {
    const values = shownLines(chart, panel).flatMap((line) => line.y ?? [...line.low, ...line.high]);
    Object.assign(y, symlogAxis(values.length ? values : [0], pixels));
  }
  if (panel.zoom) {
    Object.assign(y, { range: panel.zoom, autorange: false });
    if (panel.scale === "rate") delete y.tickvals;
  }
  if (panel.yTitle) y.title = { text: panel.yTitle, standoff: 4, font: { size: 12 } };
  return y;
}

// Dotted verticals in their group's colour; their words stand above the big chart, on three levels at most.
function markLayout(chart, panel, range, width) {
  const shapes = [], annotations = [], levels = [];
  const perPixel = (range[1] - range[0]) / width;
  const marks = panel.marks.filter((mark) => !chart.scene.hidden.has(mark.group)
    && mark.x >= range[0] && mark.x <= range[1]);
  for (const mark of marks.sort((a, b) => b.x - a.x)) {
    const colour = colourOf(chart, mark.group);
    shapes.push({ type: "line", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1, layer: "below",
      line: { color: colour, width: 1, dash: "dot" } });
    if (!chart.main) continue;
    const long = mark.text.length * 6.6 * perPixel;
    const right = mark.x + long > range[1];
    const [start, end] = right ? [mark.x - long, mark.x] : [mark.x, mark.x + long];
    const free = levels.findIndex((taken) => taken.every(([from, to]) => end < from || start > to));
    const level = free < 0 ? levels.length : free;
    if (level >= 3) continue;
    levels[level] = [...(levels[level] ?? []), [start - 8 * perPixel, end + 8 * perPixel]];
    annotations.push({ x: mark.x, yref: "paper", y: 1, yshift: 14 * level - 2, yanchor: "bottom", showarrow: false,
      xanchor: right ? "right" : "left", xshift: right ? 3 : -3, borderpad: 0, text: escaped(mark.text),
      font: { size: 12, color: colour } });
  }
  return { shapes, annotations, top: 8 + 14 * levels.length };
}

function layoutOf(chart, panel) {
  const { ink, line, font, ground } = chart.theme;
  const axis = { tickfont: { size: 12 }, zeroline: false, linecolor: line, tickcolor: line };
  const width = panel.plot.clientWidth || 400;
  panel.room = chart.main && panel.ends && width > 560 && panel.names ? Math.min(130, width * 0.17) : 0;
  const margin = { l: panel.yTitle ? 64 : 50, r: panel.room || 12, b: chart.main ? 40 : 26 };
  const range = xRange(chart, panel);
  const { top, ...marks } = range ? markLayout(chart, panel, range, width - margin.l - margin.r)
    : { top: 8, shapes: [], annotations: [] };
  const strip = panel.order.some((key) => key.includes(":gap"));
  const height = Math.min(panel.height, Math.max(150, 0.85 * width));
  const inside = height - top - margin.b;
  const low = strip ? 110 / inside : 0;
  const layout = { height, margin: { ...margin, t: top }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, family: font, size: 12 }, showlegend: false, dragmode: "zoom", hoversort: "value descending",
    hovermode: range ? "x unified" : "closest",
    hoverlabel: { bgcolor: ground, bordercolor: line, font: { size: 13, color: ink }, namelength: 40 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink }, ...marks,
    xaxis: { ...axis, showgrid: !range, gridcolor: line, nticks: chart.main ? 8 : 4, anchor: strip ? "y2" : "y",
      ...(range && { range, unifiedhovertitle: { text: `%{x} ${panel.axis}` } }), ...(chart.main && { title: { text: panel.axis, standoff: 4, font: { size: 12 } } }) },
    yaxis: { ...yAxis(chart, panel, axis, inside * (1 - low)), domain: [low ? low + 22 / inside : 0, 1] } };
  if (panel.plane) Object.assign(layout.xaxis, { rangemode: "tozero" }, panel.xZoom && { range: panel.xZoom });
  if (strip) {
    layout.yaxis2 = { ...axis, gridcolor: line, nticks: 4, domain: [0, low - 6 / inside], zeroline: true,
      zerolinecolor: chart.theme.mark, zerolinewidth: 1.5, ...(panel.gapZoom && { range: panel.gapZoom }) };
    layout.annotations.push({ text: escaped(panel.strip), xref: "paper", x: 0, xanchor: "left", yref: "paper",
      y: low, yanchor: "bottom", showarrow: false, font: { size: 12, color: ink }, xshift: -2, borderpad: 0 });
  }
  return layout;
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function about(chart, panel) {
  return { title: [panel.title, panel.unit && `(${panel.unit})`].filter(Boolean).join(" "),
    caption: panel.caption, name: panel.title.toLowerCase().replace(/\W+/g, "-") };
}

function draw(chart, panel) {
  const layout = layoutOf(chart, panel);
  panel.config ??= { displaylogo: false, responsive: true, displayModeBar: "hover", doubleClick: false,
    modeBarButtons: [[...pictureButtons(() => about(chart, panel)), "resetScale2d"]] }; // another one starts anew
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
  if (!data.panels) { await loadPlotly(data.plotly); return; } // only get ready
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
  chart.panels.forEach((panel) => { panel.changed ||= panel.width !== undefined && panel.plot.clientWidth !== panel.width; });
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
