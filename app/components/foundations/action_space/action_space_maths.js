// The effective action space, in numbers: tokens by rank, the i-th likeliest with a probability proportional to i^−α.

const TOP_TOKENS = [1, 2, 4, 8, 16];

// The probabilities of `size` tokens, likeliest first; a sharpness α of 0 makes them equal.
function ranked(sharpness, size) {
  return normalised(Array.from({ length: size }, (_, rank) => (rank + 1) ** -sharpness));
}

// What the first k hold together, for each k of TOP_TOKENS.
function massOfTop(probabilities) {
  return TOP_TOKENS.map((k) => Math.min(1, total(probabilities.slice(0, k))));
}

const entropyOf = (probabilities) => -total(probabilities.map((each) => (each > 0 ? each * Math.log(each) : 0)));

// For each position: mass of the top tokens, and e^H, as how many equally likely tokens the choice is. `completions`
// is that of whole completions: e to the sum of all entropies, beside size to the number of positions.
function actionSpace(sharpness, size) {
  const positions = sharpness.map((each) => {
    const p = ranked(each, size), entropy = entropyOf(p);
    return { mass: massOfTop(p), entropy, effective: Math.exp(entropy) };
  });
  const nats = total(positions.map(({ entropy }) => entropy));
  return { positions, completions: Math.exp(nats), all: size ** sharpness.length };
}
