// The status line, the tiles and the scrubber show the same row as the charts: it is sent to them ("rl-row" on the
// document) at the moment in which the charts' own numbers change, and whenever one of them asks ("rl-row-asked").

function sendRow(chart) {
  if (!chart.tiles) return;
  const [[run, { last }]] = Object.entries(chart.runs);
  document.dispatchEvent(new CustomEvent("rl-row", { detail: { run, last, status: chart.status,
    goal: { html: chart.goal.html, now: chart.goal.now.map((part) => saidOf(chart, chart.runs[run], part)).join("") },
    tiles: chart.tiles.map((tile) => tileOf(chart, chart.runs[run], tile)) } }));
}

// A part of the sentence that says how far the run is, at the step that is shown.
function saidOf(chart, run, { key, before, after, ...metric }) {
  return before + metricText(metric, rowAt(chart, run, key)?.[3][key]) + after;
}

// The texts of a tile: its number at the step that is shown, and its first number.
function tileOf(chart, run, { key, label, unit, help, first, ...metric }) {
  const value = rowAt(chart, run, key)?.[3][key];
  const moved = first !== null && value !== undefined && value !== first;
  return { help, name: label, value: metricText(metric, value), unit: value === undefined ? "" : unit,
    moved: moved ? `from ${metricText(metric, first)}` : "" };
}

function onRowAsked(chart) {
  const asked = () => sendRow(chart);
  document.addEventListener("rl-row-asked", asked);
  return () => document.removeEventListener("rl-row-asked", asked);
}
