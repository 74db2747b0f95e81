"""The interface between a worker and a session, whatever the session trains (`catalog.kinds.Kind.session` names its
class).

A session holds everything that the future of a run depends on (weights, optimizers, random numbers, counters), so
that saved at a record and started from that checkpoint it continues bit for bit. It knows nothing of the clock, the
store, the folders and the controls: those are the worker's. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from labcore.runs.spec.run_spec import RunSpec

# ---------------------------------------------------------------- record
# What a loop yields: one row of numbers per step, and what there is to look at.

Pictures = tuple[dict[str, Any] | None, dict[str, Any] | None]  # samples and line


@dataclass(frozen=True)
class Record:
    """One step: a batch and all the optimizer updates made on it. Steps count from 1.

    `metrics` holds keys of `catalog.metrics` with finite values; a number that does not exist is left out.
    `tokens` and `env_steps` count from the start of the run. `samples` (groups of completions, or pairs) and
    `line` (the surrogates along θ_old → θ_new) are JSON-clean and not made at every step.

    `look` makes the samples and the line that the record lacks, as (samples, line), with None for those that the step
    cannot give. It may be called until the session is asked for its next record; it draws no random number of the
    session and leaves its weights unchanged. `notes` are sentences on how the engine computed this step.
    """

    step: int
    tokens: int
    metrics: dict[str, float]
    env_steps: int = 0
    samples: dict[str, Any] | None = field(default=None, repr=False)
    line: dict[str, Any] | None = field(default=None, repr=False)
    look: Callable[[], Pictures] | None = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- session

@runtime_checkable
class Session(Protocol):
    """See the module. `step` and `updates` are how many of each are complete, counted from the start of the run.

    `knobs` are the values in use. The worker changes them in place, and only while `run` waits at a yield: knobs with
    the effect "live" at any yield, the others between two batches. After `run` has returned, `finished_because` is the
    reason.
    """

    spec: RunSpec
    knobs: dict[str, Any]
    step: int
    updates: int
    finished_because: str

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> Session:
        """The session of `spec`. It starts from the weights in `base_folder` if it has a base model, or from the
        checkpoint `resume`. Raises LabError if the model, the data, the device or the checkpoint cannot be used."""
        ...

    def run(self) -> Iterator[Record | None]:
        """Train to the end. Yields a Record after each step, and None wherever a live knob may change within a step.
        Raises Diverged if a number is not finite any more."""
        ...

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into the empty `folder`; its folder `policy` holds the files that other programs
        load. To be called at a Record."""
        ...

    def fork(self, spec: RunSpec) -> Session:
        """The session of the fork `spec` of this run at this step. This session may be unusable afterwards."""
        ...


@runtime_checkable
class Recorded(Protocol):
    """A session that can be saved as it was at its last record, even in the middle of a step."""

    moved: bool

    def as_recorded(self) -> AbstractContextManager[None]:
        """Within this context the session is as it was at its last record. Not possible if the unfinished step has
        already `moved` weights."""
        ...


@runtime_checkable
class Keeps(Protocol):
    """A session that can copy what it would save into memory."""

    def kept(self) -> Callable[[Path], None] | None:
        """A function that writes the checkpoint of this record into an empty folder, whenever it is called; None where
        memory is too short. Called at a Record."""
        ...


class Device(Protocol):
    """The part of a torch device that is used."""

    @property
    def type(self) -> str: ...


@runtime_checkable
class OnDevice(Protocol):
    """A session whose tensors lie on a device."""

    device: Device


def takes_back(session: Session) -> TypeGuard[Recorded]:
    """True if the session can be saved as it was at its last record."""
    return isinstance(session, Recorded) and not session.moved


StartSession = Callable[[RunSpec, Path | None, Path | None], Session]


def device_of(session: Session) -> Device | None:
    """The device of a session; None where it has none, as a table."""
    return session.device if isinstance(session, OnDevice) else None
