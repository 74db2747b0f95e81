// The surrogate explorer: the surrogates of one token above, a small exact policy below. Served as one with the grips
// and axes of Foundations. Everything is computed here; the server only keeps in the link what was grabbed.

function buildExplorer(picture) {
  Object.assign(picture, { mine: {}, pending: {}, times: 0 });
  settle(picture);
  const top = el("section", { "aria-label": "Surrogates of a token" }), under = el("section", { "aria-label": "A small exact policy" });
  picture.root.append(top, under);
  const head = [focusChoice(picture), choice(picture, { label: "Ratios", options: [[false, "all"], [true, "close to 1"]],
    read: () => picture.now.close, write: (value) => write(picture, "close", value) }),
  button(picture, "Start again", () => reset(picture))];
  top.append(el("div", { class: "rl-f-controls" }, ...head.map(({ node }) => node)));
  const knobs = knobsOf(picture);
  top.append(el("div", { class: "rl-su-sliders" }, ...knobs.map(({ node }) => node)));
  const charts = el("div", { class: "rl-f-row rl-su-panels" });
  top.append(charts);
  const panels = [panel(picture, charts, 1), panel(picture, charts, -1)];
  const words = [el("p", { class: "rl-f-words" }), el("p", { class: "rl-f-words" }), el("p", { class: "rl-f-words" })];
  const wordsBox = el("div", { class: "rl-su-words" }, el("div", {}, ...words));
  top.append(wordsBox);
  const rows = surrogateTable(picture, wordsBox);
  under.append(el("h3", {}, "A policy small enough to be exact"), el("p", {}, INTRO));
  const small = below(picture, under);
  return { receive: () => receive(picture), draw() {
    head.forEach(({ show }) => show());
    knobs.forEach((each) => {
      each.node.hidden = !each.seen();
      each.show();
    });
    if (!picture.held) picture.range = rangeOf(picture); // the axis stays where it is under the hand
    const anew = changes(picture);
    panels.forEach((each) => each.draw(anew.above));
    rows.show();
    const said = topWords(picture, words), stepped = anew.below ? small.draw() : picture.stepped;
    picture.stepped = stepped;
    say(picture, picture.below ? stepped : said);
    sendChanges(picture);
  } };
}

// Which half is to be drawn anew: the ratio's hand alone moves over curves that stay, and the small policy over those
// of a token.
function changes(picture) {
  const wide = picture.root.clientWidth;
  const keep = (name, left, ...more) => {
    const key = JSON.stringify([Object.entries(picture.now).filter(([each]) => !left.includes(each)), wide, ...more]);
    const other = picture[name] !== key;
    picture[name] = key;
    return other;
  };
  return { above: keep("aboveKey", ["rho", ...BELOW], picture.range, picture.data.step),
    below: keep("belowKey", ["rho", "a", "focus", "close"]) };
}

const INTRO = "π = softmax(θ) over three tokens writes two of them, without a memory of the first. Reward: the mean of the "
  + "two tokens' r, plus w if they differ. All sums are exact; nothing is sampled. Drag π_old and the rewards; ε, β, c and τ are those above.";

// What is explained: shading, dots and words are those of this one.
const focusChoice = (picture) => choice(picture, { label: "Explain", options: picture.data.drawn
  .filter((key) => picture.data.usual.shown.includes(key) || key === picture.now.focus).map((key) => [key, titleOf(key)]),
read: () => picture.now.focus, write: (key) => write(picture, "focus", key) });

// The size of A, and the knobs of the surrogates that are drawn: each as the first twin that has it wants it, else as
// the lab declares it.
function knobsOf(picture) {
  const { drawn, dials, usual } = picture.data;
  const own = Object.assign({}, ...drawn.map((key) => SURROGATES[key].dials?.(picture) ?? {}).reverse());
  const of = (name, keys, more) => ({ ...dial(picture, name, more),
    seen: () => keys.some((key) => key === picture.now.focus || picture.now.shown.includes(key)) });
  return [of("a", drawn, { label: "Size of A", low: 0.05, high: Math.max(3, 3 * usual.a), step: 0.05 }),
    ...dials.map(({ name, keys, ...declared }) => of(name, keys, { ...declared, ...own[name] }))];
}

function topWords(picture, [positive, negative, counted]) {
  const { now } = picture, ratio = Math.max(now.rho, 1e-4);
  const of = (advantage) => `${titleOf(now.focus)} at ρ = ${inShort(now.rho)}, A = ${sized(advantage)}: ${branchWords(now.focus, ratio, advantage, now)}`;
  positive.textContent = of(now.a);
  negative.textContent = of(-now.a);
  counted.textContent = tokenWords(picture);
  return [positive, negative, counted].map(({ textContent }) => textContent).join(" ");
}

const mount = mounting(buildExplorer);

export function update(component) {
  mount(component);
  pictures.get(component.parentElement).trigger = component.setTriggerValue;
}

export const dispose = leaving;
