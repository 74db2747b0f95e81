// The axes of the live charts: symlog values, their ticks, and round ends. Served as one with the charts that
// use them.

const KL_LINEAR = 1e-3; // symlog: linear within ±0.001, logarithmic beyond

const symlog = (y) => Math.sign(y) * Math.log10(1 + Math.abs(y) / KL_LINEAR);

function niceCeil(value) {
  if (value <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((edge) => edge >= value);
}

// From zero outwards, as many decades as there is room for. A chart of large numbers need not show zero.
function symlogTicks(chart, panel, top) {
  const keys = panel.metrics.map((metric) => metric.key);
  const values = Object.values(chart.runs).flatMap((run) => run.rows.flatMap((row) => keys.map((key) => row[3][key])))
    .filter((value) => value !== undefined);
  return symlogAxis(values, chart.height - 34 - top);
}

// The part of a Plotly axis that shows symlog `values` on so many pixels.
function symlogAxis(values, pixels) {
  const apart = 15 / pixels; // the share of the height that two labels need
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), 0.01);
  const low = least >= 1 && high > least ? least : Math.min(0, least);
  const far = (symlog(high) - symlog(low)) * apart;
  const ticks = [];
  for (const sign of [1, -1]) {
    let last = 0;
    for (let power = -3; power <= 12; power += 1) {
      const tick = sign * 10 ** power;
      if (tick > high * 1.01 || tick < low * 1.01 - 1e-9 || Math.abs(symlog(tick) - last) <= far) continue;
      last = symlog(tick);
      ticks.push(tick);
    }
  }
  if (low <= 0) ticks.push(0);
  ticks.sort((a, b) => a - b);
  return { rangemode: low > 0 ? "normal" : "tozero", tickvals: ticks.map(symlog), ticktext: ticks.map(power10) };
}

function power10(tick) {
  const size = Math.abs(tick);
  const words = size < 1e4 ? Number(size.toPrecision(1)) : `10<sup>${Math.log10(size).toFixed(0)}</sup>`;
  return (tick < 0 ? "−" : "") + words;
}
