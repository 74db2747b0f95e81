// Rows of runs as they come, and the lines that they make: each line takes the rows that it does not have yet.
//
// A row is [step, tokens or environment steps, seconds, {metric: value}] and, where a panel has dots, [[x, y], …] of
// what is behind its mean; x counts as the row's second number does.

const POSITIONS = {
  updates: (row) => row[3].updates ?? row[0], tokens: (row) => row[1], env_steps: (row) => row[1],
  seconds: (row) => row[2], step: (row) => row[0],
};
// Rows are kept by run; those that are here already are dropped. False where some are missing in between.
function takeRows(chart, incoming) {
  for (const [id, run] of Object.entries(incoming)) {
    const kept = (chart.runs[id] ??= { rows: [], last: 0, dots: new Map() });
    Object.assign(kept, { label: run.label, settings: run.settings, short: run.short, colour: run.colour,
      muted: run.muted, root: run.root, parent: run.parent, total: run.total, ghost: run.ghost });
    if (run.after > kept.last) return false;
    for (const row of run.rows) {
      if (row[4]) kept.dots.set(row[0], row[4]);
      if (row[0] > kept.last) { kept.rows.push(row); kept.last = row[0]; }
    }
  }
  return true;
}

// The runs that the page is about: all but the ghost.
const ownRuns = (chart) => Object.values(chart.runs).filter(({ ghost }) => !ghost);

// How far a line lies behind the others.
const behind = (chart, { run }) => 2 * Boolean(chart.runs[run].ghost) + Boolean(chart.runs[run].muted);

// The lines of a panel, still without points; what steps back lies below.
function makeLines(chart, panel) {
  const runs = Object.keys(chart.runs);
  const several = ownRuns(chart).length > 1;
  const metrics = [...panel.metrics.entries()].reverse(); // the first one lies above the others
  const lines = runs.flatMap((run, group) => metrics.flatMap(([place, { key, label, digits }]) => {
    const { root, label: named, colour, ghost, muted } = chart.runs[run];
    if (place && (ghost || muted)) return []; // of what lies behind the first metric alone: more would be in the way
    if (ghost) {
      return [{ run, group, metric: key, digits: Math.max(digits, 3), width: 1.2, hue: colour,
        name: `${named} · ${label}`, kind: "line" }];
    }
    const base = { run, group, metric: key, digits: Math.max(digits, 3), width: place ? 1.4 : 2,
      hue: huesOf(several ? colour : panel.colour, place), name: (several ? `${named} · ` : "") + label };
    return [...(panel.dots && !place ? [{ ...base, kind: "dots", name: "" }] : []),
      ...(chart.smooth ? [{ ...base, kind: "raw" }] : []), { ...base, kind: "line" },
      ...(root !== null ? [{ ...base, kind: "root", name: "", size: 7 }] : [])];
  })).sort((a, b) => behind(chart, b) - behind(chart, a));
  lines.forEach((line) => Object.assign(line, { x: [], y: [], taken: 0, low: Infinity, high: -Infinity,
    average: line.kind === "line" && chart.smooth ? smoother(chart.smooth, breaksOf(chart, line.run)) : null }));
  panel.lines = new Map(lines.entries());
  panel.order = [...panel.lines.keys()];
}

// Give a line the points of the rows that it has not taken yet.
function fill(chart, line) {
  const run = chart.runs[line.run];
  for (const row of run.rows.slice(line.taken)) pointsOf(chart, line, run, row).forEach(([x, y]) => {
    line.x.push(x);
    line.y.push(y);
    line.low = Math.min(line.low, y);
    line.high = Math.max(line.high, y);
  });
  line.taken = run.rows.length;
}

function pointsOf(chart, line, run, row) {
  const x = POSITIONS[chart.x](row), value = row[3][line.metric], atRoot = row[0] === run.root;
  if (line.kind === "dots") {
    return (run.dots.get(row[0]) ?? []).map(([at, y]) => [chart.x === "env_steps" ? at : x, y]);
  }
  if (value === undefined || (line.kind === "root" && !atRoot)) return [];
  if (atRoot && line.kind !== "raw") return [[x, joint(chart, line, row)]];
  return [[x, line.average ? line.average(x, value) : value]];
}

// Where a fork leaves its parent's line: the line as it is drawn there, so that the two join.
function joint(chart, line, row) {
  const value = row[3][line.metric];
  const parent = chart.runs[chart.runs[line.run].parent];
  if (!chart.smooth || !parent) return value;
  const average = smoother(chart.smooth, breaksOf(chart, chart.runs[line.run].parent));
  let last = value;
  for (const each of parent.rows) {
    if (each[0] > row[0]) break;
    const own = each[3][line.metric];
    if (own !== undefined) last = average(POSITIONS[chart.x](each), own);
  }
  return last;
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
  return chart.markers.filter((marker) => marker.run === run && !marker.verdict).map((marker) => markerAt(chart, marker))
    .sort((a, b) => a - b);
}

function markerAt(chart, marker) {
  const rows = chart.runs[marker.run]?.rows ?? [];
  if (chart.x === "updates" && marker.update != null) return marker.update;
  const before = rows.findLast((row) => row[0] <= marker.step) ?? rows[0];
  return before ? POSITIONS[chart.x](before) : 0;
}
