import json
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box

from labcore.catalog.cartpole import ALGORITHMS, TASKS
from labcore.classic.envs.cartpole import WORLD
from labcore.classic.envs.gym_env import (
    CartPoleEnvironments,
    SingleEnvironments,
    TogetherEnvironments,
    make_environments,
)
from labcore.classic.envs.gym_world import _scale, describe, described
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make

TRIED = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Pendulum-v1",
         "MountainCarContinuous-v0", "Blackjack-v1"]


def test_every_registered_environment_is_described_or_refused_in_a_sentence():
    """Those that lack a package say which command installs it."""
    found = {}
    for env_id in [*gym.registry]:
        try:
            found[env_id] = describe(env_id)
        except LabError as error:
            found[env_id] = str(error)
    for env_id, said in found.items():
        assert not isinstance(said, str) or (env_id in said and "\n" not in said and said.endswith(".")), said
    assert 'pip install "gymnasium[mujoco]"' in str(found["HalfCheetah-v5"])
    if not find_spec("Box2D"):
        assert 'pip install "gymnasium[box2d]"' in str(found["BipedalWalker-v3"])
    assert found["Pendulum-v1"].continuous and found["MountainCarContinuous-v0"].actions == 1


def test_a_world_says_which_methods_learn_it_badly():
    for world in TASKS.values():
        assert set(world.cautions) <= set(ALGORITHMS) and all(said.endswith(".") for said in world.cautions.values())
    weak, good = (make(kind="cartpole", algorithm_key=key, task_key="Pendulum-v1") for key in ("reinforce", "ppo"))
    assert weak.caution().startswith("REINFORCE does not learn ") and not good.caution()
    assert not make(kind="cartpole", algorithm_key="reinforce", task_key="Blackjack-v1").caution()


@pytest.mark.parametrize("env_id", TRIED)
def test_sizes_and_saved_states(env_id):
    """A saved state continues bit for bit, also through resets."""
    worlds = make_environments(env_id, 3, seed=5)
    rng = np.random.default_rng(0)
    actions = (rng.standard_normal((60, 3, worlds.world.actions)).astype(np.float32) if worlds.world.continuous
               else rng.integers(worlds.world.actions, size=(60, 3)))
    for row in actions[:30]:
        worlds.step(row)
    state = json.loads(json.dumps(worlds.state()))
    other = make_environments(env_id, 3, seed=99)
    other.load_state(state)
    for row in actions[30:]:
        assert np.array_equal(worlds.observations, other.observations)
        for ours, theirs in zip(worlds.step(row), other.step(row), strict=True):
            assert np.array_equal(ours, theirs)
    assert worlds.observations.shape == (3, worlds.world.observation_size)
    assert worlds.observations.dtype == np.float32


@pytest.mark.parametrize("kind", [CartPoleEnvironments, SingleEnvironments])
def test_ends_are_reset_within_the_step_and_the_last_observation_is_kept(kind):
    world = describe("CartPole-v1")
    worlds = kind(world, 2, 0)
    for _ in range(30):
        before = worlds.observations.copy()
        step = worlds.step(np.array([1, 0]))
        moved = np.abs(step.next_observations - before)
        assert (moved[:, 0] < 0.06).all() and (moved[:, 2] < 0.1).all()  # never across a reset
        for index in range(2):
            if step.terminated[index]:
                assert abs(step.next_observations[index, 2]) > 12 * np.pi / 180
                assert (np.abs(worlds.observations[index]) <= 0.05).all()
            else:
                assert np.array_equal(step.next_observations[index], worlds.observations[index])
            assert step.rewards[index] == 1


def test_the_same_dynamics_as_gymnasium_one_by_one():
    """From the same states, through the vectorised and the single environment."""
    world = describe("CartPole-v1")
    fast = CartPoleEnvironments(world, 1, 3)
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    for action in [1, 0, 1, 1, 0, 1, 1, 1]:
        env.unwrapped.state = fast._env.state[:, 0].copy()
        seen, reward, terminated, *_ = env.step(action)
        step = fast.step(np.array([action]))
        assert np.array_equal(step.next_observations[0], seen)
        assert (reward, terminated) == (step.rewards[0], step.terminated[0])


@pytest.mark.parametrize("kind", [CartPoleEnvironments, SingleEnvironments])
def test_a_time_limit_truncates(kind):
    """A policy that balances: leaning decides, and the end comes at 500 by the clock."""
    worlds, lengths = kind(describe("CartPole-v1"), 2, 1), np.zeros(2, int)
    for _ in range(520):
        seen = worlds.observations
        step = worlds.step((seen @ [0.1, 0.3, 1.0, 0.5] > 0).astype(int))
        lengths += 1
        assert not step.terminated.any()
        assert np.array_equal(step.truncated, lengths == 500)
        lengths[step.truncated] = 0


def test_an_end_at_the_time_limit_is_an_end():
    worlds = CartPoleEnvironments(describe("CartPole-v1"), 1, 1)
    worlds._env.steps[:], worlds._env.state[:, 0] = 499, [0, 0, 0.2, 3.0]
    step = worlds.step(np.array([0]))
    assert step.terminated[0] and not step.truncated[0]


def test_discrete_observations_are_one_hot():
    worlds = make_environments("FrozenLake-v1", 4, 0)
    assert worlds.observations.tolist() == [[1.0] + [0.0] * 15] * 4
    step = worlds.step(np.array([1, 2, 1, 2]))
    assert (step.next_observations.sum(1) == 1).all()


@pytest.mark.parametrize(("env_id", "bounds"), [
    ("CartPole-v1", [4.8, 1, 0.418879, 1]), ("MountainCar-v0", [1.2, 0.07]),
    ("Acrobot-v1", [1, 1, 1, 1, 4 * np.pi, 9 * np.pi]), ("FrozenLake-v1", [])])
def test_the_scale_is_that_of_the_bounds(env_id, bounds):
    assert describe(env_id).scale == pytest.approx([1 / bound for bound in bounds], rel=1e-6)


def test_both_cartpoles_have_one_scale():
    assert WORLD.scale == pytest.approx(describe("CartPole-v1").scale, rel=1e-6)


def test_a_bound_that_says_nothing_scales_nothing():
    high = np.array([2.0, np.finfo(np.float32).max, np.inf, 0.0], np.float32)
    assert _scale(Box(-high, high)) == (0.5, 1.0, 1.0, 1.0)
    assert _scale(Box(np.float32([-4.0]), np.float32([1.0]))) == (0.25,)


def test_a_world_is_described_once():
    assert describe("Acrobot-v1") is describe("Acrobot-v1")


def test_episodes_differ_and_the_seed_decides():
    for env_id in ("CartPole-v1", "Acrobot-v1"):
        one, same, other = (make_environments(env_id, 3, seed).observations for seed in (0, 0, 1))
        assert np.array_equal(one, same) and not np.array_equal(one, other)
        assert len(np.unique(one, axis=0)) == 3


@pytest.mark.parametrize(("env_id", "words"), [
    ("CartPole-v2", "did you mean 'CartPole-v1'"), ("cartpole-v1", "did you mean 'CartPole-v1'"),
    ("Taxi-v3", "did you mean 'Taxi-v4'"), ("Nonsense-v0", "choose one of CartPole-v1"),
    ("os:Evil-v0", "does not import the module 'os'"),
    ("ALE/Pong-v5", "from the package ale-py, which is not installed here"), ("LunarLander-v3", "not installed")])
def test_what_cannot_be_used_is_said(env_id, words):
    if env_id.startswith("Lunar") and find_spec("Box2D"):
        pytest.skip("Box2D is installed here")
    with pytest.raises(LabError, match=words) as raised:
        describe(env_id)
    assert "\n" not in str(raised.value) and str(raised.value)[-1] in ".?"


def test_acrobot_all_at_once_is_gymnasiums_bit_for_bit():
    """Through ends at the goal and at the time limit; its state is one that single environments continue from."""
    world = describe("Acrobot-v1")
    single, together = SingleEnvironments(world, 4, 3), TogetherEnvironments(world, 4, 3)
    rng, ends = np.random.default_rng(1), np.zeros(2)
    for _ in range(700):
        actions = np.where(single.observations[:, 5] > 0, 2, 0)  # along with the lower link: it swings up
        actions[:2] = np.where(rng.random(2) < 0.3, rng.integers(3, size=2), actions[:2])
        actions[3] = 1  # it hangs until the time is over
        expected, found = single.step(actions), together.step(actions)
        for theirs, ours in zip((*expected, single.observations), (*found, together.observations), strict=True):
            assert np.array_equal(theirs, ours)
            assert theirs.dtype == ours.dtype
        ends += found.terminated.sum(), found.truncated.sum()
    assert ends.min() > 0
    assert single.state() == together.state()
    single.load_state(together.state())
    for theirs, ours in zip(single.step(actions), together.step(actions), strict=True):
        assert np.array_equal(theirs, ours)


def test_pendulum_all_at_once_is_gymnasiums_bit_for_bit():
    """Through two time limits, with torques beyond the bounds."""
    world = describe("Pendulum-v1")
    single, together = SingleEnvironments(world, 3, 3), TogetherEnvironments(world, 3, 3)
    rng, ends = np.random.default_rng(1), 0
    for _ in range(410):
        actions = (2 * rng.standard_normal((3, 1))).astype(np.float32)
        expected, found = single.step(actions), together.step(actions)
        for theirs, ours in zip((*expected, single.observations), (*found, together.observations), strict=True):
            assert np.array_equal(theirs, ours) and theirs.dtype == ours.dtype
        ends += found.truncated.sum()
    assert ends == 6 and single.state() == together.state()


def test_arguments_make_another_world():
    lake, other = describe("FrozenLake-v1", "map_name=8x8 is_slippery=false"), describe("FrozenLake-v1")
    assert (lake.observation_size, other.observation_size) == (64, 16)
    worlds = make_environments("FrozenLake-v1", 8, 0, "is_slippery=false")
    assert (worlds.step(np.full(8, 2)).next_observations.argmax(1) == 1).all()  # it never slips
    assert describe("Pendulum-v1", "max_episode_steps=7").max_steps == 7
    heavy, usual = (make_environments("Pendulum-v1", 2, 0, text) for text in ("g=20", ""))
    torque = np.zeros((2, 1), np.float32)
    assert not np.array_equal(heavy.step(torque).next_observations, usual.step(torque).next_observations)


@pytest.mark.parametrize(("env_id", "text", "words"), [
    ("FrozenLake-v1", "is_slipery=false", "FrozenLake-v1 has no argument 'is_slipery': did you mean 'is_slippery'"),
    ("FrozenLake-v1", "map_name=9x9", "FrozenLake-v1 cannot be made with map_name=9x9 .KeyError"),
    ("FrozenLake-v1", "is_slippery=maybe", "`is_slippery` of FrozenLake-v1 is 'maybe': use true or false"),
    ("FrozenLake-v1", "is_slippery=0", "`is_slippery` of FrozenLake-v1 is 0: use true or false"),
    ("Pendulum-v1", "g=heavy", "`g` of Pendulum-v1 is 'heavy': use a number"),
    ("Pendulum-v1", "g=true", "`g` of Pendulum-v1 is True: use a number"),
    ("FrozenLake-v1", "is_slippery", "has no name or no value: write NAME=VALUE"),
    ("FrozenLake-v1", "map_name='8x8", "have a quote that does not end"),
    ("CartPole-v1", "max_episode_steps=0", "`max_episode_steps` of CartPole-v1 is 0: use a whole number from 1")])
def test_a_wrong_argument_is_said(env_id, text, words):
    with pytest.raises(LabError, match=words):
        describe(env_id, text)


class Faulty(gym.Env):
    """An environment with one fault, in its third step. Its observations are a Dict, and its actions have two rows."""

    def __init__(self, fault: str = "", action_space: spaces.Space | None = None):
        self.fault, self.steps = fault, 0
        self.observation_space = spaces.Dict({"kind": spaces.MultiDiscrete([2, 3]), "place": Box(-4, 4, (2, 2))})
        self.action_space = action_space or Box(-1, 1, (2, 1))
        if fault == "space":
            self.action_space = spaces.MultiBinary(3)
        if fault == "sequence":
            self.observation_space = spaces.Sequence(spaces.Discrete(3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        if self.fault == "reset":
            raise RuntimeError("no world today")
        return self._seen(), {}

    def step(self, action):
        assert action.shape == (2, 1) and np.abs(action).max() <= 1
        self.steps += 1
        wrong = self.fault if self.steps == 3 else ""
        if wrong == "raises":
            raise ValueError("a wall\nis in the way")
        return self._seen(wrong), float("nan") if wrong == "reward" else 1.0, False, False, {}

    def _seen(self, wrong=""):
        place = np.full((2, 2), np.nan if wrong == "nan" else 2.0, np.float32)
        return {"kind": np.array([1, 2]), "place": place} if wrong != "shape" else {"kind": np.array([1, 2])}


@pytest.fixture
def faulty():
    gym.register("Faulty-v0", entry_point=Faulty)
    described.cache_clear()
    yield "Faulty-v0"
    del gym.registry["Faulty-v0"]


def test_a_dict_is_flattened_and_an_environment_without_an_end_has_a_limit(faulty):
    world = describe(faulty)
    assert (world.observation_size, world.actions, world.max_steps) == (9, 2, 1000)
    assert world.scale == (1.0,) * 5 + (0.25,) * 4
    worlds = make_environments(faulty, 2, 0)
    assert worlds.observations.tolist() == [[0, 1, 0, 0, 1, 2, 2, 2, 2]] * 2
    assert worlds.step(np.full((2, 2), 9.0, np.float32)).rewards.tolist() == [1, 1]  # clipped to ±1


@pytest.mark.parametrize(("fault", "words"), [
    ("reward", "gave the reward nan in step 3 of an episode"),
    ("raises", "failed in step 3 of an episode .ValueError: a wall.: correct the environment"),
    ("nan", "gave the observation .* and its space has 9 finite numbers"),
    ("shape", "failed in an observation .KeyError"), ("reset", "failed in reset .RuntimeError: no world today"),
    ("space", "has MultiBinary actions, but the methods here need"),
    ("sequence", "observes a Sequence of no fixed length")])
def test_a_faulty_environment_is_said(faulty, fault, words):
    with pytest.raises(LabError, match=words) as raised:
        worlds = make_environments(faulty, 2, 0, f"fault={fault}")
        for _ in range(3):
            worlds.step(np.zeros((2, 2), np.float32))
    assert faulty in str(raised.value) and "\n" not in str(raised.value)
