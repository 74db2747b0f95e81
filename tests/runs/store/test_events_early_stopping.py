"""What the store keeps of early stopping, in both databases: decisions in their turn, and why nobody decides."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from labcore.runs.spec.session import Record
from labcore.runs.store.rows import Decision
from labcore.runs.store.store import Store
from tests.queries import counted
from tests.runs.fake import grpo

RULE = '{"metric": "reward", "min_steps": 2, "factor": 3}'


@pytest.fixture
def store(each_database):
    return Store()


@pytest.fixture
def runs(store):
    found = store.create_all([grpo(), grpo(), grpo()], mine=True, sweep="sweep-1", halving=RULE)
    for run_id in found[:2]:
        store.set_state(run_id, "running")
        for step in (1, 2):
            store.append(run_id, Record(step, step, {"reward": step / 4}), 1.0)
    return found


def payload(value: float, kept: bool) -> dict:
    return {"metric": "reward", "value": value, "kept": kept, "text": "Why."}


def test_a_sweep_says_how_it_is_stopped_early_and_where_its_runs_are(store, runs):
    store.create_all([grpo()], sweep="sweep-2")
    assert store.halvings() == store.halvings("sweep-1") == {"sweep-1": RULE} and store.halvings("sweep-2") == {}
    assert store.standing("sweep-1") == {runs[0]: ("running", 2), runs[1]: ("running", 2), runs[2]: ("starting", 0)}
    assert store.last_values(runs, "reward", at=2, window=5) == dict.fromkeys(runs[:2], ([1, 2], [0.25, 0.5]))
    for run_id in runs:
        store.set_state(run_id, "stopped")
    assert store.halvings() == {} and store.halvings("sweep-1") == {"sweep-1": RULE}


def test_decisions_are_made_in_turn_and_read_in_order(store, runs):
    first = store.decide("sweep-1", 0, runs[0], 2, payload(0.5, True))
    assert first == Decision(first.event, runs[0], 2, payload(0.5, True))
    assert store.decide("sweep-1", 0, runs[1], 2, payload(0.1, False)) is None, "somebody else has decided since"
    second = store.decide("sweep-1", 1, runs[1], 2, payload(0.1, False))
    assert store.decisions("sweep-1") == (2, [first, second]) and first.event < second.event
    assert [event.kind for event in store.events_after(runs[1])][-1:] == ["rung"]
    assert store.decisions("sweep-2") == (0, [])


def test_of_judges_that_decide_at_once_one_does(store, runs):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda place: store.decide("sweep-1", 0, runs[place % 3], 2, payload(place, True)),
                             range(8)))
    assert len([each for each in made if each]) == 1 and store.decisions("sweep-1")[0] == 1


def test_why_nobody_decides_is_kept_until_somebody_does(store, runs):
    store.create_all([grpo()], sweep="sweep-2", halving=RULE)
    assert store.unjudged() == {}
    store.set_unjudged(["sweep-1", "sweep-2"], "Optuna is not installed")
    store.set_unjudged(["sweep-2"], None)
    assert store.unjudged() == store.unjudged("sweep-1") == {"sweep-1": "Optuna is not installed"}
    assert store.unjudged("sweep-2") == {}
    with counted() as asked:
        store.set_unjudged(["sweep-2"], None)
        store.set_unjudged(["sweep-1"], "Optuna is not installed")
    assert not [each for each in asked if each.startswith("UPDATE")], "a judge that looks twice a second writes nothing"


def test_runs_in_which_a_knob_was_moved_are_found(store, runs):
    assert store.moved("sweep-1") == set()
    store.log(runs[1], "knob", {"knob": "beta", "from": 0.0, "to": 0.2, "update": 2, "between": 1, "text": "β"}, 2)
    assert store.moved("sweep-1") == {runs[1]} and store.moved("sweep-2") == set()
