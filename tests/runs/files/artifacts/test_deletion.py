"""What is deleted here is deleted in the store."""

import shutil
import threading

import pytest

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, deletion, manifest, object_store, publish
from labcore.runs.files.artifacts.deletion import deleted
from labcore.runs.files.paths import run_folder
from labcore.runs.files.storage import Away
from tests.runs.files.artifacts.tools import RUN, objects, saved, store


def test_what_is_deleted_here_is_deleted_there_also_when_the_store_comes_back(folder, tmp_path):
    saved(0, 50)
    publish.publish(store(), RUN)
    folder.rename(tmp_path / "away")
    shutil.rmtree(run_folder(RUN))
    deleted(run_folder(RUN))
    with pytest.raises(Away):
        deletion.clear(store())
    (tmp_path / "away").rename(folder)
    deletion.clear(store())
    assert objects(folder) == [object_store.MARKER] and changes.to_forget() == []
    assert not (folder / RUN).exists()


def test_a_checkpoint_beyond_the_store_of_runs_is_forgotten_there_too():
    saved(0, 50, 100)
    publish.publish(store(), RUN)
    checkpoint.forget_after(run_folder(RUN), 60)
    deletion.clear(store())
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50]


def test_what_is_deleted_while_it_is_published_is_gone_in_the_end(folder, monkeypatch):
    """Another process deletes the run between its files and its manifest."""
    saved(0)
    real = manifest.write

    def write(*given):
        if not deleting:
            shutil.rmtree(run_folder(RUN))
            deleting.append(threading.Thread(target=deleted, args=(run_folder(RUN),)))
            deleting[0].start()
        real(*given)

    deleting = []
    monkeypatch.setattr(manifest, "write", write)
    publish.publish(store(), RUN)
    deleting[0].join()
    assert objects(folder) == [object_store.MARKER]
