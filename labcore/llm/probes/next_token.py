"""The distribution of a model's next token after a prompt, with its entropy, at some temperatures. No sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labcore.llm.probes.answer import check_known, log_probabilities, reader
from labcore.llm.rendering import encode_prompts
from labcore.llm.token_texts import alternative
from labcore.runs.spec.model_names import parse
from labcore.tasks.task import Problem

TOP = 8  # likeliest tokens that are named
TEMPERATURES = (*(tenths / 10 for tenths in range(1, 16)), 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)


def next_token(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The next token that `model` would write after `prompt`: its TOP `tokens` and, of each temperature, their
    probabilities.

    Of each temperature also the `entropy` of the whole vocabulary, in nats, and the `rest`: the probability of all
    other tokens together. The order is the same at every temperature. Raises LabError if the model cannot be used, or
    the prompt is empty, too long, or has a character without a token.
    """
    name = parse(str(spec["model"])).pinned.name
    session = reader(name, {"temperature": 1.0}, 0)
    check_known(session, str(spec["prompt"]))
    prompts = encode_prompts(session.rendering, [Problem(str(spec["prompt"]), "")], session.context - 1, session.device)
    logs = log_probabilities(session, prompts, torch.zeros_like(prompts.ids[:, :1]))[0].double()  # (V,)
    likeliest = logs.topk(min(TOP, len(logs))).indices
    return {"model": name, "prompt": str(spec["prompt"]), "vocabulary": len(logs),
            "tokens": [alternative(session.tokenizer, prompts.ids[0].tolist(), token) for token in likeliest.tolist()],
            "tempered": [_at(temperature, logs, likeliest) for temperature in TEMPERATURES]}


def _at(temperature: float, logs: Tensor, likeliest: Tensor) -> dict[str, Any]:
    """One temperature: logs (V,) are log-probabilities at 1."""
    tempered = (logs / temperature).log_softmax(-1)
    p = tempered.exp()
    top = p[likeliest]
    return {"temperature": temperature, "entropy": round(float(-(p * tempered).nansum()), 6),
            "top": [round(each, 6) for each in top.tolist()], "rest": round(max(0.0, 1 - float(top.sum())), 6)}
