"""The choices that make an algorithm, family by family, and the functions that they name.

    prompts → generate → reward → shape → select → credit → (ratio, surrogate, KL, aggregation) → update

    L(θ) = agg_mask[ −S(ρ_t(θ), Â_t) + β·KL_t ]

Each choice's key is the name of a function in its family's module. A function asks for what it needs by its parameter
names: quantities that the family provides, and the knobs that the choice needs. The declarations stand in `families`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from labcore.catalog import reward_terms
from labcore.catalog.choice import Choice, Family, Ratio
from labcore.catalog.families.credit import ADVANTAGE, NORMALISATION
from labcore.catalog.families.distillation import TEACHER_CONTEXT
from labcore.catalog.families.kl import AGGREGATION, KL_ESTIMATOR
from labcore.catalog.families.preferences import DIVERGENCE, PAIRS, PREFERENCE_LOSS
from labcore.catalog.families.process import STEP_LABELS, STEP_REWARD
from labcore.catalog.families.rewards import REWARD, SELECTION, SHAPING
from labcore.catalog.families.supervised import SFT_LOSS
from labcore.catalog.families.surrogates import OBJECTIVE, RATIO, SURROGATE
from labcore.catalog.knob import Knob

__all__ = ["ADVANTAGE", "AGGREGATION", "DIVERGENCE", "FAMILIES", "KL_ESTIMATOR", "KL_PLACEMENTS", "NORMALISATION",
           "NO_LOSS", "OBJECTIVE", "PAIRS", "PREFERENCE_LOSS", "RATIO", "REWARD", "SELECTION", "SFT_LOSS", "SHAPING",
           "STEP_LABELS", "STEP_REWARD", "SURROGATE", "TEACHER_CONTEXT", "chosen", "losses_of", "needs_reward_model",
           "needs_teacher", "own_knobs", "ratio_of", "scores_steps", "sources_of", "weighted_losses", "written_share"]

FAMILIES: tuple[Family[Any], ...] = (
    REWARD, SHAPING, SELECTION, ADVANTAGE, NORMALISATION, RATIO, SURROGATE, KL_ESTIMATOR, AGGREGATION,
    PREFERENCE_LOSS, DIVERGENCE, PAIRS, SFT_LOSS, STEP_LABELS, STEP_REWARD, TEACHER_CONTEXT)

KL_PLACEMENTS = ("reward", "loss", "off")

NO_LOSS = "none"  # of the second loss


def sources_of(knobs: Mapping[str, Any]) -> list[str]:
    """The reward sources of a run: the chosen one, and those that a sum of rewards has as terms; none in a loop that
    has no such choice."""
    if "reward_source" not in knobs:
        return []
    return [str(knobs["reward_source"]), *(term.key for term in reward_terms.of(knobs) if not term.function)]


def needs_reward_model(knobs: Mapping[str, Any]) -> bool:
    """True if the rewards of a run come from trained reward models, if only in part."""
    return any(REWARD[source].scorer for source in sources_of(knobs))


def scores_steps(knobs: Mapping[str, Any]) -> bool:
    """True if the rewards of a run come from scores of the steps of its completions, if only in part."""
    return any(REWARD[source].process for source in sources_of(knobs))


def needs_teacher(knobs: Mapping[str, Any]) -> bool:
    """True if a run learns from a teacher: from its distribution, its log-probs, or answers that it writes."""
    asked = any(each.teacher for family in (ADVANTAGE, SFT_LOSS) for each in chosen(family, knobs))
    return asked or (knobs.get("answers") == "teacher" and float(knobs.get("on_policy_share", 0)) < 1)


def written_share(knobs: Mapping[str, Any]) -> float:
    """The share of a supervised run's batches whose answers are written by a network of the run, not given."""
    return 1.0 if knobs.get("answers") == "teacher" else float(knobs.get("on_policy_share", 0))


def ratio_of(knobs: Mapping[str, Any]) -> Ratio:
    """The ratio of a run's surrogate: its own where it has one, else the chosen one."""
    return RATIO[SURROGATE[str(knobs["surrogate"])].own_ratio or str(knobs["ratio"])]


def losses_of(knobs: Mapping[str, Any]) -> list[str]:
    """The preference losses that a run adds up; none where its loop has no such loss."""
    return [name for name, _ in weighted_losses(knobs)]


LOSSES = {"preference_loss": "first_weight", "second_loss": "second_weight", "third_loss": "third_weight"}


def weighted_losses(knobs: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The preference losses that a run adds up, each with its weight."""
    return [(str(knobs[key]), float(knobs.get(weight, 1.0))) for key, weight in LOSSES.items()
            if knobs.get(key, NO_LOSS) != NO_LOSS]


def chosen(family: Family[Any], knobs: Mapping[str, Any]) -> list[Any]:
    """The members of a family that a run uses: of preference losses and of rewards there may be several."""
    if family is PREFERENCE_LOSS:
        return [PREFERENCE_LOSS[name] for name in losses_of(knobs)]
    if family is REWARD:
        return [REWARD[name] for name in sources_of(knobs)]
    return [family[str(knobs[family.key])]] if family.key in knobs else []


def own_knobs(family: Family[Any]) -> Mapping[str, Knob]:
    """The knobs that members of a family bring along, by their keys."""
    return _brought(family.members)


@cache
def _brought(members: tuple[Choice, ...]) -> Mapping[str, Knob]:
    return {knob.key: knob for member in members for knob in member.brings}
