"""Small fully connected networks, initialised from an explicit generator, and the optimizers that move them.

A row of the catalog names one builder of networks and an optimizer for each network that learns. Left out: shared
trunks, convolutions.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from labcore.catalog.knob import Value
from labcore.classic.deep.distributions import Categorical, DiagGaussian, Distribution
from labcore.classic.deep.standardise import Standardise
from labcore.classic.envs.gym_world import World

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}


class MLP(nn.Module):
    """y = u (W_n f(N(… f(W_1 (c ∘ S(x)) + b_1) …)) + b_n). (..., sizes[0]) -> (..., sizes[-1])

    S brings observations to mean 0 and standard deviation 1 where the network is `standardised`, else the identity.

    N is layer normalisation before the last hidden units where the network is `normed`, else the identity. c is `scale`
    (sizes[0],) and u is `unit`, both constant and saved with the weights; 1 where none is given. Weights orthogonal
    with gain √2, in the last layer with `gain` / u; biases 0. With `gain` None weights and biases are uniform in
    ±1/√(inputs of the layer): a relu network without biases bends only at the origin, which for the small observations
    of CartPole leaves Q nearly linear in them, and bootstrapping a linear Q diverges there.

    Source: Saxe et al. 2014, arXiv:1312.6120; the gains are those of Huang et al. 2022, "The 37 implementation
    details of PPO", detail 2; LeCun et al. 1998, "Efficient BackProp" (uniform); Ba et al. 2016, arXiv:1607.06450
    (layer normalisation).
    """

    scale: Tensor
    unit: Tensor
    family: type[Distribution] = Categorical  # what its outputs describe, where it acts

    def __init__(self, sizes: Sequence[int], generator: torch.Generator, gain: float | None = 1.0,
                 activation: str = "tanh", scale: Sequence[float] = (), unit: float = 1.0, normed: bool = False,
                 standardised: bool = False):
        super().__init__()
        self.register_buffer("scale", torch.tensor(list(scale) or [1.0] * sizes[0]))
        self.register_buffer("unit", torch.tensor([unit]))
        nn.Module.register_load_state_dict_pre_hook(self, _unit_of_before)
        self.sizes, self.activation, self.normed = list(sizes), activation, normed
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, wide, out) for wide, out in pairwise(sizes))
        self.norm = nn.LayerNorm(sizes[-2]) if normed else nn.Identity()
        self.standardise = Standardise(sizes[0]) if standardised else None
        for layer in self.linears:
            if gain is None:
                bound = layer.in_features**-0.5
                nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
                continue
            nn.init.orthogonal_(layer.weight, gain / unit if layer is self.linears[-1] else math.sqrt(2),
                                generator=generator)
            nn.init.zeros_(layer.bias)

    @property
    def linears(self) -> Sequence[nn.Linear]:
        return cast(Sequence[nn.Linear], self.layers)  # a ModuleList has no element type

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.linears
        x = (x if self.standardise is None else self.standardise(x)) * self.scale
        for layer in hidden:
            x = nn.functional.linear(x, layer.weight, layer.bias)
            x = ACTIVATIONS[self.activation](self.norm(x) if layer is hidden[-1] else x)
        return self.unit * nn.functional.linear(x, last.weight, last.bias)

    def distribution(self, observations: Tensor) -> Distribution:
        """π(·|s), where the network is a policy. (..., D)"""
        return self.family.of(self(observations))


class GaussianMLP(MLP):
    """A policy for continuous actions: (μ(s), log σ). The network gives μ; log σ is a parameter, the same in every
    state, and begins as `log_std`. (..., sizes[0]) -> (..., 2 sizes[-1])"""

    family = DiagGaussian

    def __init__(self, sizes: Sequence[int], generator: torch.Generator, *more: Any, log_std: float = 0.0,
                 **others: Any):
        super().__init__(sizes, generator, *more, **others)
        self.log_std = nn.Parameter(torch.full((sizes[-1],), log_std))

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


def _unit_of_before(_: nn.Module, weights: dict[str, Tensor], prefix: str, *more: Any) -> None:
    """Checkpoints of before the unit have none: they count in ones."""
    weights.setdefault(f"{prefix}unit", torch.ones(1))


def actor_critic(world: World, knobs: Mapping[str, Value], generator: torch.Generator) -> dict[str, MLP]:
    """A policy with small last weights, so that it begins nearly uniform, and a critic.

    Observations with narrower bounds than ±1 (CartPole's angle) are stretched to ±1; none are shrunk. The critic counts
    in tens of reward: to reach the values of CartPole and Acrobot, up to a hundred, in ones, its tanh units saturate,
    and then it gives every state the same value.
    """
    hidden, standardised = _hidden(world, knobs), bool(knobs["normalise_observations"])
    given: dict[str, Any] = {"scale": () if standardised else _scale(world, 1.0), "standardised": standardised}
    sizes = (*hidden, world.actions)
    policy = (GaussianMLP(sizes, generator, 0.01, log_std=float(knobs["log_std"]), **given) if world.continuous
              else MLP(sizes, generator, 0.01, **given))
    return {"policy": policy, "critic": MLP((*hidden, 1), generator, unit=10.0, **given)}


def q_and_target(world: World, knobs: Mapping[str, Value], generator: torch.Generator) -> dict[str, MLP]:
    """A Q network and a copy of it for the targets, which no gradient moves. A normed one counts in tens of reward:
    its hidden units are of size 1, and the values of CartPole and Acrobot of up to a hundred.
    """
    # Unscaled, CartPole's angles of 0.2 are lost beside its speeds: Q is nearly linear in them, and its greedy policy
    # lets the cart drift away for tens of thousands of steps. But bounds can be far wider than what occurs: Acrobot's
    # speeds, bounded by 4π and 9π, are mostly below 4, and divided by their bounds they are lost in turn.
    normed = bool(knobs["layer_norm"])
    standardised = bool(knobs["normalise_observations"])
    q = MLP((*_hidden(world, knobs), world.actions), generator, None, "relu",
            () if standardised else _scale(world, 1 / 4), 10.0 if normed else 1.0, normed, standardised)
    return {"q": q, "target": copy.deepcopy(q).requires_grad_(False)}


def _scale(world: World, least: float) -> list[float]:
    """The factors that bring bounded numbers into ±1, none of them below `least`. (D,), or empty"""
    return [max(factor, least) for factor in world.scale]


def _hidden(world: World, knobs: Mapping[str, Value]) -> tuple[int, ...]:
    """The sizes of all layers but the last."""
    return (world.observation_size, *[int(knobs["hidden"])] * int(knobs["layers"]))


def adam(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), eps=1e-5, fused=True)


def rmsprop(network: nn.Module) -> torch.optim.Optimizer:
    """As in Mnih et al. 2016, arXiv:1602.01783, with the α and ε usual today."""
    return torch.optim.RMSprop(network.parameters(), alpha=0.99, eps=1e-5)


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


# ---------------------------------------------------------------- checkpoint
# Networks and optimizers as named tensors and back, and the folder of a policy that acts.

def tensors_of(networks: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """The weights and moments, each under a name of its own."""
    found = {f"network/{name}/{key}": value for name, network in networks.items()
             for key, value in network.state_dict().items()}
    return found | {f"optimizer/{name}/{index}/{key}": value for name, optimizer in optimizers.items()
                    for index, state in optimizer.state_dict()["state"].items() for key, value in state.items()}


def restore(networks: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer],
            tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `tensors_of`."""
    for name, network in networks.items():
        network.load_state_dict(under(tensors, f"network/{name}/"))
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in under(tensors, f"optimizer/{name}/").items():
            index, moment = key.split("/")
            state.setdefault(int(index), {})[moment] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that can be written to a file and do not change any more."""
    return {key: value.detach().clone().contiguous() for key, value in tensors.items()}


def save_policy(folder: Path, newest: Mapping[str, Tensor], best: Mapping[str, Tensor], config: dict[str, Any]) -> None:
    """Write the acting network, both as it is and as it was at its best evaluation, and the task that it was trained
    for.

    `model.safetensors`, `best.safetensors` and `config.json` are all that `evaluation.load` needs.
    """
    folder.mkdir()
    save_file(plain(newest), folder / "model.safetensors")
    save_file(plain(best), folder / "best.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
