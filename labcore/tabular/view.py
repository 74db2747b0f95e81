"""What is drawn of a run in a maze: its tables as a picture, and the arithmetic of its updates."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from labcore.envs.maze import ACTIONS
from labcore.envs.maze_text import to_text
from labcore.envs.mdp import Array
from labcore.tabular.dynamic_programming import backup, greedy
from labcore.tabular.measures import evaluates, maximises, truth
from labcore.tabular.policy_learner import PolicyLearner, PolicyUpdate
from labcore.tabular.session import TabularSession
from labcore.tabular.td_learner import TDLearner, Update
from labcore.tabular.walks import Episode, Step

ARROWS = dict(zip(range(len(ACTIONS)), "↑→↓←", strict=True))
LONGEST = 300  # moves of an episode that are shown


class Move(NamedTuple):
    """A step of an episode, and the update that came of it."""

    step: Step
    update: Update | PolicyUpdate


def of_sweep(session: TabularSession, values: Array) -> dict[str, Any]:
    """The picture after a sweep that began with `values`."""
    sweep, mdp, gamma = session.sweep, session.maze.mdp, float(session.knobs["gamma"])
    last, best = {}, greedy(sweep.action_values)
    for state in np.flatnonzero(session.within_reach).tolist():
        shown = np.flatnonzero(best[state] if maximises(session) else sweep.policy[state]).tolist()
        lines = [f"Q(s,{ARROWS[action]}) = {backup(mdp, values, gamma, state, action)}" for action in shown]
        last[str(state)] = "\n".join([*lines, _swept(session, state, shown)])
    change = sweep.change if isfinite(sweep.change) else None
    return _picture(session) | {"last": last, "sweep": {"number": sweep.number, "change": change,
                                                        "improved": sweep.improved}}


def _swept(session: TabularSession, state: int, actions: list[int]) -> str:
    """What the sweep made of a state's Q."""
    sweep = session.sweep
    if sweep.improved:
        return f"π(s) ← the best by the last Q: {' '.join(ARROWS[action] for action in actions)}"
    if maximises(session):
        return f"V(s) ← max Q = {sweep.values[state]:.4g}".replace("-", "−")
    terms = " + ".join(f"{sweep.policy[state, action]:.4g} × Q(s,{ARROWS[action]})" for action in actions)
    return f"V(s) ← {terms} = {sweep.values[state]:.4g}".replace("-", "−")


def of_walk(session: TabularSession, ended: Sequence[Episode], moves: Sequence[Move]) -> dict[str, Any]:
    """The picture after an update: the last episode of it, move by move."""
    assert session.learner is not None, "it walked"
    episode = ended[-1]
    own = moves[len(moves) - len(episode.steps):][-LONGEST:]
    final = episode.steps[-1]
    kind = "time" if final.truncated else session.maze.cells[session.maze.place(final.next_state)[0]][
        session.maze.place(final.next_state)[1]].kind
    return _picture(session) | {
        "path": [own[0].step.state, *(move.step.next_state for move in own)],
        "moves": [{"state": move.step.state, "action": move.step.action, "reward": move.step.reward,
                   "next_state": move.step.next_state, "before": move.update.before, "after": move.update.after,
                   "text": _written(move.update)} for move in own],
        "last": {str(state): _written(update) for state, update in _last(session.learner)},
        "episode": {"return": episode.total, "length": len(episode.steps), "ended": kind}}


def _last(learner: TDLearner | PolicyLearner) -> Sequence[tuple[int, Update | PolicyUpdate]]:
    """The last update that began in each state, by state."""
    return sorted(learner.tables.last.items())


def _written(update: Update | PolicyUpdate) -> str:
    """An update with its numbers."""
    return update.written(ARROWS[update.action])


def _picture(session: TabularSession) -> dict[str, Any]:
    found, best, exact = session.estimates(), session.best(), truth(session)
    walls = ~session.maze.reachable()
    return {"step": session.step, "maze": to_text(session.maze), "gamma": session.knobs["gamma"],
            "values": [None if wall else value for wall, value in zip(walls, _short(found.values), strict=True)],
            "values_of": found.named, "q": None if found.action_values is None else _short(found.action_values),
            "policy": _short(found.policy), "greedy": _short(found.greedy),
            "visits": session.visits.tolist() if session.learner else None,
            "optimal": _short(best[0]) if best else None, "truth": _short(exact[0]) if exact else None,
            "truth_of": "V of the policy, exact" if evaluates(session) else "V*", "path": None, "moves": [], "last": {},
            "episode": None, "sweep": None}


def _short(array: Array) -> list[Any]:
    """Six digits: a picture needs no more, and its file is read twice a second."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 6 - int(max(0.0, np.ceil(np.log10(max(1.0, float(np.nanmax(abs(array))))))))
    short: list[Any] = np.round(array, max(0, digits)).tolist()
    return short
