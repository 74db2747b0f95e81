"""Planning: by hand, by a slow twin, by trying every policy, and against the linear solve to 1e-10."""

from dataclasses import replace
from itertools import islice, pairwise, product

import numpy as np
import pytest

from labcore.catalog.maze import TASKS
from labcore.classic.envs.maze_presets import build, cliff, random_maze, slippery, textbook
from labcore.classic.envs.maze_text import from_rows
from labcore.classic.tabular.dynamic_programming import (
    exact_value,
    exact_values,
    greedy,
    improve,
    nothing_known,
    optimal_values,
    policy_evaluation,
    policy_iteration,
    uniform_policy,
    value_iteration,
)
from labcore.errors import LabError

MAZES = {**{name: build(row, {}) for name, row in TASKS.items() if not row.knobs}, "random": random_maze(5, 9, 8),
         "rewards": from_rows(["SR#", "#.G", "T.R"], [-2.5, 4, 6, 1], step_reward=-1 / 3, slip=0.1, gamma=0.97)}
each_maze = pytest.mark.parametrize("maze", MAZES.values(), ids=MAZES)

# "S.." above ".TG", γ = 0.9: the way is right, right, down.
VALUES = [8.1, 9, 10, 7.29, 0, 0]
ACTION_VALUES = [[7.29, 8.1, 6.561, 7.29], [8.1, 9, -10, 7.29], [9, 9, 10, 8.1], [7.29, -10, 6.561, 6.561],
                 [0] * 4, [0] * 4]


def knobs(gamma):
    """Sweeps end where nothing changes but the last digits."""
    return {"gamma": gamma, "tolerance": 1e-12}


def evaluated(mdp, policy, gamma):
    return policy_evaluation(mdp, knobs(gamma), replace(nothing_known(mdp), policy=policy))


def last(sweeps):
    *_, sweep = sweeps
    return sweep


def close(actual, expected, tolerance=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max()))


def test_the_textbook_maze_by_hand():
    maze = textbook()
    values, action_values = optimal_values(maze.mdp, 0.9)
    close(values, VALUES)
    close(action_values, ACTION_VALUES)
    assert greedy(action_values)[:4].argmax(1).tolist() == [1, 1, 2, 0]


def test_sweeps_by_hand():
    """The reward goes back one cell with each sweep."""
    sweeps = list(value_iteration(textbook().mdp, knobs(0.9)))
    expected = [[0, 0, 10, 0], [0, 9, 10, 0], [8.1, 9, 10, 0], [8.1, 9, 10, 7.29]]
    for sweep, values in zip(sweeps, expected, strict=False):
        close(sweep.values[:4], values)
    assert [round(sweep.change, 12) for sweep in sweeps] == [10, 9, 8.1, 7.29, 0]
    assert [sweep.number for sweep in sweeps] == [1, 2, 3, 4, 5]


def slow_sweep(maze, policy, values, gamma):
    """One sweep of policy evaluation, state by state."""
    mdp = maze.mdp
    return [sum(policy[s, a] * (mdp.rewards[s, a] + gamma * sum(
        mdp.transitions[s, a, t] * (0 if mdp.terminal[t] else values[t]) for t in range(maze.states)))
        for a in range(4)) for s in range(maze.states)]


@pytest.mark.parametrize("name", ["textbook", "slippery", "rewards"])
def test_evaluation_slow_twin(name):
    maze = MAZES[name]
    policy = np.random.default_rng(0).dirichlet(np.ones(4), maze.states)
    values = [0.0] * maze.states
    for sweep in islice(evaluated(maze.mdp, policy, 0.9), 4):
        values = slow_sweep(maze, policy, values, 0.9)
        close(sweep.values, values, 1e-13)


@each_maze
def test_evaluation_reaches_the_linear_solve(maze):
    policy = np.random.default_rng(1).dirichlet(np.ones(4), maze.states)
    gamma = min(maze.gamma, 0.95)
    exact = exact_values(maze.mdp, policy, gamma)
    close(last(evaluated(maze.mdp, policy, gamma)).values, exact)
    close((policy * maze.mdp.action_values(exact, gamma)).sum(1), exact)


@each_maze
@pytest.mark.parametrize("method", [value_iteration, policy_iteration])
def test_iteration_reaches_the_linear_solve(maze, method):
    values, action_values = optimal_values(maze.mdp, maze.gamma)
    sweep = last(method(maze.mdp, knobs(maze.gamma)))
    close(sweep.values, values)
    close(sweep.action_values, action_values)
    close(exact_values(maze.mdp, sweep.policy, min(maze.gamma, 0.99)),
          optimal_values(maze.mdp, min(maze.gamma, 0.99))[0], 1e-6)
    close(action_values.max(1), values)


def test_no_policy_is_better():
    """All 4⁴ deterministic policies of the four states where something is decided."""
    maze = from_rows(["S..", ".TG"], step_reward=-0.5, slip=0.3)
    best = np.full(maze.states, -np.inf)
    for actions in product(range(4), repeat=4):
        best = np.maximum(best, exact_values(maze.mdp, np.eye(4)[[*actions, 0, 0]], 0.9))
    close(optimal_values(maze.mdp, 0.9)[0], best)


def test_policy_iteration_says_when_it_improves_and_never_gets_worse():
    maze = slippery()
    policies = [sweep.policy for sweep in policy_iteration(maze.mdp, knobs(0.95)) if sweep.improved]
    worth = [exact_values(maze.mdp, policy, 0.95) for policy in [uniform_policy(maze.mdp), *policies]]
    assert 2 <= len(policies) <= 10
    for before, after in pairwise(worth):
        assert (after >= before - 1e-9).all() and after.sum() > before.sum()


def test_improvement_keeps_a_row_that_cannot_be_bettered():
    """Rows: better elsewhere; two actions alike, one of them taken; all alike; not better by more than rounding."""
    policy = np.array([[1, 0, 0], [0.0, 1, 0], [0.2, 0.3, 0.5], [1, 0, 0]])
    action_values = np.array([[1.0, 2, 2], [3, 3, 1], [5, 5, 5], [1, 1 + 1e-12, 0]])
    values = (policy * action_values).sum(1)
    assert improve(policy, values, action_values).tolist() == [[0, 0.5, 0.5], *policy[1:].tolist()]


def test_with_gamma_1_and_free_steps_the_way_is_not_lost_among_equals():
    """Every way to the goal that keeps off the pit is worth 10. The one found takes 4 steps; wandering takes 45."""
    maze = from_rows(["S..", "...", ".TG"])
    sweep = last(policy_iteration(maze.mdp, knobs(1.0)))
    close(sweep.values[maze.start], 10)
    each_step_costs_1 = replace(maze.mdp, rewards=-np.ones((maze.states, 4)))
    close(exact_value(each_step_costs_1, sweep.policy, 1.0, maze.start), -4)
    close(exact_value(each_step_costs_1, greedy(sweep.action_values), 1.0, maze.start), -45.2)


def test_gamma_can_be_moved_while_it_runs():
    moved = knobs(0.9)
    sweeps = value_iteration(textbook().mdp, moved)
    list(islice(sweeps, 3))
    moved["gamma"] = 0.5
    close(last(sweeps).values, [2.5, 5, 10, 1.25, 0, 0])


def test_the_tolerance_says_when_it_is_enough():
    maze = slippery()
    changes = [sweep.change for sweep in value_iteration(maze.mdp, {"gamma": 0.95, "tolerance": 1e-2})]
    assert changes[-1] <= 1e-2 < min(changes[:-1])


@pytest.mark.parametrize("method", [value_iteration, policy_iteration, policy_evaluation])
def test_sweeps_go_on_from_an_earlier_one(method):
    mdp = slippery().mdp
    whole = list(method(mdp, knobs(0.9)))
    for cut in (1, len(whole) // 2, len(whole)):
        rest = list(method(mdp, knobs(0.9), whole[cut - 1]))
        for one, other in zip(rest, whole[cut:], strict=True):
            assert (one.number, one.change, one.improved) == (other.number, other.change, other.improved)
            assert (one.values == other.values).all() and (one.policy == other.policy).all()


def test_with_gamma_1_what_never_ends_has_no_value():
    maze = textbook()
    with pytest.raises(LabError, match="set gamma below 1"):
        exact_values(maze.mdp, np.eye(4)[[0] * 6], 1.0)
    close(exact_values(maze.mdp, np.eye(4)[[1, 1, 2, 0, 0, 0]], 1.0), [10, 10, 10, 10, 0, 0])
    close(optimal_values(maze.mdp, 1.0)[0], [10, 10, 10, 10, 0, 0])
    with pytest.raises(LabError, match="walk for ever"):
        optimal_values(from_rows(["S#G"]).mdp, 1.0)


@each_maze
def test_the_value_of_the_start_alone(maze):
    policy = np.random.default_rng(2).dirichlet(np.ones(4), maze.states)
    for rows in (policy, np.eye(4)[policy.argmax(1)]):
        close(exact_value(maze.mdp, rows, 0.95, maze.start), exact_values(maze.mdp, rows, 0.95)[maze.start])


def test_what_a_policy_does_where_it_never_comes_does_not_count():
    """γ = 1 along the cliff: 13 steps, though everywhere else the policy runs against the upper edge."""
    maze = cliff()
    actions = np.zeros(maze.states, dtype=int)
    actions[2 * 12: 3 * 12 - 1], actions[3 * 12 - 1] = 1, 2  # along the row above the edge, then down
    close(exact_value(maze.mdp, np.eye(4)[actions], 1.0, maze.start), -13)
    with pytest.raises(LabError, match="walk for ever"):
        exact_values(maze.mdp, np.eye(4)[actions], 1.0)
    with pytest.raises(LabError, match="walk for ever"):
        exact_value(maze.mdp, np.eye(4)[actions], 1.0, 0)


def test_ties_share_alike():
    assert greedy(np.array([[1, 3, 3, 2], [0, 0, 0, 0], [3, 3 + 1e-12, 1, 1]])).tolist() == [
        [0, 0.5, 0.5, 0], [0.25] * 4, [0.5, 0.5, 0, 0]]


@pytest.mark.parametrize("method", [policy_evaluation, value_iteration])
def test_a_change_of_just_the_tolerance_is_the_last(method):
    maze = slippery()
    changes = [sweep.change for sweep in islice(method(maze.mdp, knobs(0.9)), 5)]
    assert all(later < earlier for earlier, later in pairwise(changes))
    assert len([*method(maze.mdp, {"gamma": 0.9, "tolerance": changes[2]})]) == 3
