"""The loops of a run in a maze: sweeps over all states, or walks with a learner. A Record for each sweep or update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np

from labcore.classic.envs.maze_env import MazeEnv
from labcore.classic.tabular.policy_learner import PolicyUpdate
from labcore.classic.tabular.session import TabularSession
from labcore.classic.tabular.td_learner import Update
from labcore.classic.tabular.view import Move, due, measures, of_sweep, of_walk
from labcore.classic.tabular.walks import Episode, Step, walk
from labcore.errors import Diverged
from labcore.runs.spec.session import Record

WAIT_SECONDS = 0.05  # the longest sleep at a stretch: a knob that is moved meanwhile counts soon


def planning(session: TabularSession) -> Iterator[Record | None]:
    """Yield a Record for each sweep, until `spec.steps` or until a sweep changes nothing any more."""
    return _paced(session, _sweeps(session))


def learning(session: TabularSession) -> Iterator[Record | None]:
    """Yield a Record for each update: of one episode, or of all episodes of one policy update."""
    return _paced(session, _walks(session))


def _paced(session: TabularSession, records: Iterator[Record]) -> Iterator[Record | None]:
    """The records of all steps, `pace` a second; None now and then, so that the worker can look up."""
    begun = -inf
    for _ in range(session.step, session.spec.steps):
        while session.knobs["pace"] and (left := begun + 1 / session.knobs["pace"] - time.perf_counter()) > 0:
            time.sleep(min(left, WAIT_SECONDS))
            yield None
        begun = time.perf_counter()
        record = next(records, None)
        if record is None:
            return
        yield record


def _sweeps(session: TabularSession) -> Iterator[Record]:
    for sweep in session.method(session.maze.mdp, session.knobs, session.sweep):
        values, session.sweep = session.sweep.values, sweep
        change = {"value_change": sweep.change} if isfinite(sweep.change) else {}
        yield _record(session, change, partial(of_sweep, session, values))
    session.finished_because = f"settled after {session.sweep.number} sweeps"


def _walks(session: TabularSession) -> Iterator[Record]:
    env = MazeEnv(session.maze, int(session.knobs["step_limit"]), bool(session.knobs["random_start"]))
    assert session.learner is not None, "the rows of this loop name one"
    learner, episode, ended = session.learner, Episode(), list[Episode]()
    steps, updates = list[Step](), list[Update | PolicyUpdate]()
    for step in walk(env, learner, session.knobs, session.rng):
        env.max_steps = int(session.knobs["step_limit"])
        session.env_steps += 1
        session.visits[step.state] += 1
        episode.steps.append(step)
        steps.append(step)
        updates += _finite(session, learner.tables.made)
        if not step.ended:
            continue
        ended.append(episode)
        episode = Episode()
        if learner.waiting:
            continue
        moves = [Move(*pair) for pair in zip(steps, updates, strict=True)]
        yield _record(session, _walked(session, ended, moves), partial(of_walk, session, ended, moves))
        ended, steps, updates = [], [], []


def _finite(session: TabularSession, updates: Sequence[Update | PolicyUpdate]) -> Sequence[Update | PolicyUpdate]:
    """The updates themselves, after a check. Raises Diverged if a value is not finite any more."""
    if all(isfinite(update.delta) and isfinite(update.after) for update in updates):
        return updates
    raise Diverged(session.step + 1, "value table", "a smaller step size")


def _walked(session: TabularSession, ended: list[Episode], moves: list[Move]) -> dict[str, float]:
    """The metrics of this step's episodes."""
    error = float(np.mean([abs(move.update.delta) for move in moves]))
    found = {"episode_return": float(np.mean([episode.total for episode in ended])), "episodes": len(ended),
             "episode_length": float(np.mean([len(episode.steps) for episode in ended]))}
    goals = session.maze.where("goal")
    there = [len(episode.steps) for episode in ended if goals[episode.steps[-1].next_state]]
    if there:
        found["moves_to_goal"] = float(np.mean(there))
    return {**found, "td_error": error}


def _record(session: TabularSession, metrics: dict[str, float], picture: Callable[[], dict[str, Any]]) -> Record:
    """Close a step: count it, measure it against the truth, and draw it where somebody may be looking."""
    session.step += 1
    session.updates += 1
    metrics = {**metrics, **measures(session)}
    kept = {key: float(value) for key, value in metrics.items() if isfinite(value)}
    drawn = picture() if due(session) else None
    return Record(session.step, 0, kept, session.env_steps, drawn, look=None if drawn else lambda: (picture(), None))
