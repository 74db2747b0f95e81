"""The worker: takes one run from its row in the store to its end, and records the outcome there.

`drive` works in any process: forked by the supervisor, started as `python -m labcore.workers.worker RUN` where there
is no fork, or in the foreground of the command line. Left out: the training, which is the session's.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

from threadpoolctl import threadpool_limits

from labcore.errors import LabError, NotOwner
from labcore.runs import fork, summary, versions
from labcore.runs.faults import Ended, ending
from labcore.runs.files import atomic, storage
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import START, made, run_folder
from labcore.runs.files.removal import remove
from labcore.runs.files.storage import Publishing
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record, Session, StartSession
from labcore.runs.steering import stop_asked
from labcore.runs.store import columns, thinned
from labcore.runs.store.store import Store
from labcore.workers import alerts, sinks
from labcore.workers.base import base_model
from labcore.workers.lifeline import Dropped, Heartbeat, Lifeline
from labcore.workers.long_step import OnActivity, RunMessage, StopWatch
from labcore.workers.sinks import Live
from labcore.workers.training import OnRecord, Training

BROKEN = ("failed", "diverged")  # last states that a tracker shows as a failure
RESERVE_BYTES = 256 * 1024  # held back on the disk, so that a run can say that the disk is full


def start_session(spec: RunSpec, base: Path | None, resume: Path | None) -> Session:
    """The session of `spec`, from the class that its kind names; imported only when it runs."""
    session_class: type[Session] = resolve_name(spec.kind_row.session)
    threadpool_limits(spec.threads)  # of numpy's libraries: on small matrices threads only wait for each other
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(spec.threads)
    return session_class.start(spec, base, resume)


def drive(store: Store, run_id: str, lifeline_fd: int | None = None, on_record: OnRecord | None = None,
          start: StartSession = start_session, on_activity: OnActivity | None = None) -> str:
    """Take the queued run `run_id` (or one that is this process's already) to its end; return its last state.

    `lifeline_fd` is the pipe whose end means that the lab is gone. `on_record(run_id, record, seconds)` is called
    after each committed step, also of the SFT run that makes the base; `on_activity(run_id, step, text)` now and then
    within a long one.

    Raises:
        LabError: another process has the run (NotOwner where it took it meanwhile), or the store cannot be written.
    """
    publishing = storage.of_worker(store)
    if not store.owns(run_id) and not store.claim(run_id):
        raise LabError(f"The run {run_id} is {store.run(run_id).state}: only a queued run can be started.")

    def too_late() -> None:
        store.lost(os.getpid(), platform.node(), "the lab stopped in the middle of a step")

    with Lifeline(lifeline_fd, too_late) as lifeline, publishing:
        state = _Drive(store, run_id, lifeline, publishing, on_record, start, on_activity).go()
        if not lifeline.cut:
            alerts.wait()
        return state


class _Drive:
    """One run on its way to its end. `stop` says whether the run whose base it makes was asked to stop."""

    def __init__(self, store: Store, run_id: str, lifeline: Lifeline, publishing: Publishing,
                 on_record: OnRecord | None, start: StartSession, on_activity: OnActivity | None,
                 stop: Callable[[], bool] = lambda: False):
        self._store, self._run_id, self._lifeline, self._publishing = store, run_id, lifeline, publishing
        self._on_record, self._start, self._on_activity, self._stop = on_record, start, on_activity, stop
        self._run_message = RunMessage(store, run_id, on_activity)
        self._folder = run_folder(run_id)
        self._reserve = self._folder / ".reserve"
        self._training: Training | None = None
        self._live: Live | None = None
        self._heartbeat = Heartbeat(store, run_id)

    def go(self) -> str:
        """Train, then write the last state; return it."""
        with self._heartbeat:
            try:
                self._training = self._prepare()
                self._training.run()
            except BaseException as error:
                if isinstance(error, NotOwner) and error.run_id == self._run_id:
                    raise  # its folder is its successor's by now
                step = self._training.step if self._training else self._store.run(self._run_id).step
                state, message = ending(error, self._run_id, step)
            else:
                raise AssertionError("a training leaves by an exception")
            self._end(state, message)
        return state

    def _prepare(self) -> Training:
        """Base model, session and checkpoint: all that there must be before the first step."""
        row = self._store.run(self._run_id)
        sinks.ask(self._store, self._run_id, sinks.of_setting())
        self._publishing.begin(self._run_id, row.step)
        storage.changed(self._folder)
        made(self._folder)
        atomic.write_text(self._folder / "spec.json", row.spec.to_json())
        self._reserve.write_bytes(os.urandom(RESERVE_BYTES))  # zeros might take no room
        checkpoint.forget_after(self._folder, max(row.step, row.spec.parent[1] if row.spec.parent else 0))
        found = checkpoint.newest(self._folder)
        step, folder = found or (0, None)
        if row.spec.parent and not found:
            step, session = row.spec.parent[1], self._forked(row.spec)
            log = ("forked", {"run": row.spec.parent[0], "from": step})
        else:
            session = self._begun(row.spec, self._base(row.spec), folder)
            log = ("resumed", {"from": step}) if row.step > 0 or step > 0 else ("started", {})
        versions.note(self._folder, step, session)
        columns.forget(self._run_id)
        thinned.forget(self._run_id)
        self._live = Live(self._store, row)
        self._store.set_state(self._run_id, "running", log=log)
        return Training(self._store, row, session, step, self._lifeline, self._recorded, self._is_to_stop,
                        self._folder, self._run_message)

    def _recorded(self, run_id: str, record: Record, seconds: float) -> None:
        """A step is committed."""
        if self._live:
            self._live.write(record)
        if self._on_record:
            self._on_record(run_id, record, seconds)

    def _forked(self, spec: RunSpec) -> Session:
        """The session of a fork's parent as it was, then made the fork's."""
        parent, folder = fork.beginning(self._run_id, spec)
        fork.check(parent, spec)
        return self._begun(parent, self._base(parent), folder).fork(spec)

    def _begun(self, spec: RunSpec, base: Path | None, resume: Path | None) -> Session:
        """The session of `spec`. Raises Ended where the run is stopped while its weights are loaded."""
        try:
            with (StopWatch(self._store, self._run_id, self._lifeline) as watch, watch.step(),
                  self._lifeline.droppable(lambda: True), self._run_message.listening()):
                return self._start(spec, base, resume)
        except Dropped:
            self._check_stop()
            raise

    def _base(self, spec: RunSpec) -> Path | None:
        """The model that `spec` starts from, made now if need be. A fork's checkpoints hold all that came of it."""
        base = None if spec.parent else base_model(self._store, self._run_id, spec, self._train_base, self._check_stop)
        self._check_stop()
        self._store.set_message(self._run_id, "getting ready")
        return base

    def _train_base(self, sft: str) -> str:
        """Take the SFT run `sft` to its end, or stop it where this run is asked to stop."""
        state = _Drive(self._store, sft, self._lifeline, self._publishing, self._on_record, self._start,
                       self._on_activity, self._base_is_to_stop).go()
        self._store.check_owner(self._run_id)
        return state

    def _base_is_to_stop(self) -> bool:
        try:
            self._heartbeat.check()
            return bool(stop_asked(self._store, self._run_id))
        except NotOwner:  # who has the run now goes on with its SFT run as well
            return True

    def _is_to_stop(self) -> bool:
        self._heartbeat.check()
        return self._stop()

    def _check_stop(self) -> None:
        self._heartbeat.check()
        if self._lifeline.cut:
            raise Ended("interrupted", "The run was stopped with the lab before its first step: resume it.")
        if why := stop_asked(self._store, self._run_id):
            raise Ended("stopped", why)

    def _end(self, state: str, message: str) -> None:
        with suppress(OSError):  # a disk that is gone must not keep the run from saying so
            self._reserve.unlink(missing_ok=True)
            if checkpoint.local(self._folder):  # from here on it needs nothing of its parent's
                remove(self._folder / START, below=self._folder)
        if not self._lifeline.cut:  # the lab's end does not wait for what others could do without
            with suppress(OSError, LabError, MemoryError):
                columns.keep(self._store, self._run_id)
                thinned.keep(self._store, self._run_id)
        self._publishing.complete(self._run_id, lambda: self._lifeline.cut)
        self._store.set_state(self._run_id, state, message, log=(state, {"text": message}))
        if not self._lifeline.cut:
            with suppress(OSError, LabError, MemoryError):
                summary.keep(self._store, self._run_id)
            with suppress(LabError):  # a note on a service that fails now
                if self._live:  # last, because a service may take minutes
                    self._live.close(state in BROKEN)


def main() -> None:
    """`python -m labcore.workers.worker RUN`: the lifeline is standard input."""
    try:
        drive(Store(), sys.argv[1], lifeline_fd=sys.stdin.fileno())
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
