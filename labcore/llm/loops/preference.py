"""The preference loop: learn from pairs of a chosen and a rejected completion, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.choices import PREFERENCE_LOSS
from labcore.llm.batch import Completions, Prompts, encode_completions, encode_prompts
from labcore.llm.evaluation import evaluate
from labcore.llm.generation import Generated
from labcore.llm.nets.forward import completion_outputs, micro_batches, precision
from labcore.llm.pairs import Pairs, next_pairs, prepare
from labcore.llm.probes import view, watched
from labcore.llm.rewards import Rewards
from labcore.llm.session import LlmSession
from labcore.maths.call import call, member
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.spec.record import Pictures, Record
from labcore.tasks.task import Pair, Problem

SHOWN = 16  # pairs in the sample view
Seen = tuple[list[Problem], Generated, Rewards]  # completions that were sampled and scored at a step


def run(session: LlmSession) -> Iterator[Record | None]:
    """Yield a Record per update. Where the pairs are not the policy's own samples of this step, it is measured by
    sampling every so many steps; the first record carries the measurement of the base, before the update.
    """
    prepare(session)
    while session.step < session.spec.steps:
        evaluation = evaluate(session) if session.step == 0 and "eval_every" in session.knobs else None
        found = next_pairs(session)
        measured = (session.step + 1) % int(session.knobs.get("eval_every", session.step + 2)) == 0
        due = evaluation is not None or measured or view.samples_due(session.step + 1)
        before = view.kept(session)
        watching = watched.before(session, session.step + 1) if due else None
        metrics, samples = update(session, found)
        session.step += 1
        if evaluation is None and measured:
            evaluation = evaluate(session)
        metrics |= found.metrics | (evaluation.metrics if evaluation else {})
        metrics |= {"updates": session.updates, "num_tokens": session.tokens}
        samples |= {"step": session.step}
        seen = (evaluation.problems, evaluation.generated, evaluation.rewards) if evaluation else found.sampled
        if watching:
            samples |= _groups(session, seen) | {"watched": watching.after(session)}
        as_it_is = replace(session, knobs=dict(session.knobs))  # knobs may be changed before somebody looks
        yield Record(session.step, session.tokens, metrics, samples=samples if due else None,
                     look=None if due else partial(_look, as_it_is, samples, seen, before))


def _groups(session: LlmSession, seen: Seen | None) -> dict[str, Any]:
    return view.sampled_groups(session, *seen) if seen else {}


def _look(session: LlmSession, samples: dict[str, Any], seen: Seen | None,
          before: Mapping[str, Tensor] | None) -> Pictures:
    """The samples of a step that were not due, without an evaluation."""
    return samples | _groups(session, seen) | ({"watched": watched.afterwards(session, before)} if before else {}), None


def encode(session: LlmSession, pairs: list[Pair]) -> tuple[Prompts, Completions]:
    """Prompts (N), and completions (2N) with each chosen one directly before its rejected one."""
    prompts = encode_prompts(session.tokenizer, [pair.prompt for pair in pairs], session.context - 1, session.device,
                             [f"line {pair.line}" if pair.line else "" for pair in pairs])
    sides = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    cut = [side for pair in pairs for side in (pair.chosen_truncated, pair.rejected_truncated)]
    return prompts, encode_completions(session.tokenizer, sides, session.context - prompts.ids.shape[1],
                                       session.device, cut)


def update(session: LlmSession, found: Pairs) -> tuple[dict[str, Any], dict[str, Any]]:
    """One update on pairs. Returns its metrics and the pairs for the sample view.

    Chosen and rejected share their prompt's prefix. ℓ is summed over the completion, at temperature 1.
    """
    knobs, pairs = session.knobs, found.pairs
    prompts, completions = encode(session, pairs)
    loss_function = member(PREFERENCE_LOSS, knobs["preference_loss"])
    loss, columns, entropies = 0.0, [], 0.0
    for some, rows in micro_batches(session.policy, len(prompts), *completions.ids.shape):
        ids, mask = completions.ids[rows], completions.mask[rows]
        with torch.no_grad():
            ref_logprobs, _ = _sums(session, session.reference, prompts[some], ids, mask)
        logprobs, entropy = _sums(session, session.policy, prompts[some], ids, mask)
        log_ratios = (logprobs - ref_logprobs).view(-1, 2)
        losses = call(loss_function, knobs, {"log_ratio_chosen": log_ratios[:, 0],
                                             "log_ratio_rejected": log_ratios[:, 1]})
        part = losses.sum() / len(pairs)
        part.backward()
        loss += part.item()
        columns.append(torch.stack([logprobs.detach().view(-1, 2), ref_logprobs.view(-1, 2)], 2))
        entropies += float(entropy)
    tokens = int(completions.mask.sum())
    if found.sampled is None:  # else they were counted when they were sampled
        session.tokens += tokens
    norm = session.optimise("policy", knobs["learning_rate"], loss)
    session.updates += 1
    sums = torch.cat(columns)  # (N, side, policy | reference)
    metrics = {"loss": loss, "grad_norm": norm, "learning_rate": knobs["learning_rate"], "entropy": entropies / tokens}
    return metrics | _pair_metrics(sums, knobs["beta"]), _shown(pairs, sums, knobs["beta"])


def _sums(session: LlmSession, model, prompts: Prompts, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Summed log-probs of each completion (2N,), nats/sequence, and the sum of all token entropies."""
    with precision(model, session.knobs["dtype"]):
        logits = completion_outputs(model, prompts, ids)
    logprobs, entropy = logprobs_and_entropy(logits, ids, entropy_grad=False)
    return (logprobs * mask).sum(1), (entropy * mask).sum()


def _pair_metrics(sums: Tensor, beta: float) -> dict[str, float]:
    rewards = beta * (sums[..., 0] - sums[..., 1])  # (N, side)
    margins = rewards[:, 0] - rewards[:, 1]
    return {"rewards/chosen": float(rewards[:, 0].mean()), "rewards/rejected": float(rewards[:, 1].mean()),
            "rewards/margins": float(margins.mean()), "rewards/accuracies": float((margins > 0).float().mean()),
            "logps/chosen": float(sums[:, 0, 0].mean()), "logps/rejected": float(sums[:, 1, 0].mean())}


def _shown(pairs: list[Pair], sums: Tensor, beta: float) -> dict[str, Any]:
    rows = []
    for pair, sides in zip(pairs[:SHOWN], sums[:SHOWN].double().cpu().numpy().round(5).tolist(), strict=True):
        chosen, rejected = ({"text": text, "logprob": values[0], "ref_logprob": values[1]}
                            for text, values in zip((pair.chosen, pair.rejected), sides, strict=True))
        margin = beta * ((chosen["logprob"] - chosen["ref_logprob"]) - (rejected["logprob"] - rejected["ref_logprob"]))
        rows.append({"prompt": pair.prompt, "chosen": chosen, "rejected": rejected, "margin": margin})
    return {"pairs": rows, "beta": beta}
