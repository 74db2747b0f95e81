"""Traces and runs made by hand."""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.schema import runs, steps
from labcore.runs.store.store import Store
from labcore.runs.traces import Trace

PLAIN = {"sft_steps": 0}


def trace(values: Sequence[float], x: Sequence[float] | None = None, *, axis: str = "tokens", metric: str = "reward",
          breaks: tuple[int, ...] = (), run: str = "a", label: str = "a", **metrics: Sequence[float]) -> Trace:
    """Rows 1 … N of an imported run; `x` is where they are on `axis`."""
    steps = np.arange(1.0, len(values) + 1)
    axes = {"step": steps} | ({axis: np.array(x, float)} if x is not None else {})
    columns = {metric: values} | metrics
    return Trace(run, None, "imported", axes, {key: np.array(column, float) for key, column in columns.items()},
                 breaks, label=label)


def append(store: Store, run_id: str, records: Iterable[tuple[Record, float]]) -> None:
    """Append steps with their seconds in one transaction. To commit each by itself, as a worker does, takes ten times
    as long."""
    rows = [{"run_id": run_id, "step": record.step, "tokens": record.tokens, "env_steps": record.env_steps,
             "seconds": seconds, "metrics": json.dumps(record.metrics)} for record, seconds in records]
    if rows:
        with store._writing_rows() as connection:
            connection.execute(steps.insert(), rows)
            connection.execute(runs.update().where(runs.c.id == run_id).values(
                step=rows[-1]["step"], seconds=rows[-1]["seconds"]))


def stored(store: Store, rewards: Sequence[float], *, algorithm: str = "grpo", seed: int = 0, tokens: int = 100,
           seconds: float = 1.0, state: str = "finished", changes: Sequence[tuple[int, str, float]] = (),
           kl: Sequence[float] | None = None, parent: tuple[str, int] | None = None, mix: str = "",
           **knobs) -> str:
    """A run in the store with one row per reward: `tokens` and `seconds` are of one step; `changes` are made after
    theirs."""
    spec = make(algorithm_key=algorithm, task_key="sort", steps=500, seed=seed, knobs=PLAIN | knobs, parent=parent,
                mix=mix)
    if parent:  # there must be something that it begins from
        checkpoint.save(run_folder(parent[0]), parent[1], lambda folder: None)
    run_id = store.create(spec, mine=True)
    store.set_state(run_id, "running")
    logged = [{"reward": reward, "updates": float(step), "memory": 500.0 + step}
              | ({} if kl is None else {"kl": kl[step - 1]}) for step, reward in enumerate(rewards, start=1)]
    append(store, run_id, [(Record(step, tokens * step, metrics), seconds * step)
                           for step, metrics in enumerate(logged, start=1)])
    for step, knob, value in changes:
        store.log(run_id, "knob", {"knob": knob, "from": 0.0, "to": value, "update": step, "between": 1, "text": knob},
                  step + 1)
    if state != "running":
        store.set_state(run_id, state)
    return run_id
