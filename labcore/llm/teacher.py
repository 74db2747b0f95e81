"""Ask a run's teacher about completions: its log-probs of their tokens, and its whole distributions.

It is asked about the very tokens of a completion, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labcore.catalog import choices
from labcore.llm.batch import Completions, Prompts
from labcore.llm.nets.forward import at_tokens, completion_outputs, precision
from labcore.llm.nets.head import has_plain_head, headless
from labcore.llm.nets.micro_batches import micro_batches, retried
from labcore.llm.networks import TEACHER
from labcore.llm.session import LlmSession
from labcore.llm.token_texts import alternative
from labcore.maths.call import call, member
from labcore.maths.logprobs import logprobs_and_entropy, selective_log_softmax
from labcore.maths.masked import masked_mean
from labcore.maths.supervised import forward_kl, reverse_kl
from labcore.runs.spec.activity import part_of

# ---------------------------------------------------------------- log-probs of tokens


@retried
@torch.no_grad()
@part_of("log-probs of the teacher")
def asked(session: LlmSession, prompts: Prompts, completions: Completions) -> tuple[Tensor, Tensor]:
    """The teacher's log-prob of each token at the sampling temperature, 0 where not counted, and the token that it
    finds likeliest there. (B, T) nats, int (B, T)"""
    teacher, parts = session.models[TEACHER], []
    measure = partial(_with_likeliest, temperature=session.knobs["temperature"])
    for some, rows in micro_batches(teacher, prompts, completions.ids, session.room):
        with precision(teacher, session.knobs["dtype"]):
            parts.append(at_tokens(teacher, prompts[some], completions.ids[rows], measure,
                                   extents=completions.extents[rows]))
    logprobs, likeliest = (torch.cat(column) for column in zip(*parts, strict=True))
    return logprobs.masked_fill(~completions.mask, 0), likeliest


def _with_likeliest(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, ...]:
    return selective_log_softmax(logits, ids, temperature), logits.argmax(-1)


def with_agreement(logits: Tensor, ids: Tensor, likeliest: Tensor, temperature: float,
                   entropy_grad: bool) -> tuple[Tensor, ...]:
    """log π, the entropy, and whether the policy's most likely token is the teacher's. (..., V), (...), (...) -> (...)
    each"""
    return (*logprobs_and_entropy(logits, ids, temperature, entropy_grad), logits.detach().argmax(-1) == likeliest)


def with_divergence(logits: Tensor, ids: Tensor, likeliest: Tensor, states: Tensor, head: nn.Module,
                    temperature: float, entropy_grad: bool) -> tuple[Tensor, ...]:
    """The result of `with_agreement`, and KL(π ‖ π_T) over the whole vocabulary at the sampling temperature, nats.
    `states` are those of `Distributions`."""
    policy, teacher = (table.div(temperature).log_softmax(-1) for table in _tables(logits, states, head))
    return (*with_agreement(logits, ids, likeliest, temperature, entropy_grad), reverse_kl(policy, teacher))


# ---------------------------------------------------------------- whole distributions


@dataclass(frozen=True)
class Distributions:
    """The teacher's next-token distributions for some completions, stored as the hidden states (B, T, H) before its
    `head`: tables over a large vocabulary are computed when they are compared, and then freed."""

    states: Tensor
    head: nn.Module

    @staticmethod
    @torch.no_grad()
    def of(session: LlmSession, prompts: Prompts, ids: Tensor) -> Distributions:
        """At every token of `ids` (B, T)."""
        teacher = session.models[TEACHER]
        with precision(teacher, session.knobs["dtype"]):
            if not has_plain_head(teacher):
                return Distributions(completion_outputs(teacher, prompts, ids), nn.Identity())
            with headless(teacher) as last:
                return Distributions(completion_outputs(teacher, prompts, ids), last)

    def measure(self, knobs: Mapping[str, Any]) -> Callable[..., tuple[Tensor, ...]]:
        """A measure of the policy's logits, ids and these `states`: see `compared`."""
        loss = member(choices.SFT_LOSS, str(knobs["sft_loss"]))
        own = {key: knobs[key] for key in choices.SFT_LOSS[loss.__name__].needs}
        return partial(compared, head=self.head, loss=partial(_called, loss, own))


def _called(loss: Callable[..., Tensor], knobs: Mapping[str, Any], policy: Tensor, teacher: Tensor) -> Tensor:
    found: Tensor = call(loss, knobs, {"policy": policy, "teacher": teacher})
    return found


def compared(logits: Tensor, ids: Tensor, states: Tensor, head: nn.Module,
             loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Of each token: log π, the entropy, the policy's likeliest token, the loss, the forward and the reverse KL, and
    whether the teacher's likeliest token is the same. (..., V), (...), (..., H) -> (...) each

    At temperature 1, over the tokens that both vocabularies have: rows beyond are padding of the embeddings.
    """
    policy, teacher = (table.log_softmax(-1) for table in _tables(logits, states, head))
    with torch.no_grad():
        likeliest, same = policy.argmax(-1), policy.argmax(-1) == teacher.argmax(-1)
        both = forward_kl(policy, teacher), reverse_kl(policy, teacher)
    return (*logprobs_and_entropy(logits, ids, entropy_grad=False), likeliest, loss(policy, teacher), *both, same)


def _tables(logits: Tensor, states: Tensor, head: nn.Module) -> tuple[Tensor, Tensor]:
    """Logits of policy and teacher over the tokens that both have, in float32. (..., V) each"""
    with torch.no_grad():
        weight = next(head.parameters(), states)
        theirs = head(states.to(weight.dtype))
    size = min(logits.shape[-1], theirs.shape[-1])
    return logits[..., :size].float(), theirs[..., :size].float()


# ---------------------------------------------------------------- to look at

TOP = 3  # of the teacher's likeliest tokens that are named


@torch.no_grad()
@part_of("tokens of the teacher")
def said(session: LlmSession, prompts: Prompts, completions: Completions, temperature: float) -> list[dict[str, Any]]:
    """The teacher's own choice at each token of some completions, as lists for each row.

    `teacher_logprobs` are of the tokens that are there, nats; `teacher_top` the TOP likeliest tokens in their place,
    each as its text and its probability.
    """
    teacher = session.models[TEACHER]
    measure = partial(_with_top, temperature=temperature)
    with precision(teacher, session.knobs["dtype"]):
        logprobs, places, likely = at_tokens(teacher, prompts, completions.ids, measure)
    rows = zip(completions.ids.tolist(), completions.extents.tolist(), logprobs.double().tolist(), places.tolist(),
               likely.double().tolist(), strict=True)
    return [{"teacher_logprobs": [round(value, 5) for value in values[:length]],
             "teacher_top": [[[alternative(session.tokenizer, ids[:at], token), round(p, 5)]
                              for token, p in zip(tokens[at], shares[at], strict=True)] for at in range(length)]}
            for ids, length, values, tokens, shares in rows]


def _with_top(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, ...]:
    table = (logits.float() / temperature).log_softmax(-1)
    top = table.topk(min(TOP, table.shape[-1]), -1)
    return table.gather(-1, ids[..., None])[..., 0], top.indices, top.values.exp()


# ---------------------------------------------------------------- metrics


def measures(parts: Sequence[Sequence[Tensor]], mask: Tensor) -> dict[str, float]:
    """Means over the tokens of answers, by the names of metrics: of each micro-batch the last three of `compared`.
    Nothing without a teacher."""
    columns = zip(("teacher/forward_kl", "teacher/reverse_kl", "teacher/agreement"), zip(*parts, strict=True),
                  strict=True) if parts else ()
    return {key: float(masked_mean(torch.cat(values).float(), mask)) for key, values in columns}


def sampled_measures(logprobs: Tensor, teacher_logprobs: Tensor, mask: Tensor,
                     in_context: Tensor | None = None) -> dict[str, float]:
    """The reverse KL, as the mean log-ratio of the policy's own tokens; the forward KL would need tokens of the
    teacher. If the teacher reads contexts, it is over the completions that have one (B,), whose share is a metric
    too."""
    shares = {} if in_context is None else {"teacher/context_frac": float(in_context.double().mean())}
    mask = mask if in_context is None else mask & in_context[:, None]
    if not mask.any():
        return shares
    return shares | {"teacher/reverse_kl": float(masked_mean(logprobs - teacher_logprobs, mask))}
