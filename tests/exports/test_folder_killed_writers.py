"""An export that is killed at any change of a file is whole or not there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labcore.exports.folder import export_run
from labcore.runs.store.store import Store
from tests.exports.capsules.tools import faked
from tests.soak.writers import Strike

MOST = 200  # changes of files that a writer makes


def killed_at(at: int, write: Callable[[], object]) -> bool:
    """Write in a fork that is killed at its change number `at`. False where it made fewer."""
    if (pid := os.fork()) == 0:
        try:
            sys.addaudithook(Strike(at, 0))
            write()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def visible(folder: Path) -> set[str]:
    """The files in a folder; what a killed writer may leave begins with a dot."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(name) for name in names if not any(part.startswith(".") for part in name.parts)}


@pytest.fixture
def run_id() -> str:
    return faked(Store(), 3)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_an_export_into_a_new_folder(run_id, tmp_path, every):
    whole = visible(export_run(Store(), run_id, tmp_path / "whole"))
    for at in range(1, MOST, every):
        out = tmp_path / str(at)
        died = killed_at(at, lambda out=out: export_run(Store(), run_id, out / "export"))
        assert visible(out) in (set(), {f"export/{name}" for name in whole})
        if not died:
            break
        assert visible(export_run(Store(), run_id, out / "export")) == whole
    assert 10 < at < MOST - every
