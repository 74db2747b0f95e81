"""A pool of prompts, with the pass rate of each over the run, and the prompts of the next batch from it.

The pool is drawn once from the task, by the seed alone, so a resumed run finds the same prompts; a checkpoint holds the
statistics. Without a pool prompts are drawn as the task draws them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labcore.catalog.llm.difficulty import BY_LEVEL, UNIFORM
from labcore.errors import LabError
from labcore.llm.drawing import next_rows
from labcore.llm.session import LlmSession
from labcore.maths.call import call
from labcore.maths.prompts import CHOICES, newer_rate
from labcore.tasks.task import Problem, prompt_key

STREAM = 2**32 + 8  # a tag that no step has, nor a probe: see `probes.answer`
ROUNDS = 8  # draws from a task that makes its prompts afresh, until the pool has enough different ones


def next_problems(session: LlmSession, count: int, rng: np.random.Generator) -> list[Problem]:
    """The next `count` prompts of a run, from its pool if it has one, otherwise drawn from the task by `rng`. Raises
    LabError if the run chooses prompts by their level and these have no level."""
    if not session.knobs.get("prompt_pool"):
        return next_rows(session, session.task.problems, count, rng)
    pool, rates = _pool(session), rates_of(session)
    weights = weights_of(session, rates).numpy()
    share = 0.0 if session.knobs["prompt_choice"] == UNIFORM else float(session.knobs["explore_share"])
    if count > len(pool):
        return [pool[place] for place in _repeated(weights, share, count, rng)]
    others = int(rng.binomial(count, share))
    chosen = _drawn(weights, count - others, rng)
    rest = np.setdiff1d(np.arange(len(pool)), chosen)
    return [pool[place] for place in (*chosen, *rng.permutation(rest)[:count - len(chosen)])]


def _drawn(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` different places by their weights, or all that have one."""
    able = int((weights > 0).sum())
    return rng.choice(len(weights), min(count, able), replace=False, p=weights / weights.sum()) if able else np.array(
        [], dtype=int)


def _repeated(weights: np.ndarray, share: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` places. There are fewer places than that, so some repeat: a `share` of them is drawn uniformly, the
    others by their weights."""
    if (weights == weights[0]).all():
        return rng.choice(len(weights), count)
    return rng.choice(len(weights), count, p=(1 - share) * weights / weights.sum() + share / len(weights))


def weights_of(session: LlmSession, rates: Tensor) -> Tensor:
    """The weights by which the pool's prompts are drawn in the next step. (N,)"""
    choice, levels = str(session.knobs["prompt_choice"]), [problem.level for problem in _pool(session)]
    if choice == BY_LEVEL and None in levels:
        raise LabError("These prompts have no levels: set `easiest` for a task that has it, give each row of your file "
                       "a field level, or set `prompt_choice=easy_first`.")
    given = {"rates": rates, "progress": session.step / int(session.knobs["curriculum_steps"]),
             "levels": torch.tensor([level or 0 for level in levels], dtype=torch.float64)}
    found: Tensor = call(CHOICES[choice], session.knobs, given)
    return found


def take_note(session: LlmSession, problems: list[Problem], exact: Tensor) -> None:
    """Update the pass rates by the new completions of some prompts. exact: bool (P·G,)"""
    if not session.knobs.get("prompt_pool"):
        return
    places = {_name(problem): place for place, problem in enumerate(_pool(session))}
    rates = [*_known(session)]
    for problem, share in zip(problems, exact.view(len(problems), -1).double().mean(1).tolist(), strict=True):
        rates[places[_name(problem)]] = newer_rate(rates[places[_name(problem)]], share)
    session.pass_rates = rates  # a new list: copies of the session keep theirs


def metrics(session: LlmSession) -> dict[str, float]:
    """The state of the pool after a step; nothing without one."""
    if not session.knobs.get("prompt_pool"):
        return {}
    rates = rates_of(session)
    tried, weights = rates[~rates.isnan()], weights_of(session, rates)
    found = {"pool/tried_frac": len(tried) / len(rates), "pool/drawn_frac": float((weights > 0).double().mean())}
    return found | ({"pool/pass_rate": float(tried.mean())} if len(tried) else {})


def rates_of(session: LlmSession) -> Tensor:
    """The pass rate of each prompt, NaN where it was never tried. (N,) float64"""
    return torch.tensor([float("nan") if rate is None else rate for rate in _known(session)], dtype=torch.float64)


def _known(session: LlmSession) -> list[float | None]:
    """The statistics of the run's pool; none of them where they are of another one."""
    size = len(_pool(session))
    return session.pass_rates if len(session.pass_rates) == size else [None] * size


def _pool(session: LlmSession) -> list[Problem]:
    """The prompts of the pool, all different; fewer than asked for where the task has no more."""
    if session.pool is None:
        wanted, rng = int(session.knobs["prompt_pool"]), np.random.default_rng((session.prompt_seed, STREAM))
        count = wanted if session.task.size is None else min(wanted, session.task.size)
        found: dict[tuple[str, int | None], Problem] = {}
        for _ in range(ROUNDS):
            for problem in session.task.problems(count, rng):
                found.setdefault(_name(problem), problem)
            if len(found) >= count:
                break
        session.pool = [*found.values()][:count]
    return session.pool


def _name(problem: Problem) -> tuple[str, int | None]:
    return prompt_key(problem), problem.line
