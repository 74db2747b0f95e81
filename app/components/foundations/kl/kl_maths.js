// The one-humped Q nearest to a two-humped P, by either KL.

const GRID = { low: -6, high: 6, points: 161 };
const gridOf = ({ low, high, points }) => Array.from({ length: points }, (_, i) => low + i * (high - low) / (points - 1));

// Log-probabilities of the points of a grid, from unnormalised ones.
function normalisedLogs(logs) {
  const most = Math.max(...logs);
  const sum = Math.log(total(logs.map((each) => Math.exp(each - most)))) + most;
  return logs.map((each) => each - sum);
}

// log P of two normal humps of one width on the grid: { weight of the first, means [a, b], width }.
const humps = (grid, { weight, means, width }) => normalisedLogs(grid.map((x) => {
  const [a, b] = means.map((mean) => -((x - mean) ** 2) / (2 * width ** 2));
  const most = Math.max(a, b);
  return most + Math.log(weight * Math.exp(a - most) + (1 - weight) * Math.exp(b - most));
}));

const hump = (grid, mean, width) => normalisedLogs(grid.map((x) => -((x - mean) ** 2) / (2 * width ** 2)));

const klOfLogs = (a, b) => total(a.map((each, i) => Math.exp(each) * (each - b[i])));

// The one normal hump Q that makes KL(P‖Q) (`forward`) or KL(Q‖P) smallest, on the grid: { mean, width, logs, value }.
// KL(Q‖P) may have a valley at each hump of P: the search starts in both, and in the middle, and the lowest counts.
function fitted(grid, logP, forward, starts) {
  const loss = ([mean, logWidth]) => {
    const q = hump(grid, mean, Math.exp(logWidth));
    return forward ? klOfLogs(logP, q) : klOfLogs(q, logP);
  };
  const [value, [mean, logWidth]] = starts.map(([mean, width]) => lowest(loss, [mean, Math.log(width)]))
    .reduce((best, each) => (each[0] < best[0] ? each : best));
  return { mean, width: Math.exp(logWidth), logs: hump(grid, mean, Math.exp(logWidth)), value };
}

// Mean and standard deviation of P on the grid: where KL(P‖Q) is smallest if the grid is fine and wide.
function momentsOf(grid, logs) {
  const mean = total(logs.map((each, i) => Math.exp(each) * grid[i]));
  return [mean, Math.sqrt(total(logs.map((each, i) => Math.exp(each) * (grid[i] - mean) ** 2)))];
}

// [least value, where] of f of two numbers, near `start`: Nelder and Mead 1965, with their coefficients 1, 2, ½, ½.
function lowest(f, start, size = 0.4, rounds = 60) {
  const along = (a, b, by) => a.map((each, i) => each + by * (b[i] - each));
  let found = [start, [start[0] + size, start[1]], [start[0], start[1] + size]].map((at) => [f(at), at]);
  for (let round = 0; round < rounds; round += 1) {
    found.sort((a, b) => a[0] - b[0]);
    const [best, good, worst] = found, middle = along(best[1], good[1], 0.5);
    if (worst[0] - best[0] < 1e-10) break;
    const tried = (by) => { const at = along(middle, worst[1], by); return [f(at), at]; };
    const mirrored = tried(-1);
    let next = mirrored;
    if (mirrored[0] < best[0]) {
      const farther = tried(-2);
      next = farther[0] < mirrored[0] ? farther : mirrored;
    } else if (mirrored[0] >= good[0]) next = tried(mirrored[0] < worst[0] ? -0.5 : 0.5);
    if (next[0] < worst[0]) found[2] = next;
    else found = [best, ...[good, worst].map(([, at]) => along(best[1], at, 0.5)).map((at) => [f(at), at])];
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}
