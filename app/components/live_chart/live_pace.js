// How much rarer than usual the page is to be drawn, so that a slow browser still answers clicks in between.

const USUAL = 500; // milliseconds between two drawings
const PART = 6; // drawing the charts may take so small a part of the time; the page itself takes as much again
const RAREST = 16; // times
const KEPT = 0.7; // share of the mean that stays when a new time is known
const BEGINNING = 3; // updates that are not measured: plots are made, and the browser compiles

// Measure the drawing time since the last update. Ask for a slower pace if it is too long, and for a faster one if half
// the pace is enough. The first pace is always sent, because the server may still have the pace of earlier charts.
function measurePace(chart) {
  const took = chart.busy ?? 0;
  Object.assign(chart, { busy: 0, updates: (chart.updates ?? 0) + 1 });
  if (chart.updates <= BEGINNING) return;
  chart.took = chart.took === undefined ? took : KEPT * chart.took + (1 - KEPT) * took;
  const wanted = (PART * chart.took) / USUAL, now = chart.pace ?? 1;
  let pace = now;
  while (pace < RAREST && pace < wanted) pace *= 2;
  while (pace > 1 && pace / 2 > 1.5 * wanted) pace /= 2;
  if (pace === chart.pace) return;
  chart.pace = pace;
  chart.trigger("pace", pace);
}
