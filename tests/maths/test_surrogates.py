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
    close(surrogates.kl_penalised(RATIO[:2], ADVANTAGES[:2], penalty, 2.0), [0.3, 0.4])


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
@pytest.mark.parametrize("surrogate", [lambda rho, a: surrogates.clip(rho, a, 0.2, 0.2), surrogates.cpi])
def test_on_policy_the_gradient_is_that_of_reinforce(close, batch, ratio, surrogate):
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratio(logprobs, logprobs.detach(), mask)
    lengths = mask.sum(1, keepdim=True) if ratio is ratios.sequence_sum else 1  # its one term stands in T_i places
    by_ratio = torch.autograd.grad(masked_sum(surrogate(rho, batch["advantages"] / lengths), mask), logprobs)[0]
    by_score = torch.autograd.grad(masked_sum(surrogates.score_function(logprobs, batch["advantages"]), mask),
                                   logprobs)[0]
    close(by_ratio, by_score)


@pytest.mark.parametrize("kind", ["score_function", "clip", "cpi"])
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
                 "cpi": lambda: surrogates.cpi(rho, advantages)}[kind]()
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
                      surrogates.kl_penalised(rho, batch["advantages"], penalty, 0.7)):
        close(surrogate, batch["advantages"])
        close(torch.autograd.grad(surrogate[mask].sum(), logprobs, retain_graph=True)[0],
              torch.where(mask, batch["advantages"], 0))


def test_clip_fractions_by_hand(close):
    mask = torch.tensor([True, True, True, True, True, False])
    shares = surrogates.clip_fractions(RATIO, ADVANTAGES, mask, 0.2, 0.3)
    close(shares["low"], 1 / 5), close(shares["high"], 1 / 5), close(shares["region"], 2 / 5)
    assert not any(surrogates.clip_fractions(RATIO, 0 * ADVANTAGES, mask, 0.2, 0.3).values())
    assert not any(surrogates.clip_fractions(0 * RATIO + 1, ADVANTAGES, mask, 0.0, 0.0).values())


def test_clip_fraction_is_the_share_without_a_gradient(close, batch):
    mask, logprobs = batch["completion_mask"], batch["logprobs"].requires_grad_()
    rho = ratios.token(logprobs, batch["old_logprobs"], mask)
    gradient = torch.autograd.grad(surrogates.clip(rho, batch["advantages"], 0.2, 0.28)[mask].sum(), logprobs)[0]
    shares = surrogates.clip_fractions(rho, batch["advantages"], mask, 0.2, 0.28)
    close(shares["region"], (gradient[mask] == 0).double().mean())
    close(shares["region"], shares["low"] + shares["high"])


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
