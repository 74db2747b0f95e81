"""The policy beside π_ref and π*, as JSON for the page: the completions that matter most, and all others together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labcore.llm.exact.problem import Enumerated
from labcore.llm.exact.truth import Truth

SHOWN = 24  # completions of a prompt


@torch.no_grad()
def of(problem: Enumerated, truth: Truth, logp: Tensor, ref_logp: Tensor, beta: float) -> dict[str, Any]:
    """`prompts`, each with `rows`, the likeliest first, and `rest`: how many others there are, and their probability.

    A row has its text, whether it ended, its mean reward and its probability under `policy`, `reference` and, where
    there is one, `optimum`. Likely is what is likely under any of the three.
    """
    columns = {"policy": logp, "reference": ref_logp}
    if truth.optimum is not None:
        columns["optimum"] = truth.optimum
    return {"beta": beta, "completions": len(problem.texts),
            "prompts": [_prompt(problem, place, {key: each[place].exp() for key, each in columns.items()})
                        for place in range(len(problem.problems))]}


def _prompt(problem: Enumerated, place: int, columns: dict[str, Tensor]) -> dict[str, Any]:
    likely = torch.stack([*columns.values()]).amax(0)
    first = likely.argsort(descending=True, stable=True)[:SHOWN]
    ended, rewards = (~problem.space.completions.truncated).tolist(), problem.rewards[place].tolist()
    lists = {key: column.tolist() for key, column in columns.items()}
    rows = [{"text": problem.texts[at], "ended": ended[at], "reward": rewards[at],
             **{key: round(each[at], 6) for key, each in lists.items()}} for at in first.tolist()]
    rest = {"count": len(problem.texts) - len(rows),
            **{key: round(max(0.0, 1 - float(column[first].sum())), 6) for key, column in columns.items()}}
    return {"prompt": problem.problems[place].prompt, "rows": rows, "rest": rest}
