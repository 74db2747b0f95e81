// Knob markers and forks: where they stand, their words, and the smoothing that starts anew there. Served as one with
// live_chart.js.

const LEVELS = 3; // of marker words above a chart; the ones that find no place keep their line

function markerAt(chart, marker) {
  const rows = chart.runs[marker.run]?.rows ?? [];
  if (chart.x === "updates" && marker.update != null) return marker.update;
  const before = rows.findLast((row) => row[0] <= marker.step) ?? rows[0];
  return before ? positions[chart.x](before) : 0;
}

// Bias-corrected exponential average that starts anew at every knob marker and fork.
function smoother(weight, breaks) {
  let mean = 0, mass = 0, next = 0;
  return (x, y) => {
    while (next < breaks.length && x > breaks[next]) { mean = 0; mass = 0; next += 1; }
    mean = weight * mean + (1 - weight) * y;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  };
}

function breaksOf(chart, run) {
  return chart.markers.filter((marker) => marker.run === run).map((marker) => markerAt(chart, marker))
    .sort((a, b) => a - b);
}

// Where a fork leaves its parent's line: the line as it is drawn there, so that the two join.
function joint(chart, spec, row) {
  const value = row[3][spec.metric.key];
  const parent = chart.runs[chart.runs[spec.run].parent];
  if (!spec.smooth || !parent) return value;
  const state = smoother(chart.smooth, breaksOf(chart, chart.runs[spec.run].parent));
  let last = value;
  for (const each of parent.rows) {
    if (each[0] > row[0]) break;
    const own = each[3][spec.metric.key];
    if (own !== undefined) last = state(positions[chart.x](each), own);
  }
  return last;
}

// Dotted verticals with their words above the plot, on as many levels as near neighbours need: the newest nearest.
function markerLayout(chart) {
  const shapes = [], annotations = [], levels = [], words = [];
  const perPixel = chart.xmax / Math.max(chart.plotWidth, 120);
  for (const marker of [...chart.markers].sort((a, b) => markerAt(chart, b) - markerAt(chart, a))) {
    const x = markerAt(chart, marker);
    const width = marker.text.length * 6.6 * perPixel;
    const right = x + width > chart.xmax;
    const [start, end] = right ? [x - width, x] : [x, x + width];
    const free = levels.findIndex((taken) => taken.every(([from, to]) => end < from || start > to));
    const level = free < 0 ? levels.length : free;
    shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, layer: "below",
      line: { color: chart.theme.mark, width: 1, dash: "dot" } });
    if (level >= LEVELS) continue;
    levels[level] = [...(levels[level] ?? []), [start - 8 * perPixel, end + 8 * perPixel]];
    words.push(marker);
    annotations.push({ x, yref: "paper", y: 1, yshift: 14 * level - 2, yanchor: "bottom",
      captureevents: marker.event !== null,
      hovertext: marker.event === null ? "" : "What if? Fork from before this change",
      hoverlabel: { bgcolor: chart.theme.ground, bordercolor: chart.theme.line,
        font: { size: 13, color: chart.theme.ink, family: chart.theme.font } },
      showarrow: false, xanchor: right ? "right" : "left", xshift: right ? 3 : -3, borderpad: 0,
      text: marker.text.replace(/</g, "&lt;"), font: { size: 12, color: chart.theme.mark } });
  }
  chart.words = words; // of the annotations, in their order
  const top = 8 + 14 * levels.length;
  chart.root.style.setProperty("--rl-words", `${top - 8}px`); // the chart's buttons stand below them
  return { shapes, annotations, "margin.t": top };
}
