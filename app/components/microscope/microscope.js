// The microscope: cards of groups on the left, one completion token by token on the right (scope_tokens.js, drawn by
// scope_strip.js). Served as one with component.js and chips.js. Sorting, filtering and reading tokens need no server;
// what is chosen goes into the link.

const scopes = new WeakMap();

function made(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function build(scope) {
  scope.root.innerHTML = `<div class="rl-scope-body"><section class="rl-scope-left" aria-label="Samples of the step">
    <div class="rl-scope-tools"><span class="rl-scope-chips" role="group" aria-label="Kind"></span>
      <select aria-label="Sort"></select><span class="rl-scope-chips" role="group" aria-label="Filter"></span></div>
    <div class="rl-scope-heads" aria-hidden="true"><i></i><i></i><i></i><span>reward</span><span>from baseline</span>
      <span>advantage</span></div>
    <div class="rl-scope-cards"></div></section>
    <section class="rl-scope-one" aria-label="Tokens"><div class="rl-scope-tools"><h4></h4>
      <span class="rl-scope-of"></span></div><div class="rl-scope-said"></div>
      <div class="rl-scope-tools"><label>Coloured by <select></select></label>
        <span class="rl-scope-chips" role="group" aria-label="Moment"></span></div>
      <div class="rl-scope-sides"></div><div class="rl-scope-key"></div><table class="rl-scope-lines"></table>
      <table class="rl-scope-lines"></table><div class="rl-scope-source" hidden></div></section></div>`;
  const find = (selector) => [...scope.root.querySelectorAll(selector)];
  [scope.sort, scope.colour] = find("select");
  [scope.kinds, scope.filters, scope.moments] = find(".rl-scope-chips");
  [scope.summary, scope.lines] = find("table");
  [[scope.left], [scope.heads], [scope.cards], [scope.title], [scope.of], [scope.said], [scope.sides], [scope.key], [scope.source]] =
    [".rl-scope-left", ".rl-scope-heads", ".rl-scope-cards", "h4", ".rl-scope-of", ".rl-scope-said", ".rl-scope-sides", ".rl-scope-key",
      ".rl-scope-source"].map(find);
  scope.sort.addEventListener("change", () => view(scope, { sort: scope.sort.value }));
  scope.colour.addEventListener("change", () => view(scope, { colour: scope.colour.value }));
  listenTokens(scope);
}

// The server keeps a choice in the link; the count lets the same choice be sent twice.
function sendChoice(scope, choice) {
  scope.times = (scope.times ?? 0) + 1;
  scope.trigger("choice", { ...choice, times: scope.times });
}

// A choice that the browser shows at once and then sends. It holds until the server has answered with the same.
function view(scope, change) {
  Object.assign(scope.mine, change);
  sendChoice(scope, change);
  draw(scope);
}

const now = (scope, name) => scope.mine[name] ?? scope.data[name];

// ---- chips and cards -------------------------------------------------------------------------------------------

// Buttons of which one is chosen: [key, label, count or null, what follows the count].
function chips(place, options, chosen, choose) {
  const said = JSON.stringify([options, chosen]);
  if (place.said === said) return;
  const focused = [...place.children].indexOf(document.activeElement);
  place.said = said;
  place.replaceChildren(...options.map(([key, label, count, of = ""]) => {
    const button = made("button", "", label);
    button.type = "button";
    button.disabled = count === 0 && key !== chosen;
    button.setAttribute("aria-pressed", String(key === chosen));
    if (count !== null && count !== undefined) button.append(made("b", "", `${count}${of}`));
    button.addEventListener("click", () => choose(key));
    return button;
  }));
  place.children[focused]?.focus();
}

function draw(scope) {
  const { data } = scope;
  chips(scope.kinds, data.kinds.length > 1 ? data.kinds : [], data.kind,
    (key) => sendChoice(scope, { part: key, prompt: null, completion: null, sort: null, filter: null }));
  const { part, cards } = data, of = part ? ` of ${cards.length}` : "";
  chips(scope.filters, data.filters.length > 1 ? data.filters.map(([key, label, kept]) =>
    key === "all" && part ? [key, part, null] : [key, label, kept.length, of]) : [],
  now(scope, "filter"), (key) => view(scope, { filter: key }));
  const sorts = JSON.stringify(data.sorts.map(([key, label]) => [key, label]));
  if (scope.sorts !== sorts) scope.sort.replaceChildren(...data.sorts.map(([key, label]) => new Option(label, key)));
  scope.sorts = sorts;
  scope.sort.value = now(scope, "sort");
  scope.of.textContent = data.of;
  scope.heads.hidden = data.kind !== "groups";
  const based = data.cards.some(({ rows }) => rows.some(({ baseline }) => typeof baseline === "number"));
  scope.heads.children[4].textContent = based ? "from baseline" : "from 0";
  scope.left.classList.toggle("rl-scope-long", data.cards.some(({ rows }) => rows.some(({ ends }) => ends?.length)));
  list(scope);
  drawTokens(scope);
}

// Cards in the order that is chosen; those that have nothing to learn from are folded, unless a filter asks for them.
function list(scope) {
  const { data } = scope, filter = now(scope, "filter");
  const said = JSON.stringify([data.cards, data.sorts, now(scope, "sort"), filter, data.chosen, data.range]);
  if (scope.listed === said) return;
  scope.listed = said;
  const order = data.sorts.find(([key]) => key === now(scope, "sort"))[2];
  const kept = new Set(data.filters.find(([key]) => key === filter)[2]);
  const shown = order.filter((place) => kept.has(place)), folds = new Set(filter === "all" ? data.folds : []);
  const open = scope.cards.querySelector("details")?.open ?? false, top = scope.cards.scrollTop;
  const focused = scope.cards.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  scope.cards.replaceChildren(...shown.filter((place) => !folds.has(place)).map((place) => cardOf(scope, place)));
  const folded = shown.filter((place) => folds.has(place));
  if (folded.length) {
    const details = made("details"), all = folded.length === shown.length;
    details.open = open || all || folded.includes(data.chosen[0]);
    details.append(made("summary", "", `${folded.length} ${folded.length === 1 ? "group" : "groups"} ${data.folded}`),
      ...folded.map((place) => cardOf(scope, place)));
    scope.cards.append(details);
  }
  if (!shown.length) scope.cards.append(made("p", "", "None at this step."));
  scope.cards.scrollTop = top;
  if (focused) scope.cards.querySelector(`[data-at="${focused}"]`)?.focus({ preventScroll: true });
}

function cardOf(scope, place) {
  const { asked: told, answer, plays, facts, mark, rows } = scope.data.cards[place];
  const card = made("article", "rl-scope-card"), head = made("header");
  head.append(...asked(told, visible(told.turn)));
  if (answer) {
    const right = made("span", "", plays ? "a solved episode " : "answer ");
    right.append(made("code", "", visible(answer)));
    head.append(right);
  }
  if (facts) head.append(made("span", "", facts));
  if (mark) head.append(made("mark", "", mark));
  card.append(head, ...rows.map((row) => rowOf(scope, place, row)));
  return card;
}

const SIGNS = { " ": "·", "\n": "↵", "\t": "⇥" };
const visible = (text) => text.replace(/^ +| +$|[\n\t]/g, (found) => [...found].map((each) => SIGNS[each]).join("")) ||
  "(empty)";
const plus = (value, digits) => (value > 0 ? "+" : "") + format(value, digits);

function rowOf(scope, place, row) {
  const { chosen, kind } = scope.data, button = made("button", "rl-scope-row");
  const of = row.same ?? [row.at];
  button.type = "button";
  button.dataset.at = `${place}.${row.at}.${row.role ?? ""}`;
  button.setAttribute("aria-current", String(chosen[0] === place && of.includes(chosen[1])));
  button.addEventListener("click", () => {
    scope.pinned = null;
    sendChoice(scope, { prompt: place, completion: row.at });
  });
  const text = writtenOf(row);
  if (row.cut) text.title = "Cut at the length limit";
  if (kind !== "groups") {
    button.classList.add("rl-scope-plain");
    const reward = row.earned === null || row.earned === undefined ? "" : `reward ${format(row.earned, 2)}`;
    button.append(made("b", "", row.role ?? sign(row.exact)), text, made("i", "", reward));
    return button;
  }
  const mark = made("b", row.exact ? "rl-pos" : "rl-muted", sign(row.exact));
  const judged = row.exact !== null && row.exact !== undefined;
  mark.title = judged ? `${row.exact ? "right" : "not right"} (check: ${scope.data.check})` : "";
  const level = Math.abs(row.advantage ?? 0) < 0.005;
  const advantage = made("span", level ? "" : row.advantage > 0 ? "rl-pos" : "rl-neg",
    row.left_out ? "left out" : level ? "0" : plus(row.advantage, 2));
  button.append(mark, text, made("i", "", row.count > 1 ? `×${row.count}` : ""), made("span", "", format(row.earned, 2)),
    barOf(row, scope.data.range), advantage);
  button.setAttribute("aria-label", [text.textContent, mark.title, row.count > 1 && `${row.count} times`,
    `reward ${format(row.earned, 2)}`, row.baseline !== null && `baseline ${format(row.baseline, 2)}`,
    `advantage ${advantage.textContent}`].filter(Boolean).join(", "));
  return button;
}

// A completion: a short one whole, of a long one its first and last line.
function writtenOf({ text, ends: [first, last] = [], cut }) {
  const code = made("code", first === undefined ? "" : "rl-scope-ends");
  const more = cut ? "…" : "";
  if (first === undefined) code.textContent = visible(text) + more;
  else code.append(made("span", "", visible(first) + (last ? "" : more)),
    ...(last ? [made("span", "", `… ${visible(last)}${more}`)] : []));
  return code;
}

const sign = (exact) => (exact === null || exact === undefined ? "" : exact ? "✓" : "✗");

// From the baseline (the tick), or without one from 0, to the reward. The scale is the range of all rewards of the step.
function barOf({ earned, baseline }, [low, high]) {
  const bar = made("div", "rl-scope-bar");
  if (earned === null) return bar;
  const from = baseline ?? 0, least = Math.min(low, from), wide = Math.max(high, from) - least || 1;
  const at = (value) => 100 * (value - least) / wide;
  const part = made("i", earned >= from ? "rl-scope-up" : "rl-scope-down");
  part.style.left = `${Math.min(at(from), at(earned))}%`;
  part.style.width = `${Math.abs(at(earned) - at(from))}%`;
  bar.append(part);
  if (baseline !== null) {
    const tick = made("u");
    tick.style.left = `${at(baseline)}%`;
    bar.append(tick);
    bar.title = `baseline ${format(baseline, 3)}`;
  }
  return bar;
}

// ---- the component ---------------------------------------------------------------------------------------------

export function update({ data, parentElement, setTriggerValue }) {
  let scope = scopes.get(parentElement);
  if (!scope) {
    scope = { root: parentElement.querySelector(".rl-microscope"), mine: {}, pinned: null, over: null };
    scopes.set(parentElement, scope);
    build(scope);
  }
  scope.trigger = setTriggerValue;
  const said = JSON.stringify(data);
  if (scope.drawn === said) return;
  scope.drawn = said;
  const other = scope.data?.run !== data.run || scope.data?.kind !== data.kind;
  for (const name of Object.keys(scope.mine)) if (other || data[name] === scope.mine[name]) delete scope.mine[name];
  scope.data = data;
  draw(scope);
}

export const dispose = disposing(scopes, (scope) => {
  lightTerms(scope, []);
  scope.resized.disconnect();
});
