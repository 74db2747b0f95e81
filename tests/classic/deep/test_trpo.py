import pytest
import torch

from labcore.classic.deep import trpo
from labcore.classic.deep.credit import TrainingBatch
from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.networks import MLP, flat, parameters, put
from labcore.classic.deep.trpo import conjugate_gradient, fisher_product, gain, line_search, step


@pytest.fixture
def tiny(generator):
    """A policy of 19 parameters in float64, and 7 observations."""
    policy = MLP((3, 2, 3), generator, gain=1.0).double()
    put(policy, torch.randn(sum(p.numel() for p in policy.parameters()), generator=generator, dtype=torch.float64))
    return policy, torch.randn(7, 3, generator=generator, dtype=torch.float64)


def fisher(policy, observations):
    """mean_s Σ_a π(a|s) ∇log π(a|s) ∇log π(a|s)ᵀ, written out."""
    total = 0
    for observation in observations:
        log_policy = policy(observation).log_softmax(-1)
        for log_prob in log_policy:
            score = flat(torch.autograd.grad(log_prob, list(policy.parameters()), retain_graph=True))
            total = total + log_prob.exp().detach() * torch.outer(score, score)
    return total / len(observations)


def test_conjugate_gradients_solve_the_system(generator, close):
    root = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    matrix, b = root @ root.T + torch.eye(8), torch.randn(8, generator=generator, dtype=torch.float64)
    x = conjugate_gradient(lambda v: matrix @ v, b, 30, tolerance=1e-26)
    close(x, torch.linalg.solve(matrix, b))
    assert float((matrix @ conjugate_gradient(lambda v: matrix @ v, b, 2) - b).norm()) < float(b.norm())
    close(conjugate_gradient(lambda v: matrix @ v, torch.zeros_like(b), 5), torch.zeros(8))


def test_the_fisher_product_is_the_explicit_fisher(tiny, generator, close):
    policy, observations = tiny
    matrix, product = fisher(policy, observations), fisher_product(policy, observations, damping=0.3)
    for _ in range(3):
        v = torch.randn(len(matrix), generator=generator, dtype=torch.float64)
        close(product(v), matrix @ v + 0.3 * v)


def test_the_fisher_is_the_curvature_of_the_kl(tiny, generator, close):
    policy, observations = tiny
    theta, old = parameters(policy), policy.distribution(observations).detach()
    v = torch.randn(len(theta), generator=generator, dtype=torch.float64)
    put(policy, theta + 1e-4 * v)
    kl = old.kl(policy.distribution(observations)).mean()
    put(policy, theta)
    predicted = 0.5 * 1e-8 * (v @ fisher_product(policy, observations, 0.0)(v))
    assert float((kl / predicted).detach()) == pytest.approx(1, abs=1e-3)


def test_the_line_search_takes_the_longest_share_that_is_allowed():
    def measure(share):
        return share * (0.7 - share), share**2  # gain, KL

    assert line_search(measure, 0.3, 0.5, 10) == (0.5, 1)
    assert line_search(measure, 0.1, 0.5, 10) == (0.25, 2)  # 0.5 improves, too far
    assert line_search(lambda share: (-share, 0.0), 1.0, 0.5, 4) == (0.0, 4)
    assert line_search(lambda share: (0.0, 0.0), 1.0, 0.5, 4) == (0.0, 4)  # no gain is no improvement
    assert line_search(lambda share: (float("nan"), 0.0), 1.0, 0.5, 4)[0] == 0


def data_for(policy, observations, generator):
    count = len(observations)
    old = policy.distribution(observations).detach()
    numbers = torch.randn(count, generator=generator).to(old.log_policy.dtype)
    return TrainingBatch(observations, torch.arange(count) % old.log_policy.shape[-1], old,
                         torch.zeros_like(numbers), numbers, numbers)


def test_the_gain_has_the_policy_gradient(tiny, generator, close):
    """At π_old: 0, with the gradient of mean A log π; its sign too."""
    policy, observations = tiny
    data = data_for(policy, observations, generator)
    weights, value = list(policy.parameters()), gain(policy, data)
    close(value, 0.0)
    log_policy = policy(observations).log_softmax(-1)
    score = (data.advantages * log_policy.gather(1, data.actions[:, None])[:, 0]).mean()
    close(flat(torch.autograd.grad(value, weights)), flat(torch.autograd.grad(score, weights)))


def test_the_gain_is_that_of_ratios_worked_by_hand():
    """ρ = 2 and ⅔ with A = 1 and 6: mean (ρ − 1) A = (1 − 2)/2. Log-ratios would give (ln 2 + 6 ln ⅔)/2 = −0.87."""
    policy = MLP((1, 2), torch.Generator())
    torch.nn.init.zeros_(policy.layers[0].weight)
    old = Categorical(torch.tensor([[0.25, 0.75]] * 2).log())
    data = TrainingBatch(torch.ones(2, 1), torch.tensor([0, 1]), old, torch.zeros(2), torch.tensor([1.0, 6.0]),
                         torch.zeros(2))
    assert float(gain(policy, data).detach()) == pytest.approx(-0.5)


def test_a_step_gains_within_the_trust_region(start, generator):
    session = start("trpo", {"delta": 0.005, "damping": 1e-3})
    data = data_for(session.policy, torch.randn(60, 4, generator=generator), generator)
    metrics = step(session, data)
    assert 0 < metrics["kl/step"] <= 0.005 and float(gain(session.policy, data).detach()) > 0
    assert metrics["kl/step"] > 0.002  # and uses most of it


def test_a_step_that_leaves_the_trust_region_is_shortened(start, generator):
    """The policy is so sure that the quadratic model of the KL is wrong: the longer step before the one taken gains
    too, but leaves the trust region.
    """
    session = start("trpo", {"delta": 0.1, "damping": 1e-3, "backtrack": 0.8})
    with torch.no_grad():
        session.policy.layers[-1].weight.mul_(30)
    data = data_for(session.policy, torch.randn(60, 4, generator=generator), generator)
    before = parameters(session.policy)
    metrics = step(session, data)
    assert metrics["line_search/backtracks"] > 0 and 0.05 < metrics["kl/step"] <= 0.1
    put(session.policy, before + (parameters(session.policy) - before) / 0.8)
    with torch.no_grad():
        longer = session.policy.distribution(data.observations)
        assert data.old.kl(longer).mean() > 0.1 and gain(session.policy, data) > 0


def test_a_step_that_cannot_gain_leaves_the_policy(start, generator):
    session = start("trpo")
    data = data_for(session.policy, torch.randn(20, 4, generator=generator), generator)
    still = TrainingBatch(**{**vars(data), "advantages": torch.zeros(20)})
    before = parameters(session.policy)
    assert step(session, still)["line_search/share"] == 0
    assert torch.equal(parameters(session.policy), before)


def test_where_no_share_is_allowed_the_policy_is_what_it_was(start, generator, monkeypatch):
    session = start("trpo")
    data, before = data_for(session.policy, torch.randn(20, 4, generator=generator), generator), parameters(
        session.policy)
    monkeypatch.setattr(trpo, "line_search", lambda measure, *_: (0.0, int(measure(1.0)[1] >= 0)))
    assert step(session, data)["grad_norm"] > 0 and torch.equal(parameters(session.policy), before)


def test_the_trust_region_shrinks_with_the_learning_rate(start, generator):
    """Δθ = √(2δ / xᵀFx) x: at a quarter of δ half as long."""
    norms = []
    for done in (0, 3):
        session = start("trpo", {"anneal": True, "delta": 1e-4}, steps=4)
        session.step = done
        data = data_for(session.policy, torch.randn(60, 4, generator=generator.manual_seed(1)), generator)
        metrics = step(session, data)
        assert metrics["line_search/share"] == 1
        norms.append(metrics["step_norm"])
    assert norms[1] == pytest.approx(norms[0] / 2, rel=1e-3)
