// Knob markers and forks: where they stand, and the smoothing that starts anew there. Served as one with live_chart.js.

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

// A click on the words of a knob's marker asks what if.
function markerLayout(chart) {
  const { ground, line, ink, font, mark: colour } = chart.theme;
  const hoverlabel = { bgcolor: ground, bordercolor: line, font: { size: 13, color: ink, family: font } };
  const marks = chart.markers.map((marker) => ({ x: markerAt(chart, marker), text: marker.text, colour, marker,
    more: { captureevents: marker.event !== null, hoverlabel,
      hovertext: marker.event === null ? "" : "What if? Fork from before this change" } }));
  const { shapes, annotations, worded, top } = markLayout(marks, [0, chart.xmax], Math.max(chart.plotWidth, 120));
  chart.words = worded.map(({ marker }) => marker); // of the annotations, in their order
  chart.root.style.setProperty("--rl-words", `${top - 8}px`); // the chart's buttons stand below them
  return { shapes, annotations, "margin.t": top };
}
