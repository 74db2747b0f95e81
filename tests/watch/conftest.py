"""A store whose watcher does not wait for more numbers of the newest step."""

import pytest

from labcore.runs.store.store import Store
from labcore.workers import watcher


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    return Store()
