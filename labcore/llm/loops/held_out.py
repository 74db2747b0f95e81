"""Evaluate on held-out rows in any training loop: before the first step, every `held_out_every` steps, and after the
last step. Where that knob is 0, `interval` computes it from the sizes of the batch and of an evaluation: no clock
decides which steps have these metrics, so a resumed run and a replay have them at the same steps.

A record holds the metrics of the policy after its step; the first record holds those from before training. Evaluation
draws none of the run's random numbers and moves none of its counters, so a run trains the same with or without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import Tensor

from labcore.llm.generation import Generated, Sampling, generate
from labcore.llm.loops import preference, sft
from labcore.llm.pairs import Pairs
from labcore.llm.probes import watched
from labcore.llm.rendering import encode_examples
from labcore.llm.rewards import Rewards, reward, verified
from labcore.llm.session import LlmSession
from labcore.maths.pass_at_k import pass_at_k
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record
from labcore.tasks.held_out import problems_of
from labcore.tasks.task import Pair, Problem, Single, held_of

STREAM = 2**32 + 8  # a tag that no step has, nor a probe: see `probes.answer`
AT_ONCE = 32  # completions that are drawn at once, or as many as the run draws itself
EVERY, SHARE, SAMPLED = 25, 0.1, 2  # see `interval`
PASSES = (2, 4, 8, 16, 32, 64)  # k of pass@k, up to the samples of a prompt
Rows = Sequence[Problem | Pair | Single]
Score = Callable[[LlmSession, list[Problem], Generated], Rewards]


def beside(session: LlmSession, records: Iterator[Record | None]) -> Iterator[Record | None]:
    """Yield the records of a loop; records of steps that are due also get the metrics of held-out rows."""
    found = measured(session) if session.step == 0 else {}
    for record in records:
        if record is not None:
            if not found and _due(session):
                found = measured(session)
            record, found = replace(record, metrics=record.metrics | found), {}
        yield record


def _due(session: LlmSession) -> bool:
    """True if the policy after this step is measured: at the end, and at the interval."""
    last = session.step >= session.spec.steps or session.finished_because
    return bool(last) or session.step % interval(session) == 0


def interval(session: LlmSession) -> int:
    """Steps between two evaluations: the run's own setting, otherwise EVERY, or more if an evaluation would cost over
    SHARE of the training between two. A sampled completion costs SAMPLED, a learnt one 1."""
    knobs, rows = session.knobs, len(held_of(session.task))
    if every := int(knobs["held_out_every"]):
        return every
    sampled = int(knobs.get("prompts_per_step", 0)) * int(knobs.get("group_size", 1))
    given = 2 * int(knobs.get("pairs_per_step", 0)) or int(knobs.get("sequences_per_step", 1))
    step = SAMPLED * sampled + int(knobs.get("updates_per_batch", 1)) * (sampled or given)
    of_row = SAMPLED * (1 + int(knobs["held_out_samples"])) if session.spec.task_row.verifiable else 1
    return max(EVERY, ceil(min(rows, int(knobs["held_out_prompts"])) * of_row / (SHARE * step)))


def measured(session: LlmSession) -> dict[str, float]:
    """The metrics of the current policy on the first held-out rows, which are a random sample."""
    alone = watched.apart(session, session.step, STREAM)
    rows = list(held_of(session.task))[:int(session.knobs["held_out_prompts"])]
    found = {key: value for measure in MEASURES[session.spec.row.loop] for key, value in measure(alone, rows).items()}
    return {f"held_out/{key}": value for key, value in found.items()} | {"held_out/rows": len(rows)} if found else {}


def answers(alone: LlmSession, rows: Rows) -> dict[str, float]:
    """One greedy and several sampled completions of each prompt: accuracy, pass@k, reward and lengths; nothing of a
    task without a verifier."""
    if not alone.spec.task_row.verifiable:
        return {}
    problems, samples = problems_of(rows), int(alone.knobs["held_out_samples"])
    score = reward if "reward_source" in alone.knobs else verified
    drawn = _drawn(alone, problems, samples, score)  # of few prompts at once, so that the first token comes soon
    greedy = _drawn(alone, problems, 1, verified, greedy=True)
    right = torch.cat([rewards.exact for _, rewards in drawn]).view(len(problems), samples)
    total = torch.cat([rewards.total for _, rewards in drawn])
    scored = total[~total.isnan()]
    lengths = torch.cat([generated.completions.lengths for generated, _ in drawn])
    truncated = torch.cat([generated.completions.truncated for generated, _ in drawn])
    return {"greedy": _mean(torch.cat([rewards.exact for _, rewards in greedy])), "accuracy": _mean(right),
            **{f"pass@{k}": _mean(pass_at_k(right.sum(1), samples, k)) for k in PASSES if k <= samples},
            **({"reward": _mean(scored)} if len(scored) else {}),
            "mean_length": _mean(lengths), "truncated_frac": _mean(truncated)}


def _drawn(alone: LlmSession, problems: list[Problem], samples: int, score: Score,
           greedy: bool = False) -> list[tuple[Generated, Rewards]]:
    """`samples` completions of each problem with their rewards, sampled in parts no larger than the run's own batch."""
    sampling, found = replace(Sampling.of(alone.knobs), greedy=greedy), []
    at_once = max(1, _at_once(alone.knobs) // samples)
    for start in range(0, len(problems), at_once):
        some = problems[start: start + at_once]
        with part_of(f"{'greedy' if greedy else 'sampled'} completions of held-out prompts {start + 1} to "
                     f"{start + len(some)} of {len(problems)}"):
            generated = generate(alone, alone.policy, some, samples, sampling)
            found.append((generated, score(alone, some, generated)))
    return found


def _at_once(knobs: Mapping[str, Any]) -> int:
    """The number of completions that a run samples at once."""
    own = int(knobs.get("prompts_per_step", 0)) * int(knobs.get("group_size", 1))
    return max(AT_ONCE, own, int(knobs.get("eval_prompts", 0)))


def loss(alone: LlmSession, rows: Rows) -> dict[str, float]:
    """The loss per token on the rows' desired answers (see `sft.given_answers`), and the share of their tokens that
    are the policy's first choice; empty if no row has a desired answer."""
    if not (problems := problems_of(rows)):
        return {}
    found = encode_examples(alone.rendering, problems, alone.context, alone.device)
    value, right = sft.given_answers(alone, found.prompts, found.answers)
    return {"loss": value, "token_accuracy": right}


def pairs(alone: LlmSession, rows: Rows) -> dict[str, float]:
    """Metrics of a preference file: for pairs, how often and by how much the policy prefers the chosen side; for single
    completions, the gap between the labels; none for a file of prompts."""
    found = Pairs([row for row in rows if isinstance(row, Pair)],
                  singles=[row for row in rows if isinstance(row, Single)])
    if not (found.pairs or found.singles):
        return {}
    measures = preference.measures(alone, found)
    return {name: measures[key] for name, key in (("pair_accuracy", "rewards/accuracies"),
                                                  ("margin", "rewards/margins")) if key in measures}


MEASURES: Mapping[str, tuple[Callable[[LlmSession, Rows], dict[str, float]], ...]] = {
    "online": (answers,), "sft": (loss, answers), "preference": (pairs, answers),
    **dict.fromkeys(("prm", "reward_model"), ())}  # which measure their own networks on them


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
