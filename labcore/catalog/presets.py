"""Presets: named settings that each show one effect, what to look at, and a claim that a test runs.

A preset is one change of the settings that its kind of run begins with, or of the preset that stands `beside` it. Pages
and commands draw this list. The curves of the pictures are recorded runs (`python -m docs.record_presets`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from labcore.catalog.knob import Value, suggestion
from labcore.catalog.llm.tasks import SORT_SCORER
from labcore.catalog.panels import PANELS
from labcore.errors import LabError, quoted

RECORDED = Path(__file__).with_name("recorded_presets.json")


@dataclass(frozen=True)
class Preset:
    """Settings of a run that show one effect.

    `change` names the difference in a phrase, `look` says in three sentences what to look at, and `chart` is the chart
    that shows it.
    `beside` is the preset to run next to it: both have equal numbers of updates. `claim` is in the language of lessons'
    checks, where this run is called `run` and the other one `beside`; it holds over the seeds 0, 1 and 2. `lines` are
    the metrics in its picture, by default the first of the chart.
    """

    key: str
    label: str
    change: str
    look: tuple[str, str, str]
    chart: str
    claim: str
    _: KW_ONLY
    steps: int
    kind: str = "llm"
    algorithm: str = "grpo"
    task: str = "sort"
    knobs: Mapping[str, Value] = field(default_factory=dict)
    beside: str = ""
    lines: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a recording of it must have, ready for JSON."""
        return {"algorithm": self.algorithm, "task": self.task, "steps": self.steps, "knobs": dict(self.knobs)}

    @property
    def drawn(self) -> tuple[str, ...]:
        """The metrics in its picture."""
        return self.lines or PANELS[self.chart].metrics[:1]


# Small batches, used eight times each at a rate that only the clip makes safe.
_EIGHT: Mapping[str, Value] = {"updates_per_batch": 8, "prompts_per_step": 16, "learning_rate": 1.2e-3, "beta": 0.0}
_OLD: Mapping[str, Value] = {"staleness": 8, "prompts_per_step": 16, "learning_rate": 2e-3}
_NO_CLIP: Mapping[str, Value] = {"clip_low": 1.0, "clip_high": 100.0}
_FOUR: Mapping[str, Value] = {"updates_per_batch": 4, "beta": 0.0}
_HOLE: Mapping[str, Value] = {"reward_source": "order_only", "updates_per_batch": 4}
_STEPS: Mapping[str, Value] = {**_FOUR, "reward_source": "process_reward", "reward_model": SORT_SCORER}
_K1: Mapping[str, Value] = {"beta": 1.0, "updates_per_batch": 4}
_LONG: Mapping[str, Value] = {"temperature": 1.4, "max_new_tokens": 24}
_LEVELS: Mapping[str, Value] = {"easiest": 2, "numbers": 4, "prompt_pool": 256, "beta": 0.0}
_CLIFF: Mapping[str, Value] = {"epsilon": 0.1, "epsilon_steps": 0}

_LLM = (
    Preset("default", "Default", "GRPO with the lab's defaults", (
        "The share of correct completions rises from under half to over 80 %.",
        "The KL to the reference grows slowly, which shows how far the policy has moved.",
        "Zero-variance groups become frequent: a group whose completions are all correct teaches nothing."),
        "reward", 'last(run, "reward") > first(run, "reward", 1) + 0.25 and max(run, "kl") < 0.5', steps=40),
    Preset("no_clip", "No clip", "8 updates per batch, β = 0, and nothing bounds the ratio", (
        "The reward falls from under 0.5 to below 0.2, and with most seeds to almost 0.",
        "The largest ratio exceeds 10: after a few updates the batch says little about the current policy.",
        "Run it beside Clip 0.2, where the reward rises with the same seed and the same number of updates."),
        "reward", 'last(run, "reward") < 0.3 and last(beside, "reward") > last(run, "reward") + 0.2', steps=24,
        knobs={**_EIGHT, **_NO_CLIP}, beside="clip"),
    Preset("clip", "Clip 0.2", "8 updates per batch, β = 0, ratios clipped to 1 ± 0.2", (
        "The reward rises, although each batch is used for eight updates.",
        "The clip stops the tokens whose probability has already changed as far as one batch allows.",
        "Run it beside No clip, where the reward collapses with the same seed and the same number of updates."),
        "clip", 'last(run, "reward") > last(beside, "reward") + 0.2 and mean(run, "clip_frac/region") > 0.01', steps=24,
        knobs=_EIGHT, beside="no_clip", lines=("reward",)),
    Preset("kl_runs_away", "KL runs away", "k1 in the loss as the penalty, β = 1", (
        "The KL to the reference rises above 1 nat per token at once, although β is 1.",
        "The reward falls to 0, because the penalty makes every sampled token less likely.",
        "As a loss k1 has no mean gradient at the first update of a batch, and later it pushes the policy away."),
        "kl", 'max(run, "kl") > 1 and last(run, "reward") < 0.1 and max(beside, "kl") < 0.5', steps=20,
        knobs={**_K1, "kl_estimator": "k1"}, beside="kl_held"),
    Preset("kl_held", "KL held by k3", "k3 in the loss as the penalty, β = 1", (
        "The KL to the reference stays below 0.1 nats per token.",
        "The reward rises, but stays below that of the default, because a large β costs reward.",
        "Run it beside KL runs away, which differs only in the estimator of the KL."),
        "kl", 'max(run, "kl") < 0.2 and last(run, "reward") > first(run, "reward", 1) + 0.1', steps=20,
        knobs=_K1, beside="kl_runs_away"),
    Preset("entropy_collapse", "Entropy collapse", "4 updates per batch, β = 0", (
        "The entropy falls from above 1 nat per token to about 0.2 within 20 steps, while the reward rises.",
        "A policy that is almost certain writes the same completion again and again, so zero-variance groups become "
        "frequent.",
        "Run it beside Entropy held by KL-Cov, which makes as many updates."),
        "entropy", 'last(run, "entropy") < 0.25 and last(run, "entropy") < last(beside, "entropy") - 0.1', steps=20,
        knobs=_FOUR, beside="entropy_held"),
    Preset("entropy_held", "Entropy held by KL-Cov", "The same updates, with a pull on the tokens of highest "
           "covariance", (
               "The entropy falls more slowly than with GRPO, although the reward rises as well.",
               "A tenth of the tokens are pulled back: tokens whose log-prob and advantage are both high, or both low.",
               "Set the pull on high-covariance tokens to 0 during the run: the entropy then falls as with GRPO."),
           "entropy", 'last(run, "entropy") > last(beside, "entropy") + 0.1 and last(run, "reward") > 0.5', steps=20,
           algorithm="kl_cov", knobs={"updates_per_batch": 4, "cov_share": 0.1, "cov_pull": 2.0},
           beside="entropy_collapse"),
    Preset("reward_hacking", "Reward hacking", "A reward for the order alone, β = 0", (
        "The reward rises to almost 1, while the gold reward falls to 0.",
        "Completions shrink to one letter, which is always in order.",
        "The reward curve alone looks better than that of a run with a sound reward."),
        "reward", 'last(run, "reward") > 0.95 and last(run, "reward/gold") < 0.1', steps=20,
        knobs={**_HOLE, "beta": 0.0}, beside="hacking_held", lines=("reward", "reward/gold")),
    Preset("hacking_held", "Hacking held by β", "The same flawed reward, β = 1", (
        "The reward ends lower than without the penalty, but the gold reward does not fall.",
        "The KL to the reference stays small, so the policy cannot drift to completions that the reference never "
        "writes.",
        "Set β to 0 while it runs: the gold reward then falls."),
        "reward", 'last(run, "reward/gold") > first(run, "reward/gold", 1) and max(run, "kl") < 0.2', steps=20,
        knobs={**_HOLE, "beta": 1.0}, beside="reward_hacking", lines=("reward", "reward/gold")),
    Preset("steps_hacked", "Process reward hacked", "The sum of the scores that a process reward model gives", (
        "The reward rises, while the gold reward falls to 0: the model scores the new completions wrongly.",
        "In the samples, letters that the verifier calls wrong still have high scores.",
        "Run it beside Process reward, lowest score, which learns from the same model."),
        "reward", 'last(run, "reward") > first(run, "reward", 1) and last(run, "reward/gold") < 0.1', steps=20,
        algorithm="grpo_process", knobs=_STEPS, beside="steps_lowest", lines=("reward", "reward/gold")),
    Preset("steps_lowest", "Process reward, lowest score", "The same model, but its lowest score counts (PURE)", (
        "The gold reward ends far above that of the run with the sum of the scores.",
        "Other steps with high scores cannot make up for a bad step.",
        "This is no cure, because the same model gives the scores and is wrong about some completions."),
        "reward", 'last(run, "reward/gold") > last(beside, "reward/gold") and '
        'last(run, "reward") > first(run, "reward", 1)', steps=20, algorithm="grpo_process",
        knobs={**_STEPS, "step_reward": "min_form"}, beside="steps_hacked", lines=("reward", "reward/gold")),
    Preset("group_of_2", "Group of 2", "64 groups of 2 completions", (
        "In about half of the groups both rewards are equal, so these groups teach nothing.",
        "Half of the samples are wasted from the first step on.",
        "Run it beside Group of 16, which samples as many completions per step and has almost no such groups at the "
        "start."),
        "zero_variance", 'first(run, "frac_reward_zero_std") > first(beside, "frac_reward_zero_std") + 0.3', steps=30,
        knobs={"group_size": 2, "prompts_per_step": 64}, beside="group_of_16"),
    Preset("group_of_16", "Group of 16", "8 groups of 16 completions", (
        "At the start, hardly any group has equal rewards.",
        "As completions become correct, groups with equal rewards become frequent here too.",
        "Each group costs 16 completions, so a step has only 8 prompts."),
        "zero_variance", 'first(run, "frac_reward_zero_std") < 0.1', steps=30,
        knobs={"group_size": 16, "prompts_per_step": 8}, beside="group_of_2"),
    Preset("pool_uniform", "Uniform prompts", "Countdown with 2, 3 and 4 numbers, prompts drawn uniformly", (
        "In about three quarters of the groups all rewards are equal, so these groups teach nothing.",
        "In most of these groups the prompt is too hard: no completion reaches the target.",
        "Run it beside Prompts by pass rate, which samples equally many completions."),
        "zero_variance", 'mean(run, "frac_reward_zero_std") > mean(beside, "frac_reward_zero_std") + 0.1', steps=40,
        task="countdown", knobs=_LEVELS, beside="pool_learnable"),
    Preset("pool_learnable", "Prompts by pass rate", "Prompts in proportion to p(1−p), where p is the pass rate", (
        "Prompts that are always or never solved are drawn rarely, so fewer groups have equal rewards.",
        "The reward rises partly because other prompts are drawn: on the page Compare both runs answer the same "
        "prompts.",
        "The chart Prompt pool shows the share of prompts that the run can still draw."),
        "zero_variance", 'mean(run, "frac_reward_zero_std") < mean(beside, "frac_reward_zero_std") - 0.1', steps=40,
        task="countdown", knobs={**_LEVELS, "prompt_choice": "learnable"}, beside="pool_uniform"),
    Preset("curriculum", "Curriculum", "Countdown with 2 numbers first, then 3, then 4", (
        "The reward falls at the steps 16 and 31, when prompts with 3 and with 4 numbers are added.",
        "The policy does not get worse: in the chart Reward by level, the reward of prompts with 2 numbers rises from "
        "0.86 to over 0.9.",
        "So read a curriculum by level, never by the curve Reward."),
        "levels", 'first(run, "reward") > last(run, "reward") + 0.2 and '
        'mean(run, "reward_at_level/2") > last(run, "reward") + 0.2', steps=40, task="countdown",
        knobs={**_LEVELS, "prompt_choice": "by_level", "curriculum_steps": 30},
        lines=("reward", "reward_at_level/2")),
    Preset("zero_variance", "Zero-variance trap", "RL from random weights, without SFT first", (
        "The reward is 0 at every step: a model with random weights never writes a correct completion.",
        "The rewards of each group are equal, so every advantage is 0, and so is the gradient.",
        "More steps do not help. SFT before RL does, which is why the default has it."),
        "zero_variance", 'max(run, "reward") == 0 and max(run, "grad_norm") == 0 and '
        'min(run, "frac_reward_zero_std") == 1', steps=12, knobs={"sft_steps": 0},
        lines=("reward", "frac_reward_zero_std")),
    Preset("cold", "Too cold to explore", "Sampling temperature 0.1", (
        "The completions of a prompt are almost always identical, so their rewards are equal.",
        "The reward is high from the first step on, because the likeliest completion is usually correct.",
        "The gradient is almost 0, so the policy at temperature 1 hardly changes."),
        "zero_variance", 'mean(run, "frac_reward_zero_std") > 0.9 and first(run, "reward") > 0.8', steps=12,
        knobs={"temperature": 0.1}, lines=("frac_reward_zero_std",)),
    Preset("length_bias", "Length bias", "Long completions at temperature 1.4", (
        "Completions stay long, although a correct completion has only seven tokens.",
        "Each completion's loss is divided by its own length, so a long wrong answer is penalised less per token.",
        "Run it beside No length bias, where completions become shorter at about the same reward."),
        "length", 'last(run, "completions/mean_length", 10) > last(beside, "completions/mean_length", 10)', steps=30,
        knobs=_LONG, beside="no_length_bias"),
    Preset("no_length_bias", "No length bias", "Long completions, with the loss divided by a constant length", (
        "Completions shrink towards the seven tokens of a correct one.",
        "Fewer completions are truncated at the limit of 24 tokens.",
        "Dr. GRPO divides by a constant length for this reason; only this choice differs from Length bias."),
        "length", 'last(run, "completions/mean_length") < first(run, "completions/mean_length", 3) - 2', steps=30,
        knobs={**_LONG, "aggregation": "constant_length"}, beside="length_bias"),
    Preset("distilled", "Distillation", "A teacher grades every token, in place of a reward", (
        "The KL to the teacher falls from 0.8 to about 0.1 nats per token.",
        "The reward rises from under 0.5 to about 0.75, although no update uses it.",
        "Click on a token in the microscope to see what the teacher would have written there."),
        "teacher_kl", 'last(run, "teacher/reverse_kl") < 0.2 and last(run, "reward") > first(run, "reward", 1) + 0.1',
        steps=40, algorithm="opd"),
    Preset("dpo_displacement", "DPO displacement", "DPO with β = 0.1", (
        "While the margin of chosen over rejected grows, the log-probability of the chosen side falls by over 1 nat.",
        "The share of correct completions falls from under a half to below a third within ten steps.",
        "Run it beside DPO with an SFT term, which keeps the chosen side up."),
        "logps", 'last(run, "rewards/margins") > 0.1 and min(run, "logps/chosen") < '
        'first(run, "logps/chosen", 1) - 0.2 and min(run, "exact_match") < first(run, "exact_match", 1) - 0.05',
        steps=30, knobs={"beta": 0.1}, beside="dpo_anchored", algorithm="dpo"),
    Preset("dpo_anchored", "DPO with an SFT term", "DPO with β = 0.1 and the second loss “sft”", (
        "The log-probability of the chosen side rises.",
        "The margin grows almost as much as without the second loss.",
        "The share of correct completions rises, while DPO alone lowers it."),
        "logps", 'last(run, "logps/chosen") > first(run, "logps/chosen", 1) and last(run, "rewards/margins") > 0.3',
        steps=30, knobs={"beta": 0.1, "second_loss": "sft"}, beside="dpo_displacement", algorithm="dpo"),
    Preset("on_policy", "On-policy", "64 batches with one update each", (
        "No token is clipped: each update is made on fresh samples, so every ratio is 1.",
        "The reward ends higher than with stale samples at the same number of updates.",
        "It samples eight times as many completions for that, so compare per token as well."),
        "reward", 'max(run, "ratio/max") < 1.001 and last(run, "reward", 2) > last(beside, "reward", 2)', steps=64,
        knobs={"updates_per_batch": 1}, beside="stale"),
    Preset("stale", "Stale samples", "8 batches with 8 updates each", (
        "The largest ratio is far above 1: the last updates of a batch use samples of an older policy.",
        "The clip removes some of the tokens from the gradient.",
        "The reward is lower than on-policy at the same number of updates, but higher per token."),
        "clip", 'mean(run, "clip_frac/region") > 0.01 and last(run, "reward", 2) < last(beside, "reward", 2)', steps=8,
        knobs={"updates_per_batch": 8}, beside="on_policy", lines=("reward",)),
    Preset("old_samples", "Old samples", "REINFORCE on batches that are 8 steps old", (
        "The reward collapses, although the same algorithm learns this task from fresh samples.",
        "The effective sample size falls: few tokens of a batch are still likely under the present policy.",
        "Run it beside Old samples, GSPO. Or set the staleness to 0 while the reward still rises."),
        "reward", 'last(run, "reward") < 0.3 and last(beside, "reward") > last(run, "reward") + 0.2 and '
        'max(run, "sample_age/mean") == 8', steps=30, algorithm="reinforce", knobs={**_OLD, "beta": 0.0},
        beside="old_samples_held"),
    Preset("old_samples_held", "Old samples, GSPO", "GSPO on batches that are 8 steps old", (
        "The reward rises, although each batch was sampled 8 updates before it is learnt from.",
        "Almost half of the completions are clipped before the first update, because their ratio is already outside "
        "the bounds.",
        "The clip keeps the policy near the policy that sampled, so the samples stay informative."),
        "reward", 'last(run, "reward") > first(run, "reward", 1) and mean(run, "clip_frac/region") > 0.01', steps=30,
        algorithm="gspo", knobs={**_OLD, "updates_per_batch": 1}, beside="old_samples"),
    Preset("guess", "Higher or lower", "Find a number from 1 to 7 in three turns", (
        "The share of solved episodes rises from about a half to over 95 % in half a minute.",
        "A player who ignores the hints solves 43 % at best, so the model has learnt to use them, although the "
        "environment's tokens are masked out of the loss.",
        "Read the two dialogues below the prompt: after “higher” the guesses become larger. Play against the model in "
        "the Playground."),
        "reward", 'last(run, "reward") > 0.9 and first(run, "reward") < 0.7 and last(run, "episodes/unended_frac") < '
        '0.1', steps=60, task="guess", lines=("reward", "episodes/unended_frac")),
    Preset("calculator", "A calculator", "The model calls a tool to answer a question", (
        "The share of solved episodes rises from about three quarters to about 90 % in half a minute.",
        "To solve an episode, the model must copy the question into <tool>…</tool>, read the value and write it down.",
        "Read the two dialogues below the prompt: in a failed one, a character of the call or the answer is wrong."),
        "reward", 'last(run, "reward") > first(run, "reward", 1) + 0.08 and last(run, "reward") > 0.8', steps=30,
        task="lookup", lines=("reward", "frac_reward_zero_std")),
)

_MAZE = (
    Preset("cliff_short", "Short path, high risk", "Q-learning on the cliff, ε = 0.1 throughout", (
        "The greedy path is the shortest one: 13 moves along the edge.",
        "The returns during training stay below those of SARSA, because random moves fall over the edge.",
        "Q-learning values the greedy policy, not the exploring one that it follows."),
        "start_value", 'last(run, "start_value/greedy") > -14 and mean(run, "episode_return") < '
        'mean(beside, "episode_return")', kind="maze", algorithm="q_learning", task="cliff", steps=300,
        knobs=_CLIFF, beside="cliff_safe", lines=("episode_return",)),
    Preset("cliff_safe", "Long path, low risk", "SARSA on the cliff, ε = 0.1 throughout", (
        "The greedy path keeps away from the edge: it takes more than 13 moves.",
        "The returns during training are higher than those of Q-learning.",
        "SARSA values the policy that it follows, random moves included."),
        "episode_return", 'last(run, "start_value/greedy") < -14 and mean(run, "episode_return") > '
        'mean(beside, "episode_return")', kind="maze", algorithm="sarsa", task="cliff", steps=300,
        knobs=_CLIFF, beside="cliff_short"),
    Preset("no_traces", "One cell at a time", "SARSA(λ) with λ = 0", (
        "Each episode carries the reward at the goal one cell further back.",
        "The greedy policy does not find the goal within 40 episodes.",
        "Run it beside Long traces, where one episode credits the whole path."),
        "start_value", 'at(run, "start_value/greedy", 30) < at(beside, "start_value/greedy", 30) - 3', kind="maze",
        algorithm="sarsa_lambda", task="corridors", steps=60, knobs={"lambda": 0.0}, beside="long_traces"),
    Preset("long_traces", "Long traces", "SARSA(λ) with λ = 0.9", (
        "The first episode that reaches the goal credits the whole path.",
        "The greedy policy reaches the goal within ten episodes.",
        "The error of V is smaller than with λ = 0 after 60 episodes."),
        "start_value", 'at(run, "start_value/greedy", 30) > 3 and '
        'last(run, "value_error") < last(beside, "value_error")', kind="maze", algorithm="sarsa_lambda",
        task="corridors", steps=60, knobs={"lambda": 0.9}, beside="no_traces"),
)

_EPOCHS: Mapping[str, Value] = {"epochs": 20, "anneal": False}
_CARTPOLE = (
    Preset("cartpole_no_clip", "No clip", "PPO with 20 epochs per rollout, and nothing bounds the ratio", (
        "The KL of a step is over 1 nat on average, more than a hundred times that of Clip 0.2.",
        "The entropy falls below 0.2 nats within ten steps: the policy commits before it has seen much.",
        "The return depends on the seed: below 250 with one, 500 with another. Clip 0.2 reaches 500 with every seed."),
        "step_kl", 'mean(run, "kl/step") > 0.3 and at(run, "entropy/action", 10) < 0.2 and '
        'lowest(last(run, "episode_return", 10)) < 250 and lowest(last(beside, "episode_return", 10)) > 450',
        kind="cartpole", algorithm="ppo", task="CartPole-v1", steps=60,
        knobs={**_EPOCHS, "clip_low": 1.0, "clip_high": 10.0}, beside="cartpole_clip", lines=("episode_return",)),
    Preset("cartpole_clip", "Clip 0.2", "PPO with 20 epochs per rollout, ratios clipped to 1 ± 0.2", (
        "The KL of a step stays small, although each rollout is used for 40 updates.",
        "The clip stops a few per cent of the actions, whose probability has changed as far as one rollout allows.",
        "The return rises to 500 and stays there."),
        "episode_return", 'last(run, "episode_return", 10) > 450 and mean(run, "kl/step") < 0.1', kind="cartpole",
        algorithm="ppo", task="CartPole-v1", steps=60, knobs=_EPOCHS, beside="cartpole_no_clip"),
    Preset("cartpole_short_sighted", "Short-sighted", "PPO with γ = 0", (
        "The return does not rise above that of random actions, about 20.",
        "With γ = 0 only the next reward counts, and it is 1 for every action, so no action is better than another "
        "one.",
        "Set γ to 0.99 while it runs: the return then rises."),
        "episode_return", 'last(run, "episode_return", 10) < 40', kind="cartpole", algorithm="ppo", task="CartPole-v1",
        steps=40, knobs={"gamma": 0.0}),
)

PRESETS: dict[str, Preset] = {preset.key: preset for preset in (*_LLM, *_MAZE, *_CARTPOLE)}


def of_kind(kind: str) -> list[Preset]:
    """The presets of a kind of run."""
    return [preset for preset in PRESETS.values() if preset.kind == kind]


def preset(key: str) -> Preset:
    """The preset of that key. Raises LabError if there is none."""
    if key not in PRESETS:
        raise LabError(f"There is no preset {quoted(key)}: {suggestion(key, list(PRESETS))}")
    return PRESETS[key]


@dataclass(frozen=True)
class Recording:
    """A recorded run with seed 0: the `settings` that it had, and by metric the `curves` of its picture."""

    settings: Mapping[str, Any]
    curves: Mapping[str, Sequence[float]]


@cache
def recorded() -> Mapping[str, Recording]:
    """The recorded runs by their presets."""
    return {key: Recording(**found) for key, found in json.loads(RECORDED.read_text(encoding="utf-8")).items()}
