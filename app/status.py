"""Plain words for the states of a run, for times and for sizes; the progress of runs as HTML. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labcore.catalog import amounts
from labcore.catalog.amounts import duration as duration
from labcore.runs.store.rows import RunRow

# state: (colour of its dot, its name, what to do next). Red is for failure only.
STATES: dict[str, tuple[str, str, str]] = {
    "queued": ("#8A939D", "Queued", "It starts when a place is free: as many runs at a time as there are cores."),
    "starting": ("#56B4E9", "Starting", ""),
    "running": ("#009E73", "Running", ""),
    "paused": ("#E69F00", "Paused", "Step makes one step; Resume continues. Knobs can be moved while it is paused."),
    "finished": ("#0072B2", "Finished", "Change a knob or the seed and run again, or export the trained model."),
    "stopped": ("#8A939D", "Stopped", "Resume continues from the last checkpoint."),
    "interrupted": ("#E69F00", "Interrupted", "Nothing is lost: Resume continues from the last checkpoint."),
    "diverged": ("#D32F2F", "Diverged", "Its metrics and its last good checkpoint are kept."),
    "failed": ("#D32F2F", "Failed", "Its results so far are kept."),
}


volume = amounts.size  # of files

# What a live run was asked to do, until its step ends.
PENDING = {"stopping": "Stopping", "pausing": "Pausing"}


def name_of(run: RunRow) -> str:
    """The name of a run's state. If the run was asked to stop or to pause, the name says that it is stopping or
    pausing."""
    return PENDING.get(run.pending) or STATES[run.state][1]


def failed_at_once(state: str, step: int) -> bool:
    """Return True if a run failed before its first step: no checkpoint exists, so Resume begins anew."""
    return state == "failed" and not step


# The next action for a watched run.
ELSEWHERE = {"finished": "Compare it with other runs, or share it as one HTML file."}


def what_next(state: str, step: int, elsewhere: bool = False) -> str:
    """Return the next action for a run at `step`, trained here or `elsewhere`; empty if there is none."""
    if elsewhere:
        return ELSEWHERE.get(state, "")
    return "Fix that, then run it again." if failed_at_once(state, step) else STATES[state][2]


def of_steps(step: int, steps: int) -> str:
    """Return the steps done and the total, or only the steps done if the total is unknown.

    >>> of_steps(1000, 2000), of_steps(7, 0)
    ('1,000 of 2,000', '7')
    """
    return f"{step:,} of {steps:,}" if steps else f"{step:,}"


def done_share(step: int, steps: int) -> float:
    """Return the share of a run's steps that are done; 0 if the total is unknown."""
    return step / steps if steps else 0.0


# ---- how far runs are, as HTML ------------------------------------------------------------------------------------


def bar(share: float, colour: str = STATES["running"][0]) -> str:
    """A thin line of which a share, from 0 to 1, is filled."""
    return f'<div class="rl-bar"><i style="width:{min(1.0, share):.1%};background:{colour}"></i></div>'


def counts(runs: Iterable[RunRow]) -> str:
    """The number of runs in each state, with its dot: HTML."""
    states = Counter((STATES[run.state][0], "stopped early" if run.early else name_of(run).lower()) for run in runs)
    return " ".join(f'<span><span class="rl-dot" style="background:{colour};margin:0 .35rem 0 .8rem"></span>'
                    f"{count:,} {state}</span>" for (colour, state), count in states.items())
