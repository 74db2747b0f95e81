// Which surrogates are drawn: chips that are the legend of the charts, and the sentence of the one that is explained.

function swatchOf(picture, key) {
  const [colour, dash] = lookOf(picture, key);
  return shape("svg", { width: 26, height: 8, "aria-hidden": true },
    shape("line", { class: `rl-s${colour}`, x1: 1, x2: 25, y1: 4, y2: 4, "stroke-dasharray": dash }));
}

// Press a chip to explain its surrogate, or to add it where it is not drawn; × takes it away again.
function surrogateChips(picture, parent) {
  const shown = el("div", { class: "rl-su-chips", role: "group", "aria-label": "Drawn" });
  const more = el("div", { class: "rl-su-chips", role: "group", "aria-label": "Add" }), add = el("span", { class: "rl-su-add" }, "Add");
  parent.append(el("div", { class: "rl-su-legend" }, shown, more));
  const chips = picture.data.drawn.map((key) => {
    const name = el("button", { type: "button" }, swatchOf(picture, key), titleOf(key));
    const away = el("button", { type: "button", class: "rl-su-away", "aria-label": `Remove ${titleOf(key)}` }, "×");
    name.addEventListener("click", () => explain(picture, key));
    away.addEventListener("click", () => remove(picture, key));
    return { key, name, away, node: el("span", { class: "rl-su-chip", "data-chip": key }, name, away) };
  });
  return { show() {
    const { now } = picture, isDrawn = ({ key }) => key === now.focus || now.shown.includes(key);
    const here = chips.filter(isDrawn), rest = chips.filter((chip) => !isDrawn(chip)), nodes = (of) => of.map(({ node }) => node);
    if (!same(here.map(({ key }) => key), picture.here)) { // a chip that stays keeps the keyboard's place
      picture.here = here.map(({ key }) => key);
      const held = document.activeElement;
      shown.replaceChildren(...nodes(here));
      more.replaceChildren(...(rest.length ? [add, ...nodes(rest)] : []));
      if (picture.root.contains(held)) held.focus({ preventScroll: true });
    }
    for (const { key, name, away, node } of chips) {
      node.toggleAttribute("data-focus", key === now.focus);
      name.setAttribute("aria-pressed", String(key === now.focus));
      away.hidden = here.length < 2 || !here.some((each) => each.key === key);
    }
  } };
}

function explain(picture, key) {
  const { now, data } = picture;
  write(picture, "shown", data.drawn.filter((each) => each === key || now.shown.includes(each)));
  write(picture, "focus", key);
  changed(picture);
}

function remove(picture, key) {
  const { now } = picture, left = now.shown.filter((each) => each !== key);
  write(picture, "shown", left);
  if (now.focus === key) write(picture, "focus", left[0] ?? picture.data.usual.focus);
  changed(picture);
}

// What the explained surrogate does, and its formula.
function sentence(parent) {
  const words = el("p"), formula = el("code"), node = el("div", { class: "rl-su-claim" }, words, formula);
  parent.append(node);
  return { show(picture) {
    const { focus } = picture.now, { says, formula: written, name } = SURROGATES[focus];
    node.style.setProperty("--su", `var(--f${curveOf(picture, focus)[0]})`);
    words.textContent = says ?? `${name}: ${picture.data.labels[focus] ?? ""}`;
    formula.textContent = written ? `S = ${written}` : "";
    formula.hidden = !written;
  } };
}
