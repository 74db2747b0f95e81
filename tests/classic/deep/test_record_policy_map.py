"""The picture of a policy over a plane: the networks' outputs at each of its points."""

import pytest
import torch

from labcore.classic.deep.record import policy_map
from labcore.classic.envs.planes import POINTS, plane_of


@pytest.mark.parametrize(("method", "task"), [("ppo", "Pendulum-v1"), ("ppo", "CartPole-v1"),
                                              ("dqn", "MountainCar-v0")])
def test_the_map_is_what_the_networks_say(start, method, task):
    session = start(method, task=task)
    with torch.no_grad():
        for network in session.networks.values():
            network.layers[-1].bias.add_(torch.linspace(0.5, 3.0, network.sizes[-1]))
    found = policy_map(session, [[0.0] * session.environments.world.observation_size])
    plane = plane_of(session.environments.world)
    row, column = 4, 20
    seen = torch.from_numpy(plane.observations())[row * POINTS + column]
    outputs = session.acting(seen).detach()
    action = float(outputs[0].clamp(-2, 2)) if found["bounds"] else float(outputs.argmax())
    value = session.critic(seen).detach()[0] if method == "ppo" else outputs.max()
    assert found["action"][row][column] == pytest.approx(action, abs=1e-3)
    assert found["value"][row][column] == pytest.approx(float(value), abs=1e-3)
    assert (found["bounds"] == [-2, 2]) == (task == "Pendulum-v1") and len(found["path"]) == 1


def test_a_world_of_states_has_none(start):
    assert policy_map(start("ppo", task="FrozenLake-v1"), [[0]]) is None
