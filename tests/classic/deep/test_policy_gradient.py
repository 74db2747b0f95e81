import copy
import itertools
from dataclasses import fields, replace

import pytest
import torch

from labcore.classic.deep.credit import fit_critic, training_batch
from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.experience import Batch
from labcore.classic.deep.networks import flat, parameters
from labcore.classic.deep.policy_gradient import (
    PSI,
    gradient_variance,
    policy_update,
    psi,
    reward_to_go,
    total_return,
    variances,
)
from labcore.classic.deep.rollout import collect
from labcore.maths.logprobs import selective_log_softmax


@pytest.fixture
def world(generator):
    """Every way through three steps with two actions: observation = step number, reward by table. One column each."""
    paths = torch.tensor(list(itertools.product([0, 1], repeat=3))).T  # (3, 8)
    table = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    rewards = torch.stack([table[t][paths[t]] for t in range(3)])
    seen = torch.eye(3, dtype=torch.float64)[:, None].expand(3, 8, 3)
    ends = torch.zeros(3, 8, dtype=torch.bool)
    ends[2] = True
    batch = Batch(seen, paths, rewards, seen, ends, torch.zeros_like(ends), torch.ones_like(ends))
    return batch, Linear(3, 2, bias=False).double()


class Linear(torch.nn.Linear):
    """A policy without biases and hidden units."""

    def distribution(self, observations):
        return Categorical.of(self(observations))


@pytest.mark.parametrize("choice", [total_return, reward_to_go])
def test_the_expected_gradient_is_that_of_the_return(world, close, choice):
    """E Σ_t Ψ_t ∇ log π = ∇ E R, by going through every episode there is."""
    batch, policy = world
    logprobs = selective_log_softmax(policy(batch.observations), batch.actions)
    chance = logprobs.sum(0).exp()
    exact = torch.autograd.grad((chance * batch.rewards.sum(0)).sum(), policy.weight, retain_graph=True)[0]
    weights = choice(batch.rewards, batch.mask, 1.0)
    estimate = torch.autograd.grad((chance.detach() * (weights * logprobs).sum(0)).sum(), policy.weight)[0]
    close(estimate, exact)


def test_with_a_discount_only_the_return_from_the_start_has_the_gradient_of_the_discounted_return(world, close):
    """What comes after the action lacks γ^t, as the text of the lesson on Ψ says."""
    batch, policy = world
    falls = 0.9 ** torch.arange(3.0, dtype=torch.float64)[:, None]
    logprobs = selective_log_softmax(policy(batch.observations), batch.actions)
    chance = logprobs.sum(0).exp()
    exact = torch.autograd.grad((chance * (falls * batch.rewards).sum(0)).sum(), policy.weight, retain_graph=True)[0]
    whole, after = (choice(batch.rewards, batch.mask, 0.9) for choice in (total_return, reward_to_go))
    found = [torch.autograd.grad((chance.detach() * (weights * logprobs).sum(0)).sum(), policy.weight,
                                 retain_graph=True)[0] for weights in (whole, falls * after, after)]
    close(found[0], exact)
    close(found[1], exact)
    with pytest.raises(AssertionError):
        close(found[2], exact)


def test_gradient_variance_by_a_loop(world, close):
    batch, policy = world
    weights = reward_to_go(batch.rewards, batch.mask, 0.9)
    rows = []
    for i in range(8):
        logprobs = selective_log_softmax(policy(batch.observations[:, i]), batch.actions[:, i])
        rows.append(flat(torch.autograd.grad((weights[:, i] * logprobs).sum(), [policy.weight])))
    mean = sum(rows) / 8
    assert gradient_variance(policy, batch, weights) == pytest.approx(
        float(sum(((row - mean) ** 2).sum() for row in rows) / 7))


def test_gradient_variance_is_that_of_the_steps_that_count(world):
    """The same as of a batch without the steps after the end, whatever these hold."""
    batch, policy = world
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[2] = False
    whole = gradient_variance(policy, replace(batch, mask=mask), torch.where(mask, 1.0, 1e6).double())
    cut = Batch(*(getattr(batch, field.name)[:2] for field in fields(batch)))
    assert whole == pytest.approx(gradient_variance(policy, cut, torch.ones(2, 8, dtype=torch.float64)))


def test_each_choice_has_less_variance_than_the_one_before(start):
    """On one batch, with a critic that has learnt the values of this policy."""
    session = start("reinforce", {"environments": 32, "critic_epochs": 60, "gamma": 0.99, "gae_lambda": 0.9})
    for _ in range(3):
        batch = collect(session, 500, whole_episodes=True)
        fit_critic(session, training_batch(session, batch))
    found = list(variances(session, batch).values())
    assert found == sorted(found, reverse=True) and found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("method", ["reinforce", "a2c"])
def test_an_update_makes_good_actions_likelier(start, method):
    """Turn the sign of the loss, and this turns too."""
    session = start(method, {"normalise": False, "entropy_coef": 0.0, "learning_rate": 1e-3})
    batch = collect(session, 20)
    advantages = torch.where(batch.actions == 1, 1.0, -1.0)
    policy_update(session, training_batch(session, batch, advantages))
    after = session.policy(batch.observations).softmax(-1)[..., 1]
    assert float(after.detach().mean()) > 0.5


def test_the_entropy_bonus_raises_the_entropy(start):
    session = start("a2c", {"normalise": False, "entropy_coef": 1.0, "learning_rate": 1e-3})
    with torch.no_grad():
        session.policy.layers[-1].bias += torch.tensor([1.0, -1.0])
    data = training_batch(session, collect(session, 20), torch.zeros(20, session.environments.count))
    found = [policy_update(session, data)["entropy/action"] for _ in range(10)]
    assert found == sorted(found) and found[-1] > found[0] + 0.01


def test_every_number_of_an_a2c_step_is_a_mean_over_its_updates(start):
    one, two = (list(start("a2c", {"rollouts_per_step": count, "rollout_steps": 40, "anneal": False}, steps=2 // count)
                     .run()) for count in (1, 2))
    own = {key for key in two[0].metrics if not key.startswith(("eval", "episode")) and key != "updates"}
    assert {"kl/step", "explained_variance", "td_error", "policy_loss", "value_loss", "entropy/action"} <= own
    for key in own:
        first, last = (record.metrics[key] for record in one)
        assert two[0].metrics[key] == pytest.approx((first + last) / 2, rel=1e-6), key
    assert one[0].metrics["kl/step"] != one[1].metrics["kl/step"]


def test_the_choice_is_live(start):
    found = {}
    for choice in PSI:
        session = start("reinforce", {"variance_every": 100})
        records = session.run()
        next(records)
        before = parameters(session.policy)
        session.knobs["psi"] = choice
        next(records)
        found[choice] = before, parameters(session.policy)
    assert session.row.knob("psi").default == "advantage"
    usual = found.pop("advantage")
    for choice, (before, after) in found.items():
        assert torch.equal(before, usual[0]) and not torch.equal(after, usual[1]), choice


def test_psi_never_reads_past_the_end(start):
    session = start("reinforce")
    batch = collect(session, 500, whole_episodes=True)
    poisoned = copy.copy(batch)
    object.__setattr__(poisoned, "rewards", torch.where(batch.mask, batch.rewards, 1e9))
    for choice in PSI:
        assert torch.equal(psi(session, batch, choice)[batch.mask], psi(session, poisoned, choice)[batch.mask])


def test_reinforce_learns_from_one_whole_episode_of_each_environment(start):
    session = start("reinforce", {"environments": 3})
    record = next(session.run())
    lengths = session.env_steps
    assert record.env_steps == lengths < 3 * 200 and session.updates == 1  # a random policy drops the pole soon
    assert record.metrics["episode_length"] == pytest.approx(lengths / 3)
