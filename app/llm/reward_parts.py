"""Describe the parts of a completion's reward, from a step's samples, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.theme import number


def said(item: Mapping[str, Any]) -> str:
    """The parts of an answer's reward; empty where it has none, "–" for one that was not scored.

    >>> said({"reward": 1.5, "parts": {"right": 1.0, "brief": 0.5, "polite": None}})
    'right 1, brief 0.5, polite –'
    """
    return ", ".join(f"{name} {_short(value)}" for name, value in (item.get("parts") or {}).items())


def mean(items: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each part over answers that were sampled, each as often as it was (`count`)."""
    there = [(item["parts"], item.get("count", 1)) for item in items if item.get("parts") and item.get("count", 1)]
    names = dict.fromkeys(name for parts, _ in there for name in parts)
    return {name: _mean([(parts[name], count) for parts, count in there if parts.get(name) is not None])
            for name in names}


def sentence(group: Mapping[str, Any]) -> str:
    """The parts of the rewards that a prompt's answers have earned on average; empty where there are none.

    A watched prompt's answers are judged by the verifier alone: what did not score them is left out.
    """
    found = {name: value for name, value in mean(group["answers"]).items() if value is not None}
    return f"Mean rewards: {said({'parts': found})}." if len(found) > 1 else ""


def _mean(values: list[tuple[float, int]]) -> float | None:
    count = sum(times for _, times in values)
    return sum(value * times for value, times in values) / count if count else None


def _short(value: float | None) -> str:
    text = "–" if value is None else number(value, 3)
    return text.rstrip("0").rstrip(".") if "." in text else text
