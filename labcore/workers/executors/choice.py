"""Choose the executor of this lab: the only module that the rest of the lab asks about Ray.

`RL_LAB_EXECUTOR` names it. The modules of Ray are imported only where that is `ray`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pkgutil import resolve_name

from labcore.errors import LabError, quoted
from labcore.runs.files.paths import max_runs
from labcore.runs.store.store import Store
from labcore.workers.children import Children
from labcore.workers.executors.executor import Executor, Local

LOCAL, RAY = "local", "ray"
_MODULE = "labcore.workers.executors.ray"


def executor() -> str:
    """`RL_LAB_EXECUTOR`, or local. Raises LabError where it is neither of the two."""
    word = os.environ.get("RL_LAB_EXECUTOR", "").strip() or LOCAL
    if word not in (LOCAL, RAY):
        raise LabError(f"RL_LAB_EXECUTOR is {quoted(word)}: set it to {LOCAL} or {RAY}, or leave it unset.")
    return word


def chosen(store: Store, children: Children) -> Executor:
    """The executor of this lab's runs. Raises LabError where its settings make no sense."""
    if executor() == LOCAL:
        return Local(children)
    on_ray: Callable[[Store], Executor] = resolve_name(f"{_MODULE}:OnRay")
    return on_ray(store)


def check() -> None:
    """Raise LabError if the settings cannot be used. Takes some seconds with Ray."""
    max_runs()
    if executor() == RAY:
        resolve_name(f"{_MODULE}:check")()


def _most_runs() -> str:
    return str(max_runs(resolve_name(f"{_MODULE}:AT_ONCE") if executor() == RAY else None))


# The settings of executors: name, meaning, and a function that says the value in use.
SETTINGS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("RL_LAB_MAX_RUNS", "Number of runs at the same time; the others wait in a queue", _most_runs),
    ("RL_LAB_EXECUTOR", "Where runs are started: local (this machine) or ray (a Ray cluster)", executor),
    ("RL_LAB_RAY", "Address of the Ray cluster; auto is the one on this machine",
     lambda: os.environ.get("RL_LAB_RAY", "").strip() or "auto"),
)
