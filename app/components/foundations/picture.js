// What all pictures of Foundations share: they are built once, drawn at most once a frame, and said in words.
//
// A picture is { root, data, draw, held, busy }. What it shows lives in the browser alone: the server sends `data` once
// and hears nothing.

const pictures = new WeakMap();
const CALM = 250; // ms without a change after which a picture takes its time: more draws, and words for screen readers

// An HTML element with attributes and children (elements or texts, which may have subscripts).
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.flatMap((child) => (child instanceof Node ? child : lettered(child))));
  return made;
}

// Splits a text into parts and passes the subscript of a Greek letter, as in π_old, to `low`. Any other "_" stays.
const subscripts = (text, low) => String(text).split(/(?<=[α-ω])_([a-z]+)/).map((part, i) => (i % 2 ? low(part) : part));

const lettered = (words) => subscripts(words, (part) => {
  const low = document.createElement("sub");
  low.textContent = part;
  return low;
});

// Put words in the place of what is in an element.
const reword = (node, words) => node.replaceChildren(...lettered(words));

// `update` of a component. `build(picture)` makes what stays and returns { draw, receive }: `draw` shows what the
// picture is by now, `receive` (if it is there) takes newer data of the server.
const mounting = (build) => ({ data, parentElement }) => {
  let picture = pictures.get(parentElement);
  const said = JSON.stringify(data);
  if (!picture) {
    picture = { root: parentElement.querySelector('[class^="rl-foundation-"]'), data, said, frame: null, calm: null,
      held: false, busy: false, sized: 0 };
    pictures.set(parentElement, picture);
    picture.root.replaceChildren();
    Object.assign(picture, build(picture));
    picture.words = el("p", { class: "rl-f-words" });
    picture.live = el("p", { class: "rl-f-live", role: "status" });
    picture.root.append(picture.words, picture.live);
    picture.wide = new ResizeObserver(() => {
      picture.sized += 1;
      redraw(picture);
    });
    picture.wide.observe(picture.root);
  } else if (said !== picture.said) {
    Object.assign(picture, { data, said });
    picture.receive?.();
  }
  redraw(picture);
};

const leaving = disposing(pictures, (picture) => {
  picture.wide.disconnect();
  clearTimeout(picture.calm);
  cancelAnimationFrame(picture.frame);
});

function redraw(picture) {
  picture.frame ??= requestAnimationFrame(() => {
    picture.frame = null;
    picture.draw();
  });
}

// The hand changed something: draw it now with what is quick, and once more with everything when the hand rests.
function changed(picture) {
  picture.busy = true;
  clearTimeout(picture.calm);
  if (!picture.held) picture.calm = setTimeout(() => rest(picture), CALM);
  redraw(picture);
}

function rest(picture) {
  clearTimeout(picture.calm);
  picture.busy = false;
  redraw(picture);
  picture.calm = setTimeout(() => { picture.live.textContent = picture.said; }, CALM);
}

// What the picture shows, in a sentence or two: seen at once, and read out by screen readers when the hand rests.
function say(picture, words) {
  picture.said = words;
  reword(picture.words, words);
}
