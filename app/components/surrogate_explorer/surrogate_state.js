// What can be grabbed, by the names of the link's fields. `usual` is where the page begins, `said` what the link holds,
// `mine` what this hand has changed since; the server hears of it once the hand rests, and keeps it in the link.

const titleOf = (key) => SURROGATES[key].name;
// The colour and the dash of a curve; a twin without a colour gets one that no other has, as far as there are any.
const COLOURS = "123456789";
function curveOf({ data: { drawn } }, key) {
  if (SURROGATES[key].colour) return SURROGATES[key].colour;
  const free = [...COLOURS].filter((each) => !drawn.some((other) => SURROGATES[other].colour?.[0] === each));
  const plain = drawn.filter((each) => !SURROGATES[each].colour);
  return [(free.length ? free : [...COLOURS])[plain.indexOf(key) % (free.length || COLOURS.length)], "1 3"];
}

const BELOW = new Set(["rewards", "pair", "old", "rate", "epochs", "delta", "leap", "along"]); // the small policy's

const same = (left, right) => JSON.stringify(left) === JSON.stringify(right);

function settle(picture) {
  picture.now = { ...picture.data.usual, ...picture.data.said, ...picture.mine };
}

function write(picture, name, value) {
  if (same(picture.now[name], value)) return;
  picture.mine[name] = picture.pending[name] = value;
  picture.below = BELOW.has(name);
  settle(picture);
}

// The explained surrogate is drawn last, over the others.
const drawnKeys = ({ shown, focus }) => [...shown.filter((key) => key !== focus), focus];
// Whether a surrogate that is drawn has this knob.
const isUsed = ({ data, now }, name) => data.dials.some((each) => each.name === name && each.keys.some((key) => drawnKeys(now).includes(key)));

// Both sides of ε at once: the lower one ends at 1.
function writeBoth(picture, value) {
  const both = Number(clamp(value, 0, 1).toPrecision(3));
  write(picture, "clip_low", both);
  write(picture, "clip_high", both);
}

// Only where nothing is under way: what comes from the server may be older than the hand.
function receive(picture) {
  if (!picture.busy && !Object.keys(picture.pending).length) picture.mine = {};
  settle(picture);
}

function sendChanges(picture) {
  if (picture.busy || !Object.keys(picture.pending).length) return;
  picture.times += 1;
  picture.trigger?.("grab", { ...picture.pending, times: picture.times });
  picture.pending = {};
}

function reset(picture) {
  const all = Object.keys({ ...picture.data.said, ...picture.mine });
  picture.mine = {};
  picture.apart = false;
  picture.data = { ...picture.data, said: {} };
  picture.pending = Object.fromEntries(all.map((name) => [name, null]));
  settle(picture);
}

// A slider of one of these. `text`: the value in words; the rest as `slider` takes it.
const dial = (picture, name, { label, ...more }) => slider(picture, { label, read: () => picture.now[name],
  write: (value) => write(picture, name, Number(value.toPrecision(4))), text: () => inShort(picture.now[name]), ...more });

const inShort = (value) => (Number.isFinite(value) ? Number(value.toPrecision(3)).toString().replace("-", "−") : "–");
const signed = (value) => (value > 0 ? "+" : "") + at3(value);
const sized = (value) => (value > 0 ? "+" : "") + inShort(value);

// Ranges of sliders: at least up to `high`, and twice what is set; of an ε finely where it is small.
const most = ({ data: { usual, said } }, name, high) => ({ low: 0, high: Math.max(high, 2 * (said[name] ?? usual[name])), step: 0.1 });
const epsilon = (picture, name) => {
  const usual = picture.data.usual[name];
  return usual < NARROW ? { low: 0, high: Math.max(4 * usual, 0.01), step: usual < 0.01 ? 1e-4 : 0.001 }
    : { ...most(picture, name, 1), step: 0.01 };
};
