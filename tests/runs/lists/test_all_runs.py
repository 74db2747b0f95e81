"""Digests that only grow, marks, the trash and clean-up, on runs of the lab and on imported ones."""

import json
import time

import pytest

from labcore.errors import LabError, NoSuchRun
from labcore.exports import folder as export
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import sizes
from labcore.runs.files.paths import home, run_folder
from labcore.runs.imports import imported
from labcore.runs.lists import cleanup, marks
from labcore.runs.lists.all_runs import Shelf, complete
from labcore.runs.spec.session import Record
from labcore.runs.store import changes
from labcore.runs.summary import POINTS, Summary, headline_among
from tests.runs.lists.tools import CSV, ended


@pytest.fixture
def shelf(store):
    return Shelf(store)


@pytest.mark.parametrize("length", [1, POINTS, 2 * POINTS, 2 * POINTS + 1, 1000])
def test_a_summary_grown_in_pieces_is_the_one_made_at_once(length):
    values = [None if step % 7 == 3 else float(step * step % 101) for step in range(1, length + 1)]
    whole, grown = Summary("reward").extended(length, values), Summary("reward")
    for at in range(0, length, 9):
        grown = grown.extended(min(length, at + 9), values[at:at + 9])
    there = [value for value in values if value is not None]
    assert grown == whole and len(whole.line) <= 2 * POINTS
    assert (whole.last, whole.best) == (there[-1], max(there))
    assert whole.curve[0] == there[0] and whole.curve[-1] == there[-1]
    assert set(whole.curve) <= set(there), "no value is made up"
    assert Summary.read(whole.to_json(), "reward") == whole


def test_the_best_is_the_lowest_where_lower_is_better_and_none_where_nothing_is():
    assert Summary("value_error").extended(3, [2.0, 1.0, 3.0]).best == 1.0
    assert Summary("entropy").extended(3, [2.0, 1.0, 3.0]).best is None
    assert Summary("reward").extended(2, [float("nan"), float("inf")]).last is None


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"shoe": 1}', '{"metric": "kl", "step": 5}'])
def test_a_summary_that_cannot_be_read_is_made_again(text):
    assert Summary.read(text, "reward") == Summary("reward")


def test_the_headline_of_another_tool_s_run_says_what_is_better():
    assert headline_among(["entropy", "grad_norm", "loss"]) == "loss"
    assert headline_among(["loss", "reward"]) == "reward" and headline_among(["entropy"]) == "entropy"


def test_entries_show_runs_and_imported_ones_newest_first(store, shelf):
    run_id = ended(store, [0.1, 0.5, 0.3], files=1000, knobs={"beta": 0.1}, seed=3)
    about, = imported.keep(store, "trl.csv", CSV)
    other, own = shelf.entries()
    assert (own.id, own.state, own.algorithm, own.seed, own.step, own.steps) == (run_id, "finished", "GRPO", 3, 3, 500)
    assert own.knobs["beta"] == 0.1 and own.seconds == 1.5
    assert (own.summary.metric, own.summary.last, own.summary.best, own.summary.size) == ("reward", 0.3, 0.5, 5000)
    assert (other.id, other.kind, other.state, other.algorithm) == (about.id, "imported", "imported", "trl")
    assert (other.summary.metric, other.summary.last, other.step) == ("reward", 0.4, 20)
    assert other.summary.size > len(CSV)
    assert other.imported.left == {"secret": "not known to the lab"}
    assert complete([other, own])


def test_an_ended_run_is_read_once_in_the_life_of_a_store(store, shelf, monkeypatch):
    ended(store, [0.1, 0.2])
    first = shelf.entries()
    monkeypatch.setattr(store, "columns", None)  # whoever reads steps now fails
    assert shelf.entries() == first and Shelf(store).entries() == first


def test_a_list_opens_where_nothing_can_be_written(store, shelf, monkeypatch):
    def full(_summaries):
        raise LabError("The disk is full.")

    ended(store, [0.1, 0.2])
    monkeypatch.setattr(store, "keep_summaries", full)
    assert [entry.summary.last for entry in shelf.entries()] == [0.2]


def test_a_run_that_goes_is_read_from_where_it_was(store, shelf, monkeypatch):
    run_id = ended(store, [0.1, 0.2], state="running")
    before, = shelf.entries()
    assert store.summaries() == {}, "what still grows is not kept"
    store.append(run_id, Record(3, 30, {"reward": 0.9}), 2.0)
    asked, columns = [], store.columns
    monkeypatch.setattr(store, "columns", lambda ids, keys, after: asked.append(after) or columns(ids, keys, after))
    now, = shelf.refreshed([before])
    assert asked == [2] and (now.step, now.summary.last, now.summary.best) == (3, 0.9, 0.9)


def test_a_refresh_reads_only_what_goes(store, shelf, monkeypatch):
    still, going = ended(store), ended(store, state="running")
    before = shelf.entries()
    added = ended(store, state="running")
    store.set_state(going, "finished")
    store.mark(still, star=True)
    after = {entry.id: entry for entry in shelf.refreshed(before)}
    assert set(after) == {still, going, added}
    assert after[going].state == "finished" and not after[still].star
    store.trash([going])
    assert [entry.id for entry in shelf.refreshed([entry for entry in before if entry.id != still])] == [added]


def test_without_time_entries_come_bare_and_are_digested_later(store, shelf):
    ended(store, [0.1, 0.2])
    imported.keep(store, "trl.csv", CSV)
    bare = shelf.entries(seconds=0)
    assert len(bare) == 2 and not complete(bare) and {entry.summary.last for entry in bare} == {None}
    assert complete(shelf.entries())


def test_a_size_is_counted_again_when_the_run_has_gone_on_or_was_cleaned_up(store, shelf):
    run_id = ended(store, state="stopped", files=1000)
    assert shelf.entries()[0].summary.size == 5000
    store.requeue(run_id, mine=True)
    (run_folder(run_id) / "worker.log").write_text("12345")
    store.set_state(run_id, "running")
    store.set_state(run_id, "finished")
    assert shelf.entries()[0].summary.size == 5005
    cleanup.delete_spare(run_id)
    shelf.recount([run_id])
    assert shelf.entries()[0].summary.size == Shelf(store).entries()[0].summary.size == 2005


def test_a_size_is_counted_again_when_an_ended_run_was_exported(store, shelf):
    run_id = ended(store)
    (before,) = shelf.entries()
    checkpoint.save(run_folder(run_id), 2, lambda folder: (folder / "policy").mkdir())
    for write in (export.export_zip, capsule_like):
        time.sleep(0.02)  # a file's time may lag by a tick of the clock
        target = write(store, run_id)
        (entry,) = shelf.entries()
        assert entry.summary.size == sizes.size(run_folder(run_id)) >= before.summary.size + target.stat().st_size
        assert Shelf(store).entries() == [entry]
        before = entry


def capsule_like(_store, run_id):
    """A further file, put beside the others as `export_zip` and `capsule.write_own` do it."""
    target = run_folder(run_id) / "export" / "another.zip"
    target.write_bytes(b"x" * 500)
    return target


def test_stars_tags_and_notes_are_set_on_own_and_imported_runs_alike(store, shelf):
    ids = [ended(store), imported.keep(store, "trl.csv", CSV)[0].id]
    marks.star(store, ids)
    marks.tag(store, ids, add=["  for the   paper ", "draft"])
    marks.tag(store, ids, add=["draft", "new"], remove=["for the paper"])
    for run_id in ids:
        marks.note(store, run_id, " Look here.\n")
    assert {(entry.star, entry.tags, entry.note) for entry in shelf.entries()} == {
        (True, ("draft", "new"), "Look here.")}
    marks.star(store, ids, on=False)
    assert not any(entry.star for entry in shelf.entries())
    with pytest.raises(NoSuchRun):
        marks.tag(store, ["nobody"], add=["x"])
    for bad in ("", "  ", "a,b", "x" * 41, 'say "it"'):
        with pytest.raises(LabError, match="cannot be a tag"):
            marks.tag(store, ids, add=[bad])
    with pytest.raises(LabError, match="more than 4,000"):
        marks.note(store, ids[0], "x" * 4001)


def test_what_is_deleted_comes_back_until_it_is_purged(store, shelf):
    own, other = ended(store, files=10), imported.keep(store, "trl.csv", CSV)[0].id
    before = shelf.entries()
    marks.trash(store, [own, other])
    assert shelf.entries() == [] and {entry.id for entry in shelf.trashed()} == {own, other}
    assert all(entry.deleted and entry.summary.size for entry in shelf.trashed())
    assert marks.purge(store) == []
    marks.restore(store, [own, other])
    assert shelf.entries() == before
    marks.trash(store, [own, other])
    assert sorted(marks.purge(store, days=0)) == sorted([own, other])
    assert shelf.trashed() == shelf.entries() == [] and not run_folder(own).exists()
    assert not list((home() / "imported").rglob("*.csv"))


def test_a_run_that_goes_cannot_be_deleted_and_takes_no_other_with_it(store):
    going, other = ended(store, state="running"), imported.keep(store, "trl.csv", CSV)[0].id
    with pytest.raises(LabError, match="is running: stop it before you delete it"):
        marks.trash(store, [other, going])
    assert imported.known(store, other) and len(store.runs()) == 1


def test_the_trash_is_purged_after_a_week(store):
    old, new = ended(store), ended(store)
    store.trash([old, new])
    with store._writing() as connection:
        changes.mark(connection, old, deleted=time.time() - 7.1 * 86_400)
    assert marks.purge(store) == [old] and [row.id for row in store.trashed()] == [new]


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_run_restored_while_the_trash_is_purged_stays(store, monkeypatch, all_of_them):
    """Somebody restores two of four between the first look into the trash and the purge itself."""
    own, other = ended(store, files=10), imported.keep(store, "trl.csv", CSV)[0].id
    gone, also = ended(store, files=10), imported.keep(store, "trl.csv", CSV, "another")[0].id
    listed = [own, other, gone, also]
    marks.trash(store, listed)
    writing = store._writing

    def restored_first():
        monkeypatch.setattr(store, "_writing", writing)
        marks.restore(store, [own, other])
        return writing()

    monkeypatch.setattr(store, "_writing", restored_first)
    assert sorted(marks.purge(store, 0, None if all_of_them else listed)) == sorted([gone, also])
    assert store.run(own).id == own and run_folder(own).exists() and imported.known(store, other)
    assert not run_folder(gone).exists() and not imported.place(also).exists()
    assert imported.load(other).run == other


def test_a_run_deleted_anew_after_the_trash_was_listed_has_its_whole_week(store):
    own, other = ended(store), imported.keep(store, "trl.csv", CSV)[0].id
    marks.trash(store, [own, other])
    assert marks.purge(store, 1, [own, other]) == []
    assert [row.id for row in store.trashed()] == [own] and [run.id for run in imported.trashed(store)] == [other]


@pytest.fixture
def many(store):
    """Four ended runs of 4,000 bytes, the oldest first, the second starred; and one that goes."""
    ids = [ended(store, files=1000) for _ in range(4)]
    marks.star(store, [ids[1]])
    ended(store, state="running", files=1000)
    with store._writing() as connection:
        from labcore.runs.store.schema import runs
        for days, run_id in zip((30, 20, 10, 1), ids, strict=True):
            then = time.time() - days * 86_400
            connection.execute(runs.update().where(runs.c.id == run_id), {"created": then, "ended": then})
    return ids


def test_a_clean_up_by_age_or_number_spares_stars_and_what_goes(shelf, many):
    entries = shelf.entries()
    assert cleanup.older_than(entries, 5) == cleanup.Plan((many[0], many[2]), 10_000)
    assert cleanup.older_than(entries, 40) == cleanup.Plan((), 0)
    assert cleanup.beyond_newest(entries, 1) == cleanup.Plan((many[0], many[2]), 10_000)
    assert cleanup.beyond_newest(entries, 3) == cleanup.Plan((), 0)
    assert cleanup.carry_out(shelf, cleanup.older_than(entries, 5)) == 10_000
    assert {entry.id for entry in shelf.trashed()} == {many[0], many[2]}


def test_spare_files_go_and_curves_and_the_first_and_newest_checkpoint_stay(store, shelf, many):
    plan = cleanup.spare_files(shelf.entries())
    assert plan == cleanup.Plan((many[0], many[2], many[3]), 9000, files=True)
    assert cleanup.carry_out(shelf, plan) == 9000
    left = sorted(path.relative_to(run_folder(many[0])).as_posix() for path in run_folder(many[0]).rglob("*")
                  if path.is_file())
    assert left == ["checkpoints/step-000000/content", "checkpoints/step-000002/content"]
    assert len(store.steps_after(many[0])) == 2
    assert {entry.id: entry.summary.size for entry in shelf.entries()}[many[0]] == 2000
    assert sizes.size(run_folder(many[1])) == 5000
    assert cleanup.spare_files(shelf.entries()).ids == ()


def test_a_run_that_was_taken_up_again_meanwhile_keeps_its_files(store, shelf):
    run_id = ended(store, state="stopped", files=1000)
    plan = cleanup.spare_files(shelf.entries())
    store.requeue(run_id)
    assert cleanup.carry_out(shelf, plan) == 0 and sizes.size(run_folder(run_id)) == 5000


def test_what_is_kept_of_a_summary_is_plain_json(store, shelf):
    run_id = ended(store)
    shelf.entries()
    assert json.loads(store.summaries()[run_id])["last"] == 0.2
