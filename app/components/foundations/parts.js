// A picture of several parts, each with a title above it and its own words below.

// `made` are [title, build(picture)]; what `build` returns has draw(), which gives the words of its part.
const inParts = (...made) => (picture) => {
  const parts = made.map(([title, build]) => {
    picture.root.append(el("h4", {}, title));
    const { draw } = build(picture), words = el("p", { class: "rl-f-words" });
    picture.root.append(words);
    return () => { const said = draw(); reword(words, said); return said; };
  });
  return { draw() {
    say(picture, parts.map((draw) => draw()).join(" "));
    picture.words.hidden = true; // each part shows its own; screen readers get all of them
  } };
};
