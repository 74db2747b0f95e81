// A run that has just begun makes its first step sooner than the page looks again: until there is a point, the server is
// asked for it, and answers when there is one or after a moment.

const PATIENCE = 2000; // milliseconds after the charts are there; then the page looks every 500

function awaitFirstPoint(chart, ask) {
  if (chart.awaited?.key !== chart.key) chart.awaited = { key: chart.key, until: performance.now() + PATIENCE };
  if (performance.now() < chart.awaited.until) ask();
}
