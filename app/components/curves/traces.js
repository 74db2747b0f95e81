// Lines as Plotly's traces.

const inPercent = (panel) => (panel.declared ?? panel.scale).endsWith("rate");

const scaled = (panel, y) => (inPercent(panel) ? 100 * y : panel.scale === "symlog" ? symlog(y) : y);

// How numbers are written in hover words, as d3 has it: by format and not point by point, of which there are tens of
// thousands.
const numberOf = (panel, line) => (inPercent(panel) || panel.scale === "symlog" ? ".3~g"
  : `,.${line.digits ?? panel.digits}f`);

const unitOf = (panel) => (inPercent(panel) ? " %" : "");

const NAMED = "<extra>%{fullData.name}</extra>";

// The line of a group; its hover words hold the band at the same place, if there is one. A band is an outline, along
// the upper end and back along the lower one.
function hoverOf(panel, line, band) {
  const number = numberOf(panel, line), unit = unitOf(panel), last = (band?.x.length ?? 0) - 1;
  const both = last + 1 === 2 * line.x.length, shown = inPercent(panel) ? (y) => 100 * y : (y) => y;
  return { customdata: line.y.map((y, at) => (both ? [y, band.y[last - at], band.y[at]] : [y]).map(shown)),
    hovertemplate: `%{customdata[0]:${number}}${unit}${both
      ? ` [%{customdata[1]:${number}}${unit}, %{customdata[2]:${number}}${unit}]` : ""}${NAMED}` };
}

function traceOf(chart, panel, line) {
  const group = chart.groups[line.group];
  const colour = line.hue ? line.hue[chart.theme.dark ? 1 : 0] : colourOf(chart, line.group);
  const y = line.y.map((each) => scaled(panel, each));
  const apart = (values) => (inPercent(panel) ? values.map((each) => 100 * each) : values); // shares have no log axis
  const faint = group.muted ? 0.5 : 1; // it steps back
  const base = { type: "scatter", mode: "lines", connectgaps: true, x: [...line.x], y, customdata: [],
    visible: !chart.scene.hidden.has(hiderOf(line)), name: line.name ?? escaped(group.short) };
  const dots = { ...base, mode: "markers" };
  const single = line.x.length === 1 ? { mode: "lines+markers", marker: { size: 5, color: colour } } : {};
  const quiet = { hoverinfo: "skip", showlegend: false, customdata: y };
  const drawn = (width, dash) => ({ color: colour, width: line.width ?? width, dash: line.dash ?? dash });
  switch (line.kind) {
    case "band": return { ...base, ...quiet, fill: "toself", fillcolor: colour, opacity: 0.18, line: { width: 0 } };
    case "gapband": return { ...base, ...quiet, fill: "toself", fillcolor: colour, opacity: 0.18, line: { width: 0 },
      y: apart(line.y), yaxis: "y2" };
    case "raw": return { ...base, ...quiet, opacity: 0.25 * faint, line: drawn(1.5) };
    case "seed": case "path": return { ...base, ...quiet, opacity: 0.4, line: drawn(1, group.dash) };
    case "dots": return { ...dots, ...quiet, opacity: chart.theme.dark ? 0.4 : 0.28,
      marker: { size: 3.5, color: colour } };
    case "root": return { ...dots, ...quiet, marker: { size: line.size ?? 9, color: chart.theme.ground,
      line: { width: 2, color: colour } } };
    case "gap": return { ...base, ...single, y: apart(line.y), yaxis: "y2", showlegend: false, customdata: y,
      line: drawn(1.75, group.dash), hovertemplate: `%{y:+,.${inPercent(panel) ? 1 : panel.digits}f}${NAMED}` };
    case "ends": return { ...dots, showlegend: false, text: line.text, hovertemplate: `%{text}${NAMED}`,
      marker: { size: 7, color: colour, opacity: 0.5 } };
    case "centre": return { ...dots, mode: "markers+text", text: [escaped(group.short)], customdata: line.text,
      hovertemplate: `%{customdata}${NAMED}`, cliponaxis: false, textfont: { color: colour, size: 13 },
      textposition: panel.sides[line.group] ?? "top center", marker: { size: 13, color: colour,
        ...(line.hollow ? { symbol: "circle-open", line: { width: 2 } }
          : { line: { width: 2, color: chart.theme.ground } }) } };
    default: return { ...base, ...single, opacity: faint, line: drawn(group.bold ? 3.5 : 1.9, group.dash),
      ...hoverOf(panel, line, panel.lines.get(`${line.group}:band`)) };
  }
}

// The front of a plane belongs to no group.
const frontOf = (chart, line) => ({ type: "scatter", mode: "lines", x: [...line.x], y: [...line.y], customdata: [],
  name: "front", hoverinfo: "skip", line: { color: chart.theme.mark, width: 1.5, dash: "dot" } });

// Bands below, then what is faint, then the lines.
const DEPTH = ["band", "gapband", "dots", "seed", "path", "raw", "front", "line", "gap", "root", "ends", "centre"];

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
  const lines = linesOf(panel);
  if (panel.plane) {
    const shown = lines.filter((line) => !chart.scene.hidden.has(line.group));
    panel.sides = panel.range.x ? sidesOf(chart, panel, shown) : {};
  }
  return lines.sort((a, b) => DEPTH.indexOf(a.kind) - DEPTH.indexOf(b.kind))
    .map((line) => (line.kind === "front" ? frontOf(chart, line) : traceOf(chart, panel, line)));
}
