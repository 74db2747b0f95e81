"""Credit: what a completion's tokens earn, with the KL paid where the row says; groups stay whole when cut."""

from dataclasses import replace
from statistics import mean, stdev

import pytest
import torch

from labcore.catalog.choices import ADVANTAGE
from labcore.catalog.kinds import algorithm
from labcore.llm.rollout import Rollout, credit, total_rewards
from tests.every import every
from tests.llm.tools import prompts
from tests.references import golden

MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, True]])
OLD = torch.tensor([[-1.0, -2.0, -0.5], [-0.3, 0, 0], [-1.0, -1.0, 0], [-2.0, -0.5, -1.5]])
REF = torch.tensor([[-1.5, -1.0, -0.5], [-0.1, 0, 0], [-1.0, -2.0, 0], [-2.5, -0.5, -0.5]])
REWARDS = torch.tensor([1.0, 0.0, 0.5, 0.25])
VALUES = torch.tensor([[0.5, 0.2, 0.1], [0.3, 0, 0], [-0.1, 0.4, 0], [0.0, 0.0, 0.6]])


def rollout(group_size: int = 2, values=None) -> Rollout:
    return Rollout(prompts([2] * (4 // group_size)), torch.arange(12).view(4, 3), MASK, torch.tensor([0, 1, 0, 1]) > 0,
                   REWARDS, OLD, REF, values)


def knobs(key: str, **changed):
    return {knob.key: knob.default for knob in algorithm(key).knobs} | changed


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected), rtol=1e-5, atol=1e-6)


def test_the_kl_is_taken_off_the_sequence_reward():
    """Σ k1 of the rows: 0.5 − 1 + 0, −0.2, 0 + 1, 0.5 + 0 − 1; R' = R − 0.1 Σ k1 = 1.05, 0.02, 0.4, 0.3."""
    got = credit(knobs("rloo", beta=0.1), rollout()).advantages
    close(got, torch.tensor([[1.03], [-1.03], [0.1], [-0.1]]) * MASK)
    close(credit(knobs("reinforce", beta=0.1), rollout()).advantages,
          (torch.tensor([[1.05], [0.02], [0.4], [0.3]]) - 1.77 / 4) * MASK)


def test_the_estimator_is_the_rows():
    """k2: ½(0.25 + 1), ½ 0.04, ½, ½(0.25 + 1); k3 needs its own sum."""
    k2 = torch.tensor([0.625, 0.02, 0.5, 0.625])
    log_ratio = (REF - OLD) * MASK
    k3 = (log_ratio.exp() - 1 - log_ratio).sum(1)
    for name, paid in (("k2", k2), ("k3", k3), ("ratio_k3", k3)):
        got = credit(knobs("reinforce", beta=0.5, kl_estimator=name), rollout()).advantages
        left = REWARDS - 0.5 * paid
        close(got, (left - left.mean())[:, None] * MASK)


@pytest.mark.parametrize("placement", ["loss", "off"])
def test_a_kl_placed_elsewhere_is_not_in_the_reward(placement):
    got = credit(knobs("rloo", beta=5.0, kl_placement=placement), rollout()).advantages
    close(got, torch.tensor([[1.0], [-1.0], [0.25], [-0.25]]) * MASK)


def test_the_kl_is_taken_off_each_token_and_the_reward_comes_last():
    """γ = λ = 1 and a critic that says nothing: A_t is the sum of the rewards from t on."""
    given = knobs("ppo", beta=0.1, gae_lambda=1.0, whiten_advantages=False)
    got = credit(given, rollout(1, torch.zeros(4, 3)))
    expected = [[1.05, 1.10, 1.0], [0.02, 0, 0], [0.4, 0.4, 0], [0.3, 0.35, 0.35]]
    close(got.advantages, expected)
    close(got.returns, expected)


def test_gae_worked_by_hand():
    """Row 0, β = 0: δ = 0.9·0.2 − 0.5, 0.9·0.1 − 0.2, 1 − 0.1 = −0.32, −0.11, 0.9, and γλ = 0.45."""
    given = knobs("ppo", beta=0.0, gamma=0.9, gae_lambda=0.5, whiten_advantages=False)
    got = credit(given, rollout(1, VALUES))
    close(got.advantages, [[-0.32 + 0.45 * (-0.11 + 0.45 * 0.9), -0.11 + 0.45 * 0.9, 0.9], [-0.3, 0, 0],
                           [0.9 * 0.4 + 0.1 + 0.45 * 0.1, 0.1, 0],
                           [0.45 * (0.54 - 0.45 * 0.35), 0.54 - 0.45 * 0.35, -0.35]])
    close(got.returns, (got.advantages + VALUES) * MASK)


def test_the_reward_to_go_is_whitened_over_all_counted_tokens():
    """REINFORCE++ with γ = ½ and β = 0.1: r_t = −0.1 k1, the reward on top of the last, then (R_t − mean)/std."""
    to_go = [-0.05 + 0.5 * (0.1 + 0.5 * 1.0), 0.1 + 0.5 * 1.0, 1.0, 0.02, 0.5 * 0.4, 0.4,
             -0.05 + 0.25 * 0.35, 0.5 * 0.35, 0.35]
    got = credit(knobs("reinforce_pp", beta=0.1, gamma=0.5), rollout(1)).advantages
    white = [(value - mean(to_go)) / stdev(to_go) for value in to_go]
    close(got[MASK], white)
    assert (got[~MASK] == 0).all()
    kept = torch.tensor([True, False, True, True])  # the mean is that of what is learnt from
    left = to_go[:3] + to_go[4:]
    got = credit(knobs("reinforce_pp", beta=0.1, gamma=0.5), replace(rollout(1), kept=kept)).advantages
    close(got[MASK & kept[:, None]], [(value - mean(left)) / stdev(left) for value in left])
    assert (got[1] == 0).all()


def test_rewards_of_tokens_come_on_top():
    extra = torch.tensor([[0.1, 0.2, 0.3], [0.4, 9, 9], [0.5, 0.6, 9], [0.0, 0.0, 0.7]])
    given = replace(rollout(1, torch.zeros(4, 3)), token_rewards=extra)
    plain = knobs("ppo", beta=0.0, gae_lambda=1.0, whiten_advantages=False)
    close(credit(plain, given).returns, [[1.6, 1.5, 1.3], [0.4, 0, 0], [1.6, 1.1, 0], [0.95, 0.95, 0.95]])
    totals = torch.tensor([1.6, 0.4, 1.6, 0.95])
    close(credit(knobs("reinforce", beta=0.0), given).advantages, (totals - totals.mean())[:, None] * MASK)


def test_the_greedy_reward_is_taken_off_each_of_its_group():
    given = replace(rollout(), rival_rewards=torch.tensor([0.5, 0.5, -1.0, -1.0]))
    close(credit(knobs("remax", beta=0.0), given).advantages, torch.tensor([[0.5], [-0.5], [1.5], [1.25]]) * MASK)
    missing = replace(rollout(), rival_rewards=torch.tensor([0.5, 0.5, float("nan"), float("nan")]))
    close(credit(knobs("remax", beta=0.0), missing).advantages, torch.tensor([[0.5], [-0.5], [0.0], [0.0]]) * MASK)


def test_whitening_changes_the_advantages_but_not_the_returns():
    plain = credit(knobs("ppo", whiten_advantages=False), rollout(1, VALUES))
    white = credit(knobs("ppo"), rollout(1, VALUES))
    counted = white.advantages[MASK]
    close(counted.mean(), 0.0)
    close(counted.std(), 1.0)
    assert (white.advantages[~MASK] == 0).all()
    assert torch.equal(white.returns, plain.returns)
    assert torch.equal(plain.advantages[MASK].argsort(), counted.argsort())


def test_whitening_is_over_what_is_kept():
    """Without row 1: R to go is R at every token, and with γ = 0 what the token itself earns."""
    given = replace(rollout(1, torch.zeros(4, 3)), kept=torch.tensor([True, False, True, True]))
    counted = given.counted
    ends = {"beta": 0.0, "gae_lambda": 1.0}
    to_go = [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    white = credit(knobs("ppo", whiten_advantages=True, gamma=1.0, **ends), given).advantages
    close(white[counted], [(value - mean(to_go)) / stdev(to_go) for value in to_go])
    earned = [0.0, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.25]
    got = credit(knobs("ppo", whiten_advantages=False, whiten_rewards=True, gamma=0.0, **ends), given).advantages
    close(got[counted], [(value - mean(earned)) / stdev(earned) + mean(earned) for value in earned])
    assert (white[~counted] == 0).all() and (got[~counted] == 0).all()


@every("choice", [choice for choice in ADVANTAGE if choice.group])
def test_a_baseline_of_a_group_is_that_of_all_its_completions(choice):
    """Also if a selection keeps only one completion."""
    kept = torch.tensor([True, False, True, False])
    given = replace(rollout(), square_sums=torch.full((4, 3), 0.3), reward_parts=REWARDS[:, None],
                    part_weights=torch.ones(4, 1))
    own = {knob.key: knob.default for knob in choice.knobs}
    values = knobs("grpo", advantage=choice.key, beta=0.0, **(own | {"pass_k": 1}))
    whole = credit(values, given).advantages
    assert whole[kept].any()
    close(credit(values, replace(given, kept=kept)).advantages, whole * kept[:, None])


def test_what_a_completion_earns_in_all_has_the_rewards_of_its_tokens_and_less_the_kl():
    """R' = R + Σ r_t − β Σ k1, where the KL is in the reward."""
    extra = torch.tensor([[0.1, 0.2, 0.3], [0.4, 9, 9], [0.5, 0.6, 9], [0.0, 0.0, 0.7]])
    close(total_rewards(knobs("rloo", beta=0.1), rollout()), [1.05, 0.02, 0.4, 0.3])
    close(total_rewards(knobs("rloo", beta=0.1), replace(rollout(), token_rewards=extra)), [1.65, 0.42, 1.5, 1.0])
    close(total_rewards(knobs("rloo", beta=0.1, kl_placement="loss"), rollout()), REWARDS)


def test_groups_are_compared_with_themselves():
    got = credit(knobs("grpo"), rollout()).advantages
    assert got[0, 0] > 0.7 > -0.7 > got[1, 0] and got[2, 0] > 0.7 > -0.7 > got[3, 0]
    whole = credit(knobs("grpo"), rollout(4)).advantages
    assert whole[2, 0] > 0 > whole[3, 0] and whole[0, 0] > 3 * whole[2, 0]


TRL = golden("trl_rloo_advantages")


@every("case", TRL["cases"])
def test_rloo_is_trls_whatever_could_be_scored(case):
    """`one_scored`: of one group a single completion, of another none."""
    given = torch.tensor([[float(reward) for reward in row] for row in TRL["rewards_per_func"][case["rewards"]]])
    rewards = (given * torch.tensor(TRL["reward_weights"])).nansum(1).masked_fill(given.isnan().all(1), torch.nan)
    if case["reward_clip_range"]:
        rewards = rewards.clamp(*case["reward_clip_range"])
    old, ref, mask = (torch.tensor(TRL[key]) for key in ("old_per_token_logps", "ref_per_token_logps",
                                                         "completion_mask"))
    mask = mask.bool()
    batch = Rollout(prompts([2] * 4), torch.zeros(16, 8, dtype=torch.long), mask, torch.zeros(16) > 0, rewards,
                    old * mask, ref * mask, kept=~rewards.isnan())
    taken = knobs("rloo", beta=case["beta"],
                  normalisation="sequences" if case["normalize_advantages"] else "none")
    got = credit(taken, batch).advantages
    close(got, torch.tensor(case["advantages"])[:, None] * mask)


@pytest.mark.parametrize("normalisation", ["sequences", "tokens"])
@pytest.mark.parametrize("advantage", [choice.key for choice in ADVANTAGE.members if choice.level == "sequence" and (
    choice.group or choice.rollouts)])
def test_what_has_nothing_to_be_compared_with_enters_no_normalisation(advantage, normalisation):
    """The first completion of group 1 is the only one scored there, and its prompt's greedy one is not scored."""
    alone = torch.tensor([True, True, True, False])
    given = replace(rollout(), kept=alone, shaped=torch.tensor([1.0, 0.0, 0.5, torch.nan]),
                    past_rewards=torch.full((4,), 0.2),
                    rival_rewards=torch.tensor([0.5, 0.5, torch.nan, torch.nan]))
    without = Rollout(prompts([2]), given.ids[:2], MASK[:2], given.truncated[:2], given.shaped[:2], OLD[:2], REF[:2],
                      past_rewards=given.past_rewards[:2], rival_rewards=given.rival_rewards[:2])
    taken = {"pass_k": 1, **knobs("rloo", beta=0.0, advantage=advantage, normalisation=normalisation,
                                  kl_placement="off")}
    got, expected = credit(taken, given).advantages, credit(taken, without).advantages
    assert got[0, 0] > 0 > got[1, 0] and not got[2:].any()
    of_batch = ("batch_standardised", "beta_normalised", "parts_standardised", "group_mean_active")
    if advantage not in of_batch:
        close(got[:2], expected)


def test_select_keeps_groups_and_their_order():
    given = credit(knobs("ppo"), rollout(2, VALUES))
    got = given.select(torch.tensor([1, 0]))
    assert got.group_size == 2 and got.ids.tolist() == given.ids[[2, 3, 0, 1]].tolist()
    assert got.prompts.ids.tolist() == given.prompts.ids[[1, 0]].tolist()
    for name in ("completion_mask", "truncated", "shaped", "old_logprobs", "ref_logprobs", "old_values", "advantages",
                 "returns"):
        assert torch.equal(getattr(got, name), getattr(given, name)[[2, 3, 0, 1]]), name
    one = given.select(torch.tensor([1]))
    cut = given.slice(slice(1, 2), slice(2, 4))
    assert all(torch.equal(getattr(one, name), getattr(cut, name)) for name in ("ids", "shaped", "advantages"))


def test_what_is_missing_stays_missing():
    got = replace(rollout(), advantages=None).select(torch.tensor([0]))
    assert (got.old_values, got.advantages, got.returns) == (None, None, None)
