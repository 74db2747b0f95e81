"""Small fully connected networks, initialised from an explicit generator. Left out: shared trunks, convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}


class MLP(nn.Module):
    """y = W_n f(… f(W_1 x + b_1) …) + b_n. (..., sizes[0]) -> (..., sizes[-1])

    Weights orthogonal with `hidden_gain`, in the last layer with `gain`; biases 0.

    Source: Saxe et al. 2014, arXiv:1312.6120; the gains are those of Huang et al. 2022, "The 37 implementation
    details of PPO", detail 2.
    """

    def __init__(self, sizes: Sequence[int], generator: torch.Generator, gain: float = 1.0, activation: str = "tanh",
                 hidden_gain: float = math.sqrt(2)):
        super().__init__()
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, wide, out) for wide, out in pairwise(sizes))
        self._activation = ACTIVATIONS[activation]
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight, gain if layer is self.layers[-1] else hidden_gain, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = self._activation(nn.functional.linear(x, layer.weight, layer.bias))
        return nn.functional.linear(x, last.weight, last.bias)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of some tensors in one row. Shapes any -> (n,)"""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def parameters(network: nn.Module) -> Tensor:
    """θ as one row, a copy. -> (n,)"""
    return flat([parameter.detach() for parameter in network.parameters()])


@torch.no_grad()
def put(network: nn.Module, theta: Tensor) -> None:
    """Set the parameters of `network` to the row θ (n,)."""
    at = 0
    for parameter in network.parameters():
        parameter.copy_(theta[at: at + parameter.numel()].view_as(parameter))
        at += parameter.numel()
