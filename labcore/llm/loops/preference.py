"""The preference loop: learn from pairs of a chosen and a rejected completion, without sampling while learning.

The pairs are the user's, or are made once before the first step: the reference answers prompts several times, and
the task's verifier says which answers are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labcore.catalog.choices import PREFERENCE_LOSS
from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts, encode_completions, encode_prompts
from labcore.llm.evaluation import evaluate
from labcore.llm.loops import online
from labcore.llm.nets.forward import completion_outputs, micro_batches, precision
from labcore.llm.probes import view
from labcore.maths.call import call, member
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.spec.record import Record
from labcore.tasks.task import Pair, PairTask, draw

if TYPE_CHECKING:
    from labcore.llm.session import Session

SHOWN = 16  # pairs in the sample view
SAMPLED_AT_ONCE = 64  # prompts


def run(session: Session) -> Iterator[Record | None]:
    """Yield a Record per update; the first carries a measurement of the base, before the update."""
    if not session.pairs and not isinstance(session.task, PairTask):
        session.pairs = sample_pairs(session)
    while session.step < session.spec.steps:
        base = evaluate(session) if session.step == 0 else None  # the first value is what DPO starts from
        metrics, samples = update(session, next_pairs(session))
        session.step += 1
        samples["step"] = session.step
        if evaluation := base or (evaluate(session) if session.step % int(session.knobs["eval_every"]) == 0 else None):
            metrics |= evaluation.metrics
            samples |= view.evaluation_groups(session, *evaluation.seen)
        metrics |= {"updates": session.updates, "num_tokens": session.tokens}
        due = "groups" in samples or view.samples_due(session.step)
        yield Record(session.step, session.tokens, metrics, samples=samples if due else None)


def sample_pairs(session: Session) -> list[Pair]:
    """Ask the reference, let the verifier judge, and pair better answers with worse ones of the same prompt.

    Completions cut at the length limit take part without an end token: were they left out, every rejected answer
    would have ended, and the policy would learn not to end.

    Raises:
        LabError: no prompt got both a better and a worse answer.
    """
    group_size, pairs, asked = int(session.knobs["group_size"]), [], int(session.knobs["pair_prompts"])
    for start in range(0, asked, SAMPLED_AT_ONCE):
        problems = session.task.problems(min(SAMPLED_AT_ONCE, asked - start), session.rng)
        _, completions, texts = online.complete(session, session.reference, problems, group_size)
        cut = completions.truncated.tolist()
        for index, problem in enumerate(problems):
            rows = range(index * group_size, (index + 1) * group_size)
            reward = {row: session.task.score(problem, texts[row]).reward for row in rows if texts[row]}
            ordered = sorted(reward, key=reward.__getitem__)
            extremes = zip(reversed(ordered), ordered[: len(ordered) // 2], strict=False)
            pairs += [Pair(problem.prompt, texts[high], texts[low], problem.line, cut[high], cut[low])
                      for high, low in extremes if reward[high] > reward[low]]
    if not pairs:
        raise LabError(f"None of {asked} prompts got both a better and a worse completion from the base, so there "
                       "are no pairs to learn from: raise pair_prompts or group_size, or start from another base.")
    return pairs


def next_pairs(session: Session) -> list[Pair]:
    """The pairs of the next batch, drawn at random."""
    count = int(session.knobs["pairs_per_step"])
    if isinstance(session.task, PairTask):
        return session.task.pairs(count, session.rng)
    return draw(session.pairs, count, session.rng)


def encode(session: Session, pairs: list[Pair]) -> tuple[Prompts, Completions]:
    """Prompts (N), and completions (2N) with each chosen one directly before its rejected one."""
    prompts = encode_prompts(session.tokenizer, [pair.prompt for pair in pairs], session.context - 1, session.device,
                             [f"line {pair.line}" if pair.line else "" for pair in pairs])
    sides = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    cut = [side for pair in pairs for side in (pair.chosen_truncated, pair.rejected_truncated)]
    return prompts, encode_completions(session.tokenizer, sides, session.context - prompts.ids.shape[1],
                                       session.device, cut)


def update(session: Session, pairs: list[Pair]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One update on `pairs`. Returns its metrics and the pairs for the sample view.

    Chosen and rejected share their prompt's prefix. ℓ is summed over the completion, at temperature 1.
    """
    knobs = session.knobs
    prompts, completions = encode(session, pairs)
    loss_function = member(PREFERENCE_LOSS, knobs["preference_loss"])
    loss, columns, entropies = 0.0, [], 0.0
    for some, rows in micro_batches(session.policy, len(prompts), *completions.ids.shape):
        ids, mask = completions.ids[rows], completions.mask[rows]
        with torch.no_grad():
            ref_logprobs, _ = _sums(session, session.reference, prompts[some], ids, mask)
        logprobs, entropy = _sums(session, session.policy, prompts[some], ids, mask)
        log_ratios = (logprobs - ref_logprobs).view(-1, 2)
        losses = call(loss_function, {**knobs, "log_ratio_chosen": log_ratios[:, 0],
                                      "log_ratio_rejected": log_ratios[:, 1]})
        part = losses.sum() / len(pairs)
        part.backward()
        loss += part.item()
        columns.append(torch.stack([logprobs.detach().view(-1, 2), ref_logprobs.view(-1, 2)], 2))
        entropies += float(entropy)
    tokens = int(completions.mask.sum())
    session.tokens += tokens
    norm = session.optimise("policy", knobs["learning_rate"], loss)
    session.updates += 1
    sums = torch.cat(columns)  # (N, side, policy | reference)
    metrics = {"loss": loss, "grad_norm": norm, "learning_rate": knobs["learning_rate"], "entropy": entropies / tokens}
    return metrics | _pair_metrics(sums, knobs["beta"]), _shown(pairs, sums, knobs["beta"])


def _sums(session: Session, model, prompts: Prompts, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
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
