// The sentence, the status line and the tiles above the charts of a run. The charts send what stands there ("rl-row" on
// the document: { run, goal, status, tiles }) when their own numbers change; a head that is mounted, or gets another run, asks for
// it ("rl-row-asked").

const heads = new WeakMap();

const DRAW = {
  goal(root, { goal }) {
    const said = goal.html && `<p class="rl-goal">${goal.html}<strong>${goal.now.replaceAll(" %", "\u00a0%")}</strong></p>`;
    if (root.shown !== said) root.innerHTML = root.shown = said; // the server's HTML
  },
  status(root, { status }) {
    if (root.shown === status) return;
    const first = root.shown === undefined;
    root.innerHTML = root.shown = status; // the server's HTML
    if (first) keepHeight(root);
    else offerRest(root);
  },
  tiles(root, { tiles }) {
    while (root.children.length > tiles.length) root.lastChild.remove();
    tiles.forEach((tile, place) => drawTile(root.children[place] ?? root.appendChild(newTile()), tile));
  },
};

// The line stays as tall as it was when its run was opened, so that nothing below it moves; a longer sentence that comes
// later is shown whole on a click, or in a window of another width.
function keepHeight(root) {
  root.style.height = "";
  root.style.height = `${root.offsetHeight}px`;
  root.wide = root.clientWidth;
}

function offerRest(root) {
  if (!root.style.height || root.scrollHeight <= root.clientHeight + 2) return;
  const more = document.createElement("button");
  more.className = "rl-more";
  more.textContent = "more";
  more.onclick = () => release(root);
  root.append(more);
}

function release(root) {
  root.style.height = "";
  root.querySelector(".rl-more")?.remove();
}

function newTile() {
  const made = document.createElement("div");
  made.className = "rl-tile";
  made.append(...["span", "b", "i", "em"].map((name) => document.createElement(name)));
  return made;
}

function drawTile(box, { help, name, value, unit, moved }) {
  box.title = help;
  [name, value, unit, moved].forEach((text, place) => {
    if (box.children[place].textContent !== text) box.children[place].textContent = text;
  });
}

function listening(parentElement) {
  const root = parentElement.querySelector(".rl-run-head");
  const head = { root, show: ({ detail }) => { if (detail.run === head.run) DRAW[root.dataset.part](root, detail); } };
  head.sizes = new ResizeObserver(() => { if (root.style.height && root.clientWidth !== root.wide) release(root); });
  head.sizes.observe(root);
  document.addEventListener("rl-row", head.show);
  heads.set(parentElement, head);
  return head;
}

// Another run's numbers leave at once: its own come with the charts.
export function update({ data, parentElement }) {
  const head = heads.get(parentElement) ?? listening(parentElement);
  if (head.opened !== data.opened) head.root.closest(".stMain")?.scrollTo({ top: 0 }); // whoever pressed Run sees it
  head.opened = data.opened;
  if (head.run === data.run) return;
  head.run = data.run;
  head.root.dataset.part = data.part;
  head.root.replaceChildren();
  head.root.shown = undefined;
  head.root.style.height = "";
  document.dispatchEvent(new CustomEvent("rl-row-asked"));
}

export const dispose = disposing(heads, ({ show, sizes }) => {
  document.removeEventListener("rl-row", show);
  sizes.disconnect();
});
