"""The base model of a run, made once by SFT: every run of that task and model starts from it.

`labcore.runs.files.bases` says where it is kept, and that some come with the lab. A file lock, which the kernel lets go
of when its holder dies, sees to it that only one process makes it. A run may have been asked to show its warm-up: then
SFT runs in front of the user even where there is a base, which stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labcore.errors import LabError, NoSuchRun
from labcore.runs.faults import Ended
from labcore.runs.files import bases
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import made, run_folder
from labcore.runs.files.storage import Away
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.runs.store.rows import RESUMABLE
from labcore.runs.store.store import Store

_POLL_SECONDS = 0.1


def base_model(store: Store, run_id: str, spec: RunSpec, train: Callable[[str], str],
               waiting: Callable[[], None]) -> Path | None:
    """The folder of the model that `spec` starts from, made now by an SFT run if it is not there yet.

    `train(run_id)` drives an SFT run in this process and returns its last state; `waiting()` is called again and
    again while another process makes the base, and may raise.

    Returns None where the run starts from given weights. Raises `Ended` where the SFT run did not finish.
    """
    sft = base_spec(spec)
    if sft is None:
        return None
    folder = bases.folder(sft.hash())
    warm_up = _warm_up(store, run_id)
    if warm_up or not _taken(folder.name):
        def say_so() -> None:
            store.set_message(run_id, "waiting for the base model")
            waiting()

        with _alone(folder, say_so):
            if warm_up or not _taken(folder.name):
                _make(store, run_id, sft, folder, train)
                return folder / "model"
    maker = bases.maker(folder.name)
    if store.run(run_id).base is None and maker and _state(store, maker) in ("finished", *RESUMABLE):
        store.set_base(run_id, maker, cached=True)
    return folder / "model"


def _taken(name: str) -> bool:
    """True if the base is here now. Where the object store is away, it is made: the same one."""
    try:
        return bases.take(name) is not None
    except Away:
        return False


def _warm_up(store: Store, run_id: str) -> bool:
    """True if the user asked to see the SFT of this run, and has not yet seen it to its end."""
    asked = any(event.payload.get("warm_up") for event in store.events_after(run_id) if event.kind == "queued")
    return asked and _state(store, store.run(run_id).base) != "finished"


def _make(store: Store, run_id: str, sft: RunSpec, folder: Path, train: Callable[[str], str]) -> None:
    maker = _unfinished(store, store.run(run_id).base, sft)
    if maker is None:
        maker = store.create(sft, mine=True)
        store.set_base(run_id, maker, cached=False)
    store.set_message(run_id, "SFT of the base model")
    state = train(maker)
    if state != "finished":
        why = store.run(maker).message
        raise Ended(state, f"The SFT run {maker}, which makes the base model, did not finish: {why}")
    found = checkpoint.newest(run_folder(maker))
    if found is None:
        raise LabError(f"The SFT run {maker} left no checkpoint: delete it, then start the run again.")
    bases.keep(folder, found[1] / "policy", maker)


def _unfinished(store: Store, maker: str | None, sft: RunSpec) -> str | None:
    """The SFT run that was begun for this base and can be resumed, now in this process."""
    if maker is None or _state(store, maker) not in RESUMABLE or store.run(maker).spec != sft:
        return None
    store.requeue(maker, mine=True)
    return maker


def _state(store: Store, run_id: str | None) -> str | None:
    """The state of a run; None where there is none, or it is in the trash."""
    try:
        return store.run(run_id).state if run_id else None
    except NoSuchRun:
        return None


@contextmanager
def _alone(folder: Path, waiting: Callable[[], object]) -> Iterator[None]:
    made(folder.parent)
    lock = FileLock(f"{folder}.lock")
    while True:
        try:
            lock.acquire(timeout=_POLL_SECONDS)
            break
        except Timeout:
            waiting()
    try:
        yield
    finally:
        lock.release()
