"""Convert the completions of a line to the samples files that the pages read (`labcore.llm.probes.view.groups` writes
those of the lab's own runs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, isfinite
from typing import Any

from labcore.watch.converting.chat import completion_fields, prompt_fields
from labcore.watch.converting.names import number

BY_TOKEN = ("logprobs", "old_logprobs", "ref_logprobs", "sampler_logprobs", "entropy", "advantages")
OF_A_SIDE = ("text", "final", "tokens", "logprobs", "ref_logprobs", "entropy", "logprob", "ref_logprob")  # of a pair
LARGEST = 80.0  # nats of a log-ratio: a larger one is invalid


def samples_of(line: Mapping[str, Any], step: int) -> dict[str, Any] | None:
    """Return the groups of a step, or its preference pairs; None if the line has none. A completion lacks the fields
    that were not sent."""
    if line.get("pairs") is True:
        pairs = [found for each in _list(line.get("groups")) if (found := _pair(each))]
        return {"step": step, "pairs": pairs} if pairs else None
    groups = [found for each in _list(line.get("groups")) if (found := _group(each))]
    if not groups:
        return None
    count = sum(len(each["completions"]) for each in groups)
    said = line.get("of")
    of = said if isinstance(said, int) else count
    size = len(groups[0]["completions"])
    return {"step": step, "groups": groups, "batch_groups": max(len(groups), -(-of // size)), "wrong_lengths": []}


def _group(said: Any) -> dict[str, Any] | None:
    if not isinstance(said, Mapping):
        return None
    rows = [_completion(each) for each in _list(said.get("completions")) if isinstance(each, Mapping)]
    return {**prompt_fields(said.get("prompt")), "answer": said.get("answer") if isinstance(said.get("answer"), str)
            else None, "completions": rows} if rows else None


def _pair(said: Any) -> dict[str, Any] | None:
    """A chosen and a rejected completion. The margin is the difference of their rewards, None if they have none."""
    group = _group(said)
    if group is None or len(group["completions"]) != 2:
        return None
    sides = [{key: value for key, value in (each | _sums(each)).items() if key in OF_A_SIDE}
             for each in group["completions"]]
    rewards = [each["reward"] for each in group["completions"]]
    return {**{key: group[key] for key in ("prompt", "rendered", "messages") if key in group},
            **dict(zip(("chosen", "rejected"), sides, strict=True)),
            "margin": None if None in rewards else rewards[0] - rewards[1]}


def _sums(completion: Mapping[str, Any]) -> dict[str, float | None]:
    """The log-probs of a whole completion, None if one of a token is missing."""
    return {name.removesuffix("s"): None if None in values else sum(values)
            for name in ("logprobs", "ref_logprobs") if (values := completion.get(name)) is not None}


def _completion(said: Mapping[str, Any]) -> dict[str, Any]:
    rewards = said.get("rewards")
    parts = {str(name): _finite(value) for name, value in rewards.items()} if isinstance(rewards, Mapping) else {}
    reward = parts.pop("reward", None)
    if reward is None:
        known = [value for value in parts.values() if value is not None]
        reward = sum(known) if known else None
    found: dict[str, Any] = {**completion_fields(said.get("text")), "reward": reward, "exact": None,
                             "truncated": said.get("truncated") is True, "advantage": None,
                             **({"parts": parts} if len(parts) > 1 else {})}
    tokens = [str(each) for each in _list(said.get("tokens"))]
    columns = {name: [_finite(each) for each in said[name]] for name in BY_TOKEN if isinstance(said.get(name), list)}
    length = len(tokens) or max(map(len, columns.values()), default=0)
    columns = {name: each[:length] for name, each in columns.items() if len(each) >= length}
    by_token = columns.get("advantages")
    found["advantage"] = _mean(by_token) if by_token else _finite(said.get("advantages"))
    if found["advantage"] is not None and length:
        columns.setdefault("advantages", [found["advantage"]] * length)
    return {**found, **({"tokens": tokens} if tokens else {}), **columns, **_ratios(columns)}


def _ratios(columns: Mapping[str, Sequence[float | None]]) -> dict[str, list[float | None]]:
    """Return each token's ratio to the sampler and its k3 to the reference model, if both sides were sent."""
    found: dict[str, list[float | None]] = {}
    if "logprobs" in columns and "old_logprobs" in columns:
        found["ratio"] = [None if difference is None else exp(difference) for difference in _differences(
            columns["logprobs"], columns["old_logprobs"])]
    if "logprobs" in columns and "ref_logprobs" in columns:
        found["kl"] = [None if difference is None else exp(difference) - 1 - difference for difference in _differences(
            columns["ref_logprobs"], columns["logprobs"])]
    return found


def _differences(left: Sequence[float | None], right: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else min(a - b, LARGEST) for a, b in zip(left, right, strict=False)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _finite(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and isfinite(found) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
