"""Lines of a watched run in files, and the store after the watcher has read them."""

import json
from pathlib import Path

from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store
from labcore.watch.converting import spool
from labcore.workers.watcher import Watcher


def write(name: str, *lines: object, writer: str = "aa", number: int = 0, end: str = "\n") -> Path:
    """Add lines, objects or raw texts, to a file of a watched run, as a program does."""
    folder = spool.folder_of(name)
    (folder / spool.SPOOL).mkdir(parents=True, exist_ok=True)
    path = folder / spool.SPOOL / f"{ord(writer[0]) - 96:013d}-{writer}-{number:05d}.jsonl"
    with path.open("ab") as file:
        for line in lines:
            file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + end.encode())
    return path


def begin(tool: str = "", name: str = "mine", **config: object) -> dict[str, object]:
    """The first line of a program."""
    return {"kind": "run", "name": name, "tool": tool, "config": config}


def numbers(step: object, seconds: float | None = None, **metrics: object) -> dict[str, object]:
    """A line of numbers."""
    return {"kind": "numbers", "step": step, "numbers": metrics, **({} if seconds is None else {"seconds": seconds})}


def read(store: Store) -> list[RunRow]:
    """The runs in the store once a new watcher has read what is there, the oldest first."""
    Watcher(store).look()
    return store.runs(kind="watch")[::-1]


def notes(store: Store, run_id: str) -> list[str]:
    """The notes in the log of a run."""
    return [event.payload["text"] for event in store.events_after(run_id) if event.kind == "note"]


def rows(store: Store, run_id: str) -> dict[int, dict[str, float]]:
    """The metrics of each step of a run."""
    return {step.step: step.metrics for step in store.steps_after(run_id)}
