"""The estimator bench: freeze a policy, draw batches, and compare each row's gradient with the exact one.

All rows use the same frozen policy on the same enumerable problem. The policy was trained by exact gradient ascent part
of the way from the reference to the best reward, so that the KL to the reference has a gradient too. The run's own code
samples each batch and computes its gradient. An online row is compared with ∇(J − β KL) for its own β, temperature,
reward and shaping, a preference row with the gradient of its own loss over all pairs.

A step of several updates (μ > 1, or mini-batches) has several gradients, and between them the run's own optimizer
changes the policy. Their mean is compared with the gradient of the frozen policy; each batch starts with a new
optimizer. Gradients are taken before `max_grad_norm`. With a staleness of k, the policy of k ascent steps earlier
samples the batches. Left out: the critic's gradient, LoRA, and replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, cast

import torch
from torch import Tensor

from labcore.catalog import choices, kinds
from labcore.errors import LabError, quoted
from labcore.llm import preference_objective
from labcore.llm.exact.draws import drawn, drawn_pairs, estimate, estimate_of_pairs, pair_gradient, valued
from labcore.llm.exact.problem import enumerate_problem, logprobs
from labcore.llm.exact.reasons import reasons
from labcore.llm.exact.session import ExactSession
from labcore.llm.exact.truth import expectation
from labcore.llm.exact.world import World
from labcore.llm.experience import Batch
from labcore.llm.probes.answer import whole
from labcore.llm.rollout import total_rewards
from labcore.llm.session import LlmSession
from labcore.llm.sizing.bench import CRITICS, PROGRESS
from labcore.maths.estimators import Interval, Quality, quality
from labcore.runs.spec.run_spec import RunSpec, knobs_of, make
from labcore.tasks.enumerable import Enumerable

KIND = "exact"
OLDEST = 64  # steps of a staleness
Trail = deque[dict[str, Tensor]]  # weights of a policy, the newest last
MOST_DRAWS, MOST_NUMBERS = 50_000, 5e7  # batches in all; and numbers of the gradients of one row, for the memory
CLIMB, CLIMB_RATE = 1000, 0.01  # steps of exact ascent at most, and their rate
# What a batch is made of where nobody says so: the same for all rows, and one update, which finds the frozen policy.
SIZES = {"online": {"prompts_per_step": 4, "group_size": 8, "updates_per_batch": 1, "mini_batches": 1},
         "preference": {"pairs_per_step": 16, "group_size": 2}}


@dataclass(frozen=True)
class Setting:
    """A row of the bench: a run's spec, and the value of the knob that is looked at, if one is."""

    spec: RunSpec
    value: Any = None


def estimator_bench(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `estimator_bench`, see the module. `spec` has `algorithms`, and optionally several `values` of a `knob`
    for each; `batches` per row; `knobs` for all rows that have them; `task`, `model`, `progress` (share of the way to
    the best reward), `critic` and `seed`. Raises LabError if a setting is out of bounds, or the problem cannot be
    enumerated."""
    batches, seed = whole(spec, "batches", 10, 2000), whole(spec, "seed", 0, 2**31 - 1)
    critic, progress = str(spec.get("critic", CRITICS[0])), _share(spec.get("progress", PROGRESS))
    if critic not in CRITICS:
        raise LabError(f"There is no critic {quoted(critic)}: choose {' or '.join(CRITICS)}.")
    settings = settings_of(spec, seed)
    _check_one_problem(settings)
    if len(settings) * batches > MOST_DRAWS:
        raise LabError(f"{len(settings)} rows of {batches:,} batches are {len(settings) * batches:,}, and at most "
                       f"{MOST_DRAWS:,} are drawn at once: take fewer rows, values or batches.")
    trail, about = climbed(ExactSession.start(settings[0].spec), progress)
    rows = [_row(setting, trail, batches, critic) for setting in settings]
    return {"knob": str(spec.get("knob") or ""), "batches": batches, "task": settings[0].spec.task,
            "model": settings[0].spec.model, "critic": critic, "progress": progress, "seed": seed,
            **about, "rows": rows}


def settings_of(spec: Mapping[str, Any], seed: int) -> list[Setting]:
    """Every algorithm at every value. Raises LabError where a row has not the knob, or no row has one that is set."""
    table, knob = kinds.kind(KIND), str(spec.get("knob") or "")
    task, given = kinds.task(str(spec.get("task") or table.task), KIND), dict(spec.get("knobs") or {})
    found, known = [], set()
    if not spec.get("algorithms"):
        raise LabError("Choose at least one algorithm to compare with the exact gradient.")
    values = list(spec.get("values") or []) if knob else [None]
    if not values:
        raise LabError(f"Give the values of {knob} to look at, for example 2, 4, 8.")
    for key in spec["algorithms"]:
        row = kinds.algorithm(str(key), KIND)
        own = {each.key for each in knobs_of(row, task)}
        if knob and knob not in own:
            raise LabError(f"{row.label} has no knob {quoted(knob)}: leave it out, or look at another knob.")
        known |= own
        base = {name: value for name, value in {**SIZES[row.loop], **given}.items() if name in own}
        for value in values:
            knobs = base | ({knob: value} if knob else {})
            made = make(kind=KIND, algorithm_key=row.key, task_key=task.key, knobs=knobs, seed=seed, device="cpu",
                        model=str(spec.get("model") or table.model))
            if made.knobs.get("replay_share"):
                raise LabError("Replay has no effect here, because one frozen policy samples all completions: set "
                               "`replay_share` to 0.")
            found.append(Setting(made, made.knobs[knob] if knob else None))
    if strange := sorted(set(given) - known):
        raise LabError(f"None of these algorithms has a knob {quoted(strange[0])}: see python -m labcore list --kind "
                       "exact.")
    return found


def _check_one_problem(settings: list[Setting]) -> None:
    """All rows see one frozen policy: it has the letters, the prompts and the length of one problem."""
    for key in (*(knob.key for knob in settings[0].spec.task_row.knobs), "max_new_tokens"):
        if len({setting.spec.knobs[key] for setting in settings}) > 1:
            raise LabError(f"{key} is part of the problem, which is the same for all rows: give one value of it by "
                           f"--set {key}=…, and look at another knob.")


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 0.95:
        raise LabError(f"progress must be a share from 0 to 0.95, not {quoted(value)}.")
    return float(value)


def climbed(session: ExactSession, progress: float) -> tuple[Trail, dict[str, float]]:
    """Train the policy by exact gradient ascent until `progress` of the way to the best reward. Returns its weights
    after each of the last steps, oldest first, and the rewards."""
    problem = enumerate_problem(session, cast(Enumerable, session.task))
    optimizer = torch.optim.Adam([weight for weight in session.policy.parameters() if weight.requires_grad], CLIMB_RATE)
    best, first, reward = float(problem.rewards.amax(-1).mean()), None, 0.0
    trail = Trail(maxlen=OLDEST + 1)
    for _ in range(CLIMB):
        trail.append({name: weight.detach().clone() for name, weight in session.policy.state_dict().items()})
        value = expectation(logprobs(session.policy, problem.prompts, problem.space), problem.rewards)
        reward = float(value.detach())
        first = reward if first is None else first
        if reward >= first + progress * (best - first):
            break
        optimizer.zero_grad()
        (-value).backward()
        optimizer.step()
    return trail, {"reward": reward, "reward_before": first or 0.0, "reward_best": best,
                   "completions": len(problem.space)}


def frozen_session(spec: RunSpec, weights: Mapping[str, Tensor]) -> tuple[LlmSession, World]:
    """A session of `spec` with these weights as its policy and the run's initial policy as its reference, and the
    enumerated world of that session."""
    started = ExactSession.start(spec)
    started.policy.load_state_dict(weights)
    # The run's own loops, without the exact values that an ExactSession takes beside every step.
    session = LlmSession(**{each.name: getattr(started, each.name) for each in fields(LlmSession)})
    return session, World.of(session)


def _row(setting: Setting, trail: Trail, batches: int, critic: str) -> dict[str, Any]:
    """One line of the table."""
    session, world = frozen_session(setting.spec, trail[-1])
    size = sum(weight.numel() for weight in session.policy.parameters() if weight.requires_grad)
    if size * batches > MOST_NUMBERS:
        raise LabError(f"{batches:,} gradients of {size:,} numbers do not fit in memory: take at most "
                       f"{int(MOST_NUMBERS / size):,} batches, or the model table.")
    online, row = setting.spec.row.loop == "online", setting.spec.row
    truth = world.gradient(session) if online else pair_gradient(session, world)
    age = int(setting.spec.knobs.get("staleness", 0))
    older = trail[-1 - min(age, len(trail) - 1)] if age else None
    found = list(_online(session, world, batches, critic, older) if online else _preferences(session, batches))
    samples = sum(count for _, count in found) / len(found)
    about = {"algorithm": row.key, "label": row.label, "loop": row.loop, "value": setting.value, "samples": samples,
             "truth": float(truth.norm()),
             "reasons": reasons(session.in_force, critic == "exact") if online else _of_pairs(session)}
    if not truth.norm() > 0:
        return about | {"fault": "The exact gradient is 0 here, so nothing can be compared with it."}
    draws = torch.stack([draw for draw, _ in found])
    if not draws.any():
        return about | {"fault": "The gradient of every batch is 0: draw more batches, or larger groups."}
    return about | as_json(quality(draws, truth, samples))


def _online(session: LlmSession, world: World, batches: int, critic: str,
            older: Mapping[str, Tensor] | None) -> Iterator[tuple[Tensor, int]]:
    """Gradients of an online row, and how many completions were drawn for each."""
    values = prepared(session, world, critic)
    for batch in drawn(session, batches, older):
        yield estimate(session, valued(world, batch.rollout, values)), _samples(batch, session.knobs)


def prepared(session: LlmSession, world: World, critic: str = CRITICS[0]) -> Tensor | None:
    """The values of an exact critic, or None if the row or the setting needs none. Also sets the session's mean of
    earlier rewards to its limit after many steps of the frozen policy."""
    assert world.rollout is not None
    totals = total_rewards(session.in_force, world.rollout).double().view(*world.rewards.shape)
    session.past_rewards = float((world.probabilities * totals).sum(1).mean())
    needs = choices.ADVANTAGE[str(session.knobs["advantage"])].critic
    return world.values(session) if needs and critic == "exact" else None


def _samples(batch: Batch, knobs: Mapping[str, Any]) -> int:
    """Completions that were sampled for a batch, those included that it is compared with."""
    rollouts = choices.ADVANTAGE[str(knobs["advantage"])].rollouts
    drawn = sum(len(each.texts) for each in batch.sampled)
    greedy = sum(len(each.problems) for each in batch.sampled)
    return drawn + (drawn if "mixture" in rollouts else greedy if rollouts else 0)


def _preferences(session: LlmSession, batches: int) -> Iterator[tuple[Tensor, int]]:
    for pairs in drawn_pairs(session, batches):
        yield estimate_of_pairs(session, pairs), 2 * len(pairs.pairs)


def _of_pairs(session: LlmSession) -> list[str]:
    """Why a preference row's gradient is not that of its loss over all pairs, on average."""
    if not preference_objective.asks(session.knobs, "whole_batch"):
        return []
    return ["Direction: the loss depends on the whole batch, and is compared with the loss of a very large batch."]


def as_json(found: Quality) -> dict[str, Any]:
    """The quantities as [value, low, high]; None where one is not a number."""
    given: dict[str, Any] = {each.name: getattr(found, each.name) for each in fields(Quality)}
    return {name: [number if isfinite(number) else None for number in value] if isinstance(value, Interval) else value
            for name, value in given.items()}
