// A completion's tokens as lines of boxes in a window that scrolls: only the lines in sight are drawn, so that hundreds of
// tokens scroll as smoothly as ten. Arrow keys walk the tokens, Home and End go to the ends.

const LINE = 46, GAP = 4, LEAST = 36, PADDING = 13; // pixels, as in microscope.css
const AROUND = 3; // lines that are drawn above and below those in sight
const FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace";
const pen = document.createElement("canvas").getContext("2d");

function wide(text, size, family) {
  pen.font = `${size}px ${family}`;
  return Math.ceil(pen.measureText(text).width);
}

// `before` is what was drawn of the same tokens: what is unfolded stays so.
function stripOf(scope, side, index, colours, before) {
  const box = made("div", "rl-scope-strip"), all = made("div", "rl-scope-all");
  box.append(all);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${side.role ? `${side.role}: ` : ""}${side.tokens.length} tokens. Arrow keys walk them, ` +
    "Home and End go to the ends.");
  const strip = { scope, side, index, ...colours, box, all, folded: before?.folded ?? true, drawn: new Map() };
  box.addEventListener("scroll", () => drawSight(strip), { passive: true });
  return strip;
}

// ---- the layout ------------------------------------------------------------------------------------------------

// What stands side by side: a token with the further parts of its character, or the fold of the thinking.
function itemsOf({ side, folded, view }) {
  const { tokens, thought } = side, items = [];
  const font = getComputedStyle(document.body).fontFamily;
  for (let place = 0; place < tokens.length; place += 1) {
    if (thought?.[0] === place) {
      items.push({ fold: true, places: [], widths: [wide(foldName(thought, folded), 13, font) + 18] });
      if (folded) { place = thought[1] - 1; continue; }
    }
    const width = Math.max(LEAST, wide(tokens[place], 15, FONT) + PADDING, wide(numberOf(side, place, view), 12, font) +
      PADDING);
    const last = items.at(-1);
    if (tokens[place] === "" && last && !last.fold) {
      last.places.push(place);
      last.widths.push(LEAST);
    } else items.push({ places: [place], widths: [width] });
  }
  return items;
}

// The items line by line: a line ends where there is no room, and after a line break of the text.
function brokenInto(items, room, tokens) {
  const lines = [[]];
  let used = 0;
  for (const item of items) {
    item.widths = item.widths.map((width) => Math.min(width, room));
    const width = item.widths.reduce((sum, each) => sum + each, 0);
    if (lines.at(-1).length && used + width > room) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push(item);
    used += width + GAP;
    if (item.places.some((place) => tokens[place].includes("↵"))) {
      lines.push([]);
      used = 0;
    }
  }
  return lines.filter((line) => line.length);
}

function lay(strip, top) {
  const room = strip.box.clientWidth - 6, said = JSON.stringify([room, strip.folded]);
  if (room <= 0 || strip.laid === said) return;
  strip.laid = said;
  strip.lines = brokenInto(itemsOf(strip), room, strip.side.tokens);
  strip.all.style.height = `${strip.lines.length * LINE - GAP}px`;
  strip.drawn.clear();
  strip.all.replaceChildren();
  if (top) strip.box.scrollTop = top;
  drawSight(strip);
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function drawSight(strip) {
  const { box, lines, drawn, all } = strip;
  if (!lines) return;
  strip.top = box.scrollTop;
  const first = Math.max(0, Math.floor(strip.top / LINE) - AROUND);
  const last = Math.min(lines.length - 1, Math.floor((strip.top + box.clientHeight) / LINE) + AROUND);
  for (const [at, line] of drawn) {
    if ((at < first || at > last) && !line.contains(document.activeElement)) {
      line.remove();
      drawn.delete(at);
    }
  }
  const fresh = [];
  for (let at = first; at <= last; at += 1) {
    if (drawn.has(at)) continue;
    const line = lineOfItems(strip, lines[at], at);
    drawn.set(at, line);
    fresh.push(line);
  }
  all.append(...fresh);
  if (fresh.length) markTokens(strip.scope, fresh);
}

function lineOfItems(strip, items, at) {
  const line = made("div", "rl-scope-tokens");
  line.style.top = `${at * LINE}px`;
  line.append(...items.map((item) => {
    if (item.fold) return foldOf(strip);
    const boxes = item.places.map((place, part) => tokenOf(strip, place, item.widths[part]));
    if (boxes.length === 1) return boxes[0];
    const joined = made("span", "rl-scope-joined");
    joined.append(...boxes);
    return joined;
  }));
  return line;
}

const isFolded = ({ side: { thought }, folded }, place) => folded && thought && place >= thought[0] && place < thought[1];
const foldName = ([start, stop], folded) => `${folded ? "+" : "−"} thinking, ${format(stop - start, 0)} tokens`;

function foldOf(strip) {
  const button = made("button", "rl-scope-fold", foldName(strip.side.thought, strip.folded));
  button.type = "button";
  button.dataset.token = `${strip.index}.fold`;
  button.setAttribute("aria-expanded", String(!strip.folded));
  return button;
}

function unfold(strip) {
  strip.folded = !strip.folded;
  lay(strip, strip.box.scrollTop);
  drawToken(strip.scope);
  focusOn(strip.scope, `${strip.index}.fold`);
}

const OBSERVED = "observation, not learnt from";

function numberOf({ values, observed }, place, view) {
  const value = values[view?.[0]]?.[place];
  if (value === undefined || observed?.[place]) return "–";
  const [, , unit, signed, centre] = view;
  return (signed && !centre ? plus(value, 2) : format(value, 2)) + (unit === "%" ? " %" : "");
}

// A token's text; of a further part of a character which character it is of.
function nameOf({ tokens }, place) {
  let first = place;
  while (first > 0 && tokens[first] === "") first -= 1;
  let last = first;
  while (tokens[last + 1] === "") last += 1;
  const text = tokens[first] || "∅";
  return first === last ? text : `${text}, part ${place - first + 1} of ${last - first + 1}`;
}

function tokenOf({ side, index, view, reach }, place, width) {
  const button = made("button"), cut = side.cut[place], number = numberOf(side, place, view);
  const [key, label = "", , signed = false, centre = 0] = view ?? [], value = side.values[key]?.[place];
  const share = value === undefined ? 0 : (value - centre) / reach;
  const hue = signed && share < 0 ? "light-dark(#E69F00,#F2B84B)" : "light-dark(#0072B2,#4FA8E0)";
  button.type = "button";
  button.dataset.token = `${index}.${place}`;
  if (cut) button.dataset.cut = cut;
  if (side.observed?.[place]) button.dataset.observed = "";
  button.style.width = `${width}px`;
  if (!side.observed?.[place]) button.style.background =
    `color-mix(in srgb,${hue} ${Math.round(Math.abs(share) * 45)}%,transparent)`;
  const text = side.tokens[place];
  button.append(made("code", "", text || (side.tokens.length === 1 || place === 0 ? "∅" : "")), made("small", "", number));
  button.setAttribute("aria-label", `token ${place + 1}, ${nameOf(side, place)}, ` +
    (side.observed?.[place] ? OBSERVED : `${label} ${number}${cut ? ", cut off" : ""}`));
  return button;
}

// Which of the drawn tokens is looked at, and the one that Tab reaches; `lines` are those that were not drawn before.
function markTokens(scope, lines = [scope.sides]) {
  const key = scope.looked;
  for (const each of lines.flatMap((line) => [...line.querySelectorAll("[data-token]")])) {
    const at = each.dataset.token;
    if (!at.endsWith("fold")) each.setAttribute("aria-pressed", String(at === (scope.pinned ?? key)));
    each.toggleAttribute("data-over", at === key);
    each.tabIndex = at === key ? 0 : -1;
  }
  for (const { box } of scope.strips) {
    if (!box.querySelector('[tabindex="0"]')) box.querySelector("[data-token]")?.setAttribute("tabindex", "0");
  }
}

// ---- keys ------------------------------------------------------------------------------------------------------

const keysOf = (item, index) => (item.fold ? [`${index}.fold`] : item.places.map((place) => `${index}.${place}`));

function walk(scope, event) {
  const key = event.target.dataset?.token;
  const to = key && targetOf(scope, key, event.key);
  if (!to) return;
  event.preventDefault();
  event.stopPropagation(); // the page's own arrow keys move its step
  focusOn(scope, to);
}

// Which token a key leads to; undefined where it is no key of the strip.
function targetOf(scope, key, pressed) {
  const index = Number(key.split(".")[0]), { lines } = scope.strips[index];
  const rows = lines.map((items) => items.flatMap((item) => keysOf(item, index))), all = rows.flat();
  const at = all.indexOf(key), row = rows.findIndex((keys) => keys.includes(key));
  const above = (by) => {
    const keys = rows[Math.max(0, Math.min(rows.length - 1, row + by))];
    return keys[Math.min(keys.length - 1, rows[row].indexOf(key))];
  };
  const moves = { ArrowLeft: () => all[Math.max(0, at - 1)], ArrowRight: () => all[Math.min(all.length - 1, at + 1)],
    Home: () => all[0], End: () => all.at(-1), ArrowUp: () => above(-1), ArrowDown: () => above(1),
    PageUp: () => above(-6), PageDown: () => above(6) };
  return moves[pressed]?.();
}

// Scroll the token's line into sight, draw it, and give it the focus.
function focusOn(scope, key) {
  const index = Number(key.split(".")[0]), strip = scope.strips[index];
  const line = strip?.lines?.findIndex((items) => items.some((item) => keysOf(item, index).includes(key))) ?? -1;
  if (line < 0) return;
  const { box } = strip, top = line * LINE;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + LINE > box.scrollTop + box.clientHeight) box.scrollTop = top + LINE - box.clientHeight;
  drawSight(strip);
  box.querySelector(`[data-token="${key}"]`)?.focus({ preventScroll: true });
}
