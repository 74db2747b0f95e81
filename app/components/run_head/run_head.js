// The status line and the tiles above the charts of a run. The charts tell what stands there ("rl-told" on the
// document: { status, tiles }) at the moment in which their own numbers change; who is new asks for it ("rl-tell").

const heads = new WeakMap();

const DRAW = {
  status(root, { status }) {
    if (root.told !== status) root.innerHTML = root.told = status; // the server's HTML
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
  const told = ({ detail }) => DRAW[data.part](root, detail);
  heads.set(parentElement, told);
  document.addEventListener("rl-told", told);
  document.dispatchEvent(new CustomEvent("rl-tell"));
}

export const dispose = disposing(heads, (told) => document.removeEventListener("rl-told", told));
