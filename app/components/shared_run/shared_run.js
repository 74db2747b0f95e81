// A shared file: the parts of the run page without a server. The other components are in `labParts`, as they are; what
// a server would answer to their triggers is in the file, so it is answered here.

const files = new WeakMap();

const PARTS = ["run_head", "live_chart", "scrubber", "story_strip", "microscope", "maze_board", "world_player",
  "projector"];
const SMOOTHEST = 0.99;

function made(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

// A place for a component, as Streamlit would give it.
function placeOf(part) {
  const place = made("div");
  place.append(made("div", `rl-${part.replace("_", "-")}`));
  return place;
}

const mount = (part, parentElement, data, setTriggerValue = () => {}) =>
  globalThis.labParts[part].update({ data, parentElement, setTriggerValue });

// ---- the state: which run, which step, and how it is looked at -------------------------------------------------

const runOf = ({ data, run }) => data.runs[run];
const lastOf = (file) => runOf(file).clock.last;

// The kept step that is shown where the page shows the step `at`: the newest up to there, else the first.
function keptOf(file) {
  const { kept } = runOf(file), at = file.at ?? lastOf(file);
  return kept.findLast(({ step }) => step <= at) ?? kept[0];
}

// A link to the file may name a run and a step: run.html#run=2&step=40.
function fromAddress(file) {
  const said = new URLSearchParams(location.hash.slice(1));
  const run = Number(said.get("run") ?? NaN) - 1, step = Number(said.get("step"));
  if (file.data.runs[run]) [file.run, file.all] = [run, false];
  if (step > 0 && step < lastOf(file)) file.at = step;
}

function choose(file, change) {
  Object.assign(file, change);
  draw(file);
}

// ---- the frame -------------------------------------------------------------------------------------------------

function build(file) {
  const { root, data } = file;
  const head = root.querySelector("header"), tabs = made("nav", "rl-shared-tabs");
  file.tabs = tabs;
  file.parts = Object.fromEntries(PARTS
    .map((part) => [part, placeOf(part)]));
  file.views = made("div", "rl-shared-views");
  file.about = made("div");
  file.table = made("section", "rl-shared-table");
  file.parts.goal = placeOf("run_head");
  const { run_head: tiles, live_chart: charts, scrubber, story_strip: story, microscope } = file.parts;
  file.top = made("div", "rl-shared-top");
  file.top.append(tiles, file.views, file.parts.projector);
  mount("projector", file.parts.projector, data.projector);
  file.clock = made("div", "rl-shared-clock");
  file.clock.append(scrubber);
  file.answers = section("Answers and their probability", story);
  file.tokens = section("Tokens", microscope);
  file.picture = section("", file.parts.maze_board, file.parts.world_player);
  head.after(tabs, file.top, file.answers, file.picture, section("", charts), file.clock, file.table, file.tokens, file.about);
  if (data.together) {
    file.buttons = [["All runs", { all: true }], ...data.runs.map(({ title }, run) =>
      [title, { all: false, run, at: null, look: {} }])].map(([label, change]) => {
      const button = made("button", "", label);
      button.type = "button";
      button.addEventListener("click", () => choose(file, change));
      return button;
    });
    tabs.append(...file.buttons);
  }
  [file.title, file.said] = head.children;
  head.append(file.parts.goal);
}

function section(title, ...inside) {
  const box = made("section");
  if (title) box.append(made("h2", "", title));
  box.append(...inside);
  return box;
}

function draw(file) {
  const { data, all } = file, run = runOf(file);
  if (file.buttons) {
    file.buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === (all ? 0 : file.run + 1))));
    file.title.textContent = all ? data.runs.map(({ title }) => title).join(" · ") : run.title;
    file.said.textContent = all ? data.description : run.description;
  }
  for (const part of ["answers", "picture", "clock", "tokens"]) file[part].hidden = all;
  file.parts.run_head.hidden = file.about.hidden = all;
  file.parts.goal.hidden = all || !run.charts.goal.html;
  file.said.hidden = !file.parts.goal.hidden; // the sentence is in it
  file.table.hidden = !all;
  if (all && !file.table.innerHTML) file.table.innerHTML = `<h2>Comparison</h2>${data.together.table}`; // escaped there
  axes(file);
  charts(file);
  if (all) return;
  if (file.told !== run) about(file);
  file.told = run;
  mount("scrubber", file.parts.scrubber, { ...run.clock, at: file.at }, (name, step) => moved(file, step || null));
  mount("run_head", file.parts.run_head, { run: run.id, part: "tiles" });
  mount("run_head", file.parts.goal, { run: run.id, part: "goal" });
  step(file);
}

// The charts have moved already.
function moved(file, at) {
  file.at = at;
  step(file);
}

function charts(file) {
  const shown = file.all ? file.data.together : runOf(file);
  mount("live_chart", file.parts.live_chart, { ...shown.charts, x: file.x, axis: shown.axes[file.x].toLowerCase(),
    smooth: file.smooth, at: file.all ? null : file.at });
}

// The axis and the smoothing of all charts.
function axes(file) {
  const { axes: offered } = file.all ? file.data.together : runOf(file);
  if (!(file.x in offered)) [file.x] = Object.keys(offered);
  if (file.offered === offered) return;
  file.offered = offered;
  const select = made("select"), smooth = made("input");
  select.append(...Object.entries(offered).map(([key, label]) => new Option(label, key)));
  select.value = file.x;
  select.addEventListener("change", () => choose(file, { x: select.value }));
  Object.assign(smooth, { type: "range", min: 0, max: SMOOTHEST, step: 0.01, value: file.smooth });
  smooth.addEventListener("input", () => choose(file, { smooth: Number(smooth.value) }));
  file.views.replaceChildren(...[["Axis", select], ["Smoothing", smooth]].map(([label, input]) => {
    const box = made("label", "", label);
    box.append(input);
    return box;
  }));
}

// ---- one step ----------------------------------------------------------------------------------------------------

function step(file) {
  const kept = keptOf(file), shown = file.at ?? lastOf(file);
  history.replaceState(null, "", file.at ? `#run=${file.run + 1}&step=${file.at}` : location.pathname + location.search);
  file.answers.hidden = !kept?.story;
  file.tokens.hidden = !kept?.tokens;
  file.picture.hidden = !kept?.picture;
  if (kept?.story) answers(file, kept, shown);
  if (kept?.picture) picture(file, kept.picture);
  if (kept?.tokens) tokens(file, kept, shown);
  terms(file, kept);
}

function answers(file, { step: of, story }, shown) {
  const { id, check } = runOf(file), pinned = Boolean(story.strips[file.prompt]);
  const strip = story.strips[pinned ? file.prompt : story.telling];
  mount("story_strip", file.parts.story_strip, { ...strip, late: Math.max(0, shown - of), run: id, check, pinned,
    lasting: story.watched.includes(strip.chosen) }, (name, said) => {
    file.prompt = said.name;
    step(file);
  });
}

function picture(file, [part, data]) {
  for (const each of ["maze_board", "world_player"]) file.parts[each].hidden = each !== part;
  mount(part, file.parts[part], data);
}

// What is chosen in the microscope holds until another step is shown.
function tokens(file, { step: of, tokens: found }, shown) {
  if (file.look.of !== of) file.look = { of };
  const { id, check, sources } = runOf(file), { look } = file, [item, completion] = found.chosen;
  const chosen = [look.prompt ?? item, look.completion ?? completion];
  const { cards, inside } = found;
  const row = cards[chosen[0]].rows.find(({ at, same }) => at === chosen[1] || same?.includes(chosen[1]));
  mount("microscope", file.parts.microscope, { ...found, inside: undefined, run: id, check, sources, step: of, terms: {},
    chosen, one: inside[`${chosen[0]}.${row.at}`], colour: look.colour ?? "", sort: look.sort ?? found.sort,
    filter: look.filter ?? found.filter, of: shown > of ? `Step ${format(of, 0)}, the nearest before` : `Step ${format(of, 0)}`,
  }, (name, choice) => {
    Object.entries(choice).forEach(([key, value]) => { look[key] = value ?? undefined; });
    step(file);
  });
}

// The numbers of the equation's terms at a step; signs are HTML that the server made.
function terms(file, kept) {
  file.values?.replaceChildren(...(kept?.terms ?? []).filter(([, , now, more]) => now || more.length)
    .map(([sign, label, now, more]) => {
      const item = made("span", "");
      item.innerHTML = `<i>${sign}</i> `;
      item.append(now ? made("b", "", now) : "", made("small", "", [label, ...more].join(" · ")));
      return item;
    }));
  if (file.when) file.when.textContent = kept ? `Values at step ${format(kept.step, 0)}` : "";
}

// ---- what does not change with the step ----------------------------------------------------------------------------

function about(file) {
  const { equation, paper, settings, events } = runOf(file);
  const formula = made("div", "rl-shared-formula");
  formula.innerHTML = equation; // MathML of the lab's own
  [file.when, file.values] = [made("h3"), made("div", "rl-shared-values")];
  const learns = section("Equation", formula, made("p", "rl-muted", paper), file.when, file.values);
  file.about.replaceChildren(...(equation ? [learns] : []), // how another tool learns is not known
    settingsOf(settings), ...(events.length ? [section("Events", table(["Step", "Event"], events))] : []));
}

function table(head, rows) {
  const box = made("div", "rl-scroll"), drawn = made("table", "rl-table");
  drawn.append(...[head, ...rows].map((row, place) => {
    const line = made("tr");
    line.append(...row.map((cell) => made(place ? "td" : "th", "", String(cell))));
    return line;
  }));
  box.append(drawn);
  return box;
}

// What is not at its default, and all the others folded.
function settingsOf(settings) {
  const rest = settings.filter(([, , mark]) => mark === "same"), fold = made("details", "rl-shared-more");
  const shown = settings.filter(([, , mark]) => mark !== "same").map(([name, value]) => [name, value]);
  fold.append(made("summary", "", `${rest.length} knobs at their defaults`),
    table(["Knob", "Value"], rest.map(([name, value]) => [name, value])));
  return section("Settings", table(["Setting", "Value"], shown), ...(rest.length ? [fold] : []));
}

export function update({ data, parentElement }) {
  const file = { root: parentElement.querySelector(".rl-shared-run"), data, run: 0, all: Boolean(data.together), at: null,
    x: "", smooth: 0, prompt: "", look: {} };
  files.set(parentElement, file);
  fromAddress(file);
  build(file);
  draw(file);
  const ground = matchMedia("(prefers-color-scheme: dark)");
  file.turned = () => draw(file);
  ground.addEventListener("change", file.turned);
}

export const dispose = disposing(files);
