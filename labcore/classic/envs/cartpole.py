"""CartPole in torch, for thousands of environments on a GPU: Gymnasium's equations, in its order of operations.

On a CPU Gymnasium's own numpy environment is faster (`gym_env`). torch is imported when an instance is made.

    ẍ, θ̈ from the force F = ±10;  x ← x + τẋ, ẋ ← ẋ + τẍ, θ ← θ + τθ̇, θ̇ ← θ̇ + τθ̈  (Euler, all with the old values)

Source: Barto, Sutton and Anderson 1983; `gymnasium/envs/classic_control/cartpole.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from labcore.classic.envs.gym_world import World

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL_MASS, POLE_MASS_LENGTH = POLE_MASS + CART_MASS, POLE_MASS * HALF_LENGTH
ANGLE_LIMIT, POSITION_LIMIT = 12 * 2 * math.pi / 360, 2.4
START = 0.05  # every state variable begins uniform in ±START
# Gymnasium's bounds of x and θ are twice the limits; ẋ and θ̇ have none.
WORLD = World("CartPole-v1", 4, 2, 500, scale=(0.5 / POSITION_LIMIT, 1.0, 0.5 / ANGLE_LIMIT, 1.0))


class TensorStep(NamedTuple):
    """`gym_env.Step`, as tensors on the device."""

    next_observations: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


def dynamics(state: Tensor, actions: Tensor) -> Tensor:
    """The state one time step later. (4, E) rows x, ẋ, θ, θ̇ in m and rad; int (E,) 0 left, 1 right -> (4, E)"""
    _, x_dot, theta, theta_dot = state
    force = (actions * 2 - 1).to(state.dtype) * FORCE
    cos, sin = theta.cos(), theta.sin()
    temp = (force + POLE_MASS_LENGTH * theta_dot.square() * sin) / TOTAL_MASS
    angular = (GRAVITY * sin - cos * temp) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos.square() / TOTAL_MASS))
    linear = temp - POLE_MASS_LENGTH * angular * cos / TOTAL_MASS
    rates = state.new_empty(4, state.shape[1])
    rates[0], rates[1], rates[2], rates[3] = x_dot, linear, theta_dot, angular
    return state + TAU * rates


def fallen(state: Tensor) -> Tensor:
    """|x| > 2.4 or |θ| > 12°. (4, E) -> bool (E,)"""
    return (state[0].abs() > POSITION_LIMIT) | (state[2].abs() > ANGLE_LIMIT)


class TorchCartPole:
    """E CartPoles on a device, each reset within the step that ends it. The interface of `gym_env.Environments`."""

    def __init__(self, count: int, seed: int, device: str | torch.device = "cpu", dtype: torch.dtype | None = None,
                 max_steps: int = WORLD.max_steps):
        import torch
        self.world, self.count = WORLD, count
        self._torch, self._device, self._max_steps = torch, torch.device(device), max_steps
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self.cart = torch.zeros(4, count, dtype=dtype or torch.float32, device=self._device)
        self.steps = torch.zeros(count, dtype=torch.int32, device=self._device)
        self.reset()

    @property
    def observations(self) -> Tensor:
        """(E, 4) float32"""
        return self.cart.T.float()

    def reset(self) -> None:
        self.cart = self._starts()
        self.steps = self.steps.new_zeros(self.count)

    def _starts(self) -> Tensor:
        return (self._torch.rand(self.cart.shape, generator=self._generator, dtype=self.cart.dtype,
                                 device=self._device) * 2 - 1) * START

    def step(self, actions: Tensor) -> TensorStep:
        """Take the actions, int (E,). Random numbers are drawn for all, used where an episode ended: no wait."""
        self.cart = dynamics(self.cart, actions)
        self.steps = self.steps + 1
        terminated = fallen(self.cart)
        truncated = (self.steps >= self._max_steps) & ~terminated
        following, ended = self.observations, terminated | truncated
        self.cart = self._torch.where(ended, self._starts(), self.cart)
        self.steps = self.steps.masked_fill(ended, 0)
        return TensorStep(following, following.new_ones(self.count), terminated, truncated)

    def state(self) -> dict[str, Any]:
        return {"state": self.cart.tolist(), "steps": self.steps.tolist(),
                "generator": self._generator.get_state().tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        torch = self._torch
        self.cart = torch.tensor(state["state"], dtype=self.cart.dtype, device=self._device)
        self.steps = torch.tensor(state["steps"], dtype=torch.int32, device=self._device)
        self._generator.set_state(torch.tensor(state["generator"], dtype=torch.uint8))
