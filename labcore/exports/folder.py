"""A run as files for other programs: `metrics.csv`, `events.csv`, `knobs.csv`, `spec.json` and `checkpoint/`, which
is a Hugging Face folder, or with LoRA the adapter as `peft` has it; `teacher/` where a model of the lab taught it.
Numbers are written as they were logged, to the last digit. Imports no torch.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from labcore.catalog import choices
from labcore.catalog.metrics import ordered
from labcore.errors import LabError, os_reason
from labcore.runs.faults import disk_full
from labcore.runs.files import atomic, event_file, storage, tables
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import is_run_id, made, path_of, run_folder
from labcore.runs.knob_history import Change, KnobHistory
from labcore.runs.spec import model_names
from labcore.runs.store.store import Event, RunRow, Step, Store

# ---------------------------------------------------------------- tensorboard
# A run as one event file of TensorBoard, with every metric of every step.


def write(folder: Path, run: RunRow, rows: Collection[Step], events: Sequence[Event]) -> Path:
    """Write `events.out.tfevents.<when it began>.<run>` into `folder`. Returns the file.

    x is the step; the time of a step is when the run began plus its active seconds, so pauses are left out.
    """
    begun = next((event.time for event in events if event.kind in ("started", "forked")), run.started or run.created)
    first = next(iter(rows), None) if run.spec.parent else None
    shift = begun - (first.seconds if first else 0.0)  # a fork's clock continues its parent's
    path = folder / f"events.out.tfevents.{int(begun)}.{run.id}"
    with path.open("wb") as file:
        file.write(event_file.head(begun))
        for row in rows:
            file.write(event_file.event(shift + row.seconds, row.step, row.metrics))
    return path


# ---------------------------------------------------------------- folder

STORED = (".safetensors",)  # weights do not shrink
TEACHER = "teacher"  # the folder of a teacher that is a model of this lab


def export_run(store: Store, run_id: str, folder: Path | str, tensorboard: bool = False, merged: bool = False,
               best: bool = False) -> Path:
    """Write the run into `folder`, which is created if needed. Files of an earlier export there are replaced. Returns
    the folder.

    The checkpoint is the newest, or with `best` the best by held-out rows. `tensorboard` adds the metrics as an event
    file of TensorBoard. If the checkpoint is an adapter, `merged` adds the folder `merged` with the whole model, for
    which torch is loaded. A watched run has no checkpoint. Raises LabError if there is no such run, it has no
    checkpoint yet or no best one, or the folder cannot be written.
    """
    folder = path_of(folder)
    row = store.run(run_id)
    if not row.spec.kind_row.elsewhere and checkpoint.newest(run_folder(run_id)) is None:
        raise LabError(f"The run {run_id} has no checkpoint yet: export it when its first step is done.")
    if best and checkpoint.best_step(run_folder(run_id)) is None:
        raise LabError(f"The run {run_id} has no best checkpoint, since no held-out rows were measured: export it "
                       "without --best.")
    if folder.exists() and not folder.is_dir():
        raise LabError(f"{folder} is a file: export to a folder.")
    try:
        atomic.write_into(folder, lambda new: _fill(store, row, new, tensorboard, merged, best))
    except Exception as error:
        if disk_full(error):  # safetensors has errors of its own
            raise LabError(f"The disk that holds {folder} is full: free some space, then export again.") from error
        if not isinstance(error, OSError):
            raise
        raise LabError(f"The run {run_id} cannot be exported to {folder} ({os_reason(error)}): choose another "
                       "folder.") from error
    return folder


def _fill(store: Store, row: RunRow, folder: Path, tensorboard: bool, merged: bool, best: bool) -> None:
    """Write the files of an export into `folder`."""
    rows, events = store.every_step(row.id, row.step), store.events_after(row.id)
    write_metrics(folder / "metrics.csv", rows)
    write_events(folder / "events.csv", events)
    write_knobs(folder / "knobs.csv", KnobHistory(row.spec, events).changes)
    if tensorboard:
        write(folder, row, rows, events)
    spec = json.loads(row.spec.to_json())
    (folder / "spec.json").write_text(json.dumps(spec, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if row.spec.kind_row.elsewhere:  # its weights stay with the trainer
        return
    _copy_checkpoint(row.id, folder / "checkpoint", best)
    taught = choices.needs_teacher(row.spec.knobs) and model_names.teacher_here(str(row.spec.knobs["teacher"]))
    if taught:
        shutil.copytree(taught, folder / TEACHER)
    if merged and row.spec.knobs.get("lora_rank"):
        resolve_name("labcore.llm.nets.model:export_merged")(folder / "checkpoint", folder / "merged")


def export_zip(store: Store, run_id: str, best: bool = False) -> Path:
    """The run, TensorBoard's file included, as one zip in its own `export` folder. A new one replaces it as a whole.
    `best` as in `export_run`. Raises LabError as `export_run`."""
    store.run(run_id)  # a name that is no run's must not become a path
    target = made(run_folder(run_id) / "export", spare=True) / f"{run_id}.zip"
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        folder = export_run(store, run_id, Path(temporary) / run_id, tensorboard=True, best=best)
        try:
            atomic.write_file(target, lambda packed: pack(folder, packed))
        except OSError as error:
            raise LabError(f"The zip {target} cannot be written ({os_reason(error)}): free some space, then export "
                           "again.") from error
    return target


def pack(folder: Path, packed: Path) -> None:
    """Zip a folder under its own name into the file `packed`."""
    with zipped(packed) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            how = zipfile.ZIP_STORED if path.suffix in STORED else None
            archive.write(path, path.relative_to(folder.parent), compress_type=how)


def zipped(packed: Path) -> zipfile.ZipFile:
    """The zip `packed`, to be written. A file's time before 1980 or after 2107 is written as the nearest there is."""
    return zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6, strict_timestamps=False)


def write_metrics(path: Path, rows: Collection[Step]) -> None:
    """Write one line per step: step, tokens, seconds, then every metric logged, in the catalog's order."""
    logged = {key for row in rows for key in row.metrics}
    keys = ordered(logged)
    env = ["env_steps"] if any(row.env_steps for row in rows) else []
    tables.write(path, ["step", "tokens", "seconds", *env, *keys], (
        [row.step, row.tokens, row.seconds, *([row.env_steps] if env else []), *map(row.metrics.get, keys)]
        for row in rows))


def write_events(path: Path, rows: Sequence[Event]) -> None:
    """Write one line per event, with all that is known of it as JSON."""
    tables.write(path, ["step", "time", "kind", "text", "payload"], (
        [row.step, row.time, row.kind, row.payload.get("text", ""), json.dumps(row.payload, ensure_ascii=False)]
        for row in rows))


def write_knobs(path: Path, changes: Sequence[Change]) -> None:
    """Write one line per change of a knob: the first step that it counts in, and the updates made before it."""
    tables.write(path, ["step", "update", "knob", "from", "to"], (
        [each.step, each.update, each.knob, each.before, each.value] for each in changes))


def _copy_checkpoint(run_id: str, target: Path, best: bool) -> None:
    """Copy the newest policy, or the best. The worker may delete it meanwhile because there is a newer or better one;
    then that one is copied instead."""
    folder = run_folder(run_id)
    while True:
        step = checkpoint.best_step(folder) if best else checkpoint.newest_step(folder)
        policy = checkpoint.at(folder, step or 0) or folder
        copy = partial(shutil.copytree, policy / "policy", dirs_exist_ok=True)
        try:
            return atomic.write_folder(target, copy, replace=True, sync=False)
        except (FileNotFoundError, shutil.Error):
            if (policy / "policy").exists():
                raise


# ---------------------------------------------------------------- merged
# The whole model that a LoRA run has learnt, its adapter added to its base, as a zip. Imports no torch by itself.

def file(run_id: str) -> Path:
    """Where the zip of a run is kept, in its own `export` folder."""
    return run_folder(run_id) / "export" / f"{run_id}-merged.zip"


def merge(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `merge` of a run's checkpoint: {"bytes"} of the zip, which `file` names. Raises LabError if there is no
    such checkpoint, or its base model is not there."""
    run_id, step = str(spec["run"]), int(spec["step"])
    found = dict(checkpoint.steps(run_folder(run_id))) if is_run_id(run_id) else {}
    if step not in found:
        raise LabError(f"The run {run_id} has no checkpoint of step {step} any more: ask for a newer one.")
    target = made(file(run_id).parent, spare=True) / file(run_id).name
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        folder = Path(temporary) / f"{run_id}-merged"
        resolve_name("labcore.llm.nets.model:export_merged")(storage.fetch(found[step]) / "policy", folder)
        atomic.write_file(target, lambda packed: pack(folder, packed))
    return {"bytes": target.stat().st_size}
