"""The deep classic methods: for each its loop, its networks' shape and its optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from labcore.deep import dqn, policy_gradient, ppo, trpo

if TYPE_CHECKING:
    from labcore.deep.session import Session
    from labcore.spec.record import Record

Optimizers = Callable[[nn.Module], torch.optim.Optimizer]


def adam(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), eps=1e-5, fused=True)


def rmsprop(network: nn.Module) -> torch.optim.Optimizer:
    """As in Mnih et al. 2016, arXiv:1602.01783, with the α and ε usual today."""
    return torch.optim.RMSprop(network.parameters(), alpha=0.99, eps=1e-5)


@dataclass(frozen=True)
class Method:
    """What a method's loop needs. `acts` is the network that chooses actions."""

    run: Callable[[Session], Iterator[Record]]
    acts: str = "policy"
    optimizers: Mapping[str, Optimizers] = field(default_factory=lambda: {"policy": adam, "critic": adam})
    activation: str = "tanh"
    replay: bool = False


METHODS: dict[str, Method] = {
    "dqn": Method(dqn.run, "q", {"q": adam}, "relu", replay=True),
    "reinforce": Method(policy_gradient.reinforce),
    "a2c": Method(policy_gradient.a2c, optimizers={"policy": rmsprop, "critic": rmsprop}),
    "trpo": Method(trpo.run, optimizers={"critic": adam}),
    "ppo": Method(ppo.run),
}
