// What is drawn on the canvas, from the ground of the cells to the agent.

function draw(board) {
  if (!board.root.clientWidth) return;
  measure(board);
  const paint = board.canvas.getContext("2d");
  const { data } = board;
  board.colours = coloursOf(board.parent);
  board.scale = data.heat ? scaleOf(data.heat, board.colours) : null;
  paint.setTransform(board.ratio, 0, 0, board.ratio, 0, 0);
  paint.clearRect(0, 0, board.canvas.width, board.canvas.height);
  board.numbered = fits(board, paint);
  labels(board, paint);
  board.cells.forEach((_, state) => cell(board, paint, state));
  lines(board, paint);
  const walked = board.player.episode && (data.path || board.player.touched);
  if (walked) path(board, paint);
  board.cells.forEach((_, state) => symbol(board, paint, state));
  if (data.arrows) board.cells.forEach((_, state) => arrows(board, paint, state));
  if (board.numbered) board.cells.forEach((_, state) => number(board, paint, state));
  if (walked) agent(board, paint);
  outlines(board, paint);
}

// Whether every number of the heat map has room in its cell.
function fits(board, paint) {
  if (!board.data.heat || !board.data.numbers || board.side < 38) return false;
  paint.font = `12px ${board.colours.font}`;
  return board.data.heat.values.every((value) => value === null
    || paint.measureText(short(value, board.data.heat.digits)).width < board.side - 5);
}

function labels(board, paint) {
  const every = board.side < 17 ? 5 : 1;
  paint.fillStyle = board.colours.mark;
  paint.font = `12px ${board.colours.font}`;
  paint.textBaseline = "middle";
  const shown = (place) => place % every === 0 || place === 1;
  paint.textAlign = "center";
  for (let column = 1; column <= board.columns; column += 1) {
    if (shown(column)) paint.fillText(column, LEFT + (column - 0.5) * board.side, HEAD / 2);
  }
  paint.textAlign = "right";
  for (let row = 1; row <= board.rows; row += 1) {
    if (shown(row)) paint.fillText(row, LEFT - 5, HEAD + (row - 0.5) * board.side);
  }
}

// The ground of a cell, without what stands on it.
function fillOf(board, state) {
  const { colours, data } = board, sign = signOf(board, state);
  if (sign === "#") return colours.wall;
  if (ENDS.includes(sign)) return mix(colours.ground, colours[KINDS[sign]], 0.32);
  const value = data.heat?.values[state];
  return board.scale && value !== null && value !== undefined ? board.scale.colour(value) : colours.free;
}

function cell(board, paint, state) {
  const [x, y] = corner(board, state), { side, colours } = board;
  paint.fillStyle = fillOf(board, state);
  paint.fillRect(x, y, side, side);
  if (signOf(board, state) !== "#") return;
  paint.save();
  paint.beginPath();
  paint.rect(x, y, side, side);
  paint.clip();
  paint.strokeStyle = colours.hatch;
  paint.lineWidth = side < 20 ? 1 : 1.5;
  const gap = Math.max(5, Math.min(9, side / 4));
  paint.beginPath();
  for (let at = gap / 2; at < 2 * side; at += gap) {
    paint.moveTo(x + at, y);
    paint.lineTo(x + at - side, y + side);
  }
  paint.stroke();
  paint.restore();
}

function lines(board, paint) {
  paint.strokeStyle = board.colours.grid;
  paint.lineWidth = 1;
  paint.beginPath();
  for (let column = 0; column <= board.columns; column += 1) {
    const x = LEFT + column * board.side + 0.5;
    paint.moveTo(x, HEAD);
    paint.lineTo(x, HEAD + board.rows * board.side + 1);
  }
  for (let row = 0; row <= board.rows; row += 1) {
    const y = HEAD + row * board.side + 0.5;
    paint.moveTo(LEFT, y);
    paint.lineTo(LEFT + board.columns * board.side + 1, y);
  }
  paint.stroke();
}

// Start, goal, trap and reward cell each have a shape of their own: they can be told apart without colours.
function symbol(board, paint, state) {
  const sign = signOf(board, state);
  if (sign === "." || sign === "#") return;
  const { side, colours } = board, [x, y] = corner(board, state);
  const small = side < 34, ends = ENDS.includes(sign), whole = ends || (small && !board.data.arrows);
  const size = whole ? Math.min(side * (small ? 0.72 : 0.44), 44) : Math.max(10, Math.min(side * 0.3, 17));
  const pay = board.pending.has(state) ? null : board.cells[state].pay;
  const below = ends && !small && pay !== null;
  const [cx, cy] = whole ? [x + side / 2, y + side / 2 - (below ? 8 : 0)] : [x + size / 2 + 3, y + size / 2 + 3];
  const ink = ends ? colours.ink : inkOn(fillOf(board, state));
  if (ends) frame(paint, x, y, side, mix(colours[KINDS[sign]], colours.ink, 0.25), sign === "T");
  paint.fillStyle = paint.strokeStyle = ink;
  paint.lineWidth = Math.max(1.5, size / 9);
  SHAPES[sign](paint, cx, cy, size / 2, fillOf(board, state), colours);
  if (pay === null || small) return;
  paint.fillStyle = ink;
  paint.font = `600 ${side > 60 ? 14 : 12}px ${colours.font}`;
  paint.textBaseline = "alphabetic";
  paint.textAlign = ends ? "center" : "right";
  if (ends) paint.fillText(signed(pay), x + side / 2, y + side / 2 + size / 2 + 8);
  else if (paint.measureText(signed(pay)).width < side - size - 7) paint.fillText(signed(pay), x + side - 4, y + 14);
}

function frame(paint, x, y, side, colour, dashed) {
  const wide = side < 20 ? 1.5 : 2.5;
  paint.save();
  paint.strokeStyle = colour;
  paint.lineWidth = wide;
  if (dashed) paint.setLineDash([Math.max(3, side / 8), Math.max(2, side / 12)]);
  paint.strokeRect(x + wide / 2 + 1, y + wide / 2 + 1, side - wide - 1, side - wide - 1);
  paint.restore();
}

const SHAPES = {
  S(paint, x, y, r, ground, colours) { // a disc with an S
    paint.beginPath();
    paint.arc(x, y, r, 0, 7);
    paint.fill();
    paint.fillStyle = ground;
    paint.font = `700 ${Math.max(9, r * 1.6)}px ${colours.font}`;
    paint.textAlign = "center";
    paint.textBaseline = "middle";
    paint.fillText("S", x, y + r * 0.1);
  },
  G(paint, x, y, r) { // a flag
    paint.beginPath();
    paint.moveTo(x - r * 0.55, y + r);
    paint.lineTo(x - r * 0.55, y - r);
    paint.stroke();
    paint.beginPath();
    paint.moveTo(x - r * 0.55, y - r);
    paint.lineTo(x + r * 0.85, y - r * 0.45);
    paint.lineTo(x - r * 0.55, y + r * 0.1);
    paint.fill();
  },
  T(paint, x, y, r) { // a cross
    paint.beginPath();
    paint.moveTo(x - r * 0.75, y - r * 0.75);
    paint.lineTo(x + r * 0.75, y + r * 0.75);
    paint.moveTo(x + r * 0.75, y - r * 0.75);
    paint.lineTo(x - r * 0.75, y + r * 0.75);
    paint.stroke();
  },
  R(paint, x, y, r) { // a diamond
    paint.beginPath();
    paint.moveTo(x, y - r);
    paint.lineTo(x + r * 0.85, y);
    paint.lineTo(x, y + r);
    paint.lineTo(x - r * 0.85, y);
    paint.fill();
  },
};

// One arrow for each action that has a probability; its length is the probability's where the policy is stochastic.
function arrows(board, paint, state) {
  const chances = board.data.arrows[state], sign = signOf(board, state);
  if (!chances || sign === "#" || ENDS.includes(sign)) return;
  const { side } = board, [x, y] = centre(board, state);
  const longest = side * (board.numbered ? 0.27 : 0.4);
  paint.strokeStyle = paint.fillStyle = inkOn(fillOf(board, state));
  paint.lineWidth = side < 24 ? 1.2 : 2;
  paint.globalAlpha = !board.data.proportional && chances.every((chance) => chance > 0) ? 0.4 : 1;
  const alone = chances.filter((chance) => chance >= 0.005).length === 1;
  chances.forEach((chance, action) => {
    if (chance < 0.005) return;
    const [down, right] = SIDES[action];
    const length = longest * (board.data.proportional ? chance : 1), head = Math.min(length * 0.6, side * 0.16, 9);
    const shaft = length - head, tail = alone ? longest : 0; // the only arrow stands in the middle of the cell
    paint.beginPath();
    paint.moveTo(x - right * tail, y - down * tail);
    paint.lineTo(x + right * shaft, y + down * shaft);
    paint.stroke();
    paint.beginPath();
    paint.moveTo(x + right * length, y + down * length);
    paint.lineTo(x + right * shaft + down * head * 0.62, y + down * shaft + right * head * 0.62);
    paint.lineTo(x + right * shaft - down * head * 0.62, y + down * shaft - right * head * 0.62);
    paint.fill();
  });
  paint.globalAlpha = 1;
}

function number(board, paint, state) {
  const value = board.data.heat.values[state], sign = signOf(board, state);
  if (value === null || sign === "#" || ENDS.includes(sign)) return;
  const [x, y] = corner(board, state), { side } = board;
  paint.fillStyle = inkOn(fillOf(board, state));
  paint.font = `${side > 60 ? 14 : 12}px ${board.colours.font}`;
  paint.textAlign = "center";
  paint.textBaseline = "alphabetic";
  const text = short(value, board.data.heat.digits), at = [x + side / 2, y + side - Math.max(3, side * 0.07)];
  if (board.player.episode) { // the path may pass below
    paint.strokeStyle = fillOf(board, state);
    paint.lineWidth = 4;
    paint.lineJoin = "round";
    paint.strokeText(text, ...at);
  }
  paint.fillText(text, ...at);
}

// Where the agent stands in a cell: out of the way of the symbol in the cell where an episode ends.
function standing(board, state) {
  const [x, y] = centre(board, state), aside = ENDS.includes(signOf(board, state)) ? board.side * 0.3 : 0;
  return [x + aside, y - aside * 0.7];
}

// The way so far: its last moves strong, what lies further back faint.
function path(board, paint) {
  const { episode, index, touched } = board.player, { colours, side } = board;
  const places = episode.path.map((state) => standing(board, state));
  const stroke = (from, to, colour, width, alpha) => {
    if (to <= from) return;
    paint.globalAlpha = alpha;
    paint.strokeStyle = colour;
    paint.lineWidth = width;
    paint.beginPath();
    places.slice(from, to + 1).forEach(([x, y], place) => (place ? paint.lineTo(x, y) : paint.moveTo(x, y)));
    paint.stroke();
    paint.globalAlpha = 1;
  };
  paint.lineJoin = paint.lineCap = "round";
  const width = Math.max(2, Math.min(side * 0.06, 5)), trail = Math.max(0, index - 12);
  if (!touched) {
    stroke(0, index, colours.ground, width + 2, 0.4);
    stroke(0, index, colours.agent, width, 0.8);
  } else {
    stroke(0, trail, colours.agent, width, 0.3);
    stroke(trail, index, colours.ground, width + 2, 0.8);
    stroke(trail, index, colours.agent, width, 1);
  }
  paint.lineCap = "butt";
}

// The agent, and the cell that its last move changed.
function agent(board, paint) {
  const { episode, index, touched } = board.player, { colours, side } = board;
  const [x, y] = standing(board, episode.path[index]), radius = Math.max(3.5, Math.min(side * 0.17, 13));
  paint.beginPath();
  paint.arc(x, y, radius, 0, 7);
  paint.fillStyle = colours.agent;
  paint.fill();
  paint.lineWidth = Math.max(1.5, radius * 0.25);
  paint.strokeStyle = "#FFFFFF";
  paint.stroke();
  paint.beginPath();
  paint.arc(x, y, radius + paint.lineWidth * 0.75, 0, 7);
  paint.lineWidth = 1;
  paint.strokeStyle = "#10151A";
  paint.stroke();
  if (touched && index) changed(board, paint, episode.moves[index - 1]);
}

function changed(board, paint, move) {
  const [x, y] = corner(board, move.state), { side, colours } = board;
  paint.strokeStyle = colours.agent;
  paint.lineWidth = 3;
  paint.strokeRect(x + 1.5, y + 1.5, side - 2, side - 2);
  if (move.before === null || move.before === undefined) return;
  const words = `${format(move.before, 3)} → ${format(move.after, 3)}`;
  paint.font = `600 13px ${colours.font}`;
  const width = paint.measureText(words).width + 12, right = LEFT + board.columns * side;
  const left = Math.max(1, Math.min(x + side / 2 - width / 2, right - width));
  const top = y - 24 > HEAD - 8 ? y - 24 : y + side + 4;
  paint.fillStyle = colours.ink;
  paint.beginPath();
  paint.roundRect(left, top, width, 21, 5);
  paint.fill();
  paint.fillStyle = colours.ground;
  paint.textAlign = "left";
  paint.textBaseline = "middle";
  paint.fillText(words, left + 6, top + 11);
}

function outlines(board, paint) {
  const outline = (state, colour, width, dash) => {
    if (state === null || state === undefined || state >= board.cells.length) return;
    const [x, y] = corner(board, state);
    paint.save();
    paint.setLineDash(dash);
    for (const [each, wide] of [[board.colours.ground, width + 2], [colour, width]]) {
      paint.strokeStyle = each;
      paint.lineWidth = wide;
      paint.strokeRect(x + 1.5, y + 1.5, board.side - 2, board.side - 2);
    }
    paint.restore();
  };
  outline(board.data.picked, board.colours.ink, 2.5, []);
  if (document.activeElement === board.canvas) outline(board.cursor, board.colours.ink, 2, [4, 3]);
  if (board.hover !== null && board.hover !== board.data.picked) outline(board.hover, board.colours.mark, 1.5, []);
}
