"""The loop of the process reward model: learn which steps of answers are right, and measure on answers that are never
learnt from."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.catalog.choices import STEP_LABELS
from labcore.catalog.families.process import RANKINGS
from labcore.errors import LabError
from labcore.llm.loops.scoring import record
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import attempts, micro_batches, retried
from labcore.llm.networks import PROCESS_REWARD_MODEL
from labcore.llm.probes import watched
from labcore.llm.process_rewards import rewards_of_steps
from labcore.llm.session import LlmSession
from labcore.llm.step_labels import Labelled, next_answers, of_rows, tensors
from labcore.llm.steps import Read, encode_steps, step_logits, step_scores
from labcore.maths.masked import masked_mean
from labcore.maths.process import auc, best_of_n, first_errors, step_cross_entropy
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record
from labcore.tasks.steps import separator_of
from labcore.tasks.task import AT_RANDOM, Problem, held_of
from labcore.tasks.usable import OfFile

SHOWN = 16  # answers in the sample view
HELD_OUT_SHARE = 5  # one row of so many is held out of a file that brings no others


def run(session: LlmSession) -> Iterator[Record]:
    """Yield a Record per update; held-out answers are measured after the first and then every so many steps."""
    held_out = split(session)
    while session.step < session.spec.steps:
        found = next_answers(session)
        for attempt in attempts(session):  # once more in smaller micro-batches where memory is short
            with attempt:
                measured = gradients(session, found)
        yield record(session, step(session, *measured), lambda seen: evaluate(seen, held_out), at_end=True)


def split(session: LlmSession) -> Labelled:
    """The answers that are only measured on: held-out rows of a file, else answers that are sampled apart from those of
    training. Rows of a file without held-out ones are split by the seed alone, so a resumed run has the same.

    Raises:
        LabError: the file has one row, or its steps cannot be used.
    """
    apart, count = watched.apart(session, 0), int(session.knobs["eval_answers"])
    if not STEP_LABELS[session.knobs["step_labels"]].from_file:
        groups = ceil(count / int(session.knobs["group_size"]))
        apart.knobs = {**session.knobs, "prompts_per_step": groups, "order": AT_RANDOM}
        return next_answers(apart)
    assert isinstance(session.task, OfFile), "its labels are in the user's file"
    rows: list[Problem] = session.task.rows
    _say_other_steps(session, of_rows(session, rows))
    held = [row for row in held_of(session.task) if isinstance(row, Problem)]
    if held:
        return of_rows(session, held[:count])
    if len(rows) < 2:
        raise LabError("The file has one row with step labels, so none can be held out to measure the model on: give "
                       "two rows or more.")
    order = np.random.default_rng((session.prompt_seed, len(rows))).permutation(len(rows)).tolist()
    taken = {*order[:min(count, max(1, len(rows) // HELD_OUT_SHARE))]}
    session.task.rows = [row for place, row in enumerate(rows) if place not in taken]
    return of_rows(session, [rows[place] for place in sorted(taken)])


def _say_other_steps(session: LlmSession, found: Labelled) -> None:
    """Have a record say that steps of the file hold the separator: completions are then cut into other steps."""
    separator = separator_of(session.knobs)
    steps = [text.removesuffix(separator) for each in found.answers for text in each.texts]
    inside = sum(separator in text for text in steps) if separator else 0
    if inside:
        session.say_once(f"{inside:,} of {len(steps):,} steps in the file contain the step separator "
                         f"{separator!r}, so runs that use this model cut completions into other steps than it has "
                         "learnt: set `step_separator` to a text that no step contains.")


def step(session: LlmSession, loss: float, accuracy: float, tokens: int) -> dict[str, float]:
    """One optimizer step on the gradient that the model holds. Returns the metrics of the update."""
    session.tokens += tokens
    return {"loss": loss, **session.update(PROCESS_REWARD_MODEL, loss), "step_accuracy": accuracy}


@part_of("update")
def gradients(session: LlmSession, found: Labelled) -> tuple[float, float, int]:
    """Leave the gradient of the loss on the labelled steps in the model. The loss, the share of steps on whose side of
    ½ the score is, and the number of tokens."""
    model, read = _model(session), _read(session, found)
    labels, counted = tensors(found.labels, read.steps.shape[1], session.device), _learnt(session, read.steps)
    loss, right, total = 0.0, 0, int(counted.sum())
    for some, rows in micro_batches(model, read.prompts, read.ids, session.room):
        logits = step_logits(model, read.prompts[some], read.ids[rows], read.ends[rows], str(session.knobs["dtype"]))
        there, given = counted[rows], labels[rows]
        part = step_cross_entropy(logits[there], given[there]).sum() / total
        part.backward()
        loss += part.item()
        right += int(((logits[there].diff(dim=-1)[:, 0] > 0) == (given[there] > 0.5)).sum())
    return loss, right / total, read.tokens


def _learnt(session: LlmSession, steps: Tensor) -> Tensor:
    """The steps that are learnt from: all, or the last of each answer alone. bool (B, K) -> (B, K)"""
    if not session.knobs["last_step_only"]:
        return steps
    return steps & (torch.arange(steps.shape[1], device=steps.device) == steps.sum(1, keepdim=True) - 1)


@retried
@part_of("held-out answers")
def evaluate(session: LlmSession, found: Labelled) -> tuple[dict[str, float], dict[str, Any]]:
    """Evaluate the model on held-out answers: metrics and samples."""
    read = _read(session, found)
    scores = step_scores(_model(session), read, str(session.knobs["dtype"]), session.room).double().cpu()
    steps = read.steps.cpu()
    labels = tensors(found.labels, steps.shape[1], torch.device("cpu")).double()
    metrics = _measures(scores, labels > 0.5, steps)
    if found.gold is not None:
        gold = tensors(found.gold, steps.shape[1], torch.device("cpu")) > 0.5
        metrics["eval_label_accuracy"] = float(((labels > 0.5) == gold)[steps].double().mean())
    if found.right is not None and len(found.right) > len(found.problems):
        metrics |= _reranked(session, scores, torch.tensor(found.right).view(len(found.problems), -1))
    return metrics, {"step": session.step, "answers": _shown(session, found, scores),
                     "steps": {"scores": _rounded(scores[steps]), "labels": _rounded(labels[steps])}}


def _measures(scores: Tensor, right: Tensor, steps: Tensor) -> dict[str, float]:
    """The metrics of held-out steps. (B, K) each"""
    said = (scores > 0.5) & steps
    ranked = auc(scores[steps], right[steps])
    return {"eval_step_accuracy": float((said == right)[steps].double().mean()),
            **({"eval_step_auc": ranked} if isfinite(ranked) else {}),
            "eval_first_error": float((first_errors(said, steps) == first_errors(right, steps)).double().mean()),
            "eval_step_score": float(masked_mean(scores.nan_to_num(), steps)),
            "eval_step_right": float(right[steps].double().mean())}


def _reranked(session: LlmSession, scores: Tensor, right: Tensor) -> dict[str, float]:
    """Share of prompts whose answer with the highest score is right. scores (B, K), right bool (P, G)"""
    ranked = {name: rewards_of_steps({**session.knobs, "step_reward": name}, scores).sum(1).view(right.shape)
              for name in RANKINGS}
    return {"best_of_n/sampled": float(right.double().mean()), "best_of_n/any": float(right.any(1).double().mean()),
            **{f"best_of_n/{name}": best_of_n(each, right) for name, each in ranked.items()}}


def _model(session: LlmSession) -> Critic:
    model = session.models[PROCESS_REWARD_MODEL]
    assert isinstance(model, Critic)
    return model


def _read(session: LlmSession, found: Labelled) -> Read:
    return encode_steps(session.rendering, found.problems, found.answers, session.context, session.device)


def _shown(session: LlmSession, found: Labelled, scores: Tensor) -> list[dict[str, Any]]:
    """Some answers step by step, those with a wrong step first."""
    size = len(found.answers) // len(found.problems)
    order = sorted(range(len(found.answers)), key=lambda row: min(found.labels[row]) > 0.5)
    return [{**session.rendering.shown(found.problems[row // size]), "answer": found.problems[row // size].answer,
             "steps": list(found.answers[row].texts), "labels": [round(label, 4) for label in found.labels[row]],
             "scores": _rounded(scores[row, :len(found.answers[row].texts)]),
             **({} if found.gold is None else {"gold": found.gold[row]})} for row in sorted(order[:SHOWN])]


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 5) for value in values.tolist()]
