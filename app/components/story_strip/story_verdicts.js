// Long answers: a row for each verdict or reward, and under it its answers by their first and last line. A row unfolds.

const isOpen = (strip, key) => strip.open.has(key);

// A row that unfolds by a click or by Enter; what is unfolded stays so while the prompt is the same.
function unfolding(strip, key, name, ...cells) {
  const button = element("button", name);
  button.type = "button";
  button.dataset.key = key;
  button.append(...cells);
  button.addEventListener("click", () => {
    strip.open[isOpen(strip, key) ? "delete" : "add"](key);
    verdicts(strip);
  });
  return button;
}

// Before the middle less likely, after it likelier, on the scale of the largest change of all.
function changeOf(strip, change) {
  const bar = element("div", "rl-story-bar rl-story-change"), part = element("i", "");
  if (change === null) return bar;
  const share = Math.min(1, Math.abs(change) / strip.data.reach) * 50;
  part.className = change >= 0 ? "rl-story-up" : "rl-story-down";
  part.style.width = `${share}%`;
  part.style.left = `${change >= 0 ? 50 : 50 - share}%`;
  bar.append(part);
  return bar;
}

function earnedOf({ reward, advantage, earned = "" }) {
  const level = Math.abs(advantage ?? 0) < 0.005;
  const given = element("span", `rl-story-adv${level ? "" : advantage > 0 ? " rl-pos" : " rl-neg"}`,
    advantage === null ? "–" : level ? "0" : signed(advantage));
  const made = element("span", "rl-story-reward", reward === null ? "–" : format(reward, 2));
  made.title = earned;
  return [made, given];
}

const changed = (change) => (change === null ? "" : Math.abs(change) < 0.005 ? "0" : signed(change));

function spoken(name, row, more) {
  return [name, `${row.count} ${row.count === 1 ? "sample" : "samples"}`,
    row.reward !== null && `reward ${format(row.reward, 2)}`, row.advantage !== null && `advantage ${signed(row.advantage)}`,
    row.change !== null && `log-prob ${changed(row.change)} nats`, more].filter(Boolean).join(", ");
}

function bandOf(strip, band, place) {
  const [sign, look, meaning] = markOf(band, strip.data.check), key = `band ${place}`;
  const mark = element("b", look, sign), name = element("code", "rl-story-rest", band.text);
  mark.title = meaning;
  if (band.limited) name.append(element("small", "", `${band.limited} cut at the length limit`));
  const row = unfolding(strip, key, "rl-story-band", mark, name, element("i", "", `×${band.count}`), ...earnedOf(band),
    changeOf(strip, band.change), element("span", "rl-story-words", changed(band.change)));
  row.disabled = !band.answers.length;
  row.setAttribute("aria-expanded", String(!isOpen(strip, key)));
  row.setAttribute("aria-label", spoken(band.text, band, band.limited && `${band.limited} cut at the length limit`));
  const item = element("li", "");
  item.append(row);
  return [item, ...(isOpen(strip, key) ? [] : band.answers.map((each, at) => answerOf(strip, each, `${place} ${at}`)))];
}

function answerOf(strip, answer, key) {
  const text = element("code", "rl-story-ends"), open = isOpen(strip, key);
  text.append(element("span", "", answer.first || "(empty)"));
  if (answer.last) text.append(element("span", "", `… ${answer.last}`));
  const row = unfolding(strip, key, "rl-story-answer", element("b", "", open ? "−" : "+"), text,
    element("i", "", answer.count > 1 ? `×${answer.count}` : ""), ...earnedOf(answer), changeOf(strip, answer.change),
    element("span", "rl-story-words", changed(answer.change)));
  row.title = answer.said.length ? `log-prob ${answer.said.join(" → ")} nats` : "";
  row.setAttribute("aria-expanded", String(open));
  row.setAttribute("aria-label", spoken([answer.first, answer.last].filter(Boolean).join(" … "), answer,
    [answer.earned, answer.cut && "cut at the length limit"].filter(Boolean).join(", ")));
  const item = element("li", "");
  item.append(row);
  if (open) item.append(wholeOf(answer));
  return item;
}

function wholeOf({ parts, cut, said, earned }) {
  const text = element("div", "rl-story-text");
  text.tabIndex = 0; // so that its keys scroll it
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", "The whole answer");
  text.append(...chipped(parts), ...(cut ? [element("span", "rl-chip", "cut at the length limit")] : []));
  const about = [earned && `reward: ${earned}`, said.length && `log-prob ${said.join(" → ")} nats`].filter(Boolean);
  if (about.length) text.append(element("p", "", about.join(" · ")));
  return text;
}

function verdicts(strip) {
  const { data, list } = strip;
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const top = list.scrollTop;
  const moves = data.verdicts.some(({ change }) => change !== null);
  strip.names.textContent = moves ? "Δ log-prob, nats" : "";
  strip.root.classList.toggle("rl-story-unmoved", !moves);
  strip.rows = new Map();
  list.replaceChildren(...data.verdicts.flatMap((band, place) => bandOf(strip, band, place)));
  list.scrollTop = top;
  strip.root.classList.toggle("rl-story-unfolded", Boolean(list.querySelector(".rl-story-text")));
  if (focused) list.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
}
