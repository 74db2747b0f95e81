// Effective action space: how sharp the choice is at each position, and what the likeliest tokens hold together.

const FIRST_SHARPNESS = [0.6, 1.6, 2.2, 2.6, 2.4, 3, 3.2, 3.4];
const SIZES = [16, 64, 256, 1024, 4096, 32768];
const SHARPEST = 4;

function buildActionSpace(picture) {
  const state = { sharpness: [...FIRST_SHARPNESS], size: 2 };
  const fill = (values) => () => { state.sharpness = [...values]; };
  const top = [
    slider(picture, { label: "Tokens in the vocabulary", low: 0, high: SIZES.length - 1, step: 1, read: () => state.size,
      text: () => SIZES[state.size].toLocaleString("en-US"), write: (to) => { state.size = Math.round(to); } }),
    button(picture, "All tokens alike", fill(FIRST_SHARPNESS.map(() => 0))), button(picture, "Sharper", () => {
      state.sharpness = state.sharpness.map((each) => Math.min(SHARPEST, each + 0.5)); }), button(picture, "Start again", fill(FIRST_SHARPNESS))];
  controls(picture, ...top.map(({ node }) => node));
  const handles = plot(picture, picture.root, { title: "Drag the sharpness α at each position", height: 160, bottom: 26 });
  const knobs = FIRST_SHARPNESS.map((_, place) => knob(picture, handles, { label: `Sharpness at position ${place + 1}`, low: 0, high: SHARPEST,
    step: 0.1, class: "rl-s1", read: () => state.sharpness[place], text: () => state.sharpness[place].toFixed(2),
    write: (to) => { state.sharpness = state.sharpness.map((each, at) => (at === place ? to : each)); }, at: (event) => handles.at(event).y }));
  const chart = plot(picture, picture.root, { title: "Total probability of the k likeliest tokens", height: 250, right: 58 });
  const rows = numbers(picture);
  const found = table(picture.root, "By position", ["Position", ...FIRST_SHARPNESS.map((_, place) => String(place + 1))]);
  const sum = equation(picture, "The mass of the top 4 at position 1 with these numbers");
  return { draw() {
    const size = SIZES[state.size], space = actionSpace(state.sharpness, size);
    top.forEach(({ show }) => show());
    const positions = { low: 0.7, high: FIRST_SHARPNESS.length + 0.15, ticks: FIRST_SHARPNESS.map((_, place) => place + 1) };
    handles.fit({ x: { label: "", ...positions }, y: { label: "sharpness α", low: 0, high: SHARPEST, ticks: [0, 1, 2, 3, 4] } });
    line(handles, state.sharpness.map((each, place) => [place + 1, each]), { class: "rl-s1 rl-f-faint" });
    knobs.forEach((each, place) => each.show(handles.x(place + 1), handles.y(state.sharpness[place])));
    drawMass(chart, space.positions, positions);
    rows.show([["Possible completions", powers(space.all), "", `${size.toLocaleString("en-US")} tokens, ${FIRST_SHARPNESS.length} positions`],
      ["Effective number of completions", powers(space.completions), "", "exact: e to the sum of the entropies"]]);
    found.show([["Entropy, nats", ...space.positions.map(({ entropy }) => entropy.toFixed(2))],
      ["Tokens, effective", ...space.positions.map(({ effective }) => format(effective, effective < 100 ? 1 : 0))]]);
    sum.show(writtenMass(state.sharpness[0], size));
    say(picture, spaceWords(space, size));
  } };
}

function drawMass(chart, positions, across) {
  chart.fit({ x: { label: "position of the token", ...across }, y: { label: "probability mass", low: 0, high: 1, ticks: [0, 0.25, 0.5, 0.75, 1] } });
  let ceiling = -Infinity; // no name over another
  [...TOP_TOKENS.keys()].reverse().forEach((place) => {
    const k = TOP_TOKENS[place];
    line(chart, positions.map(({ mass }, at) => [at + 1, mass[place]]), { class: `rl-s${place + 1}` });
    positions.forEach(({ mass }, at) => draw(chart, "circle", { cx: chart.x(at + 1), cy: chart.y(mass[place]), r: 2.5, class: `rl-f${place + 1}` }));
    ceiling = Math.max(ceiling + 13, chart.y(positions.at(-1).mass[place]) + 4);
    note(chart, chart.width - chart.right + 6, ceiling, `top ${k}`, { style: `fill:var(--f${place + 1})` });
  });
}

// 1.2 × 10⁷ where a number is too long to be read.
function powers(value) {
  if (value < 1e5) return format(value, value < 100 ? 1 : 0);
  const power = Math.floor(Math.log10(value));
  return `${(value / 10 ** power).toFixed(1)} · 10${[...String(power)].map((each) => SUPER[each]).join("")}`;
}

function writtenMass(sharpness, size) {
  const p = ranked(sharpness, size);
  return [`${sub(mi("m"), mn(4, 0))}${mo("=")}`, ...p.slice(0, 4).map((each, rank) => `${rank ? mo("+") : ""}${mn(each, 3)}`),
    `${mo("=")}${mn(massOfTop(p)[2], 3)}`];
}

function spaceWords({ positions, completions, all }, size) {
  const [first, ...rest] = positions, later = total(rest.map(({ mass }) => mass[0])) / rest.length;
  return `At position 1 the likeliest token holds ${format(first.mass[0], 2)} and the first 16 of ${size.toLocaleString("en-US")} hold `
    + `${format(first.mass[4], 2)}; at the later positions the likeliest one alone holds ${fixed(later, later < 0.1 ? 3 : 2)} on average. Of ${powers(all)} `
    + `completions, sampling sees about ${powers(completions)}: that is the space that learning has to search.`;
}

export const update = mounting(buildActionSpace), dispose = leaving;
