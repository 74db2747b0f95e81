// A new run makes its first step before the page looks again. So until there is a point, the browser asks the server,
// which answers as soon as there is one, or after a moment without one.

const PATIENCE = 2000; // milliseconds from the first drawing of the charts; later the page looks every 500

function awaitFirstPoint(chart, ask) {
  if (chart.awaited?.key !== chart.key) chart.awaited = { key: chart.key, until: performance.now() + PATIENCE };
  if (performance.now() < chart.awaited.until) ask();
}
