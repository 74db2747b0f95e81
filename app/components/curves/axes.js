// Symlog axes, round ends, markers with their words, and the page's looks.

const KL_LINEAR = 1e-3; // symlog: linear within ±0.001, logarithmic beyond
const LEVELS = 3; // of marker words above a chart; the ones that find no place keep their line

const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

// The part of a Plotly layout that is the same for all of them.
const looksOf = ({ ink, line, font, ground }) => ({ paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  font: { color: ink, family: font, size: 12 }, showlegend: false, dragmode: "zoom",
  hoverlabel: { bgcolor: ground, bordercolor: line, font: { size: 13, color: ink } },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink } });

const LEAST_TOP = 0.4; // percent, where the axis of a share that is usually small ends at the least

// The axis of such shares: from 0, so that lines along the edge are seen in full, to just above the largest.
function smallRange(values) {
  const top = values.reduce((a, b) => Math.max(a, 100 * b), LEAST_TOP);
  return [-0.03 * top, 1.06 * top];
}

const symlog = (y) => Math.sign(y) * Math.log10(1 + Math.abs(y) / KL_LINEAR);

function niceCeil(value) {
  if (value <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((edge) => edge >= value);
}

// The part of a Plotly axis that shows symlog `values` on so many pixels: ticks from zero outwards, as many decades as
// there is room for. A chart of large numbers need not show zero.
function symlogAxis(values, pixels) {
  const apart = 15 / pixels; // the share of the height that two labels need
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), 0.01);
  const low = least >= 1 && high > least ? least : Math.min(0, least);
  const far = (symlog(high) - symlog(low)) * apart;
  const ticks = [];
  for (const sign of [1, -1]) {
    let last = 0;
    for (let power = -3; power <= 12; power += 1) {
      const tick = sign * 10 ** power;
      if (tick > high * 1.01 || tick < low * 1.01 - 1e-9 || Math.abs(symlog(tick) - last) <= far) continue;
      last = symlog(tick);
      ticks.push(tick);
    }
  }
  if (low <= 0) ticks.push(0);
  ticks.sort((a, b) => a - b);
  return { rangemode: low > 0 ? "normal" : "tozero", tickvals: ticks.map(symlog), ticktext: ticks.map(power10) };
}

function power10(tick) {
  const size = Math.abs(tick);
  const words = size < 1e4 ? Number(size.toPrecision(1)) : `10<sup>${Math.log10(size).toFixed(0)}</sup>`;
  return (tick < 0 ? "−" : "") + words;
}

// Dotted verticals at `marks` ({ x, text, colour, more }), their words above the plot, whose x axis shows
// `range` on so many pixels: on as many levels as near neighbours need, the rightmost lowest. `more` is what else an
// annotation has; `worded` are the marks with words, in the order of the annotations; `top` is the margin they need.
function markLayout(marks, range, pixels, words = true, most = LEVELS) {
  const shapes = [], annotations = [], worded = [], levels = [];
  const perPixel = (range[1] - range[0]) / pixels;
  for (const mark of [...marks].sort((a, b) => b.x - a.x)) {
    const { x, text, colour, more } = mark;
    shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, layer: "below",
      line: { color: colour, width: 1, dash: "dot" } });
    if (!words) continue;
    const long = text.length * 6.6 * perPixel;
    const right = x + long > range[1];
    const [start, end] = right ? [x - long, x] : [x, x + long];
    const free = levels.findIndex((taken) => taken.every(([from, to]) => end < from || start > to));
    const level = free < 0 ? levels.length : free;
    if (level >= most) continue;
    levels[level] = [...(levels[level] ?? []), [start - 8 * perPixel, end + 8 * perPixel]];
    worded.push(mark);
    annotations.push({ x, yref: "paper", y: 1, yshift: 14 * level - 2, yanchor: "bottom", showarrow: false,
      xanchor: right ? "right" : "left", xshift: right ? 3 : -3, borderpad: 0, text: escaped(text),
      font: { size: 12, color: colour }, ...more });
  }
  return { shapes, annotations, worded, top: 8 + 14 * levels.length };
}

const NEAR = 62; // pixels: marks that are nearer fold to one flag, whose words fit there
const LETTER = 6.2; // pixels
const MOST_LISTED = 12;

// The same in little room: every knob's change has a flag with its words while there is room on so many `levels`. Else
// all stand on one level: marks that are near each other fold to one flag with their count, and the list of them to
// hover. A knob's change that is alone among verdicts gives them its words. A flag of several changes is not among the
// `worded`.
function foldedLayout(marks, range, pixels, levels = 1) {
  const apart = eachNamed(marks, range, pixels);
  const laid = markLayout(apart, range, pixels, true, levels);
  if (laid.worded.length === apart.length) return { ...laid, top: Math.max(laid.top, 22) };
  const shapes = [...new Map(marks.map((mark) => [mark.x, mark])).values()].map(({ x, colour }) => ({ type: "line",
    x0: x, x1: x, yref: "paper", y0: 0, y1: 1, layer: "below", line: { color: colour, width: 1, dash: "dot" } }));
  const flags = flagsOf(marks, range, pixels);
  const annotations = flags.map(({ x, text, right, first, list }) => ({ x, yref: "paper", y: 1, yshift: -2,
    yanchor: "bottom", showarrow: false, xanchor: right ? "right" : "left", xshift: right ? 3 : -3, borderpad: 0,
    font: { size: 12, color: first.colour }, ...first.more, text: escaped(text),
    ...(list && { captureevents: true, hovertext: list, text: `<b>${escaped(text)}</b>` }) }));
  const worded = flags.map(({ first, click }) => (click ? first : {}));
  return { shapes, annotations, worded, top: 22 };
}

// A flag for each knob's change, and for the verdicts that stand near none of them: near ones are in its list.
function eachNamed(marks, range, pixels) {
  const scale = pixels / (range[1] - range[0]);
  const turns = marks.filter(({ verdict }) => !verdict).map((mark) => ({ x: mark.x, marks: [mark] }));
  const flags = [...turns];
  for (const mark of marks.filter(({ verdict }) => verdict)) {
    const near = flags.find(({ x }) => Math.abs(x - mark.x) * scale < NEAR);
    if (near) near.marks.push(mark);
    else flags.push({ x: mark.x, marks: [mark] });
  }
  return flags.map((flag) => {
    const { whole } = named(flag), { first, click, list } = flag, most = Math.max(8, Math.floor(pixels / LETTER) - 2);
    return { ...first, x: flag.x, click: click ? first.click : undefined,
      text: whole.length > most ? `${whole.slice(0, most - 1).trimEnd()}…` : whole,
      more: { ...first.more, ...(list && { captureevents: true, hovertext: list }) } };
  });
}

// The flags from left to right, each with the words that have room before its neighbours.
function flagsOf(marks, range, pixels) {
  const place = ({ x }) => (x - range[0]) / (range[1] - range[0]) * pixels;
  const flags = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    const last = flags.at(-1);
    if (last && place(mark) - place(last) < NEAR) last.marks.push(mark);
    else flags.push({ x: mark.x, marks: [mark] });
  }
  let free = pixels;
  for (const flag of flags.reverse()) {
    const { whole, short } = named(flag);
    const at = place(flag), long = whole.length * LETTER;
    flag.right = flag === flags[0] && at + long > pixels;
    const room = flag.right ? Math.max(at - (flags[1] ? place(flags[1]) + NEAR : 0), NEAR) : free - at;
    const most = Math.max(1, Math.floor(room / LETTER));
    const words = whole.length > most ? short : whole;
    flag.text = words.length > most ? `${words.slice(0, most - 1).trimEnd()}…` : words;
    free = (flag.right ? at - flag.text.length * LETTER : at) - 8;
  }
  return flags.reverse();
}

// What a flag is called, in whole and where there is little room; what a click on it does, and the list to hover.
function named(flag) {
  const { marks } = flag, more = marks.length - 1, turns = marks.filter(({ verdict }) => !verdict);
  const first = turns.length === 1 ? turns[0] : marks[0];
  const click = !more || (turns.length === 1 && Boolean(first.more?.captureevents));
  Object.assign(flag, { click, first, list: more ? listOf(marks, click) : "" });
  if (!more) return { whole: first.text, short: first.text };
  const short = `${marks.length} ${turns.length > more ? "changes" : "events"}`;
  return { whole: click ? `${first.text} +${more}` : short, short };
}

function listOf(marks, click) {
  const lines = marks.slice(0, MOST_LISTED).map(({ text, when }) => escaped(`${when}: ${text}`));
  const rest = marks.length > MOST_LISTED ? [`… and ${marks.length - MOST_LISTED} more`] : [];
  const clicked = click ? "What if? Click to fork from before the change" : "Zoom in to click one of them";
  return [...lines, ...rest, clicked].join("<br>");
}
