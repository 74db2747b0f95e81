// What all components share: numbers as words, the colours of the page around them, and their end.

export function format(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) < 1e-9) return "0";
  if (Math.abs(value) >= 9.995) digits = Math.min(digits, Math.abs(value) >= 99.95 ? 0 : 1); // three significant ones
  const text = Math.abs(value) < 10 ** -digits / 2 ? value.toExponential(0)
    : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits,
      roundingMode: "halfEven" }); // as the server rounds
  return text.replace("-", "−");
}

// A share, as `labcore.catalog.amounts.percent` writes it.
export function asPercent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  if (share > 0 && share < 1e-3) return "<0.1 %";
  if (share > 0.999 && share < 1) return ">99.9 %";
  return `${format(100 * share, (share > 0 && share < 0.0995) || (share > 0.9949 && share < 1) ? 1 : 0)} %`;
}

// A metric's value, as `app.theme.metric_text` writes it.
export const metricText = ({ share, digits }, value) => (share ? asPercent(value) : format(value, digits));

export function theme(element) {
  const style = getComputedStyle(element);
  const read = (name, other) => style.getPropertyValue(name).trim() || other;
  const ground = read("--st-background-color", "#ffffff");
  const [r, g, b] = ground.match(/[0-9a-f]{2}/gi)?.map((part) => parseInt(part, 16)) ?? [255, 255, 255];
  const dark = 0.299 * r + 0.587 * g + 0.114 * b < 128;
  return { dark, ground, ink: read("--st-text-color", "#1b1f24"), line: dark ? "#2B323A" : "#E6E9ED",
    mark: dark ? "#9AA4AF" : "#69727D", font: read("--st-font", "sans-serif") };
}

// A component's `dispose`: what `kept` has of an element goes, after `end` was called with it. Streamlit also calls
// `dispose` when newer data came while `update` was waiting: then the element is still there, and so is what it shows.
const disposing = (kept, end = () => {}) => async (parentElement) => {
  await new Promise((resolve) => setTimeout(resolve, 0));
  if (parentElement.isConnected || !kept.has(parentElement)) return;
  const found = kept.get(parentElement);
  kept.delete(parentElement);
  end(found);
};
