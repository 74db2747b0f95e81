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
const HEAD = 16, LEFT = 22; // pixels for the numbers of the columns and rows
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b",
  "#fde725"];
const SPEEDS = [1, 2, 3, 5, 8, 12, 20, 30];
const prefs = { speed: 3 }; // kept when the page is left and opened again
const ICONS = { play: "M3 1.5v13l11-6.5z", pause: "M3 2h4v12H3zM9 2h4v12H9z", back: "M13 2v12L5 8zM2.5 2h2v12h-2z",
  forward: "M3 2v12l8-6zM11.5 2h2v12h-2z", earlier: "M11 2L4 8l7 6z", later: "M5 2l7 6-7 6z" };

// ---- colour ----------------------------------------------------------------------------------------------------

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const hexOf = (parts) => `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;

function mix(from, to, share) {
  const [a, b] = [channels(from), channels(to)];
  return hexOf(a.map((part, place) => part + (b[place] - part) * share));
}

function coloursOf(element) {
  const base = theme(element);
  const ground = /^#[0-9a-f]{6}$/i.test(base.ground) ? base.ground : base.dark ? "#0e1116" : "#ffffff";
  return base.dark
    ? { ...base, ground, free: "#262D35", grid: "#3D4650", wall: "#07090B", hatch: "#39424C", neutral: "#4A545F",
        high: "#4FA8E0", low: "#F2B84B", goal: "#3FC79A", trap: "#F08A4B", reward: "#E3A0C4", agent: "#F08A4B" }
    : { ...base, ground, free: "#F5F6F8", grid: "#C9CFD6", wall: "#5B6570", hatch: "#828C97", neutral: "#DDE1E6",
        high: "#0072B2", low: "#E69F00", goal: "#009E73", trap: "#D55E00", reward: "#CC79A7", agent: "#D55E00" };
}

// Ink that can be read on a colour.
function inkOn(colour) {
  const [r, g, b] = channels(colour).map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.3 ? "#10151A" : "#FFFFFF";
}

// What colour a value has: diverging around zero, or viridis from the lowest (zero or less) to the highest.
function scaleOf(heat, colours) {
  const values = heat.values.filter((value) => value !== null);
  const low = Math.min(0, ...values), high = Math.max(0, ...values);
  const reach = Math.max(-low, high);
  if (!reach) return { low: 0, high: 0, colour: () => colours.neutral };
  if (heat.scale === "signed") {
    const colour = (value) => mix(colours.neutral, value < 0 ? colours.low : colours.high, Math.abs(value) / reach);
    return { low: -reach, high: reach, colour };
  }
  const share = heat.scale === "log" ? (value) => Math.log1p(value) / Math.log1p(high)
    : (value) => (value - low) / (high - low);
  const colour = (value) => {
    const at = share(value) * (VIRIDIS.length - 1), place = Math.min(Math.floor(at), VIRIDIS.length - 2);
    return mix(VIRIDIS[place], VIRIDIS[place + 1], at - place);
  };
  return { low, high, colour };
}

// ---- the cells -------------------------------------------------------------------------------------------------

function read(board) {
  const rewards = [...board.data.rewards];
  board.rows = board.data.rows.length;
  board.columns = board.data.rows[0].length;
  board.cells = [...board.data.rows.join("")].map((sign) => (
    { sign, pay: PAYING.includes(sign) ? rewards.shift() : null }));
}

function measure(board) {
  const wide = board.root.clientWidth - LEFT - 2, high = board.data.height - HEAD - 2;
  board.side = Math.max(6, Math.floor(Math.min(wide / board.columns, high / board.rows, LARGEST)));
  const width = LEFT + board.side * board.columns + 2, height = HEAD + board.side * board.rows + 2;
  const ratio = window.devicePixelRatio || 1;
  const { canvas } = board;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  board.ratio = ratio;
}

const corner = (board, state) => [LEFT + (state % board.columns) * board.side,
  HEAD + Math.floor(state / board.columns) * board.side];

function centre(board, state) {
  const [x, y] = corner(board, state);
  return [x + board.side / 2, y + board.side * (board.numbered ? 0.42 : 0.5)];
}

function stateAt(board, event) {
  const box = board.canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - LEFT) / board.side);
  const row = Math.floor((event.clientY - box.top - HEAD) / board.side);
  const inside = row >= 0 && row < board.rows && column >= 0 && column < board.columns;
  return inside ? row * board.columns + column : null;
}

const signOf = (board, state) => board.pending.get(state) ?? board.cells[state].sign;
const where = (board, state) => `row ${Math.floor(state / board.columns) + 1}, column ${state % board.columns + 1}`;

// A value in a cell: always the same decimals, so that cells can be compared.
function short(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) ? text.replace("-", "−") : "0";
}

function signed(number) {
  if (!number) return "0";
  return (number > 0 ? "+" : "−") + Math.abs(number).toLocaleString("en-US", { maximumFractionDigits: 2 });
}

// ---- drawing ---------------------------------------------------------------------------------------------------

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

// ---- words -----------------------------------------------------------------------------------------------------

function words(board, state) {
  const sign = signOf(board, state), { pay } = board.cells[state], { data } = board;
  const parts = [where(board, state), KINDS[sign] + (pay === null ? "" : ` ${signed(pay)}`)];
  const value = data.heat?.values[state];
  if (value !== null && value !== undefined && sign !== "#") {
    parts.push(`${data.heat.label} ${short(value, data.heat.digits && data.heat.digits + 1)}`);
  }
  const chances = sign === "#" || ENDS.includes(sign) ? null : data.arrows?.[state];
  if (chances) {
    const ways = chances.map((chance, action) => [chance, ARROW_WORDS[action]]).filter(([chance]) => chance >= 0.005);
    parts.push(ways.map(([chance, word]) => (data.proportional ? `${word} ${Math.round(chance * 100)} %` : word))
      .join(data.proportional ? ", " : " or "));
  }
  return parts.join(" · ");
}

function describe(board) {
  const found = (sign) => board.cells.map((each, state) => (each.sign === sign ? where(board, state) : null))
    .filter(Boolean);
  const list = (name, places) => (places.length ? `; ${name} in ${places.slice(0, 4).join(" and ")}` : `; no ${name}`);
  const heat = board.data.heat ? ` Coloured by ${board.data.heat.label}.` : "";
  const keys = board.data.mode === "edit" ? "Enter paints" : "Enter picks a cell";
  board.canvas.setAttribute("aria-label", `Maze, ${board.rows} rows by ${board.columns} columns`
    + `${list("start", found("S"))}${list("goal", found("G"))}.${heat} Arrow keys move, ${keys}.`);
}

function legend(board) {
  const { heat } = board.data, { scale } = board;
  board.foot.hidden = !heat;
  if (!heat) return;
  const stops = Array.from({ length: 11 }, (_, place) => {
    const share = place / 10; // of a logarithmic scale too: equal parts of the bar are equal parts of the colours
    return scale.colour(heat.scale === "log" ? Math.expm1(share * Math.log1p(scale.high))
      : scale.low + share * (scale.high - scale.low));
  });
  const text = (value) => short(value, heat.digits);
  const log = heat.scale === "log" ? ", log" : "";
  board.foot.innerHTML = `<b>${heat.label}</b> <span>${text(scale.low)}</span>`
    + `<i style="background:linear-gradient(90deg,${stops.join(",")})"></i><span>${text(scale.high)}</span> `
    + `<span>${heat.unit}${log}</span>`;
}

// ---- the player ------------------------------------------------------------------------------------------------

function take(board, episode) {
  const { player } = board;
  if (!player.touched || !player.episode) {
    Object.assign(player, { episode, index: episode ? episode.moves.length : 0, newest: null });
  } else {
    player.newest = episode && episode.key !== player.episode.key ? episode : null;
  }
}

function go(board, index) {
  const { player } = board;
  player.touched = true;
  player.index = Math.max(0, Math.min(player.episode.moves.length, index));
  if (player.index === player.episode.moves.length) player.playing = false;
  show(board);
}

function play(board) {
  const { player } = board;
  player.playing = !player.playing;
  if (player.playing && (!player.touched || player.index === player.episode.moves.length)) player.index = 0;
  player.touched = true;
  clearTimeout(board.timer);
  if (player.playing) tick(board);
  show(board);
}

function tick(board) {
  board.timer = setTimeout(() => {
    if (!board.player.playing) return;
    go(board, board.player.index + 1);
    if (board.player.playing) tick(board);
  }, 1000 / prefs.speed);
}

function newest(board) {
  const { player } = board;
  Object.assign(player, { episode: player.newest ?? player.episode, newest: null });
  player.index = player.playing ? 0 : player.episode.moves.length;
  player.touched = player.playing;
  show(board);
}

// ---- earlier steps of the run ----------------------------------------------------------------------------------

// Ask for the picture of another step; a slider that is dragged asks a few times a second. Zero: always the newest.
function want(board, step) {
  board.wanted = step;
  if (board.asking) return;
  board.asking = setTimeout(() => {
    board.asking = null;
    board.component.setTriggerValue("wanted", board.wanted);
  }, 120);
}

function stride(board, by) {
  const { steps, shown } = board.data.history;
  const next = steps[steps.indexOf(shown) + by];
  if (next !== undefined) want(board, next);
}

function past(board) {
  const { history } = board.data, { steps } = board;
  steps.box.hidden = !history || history.steps.length < 2 || board.data.mode !== "look";
  if (steps.box.hidden) return;
  const at = history.steps.indexOf(history.shown), last = history.steps.length - 1;
  steps.earlier.disabled = at <= 0;
  steps.later.disabled = at >= last;
  steps.when.max = last;
  if (!board.asking) steps.when.value = at;
  steps.when.setAttribute("aria-valuetext", `step ${history.shown}`);
  steps.step.textContent = `step ${history.shown} of ${history.steps[last]}`;
  steps.live.hidden = !history.pinned;
}

const icon = (name) => `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

function show(board) {
  draw(board);
  const { player, controls } = board, { episode, index } = player;
  board.box.hidden = !episode || board.data.mode !== "look";
  if (board.box.hidden) return;
  const count = episode.moves.length;
  const face = player.playing ? "pause" : "play";
  if (controls.play.dataset.face !== face) {
    controls.play.dataset.face = face;
    controls.play.innerHTML = icon(face);
    controls.play.setAttribute("aria-label", player.playing ? "Pause the episode" : "Play the episode");
  }
  controls.back.disabled = index === 0;
  controls.forward.disabled = index === count;
  Object.assign(controls.place, { max: count, value: index });
  const of = episode.length > count ? ` of the last ${count}` : ` of ${count}`;
  controls.count.textContent = `move ${index}${of}`;
  controls.newest.hidden = !player.newest && !(player.touched && !player.playing && index < count);
  controls.newest.textContent = player.newest ? `Newest episode, step ${player.newest.step}` : "To the end";
  board.text.innerHTML = "";
  const move = player.touched && index ? episode.moves[index - 1] : null;
  const span = document.createElement(move ? "code" : "span");
  const ended = { goal: "reached a goal", trap: "fell into a trap", time: "ran out of time" }[episode.ended] ?? "ended";
  span.textContent = move ? move.text : `The episode of step ${episode.step} ${ended} after ${episode.length} `
    + `${episode.length === 1 ? "move" : "moves"}, return ${short(episode.return, 2)}.`;
  if (move) {
    board.text.append(`${where(board, move.state)}, ${ARROW_WORDS[move.action]}, reward ${signed(move.reward)}`);
    board.text.append(document.createElement("br"));
  }
  board.text.append(span);
}

// ---- painting and picking --------------------------------------------------------------------------------------

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

// ---- mount -----------------------------------------------------------------------------------------------------

function build(board) {
  board.root.innerHTML = `<div class="rl-stage"><canvas tabindex="0" role="application" aria-roledescription="maze">
    </canvas><output aria-hidden="true" hidden></output></div>
    <div class="rl-unseen" aria-live="polite"></div>
    <div class="rl-scale"></div>
    <div class="rl-player rl-past" role="group" aria-label="Earlier steps of the run" hidden><div>
      <button type="button" class="rl-earlier" aria-label="One step earlier">${icon("earlier")}</button>
      <button type="button" class="rl-later" aria-label="One step later">${icon("later")}</button>
      <input class="rl-place rl-when" type="range" min="0" step="1" aria-label="Step of the run">
      <span class="rl-count rl-step"></span>
      <button type="button" class="rl-newest rl-live">Newest</button>
    </div></div>
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
  board.steps = Object.fromEntries(["earlier", "later", "when", "step", "live"]
    .map((name) => [name, find(`.rl-${name}`)]));
  board.steps.box = find(".rl-past");
  board.steps.earlier.addEventListener("click", () => stride(board, -1));
  board.steps.later.addEventListener("click", () => stride(board, 1));
  board.steps.when.addEventListener("input", () => want(board, board.data.history.steps[board.steps.when.value]));
  board.steps.live.addEventListener("click", () => want(board, 0));
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
  const tell = () => { text.textContent = `${prefs.speed}/s`; };
  slider.value = SPEEDS.indexOf(prefs.speed);
  slider.addEventListener("input", () => { prefs.speed = SPEEDS[slider.value]; tell(); });
  tell();
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
  const pinned = data.history?.pinned ? data.history.shown : 0;
  if (pinned !== board.pinned) Object.assign(board.player, { touched: false, playing: false });
  board.pinned = pinned;
  take(board, data.episode);
  past(board);
  show(board);
  describe(board);
  legend(board);
  if (board.hover !== null) say(board, board.hover);
}

// Streamlit also calls this when newer data came meanwhile: then the board lives on.
export async function dispose(parentElement) {
  await new Promise((resolve) => setTimeout(resolve, 0));
  if (parentElement.isConnected) return;
  const board = boards.get(parentElement);
  boards.delete(parentElement);
  board?.observer.disconnect();
  for (const timer of [board?.timer, board?.refused, board?.asking]) clearTimeout(timer);
}
