// A prompt's answers with their bars, and beside them how likely each was over the steps. The heat map is in
// story_heat.js, long answers are in story_verdicts.js; served as one with component.js (theme, format) and chips.js.
//
// Rows are kept by their answer, so that their bars move: at a new step each begins where it was before the update.

const strips = new WeakMap();
const PIN = '<svg viewBox="0 0 16 16" aria-hidden="true"><path ' +
  'd="M5 1h6v1.4l-1 .8v3.6l2 1.9V10H8.7v5h-1.4v-5H4V8.7l2-1.9V3.2l-1-.8z"/></svg>';

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function build(strip) {
  strip.root.innerHTML = `<div class="rl-story-head"><label><span>Prompt</span><select></select></label>
    <button type="button" class="rl-story-pin" aria-label="Keep showing this prompt">${PIN}</button>
    <span class="rl-story-right"></span><span class="rl-story-step"></span></div><div class="rl-story-asked"></div>
    <div class="rl-story-body"><div class="rl-story-answers"><div class="rl-story-names" aria-hidden="true"><i></i>
      <span>answer</span><i></i><span class="rl-story-reward">reward</span><span class="rl-story-adv">advantage</span>
      <span class="rl-story-what"></span></div><ol></ol></div>
      <div class="rl-story-heat"><div class="rl-story-scale"><span></span><em></em><i></i><em></em></div>
      <div class="rl-story-map"><canvas tabindex="0" role="application" aria-roledescription="heat map"></canvas>
      <output aria-hidden="true" hidden></output></div><div class="rl-story-axis"><span></span><span></span></div></div>
      </div>
    <p class="rl-story-says"></p><div class="rl-story-unseen" aria-live="polite"></div>
    <div class="rl-story-empty" hidden></div>`;
  const find = (selector) => strip.root.querySelector(selector);
  Object.assign(strip, { select: find("select"), pin: find(".rl-story-pin"), right: find(".rl-story-right"),
    step: find(".rl-story-step"), list: find("ol"), names: find(".rl-story-what"), heat: find(".rl-story-heat"),
    canvas: find("canvas"), asked: find(".rl-story-asked"), output: find("output"), says: find(".rl-story-says"), spoken: find(".rl-story-unseen"),
    empty: find(".rl-story-empty"), ends: find(".rl-story-axis").children, scale: find(".rl-story-scale").children,
    rows: new Map(), open: new Set() });
  strip.select.addEventListener("change", () => choose(strip, strip.select.value));
  strip.pin.addEventListener("click", () => choose(strip, strip.data.pinned ? "" : strip.data.chosen));
  listen(strip);
  strip.observer = new ResizeObserver(() => paint(strip));
  strip.observer.observe(strip.root);
}

// The server keeps the choice in the link; a count makes the same choice heard twice.
function choose(strip, name) {
  strip.times = (strip.times ?? 0) + 1;
  strip.trigger("chosen", { name, times: strip.times });
}

// ---- the prompt ------------------------------------------------------------------------------------------------

const GROUPS = { watched: "Watched for the whole run, not trained on", batch: "This step's batch" };

function prompts(strip) {
  const { options, chosen, pinned, prompt } = strip.data;
  const said = JSON.stringify([options, pinned || prompt]);
  if (strip.offered !== said) {
    strip.offered = said;
    const auto = new Option(pinned ? "auto: where rewards differ most" : `auto: ${prompt}`, "");
    strip.select.replaceChildren(auto, ...Object.entries(GROUPS).map(([kind, label]) => {
      const group = document.createElement("optgroup");
      group.label = label;
      group.append(...options.filter((each) => each[1].startsWith(kind)).map((each) => new Option(each[2], each[0])));
      return group;
    }).filter((group) => group.children.length));
  }
  strip.select.value = pinned ? chosen : "";
  strip.pin.setAttribute("aria-pressed", String(pinned));
  strip.pin.disabled = !strip.data.lasting; // a prompt of a batch is in the next one no more
  strip.pin.title = pinned ? "Let the strip choose the prompt whose rewards differ most" : "Keep showing this prompt";
}

// The last user turn, with the whole prompt behind it; of a prompt that the list above shows in full nothing.
function showPrompt(strip) {
  const { asked: told, prompt } = strip.data, said = JSON.stringify(told);
  strip.asked.hidden = !told.parts.length && told.turn === prompt;
  if (strip.told === said) return;
  strip.told = said;
  strip.asked.replaceChildren(...asked(told, shown(told.turn)));
}

// ---- the answers -----------------------------------------------------------------------------------------------

const signed = (value) => (value > 0 ? "+" : "") + format(value, 2);
const shown = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "⇥") || "(empty)";
const nameOf = ({ text, cut, rest }) => (rest ? "all others" : shown(text) + (cut ? "…" : ""));

function makeRow() {
  const row = element("li", "");
  row.innerHTML = '<b></b><code></code><i></i><span class="rl-story-reward"></span><span class="rl-story-adv"></span>' +
    '<div class="rl-story-bar"><i></i><i></i><u></u></div><span class="rl-story-words"></span>';
  const [mark, text, count, reward, advantage, bar, words] = row.children;
  const [base, change, tick] = bar.children;
  return { row, mark, text, count, reward, advantage, bar, base, change, tick, words };
}

// The sign before an answer, its colour, and what it says: what was verified too.
function markOf({ exact }, check) {
  if (exact === null) return ["", "", ""];
  return exact ? ["✓", "rl-pos", `right (check: ${check})`] : ["✗", "rl-muted", `not right (check: ${check})`];
}

// A step of an answer, coloured by its score; underlined where the verifier says that it is wrong.
function stepOf([text, score, gold]) {
  const step = element("span", "rl-story-step-of", text ? shown(text) : "⏎");
  step.style.setProperty("--rl-score", `${Math.round(200 * Math.abs(score - 0.5))}%`);
  step.classList.toggle("rl-story-low", score < 0.5);
  step.classList.toggle("rl-story-wrong", gold === 0);
  return step;
}

const verdictOf = (gold) => (gold === null ? "" : `, verifier: ${gold ? "right" : "wrong"}`);
const scoresOf = (steps) => (steps.length ? "\nScores of the steps:" : "") + steps.map(([text, score, gold]) =>
  `\n${text ? shown(text) : "⏎ end"}  ${format(score, 2)}${verdictOf(gold)}`).join("");

function fill(parts, row, check) {
  const { text, cut, exact, role, count, reward, advantage, rest } = row;
  const [sign, look, meaning] = markOf(row, check), level = Math.abs(advantage ?? 0) < 0.005;
  parts.mark.textContent = sign;
  parts.mark.className = look;
  parts.mark.title = meaning;
  if (row.steps.length) parts.text.replaceChildren(...row.steps.map(stepOf), cut ? "…" : "");
  else parts.text.textContent = nameOf(row);
  parts.text.title = rest ? "" : text + (cut ? " (cut at the length limit)" : "") + scoresOf(row.steps);
  parts.text.classList.toggle("rl-story-rest", rest);
  parts.count.textContent = [role, count && `×${count}`].filter(Boolean).join(" ");
  parts.reward.textContent = reward ?? (rest ? "" : "–");
  parts.reward.title = row.earned ?? "";
  parts.advantage.textContent = advantage === null ? (rest ? "" : "–") : level ? "0" : signed(advantage);
  parts.advantage.classList.toggle("rl-pos", !level && advantage > 0);
  parts.advantage.classList.toggle("rl-neg", !level && advantage < 0);
  parts.bar.hidden = row.before === null;
  parts.words.textContent = row.said.join(" → ");
  parts.row.classList.toggle("rl-story-other", !count && !exact && !role && !rest);
  parts.row.setAttribute("aria-label", [nameOf(row), role, meaning, count ? `${count} times` : "not sampled",
    reward !== null && `reward ${reward}`, row.earned, advantage !== null && `advantage ${parts.advantage.textContent}`,
    parts.words.textContent].filter(Boolean).join(", "));
}

// The bar at its probability before the update, then on its way to the one after it.
function place({ base, change, tick }, before, after) {
  const low = Math.min(before, after);
  base.style.width = `${100 * low}%`;
  change.style.left = `${100 * low}%`;
  change.style.width = `${100 * Math.abs(after - before)}%`;
  change.className = after >= before ? "rl-story-up" : "rl-story-down";
  tick.style.left = `${100 * before}%`;
}

function answers(strip, moved) {
  const { rows, low } = strip.data;
  strip.names.textContent = low ? "log-prob before → after, nats" : "probability before → after";
  const kept = new Map(rows.map((row) => {
    const key = JSON.stringify([row.text, row.cut, row.rest]);
    return [key, strip.rows.get(key) ?? makeRow()];
  }));
  for (const [key, parts] of strip.rows) if (!kept.has(key)) parts.row.remove();
  [...kept.values()].forEach((parts, i) => {
    if (strip.list.children[i] !== parts.row) strip.list.insertBefore(parts.row, strip.list.children[i] ?? null);
    fill(parts, rows[i], strip.data.check);
  });
  strip.rows = kept;
  for (const row of [...strip.list.children].slice(kept.size)) row.remove(); // of long answers
  const bars = [...kept.values()].map((parts, i) => [parts, rows[i]]).filter(([, row]) => row.before !== null);
  if (moved) {
    strip.list.classList.add("rl-story-still");
    for (const [parts, row] of bars) place(parts, row.before, row.before);
    void strip.list.offsetWidth; // the browser takes note of where they begin
    strip.list.classList.remove("rl-story-still");
  }
  for (const [parts, row] of bars) place(parts, row.before, row.after ?? row.before);
}

// ---- the component ---------------------------------------------------------------------------------------------

export function update({ data, parentElement, setTriggerValue }) {
  let strip = strips.get(parentElement);
  if (!strip) {
    strip = { root: parentElement.querySelector(".rl-story-strip"), cursor: null };
    strips.set(parentElement, strip);
    build(strip);
  }
  strip.trigger = setTriggerValue;
  const said = JSON.stringify(data);
  if (strip.said === said) return;
  const before = strip.data;
  Object.assign(strip, { said, data });
  strip.empty.hidden = !data.empty;
  strip.empty.textContent = data.empty ?? "";
  strip.root.classList.toggle("rl-story-bare", Boolean(data.empty));
  if (data.empty) return;
  prompts(strip);
  strip.right.innerHTML = "";
  if (data.answer) strip.right.append(data.plays ? "a solved episode " : "right answer ", element("code", "", shown(data.answer)));
  strip.step.title = data.late ? `The newest that are kept up to step ${format(data.step + data.late, 0)}` : "";
  strip.step.textContent = `${data.plays ? "episodes" : "answers"} of step ${format(data.step, 0)}`;
  showPrompt(strip);
  strip.root.classList.toggle("rl-story-played", Boolean(data.plays));
  strip.root.classList.toggle("rl-story-plain", !data.advantages);
  strip.root.classList.toggle("rl-story-unjudged", !data.rewards);
  strip.root.classList.toggle("rl-story-long", Boolean(data.verdicts));
  if (before?.run !== data.run || before.chosen !== data.chosen) strip.open.clear();
  if (data.verdicts) verdicts(strip);
  else answers(strip, before?.verdicts || before?.run !== data.run || before.step !== data.step || before.chosen !== data.chosen);
  strip.says.textContent = strip.says.title = data.sentence;
  paint(strip);
}

export const dispose = disposing(strips, (strip) => strip.observer.disconnect());
