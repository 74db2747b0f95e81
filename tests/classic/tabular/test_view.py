"""Pictures and tables of a run in a maze: what is written out adds up, and nothing is lost or drawn too often."""

import csv
import json
import math
from itertools import pairwise

import numpy as np
import pytest
from safetensors.numpy import load_file

from labcore.catalog.maze import ALGORITHMS
from labcore.classic.envs.maze_text import from_text
from labcore.classic.tabular.dynamic_programming import optimal_values
from labcore.classic.tabular.view import LONGEST, due, maximises
from tests.classic.tabular.tabular import GRADIENT, LEARNING, PLANNING, records, start
from tests.every import now


@pytest.mark.parametrize("task, method", now(
    [(task, method) for task in ("textbook", "corridors") for method in ALGORITHMS],
    *(("textbook", method) for method in ALGORITHMS),
    *(("corridors", method) for method in ("value_iteration", "sarsa_lambda", "actor_critic"))))
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
                if method != "policy_iteration":  # there V is that of the policy, Q looks one step ahead
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
        assert made.startswith("V(s) ← max Q = " if maximises(session) else "V(s) ← ")
        result = float(made.rpartition(" = ")[2].replace("−", "-"))
        assert result == pytest.approx(session.sweep.values[int(state)], rel=2e-3, abs=1e-3)
        q = {line[4]: float(line.rpartition(" = ")[2].replace("−", "-")) for line in lines}
        chances = session.sweep.policy[int(state)]
        by_hand = max(q.values()) if maximises(session) else sum(
            chances["↑→↓←".index(arrow)] * value for arrow, value in q.items())
        assert result == pytest.approx(by_hand, rel=5e-3, abs=2e-3)


def check_walk(shown, session, record):
    assert shown["sweep"] is None and sum(shown["visits"]) == record.env_steps
    moves, path, episode = shown["moves"], shown["path"], shown["episode"]
    assert 1 <= len(moves) <= LONGEST and len(path) == len(moves) + 1
    assert path == [moves[0]["state"], *(move["next_state"] for move in moves)]
    assert all(one["next_state"] == two["state"] for one, two in pairwise(moves))
    assert episode["ended"] in ("goal", "trap", "time") and len(moves) == min(episode["length"], LONGEST)
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
    assert shown["episode"]["length"] > LONGEST == len(shown["moves"])
    assert shown["path"][-1] == shown["moves"][-1]["next_state"]


@pytest.mark.parametrize(("steps", "pace", "most"), [(150, 0, 150), (1000, 0, 520), (999, 1000, 560), (300, 20, 300)])
def test_the_number_of_pictures_is_bounded(steps, pace, most):
    """The first 400 steps of a run, then some 200, the last step's among them, however it is watched."""
    session = start("q_learning", steps=steps, pace=pace)
    drawn = []
    for session.step in range(1, steps + 1):
        if due(session):
            drawn.append(session.step)
    assert len(drawn) <= most and drawn[-1] == steps
    assert drawn[:150] == list(range(1, 151)) and (steps > 400 or len(drawn) == steps)
    gaps = np.diff(drawn)
    assert gaps.max() <= max(1, steps // 200)


@pytest.mark.parametrize("method", now(["value_iteration", "policy_iteration", "policy_evaluation"],
                                       "policy_evaluation"))
def test_where_the_sweeps_settled_is_drawn(method):
    found = records(start(method, "corridors", steps=2000, pace=0))
    assert 200 < len(found) < 2000 or method == "value_iteration"
    assert found[-1].samples["step"] == len(found)


# ---------------------------------------------------------------------------- files


def read(path):
    header, *rows = list(csv.reader(path.open(encoding="utf-8")))
    return header, [list(map(int, row[:3])) for row in rows], [list(map(float, row[3:])) for row in rows]


@pytest.mark.parametrize("method", ["value_iteration", "q_learning", "ppo"])
def test_the_tables_as_files_are_the_tables(method, tmp_path):
    session = start(method, "corridors", steps=5)
    records(session)
    session.save(tmp_path)
    folder, maze, found = tmp_path / "policy", session.maze, session.estimates()
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
