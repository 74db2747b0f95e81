"""Every method learns in its mazes what they are there to show, and is measured against the exact values."""

import math

import pytest

from labcore.catalog.maze import ALGORITHMS
from labcore.classic.tabular import dynamic_programming
from labcore.classic.tabular.dynamic_programming import exact_value, optimal_values
from tests.classic.tabular.tabular import LEARNING, records, start
from tests.every import now


@pytest.mark.parametrize("seed, method", now(
    [(seed, method) for seed in range(2) for method in ALGORITHMS if method != "policy_evaluation"],
    *((0, method) for method in ("policy_iteration", "sarsa_lambda", "double_q_learning", "reinforce", "ppo"))))
def test_every_method_learns_the_textbook_maze(method, seed):
    last = records(start(method, steps=200, seed=seed))[-1].metrics
    assert last["start_value/greedy"] == pytest.approx(8.1) == last["start_value/best"]


@pytest.mark.parametrize("method", now([*LEARNING, "actor_critic"], "q_learning", "sarsa_lambda", "actor_critic"))
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
    ("q_learning", "cliff", -13, -13, {}), ("sarsa", "cliff", -21, -15, {}),
    pytest.param("expected_sarsa", "cliff", -17, -15, {}, marks=pytest.mark.long),
    pytest.param("actor_critic", "cliff", -21, -13, {}, marks=pytest.mark.long),
    # The far goal, where the exploration finds it; without it the near one.
    pytest.param("q_learning", "two_goals", 3.874, 3.875, {"epsilon": 1.0, "epsilon_steps": 5000},
                 marks=pytest.mark.long),
    pytest.param("q_learning", "two_goals", 1, 1, {}, marks=pytest.mark.long),
    pytest.param("reinforce", "two_goals", 3.874, 3.875, {}, marks=pytest.mark.long)])
def test_what_a_maze_is_there_to_show(method, task, worst, best, knobs):
    last = records(start(method, task, steps=300, seed=0, **knobs))[-1].metrics
    assert worst - 1e-9 <= last["start_value/greedy"] <= best + 1e-9
    assert last["start_value/greedy"] <= last["start_value/best"] + 1e-9


def test_the_measures_are_of_the_tables():
    session = start("q_learning", "corridors", steps=60)
    last = records(session)[-1].metrics
    values, action_values = optimal_values(session.maze.mdp, 0.97)
    q, here = session.learner.tables.q, session.maze.reachable() & ~session.maze.mdp.terminal
    errors = abs(q.max(1) - values)[here]
    assert last["value_error"] == pytest.approx(errors.mean())
    assert last["value_error/max"] == pytest.approx(errors.max()) and errors.max() > errors.mean()
    assert last["q_error"] == pytest.approx(abs(q - action_values)[here].mean())
    assert last["start_value"] == q[session.maze.start].max()
    assert last["start_value/greedy"] == pytest.approx(
        exact_value(session.maze.mdp, dynamic_programming.greedy(q), 0.97, session.maze.start))
    unmoved = start("reinforce", "corridors", steps=1, alpha=0.0)
    assert next(unmoved.run()).metrics["entropy/action"] == pytest.approx(math.log(4))
