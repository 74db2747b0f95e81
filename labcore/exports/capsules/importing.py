"""A capsule as a run of this lab: to look at, to fork, to resume. Imports no torch."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from labcore.catalog.kinds import built_in
from labcore.errors import LabError, os_reason
from labcore.exports.capsules.packing import CHECKPOINTS, SEEN
from labcore.exports.capsules.reading import Capsule, unpacked
from labcore.runs import summary, versions
from labcore.runs.faults import disk_full
from labcore.runs.files import adapters, atomic, storage, uploads
from labcore.runs.files.paths import home, is_run_id, made, run_folder
from labcore.runs.files.removal import remove
from labcore.runs.lists.marks import project_name
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.together import absent_teacher
from labcore.runs.store.rows import Event, RunRow, Step
from labcore.runs.store.store import Store

TAG = "imported"
_UNFINISHED = "importing"  # a file in the folder of a run that is not in the store yet


def import_capsule(store: Store, path: Path | str) -> str:
    """Add the run of a capsule to the lab, marked as imported. Returns the id of the run: the capsule's own, or a new
    one if that is taken, is not allowed, or is the name of a model that comes with the lab. The run's message says
    where it is from. Raises LabError if the capsule is damaged, this lab cannot run it, or the run cannot be
    written."""
    with unpacked(path) as capsule, _alone(capsule):
        _remove_left(store)
        for run_id in filter(_is_free, _names(capsule)):
            folder = run_folder(run_id)
            spec = _spec(capsule)
            _write(capsule, spec, folder)
            try:
                if store.add(*_rows(capsule, run_id, spec)):
                    (folder / _UNFINISHED).unlink()
                    storage.changed(folder)
                    storage.changed(Path(spec.model))
                    with suppress(LabError):  # the first list can do without
                        summary.keep(store, run_id)
                    return run_id
            except BaseException:
                remove(folder)
                raise
            remove(folder)
        raise AssertionError("there is always another name")


@contextmanager
def _alone(capsule: Capsule) -> Iterator[None]:
    """No other import of a capsule into this lab is under way."""
    try:
        lock = FileLock(made(home()) / "imports.lock")
        lock.acquire()
    except OSError as error:
        raise _not_kept(capsule, error) from error
    try:
        yield
    finally:
        lock.release()


def _remove_left(store: Store) -> None:
    """Remove the folders of imports that were killed before their run was in the store."""
    if marks := [*home().glob(f"*/{_UNFINISHED}")]:
        known = {row.id for row in (*store.runs(), *store.trashed())}
        for mark in marks:
            mark.unlink() if mark.parent.name in known else remove(mark.parent)


def _names(capsule: Capsule) -> Iterator[str]:
    """The run's own name, then such as a new run of that kind would get."""
    yield capsule.run
    while True:
        yield f"{capsule.spec.stem}-{secrets.token_hex(2)}"


def _is_free(run_id: str) -> bool:
    """Whether a run may be called so. By the name of a model that comes with the lab nobody would find the run."""
    return is_run_id(run_id) and run_id.casefold() not in built_in() and not run_folder(run_id).exists()


def _rows(capsule: Capsule, run_id: str, spec: RunSpec) -> tuple[RunRow, Sequence[Step], Sequence[Event]]:
    now, last, manifest = time.time(), capsule.rows[-1], capsule.manifest
    origin = f"Imported from {capsule.name}."
    if run_id != capsule.run:
        origin += f" Its id {capsule.run} was taken here, so it has a new one."
    if teacher := absent_teacher(spec.row, spec.knobs):
        origin += (f" Its teacher {teacher} is not in the capsule: to continue or repeat the run, add that model to "
                   "this lab too.")
    row = RunRow(run_id, spec, manifest["state"], origin, created=now, started=manifest["started"],
                 ended=manifest["ended"] or now, pid=None, host=None, heartbeat=None, step=last.step,
                 seconds=last.seconds, base=None, tags=(TAG,), project=_project(manifest))
    return row, capsule.rows, [*capsule.events, Event(0, last.step, "imported", {"text": origin}, now)]


def _project(manifest: Mapping[str, Any]) -> str:
    """The project of the capsule's run; none where it has none, or a name that this lab would not give."""
    try:
        return project_name(str(manifest.get("project") or ""))
    except LabError:
        return ""


def _spec(capsule: Capsule) -> RunSpec:
    """The spec with this lab's places: of the user's file, and of a model that came with the capsule."""
    own, first = _brings_model(capsule), capsule.first
    if own and (not first or capsule.spec.model != f"{CHECKPOINTS}/{first.name}/policy"):
        raise LabError(f"{capsule.name} is not a sound capsule (its spec.json names a model that it does not hold): "
                       "copy it again, or export the run again.")
    data = uploads.keep(capsule.data.name, capsule.data.read_bytes()) if capsule.data else None
    spec = capsule.located(str(first / "policy") if own and first else capsule.spec.model, data,
                           absent=bool(capsule.manifest["left_out"] or absent_teacher(capsule.spec.row,
                                                                                      capsule.spec.knobs)))
    return replace(spec, model=str(_model_folder(capsule))) if own else spec


def _brings_model(capsule: Capsule) -> bool:
    return capsule.spec.model.startswith(f"{CHECKPOINTS}/")


def _model_folder(capsule: Capsule) -> Path:
    """Where the model is kept that the run began with: apart from the run, whose forks need it longer than it lives."""
    seals = sorted((file, seal["sha256"]) for file, seal in capsule.manifest["files"].items()
                   if file.startswith(f"{capsule.spec.model}/"))
    return uploads.place(json.dumps(seals).encode()) / "model"


def _weights(policy: Path) -> Path:
    """The folder of the model that a capsule's run began with: of an adapter the weights that it is on, where the
    capsule brings them. Another folder that the adapter names is none of the capsule's, and is not copied."""
    brought = policy.parents[1] / adapters.BESIDE
    return brought if adapters.is_adapter(policy) and brought.is_dir() else policy


def _write(capsule: Capsule, spec: RunSpec, folder: Path) -> None:
    def fill(target: Path) -> None:
        for part in (CHECKPOINTS, *SEEN):
            if (capsule.folder / part).exists():
                shutil.copytree(capsule.folder / part, target / part)
        if _brings_model(capsule):
            uploads.use(Path(spec.model).parent)
        if _brings_model(capsule) and not Path(spec.model).exists():
            atomic.write_folder(Path(spec.model), lambda model: shutil.copytree(
                _weights(target / capsule.spec.model), model, copy_function=atomic.link, dirs_exist_ok=True))
        (target / _UNFINISHED).touch()
        (target / "spec.json").write_text(spec.to_json(), encoding="utf-8")
        (target / versions.FILE).write_text(json.dumps(capsule.manifest["made_with"], indent=1), encoding="utf-8")

    try:
        atomic.write_folder(made(home()) / folder.name, fill)
    except OSError as error:
        raise _not_kept(capsule, error) from error


def _not_kept(capsule: Capsule, error: OSError) -> LabError:
    why = "the disk is full" if disk_full(error) else os_reason(error)
    return LabError(f"{capsule.name} cannot be kept in {home()} ({why}): free some space, or set RL_LAB_HOME to "
                    "another folder.")
