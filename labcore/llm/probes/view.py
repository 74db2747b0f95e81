"""The samples and the line of a step: its groups token by token, and the surrogates along its update.

Both are computed only at some steps and for a part of the batch, so they cost little time; they never change the
training. Small networks have a fixed schedule; for large ones a time budget decides (`probes.budget`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import expm1, isnan
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from labcore.catalog import choices
from labcore.llm import teacher
from labcore.llm.batch import Completions
from labcore.llm.evaluation import signal_first
from labcore.llm.experience import Sampled
from labcore.llm.generation import Generated, policy_logprobs_and_entropy
from labcore.llm.networks import TEACHER, learnt
from labcore.llm.objective import cut, kl_of, multiplied, ratio_of, token_weights
from labcore.llm.probes import step_scores
from labcore.llm.probes.budget import BY_SCHEDULE, LINE, SAMPLES
from labcore.llm.probes.token_records import StepTokens
from labcore.llm.rewards import Rewards
from labcore.llm.rollout import Rollout, rewards_of_tokens, total_rewards
from labcore.llm.session import LlmSession
from labcore.llm.token_texts import token_texts
from labcore.maths.call import call, member
from labcore.maths.call import parameters as arguments
from labcore.maths.kl import k3
from labcore.maths.masked import masked_mean
from labcore.maths.ratios import token
from labcore.maths.surrogates import clip, cpi, curve, kl_penalty, sides
from labcore.runs.spec.activity import part_of, report
from labcore.tasks.environment import EnvironmentTask, Episode
from labcore.tasks.task import Problem

GROUPS = 8
SAMPLES_EVERY = 5
LINE_EVERY = 20
LARGEST = 1e6  # nats that a file can hold
DIGITS = {"gap": 9, "share": 7}  # of a number in a file; 5 where nothing is said
KEPT = 20_000_000  # parameters: a copy of them takes some 20 ms, of seconds that a step of such a model takes
LINE_SHARE = 8  # the line is drawn from an eighth of the batch
ALPHAS = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)


def samples_due(step: int) -> bool:
    """True if the groups of `step` are kept: the first one, then every fifth."""
    return step == 1 or step % SAMPLES_EVERY == 0


def line_due(steps_done: int) -> bool:
    """True if the step after `steps_done` gets its line: the first one, then every twentieth."""
    return steps_done == 0 or (steps_done + 1) % LINE_EVERY == 0


@dataclass(frozen=True)
class Due:
    """The pictures that a step gets in full."""

    samples: bool
    line: bool


def due(session: LlmSession) -> Due:
    """The pictures of the step that the session is making."""
    if not on(session):
        return Due(False, False)
    if not limited(session):
        return Due(samples_due(session.step + 1), line_due(session.step))
    return Due(*(session.probes.affords(kind, session.step + 1) for kind in (SAMPLES, LINE)))


def on(session: LlmSession) -> bool:
    """True if the run has probes at all."""
    return bool(session.knobs.get("probes", True))


def limited(session: LlmSession) -> bool:
    """True if the network is so large that looks at it are limited by the time that they take."""
    size: int = sum(parameter.numel() for parameter in session.policy.parameters())
    return size > BY_SCHEDULE


def watching(session: LlmSession) -> bool:
    """True if a step of a loop without sampling measures the watched prompts: always for small networks, and within the
    time budget for large ones. The first look is expected to take as long as the newest evaluation."""
    if not on(session):
        return False
    return not limited(session) or session.probes.affords(SAMPLES, session.step + 1, session.probes.evaluation)


def groups_at_first(session: LlmSession, prompts: int) -> int:
    """The number of groups to show for a large network until its first complete samples."""
    return min(GROUPS, prompts, session.probes.groups(prompts)) if on(session) and limited(session) else 0


def parameters(model: nn.Module) -> Tensor:
    """A copy of the parameters that updates change as one vector."""
    return parameters_to_vector(learnt(model)).detach()  # which has copied them


def kept(session: LlmSession, due: bool = False) -> dict[str, Tensor] | None:
    """Copies of the parameters that the next updates change, by network; None where they are many, or the network is
    limited, and they are not `due`."""
    learning = {name: session.models[name] for name in session.optimizers}
    count = sum(parameter.numel() for model in learning.values() for parameter in learnt(model))
    return {name: parameters(model) for name, model in learning.items()} if due or (
        count <= KEPT and not limited(session)) else None


@contextmanager
def going_back(session: LlmSession, before: Mapping[str, Tensor]) -> Iterator[None]:
    """The networks inside with the parameters `before` that `kept` made, and afterwards bit for bit as they were."""
    after = {name: parameters(session.models[name]) for name in before}
    try:
        for name, vector in before.items():
            _put(session.models[name], vector)
        yield
    finally:
        for name, vector in after.items():
            _put(session.models[name], vector)


@torch.no_grad()
def _put(model: nn.Module, vector: Tensor) -> None:
    """Write `parameters` back in place: torch's own way would make every parameter a view of one vector."""
    targets = learnt(model)
    for target, values in zip(targets, vector.split([target.numel() for target in targets]), strict=True):
        target.copy_(values.view_as(target))


@torch.no_grad()
@part_of("surrogate line")
def line(session: LlmSession, rollout: Rollout, before: Tensor) -> dict[str, Any]:
    """Mean KL and the surrogates at θ_old + α(θ_new − θ_old), on a part of the batch; the policy is left as it was.

    KL(π_old ‖ π_α) is k3 of the old policy's own samples, nats/token; the surrogates are means over
    tokens of the token ratio's terms, whatever the algorithm's own ratio. The algorithm's own surrogate is drawn with
    them where it is another one that has a ratio.
    """
    own = choices.SURROGATE[session.knobs["surrogate"]]
    part = rollout.select(_learnt_prompts(rollout)[:max(1, len(rollout.prompts) // LINE_SHARE)])
    bounds = session.knobs.get("clip_low", 0.2), session.knobs.get("clip_high", 0.2)
    if own.log_bounds:
        bounds = -expm1(-bounds[0]), expm1(bounds[1])
    beta, mask = session.in_force["beta"], part.counted
    targets = learnt(session.policy)
    after = [target.clone() for target in targets]
    starts = [part.view_as(end) for part, end in zip(before.split([end.numel() for end in after]), after, strict=True)]
    curves: dict[str, list[float]] = {"kl": [], "cpi": [], "clip": [], "kl_penalised": []}
    curves |= {own.key: []} if own.needs_ratio else {}
    session.moved = True  # for a moment: nobody may save what it is now
    for place, alpha in enumerate(ALPHAS):
        report("point {} of {}", place + 1, len(ALPHAS))
        for target, start, end in zip(targets, starts, after, strict=True):  # one copy of the policy, not several
            target.copy_(start + alpha * (end - start))
        logprobs, _ = policy_logprobs_and_entropy(session, part.prompts, part.ids, part.completion_mask)
        ratio = token(logprobs, part.old_logprobs, mask)
        kl = k3(part.old_logprobs, logprobs)
        terms = {"kl": kl, "cpi": cpi(ratio, part.credited), "clip": clip(ratio, part.credited, *bounds),
                 "kl_penalised": kl_penalty(ratio, part.credited, kl, beta)}
        if own.key not in terms and own.needs_ratio:
            terms[own.key] = call(member(choices.SURROGATE, own.key), session.knobs, {
                "ratio": ratio, "advantages": part.advantages, "logprobs": logprobs,
                "old_logprobs": part.old_logprobs, "completion_mask": mask, "singled_out": part.singled,
                "ref_logprobs": part.ref_logprobs, "counted": mask, "group_size": part.group_size})
        for name, term in terms.items():
            curves[name].append(float(masked_mean(term, mask)))
    for target, end in zip(targets, after, strict=True):
        target.copy_(end)
    return {"step": session.step, "alpha": list(ALPHAS), **curves, "beta": beta, "clip_low": bounds[0],
            "clip_high": bounds[1], "tokens": int(mask.sum())}


def _learnt_prompts(rollout: Rollout) -> Tensor:
    """Indices of the prompts with a completion that the updates learn from; of all where there is none. (N,)"""
    learnt = rollout.counted.view(len(rollout.prompts), -1).any(1)
    return (learnt if learnt.any() else ~learnt).nonzero()[:, 0]


@torch.no_grad()
@part_of("samples to look at")
def groups(session: LlmSession, batch: Sampled, rollout: Rollout, tokens: StepTokens | None = None,
           most: int = GROUPS) -> dict[str, Any]:
    """The first `most` groups of the step, groups with a signal first, token by token. `batch_groups` is the number of
    all groups; `wrong_lengths` are the lengths in tokens of all wrong completions of the batch.

    `old_logprobs` are the sampler's; `logprobs`, `ratio` (that of the token), `entropy`, `kl` (k3 to the reference)
    and `cut` (the side on which the surrogate cuts the token off, or "") are of the policy after the step's updates.
    `teacher_logprobs` and `teacher_top` are those of `teacher.said`, where there is a teacher.
    `own_ratio` is the algorithm's where that is of sequences; `surrogate` the curve over it. What `tokens` took down of
    the updates themselves is under "met", see `_met`. `earned` is the reward after shaping, with a KL that is in it.
    `age` is how many updates the policy made between sampling a group and this step, where that may be any; `level` is
    how hard its prompt is, where that is known.
    """
    knobs, size = session.in_force, rollout.group_size
    prompts = signal_first(rollout.shaped.view(-1, size))[:most]
    rows = [prompt * size + member for prompt in prompts for member in range(size)]
    part = rollout.select(torch.tensor(prompts, device=session.device))
    logprobs, entropy = policy_logprobs_and_entropy(session, part.prompts, part.ids, part.completion_mask)
    tensors = _tensors(knobs, part, logprobs)
    columns = {"logprobs": logprobs, "old_logprobs": part.old_logprobs, "ref_logprobs": part.ref_logprobs,
               "ratio": (logprobs - part.old_logprobs).exp(), "entropy": entropy, "advantages": part.credited,
               "kl": k3(logprobs, part.ref_logprobs).clamp(max=LARGEST)}
    own_ratio = tensors["ratio"]
    if choices.ratio_of(knobs).level == "sequence":
        columns["own_ratio"] = own_ratio
    if choices.ADVANTAGE[knobs["advantage"]].level == "token":
        columns["rewards"] = rewards_of_tokens(knobs, part)
    columns |= {name: values for name, values in (("values", part.old_values), ("returns", part.returns),
                                                  ("sampler_logprobs", part.sampler_logprobs)) if values is not None}
    columns |= _pulls(knobs, tensors) | _weight(knobs, part, tensors)
    lists = {name: _listed(values) for name, values in columns.items()}
    lists["cut"] = sides(cut(knobs, tensors), logprobs)
    met, earned = _met(knobs, part, tokens, rows), total_rewards(knobs, part).double().cpu().tolist()
    taught = _taught(session, part)
    shown = []
    for place, prompt in enumerate(prompts):
        problem, members = batch.problems[prompt], range(place * size, (place + 1) * size)
        about = {} if part.age is None else {"age": int(part.age[members.start])}
        about |= ({} if problem.level is None else {"level": problem.level}) | _row(session, problem)
        shown.append({**session.rendering.shown(problem), **about, "answer": problem.answer, "completions": [
            _completion(session, batch, rows[at], lists, met, at) | _credit_of(part, earned, at) | taught[at]
            for at in members]})
    drawn = _surrogate(knobs, own_ratio[part.completion_mask].double().cpu())
    wrong = batch.completions.lengths.cpu()[~batch.rewards.exact]
    return {"step": session.step, "groups": shown, "batch_groups": len(rollout.prompts), "beta": knobs["beta"],
            "wrong_lengths": wrong.tolist(), **({"surrogate": drawn} if drawn else {}),
            **{key: knobs[key] for key in ("clip_low", "clip_high") if key in knobs}}


def _tensors(knobs: Mapping[str, Any], part: Rollout, logprobs: Tensor) -> dict[str, Any]:
    """The arguments of a surrogate and its cut where the policy has these log-probs; the ratio is the algorithm's."""
    tensors = {"logprobs": logprobs, "old_logprobs": part.old_logprobs, "ref_logprobs": part.ref_logprobs,
               "completion_mask": part.completion_mask, "advantages": part.advantages, "singled_out": part.singled,
               "counted": part.counted, "group_size": part.group_size}
    return tensors | {"ratio": ratio_of(knobs, tensors).expand_as(logprobs)}


def _pulls(knobs: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """The surrogate of each token before any weight, S, and its slope ∂ΣS/∂log π: 0 where it is cut off; and the KL
    estimate in the loss where its declaration has no arithmetic for it."""
    with torch.enable_grad():
        logprobs = tensors["logprobs"].detach().requires_grad_()
        given = {**tensors, "logprobs": logprobs}
        given["ratio"] = ratio_of(knobs, given).expand_as(logprobs)
        found = call(member(choices.SURROGATE, knobs["surrogate"]), knobs, given).expand_as(logprobs)
        mask = tensors["completion_mask"]
        slope, = torch.autograd.grad((found * mask).sum(), logprobs)
    pulls = {"objective": found.detach().clamp(-LARGEST, LARGEST), "slope": slope.clamp(-LARGEST, LARGEST)}
    if knobs["kl_placement"] != "loss" or choices.KL_ESTIMATOR[knobs["kl_estimator"]].worked:
        return pulls
    return pulls | {"kl_estimate": kl_of(knobs, tensors).clamp(-LARGEST, LARGEST)}


def _weight(knobs: Mapping[str, Any], part: Rollout, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weight that the surrogate of each token is multiplied by, where the run weighs tokens by all but their
    entropy: for that the whole update would be asked."""
    if knobs["top_entropy_share"] != 1:
        return {}
    found = multiplied(knobs, token_weights(knobs, part, {**tensors, "entropy_floor": None}))
    return {"weight": torch.stack(found).prod(0)} if found else {}


def _met(knobs: Mapping[str, Any], part: Rollout, tokens: StepTokens | None, rows: list[int]) -> dict[str, Any]:
    """The numbers of the updates at `part`, these rows of the batch, as lists.

    `gap`: the trainer's log-prob less the sampler's, before any update; `logprobs`, `entropy`, `own_ratio`, `cut`,
    `_pulls`, `_weight` and `share` (of the sum of ‖∂L/∂logits‖ over that update's tokens) as the last update of each
    row had them.
    """
    if tokens is None or tokens.logprobs is None:
        return {}
    logprobs = tokens.logprobs[rows].masked_fill(~part.completion_mask, 0)
    if tokens.singled_out is not None:
        part = replace(part, singled_out=tokens.singled_out[rows].nan_to_num() > 0)
    tensors = _tensors(knobs, part, logprobs)
    taken = {name: values[rows] for name, values in (("gap", tokens.gap), ("entropy", tokens.entropy),
                                                     ("share", tokens.shares)) if values is not None}
    columns = {**taken, "logprobs": logprobs, "own_ratio": tensors["ratio"], **_pulls(knobs, tensors),
               **_weight(knobs, part, tensors)}
    lists = {name: _listed(values, DIGITS.get(name, 5)) for name, values in columns.items()}
    return lists | {"cut": sides(cut(knobs, tensors), logprobs)}


def _listed(values: Tensor, digits: int = 5) -> list[list[float]]:
    rounded: list[list[float]] = values.double().cpu().numpy().round(digits).tolist()
    return rounded


def _credit_of(part: Rollout, earned: list[float], row: int) -> dict[str, Any]:
    """The total reward of a completion, None where it could not be scored, and that it is left out where it is."""
    return {"earned": None if isnan(earned[row]) else round(earned[row], 5),
            **({} if part.kept is None or part.kept[row] else {"left_out": True})}


def _taught(session: LlmSession, part: Rollout) -> list[dict[str, Any]]:
    """The teacher's own choices in each completion; empty without a teacher."""
    if TEACHER not in session.models:
        return [{}] * len(part.ids)
    completions = Completions(part.ids, part.completion_mask, part.truncated)
    seen = part.teacher_prompts
    said = teacher.said(session, seen or part.prompts, completions, session.knobs["temperature"])
    if seen is None or part.in_context is None:
        return said
    texts = [session.tokenizer.decode(row[there]) for row, there in zip(seen.ids, seen.mask, strict=True)]
    return [{**each, "teacher_sees": text} if there else {} for each, text, there in zip(
        said, texts, part.in_context.tolist(), strict=True)]


def _surrogate(knobs: Mapping[str, Any], ratio: Tensor) -> dict[str, list[float]]:
    """The curve of the algorithm's surrogate; empty where it is none of the ratio and the advantage alone."""
    function = member(choices.SURROGATE, knobs["surrogate"])
    own = {key: knobs[key] for key in choices.SURROGATE[knobs["surrogate"]].needs}  # a mix has those of others too
    named, _ = arguments(function)
    return curve(function, own, ratio) if named <= {"ratio", "advantages", *own} else {}


def _completion(session: LlmSession, batch: Sampled, row: int, lists: dict[str, Any], met: dict[str, Any],
                at: int) -> dict[str, Any]:
    """A row of the batch as JSON, with the values that the lists have for it."""
    completions = batch.completions
    length = int(completions.extents[row])
    tokens = token_texts(session.tokenizer, completions.ids[row, :length].tolist())
    columns, met = ({name: values[at][:length] for name, values in each.items()} for each in (lists, met))
    met = {name: values for name, values in met.items() if not (name == "gap" and any(map(isnan, values)))}
    mean = sum(columns["advantages"]) / int(completions.lengths[row])
    return {"text": batch.texts[row], **_score(batch.rewards, row), "advantage": mean,
            "truncated": bool(completions.truncated[row]), **_turns(batch.texts[row], completions, row),
            "tokens": tokens, **columns, **step_scores.at_tokens(batch.rewards, row, length),
            **({"met": met} if met else {})}


def sampled_groups(session: LlmSession, problems: list[Problem], generated: Generated,
                   rewards: Rewards) -> dict[str, Any]:
    """The picture of completions that were only sampled and scored: no advantages."""
    completions, group_size = generated.completions, len(generated.texts) // len(problems)
    shown = []
    for prompt, problem in enumerate(problems[:GROUPS]):
        rows = range(prompt * group_size, (prompt + 1) * group_size)
        shown.append({**session.rendering.shown(problem), "answer": problem.answer, "completions": [{
            "text": generated.texts[row], **_score(rewards, row), "advantage": None,
            "truncated": bool(completions.truncated[row]), **_turns(generated.texts[row], completions, row),
            "tokens": token_texts(session.tokenizer, completions.ids[row, :length].tolist()),
            "logprobs": completions.sampled_logprobs[row, :length].double().cpu().numpy().round(5).tolist()}
            for row, length in zip(rows, completions.extents[rows.start: rows.stop].tolist(), strict=True)]})
    return {"groups": shown}


def _turns(text: str, completions: Completions, row: int) -> dict[str, Any]:
    """Of an episode its `turns`, and which of its tokens are `observed`: the environment wrote them."""
    if not isinstance(text, Episode):
        return {}
    return {"turns": [move._asdict() for move in text.moves], "ended": text.done,
            "observed": (~completions.mask[row, :int(completions.extents[row])]).tolist()}


def _row(session: LlmSession, problem: Problem) -> dict[str, Any]:
    """The hidden row of an episode, from which the episode can be replayed; empty if a row of the user's environment is
    not JSON."""
    if not isinstance(session.task, EnvironmentTask):
        return {}
    try:
        return {"row": json.loads(json.dumps(dict(problem.columns), allow_nan=False))}
    except (TypeError, ValueError):
        return {}


def _score(rewards: Rewards, row: int) -> dict[str, Any]:
    """The reward of a completion (None if it could not be scored), the parts of the reward, and whether the completion
    is completely right."""
    reward = float(rewards.total[row])
    parts = {name: float(part[row]) for name, part in rewards.parts.items()}
    return {"reward": None if isnan(reward) else reward, "exact": bool(rewards.exact[row]),
            **({"parts": {name: None if isnan(value) else round(value, 5) for name, value in parts.items()}}
               if parts else {})}
