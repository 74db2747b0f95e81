"""The supervised loop: raise the log-probability of given answers, stop when the model is good enough for RL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.choices import SFT_LOSS
from labcore.catalog.right import check
from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.drawing import next_rows
from labcore.llm.evaluation import Evaluation, evaluate
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.nets.micro_batches import micro_batches, retried
from labcore.llm.networks import POLICY
from labcore.llm.probes import view, watched
from labcore.llm.probes.token_records import Met, given
from labcore.llm.rendering import encode_examples
from labcore.llm.session import LlmSession
from labcore.maths.call import call, member
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Pictures, Record
from labcore.tasks.look import answer_of

LAST_ONLY = ("SFT learns only the last answer of conversations with several, because the chat template writes an "
             "earlier answer differently, for example without its thoughts: set template=chatml to learn all of them.")


def run(session: LlmSession) -> Iterator[Record | None]:
    """Yield a Record per update, until the steps are done or enough of the sampled completions are right.

    Raises:
        LabError: the rows of the user's file have no answers.
    """
    rows = getattr(session.task, "rows", ())
    if rows and not any(answer_of(row).strip() for row in rows):
        raise LabError(f"No row of {Path(session.spec.data or '').name} has an answer, so SFT has nothing to learn: "
                       "set sft_steps to 0 for a run that learns from rewards.")
    while session.step < session.spec.steps and not session.finished_because:  # a resumed run may have reached it
        session.probes.begin()
        due = session.step == 0 or (session.step + 1) % int(session.knobs["eval_every"]) == 0
        before = view.kept(session) if view.on(session) else None
        watching = watched.timed(session) if due and view.watching(session) else None
        metrics, examples = update(session, Met())
        session.step += 1
        samples = None
        if due:
            evaluation = evaluate(session)
            metrics |= evaluation.metrics
            if view.on(session):
                samples = (_samples(session, evaluation) | {"examples": examples}
                           | watched.completed(session, watching))
        metrics |= {"updates": session.updates, "num_tokens": session.tokens}
        reached = metrics.get("exact_match", 0.0)
        if session.knobs["sft_target"] < 1 and reached >= session.knobs["sft_target"]:
            checked = check(session.spec.task_row, session.knobs)
            session.finished_because = f"reached the SFT target: {checked} {reached:.2f}"
        session.probes.end()
        as_it_is = replace(session, knobs=dict(session.knobs), notes=[])  # knobs may be changed before somebody looks
        yield Record(session.step, session.tokens, metrics, samples=samples,  # its checkpoint knows that it is finished
                     look=None if samples or not view.on(session) else partial(_look, as_it_is, examples, before))


def _samples(session: LlmSession, evaluation: Evaluation) -> dict[str, Any]:
    return {"step": session.step} | view.sampled_groups(session, evaluation.problems, evaluation.generated,
                                                        evaluation.rewards)


def _look(session: LlmSession, examples: list[dict[str, Any]], before: Mapping[str, Tensor] | None) -> Pictures:
    """The samples of a step that was not evaluated, drawn with random numbers of their own; of a large network only
    what the update met."""
    if view.limited(session):
        return {"step": session.step, "groups": [], "examples": examples}, None
    samples = _samples(session, evaluate(watched.apart(session, session.step))) | {"examples": examples}
    return samples | watched.looked(session, before), None


def update(session: LlmSession, met: Met | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One update on fresh examples: L = −(1/N) Σ log π(y_t), N the tokens of the whole update, or another SFT loss.

    Returns its metrics, and some of its examples token by token where it has `met`.
    """
    knobs = session.knobs
    problems = next_rows(session, session.task.problems, int(knobs["sequences_per_step"]))
    examples = encode_examples(session.rendering, problems, session.context, session.device)
    if examples.last_only:
        session.say_once(LAST_ONLY)
    prompts, answers = examples.prompts, examples.answers
    measured, total = gradients(session, prompts, answers, met), int(answers.mask.sum())
    session.tokens += total
    rate = session.rate(POLICY)
    norm = session.optimise(POLICY, rate, measured["loss"])
    session.updates += 1
    shown = given(met, session, answers, min(view.GROUPS, len(problems))) if met else []
    return measured | {"grad_norm": norm, "learning_rate": rate}, [
        {**session.rendering.shown(problem), "text": problem.answer, **each}
        for problem, each in zip(problems, shown, strict=False)]


@retried
@part_of("update")
def gradients(session: LlmSession, prompts: Prompts, answers: Completions, met: Met | None = None) -> dict[str, float]:
    """Leave the gradient of the loss on `answers` in the policy; what was measured on the way."""
    knobs = session.knobs
    if met:
        met.clear()
    token_loss = member(SFT_LOSS, knobs.get("sft_loss", "nll"))
    total, loss, right, entropies = answers.mask.sum(), 0.0, 0, 0.0
    for some, rows in micro_batches(session.policy, prompts, answers.ids, session.room):
        ids, mask = answers.ids[rows], answers.mask[rows]
        with precision(session.policy, knobs["dtype"]):
            logprobs, entropy, likeliest = at_tokens(session.policy, prompts[some], ids, _measure,
                                                     met.norms_of(ids) if met else None)
        if met:
            met.see(logprobs, entropy)
        part = (call(token_loss, knobs, {"logprobs": logprobs}) * mask).sum() / total
        part.backward()
        loss += part.item()
        right += int(((likeliest == ids) & mask).sum())
        entropies += float((entropy * mask).sum())
    return {"loss": loss, "mean_token_accuracy": right / int(total), "entropy": entropies / int(total)}


@retried
@torch.no_grad()
def given_answers(session: LlmSession, prompts: Prompts, answers: Completions) -> tuple[float, float]:
    """−log π of given answers, in nats per token, and the share of their tokens that are the policy's first choice."""
    nll, right = 0.0, 0
    for some, rows in micro_batches(session.policy, prompts, answers.ids, session.room):
        ids, mask = answers.ids[rows], answers.mask[rows]
        with precision(session.policy, session.knobs["dtype"]):
            logprobs, _, likeliest = at_tokens(session.policy, prompts[some], ids, _measure)
        nll -= float((logprobs * mask).sum())
        right += int(((likeliest == ids) & mask).sum())
    total = int(answers.mask.sum())
    return nll / total, right / total


def _measure(logits: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    """The log-prob of each token, the entropy before it, and the token that was likeliest there."""
    return *logprobs_and_entropy(logits, ids, entropy_grad=False), logits.detach().argmax(-1)
