"""The effective action space: how much probability the k likeliest tokens hold, by position along sampled completions.

Each model answers fresh prompts of its task once, at its run's own temperature. Before every token that it writes, its
distribution over the whole vocabulary is sorted, and the probabilities of the first k are added up. All completions
have different prompts drawn independently, so that they are independent of each other and their mean has a usual
interval. Left out: top-k and top-p, which would cut the very tail that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.errors import LabError
from labcore.llm.generation import Sampling, generate
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.nets.micro_batches import micro_batches
from labcore.llm.probes.answer import MOST_MODELS, MOST_QUESTIONS, reader, task_of, whole
from labcore.llm.session import LlmSession
from labcore.runs.spec.model_names import parse

TOP = (1, 2, 4, 8, 16)
STREAM = 2**32 + 4  # a tag that no step of a run has, as of the other probes
LEAST = 8  # completions that still run at a position; of fewer no mean is shown
DRAWS, LEVEL = 1_000, 0.95  # of the percentile bootstrap


def action_space(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Of each of `models` the mass of its TOP tokens by position, from `count` prompts drawn by `seed`. Raises LabError
    if a model or its task cannot be used, the models' tasks differ, or a setting is out of bounds."""
    names = [parse(str(name)).pinned.name for name in spec["models"]]
    if not 1 <= len(names) <= MOST_MODELS:
        raise LabError(f"{len(names)} models were asked: choose one to {MOST_MODELS}.")
    count, seed = whole(spec, "count", LEAST, MOST_QUESTIONS), whole(spec, "seed", 0, 2**31 - 1)
    columns, tasks = [], {}
    for name in names:
        session = reader(name, {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}, seed)
        tasks[task_of(session)] = name
        if len(tasks) > 1:
            raise LabError(f"{' and '.join(tasks.values())} learnt different tasks, or one with different settings: "
                           "choose models of one task.")
        mass, mask = sampled_mass(session, count, seed)
        columns.append({"model": name, "vocabulary": session.policy.config.get_text_config().vocab_size,
                        "temperature": session.knobs["temperature"], "samples": len(mass),
                        "longest": int(mask.sum(1).max()), "positions": by_position(mass.numpy(), mask.numpy())})
    return {"top": list(TOP), "least": LEAST, "columns": columns}


def top_mass(logits: Tensor, top: Sequence[int] = TOP) -> Tensor:
    """The probability of the k likeliest tokens together, for each k of `top`. (…, V) -> (…, K)

    Where the vocabulary has no more than k tokens that is 1.
    """
    most = min(max(top), logits.shape[-1])
    together = logits.float().softmax(-1).topk(most, -1).values.cumsum(-1).clamp(max=1)
    return together[..., [min(k, most) - 1 for k in top]]


def _mass(logits: Tensor, _: Tensor, temperature: float) -> tuple[Tensor]:
    return (top_mass(logits.float() / temperature),)


@torch.no_grad()
def sampled_mass(session: LlmSession, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The mass before each token of one completion of each prompt, (N, T, K), and which tokens count, (N, T)."""
    problems = session.task.problems(min(count, session.task.size or count), np.random.default_rng((seed, STREAM)))
    generated = generate(session, session.policy, problems, 1, Sampling.of(session.knobs))
    ids = generated.completions.ids
    parts: list[Tensor] = []
    measure = partial(_mass, temperature=session.knobs["temperature"])
    for some, rows in micro_batches(session.policy, generated.prompts, ids, session.room):
        with precision(session.policy, session.knobs["dtype"]):
            parts += at_tokens(session.policy, generated.prompts[some], ids[rows], measure)
    return torch.cat(parts).cpu(), generated.completions.mask.cpu()


def by_position(mass: np.ndarray, mask: np.ndarray) -> list[dict[str, Any]]:
    """Means over the completions that still run at each position, and their intervals. (N, T, K), (N, T) -> T rows

    `mass` and `low`, `high` (95 % by the percentile bootstrap over completions) have a number for each k. The list
    ends where fewer than LEAST completions still run: a mean of a few long ones would be of other prompts.
    """
    rng, rows = np.random.default_rng(STREAM), []
    for place in range(mask.shape[1]):
        here = mass[mask[:, place], place].astype(float)  # (n, K)
        if len(here) < LEAST:
            break
        draws = here[rng.integers(len(here), size=(DRAWS, len(here)))].mean(1)  # (DRAWS, K)
        low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        rows.append({"samples": len(here), "mass": _rounded(here.mean(0)), "low": _rounded(low),
                     "high": _rounded(high)})
    return rows


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in values]
