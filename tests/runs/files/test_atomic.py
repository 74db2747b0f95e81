"""Files and folders are complete or not there, whoever writes at the same time."""

import json
import os
import threading

import pytest

from labcore.runs.files import atomic, uploads
from labcore.runs.files.user_json import Kept


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "samples" / "step-000001.json"
    atomic.write_text(path, "one β")
    atomic.write_text(path, "two β")
    assert path.read_text("utf-8") == "two β" and names(path.parent) == [path.name]


def test_a_failed_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    def full(path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    atomic.write_bytes(tmp_path / "a", b"old")
    with pytest.raises(OSError, match="No space"):
        atomic.write_file(tmp_path / "a", full)
    assert (tmp_path / "a").read_bytes() == b"old" and names(tmp_path) == ["a"]


def test_two_threads_may_write_the_same_file(tmp_path):
    """The page is one process with many threads: a name made of the process's id alone would be shared."""
    both = threading.Barrier(2, timeout=10)
    errors = []

    def fill(path):
        path.write_text("x")
        both.wait()

    def write():
        try:
            atomic.write_file(tmp_path / "spec.json", fill)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert errors == [] and names(tmp_path) == ["spec.json"]


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path):
    atomic.write_bytes(tmp_path / ("n" * 255), b"x")
    assert names(tmp_path) == ["n" * 255]


def test_a_folder_is_whole_or_not_there(tmp_path):
    target = tmp_path / "made" / "folder"

    def full(folder):
        (folder / "a").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        atomic.write_folder(target, full)
    assert names(target.parent) == []
    atomic.write_folder(target, lambda folder: (folder / "a").write_text("1"))
    assert target.stat().st_mode & 0o777 == 0o755
    with pytest.raises(OSError):
        atomic.write_folder(target, lambda folder: (folder / "b").write_text("2"))
    assert names(target) == ["a"] and names(target.parent) == ["folder"]


def test_a_folder_is_replaced_only_by_a_complete_one(tmp_path):
    def full(folder):
        raise OSError(28, "No space left on device")

    atomic.write_folder(tmp_path / "x", lambda folder: (folder / "old").write_text("1"))
    with pytest.raises(OSError, match="No space"):
        atomic.write_folder(tmp_path / "x", full, replace=True)
    assert names(tmp_path / "x") == ["old"]
    atomic.write_folder(tmp_path / "x", lambda folder: (folder / "new").write_text("2"), replace=True, sync=False)
    assert names(tmp_path / "x") == ["new"] and names(tmp_path) == ["x"]


def test_a_folder_and_all_that_is_in_it_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    target = tmp_path / "x"
    monkeypatch.setattr(atomic, "_sync", lambda path: synced.append((os.path.basename(path), target.exists())))
    atomic.write_folder(target, lambda folder: (folder / "a").write_text("1"))
    assert synced[0][0] == "a" and [there for _, there in synced] == [False, False, True]


def upload():
    uploads.keep("mine.txt", b"1")


def lesson():
    with Kept("mine.json", "mine", dict, "Mine").changing() as entries:
        entries["a"] = 1


@pytest.mark.parametrize("keep", [upload, lesson])
def test_what_a_user_made_is_synced_before_it_has_its_name(monkeypatch, keep):
    synced = []
    monkeypatch.setattr(atomic, "_sync", lambda path: synced.append(os.path.basename(path)))
    keep()
    assert len(synced) == 2 and synced[0].endswith(".part"), "the file, then the folder with its name"


def test_rows_are_read_as_they_were_added_and_half_a_row_is_none(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert [*atomic.rows(path)] == []
    atomic.append_row(path, {"a": "é\n"})
    with path.open("ab") as file:
        file.write(b'{"a": "b')
    assert [*atomic.rows(path)] == [{"a": "é\n"}]
    atomic.append_row(path, {"a": 2})
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [{"a": "é\n"}, {"a": 2}]
