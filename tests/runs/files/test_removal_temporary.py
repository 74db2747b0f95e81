"""Temporary folders go away with their process, also where it was killed; those in use stay."""

import subprocess
import sys
import tempfile

import pytest

from labcore.runs.files import removal

KILLED = """
import os, signal
from labcore.runs.files import removal as temporary
with temporary.folder("replay") as folder:
    (folder / "weights").write_bytes(bytes(1000))
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_by_the_next_one(place, monkeypatch):
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -9 and done.stdout.startswith(str(place))
    (other := place / "rl-lab-replay-of-another-program").mkdir()
    with removal.folder("replay"):  # it could be one that has no lock yet
        assert len([*place.iterdir()]) == 3
    monkeypatch.setattr(removal, "_YOUNG", -1)
    with removal.folder("replay") as mine, removal.folder("replay") as beside:
        assert mine.is_dir() and beside.is_dir() and len([*place.iterdir()]) == 3
    assert [*place.iterdir()] == [other]
