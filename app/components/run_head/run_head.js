// The status line and the tiles above the charts of a run. The charts send what stands there ("rl-row" on the
// document: { run, status, tiles }) when their own numbers change; a head that is mounted, or gets another run, asks for
// it ("rl-row-asked").

const heads = new WeakMap();

const DRAW = {
  status(root, { status }) {
    if (root.shown !== status) root.innerHTML = root.shown = status; // the server's HTML
  },
  tiles(root, { tiles }) {
    while (root.children.length > tiles.length) root.lastChild.remove();
    tiles.forEach((tile, place) => drawTile(root.children[place] ?? root.appendChild(newTile()), tile));
  },
};

function newTile() {
  const made = document.createElement("div");
  made.className = "rl-tile";
  made.append(...["span", "b", "em"].map((name) => document.createElement(name)));
  return made;
}

function drawTile(box, { help, name, value, moved }) {
  box.title = help;
  [name, value, moved].forEach((text, place) => {
    if (box.children[place].textContent !== text) box.children[place].textContent = text;
  });
}

function listening(parentElement) {
  const root = parentElement.querySelector(".rl-run-head");
  const head = { root, show: ({ detail }) => { if (detail.run === head.run) DRAW[root.dataset.part](root, detail); } };
  document.addEventListener("rl-row", head.show);
  heads.set(parentElement, head);
  return head;
}

// Another run's numbers leave at once: its own come with the charts.
export function update({ data, parentElement }) {
  const head = heads.get(parentElement) ?? listening(parentElement);
  if (head.run === data.run) return;
  head.run = data.run;
  head.root.dataset.part = data.part;
  head.root.replaceChildren();
  head.root.shown = undefined;
  document.dispatchEvent(new CustomEvent("rl-row-asked"));
}

export const dispose = disposing(heads, ({ show }) => document.removeEventListener("rl-row", show));
