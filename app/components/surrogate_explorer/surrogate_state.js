// What can be grabbed, by the names of the link's fields. `usual` is where the page begins, `said` what the link holds,
// `mine` what this hand has changed since; the server hears of it once the hand rests, and keeps it in the link.

const NAMES = { cpi: "Unclipped", clip: "PPO's clip", kl_penalised: "KL penalty", bounded_clip: "Dual clip",
  detached_weight: "CISPO", soft_gate: "SAPO", geometric_clip: "GMPO", gamma_weight: "VESPO" };
const NOTES = { cpi: "L<sup>CPI</sup>", clip: "L<sup>CLIP</sup>", kl_penalised: "L<sup>KLPEN</sup>", bounded_clip: "and δ",
  detached_weight: "weight × A", soft_gate: "gate", geometric_clip: "one token", gamma_weight: "weight × A" };
const COLOURS = { cpi: ["5", "6 4"], clip: ["1", ""], kl_penalised: ["3", ""], bounded_clip: ["2", "2 3"],
  detached_weight: ["4", "8 3"], soft_gate: ["6", ""], geometric_clip: ["4", ""], gamma_weight: ["2", "8 3 2 3"] };

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
const bounds = ({ clip_low: low, clip_high: high }) => [1 - low, 1 + high];
