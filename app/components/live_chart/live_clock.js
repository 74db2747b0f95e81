// The step that the page shows: a thin vertical on every chart, and the numbers in their captions. The server says it,
// and whoever moves it sends "rl-step" ({ run, step }, a step of null for the newest), which counts at once.

const SETTLING = 1000; // milliseconds in which the server may still say the step of before

function onStep(chart) {
  const moved = ({ detail: { run, step } }) => {
    if (!chart.runs?.[run]) return;
    Object.assign(chart, { at: step, moved: performance.now() });
    showStep(chart);
  };
  document.addEventListener("rl-step", moved);
  return () => document.removeEventListener("rl-step", moved);
}

// Take the step from the server, unless the user has just moved on.
function takeStep(chart, at) {
  const settling = performance.now() - (chart.moved ?? -Infinity) < SETTLING;
  if (at === chart.said || (settling && at !== chart.at)) return;
  Object.assign(chart, { at, said: at });
}

// The newest row of a run at the step that is shown, of those that have the metric `key` if one is asked for.
function rowAt(chart, run, key = null) {
  return run.rows.findLast((row) => (chart.at === null || row[0] <= chart.at)
    && (key === null || row[3][key] !== undefined));
}

function showStep(chart) {
  chart.panels.forEach((panel) => {
    describe(chart, panel);
    placeCursor(chart, panel);
  });
  sendRow(chart);
}

function placeCursor(chart, panel) {
  const row = chart.at === null ? null : Object.values(chart.runs).map((run) => rowAt(chart, run)).find(Boolean);
  const axes = panel.plot._fullLayout, pixel = row && axes ? axes.xaxis.c2p(POSITIONS[chart.x](row)) : NaN;
  panel.cursor.hidden = !(pixel >= -1 && pixel <= axes?.xaxis._length + 1);
  if (panel.cursor.hidden) return;
  Object.assign(panel.cursor.style, { left: `${axes.xaxis._offset + pixel}px`, top: `${axes.yaxis._offset}px`,
    height: `${axes.yaxis._length}px` });
}
