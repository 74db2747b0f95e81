"""Completions of problems, and the networks' numbers for each of their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labcore.errors import Diverged, LabError
from labcore.llm.batch import Completions, Prompts, decode, padded_prompts
from labcore.llm.episodes import played
from labcore.llm.nets.alike import alike
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import at_tokens, completion_outputs, layers_of, mode_of, precision
from labcore.llm.nets.micro_batches import at_once, micro_batches, retried
from labcore.llm.nets.mixture import Mixture
from labcore.llm.nets.tape import LEAST_WIDTH, Tape
from labcore.llm.rendering import encode_prompts
from labcore.llm.sampler import sample
from labcore.llm.session import LlmSession
from labcore.llm.sizing.passes import Batch, way
from labcore.maths.logprobs import log_square_sum, logprobs_and_entropy, selective_log_softmax
from labcore.maths.turns import extents
from labcore.runs.faults import out_of_memory
from labcore.runs.spec.activity import part_of
from labcore.tasks.environment import Begun, EnvironmentTask
from labcore.tasks.task import Problem

# What two passes of one network in fp32 may differ by at a token, as a share of its log-prob, which is at least 1 nat.
ROUNDING = 2e-6
SIZES = ("prompts_per_step", "pair_prompts", "eval_prompts", "group_size", "max_new_tokens")  # of what is drawn at once


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling, separate from a session's knobs, so that one session can sample in several ways."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int = 8
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    greedy: bool = False

    @staticmethod
    def of(knobs: Mapping[str, Any]) -> Sampling:
        """The sampling that a run's knobs ask for."""
        return Sampling(knobs["temperature"], knobs["top_k"], knobs["top_p"], int(knobs["max_new_tokens"]),
                        knobs.get("min_p", 0.0), knobs.get("repetition_penalty", 1.0))  # SFT has neither


@dataclass(frozen=True)
class Generated:
    """P prompts and their P·G completions, group by group, as tokens and as text; of a task with several turns these
    are episodes (`tasks.environment.Episode`), whose observations the mask leaves out."""

    prompts: Prompts
    completions: Completions
    texts: list[str]


def generate(session: LlmSession, model: Network, problems: list[Problem], group_size: int,
             sampling: Sampling, tape: Tape | None = None, begun: Sequence[Begun] = (),
             turns: int | None = None) -> Generated:
    """`group_size` completions of each problem from `model`, with the products on `tape` where an update can use them.
    Episodes continue after the turns `begun`, by at most `turns` turns.

    Raises:
        LabError: a prompt is empty or too long for the model, or the device has too little memory for so many.
        Diverged: the model's distribution is not finite.
    """
    prompts = encode_prompts(session.rendering, problems, session.context - 1, session.device)
    limit = min(sampling.max_new_tokens, session.context - prompts.ids.shape[1])
    how = {**asdict(sampling), "eos": session.rendering.ends, "generator": session.generator}

    def draw(asked: Prompts, size: int, most: int, tape: Tape | None = None) -> Completions:
        return _drawn(session, model, asked, size, {**how, "max_new_tokens": most}, tape)
    try:
        if isinstance(session.task, EnvironmentTask):
            completions, texts = played(session.task, session.rendering, problems, group_size, prompts, limit, draw,
                                        begun, turns)
        else:
            completions = draw(prompts, group_size, limit, tape)
            texts = decode(session.tokenizer, completions, session.rendering.ends)
    except (MemoryError, RuntimeError) as error:  # drawn in parts, the completions would be others
        if not out_of_memory(error):
            raise
        sizes = ", ".join(f"`{key}` is {session.knobs[key]}" for key in SIZES if key in session.knobs)
        raise LabError(f"Memory ran out while {len(prompts)} × {group_size} completions of up to {limit} tokens were "
                       f"drawn: lower one of these: {sizes}.") from error
    if not completions.sampled_logprobs.isfinite().all():
        raise Diverged(session.step + 1, "sampling distribution")
    return Generated(prompts, completions, texts)


def continued(session: LlmSession, model: Network, problems: Sequence[Problem], beginnings: Sequence[Sequence[int]],
              count: int, sampling: Sampling) -> list[tuple[str, bool]]:
    """`count` answers to each problem that continue the given tokens: their whole texts, and whether each ended before
    the length limit."""
    asked = [[*ids, *begun][:session.context - 1]
             for ids, begun in zip(session.rendering.prompts(problems), beginnings, strict=True)]
    prompts = padded_prompts(asked, session.rendering.padding, session.device)
    limit = min(sampling.max_new_tokens, session.context - prompts.ids.shape[1])
    drawn = _drawn(session, model, prompts, count, {**asdict(sampling), "max_new_tokens": limit, "eos":
                   session.rendering.ends, "generator": session.generator}, None)
    rows = zip(drawn.ids.tolist(), drawn.lengths.tolist(), strict=True)
    ends = {*session.rendering.ends}
    whole = [[token for token in [*beginnings[row // count], *ids[:length]] if token not in ends]
             for row, (ids, length) in enumerate(rows)]
    found: list[str] = session.tokenizer.batch_decode(whole, skip_special_tokens=False,
                                                      clean_up_tokenization_spaces=False)
    return list(zip(found, (~drawn.truncated).tolist(), strict=True))


def _drawn(session: LlmSession, model: Network, prompts: Prompts, group_size: int, how: Mapping[str, Any],
           tape: Tape | None) -> Completions:
    """Completions by the run's sampler: an external one, recorded steps, or the lab's own."""
    dtype = session.knobs["dtype"]
    if isinstance(model, Mixture):  # two networks at once: only the lab's own sampler has them
        with precision(model, dtype):
            return sample(model, prompts, group_size, **how)
    if session.sampler:
        with precision(model, dtype):
            return session.sampler(model, prompts, group_size, **how)
    if session.graphs:
        found = session.graphs.sample(model, prompts, group_size, dtype=dtype, **how)
        for text in session.graphs.take_notes():
            session.say_once(text)
        if found is not None:
            return found
    done = Batch(len(prompts), group_size, 0, prompts.ids.shape[1], how["max_new_tokens"])
    if tape is not None and not _usable(session, model, done):
        tape = None
    with precision(model, dtype):
        return sample(model, prompts, group_size, **how, tape=tape)


def _usable(session: LlmSession, model: Network, done: Batch) -> bool:
    """True if an update on `done` can take the sampler's products: it runs the same equations on packed rows, in one
    micro-batch, so that its activations are the most that is ever held.

    On a GPU, and in narrow networks, it is not products that take the time. In bf16 sampler and trainer round
    differently, which is something to see and to correct: there the trainer computes its own.
    """
    layers, mode = layers_of(model), mode_of(model)
    alike = layers.own and not mode.recomputed and way(layers, done, mode) == "packed"
    slow = session.device.type == "cpu" and layers.hidden >= LEAST_WIDTH
    return (alike and slow and session.knobs["dtype"] == "fp32" and at_once(model, done, session.room) == done.prompts)


def chosen(logits: Tensor, ids: Tensor, temperature: float = 1.0) -> tuple[Tensor]:
    """The log-prob of each token alone, as passes measure it. (..., V), (...) -> (...) nats"""
    return (selective_log_softmax(logits, ids, temperature),)


@retried
@torch.no_grad()
def token_logprobs(session: LlmSession, model: Network, prompts: Prompts, completions: Completions) -> Tensor:
    """Log-probs of given completions under `model` at the sampling temperature, 0 where not counted. (B, T) nats"""
    parts: list[Tensor] = []
    measure = partial(chosen, temperature=session.knobs["temperature"])
    with precision(model, session.knobs["dtype"]):
        for some, rows in micro_batches(model, prompts, completions.ids, session.room):
            parts += at_tokens(model, prompts[some], completions.ids[rows], measure, extents=completions.extents[rows])
    return torch.cat(parts).masked_fill(~completions.mask, 0)


@part_of("log-probs of the reference model")
def reference_logprobs(session: LlmSession, prompts: Prompts, completions: Completions,
                       logprobs: Tensor) -> Tensor | None:
    """Log-probs of the policy's own completions under the reference, (B, T) nats, 0 where not counted.

    `logprobs` (B, T) are the policy's. None where the reference says the same but for rounding: it has the policy's
    weights, or in fp32 no token differs by more than two passes of one network may.
    """
    if alike(session.policy, session.reference):
        return None
    found = token_logprobs(session, session.reference, prompts, completions)
    if session.knobs["dtype"] != "fp32":  # its rounding is as large as what many updates change
        return found
    noise = ROUNDING * logprobs.abs().clamp(min=1)
    return None if bool(((found - logprobs).abs() <= noise)[completions.mask].all()) else found


@retried
@torch.no_grad()
def policy_logprobs_and_entropy(session: LlmSession, prompts: Prompts, ids: Tensor,
                                mask: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs of given completions under the policy at the sampling temperature, 0 where `mask` is False, and the
    entropy of its next-token distribution at each place. ids, mask (B, T) -> (B, T), (B, T) nats"""
    columns, lengths = [], extents(mask)
    measure = partial(logprobs_and_entropy, temperature=session.knobs["temperature"])
    for some, rows in micro_batches(session.policy, prompts, ids, session.room):
        with precision(session.policy, session.knobs["dtype"]):
            columns.append(at_tokens(session.policy, prompts[some], ids[rows], measure, extents=lengths[rows]))
    logprobs, entropy = (torch.cat(column) for column in zip(*columns, strict=True))
    return logprobs.masked_fill(~mask, 0), entropy


@retried
@torch.no_grad()
@part_of("squared probabilities")
def token_square_sums(session: LlmSession, prompts: Prompts, completions: Completions) -> Tensor:
    """Σ_v π_v² of the policy before each completion token, at the sampling temperature. (B, T)"""
    parts: list[Tensor] = []
    for some, rows in micro_batches(session.policy, prompts, completions.ids, session.room):
        with precision(session.policy, session.knobs["dtype"]):
            parts += at_tokens(session.policy, prompts[some], completions.ids[rows], lambda logits, ids: (
                log_square_sum(logits, session.knobs["temperature"]).exp(),), extents=completions.extents[rows])
    return torch.cat(parts)


@retried
@torch.no_grad()
@part_of("values of the critic")
def token_values(session: LlmSession, prompts: Prompts, completions: Completions) -> Tensor:
    """The critic's value before each completion token, 0 where not counted. (B, T) reward"""
    parts = []
    for some, rows in micro_batches(session.critic, prompts, completions.ids, session.room):
        with precision(session.critic, session.knobs["dtype"]):
            parts.append(completion_outputs(session.critic, prompts[some], completions.ids[rows],
                                            extents=completions.extents[rows])[..., 0].float())
    return torch.cat(parts).masked_fill(~completions.mask, 0)
