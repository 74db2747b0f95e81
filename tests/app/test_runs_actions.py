"""The page Runs: marks, deleting with a way back, resuming, and clean-up."""

import os
import time

import pytest

from app.runs.dialogs import FILES, UPLOADS
from labcore.errors import LabError
from labcore.runs.files import uploads
from labcore.runs.files.paths import run_folder
from labcore.runs.imports import imported
from labcore.runs.store import changes
from labcore.runs.store.schema import runs
from labcore.runs.titles import title
from tests.app.runs_page import labels, press, rows, said, select
from tests.app.seeding import link, ran, seed
from tests.every import now
from tests.runs.lists.tools import CSV


def test_star_and_tags_are_set_on_all_selected_runs(page, lab):
    ids = [seed(lab.store, "finished") for _ in range(2)]
    test = select(page("runs"), *ids)
    assert "**2 selected**" in said(test) and {"Compare", "Star", "Delete"} <= set(labels(test))
    press(test, "act:Star")
    assert all(lab.store.run(run_id).star for run_id in ids)
    press(test, "act:Unstar")
    assert not any(lab.store.run(run_id).star for run_id in ids)
    lab.store.mark(ids[0], tags=["old"])
    ran(page("runs"))
    box = next(box for box in select(page("runs"), *ids).multiselect if box.label == "Tags")
    assert box.value == [], "only the tags of all of them"


def test_a_note_is_kept(page, lab):
    run_id = seed(lab.store, "finished")
    test = select(page("runs"), run_id)
    test.text_area[0].set_value("It learns.")
    ran(test)
    assert lab.store.run(run_id).note == "It learns." and "It learns." in list(test.dataframe[0].value["note"])


def test_deleted_runs_come_back_by_one_click(page, lab):
    one, two, other = (seed(lab.store, "finished") for _ in range(3))
    test = press(select(page("runs"), one, two), "act:Delete")
    assert rows(test) == [other] and "2 runs deleted." in said(test)
    press(test, "act:Undo")
    assert set(rows(test)) == {one, two, other} and lab.store.trashed() == []


@pytest.mark.parametrize("of_another_tool", now([False, True], True))
def test_what_another_tab_restored_is_restored(page, lab, of_another_tool):
    run_id = imported.keep(lab.store, "trl.csv", CSV)[0].id if of_another_tool else seed(lab.store, "finished")
    called = "trl" if of_another_tool else title(lab.store.run(run_id))
    test = press(select(page("runs"), run_id), "act:Delete")
    lab.store.restore([run_id])
    press(test, "act:Undo")
    assert rows(test) == [run_id] and f"{called} restored." in said(test)


def test_the_trash_lists_restores_and_empties(page, lab):
    one, two = (seed(lab.store, "finished") for _ in range(2))
    about, = imported.keep(lab.store, "trl.csv", CSV)
    test = press(select(page("runs"), one, two, about.id), "act:Delete")
    assert rows(test) == [] and "Deleted · 3" in labels(test)
    press(test, "runs:deleted")
    assert set(rows(test)) == {one, two, about.id} and link(test)["view"] == "deleted"
    assert "select rows to restore them" in said(test)
    press(select(test, one), "act:Restore")
    assert set(rows(test)) == {two, about.id} and [run.id for run in lab.store.runs()] == [one]
    press(test, "act:Empty the trash")
    assert "The trash is empty" in said(test) and lab.store.trashed() == imported.trashed(lab.store) == []
    assert not run_folder(two).exists()


def test_opening_the_page_purges_what_lay_in_the_trash_for_a_week(page, lab):
    run_id = seed(lab.store, "finished")
    lab.store.trash([run_id])
    with lab.store._writing() as connection:
        changes.mark(connection, run_id, deleted=time.time() - 8 * 86_400)
    page("runs")
    assert lab.store.trashed() == []


def test_the_page_opens_where_the_trash_cannot_be_emptied(page, lab, monkeypatch):
    def full(_store):
        raise LabError("The disk is full: free some space.")

    run_id = seed(lab.store, "finished")
    monkeypatch.setattr("app.runs.page.purge", full)
    test = page("runs")
    assert rows(test) == [run_id] and "The disk is full" in said(test)


def test_a_run_that_goes_is_not_deleted_and_the_page_says_what_to_do(page, lab):
    going, ended = seed(lab.store), seed(lab.store, "finished")
    test = press(select(page("runs"), going, ended), "act:Delete")
    assert "is running: stop it before you delete it" in said(test) and len(lab.store.runs()) == 2
    press(test, "act:Stop")
    assert [control.command for control in lab.store.asked(going)] == ["stop"]


def test_what_was_stopped_goes_on(page, lab):
    run_id = seed(lab.store, "stopped")
    press(select(page("runs"), run_id), "act:Resume")
    assert lab.launcher.resumed == [run_id]


def test_a_clean_up_shows_what_it_frees_and_can_be_undone(page, lab):
    old, kept = seed(lab.store, "finished"), seed(lab.store, "finished")
    lab.store.mark(kept, star=True)
    with lab.store._writing() as connection:
        connection.execute(runs.update(), {"ended": time.time() - 40 * 86_400})
    test = press(page("runs"), "runs:clean")
    assert "**1 run**" in said(test)
    press(test, "clean:do")
    assert [run.id for run in lab.store.trashed()] == [old] and rows(test) == [kept] and "1 run deleted" in said(test)
    press(test, "act:Undo")
    assert lab.store.trashed() == []


def test_a_clean_up_of_uploads_says_how_many_and_that_there_is_no_way_back(page, lab):
    free = [uploads.keep(f"book {number}.txt", b"%d" % number * 1_000_000) for number in range(5)]
    for path in uploads.root().rglob("*"):
        os.utime(path, (1.0, 1.0))
    test = page("runs")
    test.session_state["clean:what"] = UPLOADS
    press(test, "runs:clean")
    assert "**5 uploads**, book" in said(test) and "and 2 more: frees **5.0 MB** at once" in said(test)
    assert "cannot be undone" in said(test) and "the last day are always kept" in said(test)
    press(test, "clean:do")
    assert not any(path.exists() for path in free)
    assert "5.0 MB of uploads deleted." in said(test)
    assert "Undo" not in labels(test)
    test = page("runs")
    test.session_state["clean:what"] = UPLOADS
    assert "every upload is recent or used by a run" in said(press(test, "runs:clean"))


def test_a_clean_up_of_files_keeps_the_curves(page, lab):
    run_id = seed(lab.store, "finished")
    test = page("runs")
    test.session_state["clean:what"] = FILES
    press(press(test, "runs:clean"), "clean:do")
    assert not (run_folder(run_id) / "samples").exists() and rows(test) == [run_id]
    assert len(lab.store.steps_after(run_id)) == 6 and "curves and results are kept" in said(test)
