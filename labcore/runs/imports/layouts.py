"""Layouts of the metrics files of tools: one row of `LAYOUTS` per tool, and nothing else knows a tool's names.

A reader of files asks `layout_of` for the row that fits a file's columns. The row says which columns place a row of the
file on the step axis, and what the tool calls the lab's metrics. A program that follows a growing file needs the same
row, and `flat`, which turns one object of a JSON log into a row of a table.

Left out: quantities that share a name but not a unit, such as a KL per sequence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from labcore.catalog.metrics import METRICS
from labcore.runs.store.rows import COUNTERS

# Our counter or metric -> what tools call it, the best first. Names are compared in lower case, and without a leading
# "train/", under which W&B keeps the trainers' logs.
ALIASES: dict[str, tuple[str, ...]] = {
    "tokens": ("num_tokens", "total_tokens"),
    "env_steps": ("time/total_timesteps", "total_timesteps"),
    "seconds": ("_runtime", "time/time_elapsed", "wall_time", "relative time (process)"),
    "updates": ("n_updates",),
    # Of verl the score before the KL penalty, as the lab's reward is: its rewards are less that penalty.
    "reward": ("objective/scores", "rewards/mean", "reward/mean", "critic/score/mean", "critic/rewards/mean"),
    "exact_match": ("accuracy_reward", "rewards/accuracy_reward/mean", "rewards/accuracy_reward"),
    "kl": ("kl/mean",),
    "entropy": ("policy/entropy_avg", "actor/entropy"),
    # Stable-Baselines3's clip_fraction and CleanRL's clipfrac also count ratios on the side where nothing is clipped.
    "clip_frac/region": ("clip_ratio/region_mean", "clip_ratio", "policy/clipfrac_avg", "actor/pg_clipfrac"),
    "clip_frac/low": ("clip_ratio/low_mean",),
    "clip_frac/high": ("clip_ratio/high_mean",),
    "sampling/logp_difference": ("sampling/sampling_logp_difference/mean",),
    "completions/mean_length": ("completion_length", "response_length/mean"),
    "completions/truncated_frac": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "value_loss": ("loss/value_avg", "critic/vf_loss"),
    "policy_loss": ("loss/policy_avg", "policy_gradient_loss", "actor/pg_loss"),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("lr", "actor/lr"),
    "episode_return": ("rollout/ep_rew_mean", "episodic_return", "charts/episodic_return"),
    "episode_length": ("rollout/ep_len_mean", "charts/episodic_length"),
    "eval_return": ("eval/mean_reward",),
    "eval_length": ("eval/mean_ep_length",),
    "epsilon": ("rollout/exploration_rate",),
    # Evaluations of TRL's trainers: transformers logs eval_NAME, and W&B renames it to eval/NAME.
    "held_out/reward": ("eval_reward", "eval/reward"),
    "held_out/accuracy": ("eval_rewards/accuracy_reward/mean", "eval/rewards/accuracy_reward/mean"),
    "held_out/mean_length": ("eval_completions/mean_length", "eval/completions/mean_length"),
    "held_out/truncated_frac": ("eval_completions/clipped_ratio", "eval/completions/clipped_ratio"),
    "held_out/token_accuracy": ("eval_mean_token_accuracy", "eval/mean_token_accuracy"),
    "held_out/pair_accuracy": ("eval_rewards/accuracies", "eval/rewards/accuracies"),
    "held_out/margin": ("eval_rewards/margins", "eval/rewards/margins"),
    "eval_accuracy": ("eval/accuracy",),
    "eval_margin": ("eval/margin",),
}
UNKNOWN = ""
HISTORY = "log_history"  # of transformers.TrainerState, saved as trainer_state.json
# How TRL calls the mean of a reward function, which is a part of the reward.
_PART = re.compile(r"(?:train/)?rewards/(.+)/mean", re.IGNORECASE)
# Columns that name the run of a row, in tables that hold several.
RUN_COLUMNS = ("run", "run_id", "run_name", "run.id", "run.name", "seed", "name", "exp_name", "experiment", "trial",
               "trial_id")


@dataclass(frozen=True)
class Axis:
    """A column that places rows. `counts` is the counter or metric that its numbers are as well: "updates" where a
    step is one optimizer update, "env_steps" where it is one step of the environment."""

    column: str
    counts: str = ""


@dataclass(frozen=True)
class Layout:
    """The layout of one tool's metrics.

    `fits` says by a file's columns, in lower case, whether the tool wrote it. `axes` are the columns that place its
    rows, the best first; without any the rows themselves are counted, and `row` says what one of them is. `names` adds
    to `ALIASES`, and a column of such a name means nothing else; those under `UNKNOWN` mean none of the lab's metrics.
    `sums` are counters that are running sums of a metric. `value` is a column whose metric is named by the file. The
    rows of its JSON log hold their numbers in the member `inner`, where null is NaN if `null_is_nan`.
    """

    tool: str
    fits: Callable[[frozenset[str]], bool]
    axes: tuple[Axis, ...]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    row: str = ""
    sums: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    inner: str = ""
    null_is_nan: bool = False


def _has(*columns: str) -> Callable[[frozenset[str]], bool]:
    return frozenset(columns).issubset


def _has_any(*columns: str) -> Callable[[frozenset[str]], bool]:
    return lambda found: not found.isdisjoint(columns)


def _begins(*prefixes: str) -> Callable[[frozenset[str]], bool]:
    return lambda found: any(column.startswith(prefixes) for column in found)


_ANY = (Axis("step", "updates"), Axis("train/global_step", "updates"), Axis("global_step", "updates"),
        Axis("trainer/global_step", "updates"), Axis("training/global_step"), Axis("iteration"),
        Axis("time/iterations"), Axis("current_steps", "updates"), Axis("_step"))
_PROGRESS, _SPEED = "global_step/max_steps", "train_speed(s/it)"  # in each line of ms-swift's logging.jsonl
LAYOUTS = (
    # stable_baselines3.common.monitor: a row per episode with its return, its length and the seconds since the start.
    Layout("Stable-Baselines3's monitor", _has("r", "l", "t"), (), row="episode", sums={"env_steps": "episode_length"},
           names={"episode_return": ("r",), "episode_length": ("l",), "seconds": ("t",)}),
    # stable_baselines3.common.logger. Rows of EvalCallback have no iteration, and off-policy algorithms never have
    # one. Synchronised with TensorBoard its steps are called global_step, and the time/ columns are left out. Its
    # value_loss is the mean squared error, of which the lab's is half.
    Layout("Stable-Baselines3", _has_any("time/iterations", "time/total_timesteps", "time/episodes", "time/fps",
                                         "rollout/ep_rew_mean"),
           (Axis("time/iterations"), Axis("time/total_timesteps", "env_steps"), Axis("global_step", "env_steps"),
            Axis("step", "env_steps"), Axis("_step")), names={UNKNOWN: ("value_loss",)}),
    # CleanRL's global_step counts steps of the environment.
    Layout("CleanRL", _begins("charts/"), (Axis("global_step", "env_steps"), Axis("step", "env_steps"),
                                           Axis("_step"))),
    # verl.utils.tracking: a step is one batch of prompts, with several optimizer updates. Its FileLogger writes by
    # orjson, for which NaN and infinities are null.
    Layout("verl", _begins("critic/", "actor/", "training/global_step"),
           (Axis("training/global_step"), Axis("step"), Axis("global_step"), Axis("_step")), inner="data",
           null_is_nan=True),
    # openrlhf/trainer/ppo_trainer.py: a step is one batch of prompts. Its entropy_loss is the entropy itself; its kl is
    # by whichever estimator was chosen, k1 by default.
    Layout("OpenRLHF", _has_any("train/actor_lr", "train/act_lr", "train/timing/make_experience"),
           (Axis("global_step"), Axis("step"), Axis("_step")),
           names={"learning_rate": ("actor_lr", "act_lr"), "grad_norm": ("actor_grad_norm",),
                  "clip_frac/region": ("ppo_clip_ratio",), "value_loss": ("critic_loss",), "entropy": ("entropy_loss",),
                  "completions/mean_length": ("response_length", "rollout/response_length_mean"),
                  "completions/truncated_frac": ("rollout/truncated_rate",), UNKNOWN: ("kl",)}),
    # prime_rl/monitors/file.py: a step is one batch; of an environment with several agents none is the agent.
    Layout("prime-rl", _begins("train/agg/", "mismatch_kl/", "dispatcher/"), (Axis("step"), Axis("_step")),
           names={"reward": ("train/agg/effective/agent/reward/mean", "train/agg/all/reward/mean"),
                  "grad_norm": ("optim/grad_norm",), "learning_rate": ("optim/lr",),
                  "entropy": ("entropy/all/mean", "entropy/mean"),
                  "completions/truncated_frac": ("train/agg/effective/agent/is_truncated/mean",)}),
    # The CSV that TensorBoard offers for download, called run-RUN-tag-TAG.csv.
    Layout("TensorBoard", _has("wall time", "step", "value"), (Axis("step"),), value="value",
           names={"seconds": ("wall time",)}),
    # swift/trainers/patcher.py writes logging.jsonl; its trainers are TRL's or made after them.
    Layout("ms-swift", lambda found: _SPEED in found and "logps/chosen" in found, _ANY,
           names={"kl/mismatched": ("kl",)}),
    Layout("ms-swift", _has(_SPEED), _ANY, names={"entropy": ("entropy/mean",), "mean_token_accuracy": ("token_acc",),
                                                  "held_out/token_accuracy": ("eval_token_acc",)}),
    # TRL's KTOTrainer: its kl is that of completions under other prompts, in nats per sequence.
    Layout("TRL's KTOTrainer", lambda found: any({f"{place}kl", f"{place}logps/chosen"} <= found
                                                 for place in ("", "train/")), _ANY,
           names={"kl/mismatched": ("kl",)}),
    Layout("TRL", _has_any(*(name for each in ("completions/mean_length", "rewards/margins") for name in (
        each, f"train/{each}", f"eval_{each}", f"eval/{each}"))), _ANY),
    # All other trainers of Hugging Face, LLaMA-Factory, W&B's history, and whatever has a step.
    Layout("a trainer", _has(), _ANY),
)
# What the lab itself writes of an imported run: its own names, and nothing to be guessed.
OWN = Layout("the lab", _has(), (Axis("step"),))

_INNER = tuple(layout for layout in LAYOUTS if layout.inner)


def layout_of(columns: Iterable[str]) -> Layout:
    """The first layout that fits these columns."""
    found = frozenset(map(plain, columns))
    return next(layout for layout in LAYOUTS if layout.fits(found))


def plain(column: str) -> str:
    """A column's name as names are compared."""
    return column.strip().lower()


def is_axis(axis: Axis, column: str) -> bool:
    """True if a column is called as this axis."""
    return plain(column) in (axis.column, f"train/{axis.column}")


def known(layout: Layout, column: str) -> list[tuple[str, int]]:
    """The (key, rank) that a column can stand for: what a key is called first has rank 0."""
    if found := _names(LAYOUTS.index(layout) if layout in LAYOUTS else -1).get(plain(column)):
        return found
    if layout is OWN:
        return [(column.strip(), 0)] if column.strip() in METRICS else []
    part = _PART.fullmatch(column.strip())
    return [(f"reward/{part[1]}", 0)] if part else []


@cache
def _names(place: int) -> dict[str, list[tuple[str, int]]]:
    """Every name that a layout knows -> the (key, rank) that it can stand for."""
    found: dict[str, list[tuple[str, int]]] = {}
    names = LAYOUTS[place].names if place >= 0 else {}
    meant = {name: key for key, called in names.items() for name in called}
    for key in (*COUNTERS[1:], *METRICS):
        if place < 0:
            found[key] = [(key, 0)]
            continue
        aliases = [name for name in (*names.get(key, ()), key, *ALIASES.get(key, ())) if meant.get(name, key) == key]
        for rank, alias in enumerate(name for called in aliases for name in (called, f"train/{called}")):
            found.setdefault(alias, []).append((key, rank))
    return found


def flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """One object of a JSON log as a row: {"train": {"loss": 1}} has the column train/loss, and what a tool holds in
    an inner member stands beside its step. The last line of ms-swift's log repeats all others: it has no column.

    >>> flat({"step": 1, "data": {"actor/lr": 1e-6, "actor/pg_loss": None}})
    {'step': 1, 'actor/lr': 1e-06, 'actor/pg_loss': nan}
    >>> flat({"loss": 0.5, "global_step/max_steps": "3/100"}), flat({"best_metric": 1, "log_history": [{"loss": 0.5}]})
    ({'loss': 0.5, 'global_step': 3}, {})
    """
    if isinstance(value.get(HISTORY), list):
        return {}
    if isinstance(progress := value.get(_PROGRESS), str) and (step := progress.partition("/")[0]).isdecimal():
        return flat({key: each for key, each in value.items() if key != _PROGRESS} | {"global_step": int(step)})
    layout = next((each for each in _INNER if isinstance(value.get(each.inner), dict)), None)
    if layout is None:
        return dict(_flat(value, ""))
    inner = {key: math.nan if each is None and layout.null_is_nan else each
             for key, each in _flat(value[layout.inner], "")}
    return dict(_flat({key: each for key, each in value.items() if key != layout.inner}, "")) | inner


def _flat(value: Mapping[str, Any], before: str) -> Iterable[tuple[str, Any]]:
    for key, each in value.items():
        if isinstance(each, dict):
            yield from _flat(each, f"{before}{key}/")
        else:
            yield f"{before}{key}", each
