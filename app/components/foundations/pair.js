// P and Q side by side over the same outcomes, both to be dragged; `called` is what they are.

// `state` has p and q; `least` is the least probability that an outcome keeps, 0 if it may have none.
function pairOf(picture, state, height, least = 0, called = ["P", "Q"]) {
  const chart = plot(picture, picture.root, { title: "Drag the bars of P and Q", height });
  const names = state.p.map((_, i) => String.fromCodePoint(65 + i));
  const of = (key, colour, inset) => bars(picture, chart, { class: colour, inset, read: () => state[key],
    label: (i) => `Probability of ${names[i]} under ${key.toUpperCase()}`,
    write: (i, value) => { state[key] = kept(moved(state[key], i, value), least); } });
  const both = [of("p", "rl-f1", [0.08, 0.47]), of("q", "rl-f2", [0.53, 0.92])];
  legend(picture.root, [["rl-f1", called[0]], ["rl-f2", called[1]]]);
  return { show() {
    chart.fit({ x: { label: "outcome", names }, y: { label: "probability", high: 1 } });
    both.forEach((each) => each.show());
  } };
}
