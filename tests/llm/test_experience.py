"""A batch from its prompts to what is learnt from: missing rewards, what is left out, what is sampled again."""

from dataclasses import replace
from math import isfinite, nan
from unittest.mock import patch

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from labcore.catalog import choices
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.llm import experience, rewards
from labcore.llm.experience import collect, joined, sample_round, seen_by
from labcore.llm.generation import Sampling, generate
from labcore.llm.loops import online, sft
from labcore.llm.nets.mixture import Mixture
from labcore.llm.rollout import credit
from labcore.tasks.task import Problem, Score
from tests.every import now
from tests.llm.tools import Letters, ragged, records, session, shake, weights, with_each

ONLINE = [key for key, row in ALGORITHMS.items() if row.loop == "online"]
# One algorithm for each sort of batch: with a critic, a further rollout, the best of a group, a mixture, or a teacher.
FEW = ("grpo", "ppo", "remax", "raft", "nash_md", "sdpo")
OF_BATCHES = ("clip_cov", "kl_cov", "gvpo", "real", "fipo")  # their surrogates use numbers of the whole batch


class Unsure(Letters):
    """A share of the completions cannot be scored."""

    def __init__(self, every: int = 3):
        self.every, self.asked = every, 0

    def score(self, problem, completion):
        self.asked += 1
        return super().score(problem, completion) if self.asked % self.every else Score(nan, False)


class Partly(Letters):
    """Prompts of which a share has no signal: every completion earns the same. Each prompt has a name of its own."""

    def __init__(self, flat: float):
        self.flat = flat

    def problems(self, count, rng):
        return [Problem("abc="[: 1 + rng.integers(4)], f"{'flat' if rng.random() < self.flat else 'live'}"
                        f"{rng.integers(10**9)}") for _ in range(count)]

    def score(self, problem, completion):
        return Score(0.5, False) if problem.answer.startswith("flat") else super().score(problem, completion)


def gradient(started, rollout):
    """What an update measures, and the gradient of each network that learns."""
    measured, found = online.gradients(started, rollout), {}
    for name in started.optimizers:
        found[name] = parameters_to_vector([torch.zeros_like(p) if p.grad is None else p.grad
                                            for p in started.models[name].parameters()])
        started.models[name].zero_grad(set_to_none=True)
    return measured, found


def finite(started, found):
    assert all(isfinite(value) for record in found for value in record.metrics.values())
    assert all(weights(network).isfinite().all() for network in started.models.values())


# ---------------------------------------------------------------------------- rewards that are missing

@pytest.mark.parametrize("key", now(ONLINE, *FEW))
def test_what_could_not_be_scored_is_not_learnt_from(key):
    started = session(key, steps=1)
    started.task = Unsure()
    rollout = collect(started).rollout
    missing = rollout.shaped.isnan()
    assert 0 < int(missing.sum()) < len(missing) and not rollout.kept[missing].any()
    credited = credit(started.knobs, rollout)
    assert credited.advantages.isfinite().all() and (credited.advantages[missing] == 0).all()
    # Whatever these completions were makes no difference.
    other = replace(credited, old_logprobs=torch.where(missing[:, None], -9.0, credited.old_logprobs),
                    advantages=torch.where(missing[:, None], 9.0, credited.advantages))
    for one, two in zip(gradient(started, credited)[1].values(), gradient(started, other)[1].values(), strict=True):
        assert torch.equal(one, two)
    finite(started, records(started))


@pytest.mark.parametrize("source, key", now(
    [(source, key) for source in ("verifier", "noisy_verifier") for key in ONLINE],
    *(("verifier", key) for key in FEW), ("noisy_verifier", "grpo")))
def test_where_nothing_could_be_scored_nothing_is_learnt(key, source):
    started = session(key, steps=1, reward_source=source, sft_weight=0.0)
    started.task = Unsure(every=1)
    before = weights(started.policy)
    (record,) = found = records(started)
    finite(started, found)
    assert "reward" not in record.metrics and record.metrics["grad_norm"] == 0
    assert torch.equal(weights(started.policy), before)


@pytest.mark.parametrize("key", now(ONLINE, *FEW, *OF_BATCHES))
def test_a_row_in_which_nothing_counts_says_nothing(key):
    started = session(key)
    if started.knobs.get("teacher_context") == "success":  # random weights have none to show a teacher
        started.task.score = lambda problem, text: Score(1.0, True)
    rollout = ragged(seen_by(started, collect(started)))
    mask = rollout.completion_mask & (torch.arange(len(rollout.ids)) != 5)[:, None]
    empty = replace(rollout, completion_mask=mask, old_logprobs=rollout.old_logprobs * mask, kept=None,
                    ref_logprobs=rollout.ref_logprobs * mask,
                    old_values=None if rollout.old_values is None else rollout.old_values * mask)
    credited = credit(started.knobs, empty)
    assert credited.advantages.isfinite().all() and (credited.advantages[5] == 0).all()
    whole = started.knobs.get("single_step")  # then a token's own grade is in the loss, and the discount is 0
    assert (credited.advantages.abs().max() > 0) == (not whole)
    measured, gradients = gradient(started, credited)
    assert all(isfinite(value) for value in measured.values())
    assert all(found.isfinite().all() and found.norm() > 0 for found in gradients.values())


# ---------------------------------------------------------------------------- rewards of single tokens

def test_rewards_of_tokens_reach_the_rollout_and_its_padding(monkeypatch):
    real = experience.reward

    def by_token(started, problems, generated):
        mask = generated.completions.mask
        return replace(real(started, problems, generated), per_token=torch.arange(mask.shape[1]) * mask * 1.0)
    for module in (experience, rewards):
        monkeypatch.setattr(module, "reward", by_token)
    started = session("rloo", beta=0.0)
    rollout = collect(started).rollout
    lengths = rollout.completion_mask.sum(1)
    whole = rollout.shaped + lengths * (lengths - 1) / 2  # 0 + 1 + … + (T − 1)
    others = whole.view(4, 4)
    expected = (others - (others.sum(1, keepdim=True) - others) / 3).view(-1, 1) * rollout.completion_mask
    torch.testing.assert_close(credit(started.knobs, rollout).advantages, expected)
    rounds = [sample_round(started, 0)]
    started.knobs["max_new_tokens"] = 3
    rounds.append(sample_round(started, 1))
    per_token = joined(rounds).rewards.per_token
    assert per_token.shape == (32, 6) and (per_token[16:, 3:] == 0).all()
    assert torch.equal(per_token[:16], rounds[0].rewards.per_token)


# ---------------------------------------------------------------------------- what is left out

@pytest.mark.parametrize("key", now(ONLINE, *FEW, *OF_BATCHES))
def test_groups_that_are_not_kept_are_as_if_they_were_not_there(key):
    """Gradient, loss, critic's loss, and the shares that are logged: all of the kept groups alone."""
    whole = {"mini_batches": 1} if "mini_batches" in {knob.key for knob in ALGORITHMS[key].knobs} else {}
    started = session(key, prompts_per_step=5, entropy_coef=0.05, selection="everything", sft_weight=0.0, **whole)
    rollout = ragged(seen_by(started, collect(started)))
    for name in started.optimizers:
        shake(started.models[name])
    prompts = torch.tensor([1, 3])
    kept = torch.zeros(5, dtype=torch.bool).index_fill(0, prompts, True).repeat_interleave(rollout.group_size)
    masked = credit(started.knobs, replace(rollout, kept=kept))
    assert (masked.advantages[~kept] == 0).all()
    alone = replace(masked.select(prompts), kept=None)
    everything = credit(started.knobs, rollout)
    measured, gradients = gradient(started, masked)
    expected, wanted = gradient(started, alone)
    assert measured == {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in expected.items()}
    other = gradient(started, everything)[1]
    for name, found in gradients.items():
        torch.testing.assert_close(found, wanted[name], rtol=1e-4, atol=1e-6)
        assert (found - other[name]).norm() > 1e-2 * found.norm()


def test_baselines_are_those_of_whole_groups():
    """What is left out is not learnt from, but it is what the others are compared with."""
    started = session("grpo", advantage="group_mean", beta=0.0)
    rollout = ragged(collect(started).rollout)
    kept = torch.arange(16) % 4 != 0
    whole, masked = (credit(started.knobs, replace(rollout, kept=which)).advantages for which in (None, kept))
    assert torch.equal(masked, whole * kept[:, None]) and whole[~kept].abs().max() > 0.01


def test_a_cut_completion_is_left_out_where_the_run_says_so():
    started = session("grpo", selection="not_truncated", max_new_tokens=20, steps=1)
    batch = collect(started)
    truncated = batch.rollout.truncated
    assert torch.equal(batch.rollout.kept, ~truncated) and truncated.any() and not truncated.all()
    assert batch.metrics["selection/kept_frac"] == pytest.approx(1 - truncated.float().mean().item())


@pytest.mark.parametrize("selection", ["everything", "informative"])
def test_overlong_filtering_goes_with_any_selection(selection):
    started = session("grpo", selection=selection, overlong_filter=True, max_new_tokens=20, beta=0.0)
    batch = collect(started)
    truncated, without = batch.rollout.truncated, session("grpo", selection=selection, max_new_tokens=20, beta=0.0)
    assert truncated.any() and torch.equal(batch.rollout.kept, ~truncated)
    assert batch.metrics["selection/kept_frac"] == pytest.approx(1 - truncated.float().mean().item())
    whole = credit(without.knobs, replace(batch.rollout, kept=None)).advantages
    got = credit(started.knobs, batch.rollout).advantages
    assert torch.equal(got, whole * ~truncated[:, None]) and whole[truncated].any(), "still in the baselines"


def test_raft_is_supervised_learning_of_the_best():
    """Its gradient is that of SFT on the best completion of each prompt."""
    started, teacher = session("raft", max_new_tokens=40, prompts_per_step=16), session("sft")
    assert torch.equal(weights(started.policy), weights(teacher.policy))
    started.task.score = lambda problem, text: Score(1 / (1 + len(text)), False)  # the shortest, which ended
    batch = collect(started)
    best = batch.rollout.shaped.view(16, 4).argmax(1) + 4 * torch.arange(16)
    assert batch.rollout.kept.nonzero()[:, 0].tolist() == best.tolist()
    # SFT teaches every answer to end; the text of a special token is not that token.
    ended = torch.tensor([row for row in best.tolist()
                          if not batch.rollout.truncated[row] and "<" not in batch.batch.texts[row]])
    assert len(ended) >= 4
    kept = torch.zeros(64, dtype=torch.bool).index_fill(0, ended, True)
    measured, gradients = gradient(started, credit(started.knobs, replace(batch.rollout, kept=kept)))
    problems = [Problem(batch.batch.problems[row // 4].prompt, batch.batch.texts[row]) for row in ended.tolist()]
    teacher.task.problems = lambda count, rng: problems
    seen = []
    teacher.optimise = lambda name, rate, loss: seen.append((loss, parameters_to_vector(
        [p.grad for p in teacher.policy.parameters()]))) or 0.0
    sft.update(teacher)
    ((loss, wanted),) = seen
    assert measured["loss"] == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(gradients["policy"], wanted, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------------- shaping

def test_the_overlong_penalty_of_a_run():
    """L = 20, c = 15, λ = 0.5: none up to 5 tokens, then 1/30 for each, 1/2 at the limit."""
    given = {"max_new_tokens": 20, "prompts_per_step": 16}
    started = session("grpo", shaping="overlong", overlong_buffer=15, overlong_penalty=0.5, **given)
    batch = collect(started)
    lengths, rewards = batch.rollout.completion_mask.sum(1), batch.batch.rewards.total.float()
    assert len(lengths.unique()) >= 8 and lengths.min() < 5 and lengths.max() == 20
    penalty = (lengths - 5).clamp(min=0) / 30
    torch.testing.assert_close(batch.rollout.shaped, rewards - penalty)
    assert batch.metrics["reward"] == pytest.approx(rewards.mean().item())
    assert batch.metrics["reward/shaped"] == pytest.approx((rewards - penalty).mean().item(), abs=1e-6)
    plain = collect(session("grpo", **given))
    assert "reward/shaped" not in plain.metrics and torch.equal(plain.rollout.shaped, rewards)


def test_the_best_of_a_group_is_so_after_shaping():
    """All answers earn the same, so that the shortest of each group is the best one, and the first of these."""
    started = session("raft", shaping="length_cost", length_cost=0.1, prompts_per_step=8, max_new_tokens=20)
    started.task = Partly(1.0)
    batch = collect(started)
    lengths = batch.rollout.completion_mask.sum(1).view(8, -1)
    shortest = lengths == lengths.amin(1, keepdim=True)
    assert lengths.float().std(1).max() > 0
    assert torch.equal(batch.rollout.kept.view_as(shortest), shortest & (shortest.cumsum(1) == 1))


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_the_best_of_a_group_is_so_less_the_kl_in_the_reward(beta):
    """Dong et al. rank by R − β log π/π_ref. All answers earn the same here, so that the KL alone ranks them."""
    started = session("raft", kl_placement="reward", kl_estimator="k1", beta=beta, prompts_per_step=8)
    started.task = Partly(1.0)
    shake(started.policy, by=0.3)
    batch = collect(started)
    rollout = batch.rollout
    kl = ((rollout.old_logprobs - rollout.ref_logprobs) * rollout.completion_mask).sum(1).view(8, -1)
    earned = rollout.shaped.view(8, -1) - beta * kl
    assert kl.std(1).min() > 0 and rollout.kept.view(8, -1).int().argmax(1).tolist() == earned.argmax(1).tolist()
    assert rollout.kept.view(8, -1).sum(1).tolist() == [1] * 8 and batch.metrics["selection/kept_frac"] == 1 / 4
    assert torch.equal(seen_by(started, batch).kept, rollout.kept)


def test_the_best_of_a_group_is_so_with_the_rewards_of_its_tokens(monkeypatch):
    started, real = session("raft", prompts_per_step=8, max_new_tokens=20), experience.reward

    def by_token(started, problems, generated):
        return replace(real(started, problems, generated), per_token=generated.completions.mask * 0.5)
    for module in (experience, rewards):
        monkeypatch.setattr(module, "reward", by_token)
    started.task = Partly(1.0)
    rollout = collect(started).rollout
    lengths = rollout.completion_mask.sum(1).view(8, -1)
    assert lengths.float().std(1).max() > 0
    assert rollout.kept.view(8, -1).int().argmax(1).tolist() == lengths.argmax(1).tolist()


# ---------------------------------------------------------------------------- further rollouts

def test_remax_compares_with_the_greedy_completion():
    started = session("remax", group_size=3, beta=0.0)
    shake(started.policy, by=0.3)
    batch = collect(started)
    greedy = generate(started, started.policy, batch.batch.problems, 1, Sampling(max_new_tokens=6, greedy=True))
    baseline = torch.tensor([started.task.score(None, text).reward for text in greedy.texts]).repeat_interleave(3)
    assert torch.equal(batch.rollout.rival_rewards, baseline) and baseline.std() > 0
    expected = (batch.rollout.shaped - baseline)[:, None] * batch.rollout.completion_mask
    torch.testing.assert_close(credit(started.knobs, batch.rollout).advantages, expected)
    part = batch.rollout.select(torch.tensor([2, 0]))
    torch.testing.assert_close(credit(started.knobs, part).advantages, expected.view(4, 3, -1)[[2, 0]].flatten(0, 1))
    assert started.tokens == int(batch.rollout.completion_mask.sum()) + int(greedy.completions.mask.sum())


def test_nash_md_compares_with_a_completion_of_the_mixture_for_each():
    started = session("nash_md", group_size=3, prompts_per_step=4, mixture_share=1.0, beta=0.0)
    shake(started.policy, by=0.3)
    seen, real = [], generate

    def noted(session, model, *rest):
        seen.append((model, real(session, model, *rest)))
        return seen[-1][1]
    with patch("labcore.llm.experience.generate", noted):
        batch = collect(started)
    (_, own), (mixture, other) = seen
    assert isinstance(mixture, Mixture) and mixture.first is started.policy and mixture.second is started.reference
    rewards = torch.tensor([started.task.score(None, text).reward for text in other.texts])
    assert torch.equal(batch.rollout.rival_rewards, rewards) and len(rewards) == len(own.texts) == 12
    expected = ((batch.rollout.shaped - rewards).sigmoid() - 0.5)[:, None] * batch.rollout.completion_mask
    torch.testing.assert_close(credit(started.knobs, batch.rollout).advantages, expected)
    assert started.tokens == sum(int(each.completions.mask.sum()) for each in (own, other))
    measured = online.gradients(started, credit(started.knobs, batch.rollout), fresh=True)
    assert measured["win_rate"] == pytest.approx(float((batch.rollout.shaped - rewards).sigmoid().mean()))


def test_a_win_rate_is_that_of_the_advantages_and_none_where_nothing_was_compared():
    started = session("nash_md", group_size=3, prompts_per_step=4)
    rollout = collect(started).rollout
    earned = replace(rollout, token_rewards=torch.full_like(rollout.old_logprobs, 0.25))
    credited = credit(started.knobs, earned)
    expected = credited.advantages[:, 0].mean() + 0.5
    assert online.gradients(started, credited)["win_rate"] == pytest.approx(float(expected))
    nothing = replace(rollout, rival_rewards=torch.full_like(rollout.shaped, nan))
    assert "win_rate" not in online.gradients(started, credit(started.knobs, nothing))


def test_the_greedy_baseline_is_shaped_as_what_is_compared_with_it(monkeypatch):
    started = session("remax", group_size=3, beta=0.0, shaping="clipped", reward_clip=1.0)
    started.task.score = lambda problem, text: Score(10.0, True)
    batch = collect(started)
    assert not credit(started.knobs, batch.rollout).advantages.any()
    real = experience.reward

    def by_token(started, problems, generated):
        return replace(real(started, problems, generated), per_token=generated.completions.mask * 0.5)
    for module in (experience, rewards):
        monkeypatch.setattr(module, "reward", by_token)
    batch = collect(started)
    generated = generate(started, started.policy, batch.batch.problems, 1, Sampling(max_new_tokens=6, greedy=True))
    earned = 1 + 0.5 * generated.completions.lengths
    torch.testing.assert_close(batch.rollout.rival_rewards, earned.repeat_interleave(3))


def test_greedy_completions_draw_no_random_number():
    size = {"group_size": 4, "prompts_per_step": 4}
    one, other = session("remax", **size), session("rloo", **size)
    first, second = collect(one), collect(other)
    assert first.batch.texts == second.batch.texts
    assert torch.equal(first.rollout.old_logprobs, second.rollout.old_logprobs)
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    assert one.rng.bit_generator.state == other.rng.bit_generator.state


def test_a_batch_seen_by_another_algorithm_has_its_choices():
    sampler = session("grpo", prompts_per_step=8)
    batch = collect(sampler)
    assert batch.rollout.kept is None and batch.rollout.rival_rewards is None
    for key in with_each():
        seen = seen_by(session(key), batch)
        chosen = {knob.key: knob.default for knob in ALGORITHMS[key].knobs}
        assert (seen.rival_rewards is not None) == bool(choices.ADVANTAGE[chosen["advantage"]].rollouts)
        assert torch.equal(seen.old_logprobs, batch.rollout.old_logprobs)
        if chosen["selection"] == "best_of_group":
            assert seen.kept.view(8, 4).sum(1).tolist() == [1] * 8
        if chosen["shaping"] == "none":
            assert torch.equal(seen.shaped, batch.rollout.shaped)
        else:
            assert (seen.shaped <= batch.rollout.shaped).all() and (seen.shaped < batch.rollout.shaped).any()
