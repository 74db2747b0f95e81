// What can be grabbed: by mouse and touch, and with the keyboard as a slider.

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Makes `node` a grip. `of`: label, low, high, step; read() and write(value); text() is the value in words with its
// unit; at(event) is the value under the hand. A grip that moves in two directions has `up` with the same fields, which
// ArrowUp and ArrowDown move. Call the result after each draw: it gives the value to screen readers.
function grip(picture, node, of) {
  const put = (each, value) => {
    each.write(clamp(value, each.low, each.high));
    changed(picture);
  };
  const follow = (event) => {
    put(of, of.at(event));
    if (of.up) put(of.up, of.up.at(event));
  };
  const release = () => {
    if (!picture.held) return;
    picture.held = false;
    rest(picture);
  };
  const attributes = { tabindex: 0, role: "slider", "aria-label": of.label, "aria-valuemin": of.low,
    "aria-valuemax": of.high };
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.classList.add("rl-f-grip");
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    node.focus({ preventScroll: true });
    picture.held = true;
    follow(event);
  });
  node.addEventListener("pointermove", (event) => {
    if (picture.held && node.hasPointerCapture(event.pointerId)) follow(event);
  });
  node.addEventListener("pointerup", release);
  node.addEventListener("pointercancel", release);
  node.addEventListener("lostpointercapture", release);
  node.addEventListener("keydown", (event) => {
    const moved = steps(event, of);
    if (!moved) return;
    event.preventDefault();
    put(...moved);
  });
  return () => {
    node.setAttribute("aria-valuenow", of.read().toFixed(3));
    node.setAttribute("aria-valuetext", of.text());
  };
}

// [what moves, its new value] by a key; nothing for a key that is not for a slider.
function steps({ key, ctrlKey, metaKey, altKey, shiftKey }, of) {
  if (ctrlKey || metaKey || altKey) return null;
  const across = ["ArrowUp", "ArrowDown"].includes(key) && of.up ? of.up : of;
  const by = across.step * (shiftKey ? 5 : 1), now = across.read();
  const values = { ArrowRight: now + by, ArrowUp: now + by, ArrowLeft: now - by, ArrowDown: now - by,
    PageUp: now + 5 * by, PageDown: now - 5 * by, Home: across.low, End: across.high };
  return key in values ? [across, values[key]] : null;
}
