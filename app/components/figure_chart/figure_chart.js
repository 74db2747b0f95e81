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
  Object.assign(figure, { data, dark });
  figure.plot.setAttribute("aria-label", data.alt);
  Object.assign(figure.plot.style, { minWidth: `${data.least}px`,
    minHeight: `${data.figure.layout.height}px` }); // nothing below it moves while Plotly is loaded
  await loadPlotly(data.plotly);
  if (figure.data !== data || !figure.plot.isConnected) return; // a newer one is on its way
  figure.config ??= configOf(() => about(figure));
  await Plotly.react(figure.plot, data.figure.data, { ...data.figure.layout, uirevision: true }, figure.config);
  widened(figure.plot);
}

// A figure that was drawn in a tab before it had a width, or beside something that has gone, takes the room there is.
function widened(plot) {
  const drawn = plot._fullLayout?.width;
  if (drawn && plot.clientWidth && Math.abs(plot.clientWidth - drawn) > 1) Plotly.Plots.resize(plot).catch(() => null); // hidden again
}

export const dispose = disposing(figures, (figure) => {
  figure.wide.disconnect();
  Plotly?.purge(figure.plot);
});
