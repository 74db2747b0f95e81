"""Sweeps from the command line."""

import json
from dataclasses import replace
from functools import partial

import pytest

from labcore.cli import sweeping
from labcore.cli.main import main
from labcore.runs import halving
from labcore.runs import sweep as engine
from labcore.runs.files.paths import home
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher
from tests.cli.test_main import refused
from tests.runs.test_sweep import maze
from tests.words import says
from tests.workers.tools import LIGHT

MAZE = ("sweep", "--kind", "maze", "--algorithm", "q_learning", "--task", "slippery", "--set", "pace=0", "--steps",
        "12")


@pytest.fixture(autouse=True)
def light(monkeypatch):
    """A supervisor without torch."""
    monkeypatch.setattr(sweeping, "Launcher", partial(Launcher, command=LIGHT))


def test_a_sweep_runs_and_ends_in_a_table(capsys, store):
    """A queued run that is not part of the sweep stays queued."""
    other = store.create(maze(100_000))
    assert main([*MAZE, "--sweep", "alpha=0.1,0.5", "--seeds", "0,4", "--metric", "value_error", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert store.run(other) == replace(store.run(other), state="queued", message="", started=None)
    assert (got["axes"], got["seeds"], got["states"]) == ({"alpha": [0.1, 0.5]}, [0, 4], {"finished": 4})
    assert [(run["knobs"], run["seed"], run["step"]) for run in got["runs"]] == [
        ({"alpha": alpha}, seed, 12) for seed in (0, 4) for alpha in (0.1, 0.5)]
    assert got["table"]["metric"] == "value_error" and [row["seeds"] for row in got["table"]["rows"]] == [2, 2]
    assert main(["sweeps"]) == 0
    assert f"{got['sweep']}" in (said := capsys.readouterr().out)
    assert "q_learning on slippery: alpha 0.1, 0.5 × 2 seeds  (4 finished)" in said
    assert got["progress"]["finished"] == 4 and got["progress"]["left"] is None
    assert main(["sweeps", got["sweep"], "--status"]) == 0
    assert capsys.readouterr().out == f"{got['sweep']}: 4 finished; 48 of 48 steps\n"
    assert main(["sweeps", got["sweep"]]) == 0
    said = capsys.readouterr().out
    assert "alpha 0.1, seed 4" in said and "Q-learning alpha 0.5" in said
    assert main(["sweeps", "--json"]) == 0 and json.loads(capsys.readouterr().out)[0]["sweep"] == got["sweep"]


def test_cancel_and_resume(capsys, store):
    sweep_id = engine.queue(store, engine.grid(maze(8), {"alpha": [0.1, 0.5]}, [0]))
    assert main(["sweeps", sweep_id, "--cancel"]) == 0 and "2 runs stopped" in capsys.readouterr().out
    assert engine.sweep(store, sweep_id).states == {"stopped": 2}
    [first, _] = store.sweep_runs(sweep_id)
    store.requeue(first.id, mine=True)
    store.set_state(first.id, "running")
    assert main(["sweeps", sweep_id, "--cancel"]) == 0
    assert f"{sweep_id}: 1 run stops after its current step." in capsys.readouterr().out
    store.set_state(first.id, "stopped")
    assert main(["sweeps", sweep_id, "--cancel"]) == 0 and "no run is queued or running" in capsys.readouterr().out
    assert main(["sweeps", sweep_id]) == 0 and "stopped before it started" in capsys.readouterr().out
    assert main(["sweeps", sweep_id, "--resume"]) == 0
    assert engine.sweep(store, sweep_id).states == {"finished": 2}
    capsys.readouterr()
    assert "nothing to resume" in refused(capsys, "sweeps", sweep_id, "--resume")


def test_while_it_goes_its_status_says_how_long_it_will_take(capsys, store):
    sweep_id = engine.queue(store, engine.grid(maze(8), {"alpha": [0.1, 0.5]}, [0]))
    assert main(["sweeps", sweep_id, "--status"]) == 0
    assert capsys.readouterr().out == f"{sweep_id}: 2 waiting; 0 of 16 steps\n", "nothing is known yet"
    first = engine.sweep(store, sweep_id).runs[0].id
    store.claim(first)
    store.set_state(first, "running")
    store.append(first, Record(4, 0, {"episode_return": 1.0}), 60.0)
    assert main(["sweeps", sweep_id, "--status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == pytest.approx(15.0 * (4 + 8) + 0.4)
    assert main(["sweeps", sweep_id, "--status"]) == 0
    assert says(capsys.readouterr().out, "1 running, 1 waiting", "4 of 16 steps", "0:03:00 left", "1 run of this sweep",
                "1 at a time")


def test_while_no_run_of_it_can_be_started_the_reason_is_said_once_per_change(capsys, monkeypatch, store):
    sweep_id = engine.queue(store, engine.grid(maze(8), {"alpha": [0.1, 0.5]}, [0]))
    first, second = (run.id for run in engine.sweep(store, sweep_id).runs)
    no_process = "waiting for a process: none could be started (Resource temporarily unavailable)"
    told = iter([{}, {first: no_process, second: no_process}, {}, {}, {first: "waiting for the disk"}, {}])

    class Waking:
        """In the place of a launcher whose supervisor says at each look what its runs wait for, and then gives up."""

        def wake(self):
            said = next(told, None)
            if said is None:
                engine.cancel(store, sweep_id)
            else:
                store.set_waiting(said)

    monkeypatch.setattr(sweeping, "WAKE_SECONDS", 0.0)
    monkeypatch.setattr(sweeping, "POLL_SECONDS", 0.001)
    assert sweeping.wait(store, sweep_id, Waking()) == {"stopped"}
    assert capsys.readouterr().err.splitlines() == [
        f"{sweep_id}: 2 waiting; 0 of 16 steps", f"{sweep_id}: {no_process}", f"{sweep_id}: waiting for the disk",
        f"{sweep_id}: 2 stopped or interrupted; 0 of 16 steps"]


def test_ctrl_c_stops_all_and_loses_nothing(capsys, monkeypatch):
    def interrupted(*_given):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "wait", interrupted)
    assert main([*MAZE, "--sweep", "alpha=0.1,0.5"]) == 130
    assert "--resume" in capsys.readouterr().err
    [found] = engine.sweeps(Store())
    assert not found.active and len(found.runs) == 6


@pytest.mark.parametrize("given, words", [
    (("--sweep", "alpha"), "is no KNOB=VALUE"),
    (("--sweep", "alpha=0.1", "--sweep", "alpha=0.2"), "The knob alpha is swept twice"),
    (("--sweep", "alpha=0.1,"), "`alpha` must be a number"),
    (("--seeds", "a"), "write whole numbers with commas"),
    (("--metric", "rewrad"), "There is no metric 'rewrad'"),
    (("--min-steps", "3"), "--min-steps and --reduction-factor belong to early stopping"),
    (("--early-stopping", "entropy"), "cannot use 'entropy' of Q-learning"),
    (("--early-stopping", "--min-steps", "12"), "begins after 12 steps, and the runs have 12"),
])
def test_what_cannot_be_is_one_sentence_and_nothing_is_queued(capsys, given, words):
    assert words in refused(capsys, *MAZE, *given)
    assert not (home() / "lab.db").exists()


def test_without_optuna_early_stopping_is_one_sentence_and_nothing_is_queued(capsys, monkeypatch):
    monkeypatch.setattr(halving, "find_spec", lambda name: None)
    assert "run pip install -r requirements-sweeps.txt" in refused(capsys, *MAZE, "--early-stopping")
    assert not (home() / "lab.db").exists()


@pytest.mark.skipif(halving.lacks_optuna(), reason="Optuna is not installed: pip install -r requirements-sweeps.txt")
def test_a_sweep_is_stopped_early_and_says_so(capsys):
    assert main([*MAZE[:-3], "pace=8", "--steps", "40", "--sweep", "alpha=0.3,0.001", "--seeds", "0,1",
                 "--early-stopping", "episode_return", "--min-steps", "4", "--reduction-factor", "2", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["early_stopping"] == {"metric": "episode_return", "min_steps": 4, "factor": 2}
    assert got["progress"]["early"] == got["states"]["stopped"] > 0 and got["progress"]["spared"] > 0
    assert main(["sweeps", got["sweep"]]) == 0
    said = capsys.readouterr().out
    assert f"{got['progress']['early']} stopped early" in said and "Stopped early at step " in said
    assert says(said, "after 4 steps", "after 8", "continues only if", "best half")
    assert "nothing to resume" in refused(capsys, "sweeps", got["sweep"], "--resume")


def test_of_a_large_sweep_the_first_runs_and_the_best_settings_are_named(capsys, store):
    specs = engine.grid(maze(2), {"alpha": [0.1, 0.2, 0.3, 0.4, 0.5]}, range(14))
    sweep_id = engine.queue(store, specs, mine=True)
    for run in engine.sweep(store, sweep_id).runs:
        store.set_state(run.id, "running")
        store.append(run.id, Record(1, 0, {"episode_return": run.spec.knobs["alpha"]}), 1.0)
        if run.spec.knobs["alpha"] != 0.5 or run.spec.seed:
            store.set_state(run.id, "finished")
    assert main(["sweeps", sweep_id, "--metric", "episode_return"]) == 0
    said = capsys.readouterr().out
    assert "and 6 more: --json lists all" in said
    lines = said.splitlines()[-5:]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4", "–"]
    assert lines[0].split()[1:5] == ["0.4", "14", "of", "14"] and lines[4].split()[1:5] == ["0.5", "13", "of", "14"]


def test_a_sweep_that_there_is_not(capsys):
    assert "There is no sweep 'x'" in refused(capsys, "sweeps", "x")
    assert "There is no sweep 'x'" in refused(capsys, "sweeps", "x", "--cancel")
    assert "The sweep is missing" in refused(capsys, "sweeps", "--cancel")
    assert main(["sweeps"]) == 0 and "No sweeps yet" in capsys.readouterr().out
