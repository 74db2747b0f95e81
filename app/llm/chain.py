"""RLHF as a chain of runs: which SFT base, reward model and RL run belong together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from labcore.catalog import choices
from labcore.catalog.knob import Value
from labcore.runs.spec import model_names
from labcore.runs.spec.run_spec import RunSpec, base_spec, default_threads, knobs_of, make
from labcore.runs.store.rows import RunRow

SFT, REWARD_MODEL, RL = "sft", "reward_model", "rl"
SOURCES = {"reward_model": "reward_model", "prm": "process_reward"}  # loop that trains one -> source of RL on it
STARTS = ("ppo", "grpo", "rloo")  # what can be started against a reward model by one click
PROMPTS = "prompts"  # the task of one's own prompts
MOST = 3  # reward models of an ensemble that one click makes
_SHARED = ("sft_steps", "sft_target", "dtype")  # knobs by which two runs start from the same base


@dataclass(frozen=True)
class Chain:
    """The three stages; None where a stage has no run yet. `here` is the stage of the run that is open, or ""."""

    sft: RunRow | None
    reward_model: RunRow | None
    rl: RunRow | None
    here: str = ""


def stage(spec: RunSpec) -> str:
    """The stage of a run; "" for a run that is no stage, such as RL on the task's own score."""
    if spec.row.loop in SOURCES:
        return REWARD_MODEL
    if spec.row.loop == SFT:
        return SFT
    return RL if scorers(spec) else ""


def scorers(spec: RunSpec) -> list[str]:
    """The runs whose reward models give the rewards of `spec`: several for an ensemble, otherwise one; none if no
    reward model is needed."""
    if not choices.needs_reward_model(spec.knobs):
        return []
    return [found.run for name in model_names.members(str(spec.knobs["reward_model"]))
            if (found := model_names.read(name))]


def find(spec: RunSpec, run: RunRow | None, recent: Sequence[RunRow]) -> Chain:
    """The chain of the open `run`, or where there is none, of what would start with `spec`.

    `recent` are the runs to look among, newest first: an RL run leads to its own reward model, a reward model to the
    newest RL run against it, all else to the newest of the same task and model.
    """
    here = stage(run.spec) if run else ""
    scored = scorers(spec)
    model = run if run and here == REWARD_MODEL else _first(
        each for each in recent
        if (each.id in scored if scored else stage(each.spec) == REWARD_MODEL and _alike(each.spec, spec)))
    rl = run if here == RL else model and _first(each for each in recent if model.id in scorers(each.spec))
    return Chain(run if run and here == SFT else _base(spec, run, model, recent), model, rl, here)


def _base(spec: RunSpec, run: RunRow | None, model: RunRow | None, recent: Iterable[RunRow]) -> RunRow | None:
    """The SFT run that made the base: the one that the run names, else the one with its very settings."""
    named = {each.base for each in (run, model) if each and each.base}
    wanted = base_spec(spec)
    return _first(each for each in recent if each.id in named or each.spec == wanted)


def ensemble(spec: RunSpec, recent: Iterable[RunRow]) -> list[str]:
    """The reward models of `spec`, then others of its task and model that have ended: at most MOST."""
    source = spec.knobs.get("reward_source", SOURCES[REWARD_MODEL])
    others = [each.id for each in recent if stage(each.spec) == REWARD_MODEL and _alike(each.spec, spec)
              and each.state == "finished" and (SOURCES[each.spec.row.loop] == SOURCES["prm"]) == (
                  source == SOURCES["prm"])]
    return list(dict.fromkeys((*scorers(spec), *others)))[:MOST]


def _alike(one: RunSpec, other: RunSpec) -> bool:
    return (one.task, one.model, one.data) == (other.task, other.model, other.data)


def _first(runs: Iterable[RunRow]) -> RunRow | None:
    return next(iter(runs), None)


# ---- what is started ---------------------------------------------------------------------------------------------


def reward_model_spec(spec: RunSpec, **knobs: Value) -> RunSpec:
    """A reward model for the task and the base of `spec`, other `knobs` at their defaults. Raises LabError as `make`.
    """
    return _like(spec, REWARD_MODEL, knobs)


def rl_spec(reward_model: RunRow, algorithm: str, prompts: Callable[[RunSpec], str]) -> RunSpec:
    """RL against a reward model, from the base of that model. Raises LabError if the reward model has no checkpoint
    yet.

    RL needs prompts. If the task has only pairs, `prompts` makes a file of their prompts, and the policy starts from
    the reward model's own base, because both need the same tokenizer.
    """
    spec = reward_model.spec
    rewards: dict[str, Value] = {"reward_source": SOURCES[spec.row.loop], "reward_model": reward_model.id}
    rewards |= {key: spec.knobs[key] for key in ("step_separator",) if key in spec.knobs}
    if spec.kind_row.algorithms[algorithm].learns(spec.task_row):
        return _like(spec, algorithm, rewards)
    model = model_names.model_of_name(reward_model.id)
    return make(kind=spec.kind, algorithm_key=algorithm, task_key=PROMPTS, model=model, knobs=rewards, seed=spec.seed,
                threads=default_threads(spec.model), data=prompts(spec))


def another_reward_model(spec: RunSpec, count: int) -> RunSpec:
    """One more reward model for an ensemble that has `count`, with a seed of its own. Raises LabError as `make`."""
    return replace(reward_model_spec(spec), seed=spec.seed + count)


def _like(spec: RunSpec, algorithm: str, more: dict[str, Value]) -> RunSpec:
    """A run of another algorithm on the same task, base and seed."""
    row = spec.kind_row.algorithms[algorithm]
    known = {knob.key for knob in knobs_of(row, spec.task_row)}
    own = {key: value for key, value in spec.knobs.items() if key in _SHARED} | spec.of_task
    shared = {key: value for key, value in own.items() if key in known}
    return make(kind=spec.kind, algorithm_key=algorithm, task_key=spec.task, model=spec.model, knobs=shared | more,
                seed=spec.seed, threads=default_threads(spec.model), data=spec.data)
