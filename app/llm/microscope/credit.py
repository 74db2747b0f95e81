"""What a completion's reward is compared with, and the arithmetic of its advantage. Pure.

A formula is shown only where it gives the advantage that was recorded: what it lacks, such as the rewards of the whole
batch, is not in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from app.llm.microscope.lines import Line, agrees, bracketed, less, plain
from labcore.catalog.choices import ADVANTAGE
from labcore.catalog.knob import Value

EPS = 1e-4  # of `labcore.maths.advantages`, beside a standard deviation
TERMS = ("advantage", "reward", "group_mean", "group_std", "value")
GROUPED = ("group_mean", "group_standardised", "batch_standardised", "leave_one_out")


def earned(completion: Mapping[str, Any]) -> float | None:
    """The reward that the advantage is made from: after shaping, with a KL that is in it."""
    reward: float | None = completion.get("earned", completion.get("reward"))
    return reward


def rewards_of(group: Mapping[str, Any]) -> list[float]:
    """Those of the completions that could be scored."""
    return [reward for each in group["completions"] if (reward := earned(each)) is not None]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def spread(values: list[float]) -> float:
    """Their standard deviation, with one degree of freedom less; 0 of one value."""
    middle = mean(values)
    return sqrt(sum((each - middle) ** 2 for each in values) / max(1, len(values) - 1))


def baseline(group: Mapping[str, Any], completion: Mapping[str, Any], knobs: Mapping[str, Value]) -> float | None:
    """What the completion's reward is compared with; None where the file does not say."""
    kind, reward, rewards = str(knobs.get("advantage", "")), earned(completion), rewards_of(group)
    if reward is None or not rewards or not kind:
        return None
    if kind == "leave_one_out":
        return (sum(rewards) - reward) / (len(rewards) - 1) if len(rewards) > 1 else None
    if kind in GROUPED:
        return mean(rewards)
    if ADVANTAGE[kind].critic:
        first: float | None = (completion.get("values") or [None])[0]
        return first
    simple = ADVANTAGE[kind].level == "sequence" and knobs.get("normalisation", "none") == "none"
    if simple and kind in ("batch_mean", "greedy_baseline", "moving_average") and completion["advantage"] is not None:
        return reward - float(completion["advantage"])
    return None


def lines(group: Mapping[str, Any], completion: Mapping[str, Any], place: int,
          knobs: Mapping[str, Value]) -> list[Line]:
    """The advantage of a token."""
    kind, advantage = str(knobs["advantage"]), completion["advantages"][place]
    if ADVANTAGE[kind].level == "token":
        return _of_token(completion, place, knobs, advantage)
    formula, worked, found = _of_sequence(group, completion, kind, advantage)
    shown = agrees(found, advantage) if found is not None else False
    normalised = str(knobs.get("normalisation", "none")) != "none"
    note = "" if shown and not normalised else ADVANTAGE[kind].label + (", then normalised over the batch"
                                                                       if normalised else "")
    return [Line("Advantage", "Â", formula if shown else "", worked if shown else "", plain(advantage), note, TERMS,
                 "advantage")]


def _of_sequence(group: Mapping[str, Any], completion: Mapping[str, Any], kind: str,
                 advantage: float) -> tuple[str, str, float | None]:
    """(formula, with its numbers, what comes out) of an advantage that a whole completion has."""
    reward, rewards = earned(completion), rewards_of(group)
    if kind == "one":
        return "1", "", 1.0
    if reward is None:
        return "", "", None
    if kind == "group_standardised":
        middle, wide = mean(rewards), spread(rewards)
        return ("(R − mean R) / (std R + 10⁻⁴)", f"({less(reward, middle)}) / ({plain(wide)} + 0.0001)",
                (reward - middle) / (wide + EPS) if wide else 0.0)
    if kind == "leave_one_out" and len(rewards) > 1:
        others = (sum(rewards) - reward) / (len(rewards) - 1)
        return "R − mean of the others' R", less(reward, others), reward - others
    if kind == "group_mean":
        return "R − mean R", less(reward, mean(rewards)), reward - mean(rewards)
    named = {"batch_mean": "R − mean R of the batch", "greedy_baseline": "R − R of the greedy completion",
             "moving_average": "R − mean of all earlier R"}
    if kind in named:
        return named[kind], less(reward, reward - advantage), advantage
    return "", "", None


def _of_token(completion: Mapping[str, Any], place: int, knobs: Mapping[str, Value], advantage: float) -> list[Line]:
    """Those of a reward for each token: with a critic δ and the advantage from the returns it learns."""
    rewards, values, returns = (completion.get(key) for key in ("rewards", "values", "returns"))
    found = [] if not rewards else [Line("Token reward", "r", "", "", plain(rewards[place]), "the completion's is at "
                                         "its last token" if place + 1 < len(rewards) else "", ("reward",))]
    whitened = "whitened over the batch's tokens" if knobs.get("whiten_advantages") or not values else ""
    if not (values and rewards and returns):
        return [*found, Line("Advantage", "Â", "", "", plain(advantage), whitened, TERMS, "advantage")]
    value, ahead = values[place], values[place + 1] if place + 1 < len(values) else 0.0
    gamma = float(knobs["gamma"])
    return [*found,
            Line("Value", "V", "", "", plain(value), "of the critic, before the updates", ("value",)),
            Line("TD error", "δ", "r + γ V′ − V", f"{plain(rewards[place])} + {plain(gamma)} × {bracketed(ahead)} − "
                 f"{bracketed(value)}", plain(rewards[place] + gamma * ahead - value), "", ("value", "reward",
                                                                                            "knob_gamma")),
            Line("Advantage", "A", "Σ (γλ)ˡ δ = R̂ − V", less(returns[place], value), plain(returns[place] - value),
                 "" if whitened else "as it is in the loss", (*TERMS, "target"), "advantage"),
            *([Line("", "Â", "", "", plain(advantage), whitened, TERMS)] if whitened else [])]
