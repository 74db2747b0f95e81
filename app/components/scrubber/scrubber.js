// The scrubber: which step the page shows.
//
// Charts move with the hand: they listen for "rl-step" on the document. All else comes with the server's answer. The
// charts send the run's last step ("rl-row"), so that both show the same one.

const scrubbers = new WeakMap();
const ASK = 140; // ms between two questions to the server while the slider is dragged
const SETTLE = 4000; // ms after which an answer that did not come is not waited for
const NEEDS_KEYS = "input,textarea,select,canvas,[contenteditable=true],[role=slider],[role=tab],[role=radio]," +
  "[role=combobox],[role=option]";

const icon = (path) => `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${path}"/></svg>`;

function build(bar) {
  bar.root.setAttribute("role", "group");
  bar.root.setAttribute("aria-label", "The step that the page shows");
  bar.root.innerHTML = `<button type="button" title="One step back (←)" aria-label="One step back">${icon("M11 2L4 8l7 6z")}</button>
    <div class="rl-track"><input type="range" step="1" aria-label="Step"></div>
    <button type="button" title="One step forward (→)" aria-label="One step forward">${icon("M5 2l7 6-7 6z")}</button>
    <output></output><button type="button" class="rl-newest"></button>`;
  const [back, forward, newest] = bar.root.querySelectorAll("button");
  Object.assign(bar, { back, forward, newest, input: bar.root.querySelector("input"),
    track: bar.root.querySelector(".rl-track"), output: bar.root.querySelector("output") });
  back.addEventListener("click", () => move(bar, -1));
  forward.addEventListener("click", () => move(bar, 1));
  newest.addEventListener("click", () => choose(bar, null));
  bar.input.addEventListener("input", () => choose(bar, Number(bar.input.value)));
  bar.pressed = (event) => pressed(bar, event);
  document.addEventListener("keydown", bar.pressed);
  bar.onRow = ({ detail: { run, last } }) => { if (run === bar.data.run) reach(bar, last); };
  document.addEventListener("rl-row", bar.onRow);
}

function reach(bar, last) {
  if (last <= bar.data.last) return;
  bar.data = { ...bar.data, last };
  show(bar);
}

// ←, →, Home and End move the clock wherever the focus is, unless what has the focus needs them.
function pressed(bar, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.defaultPrevented) return;
  const at = event.composedPath()[0];
  if (at instanceof Element && at !== bar.input && (at.matches(NEEDS_KEYS) || document.querySelector("[role=dialog]"))) return;
  const moves = { ArrowLeft: () => move(bar, -1), ArrowRight: () => move(bar, 1), End: () => choose(bar, null),
    Home: () => choose(bar, bar.data.first) };
  if (!moves[event.key]) return;
  event.preventDefault();
  moves[event.key]();
}

const shown = (bar) => bar.step ?? bar.data.last;

function move(bar, by) {
  choose(bar, Math.max(bar.data.first, Math.min(bar.data.last, shown(bar) + by)));
}

// Show a step at once in the charts, and ask the server for the rest. The last step is the newest, whichever it is.
function choose(bar, step) {
  bar.step = step === null || step >= bar.data.last ? null : step;
  bar.waits = Date.now();
  show(bar);
  document.dispatchEvent(new CustomEvent("rl-step", { detail: { run: bar.data.run, step: bar.step } }));
  bar.asking ??= setTimeout(() => {
    bar.asking = null;
    bar.component.setTriggerValue("step", bar.step ?? 0);
  }, ASK);
}

function show(bar) {
  const { first, last, total, going, marks } = bar.data;
  const step = shown(bar), live = bar.step === null;
  Object.assign(bar.input, { min: first, max: Math.max(last, first + 1), value: step, disabled: last <= first });
  bar.input.setAttribute("aria-valuetext", `step ${step} of ${last}${live ? ", the newest" : ""}`);
  const words = `step ${step.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  if (bar.output.textContent !== words) bar.output.textContent = words;
  bar.back.disabled = step <= first;
  bar.forward.disabled = live;
  bar.newest.textContent = going ? "Live" : "Latest";
  bar.newest.title = live ? "The page shows the newest step" : "Back to the newest step (End)";
  bar.newest.setAttribute("aria-pressed", String(live));
  const drawn = JSON.stringify([marks, first, last]);
  if (drawn === bar.drawn) return;
  bar.drawn = drawn;
  bar.track.querySelectorAll("i").forEach((tick) => tick.remove());
  marks.forEach(([at, text]) => {
    const tick = document.createElement("i");
    // the thumb's middle travels 8 px less than the track on each side
    tick.style.left = `calc(8px + (100% - 16px) * ${(at - first) / Math.max(1, last - first)})`;
    tick.title = text;
    bar.track.append(tick);
  });
}

export function update(component) {
  const { data, parentElement } = component;
  let bar = scrubbers.get(parentElement);
  if (!bar) {
    bar = { root: parentElement.querySelector(".rl-scrubber"), step: null, waits: 0, data };
    scrubbers.set(parentElement, bar);
    build(bar);
  }
  const other = bar.data.run !== data.run;
  if (other) {
    clearTimeout(bar.asking);
    bar.asking = null;
  }
  Object.assign(bar, { component, data });
  const answered = data.at === bar.step || Date.now() - bar.waits > SETTLE;
  if (other || answered) Object.assign(bar, { step: data.at, waits: 0 });
  show(bar);
}

export const dispose = disposing(scrubbers, (bar) => {
  clearTimeout(bar.asking);
  document.removeEventListener("keydown", bar.pressed);
  document.removeEventListener("rl-row", bar.onRow);
});
