"""The setting, and a folder that cannot be used: one sentence each."""

import os

import pytest

from labcore.errors import LabError
from labcore.runs.files.artifacts import object_store, publish
from labcore.runs.files.storage import Away
from tests.runs.files.artifacts.tools import RUN, objects, saved, store


def test_a_disk_that_is_not_mounted_is_not_written_into(folder, tmp_path):
    """Where the mount point is left, it is an empty folder."""
    saved(0)
    publish.publish(store(), RUN)
    folder.rename(tmp_path / "away")
    folder.mkdir()
    saved(50)
    with pytest.raises(Away, match="mount or restore it"):
        publish.publish(store(), RUN)
    object_store._opened.cache_clear()  # nor by another process of this home
    with pytest.raises(Away, match="mount or restore it"):
        publish.publish(store(), RUN)
    assert objects(folder) == []


@pytest.mark.parametrize("url, words", [
    ("ftp://host/a", "is not a place for artifacts"), ("s3:bucket", "is not a place"), ("s3://", "is not a place"),
    ("/folder", "is not a place"), ("file://relative/a", "no absolute path"),
    ("s3://key:secret@bucket/a", "leave keys and options"), ("s3://bucket/a?key=secret", "leave keys and options"),
    ("s3://key:sec/ret@bucket/secret", "leave keys and options"), ("s3://[secret@key", "leave keys and options"),
    ("file:///no/such/folder", "There is no folder /no/such/folder"),
])
def test_a_wrong_setting_is_one_sentence_without_keys(monkeypatch, url, words):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", url)
    with pytest.raises(LabError, match=words) as error:
        object_store.check()
    assert "secret" not in str(error.value)
    assert "key:" not in object_store.shown(url) and "key=" not in object_store.shown(url)


@pytest.mark.parametrize("scheme, package", object_store.PACKAGES.items())
def test_a_missing_package_is_named(monkeypatch, scheme, package):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"{scheme}://bucket/a")
    monkeypatch.setattr(object_store, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=f"{package} is needed: pip install -r requirements-cluster.txt"):
        object_store.check()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(folder):
    folder.chmod(0o500)
    with pytest.raises(LabError, match="cannot be read or written"):
        object_store.check()


def test_a_folder_that_fails_is_one_sentence(folder, monkeypatch):
    def refuse(*_given, **_named):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(store()._files, "pipe_file", refuse)
    with pytest.raises(LabError, match=r"cannot be read or written \(Permission denied\): check that its"):
        object_store.check()


def test_a_marker_of_something_else_is_refused(folder):
    (folder / object_store.MARKER).write_text("{}")
    with pytest.raises(LabError, match="unknown format"):
        object_store.check()
