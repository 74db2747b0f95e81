"""A run in a maze: bit for bit the same again, resumed and forked, planning that settles, and what can go wrong."""

import json
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from labcore.catalog.maze import ALGORITHMS
from labcore.classic.envs.maze_text import from_rows, to_text
from labcore.classic.tabular.session import TabularSession
from labcore.errors import Diverged, LabError
from labcore.runs.spec.run_spec import make
from labcore.workers.pictures import finite
from tests.classic.forks import child_of, saved_at
from tests.classic.tabular.tabular import GRADIENT, LEARNING, PLANNING, each_method, records, start
from tests.every import now


def tables_of(session, folder: Path):
    folder.mkdir()
    session.save(folder)
    return load_file(folder / "tables.safetensors"), json.loads((folder / "state.json").read_text("utf-8"))


# ---------------------------------------------------------------------------- the same again


@each_method
def test_a_run_again_and_its_resumption(method, tmp_path):
    """Also the numbers of the pictures, in a maze whose steps slip, so that methods draw from their own generator."""
    np.random.seed(0)
    saved_at, session = 4, start(method, "slippery", steps=10)
    found = []
    for record in session.run():
        if record is not None:
            found.append(record)
            if record.step == saved_at:
                (tmp_path / "checkpoint").mkdir()
                session.save(tmp_path / "checkpoint")
    np.random.seed(1)
    assert records(start(method, "slippery", steps=10)) == found
    resumed = start(method, "slippery", steps=10, resume=tmp_path / "checkpoint")
    assert (resumed.step, resumed.env_steps) == (saved_at, found[saved_at - 1].env_steps)
    rest = records(resumed)
    assert resumed.finished_because == session.finished_because
    assert rest == found[saved_at:] and len(rest) > 3
    (arrays, state), (others, other) = (tables_of(run, tmp_path / name) for run, name in (
        (session, "whole"), (resumed, "resumed")))
    assert state == other and all((arrays[name] == others[name]).all() for name in arrays)
    if method not in PLANNING:
        assert records(start(method, "slippery", steps=5, seed=2)) != found[:5]


@pytest.mark.parametrize("method", now(ALGORITHMS, "value_iteration", "q_learning", "sarsa_lambda", "ppo"))
def test_a_knob_moved_in_mid_run_counts_from_there(method, tmp_path):
    """A session that is resumed has it too."""
    short = {} if method in PLANNING else {"step_limit": 40}
    moved, still = (start(method, "corridors", steps=12, **short) for _ in range(2))
    first, second = ([], [])
    for session, found in ((moved, first), (still, second)):
        for record in session.run():
            found.append((record.metrics, record.samples["q"], record.samples["values"]))
            if record.step == 6 and session is moved:
                session.knobs["gamma"] = 0.5
                session.save(tmp_path)
    resumed = start(method, "corridors", steps=12, resume=tmp_path, **short)
    assert [record.metrics for record in resumed.run()] == [metrics for metrics, *_ in first[6:]]
    assert first[:6] == second[:6] and first[-1] != second[-1]
    assert moved.best()[0][moved.maze.start] < still.best()[0][still.maze.start], "V* is that of the new γ"


@pytest.mark.parametrize("method", LEARNING + GRADIENT)
def test_a_step_size_of_0_stops_the_learning(method):
    session = start(method, steps=30)
    rows = session.run()
    list(islice(rows, 10))
    session.knobs.update({"alpha": 0.0} | ({"value_alpha": 0.0} if method in GRADIENT else {}))
    before = session.estimates().values.copy()
    policy = session.estimates().greedy
    assert len(list(rows)) == 20
    after = session.estimates()
    assert (after.values == before).all() and (after.greedy == policy).all()


def test_a_longest_episode_and_a_pace_are_live():
    session = start("q_learning", "corridors", steps=6, epsilon=1.0, epsilon_end=1.0, step_limit=30)
    lengths = []
    for record in session.run():
        lengths.append(record.metrics["episode_length"])
        session.knobs["step_limit"] = 30 if len(lengths) < 3 else 10
    assert max(lengths[:3]) == 30 and max(lengths[4:]) == 10
    slow = start("q_learning", steps=3, pace=20.0)
    rows = list(slow.run())
    assert rows.count(None) >= 2 and len(rows) - rows.count(None) == 3, "the worker can look up while it waits"


# ---------------------------------------------------------------------------- planning


@pytest.mark.parametrize("method", now(PLANNING, "value_iteration", "policy_evaluation"))
def test_planning_settles_and_says_so(method):
    session = start(method, "slippery", steps=2000, tolerance=1e-9)
    found = records(session)
    assert session.finished_because == f"settled after {session.sweep.number} sweeps" and len(found) < 2000
    last = found[-1].metrics
    assert last["value_change"] <= 1e-9 and last["value_error"] < 1e-7 and last["value_error/max"] < 1e-6
    short = start(method, "slippery", steps=3)
    assert len(records(short)) == 3 and short.finished_because == "all 3 steps done"


def test_value_iteration_is_exact_in_the_end():
    last = records(start("value_iteration", steps=100, tolerance=1e-12))[-1]
    assert last.metrics["value_error"] == pytest.approx(0, abs=1e-12) and last.step == 5
    assert last.metrics["q_error"] == pytest.approx(0, abs=1e-12)
    assert last.samples["values"] == last.samples["optimal"] == [8.1, 9, 10, 7.29, 0, 0]


def test_a_settled_run_that_is_resumed_is_still_settled(tmp_path):
    session = start("policy_iteration", steps=500)
    records(session)
    session.save(tmp_path)
    again = start("policy_iteration", steps=500, resume=tmp_path)
    assert records(again) == [] and again.finished_because == session.finished_because


def test_a_discount_that_is_moved_sets_planning_going_again():
    session = start("value_iteration", "corridors", steps=200, tolerance=1e-9)
    for record in session.run():
        if record.step == 20:
            session.knobs["gamma"] = 0.9
    assert session.finished_because.startswith("settled") and record.metrics["value_error"] < 1e-7
    assert record.samples["gamma"] == 0.9


# ---------------------------------------------------------------------------- what can go wrong


@each_method
def test_gamma_1_where_it_is_best_to_walk_for_ever(method):
    """A reward that is paid again and again: there is no V*, so nothing is measured against it."""
    maze = to_text(from_rows(["SR.G"], [1.0, 10.0], gamma=1.0))
    session = start(method, "own", steps=6, gamma=1.0, maze=maze, **({} if method in PLANNING else {"step_limit": 40}))
    found = records(session)
    assert len(found) == 6
    for record in found:
        assert "start_value/best" not in record.metrics
        assert record.samples["optimal"] is None and all(map(math.isfinite, record.metrics.values()))
        assert ("value_error" in record.metrics) == (method == "policy_evaluation"), "a random walk does end"


def test_a_walled_in_start_is_planned_and_walked_all_the_same():
    maze = to_text(from_rows(["S#G"]))
    for method, knobs in (("value_iteration", {}), ("policy_evaluation", {}), ("sarsa", {"step_limit": 5})):
        found = records(start(method, "own", steps=3, maze=maze, **knobs))
        assert found and found[-1].metrics["start_value"] == 0 == found[-1].metrics["value_error"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", now(LEARNING, "q_learning", "monte_carlo", "sarsa_lambda"))
def test_a_table_that_diverges_is_reported(method):
    """A step size of 100 in a maze that pays at every step."""
    session = start(method, "corridors", steps=500, alpha=100.0, step_limit=200)
    with pytest.raises(Diverged, match=r"value table was not a finite number at step \d+"):
        for record in session.run():
            json.dumps(finite(record.samples), allow_nan=False)
            assert all(map(math.isfinite, record.metrics.values()))
    assert session.step < 100


def test_a_checkpoint_that_cannot_be_read_is_said(tmp_path):
    session = start("sarsa", steps=3)
    records(session)
    session.save(tmp_path)
    with pytest.raises(LabError, match=r"The checkpoint .* cannot be read .*: resume from an earlier one"):
        start("sarsa", "corridors", resume=tmp_path)
    with pytest.raises(LabError, match="cannot be read"):
        start("reinforce", resume=tmp_path)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(LabError, match="cannot be read"):
        start("sarsa", resume=tmp_path)


def test_moves_to_the_goal_are_those_of_episodes_that_got_there():
    session = start("q_learning", "corridors", steps=3, epsilon=1.0, epsilon_end=1.0, step_limit=2)
    assert all("moves_to_goal" not in record.metrics for record in session.run() if record is not None)


@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_fork_with_common_random_numbers_is_its_parent_over_again(method, tmp_path):
    spec = make(kind="maze", algorithm_key=method, task_key="slippery", steps=8, knobs={"pace": 0})
    records = saved_at(TabularSession.start(spec), 5, tmp_path / "at")

    def fork(**changes):
        child = TabularSession.start(spec, resume=tmp_path / "at").fork(child_of(spec, **changes))
        return [record for record in child.run() if record is not None]

    assert fork() == records[5:] and len(records) == 8
    if spec.row.loop != "planning":  # which draws no random numbers
        fresh = [fork(twin=False, seed=seed) for seed in (5, 5, 6)]
        assert fresh[0] == fresh[1] != fresh[2] and fresh[0] != records[5:]


def test_a_settled_plan_goes_on_only_where_something_is_new():
    spec = make(kind="maze", algorithm_key="value_iteration", task_key="textbook", steps=500, knobs={"pace": 0})
    settled = TabularSession.start(spec)
    count = len(list(settled.run()))
    more = child_of(spec, steps=1000)
    assert list(settled.fork(more).run()) == []
    far = list(settled.fork(replace(more, knobs={**spec.knobs, "gamma": 0.99})).run())
    assert len(far) > 1 and far[0].step == count + 1
    other = settled.fork(replace(more, algorithm="policy_iteration"))
    assert len(list(other.run())) > 0 and np.allclose(other.sweep.values, settled.sweep.values, atol=1e-3)


def test_a_policy_gradient_begins_with_the_values_of_the_plan_that_it_forks():
    spec = make(kind="maze", algorithm_key="value_iteration", task_key="textbook", steps=3, knobs={"pace": 0})
    plan = TabularSession.start(spec)
    assert len(list(plan.run())) == 3 and plan.sweep.values.any()
    key = next(key for key, row in ALGORITHMS.items() if row.learner.endswith("PolicyLearner"))
    child = plan.fork(child_of(make(kind="maze", algorithm_key=key, task_key="textbook", steps=9, knobs={"pace": 0})))
    assert np.array_equal(child.learner.tables.values, plan.sweep.values) and not child.learner.tables.theta.any()
