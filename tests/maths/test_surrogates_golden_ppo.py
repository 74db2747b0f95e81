"""TRL's PPO (1.12), from the rollout to the losses of every mini-batch of a real update."""

import pytest
import torch

from labcore.maths import kl, ratios, surrogates
from labcore.maths.masked import masked_whiten
from labcore.maths.returns import gae


@pytest.fixture(params=[0, 1], ids=["k1", "k3-whitened-rewards"])
def case(request, golden):
    case = golden("trl_ppo")["cases"][request.param]
    rollout = {key: torch.tensor(value) for key, value in case["rollout"].items()}
    # TRL's masks are True on padding; its critic counts one token more than its policy.
    rollout["completion_mask"] = ~rollout["padding_mask"].bool()
    rollout["value_mask"] = ~rollout["padding_mask_p1"].bool()
    return case["config"], rollout, case["minibatches"]


def token_rewards(config, rollout):
    """r_t = −β KL_t, plus the score one past the last counted token where there is room."""
    estimate = getattr(kl, config["kl_estimator"])(rollout["logprobs"], rollout["ref_logprobs"])
    rewards = -config["kl_coef"] * estimate
    last = (rollout["sequence_lengths"] + 1).clamp(max=rewards.shape[1] - 1)
    last = torch.where(rollout["sequence_lengths"] + 1 < rewards.shape[1], last, rollout["sequence_lengths"])
    rewards[torch.arange(len(rewards)), last] += rollout["scores"]
    return estimate, rewards


def test_rewards(case, close):
    config, rollout, _ = case
    estimate, rewards = token_rewards(config, rollout)
    close(estimate, rollout["kl"])
    close(rewards, rollout["rewards_before_whiten"])
    if config["whiten_rewards"]:
        rewards = masked_whiten(rewards, rollout["value_mask"], shift_mean=False)
    close(rewards, rollout["rewards"])


def test_advantages_and_returns(case, close):
    config, rollout, _ = case
    advantages = gae(rollout["rewards"], rollout["values"], rollout["value_mask"], config["gamma"], config["lam"])
    close(advantages, rollout["advantages_before_whiten"])
    close(advantages + rollout["values"], rollout["returns"])
    close(masked_whiten(advantages, rollout["completion_mask"]), rollout["advantages"])


def losses(config, rollout, part):
    """(ratio, policy loss, value loss, shares of clipped tokens, mask) of a mini-batch."""
    rows, q = part["micro_batch_inds"], {key: torch.tensor(value) for key, value in part.items()}
    mask, value_mask = rollout["completion_mask"][rows], rollout["value_mask"][rows]
    ratio = ratios.token(q["new_logprobs"], q["mb_logprobs"], mask)
    surrogate = surrogates.clip(ratio, q["mb_advantage"], config["cliprange"], config["cliprange"])
    cut = surrogates.clip_cut(ratio, q["mb_advantage"], config["cliprange"], config["cliprange"])
    shares = surrogates.cut_fractions(cut, mask)
    value_loss = surrogates.value_loss(q["vpred"], q["mb_values"], q["mb_return"], value_mask,
                                       config["cliprange_value"])
    return ratio, -surrogate[mask].mean(), value_loss, shares, mask


@pytest.mark.parametrize("number", range(4))
def test_mini_batch_losses(case, close, number):
    config, rollout, parts = case
    part = parts[number]
    ratio, policy_loss, value_loss, shares, mask = losses(config, rollout, part)
    close(ratio[mask], torch.tensor(part["ratio"])[mask])
    close(policy_loss, part["pg_loss"])
    close(value_loss, part["vf_loss"])
    close(policy_loss + config["vf_coef"] * value_loss, part["loss"])
    close(shares["region"], part["pg_clipfrac"])


def test_a_later_mini_batch_tells_the_sign(case, close):
    config, rollout, parts = case
    _, policy_loss, _, shares, _ = losses(config, rollout, parts[-1])
    assert shares["region"] > 0
    with pytest.raises(AssertionError):
        close(-policy_loss, parts[-1]["pg_loss"])
