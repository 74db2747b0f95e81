// A language model as a decision process, in numbers: every completion of a binary tree of tokens.
//
// States are prefixes. State 0 is the prompt; state s goes to 2s + 1 by the first token and to 2s + 2 by the second.
// STATES of them choose a token, and the next LEAVES are whole completions. first[s] is the probability of the first
// token in s, rewards[n] what is earned on the way into node n (rewards[0] is not used).

const DEPTH = 3, STATES = 2 ** DEPTH - 1, LEAVES = 2 ** DEPTH, NODES = STATES + LEAVES;

const childOf = (state, token) => 2 * state + 1 + token;

// The tokens of a completion, and the states in which they were chosen.
function walkOf(leaf) {
  const tokens = [], states = [];
  for (let depth = DEPTH - 1, state = 0; depth >= 0; depth--) {
    const token = (leaf >> depth) & 1;
    tokens.push(token); states.push(state);
    state = childOf(state, token);
  }
  return { tokens, states };
}

// Exact: V(s), the reward that is still to come on average; Q(s, a); how often each state is reached; ∇J with respect
// to the logit of the first token in each state (that of the second is its negative).
function treeTruth(first, rewards) {
  const value = Array(NODES).fill(0), action = Array.from({ length: STATES }, () => [0, 0]);
  for (let state = STATES - 1; state >= 0; state--) {
    for (const token of [0, 1]) {
      const next = childOf(state, token);
      action[state][token] = rewards[next] + value[next];
    }
    value[state] = first[state] * action[state][0] + (1 - first[state]) * action[state][1];
  }
  const reached = Array(NODES).fill(0);
  reached[0] = 1;
  for (let state = 0; state < STATES; state++) {
    reached[childOf(state, 0)] = reached[state] * first[state];
    reached[childOf(state, 1)] = reached[state] * (1 - first[state]);
  }
  const gradient = first.map((p, state) => reached[state] * p * (1 - p) * (action[state][0] - action[state][1]));
  return { value, action, reached, gradient };
}

// Credit of each token of a completion. As one action of a bandit: the whole reward less the constant `baseline`, the
// same for each token. As steps of an MDP: Â_t = Σ_k λ^k δ_{t+k}, δ_t = r_t + V(s_{t+1}) − V(s_t), with the critic's
// `values` by state (0 behind the last token); without a critic all are 0.
function creditOf(leaf, rewards, baseline, values, lambda) {
  const { tokens, states } = walkOf(leaf), received = states.map((state, t) => rewards[childOf(state, tokens[t])]);
  const earned = total(received), steps = Array(DEPTH).fill(0);
  for (let t = DEPTH - 1, rest = 0; t >= 0; t--) {
    const ahead = t + 1 < DEPTH ? values[states[t + 1]] : 0;
    rest = received[t] + ahead - values[states[t]] + lambda * rest;
    steps[t] = rest;
  }
  return { tokens, states, rewards: received, earned, bandit: tokens.map(() => earned - baseline), steps };
}

// The gradient that one completion gives: of its credits, with respect to the logit of the first token in each state.
function gradientOf(first, { tokens, states }, credit) {
  const found = Array(STATES).fill(0);
  states.forEach((state, t) => { found[state] = credit[t] * ((tokens[t] === 0 ? 1 : 0) - first[state]); });
  return found;
}

// Exact, over all completions: mean and variance (summed over the states) of both gradients, how far each mean is
// from ∇J, and whether the two give the same for every completion.
function bothWays(first, rewards, baseline, values, lambda) {
  const truth = treeTruth(first, rewards);
  const ways = { bandit: null, steps: null };
  let apart = 0;
  const rows = Array.from({ length: LEAVES }, (_, leaf) => {
    const credit = creditOf(leaf, rewards, baseline, values, lambda);
    const bandit = gradientOf(first, credit, credit.bandit), steps = gradientOf(first, credit, credit.steps);
    bandit.forEach((each, state) => { apart = Math.max(apart, Math.abs(each - steps[state])); });
    return { probability: truth.reached[STATES + leaf], bandit, steps };
  });
  for (const way of Object.keys(ways)) {
    const mean = Array(STATES).fill(0);
    let second = 0;
    for (const row of rows) row[way].forEach((each, state) => {
      mean[state] += row.probability * each;
      second += row.probability * each ** 2;
    });
    ways[way] = { mean, variance: second - total(mean.map((each) => each ** 2)),
      bias: Math.sqrt(total(mean.map((each, state) => (each - truth.gradient[state]) ** 2))) };
  }
  return { ...truth, ...ways, apart, rows };
}
