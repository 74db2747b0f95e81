"""The worker with real sessions, a language model's and a maze's: killed in mid-run, they go on bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.workers.tools import LIGHT, learnt, until

ROOT = Path(__file__).resolve().parents[2]


def without_later(run_id: str, step: int) -> None:
    """Take away the checkpoints from `step` on: what was changed there is then repeated from its event."""
    for at, path in checkpoint.steps(run_folder(run_id)):
        if at >= step:
            shutil.rmtree(path)


def test_a_killed_ppo_run_goes_on_bit_for_bit(store):
    """PPO has the most to save: two networks, two optimizers, shuffled mini-batches, several updates per batch."""
    spec = make(algorithm_key="ppo", task_key="sort", steps=20, knobs={
        "sft_steps": 0, "prompts_per_step": 4, "max_new_tokens": 4})
    killed, whole = store.create(spec), store.create(spec)
    store.ask(killed, "step")  # makes one step, then waits: so there is a checkpoint of step 1
    worker = subprocess.Popen([sys.executable, "-m", "labcore.workers.worker", killed], cwd=ROOT, stdin=subprocess.PIPE)
    until(lambda: (found := checkpoint.newest(run_folder(killed))) and found[0] == 1)
    store.ask(killed, "resume")
    until(lambda: store.run(killed).step >= 4)
    store.ask(killed, "set", {"knob": "beta", "value": 0.3})
    change = until(lambda: [e for e in store.events_after(killed) if e.kind == "knob"])[0]
    until(lambda: store.run(killed).step >= change.step + 2)
    worker.kill()
    worker.wait()
    before = learnt(store, killed)
    assert len(before) < 20 and store.reconcile() == [killed]
    without_later(killed, change.step)
    store.requeue(killed)
    assert drive(store, killed) == "finished"
    assert learnt(store, killed)[:len(before)] == before

    store.log(whole, "knob", change.payload, change.step)  # a run that is never killed, with the same change
    drive(store, whole)
    assert learnt(store, killed) == learnt(store, whole)


def pictures(run_id) -> dict[str, dict]:
    """All but one that the worker was killed in the middle of."""
    return {path.name: json.loads(path.read_text()) for path in sorted((run_folder(run_id) / "samples").glob("step-*"))}


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
