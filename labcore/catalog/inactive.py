"""Knobs without effect at the values of a run's other knobs, and why: data, read by the page.

A rule counts for every algorithm that has the knobs it speaks of. Left out: what is not a matter of knobs, such as
the SFT of a model that is not built in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from labcore.catalog import choices
from labcore.catalog.choice import Choice, Family, Rule
from labcore.catalog.conditions import ONE_UPDATE, one_update
from labcore.catalog.knob import Value
from labcore.catalog.llm import difficulty
from labcore.catalog.llm.tasks import VERIFIERS


def _keys(members: Iterable[Choice]) -> tuple[Value, ...]:
    return tuple(member.key for member in members)


_LOSSES, _SURROGATES = choices.PREFERENCE_LOSS.members, choices.SURROGATE.members
_NO_CRITIC = _keys(each for each in choices.ADVANTAGE if not each.critic)
_SEQUENCES = _keys(each for each in choices.ADVANTAGE if each.level == "sequence")
_NO_RATIOS = _keys(each for each in _LOSSES if each.apart or not each.reference)
_EVERY_TOKEN = _keys(each for each in _LOSSES if each.every_token)
_ELSEWHERE = ("max_new_tokens", "teacher")  # what a choice needs that acts without it too


def _all_but(*readers: str) -> tuple[Value, ...]:
    """The verifiers that do not read a knob of `readers`."""
    return tuple(name for name in VERIFIERS if name not in readers)


def _each_loss(names: tuple[Value, ...]) -> dict[str, tuple[Value, ...]]:
    """Every loss of a run is one of these; the second and the third are optional."""
    return {key: names if key == "preference_loss" else (choices.NO_LOSS, *names) for key in choices.LOSSES}


RULES = (
    # Language models: those of single choices, then those of many.
    *(rule for family in choices.FAMILIES for member in family for rule in member.rules),
    Rule(("off_policy_threshold",), {}, ONE_UPDATE, lambda values: one_update(values) and not (
        values.get("importance_cap") or values.get("recompute_logprobs"))),
    Rule(("off_policy_threshold",), {"advantage": _keys(each for each in choices.ADVANTAGE if each.nonnegative)},
         "no advantage is negative, so no completion is left out",
         lambda values: values.get("normalisation", "none") == "none"),
    Rule(("importance_floor", "importance_mode"), {"importance_cap": (0,)}, "importance sampling is off"),
    *difficulty.RULES,
    Rule(("staleness_order",), {"staleness": (0,)}, "every batch is sampled right before its updates"),
    Rule(("replay_steps",), {"replay_share": (0,)}, "there is no replay"),
    Rule(("recompute_logprobs",), {}, "importance sampling recomputes them already",
         lambda values: bool(values.get("importance_cap"))),
    Rule(("ratio",), {"surrogate": _keys(each for each in _SURROGATES if not each.needs_ratio)},
         "the surrogate uses no ratio", lambda values: not _ratio_in_kl(values)),
    Rule(("ratio",), {"surrogate": _keys(each for each in _SURROGATES if each.own_ratio)},
         "the surrogate has a ratio of its own", lambda values: not _ratio_in_kl(values)),
    Rule(("ratio",), {"surrogate": _keys(each for each in _SURROGATES if each.weighs)}, ONE_UPDATE,  # whatever kind
         lambda values: one_update(values) and not _ratio_in_kl(values)),
    Rule(("beta", "kl_estimator", "adaptive_kl_target", "adaptive_kl_horizon"), {"kl_placement": ("off",)},
         "the KL placement is off"),
    Rule(("kl_estimator", "kl_placement", "adaptive_kl_target", "adaptive_kl_horizon"), {"beta": (0,)}, "β is 0"),
    Rule(("beta", "kl_estimator", "adaptive_kl_target", "adaptive_kl_horizon"),
         {"kl_placement": ("reward",), "advantage": _keys(each for each in choices.ADVANTAGE
                                                          if each.constant or each.teacher),
          "selection": _keys(each for each in choices.SELECTION if not each.ranks)},
         "neither the advantage nor the selection uses the KL in the reward"),
    Rule(("teacher",), {}, "no part of the run asks a teacher", lambda values: not choices.needs_teacher(values)),
    Rule(("context_template",), {"teacher_context": ("nothing", "feedback")}, "the teacher reads no right answer",
         lambda values: not values.get("context_share")),
    Rule(("feedback_template",), {"teacher_context": _keys(each for each in choices.TEACHER_CONTEXT
                                                           if not each.feedback)}, "the teacher reads no feedback"),
    Rule(("answers",), {"on_policy_share": (1,)}, "the policy writes all answers"),
    Rule(("adaptive_kl_horizon",), {"adaptive_kl_target": (0,)}, "there is no KL target"),
    Rule(("sft_focus", "sft_decay_steps"), {"sft_weight": (0,)}, "no demonstrations are imitated"),
    Rule(("entropy_step",), {"entropy_target": (0,)}, "there is no entropy target"),
    Rule(("whiten_rewards",), {"advantage": _SEQUENCES}, "this advantage is not computed per token"),
    Rule(("critic_learning_rate", "value_clip"), {"advantage": _NO_CRITIC}, "this advantage needs no critic"),
    Rule(("whiten_advantages",), {"advantage": _SEQUENCES}, "this advantage is not computed per token"),
    Rule(("whiten_advantages",), {"single_step": (True,), "teacher_discount": (0,)},
         "with the single-step term and a discount of 0 all advantages are 0"),
    Rule(("second_weight",), {"second_loss": (choices.NO_LOSS,)}, "there is no second loss"),
    Rule(("third_weight",), {"third_loss": (choices.NO_LOSS,)}, "there is no third loss"),
    Rule(("reference_mixup",), {"reference_every": (0,)}, "the reference never moves"),
    Rule(("divergence", "divergence_alpha"), _each_loss(_NO_RATIOS),
         "this preference loss uses no log-ratios to the reference"),
    Rule(("ld_alpha",), _each_loss(_EVERY_TOKEN),
         "this preference loss counts every token"),
    Rule(("stop_gold_fall",), {"reward_source": _keys(each for each in choices.REWARD if not each.proxy)},
         "no gold reward is measured beside this one"),
    Rule(("lora_alpha",), {"lora_rank": (0,)}, "LoRA is off"),
    Rule(("sft_target",), {"sft_steps": (0,)}, "there are no SFT steps"),
    # Tasks on the user's own files.
    Rule(("pattern",), {"verifier": _all_but("regex", "contains", "format")}, "this verifier uses no pattern"),
    Rule(("length_low", "length_high"), {"verifier": _all_but("length")}, "this verifier ignores the length"),
    # Deep methods.
    Rule(("clip_low", "clip_high"), {"objective": ("kl_penalty",)}, "the objective is the KL penalty"),
    Rule(("beta", "kl_target"), {"objective": ("clip",)}, "the objective is clipped"),
    Rule(("clip_low", "clip_high", "beta"), {"epochs": (1,), "mini_batches": (1,)}, ONE_UPDATE),
    Rule(("value_clip",), {"clip_values": (False,)}, "values are not clipped"),
    # The maze.
    Rule(("clip_range",), {"epochs": (1,)}, ONE_UPDATE),
    Rule(("epsilon_end",), {"epsilon_steps": (0,)}, "exploration is constant"),
    Rule(("discount_states",), {"gamma": (1,)}, "γ is 1"),
)


def _ratio_in_kl(values: Mapping[str, Value]) -> bool:
    """True if the KL in the loss is weighed by the chosen ratio."""
    estimators = choices.chosen(choices.KL_ESTIMATOR, values)
    return any(each.by_ratio for each in estimators) and values.get("kl_placement") == "loss" and bool(
        values.get("beta"))


def reason(key: str, values: Mapping[str, Value]) -> str:
    """Why the knob `key` has no effect in a run whose knobs have these `values`; "" where it has one.

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
    """Why the knob `key` has no effect: the chosen member of a family does not use it; "" if it does."""
    for family in _families_that_ask(key):
        if family.key in values and not any(key in each.needs for each in choices.chosen(family, values)):
            return f"the {family.label} is {values[family.key]}"
    return ""


@cache
def _families_that_ask(key: str) -> tuple[Family[Any], ...]:
    return () if key in _ELSEWHERE else tuple(
        family for family in choices.FAMILIES if any(key in choice.needs for choice in family.members))
