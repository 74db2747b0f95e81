"""Make the models that come with the lab: `python -m labcore.workers.ship_bases` writes `labcore/bases`.

Run it when the spec of a default or the code that trains it changes; a test compares the folder with the result of the
present code. Each model is the result of an ordinary run, weights only: a base of SFT, or a process reward model, whose
folder also has the tokenizer and configuration of its policy.
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
from labcore.runs.spec.model_names import PROCESS_WEIGHTS
from labcore.runs.spec.run_spec import RunSpec, base_spec, make, policy_of_run
from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from labcore.workers.worker import drive

TASKS = ("sort", "add")  # what a first visit trains on, beside the presets
TEACHER = "sort"  # the task that a first visit has a teacher of, and a process reward model


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


def scorer_spec() -> RunSpec:
    """The process reward model that comes with the lab: each letter of an answer is a step."""
    return make(algorithm_key="prm", task_key=TEACHER, steps=60)


def trained(store: Store, spec: RunSpec) -> Path:
    """Train a run of `spec` and return its final model: the policy, or the process reward model.

    Raises:
        LabError: it did not finish.
    """
    run_id = store.create(spec, mine=True)
    if (state := drive(store, run_id)) != "finished":
        raise LabError(f"The run {run_id} is {state}: {store.run(run_id).message}")
    policy = policy_of_run(run_id)
    return _scorer(policy.parent) if (policy.parent / PROCESS_WEIGHTS).is_file() else policy


def _scorer(checkpoint: Path) -> Path:
    """A folder beside a checkpoint with the files that `load_scorer` reads."""
    from labcore.llm.nets.scorer import CONFIG, load_scorer, save_scorer  # which imports torch

    target = checkpoint.with_name("scorer")
    shutil.copytree(checkpoint / CONFIG, target / CONFIG, ignore=shutil.ignore_patterns("*.safetensors"))
    save_scorer(load_scorer(checkpoint, checkpoint.parent.parent.name), target)
    return target


def ship(target: Path) -> None:
    """Write all of them to `target`, in place of what is there. Trains in a lab of its own, which it deletes."""
    with tempfile.TemporaryDirectory(prefix="rl-lab-bases-") as lab, in_home(Path(lab)):
        store, scorer = Store(sqlite_url(Path(lab) / "lab.db")), scorer_spec()
        made = {name: trained(store, spec) for name, spec in {**specs(), scorer.hash(): scorer}.items()}
        shutil.rmtree(target, ignore_errors=True)  # the first time it is not there
        for name, folder in made.items():
            bases.keep(target / name, folder, run=None)


if __name__ == "__main__":
    ship(bases.SHIPPED)
