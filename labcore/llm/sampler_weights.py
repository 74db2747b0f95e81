"""Sampling with rounded weights of the policy, to simulate a sampler that is less precise than the trainer.

This shows the effect of a quantised sampler with a float32 trainer on any machine. Each parameter is rounded by itself;
with LoRA the frozen weights and the adapters are rounded separately, whereas a real sampler would round their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labcore.catalog.conditions import SAME_DTYPE
from labcore.llm.session import LlmSession
from labcore.maths.rounding import rounded


@contextmanager
def sampling_weights(session: LlmSession) -> Iterator[None]:
    """Inside, the policy of `session` has the weights of its sampler; afterwards its own, bit for bit.

    They change in place, since recorded steps of a GPU read them where they are.
    """
    dtype = str(session.knobs.get("sampler_dtype", SAME_DTYPE))
    if dtype == SAME_DTYPE:
        yield
        return
    weights = [*session.policy.parameters()]  # tied weights are one
    with torch.no_grad():
        own, moved = [weight.detach().clone() for weight in weights], session.moved
        session.moved = True  # for a moment: nobody may save what it is now
        try:
            for weight in weights:
                weight.copy_(rounded(weight, dtype))
            yield
        finally:
            for weight, before in zip(weights, own, strict=True):
                weight.copy_(before)
            session.moved = moved
