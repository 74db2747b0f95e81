import pytest
import torch

from labcore.classic.deep import measures, ppo
from labcore.classic.deep import record as line
from labcore.classic.deep.credit import TrainingBatch
from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.networks import parameters
from labcore.maths.surrogates import value_loss


def two_actions(logprobs):
    """log π of two actions, the first being the one taken; the reference has some above 0. (N,)"""
    return Categorical(torch.stack([logprobs, torch.log1p(-logprobs.exp().clamp(max=0.95))], 1))


@pytest.fixture
def inputs(golden):
    return {key: torch.tensor(value, dtype=torch.float64) for key, value in golden("sb3_losses")["inputs"].items()}


def data_of(inputs, advantages):
    return TrainingBatch(torch.zeros(24, 1), torch.zeros(24, dtype=torch.long), two_actions(inputs["old_log_prob"]),
                         inputs["old_values"], advantages, inputs["returns"])


@pytest.mark.parametrize("number", [0, 1, 2, 3])  # the others are A2C's: test_policy_gradient
def test_policy_and_value_loss_are_those_of_the_reference(golden, inputs, close, number):
    case = golden("sb3_losses")["cases"][number]
    config, logged = case["config"], case["logged"]
    advantages = inputs["advantages"]
    if config["normalize_advantage"]:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    logprobs = inputs["log_prob"].clone().requires_grad_()
    knobs = {"objective": "clip", "clip_low": config["clip_range"], "clip_high": config["clip_range"],
             "entropy_coef": 0.0, "beta": 0.0}
    log_policy = torch.stack([logprobs, torch.log1p(-logprobs.detach().exp())], 1)
    loss = ppo.policy_loss(Categorical(log_policy), data_of(inputs, advantages), knobs)
    close(loss, logged["train/policy_gradient_loss"], atol=1e-6)
    gradient = torch.autograd.grad(loss, logprobs)[0]
    torch.testing.assert_close(gradient, torch.tensor(case["grad_log_prob"], dtype=torch.float64), rtol=1e-5, atol=1e-6)
    everything = torch.ones(24, dtype=torch.bool)
    fitted = value_loss(inputs["values"], inputs["old_values"], inputs["returns"], everything)
    if config["clip_range_vf"] is None:
        assert float(2 * fitted) == pytest.approx(logged["train/value_loss"], rel=1e-5)


def test_the_clip_fractions_are_those_of_the_reference(golden, inputs):
    """The reference counts every ratio outside the range; ours splits off those that the clip cuts."""
    case = next(case for case in golden("sb3_losses")["cases"] if case["config"]["algo"] == "ppo")
    data = data_of(inputs, inputs["advantages"])
    bounds = {"clip_low": case["config"]["clip_range"], "clip_high": case["config"]["clip_range"], "beta": 1.0}
    outside = ((inputs["log_prob"] - inputs["old_log_prob"]).exp() - 1).abs() > bounds["clip_low"]
    assert float(outside.double().mean()) == pytest.approx(case["logged"]["train/clip_fraction"])
    found = measures.surrogates(two_actions(inputs["log_prob"]), data, bounds)
    cut = measures.cut_off(two_actions(inputs["log_prob"]), data, bounds)
    assert 0 < cut["clip_frac/region"] <= float(outside.double().mean())
    assert cut["clip_frac/region"] == pytest.approx(cut["clip_frac/low"] + cut["clip_frac/high"])
    assert found["surrogate/clip"] <= found["surrogate/cpi"]
    assert found["surrogate/kl_penalised"] == pytest.approx(found["surrogate/cpi"] - found["kl/step"])


@pytest.mark.parametrize("objective", ppo.OBJECTIVE.names)
def test_at_the_old_policy_the_gradient_is_the_policy_gradient(inputs, close, objective):
    data = data_of(inputs, inputs["advantages"])
    log_policy = data.old.log_policy.clone().requires_grad_()
    knobs = {"objective": objective, "clip_low": 0.2, "clip_high": 0.2, "entropy_coef": 0.0, "beta": 3.0}
    gradient = torch.autograd.grad(ppo.policy_loss(Categorical(log_policy), data, knobs), log_policy)[0]
    expected = torch.zeros_like(gradient)
    expected[:, 0] = -inputs["advantages"] / 24
    if objective == "kl_penalty":  # d KL / d log π = −π_old: a constant of the normalised policy, not of these numbers
        expected -= 3.0 * data.old.log_policy.exp() / 24
    close(gradient, expected)


def test_the_kl_coefficient_and_the_entropy_bonus(inputs, close):
    data = data_of(inputs, torch.zeros(24, dtype=torch.float64))
    policy = two_actions(inputs["log_prob"])
    knobs = {"objective": "kl_penalty", "clip_low": 0.2, "clip_high": 0.2, "entropy_coef": 0.5, "beta": 2.0}
    kl = data.old.kl(policy).mean()
    entropy = -(policy.log_policy.exp() * policy.log_policy).sum(1).mean()
    close(ppo.policy_loss(policy, data, knobs), 2 * kl - 0.5 * entropy)


@pytest.mark.parametrize("clip_values", [False, True])
def test_values_are_clipped_where_the_switch_is_on_and_nowhere_else(start, close, clip_values):
    """Old values of 3, far above the new critic's: clipped, V counts as 2.9, and has no gradient."""
    session = start("ppo", {"clip_values": clip_values, "value_clip": 0.1})
    observations = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        old, values = session.policy.distribution(observations), session.critic(observations)[:, 0]
    data = TrainingBatch(observations, torch.zeros(24, dtype=torch.long), old, torch.full((24,), 3.0), torch.ones(24),
                         values - 0.5)
    free, clipped = ((value - data.returns).square().mean() / 2 for value in (values, torch.full((24,), 2.9)))
    assert values.abs().max() < 2 and clipped > 10 * free
    before = parameters(session.critic)
    close(ppo.update(session, data)[1], clipped if clip_values else free)
    assert torch.equal(parameters(session.critic), before) == clip_values


def test_parts_cover_every_row_once_per_epoch(start):
    session = start("ppo", {"epochs": 3, "mini_batches": 4})
    data = TrainingBatch(*[torch.arange(22)] * 6)
    rows = list(ppo.parts(session, data))
    assert len(rows) == 12
    for epoch in range(3):
        assert sorted(torch.cat(rows[4 * epoch: 4 * epoch + 4]).tolist()) == list(range(22))
    session.knobs["mini_batches"] = 1
    assert list(ppo.parts(session, data)) == [None] * 3


def test_knobs_count_at_the_next_update(start):
    session = start("ppo", {"anneal": False})
    records = session.run()
    next(records)
    before = parameters(session.policy)
    session.knobs["learning_rate"] = 0.0
    next(records)
    assert torch.equal(parameters(session.policy), before)


@pytest.mark.parametrize("objective", ppo.OBJECTIVE.names)
def test_what_is_clipped_is_said_where_something_is(start, objective):
    record = next(start("ppo", {"objective": objective}).run())
    assert {key for key in record.metrics if key.startswith("clip_frac/")} == (
        {"clip_frac/region", "clip_frac/low", "clip_frac/high"} if objective == "clip" else set())


def test_the_adaptive_beta_follows_the_kl(start):
    session = start("ppo", {"objective": "kl_penalty", "kl_target": 1e-9, "eval_every": 100}, steps=3)
    betas = [record.metrics["beta"] for record in session.run()]
    assert betas == [1, 2, 4]


@pytest.mark.parametrize("kl, factor", [(0.005, 0.5), (0.0066, 0.5), (0.0067, 1), (0.008, 1), (0.012, 1), (0.0149, 1),
                                        (0.0151, 2), (0.03, 2)])
def test_beta_keeps_its_factor_between_d_over_1_5_and_1_5_d(kl, factor):
    """d = 0.01: halved below 0.00667, doubled above 0.015."""
    assert ppo.adapt(1.0, kl, 0.01) == factor and ppo.adapt(8.0, kl, 0.01) == 8 * factor


def test_beta_stays_within_2_to_the_20():
    most, least = 1.0, 1.0
    for _ in range(30):
        most, least = ppo.adapt(most, 1.0, 0.01), ppo.adapt(least, 0.0, 0.01)
    assert (most, least) == (2.0**20, 2.0**-20)


def test_the_line_runs_from_the_old_to_the_new_policy(start):
    session = start("ppo", {"clip_low": 0.1}, steps=1)
    record = next(session.run())
    after = parameters(session.policy)
    curves = record.line
    old, new = curves["alpha"].index(0.0), curves["alpha"].index(1.0)
    assert curves["kl"][old] == pytest.approx(0, abs=1e-6)
    for name, key in (("kl", "kl/step"), ("cpi", "surrogate/cpi"), ("clip", "surrogate/clip")):
        assert curves[name][new] == pytest.approx(record.metrics[key], abs=1e-5)
    assert torch.equal(parameters(session.policy), after) and len(curves["clip"]) == len(line.ALPHAS)


def test_the_clip_range_falls_with_the_learning_rate_and_the_price_has_its_factor(start):
    for anneal, left in ((False, 1.0), (True, 0.75)):
        session = start("ppo", {"anneal": anneal, "clip_low": 0.1, "clip_high": 0.3, "beta": 2.0}, steps=4)
        session.step, session.numbers["beta_factor"] = 1, 4.0
        assert ppo.settings(session) == {"clip_low": pytest.approx(0.1 * left),
                                         "clip_high": pytest.approx(0.3 * left), "beta": 8.0}


def test_every_epoch_cuts_the_batch_anew(start):
    session = start("ppo", {"epochs": 2, "mini_batches": 2})
    first, _, second, _ = (part.tolist() for part in ppo.parts(session, TrainingBatch(*[torch.arange(22)] * 6)))
    assert sorted(first) != sorted(second) and sorted(first) != list(range(11))
