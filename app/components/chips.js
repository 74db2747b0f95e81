// Texts of chat models as nodes: what was said, a template's tokens as chips, and thinking folded, with its length.
// `parts` are those of app/chat_text.py, [kind, text] each. The style is in app/theme.py, for HTML of pages too.

function node(tag, className, ...inside) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...inside);
  return element;
}

// "1 word", "1,234 words"; of a script without spaces its characters.
function counted(text) {
  const words = text.split(/\s+/).filter(Boolean).length, letters = [...text].length;
  const [count, unit] = words > letters / 20 ? [words, "word"] : [letters, "character"];
  return `${format(count, 0)} ${unit}${count === 1 ? "" : "s"}`;
}

// Something that is unfolded by a click or by Enter.
function fold(label, ...inside) {
  return node("details", "rl-fold", node("summary", "", label), node("div", "rl-said", ...inside));
}

const chipped = (parts) => parts.map(([kind, text]) => {
  if (kind === "token") return node("span", "rl-chip", text);
  if (kind !== "thinking") return node("span", "rl-said", text);
  const thought = text.replace(/<\/?think>/g, "").trim();
  return fold(`thinking, ${counted(thought)}`, thought);
});

// A prompt: what the user asked last, and the whole of it where that is more.
function asked({ turn, parts }, shown = turn) {
  const whole = parts.map(([, text]) => text).join("");
  return [node("code", "", shown), ...(parts.length ? [" ", fold(`whole prompt, ${counted(whole)}`, ...chipped(parts))]
    : [])];
}
