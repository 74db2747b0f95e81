"""Adaptive entropy control: the entropy bonus rises while the policy's entropy is below its target, and falls above it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labcore.llm.session import LlmSession
from labcore.maths.schedules import adaptive_entropy


def follow_entropy(session: LlmSession, metrics: Mapping[str, float]) -> dict[str, float]:
    """Move the coefficient of the entropy bonus by the entropy that a step has logged; the coefficient of that step."""
    knobs, paid = session.knobs, session.in_force["entropy_coef"]
    if not knobs["entropy_target"]:
        return {}
    if "entropy" in metrics:  # a step without any token to learn from has none
        entropy, target = metrics["entropy"], knobs["entropy_target"]
        session.entropy_coef = adaptive_entropy(session.entropy_bonus, entropy, target, knobs["entropy_step"])
        session.entropy_begun, session.entropy_low = knobs["entropy_coef"], entropy < target
    return {"entropy_coefficient": paid}
