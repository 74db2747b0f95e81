"""A new session in a maze taken to where another one is: what both methods keep goes on, the rest begins anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labcore.tabular.session import Session


def fork(parent: Session, child: Session) -> Session:
    """`child`, newly started, where `parent` is: tables, counters, and random numbers where the child is a twin.

    Between planning and a policy gradient it is V that goes on.
    """
    planned, plans = parent.learner is None, child.learner is None
    same = child.spec.algorithm == parent.spec.algorithm
    if planned and plans:
        # Under other knobs, or judged by another method, nothing is known of how far V is from settled.
        settled = same and child.knobs == parent.knobs
        child.sweep = parent.sweep if settled else replace(parent.sweep, change=np.inf)
    elif plans:
        child.sweep = replace(child.sweep, values=parent.learner.tables.values, policy=parent.learner.policy({}))
    elif planned:
        child.learner.tables.values[:] = parent.sweep.values
    else:
        child.learner.load(parent.learner.state())
        tables = child.learner.tables
        tables.last = dict(parent.learner.tables.last)
        if not same and hasattr(tables, "pair"):
            tables.pair[:] = tables.q  # two tables that are of one mind
    child.visits[:] = parent.visits
    child.step, child.updates, child.env_steps = parent.step, parent.updates, parent.env_steps
    if child.spec.twin:
        child.rng = parent.rng
    return child
