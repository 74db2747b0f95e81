"""Move the reference model towards the policy after every few updates.

The loops call this between updates, never inside one, because probes also make updates and share the reference model.
Reference log-probs that a batch already has are not recomputed.
"""

from __future__ import annotations

import torch

from labcore.llm.networks import REFERENCE
from labcore.llm.session import LlmSession


@torch.no_grad()
def follow_policy(session: LlmSession) -> None:
    """θ_ref ← (1 − α) θ_ref + α θ after every `reference_every` updates; nothing if that is 0.

    α = `reference_mixup`. As TRL's `sync_ref_model`.

    Source: Gorbatovski et al. 2024, arXiv:2404.09656 (TR-DPO), eq. 1 and 2.
    """
    every, share = int(session.knobs.get("reference_every", 0)), float(session.knobs.get("reference_mixup", 0.0))
    if not every or session.updates % every:
        return
    session.moved = True
    for target, source in zip(session.models[REFERENCE].parameters(), session.policy.parameters(), strict=True):
        target.mul_(1 - share).add_(source, alpha=share)
