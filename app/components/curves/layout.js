// Axes, markers and margins of a panel.

// How much room the panels of a chart have: margins, ticks, and whether words of markers stand above them.
const FORMS = {
  main: { left: 50, right: 12, bottom: 40, across: 8, up: 7, rates: [0, 25, 50, 75, 100], words: true, title: 4 },
  small: { left: 50, right: 12, bottom: 26, across: 4, up: 4, rates: [0, 25, 50, 75, 100], words: false },
  large: { left: 46, right: 12, bottom: 38, across: 6, up: 5, rates: [0, 25, 50, 75, 100], fold: 3, title: 4 },
  below: { left: 46, right: 12, bottom: 22, across: 5, up: 4, rates: [0, 50, 100], fold: 1 },
};

function xRange(chart, panel) {
  return panel.plane ? undefined : chart.scene.zoom ?? [0, chart.xmax]; // a plane has its own, which the server chose
}

function yAxis(chart, panel, axis, pixels) {
  const form = panel.form ?? chart.form;
  const y = { ...axis, gridcolor: chart.theme.line, nticks: form.up, automargin: false };
  if (panel.scale === "rate") Object.assign(y, { range: [-3, 103], tickvals: form.rates });
  if (panel.scale === "small rate") y.range = smallRange(linesOf(panel).flatMap((line) => line.y));
  if (panel.scale === "symlog") {
    const values = linesOf(panel).filter((line) => !chart.scene.hidden.has(hiderOf(line))).flatMap((line) => line.y);
    Object.assign(y, symlogAxis(values.length ? values : [0], pixels));
  }
  if (panel.reach) Object.assign(y, panel.reach.axis);
  if (panel.zoom) {
    Object.assign(y, { range: panel.zoom, autorange: false });
    if (panel.scale !== "symlog") ["tickvals", "dtick", "tick0"].forEach((name) => delete y[name]);
  }
  if (panel.yTitle) y.title = { text: panel.yTitle, standoff: 4, font: { size: 12 } };
  return y;
}

const xAxis = (panel, axis, form, range) => ({ ...axis, showgrid: !range, gridcolor: axis.linecolor, nticks: form.across,
  ...(range && { range, unifiedhovertitle: { text: panel.axis === "steps" ? "Step %{x}" : `%{x} ${panel.axis}` } }),
  ...(form.title && { title: { text: panel.axis, standoff: form.title, font: { size: 12 } } }) });

// Markers within the range, in their group's colour.
function marksOf(chart, panel, range) {
  return panel.marks.filter(({ x, group }) => !chart.scene.hidden.has(group) && x >= range[0] && x <= range[1])
    .map((mark) => ({ ...mark, colour: mark.group === undefined ? chart.theme.mark : colourOf(chart, mark.group) }));
}

// As high as the server says, lower where it is narrow; on a projector as high as there is room.
const highOf = ({ box, height }, width) => Number(box?.dataset.room) || Math.min(height, Math.max(150, 0.85 * width));

// A point above the axis, at its upper edge and with its value.
function spikeMark(chart, { x, text, hue }, range) {
  return { x, yref: "paper", y: 1, yanchor: "top", showarrow: false, borderpad: 1, bgcolor: chart.theme.ground,
    xanchor: x > (range[0] + range[1]) / 2 ? "right" : "left", text: `▲ ${text}`,
    font: { size: 12, color: hue[chart.theme.dark ? 1 : 0] } };
}

function layoutOf(chart, panel) {
  const { ink, line, ground } = chart.theme;
  const form = panel.form ?? chart.form;
  // to find out which tick labels reach over the edge, Plotly would lay the whole page out anew for each of them
  const axis = { tickfont: { size: 12 }, zeroline: false, linecolor: line, tickcolor: line,
    ticklabeloverflow: "allow" };
  const width = panel.plot.clientWidth || 400;
  panel.room = panel.endings ? roomOf(panel.endings, width)
    : panel.ends && width > 560 && panel.names ? Math.min(130, width * 0.17) : 0;
  const margin = { l: panel.yTitle ? 64 : form.left, r: panel.room || form.right, b: form.bottom };
  const range = xRange(chart, panel);
  const { shapes, annotations, worded, top } = range
    ? (form.fold ? foldedLayout : markLayout)(marksOf(chart, panel, range), range,
      Math.max(width - margin.l - margin.r, 120), form.fold ? form.fold : form.words)
    : { shapes: [], annotations: [], worded: [], top: 8 };
  panel.worded = worded; // of the annotations, in their order
  if (!panel.zoom) annotations.push(...(panel.spikes ?? []).map((spike) => spikeMark(chart, spike, range)));
  panel.plot.style.setProperty("--rl-words", `${top - 8}px`); // a chart's buttons can stand below them
  const strip = panel.order.some((key) => String(key).includes(":gap"));
  const height = highOf(panel, width);
  const inside = height - top - margin.b;
  const low = strip ? 110 / inside : 0;
  const looks = looksOf(chart.theme);
  const layout = { ...looks, width, height, margin: { ...margin, t: top }, shapes, annotations,
    hoversort: "value descending", hovermode: range ? "x unified" : "closest",
    hoverlabel: { ...looks.hoverlabel, namelength: 40 },
    xaxis: { ...xAxis(panel, axis, form, range), anchor: strip ? "y2" : "y" },
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
