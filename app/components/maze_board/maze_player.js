// The episode of the step that is shown, move by move.

function take(board, episode) {
  const { player } = board;
  if (!player.touched || !player.episode) {
    Object.assign(player, { episode, index: episode ? episode.moves.length : 0, newest: null });
  } else {
    player.newest = episode && episode.key !== player.episode.key ? episode : null;
  }
}

function go(board, index) {
  const { player } = board;
  player.touched = true;
  player.index = Math.max(0, Math.min(player.episode.moves.length, index));
  if (player.index === player.episode.moves.length) player.playing = false;
  show(board);
}

function play(board) {
  const { player } = board;
  player.playing = !player.playing;
  if (player.playing && (!player.touched || player.index === player.episode.moves.length)) player.index = 0;
  player.touched = true;
  clearTimeout(board.timer);
  if (player.playing) tick(board);
  show(board);
}

function tick(board) {
  board.timer = setTimeout(() => {
    if (!board.player.playing) return;
    go(board, board.player.index + 1);
    if (board.player.playing) tick(board);
  }, 1000 / prefs.speed);
}

function newest(board) {
  const { player } = board;
  Object.assign(player, { episode: player.newest ?? player.episode, newest: null });
  player.index = player.playing ? 0 : player.episode.moves.length;
  player.touched = player.playing;
  show(board);
}

const icon = (name) => `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

function show(board) {
  draw(board);
  const { player, controls } = board, { episode, index } = player;
  board.box.hidden = !episode || board.data.mode !== "look";
  if (board.box.hidden) return;
  const count = episode.moves.length;
  const face = player.playing ? "pause" : "play";
  if (controls.play.dataset.face !== face) {
    controls.play.dataset.face = face;
    controls.play.innerHTML = icon(face);
    controls.play.setAttribute("aria-label", player.playing ? "Pause the episode" : "Play the episode");
  }
  controls.back.disabled = index === 0;
  controls.forward.disabled = index === count;
  Object.assign(controls.place, { max: count, value: index });
  const of = episode.length > count ? ` of the last ${count}` : ` of ${count}`;
  controls.count.textContent = `move ${index}${of}`;
  controls.newest.hidden = !player.newest && !(player.touched && !player.playing && index < count);
  controls.newest.textContent = player.newest ? `Newest episode, step ${player.newest.step}` : "To the end";
  board.text.innerHTML = "";
  const move = player.touched && index ? episode.moves[index - 1] : null;
  const span = document.createElement(move ? "code" : "span");
  const ended = { goal: "reached a goal", trap: "fell into a trap", time: "ran out of time" }[episode.ended] ?? "ended";
  span.textContent = move ? move.text : `The episode of step ${episode.step} ${ended} after ${episode.length} `
    + `${episode.length === 1 ? "move" : "moves"}, return ${short(episode.return, 2)}.`;
  if (move) {
    board.text.append(`${where(board, move.state)}, ${ARROW_WORDS[move.action]}, reward ${signed(move.reward)}`);
    board.text.append(document.createElement("br"));
  }
  board.text.append(span);
}
