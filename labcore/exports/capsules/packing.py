"""A run capsule: one zip with everything that is needed to repeat a run and to check that the numbers are the same.

It holds the spec, the metrics and events of every step, the timeline of the knobs, the first checkpoint (what the run
started from: weights, optimizers, random numbers) and the newest, the samples, the user's file, what it was made with,
and in `manifest.json` the SHA-256 of each of these. Paths in it are its own; nothing names the user's folders.
`reading` reads it, `replay` repeats its run. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labcore.catalog.kinds import built_in
from labcore.errors import LabError, os_reason
from labcore.exports.folder import STORED, write_events, write_knobs, write_metrics, zipped
from labcore.runs import versions
from labcore.runs.faults import disk_full
from labcore.runs.files import adapters, atomic, removal, sizes, step_files, storage, untrusted, uploads
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import home, made, path_of, run_folder
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import COUNTERS, Event, RunRow
from labcore.runs.store.store import Store
from labcore.tasks.held_out import held_out_file

FORMAT, VERSION = "rl-visual-lab capsule", 1
MANIFEST, SPEC, METRICS, EVENTS, KNOBS, README = ("manifest.json", "spec.json", "metrics.csv", "events.csv",
                                                  "knobs.csv", "README.txt")
CHECKPOINTS, DATA, SEEN = "checkpoints", "data", ("samples", "lines")
# What a reader checks in seconds and in 300 MB of memory: the cells of a table, to which each row adds some; and the
# numbers, texts, lists and objects of JSON, each of which takes up to a hundred bytes in memory.
MOST_CELLS, ROW_CELLS = 2_000_000, 8
MOST_VALUES, USUAL_VALUES = {EVENTS: 2**20, **dict.fromkeys(SEEN, 2**21)}, 2**19
LARGEST = 2 * 2**30  # bytes of one checkpoint in a capsule
LARGEST_GIVEN = 64 * 2**20  # bytes of a model that a run was given: a larger one is named, with its hash
MOST_SEEN, LONGEST_SEEN = 32 * 2**20, 16 * 2**20  # bytes of all there is to look at, and of one file of it

_README = """The run {run} of RL Visual Lab, complete: its spec and seed, every metric and event, the timeline of its
knobs, what it started from, its newest checkpoint, and what it was made with.

    python -m labcore replay {file}      runs it again and says whether every number comes out the same
    python -m labcore import {file}      puts it into your lab

manifest.json has the SHA-256 of every other file.
"""


def write(store: Store, run_id: str, target: Path | str, light: bool = False) -> Path:
    """Write the capsule of a run to the file `target`, all of it or nothing. Returns it.

    A `light` one has no checkpoints and nothing to look at: a replay makes the beginning of the run again. Raises
    LabError if there is no such run, it has a `fault`, its beginning cannot be made again, or the file cannot be
    written.
    """
    row, target = store.run(run_id), path_of(target)
    if light and not starts_anew(row.spec):
        raise LabError(f"The run {run_id} began with weights or labels that only its checkpoint has: export it "
                       "without --light.")
    if target.is_dir():
        raise LabError(f"{target} is a folder: give the name of a zip file.")
    if why := fault(row):
        raise LabError(why)
    try:
        with removal.folder("capsule") as folder:
            atomic.write_output(target, lambda packed: _write(store, row, folder, packed, target.name,
                                                              0 if light else LARGEST))
    except OSError as error:
        why = "the disk is full" if disk_full(error) else os_reason(error)
        raise LabError(f"The capsule {target} cannot be written ({why}): choose another place.") from error
    return target


def starts_anew(spec: RunSpec) -> bool:
    """Whether what a run begins with follows from its spec alone: from a seed, or from the SFT of a built-in model."""
    elsewhere = spec.knobs.get("reward_model") or spec.knobs.get("labelled_pairs")  # what only a checkpoint has
    return spec.model in built_in() and not spec.parent and not elsewhere


def fault(row: RunRow) -> str:
    """Why there can be no capsule of a run, in a sentence; empty where there can."""
    if not row.step:
        return f"The run {row.id} has made no step yet: there is nothing to put into a capsule."
    if row.spec.data and not storage.has(row.spec.data):
        return (f"The file {Path(row.spec.data).name} that the run {row.id} learns from is gone, so the run cannot be "
                "repeated: export it without --capsule.")
    if (second := str(row.spec.knobs.get("held_out_file", ""))) and not uploads.is_kept(second):
        return (f"The held-out file of the run {row.id} is gone, so the run cannot be repeated: export it without "
                "--capsule.")
    if first_step(row.spec) not in dict(checkpoint.steps(run_folder(row.id))):
        return (f"The run {row.id} has lost its first checkpoint, without which it cannot be repeated: export it "
                "without --capsule.")
    return ""


def write_own(store: Store, run_id: str) -> Path:
    """The capsule in the run's own `export` folder, made anew. Raises LabError as `write`."""
    store.run(run_id)  # a name that is no run's must not become a path
    return write(store, run_id, made(run_folder(run_id) / "export", spare=True) / name_of(run_id))


def name_of(run_id: str) -> str:
    """The file name of a run's capsule."""
    return f"{run_id}.capsule.zip"


def cells(rows: int, columns: int) -> int:
    """The cells that a table counts towards `MOST_CELLS`: each row counts as several cells, even a short one."""
    return rows * (columns + ROW_CELLS)


def most_values(file: str) -> int:
    """The largest number of JSON values in a file of a capsule, by its path there."""
    return MOST_VALUES.get(file.split("/")[0], USUAL_VALUES)


def values(content: bytes) -> int:
    """At least as many as the values that a text of JSON, or a table with JSON in it, holds."""
    return 1 + sum(map(content.count, (b",", b"[", b"{")))


def _check_cells(store: Store, run_id: str) -> None:
    """Raise LabError where no reader would take a run's rows, before they are read."""
    count, wide = store.count_steps(run_id), len(COUNTERS) + len(store.logged(run_id))
    if cells(count, wide) > MOST_CELLS:
        raise LabError(f"The run {run_id} has {count:,} rows of {wide} numbers, too many for a capsule: export it "
                       "without --capsule.")


def _check_events(run_id: str, events: Sequence[Event], table: bytes) -> None:
    """Raise LabError where no reader would take a run's events, which are written as `table`."""
    if cells(len(events), 5) > MOST_CELLS or values(table) > MOST_VALUES[EVENTS]:
        raise LabError(f"The run {run_id} has {len(events):,} events, too many for a capsule: export it without "
                       "--capsule.")


def _write(store: Store, row: RunRow, folder: Path, packed: Path, name: str, largest: int) -> None:
    """`largest`, in bytes, may be a checkpoint that is packed; with 0 there is nothing to look at either."""
    storage.fetch_run(row.id)
    _check_cells(store, row.id)
    rows, checkpoints = store.steps_after(row.id), _Checkpoints(row, largest)
    tidy = _without_places(row.spec)
    events = [replace(event, payload=tidy(event.payload)) for event in store.events_after(row.id)]
    spec = _portable(row.spec, None if checkpoints.left_out else f"{CHECKPOINTS}/{checkpoints.first.name}/policy")
    write_metrics(folder / METRICS, rows)
    write_events(folder / EVENTS, events)
    _check_events(row.id, events, (folder / EVENTS).read_bytes())
    write_knobs(folder / KNOBS, KnobHistory(row.spec, events).changes)
    (folder / SPEC).write_text(json.dumps(json.loads(spec.to_json()), ensure_ascii=False, indent=2) + "\n", "utf-8")
    (folder / README).write_text(_README.format(run=row.id, file=name), "utf-8")
    files = {path.name: path for path in (folder / each for each in (README, SPEC, METRICS, EVENTS, KNOBS))}
    packed_anew = partial(_without_base_places, folder=folder, tidy=tidy)
    if spec.data and row.spec.data:
        files[spec.data] = storage.fetch(row.spec.data)
    if second := held_out_file(spec.knobs):
        files[f"{DATA}/{second.parent.name}-{second.name}"] = second
    files |= _seen(run_folder(row.id), folder) if largest else {}
    manifest = {"format": FORMAT, "version": VERSION, "run": row.id, "state": row.state, "message": tidy(row.message),
                "created": row.created, "started": row.started, "ended": row.ended, "step": rows[-1].step,
                "made_with": versions.noted(run_folder(row.id)), "exported_with": versions.here(),
                "left_out": checkpoints.left_out, "project": row.project}
    while True:
        # a run that is going may have newer ones, and resuming an import with those would leave a hole in its rows
        newest = [path for step, path in checkpoint.steps(run_folder(row.id)) if step <= rows[-1].step][-1]
        newest = storage.fetch(newest)
        try:
            return _pack(packed, files | packed_anew(checkpoints.files(newest)), manifest)
        except FileNotFoundError:  # the worker has deleted it, as it does when it has two newer ones
            if newest.exists():
                raise


class _Checkpoints:
    """The checkpoints of a run that go into its capsule: the first, which is never deleted, and the newest.

    `left_out` says what of the first is too large: its size and the SHA-256 of its weights, by which another copy of
    the model is known. A large model that the run was given counts as that, also where the checkpoint has an adapter on
    it. Of a newest one that is too large the policy is taken, where that is small enough.
    """

    def __init__(self, row: RunRow, largest: int):
        first = storage.fetch(dict(checkpoint.steps(run_folder(row.id)))[first_step(row.spec)])
        self.first, self.left_out, self._largest = first, {}, largest
        own = row.spec.model in built_in() or row.spec.parent
        weights_of = adapters.base_folder(first / "policy") or first / "policy"
        model = 0 if own else sum(path.stat().st_size for path in weights_of.glob("*.safetensors"))
        if (size := sizes.size(first)) > largest or model > LARGEST_GIVEN:
            weights = {path.name: sha256(path) for path in sorted((first / "policy").glob("*.safetensors"))}
            self.left_out = {"checkpoint": first.name, "bytes": max(size, model), "weights": weights}

    def files(self, newest: Path) -> dict[str, Path]:
        """Path in the capsule -> file, of the first checkpoint and of `newest`."""
        taken = next((part for part in (newest, newest / "policy") if sizes.size(part) <= self._largest), None)
        folders = {folder for folder in (taken, None if self.left_out else self.first) if folder}
        return {f"{CHECKPOINTS}/{path.relative_to(self.first.parent).as_posix()}": path
                for folder in folders for path in folder.rglob("*") if path.is_file()} | self._base()

    def _base(self) -> dict[str, Path]:
        """The files of an adapter's base weights, by their paths in the capsule, if these are a local folder."""
        base = adapters.base_folder(self.first / "policy")
        if base is None or self.left_out or sizes.size(base) > self._largest:
            return {}
        return {f"{CHECKPOINTS}/{adapters.BESIDE}/{path.relative_to(base).as_posix()}": path
                for path in base.rglob("*") if path.is_file()}


def _without_base_places(files: Mapping[str, Path], folder: Path, tidy: Callable[[Any], Any]) -> dict[str, Path]:
    """`files` with copies, in `folder`, of the adapters' configurations that do not name the base's local folder."""
    found = dict(files)
    for name, path in files.items():
        if path.name == adapters.CONFIG:
            found[name] = folder / name.replace("/", "-")
            tidied = tidy(untrusted.read_json(path, constants=True))
            found[name].write_text(json.dumps(tidied, indent=2) + "\n", "utf-8")
    return found


def _seen(source: Path, folder: Path) -> dict[str, Path]:
    """Path in the capsule -> file, of what there is to look at: the newest, as many as there is room for. One that a
    reader would not take is left out, and a compressed one is unpacked into `folder`, since the capsule compresses."""
    found: dict[str, Path] = {}
    room = MOST_SEEN
    for path in sorted((path for name in SEEN for path in step_files.found(source / name)),
                       key=lambda path: path.name.partition(".")[0], reverse=True):
        content = step_files.content(path)
        if len(content) > LONGEST_SEEN or values(content) > most_values(path.parent.name):
            continue
        room -= len(content)
        if room < 0:
            break
        name = f"{path.parent.name}/{path.name.removesuffix('.gz')}"
        found[name] = path
        if path.suffix == ".gz":
            found[name] = folder / name.replace("/", "-")
            found[name].write_bytes(content)
    return found


def first_step(spec: RunSpec) -> int:
    """The step of the checkpoint that a run begins with: 0, or where a fork left its parent."""
    return spec.parent[1] if spec.parent else 0


def _portable(spec: RunSpec, model: str | None) -> RunSpec:
    """`spec` with the paths of the capsule: of the user's file, and of a model that was a folder (None: its name)."""
    own = Path(spec.model).is_absolute()
    teacher = str(spec.knobs.get("teacher", ""))
    if Path(teacher).is_absolute():
        spec = replace(spec, knobs={**spec.knobs, "teacher": Path(teacher).name})
    return replace(spec, data=f"{DATA}/{Path(spec.data).name}" if spec.data else None,
                   model=(model or Path(spec.model).name) if own else spec.model)


def _without_places(spec: RunSpec) -> Callable[[Any], Any]:
    """A function that takes the names of the user's folders out of the texts in something JSON-clean."""
    own = (spec.data, *(name for name in (spec.model, str(spec.knobs.get("teacher", ""))) if Path(name).is_absolute()))
    known = [*((place, Path(place).name) for place in own if place), (str(home()), "RL_LAB_HOME"),
             (str(Path.home()), "~")]
    named = [(place, name) for place, name in known if len(Path(place).parts) > 1]

    def tidy(content: Any) -> Any:
        if isinstance(content, dict):
            return {key: tidy(value) for key, value in content.items()}
        if isinstance(content, list):
            return [tidy(value) for value in content]
        if isinstance(content, str):
            for place, name in named:
                content = content.replace(place, name)
        return content

    return tidy


def _pack(packed: Path, files: Mapping[str, Path], manifest: dict[str, Any]) -> None:
    """Zip `files`, and `manifest` with the hash and size of each as the last one."""
    sealed = {}
    with zipped(packed) as archive:
        for name, path in sorted(files.items()):
            archive.write(path, name, compress_type=zipfile.ZIP_STORED if path.suffix in STORED else None)
            sealed[name] = {"sha256": sha256(path), "bytes": path.stat().st_size}
        told = json.dumps(manifest | {"files": sealed}, ensure_ascii=False, indent=1)
        dated = zipfile.ZipInfo(MANIFEST)  # 1980, since the clock may show what no zip can hold
        archive.writestr(dated, told, zipfile.ZIP_DEFLATED, compresslevel=6)


def sha256(path: Path) -> str:
    """The hash of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
