"""`publish`: send to the object store what this home has and the store lacks, or send it again."""

from __future__ import annotations

import argparse

from labcore.cli.adding import Add
from labcore.errors import LabError, quoted
from labcore.runs.files.artifacts import deletion, object_store, publish
from labcore.runs.files.artifacts import units as things
from labcore.runs.files.artifacts.publish import unpublished
from labcore.runs.files.paths import check_writable
from labcore.runs.store.store import Store
from labcore.runs.titles import with_ids
from labcore.workers.publishing import active


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("publish", publish_runs, "send to the object store (RL_LAB_ARTIFACTS) what this machine has and it lacks")
    sub.add_argument("runs", nargs="*", metavar="RUN", help="only these runs")
    sub.add_argument("--again", action="store_true", help="also what is there already: it may be damaged")


def publish_runs(options: argparse.Namespace) -> int:
    """Publish the runs, or with none named all that is not published, bases and uploads too."""
    check_writable()
    target = object_store.opened()
    if target is None:
        raise LabError("There is no object store to publish to: set RL_LAB_ARTIFACTS to s3://BUCKET/FOLDER, "
                       "gs://BUCKET/FOLDER or file:///FOLDER.")
    if options.again and not options.runs:
        raise LabError("publish --again sends all files of a run again: name the runs.")
    store = Store()
    going = active(store)
    for run in options.runs:
        if not things.is_run(run) or things.unit_with(things.folder(run)) != run or not things.folder(run).is_dir():
            raise LabError(f"This machine has no files of a run {quoted(run)}: publish it where it was made.")
        if run in going:
            raise LabError(f"The run {run} is going or waits: its worker publishes it.")
    deletion.clear(target)
    units = [unit for unit in options.runs or unpublished(target) if unit not in going]
    for unit, named in zip(units, with_ids(store, units), strict=True):
        publish.publish(target, unit, add=True, sent=publish.Sent(again=options.again))
        print(f"{named} is published.", flush=True)
    if not units:
        print(f"All that this machine has is in {target.url}.")
    return 0
