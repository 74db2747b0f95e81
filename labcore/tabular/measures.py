"""How far a run in a maze is from the truth, and the return of its policy."""

from __future__ import annotations

import numpy as np

from labcore.envs.mdp import Array
from labcore.errors import LabError
from labcore.tabular.dynamic_programming import exact_value, exact_values, policy_evaluation, value_iteration
from labcore.tabular.estimates import Estimates
from labcore.tabular.session import TabularSession

ALL_UP_TO, LATER = 400, 200  # steps that are all drawn; of a longer run some of this many more
SOLVED_EVERY_STEP = 150  # states: a larger maze's linear systems are solved only where the step is drawn


def due(session: TabularSession) -> bool:
    """Whether the newest step is drawn: all of a short run, of a longer one a bounded number and the last."""
    step, last = session.step, session.spec.steps
    settled = session.learner is None and session.sweep.change <= session.knobs["tolerance"]
    return step <= ALL_UP_TO or step % max(1, last // LATER) == 0 or step == last or settled


def evaluates(session: TabularSession) -> bool:
    """Whether the sweeps give the values of one policy and improve nothing."""
    return session.method is policy_evaluation


def maximises(session: TabularSession) -> bool:
    """Whether the sweeps take the best action's value rather than a policy's."""
    return session.method is value_iteration


def truth(session: TabularSession) -> tuple[Array, Array] | None:
    """What a method moves towards: V* and Q*, or where nothing is improved the values of the policy."""
    if not evaluates(session):
        return session.best()
    gamma = float(session.knobs["gamma"])
    try:
        values = exact_values(session.maze.mdp, session.sweep.policy, gamma)
    except LabError:
        return None
    return values, session.maze.mdp.action_values(values, gamma)


def measures(session: TabularSession) -> dict[str, float]:
    """How far the tables are from the truth, and the return of their greedy policy."""
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
        try:
            metrics["start_value/greedy"] = exact_value(session.maze.mdp, found.greedy, gamma, start)
        except LabError:  # with γ = 1 a policy that walks for ever has no value, so none is shown
            return metrics
    return metrics


def _error(found: Estimates, exact: tuple[Array, Array] | None, here: np.ndarray) -> dict[str, float]:
    if exact is None:
        return {}
    error = abs(found.values - exact[0])[here]
    metrics = {"value_error": float(error.mean()), "value_error/max": float(error.max())}
    if found.action_values is not None:
        metrics["q_error"] = float(abs(found.action_values - exact[1])[here].mean())
    return metrics
