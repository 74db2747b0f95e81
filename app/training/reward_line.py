"""Name the source of a run's rewards in a sentence; say nothing of the task's own verifier, which is the usual one."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog import reward_terms
from labcore.catalog.choices import REWARD
from labcore.catalog.knob import Value, shown
from labcore.errors import LabError


def words(values: Mapping[str, Value]) -> str:
    """The sentence for the knobs of a run; empty where its rewards are the verifier's.

    >>> words({"reward_source": "noisy_verifier", "reward_noise": 0.1})
    "Rewards: the verifier's, of which a share of 0.1 is flipped."
    """
    source = str(values.get("reward_source"))
    said = REWARD[source].words if source in REWARD.names else ""
    known = {"sum": _sum(values), **{key: shown(value) for key, value in values.items()}}
    return f"Rewards: {said.format(**known)}." if said else ""


def _sum(values: Mapping[str, Value]) -> str:
    """The rewards of the user's own by their weights, "right + 0.5 × brief"."""
    named = reward_terms.of(values)
    try:
        weights = reward_terms.weights(str(values.get("reward_weights", "")), len(named))
    except LabError:  # said where the weights are
        weights = [1.0] * len(named)
    return " + ".join(term.part if weight == 1 else f"{weight:g} × {term.part}"
                      for term, weight in zip(named, weights, strict=True)) or "none chosen yet"
