// Painting and picking, by hand or by keyboard.

// The cells between two places of a stroke, so that a quick hand leaves no gaps.
function between(board, from, to) {
  const [r0, c0] = [Math.floor(from / board.columns), from % board.columns];
  const [r1, c1] = [Math.floor(to / board.columns), to % board.columns];
  const steps = Math.max(Math.abs(r1 - r0), Math.abs(c1 - c0), 1);
  return Array.from({ length: steps }, (_, place) => {
    const share = (place + 1) / steps;
    return Math.round(r0 + (r1 - r0) * share) * board.columns + Math.round(c0 + (c1 - c0) * share);
  });
}

function brushOn(board, state) {
  const { sign } = board.data.brush, cell = board.cells[state];
  const same = cell.sign === sign && (cell.pay === null || cell.pay === board.data.brush.pay);
  return same && sign !== "S" ? "." : sign; // a stroke that begins on what it paints clears
}

function stroke(board, state) {
  const { painting } = board;
  const fresh = painting.last === null ? [state] : between(board, painting.last, state);
  painting.last = state;
  if (painting.sign === "S") { painting.cells.clear(); board.pending.clear(); fresh.splice(0, fresh.length - 1); }
  for (const each of fresh) {
    painting.cells.add(each);
    board.pending.set(each, painting.sign);
  }
  draw(board);
}

function finish(board) {
  const { painting } = board;
  board.painting = null;
  if (!painting?.cells.size) return;
  const cells = [...painting.cells].map((state) => [Math.floor(state / board.columns), state % board.columns]);
  clearTimeout(board.refused); // what the server does not take is not left standing
  board.refused = setTimeout(() => { if (!board.painting) { board.pending.clear(); draw(board); } }, 3000);
  board.component.setTriggerValue("painted", cells);
}

function act(board, state) {
  if (board.data.mode === "edit") {
    board.painting = { cells: new Set(), last: null, sign: brushOn(board, state) };
    stroke(board, state);
    finish(board);
  } else {
    board.component.setTriggerValue("picked", state);
  }
}

const STRIDES = { ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowDown: [1, 0], ArrowLeft: [0, -1] };

function pressed(board, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const start = board.data.picked ?? Math.max(0, board.cells.findIndex((each) => each.sign === "S"));
  if (event.key in STRIDES) {
    const [down, right] = STRIDES[event.key], at = board.cursor ?? start;
    const row = Math.max(0, Math.min(board.rows - 1, Math.floor(at / board.columns) + down));
    const column = Math.max(0, Math.min(board.columns - 1, (at % board.columns) + right));
    board.cursor = row * board.columns + column;
  } else if (event.key === "Enter" || event.key === " ") {
    board.cursor ??= start;
    act(board, board.cursor);
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  say(board, board.cursor);
  board.spoken.textContent = words(board, board.cursor);
  draw(board);
}

// Beside the cell, where nothing is pushed aside by it: above it, or below in the upper rows.
function say(board, state) {
  const { output } = board;
  output.hidden = state === null || board.data.mode === "edit";
  if (output.hidden) return;
  output.textContent = words(board, state);
  const [x, y] = corner(board, state), below = y < HEAD + 26;
  output.style.left = `${Math.max(0, Math.min(x, board.root.clientWidth - output.offsetWidth))}px`;
  output.style.top = `${below ? y + board.side + 4 : y - output.offsetHeight - 4}px`;
}

function moved(board, event) {
  const state = stateAt(board, event);
  if (board.painting) {
    if (state !== null && state !== board.painting.last) stroke(board, state);
  } else if (state !== board.hover) {
    board.hover = state;
    say(board, state);
    draw(board);
  }
}
