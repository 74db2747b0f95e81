// The rail: stations with their numbers. A click on one opens its run; its buttons start a stage.

const rails = new WeakMap();

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// The count makes the same choice heard twice.
function choose(found, said) {
  found.times = (found.times ?? 0) + 1;
  found.trigger("chosen", { ...said, times: found.times });
}

function head(found, { title, run, run_title: called, here, note, colour, numbers }, place) {
  const made = element(run && !here ? "button" : "div", "rl-rail-open");
  if (run && !here) {
    made.type = "button";
    made.title = `Open ${called}`;
    made.addEventListener("click", () => choose(found, { run }));
  }
  const name = element("span", "rl-rail-name");
  name.append(element("i", "", String(place + 1)), element("b", "", title));
  const said = element("span", "rl-rail-note", note);
  said.title = called && !note.startsWith(called) ? `${called}: ${note}` : note;
  if (colour) {
    const dot = element("u", "");
    dot.style.background = colour;
    said.prepend(dot);
  }
  name.append(said);
  made.append(name, numbersOf(numbers));
  return made;
}

function numbersOf(numbers) {
  const made = element("span", "rl-rail-numbers");
  numbers.forEach(([what, value]) => {
    const one = element("span", "", `${what} `);
    one.append(element("b", "", value));
    made.append(one);
  });
  return made;
}

function startsOf(found, starts) {
  const made = element("div", "rl-rail-starts");
  if (starts.length > 2) made.append(element("span", "", "Start"));
  starts.forEach(([key, label]) => {
    const button = element("button", "", label);
    button.type = "button";
    button.addEventListener("click", () => choose(found, { start: key }));
    made.append(button);
  });
  return made;
}

function station(found, data, place) {
  const made = element("li", "");
  made.dataset.stage = data.key;
  if (data.here) made.setAttribute("aria-current", "step");
  made.classList.toggle("rl-rail-empty", !data.run);
  made.append(head(found, data, place));
  if (data.starts.length) made.append(startsOf(found, data.starts));
  return made;
}

export function update({ data, parentElement, setTriggerValue }) {
  let found = rails.get(parentElement);
  if (!found) rails.set(parentElement, found = { root: parentElement.querySelector(".rl-rail") });
  found.trigger = setTriggerValue;
  const said = JSON.stringify(data);
  if (found.said === said) return;
  found.said = said;
  const line = element("ol", "");
  line.setAttribute("aria-label", "RLHF: SFT, reward model, RL");
  line.append(...data.stations.map((each, place) => station(found, each, place)));
  found.root.replaceChildren(line);
}

export const dispose = disposing(rails);
