// How far the axes reach: round numbers that seldom change, and at most once a second, unless a line would be lost.

const CALM = 1000; // milliseconds between two changes of an axis
const FAR = 4; // an axis that would have to be this many times as long is changed at once
const DECADES = 2; // a logarithmic axis is for values that span more

const STEPS = [1, 2, 2.5, 5, 10];

// A round step that cuts `span` into about four.
function roundStep(span) {
  const power = 10 ** Math.floor(Math.log10(span / 4));
  return STEPS.map((each) => each * power).find((each) => each >= span / 4 * 0.999);
}

const roundUp = (value) => [1, 2, 5, 10].map((each) => each * 10 ** Math.floor(Math.log10(value)))
  .find((each) => each >= value * 0.999);

const NOTHING = 0.02; // a number below zero by less than this share of the largest moves no axis

function linearAxis(low, high) {
  const from = low < 0.6 * high && low > -NOTHING * high ? 0 : low;
  const span = high > from ? high - from : Math.abs(high) || 1;
  const dtick = roundStep(span);
  const floor = Math.floor(from / dtick + 1e-9) * dtick;
  const range = [floor, Math.max(Math.ceil(high / dtick - 1e-9) * dtick, floor + dtick)];
  return { range: widened(range), tick0: floor, dtick };
}

// A line along the edge of a chart must be seen in full.
const widened = ([low, high]) => [low - 0.03 * (high - low), high + 0.03 * (high - low)];

function logAxis(low, high) {
  const [from, to] = [low < 0 ? -roundUp(-low) : low >= 1 ? 10 ** Math.floor(Math.log10(low)) : 0, roundUp(high)];
  return { range: widened([symlog(from), symlog(to)]) };
}

// Whether the sizes of some values span decades: of those above `least`, all but the smallest tenth, so that a start at
// nearly zero does not decide it alone.
function spansDecades(values, least) {
  const sizes = values.map(Math.abs).filter((size) => size > least).sort((a, b) => a - b);
  return sizes.length > 9 && sizes.at(-1) > 10 ** DECADES * sizes[Math.floor(sizes.length / 10)];
}

const spanOf = ({ range: [from, to] }) => to - from;

const ALONE = 3; // a spike is so many times as large as all but the largest twentieth of the values
const SPIKES = 3; // points of a line: more are no spike
const GAIN = 2; // times as much room for all else, or nothing is cut

// The largest value of some lines, without their spikes, which would press all else to the floor. A line that has not
// come down again has no spike: it grows.
function bodyOf(lines) {
  const values = lines.flatMap(({ y }) => y).sort((a, b) => a - b);
  const usual = ALONE * values[Math.floor(0.95 * (values.length - 1))];
  const alone = lines.every(({ y }) => !(y.at(-1) > usual) && y.filter((value) => value > usual).length <= SPIKES);
  const body = alone && usual > 0 ? values.findLast((value) => value <= usual) : values.at(-1);
  return values.at(-1) > GAIN * body ? body : values.at(-1);
}

// The largest point of each line that is above the axis, with its value.
function spikesOf(panel, lines, top) {
  return lines.filter(({ kind, high }) => kind === "line" && high > top).map((line) => {
    const at = line.y.indexOf(line.high);
    return { x: line.x[at], hue: line.hue, text: metricText(panel.metrics[0], line.high) };
  });
}

// The part of a ghost's line that lies within the horizontal axis: what is beyond stretches no axis.
function seenOf(chart, line) {
  const y = line.y.filter((_, at) => line.x[at] <= chart.xmax);
  return { ...line, y, low: Math.min(...y), high: Math.max(...y) };
}

// Choose the vertical axis of a panel by the values of its lines. True where it has to wait for its next change.
function reachOf(chart, panel) {
  const lines = linesOf(panel).filter((line) => line.x.length && !chart.scene.hidden.has(line.metric))
    .map((line) => (chart.runs[line.run].ghost ? seenOf(chart, line) : line));
  if (panel.declared === "rate" || !lines.length) return false;
  const unit = 10 ** -panel.metrics[0].digits; // what its numbers can tell apart
  const share = panel.declared === "small rate";
  const low = share ? 0 : Math.min(...lines.map((line) => line.low));
  const raw = lines.filter(({ kind }) => kind === (chart.smooth ? "raw" : "line")); // smoothing changes no axis's kind
  const body = bodyOf(lines), usual = raw.flatMap(({ y }) => y).filter((value) => value <= body);
  const decades = panel.declared === "symlog" && (panel.decades || spansDecades(usual, unit / 10));
  const top = decades ? Math.max(...lines.map((line) => line.high)) : body;
  const by = inPercent(panel) ? 100 : 1;
  const high = Math.max(share ? LEAST_TOP : low + 4 * unit, by * top);
  const axis = decades ? logAxis(low, high) : linearAxis(by * low, high);
  panel.spikes = decades ? [] : spikesOf(panel, lines, axis.range[1] / by);
  const made = JSON.stringify([axis, decades]);
  if (made === panel.reach?.made) return false;
  const now = performance.now();
  const calm = panel.reach && now - panel.reach.since < CALM && spanOf(axis) < FAR * spanOf(panel.reach.axis);
  if (calm) return true;
  Object.assign(panel, { decades, scale: decades ? "symlog" : "linear", reach: { axis, made, since: now } });
  return false;
}

// The end of the horizontal axis: with room for what is to come, but no further than the last step. True where it has
// to wait for its next change.
function widen(chart) {
  const runs = ownRuns(chart);
  const ends = runs.map((run) => (run.rows.length ? POSITIONS[chart.x](run.rows.at(-1)) : 0));
  const end = Math.max(1, ...ends), now = performance.now();
  if (end <= chart.xmax) return false;
  const first = chart.xmax === undefined;
  if (!first && now - chart.widened < CALM) return true;
  const known = chart.x === "step" && runs.every(({ total }) => total); // of other tools' runs it may not be
  const last = known ? Math.max(end, ...runs.map((run) => run.total)) : Infinity;
  Object.assign(chart, { xmax: Math.min(niceCeil(first ? end : 1.3 * end), last), widened: now });
  return false;
}

// Draw once more when axes that had to wait may change.
function later(chart) {
  clearTimeout(chart.later);
  chart.later = setTimeout(() => { refresh(chart); render(chart); }, CALM);
}
