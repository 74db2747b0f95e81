"""Action values from steps: every update by hand, limits, and convergence to what planning says."""

from itertools import islice

import numpy as np
import pytest

from labcore.catalog.maze import TASKS
from labcore.classic.envs.maze_env import MazeEnv
from labcore.classic.envs.maze_presets import build, slippery, textbook
from labcore.classic.tabular import temporal_difference
from labcore.classic.tabular.dynamic_programming import optimal_values
from labcore.classic.tabular.td_learner import TDLearner, epsilon_greedy, epsilon_greedy_policy
from labcore.classic.tabular.walks import Step, walk
from tests.classic.tabular.tabular import LEARNING
from tests.every import now

KNOBS = {"alpha": 0.5, "alpha_decay": 0.0, "gamma": 0.9, "epsilon": 0.2, "epsilon_end": 0.0, "epsilon_steps": 0,
         "lambda": 0.5}
ON_POLICY = ("monte_carlo", "sarsa", "expected_sarsa", "sarsa_lambda")


def method(name):
    return getattr(temporal_difference, name)


def learner(name, q):
    made = TDLearner(method(name), *np.shape(q))
    made.tables.q[:] = q
    made.tables.pair[:] = q
    return made


def trained(made, maze, count, seed=0, limit=100, **knobs):
    """The Q of `made` after `count` steps from random starts."""
    env = MazeEnv(maze, max_steps=limit, random_start=True)
    knobs = {**KNOBS, "gamma": maze.gamma, **knobs}
    for _ in islice(walk(env, made, knobs, np.random.default_rng(seed)), count):
        pass
    return made.tables.q


# What v' is, by hand, for Q(s') = (1, 5, 3, 0) and ε = 0.2: Σ π Q = 0.05 × 9 + 0.8 × 5 = 4.45.
NEXT = {"monte_carlo": 4.45, "expected_sarsa": 4.45, "q_learning": 5, "double_q_learning": 5, "q_lambda": 5,
        "sarsa": 5, "sarsa_lambda": 5}


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True), (False, False)])
def test_one_step_by_hand(name, terminated, truncated):
    """Q(0,2) = 2, r = −1, γ = 0.9, α = ½; with termination v' = 0: Q ← 2 + ½ (−1 − 2) = ½."""
    made = learner(name, [[0, 0, 2, 0], [1, 5, 3, 0]])
    knobs = {**KNOBS, "epsilon": 0.0} if name in ("sarsa", "sarsa_lambda") else KNOBS
    made.learn(Step(0, 0, 2, -1.0, 1, terminated, truncated), knobs, np.random.default_rng(0))
    if name == "monte_carlo" and not (terminated or truncated):
        assert made.tables.q[0, 2] == 2 and not made.tables.last, "it waits for the end of the episode"
        return
    following = 0 if terminated else NEXT[name]
    target = -1 + 0.9 * following
    expected = 2 + 0.5 * (target - 2)
    learnt = made.tables.q if name != "double_q_learning" else made.tables.pair[made.tables.pair[:, 0, 2] != 2]
    assert learnt.reshape(-1, 2, 4)[0, 0, 2] == pytest.approx(expected)
    update = made.tables.last[0]
    assert tuple(update)[:10] == pytest.approx((0, 2, -1, 0.9, following, target, 2, target - 2, 0.5, expected))
    if name == "double_q_learning":  # one table of two learnt, so their mean moved half as far
        assert update.head in (1, 2) and update.mean == made.tables.q[0, 2] == pytest.approx((2 + expected) / 2)
    others = np.ones((2, 4), dtype=bool)
    others[0, 2] = False
    assert (made.tables.q[others] == np.array([[0, 0, 2, 0], [1, 5, 3, 0]])[others]).all()


def test_double_q_learning_values_the_action_by_the_other_table():
    made = learner("double_q_learning", np.zeros((2, 4)))
    made.tables.pair[0, 1], made.tables.pair[1, 1] = [1, 2, 0, 0], [7, 3, 0, 0]
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(20):
        made.tables.pair[:, 0] = 0
        made.learn(Step(0, 0, 0, 0.0, 1, False, False), {**KNOBS, "alpha": 1.0, "gamma": 1.0}, rng)
        seen.add(tuple(made.tables.pair[:, 0, 0]))
        assert made.tables.q[0, 0] == made.tables.pair[:, 0, 0].mean()
    # Table 1 would take action 1, which table 2 gives 3; table 2 would take action 0, which table 1 gives 1.
    assert seen == {(3, 0), (0, 1)}


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_the_step_size_of_the_nth_update_is_alpha_over_n_to_the_omega(name, decay):
    """The first is α itself. With ω = α = 1 the table holds the mean of its targets."""
    made, rng = learner(name, np.zeros((2, 4))), np.random.default_rng(0)
    knobs = {**KNOBS, "alpha": 0.8, "alpha_decay": decay}
    found = []
    for number in range(1, 6):
        made.begin()
        made.learn(Step(0, 0, 1, float(number), 1, True, False), knobs, rng)
        found.append(made.tables.last[0].alpha)
    assert found == pytest.approx([0.8 / number**decay for number in range(1, 6)])
    made.begin()
    made.learn(Step(0, 0, 2, 1.0, 1, True, False), knobs, rng)
    assert made.tables.last[0].alpha == 0.8, "another action of the state has not been tried yet"
    if name != "double_q_learning":  # its two tables share the visits
        made = learner(name, np.zeros((2, 4)))
        for number in range(1, 6):
            made.begin()
            made.learn(Step(0, 0, 1, float(number), 1, True, False), {**knobs, "alpha": 1.0, "alpha_decay": 1.0}, rng)
        assert made.tables.q[0, 1] == pytest.approx(3)


@pytest.mark.parametrize("name", ["sarsa", "sarsa_lambda"])
def test_sarsa_takes_the_action_it_has_learnt_from(name):
    maze = slippery()
    made, promised, kept = TDLearner(method(name), maze.states, 4), None, 0
    steps = walk(MazeEnv(maze, max_steps=7), made, {**KNOBS, "epsilon": 0.5}, np.random.default_rng(0))
    for step in islice(steps, 500):
        if promised is not None and step.time > 0:
            assert step.action == promised
            kept += 1
        promised = made.tables.committed
        assert (promised is None) == step.terminated
    assert kept > 300


def test_monte_carlo_by_hand():
    """Rewards 1, 2, 4 and γ = ½: G = 3, 4, 4; cut off, V = Σ π Q of the last state is half of the next G."""
    for terminated, returns in ((True, [3, 4, 4]), (False, [3 + 8 / 8, 4 + 8 / 4, 4 + 8 / 2])):
        made = learner("monte_carlo", [[0] * 4, [0] * 4, [0] * 4, [8] * 4])
        for time, reward in enumerate([1.0, 2.0, 4.0]):
            step = Step(time, time, 0, reward, time + 1, terminated and time == 2, not terminated and time == 2)
            made.learn(step, {**KNOBS, "alpha": 1.0, "gamma": 0.5}, np.random.default_rng(0))
        assert made.tables.q[:3, 0].tolist() == returns


def corridor(name, **knobs):
    """An episode of three steps that pay 1, 2, 4 through states 0, 1, 2 to the end, taking actions 0."""
    made = learner(name, np.zeros((4, 1)))
    made.begin()
    for time, reward in enumerate([1.0, 2.0, 4.0]):
        step = Step(time, time, 0, reward, time + 1, time == 2, False)
        made.learn(step, {**KNOBS, **knobs}, np.random.default_rng(0))
    return made.tables.q[:3, 0]


def test_traces_by_hand():
    """γ = λ = ½, α = 1: δ = 1, 2, 4 as nothing was known; each goes back by ¼ a step."""
    for name in ("sarsa_lambda", "q_lambda"):
        assert corridor(name, alpha=1.0, gamma=0.5).tolist() == [1 + 2 / 4 + 4 / 16, 2 + 4 / 4, 4]


def test_traces_are_replaced_not_added():
    """Twice through the same cell: its trace is 1, not 1 + γλ. δ = 1, then 1 + ½·1 − 1 = ½."""
    made = learner("sarsa_lambda", np.zeros((2, 1)))
    made.begin()
    for time in range(2):
        made.learn(Step(time, 0, 0, 1.0, 0, False, False), {**KNOBS, "alpha": 1.0, "gamma": 0.5},
                   np.random.default_rng(0))
    assert made.tables.q[0, 0] == 1.5 and made.tables.traces[0, 0] == 0.25


def test_a_choice_that_is_not_greedy_ends_the_traces_of_q_lambda():
    made = learner("q_lambda", [[0, 0], [1, 0]])
    for draw, kept in ((0, True), (1, False)):
        made.begin()
        rng = np.random.default_rng(next(seed for seed in range(50) if epsilon_greedy(
            np.array([1.0, 0.0]), 1.0, np.random.default_rng(seed)) == draw))
        made.learn(Step(0, 0, 0, 0.0, 1, False, False), {**KNOBS, "epsilon": 1.0}, rng)
        assert made.tables.committed == draw and (made.tables.traces[0, 0] > 0) == kept


@pytest.mark.parametrize(("traced", "plain"), [("sarsa_lambda", "sarsa"), ("q_lambda", "q_learning")])
def test_lambda_0_is_the_one_step_method(traced, plain):
    maze, rng = slippery(), np.random.default_rng(0)
    first, second = (learner(name, np.zeros((maze.states, 4))) for name in (traced, plain))
    for step in islice(walk(MazeEnv(maze), first, {**KNOBS, "lambda": 0.0}, rng), 500):
        second.tables.committed = None
        if plain == "sarsa" and not step.terminated:  # the same a', without a draw
            second.tables.commit = lambda *_, chosen=first.tables.committed: chosen
        second.learn(step, KNOBS, rng)
        np.testing.assert_allclose(second.tables.q, first.tables.q, rtol=0, atol=1e-12)
    assert abs(first.tables.q).max() > 1


def test_lambda_1_is_monte_carlo_where_no_state_comes_twice():
    for name in ("sarsa_lambda", "q_lambda"):
        np.testing.assert_allclose(corridor(name, **{"lambda": 1.0}), corridor("monte_carlo"))


def test_epsilon_greedy_has_the_chances_it_says():
    row, rng = np.array([1.0, 3.0, 3.0, 0.0]), np.random.default_rng(0)
    counts = np.bincount([epsilon_greedy(row, 0.2, rng) for _ in range(20_000)])
    assert counts / 20_000 == pytest.approx(epsilon_greedy_policy(row, 0.2), abs=0.015)


class ExploringStarts(TDLearner):
    """The first action of an episode is any, so that with ε = 0 every (s, a) is still tried."""

    first = True

    def begin(self):
        super().begin()
        self.first = True

    def choose(self, state, knobs, rng):
        if self.first:
            self.first = False
            return int(rng.integers(4))
        return super().choose(state, knobs, rng)


COUNT = {"textbook": 1500, "corridors": 15_000, "cliff": 30_000, "two_goals": 15_000}
LARGER = [world for world in COUNT if world != "textbook"]  # each of them for some of the methods


@pytest.mark.parametrize("name, world", now(
    [(name, world) for place, name in enumerate(LEARNING) for world in ("textbook", LARGER[place % len(LARGER)])],
    *((name, "textbook") for name in LEARNING), (LEARNING[0], LARGER[0]), (LEARNING[2], LARGER[2])))
def test_every_method_converges_to_q_star(name, world):
    """Episodes of three steps: without the bootstrap at a time limit no reward beyond them would be known."""
    maze = build(TASKS[world], {})
    values, action_values = optimal_values(maze.mdp, maze.gamma)
    made = ExploringStarts(method(name), maze.states, 4)
    q = trained(made, maze, COUNT[world], limit=3, epsilon=0.0, alpha=1.0)
    open_ = ~maze.mdp.terminal
    assert abs(q - action_values)[open_].max() < 0.02
    assert abs(q.max(1) - values)[open_].max() < 0.02


@pytest.mark.parametrize("name", now(LEARNING, "sarsa_lambda"))
def test_every_method_comes_near_q_star_where_steps_slip(name):
    maze = slippery()
    action_values = optimal_values(maze.mdp, maze.gamma)[1]
    made = ExploringStarts(method(name), maze.states, 4)
    q = trained(made, maze, 25_000, limit=3, epsilon=0.0, alpha=1.0, alpha_decay=0.7)
    error = abs(q - action_values)[~maze.mdp.terminal]
    assert error.mean() < 0.8 and error.max() < 3, "the values span 17"


@pytest.mark.parametrize("name", now(ON_POLICY, "monte_carlo", "expected_sarsa"))
def test_on_policy_methods_value_their_own_exploring(name):
    """With ε kept they reach the best of the ε-greedy: Q = R + γ P ((1 − ε) max Q + ε mean Q)."""
    maze, chance = textbook(), 0.5
    expected = np.zeros((maze.states, 4))
    for _ in range(300):
        expected = maze.mdp.action_values((1 - chance) * expected.max(1) + chance * expected.mean(1), maze.gamma)
    made = TDLearner(method(name), maze.states, 4)
    q = trained(made, maze, 20_000, epsilon=chance, alpha=1.0, alpha_decay=0.7)
    best = optimal_values(maze.mdp, maze.gamma)[1]
    error, other = abs(q - expected)[:4], abs(q - best)[:4]
    assert error.mean() < 0.5 and other.mean() > 3 * error.mean()
