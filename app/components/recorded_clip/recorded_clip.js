// Plays a recorded run: its curve grows, beside it what the model wrote at that step. Served as one with component.js.
//
// Left out: speed, and anything that a live run can do. Where the system asks for little motion it stands at its end.

const clips = new WeakMap();
const PLAY_SECONDS = 18, HOLD_SECONDS = 4; // once through, and how long the end stays
const SLOWER_START = 2; // half of the time shows the first quarter of the steps, in which most is learnt
const HEIGHT = 222, LEFT = 30, RIGHT = 14, TOP = 8, BOTTOM = 22;
const calmly = window.matchMedia("(prefers-reduced-motion: reduce)");

const escape = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const signed = (value) => (value > 0 ? "+" : "") + format(value, 1);

const percent = (value) => `${format(100 * value, 0)} %`;

function chart(clip, step) {
  const { data, plot } = clip;
  const width = plot.clientWidth, steps = data.values.length;
  if (!width) return;
  const x = (at) => LEFT + ((at - 1) / (steps - 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value) * (HEIGHT - TOP - BOTTOM);
  const line = (upTo) => data.values.slice(0, upTo).map((value, i) => `${x(i + 1).toFixed(1)},${y(value).toFixed(1)}`);
  const value = data.values[step - 1], first = data.values[0];
  const rows = [0, 0.5, 1].map((tick) => `<line x1="${LEFT}" x2="${width - RIGHT}" y1="${y(tick)}" y2="${y(tick)}"/>
    <text x="${LEFT - 6}" y="${y(tick) + 4}" text-anchor="end">${100 * tick}</text>`);
  const columns = [1, steps / 2, steps].map((tick) => `<text x="${x(tick)}" y="${HEIGHT - 6}"
    text-anchor="${tick === 1 ? "start" : "middle"}">${tick === 1 ? "step 1" : tick}</text>`);
  plot.innerHTML = `<svg width="${width}" height="${HEIGHT}" role="img" aria-label="${escape(data.title)} over
    the steps: ${percent(value)} at step ${step}">${rows.join("")}${columns.join("")}
    <polyline class="rl-to-come" points="${line(steps).join(" ")}"/><polyline points="${line(step).join(" ")}"/>
    <circle cx="${x(step)}" cy="${y(value)}" r="4"/></svg>`;
  clip.now.innerHTML = `${escape(data.title)} <b>${percent(value)}</b> ${step > 1 ? `from ${percent(first)}` : ""}`;
}

function bar(advantage, most) {
  const size = (50 * Math.abs(advantage)) / most;
  return `<span class="${advantage < 0 ? "rl-less" : "rl-more"}"><i style="width:${size}%"></i></span>`;
}

function answers(clip, step) {
  const group = clip.data.groups.filter((each) => each.step <= step).pop() ?? clip.data.groups[0];
  if (clip.shown === group) return;
  clip.shown = group;
  clip.says.innerHTML = `<p>It <b>sees</b> <code>${escape(group.prompt)}</code> and must write
    <code>${escape(group.target)}</code>.</p>
    <table><tr><th>It <b>writes</b></th><th>It <b>earns</b></th><th colspan="2">It <b>learns</b></th></tr>${
    group.answers.map(([text, reward, advantage]) => `<tr><td><code>${escape(text)}</code></td>
      <td class="${reward ? "" : "rl-faint"}">${format(reward, 0)}</td><td>${bar(advantage, clip.most)}</td>
      <td>${signed(advantage)}</td></tr>`).join("")}</table>
    <p class="rl-faint">${group.answers.every((each) => each[2] === 0) ? "Equal rewards: nothing to learn from these."
    : "Advantage: blue becomes likelier, orange less likely."}</p>`;
}

function show(clip, step) {
  clip.step = Math.max(1, Math.min(clip.data.values.length, step));
  chart(clip, clip.step);
  answers(clip, clip.step);
  clip.scrub.value = clip.step;
  clip.out.textContent = `step ${clip.step} of ${clip.data.values.length}`;
}

function play(clip, on) {
  clip.playing = on;
  clip.button.textContent = on ? "Pause" : "Play";
  cancelAnimationFrame(clip.frame);
  if (!on) return;
  const steps = clip.data.values.length;
  const share = (clip.step >= steps ? 0 : clip.step - 1) / steps;
  let begun = performance.now() - share ** (1 / SLOWER_START) * PLAY_SECONDS * 1000;
  const tick = (now) => {
    if (now - begun > (PLAY_SECONDS + HOLD_SECONDS) * 1000) begun = now;
    const step = Math.min(steps, Math.floor(((now - begun) / 1000 / PLAY_SECONDS) ** SLOWER_START * steps) + 1);
    if (step !== clip.step) show(clip, step);
    clip.frame = requestAnimationFrame(tick);
  };
  clip.frame = requestAnimationFrame(tick);
}

function make(parent, data) {
  const root = parent.querySelector(".rl-recorded-clip");
  const day = new Date(`${data.date}T12:00:00Z`).toLocaleDateString("en-GB", { day: "numeric", month: "short",
    year: "numeric" });
  root.innerHTML = `<figure aria-label="A recorded run"><figcaption><b>Recorded</b> ${escape(data.label)}
    <span title="The start is shown more slowly than the end.">${day} · ${escape(data.machine)} ·
    ${format(data.seconds, 0)} s, replayed in ${PLAY_SECONDS} s</span></figcaption>
    <div class="rl-clip"><div class="rl-says"></div><div><p class="rl-now"></p><div class="rl-plot"></div></div></div>
    <div class="rl-clip-controls"><button type="button"></button>
    <input type="range" min="1" max="${data.values.length}" aria-label="Step of the recording"><output></output></div>
    </figure>`;
  const clip = { data, step: 1, plot: root.querySelector(".rl-plot"), says: root.querySelector(".rl-says"),
    now: root.querySelector(".rl-now"), most: Math.max(...data.groups.flatMap((each) => each.answers.map((one) =>
      Math.abs(one[2])))),
    button: root.querySelector("button"), scrub: root.querySelector("input"), out: root.querySelector("output") };
  clip.button.addEventListener("click", () => play(clip, !clip.playing));
  clip.scrub.addEventListener("input", () => { play(clip, false); show(clip, Number(clip.scrub.value)); });
  clip.sizes = new ResizeObserver(() => chart(clip, clip.step));
  clip.sizes.observe(clip.plot);
  show(clip, calmly.matches ? data.values.length : 1);
  play(clip, !calmly.matches);
  return clip;
}

export function update({ data, parentElement }) {
  if (!clips.has(parentElement)) clips.set(parentElement, make(parentElement, data));
}

export const dispose = disposing(clips, (clip) => {
  cancelAnimationFrame(clip.frame);
  clip.sizes.disconnect();
});
