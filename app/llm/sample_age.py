"""Say how old the samples of a step are, and how likely they were when its updates began. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def said(group: Mapping[str, Any]) -> str:
    """The age of a group; empty where the policy sampled it right before the step.

    >>> said({"age": 6}), said({"age": 1}), said({"age": 0}), said({})
    ('sampled 6 updates ago', 'sampled 1 update ago', '', '')
    """
    age = group.get("age") or 0
    return f"sampled {age:,} update{'s' if age > 1 else ''} ago" if age else ""


def sentence(group: Mapping[str, Any]) -> str:
    """A sentence on the age of a group's completions.

    >>> sentence({"age": 6})
    'The completions were sampled 6 updates ago, by an older policy.'
    """
    words = said(group)
    return f"The completions were {words}, by an older policy." if words else ""


def before(group: Mapping[str, Any], completion: Mapping[str, Any]) -> Sequence[float | None] | None:
    """The log-prob of each token before the updates of the step: the recorded old ones, or where these are an older
    policy's, with the recorded distance from it. None where that was not recorded.

    >>> before({"age": 2}, {"old_logprobs": [-1.0, -2.0], "met": {"gap": [0.5, -0.25]}})
    [-0.5, -2.25]
    >>> before({}, {"old_logprobs": [-1.0, -2.0], "met": {"gap": [0.5, -0.25]}})
    [-1.0, -2.0]
    """
    old: Sequence[float | None] | None = completion.get("old_logprobs")
    if old is None or "sampler_logprobs" in completion or "age" not in group:
        return old
    gap = completion.get("met", {}).get("gap")
    return None if gap is None else [None if None in (one, apart) else one + apart
                                     for one, apart in zip(old, gap, strict=True)]
