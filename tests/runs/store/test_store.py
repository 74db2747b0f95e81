"""The store: what is written is read back exactly, by whom it may be written, and how cheap reading is."""

import subprocess
import sys
import time
from dataclasses import replace

import pytest
from sqlalchemy.dialects import postgresql

from labcore.errors import LabError, NoSuchRun, NotOwner
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.session import Record
from labcore.runs.store import changes, schema
from labcore.runs.store.process import Owner, gone
from labcore.runs.store.rows import STUDIES
from labcore.runs.store.store import Store, home
from tests.runs.fake import grpo
from tests.words import says

EXACT = 0.1 + 0.2  # has no short decimal form


@pytest.fixture
def store(each_database):
    return Store()


def record(step: int, reward: float = EXACT) -> Record:
    return Record(step, step * 8, {"reward": reward, "kl": 1e-17})


def test_a_run_is_read_back_as_it_was_made(store):
    spec = grpo(beta=0.3)
    run_id = store.create(spec)
    row = store.run(run_id)
    assert (row.spec, row.state, row.step, row.pid) == (spec, "queued", 0, None)
    assert run_id.startswith("grpo-sort-")
    assert [event.kind for event in store.events_after(run_id)] == ["queued"]


def test_no_run_gets_the_number_of_another_one_whatever_was_deleted(store):
    first, last = store.create(grpo()), store.create(grpo())
    numbers = [store.run(each).number for each in (first, last)]
    store.trash([last])
    assert store.purge(time.time()) == [last]
    store.delete(first)
    numbers.append(Store(store.url).run(store.create(grpo())).number)
    assert numbers == [1, 2, 3]


def test_two_writers_wait_for_each_other_s_number():
    seen = []

    class Connection:
        """What a number is asked for with, as PostgreSQL gets it."""

        def scalar(self, query):
            seen.append(str(query.compile(dialect=postgresql.dialect())))
            return "6"

        def execute(self, query, values):
            seen.append((str(query.table), values))

    assert changes.next_number(Connection()) == 7
    assert seen[0].endswith("FOR UPDATE") and seen[1] == ("lab_meta", {"value": "7"})


def test_runs_are_listed_newest_first_and_by_state(store):
    first, second, third = (store.create(grpo()) for _ in range(3))
    store.claim(second)
    assert [row.id for row in store.runs()] == [third, second, first]
    assert [row.id for row in store.runs("starting")] == [second]
    assert [row.id for row in store.runs("queued", limit=1)] == [third]
    assert store.queued() == {first: None, third: None}


def test_runs_of_one_kind_are_found_behind_any_number_of_others(store):
    maze = store.create(make(kind="maze", algorithm_key="q_learning", task_key="cliff"))
    for _ in range(3):
        store.create(replace(grpo(), data='/tmp/"kind": "maze".jsonl'))
    assert [row.id for row in store.runs(kind="maze", limit=1)] == [maze]
    assert len(store.runs("queued", kind="llm")) == 3


def test_runs_are_found_by_their_project_and_without_those_of_the_lab_itself(store):
    plain, mine, begun, study = (store.create(grpo(), project=name, mine=True) for name in ("", "a", "a", STUDIES))
    store.append(begun, record(1), 1.0)
    assert [row.id for row in store.runs(project="a", limit=2)] == [begun, mine]
    assert [row.id for row in store.runs(project="a", begun=True)] == [begun]
    assert [row.id for row in store.runs(apart=False)] == [begun, mine, plain]
    assert [row.id for row in store.runs(project=STUDIES)] == [study]


def test_a_sweep_gives_lists_at_most_its_newest_runs(store):
    alone = store.create(grpo())
    first, second = (store.create_all([grpo()] * 3, sweep=name) for name in ("a", "b"))
    assert [row.id for row in store.runs(of_sweep=1)] == [second[-1], first[-1], alone]
    assert [row.id for row in store.runs(of_sweep=0)] == [alone]
    assert len(store.runs(of_sweep=3)) == len(store.runs()) == 7


def test_steps_come_back_exactly_and_as_deltas(store):
    one, two = store.create(grpo()), store.create(grpo())
    for step in range(1, 6):
        store.append(one, record(step), step / 3)
    store.append(two, record(1), 1.0)
    steps = store.steps_after(one)
    assert [(s.step, s.tokens, s.seconds, s.metrics) for s in steps] == [
        (n, n * 8, n / 3, {"reward": EXACT, "kl": 1e-17}) for n in range(1, 6)]
    assert [s.step for s in store.steps_after(one, 3)] == [4, 5]
    many = store.steps_after_many({one: 4, two: 0, "nobody": 0})
    assert {key: [s.step for s in rows] for key, rows in many.items()} == {one: [5], two: [1], "nobody": []}
    assert store.run(one).step == 5 and store.run(one).seconds == 5 / 3


def test_a_step_is_never_overwritten(store):
    run_id = store.create(grpo())
    assert store.append(run_id, record(1, 1.0), 1.0) and store.append(run_id, record(2, 2.0), 2.0)
    assert not store.append(run_id, record(1, 9.0), 9.0)
    assert [s.metrics["reward"] for s in store.steps_after(run_id)] == [1.0, 2.0]
    assert (store.run(run_id).step, store.run(run_id).seconds) == (2, 2.0)


def test_only_declared_and_finite_metrics_are_logged(store):
    run_id = store.create(grpo())
    with pytest.raises(ValueError, match="rewrad"):
        store.append(run_id, Record(1, 1, {"rewrad": 1.0}), 0.1)
    with pytest.raises(ValueError):
        store.append(run_id, Record(1, 1, {"reward": float("nan")}), 0.1)
    assert store.steps_after(run_id) == []


def test_events_come_back_in_order_beyond_an_id(store):
    run_id = store.create(grpo())
    first = store.log(run_id, "note", {"text": "β 0.04 → 0.2"}, 3)
    second = store.log(run_id, "paused", {}, 4)
    events = store.events_after(run_id, first - 1)
    assert [(e.id, e.step, e.kind) for e in events] == [(first, 3, "note"), (second, 4, "paused")]
    assert events[0].payload == {"text": "β 0.04 → 0.2"}


def test_controls_are_asked_in_order_and_settled_once(store):
    run_id = store.create(grpo())
    one = store.ask(run_id, "set", {"knob": "beta", "value": 0.1})
    two = store.ask(run_id, "pause")
    assert [(c.id, c.command) for c in store.asked(run_id)] == [(one, "set"), (two, "pause")]
    store.settle(one, 5, log=("note", {"text": "beta"}))
    store.settle(two, 5, refused="not now")
    store.settle(two, 9)
    assert store.asked(run_id) == []
    assert [(c.state, c.step, c.refused) for c in store.controls(run_id)] == [
        ("applied", 5, None), ("refused", 5, "not now")]
    assert store.events_after(run_id)[-1].kind == "note"


def test_only_sensible_commands_are_taken(store):
    run_id = store.create(grpo())
    with pytest.raises(LabError, match="no command 'jump'"):
        store.ask(run_id, "jump")
    with pytest.raises(LabError, match="needs a knob"):
        store.ask(run_id, "set", {"knob": "beta"})
    with pytest.raises(LabError, match="no run 'nobody'"):
        store.ask("nobody", "pause")
    store.ask(run_id, "stop")
    assert store.run(run_id).state == "stopped"  # a queued run needs no worker to stop
    with pytest.raises(LabError, match="is stopped, so pause has no effect"):
        store.ask(run_id, "pause")


def test_open_controls_are_refused_when_a_run_ends(store):
    run_id = store.create(grpo(), mine=True)
    store.ask(run_id, "pause")
    store.set_state(run_id, "finished", "done")
    assert [(c.state, says(c.refused, "finished")) for c in store.controls(run_id)] == [("refused", True)]


def test_a_run_goes_only_where_its_state_allows(store):
    run_id = store.create(grpo())
    with pytest.raises(LabError, match="queued and cannot become paused"):
        store.set_state(run_id, "paused")
    assert store.claim(run_id) and not store.claim(run_id)
    store.set_state(run_id, "running")
    store.set_state(run_id, "finished")
    with pytest.raises(LabError, match="finished and cannot become running"):
        store.set_state(run_id, "running")
    with pytest.raises(LabError, match="start a new run"):
        store.requeue(run_id)
    with pytest.raises(LabError, match="nothing can be added"):
        store.append(run_id, record(1), 1.0)


def test_a_worker_that_was_given_up_cannot_write(store):
    run_id = store.create(grpo())
    store.claim(run_id, pid=1)  # somebody else's
    asked, before = store.ask(run_id, "stop"), store.run(run_id)
    for write in (lambda: store.append(run_id, record(1), 1.0), lambda: store.set_state(run_id, "finished"),
                  lambda: store.set_state(run_id, "starting", "mine"), lambda: store.set_message(run_id, "mine"),
                  lambda: store.settle(asked, 1), lambda: store.check_owner(run_id)):
        with pytest.raises(NotOwner, match="belongs to another process"):
            write()
    assert not store.beat(run_id)
    assert store.run(run_id) == before and [control.id for control in store.asked(run_id)] == [asked]


def test_only_a_run_that_goes_beats(store):
    run_id = store.create(grpo())
    assert not store.beat(run_id) and store.claim(run_id) and store.beat(run_id)
    store.set_state(run_id, "stopped")
    assert not store.beat(run_id)


def test_reconcile_finds_the_runs_whose_process_is_gone(store):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    ghost, mine, queued, again = (store.create(grpo()) for _ in range(4))
    store.claim(ghost, pid=dead.pid)
    store.claim(mine)
    store.claim(again)
    with store._writing() as connection:  # the pid lives, but as another process than the one that had the run
        connection.execute(schema.runs.update().where(schema.runs.c.id == again), {"process_started": 12345.0})
    assert set(store.reconcile()) == {ghost, again}
    assert [store.run(r).state for r in (ghost, again, mine, queued)] == [
        "interrupted", "interrupted", "starting", "queued"]
    assert store.events_after(ghost)[-1].kind == "interrupted"
    store.requeue(ghost)
    assert store.run(ghost).state == "queued"


def test_a_run_is_given_up_unless_it_was_taken_since_whatever_the_clock_of_who_took_it(store, monkeypatch):
    run_id = store.create(grpo())
    seen = store.queued()[run_id]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(time, "time", lambda: 1000.0)  # a host whose clock is years behind
        assert store.claim(run_id, pid=1, host="elsewhere")
    assert store.reconcile() == [run_id]
    store.requeue(run_id)
    store.give_up(run_id, "it did not start", seen)
    assert store.run(run_id).state == "queued"
    store.give_up(run_id, "it did not start", store.queued()[run_id])
    assert (store.run(run_id).state, store.run(run_id).message) == ("failed", "it did not start")


def test_a_zombie_counts_as_gone_and_another_machine_by_its_heartbeat():
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.time() + 5
    while not gone(Owner(child.pid, Owner.this().host, None), None) and time.time() < deadline:
        time.sleep(0.01)
    assert gone(Owner(child.pid, Owner.this().host, None), None)  # ended, and not waited for
    child.wait()
    assert not gone(Owner(1, "elsewhere", None), time.time() - 60)
    assert gone(Owner(1, "elsewhere", None), time.time() - 3600)


def test_delete_forgets_rows_and_folder_but_not_a_going_run(store):
    run_id = store.create(grpo(), mine=True)
    store.append(run_id, record(1), 1.0)
    (home() / run_id).mkdir()
    with pytest.raises(LabError, match="stop it before"):
        store.delete(run_id)
    store.set_state(run_id, "stopped")
    store.delete(run_id)
    assert store.runs() == [] and store.steps_after(run_id) == [] and not (home() / run_id).exists()


def test_star_tags_and_note_are_kept_one_by_one(store):
    run_id, other = store.create(grpo()), store.create(grpo())
    store.mark(run_id, star=True)
    store.mark(run_id, tags=["paper", "β = 0"])
    store.mark(run_id, note="The one.\nOf all.")
    store.mark(run_id)
    row = store.run(run_id)
    assert (row.star, row.tags, row.note) == (True, ("paper", "β = 0"), "The one.\nOf all.")
    store.mark(run_id, star=False, tags=[], note="")
    assert (store.run(run_id).star, store.run(run_id).tags, store.run(run_id).note) == (False, (), "")
    assert not store.run(other).star
    with pytest.raises(NoSuchRun):
        store.mark("nobody", star=True)


def test_a_run_in_the_trash_is_in_no_list_and_obeys_nothing_until_it_is_restored(store):
    parent, ended, queued = store.create(grpo(), mine=True), store.create(grpo(), mine=True), store.create(grpo())
    store.append(ended, record(1), 1.0)
    for run_id in (parent, ended):
        store.set_state(run_id, "stopped")
    child = store.create(replace(grpo(), parent=(ended, 1)), sweep="sweep-1")
    store.mark(ended, star=True, tags=["kept"])
    before = store.run(ended)
    store.trash([ended, queued, child])
    assert [row.id for row in store.runs()] == [parent] and store.queued() == {}
    assert store.children(ended) == [] and store.sweep_runs("sweep-1") == []
    assert {row.id for row in store.trashed()} == {ended, queued, child}
    assert not store.claim(queued), "a worker must not take it"
    for refused in (lambda: store.run(ended), lambda: store.requeue(ended), lambda: store.ask(ended, "pause"),
                    lambda: store.mark(ended, star=True), lambda: store.trash([ended])):
        with pytest.raises(NoSuchRun, match=f"{ended} was deleted and is in the trash: restore it first"):
            refused()
    store.restore([ended, queued, child])
    assert store.run(ended) == before and store.run(queued).state == "stopped"
    assert [row.id for row in store.children(ended)] == [child] and store.trashed() == []
    assert store.steps_after(ended)[0].metrics["reward"] == EXACT


def test_the_trash_takes_all_or_none_and_no_run_that_is_going(store):
    ended, going = store.create(grpo(), mine=True), store.create(grpo(), mine=True)
    store.set_state(ended, "stopped")
    with pytest.raises(LabError, match=f"{going} is starting: stop it before you delete it"):
        store.trash([ended, going])
    with pytest.raises(NoSuchRun):
        store.restore([ended, "nobody"])
    assert store.trashed() == [] and len(store.runs()) == 2


def test_a_run_in_the_trash_can_be_deleted_for_good(store):
    run_id = store.create(grpo())
    (home() / run_id).mkdir()
    store.trash([run_id])
    assert (home() / run_id).exists()
    store.delete(run_id)
    assert store.trashed() == [] and not (home() / run_id).exists()


def test_summaries_are_kept_beside_the_runs_and_change_nothing_of_them(store):
    one, two = store.create(grpo()), store.create(grpo())
    before = store.run(one)
    store.keep_summaries({one: "short", "nobody": "x"})
    assert store.summaries() == {one: "short"} and store.run(one) == before
    store.keep_summaries({one: None, two: "other"})
    assert store.summaries() == {two: "other"}


def test_deltas_and_asked_are_cheap(store):
    run_id = store.create(grpo())
    for step in range(1, 301):
        store.append(run_id, record(step), 1.0)

    def best(call) -> float:
        times = []
        for _ in range(50):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
        return min(times)

    assert best(lambda: store.steps_after(run_id, 299)) < 1e-3
    assert best(lambda: store.asked(run_id)) < 1e-3


# ---------------------------------------------------------------- bad stores


def test_a_store_of_another_version_is_refused(store):
    with store._writing() as connection:
        connection.execute(schema.meta.update().where(schema.meta.c.key == "version"), {"value": "99"})
    with pytest.raises(LabError, match=f"format is 99, this lab's is {schema.VERSION}"):
        Store()


@pytest.mark.parametrize("url", ["nonsense", "oracle+nothing://x", "postgresql+psycopg://u:secret@h/db"])
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url):
    with pytest.raises(LabError, match="RL_LAB_STORE") as caught:
        Store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("each_database")
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "file" / "lab"))
    with pytest.raises(LabError, match="set RL_LAB_HOME"):
        Store()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '{"kind": "llm"}', '{"kind": "llm", "shoe": 3}'])
def test_a_malformed_spec_is_refused_in_words(text):
    with pytest.raises(LabError, match=r"not a run's spec\.json"):
        RunSpec.from_json(text)
