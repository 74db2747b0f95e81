"""The critic: the policy's trunk with a number per position, zero at first, and its own."""

import pytest
import torch

from labcore.llm.nets.critic import Critic
from tests.llm.tools import CACHED, CACHELESS, completion_ids, model, session, shake, weights


@pytest.mark.parametrize("kind", [*CACHED, *CACHELESS])
def test_values_are_zero_at_first_and_one_per_position(kind):
    values = Critic(model(kind))(input_ids=completion_ids(2, 5)).logits
    assert values.shape == (2, 5, 1) and (values == 0).all() and values.dtype == torch.float32


def test_only_the_last_positions_are_computed_where_asked():
    critic = Critic(model())
    torch.nn.init.ones_(critic.head.weight)
    ids = completion_ids(2, 5)
    torch.testing.assert_close(critic(input_ids=ids, logits_to_keep=2).logits, critic(input_ids=ids).logits[:, -2:])


def test_the_trunk_is_a_copy():
    policy = model()
    critic, before = Critic(policy), weights(policy)
    assert torch.equal(weights(critic.trunk), weights(policy.base_model))
    shake(critic)
    assert torch.equal(weights(policy), before)


def test_only_algorithms_that_need_one_have_one():
    assert session("grpo").critic is None and session("ppo").critic is not None
    assert set(session("ppo").optimizers) == {"policy", "critic"} and set(session("grpo").optimizers) == {"policy"}
    own_mix = session("grpo", advantage="group_mean")
    assert own_mix.critic is None
