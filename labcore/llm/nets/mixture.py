"""The geometric mixture of two language models, as a model to sample from.

    π_mix ∝ π^(1 − share) π_other^share at each token

It has no cache of its own: the sampler runs the caches of both beside each other (`labcore.llm.sampler`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

Steps = Generator[Tensor, tuple[Tensor, Tensor], None]


class Mixture(nn.Module):
    """`first` mixed with `second`, which has the weight `share`. Both have one vocabulary.

    Source: Munos et al. 2023, arXiv:2312.00886, eq. 5 (Nash-MD); as TRL's GeometricMixtureWrapper.
    """

    def __init__(self, first: PreTrainedModel, second: PreTrainedModel, share: float):
        super().__init__()
        self.first, self.second, self.share, self.config = first, second, share, first.config

    def of(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits of the mixture from those of both models. (..., V), (..., V) -> (..., V)"""
        return (1 - self.share) * first + self.share * second

    def forward(self, **asked: Any) -> CausalLMOutput:
        """Logits for whole rows."""
        return CausalLMOutput(logits=self.of(self.first(**asked).logits, self.second(**asked).logits))

    def steps(self, first: Steps, second: Steps) -> Steps:
        """Coroutine from those of both models: yields the next token's logits (B, V); is sent what they are sent."""
        logits = self.of(next(first), next(second))
        while True:
            sent = yield logits
            logits = self.of(first.send(sent), second.send(sent))
