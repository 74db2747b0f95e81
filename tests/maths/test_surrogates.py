import math

import pytest
import torch

from labcore.maths import kl, ratios, surrogates
from labcore.maths.aggregation import sequence_mean_token_sum
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.masked import masked_sum

RATIO = torch.tensor([0.5, 1.0, 2.0, 0.5, 1.0, 2.0], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
ALL = torch.ones(24, dtype=bool)


def test_clip_by_hand(close):
    ratio = RATIO.clone().requires_grad_()
    surrogate = surrogates.clip(ratio, ADVANTAGES, 0.2, 0.3)
    close(surrogate, [0.5, 1, 1.3, -0.8, -1, -2])
    # Cut off only where the advantage pushes further out.
    close(torch.autograd.grad(surrogate.sum(), ratio)[0], [1, 1, 0, 0, -1, -1])


def test_others_by_hand(close):
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64).requires_grad_()
    advantages = torch.tensor([3.0, -0.5], dtype=torch.float64)
    surrogate = surrogates.score_function(logprobs, advantages)
    close(surrogate, [-3, 1])
    close(torch.autograd.grad(surrogate.sum(), logprobs)[0], advantages)
    close(surrogates.cpi(RATIO, ADVANTAGES), [0.5, 1, 2, -0.5, -1, -2])
    penalty = torch.tensor([0.1, 0.3], dtype=torch.float64)
    close(surrogates.kl_penalty(RATIO[:2], ADVANTAGES[:2], penalty, 2.0), [0.3, 0.4])


def test_loop_twin(close, batch):
    ratio = ratios.token(batch["logprobs"], batch["old_logprobs"], batch["completion_mask"])
    surrogate = surrogates.clip(ratio, batch["advantages"], 0.2, 0.28)
    for r, a, s in zip(ratio.flatten(), batch["advantages"].flatten(), surrogate.flatten(), strict=True):
        close(s, min(r * a, min(max(r, 0.8), 1.28) * a))


def test_the_clipped_is_never_above_the_unclipped(batch):
    ratio = ratios.token(batch["logprobs"], batch["old_logprobs"], batch["completion_mask"])
    clipped = surrogates.clip(ratio, batch["advantages"], 0.2, 0.28)
    unclipped = surrogates.cpi(ratio, batch["advantages"])
    assert (clipped <= unclipped).all() and (clipped < unclipped).any()
    assert torch.equal(surrogates.clip(ratio, batch["advantages"], 1.0, 1e9), unclipped)


@pytest.mark.parametrize("ratio", [ratios.token, ratios.sequence_sum])
@pytest.mark.parametrize("surrogate", [
    lambda rho, a: surrogates.clip(rho, a, 0.2, 0.2), lambda rho, a: surrogates.cpi(rho, a),
    lambda rho, a: surrogates.soft_gate(rho, a, 1.0, 1.05)], ids=["clip", "cpi", "soft_gate"])
def test_on_policy_the_gradient_is_that_of_reinforce(close, batch, ratio, surrogate):
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratio(logprobs, logprobs.detach(), mask)
    lengths = mask.sum(1, keepdim=True) if ratio is ratios.sequence_sum else 1  # its one term stands in T_i places
    by_ratio = torch.autograd.grad(masked_sum(surrogate(rho, batch["advantages"] / lengths), mask),
                                   logprobs)[0]
    by_score = torch.autograd.grad(masked_sum(surrogates.score_function(logprobs, batch["advantages"]), mask),
                                   logprobs)[0]
    close(by_ratio, by_score)


def test_cispo_on_policy_is_reinforce(close, batch):
    """Value and gradient, for any cap of at least 1; a lower cap scales both."""
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratios.token(logprobs, logprobs.detach(), mask)
    score = surrogates.score_function(logprobs, batch["advantages"])
    for cap, factor in ((5.0, 1.0), (1.0, 1.0), (0.2, 0.2)):
        weighted = surrogates.detached_weight(rho, logprobs, batch["advantages"], cap)
        close(weighted, factor * score)
        close(torch.autograd.grad(masked_sum(weighted, mask), logprobs)[0],
              factor * torch.autograd.grad(masked_sum(score, mask), logprobs, retain_graph=True)[0])


@pytest.mark.parametrize("kind", ["score_function", "clip", "cpi", "detached_weight", "soft_gate"])
@pytest.mark.parametrize("baseline", [0.0, 2.0])
def test_expected_gradient_is_the_policy_gradient(close, policy, kind, baseline):
    """E[∇L] = −∇J over all sequences, for a reward of the whole sequence and any baseline."""
    logits, tokens, mask, prefixes = policy
    logits = logits.clone().requires_grad_()
    rewards = torch.tensor([0.3, -1.0, 2.0, 0.5, 1.5, -0.2, 0.9], dtype=torch.float64)
    logprobs = selective_log_softmax(logits[prefixes], tokens)
    p = masked_sum(logprobs, mask, dim=1).exp()
    true = torch.autograd.grad((p * rewards).sum(), logits, retain_graph=True)[0]
    advantages = (rewards - baseline)[:, None]
    rho = ratios.token(logprobs, logprobs.detach(), mask)
    surrogate = {"score_function": lambda: surrogates.score_function(logprobs, advantages),
                 "clip": lambda: surrogates.clip(rho, advantages, 0.2, 0.2),
                 "cpi": lambda: surrogates.cpi(rho, advantages),
                 "detached_weight": lambda: surrogates.detached_weight(rho, logprobs, advantages, 5.0),
                 "soft_gate": lambda: surrogates.soft_gate(rho, advantages, 1.0, 1.05)}[kind]()
    loss = sequence_mean_token_sum(-p.detach()[:, None] * surrogate, mask, total_rows=1)
    gradient = torch.autograd.grad(loss, logits)[0]
    close(gradient, -true)
    with pytest.raises(AssertionError):
        close(-gradient, -true)


def test_kl_penalised_to_the_old_policy_starts_like_the_unclipped(close, batch):
    """At π = π_old the KL and its gradient are 0: the penalty only bends the line further out."""
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratios.token(logprobs, logprobs.detach(), mask)
    penalty = kl.k3(logprobs.detach(), logprobs)
    for surrogate in (surrogates.cpi(rho, batch["advantages"]),
                      surrogates.kl_penalty(rho, batch["advantages"], penalty, 0.7)):
        close(surrogate, batch["advantages"])
        close(torch.autograd.grad(surrogate[mask].sum(), logprobs, retain_graph=True)[0],
              torch.where(mask, batch["advantages"], 0))


def test_cut_by_hand():
    cut = surrogates.clip_cut(RATIO, ADVANTAGES, 0.2, 0.3)
    assert cut["low"].tolist() == [False] * 3 + [True, False, False]
    assert cut["high"].tolist() == [False, False, True] + [False] * 3
    assert {side: tokens.tolist() for side, tokens in surrogates.cap_cut(RATIO, ADVANTAGES, 1.5).items()} == {
        "high": [False, False, True] + [False] * 3}
    for untouched in ((RATIO, 0 * ADVANTAGES, 0.2, 0.3), (0 * RATIO + 1, ADVANTAGES, 0.0, 0.0)):
        assert not any(tokens.any() for tokens in surrogates.clip_cut(*untouched).values())
    assert not surrogates.cap_cut(RATIO, ADVANTAGES, 2.0)["high"].any()


def test_cut_fractions_by_hand(close):
    mask = torch.tensor([True, True, True, True, True, False])
    shares = surrogates.cut_fractions(surrogates.clip_cut(RATIO, ADVANTAGES, 0.2, 0.3), mask)
    close(shares["low"], 1 / 5), close(shares["high"], 1 / 5), close(shares["region"], 2 / 5)
    assert list(shares) == ["low", "high", "region"]
    # Sides may overlap: the region counts a token once. What the mask leaves out is in no share.
    sides = {"a": RATIO > 1, "b": ADVANTAGES > 0}
    shares = surrogates.cut_fractions(sides, mask)
    close(shares["a"], 1 / 5), close(shares["b"], 3 / 5), close(shares["region"], 3 / 5)
    only = surrogates.cut_fractions(surrogates.cap_cut(RATIO, ADVANTAGES, 1.5), mask)
    assert only.keys() == {"high", "region"} and only["high"] == only["region"]
    assert not any(surrogates.cut_fractions(sides, torch.zeros(6, dtype=bool)).values())


def test_the_bounds_of_the_geometric_clip_are_those_of_log_ratios():
    """ln 0.63 = −0.46, ln 0.7 = −0.36, ln 1.21 = 0.19, ln 1.23 = 0.21: within 1 − ε and 1 + ε is another matter."""
    ratio = torch.tensor([0.63, 0.7, 1.21, 1.23])
    for sign, low, high in ((-1.0, [True, False, False, False], [False] * 4), (1.0, [False] * 4, [False] * 3 + [True])):
        cut = surrogates.geometric_cut(ratio, torch.full((4,), sign), 0.4, 0.2)
        assert {side: tokens.tolist() for side, tokens in cut.items()} == {"low": low, "high": high}


BOUNDS = {"clip_low": 0.5, "clip_high": 0.3}


@pytest.mark.parametrize("name, knobs", [
    ("clip", BOUNDS), ("geometric", BOUNDS), ("geometric", {"clip_low": 0.2, "clip_high": 0.6}),
    *(("bounded", {**BOUNDS, "clip_delta": delta, "dual_clip": dual}) for delta in (0.0, 1.1, 2.0)
      for dual in (0.0, 1.2, 3.0))])
def test_the_cut_of_a_surrogate_is_where_its_slope_is_0(name, knobs):
    """Completions of one token with ratios from 0.2 to 7, none of them on a bound, good ones and bad ones."""
    ratio = torch.linspace(-1.61, 1.95, 90, dtype=torch.float64).exp()[:, None].requires_grad_()
    surrogate, cut = {"clip": (surrogates.clip, surrogates.clip_cut),
                      "bounded": (surrogates.bounded_clip, surrogates.bounded_cut),
                      "geometric": (lambda ratio, advantages, **given: surrogates.geometric_clip(
                          ratio, advantages, torch.ones(90, 1) > 0, **given), surrogates.geometric_cut)}[name]
    for advantage in (-2.0, 1.0):
        advantages = torch.full_like(ratio, advantage)
        slope = torch.autograd.grad(surrogate(ratio, advantages, **knobs).sum(), ratio)[0]
        sides = cut(ratio.detach(), advantages, **knobs)
        assert torch.equal(torch.stack([*sides.values()]).any(0), slope == 0)
        assert sides["low"].any() == (advantage < 0) and sides["high"].any() == (advantage > 0)


def test_what_the_cap_cuts_keeps_its_gradient(close, batch):
    """CISPO: a capped token still learns, with the weight of the cap."""
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratios.token(logprobs, batch["old_logprobs"], mask)
    surrogate = surrogates.detached_weight(rho, logprobs, batch["advantages"], 1.1)
    gradient = torch.autograd.grad(surrogate[mask].sum(), logprobs)[0]
    capped = surrogates.cap_cut(rho, batch["advantages"], 1.1)["high"]
    assert capped.any() and (gradient[mask] != 0).all()
    close(gradient[capped], 1.1 * batch["advantages"][capped])
    close(gradient[mask], (rho.clamp(max=1.1) * batch["advantages"])[mask].detach())


def test_detached_weight_by_hand(close):
    logprobs = torch.full_like(RATIO, -2.0).requires_grad_()
    ratio = RATIO.clone().requires_grad_()
    surrogate = surrogates.detached_weight(ratio, logprobs, 3 * ADVANTAGES, 1.5)
    close(surrogate, [-3, -6, -9, 3, 6, 9])
    by_logprob, by_ratio = torch.autograd.grad(surrogate.sum(), (logprobs, ratio), allow_unused=True)
    close(by_logprob, [1.5, 3, 4.5, -1.5, -3, -4.5])
    assert by_ratio is None


def test_soft_gate_by_hand(close):
    """σ(0) = 1/2, σ(log 3) = 3/4: with τ = log 3 a ratio of 2 stands there, and one of 0 at 1/4."""
    tau = math.log(3)
    ratio = torch.tensor([1.0, 2.0, 0.0, 2.0], dtype=torch.float64).requires_grad_()
    advantages = torch.tensor([2.0, 2.0, 2.0, -1.0], dtype=torch.float64)
    surrogate = surrogates.soft_gate(ratio, advantages, tau, 2 * tau)
    close(surrogate, [4 / tau, 6 / tau, 2 / tau, -2 / tau * 9 / 10])
    # Slope 4 p (1 − p) A.
    close(torch.autograd.grad(surrogate.sum(), ratio)[0], [2, 1.5, 1.5, -4 * 0.9 * 0.1])


def test_soft_gate_loop_twin(close, batch):
    ratio = ratios.token(batch["logprobs"], batch["old_logprobs"], batch["completion_mask"])
    surrogate = surrogates.soft_gate(ratio, batch["advantages"], 1.0, 1.05)
    for r, a, s in zip(ratio.flatten().tolist(), batch["advantages"].flatten().tolist(), surrogate.flatten(),
                       strict=True):
        tau = 1.0 if a > 0 else 1.05
        close(s, 4 / tau / (1 + math.exp(-tau * (r - 1))) * a)


@pytest.mark.parametrize("gate", [0.5, 1.0, 3.0])
def test_the_gate_is_open_at_1_and_closes_on_both_sides(close, gate):
    ratio = torch.tensor([-30.0, 0.5, 0.99, 1.0, 1.01, 1.5, 32.0], dtype=torch.float64).requires_grad_()
    surrogate = surrogates.soft_gate(ratio, torch.full_like(ratio, 1.7), gate, 9.0)
    slope = torch.autograd.grad(surrogate.sum(), ratio)[0] / 1.7
    close(slope[3], 1)
    assert (slope.diff()[:3] > 0).all() and (slope.diff()[3:] < 0).all()
    assert slope[0] < 1e-5 and slope[-1] < 1e-5
    # A higher temperature closes it sooner.
    sharper = torch.autograd.grad(surrogates.soft_gate(ratio, torch.ones_like(ratio), 2 * gate, 9.0).sum(), ratio)[0]
    assert sharper[1] < slope[1] and sharper[5] < slope[5]


def test_an_advantage_of_0_gives_0_everywhere():
    zero = torch.zeros_like(RATIO)
    assert (surrogates.soft_gate(RATIO, zero, 1.0, 1.05) == 0).all()
    assert (surrogates.detached_weight(RATIO, RATIO, zero, 5.0) == 0).all()


@pytest.mark.parametrize("name", ["clip", "soft_gate", "detached_weight", "score_function"])
def test_gradients_are_those_of_finite_differences(batch, name):
    """With the ratio a constant where a surrogate detaches it. No ratio of the batch lies at a bound."""
    mask, advantages = batch["completion_mask"], batch["advantages"]
    constant = ratios.token(batch["logprobs"], batch["old_logprobs"], mask)

    def of(logprobs):
        ratio = ratios.token(logprobs, batch["old_logprobs"], mask)
        return {"clip": lambda: surrogates.clip(ratio, advantages, 0.2, 0.28),
                "soft_gate": lambda: surrogates.soft_gate(ratio, advantages, 1.0, 1.05),
                "detached_weight": lambda: surrogates.detached_weight(constant, logprobs, advantages, 1.5),
                "score_function": lambda: surrogates.score_function(logprobs, advantages)}[name]()

    assert torch.autograd.gradcheck(of, batch["logprobs"].requires_grad_())


def test_value_loss_by_hand(close):
    values = torch.tensor([[1.0, 3.0, 0.0, 9.0]], dtype=torch.float64).requires_grad_()
    old_values, returns = torch.tensor([[[0.5, 1.0, 0.1, 0.0]], [[2.0, 2.0, 1.0, 0.0]]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    close(surrogates.value_loss(values, old_values, returns, mask), (1 + 1 + 1) / 6)
    # Clipped to old ± 0.2: 0.7, 1.2, 0.0; squared errors 1.69, 0.64, 1; the larger ones 1.69, 1, 1.
    clipped = surrogates.value_loss(values, old_values, returns, mask, value_clip=0.2)
    close(clipped, (1.69 + 1 + 1) / 6)
    gradient = torch.autograd.grad(clipped, values)[0]
    close(gradient, [[0, 1 / 3, -1 / 3, 0]])
    close(surrogates.value_loss(values, old_values, returns, mask, 1e9),
          surrogates.value_loss(values, old_values, returns, mask))


def test_value_loss_of_parts_adds_up(close, batch):
    values, old_values, returns = batch["logprobs"].requires_grad_(), batch["old_logprobs"], batch["ref_logprobs"]
    mask, total = batch["completion_mask"], batch["total_tokens"]
    whole = surrogates.value_loss(values, old_values, returns, mask, 0.2)
    parts = [surrogates.value_loss(values[rows], old_values[rows], returns[rows], mask[rows], 0.2, total)
             for rows in (slice(0, 1), slice(1, 4), slice(4, 6))]
    close(sum(parts), whole)
    close(torch.autograd.grad(sum(parts), values)[0], torch.autograd.grad(whole, values)[0])


@pytest.mark.parametrize("index", range(6))
def test_matches_sb3(golden, close, index):
    """PPO and A2C of Stable-Baselines3: the policy loss, the critic's where it clips as we do, and the gradients."""
    reference = golden("sb3_losses")
    config, logged = reference["cases"][index]["config"], reference["cases"][index]["logged"]
    inputs = {key: torch.tensor(value) for key, value in reference["inputs"].items()}
    logprobs, values = inputs["log_prob"].requires_grad_(), inputs["values"].requires_grad_()
    advantages = inputs["advantages"]
    if config["normalize_advantage"]:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    if config["algo"] == "ppo":
        ratio = ratios.token(logprobs, inputs["old_log_prob"], ALL)
        surrogate = surrogates.clip(ratio, advantages, config["clip_range"], config["clip_range"])
        close(-surrogate.mean(), logged["train/policy_gradient_loss"])
    else:
        surrogate = surrogates.score_function(logprobs, advantages)
        close(-surrogate.mean(), logged["train/policy_loss"])
    close(torch.autograd.grad(-surrogate.mean(), logprobs)[0], reference["cases"][index]["grad_log_prob"])
    if config["clip_range_vf"] is None:
        # SB3 has no half; with a value clip it drops the maximum as well, which the papers do not.
        value_loss = 2 * surrogates.value_loss(values, inputs["old_values"], inputs["returns"], ALL)
        close(value_loss, logged["train/value_loss"])
        gradient = torch.autograd.grad(config["vf_coef"] * value_loss, values)[0]
        close(gradient, reference["cases"][index]["grad_values"])


# Beyond the clip: bounds for bad tokens, geometric means, weights of whole sequences.


def test_bounds_for_bad_tokens_by_hand(close):
    rho = torch.tensor([5.0, 5.0, 2.0, 0.5], dtype=torch.float64)
    advantages = torch.tensor([-1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    close(surrogates.bounded_clip(rho, advantages, 0.2, 0.2, 0.0, 0.0), surrogates.clip(rho, advantages, 0.2, 0.2))
    close(surrogates.bounded_clip(rho, advantages, 0.2, 0.2, 0.0, 3.0), [-3, 1.2, -2, -0.8])
    close(surrogates.bounded_clip(rho, advantages, 0.2, 0.2, 4.0, 0.0), [-4, 1.2, -2, -0.8])
    close(surrogates.bounded_clip(rho, advantages, 0.2, 0.2, 1.1, 0.0), [-1.2, 1.1, -1.2, -0.8])


def test_geometric_clip_by_hand(close):
    """log 2 is bounded to 0.4 where A > 0, −log 2 to −0.4 where A < 0; the third token does not count."""
    rho = torch.tensor([[2.0, 0.5, 9.0]] * 2, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]] * 2)
    surrogate = surrogates.geometric_clip(rho, advantages, mask, 0.4, 0.4)
    half = (math.log(2) - 0.4) / 2
    close(surrogate, [[math.exp(-half)], [-math.exp(half)]])
    gradient = torch.autograd.grad(surrogate.sum(), rho)[0]
    cut = surrogates.geometric_cut(rho, advantages, 0.4, 0.4)
    assert torch.equal((gradient == 0)[:, :2], (cut["low"] | cut["high"])[:, :2])
    assert cut["high"][0].tolist() == [True, False, True] and cut["low"][1].tolist() == [False, True, False]


def test_geometric_clip_takes_the_two_bounds_on_their_sides(close):
    rho = torch.tensor([[2.0, 0.5]] * 2, dtype=torch.float64)
    advantages, mask = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(2, 2, dtype=torch.bool)
    close(surrogates.geometric_clip(rho, advantages, mask, 0.1, 0.3), [
        [math.exp((0.3 - math.log(2)) / 2)], [-math.exp((math.log(2) - 0.1) / 2)]])


def test_gamma_weight_by_hand(close):
    rho = torch.tensor([1.0, 2.0, 2.0, 0.0, 1e30], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    phi = surrogates.gamma_of(rho, advantages, 2.0, 3.0, 3.0, 2.0)
    close(phi[:3], [1, 4 * math.exp(-3), 8 * math.exp(-2)])
    assert phi[3] < 1e-14 and phi[4] == 0
    logprobs = torch.full((5,), -0.5, dtype=torch.float64, requires_grad=True)
    surrogate = surrogates.gamma_weight(rho, logprobs, advantages, 2.0, 3.0, 3.0, 2.0)
    close(torch.autograd.grad(surrogate.sum(), logprobs)[0], phi * advantages)
