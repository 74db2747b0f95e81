"""Two machines with a home each, one object store between them, and one store of runs."""

import pytest

from labcore.runs.files.artifacts import cache, fetch, object_store, publish
from labcore.runs.store.store import Store
from tests.workers.two_homes.tools import Machines


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """No answer of the store is kept, so that no test waits."""
    found = Machines(tmp_path, monkeypatch)
    found.shared.mkdir()
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{found.shared}")
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path / 'lab.db'}")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    monkeypatch.setattr(publish, "RETRY_SECONDS", 0.01)
    object_store._opened.cache_clear()
    found.at("a")
    return found


@pytest.fixture
def store(machines):
    return Store()


@pytest.fixture
def old(monkeypatch):
    """Everything was used longer ago than an hour, and a minute has passed since the last look."""
    monkeypatch.setattr(cache, "USED_SECONDS", -1)
    monkeypatch.setattr(cache, "LOOK_SECONDS", -1)
