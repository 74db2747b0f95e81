// The maze on a canvas: cells, heat map, arrows and path; a player for the newest episode; painting and picking.
//
// The DOM is built once for each mount and the canvas is redrawn in place, so a refresh keeps the focus, the cursor
// and the player's place. States are cells in reading order; actions are up, right, down, left.

const boards = new WeakMap();
const SIDES = [[-1, 0], [0, 1], [1, 0], [0, -1]];
const ARROW_WORDS = ["up", "right", "down", "left"];
const KINDS = { ".": "free", "#": "wall", S: "start", G: "goal", T: "trap", R: "reward cell" };
const PAYING = "GTR", ENDS = "GT";
const LARGEST = 132; // pixels: the side of a cell in a small maze
const TALLEST = 560, BELOW = 160; // pixels: of the board, and of what stands below it on the first screen
const HEAD = 16, LEFT = 22; // pixels for the numbers of the columns and rows
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b",
  "#fde725"];
const SPEEDS = [1, 2, 3, 5, 8, 12, 20, 30];
const prefs = { speed: 3 }; // kept when the page is left and opened again
const ICONS = { play: "M3 1.5v13l11-6.5z", pause: "M3 2h4v12H3zM9 2h4v12H9z", back: "M13 2v12L5 8zM2.5 2h2v12h-2z",
  forward: "M3 2v12l8-6zM11.5 2h2v12h-2z" };

function build(board) {
  board.root.innerHTML = `<div class="rl-stage"><canvas tabindex="0" role="application" aria-roledescription="maze">
    </canvas><output aria-hidden="true" hidden></output></div>
    <div class="rl-unseen" aria-live="polite"></div>
    <div class="rl-scale"></div>
    <div class="rl-player rl-episode" role="group" aria-label="The episode, move by move" hidden><div>
      <button type="button" class="rl-back" aria-label="One move back">${icon("back")}</button>
      <button type="button" class="rl-play"></button>
      <button type="button" class="rl-forward" aria-label="One move forward">${icon("forward")}</button>
      <input class="rl-place" type="range" min="0" step="1" aria-label="Move">
      <span class="rl-count"></span>
      <label class="rl-speed"><span></span><input type="range" min="0" max="${SPEEDS.length - 1}" step="1"
        aria-label="Moves per second"></label>
      <button type="button" class="rl-newest"></button>
    </div><p></p></div>`;
  const find = (selector) => board.root.querySelector(selector);
  Object.assign(board, { canvas: find("canvas"), spoken: find(".rl-unseen"), foot: find(".rl-scale"),
    output: find("output"), box: find(".rl-episode"), text: find("p"),
    controls: Object.fromEntries(["back", "play", "forward", "place", "count", "newest"]
      .map((name) => [name, find(`.rl-episode .rl-${name}`)])) });
  const { canvas, controls } = board;
  controls.back.addEventListener("click", () => go(board, board.player.index - 1));
  controls.forward.addEventListener("click", () => go(board, board.player.index + 1));
  controls.play.addEventListener("click", () => play(board));
  controls.newest.addEventListener("click", () => newest(board));
  controls.place.addEventListener("input", () => go(board, Number(controls.place.value)));
  listenToSpeed(find(".rl-speed"));
  canvas.addEventListener("pointerdown", (event) => {
    const state = stateAt(board, event);
    if (event.button || state === null) return;
    board.cursor = state;
    if (board.data.mode !== "edit") return;
    canvas.setPointerCapture(event.pointerId);
    board.painting = { cells: new Set(), last: null, sign: brushOn(board, state) };
    stroke(board, state);
  });
  canvas.addEventListener("pointermove", (event) => moved(board, event));
  canvas.addEventListener("pointerup", () => finish(board));
  canvas.addEventListener("pointercancel", () => { board.painting = null; board.pending.clear(); draw(board); });
  canvas.addEventListener("pointerleave", () => { board.hover = null; say(board, null); draw(board); });
  canvas.addEventListener("click", (event) => {
    const state = stateAt(board, event);
    if (state !== null && board.data.mode !== "edit") act(board, state);
  });
  canvas.addEventListener("keydown", (event) => pressed(board, event));
  canvas.addEventListener("focus", () => draw(board));
  canvas.addEventListener("blur", () => { say(board, board.hover); draw(board); });
  board.observer = new ResizeObserver(() => draw(board));
  board.observer.observe(board.root);
}

function listenToSpeed(label) {
  const [text, slider] = label.children;
  const showSpeed = () => { text.textContent = `${prefs.speed}/s`; };
  slider.value = SPEEDS.indexOf(prefs.speed);
  slider.addEventListener("input", () => { prefs.speed = SPEEDS[slider.value]; showSpeed(); });
  showSpeed();
}

export function update(component) {
  const { data, parentElement } = component;
  let board = boards.get(parentElement);
  if (!board) {
    board = { parent: parentElement, root: parentElement.querySelector(".rl-maze-board"), hover: null, pending: new Map(),
      painting: null, data };
    boards.set(parentElement, board);
    build(board);
  }
  if (board.key !== data.key) {
    clearTimeout(board.timer);
    Object.assign(board, { key: data.key, cursor: null,
      player: { episode: null, index: 0, playing: false, touched: false, newest: null } });
  }
  Object.assign(board, { component, data });
  if (!board.painting) board.pending.clear();
  read(board);
  if (board.cursor >= board.cells.length) board.cursor = null;
  if (board.hover >= board.cells.length) board.hover = null;
  board.canvas.className = data.mode === "edit" ? "rl-paints" : "rl-picks";
  board.colours = coloursOf(parentElement);
  if (data.pinned !== board.pinned) Object.assign(board.player, { touched: false, playing: false });
  board.pinned = data.pinned;
  take(board, data.episode);
  show(board);
  describe(board);
  legend(board);
  if (board.hover !== null) say(board, board.hover);
}

export const dispose = disposing(boards, (board) => {
  board.observer.disconnect();
  for (const timer of [board.timer, board.refused]) clearTimeout(timer);
});
