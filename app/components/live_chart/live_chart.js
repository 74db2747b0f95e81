// Live charts: the panels of runs that go, made of rows that the server sends with some overlap.
//
// When rows are missing in between, `resync` asks for everything. The axis, the smoothing and the theme redraw from
// what is kept here.

function build(chart) {
  const [grid, below] = chart.grids = ["rl-grid rl-large", "rl-grid"].map((name) => {
    const made = document.createElement("div");
    made.className = name;
    return made;
  });
  const more = chart.more = document.createElement("button");
  [more.className, more.type] = ["rl-more", "button"];
  more.addEventListener("click", () => { unfold(chart, !chart.open); render(chart); });
  chart.root.replaceChildren(grid, more, below);
  Object.assign(chart, { panels: new Map(), arranged: undefined });
}

// Have the panels that the server lists, in its order. Those that are here already stay, zoomed as they are; so do the
// folded ones.
function arrange(chart, listed) {
  const arranged = JSON.stringify(listed);
  if (chart.arranged === arranged) return;
  const before = chart.panels;
  chart.panels = new Map(listed.map((panel) => [panel.key, described(before.get(panel.key), panel)]));
  before.forEach((panel, key) => {
    if (chart.panels.has(key)) return;
    panel.box.remove();
    Plotly?.purge(panel.plot);
  });
  const all = [...chart.panels.values()];
  chart.rest = all.filter((panel) => !panel.large);
  [all.filter((panel) => panel.large), chart.rest].forEach((panels, place) => panels.forEach(({ box }, at) => {
    const grid = chart.grids[place];
    if (grid.children[at] !== box) grid.insertBefore(box, grid.children[at] ?? null);
  }));
  chart.arranged = arranged;
  unfold(chart, Boolean(chart.open));
}

// The panel as the server describes it: a new one, or that of before, whose lines are made anew where it is another.
function described(before, panel) {
  const said = JSON.stringify(panel);
  if (before?.said === said) return before;
  const found = Object.assign(before ?? { box: boxOf(panel.key) }, panel, { said, declared: panel.scale,
    tall: panel.height, form: FORMS[panel.large ? "large" : "below"], made: undefined, reach: undefined });
  for (const [name, part] of Object.entries({ plot: ".rl-plot", value: "output", cursor: ".rl-cursor",
    names: ".rl-line-names", none: ".rl-none" })) found[name] = found.box.querySelector(part);
  const name = found.box.querySelector(".rl-name");
  name.title = panel.help;
  name.innerHTML = `<span><b>${escaped(panel.title)}</b> ${panel.ask ?? ""} <small>${panel.unit}</small></span> <i>${panel.symbol}</i>` +
    (panel.called ? `<small class="rl-called" title="The name under which it was sent">${escaped(panel.called)}</small>` : "");
  if (!before) found.plot.style.height = `${panel.height}px`; // nothing below it moves while Plotly is loaded
  found.box.hidden = false;
  return found;
}

function boxOf(key) {
  const box = document.createElement("figure");
  box.dataset.panel = key;
  box.innerHTML = `<figcaption><span class="rl-name"></span><output></output></figcaption>` +
    `<div class="rl-stage"><div class="rl-plot" role="img"></div>` +
    `<div class="rl-over"><i class="rl-cursor" hidden></i><div class="rl-line-names"></div></div>` +
    `<div class="rl-none"></div></div>`;
  return box;
}

const LEAST = 120, NARROW = 190; // height of a large chart, pixels: its minimum, and its maximum on a narrow page
const BELOW = 66; // pixels: the caption of a chart, and the scrubber at the lower edge of the window

// Large charts take the height that the window has left, so that their axes are visible above the scrubber. If there is
// too little left, the reader has to scroll anyway, so they take their full height.
function heightOf({ width, room }, { tall, large }) {
  const most = large && width && width < 700 ? NARROW : tall;
  return large && room >= LEAST ? Math.min(most, room) : most;
}

// The pixels that a chart has above the scrubber while the page is not scrolled, in steps, so that they seldom change.
function roomBelow({ root }) {
  const top = root.getBoundingClientRect().top + (root.closest(".stMain")?.scrollTop ?? window.scrollY);
  return 10 * Math.floor((window.innerHeight - top - BELOW) / 10);
}

// Follow the room: it changes with what stands above the charts, and so with the height of the page.
function followRoom(chart) {
  const sizes = new ResizeObserver(() => {
    const room = roomBelow(chart);
    if (room === chart.room) return;
    chart.room = room;
    if (chart.groups) { refresh(chart); render(chart); }
  });
  sizes.observe(chart.root.closest(".stMainBlockContainer") ?? document.body);
  return () => sizes.disconnect();
}

function unfold(chart, open) {
  chart.open = open;
  chart.more.hidden = !chart.rest.length;
  chart.more.textContent = open ? "Fewer charts" : `${chart.rest.length} more charts: ` +
    chart.rest.map(({ title }) => (/^.[A-Z]/.test(title) ? title : title[0].toLowerCase() + title.slice(1))).join(", ");
  chart.more.setAttribute("aria-expanded", String(open));
  chart.rest.forEach((panel) => { panel.box.hidden = !open; });
}

// What is said of a panel: its number at the step that is shown, never a smoothed one, and in words what is seen.
function describe(chart, panel) {
  const runs = ownRuns(chart), first = panel.metrics[0], drawn = Object.values(chart.runs);
  const row = runs.map((run) => rowAt(chart, run, first.key)).find(Boolean);
  const last = row?.[3][first.key] ?? null;
  const start = runs[0]?.rows.find((each) => each[3][first.key] !== undefined)?.[3][first.key];
  const shown = panel.peers ? "" : metricText(first, last);
  if (panel.value.textContent !== shown) panel.value.textContent = shown;
  panel.value.title = row && !panel.peers ? `${first.label} at step ${row[0]}` +
    `${chart.smooth ? `, not smoothed. The line is smoothed (${chart.smooth}).` : ""}` : "";
  const [from, to] = [start, last].map((value) => metricText({ ...first, digits: 3 }, value));
  Object.assign(panel, { axis: chart.axis, digits: Math.max(first.digits, 3),
    caption: `${drawn.map(({ label, settings }) => (settings ? `${label} (${settings})` : label)).join(", ")}, over ${chart.axis}` +
      `${chart.smooth ? `, smoothed ${chart.smooth}` : ""}`,
    alt: last === null ? `${panel.title}: no values yet`
      : `${panel.title} over ${chart.axis}${panel.peers ? `, ${first.label}` : ""}: from ${from} to ${to}${first.share ? "" : ` ${first.unit}`}` });
}

// A click on the words of a knob's marker asks what if; a verdict of the doctor is only read.
function marksFor(chart) {
  const { ground, line, ink, font } = chart.theme;
  const hoverlabel = { bgcolor: ground, bordercolor: line, font: { size: 13, color: ink, family: font } };
  return chart.markers.filter(({ beside }) => !beside).map((marker) => {
    const { run, event, text, step, verdict } = marker, asks = event !== null;
    const click = () => asks && chart.trigger("marker", { run, event, at: Date.now() });
    const hovertext = escaped(text) + (asks ? "<br>What if? Fork from before this change" : "");
    const when = verdict ? `at step ${step}` : `from step ${step + 1}`;
    return { x: markerAt(chart, marker), text, click, verdict, when,
      more: { captureevents: asks, hoverlabel, hovertext } };
  });
}

// Bring the lines up to the rows; all of them anew where the axis, the smoothing or the breaks are others.
function refresh(chart) {
  const runs = Object.entries(chart.runs);
  const marks = marksFor(chart);
  const made = JSON.stringify([chart.x, chart.smooth, runs.map(([id, run]) => [id, run.muted, run.root, run.parent]),
    chart.smooth && chart.markers]);
  chart.groups = runs.map(([, { label, colour, muted }]) => ({ short: label, colour, muted }));
  let waits = widen(chart);
  chart.panels.forEach((panel) => {
    describe(chart, panel);
    if (made !== panel.made) makeLines(chart, panel);
    panel.lines.forEach((line) => fill(chart, line));
    panel.waits = linesOf(panel).every((line) => !line.x.length || chart.runs[line.run].ghost);
    panel.none.hidden = !panel.waits;
    panel.none.textContent = chart.over ? "No values" : "No values yet";
    waits = reachOf(chart, panel) || waits;
    panel.labels = endingsOf(chart, panel);
    Object.assign(panel, { made, marks, changed: true, endings: panel.labels.map(({ text }) => text),
      height: heightOf(chart, panel) });
  });
  sendRow(chart);
  if (waits) later(chart);
}

export async function update(component) {
  const { data, parentElement, setTriggerValue } = component;
  const chart = chartAt(parentElement, parentElement.querySelector(".rl-live-chart"));
  const fresh = chart.key !== data.key;
  if (!chart.scene) {
    enter(chart, newScene());
    chart.drawn = (panel) => { drawEndings(chart, panel); placeCursor(chart, panel); };
    chart.room = roomBelow(chart);
    const stops = [onStep(chart), onRowAsked(chart), followRoom(chart)];
    chart.ended = () => { stops.forEach((stop) => stop()); clearTimeout(chart.later); };
  }
  if (fresh) {
    Object.assign(chart, { key: data.key, runs: {}, said: undefined, moved: undefined, tiles: undefined,
      at: null, xmax: undefined, unfolded: undefined, updates: 0 });
    chart.scene.zoom = null;
    build(chart);
  }
  if (!takeRows(chart, data.runs)) { // rows are missing: wait for all of them; what is open or zoomed stays so
    Object.values(chart.runs).forEach((run) => Object.assign(run, { rows: [], last: 0, dots: new Map() }));
    chart.panels.forEach((panel) => { panel.made = undefined; });
    clearTimeout(chart.later);
    setTriggerValue("resync", Date.now());
    return;
  }
  if (chart.x !== data.x) Object.assign(chart, { xmax: undefined, scene: Object.assign(chart.scene, { zoom: null }) });
  Object.assign(chart, { trigger: setTriggerValue, markers: data.markers, x: data.x, axis: data.axis,
    smooth: data.smooth, theme: theme(parentElement), goal: data.goal, status: data.status,
    tiles: data.tiles, over: data.ended });
  if (data.awaited) awaitFirstPoint(chart, () => setTriggerValue("awaited", Date.now()));
  if (data.status && !data.awaited) measurePace(chart); // updates before the first point have another pace
  takeStep(chart, data.at);
  arrange(chart, data.panels);
  if (chart.unfolded !== data.unfolded) unfold(chart, data.unfolded);
  chart.unfolded = data.unfolded;
  refresh(chart);
  const plotted = await loadPlotly(data.plotly);
  if (plotted && charts.get(parentElement) === chart && chart.key === data.key) await render(chart);
}
