"""Runs by their names, ready to compare: the lab's own, those of other tools that were imported, and CSV files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labcore.compare import imported
from labcore.compare.traces import Trace, axes_of, changes_of, setting, trace
from labcore.errors import LabError
from labcore.files.paths import is_import, path_of
from labcore.foreign.kinds import SUFFIXES
from labcore.runs.titles import title, titles
from labcore.spec.run_spec import RunSpec
from labcore.store import columns
from labcore.store.rows import COUNTERS
from labcore.store.store import Store

ALWAYS = ("updates", "memory")  # every comparison reads them


def load(store: Store, names: Sequence[str], metrics: Sequence[str] | None = None) -> list[Trace]:
    """The runs of these names, in order. A name is a run's id, an imported run's, or the path of a metrics file.

    With `metrics` only those are read, which is several times as fast; they are keys of the catalog.

    Raises:
        LabError: there is no such run, the file cannot be read, or a name is given twice.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise LabError(f"The run {name} is given twice: name each run once.")
    traces: dict[str, list[Trace]] = {}
    own = [name for name in names if not is_import(name) and not is_file(name)]
    for name in set(names) - set(own):
        if is_import(name):
            imported.check(store, name)
            traces[name] = [imported.load(name)]
        else:
            traces[name] = imported.read_file(path_of(name))
    rows = {name: store.run(name) for name in own}
    parents = {name: row.spec.parent[0] for name, row in rows.items() if row.spec.parent}
    known = titles(store, parents.values())
    parent_of = {name: known.get(parent, parent) for name, parent in parents.items()}
    if metrics is None:
        steps = store.steps_after_many(dict.fromkeys(own, 0))
        traces |= {name: [trace(rows[name], steps[name], store.events_after(name), origin(store, rows[name].spec),
                         parent_of.get(name, ""))]
                   for name in own}
    else:
        keys = list(dict.fromkeys((*metrics, *ALWAYS)))
        for name in own:
            found = columns.read(store, rows[name], keys)
            counted, named = found[:len(COUNTERS)], zip(keys, found[len(COUNTERS):], strict=True)
            logged = {key: column for key, column in named if np.isfinite(column).any()}
            spec = rows[name].spec
            traces[name] = [Trace(name, spec, rows[name].state, axes_of(counted, logged), logged,
                                  *changes_of(spec, store.events_after(name)), origin=origin(store, spec),
                                  title=title(rows[name]), parent=parent_of.get(name, ""))]
    return [each for name in names for each in traces[name]]


def origin(store: Store, spec: RunSpec) -> str:
    """From which setting and step a fork began, its seed left out; empty for a run that is no fork."""
    if spec.parent is None:
        return ""
    run_id, step = spec.parent
    try:
        above = store.run(run_id).spec
    except LabError:  # deleted: what it was is not known any more
        return json.dumps([run_id, step])
    moved = [change for change in changes_of(above, store.events_after(run_id))[1] if change[0] < step]
    return json.dumps([setting(above), moved, step, origin(store, above)])


def is_file(name: str) -> bool:
    """Whether a name is the path of a metrics file rather than the id of a run."""
    return Path(name).suffix.lower() in SUFFIXES or ("." in name and Path(name).is_file())
