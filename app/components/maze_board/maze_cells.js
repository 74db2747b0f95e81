// What a cell is and where it lies, its colour, and its words.

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

// On the page, where charts are beside it, a tall window has room for larger cells above the player and the scrubber.
function heightOf({ root, data }) {
  const page = root.closest(".stMain");
  if (!page) return data.height;
  const top = root.getBoundingClientRect().top + page.scrollTop;
  const room = 20 * Math.floor((window.innerHeight - top - BELOW) / 20); // in steps, so that it seldom changes
  return Math.max(data.height, Math.min(TALLEST, room));
}

function measure(board) {
  const wide = board.root.clientWidth - LEFT - 2, high = heightOf(board) - HEAD - 2;
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
