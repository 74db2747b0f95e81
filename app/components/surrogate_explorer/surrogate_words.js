// Which branch of a surrogate is active at a ratio, in words; the table of all of them; and a run's tokens counted.

const at3 = (value) => (Number.isFinite(value) ? (Math.abs(value) < 5e-4 ? 0 : value).toFixed(3).replace("-", "−") : "–");

// [where the ratio is, what follows] of the clips.
function clipWords(key, ratio, advantage, now) {
  const geometric = key === "geometric_clip";
  const [low, high] = geometric ? [Math.exp(-now.clip_low), Math.exp(now.clip_high)] : bounds(now);
  const names = geometric ? ["e^−ε_low", "e^ε_high"] : ["1 − ε_low", "1 + ε_high"];
  const isDead = isCut(key, ratio, advantage, now), alive = `The gradient is ρA = ${at3(ratio * advantage)}`;
  if (advantage < 0 && isDead && ratio > high) {
    return `ρ is above the bound of negative advantages (${at3(ratioBound(now))}): the surrogate stays constant, gradient 0.`;
  }
  if (isDead) {
    const edge = advantage > 0 ? `above ${names[1]} = ${at3(high)}` : `below ${names[0]} = ${at3(low)}`;
    return `ρ is ${edge}: the clipped term is active, a constant. Gradient 0: the token is not pushed ${advantage > 0
      ? "up" : "down"} any further.`;
  }
  if (ratio >= low && ratio <= high) return `ρ is inside the clip range, where nothing is clipped. ${alive}.`;
  return `ρ is ${ratio > high ? `above ${names[1]}` : `below ${names[0]}`}, but ${geometric ? "only the other side is bounded"
    : "the minimum takes the unclipped ρA"}. ${alive}: it pulls the token back towards π_old.`;
}

const ratioBound = ({ clip_delta: delta, dual_clip: most, clip_high: high }) =>
  Math.min(delta ? Math.max(delta, 1 + high) : Infinity, most || Infinity);

const BRANCHES = {
  cpi: (ratio, advantage) => `There is only one branch, ρA. The gradient ${at3(ratio * advantage)} grows with ρ, and nothing stops it.`,
  kl_penalised(ratio, advantage, now) {
    const pull = ratio * advantage, price = now.beta * (ratio - 1), turn = now.beta / (now.beta - advantage);
    const where = now.beta > advantage ? ` They cancel at ρ = β/(β − A) = ${at3(turn)}.` : " β is not above A: no ratio is too large for it.";
    return `ρA pushes with ${signed(pull)}, the KL with ${signed(-price)}: together ${signed(pull - price)}.${where}`;
  },
  detached_weight: (ratio, advantage, now) => (ratio > now.ratio_cap
    ? `The weight is capped at ε_max = ${at3(now.ratio_cap)}, and the gradient lives: ${at3(now.ratio_cap * advantage)}.`
    : `The weight is ρ itself: the gradient is ρA = ${at3(ratio * advantage)}. From ε_max = ${at3(now.ratio_cap)} on it is capped, never 0.`),
  soft_gate(ratio, advantage, now) {
    const share = SURROGATES.soft_gate.slope(ratio, advantage, now) / (ratio * advantage);
    return `The gate 4σ(1 − σ) lets ${Math.round(100 * share)} % of ρA through: gradient ${at3(share * ratio * advantage)}. It closes smoothly, and never wholly.`;
  },
  gamma_weight: (ratio, advantage, now) =>
    `The weight φ(ρ) = ρ^k e^(λ(1 − ρ)) is ${at3(gammaOf(ratio, advantage, now))}: gradient φA = ${at3(gammaOf(ratio, advantage, now) * advantage)}.`,
};

function branchWords(key, ratio, advantage, now) {
  return BRANCHES[key] ? BRANCHES[key](ratio, advantage, now) : clipWords(key, ratio, advantage, now);
}

// Every surrogate at the ratio that is looked at. A row's name explains it; its box draws it.
function surrogateTable(picture, parent) {
  const body = el("tbody"), head = el("thead"), node = el("table", { class: "rl-f-table rl-su-table" }, head, body);
  parent.append(el("div", { class: "rl-f-scroll" }, node));
  const rows = Object.keys(SURROGATES).map((key) => {
    const box = el("input", { type: "checkbox", "aria-label": `Draw ${NAMES[key]}` });
    const name = el("button", { type: "button", title: `Explain ${NAMES[key]}` }), cells = Array.from({ length: 5 }, () => el("td"));
    name.innerHTML = `${NAMES[key]} <small>${NOTES[key]}</small>`;
    box.addEventListener("change", () => {
      const { shown } = picture.now;
      write(picture, "shown", Object.keys(SURROGATES).filter((each) => (each === key ? box.checked : shown.includes(each))));
      changed(picture);
    });
    name.addEventListener("click", () => {
      write(picture, "focus", key);
      changed(picture);
    });
    const [colour, dash] = COLOURS[key], swatch = shape("svg", { width: 26, height: 8, "aria-hidden": true },
      shape("line", { class: `rl-s${colour}`, x1: 0, x2: 26, y1: 4, y2: 4, "stroke-dasharray": dash }));
    const row = el("tr", {}, el("th", { scope: "row" }, box, swatch, name), ...cells);
    body.append(row);
    return { key, box, name, cells, row };
  });
  return { show() {
    const { now, data } = picture;
    head.innerHTML = `<tr><th>at ρ = ${inShort(now.rho)}</th><th>S, A = ${sized(now.a)}</th><th>gradient</th><th>S, A = ${
      sized(-now.a)}</th><th>gradient</th><th>${data.tokens.length ? "tokens cut off" : ""}</th></tr>`;
    for (const { key, box, name, cells, row } of rows) {
      const { of, slope } = SURROGATES[key], ratio = Math.max(now.rho, 1e-4);
      box.checked = now.shown.includes(key);
      name.setAttribute("aria-pressed", String(key === now.focus));
      row.toggleAttribute("data-focus", key === now.focus);
      const cut = data.tokens.length ? shareCut(key, picture) : null;
      [of(ratio, now.a, now), slope(ratio, now.a, now), of(ratio, -now.a, now), slope(ratio, -now.a, now)].forEach((value, i) => {
        cells[i].textContent = i % 2 && value === 0 ? "0" : at3(value);
        cells[i].toggleAttribute("data-dead", i % 2 === 1 && value === 0);
      });
      cells[4].textContent = cut === null ? "" : `${(100 * cut).toFixed(1)} %`;
    }
  } };
}

const shareCut = (key, { now, data }) =>
  data.tokens.filter(([ratio, advantage]) => isCut(key, ratio, advantage, now)).length / data.tokens.length;

function tokenWords({ now, data }) {
  const { tokens, count, step } = data;
  if (!tokens.length) return "";
  const cut = tokens.filter(([ratio, advantage]) => isCut(now.focus, ratio, advantage, now)).length;
  const still = tokens.filter(([, advantage]) => advantage === 0).length;
  const ones = tokens.filter(([ratio]) => Math.abs(ratio - 1) < 1e-6).length;
  const mean = total(tokens.map(([ratio, advantage]) => SURROGATES[now.focus].of(ratio, advantage, now))) / tokens.length;
  const some = tokens.length < count ? ` of ${count.toLocaleString("en-US")}` : "";
  return `Dots: ${tokens.length.toLocaleString("en-US")}${some} tokens of step ${step} after its last update, each with its own advantage. `
    + `With these settings ${cut} (${(100 * cut / tokens.length).toFixed(1)} %) are cut off (open circles), ${still} have advantage 0, `
    + `${ones} ratio 1. The mean of ${NAMES[now.focus]} over them is ${at3(mean)}.`;
}
