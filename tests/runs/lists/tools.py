"""Runs in a store, and entries of a list, made by hand."""

from collections.abc import Sequence

from labcore.runs.files.paths import run_folder
from labcore.runs.lists.entries import Entry
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.runs.summary import Summary

CSV = b"step,reward,secret\n10,0.2,1\n20,0.4,2\n"


def ended(store: Store, rewards: Sequence[float] = (0.1, 0.2), state: str = "finished", files: int = 0, **more) -> str:
    """A run of as many steps as rewards. `files`: three checkpoints, samples and an export of so many bytes each."""
    spec = make(algorithm_key="grpo", task_key="sort", steps=500, **more)
    run_id = store.create(spec, mine=True)
    store.set_state(run_id, "running")
    for step, reward in enumerate(rewards, start=1):
        store.append(run_id, Record(step, 10 * step, {"reward": reward, "kl": 0.0}), 0.5 * step)
    for name in (*(f"checkpoints/step-{step:06d}" for step in range(3)), "samples", "export") if files else ():
        folder = run_folder(run_id) / name
        folder.mkdir(parents=True)
        (folder / "content").write_bytes(b"x" * files)
    if state != "running":
        store.set_state(run_id, state)
    return run_id


def entry(run_id: str = "grpo-sort-1", *, metric: str = "reward", last: float | None = 0.5, best: float | None = 0.6,
          size: int = 2_000_000, **more) -> Entry:
    fields = {"kind": "llm", "state": "finished", "algorithm": "GRPO", "created": 0.0, "step": 10, "seed": 0,
              "task": "Sort letters", "model": "tiny", "keys": ("grpo", "sort"), "steps": 200, "ended": 20.0,
              "seconds": 12.0, "knobs": {"beta": 0.04, "group_size": 8, "advantage": "group_standardised"}}
    fields |= more
    task = fields["keys"][1]
    fields.setdefault("title", f"{fields['algorithm']} {task} #{run_id[-1]}" if task else fields["algorithm"])
    return Entry(id=run_id, summary=Summary(metric, 10, last=last, best=best, size=size), **fields)
