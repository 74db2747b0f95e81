"""The gradients, exactly: by enumeration of every episode, by finite differences, by hand; then that they learn."""

from itertools import islice

import numpy as np
import pytest

from labcore.catalog.maze import TASKS
from labcore.classic.envs.maze_env import MazeEnv
from labcore.classic.envs.maze_presets import build, slippery, textbook
from labcore.classic.envs.maze_text import from_rows
from labcore.classic.tabular import policy_gradient
from labcore.classic.tabular.dynamic_programming import exact_values, optimal_values
from labcore.classic.tabular.policy_learner import PolicyLearner
from labcore.classic.tabular.policy_maths import (
    Steps,
    clipped_score,
    entropy_gradient,
    gae,
    reward_to_go,
    score,
    softmax,
    state_weights,
    total_return,
    with_baseline,
)
from labcore.classic.tabular.walks import Step, walk
from tests.classic.tabular.tabular import GRADIENT

KNOBS = {"alpha": 0.1, "value_alpha": 0.2, "gamma": 0.9, "entropy_coef": 0.0, "episodes_per_update": 1,
         "gae_lambda": 0.9, "clip_range": 0.2, "epochs": 4, "discount_states": 1,
         "standardise": 0, "psi": "baseline"}
SLIPPERY = from_rows(["S.", "TG"], [-5.0, 7.0], step_reward=-1.0, slip=0.2, gamma=0.8)
each_world = pytest.mark.parametrize(("maze", "horizon"), [(textbook(), 4), (SLIPPERY, 3)],
                                     ids=["textbook", "slippery"])


def method(name):
    return getattr(policy_gradient, name)


def tables(maze, seed=0):
    """θ, and a V that is 0 where nothing follows, both at random."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(maze.states, 4)), np.where(maze.mdp.terminal, 0, rng.normal(size=maze.states))


def exact_policy_gradient(mdp, theta, start, gamma):
    """∇θ V_π(start) = d(s) π(a|s) (Q_π(s,a) − V_π(s)), with d = (I − γ P_πᵀ)⁻¹ 1_start. (S, A) -> (S, A)

    Source: Sutton et al. 2000, "Policy gradient methods", NeurIPS, theorem 1.
    """
    policy = softmax(theta)
    transitions, rewards = mdp.under(policy)
    ahead = np.eye(len(policy)) - gamma * transitions
    values, visits = np.linalg.solve(ahead, rewards), np.linalg.solve(ahead.T, np.eye(len(policy))[start])
    gradient = visits[:, None] * policy * (mdp.action_values(values, gamma) - values[:, None])
    return np.where(mdp.terminal[:, None], 0.0, gradient)


def difference(function, theta, width=1e-5):
    """∇ of a function of θ by central differences."""
    gradient = np.zeros_like(theta)
    for index in np.ndindex(theta.shape):
        shift = np.zeros_like(theta)
        shift[index] = width
        gradient[index] = (function(theta + shift) - function(theta - shift)) / (2 * width)
    return gradient


def every_episode(maze, policy, horizon):
    """(chance, steps) of every episode of at most `horizon` steps."""
    waiting = [(1.0, [], maze.start)]
    while waiting:
        chance, steps, state = waiting.pop()
        if steps and steps[-1].ended:
            yield chance, Steps.of(steps)
            continue
        for action, following in zip(*np.nonzero(maze.mdp.transitions[state] > 0), strict=True):
            ends = bool(maze.mdp.terminal[following])
            step = Step(len(steps), state, int(action), float(maze.cell_rewards[following]), int(following), ends,
                        not ends and len(steps) + 1 == horizon)
            waiting.append((chance * policy[state, action] * maze.mdp.transitions[state, action, following],
                            [*steps, step], int(following)))


def expected(maze, policy, horizon, estimate):
    """E over all episodes of an estimate of the gradient."""
    episodes = list(every_episode(maze, policy, horizon))
    assert sum(chance for chance, _ in episodes) == pytest.approx(1, abs=1e-12)
    return sum(chance * estimate(steps) for chance, steps in episodes)


def objective(maze, values, horizon):
    """θ -> E[Σ_{t<H} γ^t r_t + γ^H V(s_H)], by dynamic programming backwards in time."""
    def worth(theta):
        ahead = values
        for _ in range(horizon):
            ahead = (softmax(theta) * maze.mdp.action_values(ahead, maze.gamma)).sum(1)
        return ahead[maze.start]
    return worth


@pytest.mark.parametrize("maze", [textbook(), slippery(), SLIPPERY], ids=["textbook", "4x4", "2x2"])
def test_the_exact_gradient_is_that_of_the_exact_value(maze):
    theta, _ = tables(maze)
    gradient = exact_policy_gradient(maze.mdp, theta, maze.start, maze.gamma)
    numeric = difference(lambda at: exact_values(maze.mdp, softmax(at), maze.gamma)[maze.start], theta)
    np.testing.assert_allclose(gradient, numeric, atol=1e-8)
    assert abs(gradient).max() > 0.1


@each_world
@pytest.mark.parametrize("psi", [total_return, reward_to_go, with_baseline])
def test_reinforce_is_the_gradient_in_expectation(maze, horizon, psi):
    """All episodes, cut at the time limit with any V for what follows: all three ψ have one expectation."""
    theta, values = tables(maze)
    policy, knobs = softmax(theta), {**KNOBS, "gamma": maze.gamma}

    def estimate(steps):
        return score(policy, steps.states, steps.actions, psi(steps, values, maze.gamma, state_weights(steps, knobs)))
    mean = expected(maze, policy, horizon, estimate)
    np.testing.assert_allclose(mean, difference(objective(maze, values, horizon), theta), atol=1e-8)
    assert abs(mean).max() > 0.1


@each_world
@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
def test_with_the_true_values_every_lambda_has_the_exact_gradient(maze, horizon, gae_lambda):
    """The actor-critic's δ (λ = 0) and GAE: with V = V_π the cut at the horizon costs only the steps after it."""
    theta, _ = tables(maze)
    policy, knobs = softmax(theta), {**KNOBS, "gamma": maze.gamma}
    values = exact_values(maze.mdp, policy, maze.gamma)

    def estimate(steps):
        weights = gae(steps, values, maze.gamma, gae_lambda) * state_weights(steps, knobs)
        return clipped_score(policy, policy, steps, weights, 0.2)  # at π = π_old it is the plain score
    mean = expected(maze, policy, horizon, estimate)
    transitions, _ = maze.mdp.under(policy)
    visits = sum(maze.gamma**t * np.linalg.matrix_power(transitions, t)[maze.start] for t in range(horizon))
    advantages = maze.mdp.action_values(values, maze.gamma) - values[:, None]
    np.testing.assert_allclose(mean, visits[:, None] * policy * advantages, atol=1e-12)


def test_with_little_discount_left_the_whole_exact_gradient():
    """γ = 0.01 and four steps: what comes after is worth 10⁻⁸."""
    maze = textbook()
    theta, values = tables(maze)
    policy, knobs = softmax(theta), {**KNOBS, "gamma": 0.01}
    mean = expected(maze, policy, 4, lambda steps: score(policy, steps.states, steps.actions, with_baseline(
        steps, values, 0.01, state_weights(steps, knobs))))
    np.testing.assert_allclose(mean, exact_policy_gradient(maze.mdp, theta, maze.start, 0.01), atol=1e-7)


def test_the_baseline_lowers_the_variance():
    maze = textbook()
    theta, _ = tables(maze)
    policy = softmax(theta)
    values, knobs = exact_values(maze.mdp, policy, 0.9), {**KNOBS, "gamma": 0.9}

    def square(psi):
        return expected(maze, policy, 4, lambda steps: score(policy, steps.states, steps.actions, psi(
            steps, values, 0.9, state_weights(steps, knobs))) ** 2).sum()
    assert square(with_baseline) < square(reward_to_go) < square(total_return)


def test_score_and_entropy_by_finite_differences():
    theta, _ = tables(textbook())
    states, actions, weights = np.array([0, 2, 0, 0]), np.array([1, 3, 1, 2]), np.array([0.5, -2, 1, 3.0])
    np.testing.assert_allclose(score(softmax(theta), states, actions, weights), difference(
        lambda at: (weights * np.log(softmax(at))[states, actions]).sum(), theta), atol=1e-8)
    np.testing.assert_allclose(entropy_gradient(softmax(theta)), difference(
        lambda at: -(softmax(at) * np.log(softmax(at))).sum(), theta), atol=1e-8)
    assert np.isfinite(entropy_gradient(np.array([1.0, 0.0]))).all()


@pytest.mark.parametrize("seed", range(3))
def test_clipped_score_by_finite_differences(seed):
    rng = np.random.default_rng(seed)
    theta, old = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    states, actions, advantages = rng.integers(5, size=30), rng.integers(4, size=30), rng.normal(size=30)
    steps = Steps(*[np.zeros(30)] * 7)._replace(states=states, actions=actions)

    def surrogate(at):
        ratio = (softmax(at) / softmax(old))[states, actions]
        return np.minimum(ratio * advantages, ratio.clip(0.8, 1.2) * advantages).sum()
    np.testing.assert_allclose(clipped_score(softmax(theta), softmax(old), steps, advantages, 0.2),
                               difference(surrogate, theta, 1e-6), atol=1e-7)


def test_gae_by_hand_and_by_a_slow_twin():
    rng = np.random.default_rng(0)
    count = 12
    ended = np.isin(np.arange(count), [3, 4, 8, 11])
    terminated = ended & np.isin(np.arange(count), [3, 8])
    states, following, values = rng.integers(5, size=count), rng.integers(5, size=count), rng.normal(size=5)
    steps = Steps(np.zeros(count), states, states, rng.normal(size=count), following, terminated, ended)
    for gamma, gae_lambda in ((0.9, 0.0), (0.9, 0.7), (1.0, 1.0)):
        slow = []
        for t in range(count):
            last = next(end for end in range(t, count) if ended[end])
            slow.append(sum((gamma * gae_lambda) ** (k - t) * (
                steps.rewards[k] + (0 if terminated[k] else gamma * values[following[k]]) - values[states[k]])
                for k in range(t, last + 1)))
        np.testing.assert_allclose(gae(steps, values, gamma, gae_lambda), slow, rtol=1e-12)
    # r = 1, 2 and V = 3, 5, 7: cut off δ = (1 + ½·5 − 3, 2 + ½·7 − 5) = (½, ½), A = (½ + ¼·½, ½).
    pair = Steps.of([Step(0, 0, 0, 1.0, 1, False, False), Step(1, 1, 0, 2.0, 2, False, True)])
    assert gae(pair, np.array([3.0, 5, 7]), 0.5, 0.5).tolist() == [0.625, 0.5]
    assert total_return(pair, np.array([3.0, 5, 7]), 0.5, np.ones(2)).tolist() == [3.75, 3.75]


def test_actor_critic_by_hand():
    """V = 1 and 4, r = 2, γ = ½, t = 1: δ = 2 + ½·4 − 1 = 3; θ moves by α γ δ (1_a − ¼)."""
    for terminated, delta in ((False, 3.0), (True, 1.0)):
        made = PolicyLearner(policy_gradient.actor_critic, 2, 4)
        made.tables.values[:] = [1, 4]
        made.learn(Step(1, 0, 2, 2.0, 1, terminated, not terminated), {**KNOBS, "gamma": 0.5},
                   np.random.default_rng(0))
        np.testing.assert_allclose(made.tables.theta[0], 0.1 * 0.5 * delta * np.array([-0.25, -0.25, 0.75, -0.25]))
        np.testing.assert_allclose(made.tables.values, [1 + 0.2 * delta, 4])
        update = made.tables.last[0]
        assert (update.delta, update.weight, update.before) == (delta, delta / 2, 0.25)
        assert update.after == made.tables.policy[0, 2] > 0.25


def test_the_entropy_bonus_evens_out_the_policy_in_every_method():
    for name in GRADIENT:
        made = PolicyLearner(method(name), 2, 2)
        made.tables.theta[0] = [1.0, 0.0]
        made.tables.policy = softmax(made.tables.theta)
        expected = made.tables.theta[0] + 0.1 * 0.5 * entropy_gradient(softmax(np.array([1.0, 0.0])))
        made.learn(Step(0, 0, 0, 0.0, 1, True, False), {**KNOBS, "entropy_coef": 0.5, "epochs": 1},
                   np.random.default_rng(0))
        np.testing.assert_allclose(made.tables.theta[0], expected)
        assert made.tables.policy[0, 0] < 0.731


def test_reinforce_by_hand():
    """Two episodes: (right, goal) and (left, left, trap) in a row of three; α 1/2 Σ ψ (1_a − ½)."""
    made = PolicyLearner(policy_gradient.reinforce, 3, 2)
    knobs = {**KNOBS, "psi": "reward_to_go", "gamma": 0.5, "episodes_per_update": 2, "value_alpha": 1.0}
    rng = np.random.default_rng(0)
    made.learn(Step(0, 1, 1, 10.0, 2, True, False), knobs, rng)
    assert (made.tables.theta == 0).all(), "it waits for the second episode"
    made.learn(Step(0, 1, 0, 0.0, 0, False, False), knobs, rng)
    made.learn(Step(1, 0, 0, -8.0, 2, True, False), knobs, rng)
    # G = 10; then −4 and −8, the last with weight ½.
    np.testing.assert_allclose(made.tables.theta, [[-0.1, 0.1], [-0.35, 0.35], [0, 0]])
    np.testing.assert_allclose(made.tables.values, [-8, 3, 0])
    assert made.tables.batch == [] and made.tables.last[0].weight == -4


def test_ppo_first_epoch_is_reinforce_with_baseline():
    """At π = π_old nothing is clipped; a mean over T steps, not N episodes, divided by the scale of A if asked."""
    maze = textbook()
    knobs = {**KNOBS, "gae_lambda": 1.0, "epochs": 1, "entropy_coef": 0.01, "episodes_per_update": 3}
    first, second, third = (PolicyLearner(method(name), maze.states, 4)
                            for name in ("reinforce", "ppo", "ppo"))
    rng = np.random.default_rng(0)
    batch = []
    for step in walk(MazeEnv(maze, max_steps=20), first, knobs, rng):
        second.learn(step, knobs, rng)
        third.learn(step, {**knobs, "standardise": 1, "entropy_coef": 0.0}, rng)
        batch.append(step)
        if not first.tables.batch:
            break
    np.testing.assert_allclose(second.tables.theta * len(batch) / 3, first.tables.theta, rtol=1e-9)
    np.testing.assert_allclose(second.tables.values, first.tables.values, rtol=1e-9)
    assert abs(first.tables.theta).max() > 0.01
    steps = Steps.of(batch)
    weights = with_baseline(steps, np.zeros(maze.states), 0.9, state_weights(steps, knobs))
    even = weights / np.sqrt((weights**2).mean())
    plain = 0.1 * score(np.full((6, 4), 0.25), steps.states, steps.actions, even) / len(batch)
    np.testing.assert_allclose(third.tables.theta, plain, rtol=1e-6)


BATCHES = {"ppo": {"alpha": 4.0, "epochs": 10, "standardise": 1}}


def value(name, maze, count, seed=0, random_start=False, **knobs):
    """V_π(start) of the policy after `count` steps, exactly."""
    made = PolicyLearner(method(name), maze.states, 4)
    knobs = {**KNOBS, "gamma": maze.gamma, "discount_states": 0, "episodes_per_update": 4, "entropy_coef": 0.02,
             **BATCHES.get(name, {}), **knobs}
    env = MazeEnv(maze, max_steps=100, random_start=random_start)
    for _ in islice(walk(env, made, knobs, np.random.default_rng(seed)), count):
        pass
    return exact_values(maze.mdp, made.tables.policy, maze.gamma)[maze.start]


@pytest.mark.parametrize(("name", "world", "short", "knobs"), [
    ("actor_critic", "corridors", 0.5, {"alpha": 0.3}),
    pytest.param("actor_critic", "slippery", 0.5, {}, marks=pytest.mark.long),
    pytest.param("actor_critic", "cliff", 5, {}, marks=pytest.mark.long),
    pytest.param("ppo", "corridors", 0.3, {}, marks=pytest.mark.long),
    pytest.param("ppo", "slippery", 1.0, {"random_start": True}, marks=pytest.mark.long),
    ("reinforce", "corridors", 1.3, {"alpha": 0.5})])
def test_the_better_ones_learn_the_others(name, world, short, knobs):
    maze = build(TASKS[world], {})
    best = optimal_values(maze.mdp, maze.gamma)[0][maze.start]
    assert best - short < value(name, maze, 40_000 if name == "reinforce" else 20_000, **knobs) <= best + 1e-9


def test_episodes_that_wait_for_an_update_are_in_the_state_of_their_learner():
    maze, knobs = slippery(), {**KNOBS, "episodes_per_update": 3}
    made, again = (PolicyLearner(policy_gradient.reinforce, maze.states, 4) for _ in range(2))
    next(step for step in walk(MazeEnv(maze, max_steps=30), made, knobs, np.random.default_rng(3)) if step.ended)
    again.load(made.state())
    assert again.tables.batch == made.tables.batch and again.tables.finished == made.tables.finished == 1


def test_the_total_return_is_that_of_its_own_episode():
    """r = 1, 2 and then an end; r = 4, 8 and then an end: G_0 = 1 + ½·2 and 4 + ½·8."""
    steps = Steps.of([Step(0, 0, 0, 1.0, 1, False, False), Step(1, 1, 0, 2.0, 2, True, False),
                      Step(0, 1, 0, 4.0, 0, False, False), Step(1, 0, 0, 8.0, 2, True, False)])
    assert total_return(steps, np.array([3.0, 5, 7]), 0.5, np.ones(4)).tolist() == [2, 2, 8, 8]
