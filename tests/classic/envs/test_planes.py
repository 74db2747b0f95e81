"""Planes of observations: every place is where its observation lies, and observations fit their world."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from labcore.classic.envs.gym_world import World, describe
from labcore.classic.envs.planes import POINTS, plane_of

WITH = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")


@pytest.mark.parametrize("env_id", WITH)
def test_a_place_is_where_its_observation_lies(env_id):
    world = describe(env_id)
    plane = plane_of(world)
    seen = plane.observations()
    assert seen.shape == (POINTS**2, world.observation_size)
    across, up = plane.axes
    for place in (0, 17, POINTS * 5 + 3, POINTS**2 - 2):
        expected = across[place % POINTS], up[place // POINTS]
        found = plane.place(seen[place].tolist())
        # an angle of −π and of π is one
        assert np.allclose(np.exp(1j * np.array(found)), np.exp(1j * np.array(expected)), atol=1e-3)


def test_the_plane_holds_what_the_world_can_observe():
    for env_id in ("Pendulum-v1", "MountainCar-v0"):
        seen, box = plane_of(describe(env_id)).observations(), gym.make(env_id).observation_space
        assert isinstance(box, Box)
        assert (seen >= box.low - 1e-5).all() and (seen <= box.high + 1e-5).all()


def test_two_bounded_numbers_are_a_plane_and_others_are_none():
    own = World("Own-v0", 2, 2, 10, scale=(0.5, 0.25))
    plane = plane_of(own)
    assert (plane.low, plane.high, plane.path([[1.0, 2.0]])) == ((-2, -4), (2, 4), [[1.0, 2.0]])
    for other in (World("Own-v0", 2, 2, 10, scale=(0.5, 1.0)), World("Own-v0", 2, 2, 10, states=True),
                  World("Own-v0", 8, 2, 10, scale=(0.5,) * 8), World("mine/CartPole-v7", 6, 2, 10)):
        assert plane_of(other) is None
