"""Makes the base models that come with the lab: `python -m labcore.workers.ship_bases` writes `labcore/bases` anew.

To be run when the SFT spec of a default changes, or the code that trains it; a test compares what is there with what
the code makes today. Each is the outcome of an ordinary SFT run, weights only, as every base.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from labcore.catalog import kinds
from labcore.catalog.presets import of_kind
from labcore.errors import LabError
from labcore.runs.files import bases
from labcore.runs.files.storage import in_home
from labcore.runs.presets import spec_of
from labcore.runs.spec.run_spec import RunSpec, base_spec, make, policy_of_run
from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from labcore.workers.worker import drive

TASKS = ("sort", "add")  # what a first visit trains on, beside the presets
TEACHER = "sort"  # the task that a first visit has a teacher of


def specs() -> dict[str, RunSpec]:
    """The SFT specs of the bases that come with the lab, by their names: those of the kind's usual model and algorithm,
    and those that presets start from."""
    kind = kinds.kind("llm")
    first = [make(algorithm_key=kind.algorithm, task_key=task) for task in TASKS]
    found = map(base_spec, [*first, *map(spec_of, of_kind(kind.key))])
    return {spec.hash(): spec for spec in (*found, teacher_spec()) if spec}


def teacher_spec() -> RunSpec:
    """The SFT of the teacher that comes with the lab: of the usual model, until nearly all its answers are right."""
    return make(algorithm_key="sft", task_key=TEACHER, knobs={"sft_target": 0.98, "learning_rate": 3e-3})


def trained(store: Store, spec: RunSpec) -> Path:
    """The policy that an SFT run of `spec`, made here and now, ends with.

    Raises:
        LabError: it did not finish.
    """
    run_id = store.create(spec, mine=True)
    if (state := drive(store, run_id)) != "finished":
        raise LabError(f"The SFT run {run_id} is {state}: {store.run(run_id).message}")
    return policy_of_run(run_id)


def ship(target: Path) -> None:
    """Write all of them to `target`, in place of what is there. Trains in a lab of its own, which it deletes."""
    with tempfile.TemporaryDirectory(prefix="rl-lab-bases-") as lab, in_home(Path(lab)):
        made = {name: trained(Store(sqlite_url(Path(lab) / "lab.db")), spec) for name, spec in specs().items()}
        shutil.rmtree(target, ignore_errors=True)
        for name, policy in made.items():
            bases.keep(target / name, policy, run=None)


if __name__ == "__main__":
    ship(bases.SHIPPED)
