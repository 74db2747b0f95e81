"""Which executor takes the runs of this lab: `RL_LAB_EXECUTOR`, and for Ray which cluster: `RL_LAB_RAY`."""

from __future__ import annotations

import os

from labcore.errors import LabError, quoted
from labcore.store.store import Store
from labcore.workers.children import Children
from labcore.workers.executors.executor import Executor
from labcore.workers.executors.local import Local

LOCAL, RAY = "local", "ray"


def check() -> None:
    """Raise LabError where the settings ask for what cannot be had."""
    name()


def name() -> str:
    """`RL_LAB_EXECUTOR`, or local. Raises LabError where it is neither of the two."""
    word = os.environ.get("RL_LAB_EXECUTOR", "").strip() or LOCAL
    if word not in (LOCAL, RAY):
        raise LabError(f"RL_LAB_EXECUTOR is {quoted(word)}: set it to {LOCAL} or {RAY}, or leave it unset.")
    return word


def executor_for(store: Store, children: Children) -> Executor:
    """What starts the runs of this supervisor."""
    return Local(children)
