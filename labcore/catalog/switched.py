"""Charts that no row asks for: they belong to a switch, and any run with that switch on has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from labcore.catalog import reward_terms
from labcore.catalog.choices import REWARD, chosen
from labcore.catalog.knob import Value
from labcore.catalog.panels import OWN, PANELS


def masked(knobs: Mapping[str, Value]) -> bool:
    """Whether tokens are left out of the policy gradient, or weighed."""
    return (float(knobs.get("top_entropy_share", 1)) < 1 or float(knobs.get("off_policy_threshold", 0)) > 0
            or float(knobs.get("importance_cap", 0)) > 0)


def _ensemble(knobs: Mapping[str, Value]) -> bool:
    source = str(knobs.get("reward_source", ""))
    return source in REWARD.names and REWARD[source].scorer and "," in str(knobs["reward_model"])


def _parts(knobs: Mapping[str, Value]) -> bool:
    return any(source.parts for source in chosen(REWARD, knobs)) or len(reward_terms.of(knobs)) > 1


def _selective(knobs: Mapping[str, Value]) -> bool:
    return bool(knobs.get("overlong_filter")) or knobs.get("selection", "everything") != "everything"


SWITCHED: Mapping[str, Callable[[Mapping[str, Value]], bool]] = {
    "spread": _ensemble,
    "selection": _selective,
    "parts": _parts,
    "unscored": lambda knobs: False,  # where it is logged
    "bound": lambda knobs: knobs.get("surrogate") == "bounded_clip",
    "token_weight": masked,
    "pass_at_k": lambda knobs: False,  # only where it is logged: a file may be too small to hold rows out
    **{panel.key: lambda knobs: False for panel in OWN},  # where it is logged
    "kl_coefficient": lambda knobs: float(knobs.get("adaptive_kl_target", 0)) > 0,
}


def with_switched(panels: tuple[str, ...], knobs: Mapping[str, Value],
                  logged: Collection[str] = ()) -> tuple[str, ...]:
    """`panels` of a row, and those of the switches that a run which began with these knobs has on, or had: metrics of
    theirs are `logged`.

    >>> with_switched(("reward",), {"adaptive_kl_target": 0.1}), with_switched(("reward",), {}, {"beta"})
    (('reward', 'kl_coefficient'), ('reward', 'kl_coefficient'))
    """
    return (*panels, *(key for key, on in SWITCHED.items() if key not in panels and (
        on(knobs) or not set(PANELS[key].lines(logged)).isdisjoint(logged))))
