"""The stand-in worker: no clock, given rates, the same rows every time, and it obeys."""

import time

import pytest

from benchmarks.sweep_at_size import StandIn, rows_of, seconds_of, simulated
from labcore.runs import sweep
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store


def specs(**axes):
    return sweep.grid(make(algorithm_key="grpo", task_key="sort", steps=4), axes, [0, 1])


def rows(store, sweep_id):
    return [[(step.step, step.seconds, step.metrics["reward"]) for step in store.steps_after(run.id)]
            for run in store.sweep_runs(sweep_id)]


def test_rows_come_at_the_rates_of_their_settings_and_are_the_same_every_time(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it must not wait"))
    store, found = Store(), []
    for _ in range(2):
        sweep_id = sweep.queue(store, specs(group_size=[4, 32]))
        stand_in = StandIn(store, sweep_id, places=2)
        stand_in.work()
        found.append(rows(store, sweep_id))
        # Two places: one has both small groups, 4 x 0.9 s each, before the other has its large one done in 4 x 3.7 s.
        assert stand_in.clock == pytest.approx(2 * 4 * 0.9 + 4 * 3.7)
    assert found[0] == found[1] and all(len(each) == 4 for each in found[0])
    for run, each in zip(store.sweep_runs(sweep_id), found[0], strict=True):
        assert [seconds for _, seconds, _ in each] == pytest.approx([seconds_of(run.spec) * at for at in range(1, 5)])
        assert [reward for *_, reward in each] == [row["reward"] for row in rows_of(run.spec)]
        assert run.state == "finished"


def test_it_takes_no_more_runs_than_it_has_places_and_obeys_a_stop(store):
    sweep_id = sweep.queue(store, specs(group_size=[4, 32]))
    stand_in = StandIn(store, sweep_id, places=3)
    steps = iter(range(2))
    stand_in.work(until=lambda: next(steps, None) is None)
    assert store.tally(sweep_id) == {"running": 3, "queued": 1}
    going = next(run for run in store.sweep_runs(sweep_id) if run.state == "running")
    store.ask(going.id, "stop", {"why": "Enough."})
    stand_in.work()
    assert (store.run(going.id).state, store.run(going.id).message) == ("stopped", "Enough.")
    assert store.tally(sweep_id) == {"finished": 3, "stopped": 1}


def test_a_small_simulation_is_queued_and_done(capsys, store):
    sweep_id = simulated(store, runs=20, rows=3, places=4, early=False)
    assert store.tally(sweep_id) == {"finished": 20}
    assert "20 runs queued in" in (said := capsys.readouterr().out) and "60 rows of 60 written" in said
