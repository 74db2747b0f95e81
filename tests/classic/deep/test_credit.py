import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from labcore.catalog.cartpole import ALGORITHMS
from labcore.classic.deep import credit
from labcore.classic.deep.credit import training_batch
from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.experience import Batch
from labcore.classic.deep.measures import scatter
from labcore.classic.deep.networks import parameters
from labcore.classic.deep.policy_gradient import PSI, psi


class Sine(torch.nn.Module):
    """The reference's value function, V(obs) = sin(0.37 obs)."""

    def forward(self, observations):
        return torch.sin(observations * 0.37)


class Coin:
    def distribution(self, observations):
        return Categorical.of(torch.zeros(*observations.shape[:-1], 2))


@pytest.fixture
def scripted(golden):
    """The reference's scripted environments as a batch, and what it made of them."""
    known = golden("sb3_gae")["collect_rollouts_with_timeouts"]
    raw = known["raw_steps_per_env"]

    def column(key, dtype):
        return torch.tensor([[steps[t][key] for steps in raw] for t in range(7)], dtype=dtype)
    batch = Batch(torch.tensor(known["obs"]).unsqueeze(-1), torch.zeros(7, 3, dtype=torch.long),
                  column("reward", torch.float32), column("next_obs", torch.float32).unsqueeze(-1),
                  column("terminated", torch.bool), column("truncated", torch.bool), torch.ones(7, 3, dtype=torch.bool))
    session = SimpleNamespace(policy=Coin(), critic=Sine(), knobs={
        "gamma": known["gamma"], "gae_lambda": known["gae_lambda"], "normalise": False})
    return batch, session, known


def test_time_limits_bootstrap_as_in_the_reference(scripted, close):
    batch, session, known = scripted
    assert batch.truncated.any() and batch.terminated.any()
    data = training_batch(session, batch)
    close(data.advantages.view(7, 3), known["advantages"], atol=3e-5)  # sin of arguments up to 80 in float32
    close(data.returns.view(7, 3), known["returns"], atol=3e-5)
    close(data.old_values.view(7, 3), known["values"], atol=2e-5)


def test_a_time_limit_taken_for_an_end_is_seen(scripted):
    """The test above is no test if it cannot tell the two apart."""
    batch, session, known = scripted
    mixed = Batch(**{**vars(batch), "terminated": batch.terminated | batch.truncated})
    wrong = training_batch(session, mixed).advantages.view(7, 3)
    assert float((wrong - torch.tensor(known["advantages"])).abs().max()) > 0.1


def test_normalised_advantages(scripted):
    batch, session, _ = scripted
    session.knobs["normalise"] = True
    advantages = training_batch(session, batch).advantages
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-6)
    assert float(advantages.std()) == pytest.approx(1, abs=1e-5)


@pytest.fixture
def two_episodes():
    """Rewards 1, 2, 4 and then the end; 3 and then the time limit; V = 10 everywhere, γ = ½, λ = 0."""
    class Ten(torch.nn.Module):
        def forward(self, observations):
            return torch.full((*observations.shape[:-1], 1), 10.0)
    rewards = torch.tensor([[1.0, 3.0], [2.0, 99.0], [4.0, 99.0]])
    terminated, truncated = torch.zeros(2, 3, 2, dtype=torch.bool)
    terminated[2, 0] = truncated[0, 1] = True
    mask = torch.tensor([[True, True], [True, False], [True, False]])
    batch = Batch(torch.zeros(3, 2, 1), torch.zeros(3, 2, dtype=torch.long), rewards, torch.zeros(3, 2, 1), terminated,
                  truncated, mask)
    knobs = {"gamma": 0.5, "gae_lambda": 0.0, "normalise": False}
    return SimpleNamespace(policy=Coin(), critic=Ten(), knobs=knobs), batch


@pytest.mark.parametrize(("choice", "first", "second"), [
    ("total_return", [3, 3, 3], 3), ("reward_to_go", [3, 4, 4], 3), ("baseline", [-7, -6, -6], 3 + 5 - 10),
    ("advantage", [1 + 5 - 10, 2 + 5 - 10, 4 - 10], 3 + 5 - 10)])
def test_the_four_choices_by_hand(two_episodes, close, choice, first, second):
    weights = psi(*two_episodes, choice)
    close(weights[:, 0], torch.tensor(first).float())
    close(weights[0, 1], float(second))


@pytest.mark.parametrize("choice", list(PSI))
def test_the_critic_learns_the_returns_of_gae_whatever_the_weight(two_episodes, close, choice):
    """A_GAE + V with λ = 0: r + γ V(s'), and r alone at the end; only the policy has Ψ."""
    session, batch = two_episodes
    weights = psi(session, batch, choice)
    data = training_batch(session, batch, weights)
    close(data.returns, [1 + 5.0, 3 + 5.0, 2 + 5.0, 4.0])
    close(data.advantages, weights[batch.mask])


def test_steps_after_the_end_of_an_episode_are_not_learnt(two_episodes, close):
    """The second environment ended at once: its other two steps are nobody's, whatever they hold."""
    session, batch = two_episodes
    numbers = torch.tensor([[0.0, 1.0], [2.0, 99.0], [3.0, 99.0]])
    seen = replace(batch, observations=numbers.unsqueeze(-1), actions=numbers.long() % 2)
    data = training_batch(session, seen)
    close(data.observations[:, 0], [0.0, 1.0, 2.0, 3.0])
    assert data.actions.tolist() == [0, 1, 0, 1] and len(data.old.log_policy) == 4 and {
        len(column) for name, column in vars(data).items() if name != "old"} == {4}
    close(data.advantages, [1 + 5 - 10.0, 3 + 5 - 10.0, 2 + 5 - 10.0, 4 - 10.0])
    session.knobs["normalise"] = True
    advantages = training_batch(session, seen).advantages
    close(advantages.mean(), 0.0)
    close(advantages, torch.tensor([-4.0, -2.0, -3.0, -6.0]).add(3.75) / (8.75 / 3) ** 0.5)


def test_every_choice_is_a_knob():
    assert ALGORITHMS["reinforce"].knob("psi").choices == tuple(PSI)


def test_kl_by_hand(close):
    old, new = (Categorical(torch.tensor([[p, 1 - p]], dtype=torch.float64).log()) for p in (0.7, 0.4))
    close(old.kl(new), [0.7 * math.log(7 / 4) + 0.3 * math.log(0.5)])
    close(old.kl(old), [0.0])


def test_the_scatter_is_evenly_spread(scripted):
    batch, session, _ = scripted
    data = training_batch(session, batch)
    drawn = scatter(data, points=5)
    assert drawn["values"] == pytest.approx(data.old_values[::5].tolist(), abs=1e-4) and len(drawn["returns"]) == 5
    assert len(scatter(data)["values"]) == 21


@pytest.mark.parametrize("still, moves", [("policy", "critic"), ("critic", "policy")])
def test_policy_and_critic_have_a_learning_rate_each(start, still, moves):
    session = start("ppo")
    session.knobs |= {"learning_rate": 0.01, "critic_learning_rate": 0.01}
    session.knobs["learning_rate" if still == "policy" else "critic_learning_rate"] = 0.0
    before = {name: parameters(session.networks[name]) for name in (still, moves)}
    next(session.run())
    assert torch.equal(parameters(session.networks[still]), before[still])
    assert not torch.equal(parameters(session.networks[moves]), before[moves])


def test_the_critic_is_fitted_so_many_times(start, monkeypatch):
    session, losses = start("reinforce", {"critic_epochs": 3}), []
    monkeypatch.setattr(credit, "critic_update", lambda *_: losses.append(len(losses) + 1.0) or losses[-1])
    assert credit.fit_critic(session, None) == 2 and losses == [1, 2, 3]
