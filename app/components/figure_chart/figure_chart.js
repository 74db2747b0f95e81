// A figure as Python made it, drawn by Plotly.react into one and the same place.

const figures = new WeakMap();

function about(figure) {
  const { title, caption } = figure.data;
  return { title, caption, name: title.toLowerCase().replace(/\W+/g, "-") };
}

export async function update({ data, parentElement, setTriggerValue }) {
  let figure = figures.get(parentElement);
  if (!figure) {
    const plot = document.createElement("div");
    plot.setAttribute("role", "img");
    parentElement.querySelector(".rl-figure-chart").replaceChildren(plot);
    figures.set(parentElement, figure = { plot });
    figure.wide = new ResizeObserver(() => widened(plot));
    figure.wide.observe(plot);
  }
  const { dark } = theme(parentElement);
  if (figure.dark !== undefined && figure.dark !== dark) setTriggerValue("theme", Date.now()); // Python chose its colours
  Object.assign(figure, { data, dark, trigger: setTriggerValue });
  figure.plot.setAttribute("aria-label", data.alt);
  Object.assign(figure.plot.style, { minWidth: `${data.least}px`,
    minHeight: `${data.figure.layout.height}px` }); // nothing below it moves while Plotly is loaded
  await loadPlotly(data.plotly);
  if (figure.data !== data || !figure.plot.isConnected) return; // a newer one is on its way
  figure.config ??= configOf(() => about(figure));
  await Plotly.react(figure.plot, data.figure.data, { ...data.figure.layout, uirevision: true }, figure.config);
  if (data.ids && !figure.pending) listen(figure);
  widened(figure.plot);
}

// Of parallel coordinates: says which rows are within all ranges that are chosen on the axes; none where all are.
function listen(figure) {
  let due = 0;
  figure.pending = () => clearTimeout(due);
  figure.plot.on("plotly_restyle", () => {
    clearTimeout(due);
    due = setTimeout(() => figure.trigger("brushed", brushed(figure)), 250); // a range is dragged in many small steps
  });
}

function brushed({ plot, data }) {
  const { dimensions } = plot.data[0];
  const inside = (value, range) => !range || [range].flat(range[0]?.length ? 1 : 0)
    .some(([low, high]) => low <= value && value <= high);
  const rows = data.ids.filter((_, row) => dimensions.every((each) => inside(each.values[row], each.constraintrange)));
  return rows.length === data.ids.length ? [] : rows;
}

// A figure that was drawn in a tab before it had a width, or beside something that has gone, takes the room there is.
function widened(plot) {
  const drawn = plot._fullLayout?.width;
  if (drawn && plot.clientWidth && Math.abs(plot.clientWidth - drawn) > 1) Plotly.Plots.resize(plot).catch(() => null); // hidden again
}

export const dispose = disposing(figures, (figure) => {
  figure.wide.disconnect();
  figure.pending?.();
  Plotly?.purge(figure.plot);
});
