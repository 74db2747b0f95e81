// The status line and the tiles above the charts of a run. The charts send what stands there ("rl-row" on the
// document: { status, tiles }) when their own numbers change; a head that has just been mounted asks for it
// ("rl-row-asked").

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

export function update({ data, parentElement }) {
  if (heads.has(parentElement)) return;
  const root = parentElement.querySelector(".rl-run-head");
  root.dataset.part = data.part;
  const show = ({ detail }) => DRAW[data.part](root, detail);
  heads.set(parentElement, show);
  document.addEventListener("rl-row", show);
  document.dispatchEvent(new CustomEvent("rl-row-asked"));
}

export const dispose = disposing(heads, (show) => document.removeEventListener("rl-row", show));
