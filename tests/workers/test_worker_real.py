"""The worker with real sessions, a language model's and a maze's: killed in mid-run, they go on bit for bit."""

import json
import os
import shutil
import signal

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.workers import training
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.llm.tools import TINIER
from tests.workers.tools import LIGHT, learnt, until


def without_later(run_id: str, step: int) -> None:
    """Take away the checkpoints from `step` on: what was changed there is then repeated from its event."""
    for at, path in checkpoint.steps(run_folder(run_id)):
        if at >= step:
            shutil.rmtree(path)


def test_a_killed_ppo_run_goes_on_bit_for_bit(store, monkeypatch):
    """PPO has the most to save: two networks, two optimizers, shuffled mini-batches, several updates per batch."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 2)
    spec = make(algorithm_key="ppo", task_key="sort", steps=8, knobs={
        "sft_steps": 0, "prompts_per_step": 4, "max_new_tokens": 4,
        "reward_source": "noisy_verifier", "reward_noise": 0.3})  # without noise, random weights would earn nothing
    killed, whole = store.create(spec), store.create(spec)

    def drive_to(run_id: str, end: int) -> str:
        """Drive the run, change a knob after step 3, and kill the process at step `end`."""
        def on_record(_run, record, _seconds):
            if record.step == 3:
                store.ask(run_id, "set", {"knob": "beta", "value": 0.3})
            if record.step == end:
                os.kill(os.getpid(), signal.SIGKILL)

        return drive(store, run_id, on_record=on_record)

    assert drive_to(whole, 9) == "finished"
    store.dispose()
    if not (pid := os.fork()):
        try:
            drive_to(killed, 6)
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    before = learnt(store, killed)
    assert len(before) == 6 and all(step["grad_norm"] > 0 for step in before) and store.reconcile() == [killed]
    without_later(killed, 4)
    assert 0 < checkpoint.newest(run_folder(killed))[0] < 4
    store.requeue(killed)
    assert drive(store, killed) == "finished"
    assert learnt(store, killed) == learnt(store, whole) and learnt(store, killed)[:6] == before
    changes = [[event.step for event in store.events_after(run) if event.kind == "knob"] for run in (killed, whole)]
    assert changes == [[4], [4]]


def pictures(run_id) -> dict[str, dict]:
    """All but one that the worker was killed in the middle of."""
    return {path.name: json.loads(path.read_text()) for path in sorted((run_folder(run_id) / "samples").glob("step-*"))}


@pytest.mark.long
def test_a_killed_maze_run_goes_on_bit_for_bit(store):
    """Through launcher, supervisor and worker, at a pace that one can watch; a knob is moved between two steps."""
    given = {"kind": "maze", "algorithm_key": "sarsa_lambda", "task_key": "slippery", "steps": 120, "seed": 4}
    lab = Launcher(store, LIGHT)
    try:
        killed = lab.start(make(**given, knobs={"pace": 150}))
        until(lambda: store.run(killed).step >= 55)  # beyond the checkpoint of step 50
        store.ask(killed, "set", {"knob": "lambda", "value": 0.2})
        change = until(lambda: [e for e in store.events_after(killed) if e.kind == "knob"])[0]
        until(lambda: store.run(killed).step >= change.step + 4)
        os.kill(store.run(killed).pid, signal.SIGKILL)
        until(lambda: store.run(killed).state == "interrupted")
        before, drawn = learnt(store, killed), pictures(killed)
        assert change.step >= 55 and len(before) < 120
        without_later(killed, change.step)
        lab.resume(killed, {"pace": 0})
        until(lambda: store.run(killed).state == "finished")
    finally:
        lab.close()
    assert learnt(store, killed)[:len(before)] == before and len(learnt(store, killed)) == 120

    whole = store.create(make(**given, knobs={"pace": 0}))
    store.log(whole, "knob", change.payload, change.step)  # a run that is never killed, with the same change
    assert drive(store, whole) == "finished"
    assert learnt(store, killed) == learnt(store, whole)
    assert pictures(killed) == pictures(whole) and drawn.items() <= pictures(whole).items()
    assert store.run(killed).spec.knobs["lambda"] == 0.8 and "λ 0.8 → 0.2" in change.payload["text"]
