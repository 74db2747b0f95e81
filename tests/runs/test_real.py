"""The worker with the real language-model session: killed in mid-run, it goes on bit for bit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from labcore.catalog.metrics import METRICS
from labcore.runs import checkpoint
from labcore.runs.paths import run_folder
from labcore.runs.spec import make
from labcore.runs.store import Store
from labcore.runs.worker import drive

ROOT = Path(__file__).resolve().parents[2]


def learnt(store, run_id) -> list[dict[str, float]]:
    return [{key: value for key, value in step.metrics.items() if METRICS[key].about == "training"}
            for step in store.steps_after(run_id)]


def until(condition, seconds: float = 90.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)
    return value


def test_a_killed_ppo_run_goes_on_bit_for_bit():
    """PPO has the most to save: two networks, two optimizers, shuffled mini-batches, several updates per batch."""
    store = Store()
    spec = make(algorithm_key="ppo", task_key="sort", steps=20, knobs={"sft_steps": 0, "prompts_per_step": 4})
    killed, whole = store.create(spec), store.create(spec)
    store.ask(killed, "step")  # makes one step, then waits: so there is a checkpoint of step 1
    worker = subprocess.Popen([sys.executable, "-m", "labcore.runs.worker", killed], cwd=ROOT, stdin=subprocess.PIPE)
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
    assert checkpoint.newest(run_folder(killed))[0] < change.step  # so the change is repeated from its event
    store.requeue(killed)
    assert drive(store, killed) == "finished"
    assert learnt(store, killed)[:len(before)] == before

    store.log(whole, "knob", change.payload, change.step)  # a run that is never killed, with the same change
    drive(store, whole)
    assert learnt(store, killed) == learnt(store, whole)
