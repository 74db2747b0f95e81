"""The optimum π* as a teacher: a policy whose probability of every completion is known, stored as a table."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labcore.catalog.exact import BETA
from labcore.llm.batch import Prompts
from labcore.llm.exact.problem import Space, enumerate_problem, logprobs
from labcore.llm.exact.truth import optimum
from labcore.llm.nets.table import SoftmaxTable, build_table, places
from labcore.llm.session import LlmSession
from labcore.tasks.enumerable import Enumerable


def optimum_of(session: LlmSession) -> SoftmaxTable:
    """π* of the session's problem and reference at BETA."""
    problem = enumerate_problem(session, cast(Enumerable, session.task))
    with torch.no_grad():
        ref_logp = logprobs(session.reference, problem.prompts, problem.space, float(session.knobs["temperature"]))
    star, _ = optimum(ref_logp, problem.rewards, BETA)
    return table_of(star, problem.prompts, problem.space, len(session.tokenizer), session.context)


def table_of(logp: Tensor, prompts: Prompts, space: Space, vocabulary: int, context: int) -> SoftmaxTable:
    """The table with π(v | prefix) = Σ_{y with prefix and v} π(y) / Σ_{y with prefix} π(y), frozen. logp (P, N) nats

    Prefixes that no completion of a prompt has are uniform.
    """
    table, count = build_table(vocabulary, context, 0, 0), len(space)
    table.to(logp.device)
    ids, mask = (each.repeat(len(prompts), 1) for each in (space.completions.ids, space.completions.mask))
    asked, there = (each.repeat_interleave(count, 0) for each in (prompts.ids, prompts.mask))
    rows = places(torch.cat([asked, ids[:, :-1]], 1), torch.cat([there, torch.ones_like(ids[:, :-1]).bool()], 1),
                  vocabulary)[:, prompts.ids.shape[1] - 1:]
    likely = logp.detach().exp().flatten()[:, None].expand_as(ids)
    table.requires_grad_(False)
    entries = table.model.entries.weight
    mass = torch.zeros_like(entries, dtype=torch.float64).index_put((rows[mask], ids[mask]), likely[mask], True)
    known = mass.sum(1) > 0
    entries.zero_()
    entries[known] = (mass[known].log() - mass[known].sum(1, keepdim=True).log()).to(entries) / table.config.scale
    return table
