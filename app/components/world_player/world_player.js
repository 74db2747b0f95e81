// Plays episodes from their observations: players side by side on one clock.
//
// Everything is drawn here, from paths that are sent once. Data that comes while an episode is shown waits for the end
// of the loop, so the picture never jumps; data with the same keys changes nothing. Served as one
// with world_pictures.js (PICTURES) and component.js (theme, format).

const players = new WeakMap();
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const HOLD = 0.9; // seconds that the last picture stays
const READABLE = 100; // milliseconds that a number stays while episodes play
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

function looks(element) {
  const page = theme(element);
  return { ...page, colours: page.dark ? ["#4FA8E0", "#3FC79A", "#F2B84B"] : ["#0072B2", "#009E73", "#B85C00"] };
}

const number = (value) => format(value, Number.isInteger(value) ? 0 : 1);

// ---- one episode -----------------------------------------------------------------------------------------------

const last = (episode) => episode.path.length - 1;
const sumTo = (episode, count) => episode.rewards.slice(0, count).reduce((sum, reward) => sum + reward, 0);

// The observation at time t (in steps); between two steps a mixture where the picture allows one.
function rowAt(episode, t, picture) {
  const place = Math.min(t, last(episode));
  const index = Math.floor(place);
  const row = episode.path[index];
  if (!picture.glides || index === place) return row;
  const next = episode.path[index + 1];
  return row.map((value, i) => value + (next[i] - value) * (place - index));
}

// The continuous action that leads on from time t; undefined where an episode has none.
const actionAt = (episode, t) => episode.actions?.[Math.min(Math.floor(t), episode.actions.length - 1)];

function words(episode, t, picture, data) {
  const done = Math.min(Math.floor(t), last(episode));
  const parts = [`${number(done)} ${done === 1 ? "step" : "steps"}`];
  if (episode.rewards) parts.push(`return so far ${number(sumTo(episode, done))}`);
  const action = actionAt(episode, t);
  parts.push(done === last(episode) && episode.ended ? episode.ended : picture.say(episode.path[done], data, action));
  return parts.filter(Boolean).join(" · ");
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function draw(player) {
  paint(player);
  say(player);
}

function paint(player) {
  const { data, box } = player;
  if (!box.isConnected || !data) return;
  const colours = looks(box), picture = PICTURES[data.picture];
  data.episodes.forEach((episode, place) => {
    const { canvas } = player.seats[place];
    const width = canvas.clientWidth, height = picture.height(data, width);
    const scale = window.devicePixelRatio || 1;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${colours.font}`;
    const row = rowAt(episode, player.time, picture);
    picture.draw({ pen, width, height, theme: colours, colour: colours.colours[place], row, data, episode,
      action: actionAt(episode, player.time), time: Math.min(player.time, last(episode)) });
  });
}

// Words and numbers lay out the page anew, which costs more than the pictures do.
function say(player) {
  const { data, box } = player;
  if (!box.isConnected || !data) return;
  data.episodes.forEach((episode, place) => {
    player.seats[place].says.textContent = words(episode, player.time, PICTURES[data.picture], data);
  });
  const now = Math.floor(player.time);
  player.scrub.value = String(now);
  player.scrub.setAttribute("aria-valuetext", `step ${now} of ${player.length}`);
  player.clock.textContent = `${number(now)} / ${number(player.length)}`;
}

function tick(player, stamp) {
  player.frame = 0;
  if (!player.playing || !player.box.isConnected) return;
  const passed = player.stamp ? Math.min(stamp - player.stamp, 100) / 1000 : 0;
  player.stamp = stamp;
  // where newer data waits, the loop ends with the first seat's episode
  const end = player.waiting ? Math.max(last(player.data.episodes[0]), player.time) : player.length;
  if (player.time < end) {
    player.time = Math.min(player.time + passed * player.speed * player.data.rate, end);
    player.held = 0;
    paint(player);
    if (player.time === end || stamp - player.said > READABLE) {
      player.said = stamp;
      say(player);
    }
  } else if ((player.held += passed) > HOLD) {
    player.time = 0;
    take(player);
    draw(player);
  }
  player.frame = requestAnimationFrame((next) => tick(player, next));
}

function play(player, playing) {
  player.playing = playing;
  player.stamp = 0;
  player.button.textContent = playing ? "Pause" : "Play";
  player.button.setAttribute("aria-label", playing ? "Pause the episodes" : "Play the episodes");
  cancelAnimationFrame(player.frame);
  if (playing && player.time >= player.length) {
    player.time = 0;
    take(player);
  }
  if (playing) player.frame = requestAnimationFrame((stamp) => tick(player, stamp));
  else describe(player);
}

// What a screen reader hears of each picture: said anew at rest and with every new episode, not at every frame.
function describe(player) {
  player.data.episodes.forEach((episode, place) => {
    const picture = PICTURES[player.data.picture];
    player.seats[place].canvas.setAttribute("aria-label", `${player.data.world}, ${episode.title}, ${episode.about}: ` +
      words(episode, player.time, picture, player.data));
  });
}

// ---- page ------------------------------------------------------------------------------------------------------

function build(root) {
  root.innerHTML = `<div class="rl-player" role="group" aria-label="Episodes"><div class="rl-seats"></div>
    <div class="rl-controls"><button type="button"></button><button type="button" class="rl-newer" hidden></button>
    <input type="range" min="0" step="1" aria-label="Time in the episode, steps"><output></output>
    <label>Speed <select aria-label="Speed">${SPEEDS.map((speed) =>
      `<option value="${speed}"${speed === 1 ? " selected" : ""}>${speed}×</option>`).join("")}</select></label>
    </div></div>`;
  const box = root.querySelector(".rl-player");
  const [button, newer] = box.querySelectorAll("button");
  const player = { box, button, newer, seats: [], time: 0, held: 0, speed: 1, playing: false, frame: 0, stamp: 0, said: 0,
    scrub: box.querySelector("input"), clock: box.querySelector("output") };
  player.button.addEventListener("click", () => play(player, !player.playing));
  player.newer.addEventListener("click", () => {
    player.time = 0;
    take(player);
    draw(player);
  });
  player.scrub.addEventListener("input", () => {
    if (player.playing) play(player, false);
    player.time = Number(player.scrub.value);
    draw(player);
    describe(player);
  });
  box.querySelector("select").addEventListener("change", (event) => { player.speed = Number(event.target.value); });
  player.observer = new ResizeObserver(() => draw(player));
  player.observer.observe(box);
  return player;
}

const keyOf = (data) => JSON.stringify([data.world, data.episodes.map((episode) => episode.key)]);

// What waits for the end of the loop, and a button not to wait for it.
function wait(player, data) {
  player.waiting = data;
  player.newer.hidden = !data;
  if (data) player.newer.textContent = `Newer: ${data.episodes[0].about.split(",")[0]}`;
}

// Show what waits.
function take(player) {
  const data = player.waiting;
  wait(player, null);
  if (!data) return;
  const seats = player.box.querySelector(".rl-seats");
  player.data = data;
  player.length = Math.max(...data.episodes.map(last));
  player.scrub.max = String(player.length);
  if (player.seats.length !== data.episodes.length) {
    seats.replaceChildren(...data.episodes.map(() => {
      const figure = document.createElement("figure");
      figure.innerHTML = '<figcaption><b></b> <span></span></figcaption><canvas role="img"></canvas><p></p>';
      return figure;
    }));
    player.seats = [...seats.children].map((figure) => ({ name: figure.querySelector("b"),
      about: figure.querySelector("span"), canvas: figure.querySelector("canvas"), says: figure.querySelector("p") }));
  }
  data.episodes.forEach((episode, place) => {
    player.seats[place].name.textContent = episode.title;
    player.seats[place].about.textContent = episode.about;
  });
  describe(player);
}

export function update({ data, parentElement }) {
  const root = parentElement.querySelector(".rl-world-player");
  let player = players.get(parentElement);
  if (!player?.box.isConnected) {
    player = build(root);
    players.set(parentElement, player);
  }
  const fresh = !player.data || player.data.run !== data.run || player.data.picture !== data.picture;
  const shown = player.data && keyOf(player.data) === keyOf(data);
  wait(player, shown && !fresh ? null : data);
  const resting = !player.playing && player.time === 0;
  const moved = data.settled && !shown; // the page stands at another step: its film is no longer wanted
  if (fresh || resting || moved) {
    if (fresh || moved) player.time = 0;
    take(player);
    if (fresh) play(player, Boolean(data.run) && !calm.matches); // random actions wait at their first step
  }
  draw(player);
}

export const dispose = disposing(players, (player) => {
  player.observer.disconnect();
  cancelAnimationFrame(player.frame);
});
