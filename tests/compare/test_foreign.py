"""Runs of other tools: what their CSVs become, that they are marked, and one sentence for every file that is none."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from labcore.compare import foreign, imported
from labcore.compare.loading import load
from labcore.errors import LabError, NoSuchRun
from labcore.exports.folder import write_metrics
from labcore.files import atomic, uploads
from labcore.files.paths import home
from labcore.shelf import unused_uploads
from labcore.shelf.shelf import Shelf
from labcore.store import changes
from labcore.store.store import Store
from tests.compare import tools


@pytest.fixture
def store():
    return Store()


TRL = b"""loss,grad_norm,learning_rate,num_tokens,completions/mean_length,completions/clipped_ratio,reward,kl,\
clip_ratio/region_mean,rewards/fmt/mean,epoch,step,train_runtime
0.1,1.5,1e-05,1000,7.5,0.25,0.2,0.001,0.0,0.3,0.1,10,
-0.2,1.25,9e-06,2000,7.0,0.0,0.4,0.002,0.1,0.4,0.2,20,
,,,,,,,,,,0.2,20,61.5
"""
WANDB = b"""_step,_runtime,_timestamp,train/global_step,train/reward,train/kl,eval/loss,name
0,1.5,1.7e9,1,0.25,,,"a, ""b"" c"
1,2.5,1.7e9,2,0.5,0.25,,x
2,2.75,1.7e9,2,,0.75,0.1,x
3,3.5,1.7e9,,,,,x
"""
CHART = b"""\xef\xbb\xbf"Step","run a - train/reward","run a - train/reward__MIN","run a - train/reward__MAX",\
"b - train/reward"
"1","0.5","0.5","0.5",""
"3","0.75","0.75","0.75","0.125"
"""
SB3 = b"""time/iterations;rollout/ep_rew_mean;time/total_timesteps;train/n_updates;time/time_elapsed;train/clip_fraction
1;20.5;2048;;3;
2;31;4096;10;6;0.125
"""


def only(content: bytes, name: str = "metrics.csv", label: str = "") -> foreign.Foreign:
    found = foreign.parse(name, content, label)
    assert len(found) == 1
    return found[0]


def test_a_log_history_of_trl():
    run = only(TRL, "log_history.csv")
    assert run.label == "log_history" and [row.step for row in run.rows] == [10, 20]
    assert run.rows[0].tokens == 1000 and run.rows[1].tokens == 2000 and run.rows[0].seconds == 0
    assert run.rows[0].metrics == {"loss": 0.1, "grad_norm": 1.5, "learning_rate": 1e-5, "num_tokens": 1000.0,
                                   "completions/mean_length": 7.5, "completions/truncated_frac": 0.25, "reward": 0.2,
                                   "kl": 0.001, "clip_frac/region": 0.0, "updates": 10.0}
    assert run.mapped["completions/truncated_frac"] == "completions/clipped_ratio"
    assert run.unmapped == ("rewards/fmt/mean", "epoch", "train_runtime")
    assert any("prompts too" in note for note in run.notes) and any("optimizer updates" in note for note in run.notes)


def test_a_history_of_wandb_places_rows_by_the_trainers_step():
    run = only(WANDB)
    assert [(row.step, row.seconds) for row in run.rows] == [(1, 1.5), (2, 2.75)]  # two lines of step 2 are one
    assert run.rows[0].metrics == {"reward": 0.25, "updates": 1.0}
    assert run.rows[1].metrics == {"reward": 0.5, "kl": 0.75, "updates": 2.0}
    assert run.mapped["step"] == "train/global_step" and "name" in run.unmapped


def test_a_wandb_history_without_a_trainer_has_no_updates():
    run = only(b"_step,reward\n5,1\n")
    assert run.rows[0].metrics == {"reward": 1.0} and run.notes == ()


def test_a_chart_of_wandb_is_one_run_for_each_line():
    first, second = foreign.parse("chart.csv", CHART)
    assert (first.label, second.label) == ("chart run a", "chart b")
    assert [(row.step, row.metrics["reward"]) for row in first.rows] == [(1, 0.5), (3, 0.75)]
    assert [(row.step, row.metrics["reward"]) for row in second.rows] == [(3, 0.125)]
    assert first.unmapped == ()


def test_long_texts_are_passed_over():
    run = only(b'step,reward,completion\n1,2,"' + b"x" * 200_000 + b'"\n')
    assert run.rows[0].metrics["reward"] == 2 and run.unmapped == ("completion",)


def test_a_progress_file_of_stable_baselines():
    run = only(SB3)
    assert [(row.step, row.env_steps, row.seconds) for row in run.rows] == [(1, 2048, 3.0), (2, 4096, 6.0)]
    assert run.rows[1].metrics == {"episode_return": 31.0, "updates": 10.0, "clip_frac/region": 0.125}


def test_our_own_export_comes_back_as_it_was(tmp_path):
    store = Store()
    run_id = tools.stored(store, [0.1 + 0.2, 1e-17, 0.7], kl=[0.1, 0.2, 1 / 3])
    write_metrics(tmp_path / "metrics.csv", store.steps_after(run_id))
    run = only((tmp_path / "metrics.csv").read_bytes())
    assert list(run.rows) == store.steps_after(run_id) and run.unmapped == () and run.notes == ()


def test_rows_are_put_in_order_and_counters_stay():
    run = only(b"step,tokens,reward\n3,,0.3\n1,50,0.1\n2,90,nan\n4,,1e999\n5,,0.5\n")
    assert [(row.step, row.tokens) for row in run.rows] == [(1, 50), (2, 90), (3, 90), (5, 90)]
    assert [row.metrics.get("reward") for row in run.rows] == [0.1, None, 0.3, 0.5]


@pytest.mark.parametrize("content, words", [
    (b"", "m.csv is empty"),
    (b"\n \n", "m.csv is empty"),
    (b"step,reward\n", "has a header and no rows"),
    (b"epoch,reward\n1,2\n", "m.csv has no step column"),
    (b"step,banana\n1,2\n", "has no metric that the lab knows among its 2 columns"),
    (b"step,tokens\n1,2\n", "has no metric that the lab knows"),
    (b"step,reward\n1,nan\n", "has no metric that the lab knows"),
    (b"step,reward\n1,2\n2,high\n", "Line 3 of m.csv has 'high' in the column reward"),
    (b"step,reward\nx,2\n", "Line 2 of m.csv has 'x' in the column step"),
    (b"step,reward\n1.5,2\n", "Line 2 of m.csv has the step 1.5"),
    (b"step,reward\n-1,2\n", "has the step -1"),
    (b"step,reward\n1e300,2\n", "has the step 1e300"),
    (b"step,reward\n1,2,3\n", "Line 2 of m.csv has 3 cells and the header 2"),
    (b'step,reward\n1,"2\n', "is not CSV"),
    (b"step,reward\n1,\xff\n", "m.csv is not UTF-8: line 2 has the byte 0xff"),
])
def test_a_file_that_cannot_be_used(store, content, words):
    with pytest.raises(LabError) as refused:
        foreign.parse("m.csv", content)
    assert words in str(refused.value) and str(refused.value).count(". ") == 0
    with pytest.raises(LabError):
        imported.keep(store, "m.csv", content)
    assert imported.listed(store) == [] and not (home() / "imported").exists()


def test_a_file_that_is_too_large(monkeypatch):
    monkeypatch.setattr(foreign, "LIMIT", 10)
    with pytest.raises(LabError, match="above the limit"):
        foreign.parse("m.csv", TRL)


def test_an_import_is_kept_marked_and_loaded(store):
    (about,) = imported.keep(store, "../up/log history.csv", TRL)
    assert about.id.startswith("imported-log-history-") and about.file == "log history.csv" and about.steps == 2
    folder = home() / "imported" / about.id
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "about.json"}
    assert (home() / about.source).read_bytes() == TRL  # nothing of the user's is lost
    assert json.loads((folder / "about.json").read_text())["unmapped"] == ["rewards/fmt/mean", "epoch", "train_runtime"]
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
    assert unused_uploads.unused(store) == []
    store.delete(runs[0].id)
    assert unused_uploads.unused(store) == [uploads.place(chart.encode()).name]


def test_steps_that_are_no_updates_do_not_become_updates(store):
    (about,) = imported.keep(store, "m.csv", b"_step,reward\n5,1\n")
    assert "updates" not in imported.load(about.id).axes
    assert imported.rows(about.id) == only(b"_step,reward\n5,1\n").rows


def test_the_rows_of_an_import_are_read_once_for_all_lists(store, monkeypatch):
    imported.keep(store, "chart.csv", CHART)
    asked = []
    monkeypatch.setattr(imported, "load", lambda run_id, load=imported.load: asked.append(run_id) or load(run_id))
    first = Shelf(store).entries()
    assert len(asked) == 2 and first[0].summary.last in (0.75, 0.125)
    assert Shelf(store).entries() == first and len(asked) == 2


@pytest.mark.parametrize("limit, words", [
    ("MOST_NUMBERS", "has more than 3 numbers that the lab would keep"), ("MOST_RUNS", "has 2 lines of a chart")])
def test_more_than_the_lab_keeps(monkeypatch, limit, words):
    monkeypatch.setattr(foreign, limit, 3 if limit == "MOST_NUMBERS" else 1)
    with pytest.raises(LabError, match=words):
        foreign.parse("m.csv", CHART)


def test_a_line_is_read_once_and_no_other_is_held(monkeypatch):
    """However many runs are in a file, and however many columns."""
    read = []
    monkeypatch.setattr(foreign, "_number", lambda *given, number=foreign._number: read.append(given) or number(*given))
    chart = "step," + ",".join(f"r{n} - reward" for n in range(40)) + "\n" + f"1{',1' * 40}\n" * 3
    assert len(foreign.parse("m.csv", chart.encode())) == 40 and len(read) == 3 * 41


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


def test_runs_are_loaded_by_name_wherever_they_are(store, tmp_path):
    own = tools.stored(store, [0.1, 0.2], changes=[(1, "beta", 0.5)])
    (about,) = imported.keep(store, "m.csv", TRL)
    path = tmp_path / "chart.csv"
    path.write_bytes(CHART)
    got = load(store, [about.id, own, str(path)])
    assert [each.run for each in got] == [about.id, own, f"{path} chart run a", f"{path} chart b"]
    assert [each.imported for each in got] == [True, False, True, True]
    (few,), (whole,) = load(store, [own], ["reward", "kl"]), load(store, [own])
    assert set(few.metrics) == {"reward", "updates", "memory"} and few.breaks == whole.breaks == (1,)
    for axis in whole.axes:
        assert few.column("reward", axis)[0].tolist() == whole.column("reward", axis)[0].tolist()
        assert few.column("reward", axis)[1].tolist() == whole.column("reward", axis)[1].tolist()
    with pytest.raises(LabError, match="There is no run 'nobody'"):
        load(store, ["nobody"])
    with pytest.raises(LabError, match="There is no file"):
        load(store, [str(tmp_path / "none.csv")])
    with pytest.raises(LabError, match="is given twice"):
        load(store, [own, own])


def test_a_run_without_rows_can_be_loaded():
    store = Store()
    run_id = tools.stored(store, [])
    for got in (load(store, [run_id])[0], load(store, [run_id], ["reward"])[0]):
        assert got.column("reward")[0].size == 0 and got.metrics == {}


def test_columns_of_a_database_that_cannot_look_into_json():
    """Where SQLite picks the metrics out itself, others read whole rows: the same columns."""
    store = Store()
    run_id = tools.stored(store, [0.1, 0.2], kl=[0.5, 0.25])

    class Other:
        dialect = SimpleNamespace(name="postgresql")

        def __init__(self, connection):
            self.execute = connection.execute

    with store._reading() as connection:
        found = changes.columns(Other(connection), [run_id], ["kl", "entropy", "updates"])[run_id]
    assert [list(column) for column in found] == [[1, 2], [100, 200], [0, 0], [1.0, 2.0], [0.5, 0.25], [None, None],
                                                  [1.0, 2.0]]
    assert [list(column) for column in store.columns([run_id], ["kl", "entropy", "updates"])[run_id]] == [
        list(column) for column in found]
