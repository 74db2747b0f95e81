"""What is asked of a run that goes: knobs, each where it counts from; pause, single steps, resume and stop."""

import time

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.knob_history import KnobHistory
from labcore.runs.steering import Steering
from labcore.workers import training
from tests.runs import fake
from tests.words import says
from tests.workers.tools import Background, asker, kinds, knob_events, run, until

# ---------------------------------------------------------------- knobs


def test_a_live_knob_takes_effect_at_the_next_update_and_leaves_a_marker(store):
    run_id = store.create(fake.grpo(10, updates_per_batch=2))
    assert run(store, run_id, {4: asker(store, run_id, ("beta", 0.2))}) == "finished"
    assert knob_events(store, run_id) == [(5, "β 0.04 → 0.2")]
    control = store.controls(run_id)[0]
    assert (control.state, control.step) == ("applied", 5)


def test_knobs_that_only_go_together_are_taken_together_and_repeated_so(store):
    run_id = store.create(fake.grpo(6, prompts_per_step=8, mini_batches=4))
    both = asker(store, run_id, ("prompts_per_step", 9), ("mini_batches", 3))
    assert run(store, run_id, {2: both, 4: asker(store, run_id, ("mini_batches", 2))}) == "finished"
    assert [control.state for control in store.controls(run_id)] == ["applied", "applied", "refused"]
    assert knob_events(store, run_id) == [(3, "P 8 → 9"), (3, "Mini-batches 4 → 3")]
    session = fake.FakeSession(store.run(run_id).spec, None)
    session.updates = 2  # as after a resume: where the changes were made
    steering = Steering(store, run_id, session, KnobHistory(session.spec, store.events_after(run_id)).after(2))
    steering.between_steps(2)
    assert (session.knobs["prompts_per_step"], session.knobs["mini_batches"]) == (9, 3)


def test_live_knobs_apply_within_a_batch_and_the_others_wait_for_the_next(store, monkeypatch):
    run_id = store.create(fake.grpo(4, updates_per_batch=3))
    real, calls = training.Steering.between_updates, []

    def between_updates(self, step):
        if not calls:
            asker(store, run_id, ("beta", 0.1), ("group_size", 4))()
        calls.append(step)
        real(self, step)

    monkeypatch.setattr(training.Steering, "between_updates", between_updates)
    run(store, run_id)
    payloads = [e.payload for e in store.events_after(run_id) if e.kind == "knob"]
    assert [(p["knob"], p["update"], p["between"]) for p in payloads] == [("beta", 1, 0), ("group_size", 3, 1)]


def test_the_last_of_several_values_wins_and_a_bad_one_does_not_count(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("beta", 0.1), ("beta", 0.3), ("beta", -4), ("beta", 0.3))})
    assert [(c.payload["value"], c.state) for c in store.controls(run_id)] == [
        (0.1, "superseded"), (0.3, "superseded"), (-4, "refused"), (0.3, "applied")]
    assert knob_events(store, run_id) == [(3, "β 0.04 → 0.3")]


def test_what_cannot_be_done_is_refused_with_the_reason(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("sft_target", 0.9), ("bta", 1), ("mini_batches", 7), ("beta", "x"))})
    reasons = [c.refused for c in store.controls(run_id)]
    for reason, words in zip(reasons, ("start a new run", "did you mean 'beta'", "does not divide", "must be a number"),
                             strict=True):
        assert words in reason
    assert kinds(store, run_id).count("refused") == 4 and knob_events(store, run_id) == []


def test_a_knob_set_while_queued_holds_from_the_first_step(store):
    early, plain = store.create(fake.grpo(8)), store.create(fake.grpo(8, beta=0.5))
    asker(store, early, ("beta", 0.5))()
    run(store, early)
    run(store, plain)
    assert fake.trained(store, early) == fake.trained(store, plain)


def test_setting_the_same_value_again_makes_no_marker(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("beta", 0.04))})
    assert [c.state for c in store.controls(run_id)] == ["applied"] and knob_events(store, run_id) == []


# ---------------------------------------------------------------- pause, step, stop


def test_pause_single_step_resume_and_stop(store, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.01")
    run_id = store.create(fake.grpo(100_000))
    worker = Background(store, run_id)
    until(lambda: store.run(run_id).step >= 3)
    store.ask(run_id, "pause")
    until(lambda: store.run(run_id).state == "paused")
    at = store.run(run_id).step
    until(lambda: checkpoint.newest(run_folder(run_id))[0] == at)
    time.sleep(0.2)
    paused_seconds, began = store.run(run_id).seconds, time.monotonic()
    for n in (1, 2):
        store.ask(run_id, "step")
        until(lambda n=n: checkpoint.newest(run_folder(run_id))[0] == at + n)
        time.sleep(0.1)
        assert (store.run(run_id).step, store.run(run_id).state) == (at + n, "paused")
    assert store.run(run_id).seconds - paused_seconds < time.monotonic() - began - 0.15  # the waiting is not counted
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    until(lambda: knob_events(store, run_id) == [(at + 3, "β 0.04 → 0.2")])  # while paused, for the next step
    store.ask(run_id, "resume")
    until(lambda: store.run(run_id).state == "running" and store.run(run_id).step > at + 4)
    store.ask(run_id, "stop")
    worker.join(5)
    row = store.run(run_id)
    assert (worker.state, row.state) == ("stopped", "stopped") and says(row.message, "stopped", f"step {row.step}")
    assert checkpoint.newest(run_folder(run_id))[0] == row.step
    assert kinds(store, run_id) == ["queued", "started", "paused", "stepped", "stepped", "knob", "resumed", "stopped"]


def test_a_single_step_of_a_running_run_pauses_it(store, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.01")
    run_id = store.create(fake.grpo(100_000))
    asker(store, run_id, "step")()
    worker = Background(store, run_id)
    until(lambda: "stepped" in kinds(store, run_id))
    assert (store.run(run_id).state, store.run(run_id).step) == ("paused", 1)
    asker(store, run_id, "stop")()
    worker.join(5)
    assert worker.state == "stopped"


def test_where_a_run_waits_or_ends_its_pictures_are_of_that_step(store, monkeypatch):
    """Samples are due at every fifth step here, lines at every twentieth."""
    monkeypatch.setenv("FAKE_SLEEP", "0.02")
    run_id = store.create(fake.grpo(1000))
    def drawn(kind): return [int(path.stem[5:]) for path in sorted((run_folder(run_id) / kind).glob("step-*"))]
    background = Background(store, run_id)
    until(lambda: store.run(run_id).step >= 1)
    store.ask(run_id, "pause")
    until(lambda: store.run(run_id).state == "paused")
    for _ in range(2):
        last = store.run(run_id).step
        until(lambda last=last: drawn("lines")[-1:] == [last] and drawn("samples")[-1:] == [last])
        store.ask(run_id, "step")
        until(lambda last=last: store.run(run_id).step == last + 1)
    store.ask(run_id, "stop")
    background.join(60)
    last = store.run(run_id).step
    assert drawn("lines") == [last - 2, last - 1, last] and set(drawn("lines")) <= set(drawn("samples"))
    finished = store.create(fake.grpo(7))
    assert run(store, finished) == "finished"
    assert [path.stem for path in (run_folder(finished) / "lines").glob("*")] == ["step-000007"]
