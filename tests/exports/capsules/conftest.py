"""A store, and a capsule in it to read."""

import shutil
from pathlib import Path

import pytest

from labcore.exports.capsules import packing
from labcore.runs.store.store import Store
from tests.exports.capsules.tools import faked


@pytest.fixture(scope="session")
def capsule(tmp_path_factory) -> Path:
    """The capsule of a run of 25 steps, made once in a lab of its own."""
    folder = tmp_path_factory.mktemp("capsule")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(folder / "lab"))
        store = Store()
        return packing.write(store, faked(store), folder / "run.capsule.zip")


@pytest.fixture
def packed(capsule, tmp_path) -> Path:
    """A copy of that capsule, to be changed."""
    return Path(shutil.copy(capsule, tmp_path))
