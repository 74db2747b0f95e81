"""Pictures of a run in a maze: its tables, and the arithmetic of its updates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from labcore.classic.envs.maze import ACTIONS
from labcore.classic.envs.maze_text import to_text
from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.dynamic_programming import (
    backup,
    exact_value,
    exact_values,
    greedy,
    policy_evaluation,
    value_iteration,
)
from labcore.classic.tabular.estimates import Estimates
from labcore.classic.tabular.policy_learner import PolicyLearner, PolicyUpdate
from labcore.classic.tabular.session import TabularSession
from labcore.classic.tabular.td_learner import TDLearner, Update
from labcore.classic.tabular.walks import Episode, Step
from labcore.errors import LabError

# ---------------------------------------------------------------- measures
# How far a run in a maze is from the truth, and the return of its policy.

ALL_UP_TO, LATER = 400, 200  # steps that are all drawn; of a longer run some of this many more
SOLVED_EVERY_STEP = 150  # states: a larger maze's linear systems are solved only where the step is drawn


def due(session: TabularSession) -> bool:
    """True if the newest step is drawn. Of a short run every step is drawn, of a longer one a bounded number and the
    last."""
    step, last = session.step, session.spec.steps
    settled = session.learner is None and session.sweep.change <= session.knobs["tolerance"]
    return step <= ALL_UP_TO or step % max(1, last // LATER) == 0 or step == last or settled


def evaluates(session: TabularSession) -> bool:
    """True if the sweeps give the values of one policy and improve nothing."""
    return session.method is policy_evaluation


def maximises(session: TabularSession) -> bool:
    """True if the sweeps take the best action's value rather than a policy's."""
    return session.method is value_iteration


def truth(session: TabularSession) -> tuple[Array, Array] | None:
    """The values that a method approaches: V* and Q*, or if nothing is improved the values of the policy."""
    if not evaluates(session):
        return session.best()
    gamma = float(session.knobs["gamma"])
    try:
        values = exact_values(session.maze.mdp, session.sweep.policy, gamma)
    except LabError:
        return None
    return values, session.maze.mdp.action_values(values, gamma)


def measures(session: TabularSession) -> dict[str, float]:
    """The errors of the tables, and the return of their greedy policy, as metrics."""
    found, gamma, here = session.estimates(), float(session.knobs["gamma"]), session.within_reach
    start = session.maze.start
    assert start is not None, "a maze without a start cannot be built"
    metrics = {"start_value": float(found.values[start])}
    if session.learner is not None:
        metrics |= session.learner.measures(session.knobs, here)
    metrics |= _error(found, truth(session), here)
    if best := session.best():
        metrics["start_value/best"] = float(best[0][start])
    if session.maze.states <= SOLVED_EVERY_STEP or due(session):
        with suppress(LabError):  # with γ = 1 a policy that never ends its episode has no finite value
            metrics["start_value/greedy"] = exact_value(session.maze.mdp, found.greedy, gamma, start)
    return metrics


def _error(found: Estimates, exact: tuple[Array, Array] | None, here: np.ndarray) -> dict[str, float]:
    if exact is None:
        return {}
    error = abs(found.values - exact[0])[here]
    metrics = {"value_error": float(error.mean()), "value_error/max": float(error.max())}
    if found.action_values is not None:
        metrics["q_error"] = float(abs(found.action_values - exact[1])[here].mean())
    return metrics


# ---------------------------------------------------------------- view

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
    """The sweep's update of a state's Q."""
    sweep = session.sweep
    if sweep.improved:
        return f"π(s) ← the best by the last Q: {' '.join(ARROWS[action] for action in actions)}"
    if maximises(session):
        return f"V(s) ← max Q = {sweep.values[state]:z.4g}".replace("-", "−")
    terms = " + ".join(f"{sweep.policy[state, action]:.4g} × Q(s,{ARROWS[action]})" for action in actions)
    return f"V(s) ← {terms} = {sweep.values[state]:z.4g}".replace("-", "−")


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
