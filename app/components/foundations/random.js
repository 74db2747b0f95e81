// Random numbers that come again with their seed.

// Numbers in [0, 1) with 32 random bits each: mulberry32 (Tommy Ettinger, public domain). Period 2³².
function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// A standard normal number (Box–Muller, one of the two).
const normalOf = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

// Draws outcomes of p in constant time (alias method: Walker 1977, with the tables of Vose 1991): () => index.
function drawerOf(p, random) {
  const n = p.length, keep = new Float64Array(n), other = new Int32Array(n);
  const scaled = Array.from(p, (each) => each * n);
  const small = [], large = [];
  scaled.forEach((each, i) => (each < 1 ? small : large).push(i));
  while (small.length && large.length) {
    const i = small.pop(), j = large.pop();
    keep[i] = scaled[i];
    other[i] = j;
    scaled[j] -= 1 - scaled[i];
    (scaled[j] < 1 ? small : large).push(j);
  }
  // rounding leaves some over, which are full. One without any probability is never among them
  for (const i of [...small, ...large]) {
    keep[i] = p[i] > 0 ? 1 : 0;
    other[i] = p[i] > 0 ? i : Array.from(p).indexOf(Math.max(...p));
  }
  return () => {
    const at = random() * n, i = Math.floor(at);
    return at - i < keep[i] ? i : other[i];
  };
}
