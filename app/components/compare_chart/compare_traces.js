// Lines as Plotly's traces. Served as one with compare_chart.js.

const scaled = (panel, y) => (panel.scale === "symlog" ? symlog(y) : y);

// How numbers are written in a panel's hover words, as d3 has it: by format and not point by point, of which there are
// tens of thousands.
const numberOf = (panel) => (panel.scale === "symlog" ? ".3~g" : `,.${panel.digits}f`);

const AREA = { type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip", showlegend: false };
const LINE = { type: "scatter", mode: "lines", connectgaps: true };
const NAMED = "<extra>%{fullData.name}</extra>";

// A band as one outline: along the upper end and back along the lower one.
function area(base, line, colour, up) {
  return { ...base, ...AREA, x: [...line.x, ...[...line.x].reverse()], opacity: 0.18, fillcolor: colour,
    y: [...line.high.map(up), ...[...line.low].reverse().map(up)], line: { width: 0 } };
}

// The line of a group; its hover words hold the band at the same place, if there is one.
function mainLine(panel, line, band) {
  const number = numberOf(panel);
  const both = band?.x.length === line.x.length;
  return { customdata: line.y.map((y, at) => (both ? [y, band.low[at], band.high[at]] : [y])),
    hovertemplate: `%{customdata[0]:${number}}${both
      ? ` [%{customdata[1]:${number}}, %{customdata[2]:${number}}]` : ""}${NAMED}` };
}

function traceOf(chart, panel, line) {
  const group = chart.groups[line.group];
  const colour = colourOf(chart, line.group);
  const base = { visible: !chart.scene.hidden.has(line.group), name: escaped(group.short) };
  const y = (line.y ?? []).map((each) => scaled(panel, each));
  const dots = { ...base, type: "scatter", mode: "markers", x: line.x, y };
  const single = line.x.length === 1 ? { mode: "lines+markers", marker: { size: 5, color: colour } } : {};
  const quiet = { hoverinfo: "skip", showlegend: false };
  switch (line.kind) {
    case "band": return area(base, line, colour, (each) => scaled(panel, each));
    case "gapband": return { ...area(base, line, colour, (each) => each), yaxis: "y2" };
    case "raw": return { ...base, ...LINE, ...quiet, x: line.x, y, opacity: 0.25, line: { color: colour, width: 1.5 } };
    case "seed": case "path": return { ...base, ...LINE, ...quiet, x: line.x, y, opacity: 0.4,
      line: { color: colour, width: 1, dash: group.dash } };
    case "root": return { ...dots, ...quiet, marker: { size: 9, color: chart.theme.ground,
      line: { width: 2, color: colour } } };
    case "gap": return { ...base, ...LINE, ...single, x: line.x, y: line.y, yaxis: "y2", showlegend: false,
      line: { color: colour, width: 1.75, dash: group.dash }, hovertemplate: `%{y:+,.${panel.digits}f}${NAMED}` };
    case "ends": return { ...dots, showlegend: false, text: line.text, hovertemplate: `%{text}${NAMED}`,
      marker: { size: 7, color: colour, opacity: 0.5 } };
    case "centre": return { ...dots, mode: "markers+text", text: [escaped(group.short)], customdata: line.text,
      hovertemplate: `%{customdata}${NAMED}`, cliponaxis: false, textfont: { color: colour, size: 13 },
      textposition: panel.sides[line.group] ?? "top center",
      marker: { size: 13, color: colour, line: { width: 2, color: chart.theme.ground } } };
    default: return { ...base, ...LINE, ...single, x: line.x, y,
      ...mainLine(panel, line, panel.lines.get(`${line.group}:band`)),
      line: { color: colour, width: group.bold ? 3.5 : 1.9, dash: group.dash } };
  }
}

// Bands below, then what is faint, then the lines; the front of a plane belongs to no group.
const DEPTH = ["band", "gapband", "seed", "path", "raw", "front", "line", "gap", "root", "ends", "centre"];

// Where the names of a plane's points stand: the first side within the plot that is free of other names and means and,
// if there is one, of the ends of runs.
function sidesOf(chart, panel, lines) {
  const [[left, right], [low, high]] = [panel.xZoom ?? panel.range.x, panel.zoom ?? panel.range.y];
  const [width, height] = panel.inside;
  const boxes = [], sides = {};
  const placed = (kind) => lines.filter((line) => line.kind === kind).flatMap((line) => line.x.map((x, at) => ({
    group: line.group, x: width * (x - left) / (right - left), y: height * (high - line.y[at]) / (high - low) })));
  const centres = placed("centre");
  centres.forEach(({ x, y }) => boxes.push([x - 7, x + 7, y - 7, y + 7]));
  const ends = placed("ends").map(({ x, y }) => [x - 4, x + 4, y - 4, y + 4]);
  const clear = ([a, b, c, d], others) => others.every(([e, f, g, h]) => b < e || a > f || d < g || c > h);
  for (const { group, x, y } of centres) {
    const long = chart.groups[group].short.length * 6.8;
    const places = { "top center": [x - long / 2, x + long / 2, y - 25, y - 9], "bottom center": [x - long / 2,
      x + long / 2, y + 9, y + 25], "middle right": [x + 9, x + 9 + long, y - 8, y + 8],
    "middle left": [x - 9 - long, x - 9, y - 8, y + 8] };
    const within = Object.keys(places).filter((side) => places[side][0] >= 0 && places[side][1] <= width
      && clear(places[side], boxes));
    const free = within.find((side) => clear(places[side], ends)) ?? within[0] ?? "top center";
    sides[group] = free;
    boxes.push(places[free]);
  }
  return sides;
}

function tracesOf(chart, panel) {
  const lines = panel.order.map((key) => panel.lines.get(key));
  if (panel.plane) {
    const shown = lines.filter((line) => !chart.scene.hidden.has(line.group));
    panel.sides = panel.range.x ? sidesOf(chart, panel, shown) : {};
  }
  return lines.sort((a, b) => DEPTH.indexOf(a.kind) - DEPTH.indexOf(b.kind)).map((line) => (line.kind === "front"
    ? { ...LINE, x: line.x, y: line.y, name: "front", hoverinfo: "skip", line: { color: chart.theme.mark, width: 1.5,
      dash: "dot" } } : traceOf(chart, panel, line)));
}
