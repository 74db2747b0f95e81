"""One batch, many algorithms: the advantages, loss and gradient of each online algorithm on the same completions.

A batch is sampled once from a model and frozen. For each chosen online row of the catalog the training loop's own code
then computes them; this module repeats no algorithm. With updates before (μ > 1) the policy first takes some steps on
the batch by one algorithm, so that ratios differ from 1 and clips have an effect.

Mini-batches are left out. The gradients −∂L/∂log π of single tokens leave out the terms of `WHOLE`, because these
depend on the whole next-token distribution and not on the sampled token's log-prob alone; the result names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from labcore import machine
from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.amounts import size
from labcore.catalog.knob import suggestion
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.knobs import DTYPE, MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P
from labcore.catalog.llm.optimizer import CONSTANT, SCHEDULE, WARMUP_STEPS
from labcore.errors import LabError, quoted
from labcore.llm import objective
from labcore.llm.batch import Completions
from labcore.llm.drawing import in_epochs, next_rows
from labcore.llm.evaluation import signal_first, zero_variance
from labcore.llm.experience import Batch, Sampled, collect, seen_by
from labcore.llm.generation import token_logprobs, token_values
from labcore.llm.loops import online
from labcore.llm.nets.micro_batches import retried
from labcore.llm.probes.answer import learner, whole
from labcore.llm.probes.trial import Trial
from labcore.llm.rollout import Rollout, credit
from labcore.llm.session import LlmSession
from labcore.llm.singled_out import singled_out
from labcore.llm.teacher_context import NOTHING
from labcore.llm.token_texts import token_texts
from labcore.maths.call import cut_of, parameters
from labcore.maths.masked import masked_mean
from labcore.maths.returns import explained_variance
from labcore.maths.turns import extents
from labcore.runs.fork import carried
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.together import NoTeacher

# ---------------------------------------------------------------- one batch view
# What there is to look at in one batch under many algorithms, as JSON: a few groups token by token.

WHOLE = {"single_step": "single-step term", "entropy_coef": "entropy bonus"}  # knob -> name of its term of the loss
SHOWN = 4  # prompts whose completions are shown token by token
KNOBS = ("beta", "clip_low", "clip_high", "learning_rate", "gamma", "gae_lambda")


@dataclass(frozen=True)
class Inspected:
    """The frozen batch under one algorithm: the rollout with advantages, the metrics of the update, and its gradients.

    `gradient` (N,) of the policy before any clipping of its norm; `unclipped`, the cosine to the gradient without the
    surrogate's clip (None where it has none); `push` (B, T) = −∂L/∂log π of each token, 0 where nothing counts.
    """

    row: Algorithm
    spec: RunSpec
    rollout: Rollout
    measured: dict[str, float]
    gradient: Tensor
    unclipped: float | None
    push: Tensor


def as_json(session: LlmSession, batch: Batch, seen: list[Inspected]) -> dict[str, Any]:
    """The result as JSON: numbers of the `batch`, the `completions` of a few prompts, and the effect of the
    `algorithms` on each of their tokens."""
    rows = _shown(batch)
    rewards = batch.batch.rewards.total.float().view(-1, batch.rollout.group_size)
    return {"batch": {"prompts": len(batch.batch.problems), "group_size": batch.rollout.group_size,
                      "tokens": int(batch.rollout.completion_mask.sum()), "reward": float(rewards.mean()),
                      "flat_groups": zero_variance(rewards), "spread": float(rewards.std())},
            "completions": [_completion(session, batch.batch, batch.rollout, row) for row in rows],
            "algorithms": [_algorithm(one, rows) for one in seen]}


def _shown(batch: Batch) -> list[int]:
    """Rows of the prompts to show, groups with both better and worse completions first."""
    size = batch.rollout.group_size
    order = signal_first(batch.batch.rewards.total.view(-1, size))
    return [prompt * size + member for prompt in order[:SHOWN] for member in range(size)]


@torch.no_grad()
def _completion(session: LlmSession, batch: Sampled, rollout: Rollout, row: int) -> dict[str, Any]:
    length = int(batch.completions.extents[row])
    part = rollout.select(torch.tensor([row // rollout.group_size], device=session.device))
    completions = Completions(part.ids, part.completion_mask, part.truncated)
    now = token_logprobs(session, session.policy, part.prompts, completions)[row % rollout.group_size]
    ratio = (now - rollout.old_logprobs[row])[:length].exp()
    problem, rewards = batch.problems[row // rollout.group_size], batch.rewards
    return {"prompt": problem.prompt, "text": batch.texts[row], "reward": _number(rewards.total[row]),
            "exact": bool(rewards.exact[row]),
            "truncated": bool(batch.completions.truncated[row]), "ratio": [round(value, 4) for value in ratio.tolist()],
            "tokens": token_texts(session.tokenizer, batch.completions.ids[row, :length].tolist())}


def _algorithm(seen: Inspected, rows: list[int]) -> dict[str, Any]:
    """`push` of each shown completion's tokens in units of `mean_push`, the mean of |push| over the batch's tokens."""
    mask = seen.rollout.completion_mask
    mean = float(masked_mean(seen.push.abs(), mask))
    lengths = extents(mask).tolist()
    push = [[round(value / mean, 4) if mean else 0.0 for value in seen.push[row, :lengths[row]].tolist()]
            for row in rows]
    return {"key": seen.row.key, "label": seen.row.label, "loss": seen.measured["loss"],
            "norm": float(seen.gradient.norm()), "unclipped": seen.unclipped,
            "clipped_frac": seen.measured.get("clip_frac/region"), "mean_push": mean, "push": push,
            "left_out": [term for knob, term in WHOLE.items() if seen.spec.knobs.get(knob)],
            "knobs": {key: seen.spec.knobs[key] for key in KNOBS if key in seen.spec.knobs}}


def _number(reward: Tensor) -> float | None:
    """A reward as a number; None where the completion could not be scored."""
    return None if reward.isnan() else float(reward)


# ---------------------------------------------------------------- one batch

ONLINE = tuple(row for row in ALGORITHMS.values() if row.loop == "online")
CRITIC_BATCHES, CRITIC_PASSES = 8, 4  # what a critic that the run does not have is fitted on
UNREACHED = 1e6  # a bound that no ratio of a run reaches, nor its logarithm
_SAMPLING = tuple(knob.key for knob in (TEMPERATURE, TOP_K, TOP_P, MAX_NEW_TOKENS, DTYPE))


def one_batch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `one_batch`, see the module. `spec` has the `model`, `prompts` × `group_size` completions, the number of
    `updates` that the algorithm `stepper` makes before, a `seed`, and the number of `eval_prompts` to measure the
    effect of one step. `algorithms` are the keys of the algorithms to compare; by default all online algorithms,
    without those that lack a teacher or give it a context. Raises LabError if the model cannot be used, there is no
    such algorithm, or a setting is out of bounds."""
    name, seed = parse(str(spec["model"])).pinned.name, whole(spec, "seed", 0, 2**31 - 1)
    size = {"prompts_per_step": whole(spec, "prompts", 2, 256), "group_size": whole(spec, "group_size", 2, 32)}
    updates, count = whole(spec, "updates", 0, 16), whole(spec, "eval_prompts", 16, 4096)
    session = learner(name)
    if not session.spec.task_row.verifiable:
        raise LabError(f"The run of {name} learned from a preference file, which has no rewards, but the "
                       "algorithms compared on one batch learn from rewards: choose a run on a task with a verifier.")
    own = session.spec.algorithm if session.spec.algorithm in _keys() else ONLINE[0].key
    asked, stepper = _checked(spec.get("algorithms") or ()), _checked([spec.get("stepper") or own])[0]
    specs = _specs(session, [*asked, stepper, own], () if asked else _keys(), seed, size)
    chosen = asked or [key for key in _keys() if key in specs]
    _check_memory(session, len(chosen))
    batch = collect(as_of(session, specs[own]))
    rollouts = {key: seen_by(as_of(session, specs[key]), batch) for key in {*chosen, stepper}}
    acting = [*chosen, *([stepper] if updates else [])]
    values, critic = critic_values(session, [specs[key] for key in dict.fromkeys(acting)], batch)
    if updates:
        take(session, specs[stepper], rollouts[stepper], values, updates)
    seen = [inspect(session, specs[key], rollouts[key], values, fresh=not updates) for key in chosen]
    trial = Trial.of(session, count, seed)
    length = trial.step_length([one.gradient for one in seen])
    found = {one.row.key: _effect(trial, session, one, values, length) for one in seen}
    return {"model": name, "updates": updates, "stepper": stepper, "own": own, "critic": critic, "step_length": length,
            "cosines": cosines([one.gradient for one in seen]), "before": trial.before, "effects": found,
            **as_json(session, batch, seen)}


def _specs(session: LlmSession, asked: Sequence[str], others: Sequence[str], seed: int,
           size: Mapping[str, int]) -> dict[str, RunSpec]:
    """The specs of the algorithms that were asked for, and of the `others` except those that lack a teacher or whose
    teacher reads a context."""
    found = {key: spec_for(session, ALGORITHMS[key], seed, size) for key in dict.fromkeys(asked)}
    for key in others:
        with suppress(NoTeacher):
            spec = spec_for(session, ALGORITHMS[key], seed, size)
            if spec.knobs.get("teacher_context", NOTHING) == NOTHING:
                found.setdefault(key, spec)
    return found


def _keys() -> list[str]:
    return [row.key for row in ONLINE]


def _checked(keys: Sequence[Any]) -> list[str]:
    """These online algorithms. Raises LabError where one of them is none."""
    for key in keys:
        if key not in _keys():
            raise LabError(f"There is no online algorithm {quoted(str(key))}: {suggestion(str(key), [*_keys()])}")
    return list(dict.fromkeys(keys))


def spec_for(session: LlmSession, row: Algorithm, seed: int, size: Mapping[str, int]) -> RunSpec:
    """The spec of a fork of the session's run by `row`, with the batch's size and the run's way to sample.

    The run's own algorithm, or mix, keeps its knobs as they were; another one has its own defaults, except for the same
    knobs whose value was chosen.
    """
    parent = replace(session.spec, knobs=dict(session.knobs))
    own = row.key == parent.algorithm
    given, row = (dict(session.knobs), parent.row) if own else (carried(parent, parent.knobs, row.key), row)
    given |= {key: session.knobs[key] for key in _SAMPLING} | dict(size)
    given |= {knob.key: 1 for knob in row.knobs if knob.key in ("updates_per_batch", "mini_batches")}
    given |= {SCHEDULE.key: CONSTANT, WARMUP_STEPS.key: 0}  # a step of the rate that is set, wherever the run is
    spec = make(kind=parent.kind, algorithm_key=row.key, task_key=parent.task, model=parent.model, knobs=given,
                seed=seed, steps=parent.steps, device=parent.device, threads=parent.threads, data=parent.data,
                mix=parent.mix if own else "")
    return replace(spec, twin=False)


def as_of(session: LlmSession, spec: RunSpec) -> LlmSession:
    """A session on the networks of `session`, as its fork by `spec` with fresh random numbers."""
    return replace(session, generator=torch.Generator(session.device), step=0).fork(spec)


def critic_values(session: LlmSession, specs: Sequence[RunSpec], batch: Batch) -> tuple[Tensor | None, dict[str, Any]]:
    """The critic's values of the batch (B, T), and the name of the critic's source; `session` keeps the critic.

    The run's own critic where it has learnt one. Else one that is fitted to other batches of the same policy: fitted
    to this very batch it would know its rewards by heart, and advantages would be too small.
    """
    with_critic = [spec for spec in specs if choices.ADVANTAGE[str(spec.knobs["advantage"])].critic]
    if not with_critic:
        return None, {}
    fitted = session.critic is None or not session.updates
    learner = as_of(session, with_critic[0])
    if in_epochs(learner):  # the rows behind those of this batch
        next_rows(learner, learner.task.problems, sum(len(each.problems) for each in batch.sampled))
    for number in range(1, CRITIC_BATCHES + 1) if fitted else ():
        learner.step = number  # other prompts
        rollout = credit(learner.in_force, collect(learner).rollout)
        for _ in range(CRITIC_PASSES):
            measured = retried(online.gradients)(learner, rollout)
            learner.policy.zero_grad(set_to_none=True)
            learner.optimise("critic", learner.rate("critic"), measured["value_loss"])
    session.models["critic"], session.optimizers["critic"] = learner.models["critic"], learner.optimizers["critic"]
    values = token_values(learner, batch.rollout.prompts, batch.batch.completions)
    seen = credit(learner.in_force, replace(seen_by(learner, batch), old_values=values))
    explained = float(explained_variance(*seen.of_critic, seen.counted))
    about = {"fitted": fitted, "batches": CRITIC_BATCHES, "passes": CRITIC_PASSES,
             "explained_variance": explained if isfinite(explained) else None}
    return values, about


def credited(session: LlmSession, rollout: Rollout, values: Tensor | None) -> Rollout:
    """The rollout with the advantages of the session's algorithm."""
    return credit(session.in_force, replace(rollout, old_values=None if session.critic is None else values))


def take(session: LlmSession, spec: RunSpec, rollout: Rollout, values: Tensor | None, updates: int) -> LlmSession:
    """Take `updates` steps of the training loop on the batch: the session's networks move. Returns who took them."""
    one = as_of(session, spec)
    for _ in range(updates):
        online.update(one, credited(one, rollout, values))
    return one


def inspect(session: LlmSession, spec: RunSpec, rollout: Rollout, values: Tensor | None,
            fresh: bool = False) -> Inspected:
    """The update of the algorithm of `spec` on a batch that the session's own policy sampled (`fresh`) or an earlier
    one did. Nothing is changed."""
    one = as_of(session, spec)
    rollout = credited(one, rollout, values)
    measured, gradient = _gradient(one, rollout, fresh)
    surrogate, unclipped = choices.SURROGATE[str(one.knobs["surrogate"])], None
    if cut := cut_of(choices.SURROGATE, surrogate.key):
        asked, _ = parameters(cut)  # its knobs are the bounds
        one.knobs |= {key: UNREACHED for key in surrogate.needs if key in asked}
        unclipped = cosines([gradient, _gradient(one, rollout, fresh)[1]])[0][1]
    push = token_gradients(as_of(session, spec), rollout)
    return Inspected(spec.row, spec, rollout, measured, gradient, unclipped, push)


def _gradient(session: LlmSession, rollout: Rollout, fresh: bool) -> tuple[dict[str, float], Tensor]:
    """The metrics of an update, and the gradient of its policy (N,); the networks keep none."""
    measured = retried(online.gradients)(session, rollout, fresh=fresh)
    flat = parameters_to_vector([torch.zeros_like(p) if p.grad is None else p.grad
                                 for p in session.policy.parameters()])
    for model in session.models.values():
        model.zero_grad(set_to_none=True)
    return measured, flat


def token_gradients(session: LlmSession, rollout: Rollout) -> Tensor:
    """−∂L/∂log π_t of every token at the session's policy: above 0 its probability is raised. (B, T)

    In reward/nat, or in the unit of the advantages per nat. Without the terms of the loss that `WHOLE` names.
    """
    completions = Completions(rollout.ids, rollout.completion_mask, rollout.truncated)
    logprobs = token_logprobs(session, session.policy, rollout.prompts, completions).requires_grad_()
    totals, entropy = online.totals_of(session, rollout), torch.zeros_like(logprobs)
    if totals.entropy_floor is not None:  # without a gradient: it only decides which tokens count
        entropy = online.token_entropy(session, rollout)
    loss, _ = objective.loss(session.in_force, singled_out(session, rollout), logprobs, entropy, totals)
    return -torch.autograd.grad(loss, logprobs)[0]


def cosines(gradients: Sequence[Tensor]) -> list[list[float | None]]:
    """cos(g, h) of each two gradients (N,); None where one of them is 0."""
    norms = [float(gradient.double().norm()) for gradient in gradients]
    return [[float(a.double() @ b.double()) / (m * n) if m and n else None
             for b, n in zip(gradients, norms, strict=True)] for a, m in zip(gradients, norms, strict=True)]


def _effect(trial: Trial, session: LlmSession, seen: Inspected, values: Tensor | None,
            length: float | None) -> dict[str, Any]:
    """The effect of one step: of the common length along the gradient, and as the training loop would take it."""
    equal = None if length is None else trial.along(seen.gradient, length)
    return {"equal": equal, "own": trial.measure(lambda copied: take(copied, seen.spec, seen.rollout, values, 1))}


def _check_memory(session: LlmSession, count: int) -> None:
    """Raises LabError where the gradients of `count` algorithms and a copy of the session do not fit on its device."""
    numbers = sum(parameter.numel() for parameter in session.policy.parameters())
    needed, free = numbers * 4 * (count + 4), machine.free_memory(session.device.type)
    if free is not None and needed > free:
        raise LabError(f"The model has {numbers / 1e6:,.0f} M parameters: {count} gradients and a copy need "
                       f"{size(needed)}, and {size(free)} are free. Choose fewer algorithms, or a "
                       "smaller model.")
