"""Sessions in a maze at full speed, and the methods by the way they learn."""

import pytest

from labcore.catalog.maze import ALGORITHMS
from labcore.classic.tabular.session import TabularSession
from labcore.runs.spec.run_spec import make

PLANNING = [key for key, row in ALGORITHMS.items() if row.loop == "planning"]
LEARNING = [key for key, row in ALGORITHMS.items() if row.loop == "temporal_difference"]
GRADIENT = [key for key, row in ALGORITHMS.items() if row.loop == "tabular_policy_gradient"]
each_method = pytest.mark.parametrize("method", ALGORITHMS)


def start(method, task="textbook", steps=40, seed=1, resume=None, **knobs):
    """A session at full speed."""
    spec = make(kind="maze", algorithm_key=method, task_key=task, steps=steps, seed=seed, knobs={"pace": 0, **knobs})
    return TabularSession.start(spec, resume=resume)


def records(session):
    return [record for record in session.run() if record is not None]
