"""Every test gets a lab folder of its own, one thread, and no setting of the person who runs it."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; two cores are shared by all tests


@pytest.fixture(autouse=True)
def lab_home(tmp_path, monkeypatch):
    """The folder that RL_LAB_HOME names, new and empty."""
    home = tmp_path / "lab"
    monkeypatch.setenv("RL_LAB_HOME", str(home))
    for name in ("RL_LAB_STORE", "RL_LAB_MAX_RUNS"):
        monkeypatch.delenv(name, raising=False)
    return home
