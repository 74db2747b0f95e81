"""`publish`: send the files that the object store lacks from this home, or send them again."""

from __future__ import annotations

import argparse

from labcore.cli.adding import Add
from labcore.errors import LabError
from labcore.runs.files import storage
from labcore.runs.files.paths import check_writable
from labcore.runs.store.store import Store


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("publish", publish_runs, "upload this machine's files that the object store (RL_LAB_ARTIFACTS) lacks")
    sub.add_argument("runs", nargs="*", metavar="RUN", help="only these runs")
    sub.add_argument("--again", action="store_true", help="send files again that the store already has, because they "
                     "may be damaged")


def publish_runs(options: argparse.Namespace) -> int:
    """Publish the runs, or with none named all that is not published, bases and uploads too."""
    check_writable()
    if options.again and not options.runs:
        raise LabError("publish --again sends all files of a run again: name the runs.")
    for line in storage.publish(Store(), options.runs, options.again):
        print(line, flush=True)
    return 0
