"""The thread that publishes: what it says of a store that is away, and that no fault of it keeps a run from ending."""

import time

import pytest

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, fetch, publish
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.artifacts.publish import Publisher
from labcore.runs.files.paths import run_folder
from tests.runs.files.artifacts.tools import RUN, saved, store
from tests.workers.tools import until


def test_the_publisher_publishes_what_changed_and_says_nothing(another):
    said = []
    with Publisher(lambda *words: said.append(words)) as publisher:
        saved(0, 50)
        assert publisher.flush()
        assert changes.is_published(RUN, store().begin())
    changed(run_folder(RUN))
    assert not changes.is_published(RUN, store().begin())
    another()
    assert checkpoint.newest_step(run_folder(RUN)) == 50 and said == []


def test_a_store_that_goes_away_is_said_once_and_all_is_published_when_it_is_back(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("labcore.runs.files.artifacts.publish.RETRY_SECONDS", 0.01)
    said = []
    store().begin()
    with Publisher(lambda *words: said.append(words)) as publisher:
        folder.rename(tmp_path / "away")
        for step in (0, 50, 100):
            saved(step)
            assert not publisher.flush()
        assert len(said) == 1 and said[0][0] == RUN and "is not there" in said[0][1]
        assert not folder.exists()  # never made again
        (tmp_path / "away").rename(folder)
        while not publisher.flush():
            pass  # a try may have been under way
    assert said[1:] == [(RUN, "")]
    assert fetch.names(RUN, "checkpoints") == ["step-000000", "step-000050", "step-000100"]


def test_a_wait_that_fails_leaves_the_publisher_at_its_usual_pace(folder, tmp_path, monkeypatch):
    """It tries a store that is away every few seconds, and not all the time as while somebody waits for it."""
    monkeypatch.setattr("labcore.runs.files.artifacts.publish.RETRY_SECONDS", 60)
    tries, real = [], publish.publish
    monkeypatch.setattr(publish, "publish", lambda *given, **named: (tries.append(1), real(*given, **named)))
    store().begin()
    folder.rename(tmp_path / "away")
    with Publisher(lambda *_: None) as publisher:
        saved(0)
        with pytest.raises(LabError):
            publisher.flush(lambda: (_ for _ in ()).throw(LabError("The store of runs has a fault.")))
        until(lambda: tries)
        time.sleep(0.3)
        assert len(tries) <= 2


def test_a_fault_of_the_lab_itself_keeps_no_run_from_ending(monkeypatch, capsys):
    monkeypatch.setattr("labcore.runs.files.artifacts.publish.RETRY_SECONDS", 0.01)
    with Publisher(lambda *_: None) as publisher, monkeypatch.context() as patch:
        patch.setattr(publish, "publish", lambda *_, **__: 1 / 0)
        saved(0)
        assert not publisher.flush()
        patch.undo()
        while not publisher.flush():
            pass  # a try may have been under way
    assert "ZeroDivisionError" in capsys.readouterr().err and fetch.names(RUN, "checkpoints") == ["step-000000"]
