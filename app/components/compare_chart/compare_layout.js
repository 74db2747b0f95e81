// Axes, markers and margins of a panel. Served as one with compare_chart.js.

function shownLines(chart, panel) {
  return panel.order.map((key) => panel.lines.get(key)).filter((line) => !chart.scene.hidden.has(line.group));
}

function xRange(chart, panel) {
  if (panel.plane) return undefined; // it has its own, which the server chose
  const ends = [...chart.panels.values()].flatMap((each) => [...each.lines.values()].map((line) => line.x.at(-1) ?? 0));
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

// Markers in their group's colour; their words stand above the big chart only.
function marksOf(chart, panel, range) {
  return panel.marks.filter((mark) => !chart.scene.hidden.has(mark.group) && mark.x >= range[0] && mark.x <= range[1])
    .map(({ x, text, group }) => ({ x, text, colour: colourOf(chart, group) }));
}

function layoutOf(chart, panel) {
  const { ink, line, ground } = chart.theme;
  const axis = { tickfont: { size: 12 }, zeroline: false, linecolor: line, tickcolor: line };
  const width = panel.plot.clientWidth || 400;
  panel.room = chart.main && panel.ends && width > 560 && panel.names ? Math.min(130, width * 0.17) : 0;
  const margin = { l: panel.yTitle ? 64 : 50, r: panel.room || 12, b: chart.main ? 40 : 26 };
  const range = xRange(chart, panel);
  const { shapes, annotations, top } = range
    ? markLayout(marksOf(chart, panel, range), range, width - margin.l - margin.r, chart.main)
    : { shapes: [], annotations: [], top: 8 };
  const strip = panel.order.some((key) => key.includes(":gap"));
  const height = Math.min(panel.height, Math.max(150, 0.85 * width));
  const inside = height - top - margin.b;
  const low = strip ? 110 / inside : 0;
  const looks = looksOf(chart.theme);
  const layout = { ...looks, height, margin: { ...margin, t: top }, shapes, annotations,
    hoversort: "value descending", hovermode: range ? "x unified" : "closest",
    hoverlabel: { ...looks.hoverlabel, namelength: 40 },
    xaxis: { ...axis, showgrid: !range, gridcolor: line, nticks: chart.main ? 8 : 4, anchor: strip ? "y2" : "y",
      ...(range && { range, unifiedhovertitle: { text: `%{x} ${panel.axis}` } }),
      ...(chart.main && { title: { text: panel.axis, standoff: 4, font: { size: 12 } } }) },
    yaxis: { ...yAxis(chart, panel, axis, inside * (1 - low)), domain: [low ? low + 22 / inside : 0, 1] } };
  if (panel.plane && panel.range.x) {
    panel.inside = [width - margin.l - margin.r, inside];
    Object.assign(layout.xaxis, { range: panel.xZoom ?? panel.range.x, autorange: false });
    if (!panel.zoom) Object.assign(layout.yaxis, { range: panel.range.y, autorange: false });
  }
  if (strip) {
    layout.yaxis2 = { ...axis, gridcolor: line, nticks: 4, domain: [0, low - 6 / inside], zeroline: true,
      zerolinecolor: chart.theme.mark, zerolinewidth: 1.5, ...(panel.gapZoom && { range: panel.gapZoom }) };
    layout.annotations.push({ text: escaped(panel.strip), xref: "paper", x: 0, xanchor: "left", yref: "paper",
      y: low, yanchor: "bottom", showarrow: false, font: { size: 12, color: ink }, xshift: -2,
      borderpad: 1, bgcolor: ground });
  }
  return layout;
}
