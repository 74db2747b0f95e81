"""Check on the machine of a run, before its worker is started, that it has everything the lab needs."""

from __future__ import annotations

import platform
from importlib.util import find_spec

from labcore.errors import LabError, NoSuchRun
from labcore.runs.files import storage
from labcore.runs.files.paths import made, run_folder
from labcore.runs.store.dialects import store_url
from labcore.runs.store.store import Store

NEEDED = ("torch", "transformers")


def wanted(run_id: str, lab: str) -> bool:
    """True if the run still waits for a process; `lab` is the machine of the lab that sent it.

    Raises:
        LabError: this machine cannot take it.
    """
    here = f"The machine {platform.node()} of the Ray cluster"
    for package in NEEDED:
        if find_spec(package) is None:
            raise LabError(f"{here} has no {package}: install the packages of requirements.txt there, then resume "
                           "the run.")
    if lacks := storage.lacks():
        raise LabError(f"{here} has no {lacks}: run pip install -r requirements-cluster.txt there, then resume the "
                       "run.")
    if storage.chosen():  # which has what this machine's folder lacks
        made(run_folder(run_id))
    if not run_folder(run_id).is_dir():  # the lab made it
        raise LabError(f"{here} does not see the lab's folder {run_folder(run_id).parent}: set RL_LAB_HOME to a folder "
                       "that all machines share under the same path, or RL_LAB_ARTIFACTS to an object store, then "
                       "resume the run.")
    if store_url().startswith("sqlite") and platform.node() != lab:
        raise LabError(f"{here} cannot use the store of {lab}, an SQLite file: set RL_LAB_STORE to a PostgreSQL that "
                       "all machines reach, then start the lab and the run again.")
    try:
        store = Store()
        state = store.run(run_id).state
    except NoSuchRun:
        return False
    except LabError as error:
        raise LabError(f"{here} cannot use the lab's store: {error}") from error
    store.dispose()  # the carrier stays as long as the run, and needs no connection
    return state == "queued"
