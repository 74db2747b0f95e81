// Which branch of a surrogate is active at a ratio, in words; the table of all of them; and a run's tokens counted.

const at3 = (value) => (Number.isFinite(value) ? (Math.abs(value) < 5e-4 ? 0 : value).toFixed(3).replace("-", "−") : "–");

// Where the ratio is, and what follows, of a surrogate that is constant beyond `low` or `high`, called by `names`. `bound`
// is that of negative advantages, `unbounded` why the gradient lives on the other side.
function clipWords(ratio, advantage, dead, { low, high, names, bound, unbounded }) {
  const isDead = advantage !== 0 && inside(ratio, dead), alive = `The gradient is ρA = ${inShort(ratio * advantage)}`;
  if (advantage < 0 && isDead && ratio > high) {
    return `ρ is above the bound of negative advantages (${inShort(bound)}): the surrogate stays constant, gradient 0.`;
  }
  if (isDead) {
    const edge = advantage > 0 ? `above ${names[1]} = ${inShort(high)}` : `below ${names[0]} = ${inShort(low)}`;
    return `ρ is ${edge}: the clipped term is active, a constant. Gradient 0: the token is not pushed ${advantage > 0
      ? "up" : "down"} any further.`;
  }
  if (ratio >= low && ratio <= high) return `ρ is inside the clip range, where nothing is clipped. ${alive}.`;
  return `ρ is ${ratio > high ? `above ${names[1]}` : `below ${names[0]}`}, but ${unbounded}. ${alive}: it pulls the token back towards π_old.`;
}

const unclipped = ({ clip_low: low, clip_high: high }) => ({ unbounded: "the minimum takes the unclipped ρA",
  names: low === high ? ["1 − ε", "1 + ε"] : ["1 − ε_low", "1 + ε_high"] });

function branchWords(key, ratio, advantage, now) {
  const { words, slope } = SURROGATES[key];
  return words ? words(ratio, advantage, now) : `The gradient is ${at3(slope(ratio, advantage, now))}.`;
}

// Every surrogate that is drawn, at the ratio that is looked at; where one is alone, the words have it all.
function surrogateTable(picture, parent) {
  const body = el("tbody"), head = el("thead"), node = el("table", { class: "rl-f-table rl-su-table" }, head, body);
  const box = el("div", { class: "rl-f-scroll" }, node);
  parent.append(box);
  const rows = picture.data.drawn.map((key) => {
    const cells = Array.from({ length: 5 }, () => el("td")), note = el("small");
    note.innerHTML = SURROGATES[key].note ?? "";
    const row = el("tr", {}, el("th", { scope: "row" }, swatchOf(picture, key), titleOf(key), " ", note), ...cells);
    body.append(row);
    return { key, cells, row };
  });
  return { show() {
    const { now, data } = picture, drawn = rows.filter(({ key }) => key === now.focus || now.shown.includes(key));
    box.hidden = drawn.length < 2;
    head.innerHTML = `<tr><th>at ρ = ${inShort(now.rho)}</th><th>S, A = ${sized(now.a)}</th><th>gradient</th><th>S, A = ${
      sized(-now.a)}</th><th>gradient</th>${data.tokens.length ? "<th>tokens cut off</th>" : ""}</tr>`;
    for (const { row } of rows) row.hidden = true;
    for (const { key, cells, row } of drawn) {
      const { of, slope } = SURROGATES[key], ratio = Math.max(now.rho, 1e-4);
      row.hidden = false;
      row.toggleAttribute("data-focus", key === now.focus);
      [of(ratio, now.a, now), slope(ratio, now.a, now), of(ratio, -now.a, now), slope(ratio, -now.a, now)].forEach((value, i) => {
        cells[i].textContent = i % 2 && value === 0 ? "0" : at3(value);
        cells[i].toggleAttribute("data-dead", i % 2 === 1 && value === 0);
      });
      cells[4].hidden = !data.tokens.length;
      cells[4].textContent = data.tokens.length ? `${(100 * shareCut(key, picture)).toFixed(1)} %` : "";
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
    + `${ones} have ratio 1. The mean of ${titleOf(now.focus)} over them is ${at3(mean)}.`;
}
