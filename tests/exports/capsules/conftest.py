"""A store, and a capsule in it to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from labcore.exports.capsules import packing
from labcore.store.store import Store
from tests.exports.capsules.tools import faked


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def packed(store, tmp_path) -> Path:
    """The capsule of a run of 25 steps."""
    return packing.write(store, faked(store), tmp_path / "run.capsule.zip")
