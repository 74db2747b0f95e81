// Loads plotly.js once for all charts of a page, and saves charts as pictures. Served as one with each chart's scripts.
//
// Streamlit's own charts put another Plotly into `window` when they are loaded: a chart must stay with the one that
// drew it, or it loses its listeners and its zoom.

const PAUSES = [0, 300, 2000]; // milliseconds before each try: a server may be just starting again
let Plotly = null;

export async function loadPlotly(url) {
  window.labPlotly ??= tried(url).catch((error) => { window.labPlotly = null; throw error; });
  return Plotly ??= await window.labPlotly;
}

async function tried(url, from = 0) {
  await new Promise((resolve) => setTimeout(resolve, PAUSES[from]));
  return fetched(url).catch((error) => { if (from + 1 === PAUSES.length) throw error; return tried(url, from + 1); });
}

function fetched(url) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { script.remove(); reject(new Error(`Could not load ${url}`)); };
    document.head.appendChild(script);
  });
}

// Draw a chart that nobody sees while nobody waits: of a page's first chart Plotly takes three to five times as long as
// of those that follow.
export async function rehearse() {
  const plot = document.createElement("div");
  plot.style.cssText = "position: fixed; visibility: hidden; width: 400px; height: 200px";
  document.body.appendChild(plot);
  const line = { x: [0, 1], y: [0, 1], mode: "lines" }, dot = { x: [1], y: [1], mode: "markers" };
  await Plotly.newPlot(plot, [line, dot], { xaxis: { title: { text: "steps" } } }, configOf(() => ({})));
  Plotly.purge(plot);
  plot.remove();
}

const PICTURE_FONT = "Arial, Helvetica, sans-serif"; // a picture cannot carry the page's font, and words would overlap

const WIDE = 900, PRINTED = 2070; // pixels of a picture: as laid out, and of a PNG, 6.9 inches at 300 dots each

// Save a Plotly chart as it is seen, with its title, its legend and a line that says what it shows.
export async function savePicture(plot, { title, caption, format: kind, name }) {
  const { ink, ground } = theme(plot);
  const { t = 20, b = 40, l = 50, r = 10 } = plot.layout.margin ?? {};
  const data = plot.data.map((trace) => ({ ...trace,
    showlegend: trace.showlegend ?? (Boolean(trace.name) && trace.hoverinfo !== "skip") }));
  const height = Math.max(480, (plot.layout.height ?? 0) + 94);
  const layout = { ...plot.layout, width: WIDE, height, paper_bgcolor: ground, plot_bgcolor: ground,
    showlegend: true,
    title: { text: title, x: 0, xref: "container", pad: { l: 12 }, y: 0.98, yanchor: "top", font: { size: 17 },
      subtitle: { text: (caption ?? "").replace(/</g, "&lt;"), font: { size: 12, color: ink } } },
    font: { ...plot.layout.font, family: PICTURE_FONT, color: ink },
    legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 12 } },
    margin: { t: t + 54, b: b + 40, l: l + 6, r: r + 14 } };
  const picture = await Plotly.toImage({ data, layout }, { format: kind, width: WIDE, height,
    scale: kind === "png" ? PRINTED / WIDE : 1 });
  const link = document.createElement("a");
  link.href = picture;
  link.download = `${name}.${kind}`;
  link.click();
}

// Plotly's configuration of a chart, with buttons that save it; `about` gives title, caption and name at the click,
// `whole` zooms out where Plotly's own way would not do. Made once for a chart: another one would have Plotly begin anew,
// without zoom and listeners.
export const configOf = (about, whole = null) => ({ displaylogo: false, responsive: true, displayModeBar: "hover",
  modeBarButtons: [[...["png", "svg"].map((kind) => ({ name: kind,
    title: `Save the chart as ${kind.toUpperCase()}, with title and legend`,
    icon: kind === "png" ? Plotly.Icons.camera : Plotly.Icons.disk,
    click: (plot) => savePicture(plot, { ...about(), format: kind }) })),
    whole ? { name: "whole", title: "Zoom out", icon: Plotly.Icons.home, click: whole } : "resetScale2d"]] });
