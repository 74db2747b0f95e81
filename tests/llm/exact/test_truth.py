"""The exact values against numbers worked by hand, a slow twin, and what must hold of an optimum."""

import math

import pytest
import torch
from torch import nn

from labcore.llm.exact.truth import gradient, truth

F64 = torch.float64


def logs(*rows):
    return torch.tensor(rows, dtype=F64).log()


def test_numbers_by_hand():
    """Two completions: π = (¾, ¼), π_ref = (½, ½), R = (1, 0), β = 1/log 3, so that π* ∝ (3, 1) is π itself."""
    beta = 1 / math.log(3)
    found = truth(logs([0.75, 0.25]), logs([0.5, 0.5]), torch.tensor([[1.0, 0.0]]), beta, torch.tensor([1, 3]))
    assert float(found.reward) == pytest.approx(0.75) and float(found.length) == pytest.approx(1.5)
    assert float(found.kl) == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert float(found.kl_reverse) == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))
    assert float(found.entropy) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert float(found.objective) == pytest.approx(float(found.reward - beta * found.kl))
    assert found.optimum.exp().tolist()[0] == pytest.approx([0.75, 0.25])
    assert float(found.distance) == pytest.approx(0)
    assert float(found.best) == pytest.approx(float(found.objective)) == pytest.approx(beta * math.log(2))


def random_problem(seed=0, prompts=2, size=5):
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(prompts, size, generator=generator, dtype=F64)
    ref = torch.randn(prompts, size, generator=generator, dtype=F64).log_softmax(-1)
    return nn.Parameter(theta), ref, torch.rand(prompts, size, generator=generator, dtype=F64)


def test_the_values_are_those_of_a_slow_loop():
    theta, ref, rewards = random_problem()
    logp, beta = theta.detach().log_softmax(-1), 0.3
    found = truth(logp, ref, rewards, beta, torch.arange(5))
    sums = dict.fromkeys(("reward", "kl", "kl_reverse", "entropy", "length", "best", "distance"), 0.0)
    for row in range(2):
        z = sum(math.exp(ref[row, y]) * math.exp(rewards[row, y] / beta) for y in range(5))
        sums["best"] += beta * math.log(z) / 2
        for y in range(5):
            p, q, r = math.exp(logp[row, y]), math.exp(ref[row, y]), float(rewards[row, y])
            star = q * math.exp(r / beta) / z
            for name, value in (("reward", p * r), ("kl", p * math.log(p / q)), ("kl_reverse", q * math.log(q / p)),
                                ("entropy", -p * math.log(p)), ("length", p * y), ("distance", p * math.log(p / star))):
                sums[name] += value / 2
    assert {name: float(getattr(found, name)) for name in sums} == pytest.approx(sums)
    # What is missing to the best value is β times the distance: the identity behind RLHF's optimum.
    assert float(found.best - found.objective) == pytest.approx(beta * float(found.distance))


def test_the_gradient_is_that_of_small_differences_and_vanishes_at_the_optimum():
    theta, ref, rewards = random_problem()

    def objective(values):
        return truth(values.log_softmax(-1), ref, rewards, 0.3).objective
    found, step = gradient(objective(theta), [theta]), 1e-6
    for place in range(10):
        moved = torch.zeros(10, dtype=F64)
        moved[place] = step
        slow = (objective(theta + moved.view(2, 5)) - objective(theta - moved.view(2, 5))) / (2 * step)
        assert float(found[place]) == pytest.approx(float(slow), abs=1e-8)
    star = nn.Parameter(truth(ref, ref, rewards, 0.3).optimum.clone())
    assert float(gradient(objective(star), [star]).norm()) < 1e-12


def test_without_beta_there_is_no_optimum_of_full_support():
    _, ref, rewards = random_problem()
    found = truth(ref, ref, rewards, 0.0)
    assert found.optimum is found.distance is None
    assert float(found.best) == pytest.approx(float(rewards.amax(-1).mean())) and math.isnan(float(found.length))


def test_the_gradient_is_zero_where_a_parameter_has_no_part():
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    assert gradient((used**2).sum(), [used, unused]).tolist() == [2, 2, 0, 0, 0]
