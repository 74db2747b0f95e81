"""How a large sweep stands: by which metric, which runs count, and which settings are drawn."""

import pytest

from labcore.analysis.compare.ranking import Ends, offered, standing
from labcore.runs import sweep
from labcore.runs.halving import Halving
from labcore.runs.spec.session import Record
from tests.runs import fake

BETAS = (0.0, 0.1, 0.2)


def queued(store, early: Halving | None = None) -> str:
    """Three values of β with two seeds each, of this process."""
    specs = sweep.grid(fake.grpo(4), {"beta": list(BETAS)}, [0, 1])
    ids = store.create_all(specs, mine=True, sweep="sweep-1", halving=early.to_json() if early else "")
    for run_id in ids:
        store.set_state(run_id, "running")
    return "sweep-1"


def log(store, run, steps: int, **metrics) -> None:
    for step in range(1, steps + 1):
        store.append(run.id, Record(step, step, metrics), 1.0)


def now(store, metric=""):
    return standing(store, sweep.sweep(store, "sweep-1"), Ends(store), metric)


@pytest.mark.parametrize("early, metric, key", [
    (None, "", "reward"), (Halving("kl", 2, 3), "", "kl"), (Halving("kl", 2, 3), "entropy", "entropy")])
def test_a_sweep_is_ranked_by_what_was_asked_else_by_its_early_stopping_else_by_its_first_chart(store, early, metric,
                                                                                                key):
    queued(store, early)
    found = now(store, metric)
    assert found.metric.key == key and found.early == early
    assert offered(found.rows)[0] == "reward"


def test_a_run_that_was_steered_by_hand_does_not_count(store):
    queued(store)
    runs = sweep.sweep(store, "sweep-1").runs
    for run in runs:
        log(store, run, 4, reward=0.9 if run is runs[0] else run.spec.knobs["beta"])
        store.set_state(run.id, "finished")
    store.log(runs[0].id, "knob", {"knob": "beta", "from": 0.0, "to": 0.2, "update": 2, "between": 1, "text": "β"}, 2)
    found = now(store)
    assert found.aside == 1 and [setting.values for setting in found.ranked] == [(0.2,), (0.1,), (0.0,)]
    assert found.ranked[-1].mean.count == 1


def test_the_worst_is_a_setting_whose_runs_have_ended_not_the_one_that_started_last(store):
    queued(store)
    runs = sweep.sweep(store, "sweep-1").runs
    log(store, runs[2], 1, reward=-5.0)
    assert now(store).extremes() == {}, "nothing is over yet"
    for run in runs:
        if run.spec.knobs["beta"] < 0.2:
            log(store, run, 4, reward=run.spec.knobs["beta"])
            store.set_state(run.id, "finished")
    assert {name: setting.values for name, setting in now(store).extremes().items()} == {
        "Best": (0.1,), "Worst": (0.0,)}


def test_what_was_stopped_early_is_over_and_behind_what_finished(store):
    queued(store, Halving("reward", 2, 3))
    for run in sweep.sweep(store, "sweep-1").runs:
        beta = run.spec.knobs["beta"]
        log(store, run, 2 if beta else 4, reward=beta)
        if beta:
            store.ask(run.id, "stop", {"why": "Stopped early at step 2: …", "early": True})
        store.set_state(run.id, "stopped" if beta else "finished")
    assert {name: setting.values for name, setting in now(store).extremes().items()} == {
        "Best": (0.0,), "Median": (0.2,), "Worst": (0.1,)}


def test_where_no_run_is_to_come_and_none_finished_all_that_have_a_number_are_drawn(store):
    queued(store)
    for place, run in enumerate(sweep.sweep(store, "sweep-1").runs):
        log(store, run, 2 if place else 0, reward=run.spec.knobs["beta"])
        store.set_state(run.id, "interrupted")
    assert len(now(store).ended) == 3 and len(now(store).extremes()) == 3


def test_a_metric_without_a_better_has_no_best(store):
    queued(store)
    for run in sweep.sweep(store, "sweep-1").runs:
        log(store, run, 4, entropy=1.0)
        store.set_state(run.id, "finished")
    assert now(store, "entropy").extremes() == {}
