"""A run in a maze: bit for bit the same again and resumed, pictures that hold their contract, and that it learns."""

from __future__ import annotations

import csv
import json
import math
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from labcore.catalog.maze import ALGORITHMS
from labcore.classic import dynamic_programming, tabular_view
from labcore.classic.dynamic_programming import exact_value, optimal_values
from labcore.classic.tabular_session import Session
from labcore.errors import Diverged, LabError
from labcore.runs.spec import make
from labcore.workers.training import finite
from labcore.worlds.maze_text import from_rows, from_text, to_text

PLANNING = [key for key, row in ALGORITHMS.items() if row.loop == "planning"]
LEARNING = [key for key, row in ALGORITHMS.items() if row.loop == "temporal_difference"]
GRADIENT = [key for key, row in ALGORITHMS.items() if row.loop == "tabular_policy_gradient"]
each_method = pytest.mark.parametrize("method", ALGORITHMS)


def start(method, task="textbook", steps=40, seed=1, resume=None, **knobs):
    """A session at full speed."""
    spec = make(kind="maze", algorithm_key=method, task_key=task, steps=steps, seed=seed, knobs={"pace": 0, **knobs})
    return Session.start(spec, resume=resume)


def records(session):
    return [record for record in session.run() if record is not None]


def tables_of(session, folder: Path):
    folder.mkdir()
    session.save(folder)
    return load_file(folder / "tables.safetensors"), json.loads((folder / "state.json").read_text("utf-8"))


# ---------------------------------------------------------------------------- the same again


@each_method
def test_a_run_and_its_twin_and_its_resumption(method, tmp_path):
    """Also the numbers of the pictures; in a maze whose steps slip, so that everything takes chance."""
    saved_at, session = 7, start(method, "slippery")
    found = []
    for record in session.run():
        if record is not None:
            found.append(record)
            if record.step == saved_at:
                (tmp_path / "checkpoint").mkdir()
                session.save(tmp_path / "checkpoint")
    assert records(start(method, "slippery")) == found
    resumed = start(method, "slippery", resume=tmp_path / "checkpoint")
    assert (resumed.step, resumed.env_steps) == (saved_at, found[saved_at - 1].env_steps)
    rest = records(resumed)
    assert resumed.finished_because == session.finished_because
    assert rest == found[saved_at:] and len(rest) > 3
    (arrays, state), (others, other) = (tables_of(run, tmp_path / name) for run, name in (
        (session, "whole"), (resumed, "resumed")))
    assert state == other and all((arrays[name] == others[name]).all() for name in arrays)
    if method not in PLANNING:
        assert records(start(method, "slippery", seed=2)) != found


@each_method
def test_no_global_random_numbers(method):
    np.random.seed(0)
    first = records(start(method, "slippery", steps=5))
    np.random.seed(1)
    assert records(start(method, "slippery", steps=5)) == first


@each_method
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
    before = tabular_view.tables(session).values.copy()
    policy = tabular_view.preferred(tabular_view.tables(session))
    assert len(list(rows)) == 20
    after = tabular_view.tables(session)
    assert (after.values == before).all() and (tabular_view.preferred(after) == policy).all()


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


@pytest.mark.parametrize("method", PLANNING)
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


# ---------------------------------------------------------------------------- pictures


@each_method
@pytest.mark.parametrize("task", ["textbook", "corridors"])
def test_a_picture_holds_its_contract(method, task):
    session = start(method, task, steps=4, **({} if method in PLANNING else {"step_limit": 400}))
    maze, states = session.maze, session.maze.states
    walls = maze.where("wall").tolist()
    for record in session.run():
        shown = record.samples
        json.dumps(shown, allow_nan=False)
        assert shown["step"] == record.step and from_text(shown["maze"]) == maze
        assert shown["gamma"] == session.knobs["gamma"]
        assert [value is None for value in shown["values"]] == walls and len(shown["values"]) == states
        best = optimal_values(maze.mdp, shown["gamma"])[0]
        np.testing.assert_allclose(shown["optimal"], best, atol=1e-4)
        for table in (shown["policy"], shown["greedy"]):
            assert np.shape(table) == (states, 4)
            np.testing.assert_allclose(np.sum(table, 1), 1, atol=1e-5)
        if shown["q"] is None:
            assert method in GRADIENT
        else:
            assert np.shape(shown["q"]) == (states, 4)
            if method != "policy_evaluation":
                tops = np.max(shown["q"], 1)
                assert shown["values_of"] == ("V" if method in PLANNING else "max Q")
                if method not in ("policy_iteration",):  # there V is that of the policy, Q looks one step ahead
                    np.testing.assert_allclose([v for v in shown["values"] if v is not None],
                                               tops[~np.array(walls)], atol=1e-4)
        (check_sweep if method in PLANNING else check_walk)(shown, session, record)


def check_sweep(shown, session, record):
    assert shown["sweep"]["number"] == session.sweep.number >= 1 and isinstance(shown["sweep"]["improved"], bool)
    change = record.metrics.get("value_change")
    assert shown["sweep"]["change"] == change and (change is not None or shown["sweep"]["improved"])
    assert shown["visits"] is shown["path"] is shown["episode"] is None and shown["moves"] == []
    assert set(shown["last"]) == {str(state) for state in np.flatnonzero(session.within_reach)}
    for state, text in shown["last"].items():
        *lines, made = text.split("\n")
        for line in lines:
            assert line.startswith("Q(s,")
            arithmetic(line.partition(" = ")[2])
        if session.sweep.improved:
            assert made.startswith("π(s) ← ")
            continue
        assert made.startswith("V(s) ← max Q = " if session.maximises else "V(s) ← ")
        result = float(made.rpartition(" = ")[2].replace("−", "-"))
        assert result == pytest.approx(session.sweep.values[int(state)], rel=2e-3, abs=1e-3)
        q = {line[4]: float(line.rpartition(" = ")[2].replace("−", "-")) for line in lines}
        chances = session.sweep.policy[int(state)]
        by_hand = max(q.values()) if session.maximises else sum(
            chances["↑→↓←".index(arrow)] * value for arrow, value in q.items())
        assert result == pytest.approx(by_hand, rel=5e-3, abs=2e-3)


def check_walk(shown, session, record):
    assert shown["sweep"] is None and sum(shown["visits"]) == record.env_steps
    moves, path, episode = shown["moves"], shown["path"], shown["episode"]
    assert 1 <= len(moves) <= tabular_view.LONGEST and len(path) == len(moves) + 1
    assert path == [moves[0]["state"], *(move["next_state"] for move in moves)]
    assert all(one["next_state"] == two["state"] for one, two in pairwise(moves))
    assert episode["ended"] in ("goal", "trap", "time") and len(moves) == min(episode["length"], tabular_view.LONGEST)
    if episode["length"] == len(moves):
        assert path[0] == session.maze.start
        assert episode["return"] == pytest.approx(sum(move["reward"] for move in moves))
    kind = session.maze.cells[path[-1] // session.maze.width][path[-1] % session.maze.width].kind
    assert episode["ended"] == kind or (episode["ended"] == "time" and episode["length"] == 400)
    for move in moves:
        assert set(move) == {"state", "action", "reward", "next_state", "before", "after", "text"}
        assert math.isfinite(move["before"]) and math.isfinite(move["after"])
        arrow = "↑→↓←"[move["action"]]
        if session.spec.algorithm in LEARNING:
            text, _, together = move["text"].partition("; ")
            assert text.startswith(tuple(f"Q{head}(s,{arrow}) ← " for head in ("₁₂" if together else [""])))
            result = arithmetic(text.partition(" ← ")[2])
            assert result == pytest.approx(move["after"], rel=2e-3, abs=2e-3)
    assert set(shown["last"]) <= {str(state) for state in range(session.maze.states)}
    assert {str(state) for state in path[:-1]} <= set(shown["last"])


def arithmetic(text):
    """What a sum that is written out comes to: both sides are equal, to the digits that are shown."""
    left, _, right = text.replace("−", "-").replace("×", "*").rpartition(" = ")
    assert set(left) <= set("0123456789.+-*() e"), left
    value, result = eval(left), float(right)
    assert value == pytest.approx(result, rel=5e-3, abs=5e-3), text
    return result


def test_of_a_long_episode_the_end_is_shown():
    session = start("q_learning", "corridors", steps=1, epsilon=1.0, epsilon_end=1.0, step_limit=700, seed=3)
    shown = next(session.run()).samples
    assert shown["episode"]["length"] > tabular_view.LONGEST == len(shown["moves"])
    assert shown["path"][-1] == shown["moves"][-1]["next_state"]


@pytest.mark.parametrize(("steps", "pace", "most"), [(150, 0, 150), (1000, 0, 520), (999, 1000, 560), (300, 20, 300)])
def test_the_number_of_pictures_is_bounded(steps, pace, most):
    """The first 400 steps of a run, then some 200, the last step's among them, however it is watched."""
    session = start("q_learning", steps=steps, pace=pace)
    drawn = []
    for session.step in range(1, steps + 1):
        if tabular_view.due(session):
            drawn.append(session.step)
    assert len(drawn) <= most and drawn[-1] == steps
    assert drawn[:150] == list(range(1, 151)) and (steps > 400 or len(drawn) == steps)
    gaps = np.diff(drawn)
    assert gaps.max() <= max(1, steps // 200)


@pytest.mark.parametrize("method", ["value_iteration", "policy_iteration", "policy_evaluation"])
def test_where_the_sweeps_settled_is_drawn(method):
    found = records(start(method, "corridors", steps=2000, pace=0))
    assert 200 < len(found) < 2000 or method == "value_iteration"
    assert found[-1].samples["step"] == len(found)


# ---------------------------------------------------------------------------- it learns


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("method", [method for method in ALGORITHMS if method != "policy_evaluation"])
def test_every_method_learns_the_textbook_maze(method, seed):
    last = records(start(method, steps=200, seed=seed))[-1].metrics
    assert last["start_value/greedy"] == pytest.approx(8.1) == last["start_value/best"]


@pytest.mark.parametrize("method", [*LEARNING, "actor_critic"])
def test_every_td_method_learns_the_corridors(method):
    """To the optimal greedy value, with the knobs as they are, long before the run is over."""
    session = start(method, "corridors", steps=300, seed=0)
    for record in session.run():
        found, best = record.metrics["start_value/greedy"], record.metrics["start_value/best"]
        assert found <= best + 1e-9
        if found == pytest.approx(best):
            break
    assert 3 < session.step < 200, "not at once, and long before the end"


@pytest.mark.parametrize(("method", "task", "worst", "best", "knobs"), [
    # Beside the cliff: off-policy the short way, on-policy a safe one. γ is 1 there.
    ("q_learning", "cliff", -13, -13, {}), ("sarsa", "cliff", -21, -15, {}), ("expected_sarsa", "cliff", -17, -15, {}),
    ("actor_critic", "cliff", -21, -13, {}),
    # The far goal, where the exploration finds it; without it the near one.
    ("q_learning", "two_goals", 3.874, 3.875, {"epsilon": 1.0, "epsilon_steps": 5000}),
    ("q_learning", "two_goals", 1, 1, {}), ("reinforce", "two_goals", 3.874, 3.875, {})])
def test_what_a_maze_is_there_to_show(method, task, worst, best, knobs):
    last = records(start(method, task, steps=300, seed=0, **knobs))[-1].metrics
    assert worst - 1e-9 <= last["start_value/greedy"] <= best + 1e-9
    assert last["start_value/greedy"] <= last["start_value/best"] + 1e-9


def test_the_measures_are_of_the_tables():
    session = start("q_learning", "corridors", steps=60)
    last = records(session)[-1].metrics
    values, action_values = optimal_values(session.maze.mdp, 0.97)
    q, here = session.learner.tables.q, session.maze.reachable() & ~session.maze.mdp.terminal
    assert last["value_error"] == pytest.approx(abs(q.max(1) - values)[here].mean())
    assert last["q_error"] == pytest.approx(abs(q - action_values)[here].mean())
    assert last["start_value"] == q[session.maze.start].max()
    assert last["start_value/greedy"] == pytest.approx(
        exact_value(session.maze.mdp, dynamic_programming.greedy(q), 0.97, session.maze.start))
    unmoved = start("reinforce", "corridors", steps=1, alpha=0.0)
    assert next(unmoved.run()).metrics["entropy/action"] == pytest.approx(math.log(4))


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
@pytest.mark.parametrize("method", LEARNING)
def test_a_table_that_runs_away_is_told(method):
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


# ---------------------------------------------------------------------------- files


def read(path):
    header, *rows = list(csv.reader(path.open(encoding="utf-8")))
    return header, [list(map(int, row[:3])) for row in rows], [list(map(float, row[3:])) for row in rows]


@pytest.mark.parametrize("method", ["value_iteration", "q_learning", "ppo"])
def test_the_tables_as_files_are_the_tables(method, tmp_path):
    session = start(method, "corridors", steps=5)
    records(session)
    session.save(tmp_path)
    folder, maze, found = tmp_path / "policy", session.maze, tabular_view.tables(session)
    open_ = np.flatnonzero(~maze.where("wall")).tolist()
    places = [[state, state // 8 + 1, state % 8 + 1] for state in open_]
    expected = {"v": (["value"], found.values[:, None]), "policy": (["up", "right", "down", "left"], found.policy)}
    if method == "ppo":
        assert not (folder / "q.csv").exists()
    else:
        expected["q"] = (["up", "right", "down", "left"], found.action_values)
    for name, (columns, table) in expected.items():
        header, where, numbers = read(folder / f"{name}.csv")
        assert header == ["state", "row", "column", *columns] and where == places
        assert numbers == table[open_].tolist(), "to the last digit"
    arrays = load_file(folder / "model.safetensors")
    assert (arrays["values"] == found.values).all() and (arrays["policy"] == found.policy).all()
    assert json.loads((folder / "config.json").read_text("utf-8"))["step"] == 5
