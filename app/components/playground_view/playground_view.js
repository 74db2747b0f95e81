// Answers side by side: rows are answers drawn with the same random numbers, columns are models.
//
// A token's colour is log π/π_base, blue where the model likes it better than its base and orange where less, always
// with its number. Hover over a token, or walk the tokens with the arrow keys, for the bars of the likeliest ones.
// Served as one with component.js (theme, format).

const views = new WeakMap();
const SIGNS = { " ": "·", "\n": "↵", "\t": "⇥", "\r": "␍" };
const HUES = { up: ["#0072B2", "#4FA8E0"], down: ["#E69F00", "#F2B84B"], base: ["#8A939D", "#8A939D"] };
const FULL = 55; // percent of the hue in the strongest colour

const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const named = (column, token) => (column.ends.includes(token) ? "end" : visible(token));
const visible = (text) => [...text].map((letter) => SIGNS[letter] ?? letter).join("") || "∅";

// The first and the last token of the character that a token is a part of: further parts of one are empty.
function partsOf({ tokens }, place) {
  let first = place, last = place;
  while (first > 0 && tokens[first] === "") first -= 1;
  while (tokens[last + 1] === "") last += 1;
  return [first, last];
}

// A token in words; of a part of a character which one it is of.
function wordOf(column, answer, place) {
  const [first, last] = partsOf(answer, place), word = named(column, answer.tokens[first]);
  return first === last ? word : `${word}, part ${place - first + 1} of ${last - first + 1}`;
}
const signed = (value, digits = 2) => (value > 0 ? "+" : "") + format(value, digits);

function tint(value, reach, dark) {
  const share = Math.min(1, Math.abs(value) / reach);
  return `color-mix(in srgb, ${HUES[value < 0 ? "down" : "up"][dark]} ${Math.round(FULL * share)}%, transparent)`;
}

// ---- one token -------------------------------------------------------------------------------------------------

const ownOf = ({ tokens, observed }) => tokens.length - (observed ?? []).filter(Boolean).length;
const ratioOf = (answer, place) => answer.logprobs[place] - answer.base_logprobs[place];

function numbers(answer, place) {
  return `log π ${format(answer.logprobs[place], 2)}, base ${format(answer.base_logprobs[place], 2)}: ` +
    `${signed(ratioOf(answer, place))} nats`;
}

function chip(view, column, answer, place) {
  const token = answer.tokens[place], word = wordOf(column, answer, place), part = token === "" && place > 0;
  const button = make("button", undefined, column.ends.includes(token) ? "rl-end" : part ? "rl-part" : "");
  button.type = "button";
  button.tabIndex = place ? -1 : 0;
  if (answer.observed?.[place]) {
    button.classList.add("rl-observed");
    button.append(make("code", part ? " " : named(column, token)), make("small", "–"));
    button.title = "observation, not the model's";
    button.setAttribute("aria-label", `${word}, token ${place + 1}, ${button.title}`);
    button.addEventListener("keydown", (event) => walk(view, button, event));
    return button;
  }
  button.style.background = tint(ratioOf(answer, place), view.data.reach, view.dark);
  button.append(make("code", part ? " " : named(column, token)), make("small", signed(ratioOf(answer, place))));
  button.setAttribute("aria-label", `${word}, token ${place + 1} of ${answer.tokens.length}, ` +
    numbers(answer, place));
  const open = () => panel(view, button, column, answer, place);
  button.addEventListener("pointerenter", open);
  button.addEventListener("focus", open);
  button.addEventListener("pointerleave", () => close(view));
  button.addEventListener("blur", () => close(view));
  button.addEventListener("keydown", (event) => walk(view, button, event));
  return button;
}

function walk(view, button, event) {
  const all = [...button.closest(".rl-chips").querySelectorAll("button:not([hidden])")], place = all.indexOf(button);
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1 }[event.key];
  if (event.key === "Escape") close(view);
  if (all[next]) {
    event.preventDefault();
    all[next].focus();
  }
}

// ---- the bars of a position --------------------------------------------------------------------------------------

function bar(value, colour) {
  const line = make("i");
  line.style.cssText = `width:${Math.max(0.5, 100 * value)}%;background:${colour}`;
  return line;
}

function panel(view, button, column, answer, place) {
  const { box } = view, own = column.colour[view.dark], base = HUES.base[view.dark];
  close(view);
  const tip = make("div", undefined, "rl-asked-panel");
  tip.setAttribute("role", "tooltip");
  tip.id = "rl-asked-tip"; // one at a time
  button.setAttribute("aria-describedby", tip.id);
  const bars = make("div", undefined, `rl-asked-bars${column.base ? " rl-alone" : ""}`);
  bars.append(make("span"), make("em", `π of ${column.letter}`), ...(column.base ? [] : [make("em", "π of the base")]));
  answer.top[place].forEach(([token, p, q], at) => {
    const chosen = answer.chosen ? answer.chosen[place] === at : token === answer.tokens[place];
    bars.append(make("code", named(column, token), chosen ? "rl-chosen" : ""), bar(p, own),
      make("span", asPercent(p)), ...(column.base ? [] : [bar(q, base), make("span", asPercent(q))]));
  });
  tip.append(make("h5", `${wordOf(column, answer, place)} · token ${place + 1} of ${answer.tokens.length}`),
    make("p", numbers(answer, place)), bars);
  box.append(tip);
  const at = button.getBoundingClientRect(), root = box.getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(at.left - root.left, root.width - tip.offsetWidth))}px`;
  const below = at.bottom - root.top + 8, above = at.top - root.top - tip.offsetHeight - 8;
  const fits = at.bottom + 8 + tip.offsetHeight < window.innerHeight || at.top < tip.offsetHeight + 8;
  tip.style.top = `${fits ? below : above}px`;
  view.tip = tip;
  button.classList.add("rl-on");
  view.on = button;
}

function close(view) {
  view.tip?.remove();
  view.on?.classList.remove("rl-on");
  view.on?.removeAttribute("aria-describedby");
  view.tip = view.on = null;
}

// ---- the page ----------------------------------------------------------------------------------------------------

function letter(column, dark) {
  const mark = make("span", column.letter, "rl-letter");
  mark.style.cssText = `background:${column.colour[dark]};color:${column.ink[dark]}`;
  return mark;
}

function verdict(answer, check) {
  if (answer.exact === null) return make("span", "not judged");
  const said = make("b", answer.exact ? "✓ right" : "✗ wrong", answer.exact ? "rl-pos" : "");
  said.title = `check: ${check}; reward ${format(answer.reward, 2)}`;
  return said;
}

function cell(view, column, answer) {
  const element = make("div", undefined, "rl-asked-cell");
  const line = make("p");
  const whole = answer.logprob - answer.base_logprob;
  line.append(letter(column, view.dark), verdict(answer, view.data.check));
  if (answer.reward !== null && answer.reward % 1) line.append(make("span", `reward ${format(answer.reward, 2)}`));
  line.append(make("span", `log π ${format(answer.logprob, 2)}`), make("span", `log-ratio to the base ${signed(whole)}`),
    make("span", `${ownOf(answer)} ${ownOf(answer) === 1 ? "token" : "tokens"}` +
      (answer.truncated ? ", cut" : "")));
  line.lastChild.title = answer.truncated ? "Cut at the length limit." : "The end token counts as one.";
  line.children[line.children.length - 2].title = "Log-ratio of the whole answer: log π − log π of the base, in nats";
  const chips = make("div", undefined, "rl-chips");
  chips.setAttribute("role", "group");
  chips.setAttribute("aria-label", `${column.letter}, ${column.title}: ${answer.text}`);
  const boxes = answer.tokens.map((_, place) => chip(view, column, answer, place));
  const [start, stop] = answer.thought ?? [0, 0];
  if (stop) chips.append(thinkingOf(boxes.slice(start, stop)));
  chips.append(...boxes.slice(stop));
  element.append(line, chips);
  return element;
}

// The tokens of the thinking, folded until they are asked for.
function thinkingOf(boxes) {
  const fold = make("details", undefined, "rl-fold"), inside = make("div", undefined, "rl-chips");
  inside.append(...boxes);
  fold.append(make("summary", `thinking, ${format(boxes.length, 0)} tokens`), inside);
  return fold;
}

function legend(view) {
  const { reach } = view.data, line = make("div", undefined, "rl-asked-legend"), scale = make("i");
  const stops = [-1, -0.5, 0, 0.5, 1].map((at) => tint(at * reach, reach, view.dark));
  scale.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  scale.setAttribute("role", "img");
  scale.setAttribute("aria-label", `colours from ${format(-reach, 1)} to ${format(reach, 1)} nats`);
  line.append(make("span", `${format(-reach, 1)}`), scale, make("span", `+${format(reach, 1)} nats`),
    make("small", "log-ratio of each token to the base. Blue: likelier than under the base. Orange: less likely."));
  return line;
}

function draw(view) {
  const { box, data } = view;
  close(view);
  box.classList.toggle("rl-stale", data.stale);
  const grid = make("div", undefined, "rl-asked-grid");
  grid.style.setProperty("--columns", data.columns.length);
  for (const column of data.columns) {
    const head = make("div", undefined, "rl-asked-head");
    const judged = column.answers.filter((answer) => answer.exact !== null);
    const score = `${judged.filter((answer) => answer.exact).length} of ${judged.length} right`;
    head.append(letter(column, view.dark), make("b", column.title),
      make("small", [judged.length && score, column.run].filter(Boolean).join(" · ")));
    head.title = column.name; // as the command line knows it
    grid.append(head);
  }
  data.columns[0].answers.forEach((_, row) => {
    for (const column of data.columns) if (column.answers[row]) grid.append(cell(view, column, column.answers[row]));
  });
  box.replaceChildren(legend(view), grid);
}

export function update({ data, parentElement }) {
  const root = parentElement.querySelector(".rl-playground-view");
  let view = views.get(parentElement);
  if (!view?.box.isConnected) {
    root.replaceChildren(make("div", undefined, "rl-asked"));
    view = { box: root.firstChild, seen: "" };
    views.set(parentElement, view);
  }
  const dark = theme(root).dark ? 1 : 0, seen = JSON.stringify(data) + dark;
  if (seen === view.seen) return; // the same again: what is focused stays focused
  Object.assign(view, { data, dark, seen });
  draw(view);
}

export const dispose = disposing(views);
