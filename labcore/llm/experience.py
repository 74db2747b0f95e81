"""Collect a batch: sample, reward, shape and select until it is full, then run the other networks on it.

    prompts → generate → reward → shape → select

The run chooses the function of each part; this module does not know which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from labcore.catalog import choices
from labcore.catalog.conditions import SAME_DTYPE
from labcore.llm import prompt_pool
from labcore.llm.batch import Completions, Prompts
from labcore.llm.demonstrations import demonstrations
from labcore.llm.episodes import warnings
from labcore.llm.evaluation import episode_metrics, group_shares, kl_metrics, score_metrics
from labcore.llm.generation import (
    Generated,
    Sampling,
    generate,
    reference_logprobs,
    token_logprobs,
    token_square_sums,
    token_values,
)
from labcore.llm.nets.mixture import Mixture
from labcore.llm.nets.tape import Tape
from labcore.llm.networks import TEACHER
from labcore.llm.prompt_values import prompt_values
from labcore.llm.rewards import Rewards, earned, reward, say_unscored, shaped, silent
from labcore.llm.rollout import Rollout, total_rewards
from labcore.llm.sampler_weights import sampling_weights
from labcore.llm.session import LlmSession
from labcore.llm.teacher import asked, sampled_measures
from labcore.llm.teacher_context import teacher_prompts
from labcore.maths.call import call, member
from labcore.tasks.environment import EnvironmentTask
from labcore.tasks.task import Problem


@dataclass(frozen=True)
class Sampled:
    """P problems with G completions each: their rewards, these after shaping (B,), and which rows are kept (B,).

    `kept` is by the shaped rewards alone; the batch's rollout knows the rewards of tokens and a KL in the reward too.
    `rival_rewards` (B,) are those of the completion that each row is compared with, where the advantage asks for them.
    """

    problems: list[Problem]
    prompts: Prompts
    completions: Completions
    texts: list[str]
    rewards: Rewards
    shaped: Tensor
    kept: Tensor
    rival_rewards: Tensor | None = None

    @property
    def group_size(self) -> int:
        return len(self.texts) // len(self.problems)

    @property
    def kept_groups(self) -> Tensor:
        """True if any completion of each prompt is kept. (P,) bool"""
        return self.kept.view(-1, self.group_size).any(1)


@dataclass(frozen=True)
class Batch:
    """The batch that the updates of a step learn from, and all completions sampled for it.

    `rollout` and `batch` are the same completions, row by row; `sampled` are all rounds of sampling, of which the batch
    is a part where groups were sampled again. `selective`: the run chose to leave something out. `delayed`: the batch
    is of other steps' samples, of which the last `again` groups were in an earlier batch too.
    """

    batch: Sampled
    rollout: Rollout
    sampled: Sequence[Sampled]
    selective: bool = False
    delayed: bool = False
    again: int = 0

    @property
    def new_problems(self) -> list[Problem]:
        """The problems of the groups that no earlier batch had."""
        return self.batch.problems[:len(self.batch.problems) - self.again]

    def of_new(self, values: Tensor) -> Tensor:
        """The values (B,) of completions in groups that no earlier batch had. With these, statistics of a run count
        each group once."""
        return values[:len(self.new_problems) * self.batch.group_size]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of all sampled completions; the KL is that of the batch alone."""
        whole = self.sampled[0] if len(self.sampled) == 1 else joined(self.sampled)
        rollout, after = self.rollout, whole.shaped.view(-1, whole.group_size)
        metrics = score_metrics(whole.rewards, whole.completions) | kl_metrics(
            rollout.old_logprobs, rollout.ref_logprobs, rollout.completion_mask) | episode_metrics(whole.texts)
        if rollout.teacher_logprobs is not None:
            metrics |= sampled_measures(rollout.old_logprobs, rollout.teacher_logprobs, rollout.completion_mask,
                                        rollout.in_context)
        if whole.group_size > 1:
            metrics |= group_shares(after, whole.rewards.exact)
        metrics |= _by_level(whole)
        metrics |= {f"reward/{name}": float(part.nanmean()) for name, part in whole.rewards.parts.items()
                    if not part.isnan().all()}
        if whole.rewards.may_lack:
            metrics |= {f"unscored/{name}": float(part.isnan().double().mean()) for name, part in {
                "reward": whole.rewards.total, **whole.rewards.parts}.items() if name != "gold"}
            metrics["frac_reward_unscored"] = len(silent(whole.rewards, whole.group_size)) / len(whole.problems)
        if not torch.equal(whole.shaped.nan_to_num(), whole.rewards.total.to(whole.shaped).nan_to_num()):
            metrics["reward/shaped"] = float(after.nanmean())
        if self.selective:
            kept = len(rollout.ids) if rollout.kept is None else float(rollout.kept.sum())
            of = rollout.ids if self.delayed else whole.texts
            metrics |= {"selection/kept_frac": kept / len(of), "selection/rounds": float(len(self.sampled))}
        if rollout.age is not None:
            metrics |= {"sample_age/mean": float(rollout.age.double().mean()),
                        "sample_age/max": float(rollout.age.max())}
        return metrics


def _by_level(sampled: Sampled) -> dict[str, float]:
    """The mean reward of the completions of each level, where prompts have levels."""
    rewards, found = sampled.rewards.total.view(len(sampled.problems), -1), dict[int, list[Tensor]]()
    for problem, group in zip(sampled.problems, rewards, strict=True):
        if problem.level is not None:
            found.setdefault(problem.level, []).append(group)
    means = {level: torch.cat(groups).nanmean() for level, groups in found.items()}
    return {f"reward_at_level/{level}": float(mean) for level, mean in sorted(means.items()) if not mean.isnan()}


def prompt_rng(session: LlmSession, round: int = 0, number: int | None = None) -> np.random.Generator:
    """The random generator that chooses the prompts of the next step if they are not drawn in epochs; it depends only
    on the seed and the step. `number` is the step of the batch if that is a later one.

    So all algorithms of one seed get the same prompts, however many numbers they draw for other things. Every further
    round of sampling has its own.
    """
    step = session.step if number is None else number
    return np.random.default_rng((session.prompt_seed, step, round) if round else (session.prompt_seed, step))


def collect(session: LlmSession, tape: Tape | None = None) -> Batch:
    """Sample G completions of each of P fresh prompts, reward them, and compute reference log-probs and values.

    `tape` is to record the sampling of the first round.

    Where the selection refills, groups of which nothing is kept are replaced by those of further rounds, at most
    `resample_rounds` of them; what is missing then stays in the batch without being learnt from.
    """
    rounds, batch = sampled_batch(session, tape)
    return Batch(batch, rollout_of(session, batch), rounds, selective(session))


def sampled_batch(session: LlmSession, tape: Tape | None = None, number: int | None = None,
                  count: int | None = None) -> tuple[list[Sampled], Sampled]:
    """The rounds of sampling of a batch, and the batch that they make. `number` is the step that it is for and `count`
    its prompts, where these are not the present step and all."""
    knobs = session.knobs
    refills = choices.SELECTION[knobs["selection"]].refills
    rounds = [sample_round(session, 0, tape, number, count)]
    count = len(rounds[0].problems)
    while refills and len(rounds) <= knobs["resample_rounds"] and sum(int(r.kept_groups.sum()) for r in rounds) < count:
        rounds.append(sample_round(session, len(rounds), None, number, count))
    return rounds, rounds[0] if len(rounds) == 1 else _filled(rounds, count)


def selective(session: LlmSession) -> bool:
    """True if the run chose to leave completions out."""
    return session.knobs["selection"] != "everything" or bool(session.knobs["overlong_filter"])


def rollout_of(session: LlmSession, sampled: Sampled, age: Tensor | None = None) -> Rollout:
    """The sampled completions, with the reference's log-probs and the critic's values: ready for `credit`.

    `age` (B,) are the updates since each was sampled; None: the policy has not changed since.
    """
    prompts, completions = sampled.prompts, sampled.completions
    corrected = bool(session.knobs["importance_cap"] or session.knobs["recompute_logprobs"])
    old = token_logprobs(session, session.policy, prompts, completions) if corrected else completions.sampled_logprobs
    apart = None if corrected else _apart(session, completions, age)
    if apart is None:
        reference = reference_logprobs(session, prompts, completions, old)
    else:  # the old log-probs are of other weights than the policy's, also where the policy is the reference
        reference = token_logprobs(session, session.reference, prompts, completions)
    answers, answer_mask = demonstrations(session, sampled.problems)
    parts = sampled.rewards.weights
    rollout = Rollout(
        prompts, completions.ids, completions.mask, completions.truncated, sampled.shaped, old,
        old if reference is None else reference,
        old_values=None if session.critic is None else token_values(session, prompts, completions),
        token_rewards=_on(sampled.rewards.per_token, session.device), step_ends=_ends(sampled.rewards, session.device),
        turn_rewards=_on(sampled.rewards.of_turns, session.device),
        rival_rewards=sampled.rival_rewards, past_rewards=torch.full_like(sampled.shaped, session.past_rewards),
        reward_parts=_on(torch.stack([sampled.rewards.parts[name] for name in parts], 1), session.device)
        if parts else None,
        part_weights=_on(torch.tensor([[*parts.values()]] * len(sampled.texts)), session.device) if parts else None,
        sampler_logprobs=completions.logprobs if corrected else None, square_sums=_square_sums(session, sampled),
        age=age, apart=apart, at_reference=reference is None, prompt_values=_prompt_values(session, sampled),
        demonstrations=answers, demonstration_mask=answer_mask, **_taught(session, sampled))
    return _selected(session, sampled, rollout)


def _apart(session: LlmSession, completions: Completions, age: Tensor | None) -> Tensor | None:
    """A mask of the completions that other weights than the policy's have sampled; None where it has none. (B,)"""
    if session.knobs.get("sampler_dtype", SAME_DTYPE) != SAME_DTYPE:
        return torch.ones_like(completions.truncated)
    return None if age is None or not age.any() else age > 0


def seen_by(session: LlmSession, batch: Batch) -> Rollout:
    """The rollout of a batch with the shaping, the selection and the extra rollouts of the session's own choices.

    The batch may have been sampled for another algorithm.
    """
    sampled = batch.batch
    rivals = _rival_rewards(session, sampled.problems, Sampling.of(session.knobs), sampled.group_size)
    answers, answer_mask = demonstrations(session, sampled.problems)
    after = shaped(session, sampled.rewards, sampled.completions)
    return _selected(session, sampled, replace(batch.rollout, shaped=after, rival_rewards=rivals,
                                               demonstrations=answers, demonstration_mask=answer_mask,
                                               **_taught(session, sampled),
                                               square_sums=_square_sums(session, sampled),
                                               prompt_values=_prompt_values(session, sampled)))


def _prompt_values(session: LlmSession, sampled: Sampled) -> Tensor | None:
    """The number of each row's prompt that the advantage compares with, where it asks for one. (B,)"""
    found = prompt_values(session, sampled.problems)
    return None if found is None else found.to(sampled.shaped).repeat_interleave(sampled.group_size)


def _square_sums(session: LlmSession, sampled: Sampled) -> Tensor | None:
    """The sums of squared probabilities, where the advantage asks for them. (B, T)"""
    asked = choices.ADVANTAGE[session.knobs["advantage"]].squares
    return token_square_sums(session, sampled.prompts, sampled.completions) if asked else None


def _taught(session: LlmSession, sampled: Sampled) -> dict[str, Any]:
    """The teacher's log-probs of each token (`teacher.asked`) and its prompts, as fields of a rollout; all None if the
    session has no teacher."""
    if TEACHER not in session.models:
        return dict.fromkeys(("teacher_logprobs", "teacher_likeliest", "teacher_prompts", "in_context"))
    prompts, there = teacher_prompts(session, sampled.problems, sampled.texts, sampled.rewards.exact,
                                     sampled.completions.ids.shape[1])
    logprobs, likeliest = asked(session, sampled.prompts if prompts is None else prompts, sampled.completions)
    return {"teacher_logprobs": logprobs, "teacher_likeliest": likeliest, "teacher_prompts": prompts,
            "in_context": there}


def _selected(session: LlmSession, sampled: Sampled, rollout: Rollout) -> Rollout:
    """The rollout after a selection by total rewards, which include the rewards of tokens and a KL in the reward."""
    kept = _kept(session, sampled.rewards, sampled.completions, total_rewards(session.in_force, rollout),
                 sampled.group_size)
    return replace(rollout, kept=None if bool(kept.all()) else kept)


def sample_round(session: LlmSession, round: int, tape: Tape | None = None, number: int | None = None,
                 count: int | None = None) -> Sampled:
    """One round of sampling: P fresh problems, answered. `number` and `count` as in `sampled_batch`."""
    problems = prompt_pool.next_problems(session, count or int(session.knobs["prompts_per_step"]),
                                         prompt_rng(session, round, number))
    sampled = answered(session, problems, tape)
    prompt_pool.take_note(session, problems, sampled.rewards.exact)
    if isinstance(session.task, EnvironmentTask):
        for text in warnings(session.task, sampled.completions, sampled.texts, int(session.knobs["max_new_tokens"])):
            session.say_once(text)
    return sampled


def answered(session: LlmSession, problems: list[Problem], tape: Tape | None = None) -> Sampled:
    """Sample G completions of each problem, compute their rewards, and select the completions to keep."""
    with sampling_weights(session):
        generated = generate(session, session.policy, problems, int(session.knobs["group_size"]),
                             Sampling.of(session.knobs), tape)
    session.tokens += int(generated.completions.mask.sum())
    return judged(session, problems, generated)


def judged(session: LlmSession, problems: list[Problem], generated: Generated) -> Sampled:
    """The rewards of completions of some problems, of any origin, and which of them are kept."""
    completions, rewards = generated.completions, reward(session, problems, generated)
    if rewards.may_lack:
        say_unscored(session, rewards, len(completions) // len(problems))
    group_size, after = len(completions) // len(problems), shaped(session, rewards, completions)
    return Sampled(problems, generated.prompts, completions, generated.texts, rewards, after,
                   _kept(session, rewards, completions, after, group_size),
                   _rival_rewards(session, problems, Sampling.of(session.knobs), group_size))


def _kept(session: LlmSession, rewards: Rewards, completions: Completions, totals: Tensor, group_size: int) -> Tensor:
    """A mask of the completions that are learnt from, where each has earned `totals` (B,). (B,)"""
    knobs, truncated = session.knobs, completions.truncated
    kept: Tensor = call(member(choices.SELECTION, knobs["selection"]), knobs, {
        "rewards": totals.view(-1, group_size), "task_rewards": rewards.total.to(totals).view(-1, group_size),
        "truncated": truncated.view(-1, group_size)})
    counts = ~truncated & ~totals.isnan() if knobs["overlong_filter"] else ~totals.isnan()
    return kept.flatten() & counts


def _on(per_token: Tensor | None, device: torch.device) -> Tensor | None:
    """Rewards of tokens where the networks are."""
    return None if per_token is None else per_token.float().to(device)


def _ends(rewards: Rewards, device: torch.device) -> Tensor | None:
    """True at each token where a step ends, where steps are scored. (B, T)"""
    return None if rewards.step_scores is None else (~rewards.step_scores.isnan()).to(device)


def _rival_rewards(session: LlmSession, problems: list[Problem], sampling: Sampling, group_size: int) -> Tensor | None:
    """The reward (B,) of the completion that each row is compared with: the greedy completion of its prompt, or a
    sample of the mixture of policy and reference. It is shaped and includes rewards of tokens, like the other rewards.
    None if the run compares with neither."""
    rollouts = choices.ADVANTAGE[session.knobs["advantage"]].rollouts
    if not rollouts:
        return None
    mixed = "mixture" in rollouts
    with sampling_weights(session):
        rivals: Generated = (generate(session, mixture_of(session), problems, group_size, sampling) if mixed else
                             generate(session, session.policy, problems, 1, replace(sampling, greedy=True)))
    session.tokens += int(rivals.completions.mask.sum())
    rewards = earned(session, problems, rivals)
    return rewards if mixed else rewards.repeat_interleave(group_size)


def mixture_of(session: LlmSession) -> Mixture:
    """The geometric mixture of policy and reference, in which the reference has the weight `mixture_share`."""
    return Mixture(session.policy, session.reference, float(session.knobs["mixture_share"]))


def _filled(rounds: Sequence[Sampled], count: int) -> Sampled:
    """`count` groups of several rounds, in the order in which they were sampled: the kept ones first of all."""
    whole = joined(rounds)
    kept = whole.kept_groups
    order = torch.cat([kept.nonzero()[:, 0], (~kept).nonzero()[:, 0]])[:count].sort().values
    return groups_of(whole, order)


def groups_of(sampled: Sampled, prompts: Tensor) -> Sampled:
    """The groups of some of the prompts. prompts: (N,) indices."""
    size = sampled.group_size
    rows = (prompts[:, None] * size + torch.arange(size, device=prompts.device)).flatten()
    completions, on_cpu = sampled.completions, rows.cpu()
    return Sampled(
        [sampled.problems[prompt] for prompt in prompts.tolist()], sampled.prompts[prompts],
        Completions(completions.ids[rows], completions.mask[rows], completions.truncated[rows],
                    completions.sampled_logprobs[rows]),
        [sampled.texts[row] for row in on_cpu.tolist()], sampled.rewards[on_cpu], sampled.shaped[rows],
        sampled.kept[rows], None if sampled.rival_rewards is None else sampled.rival_rewards[rows])


def joined(rounds: Sequence[Sampled]) -> Sampled:
    """All groups of some rounds, padded to one width: prompts on the left, completions on the right."""
    def columns(parts: Sequence[Tensor], left: bool) -> Tensor:
        width = max(part.shape[1] for part in parts)
        return torch.cat([pad(part, (width - part.shape[1], 0) if left else (0, width - part.shape[1]))
                          for part in parts])

    done = [each.completions for each in rounds]
    rewards, rivals = [each.rewards for each in rounds], _all_of([each.rival_rewards for each in rounds])
    tokens = {name: _all_of([getattr(each, name) for each in rewards])
              for name in ("per_token", "step_scores", "step_gold", "of_turns")}
    spread = {name: None if parts is None else columns(parts, False) for name, parts in tokens.items()}
    return Sampled(
        [problem for each in rounds for problem in each.problems],
        Prompts(columns([each.prompts.ids for each in rounds], True),
                columns([each.prompts.mask for each in rounds], True)),
        Completions(columns([each.ids for each in done], False), columns([each.mask for each in done], False),
                    torch.cat([each.truncated for each in done]),
                    columns([each.sampled_logprobs for each in done], False)),
        [text for each in rounds for text in each.texts],
        Rewards(torch.cat([each.total for each in rewards]), torch.cat([each.exact for each in rewards]),
                {name: torch.cat([each.parts[name] for each in rewards]) for name in rewards[0].parts},
                weights=rewards[0].weights, may_lack=rewards[0].may_lack, **spread),
        torch.cat([each.shaped for each in rounds]), torch.cat([each.kept for each in rounds]),
        None if rivals is None else torch.cat(rivals))


def _all_of(parts: Sequence[Tensor | None]) -> list[Tensor] | None:
    """The tensors of every round, joined, or None where a round has none."""
    found = [part for part in parts if part is not None]
    assert len(found) in (0, len(parts)), "the rounds of a step are made alike"
    return found or None
