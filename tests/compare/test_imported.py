"""What is kept of an import stays readable, and what was deleted stays away."""

from __future__ import annotations

import os

import pytest

from labcore.compare import foreign, imported
from labcore.errors import LabError
from labcore.files import uploads
from labcore.shelf import unused_uploads
from labcore.shelf.shelf import Shelf
from labcore.store.store import Store

CSV = b"step,reward\n" + b"".join(b"%d,1e9\n" % step for step in range(50))


@pytest.fixture
def store() -> Store:
    return Store()


def test_what_was_within_the_limits_can_be_read_although_it_is_kept_in_more_bytes_and_numbers(store, monkeypatch):
    monkeypatch.setattr(foreign, "LIMIT", len(CSV))
    monkeypatch.setattr(foreign, "MOST_NUMBERS", 100)
    (about,) = imported.keep(store, "m.csv", CSV)
    assert (imported.place(about.id) / "rows.csv").stat().st_size > len(CSV)
    assert [row.metrics["reward"] for row in imported.rows(about.id)] == [1e9] * 50


def test_runs_of_one_label_are_told_apart(store, tmp_path):
    """In sentences, and in the box of Compare; in the table they are the seeds of one group."""
    found = imported.keep_all(store, [("a.csv", CSV), ("b.csv", CSV[:-1] + b"1\n")], "mine")
    assert [imported.load(run.id).title for run in found] == [f"mine (imported, {run.id[-6:]})" for run in found]
    assert len({run.id for run in found}) == 2 and len({imported.load(run.id).label for run in found}) == 1
    (tmp_path / "log.csv").write_bytes(CSV)
    read, = imported.read_file(tmp_path / "log.csv")
    assert (read.title, read.label) == (str(tmp_path / "log.csv"), "log")


def test_what_is_damaged_is_called_by_its_id(store):
    (about,) = imported.keep(store, "m.csv", CSV)
    assert imported.label(about.id) == "m"
    (imported.place(about.id) / "about.json").write_text("{")
    assert imported.label(about.id) == about.id


DAMAGED = {"empty": b"", "zeros": b"\0" * 100, "header": b"step,reward\n", "stepless": b"reward\n1\n",
           "text": b"step,reward\n1,x\n"}


@pytest.mark.parametrize("left", DAMAGED.values(), ids=DAMAGED)
def test_damaged_rows_are_said_of_the_import_not_of_a_file_that_the_user_never_made(store, left):
    (about,) = imported.keep(store, "m.csv", CSV)
    (imported.place(about.id) / "rows.csv").write_bytes(left)
    with pytest.raises(LabError, match=rf"The imported run {about.id} .*: delete it, then import the CSV again"):
        imported.load(about.id)


def test_a_list_that_was_just_reading_it_does_not_bring_a_deleted_import_back(store, monkeypatch):
    (about,) = imported.keep(store, "m.csv", CSV)

    def deleted_meanwhile(run_id, load=imported.load):
        trace = load(run_id)
        store.trash([run_id])
        store.delete(run_id)
        return trace

    monkeypatch.setattr(imported, "load", deleted_meanwhile)
    Shelf(store).entries()
    assert not imported.there(about.id) and imported.listed(store) == []


def test_the_file_of_an_import_that_cannot_say_which_it_is_stays(store):
    (about,) = imported.keep(store, "m.csv", CSV)
    os.utime(uploads.place(CSV), (0, 0))
    os.utime(uploads.place(CSV) / "m.csv", (0, 0))
    (imported.place(about.id) / "about.json").write_text("{")
    assert unused_uploads.unused(store) == []
    store.delete(about.id)
    assert unused_uploads.unused(store) == [uploads.place(CSV).name]
