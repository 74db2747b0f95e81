import math
from types import SimpleNamespace

import pytest
import torch

from labcore.catalog.cartpole import ALGORITHMS
from labcore.deep.credit import categorical_kl, lesson, scatter
from labcore.deep.policy_gradient import PSI, psi
from labcore.deep.rollout import Batch


class Sine(torch.nn.Module):
    """The reference's value function, V(obs) = sin(0.37 obs)."""

    def forward(self, observations):
        return torch.sin(observations * 0.37)


class Coin(torch.nn.Module):
    def forward(self, observations):
        return torch.zeros(*observations.shape[:-1], 2)


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
    data = lesson(session, batch)
    close(data.advantages.view(7, 3), known["advantages"], atol=3e-5)  # sin of arguments up to 80 in float32
    close(data.returns.view(7, 3), known["returns"], atol=3e-5)
    close(data.old_values.view(7, 3), known["values"], atol=2e-5)


def test_a_time_limit_taken_for_an_end_is_seen(scripted):
    """The test above is no test if it cannot tell the two apart."""
    batch, session, known = scripted
    mixed = Batch(**{**vars(batch), "terminated": batch.terminated | batch.truncated})
    wrong = lesson(session, mixed).advantages.view(7, 3)
    assert float((wrong - torch.tensor(known["advantages"])).abs().max()) > 0.1


def test_normalised_advantages(scripted):
    batch, session, _ = scripted
    session.knobs["normalise"] = True
    advantages = lesson(session, batch).advantages
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
    return SimpleNamespace(critic=Ten(), knobs={"gamma": 0.5, "gae_lambda": 0.0}), batch


@pytest.mark.parametrize(("choice", "first", "second"), [
    ("total_return", [3, 3, 3], 3), ("reward_to_go", [3, 4, 4], 3), ("baseline", [-7, -6, -6], 3 + 5 - 10),
    ("advantage", [1 + 5 - 10, 2 + 5 - 10, 4 - 10], 3 + 5 - 10)])
def test_the_four_choices_by_hand(two_episodes, close, choice, first, second):
    weights = psi(*two_episodes, choice)
    close(weights[:, 0], torch.tensor(first).float())
    close(weights[0, 1], float(second))


def test_every_choice_is_a_knob():
    assert ALGORITHMS["reinforce"].knob("psi").choices == tuple(PSI)


def test_kl_by_hand(close):
    old, new = (torch.tensor([[p, 1 - p]], dtype=torch.float64).log() for p in (0.7, 0.4))
    close(categorical_kl(old, new), [0.7 * math.log(7 / 4) + 0.3 * math.log(0.5)])
    close(categorical_kl(old, old), [0.0])


def test_the_scatter_is_evenly_spread(scripted):
    batch, session, _ = scripted
    data = lesson(session, batch)
    drawn = scatter(data, points=5)
    assert drawn["values"] == pytest.approx(data.old_values[::5].tolist(), abs=1e-4) and len(drawn["returns"]) == 5
    assert len(scatter(data)["values"]) == 21
