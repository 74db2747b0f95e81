"""The charts: the metrics that each one draws, and its subject."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from labcore.catalog import reward_terms
from labcore.catalog.choices import REWARD, SURROGATE, chosen
from labcore.catalog.conditions import delayed
from labcore.catalog.knob import Value
from labcore.catalog.metric import ChartFamily
from labcore.catalog.metrics import METRICS
from labcore.catalog.metrics import OWN as FOREIGN

FAMILIES: tuple[ChartFamily, ...] = get_args(ChartFamily)


@dataclass(frozen=True)
class Panel:
    """One chart: the metrics drawn on it, in order. All have the unit of the first one, which the axis shows. The first
    one gives the headline number, unless the metrics are `peers`: then the chart has no headline number.

    `family` says what its metrics are about: charts of one family share a hue. `small`: shares that are usually near
    zero, so that their axis ends soon after the largest instead of at 1. `groups`: it is about completions of one
    prompt, so there is nothing to draw where a prompt has one only. `held_out` are the metrics of held-out rows that
    are drawn beside the others where a run logs them. `prefix`: it also draws what a run has logged under that prefix
    and no chart names, such as rewards of the user's own.
    """

    key: str
    title: str
    metrics: tuple[str, ...]
    family: ChartFamily
    small: bool = False
    groups: bool = False
    held_out: tuple[str, ...] = ()
    prefix: str = ""
    peers: bool = False

    def lines(self, logged: Collection[str]) -> tuple[str, ...]:
        """The metrics that it draws of a run which has `logged` these."""
        own = sorted(key for key in logged if key.startswith(self.prefix) and key not in NAMED) if self.prefix else []
        return (*self.metrics, *own)


_PANELS = (
    Panel("reward", "Reward", ("reward", "reward_std", "reward/gold", "reward/shaped", "reward/verifier",
                               "reward/steps", "exact/reward"),
          "reward", held_out=("held_out/reward",)),
    Panel("spread", "Spread of the reward models", ("reward/spread",), "reward"),
    Panel("exact_match", "Accepted completions", ("exact_match",), "reward",
          held_out=("held_out/accuracy", "held_out/greedy")),
    Panel("pass_at_k", "Held-out pass@k", tuple(f"held_out/pass@{k}" for k in (2, 4, 8, 16, 32, 64)), "reward",
          peers=True),
    Panel("zero_variance", "Zero-variance groups", (
        "frac_reward_zero_std", "groups/solve_none_frac", "groups/solve_all_frac"), "clip", groups=True),
    Panel("win_rate", "Win rate against the opponent", ("win_rate",), "reward"),
    Panel("levels", "Reward by level", tuple(f"reward_at_level/{level}" for level in range(21)), "reward", peers=True),
    Panel("pool", "Prompt pool", ("pool/drawn_frac", "pool/tried_frac"), "clip", peers=True),
    Panel("kl", "KL to the reference", ("kl", "kl/k1", "kl/k2", "exact/kl"), "divergence"),
    Panel("teacher_kl", "KL to the teacher", ("teacher/reverse_kl", "teacher/forward_kl"), "divergence"),
    Panel("teacher_agreement", "Agreement with the teacher", ("teacher/agreement",), "reward"),
    Panel("exact_distance", "Distance to π*", ("exact/distance",), "divergence"),
    Panel("exact_objective", "Objective, exact", ("exact/objective", "exact/best"), "reward"),
    Panel("exact_gradient", "Cosine to the exact gradient", ("exact/gradient_cosine",), "gradient"),
    Panel("exact_kl", "KL both ways, exact", ("exact/kl", "exact/kl_reverse"), "divergence", peers=True),
    Panel("entropy", "Entropy", ("entropy", "exact/entropy"), "entropy"),
    Panel("clip", "Clipped", ("clip_frac/region", "clip_frac/low", "clip_frac/high"), "clip", small=True),
    Panel("bound", "Clipped, negative advantage", ("clip_frac/bound",), "clip", small=True),
    Panel("token_weight", "Weight of a token", ("token_weight",), "clip"),
    Panel("ratio", "Largest ratio", ("ratio/max",), "clip"),
    Panel("sample_age", "Age of the batch", ("sample_age/mean", "sample_age/max"), "system"),
    *(Panel(f"surrogate_{member.key}", "Surrogates", (
        *(metric.key for metric in member.logs), *(("surrogate/cpi", "surrogate/kl_penalised") if all(
            metric.unit == METRICS["surrogate/cpi"].unit for metric in member.logs) else ())), "gradient")
      for member in SURROGATE if member.needs_ratio),
    Panel("parts", "Named rewards", ("reward/correct", "reward/format"), "reward", prefix="reward/", peers=True),
    Panel("unscored", "Not scored", ("unscored/reward",), "clip", small=True,
          prefix="unscored/"),
    Panel("step_scores", "Score of the steps", ("reward/step_score", "reward/steps_right"), "reward"),
    Panel("selection", "Selection", ("selection/kept_frac",), "clip"),
    Panel("rounds", "Sampling rounds", ("selection/rounds",), "clip"),
    Panel("length", "Completion length", ("completions/mean_length",), "system",
          held_out=("held_out/mean_length",)),
    Panel("truncated", "Truncated", ("completions/truncated_frac",), "clip", small=True,
          held_out=("held_out/truncated_frac",)),
    Panel("critic", "Critic loss", ("value_loss",), "critic"),
    Panel("explained_variance", "Explained variance", ("explained_variance",), "critic"),
    Panel("accuracy", "Pair accuracy", ("rewards/accuracies",), "reward", held_out=("held_out/pair_accuracy",)),
    Panel("margin", "Implicit rewards", ("rewards/margins", "rewards/chosen", "rewards/rejected"), "divergence",
          held_out=("held_out/margin",)),
    Panel("mismatched_kl", "KTO's reference point", ("kl/mismatched",), "divergence"),
    Panel("logps", "Log-probabilities", ("logps/chosen", "logps/rejected"), "entropy", peers=True),
    Panel("held_out_accuracy", "Pair accuracy", ("eval_accuracy", "accuracy"), "reward"),
    Panel("score_margin", "Margin of the scores", ("eval_margin", "margin"), "divergence"),
    Panel("step_accuracy", "Step accuracy", ("eval_step_accuracy", "step_accuracy"), "reward"),
    Panel("first_error", "First errors found", ("eval_first_error",), "reward"),
    Panel("step_auc", "AUC of the steps", ("eval_step_auc",), "reward"),
    Panel("best_of_n", "Best of n", tuple(f"best_of_n/{name}" for name in (
        "lowest", "product", "last", "sampled", "any")), "reward", peers=True),
    Panel("step_score", "Score of the steps", ("eval_step_score", "eval_step_right"), "divergence"),
    Panel("calibration", "Calibration error", ("calibration_error",), "clip", small=True),
    Panel("gold_correlation", "Correlation with gold", ("gold_correlation",), "reward"),
    Panel("token_accuracy", "Token accuracy", ("mean_token_accuracy",), "reward",
          held_out=("held_out/token_accuracy",)),
    Panel("grad_norm", "Gradient norm", ("grad_norm",), "gradient"),
    Panel("loss", "Loss", ("loss",), "gradient", held_out=("held_out/loss",)),
    Panel("speed", "Speed", ("tokens_per_second",), "system"),
    Panel("memory", "Memory", ("memory",), "system"),
    Panel("episode_return", "Return", ("episode_return",), "reward"),
    Panel("eval_return", "Evaluation return (greedy)", ("eval_return", "eval_return/min"), "reward"),
    Panel("episode_length", "Episode length", ("episode_length",), "system"),
    Panel("moves", "Moves to the goal", ("moves_to_goal",), "reward"),
    Panel("step_kl", "KL of the step", ("kl/step",), "divergence"),
    Panel("action_entropy", "Entropy", ("entropy/action",), "entropy"),
    Panel("td_error", "TD error", ("td_error",), "critic"),
    Panel("epsilon", "Exploration", ("epsilon",), "entropy"),
    Panel("q_mean", "Mean Q", ("q/mean",), "critic"),
    Panel("replay", "Replay", ("replay_size",), "system"),
    Panel("kl_coefficient", "KL coefficient", ("beta",), "divergence"),
    Panel("entropy_coefficient", "Entropy coefficient", ("entropy_coefficient",), "entropy"),
    Panel("policy_loss", "Policy loss", ("policy_loss",), "gradient"),
    Panel("step_norm", "Update norm", ("step_norm",), "gradient"),
    Panel("line_search", "Line search", ("line_search/share",), "gradient"),
    Panel("gradient_variance", "Gradient variance", (
        "gradient_variance/advantage", "gradient_variance/baseline", "gradient_variance/reward_to_go",
        "gradient_variance/total_return"), "gradient", peers=True),
    Panel("value_error", "Error of V", ("value_error", "value_error/max"), "critic"),
    Panel("q_error", "Error of Q", ("q_error",), "critic"),
    Panel("value_change", "Change of V", ("value_change",), "critic"),
    Panel("start_value", "Value of the greedy policy", ("start_value/greedy", "start_value/best", "start_value"),
          "reward"),
    Panel("env_speed", "Speed", ("env_steps_per_second",), "system"),
)

# The charts of single metrics, which are declared with these.
OWN = tuple(Panel(metric.key.replace("/", "_"), metric.label, (metric.key,), metric.chart)
            for metric in METRICS.values() if metric.chart)


class _Panels(Mapping[str, Panel]):
    """The charts by their keys, and one chart for each of a trainer's own metrics, by its key."""

    def __init__(self, declared: Mapping[str, Panel]):
        self._declared = declared

    def __getitem__(self, key: str) -> Panel:
        if key not in self._declared and key in METRICS:
            return Panel(key, METRICS[key].label, (key,), "system")
        return self._declared[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


PANELS: Mapping[str, Panel] = _Panels({panel.key: panel for panel in (*_PANELS, *OWN)})
NAMED = frozenset(metric for panel in PANELS.values() for metric in panel.metrics)
SMALL = frozenset(metric for panel in _PANELS if panel.small for metric in panel.metrics)


# ---------------------------------------------------------------- switched
# Charts that no row asks for: they belong to a switch, and any run with that switch on has them.

def masked(knobs: Mapping[str, Value]) -> bool:
    """True if tokens are left out of the policy gradient, or weighed."""
    return (float(knobs.get("top_entropy_share", 1)) < 1 or float(knobs.get("off_policy_threshold", 0)) > 0
            or float(knobs.get("importance_cap", 0)) > 0)


def _ensemble(knobs: Mapping[str, Value]) -> bool:
    source = str(knobs.get("reward_source", ""))
    scored = source in REWARD.names and REWARD[source].scorer and not REWARD[source].process
    return scored and "," in str(knobs["reward_model"])


def _parts(knobs: Mapping[str, Value]) -> bool:
    return any(source.parts for source in chosen(REWARD, knobs)) or len(reward_terms.of(knobs)) > 1


def _process(knobs: Mapping[str, Value]) -> bool:
    return any(source.process for source in chosen(REWARD, knobs))


def _selective(knobs: Mapping[str, Value]) -> bool:
    return bool(knobs.get("overlong_filter")) or knobs.get("selection", "everything") != "everything"


SWITCHED: Mapping[str, Callable[[Mapping[str, Value]], bool]] = {
    "spread": _ensemble,
    "selection": _selective,
    "parts": _parts,
    "step_scores": _process,
    "best_of_n": lambda knobs: False,  # where it is logged: a file has one answer of a prompt
    "unscored": lambda knobs: False,  # where it is logged
    "bound": lambda knobs: knobs.get("surrogate") == "bounded_clip",
    "token_weight": masked,
    "sample_age": delayed,
    "levels": lambda knobs: bool(knobs.get("easiest")),  # and where the rows of a file have levels
    "pool": lambda knobs: bool(knobs.get("prompt_pool")),
    "pass_at_k": lambda knobs: False,  # only where it is logged: a file may be too small to hold rows out
    **{panel.key: lambda knobs: False for panel in OWN},  # where it is logged
    "kl_coefficient": lambda knobs: float(knobs.get("adaptive_kl_target", 0)) > 0,
    "entropy_coefficient": lambda knobs: float(knobs.get("entropy_target", 0)) > 0,
}


def with_switched(panels: tuple[str, ...], knobs: Mapping[str, Value],
                  logged: Collection[str] = ()) -> tuple[str, ...]:
    """`panels` of a row, and those of the switches that a run which began with these knobs has on, or had: metrics of
    theirs are `logged`. The trainer's own metrics are last.

    >>> with_switched(("reward",), {"adaptive_kl_target": 0.1}), with_switched(("reward",), {}, {"beta"})
    (('reward', 'kl_coefficient'), ('reward', 'kl_coefficient'))
    """
    return (*panels, *(key for key, on in SWITCHED.items() if key not in panels and (
        on(knobs) or not set(PANELS[key].lines(logged)).isdisjoint(logged))),
        *sorted(key for key in logged if key.startswith(FOREIGN)))
