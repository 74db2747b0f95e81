"""A run with checkpoints to publish, and what a folder holds then."""

import itertools
import os
import signal

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import object_store
from labcore.runs.files.paths import run_folder

RUN = "grpo-sort-1"


def store():
    return object_store.opened()


def killed_before_write(nth):
    """Have this process, a fork of the test's, die before its nth write into the store."""
    writes, real = itertools.count(1), object_store.ObjectStore._put

    def put(self, *given):
        if next(writes) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *given)

    object_store.ObjectStore._put = put


def fill(text):
    def write(new):
        (new / "policy").mkdir()
        (new / "policy" / "weights").write_text(text * 100)
        (new / "state.json").write_text(text)
    return write


def saved(*steps, run=RUN, marked=()):
    for step in steps:
        checkpoint.save(run_folder(run), step, fill(str(step)), marked)


def objects(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
