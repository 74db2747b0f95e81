"""A plain shared folder as the object store, and machines beside it."""

import pytest

from labcore.runs.files.artifacts import fetch, object_store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The shared folder. Answers are not kept, and a store that was away is asked again at once."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{shared}")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    object_store._opened.cache_clear()
    return shared


@pytest.fixture
def another(tmp_path, monkeypatch):
    """Go to a machine with an empty home."""
    def go(name="b"):
        monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / name))
        return tmp_path / name
    return go
