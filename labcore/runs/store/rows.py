"""The rows that a reader gets from the store, and the states of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from labcore.runs.spec.run_spec import RunSpec

GOING = ("starting", "running", "paused")  # a process has it
ACTIVE = ("queued", *GOING)
RESUMABLE = ("interrupted", "stopped", "failed", "diverged")
ENDED = ("finished", *RESUMABLE)
STATES = (*ACTIVE, *ENDED)

# state -> the states that its worker may give it
MOVES: dict[str, tuple[str, ...]] = {
    "queued": ("starting", "stopped", "failed"),
    "starting": ("running", "paused", *ENDED),
    "running": ("paused", *ENDED),
    "paused": ("running", *ENDED),
    **dict.fromkeys(ENDED, ()),  # only a resume leads out of an ending
}

COUNTERS = ("step", "tokens", "env_steps", "seconds")  # counters of every step, beside its metrics
NO_PLACE = "waiting for a free place"
Severity = Literal["problem", "warning", "note"]  # of the doctor's findings
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the most severe first
# Projects that the lab gives to runs of its own: lists leave these runs out unless they are asked for.
LESSONS, STUDIES = "Lessons", "Studies"
APART = (LESSONS, STUDIES)
COMMANDS = ("pause", "resume", "step", "stop", "set")
# command -> the state in which a live run is until its step ends and the worker does it
PENDING = {"stop": "stopping", "pause": "pausing"}

# kind of event -> what its payload may hold; nothing else can be logged
EVENTS: dict[str, tuple[str, ...]] = {
    "queued": ("resume", "warm_up"), "started": (), "forked": ("run", "from"), "resumed": ("from",),
    "sft": ("base", "cached"), "checkpoint": ("seconds",), "knob": ("knob", "from", "to", "update", "between", "text"),
    "doctor": ("rule", "severity", "verdict", "evidence", "fix", "knob", "value", "began", "holds",
               "text"),
    "refused": ("knob", "value", "text", "update", "between"), "paused": (), "stepped": (),
    "log": ("to",), "note": ("text",), "unpublished": ("text",), "published": ("text",),
    "rung": ("metric", "value", "kept", "text"), "alert": ("to", "rule", "sent", "text"),
    **dict.fromkeys(ENDED, ("text",)),
}


class Garbled(Exception):
    """A row holds a value that the lab never wrote. The message names it in a few words."""


@dataclass(frozen=True)
class Marks:
    """The owner's marks on a run or on imported metrics. `deleted` is when it was put into the trash, unix time;
    `project` the label that groups it with others."""

    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    deleted: float | None = None
    project: str = ""


@dataclass(frozen=True)
class RunRow:
    """One run as it stands. Times are unix seconds; `seconds` are active ones, pauses left out.

    `base` is the id of the SFT run that made its base model, `sweep` that of the sweep it is part of, if there is one.
    `number` counts the lab's runs in the order in which they were made; below 0 it is the place in its sweep. `asked`
    is a command that its worker has not applied yet. `places` is the number of places in the lab, all of which other
    runs hold while it waits; `stops_early` means that early stopping asked it to stop. The last five are its `Marks`.
    """

    id: str
    spec: RunSpec
    state: str
    message: str
    created: float
    started: float | None
    ended: float | None
    pid: int | None
    host: str | None
    heartbeat: float | None
    step: int
    seconds: float
    base: str | None
    sweep: str | None = None
    number: int = 0
    asked: str | None = None
    places: int | None = None
    stops_early: bool = False
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    deleted: float | None = None
    project: str = ""

    @property
    def pending(self) -> str:
        """The state that a live run takes once its step ends: "stopping" or "pausing"; empty for nothing."""
        return PENDING.get(self.asked or "", "") if self.state in GOING else ""

    @property
    def crowded_out(self) -> bool:
        """True if it waits because as many runs as allowed are running or paused."""
        return self.state == "queued" and self.places is not None

    @property
    def early(self) -> bool:
        """True if the early stopping of its sweep has stopped it."""
        return self.state == "stopped" and self.stops_early


@dataclass(frozen=True)
class Step:
    """One logged step, exactly as the loop gave it."""

    step: int
    tokens: int
    env_steps: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Event:
    """Something that happened to a run at `step`; ids grow with time."""

    id: int
    step: int
    kind: str
    payload: dict[str, Any]
    time: float


@dataclass(frozen=True)
class Decision:
    """The decision of early stopping on a run at `step`: an event `rung`."""

    event: int
    run_id: str
    step: int
    payload: dict[str, Any]


@dataclass(frozen=True)
class Control:
    """A control requested of a run. `state`: asked, applied, refused (with the reason), or superseded by a later
    one."""

    id: int
    command: str
    payload: dict[str, Any]
    state: str = "asked"
    step: int | None = None
    refused: str | None = None
