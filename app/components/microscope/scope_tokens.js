// One completion (or the two of a pair) token by token: boxes coloured by a number (scope_strip.js), and the arithmetic
// of the one that is looked at, whose lines light up the equation's terms and open the source of what computes them.

function listenTokens(scope) {
  const keyOf = ({ target }) => target.closest?.("[data-token]")?.dataset.token ?? null;
  scope.strips = [];
  scope.sides.addEventListener("pointerover", (event) => event.pointerType !== "touch" && look(scope, keyOf(event)));
  scope.sides.addEventListener("pointerleave", () => look(scope, null));
  scope.sides.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && look(scope, keyOf(event)));
  scope.sides.addEventListener("focusout", () => look(scope, null));
  scope.sides.addEventListener("click", (event) => {
    const key = keyOf(event);
    if (!key) return;
    if (key.endsWith("fold")) { unfold(scope.strips[Number(key.split(".")[0])]); return; }
    scope.pinned = scope.pinned === key ? null : key;
    drawToken(scope);
  });
  scope.sides.addEventListener("keydown", (event) => walk(scope, event));
  scope.resized = new ResizeObserver(() => scope.strips.forEach((strip) => lay(strip)));
  scope.resized.observe(scope.sides);
  for (const table of [scope.lines, scope.summary]) {
    const termsOf = ({ target }) => (target.closest?.("tr")?.dataset.terms ?? "").split(" ").filter(Boolean);
    table.addEventListener("pointerover", (event) => lightTerms(scope, termsOf(event)));
    table.addEventListener("pointerleave", () => lightTerms(scope, []));
    table.addEventListener("focusin", (event) => lightTerms(scope, termsOf(event)));
    table.addEventListener("focusout", () => lightTerms(scope, []));
    table.addEventListener("click", ({ target }) => target.dataset.source && openSource(scope, target.dataset.source));
  }
}

function look(scope, key) {
  if (key === scope.over) return;
  scope.over = key;
  drawToken(scope);
}

// The signs of the equation above that a line is about.
function lightTerms(scope, keys) {
  const picture = document.querySelector(".st-key-scope_equation .katex-html");
  picture?.querySelectorAll("[data-rl-term-lit]").forEach((each) => each.removeAttribute("data-rl-term-lit"));
  const colours = new Set(keys.map((key) => scope.data.terms[key]).filter(Boolean));
  if (!colours.size) return;
  picture?.querySelectorAll("[style*=color]").forEach((each) =>
    colours.has(each.style.color) && each.setAttribute("data-rl-term-lit", ""));
}

function openSource(scope, family) {
  scope.opened = scope.opened === family ? null : family;
  drawSource(scope);
}

function drawSource(scope) {
  const source = scope.data.sources[scope.opened];
  scope.source.hidden = !source;
  if (!source) return;
  scope.source.replaceChildren(made("p", "", `${source.title} · ${source.file}, line ${source.line}`),
    made("code", "", source.text));
}

// ---- the strip -------------------------------------------------------------------------------------------------

function drawTokens(scope) {
  const { one, chosen, cards } = scope.data, { views, sides } = one;
  entitle(scope, cards[chosen[0]].asked, sides);
  scope.said.textContent = one.said;
  const keys = views.map(([key]) => key), wished = now(scope, "colour");
  const seen = keys.includes(wished) ? wished : keys[0];
  const offered = JSON.stringify(keys);
  if (scope.offered !== offered) scope.colour.replaceChildren(...views.map(([key, label]) => new Option(label, key)));
  scope.offered = offered;
  scope.colour.parentElement.hidden = !keys.length;
  if (seen) scope.colour.value = seen;
  chips(scope.moments, one.moments ? [["update", "In the last update", null], ["after", "After the step", null]] : [],
    one.when, (key) => sendChoice(scope, { moment: key }));
  const view = views.find(([key]) => key === seen);
  drawSides(scope, sides, view, seen);
  const cut = sides.some((side) => side.cut.some(Boolean)), seenToo = sides.some(({ observed }) => observed?.some(Boolean));
  scope.key.textContent = view ? `${view[1]}${view[2] ? `, ${view[2]}` : ""}, of each token.` +
    (cut ? " Dashed: the surrogate cuts the token off." : "") + (seenToo ? " Grey: observation, not learnt from." : "")
    : sides.some(({ parts }) => parts?.length) ? "" : "This file holds no numbers per token.";
  fillLines(scope.summary, one.summary, scope.data.sources);
  drawToken(scope);
  drawSource(scope);
}

const SHORT = 60; // characters of a completion that stands in the title, behind its prompt

function entitle(scope, told, sides) {
  const said = JSON.stringify([told, sides.map(({ text }) => text)]);
  if (scope.entitled === said) return;
  scope.entitled = said;
  const [{ text }] = sides, short = !told.parts.length && text.length <= SHORT;
  scope.title.replaceChildren(...(sides.length > 1 ? ["Pair of ", ...asked(told, visible(told.turn))]
    : short ? [told.turn, text].map((each) => made("code", "", visible(each))) : asked(told, visible(told.turn))));
}

function drawSides(scope, sides, view, seen) {
  const middle = view?.[4] ?? 0;
  const reach = Math.max(1e-12, ...sides.map((side) => (side.values[seen] ?? []).reduce((most, value, place) =>
    (side.observed?.[place] ? most : Math.max(most, Math.abs(value - middle))), 0)));
  const said = JSON.stringify([sides, seen]), text = JSON.stringify(sides.map(({ tokens }) => tokens));
  if (scope.stripped === said) return;
  scope.stripped = said;
  const focused = scope.sides.contains(document.activeElement) ? document.activeElement.dataset.token : null;
  const before = scope.stripText === text ? scope.strips : [];
  scope.stripText = text;
  scope.strips = sides.map((side, i) => stripOf(scope, side, i, { view, reach }, before[i]));
  scope.sides.replaceChildren(...scope.strips.map((strip, i) => sideOf(sides[i], strip, sides.length > 1)));
  scope.strips.forEach((strip, i) => lay(strip, before[i]?.top));
  if (focused) focusOn(scope, focused);
}

function sideOf(side, strip, named) {
  const box = made("div", "rl-scope-side");
  if (named) {
    const head = made("p");
    head.append(made("b", "", side.role), made("code", "rl-scope-clamped", visible(side.text)));
    box.append(head);
  }
  if (side.parts?.length) box.append(textOf(side));
  else box.append(strip.box);
  return box;
}

// A completion whose tokens are not known, as a text.
function textOf({ parts, cut_off: cut }) {
  const text = made("div", "rl-scope-text");
  text.tabIndex = 0; // so that its keys scroll it
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", "The whole completion");
  text.append(...chipped(parts), ...(cut ? [made("span", "rl-chip", "cut at the length limit")] : []));
  return text;
}

// ---- the arithmetic --------------------------------------------------------------------------------------------

// The key of the token that is looked at, else of the one that was clicked, else of the one with the largest share of
// the gradient among those that are not folded; null where there is none.
function tokenAt(scope) {
  const { sides } = scope.data.one;
  const found = [scope.over, scope.pinned].find((key) => {
    const [side, place] = (key ?? "").split(".");
    return sides[side]?.tokens[place] !== undefined;
  });
  if (found) return found;
  let best = null, most = -Infinity;
  sides.forEach(({ tokens, values }, side) => tokens.forEach((_, place) => {
    if (isFolded(scope.strips[side], place) || sides[side].observed?.[place]) return;
    const weight = values.share?.[place] ?? values.loss?.[place] ?? Math.abs(values.advantages?.[place] ?? 0);
    if (weight > most) [best, most] = [`${side}.${place}`, weight];
  }));
  return best;
}

function drawToken(scope) {
  const key = tokenAt(scope);
  scope.looked = key;
  markTokens(scope);
  const [side, place] = (key ?? "0.0").split(".").map(Number), { sides } = scope.data.one;
  fillLines(scope.lines, key ? linesOf(sides[side], place) : [], scope.data.sources, key &&
    `Token ${place + 1} of ${sides[side].role || sides[side].tokens.length}: ${nameOf(sides[side], place)}` +
    (sides[side].observed?.[place] ? ` · ${OBSERVED}` : ""));
}

// The lines of a token: their constant parts with what is the token's own.
const linesOf = ({ lines, shapes }, place) => lines[place].map(([shape, worked, result, note]) =>
  ({ ...shapes[shape], worked, result, note }));

// Letters with a subscript, as in log π_old.
function written(text) {
  return text.split(/_([A-Za-z]+)/).map((part, i) => (i % 2 ? made("sub", "", part) : part));
}

function fillLines(table, lines, sources, caption = "") {
  const said = JSON.stringify([lines, caption]);
  if (table.said === said) return;
  table.said = said;
  table.hidden = !lines.length && !caption;
  table.replaceChildren(...lines.map((line) => lineOf(line, sources)));
  if (caption) table.prepend(made("caption", "", caption));
}

function lineOf({ name = "", sign = "", formula, worked, result, note, terms, source, active, still }, sources) {
  const row = made("tr"), head = made("th"), letter = made("td"), sum = made("td");
  head.scope = "row";
  letter.append(...written(sign));
  row.dataset.terms = (terms ?? []).join(" ");
  row.toggleAttribute("data-active", Boolean(active));
  row.toggleAttribute("data-still", Boolean(still));
  [formula, worked].filter(Boolean).forEach((part) => sum.append(...written(part), " = "));
  sum.append(made("b", "", result ?? "–"));
  if (note) {
    const small = made("small");
    small.append(...written(note));
    sum.append(small);
  }
  if (sources[source]) {
    const button = made("button", "", name), { file, line } = sources[source];
    button.type = "button";
    button.dataset.source = source;
    button.title = `Show the function: ${file}, line ${line}`;
    head.append(button);
  } else {
    head.append(name);
  }
  row.append(head, letter, sum);
  return row;
}
