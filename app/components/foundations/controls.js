// Controls beside a picture: sliders, choices and buttons, with their numbers.

function controls(picture, ...children) {
  const line = el("div", { class: "rl-f-controls" }, ...children);
  picture.root.append(line);
  return line;
}

// A slider. `of`: label, low, high, step, read(), write(value), text(). `log`: its steps are factors.
function slider(picture, of) {
  const to = of.log ? Math.log : (value) => value, from = of.log ? Math.exp : (value) => value;
  const input = el("input", { type: "range", min: to(of.low), max: to(of.high), step: of.log ? "any" : of.step,
    "aria-label": of.label });
  const output = el("output");
  const show = () => {
    if (document.activeElement !== input || !picture.busy) input.value = to(of.read());
    input.setAttribute("aria-valuetext", of.text());
    output.textContent = of.text();
  };
  input.addEventListener("input", () => {
    of.write(clamp(from(Number(input.value)), of.low, of.high));
    changed(picture);
    show();
  });
  show();
  const node = el("label", { class: "rl-f-slider" }, el("span", {}, of.label), input, output);
  return { node, show };
}

// One of a few: `options` are [value, label]. Arrow keys move among them, as in any group of radio buttons.
let groups = 0;
function choice(picture, { label, options, read, write }) {
  const name = `rl-f-choice-${groups += 1}`;
  const node = el("fieldset", { class: "rl-f-choice" }, el("legend", {}, label));
  const inputs = options.map(([value, words]) => {
    const input = el("input", { type: "radio", name });
    input.addEventListener("change", () => {
      write(value);
      changed(picture);
    });
    node.append(el("label", {}, input, el("span", {}, words)));
    return [value, input];
  });
  const show = () => inputs.forEach(([value, input]) => { input.checked = value === read(); });
  show();
  return { node, show };
}

function button(picture, label, press) {
  const node = el("button", { type: "button" }, label);
  node.addEventListener("click", () => {
    press();
    changed(picture);
  });
  return { node, show() {} };
}

// Numbers in a row, each with its name and unit: { show([[name, value, unit, note], …]) }.
function numbers(picture, parent = picture.root) {
  const node = el("dl", { class: "rl-f-numbers" });
  parent.append(node);
  return { node, show: (rows) => node.replaceChildren(...rows.map(([name, value, unit = "", note = ""]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), unit && ` ${unit}`),
      ...(note ? [el("small", {}, note)] : [])))) };
}

// What the colours mean: `rows` are [class of the fill, words].
function legend(parent, rows) {
  parent.append(el("ul", { class: "rl-f-key" }, ...rows.map(([colour, words]) => {
    const box = shape("svg", { width: 12, height: 12, "aria-hidden": true }, shape("rect", { width: 12, height: 12, rx: 3, class: colour }));
    return el("li", {}, box, words);
  })));
}
