"""Early stopping by a process of its own: what it decides, what it asks for, and that no death changes a decision."""

import json
import os
import signal
import threading

import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs import sweep as sweeps
from labcore.runs.halving import Halving, Rungs, lacks_optuna
from labcore.runs.spec.session import Record
from labcore.runs.store.schema import sweeps as sweeps_table
from labcore.runs.sweep import grid, queue, resume, sweep, unjudged
from labcore.workers import judge as module
from labcore.workers.judge import Judge, Judging
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.runs import fake
from tests.runs.test_sweep import maze
from tests.words import says
from tests.workers.tools import LIGHT, until

pytestmark = pytest.mark.skipif(lacks_optuna(), reason="Optuna is not installed: pip install -r "
                                "requirements-sweeps.txt")
HOW = Halving("reward", 4, 3)
REWARDS = (0.5, 0.4, 0.6, 0.55, 0.1, 0.58)


@pytest.fixture
def going(store):
    """A sweep of six runs of this process which are at step 4."""
    sweep_id = queue(store, grid(fake.grpo(), {}, range(6)), mine=True, early=HOW)
    for run, reward in zip(sweep(store, sweep_id).runs, REWARDS, strict=True):
        store.set_state(run.id, "running")
        rows(store, run.id, reward, range(1, 5))
    return sweep_id


def rows(store, run_id, reward, steps) -> None:
    for step in steps:
        store.append(run_id, Record(step, step, {"reward": reward}), float(step))


def judge(store, sweep_id) -> Judge:
    return Judge(store, sweep_id, sweeps.early_stopping(store, sweep_id))


def to_stop(store, sweep_id) -> list[int]:
    """The seeds of the runs that were asked to stop."""
    return [run.spec.seed for run in sweep(store, sweep_id).runs if store.asked(run.id)]


def decided(store, sweep_id) -> list[tuple[int, int, bool]]:
    seeds = {run.id: run.spec.seed for run in store.sweep_runs(sweep_id)}
    return [(seeds[each.run_id], each.step, each.payload["kept"]) for each in store.decisions(sweep_id)[1]]


def test_the_worse_are_asked_to_stop_in_words_and_each_is_judged_once(store, going):
    one = judge(store, going)
    for _ in range(3):
        one.look()
    assert decided(store, going) == [(0, 4, True), (1, 4, False), (2, 4, True), (3, 4, False), (4, 4, False),
                                     (5, 4, True)]
    assert to_stop(store, going) == [1, 3, 4]
    run = sweep(store, going).runs[4]
    [control] = store.asked(run.id)
    assert control.payload["early"] is True
    assert says(control.payload["why"], "step 4", "reward 0.1", "best third of 5 runs")


def test_another_judge_knows_all_that_was_decided_and_goes_on_from_there(store, going):
    judge(store, going).look()
    before = decided(store, going)
    ids = [run.id for run in sweep(store, going).runs]
    rows(store, ids[2], 0.7, range(5, 13))
    rows(store, ids[5], 0.6, range(5, 13))
    another = judge(store, going)
    another.look()
    assert decided(store, going) == [*before, (2, 12, True), (5, 12, False)]
    again = Rungs(HOW)
    assert [again.came(each.run_id, each.step, each.payload["value"])[0]
            for each in store.decisions(going)[1]] == [kept for *_, kept in decided(store, going)]


def test_two_judges_of_two_labs_decide_each_rung_once(store, going):
    first, second = judge(store, going), judge(store, going)
    first.look()
    second.look()  # finds out that it knew nothing of these
    second.look()
    assert len(decided(store, going)) == 6 and store.decisions(going)[0] == 6
    ids = [run.id for run in sweep(store, going).runs]
    rows(store, ids[2], 0.7, range(5, 13))
    second.look()
    first.look()
    assert decided(store, going)[6:] == [(2, 12, True)]
    assert [len(store.asked(run_id)) for run_id in ids] == [0, 1, 0, 1, 1, 0]


class Died(BaseException):
    """A kill."""


@pytest.mark.parametrize("point", ["columns", "decide", "ask"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_point_the_decisions_and_the_stops_are_the_same(store, going, monkeypatch, point, when):
    whole = [(0, 4, True), (1, 4, False), (2, 4, True), (3, 4, False), (4, 4, False), (5, 4, True)]
    real = getattr(store, point)

    def killed(*given):
        if when == "after":
            real(*given)
        raise Died

    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(store, point, killed)
            judge(store, going).look()
        judge(store, going)  # as it starts again, it remembers
        if point == "ask" and when == "after" and len(to_stop(store, going)) == 3:
            break
    judge(store, going).look()
    assert decided(store, going) == whole and to_stop(store, going) == [1, 3, 4]
    assert all(len(store.asked(run.id)) < 2 for run in sweep(store, going).runs)


def test_a_stop_that_was_lost_with_the_lab_is_asked_again(store, going):
    judge(store, going).look()
    run = sweep(store, going).runs[1]
    store.set_state(run.id, "interrupted")
    assert not store.asked(run.id)
    judge(store, going).look()
    assert store.run(run.id).state == "interrupted"
    assert resume(store, going) == [run.id]
    judge(store, going).look()
    assert store.run(run.id).early and store.run(run.id).message.startswith("Stopped early at step 4: its reward 0.4")


def test_what_was_stopped_early_is_left_out_of_a_resume_and_left_alone_when_it_is_resumed_by_hand(store, going):
    one = judge(store, going)
    one.look()
    run = sweep(store, going).runs[4]
    drive_stop(store, run.id)
    assert store.run(run.id).early and resume(store, going) == []
    store.requeue(run.id, mine=True)
    store.set_state(run.id, "running")
    rows(store, run.id, 0.1, range(5, 13))
    one.look()
    judge(store, going).look()
    assert not store.asked(run.id) and store.run(run.id).state == "running"


def drive_stop(store, run_id) -> None:
    """What a worker makes of the stop."""
    [control] = store.asked(run_id)
    store.settle(control.id, 4)
    store.set_state(run_id, "stopped", control.payload["why"], log=("stopped", {"text": control.payload["why"]}))


def test_a_worker_ends_with_the_words_of_the_judge(store):
    sweep_id = queue(store, grid(fake.grpo(12), {}, [0]), early=HOW)
    [run] = sweep(store, sweep_id).runs
    why = "Stopped early at step 5: its reward 0.1 is not among the best third of 9 runs at this step."
    state = drive(store, run.id, start=fake.start,
                  on_record=lambda _run, record, _: record.step == 5 and store.ask(
                      run.id, "stop", {"why": why, "early": True}))
    assert state == "stopped" and store.run(run.id).message == why and store.run(run.id).early
    assert store.events_after(run.id)[-1].payload == {"text": why}


def test_what_finished_before_it_was_judged_counts_for_the_others(store, going):
    ids = [run.id for run in sweep(store, going).runs]
    store.set_state(ids[2], "finished")
    store.set_state(ids[4], "finished")
    judge(store, going).look()
    assert decided(store, going)[2:5] == [(2, 4, True), (3, 4, False), (4, 4, False)]
    assert store.events_after(ids[4])[-1].payload["text"].startswith("Finished before it was judged at step 4")
    assert store.run(ids[4]).state == "finished" and not store.run(ids[4]).early


def test_what_failed_or_has_no_such_metric_is_not_judged(store):
    sweep_id = queue(store, grid(fake.grpo(), {}, range(2)), mine=True, early=HOW)
    failed, mute = (run.id for run in sweep(store, sweep_id).runs)
    for run_id, metric in ((failed, "reward"), (mute, "kl")):
        store.set_state(run_id, "running")
        for step in range(1, 5):
            store.append(run_id, Record(step, step, {metric: 1.0}), 1.0)
    store.set_state(failed, "diverged")
    one = judge(store, sweep_id)
    one.look()
    one.look()
    assert decided(store, sweep_id) == []


def test_a_judge_is_started_where_there_is_something_to_judge_and_ends_with_it(store, going):
    judging = Judging(store)
    judging.fill()
    try:
        until(lambda: len(decided(store, going)) == 6)
        process = judging._process
        judging.fill()
        assert judging._process is process, "one is enough"
        for run in sweep(store, going).runs:
            store.set_state(run.id, "stopped")
        assert process.wait(20) == 0
        judging.fill()
        assert judging._process is None or judging._process.poll() is not None
    finally:
        judging.cut()


def test_a_judge_that_fails_at_once_is_not_started_for_ever(store, going, monkeypatch):
    monkeypatch.setattr(module, "COMMAND", ("false",))
    judging = Judging(store)
    for _ in range(5):
        judging.fill()
        if judging._process:
            judging._process.wait(10)
    assert judging._faults == module.TRIES and judging._process is None


OFF = "Early stopping is off for this sweep ("


def given_up(judging) -> None:
    for _ in range(module.TRIES + 1):
        judging.fill()
        if judging._process:
            judging._process.wait(60)


def test_a_judge_that_was_given_up_is_said_of_its_sweeps_until_one_works(store, going, monkeypatch, capsys):
    assert unjudged(store, going) == ""
    with monkeypatch.context() as patch:
        patch.setattr(module, "COMMAND", ("sh", "-c", "exit 3"))
        given_up(judging := Judging(store))
        assert says(unjudged(store, going), "process that decides", "3 times", "code 3")
        later = queue(store, grid(fake.grpo(), {}, range(2)), early=HOW)
        judging.fill()
        assert unjudged(store, later).startswith(OFF), "also of a sweep that is queued afterwards"
    assert main(["sweeps", going, "--status"]) == 0 and OFF in capsys.readouterr().out
    assert main(["sweeps", going, "--status", "--json"]) == 0 and OFF in json.loads(
        capsys.readouterr().out)["early_stopping_off"]
    assert module._look(store, {})
    assert unjudged(store, going) == unjudged(store, later) == ""
    judging.fill()
    assert unjudged(store, going) == "", "the lab that gave up says it once: another one may judge"


def test_a_fault_of_the_judge_is_said_in_its_own_words(store, going, monkeypatch):
    """The real process, three times: what it is to go by cannot be read."""
    with store._writing() as connection:
        connection.execute(sweeps_table.update(), {"halving": '{"metric": "reward"}'})
    given_up(Judging(store))
    assert unjudged(store, going).startswith(f"{OFF}TypeError: ") and "min_steps" in unjudged(store, going)


def test_a_store_that_refuses_a_decision_is_said_until_it_takes_one(store, going, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store, "decide", lambda *_: (_ for _ in ()).throw(LabError("The disk is full.")))
        assert module._look(store, {})
    assert says(unjudged(store, going), "The disk is full", "no more runs are stopped early")
    module._look(store, {})
    assert unjudged(store, going) == "" and len(decided(store, going)) == 6


def test_without_optuna_it_ends_with_a_sentence_and_the_sweep_says_so(store, going, monkeypatch):
    monkeypatch.setattr(module, "lacks_optuna", lambda: True)
    with pytest.raises(SystemExit, match="Early stopping needs Optuna"):
        module.main()
    assert unjudged(store, going).startswith(f"{OFF}Optuna is not installed: run pip install -r requirements-sweeps")


def test_the_supervisor_has_no_threads_of_it(store, going):
    before, judging = threading.active_count(), Judging(store)
    judging.fill()
    try:
        assert judging._process and threading.active_count() == before
    finally:
        judging.cut()


def test_a_supervisor_killed_in_the_middle_of_a_sweep_changes_no_decision(store, monkeypatch):
    """Through launcher, supervisor, workers and judge: waiting runs start, one command resumes the interrupted ones."""
    monkeypatch.setenv("RL_LAB_MAX_RUNS", "2")
    specs = grid(maze(60, pace=15), {"alpha": [0.3, 0.001, 0.9]}, [0, 1])
    sweep_id = queue(store, specs, early=Halving("episode_return", 6, 3))
    lab = Launcher(store, LIGHT)
    try:
        until(lambda: len(store.decisions(sweep_id)[1]) >= 3, 60)
        before = store.decisions(sweep_id)[1]
        os.kill(lab._process.pid, signal.SIGKILL)
        until(lambda: "interrupted" in store.tally(sweep_id), 60)
        until(lambda: not sweep(store, sweep_id).active, 60)
        assert resume(store, sweep_id)
        lab.wake()
        until(lambda: not sweep(store, sweep_id).active, 60)
    finally:
        lab.close()
    runs = sweep(store, sweep_id).runs
    assert {run.state for run in runs} == {"finished", "stopped"}
    assert all(run.early for run in runs if run.state == "stopped")
    after = store.decisions(sweep_id)[1]
    assert after[:len(before)] == before and len({(each.run_id, each.step) for each in after}) == len(after)
    again = Rungs(Halving("episode_return", 6, 3))
    assert [again.came(each.run_id, each.step, each.payload["value"])[0] for each in after] == [
        each.payload["kept"] for each in after]
    for run in runs:
        steps = [step.step for step in store.steps_after(run.id)]
        assert steps == list(range(1, len(steps) + 1)), "no row is lost or doubled"
