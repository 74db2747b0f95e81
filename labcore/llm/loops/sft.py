"""The supervised loop: learn from answers, stop when the model is good enough for RL.

The answers are given ones. Where there is a teacher, it or the policy itself may write them, and the loss may compare
the two at each of their tokens: distillation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.choices import SFT_LOSS, chosen, written_share
from labcore.catalog.right import check
from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.drawing import next_rows
from labcore.llm.evaluation import Evaluation, evaluate
from labcore.llm.loops.stages import Ready, Stage, Taught
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.nets.micro_batches import attempts, micro_batches, retried
from labcore.llm.networks import POLICY, TEACHER
from labcore.llm.probes import view, watched
from labcore.llm.probes.token_records import Met, given
from labcore.llm.rendering import Examples, encode_examples
from labcore.llm.session import LlmSession
from labcore.llm.teacher import Distributions, measures, said
from labcore.llm.teacher_context import some_with_context
from labcore.llm.written import next_writer, written
from labcore.maths.call import call, member
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record
from labcore.tasks.file_statistics import answer_of
from labcore.tasks.task import Problem

LAST_ONLY = ("SFT learns only the last answer of conversations with several, because the chat template writes an "
             "earlier answer differently, for example without its thoughts: set template=chatml to learn all of them.")


def run(session: LlmSession) -> Iterator[Stage]:
    """Yield a Record per update and the stages before it, until the steps are done or enough of the sampled completions
    are right.

    Raises:
        LabError: the rows of the user's file have no answers.
    """
    rows = getattr(session.task, "rows", ())
    if rows and written_share(session.knobs) < 1 and not any(answer_of(row).strip() for row in rows):
        raise LabError(f"No row of {Path(session.spec.data or '').name} has an answer, so SFT has nothing to learn: "
                       "add answers, or run an algorithm that learns from rewards, such as grpo, with "
                       "`sft_steps` 0.")
    while session.step < session.spec.steps and not session.finished_because:  # a resumed run may have reached it
        due = session.step == 0 or (session.step + 1) % int(session.knobs["eval_every"]) == 0
        yield Ready(due)
        problems, examples = next_examples(session)
        met = Met()
        for attempt in attempts(session):  # once more in smaller micro-batches where memory is short
            with attempt:
                measured = gradients(session, examples.prompts, examples.answers, met)
        metrics = measured | step(session, examples.answers, measured["loss"])
        session.step += 1
        evaluation = evaluate(session) if due else None
        metrics |= evaluation.metrics if evaluation else {}
        metrics |= {"updates": session.updates, "num_tokens": session.tokens}
        reached = metrics.get("exact_match", 0.0)
        if session.knobs["sft_target"] < 1 and reached >= session.knobs["sft_target"]:
            checked = check(session.spec.task_row, session.knobs)
            session.finished_because = f"reached the SFT target: {checked} {reached:.2f}"
        yield Taught(partial(_samples, problems=problems, examples=examples, met=met, evaluation=evaluation))
        yield Record(session.step, session.tokens, metrics)  # its checkpoint knows that it is finished


def _samples(session: LlmSession, problems: list[Problem], examples: Examples, met: Met,
             evaluation: Evaluation | None) -> dict[str, Any]:
    """Some examples of an update token by token, and completions of its evaluation. For a step that was not evaluated
    these are drawn with random numbers of their own; of a large network there are none then."""
    rows = slice(min(view.GROUPS, len(problems)))
    answers = Completions(examples.answers.ids[rows], examples.answers.mask[rows], examples.answers.truncated[rows])
    taught = said(session, examples.prompts[rows], answers, 1.0) if TEACHER in session.models else [{}] * len(answers)
    learnt = [{**session.rendering.shown(problem), "text": problem.answer, **each, **theirs} for problem, each, theirs
              in zip(problems, given(met, session, examples.answers, len(answers)), taught, strict=False)]
    if evaluation is None and view.limited(session):
        return {"step": session.step, "groups": [], "examples": learnt}
    found = evaluation or evaluate(watched.apart(session, session.step))
    groups = view.sampled_groups(session, found.problems, found.generated, found.rewards)
    return {"step": session.step, **groups, "examples": learnt}


def next_examples(session: LlmSession) -> tuple[list[Problem], Examples]:
    """The problems of the next update, and their prompts and answers as tokens."""
    problems = next_rows(session, session.task.problems, int(session.knobs["sequences_per_step"]))
    problems = some_with_context(session, problems)
    if writer := next_writer(session):
        return written(session, writer, problems)
    examples = encode_examples(session.rendering, problems, session.context, session.device)
    if examples.last_only:
        session.say_once(LAST_ONLY)
    return problems, examples


def step(session: LlmSession, answers: Completions, loss: float) -> dict[str, float]:
    """One optimizer step on the gradient that the policy holds. Returns its metrics."""
    session.tokens += int(answers.mask.sum())
    return session.update(POLICY, loss)


def update(session: LlmSession) -> dict[str, float]:
    """One update on fresh examples outside of a run, as `run` makes it. Returns its metrics."""
    _, examples = next_examples(session)
    measured = retried(gradients)(session, examples.prompts, examples.answers)
    return measured | step(session, examples.answers, measured["loss"])


@part_of("update")
def gradients(session: LlmSession, prompts: Prompts, answers: Completions, met: Met | None = None) -> dict[str, float]:
    """Compute the gradient of L = −(1/N) Σ log π(y_t) or of another SFT loss and leave it in the policy; N is the
    number of tokens of all `answers`. Returns the measurements of this update."""
    knobs = session.knobs
    if met:
        met.clear()
    choice = SFT_LOSS[str(knobs.get("sft_loss", "nll"))]
    total, loss, right, entropies = answers.mask.sum(), 0.0, 0, 0.0
    taught: list[Sequence[Tensor]] = []
    for some, rows in micro_batches(session.policy, prompts, answers.ids, session.room):
        ids, mask = answers.ids[rows], answers.mask[rows]
        logprobs, entropy, likeliest, *of_teacher = _at_answers(session, prompts[some], ids, met)
        if met:
            met.see(logprobs, entropy)
        losses = of_teacher[0] if choice.teacher else call(member(SFT_LOSS, choice.key), knobs, {"logprobs": logprobs})
        part = (losses * mask).sum() / total
        part.backward()
        loss += part.item()
        right += int(((likeliest == ids) & mask).sum())
        entropies += float((entropy * mask).sum())
        taught += [of_teacher[1:]] if of_teacher else []
    measured = {"loss": loss, "mean_token_accuracy": right / int(total), "entropy": entropies / int(total)}
    return measured | measures(taught, answers.mask)


@retried
@torch.no_grad()
def given_answers(session: LlmSession, prompts: Prompts, answers: Completions) -> tuple[float, float]:
    """The loss on given answers, per token, and the share of their tokens that are the policy's first choice. The loss
    is the run's own if it has a teacher, else −log π. DFT's own loss is not used, because it is near 0 at tokens to
    which the policy gives almost no probability, so it also falls while the policy memorises its rows."""
    loss, right = 0.0, 0
    for some, rows in micro_batches(session.policy, prompts, answers.ids, session.room):
        ids, mask = answers.ids[rows], answers.mask[rows]
        logprobs, _, likeliest, *of_teacher = _at_answers(session, prompts[some], ids)
        loss += float(((of_teacher[0] if of_teacher else -logprobs) * mask).sum())
        right += int(((likeliest == ids) & mask).sum())
    total = int(answers.mask.sum())
    return loss / total, right / total


def _at_answers(session: LlmSession, prompts: Prompts, ids: Tensor, met: Met | None = None) -> tuple[Tensor, ...]:
    """Of each token: the log-prob, the entropy before it, the likeliest token there, and with a teacher the loss, the
    forward KL, the reverse KL and the agreement (see `teacher.compared`). (B, T) each"""
    knobs = session.knobs
    taught = any(choice.teacher for choice in chosen(SFT_LOSS, knobs))
    theirs = Distributions.of(session, prompts, ids) if taught else None
    with precision(session.policy, knobs["dtype"]):
        return at_tokens(session.policy, prompts, ids, theirs.measure(knobs) if theirs else _measure,
                         met.norms_of(ids) if met else None, beside=(theirs.states,) if theirs else ())


def _measure(logits: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    """The log-prob of each token, the entropy before it, and the token that was likeliest there."""
    return *logprobs_and_entropy(logits, ids, entropy_grad=False), logits.detach().argmax(-1)
