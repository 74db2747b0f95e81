// One picture per kind of world: `draw` paints an observation, `say` puts it into words.
//
// `glides`: between two steps the numbers may be mixed. All positions are in the world's own units.

const TAU = 2 * Math.PI;
const clear = (value, digits) => value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

function stroke(pen, colour, width, points, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
  pen.setLineDash([]);
}

function disc(pen, colour, x, y, radius) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, radius, 0, TAU);
  pen.fill();
}

function block(pen, colour, x, y, width, height, radius = 4) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
  pen.fill();
}

function text(pen, colour, words, x, y, align = "center") {
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.fillText(words, x, y);
}

// ---- CartPole: [x m, ẋ m/s, θ rad, θ̇ rad/s] --------------------------------------------------------------------

const TRACK = 2.4, LEAN = 12 * Math.PI / 180, POLE = 1.0;

const LOW_SCREEN = 760; // pixels: there the charts below the film are to be seen as well
const cartScale = (width) => Math.min(width / (2 * TRACK + 0.9), window.innerHeight < LOW_SCREEN ? 60 : 100);

function drawCart({ pen, width, height, theme, colour, row: [x, , angle] }) {
  const scale = cartScale(width), ground = height - 26, pivot = ground - 22;
  const middle = width / 2, at = middle + x * scale;
  const end = (lean, length) => [at + Math.sin(lean) * length * scale, pivot - Math.cos(lean) * length * scale];
  stroke(pen, theme.mark, 1.5, [[middle - TRACK * scale, ground], [middle + TRACK * scale, ground]]);
  for (const edge of [-TRACK, TRACK]) {
    stroke(pen, theme.mark, 1.5, [[middle + edge * scale, ground - 26], [middle + edge * scale, ground + 5]]);
    text(pen, theme.mark, `${clear(edge, 1)} m`, middle + edge * scale, ground + 19);
  }
  stroke(pen, theme.line, 1, [[middle, ground], [middle, ground + 5]]);
  text(pen, theme.mark, "0", middle, ground + 19);
  for (const lean of [-LEAN, LEAN]) stroke(pen, theme.mark, 1, [[at, pivot], end(lean, POLE * 1.12)], [3, 4]);
  block(pen, theme.ink, at - 25, ground - 22, 50, 18, 4);
  disc(pen, theme.ink, at - 14, ground - 3, 4);
  disc(pen, theme.ink, at + 14, ground - 3, 4);
  pen.lineCap = "round";
  stroke(pen, colour, 8, [[at, pivot], end(angle, POLE)]);
  pen.lineCap = "butt";
  disc(pen, theme.ground, at, pivot, 2.5);
}

const sayCart = ([x, , angle]) => `cart ${clear(x, 2)} m, pole ${clear(angle * 180 / Math.PI, 1)}°`;

// ---- Acrobot: [cos θ₁, sin θ₁, cos θ₂, sin θ₂, …]; angles from hanging down, links 1 m --------------------------

function acrobotTip([c1, s1, c2, s2]) {
  const one = Math.atan2(s1, c1), both = one + Math.atan2(s2, c2);
  const elbow = [Math.sin(one), -Math.cos(one)];
  return { elbow, tip: [elbow[0] + Math.sin(both), elbow[1] - Math.cos(both)] };
}

function drawAcrobot({ pen, width, height, theme, colour, row }) {
  const scale = (height - 16) / 4.3, middle = width / 2, centre = height / 2;
  const on = ([x, y]) => [middle + x * scale, centre - y * scale];
  const { elbow, tip } = acrobotTip(row);
  stroke(pen, theme.mark, 1.5, [on([-2.1, 1]), on([2.1, 1])], [5, 4]);
  text(pen, theme.mark, "goal: the tip above this line", middle - 2.1 * scale, on([0, 1])[1] - 6, "left");
  pen.lineCap = "round";
  stroke(pen, theme.ink, 9, [on([0, 0]), on(elbow)]);
  stroke(pen, colour, 9, [on(elbow), on(tip)]);
  pen.lineCap = "butt";
  for (const joint of [[0, 0], elbow]) disc(pen, theme.ground, ...on(joint), 3);
}

const sayAcrobot = (row) => `tip ${clear(acrobotTip(row).tip[1], 2)} m, line at 1 m`;

// ---- MountainCar: [position, velocity] -------------------------------------------------------------------------

const hill = (x) => 0.45 * Math.sin(3 * x) + 0.55;

function drawHill({ pen, width, height, theme, colour, row: [x] }) {
  const [left, right, goal] = [-1.2, 0.6, 0.5];
  const on = (at, up = 0) => [16 + (at - left) / (right - left) * (width - 32),
    height - 14 - hill(at) * (height - 62) - up];
  const curve = Array.from({ length: 91 }, (_, i) => on(left + (right - left) * i / 90));
  pen.fillStyle = theme.line;
  pen.beginPath();
  [[16, height], ...curve, [width - 16, height]].forEach(([a, b], i) => (i ? pen.lineTo(a, b) : pen.moveTo(a, b)));
  pen.fill();
  stroke(pen, theme.mark, 1.5, curve);
  stroke(pen, theme.ink, 1.5, [on(goal), on(goal, 34)]);
  block(pen, theme.colours[1], on(goal)[0] - 18, on(goal, 34)[1], 18, 11, 1);
  text(pen, theme.mark, "goal", on(goal)[0] - 22, on(goal, 26)[1], "right");
  const [a, b] = [on(x - 0.01), on(x + 0.01)];
  pen.save();
  pen.translate(...on(x));
  pen.rotate(Math.atan2(b[1] - a[1], b[0] - a[0]));
  block(pen, colour, -17, -19, 34, 13, 5);
  disc(pen, theme.ink, -9, -5, 5);
  disc(pen, theme.ink, 9, -5, 5);
  pen.restore();
}

const sayHill = ([x, speed]) => `position ${clear(x, 2)}, velocity ${clear(speed, 3)} a step`;

// ---- Pendulum: [cos θ, sin θ, θ̇ rad/s], θ from upright to the left; an arc for the torque ------------------------

const TORQUE = 2; // N m: as much as the world takes

function drawPendulum({ pen, width, height, theme, colour, row: [cos, sin], action }) {
  const length = height / 2 - 22, middle = width / 2, centre = height / 2;
  const tip = [middle - sin * length, centre - cos * length];
  stroke(pen, theme.mark, 1, [[middle, centre], [middle, centre - length - 10]], [3, 4]);
  text(pen, theme.mark, "upright", middle + 8, centre - length - 4, "left");
  pen.lineCap = "round";
  stroke(pen, colour, 10, [[middle, centre], tip]);
  pen.lineCap = "butt";
  disc(pen, theme.ground, middle, centre, 3);
  if (!action) return;
  const torque = Math.max(-TORQUE, Math.min(TORQUE, action[0])), turn = torque / TORQUE * 2.4;
  if (Math.abs(torque) < 0.02) return;
  const from = -Math.PI / 2, to = from - turn, radius = 26; // a positive torque raises θ, which turns to the left
  pen.strokeStyle = theme.colours[2];
  pen.lineWidth = 3;
  pen.beginPath();
  pen.arc(middle, centre, radius, from, to, turn > 0);
  pen.stroke();
  const [x, y] = [middle + radius * Math.cos(to), centre + radius * Math.sin(to)];
  const way = to - Math.sign(turn) * Math.PI / 2;
  const barb = (side) => [x - 8 * Math.cos(way + side), y - 8 * Math.sin(way + side)];
  stroke(pen, theme.colours[2], 3, [barb(0.5), [x, y], barb(-0.5)]);
}

function sayPendulum([cos, sin, speed], _, action) {
  const said = `${clear(Math.atan2(sin, cos) * 180 / Math.PI, 0)}° from upright, ${clear(speed, 1)} rad/s`;
  return action ? `${said}, torque ${clear(Math.max(-TORQUE, Math.min(TORQUE, action[0])), 2)} N m` : said;
}

// ---- LunarLander: [x, y, ẋ, ẏ, angle, turning, left leg, right leg], the pad at 0, 0 ------------------------------

function drawLander({ pen, width, height, theme, colour, row: [x, y, , , angle, , left, right] }) {
  const scale = Math.min(width / 2.4, (height - 40) / 1.5), ground = height - 16;
  const at = [width / 2 + x * scale, ground - 12 - y * scale];
  stroke(pen, theme.mark, 1.5, [[8, ground], [width - 8, ground]]);
  for (const side of [-0.2, 0.2]) {
    stroke(pen, theme.ink, 1.5, [[width / 2 + side * scale, ground], [width / 2 + side * scale, ground - 22]]);
    block(pen, theme.colours[1], width / 2 + side * scale, ground - 22, 12, 8, 1);
  }
  pen.save();
  pen.translate(...at);
  pen.rotate(-angle);
  for (const [side, down] of [[-1, left], [1, right]]) {
    stroke(pen, down ? theme.colours[1] : theme.ink, 2, [[side * 8, 2], [side * 14, 12], [side * 18, 12]]);
  }
  block(pen, colour, -11, -12, 22, 16, 5);
  pen.restore();
}

const sayLander = ([x, y, , , angle]) => `x ${clear(x, 2)}, height ${clear(y, 2)}, ` +
  `angle ${clear(angle * 180 / Math.PI, 0)}°`;

// ---- a grid: [state] -------------------------------------------------------------------------------------------

// Where the agent is in the grid; `data.grid.per_cell` states share a cell.
const cellOf = (state, grid) => Math.floor(state / grid.per_cell);
const sizeOf = (grid, width) => Math.min((width - 4) / grid.columns, 232 / grid.rows, 58);

function drawGrid({ pen, width, theme, colour, row: [state], data: { grid }, episode, time }) {
  const size = sizeOf(grid, width), left = (width - size * grid.columns) / 2, top = 2;
  const on = (cell) => [left + (cell % grid.columns + 0.5) * size,
    top + (Math.floor(cell / grid.columns) + 0.5) * size];
  const ground = { hole: theme.mark, goal: theme.colours[1], edge: theme.colours[2] };
  grid.cells.forEach(({ look, mark }, cell) => {
    const [x, y] = on(cell);
    if (ground[look]) {
      block(pen, ground[look] + (look === "hole" ? "" : "55"), x - size / 2 + 1, y - size / 2 + 1, size - 2,
        size - 2, 3);
    }
    pen.strokeStyle = theme.line;
    pen.lineWidth = 1;
    pen.strokeRect(x - size / 2, y - size / 2, size, size);
    if (mark) text(pen, look === "hole" ? theme.ground : theme.ink, mark, x, y + 4);
  });
  for (const [x0, y0, x1, y1] of grid.walls) {
    stroke(pen, theme.ink, 3, [[left + x0 * size, top + y0 * size], [left + x1 * size, top + y1 * size]]);
  }
  const trail = episode.path.slice(0, Math.floor(time) + 1).map(([each]) => on(cellOf(each, grid)));
  pen.globalAlpha = 0.45;
  stroke(pen, colour, 2, trail);
  pen.globalAlpha = 1;
  const [x, y] = on(cellOf(state, grid));
  disc(pen, colour, x, y, size * 0.27);
  if (grid.places.length) drawFare({ pen, theme, size, on, grid, state, x, y });
}

// Taxi: the state also says where the passenger is (4 places, or 4: inside) and where to go.
const fare = (state) => [Math.floor(state / 4) % 5, state % 4];

function drawFare({ pen, theme, size, on, grid, state, x, y }) {
  const [passenger, to] = fare(state);
  const [px, py] = passenger < 4 ? on(grid.places[passenger]) : [x, y];
  const aside = passenger < 4 ? size * 0.28 : 0;
  disc(pen, theme.colours[2], px + aside, py - aside, size * 0.13);
  const [tx, ty] = on(grid.places[to]);
  pen.strokeStyle = theme.colours[1];
  pen.lineWidth = 3;
  pen.strokeRect(tx - size / 2 + 3, ty - size / 2 + 3, size - 6, size - 6);
}

function sayGrid([state], { grid }) {
  const cell = cellOf(state, grid);
  const where = `row ${Math.floor(cell / grid.columns) + 1}, column ${cell % grid.columns + 1}`;
  if (!grid.places.length) return where;
  const [passenger, to] = fare(state);
  return `${where}, passenger ${passenger < 4 ? `at ${"RGYB"[passenger]}` : "in the taxi"}, to ${"RGYB"[to]}`;
}

// ---- anything else: each number of the observation as a line ---------------------------------------------------

function drawLines({ pen, width, theme, colour, data, episode, time }) {
  const names = data.names.slice(0, episode.path[0].length), steps = Math.max(1, episode.path.length - 1);
  const x = (step) => 74 + step / steps * (width - 128);
  names.forEach((name, i) => {
    const values = episode.path.map((row) => row[i]);
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    const y = (value) => 30 * i + 26 - (value - low) / span * 20;
    text(pen, theme.ink, name, 66, 30 * i + 20, "right");
    stroke(pen, theme.line, 1, [[74, 30 * i + 28], [width - 54, 30 * i + 28]]);
    stroke(pen, colour, 1.5, values.map((value, step) => [x(step), y(value)]));
    const now = values[Math.min(Math.floor(time), values.length - 1)];
    disc(pen, colour, x(time), y(now), 3);
    text(pen, theme.ink, clear(now, 2), width - 48, 30 * i + 20, "left");
  });
  stroke(pen, theme.mark, 1, [[x(time), 2], [x(time), 30 * names.length]], [2, 3]);
  if (data.names.length > names.length) {
    const words = `the first ${names.length} of ${data.names.length} numbers`;
    text(pen, theme.mark, words, 74, 30 * names.length + 14, "left");
  }
}

const PICTURES = {
  cart: { glides: true, height: (_, width) => 54 + 1.15 * POLE * cartScale(width), draw: drawCart, say: sayCart },
  acrobot: { glides: true, height: () => 230, draw: drawAcrobot, say: sayAcrobot },
  hill: { glides: true, height: () => 190, draw: drawHill, say: sayHill },
  pendulum: { glides: true, height: () => 230, draw: drawPendulum, say: sayPendulum },
  lander: { glides: true, height: () => 260, draw: drawLander, say: sayLander },
  grid: { glides: false, height: ({ grid }, width) => sizeOf(grid, width) * grid.rows + 4, draw: drawGrid,
    say: sayGrid },
  lines: { glides: false, height: ({ episodes }) => 30 * episodes[0].path[0].length + 22,
    draw: drawLines, say: () => "" },
};
