// One completion (or the two of a pair) token by token: boxes coloured by a number, and the arithmetic of the one that
// is looked at, whose lines light up the equation's terms and open the source of what computes them.

function listenTokens(scope) {
  const keyOf = ({ target }) => target.closest?.("[data-token]")?.dataset.token ?? null;
  scope.sides.addEventListener("pointerover", (event) => event.pointerType !== "touch" && look(scope, keyOf(event)));
  scope.sides.addEventListener("pointerleave", () => look(scope, null));
  scope.sides.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && look(scope, keyOf(event)));
  scope.sides.addEventListener("focusout", () => look(scope, null));
  scope.sides.addEventListener("click", (event) => {
    const key = keyOf(event);
    if (!key) return;
    scope.pinned = scope.pinned === key ? null : key;
    drawToken(scope);
  });
  scope.sides.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], boxes = [...scope.sides.querySelectorAll("[data-token]")];
    if (!by || !event.target.dataset.token) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrow keys move its step
    boxes[Math.max(0, Math.min(boxes.length - 1, boxes.indexOf(event.target) + by))].focus();
  });
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
  scope.title.textContent = "";
  if (sides.length === 1) scope.title.append(made("code", "", visible(cards[chosen[0]].prompt + sides[0].text)));
  else scope.title.append("Pair of ", made("code", "", visible(cards[chosen[0]].prompt)));
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
  const reach = Math.max(1e-12, ...sides.flatMap((side) => side.tokens.map(({ values }) =>
    Math.abs((values[seen] ?? view?.[4] ?? 0) - (view?.[4] ?? 0)))));
  const focused = document.activeElement?.dataset?.token;
  const said = JSON.stringify([sides, seen]);
  if (scope.stripped !== said) {
    scope.sides.replaceChildren(...sides.map((side, i) => sideOf(side, i, view, reach, sides.length > 1)));
    if (focused) scope.sides.querySelector(`[data-token="${focused}"]`)?.focus();
  }
  scope.stripped = said;
  const cut = sides.some((side) => side.tokens.some((token) => token.cut));
  scope.key.textContent = view ? `${view[1]}${view[2] ? `, ${view[2]}` : ""}, of each token.` +
    (cut ? " Dashed: the surrogate cuts the token off." : "") : "This file holds no numbers per token.";
  fillLines(scope.summary, one.summary, scope.data.sources);
  drawToken(scope);
  drawSource(scope);
}

function sideOf(side, index, view, reach, named) {
  const box = made("div", "rl-scope-side"), strip = made("div", "rl-scope-strip");
  if (named) {
    const head = made("p");
    head.append(made("b", "", side.role), made("code", "", visible(side.text)));
    box.append(head);
  }
  strip.append(...side.tokens.map((token, place) => tokenOf(token, `${index}.${place}`, place, view, reach)));
  box.append(strip);
  if (side.more) box.append(made("p", "rl-scope-key", `The first ${side.tokens.length} tokens; ${side.more} more.`));
  return box;
}

function tokenOf({ text, values, cut }, key, place, view, reach) {
  const button = made("button"), value = view ? values[view[0]] : undefined;
  button.type = "button";
  button.dataset.token = key;
  if (cut) button.dataset.cut = cut;
  const [, label = "", unit = "", signed = false, centre = 0] = view ?? [];
  const share = value === undefined ? 0 : (value - centre) / reach;
  const hue = signed && share < 0 ? "light-dark(#E69F00,#F2B84B)" : "light-dark(#0072B2,#4FA8E0)";
  button.style.background = `color-mix(in srgb,${hue} ${Math.round(Math.abs(share) * 45)}%,transparent)`;
  const number = value === undefined ? "–" : (signed && !centre ? plus(value, 2) : format(value, 2));
  button.append(made("code", "", text), made("small", "", number + (unit === "%" ? " %" : "")));
  button.setAttribute("aria-label", `token ${place + 1}, ${text}, ${label} ${number}${cut ? ", cut off" : ""}`);
  return button;
}

// ---- the arithmetic --------------------------------------------------------------------------------------------

// The token that is looked at, else the one that was clicked, else the one with the largest share of the gradient.
function tokenAt(scope) {
  const { sides } = scope.data.one;
  const at = (key) => { const [side, place] = (key ?? "").split("."); return sides[side]?.tokens[place]; };
  for (const key of [scope.over, scope.pinned]) if (at(key)) return [key, at(key)];
  const all = sides.flatMap((side, i) => side.tokens.map((token, place) => [`${i}.${place}`, token]));
  const weight = ([, { values }]) => values.share ?? values.loss ?? Math.abs(values.advantages ?? 0);
  return all.reduce((best, each) => (best && weight(best) >= weight(each) ? best : each), null) ?? [null, null];
}

function drawToken(scope) {
  const [key, token] = tokenAt(scope);
  scope.sides.querySelectorAll("[data-token]").forEach((each) => {
    each.setAttribute("aria-pressed", String(each.dataset.token === (scope.pinned ?? key)));
    each.toggleAttribute("data-over", each.dataset.token === key);
    each.tabIndex = each.dataset.token === key ? 0 : -1;
  });
  const [side, place] = (key ?? "0.0").split("."), { sides } = scope.data.one;
  fillLines(scope.lines, token ? token.lines : [], scope.data.sources, token &&
    `Token ${Number(place) + 1} of ${sides[side].role || sides[side].tokens.length}: ${token.text}`);
}

// Letters with a subscript, as in log π_old.
function written(text) {
  return text.split(/_([A-Za-z]+)/).map((part, i) => (i % 2 ? made("sub", "", part) : part));
}

function fillLines(table, lines, sources, caption = "") {
  const said = JSON.stringify([lines, caption]);
  if (table.said === said) return;
  table.said = said;
  table.hidden = !lines.length;
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
