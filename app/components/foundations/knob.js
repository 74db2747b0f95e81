// A round grip at a place of a chart, and results that are kept while what they are made from stays.

// `of` as in `grip`, and the `class` of its colour. Call show(x, y), in pixels, in each draw.
function knob(picture, chart, of) {
  const node = shape("g", {}, shape("circle", { class: "rl-f-hit", r: 18 }),
    shape("circle", { class: `rl-f-knob ${of.class ?? ""}`, r: 6.5 }));
  chart.hands.append(node);
  const announce = grip(picture, node, of);
  return { node, show(x, y) {
    set(node, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    announce();
  } };
}

// make(...given), made again only where what is given is not what it was.
function remembered(make) {
  let from = null, made = null;
  return (...given) => {
    const now = JSON.stringify(given);
    if (now !== from) {
      from = now;
      made = make(...given);
    }
    return made;
  };
}
