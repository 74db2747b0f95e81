// What all components share: numbers as words, and the colours of the page around them.

export function format(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) < 1e-9) return "0";
  const text = Math.abs(value) < 10 ** -digits / 2 ? value.toExponential(0)
    : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return text.replace("-", "−");
}

export function theme(element) {
  const style = getComputedStyle(element);
  const read = (name, other) => style.getPropertyValue(name).trim() || other;
  const ground = read("--st-background-color", "#ffffff");
  const [r, g, b] = ground.match(/[0-9a-f]{2}/gi)?.map((part) => parseInt(part, 16)) ?? [255, 255, 255];
  const dark = 0.299 * r + 0.587 * g + 0.114 * b < 128;
  return { dark, ground, ink: read("--st-text-color", "#1b1f24"), line: dark ? "#2B323A" : "#E6E9ED",
    mark: dark ? "#9AA4AF" : "#69727D", font: read("--st-font", "sans-serif") };
}

const PICTURE_FONT = "Arial, Helvetica, sans-serif"; // a picture cannot carry the page's font, and words would overlap

// Save a Plotly chart as it is seen, with its title, its legend and a line that says what it shows.
export async function savePicture(plot, { title, caption, format: kind, name }) {
  const { ink, ground } = theme(plot);
  const { t = 20, b = 40, l = 50, r = 10 } = plot.layout.margin ?? {};
  const data = plot.data.map((trace) => ({ ...trace,
    showlegend: trace.showlegend ?? (Boolean(trace.name) && trace.hoverinfo !== "skip") }));
  const height = Math.max(480, (plot.layout.height ?? 0) + 94);
  const layout = { ...plot.layout, width: 900, height, paper_bgcolor: ground, plot_bgcolor: ground,
    showlegend: true,
    title: { text: title, x: 0, xref: "container", pad: { l: 12 }, y: 0.98, yanchor: "top", font: { size: 17 },
      subtitle: { text: (caption ?? "").replace(/</g, "&lt;"), font: { size: 12, color: ink } } },
    font: { ...plot.layout.font, family: PICTURE_FONT, color: ink },
    legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 12 } },
    margin: { t: t + 54, b: b + 40, l: l + 6, r: r + 14 } };
  const picture = await window.Plotly.toImage({ data, layout }, { format: kind, width: 900, height,
    scale: kind === "png" ? 2 : 1 });
  const link = document.createElement("a");
  link.href = picture;
  link.download = `${name}.${kind}`;
  link.click();
}

// The buttons of a chart's mode bar that save it; `about` gives title, caption and name at the click.
export const pictureButtons = (about) => ["png", "svg"].map((kind) => ({ name: kind,
  title: `Save the chart as ${kind.toUpperCase()}, with title and legend`,
  icon: kind === "png" ? window.Plotly.Icons.camera : window.Plotly.Icons.disk,
  click: (plot) => savePicture(plot, { ...about(), format: kind }) }));
