// The equation with the numbers of the moment, as MathML: screen readers read it, and it wraps between its pieces.

// A number with `digits` decimals and a real minus sign; zero never has a minus sign.
const fixed = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−")
  : value > 0 ? "∞" : "–");

const mi = (letter) => `<mi>${letter}</mi>`;
const mn = (value, digits = 2) => (value === Infinity ? "<mn>∞</mn>" : value === -Infinity ? "<mo>−</mo><mn>∞</mn>"
  : `${value < 0 && Number(value.toFixed(digits)) ? "<mo>−</mo>" : ""}<mn>${Math.abs(value).toFixed(digits)}</mn>`);
const mo = (sign) => `<mo>${sign}</mo>`;
const mtext = (words) => `<mtext>${words}</mtext>`;
const mrow = (...parts) => `<mrow>${parts.join("")}</mrow>`;
const frac = (above, below) => `<mfrac>${mrow(above)}${mrow(below)}</mfrac>`;
const sub = (base, below) => `<msub>${mrow(base)}${mrow(below)}</msub>`;
const sup = (base, above) => `<msup>${mrow(base)}${mrow(above)}</msup>`;
const sqrt = (inner) => `<msqrt>${mrow(inner)}</msqrt>`;
const log = (inner) => `<mi>log</mi>${mo("&#8289;")}<mspace width="0.17em"/>${inner}`;

// { show(pieces) }: each piece is MathML; lines break between pieces.
function equation(picture, label, parent = picture.root) {
  const node = el("div", { class: "rl-f-equation", role: "group", "aria-label": label });
  parent.append(node);
  return { node, show(pieces) { node.innerHTML = pieces.map((each) => `<math>${mrow(each)}</math>`).join(" "); } };
}
