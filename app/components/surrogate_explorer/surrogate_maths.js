// The surrogates of labcore/maths/surrogates.py for one token, as functions of its ratio ρ = π/π_old, its advantage A
// and the knobs, under the lab's own names. Each stands in a file of its own, twin_KEY.js, which adds it to SURROGATES;
// without one a surrogate is not drawn here. A test compares them with those of the lab.
//
// A twin has `of(ρ, A, knobs)`: its value, in the unit of the advantages; `slope`: ∂S/∂log π, what pushes the token;
// `dead(A, knobs)`: the stretches [from, to] of ratios on which that slope is 0; and `name`. Those that only weigh
// log π (`weighs`) have no value of their own: for them `of` is weight × A, and S is that times log π.
// What may be left out: `note` beside the name, `colour` [of the palette, dash], `says`: what it does, else the lab's
// label; `formula`: S in letters; `words(ρ, A, knobs)`: which branch is active; `dials(picture)`: sliders by their knobs,
// which else have the range that the knob declares.

const SURROGATES = {};

const bounds = ({ clip_low: low, clip_high: high }) => [1 - low, 1 + high];
const inside = (ratio, stretches) => stretches.some(([from, to]) => ratio > from && ratio < to);

// What `clip` cuts off: only the side on which the advantage pushes further out.
function clipDead(low, high, advantage) {
  if (advantage > 0) return [[high, Infinity]];
  return advantage < 0 ? [[0, low]] : [[0, Infinity]];
}

const flat = (advantage) => (advantage === 0 ? [[0, Infinity]] : []);
// ∂S/∂log π = ρA wherever the surrogate is ρA, and 0 where it is constant.
const unlessDead = (dead) => (ratio, advantage, knobs) =>
  inside(ratio, dead(advantage, knobs)) ? 0 : ratio * advantage;

// Whether a token's gradient is cut off: its advantage is not what makes it 0.
const isCut = (key, ratio, advantage, knobs) =>
  advantage !== 0 && inside(ratio, SURROGATES[key].dead(advantage, knobs));
