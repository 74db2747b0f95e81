"""Sweeps: what is made of values and seeds, and a group that is cancelled and resumed as one."""

from dataclasses import replace
from itertools import pairwise

import pytest

from labcore.errors import LabError
from labcore.runs import sweep as sweeps
from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import make
from labcore.runs.store import changes
from labcore.runs.sweep import cancel, grid, label, queue, resume, sweep
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.queries import counted
from tests.runs import fake
from tests.workers.tools import LIGHT, until


def maze(steps: int = 20, **knobs):
    return make(kind="maze", algorithm_key="q_learning", task_key="slippery", steps=steps, knobs={"pace": 0, **knobs})


def test_a_grid_is_every_combination_with_every_seed():
    specs = grid(fake.grpo(), {"beta": ["0", 0.1], "group_size": [4, 8]}, [3, 5])
    assert [(s.knobs["beta"], s.knobs["group_size"], s.seed) for s in specs] == [
        (beta, group, seed) for seed in (3, 5) for beta in (0.0, 0.1) for group in (4, 8)]
    assert {s.steps for s in specs} == {30} and {s.knobs["learning_rate"] for s in specs} == {1e-3}
    assert grid(fake.grpo(), {}, [0]) == [fake.grpo()]
    assert label(specs[1], ["beta", "group_size"]) == "beta 0.0, group_size 8, seed 3"


@pytest.mark.parametrize("axes, seeds, words", [
    ({key: [1] for key in ("beta", "top_p", "temperature", "group_size", "clip_low")}, [0], "at most 4 knobs, not 5"),
    ({"beta": [n / 100 for n in range(23)]}, range(87), "has 2,001 runs, more than 2,000"),
    ({"beta": []}, [0], "has no beta: give at least one"),
    ({"beta": [0]}, [], "has no seeds"),
    ({"beta": ["0.1", 0.1]}, [0], "the run with `beta=0.1`, seed 0 twice"),
    ({"beta": [0.1]}, [2, 2], "seed 2 twice"),
    ({"beta": [0, 99]}, [0], "With `beta=99`: `beta` is 99, outside its bounds"),
    ({"group_size": [4, 1]}, [0], "With `group_size=1`: .* use 2 or more"),
    ({"bta": [1]}, [0], "did you mean 'beta'"),
    ({"beta": [0]}, [-1], "seed must be a whole number"),
])
def test_what_cannot_be_is_told_before_anything_is_queued(axes, seeds, words):
    with pytest.raises(LabError, match=words):
        grid(fake.grpo(), axes, list(seeds))


def test_seeds_of_a_fork_need_fresh_random_numbers():
    fork = replace(fake.grpo(), parent=("p", 3))
    with pytest.raises(LabError, match="its seeds have no effect"):
        grid(fork, {"beta": [0, 1]}, [0, 1])
    assert {s.parent for s in grid(fork, {"beta": [0, 1]}, [0])} == {("p", 3)}
    assert [s.twin for s in grid(replace(fork, twin=False), {}, [0, 1])] == [False, False]


def test_a_sweep_is_a_group(store):
    alone = store.create(fake.grpo())
    first = queue(store, grid(fake.grpo(), {"beta": [0, 0.1]}, [0, 1]))
    second = queue(store, [fake.grpo(), make(algorithm_key="ppo", task_key="sort")])
    found = sweep(store, first)
    assert (found.axes, found.seeds, found.states, found.active) == ({"beta": [0.0, 0.1]}, [0, 1], {"queued": 4}, True)
    assert [run.spec.seed for run in found.runs] == [0, 0, 1, 1]
    assert [each.id for each in sweeps.sweeps(store)] == [second, first]
    assert sweep(store, second).axes == {}  # two algorithms, not two values
    assert store.run(alone).sweep is None and store.run(found.runs[0].id).sweep == first
    store.delete(found.runs[0].id)
    assert len(sweep(store, first).runs) == 3
    with pytest.raises(LabError, match="There is no sweep 'sweep-x'"):
        sweep(store, "sweep-x")
    with pytest.raises(LabError, match="from 1 to 2,000 runs, not 0"):
        queue(store, [])


def test_a_thousand_runs_are_queued_at_once_with_names_of_their_own_and_in_order(store):
    specs = grid(maze(), {"alpha": [place / 1000 for place in range(1, 101)]}, range(10))
    with counted() as asked:
        found = sweep(store, queue(store, specs))
    assert [run.spec for run in found.runs] == specs
    assert len({run.id for run in found.runs}) == len({run.number for run in found.runs}) == 1000
    assert list(store.queued()) == [*store.standing(found.id)] == [run.id for run in found.runs]
    assert [run.created for run in found.runs] == sorted({run.created for run in found.runs})
    assert len(asked) < 15, "not some for each run"
    assert {event.kind for event in store.events_after(found.runs[999].id)} == {"queued"}


def test_where_one_of_them_cannot_be_made_none_is(store, tmp_path):
    lost = replace(maze(), data=str(uploads.place(b"maze") / "gone.txt"))
    with pytest.raises(LabError, match=r"gone\.txt"):
        queue(store, [maze(), lost])
    assert not store.runs() and store.create(maze()) and store.runs()[0].number == 1


def test_names_that_meet_are_made_longer(store, monkeypatch):
    words = {2: iter(["aaaa", "bbbb", "aaaa", "cccc", "aaaa"]), 3: iter(["dddddd", "eeeeee"])}
    monkeypatch.setattr(changes, "token_hex", lambda size: next(words[size]))
    taken = store.create(maze())
    ids = store.create_all([maze(), maze(), maze(), maze()])
    assert taken.endswith("-aaaa") and len({*ids, taken}) == 5
    assert sorted(name.rpartition("-")[2] for name in ids) == ["bbbb", "cccc", "dddddd", "eeeeee"]


def test_what_queued_runs_wait_for_is_written_once(store):
    ids = store.create_all(grid(maze(), {}, range(50)))
    store.claim(ids[0])
    with counted() as asked:
        store.set_waiting(dict.fromkeys(ids, "waiting for a free place"))
        store.set_waiting(dict.fromkeys(ids, "waiting for a free place"))
    assert [run.message for run in store.runs()] == ["waiting for a free place"] * 49 + [""]
    assert [statement.split()[0] for statement in asked].count("UPDATE") == 1


def test_cancelled_and_resumed_it_ends_as_if_it_had_not_been(store):
    specs = grid(fake.grpo(12), {"beta": [0, 0.1]}, [0])
    whole, broken = queue(store, specs), queue(store, specs)
    for run in sweep(store, whole).runs:
        drive(store, run.id, start=fake.start)
    first, second = (run.id for run in sweep(store, broken).runs)
    drive(store, first, start=fake.start, on_record=lambda _run, record, _: record.step == 5 and cancel(store, broken))
    assert [(run.state, run.step) for run in sweep(store, broken).runs] == [("stopped", 5), ("stopped", 0)]
    assert cancel(store, broken) == [] and not sweep(store, broken).active
    assert resume(store, broken) == [first, second] and resume(store, broken) == []
    assert sweep(store, broken).states == {"queued": 2}
    for run in sweep(store, broken).runs:
        drive(store, run.id, start=fake.start)
    learnt = [[fake.trained(store, run.id) for run in sweep(store, each).runs] for each in (whole, broken)]
    assert learnt[0] == learnt[1] and len(learnt[0][1]) == 12


def test_the_last_are_stopped_first_so_that_none_of_them_starts_meanwhile(store, monkeypatch):
    ids = [run.id for run in sweep(store, queue(store, grid(maze(), {}, [0, 1, 2]))).runs]
    asked, real = [], store.ask
    monkeypatch.setattr(store, "ask", lambda run_id, command: asked.append(run_id) or real(run_id, command))
    assert cancel(store, store.run(ids[0]).sweep) == ids and asked == ids[::-1]


def test_what_failed_or_is_done_is_not_resumed(store):
    done, failed, stopped = (run.id for run in sweep(store, queue(store, grid(maze(), {}, [0, 1, 2]))).runs)
    sweep_id = store.run(done).sweep
    for run_id, state in ((done, "finished"), (failed, "diverged"), (stopped, "interrupted")):
        store.claim(run_id)
        store.set_state(run_id, state)
    assert resume(store, sweep_id) == [stopped]


def test_no_more_go_at_once_than_may(store, monkeypatch):
    """Through launcher, supervisor and workers; cancelled half-way, and resumed."""
    monkeypatch.setenv("RL_LAB_MAX_RUNS", "1")
    sweep_id = queue(store, grid(maze(40), {"alpha": [0.1, 0.9]}, [0, 1]))
    lab = Launcher(store, LIGHT)
    try:
        until(lambda: "finished" in sweep(store, sweep_id).states, 30)
        cancel(store, sweep_id)
        until(lambda: not sweep(store, sweep_id).active)
        resume(store, sweep_id)
        lab.wake()
        until(lambda: sweep(store, sweep_id).states == {"finished": 4}, 30)
    finally:
        lab.close()
    rows = sorted(sweep(store, sweep_id).runs, key=lambda row: row.started)
    assert all(before.ended <= after.started for before, after in pairwise(rows))
    assert len({tuple(s.metrics["episode_return"] for s in store.steps_after(row.id)) for row in rows}) == 4
