"""Which executor takes the runs of this lab: `RL_LAB_EXECUTOR`, and for Ray which cluster: `RL_LAB_RAY`."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from labcore.errors import LabError, quoted
from labcore.runs.files.paths import max_runs
from labcore.workers.executors import ray

LOCAL, RAY = "local", "ray"
AUTO = "auto"


def executor() -> str:
    """`RL_LAB_EXECUTOR`, or local. Raises LabError where it is neither of the two."""
    word = os.environ.get("RL_LAB_EXECUTOR", "").strip() or LOCAL
    if word not in (LOCAL, RAY):
        raise LabError(f"RL_LAB_EXECUTOR is {quoted(word)}: set it to {LOCAL} or {RAY}, or leave it unset.")
    return word


def cluster() -> str:
    """`RL_LAB_RAY`, or auto: the cluster that this machine is part of. Raises LabError where it is no such address."""
    word = os.environ.get("RL_LAB_RAY", "").strip() or AUTO
    if word != AUTO and not _is_address(word):
        raise LabError(f"RL_LAB_RAY is {quoted(word)}: set it to {AUTO}, or to ray://host:port of a Ray cluster.")
    return word


def limit() -> int:
    """How many runs the executor takes at once. Raises LabError as `executor` and `max_runs`."""
    return max_runs(ray.AT_ONCE if executor() == RAY else None)


def _is_address(word: str) -> bool:
    try:
        address = urlsplit(word)
        return address.scheme == "ray" and bool(address.hostname and address.port)
    except ValueError:  # the port is no number
        return False


def check() -> None:
    """Raise LabError where the settings ask for what cannot be had. Takes some seconds where they ask for Ray."""
    limit()
    if executor() == RAY:
        ray.check(cluster())
