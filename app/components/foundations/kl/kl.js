// KL: two distributions to drag, both directions term by term, and one hump fitted to two in both directions.

const NAMES = ["A", "B", "C", "D", "E"];
const START = { p: [0.4, 0.3, 0.15, 0.1, 0.05], q: [0.1, 0.2, 0.3, 0.25, 0.15] };

function buildKl(picture) {
  const state = { ...START };
  const buttons = [button(picture, "Q = P", () => { state.q = state.p; }),
    button(picture, "Swap P and Q", () => Object.assign(state, { p: state.q, q: state.p })),
    button(picture, "Q never gives A", () => { state.q = moved(state.q, 0, 0); }),
    button(picture, "Start again", () => Object.assign(state, START))];
  controls(picture, ...buttons.map(({ node }) => node));
  const pair = pairOf(picture, state, 190);
  const row = el("div", { class: "rl-f-row" });
  picture.root.append(row);
  const there = plot(picture, row, { title: "", height: 166 }), back = plot(picture, row, { title: "", height: 166 });
  const sum = equation(picture, "The equation with these numbers");
  const showHumps = buildHumps(picture);
  return { draw() {
    const { p, q } = state;
    pair.show();
    const forward = p.map((each, i) => klTerm(each, q[i])), reverse = q.map((each, i) => klTerm(each, p[i]));
    const finite = [...forward, ...reverse].filter(Number.isFinite);
    const y = { high: Math.max(0.3, ...finite) * 1.25 };
    y.low = Math.min(-0.05, ...finite) - 0.22 * y.high;
    drawTerms(there, "KL(P‖Q)", forward, kl(p, q), { ...y, label: "p log(p/q), nats" }, "rl-f1");
    drawTerms(back, "KL(Q‖P)", reverse, kl(q, p), { ...y, label: "q log(q/p), nats" }, "rl-f2");
    sum.show(writtenKl(p, q));
    const fit = showHumps();
    say(picture, `${inWordsKl(p, q)} ${fit}`);
  } };
}

function drawTerms(one, title, terms, sum, y, colour) {
  one.call(`${title} = ${fixed(sum, 3)} nats${sum === Infinity ? "" : ` = ${inBits(sum).toFixed(3)} bits`}, exact`);
  one.fit({ x: { label: "outcome", names: NAMES }, y });
  terms.forEach((term, i) => {
    const at = one.x(i), half = one.x.band * 0.32, open = term === Infinity;
    column(one, at - half, at + half, 0, open ? y.high : term, { class: `${colour}${open ? " rl-f-endless" : ""}` });
    const height = one.y(Math.max(0, open ? y.high : term));
    note(one, at, open ? height + 15 : term < 0 ? one.y(term) + 13 : height - 4, fixed(term, 3), { "text-anchor": "middle" });
  });
  line(one, [[-0.5, 0], [NAMES.length - 0.5, 0]], { class: "rl-f-axis" });
}

function writtenKl(p, q) {
  const one = (each, i) => (each === 0 ? mn(0) : `${mn(each)}<mspace width="0.17em"/>${log(frac(mn(each), mn(q[i])))}`);
  const value = kl(p, q);
  return [`${mtext("KL(P‖Q)")}${mo("=")}`, ...p.map((each, i) => `${i ? mo("+") : ""}${one(each, i)}`),
    `${mo("=")}${mn(value, 3)}<mspace width="0.3em"/>${mtext("nats")}`];
}

function inWordsKl(p, q) {
  const there = kl(p, q), back = kl(q, p), lost = NAMES.filter((_, i) => p[i] > 0 && q[i] === 0);
  if (there === 0 && back === 0) return "P and Q are the same: both divergences are 0, and only then.";
  const now = `KL(P‖Q) is ${there === Infinity ? "infinite" : `${fixed(there, 3)} nats`}, KL(Q‖P) is ${back === Infinity ? "infinite" : `${fixed(back, 3)} nats`}: the order matters.`;
  return there === Infinity ? `${now} P gives ${lost.join(" and ")}, where Q has probability 0, so the surprise under Q is infinite.`
    : back === Infinity ? `${now} Q gives something that P never does.` : now;
}
