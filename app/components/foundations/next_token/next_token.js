// The next token of a language model: its likeliest tokens, all others together, and the entropy, at a temperature.

function buildNextToken(picture) {
  const stops = picture.data.tempered.map(({ temperature }) => temperature);
  const state = { at: stops.indexOf(1) };
  const warmth = slider(picture, { label: "Temperature T", low: 0, high: stops.length - 1, step: 1, read: () => state.at,
    write: (at) => { state.at = Math.round(at); }, text: () => stops[state.at].toFixed(2) });
  controls(picture, warmth.node);
  const chart = plot(picture, picture.root, { title: "", height: 200 });
  const rows = numbers(picture);
  return { draw() {
    const { tokens, tempered, vocabulary, prompt } = picture.data, { entropy, top, rest } = tempered[state.at];
    const others = vocabulary - tokens.length, most = Math.log(vocabulary);
    warmth.show();
    chart.call(`After “${short(prompt)}”: the ${tokens.length} likeliest of ${vocabulary.toLocaleString("en-US")} tokens, and all others`);
    const names = [...tokens.map(visible), ...(others > 0 ? ["others"] : [])];
    chart.fit({ x: { label: "next token", names }, y: { label: "probability", high: 1 } });
    [...top, ...(others > 0 ? [rest] : [])].forEach((p, i) => {
      const at = chart.x(i), half = chart.x.band * 0.36;
      column(chart, at - half, at + half, 0, p, { class: i < top.length ? "rl-f1" : "rl-f1 rl-f-faint" });
      note(chart, at, chart.y(p) - 5, p.toFixed(2), { "text-anchor": "middle" });
    });
    rows.show([["Entropy, exact over all tokens", entropy.toFixed(3), "nats"], ["In bits", inBits(entropy).toFixed(3), "bits"],
      [`Maximum: log ${vocabulary.toLocaleString("en-US")}`, most.toFixed(3), "nats"]]);
    say(picture, `At temperature ${stops[state.at]} the likeliest next token is “${visible(tokens[0])}” with probability `
      + `${top[0].toFixed(3)}. The entropy is ${entropy.toFixed(3)} nats: as uncertain as ${Math.exp(entropy).toFixed(2)} equally likely tokens.`);
  } };
}

// A token as it can be seen: blanks and line ends have signs.
const visible = (token) => (token === "" ? "(empty)" : short(token.replaceAll(" ", "␣").replaceAll("\n", "↵"), 9));
const short = (text, most = 40) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const update = mounting(buildNextToken), dispose = leaving;
