"""The online loop: sample a batch, score it, learn from it, again. One loop for every online algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labcore.errors import Diverged
from labcore.llm import objective
from labcore.llm.batch import Completions, Prompts, decode, encode_prompts
from labcore.llm.nets.forward import Network, completion_outputs, micro_batches, precision
from labcore.llm.probes import view
from labcore.llm.rollout import Rollout, credit
from labcore.llm.sampler import sample
from labcore.maths import kl
from labcore.maths.logprobs import logprobs_and_entropy, selective_log_softmax
from labcore.maths.masked import masked_mean
from labcore.maths.returns import explained_variance
from labcore.maths.surrogates import value_loss
from labcore.spec.record import Record
from labcore.tasks.task import Problem, Score

if TYPE_CHECKING:
    from labcore.llm.session import Session


def run(session: Session) -> Iterator[Record | None]:
    """Yield a Record per batch, and None between the updates of one batch."""
    while session.step < session.spec.steps:
        batch = collect(session)
        before = view.parameters(session.policy) if view.line_due(session.step) else None
        measured: list[dict[str, float]] = []
        for part in parts_of(session, len(batch.rollout.prompts)):
            if measured:
                yield None
            rollout = credit(session.knobs, batch.rollout)
            measured.append(update(session, rollout.select(part)))
        session.step += 1
        rollout = credit(session.knobs, batch.rollout)
        metrics = batch.metrics | _means(measured) | {"updates": session.updates, "num_tokens": session.tokens}
        yield Record(session.step, session.tokens, metrics,
                     samples=view.groups(session, batch, rollout) if view.samples_due(session.step) else None,
                     line=view.line(session, rollout, before) if before is not None else None)


class Batch:
    """A sampled and scored batch: the rollout, and the words and verdicts behind it."""

    def __init__(self, problems: list[Problem], completions: Completions, texts: list[str], scores: list[Score],
                 rollout: Rollout):
        self.problems, self.completions, self.texts, self.scores = problems, completions, texts, scores
        self.rollout = rollout

    @property
    def metrics(self) -> dict[str, float]:
        """What the batch says of the policy that sampled it."""
        rollout = self.rollout
        groups = rollout.rewards.view(-1, rollout.group_size)
        metrics = score_metrics(self.scores, self.completions) | kl_metrics(
            rollout.old_logprobs, rollout.ref_logprobs, rollout.completion_mask)
        if rollout.group_size > 1:
            flat = groups.amax(1) == groups.amin(1)
            metrics["frac_reward_zero_std"] = float(flat.float().mean())
        return metrics


def collect(session: Session) -> Batch:
    """Sample G completions of each of P fresh prompts, score them, and price every token under the reference."""
    knobs = session.knobs
    group_size = int(knobs["group_size"])
    problems = session.task.problems(int(knobs["prompts_per_step"]), prompt_rng(session))
    prompts, completions, texts = complete(session, session.policy, problems, group_size)
    scores = [session.task.score(problems[row // group_size], text) for row, text in enumerate(texts)]
    session.tokens += int(completions.mask.sum())
    rollout = Rollout(
        prompts, completions.ids, completions.mask, completions.truncated,
        rewards=torch.tensor([score.reward for score in scores], device=session.device),
        old_logprobs=completions.logprobs,
        ref_logprobs=score_tokens(session, session.reference, prompts, completions),
        old_values=None if session.critic is None else value_tokens(session, prompts, completions))
    return Batch(problems, completions, texts, scores, rollout)


def prompt_rng(session: Session) -> np.random.Generator:
    """The random numbers that choose the prompts of the next step: of the seed and the step, and of nothing else.

    So all algorithms of one seed get the same prompts, however many numbers they draw for other things.
    """
    return np.random.default_rng((session.prompt_seed, session.step))


def complete(session: Session, model: Network, problems: list[Problem],
             group_size: int) -> tuple[Prompts, Completions, list[str]]:
    """Sample `group_size` completions of each problem from `model`, with the session's sampling knobs."""
    knobs = session.knobs
    prompts = encode_prompts(session.tokenizer, [problem.prompt for problem in problems], session.context - 1,
                             session.device, [f"line {p.line}" if p.line else "" for p in problems])
    limit = min(int(knobs["max_new_tokens"]), session.context - prompts.ids.shape[1])
    with precision(model, knobs["dtype"]):
        completions = sample(model, prompts, group_size, max_new_tokens=limit,
                             eos=session.tokenizer.eos_token_id, generator=session.generator,
                             temperature=knobs["temperature"], top_k=knobs["top_k"], top_p=knobs["top_p"])
    if not completions.logprobs.isfinite().all():
        raise Diverged(session.step + 1, "sampling distribution")
    return prompts, completions, decode(session.tokenizer, completions)


@torch.no_grad()
def score_tokens(session: Session, model: Network, prompts: Prompts, completions: Completions) -> Tensor:
    """Log-probs of given completions under `model` at the sampling temperature, 0 where not counted. (B, T) nats"""
    parts = []
    for some, rows in micro_batches(model, len(prompts), *completions.ids.shape):
        with precision(model, session.knobs["dtype"]):
            logits = completion_outputs(model, prompts[some], completions.ids[rows])
        parts.append(selective_log_softmax(logits, completions.ids[rows], session.knobs["temperature"]))
    return torch.cat(parts).masked_fill(~completions.mask, 0)


@torch.no_grad()
def value_tokens(session: Session, prompts: Prompts, completions: Completions) -> Tensor:
    """The critic's value before each completion token, 0 where not counted. (B, T) reward"""
    parts = []
    for some, rows in micro_batches(session.critic, len(prompts), *completions.ids.shape):
        with precision(session.critic, session.knobs["dtype"]):
            parts.append(completion_outputs(session.critic, prompts[some], completions.ids[rows])[..., 0].float())
    return torch.cat(parts).masked_fill(~completions.mask, 0)


def parts_of(session: Session, prompts: int) -> Iterator[Tensor]:
    """Indices of the prompts of each update: every pass over the batch, cut into its mini-batches.

    Groups stay whole. One mini-batch takes the prompts in order, so that no random number is drawn for it.
    """
    count = int(session.knobs.get("mini_batches", 1))
    for _ in range(int(session.knobs.get("updates_per_batch", 1))):
        order = session.rng.permutation(prompts) if count > 1 else range(prompts)
        yield from torch.as_tensor(list(order), device=session.device).chunk(count)


def update(session: Session, rollout: Rollout) -> dict[str, float]:
    """One optimizer update of the policy (and of the critic, where there is one) on `rollout`.

    The batch may be cut into micro-batches for memory; the gradient does not depend on the cut.
    """
    knobs = session.knobs
    totals = objective.Totals.of(rollout, int(knobs["max_new_tokens"]))
    losses, value_losses, seen = [], [], []
    for prompts, rows in micro_batches(session.policy, len(rollout.prompts), *rollout.ids.shape):
        part = rollout.slice(prompts, rows)
        with precision(session.policy, knobs["dtype"]):
            logits = completion_outputs(session.policy, part.prompts, part.ids)
        logprobs, entropy = logprobs_and_entropy(logits, part.ids, knobs["temperature"],
                                                 entropy_grad=knobs["entropy_coef"] > 0)
        loss, ratio = objective.loss(knobs, part, logprobs, entropy, totals)
        loss.backward()
        losses.append(loss.item())
        seen.append((logprobs.detach(), ratio.detach(), entropy.detach()))
        if session.critic is not None:
            value_losses.append(_critic_backward(session, part, totals))
    measured = objective.measures(knobs, rollout, *(torch.cat(column) for column in zip(*seen, strict=True)))
    measured["loss"] = sum(losses)
    measured["grad_norm"] = session.optimise("policy", knobs["learning_rate"], sum(losses))
    measured["learning_rate"] = knobs["learning_rate"]
    if session.critic is not None:
        measured["value_loss"] = sum(value_losses)
        session.optimise("critic", knobs["critic_learning_rate"], sum(value_losses))
        explained = float(explained_variance(rollout.old_values, rollout.returns, rollout.completion_mask))
        if isfinite(explained):  # returns that do not vary leave nothing to explain
            measured["explained_variance"] = explained
    session.updates += 1
    return measured


def _critic_backward(session: Session, part: Rollout, totals: objective.Totals) -> float:
    with precision(session.critic, session.knobs["dtype"]):
        values = completion_outputs(session.critic, part.prompts, part.ids)[..., 0].float()
    loss = value_loss(values, part.old_values, part.returns, part.completion_mask, session.knobs["value_clip"],
                      totals.total_tokens)
    loss.backward()
    return loss.item()


def score_metrics(scores: list[Score], completions: Completions) -> dict[str, float]:
    """Reward, exact match and lengths of a batch of scored completions."""
    rewards = torch.tensor([score.reward for score in scores])
    return {"reward": float(rewards.mean()), "reward_std": float(rewards.std(correction=min(1, len(scores) - 1))),
            "exact_match": sum(score.exact for score in scores) / len(scores),
            "completions/mean_length": float(completions.lengths.float().mean()),
            "completions/truncated_frac": float(completions.truncated.float().mean())}


def kl_metrics(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> dict[str, float]:
    """The three estimates of KL(policy ‖ reference) from the policy's own samples, nats/token."""
    mean = {f"kl/{estimate.__name__}": float(masked_mean(estimate(logprobs, ref_logprobs), mask))
            for estimate in (kl.k1, kl.k2, kl.k3)}
    return {"kl": mean["kl/k3"], **mean}


def _means(measured: list[dict[str, Any]]) -> dict[str, float]:
    """Mean over the batch's updates; the largest for a maximum."""
    columns = {key: [row[key] for row in measured if key in row] for row in measured for key in row}
    return {key: max(values) if key.endswith("/max") else sum(values) / len(values)
            for key, values in columns.items()}
