"""What is kept of an import stays readable, and what was deleted stays away."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from labcore.analysis.compare.loading import load
from labcore.errors import LabError, NoSuchRun
from labcore.runs.files import atomic, uploads
from labcore.runs.files.paths import home
from labcore.runs.imports import imported, kinds, reading
from labcore.runs.imports.run import UNKNOWN
from labcore.runs.lists import cleanup
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.store.rows import Step
from tests.runs.imports.files import CHART, NAN_LOSS, SB3_EVAL, TRL, TWO_RUNS

CSV = b"step,reward\n" + b"".join(b"%d,1e9\n" % step for step in range(50))


def test_what_was_within_the_limits_can_be_read_although_it_is_kept_in_more_bytes_and_numbers(store, monkeypatch):
    monkeypatch.setattr(kinds, "LIMIT", len(CSV))
    monkeypatch.setattr(reading, "MOST_NUMBERS", 100)
    (about,) = imported.keep(store, "m.csv", CSV)
    assert (imported.place(about.id) / "rows.csv").stat().st_size > len(CSV)
    assert [row.metrics["reward"] for row in imported.rows(about.id)] == [1e9] * 50


def test_what_is_not_finite_survives(store):
    (about,) = imported.keep(store, "log.csv", NAN_LOSS)
    rows, trace = imported.rows(about.id), imported.load(about.id)
    assert [str(rows[at].metrics["loss"]) for at in (0, 19, 20, 49)] == ["0.1", "0.1", "nan", "nan"]
    assert str(rows[-1].metrics["grad_norm"]) == "inf" and "updates" in rows[-1].metrics
    assert trace.column("loss")[0].tolist() == trace.column("grad_norm")[0].tolist() == [*range(1, 21)]
    (broken,) = imported.keep(store, "nan.csv", b"step,reward,loss\n1,nan,nan\n2,nan,nan\n")
    assert imported.load(broken.id).metrics.keys() == {"updates"} and len(imported.rows(broken.id)) == 2
    assert {entry.id for entry in Shelf(store).entries()} == {about.id, broken.id}


def test_an_import_that_an_earlier_version_read_is_read_again_when_its_file_is_imported_again(store):
    """It left numbers out without a word, and said what it left as `unmapped`."""
    (about,) = imported.keep(store, "progress.csv", SB3_EVAL)
    whole = imported.rows(about.id)
    folder = imported.place(about.id)
    (folder / "rows.csv").write_text("step,env_steps,episode_return\n1,2048,22.0\n2,4096,26.0\n")
    fields = json.loads((folder / "about.json").read_text())
    del fields["left"]
    (folder / "about.json").write_text(json.dumps(fields | {"unmapped": ["time/fps"]}))
    store.mark(about.id, star=True)
    assert imported.listed(store)[0].left == {"time/fps": UNKNOWN} and len(imported.rows(about.id)) == 2
    (again,) = imported.keep(store, "progress.csv", SB3_EVAL)
    assert again.star and imported.rows(again.id) == whole and "eval_return" in imported.load(again.id).metrics


def test_two_runs_of_one_file_and_one_label_are_two_imports(store):
    first, second = imported.keep(store, "log.csv", TWO_RUNS, "mine")
    assert first.label == second.label == "mine" and first.id != second.id and len(imported.listed(store)) == 2
    assert [imported.rows(run.id)[0].metrics["reward"] for run in (first, second)] == [0.25, 0.75]


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
    with pytest.raises(LabError, match=rf"The imported run {about.id} .*: delete it, then import its file again"):
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
    assert cleanup.unused_uploads(store) == []
    store.delete(about.id)
    assert cleanup.unused_uploads(store) == [uploads.place(CSV).name]


def test_an_import_is_kept_marked_and_loaded(store):
    (about,) = imported.keep(store, "../up/log history.csv", TRL)
    assert about.id.startswith("imported-log-history-") and about.file == "log history.csv" and about.steps == 2
    folder = home() / "imported" / about.id
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "about.json"}
    assert (home() / about.source).read_bytes() == TRL  # nothing of the user's is lost
    assert [*json.loads((folder / "about.json").read_text())["left"]] == ["train_runtime"]
    got = imported.load(about.id)
    assert got.imported and got.spec is None and got.state == "imported" and got.run == about.id
    assert got.label == "log history" and got.notes == about.notes
    assert got.column("reward", "tokens")[1].tolist() == [0.2, 0.4]
    assert got.axes["updates"].tolist() == [10, 20] and "seconds" not in got.axes
    assert imported.keep(store, "log history.csv", TRL) == [about] and imported.listed(store) == [about]
    store.delete(about.id)
    assert imported.listed(store) == [] and not imported.known(store, about.id)
    with pytest.raises(LabError, match="no imported run"):
        imported.load(about.id)


def test_an_imported_run_has_a_star_tags_a_note_and_a_place_in_the_trash(store):
    (about,) = imported.keep(store, "m.csv", TRL)
    store.mark(about.id, star=True, tags=["paper"])
    store.mark(about.id, note="From the cluster.")
    (marked,) = imported.listed(store)
    assert marked == replace(about, star=True, tags=("paper",), note="From the cluster.")
    store.trash([about.id])
    assert imported.listed(store) == [] and not imported.known(store, about.id)
    (lying,) = imported.trashed(store)
    assert lying.deleted and replace(lying, deleted=None) == marked
    for refused in (lambda: store.trash([about.id]), lambda: store.mark(about.id, star=True),
                    lambda: load(store, [about.id]), lambda: imported.check(store, about.id)):
        with pytest.raises(LabError, match="is in the trash: restore it first"):
            refused()
    store.restore([about.id])
    assert imported.listed(store) == [marked] and imported.trashed(store) == []
    store.trash([about.id])
    assert imported.keep(store, "m.csv", TRL) == [marked], "importing it again takes it out of the trash"
    store.trash([about.id])
    store.delete(about.id)
    assert imported.trashed(store) == [] == imported.listed(store) and store.marks() == {}
    assert imported.keep(store, "m.csv", TRL)[0].star is False, "nothing is left of one that was deleted for good"


def test_a_file_with_many_runs_is_kept_once_and_as_long_as_one_of_them_is_there(store):
    chart = "Step," + ",".join(f"run {n} - reward" for n in range(30)) + "\n" + "\n".join(
        f"{step}," + ",".join(f"{n / 7}" for n in range(30)) for step in range(5))
    runs = imported.keep(store, "chart.csv", chart.encode()) + imported.keep(store, "again.csv", chart.encode())
    sources = {run.source for run in runs}
    assert len(runs) == 60 and len(sources) == 1 and (home() / sources.pop()).read_bytes() == chart.encode()
    assert not list((home() / "imported").rglob("source.csv"))
    os.utime(uploads.place(chart.encode()), (0, 0))
    os.utime(home() / runs[0].source, (0, 0))
    for run in runs[1:]:
        store.delete(run.id)
    assert cleanup.unused_uploads(store) == []
    store.delete(runs[0].id)
    assert cleanup.unused_uploads(store) == [uploads.place(chart.encode()).name]


def test_steps_that_are_no_updates_do_not_become_updates(store):
    (about,) = imported.keep(store, "m.csv", b"_step,reward\n5,1\n")
    assert "updates" not in imported.load(about.id).axes
    assert imported.rows(about.id) == (Step(5, 0, 0, 0.0, {"reward": 1.0}),)


def test_the_rows_of_an_import_are_read_once_for_all_lists(store, monkeypatch):
    imported.keep(store, "chart.csv", CHART)
    asked = []
    monkeypatch.setattr(imported, "load", lambda run_id, load=imported.load: asked.append(run_id) or load(run_id))
    first = Shelf(store).entries()
    assert len(asked) == 2 and first[0].summary.last in (0.75, 0.125)
    assert Shelf(store).entries() == first and len(asked) == 2


def test_a_folder_deleted_by_hand_can_be_imported_again(store):
    (about,) = imported.keep(store, "m.csv", TRL)
    store.trash([about.id])
    shutil.rmtree(imported.place(about.id))
    assert imported.trashed(store) == [] and imported.keep(store, "m.csv", TRL) == imported.listed(store)


def test_imported_metrics_are_no_run_and_obey_nothing(store):
    (about,) = imported.keep(store, "m.csv", TRL)
    for refused in (lambda: store.ask(about.id, "pause"), lambda: store.requeue(about.id),
                    lambda: store.set_state(about.id, "running"), lambda: store.run(about.id)):
        with pytest.raises(NoSuchRun):
            refused()


@pytest.mark.parametrize("name", ["imported-../../x", "imported-a/b", "imported-a\\b"])
def test_a_name_with_a_path_in_it_is_no_import(store, name):
    assert not imported.there(name)
    with pytest.raises(NoSuchRun):
        store.delete(name)


def test_files_of_one_label_are_seeds_of_one_group(store):
    first, = imported.keep(store, "a.csv", TRL, "trl grpo")
    second, = imported.keep(store, "b.csv", TRL + b"\n", "trl grpo")
    assert first.id != second.id and first.label == second.label == "trl grpo"


def test_a_disk_that_is_full_leaves_nothing(store, monkeypatch):
    def full(*_given, **_named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "write_folder", full)
    with pytest.raises(LabError, match="the disk is full"):
        imported.keep(store, "m.csv", TRL)


def test_damaged_files_are_one_sentence_and_can_be_deleted(store):
    (whole,), (broken,) = imported.keep(store, "m.csv", TRL), imported.keep(store, "n.csv", TRL)
    folder = home() / "imported" / broken.id
    (folder / "rows.csv").unlink()
    with pytest.raises(LabError, match=r"has no rows\.csv that can be read"):
        imported.load(broken.id)
    (folder / "about.json").write_text("{")
    with pytest.raises(LabError, match=r"has no about\.json that can be read: delete it"):
        imported.load(broken.id)
    assert [(run.id, run.steps) for run in imported.listed(store)] == [(whole.id, 2), (broken.id, 0)]
    assert "delete it" in imported.listed(store)[1].notes[0]
    store.delete(broken.id)
    assert imported.listed(store) == [whole]
