"""The base model of a run: taught once, stopped and resumed with the run that waits for it."""

from filelock import FileLock

from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import base_spec, make
from labcore.workers.worker import drive
from tests.runs import fake
from tests.workers.tools import Background, run, until


def with_sft(**knobs):
    return make(algorithm_key="grpo", task_key="sort", steps=6, knobs={"sft_steps": 30, **knobs})


def test_the_base_is_taught_once_and_used_by_all(store):
    first, second = store.create(with_sft()), store.create(with_sft(beta=0.5))
    assert run(store, first) == run(store, second) == "finished"
    sft = store.run(first).base
    assert store.run(second).base == sft and store.run(sft).state == "finished"
    assert [row.spec.algorithm for row in store.runs()].count("sft") == 1
    assert [e.payload for e in store.events_after(second) if e.kind == "sft"] == [{"base": sft, "cached": True}]


def test_stopping_a_run_stops_the_sft_it_waits_for_and_resuming_goes_on_with_it(store):
    run_id = store.create(with_sft())
    drive(store, run_id, start=fake.start,
          on_record=lambda who, record, _: who != run_id and record.step == 9 and store.ask(run_id, "stop"))
    sft = store.run(run_id).base
    assert (store.run(run_id).state, store.run(sft).state, store.run(sft).step) == ("stopped", "stopped", 9)
    store.requeue(run_id)
    assert run(store, run_id) == "finished"
    assert store.run(run_id).base == sft and len(store.steps_after(sft)) == 30


def test_a_run_waits_while_another_process_makes_the_base(store):
    spec = with_sft()
    run_id = store.create(spec)
    folder = home() / "base" / base_spec(spec).hash()
    folder.parent.mkdir(parents=True)
    with FileLock(f"{folder}.lock"):
        worker = Background(store, run_id)
        until(lambda: store.run(run_id).message == "waiting for the base model")
    worker.join(10)
    assert worker.state == "finished"
