"""Which runs hold the places that a queued one waits for, in the one sentence that all pages and commands say."""

from dataclasses import replace

from labcore.runs.places import going, holders, short, waiting_sentence
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.words import says


def create(store: Store, state: str = "") -> str:
    run_id = store.create(make(algorithm_key="grpo", task_key="sort"), mine=bool(state))
    if state:
        store.set_state(run_id, state)
    return run_id


def test_those_that_hold_all_places_are_named_oldest_first(store):
    waiting = create(store)
    store.set_waiting({waiting: 2})
    first = create(store, "paused")
    run = store.run(waiting)

    def said(**changed):
        at = replace(run, **changed)
        return waiting_sentence(at.message, holders(at, going(store, [at])))
    assert said() == run.message, "of two places one: another lab's runs hold the other, or it is free by now"
    create(store, "running")
    assert says(said(), "waiting for a free place", "GRPO sort #2 (paused)", "GRPO sort #3 (running)",
                "RL_LAB_MAX_RUNS=2")
    for _ in range(3):
        create(store, "running")
    assert said() == run.message
    assert said(places=5).count("GRPO sort") == 3
    assert "and 2 others hold all" in said(places=5)
    assert said(message="no process is to be had") == "no process is to be had"
    assert holders(store.run(first), going(store, [run])) == []


def test_a_short_run_beside_a_sweep_holds_none_of_its_places(store):
    of_sweep, = store.create_all([make(algorithm_key="grpo", task_key="sort")], sweep="sweep-1", mine=True)
    maze = store.create(make(kind="maze", algorithm_key="q_learning", task_key="cliff"), mine=True)
    waiting = replace(store.run(create(store)), places=1)
    assert short(store.run(maze)) and not short(store.run(of_sweep)) and not short(waiting)
    assert [run.id for run in holders(waiting, going(store, [waiting]))] == [of_sweep]


def test_those_of_another_machine_hold_none_of_these_places(store):
    there = create(store, "running")
    store.set_waiting({(run_id := create(store)): 1})
    waiting = store.run(run_id)
    found = going(store, [waiting])
    assert [run.id for run in holders(waiting, found)] == [there]
    said = waiting_sentence(waiting.message, found, lambda run: run.id)
    assert says(said, "waiting", f"{there} (running)", "RL_LAB_MAX_RUNS=1")
    assert holders(waiting, [replace(run, host="elsewhere") for run in found]) == []


def test_nothing_is_read_where_no_run_waits(store):
    create(store, "running")
    assert going(store, store.runs()) == []
