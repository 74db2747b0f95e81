"""Which knobs of a run cannot act at the values that its other knobs have, and why: data, read by the page.

A rule counts for every algorithm that has the knobs it speaks of. Left out: what is not a matter of knobs, such as
the SFT of a model that is not built in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from labcore.catalog import choices
from labcore.catalog.choice import Family
from labcore.catalog.knob import Value
from labcore.catalog.llm.tasks import VERIFIERS


@dataclass(frozen=True)
class Rule:
    """`knobs` cannot act while each knob of `at` has one of the values given there, and `also` says so of all values;
    `why` ends "No effect: …"."""

    knobs: tuple[str, ...]
    at: Mapping[str, tuple[Value, ...]]
    why: str
    also: Callable[[Mapping[str, Value]], bool] = lambda values: True

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether none of `knobs` can act at these values, which have one of them."""
        return self.also(values) and all(other in values and values[other] in stops for other, stops in self.at.items())


_NO_CRITIC = tuple(choice.key for choice in choices.ADVANTAGE.members if not choice.critic)
_CONSTANT = tuple(choice.key for choice in choices.ADVANTAGE.members if choice.constant)
_SEQUENCES = tuple(choice.key for choice in choices.ADVANTAGE.members if choice.level == "sequence")
# AOT sorts the log-probs of policy and reference apart.
_NO_RATIOS = ("aot", *(choice.key for choice in choices.PREFERENCE_LOSS.members if not choice.reference))
ONE_UPDATE = "one update per batch, so every ratio is 1"
_EVERY_TOKEN = tuple(choice.key for choice in choices.PREFERENCE_LOSS.members if choice.every_token)
_ELSEWHERE = ("max_new_tokens",)  # what a choice needs that acts without it too


def _all_but(*readers: str) -> tuple[Value, ...]:
    """The verifiers that do not read a knob of `readers`."""
    return tuple(name for name in VERIFIERS if name not in readers)


RULES = (
    # Language models.
    Rule(("clip_low", "clip_high", "gate_positive", "gate_negative", "clip_delta", "dual_clip", "off_policy_threshold",
          "gamma_power_positive", "gamma_rate_positive", "gamma_power_negative", "gamma_rate_negative"), {}, ONE_UPDATE,
         lambda values: _one_update(values)),
    Rule(("overlong_filter",), {"selection": ("not_truncated",)}, "the selection leaves these completions out already"),
    Rule(("ratio_cap",), {}, ONE_UPDATE, lambda values: _one_update(values) and float(values["ratio_cap"]) >= 1),
    Rule(("ratio",), {"surrogate": ("score_function",)}, "the score function takes no ratio",
         lambda values: not _ratio_in_kl(values)),
    Rule(("ratio",), {"surrogate": tuple(choice.key for choice in choices.SURROGATE.members if choice.own_ratio)},
         "the surrogate has a ratio of its own", lambda values: not _ratio_in_kl(values)),
    Rule(("ratio",), {"surrogate": ("detached_weight",)}, ONE_UPDATE,  # of whatever kind, and without a gradient
         lambda values: _one_update(values) and not _ratio_in_kl(values)),
    Rule(("beta", "kl_estimator", "adaptive_kl_target", "adaptive_kl_horizon"), {"kl_placement": ("off",)},
         "the KL placement is off"),
    Rule(("kl_estimator", "kl_placement", "adaptive_kl_target", "adaptive_kl_horizon"), {"beta": (0,)}, "β is 0"),
    Rule(("beta", "kl_estimator", "adaptive_kl_target", "adaptive_kl_horizon"),
         {"kl_placement": ("reward",), "advantage": _CONSTANT, "selection": ("everything", "informative",
                                                                             "not_truncated")},
         "neither the advantage nor the selection uses the KL in the reward"),
    Rule(("adaptive_kl_horizon",), {"adaptive_kl_target": (0,)}, "there is no KL target"),
    Rule(("whiten_rewards",), {"advantage": _SEQUENCES}, "this advantage is not made token by token"),
    Rule(("critic_learning_rate", "value_clip"), {"advantage": _NO_CRITIC}, "this advantage needs no critic"),
    Rule(("whiten_advantages",), {"advantage": _SEQUENCES}, "this advantage is not made token by token"),
    Rule(("second_weight",), {"second_loss": (choices.NO_LOSS,)}, "there is no second loss"),
    Rule(("divergence", "divergence_alpha"), {"preference_loss": _NO_RATIOS, "second_loss": (
        choices.NO_LOSS, *_NO_RATIOS)}, "this preference loss takes no log-ratios to the reference"),
    Rule(("ld_alpha",), {"preference_loss": _EVERY_TOKEN, "second_loss": (choices.NO_LOSS, *_EVERY_TOKEN)},
         "this preference loss counts every token"),
    Rule(("stop_gold_fall",), {"reward_source": ("verifier", "noisy_verifier", "correct_and_format",
                                                 "steps_and_outcome")}, "no gold reward is measured beside this one"),
    Rule(("lora_alpha",), {"lora_rank": (0,)}, "LoRA is off"),
    Rule(("sft_target",), {"sft_steps": (0,)}, "there are no SFT steps"),
    # Tasks on the user's own files.
    Rule(("pattern",), {"verifier": _all_but("regex", "contains", "format")}, "this verifier looks for no pattern"),
    Rule(("length_low", "length_high"), {"verifier": _all_but("length")}, "this verifier does not look at the length"),
    # Deep methods.
    Rule(("clip_low", "clip_high"), {"objective": ("kl_penalty",)}, "the objective is kl_penalty"),
    Rule(("beta", "kl_target"), {"objective": ("clip",)}, "the objective is clip"),
    Rule(("clip_low", "clip_high", "beta"), {"epochs": (1,), "mini_batches": (1,)}, ONE_UPDATE),
    Rule(("value_clip",), {"clip_values": (False,)}, "values are not clipped"),
    # The maze.
    Rule(("clip_range",), {"epochs": (1,)}, ONE_UPDATE),
    Rule(("epsilon_end",), {"epsilon_steps": (0,)}, "the exploration does not fall"),
    Rule(("discount_states",), {"gamma": (1,)}, "γ is 1"),
)


def _one_update(values: Mapping[str, Value]) -> bool:
    """Whether a language model's run makes one update of each batch, as a row without these knobs always does."""
    return "surrogate" in values and all(values.get(knob, 1) == 1 for knob in ("updates_per_batch", "mini_batches"))


def _ratio_in_kl(values: Mapping[str, Value]) -> bool:
    """Whether the KL in the loss is weighed by the chosen ratio."""
    return (values.get("kl_estimator"), values.get("kl_placement")) == ("ratio_k3", "loss") and bool(values.get("beta"))


def reason(key: str, values: Mapping[str, Value]) -> str:
    """Why the knob `key` cannot act in a run whose knobs have these `values`; "" where it can.

    >>> reason("clip_low", {"surrogate": "clip", "updates_per_batch": 1, "mini_batches": 1})
    'one update per batch, so every ratio is 1'
    >>> reason("gamma", {"advantage": "group_mean"})
    'the advantage is group_mean'
    """
    return next((rule.why for rule in _rules_of(key) if rule.holds(values)), None) or unused(key, values)


@cache  # a page asks it of every knob, many times
def _rules_of(key: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if key in rule.knobs)


def unused(key: str, values: Mapping[str, Value]) -> str:
    """The same for a knob that only some choices of a family ask for: which choice does not."""
    for family in _families_that_ask(key):
        if family.key in values and not any(key in family[name].needs for name in _chosen(family, values)):
            return f"the {family.label} is {values[family.key]}"
    return ""


@cache
def _families_that_ask(key: str) -> tuple[Family, ...]:
    return () if key in _ELSEWHERE else tuple(
        family for family in choices.FAMILIES if any(key in choice.needs for choice in family.members))


def _chosen(family: Family, values: Mapping[str, Value]) -> list[str]:
    """The members of a family that a run uses: of preference losses and of reward sources there may be several."""
    if family is choices.PREFERENCE_LOSS:
        return choices.losses_of(values)
    return choices.sources_of(values) if family is choices.REWARD else [str(values[family.key])]
