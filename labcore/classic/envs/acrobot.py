"""Acrobot, all copies in one numpy step: bit for bit the results of Gymnasium's single environments, several times
faster.

Two links hang from a joint; the torque is at the second joint. Gymnasium's equations, in its order of operations:

    θ̈₂ = (a + d₂/d₁ φ₁ − ½ θ̇₁² sin θ₂ − φ₂) / (¼ + 1 − d₂²/d₁),   θ̈₁ = −(d₂ θ̈₂ + φ₁) / d₁,   Runge–Kutta over 0.2 s

Source: Sutton and Barto 2018, Reinforcement Learning, section 11.3 of the first edition;
`gymnasium/envs/classic_control/acrobot.py`.
"""

from __future__ import annotations

import numpy as np

SIZE = 4  # θ₁, θ₂ in rad, θ̇₁, θ̇₂ in rad/s
TIME_STEP, GRAVITY = 0.2, 9.8
MOST_SPEED = np.array([[4 * np.pi], [9 * np.pi]])  # rad/s of the two links


def rates(state: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """d/dt of (θ₁, θ₂, θ̇₁, θ̇₂). (4, E) rad and rad/s, (E,) N m -> (4, E)

    Links of 1 m, 1 kg and 1 kg m², their centres of mass half-way.
    """
    theta1, theta2, speed1, speed2 = state
    d1 = 0.25 + (1.25 + np.cos(theta2)) + 1.0 + 1.0
    d2 = 0.25 + 0.5 * np.cos(theta2) + 1.0
    phi2 = 0.5 * GRAVITY * np.cos(theta1 + theta2 - np.pi / 2)
    phi1 = (-0.5 * _square(speed2) * np.sin(theta2) - speed2 * speed1 * np.sin(theta2)
            + 1.5 * GRAVITY * np.cos(theta1 - np.pi / 2) + phi2)
    speeding2 = (torque + d2 / d1 * phi1 - 0.5 * _square(speed1) * np.sin(theta2) - phi2) / (1.25 - _square(d2) / d1)
    return np.stack([speed1, speed2, -(d2 * speeding2 + phi1) / d1, speeding2])


def _square(x: np.ndarray) -> np.ndarray:
    """x², rounded as the power of a single number is: one in a thousand differs from x · x in its last bit."""
    squared: np.ndarray = np.float_power(x, 2.0)
    return squared


def dynamics(state: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The state one time step later, by one step of Runge and Kutta. (4, E), int (E,) torque + 1 -> (4, E)"""
    torque = actions - 1.0
    k1 = rates(state, torque)
    k2 = rates(state + TIME_STEP / 2 * k1, torque)
    k3 = rates(state + TIME_STEP / 2 * k2, torque)
    k4 = rates(state + TIME_STEP * k3, torque)
    following: np.ndarray = state + TIME_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = following[:2]
    while (over := angles > np.pi).any():
        angles[over] -= 2 * np.pi
    while (under := angles < -np.pi).any():
        angles[under] += 2 * np.pi
    following[2:] = np.clip(following[2:], -MOST_SPEED, MOST_SPEED)
    return following


def advance(state: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state one time step later, −1 per step until the tip is above the line, and whether it is."""
    following = dynamics(state, actions)
    terminated = reached(following)
    return following, np.where(terminated, 0, -1).astype(np.float32), terminated


def observed(state: np.ndarray) -> np.ndarray:
    """cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂. (4, E) -> float32 (E, 6)"""
    theta1, theta2, speed1, speed2 = state
    return np.stack([np.cos(theta1), np.sin(theta1), np.cos(theta2), np.sin(theta2), speed1, speed2],
                    axis=1).astype(np.float32)


def reached(state: np.ndarray) -> np.ndarray:
    """−cos θ₁ − cos(θ₂ + θ₁) > 1: the tip is one link above the joint. (4, E) -> bool (E,)"""
    above: np.ndarray = -np.cos(state[0]) - np.cos(state[1] + state[0]) > 1.0
    return above
