// An equation whose terms can be looked at: with the mouse, by touch, and with Tab.
//
// Streamlit draws the LaTeX, each term in a colour of its own. A copy of what it drew takes its place, in which the
// terms are buttons: Streamlit may draw its own anew at any time. Who shows a term's chart hears of "rl-term" on the
// document ({ panel, knob }; null when no term is looked at); the knob is outlined here.

const equations = new WeakMap();

const SIZES = { large: 17, small: 12, wrapped: 15 }; // px

const sourceOf = (root) => root.closest(".st-key-equation")?.querySelector(".st-key-equation_written .katex-display");
const said = (term) => [term.label, term.now].filter(Boolean).join(", ");

function build(equation) {
  const { root } = equation;
  root.innerHTML = `<div class="rl-formula"></div><div class="rl-values"></div>
    <div class="rl-reading"><p></p><div class="rl-tokens"></div><small></small></div>`;
  [equation.formula, equation.values] = root.children;
  [equation.words, equation.tokens, equation.source] = root.querySelector(".rl-reading").children;
  const keyOf = ({ target }) => target.closest("[data-term]")?.dataset.term ?? null;
  root.addEventListener("pointerover", (event) => event.pointerType !== "touch" && look(equation, { over: keyOf(event) }));
  root.addEventListener("pointerleave", () => look(equation, { over: null }));
  root.addEventListener("focusin", (event) =>
    look(equation, { focused: event.target.matches(":focus-visible") ? keyOf(event) : null }));
  root.addEventListener("focusout", () => look(equation, { focused: null }));
  root.addEventListener("click", (event) => pin(equation, keyOf(event)));
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pin(equation, keyOf(event));
  });
  equation.escaped = ({ key }) => key === "Escape" && look(equation, { over: null, focused: null, pinned: null });
  document.addEventListener("keydown", equation.escaped);
  equation.wide = new ResizeObserver(() => fit(equation));
  equation.wide.observe(root);
  equation.watch = new MutationObserver(() => copy(equation));
  equation.watch.observe(root.closest(".st-key-equation"), { childList: true, subtree: true, characterData: true });
}

// What is looked at: what the mouse is over, else what was tapped, else what has the focus.
const active = ({ over, pinned, focused }) => over ?? pinned ?? focused ?? null;

function pin(equation, key) {
  look(equation, equation.pinned === key ? { pinned: null, focused: null } : { pinned: key });
  const term = key && equation.terms.get(key);
  if (term && equation.pinned === key) reveal(knobsOf(term.knob)[0]);
}

function look(equation, change) {
  const before = active(equation);
  Object.assign(equation, change);
  const key = active(equation);
  equation.root.querySelectorAll("[data-term][aria-pressed]").forEach((each) =>
    each.setAttribute("aria-pressed", String(each.dataset.term === equation.pinned)));
  if (key === before) return;
  show(equation);
  const { panel, knob } = equation.terms.get(key) ?? {};
  document.dispatchEvent(new CustomEvent("rl-term", { detail: key ? { panel, knob } : null }));
}

// Streamlit's copy of the equation, with the terms as buttons. All else in it is for the eye: screen readers have the
// MathML beside it.
function copy(equation) {
  const source = sourceOf(equation.root);
  const drawn = source && `${equation.data.terms.map(({ key }) => key)} ${source.innerHTML}`;
  if (!source || drawn === equation.drawn) return;
  equation.drawn = drawn;
  const made = source.cloneNode(true), picture = made.querySelector(".katex-html");
  made.querySelectorAll("[mathcolor]").forEach((each) => each.removeAttribute("mathcolor"));
  picture.removeAttribute("aria-hidden");
  const parts = partsOf(picture, new Map(equation.data.terms.map((term) => [term.colour, term.key])));
  parts.forEach((key, part) => part.closest("[data-term]") || wrap(part, key, parts));
  hideAllBut(picture);
  equation.formula.replaceChildren(made);
  fit(equation);
  name(equation);
  show(equation);
}

// As large as fits in the width; where that is too small, on several lines, and scrolled where it has no place to break.
function fit({ formula }) {
  const drawn = formula.querySelector(".katex");
  const set = (size, wraps) => {
    formula.style.fontSize = `${size}px`;
    formula.toggleAttribute("data-wraps", wraps);
  };
  set(SIZES.large, false);
  if (!drawn || !formula.clientWidth) return;
  const fits = SIZES.large * formula.clientWidth / drawn.getBoundingClientRect().width * 0.99;
  set(Math.min(SIZES.large, fits), false);
  if (fits >= SIZES.small) return;
  set(SIZES.wrapped, true);
  if (formula.scrollWidth > formula.clientWidth) set(SIZES.small, true);
}

// What KaTeX drew of the terms: element -> key. It colours the signs only, so what has no others belongs to them, such
// as a letter with its hat; but the rows in which it stacks them must stay as they are.
function partsOf(picture, codes) {
  const found = [...picture.querySelectorAll("[style*=color]")].map((each) => [each, codes.get(each.style.color)])
    .filter(([, key]) => key);
  const coloured = new Map(found), parts = new Map();
  const within = (box, key) => found.filter(([each, other]) => other === key && box.contains(each) &&
    !coloured.has(each.parentElement)).map(([each]) => each.textContent).join("");
  for (const [sign, key] of found) {
    let part = sign;
    for (let box = sign; !box.matches(".base, .katex-html"); box = box.parentElement) {
      if (bare(box.textContent) !== bare(within(box, key))) break;
      if (!box.matches("[class*=vlist], .vlist > *")) part = box;
    }
    parts.set(part, key);
  }
  found.forEach(([each]) => { each.style.color = ""; });
  return parts;
}

const bare = (text) => text.replaceAll("\u200b", "");

// A term may be several neighbours: they become one button.
function wrap(first, key, parts) {
  const button = document.createElement("span");
  [button.className, button.dataset.term] = ["rl-part", key];
  first.before(button);
  button.append(first);
  const goesOn = (next) => next && (parts.get(next) === key || next.classList?.contains("mspace") &&
    goesOn(next.nextElementSibling));
  while (goesOn(button.nextElementSibling)) button.append(button.nextElementSibling);
}

function hideAllBut(node) {
  for (const child of node.children) {
    if (child.dataset.term) continue;
    if (child.querySelector("[data-term]")) hideAllBut(child);
    else child.setAttribute("aria-hidden", "true");
  }
}

// Tab stops at the first place of each term.
function name(equation) {
  const seen = new Set();
  equation.formula.querySelectorAll("[data-term]").forEach((each) => {
    const key = each.dataset.term, term = equation.terms.get(key);
    if (seen.has(key)) {
      each.setAttribute("aria-hidden", "true");
      return;
    }
    seen.add(key);
    for (const [attribute, value] of Object.entries({ role: "button", tabindex: "0", "aria-label": said(term),
      "aria-pressed": String(key === equation.pinned) })) each.setAttribute(attribute, value);
  });
}

function values(equation) {
  const { terms, beside, step } = equation.data;
  const shown = [...terms, ...beside].filter(({ now }) => now).map(({ key, sign, label, now }) =>
    `<span data-term="${key}" title="${label}"><i>${sign}</i> ${now}</span>`).join("");
  const html = `<b>Current values</b>${step ? `<small>step ${step.toLocaleString("en")}</small>` : ""}${shown}`;
  if (html !== equation.listed) equation.values.innerHTML = html;
  equation.listed = html;
}

function show(equation) {
  const { strips, pair, source } = equation.data, key = active(equation), term = equation.terms.get(key);
  equation.root.querySelectorAll("[data-term]").forEach((each) =>
    each.toggleAttribute("data-lit", each.dataset.term === key));
  const more = term ? [term.now, ...(term.more ?? [])].filter(Boolean).join(" · ") : "";
  equation.words.innerHTML = term ? `<b>${term.label}</b> ${more}`
    : `Hover or tap an underlined term: its ${pair || Object.keys(strips).length ? "tokens, " : ""}chart and knob light up.`;
  const [strip, seen] = strips[term?.view] ?? [Object.values(strips)[0]?.[0] ?? "", ""];
  const html = pair || strip;
  if (html !== equation.strip) equation.tokens.innerHTML = html;
  equation.strip = html;
  equation.tokens.dataset.of = pair ? key ?? "" : seen && "view";
  equation.source.innerHTML = `${pair ? "" : seen}${source}`;
  equation.source.parentElement.toggleAttribute("data-tokens", Boolean(html));
  light(term?.knob);
}

// The widgets of a knob; one that is folded away has the head of what it is folded into.
const knobsOf = (knob) => (knob ? [...document.querySelectorAll(".st-key-knobs [class*=st-key-knob-]")].filter((each) =>
  [...each.classList].some((name) => name.startsWith("st-key-knob-") && name.includes(`-${knob}-`))) : [])
  .map((each) => (each.checkVisibility() ? each : each.closest("details")?.querySelector("summary") ?? each));

function light(knob) {
  document.querySelectorAll("[data-rl-lit]").forEach((each) => each.removeAttribute("data-rl-lit"));
  knobsOf(knob).forEach((each) => each.setAttribute("data-rl-lit", ""));
}

// Bring a knob into view in its own column: the page stays where it is.
function reveal(knob) {
  const column = knob?.closest(".st-key-knobs, .st-key-side");
  const scrolled = [column, column?.closest(".st-key-side")].find((each) => each && each.scrollHeight > each.clientHeight &&
    getComputedStyle(each).overflowY === "auto");
  if (!scrolled) return;
  const at = knob.getBoundingClientRect(), frame = scrolled.getBoundingClientRect();
  const by = at.top < frame.top ? at.top - frame.top - 12 : Math.max(0, at.bottom - frame.bottom + 12);
  scrolled.scrollBy({ top: by, behavior: "smooth" });
}

export function update(component) {
  const { data, parentElement } = component;
  let equation = equations.get(parentElement);
  if (!equation) {
    equation = { root: parentElement.querySelector(".rl-equation-terms") };
    equations.set(parentElement, equation);
    build(equation);
  }
  equation.data = data;
  equation.terms = new Map([...data.terms, ...data.beside].map((term) => [term.key, term]));
  values(equation);
  copy(equation);
  name(equation);
  show(equation);
}

export const dispose = disposing(equations, (equation) => {
  equation.watch.disconnect();
  equation.wide.disconnect();
  document.removeEventListener("keydown", equation.escaped);
  look(equation, { over: null, focused: null, pinned: null });
});
