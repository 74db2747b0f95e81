// The surrogate explorer: the surrogates of one token above, a small exact policy below. Served as one with the grips
// and axes of Foundations. Everything is computed here; the server only keeps in the link what was grabbed.

function buildExplorer(picture) {
  Object.assign(picture, { mine: {}, pending: {}, times: 0 });
  settle(picture);
  const top = el("section", { "aria-label": "Surrogates of a token" }), under = el("section", { class: "rl-su-under", "aria-label": "A small exact policy" });
  picture.root.append(top, under);
  const chips = surrogateChips(picture, top), claim = sentence(top);
  const sliders = knobsOf(picture), rest = [ratiosChoice(picture), partingButton(picture), againButton(picture)], knobs = [...sliders, ...rest];
  top.append(el("div", { class: "rl-su-sliders" }, ...sliders.map(({ node }) => node),
    el("div", { class: "rl-su-more" }, ...rest.map(({ node }) => node))));
  const charts = el("div", { class: "rl-f-row rl-su-panels" });
  top.append(charts);
  const panels = [panel(picture, charts, 1), panel(picture, charts, -1)];
  const counted = el("p", { class: "rl-f-words rl-su-counted" });
  top.append(counted);
  const rows = surrogateTable(picture, top);
  under.append(el("h3", {}, "The surrogates on a policy small enough to be exact"), el("p", {}, INTRO));
  const small = below(picture, under);
  return { receive: () => receive(picture), draw() {
    chips.show();
    claim.show(picture);
    knobs.forEach((each) => {
      each.node.hidden = !(each.seen?.() ?? true);
      each.show();
    });
    if (!picture.held) picture.range = rangeOf(picture); // the axis stays where it is under the hand
    const anew = changes(picture);
    const said = panels.map((each) => each.draw(anew.above)).join(" ");
    counted.textContent = tokenWords(picture);
    rows.show();
    const stepped = anew.below ? small.draw() : picture.stepped;
    picture.stepped = stepped;
    say(picture, picture.below ? stepped : `${said} ${counted.textContent}`);
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

const INTRO = "The policy π = softmax(θ) draws two of three tokens, each independently of the other. Reward: the mean of the "
  + "two tokens' r, plus w if they differ. All sums are exact; nothing is sampled. Drag π_old and the rewards; the knobs above also act here.";

// Whether ε is one knob: until its two sides are told apart, or have different values.
const isJoined = ({ now, apart }) => !apart && now.clip_low === now.clip_high;

const hasClip = (picture) => isUsed(picture, "clip_high") && isJoined(picture);
const partingButton = (picture) => ({ ...button(picture, "Separate ε_low and ε_high", () => { picture.apart = true; }),
  seen: () => hasClip(picture) });
const againButton = (picture) => ({ ...button(picture, "Start again", () => reset(picture)),
  seen: () => picture.apart || Object.keys({ ...picture.data.said, ...picture.mine }).length > 0 });
const ratiosChoice = (picture) => ({ ...choice(picture, { label: "Ratios", options: [[false, "all"], [true, "close to 1"]],
  read: () => picture.now.close, write: (value) => write(picture, "close", value) }),
seen: () => picture.data.tokens.length > 0 || picture.now.close });

// The knobs of the surrogates that are drawn, each as the first twin that has it wants it, else as the lab declares it;
// the two sides of ε as one; and the size of A.
function knobsOf(picture) {
  const { drawn, dials, usual } = picture.data;
  const own = Object.assign({}, ...drawn.map((key) => SURROGATES[key].dials?.(picture) ?? {}).reverse());
  const sides = ["clip_low", "clip_high"];
  const of = ({ name, keys: _keys, ...declared }) => ({ ...dial(picture, name, { ...declared, ...own[name] }),
    seen: () => isUsed(picture, name) && !(sides.includes(name) && isJoined(picture)) });
  const ofBoth = { ...dial(picture, "clip_high", { ...own.clip_high, label: "ε, the clip range", high: 1,
    write: (value) => writeBoth(picture, value) }), seen: () => hasClip(picture) };
  return [ofBoth, ...dials.map(of),
    dial(picture, "a", { label: "Size of A", low: 0.05, high: Math.max(3, 3 * usual.a), step: 0.05 })];
}

const mount = mounting(buildExplorer);

export function update(component) {
  mount(component);
  pictures.get(component.parentElement).trigger = component.setTriggerValue;
}

export const dispose = leaving;
