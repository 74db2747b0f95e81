"""Gaussian policies: golden numbers of Stable-Baselines3, and the same questions answered as by a few actions."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from labcore.classic.deep.credit import TrainingBatch
from labcore.classic.deep.distributions import Categorical, DiagGaussian
from labcore.classic.deep.evaluation import play
from labcore.classic.deep.networks import GaussianMLP, flat, parameters, put
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.classic.deep.trpo import fisher_product, gain, step
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from tests.every import now

METHODS = ("ppo", "a2c", "trpo", "reinforce")


@pytest.fixture
def gaussians(golden):
    """The reference's numbers, and two Gaussians with gradients to the parameters of the first."""
    known = golden("sb3_gaussian")
    columns = {key: torch.tensor(known[key], dtype=torch.float64) for key in
               ("mean", "log_std", "other_mean", "other_log_std", "actions")}
    mean, log_std = (columns[key].requires_grad_() for key in ("mean", "log_std"))
    return known, columns["actions"], mean, log_std, DiagGaussian(mean, log_std.expand_as(mean)), DiagGaussian(
        columns["other_mean"], columns["other_log_std"].expand_as(mean))


def test_log_prob_entropy_and_gradients_are_those_of_the_reference(gaussians, close):
    known, actions, mean, log_std, policy, _ = gaussians
    close(policy.log_prob(actions), known["log_prob"])
    close(policy.entropy(), known["entropy"])
    gradients = torch.autograd.grad(policy.log_prob(actions).sum(), (mean, log_std))
    close(gradients[0], known["grad_mean"])
    close(gradients[1], known["grad_log_std"])


def test_the_kl_is_that_of_the_reference_and_of_torch(gaussians, close):
    known, _, _, _, policy, other = gaussians
    close(policy.kl(other), known["kl"])
    normals = [Normal(each.mean, each.log_std.exp()) for each in (other, policy)]
    close(other.kl(policy), kl_divergence(*normals).sum(-1).detach())
    close(policy.kl(policy), torch.zeros(6))


@pytest.mark.parametrize("family", [Categorical, DiagGaussian])
def test_samples_have_the_log_prob_that_is_said_of_them(family, generator):
    """E log π(a) = −H and E ∇ log π(a) = 0 over the samples; the likeliest action has the largest log π."""
    outputs = torch.tensor([0.3, -1.0, 0.2, -0.5]).expand(40_000, 4).requires_grad_()
    policy = family.of(outputs)
    actions = family.sample(outputs.detach(), family.noise((40_000,), 4, generator))
    logprobs = policy.log_prob(actions)
    assert float(logprobs.mean().detach()) == pytest.approx(-float(policy.entropy()[0].detach()), abs=0.02)
    assert torch.autograd.grad(logprobs.mean(), outputs)[0].sum(0).abs().max() < 0.02
    assert (policy.log_prob(family.mode(outputs, outputs)) >= logprobs).all()
    assert torch.equal(policy[10:12].log_prob(actions[10:12]), logprobs[10:12])


def test_the_entropy_of_a_gaussian_by_hand():
    """A standard deviation of 1 has ½ log 2πe nats, each halving takes log 2 away, and it may be negative."""
    wide, narrow = (DiagGaussian(torch.zeros(1), torch.tensor([log_std])) for log_std in (0.0, math.log(0.125)))
    assert float(wide.entropy()) == pytest.approx(1.4189385)
    assert float(narrow.entropy()) == pytest.approx(1.4189385 - 3 * math.log(2)) and float(narrow.entropy()) < 0


@pytest.fixture
def tiny(generator):
    """A Gaussian policy of 22 parameters in float64, and 5 observations."""
    policy = GaussianMLP((3, 2, 2), generator, log_std=-0.4).double()
    put(policy, torch.randn(sum(each.numel() for each in policy.parameters()), generator=generator,
                            dtype=torch.float64))
    return policy, torch.randn(5, 3, generator=generator, dtype=torch.float64)


def test_the_fisher_product_is_the_explicit_fisher_of_a_gaussian(tiny, generator, close):
    """F = mean_s [Jᵀ Σ⁻¹ J + 2 on log σ], J the Jacobian of the mean."""
    policy, observations = tiny
    weights, total = list(policy.parameters()), 0
    for observation in observations:
        outputs = policy.distribution(observation)
        for mean, log_std in zip(outputs.mean, outputs.log_std, strict=True):
            rows = [flat(torch.autograd.grad(number, weights, retain_graph=True, materialize_grads=True))
                    for number in (mean, log_std)]
            scale = (-2 * log_std).exp().detach()
            total = total + scale * torch.outer(rows[0], rows[0]) + 2 * torch.outer(rows[1], rows[1])
    product = fisher_product(policy, observations, damping=0.3)
    v = torch.randn(len(total), generator=generator, dtype=torch.float64)
    close(product(v), total / len(observations) @ v + 0.3 * v)


def test_a_trust_region_step_of_a_gaussian_gains_within_the_kl(start, generator):
    session = start("trpo", {"delta": 0.005, "damping": 1e-3}, task="Pendulum-v1")
    observations = torch.randn(60, 3, generator=generator)
    with torch.no_grad():
        old = session.policy.distribution(observations)
    actions = old.mean + torch.randn(60, 1, generator=generator)
    data = TrainingBatch(observations, actions, old, torch.zeros(60), -actions[:, 0], torch.zeros(60))
    before = float(session.policy.log_std.detach())
    metrics = step(session, data)
    assert 0.002 < metrics["kl/step"] <= 0.005 and float(gain(session.policy, data).detach()) > 0
    assert float(session.policy.log_std.detach()) != before


@pytest.mark.parametrize("method", now(METHODS, "ppo"))
def test_a_continuous_run_again_and_its_resumption(start, tmp_path, method):
    """Bit for bit, with both normalisations; actions beyond the bounds are clipped for the world alone."""
    knobs = {"normalise_observations": True, "normalise_rewards": True, "log_std": 1.0, "rollout_steps": 16}
    given = {key: value for key, value in knobs.items() if key != "rollout_steps" or method != "reinforce"}
    session = start(method, given, task="Pendulum-v1", steps=3)
    records = []
    for record in session.run():
        records.append(record)
        if record.step == 2:
            session.save(tmp_path)
    resumed = start(method, given, task="Pendulum-v1", steps=3, resume=tmp_path)
    assert list(resumed.run()) == records[2:]
    same = session.tensors()
    assert all(torch.equal(value, same[key]) for key, value in resumed.tensors().items())
    std = math.exp(float(session.policy.log_std.detach()))
    assert records[-1].metrics["action/std"] == pytest.approx(std, abs=0.05)
    shown = records[-1].samples["evaluation"]
    assert len(shown["actions"]) == len(shown["rewards"]) == 200 and len(shown["actions"][0]) == 1


def test_the_action_drawn_is_learnt_from_and_the_clipped_one_is_taken(start):
    session = start("ppo", {"log_std": 2.0, "environments": 2}, task="Pendulum-v1")
    batch = collect(session, 20)
    assert batch.actions.shape == (20, 2, 1) and batch.actions.abs().max() > 2
    cost = batch.rewards[0].abs()
    angle = torch.atan2(batch.observations[0, :, 1], batch.observations[0, :, 0])
    torque = batch.actions[0, :, 0].clamp(-2, 2)
    expected = angle**2 + 0.1 * batch.observations[0, :, 2] ** 2 + 0.001 * torque**2
    torch.testing.assert_close(cost, expected, atol=1e-4, rtol=1e-4)


def test_a_method_that_compares_a_few_actions_refuses_continuous_ones(start):
    with pytest.raises(LabError, match=r"Pendulum-v1 has continuous actions, .*choose PPO"):
        start("dqn", task="Pendulum-v1")


def test_the_standard_deviation_is_learnt(start):
    session = start("ppo", {"entropy_coef": 1.0}, task="Pendulum-v1")
    before = parameters(session.policy)[0]
    next(session.run())
    assert parameters(session.policy)[0] > before  # the entropy bonus raises log σ


@pytest.mark.long
@pytest.mark.parametrize(("task", "method", "steps", "needed"), [
    ("MountainCarContinuous-v0", "ppo", 8, 85.0), ("Pendulum-v1", "ppo", 40, -260.0),
    ("Pendulum-v1", "trpo", 60, -300.0)])
def test_a_continuous_world_is_learnt(task, method, steps, needed):
    """With its defaults; the car never reaches its goal before."""
    session = DeepSession.start(make(kind="cartpole", algorithm_key=method, task_key=task, seed=2,
                                     knobs={"eval_every": 10**9, "eval_episodes": 1}))
    first = play(session.acting, task, 1, seed=12345).mean
    for record in session.run():
        if record.step == steps:
            break
    assert first < needed - 50 and play(session.acting, task, 3, seed=12345).mean > needed
