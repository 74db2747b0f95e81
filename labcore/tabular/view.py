"""What is shown of a run in a maze: its distance from the truth, its tables as pictures, and as files to take away."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from labcore.envs.maze import ACTIONS
from labcore.envs.maze_text import to_json, to_text
from labcore.envs.mdp import Array
from labcore.errors import LabError
from labcore.tabular import temporal_difference
from labcore.tabular.dynamic_programming import backup, exact_value, exact_values, greedy
from labcore.tabular.temporal_difference import Update
from labcore.tabular.walks import Episode, Step

if TYPE_CHECKING:
    from labcore.tabular.policy_gradient import PolicyUpdate
    from labcore.tabular.session import Session

ARROWS = dict(zip(range(len(ACTIONS)), "↑→↓←", strict=True))
ALL_UP_TO, LATER = 400, 200  # steps that are all drawn; of a longer run some of this many more
LONGEST = 300  # moves of an episode that are shown
SOLVED_EVERY_STEP = 150  # states: a larger maze's linear systems are solved only where the step is drawn


class Move(NamedTuple):
    """A step of an episode, and the update that came of it."""

    step: Step
    update: Update | PolicyUpdate


def due(session: Session) -> bool:
    """Whether the newest step is drawn: all of a short run, of a longer one a bounded number and the last."""
    step, last = session.step, session.spec.steps
    settled = session.learner is None and session.sweep.change <= session.knobs["tolerance"]
    return step <= ALL_UP_TO or step % max(1, last // LATER) == 0 or step == last or settled


class Tables(NamedTuple):
    """V (S,), Q (S, A) where there is one, and the policy (S, A) that acts; `named` says what V is."""

    values: Array
    action_values: Array | None
    policy: Array
    named: str


def tables(session: Session) -> Tables:
    """The run's tables as they stand."""
    if session.learner is None:
        sweep = session.sweep
        return Tables(sweep.values, sweep.action_values, sweep.policy, "V")
    policy = session.learner.policy(session.knobs)
    if isinstance(session.learner, temporal_difference.TDLearner):
        q = session.learner.tables.q
        return Tables(q.max(1), q, policy, "max Q")
    return Tables(session.learner.tables.values, None, policy, "V")


def preferred(found: Tables) -> Array:
    """The greedy policy of the tables, ties shared alike: of Q, or where there is none of the policy. (S, A)"""
    return greedy(found.policy if found.action_values is None else found.action_values)


def measures(session: Session) -> dict[str, float]:
    """How far the tables are from the truth, and what they would earn."""
    found, gamma, here = tables(session), float(session.knobs["gamma"]), session.within_reach
    start = session.maze.start
    metrics = {"start_value": float(found.values[start])}
    if session.learner is None:
        metrics |= _error(found, _truth(session), here)
    else:
        metrics |= _walking(session, found, here) | _error(found, session.best(), here)
    if best := session.best():
        metrics["start_value/best"] = float(best[0][start])
    if session.maze.states <= SOLVED_EVERY_STEP or due(session):
        try:
            metrics["start_value/greedy"] = exact_value(session.maze.mdp, preferred(found), gamma, start)
        except LabError:  # with γ = 1 a policy that walks for ever is worth no number, so none is shown
            return metrics
    return metrics


def _truth(session: Session) -> tuple[Array, Array] | None:
    """What the sweeps move towards: V* and Q*, or where nothing is improved the values of the policy."""
    if not session.evaluates:
        return session.best()
    try:
        values = exact_values(session.maze.mdp, session.sweep.policy, float(session.knobs["gamma"]))
    except LabError:
        return None
    return values, session.maze.mdp.action_values(values, float(session.knobs["gamma"]))


def _error(found: Tables, truth: tuple[Array, Array] | None, here: np.ndarray) -> dict[str, float]:
    if truth is None:
        return {}
    error = abs(found.values - truth[0])[here]
    metrics = {"value_error": float(error.mean()), "value_error/max": float(error.max())}
    if found.action_values is not None:
        metrics["q_error"] = float(abs(found.action_values - truth[1])[here].mean())
    return metrics


def _walking(session: Session, found: Tables, here: np.ndarray) -> dict[str, float]:
    """ε where there is one, else the entropy of the policy over the states where the agent acts."""
    if "epsilon" in session.knobs:
        return {"epsilon": temporal_difference.epsilon(session.knobs, session.learner.tables.steps)}
    chances = found.policy[here]
    return {"entropy/action": float(-(chances * np.log(np.maximum(chances, 1e-300))).sum(1).mean())}


def of_sweep(session: Session, values: Array) -> dict[str, Any]:
    """The picture after a sweep that began with `values`."""
    sweep, mdp, gamma = session.sweep, session.maze.mdp, float(session.knobs["gamma"])
    last, best = {}, greedy(sweep.action_values)
    for state in np.flatnonzero(session.within_reach):
        shown = np.flatnonzero(best[state] if session.maximises else sweep.policy[state])
        lines = [f"Q(s,{ARROWS[action]}) = {backup(mdp, values, gamma, state, action)}" for action in shown]
        last[str(state)] = "\n".join([*lines, _swept(session, state, shown)])
    change = sweep.change if isfinite(sweep.change) else None
    return _picture(session) | {"last": last, "sweep": {"number": sweep.number, "change": change,
                                                        "improved": sweep.improved}}


def _swept(session: Session, state: int, actions: np.ndarray) -> str:
    """What the sweep made of a state's Q."""
    sweep = session.sweep
    if sweep.improved:
        return f"π(s) ← the best by the last Q: {' '.join(ARROWS[action] for action in actions)}"
    if session.maximises:
        return f"V(s) ← max Q = {sweep.values[state]:.4g}".replace("-", "−")
    terms = " + ".join(f"{sweep.policy[state, action]:.4g} × Q(s,{ARROWS[action]})" for action in actions)
    return f"V(s) ← {terms} = {sweep.values[state]:.4g}".replace("-", "−")


def of_walk(session: Session, ended: Sequence[Episode], moves: Sequence[Move]) -> dict[str, Any]:
    """The picture after an update: the last episode of it, move by move."""
    episode = ended[-1]
    own = moves[len(moves) - len(episode.steps):][-LONGEST:]
    final = episode.steps[-1]
    kind = "time" if final.truncated else session.maze.cells[session.maze.place(final.next_state)[0]][
        session.maze.place(final.next_state)[1]].kind
    return _picture(session) | {
        "path": [own[0].step.state, *(move.step.next_state for move in own)],
        "moves": [{"state": move.step.state, "action": move.step.action, "reward": move.step.reward,
                   "next_state": move.step.next_state, "before": move.update.before, "after": move.update.after,
                   "text": written(move.update)} for move in own],
        "last": {str(state): written(update) for state, update in sorted(session.learner.tables.last.items())},
        "episode": {"return": episode.total, "length": len(episode.steps), "ended": kind}}


def written(update: Update | PolicyUpdate) -> str:
    """An update with its numbers and what they mean."""
    if isinstance(update, Update):
        head, together = "", ""
        if update.head:
            head, together = "₁₂"[update.head - 1], f"; mean of both {update.mean:.4g}".replace("-", "−")
        return f"Q{head}(s,{ARROWS[update.action]}) ← {update.arithmetic()}{together}"
    return f"{ARROWS[update.action]}: {update.arithmetic()}"


def _picture(session: Session) -> dict[str, Any]:
    found, best, truth = tables(session), session.best(), _truth(session)
    walls = ~session.maze.reachable()
    return {"step": session.step, "maze": to_text(session.maze), "gamma": session.knobs["gamma"],
            "values": [None if wall else value for wall, value in zip(walls, _short(found.values), strict=True)],
            "values_of": found.named, "q": None if found.action_values is None else _short(found.action_values),
            "policy": _short(found.policy), "greedy": _short(preferred(found)),
            "visits": session.visits.tolist() if session.learner else None,
            "optimal": _short(best[0]) if best else None, "truth": _short(truth[0]) if truth else None,
            "truth_of": "V of the policy, exact" if session.evaluates else "V*", "path": None, "moves": [], "last": {},
            "episode": None, "sweep": None}


def _short(array: Array) -> list:
    """Six digits: a picture needs no more, and its file is read twice a second."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 6 - int(max(0.0, np.ceil(np.log10(max(1.0, float(np.nanmax(abs(array))))))))
    return np.round(array, max(0, digits)).tolist()


def save_policy(session: Session, folder: Path) -> None:
    """Write the tables as `model.safetensors` and CSV, the maze as JSON, and `config.json`: all it takes to act."""
    folder.mkdir()
    found = tables(session)
    arrays = {"values": found.values, "policy": found.policy, "greedy": preferred(found)}
    if found.action_values is not None:
        arrays["action_values"] = found.action_values
        _table(folder / "q.csv", session, ["state", "row", "column", *ACTIONS], found.action_values)
    _table(folder / "v.csv", session, ["state", "row", "column", "value"], found.values[:, None])
    _table(folder / "policy.csv", session, ["state", "row", "column", *ACTIONS], found.policy)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "model.safetensors")
    maze = replace(session.maze, gamma=float(session.knobs["gamma"]))
    (folder / "maze.json").write_text(to_json(maze), encoding="utf-8")
    config = {"kind": session.spec.kind, "algorithm": session.spec.algorithm, "values": found.named,
              "actions": list(ACTIONS), "gamma": session.knobs["gamma"], "step": session.step}
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _table(path: Path, session: Session, header: list[str], table: Array) -> None:
    """One line per state that is no wall, rows and columns counted from 1, numbers to the last digit."""
    walls = session.maze.where("wall")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for state in np.flatnonzero(~walls).tolist():
            row, column = session.maze.place(state)
            writer.writerow([state, row + 1, column + 1, *map(repr, table[state].tolist())])
