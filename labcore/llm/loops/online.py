"""The online loop, one for every online algorithm: collect a batch, and for each update on it give credit, take the
gradient of the loss, and step.

    collect → for each update: credit → L(θ) → ∂L/∂θ → θ ← optimizer(θ, ∂L/∂θ)

`run` is this line. L is `objective.loss`, collecting is `experience.collect`, credit is `rollout.credit`. Pictures are
made outside, at the stages that `run` yields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.catalog.conditions import off_policy
from labcore.llm import early_stopping, objective, prompt_pool
from labcore.llm.demonstrations import imitate
from labcore.llm.entropy_control import follow_entropy
from labcore.llm.generation import policy_logprobs_and_entropy
from labcore.llm.group_queue import collect
from labcore.llm.loops.stages import Collected, Learnt, Stage, Updated
from labcore.llm.moving_reference import follow_policy
from labcore.llm.nets.forward import at_tokens, completion_outputs, precision
from labcore.llm.nets.micro_batches import attempts, micro_batches, retried
from labcore.llm.nets.tape import Tape
from labcore.llm.networks import CRITIC, POLICY
from labcore.llm.probes.token_records import Met
from labcore.llm.prompt_values import learn as learn_prompts
from labcore.llm.rollout import Rollout, credit, total_rewards
from labcore.llm.session import LlmSession
from labcore.llm.singled_out import singled_out
from labcore.llm.teacher import Distributions, with_agreement, with_divergence
from labcore.llm.vllm_sampler import sampler_of
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.maths.returns import explained_variance
from labcore.maths.schedules import adaptive_kl
from labcore.maths.surrogates import value_loss
from labcore.maths.turns import extents
from labcore.maths.weights import entropy_floor
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record


def run(session: LlmSession) -> Iterator[Stage]:
    """Yield a Record per batch, None between the updates of one batch, and the other stages of a step."""
    with sampler_of(session):
        while session.step < session.spec.steps and not session.finished_because:  # a resumed run may be over
            tape = Tape() if _can_use_tape(session.knobs) else None
            batch = collect(session, tape)
            yield Collected(batch)
            updates, moves = list[dict[str, float]](), session.moves
            for part in (parts := list(parts_of(session, len(batch.rollout.prompts)))):
                if updates:
                    yield None
                session.share_done = len(updates) / updates_of(session.knobs)
                rollout, met = credit(session.in_force, batch.rollout).select(part), Met()
                for attempt in attempts(session):  # once more in smaller micro-batches where memory is short
                    with attempt, part_of(f"update {len(updates) + 1} of {len(parts)}"):
                        measured = gradients(session, rollout, met, tape, session.moves == moves)
                updates.append(measured | step(session, measured))
                follow_policy(session)
                tape = None  # its products are used up
                yield Updated(part, met)
            session.say_no_signal(session.moves == moves)
            session.step += 1
            rollout = credit(session.in_force, batch.rollout)
            metrics = batch.metrics | _means(updates) | {"updates": session.updates, "num_tokens": session.tokens}
            session.finished_because = early_stopping.reason(session, metrics)
            yield Learnt(rollout)
            earned = batch.of_new(total_rewards(session.in_force, rollout))
            learn_prompts(session, batch.new_problems, earned)
            metrics |= (learn_numbers(session, earned, metrics["kl"], len(rollout.ids))
                        | follow_entropy(session, metrics) | prompt_pool.metrics(session))
            yield Record(session.step, session.tokens, metrics)


def learn_numbers(session: LlmSession, totals: Tensor, kl: float, completions: int) -> dict[str, float]:
    """Update the statistics of a run: the mean of all rewards, by the new rewards `totals` (N,), and β's adaptive
    factor, by the KL of the step's completions. Returns their metrics."""
    knobs, earned = session.knobs, totals[~totals.isnan()].double()
    if len(earned):
        session.past_count += len(earned)
        session.past_rewards += float((earned - session.past_rewards).sum()) / session.past_count
    if not knobs["adaptive_kl_target"]:
        return {}
    factor, session.kl_beta = session.beta_factor, knobs["beta"]
    session.kl_factor = adaptive_kl(factor, kl, knobs["adaptive_kl_target"], knobs["adaptive_kl_horizon"], completions)
    return {"beta": knobs["beta"] * factor}


def parts_of(session: LlmSession, prompts: int) -> Iterator[Tensor]:
    """Indices of the prompts of each update: every pass over the batch, cut into its mini-batches.

    Groups stay whole. One mini-batch takes the prompts in order, so that no random number is drawn for it.
    """
    count = int(session.knobs.get("mini_batches", 1))
    for _ in range(int(session.knobs.get("updates_per_batch", 1))):
        order = session.rng.permutation(prompts) if count > 1 else range(prompts)
        yield from torch.as_tensor(list(order), device=session.device).chunk(count)


def updates_of(knobs: Mapping[str, Any]) -> int:
    """Optimizer updates of a batch."""
    return int(knobs.get("updates_per_batch", 1)) * int(knobs.get("mini_batches", 1))


def _can_use_tape(knobs: Mapping[str, Any]) -> bool:
    """True if the first update of a step learns from all completions of the first round of sampling, with the weights
    that sampled them, and compares no entropies with a quantile. A pass without the tape computes the quantile and
    rounds entropies differently, so a token whose entropy equals the quantile could be left out."""
    return (int(knobs.get("mini_batches", 1)) == 1 and not choices.SELECTION[knobs["selection"]].refills
            and not off_policy(knobs) and knobs["top_entropy_share"] == 1)


def update(session: LlmSession, rollout: Rollout, met: Met | None = None, tape: Tape | None = None,
           fresh: bool = False) -> dict[str, float]:
    """One optimizer update on `rollout` outside of a run, as `run` makes it. Returns its metrics.

    `fresh`: the policy's weights are still those that sampled `rollout`.
    """
    measured = retried(gradients)(session, rollout, met, tape, fresh)
    return measured | step(session, measured)


def gradients(session: LlmSession, rollout: Rollout, met: Met | None = None,
              tape: Tape | None = None, fresh: bool = False) -> dict[str, float]:
    """Compute the gradients of the loss on `rollout` and leave them in the networks; return the measurements of this
    update, taken before the optimizer's step.

    The batch may be cut into micro-batches for memory; the gradient does not depend on the cut. `met` takes down what
    there is of each token. `tape` is that of the sampling of `rollout` by the policy as it is now. Where the policy is
    the one that sampled (`fresh`) the log-probs of this very pass are the old ones, so that its ratios are exactly 1.
    """
    knobs, totals, met = session.in_force, totals_of(session, rollout), met or Met()
    losses, value_losses, ratios, imitated = [], [], [], 0.0
    answered = 0 if rollout.demonstration_mask is None else int(rollout.demonstration_mask.sum())
    met.clear()  # of an attempt for which memory was short
    rollout = singled_out(session, rollout, fresh)
    with precision(session.policy, knobs["dtype"]):
        for prompts, rows in micro_batches(session.policy, rollout.prompts, rollout.ids, session.room):
            part = rollout.slice(prompts, rows)
            if len(part.ids) < len(rollout.ids):  # cut finer than was planned when it was sampled, for want of memory
                tape = None
            logprobs, entropy, *teacher_kl = _seen(session, part, met, tape)
            if fresh:
                part = part.met_by_sampler(logprobs)
            loss, ratio = objective.loss(knobs, part, logprobs, entropy, totals, *teacher_kl)
            loss.backward()
            losses.append(loss.detach())
            ratios.append(ratio.detach())
            if answered:
                imitated += imitate(session, part, answered)
            if session.critic is not None:
                value_losses.append(_critic_backward(session, part, totals))
    if fresh:
        rollout = rollout.met_by_sampler(met.logprobs)
    measured = objective.measures(knobs, rollout, met.logprobs, torch.cat(ratios), met.entropy, totals.entropy_floor)
    measured["loss"] = sum(torch.stack(losses).tolist())  # read only now: each look would wait for a GPU
    measured |= met.of_teacher(rollout.taught)
    measured |= {"demonstration_loss": imitated / answered, "sft_weight": knobs["sft_weight"]} if answered else {}
    return measured if session.critic is None else measured | _of_critic(rollout, value_losses)


def _seen(session: LlmSession, part: Rollout, met: Met, tape: Tape | None) -> tuple[Tensor, ...]:
    """The policy's log-prob of each token of `part`, and its entropy there, both of which `met` records; with the
    single-step term also the KL to the teacher. (B, T) nats"""
    knobs, beside = session.in_force, tuple[Tensor, ...]()
    if part.teacher_likeliest is not None:
        beside = (part.teacher_likeliest,)
    measure: Callable[..., tuple[Tensor, ...]] = with_agreement if beside else logprobs_and_entropy
    if beside and knobs.get("single_step"):
        theirs = Distributions.of(session, part.teacher_prompts or part.prompts, part.ids)
        measure, beside = partial(with_divergence, head=theirs.head), (*beside, theirs.states)
    measure = partial(measure, temperature=knobs["temperature"], entropy_grad=knobs["entropy_coef"] > 0)
    logprobs, entropy, *found = at_tokens(session.policy, part.prompts, part.ids, measure, met.norms_of(part.ids), tape,
                                          beside, extents(part.completion_mask))
    met.see(logprobs, entropy, singled_out=part.singled_out)
    met.agree(*found[:1])
    return logprobs, entropy, *found[1:]


def _of_critic(rollout: Rollout, losses: Sequence[float]) -> dict[str, float]:
    """The metrics of the critic in an update, which had these `losses` on the parts of `rollout`."""
    explained = float(explained_variance(*rollout.of_critic, rollout.counted))
    measured = {"value_loss": sum(losses)}
    return measured | {"explained_variance": explained} if isfinite(explained) else measured  # returns may not vary


def totals_of(session: LlmSession, rollout: Rollout) -> objective.Totals:
    """The denominators of an update on `rollout`, and the entropy from which on its tokens are learnt from."""
    knobs = session.knobs
    totals = objective.Totals.of(rollout, int(knobs["max_new_tokens"]))
    if knobs["top_entropy_share"] == 1 or not totals.total_tokens:
        return totals
    return replace(totals, entropy_floor=entropy_floor(token_entropy(session, rollout), rollout.counted,
                                                       knobs["top_entropy_share"]))


def token_entropy(session: LlmSession, rollout: Rollout) -> Tensor:
    """The entropy of the policy at every token, before its gradient is taken: which of them are learnt from must not
    depend on how the batch is cut. (B, T)"""
    return policy_logprobs_and_entropy(session, rollout.prompts, rollout.ids, rollout.completion_mask)[1]


def step(session: LlmSession, measured: dict[str, float]) -> dict[str, float]:
    """One optimizer step of each learning network on the gradients that it holds. Returns its metrics.

    Raises:
        Diverged: a loss of `measured` or a gradient is not finite.
    """
    rate = session.rate(POLICY)
    norm = session.optimise(POLICY, rate, measured["loss"])
    if session.critic is not None:
        session.optimise(CRITIC, session.rate(CRITIC), measured["value_loss"])
    session.updates += 1
    return {"grad_norm": norm, "learning_rate": rate}


def _critic_backward(session: LlmSession, part: Rollout, totals: objective.Totals) -> float:
    with precision(session.critic, session.knobs["dtype"]):
        values = completion_outputs(session.critic, part.prompts, part.ids,
                                    extents=extents(part.completion_mask))[..., 0].float()
    loss = value_loss(values, *part.of_critic, part.counted, session.knobs["value_clip"],
                      totals.total_tokens)
    loss.backward()
    return loss.item()


def _means(measured: list[dict[str, Any]]) -> dict[str, float]:
    """Mean over the batch's updates; the largest for a maximum."""
    columns = {key: [row[key] for row in measured if key in row] for row in measured for key in row}
    return {key: max(values) if key.endswith("/max") else sum(values) / len(values)
            for key, values in columns.items()}
