// Panels of curves: drawn once, grown where only points were added, zoomed together. A chart has
//
//   groups  [{ colour: [light, dark], short, dash, bold, muted }]
//   panels  Map key -> { title, symbol, unit, help, scale, digits, axis, height, caption, alt, marks, order, lines }
//   lines   Map key -> { kind, group, x, y } and, where they differ from the group's, name, metric, dash, width,
//           digits, hue: [light, dark]
//   form    one of FORMS, of all panels or of each; theme; scene; xmax, the end of the horizontal axis
//
// A panel may have `reach`, its vertical axis as somebody chose it; `endings`, the names of its lines, which need room
// at their ends; and `waits`: it has nothing to draw yet. One that is out of sight is drawn once it comes near.
//
// A chart may have `above()`, called before its panels are drawn, `drawn(panel)`, called after each of them, and `ended()`.

const charts = new WeakMap();

const DATA = ["x", "y", "customdata"];
const HEAD = 110; // pixels at the top of the window, where the page's bars stand
const AHEAD = "300px"; // below or above what is seen

const linesOf = (panel) => panel.order.map((key) => panel.lines.get(key));

function chartAt(parentElement, root) {
  let chart = charts.get(parentElement);
  if (!chart) {
    chart = { panels: new Map(), observer: new ResizeObserver(() => resized(chart)),
      sight: new IntersectionObserver((seen) => sighted(chart, seen), { scrollMargin: AHEAD }),
      printed: () => stale(chart).forEach((panel) => draw(chart, panel)) };
    addEventListener("beforeprint", chart.printed); // paper shows what is out of sight, too
    chart.projected = () => render(chart, true);
    document.addEventListener("rl-projected", chart.projected);
    charts.set(parentElement, chart);
    chart.observer.observe(root);
    chart.width = root.clientWidth;
  }
  return Object.assign(chart, { root });
}

function sighted(chart, seen) {
  const near = new Map(seen.map(({ target, isIntersecting }) => [target, isIntersecting]));
  chart.panels.forEach((panel) => { panel.near = near.get(panel.box) ?? panel.near; });
  render(chart);
}

// A layout has its width, so Plotly does not follow the window later: names and words are placed in what is drawn here.
// Sizes are read here, where they are known: after something was written, the browser would lay out the page for each.
function resized(chart) {
  chart.width = chart.root.clientWidth;
  chart.panels.forEach((panel) => {
    panel.changed ||= panel.width !== undefined && panel.plot.clientWidth !== panel.width;
  });
  render(chart);
}

function about(panel) {
  const unit = panel.unit.toLowerCase() === panel.title.toLowerCase() ? "" : panel.unit;
  return { title: [panel.title, unit && `(${unit})`].filter(Boolean).join(" "),
    caption: panel.caption, name: panel.title.toLowerCase().replace(/\W+/g, "-") };
}

// What traces have beyond those of `panel` that are drawn, as Plotly.extendTraces takes it; null where more is new.
function added(panel, traces) {
  const indices = [], update = { x: [], y: [], customdata: [] };
  if (panel.plot.data?.length !== traces.length) return null;
  for (const [index, trace] of traces.entries()) {
    const { x, y } = panel.plot.data[index];
    if (x.length > trace.x.length || x.some((each, at) => each !== trace.x[at] || y[at] !== trace.y[at])) return null;
    if (x.length === trace.x.length) continue;
    indices.push(index);
    DATA.forEach((name) => update[name].push(trace[name].slice(x.length)));
  }
  return { indices, update };
}

function draw(chart, panel) {
  const layout = layoutOf(chart, panel), traces = tracesOf(chart, panel);
  const looks = JSON.stringify([layout, traces.map((trace) => ({ ...trace, x: 0, y: 0, customdata: 0 }))]);
  const more = looks === panel.looks ? added(panel, traces) : null;
  panel.config ??= { ...configOf(() => about(panel), () => whole(chart.scene)), doubleClick: false };
  panel.plot.style.height = `${layout.height}px`; // on a narrow screen it is lower
  if (!more) Plotly.react(panel.plot, traces, layout, panel.config);
  else if (more.indices.length) Plotly.extendTraces(panel.plot, more.update, more.indices);
  Object.assign(panel, { looks, changed: false, width: layout.width, drawn: performance.now() });
  panel.plot.setAttribute("aria-label", panel.alt);
  if (!panel.listening) listen(chart, panel);
  chart.drawn?.(panel);
}

// The words under the mouse stand above the lines, or below them where there is no room, and never on them.
function lift(panel) {
  const words = panel.plot.querySelector(".hoverlayer .legend"), { yaxis } = panel.plot._fullLayout;
  const [, x, y] = words?.getAttribute("transform")?.match(/translate\(([-\d.]+)[, ]+([-\d.]+)\)/) ?? [];
  if (x === undefined) return;
  const { height } = words.getBBox(), above = yaxis._offset - height - 4;
  const free = panel.plot.getBoundingClientRect().top + above > HEAD;
  const place = Math.round(free ? above : yaxis._offset + yaxis._length + 4);
  if (place !== Math.round(y)) words.setAttribute("transform", `translate(${x},${place})`);
}

function listen(chart, panel) {
  panel.listening = true;
  new MutationObserver(() => lift(panel)).observe(panel.plot.querySelector(".hoverlayer"),
    { childList: true, subtree: true, attributes: true, attributeFilter: ["transform"] });
  panel.plot.on("plotly_relayout", (change) => {
    const range = (axis) => (`${axis}.range[0]` in change ? [change[`${axis}.range[0]`], change[`${axis}.range[1]`]]
      : null);
    panel.zoom = range("yaxis") ?? panel.zoom;
    panel.gapZoom = range("yaxis2") ?? panel.gapZoom;
    const across = range("xaxis");
    if (!across) return;
    if (panel.plane) panel.xZoom = across;
    else {
      chart.scene.zoom = across;
      redraw(chart.scene);
    }
  });
  panel.plot.on("plotly_doubleclick", () => whole(chart.scene));
  panel.plot.on("plotly_clickannotation", ({ index }) => panel.worded[index]?.click?.());
}

// Back to everything, on every chart.
function whole(scene) {
  scene.zoom = null;
  scene.charts.forEach((chart) => chart.panels.forEach((one) => { one.zoom = one.xZoom = one.gapZoom = null; }));
  redraw(scene);
}

// The one that was drawn longest ago comes first: a slow browser is told to draw again before it has drawn all of them.
const stale = (chart) => [...chart.panels.values()].filter(({ box, waits, changed }) =>
  box && !box.hidden && !waits && changed).sort((a, b) => (a.drawn ?? 0) - (b.drawn ?? 0));

// One chart after the other, so that the page is painted in between: the first is there long before the last.
async function render(chart, all = false) {
  if (all) chart.panels.forEach((panel) => { panel.changed = true; });
  if (!Plotly || !chart.groups) return;
  const turn = chart.turn = Symbol("turn");
  chart.above?.();
  for (const panel of stale(chart)) {
    chart.sight.observe(panel.box);
    if (!panel.near) continue;
    const begun = performance.now();
    draw(chart, panel);
    chart.busy = (chart.busy ?? 0) + performance.now() - begun; // milliseconds, for whoever asks how slow the browser is
    if (chart.panels.size > 1) await new Promise((resolve) => setTimeout(resolve, 0));
    if (chart.turn !== turn || !chart.root.isConnected) return;
  }
}

export const dispose = disposing(charts, (chart) => {
  chart.ended?.();
  chart.scene?.charts.delete(chart);
  chart.observer.disconnect();
  chart.sight.disconnect();
  removeEventListener("beforeprint", chart.printed);
  document.removeEventListener("rl-projected", chart.projected);
  chart.panels.forEach((panel) => panel.plot && Plotly?.purge(panel.plot));
});
