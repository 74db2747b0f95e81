// The heat map of the strip: a row for each answer, a column for each step with samples, colour for probability. Of long
// answers a row for each verdict, and colour for its share of the step's samples.

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b",
  "#fde725"];
const ROW = 17, BAND = 30; // pixels: a row of the answers, in story_strip.css too; a verdict's
const LABEL = 98; // pixels for the answers' names where the map stands under them

const parts = VIRIDIS.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

function viridis(share) {
  const at = Math.max(0, Math.min(1, share)) * (parts.length - 1), low = Math.min(Math.floor(at), parts.length - 2);
  return `rgb(${parts[low].map((value, i) => Math.round(value + (parts[low + 1][i] - value) * (at - low))).join(" ")})`;
}

const stepName = (step) => (step ? `step ${format(step, 0)}` : "before step 1");

function paint(strip) {
  const { data, canvas, heat } = strip;
  if (!data || data.empty) return;
  const { columns, apart, low } = data, rows = drawn(data), high = tall(data);
  heat.classList.toggle("rl-story-apart", Boolean(apart));
  if (apart) { heat.dataset.words = apart; return; }
  const width = canvas.parentElement.clientWidth, height = rows.length * high, scale = window.devicePixelRatio || 1;
  if (!width) return;
  const looks = theme(strip.root), left = data.verdicts || stacked() ? LABEL : 0;
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const pen = canvas.getContext("2d"), cell = (width - left - 2) / columns.length;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  strip.cell = { left: left + 1, width: cell };
  rows.forEach((row, y) => {
    if (left) label(pen, row, (y + 0.5) * high, looks);
    row.cells.forEach((value, x) => {
      if (value === null) return;
      pen.fillStyle = viridis(value);
      pen.fillRect(left + 1 + x * cell, y * high + 1, Math.max(1, cell - (cell > 5 ? 1 : 0)), high - 2);
    });
  });
  mark(pen, strip, columns.indexOf(data.step), looks.ink, height);
  strip.ends[0].textContent = stepName(columns[0]);
  strip.ends[1].textContent = columns.length > 1 ? stepName(columns.at(-1)) : "";
  strip.ends[0].parentElement.style.marginLeft = `${left}px`;
  const measure = data.verdicts ? "share of the samples" : low ? "log-prob" : "probability";
  strip.scale[0].textContent = `${measure} over the steps`;
  strip.scale[1].textContent = low ? `${format(low, 0)} nats` : "0 %";
  strip.scale[3].textContent = low ? "0 nats" : "100 %";
  strip.scale[2].style.background = `linear-gradient(90deg,${VIRIDIS.join(",")})`;
  canvas.setAttribute("aria-label", `${measure[0].toUpperCase()}${measure.slice(1)} of each ` +
    `${data.verdicts ? "verdict at" : "answer after the update of"} ${columns.length} steps, ${stepName(columns[0])} to ${stepName(columns.at(-1))}. Arrow keys read the cells.`);
  if (strip.cursor) tip(strip, strip.cursor, false);
}

const drawn = ({ rows, verdicts: bands }) => bands ?? rows;
const tall = (data) => (data.verdicts ? BAND : ROW);
const stacked = () => matchMedia("(max-width:900px)").matches; // as in the CSS

function label(pen, row, y, looks) {
  pen.font = "13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace";
  pen.fillStyle = looks.ink;
  pen.textBaseline = "middle";
  const name = row.answers ? nameOf(row).replace(/^reward /, "") : nameOf(row); // the range of a band fits only without the word
  const most = row.exact === null ? 12 : 10, sign = row.exact === null ? "" : row.exact ? "✓ " : "✗ ";
  pen.fillText(`${sign}${name.length > most ? `${name.slice(0, most - 1)}…` : name}`, 0, y);
}

// The outline of a column.
function mark(pen, strip, column, ink, height) {
  if (column < 0) return;
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  pen.strokeRect(strip.cell.left + column * strip.cell.width - 1, 1, Math.max(strip.cell.width, 3) + 1, height - 2);
}

// ---- reading a cell --------------------------------------------------------------------------------------------

function listen(strip) {
  const { canvas } = strip;
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: Math.floor((event.clientX - box.left - strip.cell.left) / strip.cell.width),
      y: Math.floor((event.clientY - box.top) / tall(strip.data)) };
  };
  for (const kind of ["pointermove", "pointerdown"]) {
    canvas.addEventListener(kind, (event) => strip.cell && tip(strip, under(event), false));
  }
  for (const kind of ["pointerleave", "blur"]) canvas.addEventListener(kind, () => tip(strip, null, false));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move || !strip.cell) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrow keys move its step
    const { columns, step } = strip.data, rows = drawn(strip.data);
    const at = strip.cursor ?? { x: columns.indexOf(step) - move[0], y: -move[1] };
    tip(strip, { x: Math.max(0, Math.min(columns.length - 1, at.x + move[0])),
      y: Math.max(0, Math.min(rows.length - 1, at.y + move[1])) }, true);
  });
}

// The step, the answer and its probability at a cell, beside it; `aloud` for a screen reader as well.
function tip(strip, cursor, aloud) {
  const { columns, low } = strip.data, rows = drawn(strip.data), high = tall(strip.data), { output } = strip;
  const inside = cursor && rows[cursor.y] && columns[cursor.x] !== undefined;
  strip.cursor = inside ? cursor : null;
  output.hidden = !inside;
  if (!inside) return;
  const value = rows[cursor.y].cells[cursor.x];
  const missing = rows[cursor.y].rest ? "not known: not all answers were measured" : "not measured";
  const amount = value === null ? missing : low ? `${format(low * (1 - value), 1)} nats`
    : asPercent(value);
  output.textContent = `${stepName(columns[cursor.x])} · ${nameOf(rows[cursor.y])} · ${amount}` +
    (strip.data.verdicts ? " of the samples" : "");
  if (aloud) strip.spoken.textContent = output.textContent;
  const room = strip.canvas.clientWidth - output.offsetWidth;
  const middle = strip.cell.left + (cursor.x + 0.5) * strip.cell.width - output.offsetWidth / 2;
  output.style.left = `${Math.max(0, Math.min(room, middle))}px`;
  output.style.top = `${cursor.y * high + (cursor.y < 2 ? high + 3 : -ROW - 9)}px`;
}
