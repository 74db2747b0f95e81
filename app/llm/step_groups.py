"""The prompts of a step with their distinct completions, read from a samples file. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from app.llm import reward_parts, sample_age

WATCHED, BATCH = tuple(f"w{place}" for place in range(4)), tuple(f"b{place}" for place in range(8))

Key = tuple[str, bool]  # an answer: its text, and whether it was truncated at the length limit
Group = dict[str, Any]


def key_of(answer: dict[str, Any]) -> Key:
    """Return the key that equal answers share."""
    return answer["text"], bool(answer.get("truncated"))


def groups_of(samples: dict[str, Any]) -> dict[str, Group]:
    """The prompts that can be shown by their name in the link: the watched ones, then those of the step's batch.

    Batches without log-probs, as some trainers send them, are used only if there is nothing else.
    """
    watched = dict(zip(WATCHED, samples.get("watched", []), strict=False))
    batch = [of_batch(group) for group in samples.get("groups", [])
             if all("old_logprobs" in completion for completion in group["completions"])]
    pairs = [] if watched else [_of_pair(pair) for pair in samples.get("pairs", [])]
    found = watched | dict(zip(BATCH, batch or pairs, strict=False))
    return found or dict(zip(BATCH, map(of_batch, samples.get("groups", [])), strict=False))


def of_batch(group: Group) -> Group:
    """A group of the batch in the form of a watched prompt: equal answers are merged, and their advantage is the
    mean."""
    found: dict[Key, list[dict[str, Any]]] = {}
    for completion in group["completions"]:
        found.setdefault(key_of(completion), []).append(completion)
    return {"prompt": group["prompt"], "answer": group.get("answer"), "answers": [
        {"text": same[0]["text"], "truncated": same[0].get("truncated", False), "exact": same[0].get("exact"),
         "count": len(same), "reward": _mean(same, "reward"), "advantage": _mean(same, "advantage"),
         "parts": reward_parts.mean(same), "steps": _steps(same[0]),
         "logprob_teacher": _total(same[0].get("teacher_logprobs")),
         **likelihoods(_total(sample_age.before(group, same[0])), _total(same[0].get("logprobs")))}
        for same in found.values()], **{key: group[key] for key in ("age", "rendered") if key in group}}


def _steps(completion: dict[str, Any]) -> list[list[Any]]:
    """Return the text, the score and the verifier's label of each step; empty if steps were not scored."""
    found, text = [], ""
    gold = completion.get("step_gold") or []
    for place, score in enumerate(completion.get("step_scores") or []):
        text += completion["tokens"][place]
        if score is not None:
            found.append([text, score, gold[place] if gold else None])
            text = ""
    return found


def _of_pair(pair: dict[str, Any]) -> Group:
    """Convert a pair of the batch, which has log-probs only from before the update."""
    return {"prompt": pair["prompt"], "answer": None, "margin_before": pair["margin"], "margin_after": None,
            "answers": [{"text": pair[role]["text"], "truncated": False, "exact": None, "count": 0, "reward": None,
                         "advantage": None, "role": role, **likelihoods(pair[role].get("logprob"), None)}
                        for role in ("chosen", "rejected")]}


def likelihoods(before: float | None, after: float | None) -> dict[str, float | None]:
    """An answer's log-probs (nats) before and after the updates, and its probabilities."""
    return {"logprob_before": before, "logprob_after": after,
            **{when: None if logprob is None else exp(min(logprob, 0.0))
               for when, logprob in (("before", before), ("after", after))}}


def _total(logprobs: Sequence[float | None] | None) -> float | None:
    """Return the sum over the tokens; None if any of them is missing."""
    known = [logprob for logprob in logprobs or [None] if logprob is not None]
    return sum(known) if len(known) == len(logprobs or [None]) else None


def _mean(completions: list[dict[str, Any]], key: str) -> float | None:
    found = [each[key] for each in completions if each.get(key) is not None]
    return sum(found) / len(found) if found else None
