"""The baseline of a completion's reward, and the arithmetic of its advantage. Pure.

A formula is shown only where it gives the advantage that was recorded: what it lacks, such as the rewards of the whole
batch, is not in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import Any

from app.llm.microscope import words
from app.llm.microscope.lines import Line, bracketed, less, plain
from labcore.catalog.choice import Advantage
from labcore.catalog.choices import ADVANTAGE, NORMALISATION
from labcore.catalog.knob import Value
from labcore.catalog.worked import Numbers

TERMS = ("advantage", "reward", "group_mean", "group_std", "value")


def earned(completion: Mapping[str, Any]) -> float | None:
    """The reward that the advantage is made from: after shaping, with a KL that is in it."""
    reward: float | None = completion.get("earned", completion.get("reward"))
    return reward


def rewards_of(group: Mapping[str, Any]) -> list[float]:
    """The rewards of the completions that could be scored."""
    return [reward for each in group["completions"] if (reward := earned(each)) is not None]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def spread(values: list[float]) -> float:
    """Their standard deviation, with one degree of freedom less; 0 of one value."""
    middle = mean(values)
    return sqrt(sum((each - middle) ** 2 for each in values) / max(1, len(values) - 1))


def _numbers(group: Mapping[str, Any], completion: Mapping[str, Any], advantage: float | None,
             knobs: Mapping[str, Value]) -> Numbers:
    """The numbers for the arithmetic of an advantage: the completion's reward, and its group's."""
    reward, rewards = earned(completion), rewards_of(group)
    found = words.numbers(knobs, reward=reward,
                          baseline=None if reward is None or advantage is None else reward - advantage)
    if rewards:
        found |= {"mean": mean(rewards), "std": spread(rewards)}
    if reward is not None and len(rewards) > 1:
        found |= {"others": (sum(rewards) - reward) / (len(rewards) - 1),
                  "rest": sorted(rewards)[-2 if reward == max(rewards) else -1]}
    return found


def baseline(group: Mapping[str, Any], completion: Mapping[str, Any], knobs: Mapping[str, Value]) -> float | None:
    """The baseline of the completion's reward; None where the file does not say."""
    kind = str(knobs.get("advantage", ""))
    if earned(completion) is None or not rewards_of(group) or not kind:
        return None
    if ADVANTAGE[kind].critic:
        first: float | None = (completion.get("values") or [None])[0]
        return first
    own = "" if _normalised(knobs) else "baseline"  # what is left of the advantage, where it is a plain difference
    of, said = _numbers(group, completion, completion.get("advantage"), knobs), words.names(ADVANTAGE[kind])
    return next((of[name] for name in ("others", "mean", own) if name in said and name in of), None)


def _normalised(knobs: Mapping[str, Value]) -> bool:
    return str(knobs.get("normalisation", NORMALISATION.names[0])) != NORMALISATION.names[0]


def lines(group: Mapping[str, Any], completion: Mapping[str, Any], place: int,
          knobs: Mapping[str, Value]) -> list[Line]:
    """The advantage of a token."""
    chosen, advantage = ADVANTAGE[str(knobs["advantage"])], completion["advantages"][place]
    if chosen.level == "token":
        return _of_token(completion, place, knobs, advantage)
    line = Line("Advantage", "Â", terms=TERMS, source="advantage")
    if _normalised(knobs):
        line = replace(line, note=f"{chosen.label}, then normalised over the batch")
    return words.lines(chosen, _numbers(group, completion, advantage, knobs), advantage, line)


def _of_token(completion: Mapping[str, Any], place: int, knobs: Mapping[str, Value], advantage: float) -> list[Line]:
    """The lines of a reward for each token: with a critic, δ and the advantage from the returns that it learns."""
    chosen = ADVANTAGE[str(knobs["advantage"])]
    if chosen.teacher:
        return _of_teacher(chosen, completion, place, knobs, advantage)
    rewards, values, returns = (completion.get(key) for key in ("rewards", "values", "returns"))
    found = [] if not rewards else [Line("Token reward", "r", "", "", plain(rewards[place]), "the completion's reward "
                                         "is given at its last token" if place + 1 < len(rewards) else "", ("reward",))]
    whitened = "whitened over the batch's tokens" if knobs.get("whiten_advantages") else ""
    if not (values and rewards and returns):
        return [*found, Line("Advantage", "Â", "", "", plain(advantage), chosen.label, TERMS, "advantage")]
    value, ahead = values[place], values[place + 1] if place + 1 < len(values) else 0.0
    gamma = float(knobs["gamma"])
    return [*found,
            Line("Value", "V", "", "", plain(value), "of the critic, before the updates", ("value",)),
            Line("TD error", "δ", "r + γ V′ − V", f"{plain(rewards[place])} + {plain(gamma)} × {bracketed(ahead)} − "
                 f"{bracketed(value)}", plain(rewards[place] + gamma * ahead - value), "", ("value", "reward",
                                                                                            "knob_gamma")),
            Line("Advantage", "A", "Σ (γλ)ˡ δ = R̂ − V", less(returns[place], value), plain(returns[place] - value),
                 "" if whitened else "as used in the loss", (*TERMS, "target"), "advantage"),
            *([Line("", "Â", "", "", plain(advantage), whitened, TERMS)] if whitened else [])]


def _of_teacher(chosen: Advantage, completion: Mapping[str, Any], place: int, knobs: Mapping[str, Value],
                advantage: float) -> list[Line]:
    """The advantage from the log-probs of the teacher and of the policy that sampled."""
    theirs, own = completion.get("teacher_logprobs"), completion.get("old_logprobs")
    of = words.numbers(knobs, advantage=advantage, teacher_logprobs=theirs[place] if theirs else None,
                       old_logprobs=own[place] if own else None)
    note = "whitened over the batch's tokens" if knobs.get("whiten_advantages") else ""
    return words.lines(chosen, of, advantage, Line("Advantage", "Â", note=note, terms=TERMS, source="advantage"))
