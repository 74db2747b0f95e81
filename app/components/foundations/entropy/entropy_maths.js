// Entropy of a distribution.

// −p log p of one outcome in nats, 0 where it never comes.
const surprise = (p) => (p > 0 ? -p * Math.log(p) : 0);

// H(p) = −Σ p log p in nats.
const entropy = (p) => total(p.map(surprise));
