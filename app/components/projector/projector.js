// The projector: one part of the page on the whole screen, scaled so that its type can be read from the back row.
//
// The part stays where it is in the page's tree, so the component that draws it goes on drawing; as a popover it is
// above everything. A chart of curves gets the room of the screen (`data-room`, in pixels before scaling) and draws itself
// anew on "rl-projected"; all other parts are enlarged as they are. The scrubber hears ← and → as on the page.

const projectors = new WeakMap();

const CURVES = ".rl-live-chart figure, .rl-compare-chart figure";
const PARTS = `${CURVES}, .rl-maze-board, .rl-world-player, .rl-story-strip, .rl-figure-chart, .rl-surrogate-explorer`;
const ICON = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M1 2h14v1.5H1zM2 4h12v7H2zm1.5 1.5v4h9v-4z' +
  'M7.3 11h1.4l2.6 3.5H9.6L8 12.4l-1.6 2.1H4.7z"/></svg>';
// In pixels before they are enlarged: how high a chart of curves is, and how wide the other parts have to be.
const LINES = 400;
const LEAST = [[".rl-maze-board", 460], [".rl-story-strip", 860], [".rl-world-player", 760], [".rl-figure-chart", 620]];
const MOST = 3; // times that a part is enlarged
const BAR = 66, EDGE = 28; // pixels on the screen: the bar below, and the room at the sides
const NEEDS_KEYS = "input:not([type=range]),textarea,select,[contenteditable=true],[role=combobox],[role=option]";
const STEPS = { PageUp: "ArrowLeft", PageDown: "ArrowRight" }; // the keys of a presenter

let shown = null; // { part, style } while something is projected

const bar = document.createElement("div");
bar.className = "rl-projected-bar";
bar.popover = "manual";
bar.innerHTML = `<button type="button" title="Previous (↑)">‹</button><span></span><small><span>← → step · </span>↑ ↓ switch
  · Esc closes</small><button type="button" title="Next (↓)">›</button>
  <button type="button" title="Close (Esc)">✕</button>`;
const [before, said, keys, after, close] = bar.children;
before.addEventListener("click", () => turn(-1));
after.addEventListener("click", () => turn(1));
close.addEventListener("click", leave);

// What can be shown, in the page's order: what is seen, and within another part only once.
function parts() {
  const there = [...document.querySelectorAll(PARTS)].filter((part) => part === shown?.part || part.checkVisibility() &&
    part.offsetHeight > 40);
  return there.filter((part) => !there.some((other) => other !== part && other.contains(part)));
}

// The largest chart of curves of which half is seen, else the part nearest to the middle of the window.
function largest() {
  const apart = (part) => {
    const { top, bottom } = part.getBoundingClientRect();
    return Math.abs((top + bottom) / 2 - innerHeight / 2);
  };
  const size = (part) => part.offsetWidth * part.offsetHeight;
  const curves = parts().filter((part) => part.matches(CURVES) && apart(part) <= innerHeight / 2);
  return curves.sort((a, b) => size(b) - size(a) || apart(a) - apart(b))[0] ?? parts().sort((a, b) => apart(a) - apart(b))[0];
}

function turn(by) {
  const there = parts(), at = there.indexOf(shown?.part);
  if (there.length) project(there[(at + by + there.length) % there.length]);
}

function project(part) {
  if (!part) return;
  leave();
  shown = { part, style: part.getAttribute("style") };
  part.popover = "manual";
  part.classList.add("rl-projected");
  part.showPopover();
  fit();
  document.body.append(bar);
  bar.showPopover();
  close.focus({ preventScroll: true });
  tell();
}

function fit() {
  const { part } = shown, [width, height] = [innerWidth - 2 * EDGE, innerHeight - BAR - EDGE];
  if (part.matches(CURVES)) {
    const scale = Math.max(1, height / LINES);
    part.dataset.room = height / scale - (part.querySelector("figcaption")?.offsetHeight ?? 0);
    Object.assign(part.style, { width: `${width / scale}px`, ...placed(EDGE, EDGE, scale) });
  } else {
    const wide = Math.max(width / MOST, LEAST.find(([parts]) => part.matches(parts))?.[1] ?? 900);
    part.style.width = `${wide}px`; // so it is laid out, and then enlarged as far as there is room
    const scale = Math.min(width / wide, height / part.offsetHeight);
    Object.assign(part.style, placed((innerWidth - scale * wide) / 2, (innerHeight - BAR - scale * part.offsetHeight) / 2,
      scale));
  }
  document.dispatchEvent(new CustomEvent("rl-projected"));
}

const placed = (left, top, scale) => ({ left: `${left}px`, top: `${Math.max(top, 8)}px`, transform: `scale(${scale})` });

function leave() {
  if (!shown) return;
  const { part, style } = shown;
  shown = null;
  if (part.matches(":popover-open")) part.hidePopover();
  part.classList.remove("rl-projected");
  part.removeAttribute("popover");
  delete part.dataset.room;
  if (style === null) part.removeAttribute("style");
  else part.setAttribute("style", style);
  bar.remove();
  document.dispatchEvent(new CustomEvent("rl-projected"));
}

// Of which step it is, in the words of the scrubber; of a comparison, whose line is whose.
function tell() {
  if (shown && !shown.part.isConnected) leave();
  const step = document.querySelector(".rl-scrubber output")?.textContent;
  const now = document.querySelector(".rl-goal strong")?.textContent.trim(); // how far the run is
  said.textContent = [step && step[0].toUpperCase() + step.slice(1), now].filter(Boolean).join(" · ");
  keys.firstElementChild.hidden = !step;
  if (!shown?.part.closest(".rl-compare-chart")) return;
  const ahead = document.querySelector(".rl-headline")?.firstChild?.textContent ?? "";
  said.append(...[...document.querySelectorAll(".rl-legend button:not(.rl-off)")].map((button) => {
    const name = document.createElement("i");
    name.append(...[...button.querySelectorAll("svg, b")].map((each) => each.cloneNode(true)));
    return name;
  }), ahead);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.defaultPrevented) return;
  const at = event.composedPath()[0], { key } = event;
  if (at instanceof Element && at.matches(NEEDS_KEYS) || document.querySelector("[role=dialog]")) return;
  const bound = shown ? { Escape: leave, p: leave, P: leave, ArrowUp: () => turn(-1), ArrowDown: () => turn(1) }
    : { p: () => project(largest()), P: () => project(largest()) };
  if (shown && STEPS[key]) bound[key] = () => document.dispatchEvent(new KeyboardEvent("keydown", { key: STEPS[key] }));
  if (!bound[key]) return;
  event.preventDefault();
  bound[key]();
}

const refit = () => shown && fit();

let mounted = 0; // a page that gives way to another may go after that one has come

export function update({ data, parentElement }) {
  if (projectors.has(parentElement)) return;
  const root = parentElement.querySelector(".rl-projector"), button = document.createElement("button");
  Object.assign(button, { type: "button", title: `${data.help} (${data.shortcut})`, innerHTML: ICON });
  button.setAttribute("aria-label", data.label);
  button.addEventListener("click", () => project(largest()));
  root.replaceChildren(button);
  projectors.set(parentElement, root);
  mounted += 1;
  document.addEventListener("keydown", pressed); // once, however many there are
  document.addEventListener("rl-row", tell);
  addEventListener("resize", refit);
}

export const dispose = disposing(projectors, () => {
  mounted -= 1;
  if (mounted) { tell(); return; } // it leaves a part that is gone
  leave();
  document.removeEventListener("keydown", pressed);
  document.removeEventListener("rl-row", tell);
  removeEventListener("resize", refit);
});
