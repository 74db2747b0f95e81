"""Switches over the table in a run: what they leave out, weigh or move, and that it is there again after a resume."""

import json
import math
from dataclasses import replace

import pytest
import torch

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm import generation, objective
from labcore.llm.batch import Completions
from labcore.llm.experience import collect
from labcore.llm.loops import online
from labcore.llm.loops.stages import Learnt
from labcore.llm.rewards import correct_and_format
from labcore.llm.rollout import credit, total_rewards
from labcore.llm.session import LlmSession
from labcore.maths.kl import k1, ratio_k3
from labcore.tasks.task import Problem
from tests.llm.tools import Letters, ragged, records, session, shake, weights

OFF_POLICY = {"updates_per_batch": 3, "learning_rate": 0.02}


def trained(algorithm="grpo", pictures=False, **knobs):
    started = session(algorithm, **knobs)
    return started, records(started, pictures)


def gradient_of(started, rollout):
    online.gradients(started, rollout)
    flat = torch.cat([parameter.grad.flatten() for parameter in started.policy.parameters()])
    started.policy.zero_grad(set_to_none=True)
    return flat


# ---------------------------------------------------------------------------- tokens that are left out or weighed

def test_a_mask_leaves_out_tokens_and_says_how_many():
    plain, before = trained(**OFF_POLICY)
    for switch in {"top_entropy_share": 0.2}, {"off_policy_threshold": 0.001}:
        masked, after = trained(**OFF_POLICY, **switch)
        assert "token_weight" not in before[-1].metrics and 0 < after[-1].metrics["token_weight"] < 1, switch
        assert not torch.equal(weights(plain.policy), weights(masked.policy)), switch


def test_the_share_of_tokens_is_that_of_the_update():
    metrics = trained(top_entropy_share=0.25, prompts_per_step=16)[1][0].metrics
    assert metrics["token_weight"] == pytest.approx(0.25, abs=0.05)  # first tokens of one prompt are ties


def test_a_mask_by_entropy_does_not_depend_on_how_the_batch_is_cut(monkeypatch):
    started = session("grpo", top_entropy_share=0.3, prompts_per_step=6)
    rollout = credit(started.knobs, ragged(collect(started).rollout))
    whole = gradient_of(started, rollout)
    cuts = []

    def by_prompt(policy, prompts, ids, room):
        size = len(ids) // len(prompts)
        cuts.append([(slice(n, n + 1), slice(n * size, (n + 1) * size)) for n in range(len(prompts))])
        return cuts[-1]
    for module in online, generation:
        monkeypatch.setattr(module, "micro_batches", by_prompt)
    torch.testing.assert_close(gradient_of(started, rollout), whole, rtol=1e-4, atol=1e-7)
    assert [len(cut) for cut in cuts] == [6, 6], "the entropy, then the gradient"


def test_the_entropy_floor_is_that_of_the_tokens_that_are_kept():
    """The quantile 0.6 of the sorted entropies, between two of them; no padding and no completion that was left out."""
    started = session("grpo", top_entropy_share=0.4, prompts_per_step=6)
    shake(started.policy, by=0.3)
    rollout = replace(ragged(collect(started).rollout), kept=torch.arange(24) % 3 > 0)
    ranked = sorted(online.token_entropy(started, rollout)[rollout.counted].tolist())
    below, part = divmod(0.6 * (len(ranked) - 1), 1)
    floor = ranked[int(below)] + part * (ranked[int(below) + 1] - ranked[int(below)])
    assert float(online.totals_of(started, rollout).entropy_floor) == pytest.approx(floor, rel=1e-5)
    for others in (None, ~rollout.kept):
        assert float(online.totals_of(started, replace(rollout, kept=others)).entropy_floor) != pytest.approx(floor)


def test_masked_tokens_have_no_policy_gradient_but_count_in_the_denominator():
    started = session("grpo", off_policy_threshold=1e-6, beta=0.0)
    rollout = credit(started.knobs, ragged(collect(started).rollout))
    logprobs = (rollout.old_logprobs - 0.1 * rollout.completion_mask).requires_grad_()
    totals = objective.Totals.of(rollout, 6)
    loss, _ = objective.loss(started.knobs, rollout, logprobs, torch.zeros_like(logprobs), totals)
    gradient = torch.autograd.grad(loss, logprobs)[0]
    plain, _ = objective.loss(started.knobs | {"off_policy_threshold": 0.0}, rollout, logprobs,
                              torch.zeros_like(logprobs), totals)
    expected = torch.autograd.grad(plain, logprobs)[0]
    good = rollout.advantages > 0
    assert not gradient[~good].any() and torch.equal(gradient[good], expected[good]) and expected[~good].any()


def test_truncated_importance_weighs_by_trainer_over_sampler():
    """Where both compute the same it is 1; a sampler that was surer than the trainer is weighed down."""
    metrics = trained(importance_cap=2.0)[1][0].metrics
    assert metrics["token_weight"] == pytest.approx(1, abs=1e-4)
    assert metrics["ratio/max"] == pytest.approx(1, abs=1e-4)
    assert 0 <= metrics["sampling/logp_difference"] < 1e-4
    started = session("grpo", importance_cap=2.0, beta=0.0)
    rollout = credit(started.knobs, collect(started).rollout)
    plain = gradient_of(started, rollout)
    halved = gradient_of(started, replace(rollout, sampler_logprobs=rollout.old_logprobs + math.log(2)))
    capped = gradient_of(started, replace(rollout, sampler_logprobs=rollout.old_logprobs - math.log(9)))
    torch.testing.assert_close(halved, plain / 2, rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(capped, plain * 2, rtol=1e-3, atol=1e-7)


def test_recomputed_log_probs_weigh_nothing_and_the_mask_still_compares_with_the_sampler():
    """A sampler that was 0.5 nats per token surer than the trainer: bad completions are far from what sampled them."""
    started = session("grpo", recompute_logprobs=True, off_policy_threshold=0.25, beta=0.0)
    rollout = credit(started.knobs, collect(started).rollout)
    assert rollout.sampler_logprobs is not None
    near, far = (replace(rollout, sampler_logprobs=rollout.old_logprobs + apart) for apart in (0.0, 0.5))
    metrics = [objective.measures(started.knobs, each, each.old_logprobs, torch.ones_like(each.old_logprobs),
                                  torch.zeros_like(each.old_logprobs)) for each in (near, far)]
    bad = float((rollout.advantages < 0)[rollout.counted].float().mean())
    assert metrics[0]["token_weight"] == 1 and metrics[1]["token_weight"] == pytest.approx(1 - bad) and bad > 0
    assert "token_weight" not in trained(recompute_logprobs=True)[1][0].metrics


@pytest.mark.parametrize("mode, expected", [("token_truncate", 0.5), ("token_mask", 0.0), ("sequence_truncate", 0.5),
                                            ("sequence_mask", 0.0)])
def test_a_sampler_below_the_lower_bound_is_raised_to_it_or_left_out(mode, expected):
    started = session("grpo", importance_cap=2.0, importance_floor=0.5, importance_mode=mode, beta=0.0)
    rollout = credit(started.knobs, collect(started).rollout)
    plain = gradient_of(started, rollout)
    surer = gradient_of(started, replace(rollout, sampler_logprobs=rollout.old_logprobs + math.log(3)))
    torch.testing.assert_close(surer, expected * plain, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("algorithm, knobs", [("gmpo", {"top_entropy_share": 0.5}),
                                              ("vespo", {"importance_cap": 2.0})])
def test_what_a_surrogate_takes_in_itself_does_not_multiply_it(algorithm, knobs, monkeypatch):
    """Its loss changes if the weight multiplied it as well, or was not given to it."""
    started = session(algorithm, prompts_per_step=6, **knobs)
    shake(started.policy, by=0.3)
    rollout = credit(started.knobs, ragged(collect(started).rollout))
    if rollout.sampler_logprobs is not None:
        rollout = replace(rollout, sampler_logprobs=rollout.old_logprobs - 0.05 * rollout.completion_mask)
    right = gradient_of(started, rollout)
    surrogate = choices.SURROGATE[started.knobs["surrogate"]]
    monkeypatch.setattr(objective, "multiplied", lambda knobs, found: list(found.values()))
    assert surrogate.absorbs and not torch.allclose(gradient_of(started, rollout), right, rtol=1e-3)
    monkeypatch.setattr(objective, "multiplied", lambda knobs, found: [])
    torch.testing.assert_close(gradient_of(started, rollout), right)


@pytest.mark.parametrize("algorithm, knobs, said", [
    ("grpo", {"importance_cap": 0.5, "importance_floor": 0.8}, "`importance_floor` 0.8 is above `importance_cap` 0.5"),
    ("rloo", {"shaping": "clipped_between", "reward_low": 1.0}, "`reward_low` 1 is not below `reward_high` 1"),
    ("vespo", {"importance_cap": 2.0, "importance_mode": "sequence_mask"}, "set `importance_mode=token_truncate`")])
def test_bounds_that_do_not_go_together_are_refused(algorithm, knobs, said):
    with pytest.raises(LabError, match=said):
        session(algorithm, **knobs)


def test_bounds_for_bad_tokens_act_and_are_logged():
    hard = {"surrogate": "bounded_clip", "updates_per_batch": 4, "learning_rate": 0.05}
    bounded, free, plain = (trained(**given) for given in (
        {**hard, "dual_clip": 1.3}, {**hard, "dual_clip": 0.0}, {"updates_per_batch": 4, "learning_rate": 0.05}))
    assert bounded[1][-1].metrics["clip_frac/bound"] > 0 and free[1][-1].metrics["clip_frac/bound"] == 0
    assert torch.equal(weights(plain[0].policy), weights(free[0].policy))


# ---------------------------------------------------------------------------- what a run moves by itself

def test_a_checkpoint_of_before_starts_anew(tmp_path):
    started = session("grpo")
    records(started)
    started.save(tmp_path)
    path = tmp_path / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in state.items() if key not in (
        "past_rewards", "past_count", "kl_factor")}))
    again: LlmSession = session("grpo", resume=tmp_path)
    assert (again.past_rewards, again.past_count, again.kl_factor) == (0.0, 0, 1.0)


def test_the_moving_average_is_the_mean_of_all_rewards_so_far():
    started, totals, real = session("reinforce_average", steps=3, beta=0.0, group_size=1, prompts_per_step=8), [], None
    real = online.learn_numbers

    def seen(session, earned, kl, completions):
        assert session.past_rewards == pytest.approx(sum(totals) / len(totals) if totals else 0.0)
        totals.extend(earned.tolist())
        return real(session, earned, kl, completions)

    def credited(knobs, rollout):
        found = credit(knobs, rollout)
        assert found.past_rewards.tolist() == pytest.approx([started.past_rewards] * 8)
        expected = (found.shaped - found.past_rewards)[:, None] * found.completion_mask
        assert torch.equal(found.advantages, expected)
        return found
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(online, "learn_numbers", seen)
        patched.setattr(online, "credit", credited)
        records(started)
    assert started.past_count == len(totals) == 24
    assert started.past_rewards == pytest.approx(sum(totals) / 24)


def test_the_mean_of_all_rewards_is_less_the_kl_at_the_beta_in_force():
    """Two batches of other sizes: each completion weighs alike, and one that could not be scored does not count."""
    started = session("reinforce_average", group_size=1, prompts_per_step=8, beta=0.5, adaptive_kl_target=0.1)
    shake(started.policy)
    rollout = collect(started).rollout
    rollout = replace(rollout, shaped=rollout.shaped.index_fill(0, torch.tensor([2]), torch.nan))
    started.kl_factor, started.kl_beta = 3.0, 0.5
    earned = (rollout.shaped - 1.5 * (rollout.old_logprobs - rollout.ref_logprobs).sum(1)).tolist()
    kl, batches = 0.1, ([0, 1, 2, 3, 4], [5, 6, 7])  # at its target β stays as it is
    for rows in batches:
        part = rollout.select(torch.tensor(rows))
        online.learn_numbers(started, total_rewards(started.in_force, part), kl, len(rows))
    scored = [value for row, value in enumerate(earned) if row != 2]
    assert started.past_count == 7 and started.past_rewards == pytest.approx(sum(scored) / 7, rel=1e-5)
    assert started.past_rewards != pytest.approx(float(rollout.shaped.nanmean()), abs=1e-3)


def test_what_a_run_learns_from_is_less_the_kl_at_the_beta_in_force():
    started = session("reinforce_average", group_size=1, prompts_per_step=8, beta=0.5, adaptive_kl_target=0.1, steps=1)
    shake(started.policy)
    started.kl_factor, started.kl_beta = 3.0, 0.5
    [rollout] = [stage.rollout for stage in online.run(started) if isinstance(stage, Learnt)]
    earned = rollout.shaped - 1.5 * (rollout.old_logprobs - rollout.ref_logprobs).sum(1)
    assert started.past_rewards == pytest.approx(float(earned.mean()), rel=1e-5)
    assert started.past_rewards != pytest.approx(float(rollout.shaped.mean()), abs=1e-3)


def test_beta_follows_its_target():
    """Below its target β falls, above it β rises: it is logged as it was in force."""
    for target, sign in ((1e-6, 1), (5.0, -1)):
        knobs = {"beta": 0.1, "adaptive_kl_target": target, "adaptive_kl_horizon": 32.0, "learning_rate": 0.01}
        got = [record.metrics["beta"] for record in trained(steps=3, **knobs)[1]]
        assert got[0] == 0.1 and sign * (got[-1] - got[1]) > 0
    assert "beta" not in trained()[1][0].metrics


def test_what_is_looked_at_has_the_beta_of_its_step():
    first, second = trained(steps=2, pictures=True, beta=0.1, adaptive_kl_target=1e-6, adaptive_kl_horizon=16.0)[1]
    assert first.samples["beta"] == first.line["beta"] == first.metrics["beta"] == 0.1
    assert second.look()[0]["beta"] == second.metrics["beta"] != 0.1


def test_another_beta_begins_at_itself():
    """In the midst of a run and in a fork; by the same β it goes on as it was moved."""
    started = trained(beta=0.1, adaptive_kl_target=1e-6, adaptive_kl_horizon=16.0)[0]
    assert started.kl_factor != 1 and started.in_force["beta"] == 0.1 * started.kl_factor
    assert started.fork(started.spec).in_force["beta"] == 0.1 * started.kl_factor
    started.knobs["beta"] = 0.3
    assert started.in_force["beta"] == 0.3
    started.knobs["beta"] = 0.1
    changed = replace(started.spec, knobs=started.spec.knobs | {"beta": 0.2})
    forked = started.fork(changed)
    assert forked.in_force["beta"] == 0.2
    again = session("grpo", beta=0.2, adaptive_kl_target=1e-6)
    again.kl_factor, again.kl_beta = 9.0, 0.1
    assert records(again)[0].metrics["beta"] == 0.2 and again.kl_factor < 2


@pytest.mark.parametrize("changes, goes_on", [
    ({}, True), ({"learning_rate": 0.5}, True), ({"reward_noise": 0.3}, True), ({"shaping": "length_cost"}, False),
    ({"reward_source": "noisy_verifier"}, False)])
def test_the_mean_of_earlier_rewards_goes_on_in_a_fork_with_the_same_rewards(changes, goes_on):
    started = session("reinforce_average", group_size=1)
    started.past_rewards, started.past_count = 0.7, 90
    forked = started.fork(replace(started.spec, knobs=started.spec.knobs | changes))
    assert (forked.past_rewards, forked.past_count) == ((0.7, 90) if goes_on else (0.0, 0))


def test_the_moved_beta_is_the_one_in_the_loss():
    started = session("grpo", beta=0.5, adaptive_kl_target=0.1)
    shake(started.policy)
    rollout = credit(started.knobs, collect(started).rollout)
    started.kl_factor = 2.0
    doubled = gradient_of(started, rollout)
    started.knobs |= {"beta": 1.0, "adaptive_kl_target": 0.0}
    assert torch.equal(gradient_of(started, rollout), doubled)


# ---------------------------------------------------------------------------- rewards and advantages

def test_two_named_rewards():
    problems = [Problem("a=", "abc")] * 4
    completions = Completions(torch.zeros(4, 1), torch.ones(4, 1) > 0, torch.tensor([False, False, True, False]))
    got = correct_and_format(Letters(), problems, ["abz", "ab", "abc", "zzz"], completions, 2.0, 0.5)
    assert got.parts["format"].tolist() == [1, 0, 0, 1]
    assert got.parts["correct"].tolist() == [0.25, 0.25, 0.375, 0]
    assert got.total.tolist() == [1.0, 0.5, 0.75, 0.5] and got.weights == {"correct": 2.0, "format": 0.5}


def test_gdpo_logs_its_rewards_and_weighs_them():
    metrics = trained("gdpo", prompts_per_step=8)[1][0].metrics
    assert {"reward/correct", "reward/format"} <= set(metrics)
    found = []
    for weight in (0.0, 5.0):
        started = session("gdpo", prompts_per_step=8, format_weight=weight)
        rollout = collect(started).rollout
        torch.manual_seed(0)
        parts = torch.rand_like(rollout.reward_parts)
        found.append(credit(started.knobs, replace(rollout, reward_parts=parts)).advantages)
    assert not torch.allclose(*found)


@pytest.mark.parametrize("knobs, named", [
    ({"shaping": "length_cost"}, "set `shaping=none`"), ({"kl_placement": "reward"}, "set `kl_placement=loss`")])
def test_what_gdpo_would_not_look_at_is_refused(knobs, named):
    with pytest.raises(LabError, match=named):
        session("gdpo", **knobs)


def test_an_advantage_of_1_cannot_be_normalised():
    with pytest.raises(LabError, match="set `normalisation=none`"):
        session("reinforce", advantage="one", normalisation="tokens")


@pytest.mark.parametrize("normalisation", choices.NORMALISATION.names)
def test_advantages_are_normalised_over_what_counts(normalisation):
    started = session("rloo", normalisation=normalisation, prompts_per_step=8)
    rollout = ragged(collect(started).rollout)
    kept = torch.arange(len(rollout.ids)) % 3 > 0
    rewards = rollout.shaped.clone()
    rewards[4] = torch.nan
    got = credit(started.knobs, replace(rollout, kept=kept, shaped=rewards))
    by_row = got.advantages[:, 0][kept & ~rewards.isnan()]
    assert not got.advantages[~kept].any() and not got.advantages[4].any()
    tokens = got.advantages[got.counted & ~rewards.isnan()[:, None]]
    if normalisation == "none":
        assert by_row.std() != pytest.approx(1, abs=1e-2)
    else:
        values = by_row if normalisation == "sequences" else tokens
        assert values.mean() == pytest.approx(0, abs=1e-5) and values.std() == pytest.approx(1, abs=1e-3)


def test_rewards_of_tokens_are_whitened_and_keep_their_mean():
    started = session("ppo", whiten_rewards=True, whiten_advantages=False, gae_lambda=0.0, gamma=0.0)
    rollout = ragged(collect(started).rollout)
    zero = replace(rollout, old_values=torch.zeros_like(rollout.old_values))
    plain = credit(started.knobs | {"whiten_rewards": False}, zero).advantages[rollout.completion_mask]
    white = credit(started.knobs, zero).advantages[rollout.completion_mask]
    assert white.std() == pytest.approx(1, abs=1e-3) and white.mean() == pytest.approx(plain.mean().item(), abs=1e-5)


def test_shares_of_the_clip_are_of_sequences_where_the_ratio_is():
    started = session("gspo", prompts_per_step=4)
    rollout = credit(started.knobs, ragged(collect(started).rollout))
    ratio = torch.ones_like(rollout.old_logprobs)
    ratio[0] = 9.0
    rollout = replace(rollout, advantages=rollout.advantages.abs() + rollout.completion_mask)
    got = objective.measures(started.knobs, rollout, rollout.old_logprobs, ratio, torch.zeros_like(ratio))
    assert got["clip_frac/high"] == pytest.approx(1 / len(ratio))


def test_the_kl_of_tokens_is_not_that_of_completions():
    """Two tokens of two kinds, the second after the first: ratio × k3 by tokens leaves out what the first does to the
    KL of the second; with the ratio of the sequence it does not."""
    first, second, other = (torch.tensor(value, dtype=torch.float64) for value in (
        [0.3, -0.2], [[0.5, -1.0], [1.5, 0.1]], [[-0.7, 0.4], [0.2, -0.9]]))
    first.requires_grad_()
    reference = torch.zeros(2, dtype=torch.float64).log_softmax(0)
    one, two, two_ref = first.log_softmax(0), second.log_softmax(1), other.log_softmax(1)
    rows = [(a, b) for a in range(2) for b in range(2)]
    logprobs = torch.stack([torch.stack([one[a], two[a, b]]) for a, b in rows])
    ref = torch.stack([torch.stack([reference[a], two_ref[a, b]]) for a, b in rows])
    chance, own = logprobs.sum(1).exp().detach()[:, None], logprobs - logprobs.detach()
    exact = torch.autograd.grad((logprobs.sum(1).exp() * k1(logprobs, ref).sum(1)).sum(), first, retain_graph=True)[0]
    by_token, by_sequence = (torch.autograd.grad((chance * ratio_k3(logprobs, ref, ratio)).sum(), first,
                                                 retain_graph=True)[0]
                             for ratio in (own.exp(), own.sum(1, keepdim=True).exp().expand_as(own)))
    torch.testing.assert_close(by_sequence, exact)
    assert (by_token - exact).norm() > 0.1 * exact.norm()
