// Probabilities of a few outcomes: arrays that add up to 1.

const total = (values) => values.reduce((sum, each) => sum + each, 0);

function normalised(weights) {
  const sum = total(weights);
  return sum > 0 ? weights.map((each) => each / sum) : weights.map(() => 1 / weights.length);
}

// p with outcome i at `value`; the others keep their shares among themselves.
function moved(p, i, value) {
  const rest = 1 - p[i];
  const left = 1 - value;
  return p.map((each, j) => (j === i ? value : rest > 1e-12 ? each / rest * left : left / (p.length - 1)));
}

// p^(1/T), normalised. As T goes to 0 all falls on the likeliest, as it grows every possible outcome gets the same.
function tempered(p, temperature) {
  const logs = p.map((each) => Math.log(each) / temperature);
  const most = Math.max(...logs);
  return normalised(logs.map((each) => Math.exp(each - most)));
}

const softmax = (logits) => {
  const most = Math.max(...logits);
  return normalised(logits.map((each) => Math.exp(each - most)));
};

// p with every outcome at about `least` or more: what is below is raised, the others pay for it.
function kept(p, least) {
  const low = p.map((each) => each <= least);
  const room = 1 - least * low.filter(Boolean).length, rest = total(p.filter((_, i) => !low[i]));
  return low.includes(true) ? p.map((each, i) => (low[i] ? least : each / rest * room)) : p;
}

const inBits = (nats) => nats / Math.LN2;

// p log(p/q) of one outcome in nats: 0 where P has no mass, infinite where only Q has none.
const klTerm = (p, q) => (p > 0 ? q > 0 ? p * Math.log(p / q) : Infinity : 0);

// KL(P‖Q) = Σ p log(p/q) in nats.
const kl = (p, q) => Math.max(0, total(p.map((each, i) => klTerm(each, q[i]))));
