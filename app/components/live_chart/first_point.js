// A run that has just begun makes its first step sooner than the page looks again: until there is a point, ask early.

const SOON = [150, 350, 650, 850]; // milliseconds after the charts are there; the page itself looks every 500

function awaitFirstPoint(chart, ask) {
  if (chart.awaited === chart.key) return;
  const key = chart.awaited = chart.key;
  const blank = () => chart.key === key && !ownRuns(chart).some((run) => run.rows.length);
  SOON.forEach((after) => setTimeout(() => { if (blank()) ask(); }, after));
}
