"""Where the rewards of a run come from, in a sentence; nothing of the task's own verifier, which is the usual one."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog import reward_terms
from labcore.catalog.knob import Value, shown
from labcore.errors import LabError

SOURCES = {
    "noisy_verifier": "the verifier's, of which a share of {reward_noise} is flipped",
    "correct_and_format": "{correct_weight} × correct, the verifier's, + {format_weight} × format: ended by itself, "
    "and as long as the right answer",
    "order_only": "1 for any letters in order, even a single one. That is a hole to exploit: gold is the share that is "
    "really sorted",
    "steps_and_outcome": "a share for each character that is right at its place, and the verifier's at the end",
    "reward_model": "the scores of a trained reward model. The gold reward (the task's own score) is only logged",
    "worst_case_ensemble": "the lowest score of several reward models. The gold reward (the task's own score) is only "
    "logged",
    "uncertainty_weighted_ensemble": "the mean score of several reward models − {uncertainty_weight} × their variance. "
    "The gold reward (the task's own score) is only logged",
    "own_function": "{sum}. The gold reward (the verifier's) is only logged",
    "judge": "a tenth of the grade that {judge_model} gives at {judge_url}. The gold reward (the verifier's) is only "
    "logged",
}


def words(values: Mapping[str, Value]) -> str:
    """The sentence for the knobs of a run; empty where its rewards are the verifier's.

    >>> words({"reward_source": "noisy_verifier", "reward_noise": 0.1})
    "Rewards: the verifier's, of which a share of 0.1 is flipped."
    """
    said = SOURCES.get(str(values.get("reward_source")), "")
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
