"""How far a sweep is, and what its estimate rests on."""

from dataclasses import replace

import pytest

from labcore.analysis.time_left import PER_RUN, progress
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import RunRow
from tests.words import says


def row(state: str, step: int = 0, seconds: float = 0.0, steps: int = 10, beside: float | None = None,
        **more) -> RunRow:
    """A run; `beside` its steps it took so many seconds."""
    spec = make(algorithm_key="grpo", task_key="sort", steps=steps, **more)
    times = {"started": 100.0, "ended": 100.0 + seconds + beside} if beside is not None else {
        "started": None, "ended": None}
    return RunRow("grpo-sort-1", spec, state, "", created=1.0, pid=None, host=None, heartbeat=None, step=step,
                  seconds=seconds, base=None, **times)


def test_every_run_is_counted_once():
    states = ("finished", "finished", "running", "paused", "starting", "queued", "stopped", "interrupted", "failed",
              "diverged")
    found = progress([row(state) for state in states])
    assert found.counts == {"finished": 2, "running": 3, "waiting": 1, "stopped or interrupted": 2, "failed": 2}
    assert (found.runs, found.steps, found.of) == (10, 0, 100)


def test_a_run_that_was_stopped_early_is_none_that_was_stopped():
    early = replace(row("stopped"), stops_early=True)
    assert progress([row("stopped"), early, early]).counts == {"stopped early": 2, "stopped or interrupted": 1}
    assert progress([row("running", 5, 10.0)], stops_early=True).at_most
    stopped = replace(row("stopped", 4, 4.0), stops_early=True)
    found = progress([stopped, row("finished", 10, 10.0)])
    assert (found.steps, found.of, found.spared, found.share) == (14, 20, 6, 1.0)


def test_what_is_left_is_estimated_from_the_pace_of_this_sweep_and_its_places():
    done, going, waits = row("finished", 10, 20.0, beside=3.0), row("running", 5, 10.0), row("queued")
    found = progress([done, going, waits])
    assert found.left == pytest.approx(5 * 2.0 + 3.0 + 10 * 2.0), "one place: the other run begins when this one ends"
    assert says(found.basis, "2 runs", "this sweep", "1 at a time")
    found = progress([done, going, going, waits])
    assert found.left == pytest.approx(33.0) and found.places == 2
    slower = row("finished", 10, 80.0, knobs={"group_size": 16}, beside=3.0)
    found = progress([done, slower, row("running", 5, 10.0, steps=5), row("queued", knobs={"group_size": 16})])
    assert found.left == pytest.approx(3.0 + 80.0), "of its own setting"
    found = progress([done, row("running", 5, 10.0, steps=5), row("queued", knobs={"group_size": 16})])
    assert found.left == pytest.approx(3.0 + 20.0), "of the others, where nothing is known of its own"


def test_a_fork_has_only_the_steps_after_its_parents_before_it():
    fork = replace(row("queued"), spec=replace(row("queued").spec, parent=("grpo-sort-0", 6)))
    assert progress([row("running", 10, 20.0), fork]).left == pytest.approx(PER_RUN + 4 * 2.0)


def test_where_nothing_is_known_or_nothing_goes_nothing_is_said():
    assert progress([row("queued"), row("starting")]).left is None
    stopped = progress([row("finished", 10, 20.0), row("queued")])
    assert stopped.left is None and stopped.basis == "", "nobody works on it"
    assert progress([row("running", 5, 10.0), row("queued")]).left == pytest.approx(10.0 + PER_RUN + 20.0)
    assert progress([row("finished", 10, 20.0)]).left is None
