"""Planes of an environment's observations: two of the numbers on the axes, from which a whole observation is made.

The outputs of a policy and its critic are drawn on a plane, with the path of an episode. An environment with two
observed numbers has a plane by itself; for others a row of a table names the two numbers and the values of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labcore.classic.envs.gym_world import World

POINTS = 31  # on a side
HALF_TURN = float(np.pi)


@dataclass(frozen=True)
class Plane:
    """`names`, `low` and `high` of the two numbers; `observed` makes the D columns of an observation from them (N,),
    `place` the two numbers from an observation. `rest` says what the numbers that are not drawn are.
    """

    names: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    observed: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]
    place: Callable[[Sequence[float]], tuple[float, float]]
    rest: str = ""

    @property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The places on each axis. (POINTS,), (POINTS,)"""
        return np.linspace(self.low[0], self.high[0], POINTS), np.linspace(self.low[1], self.high[1], POINTS)

    def observations(self) -> np.ndarray:
        """An observation at every place, the rows from the lowest up. -> float32 (POINTS², D)"""
        across, up = np.meshgrid(*self.axes)
        columns = np.broadcast_arrays(*self.observed(across.reshape(-1), up.reshape(-1)))
        return np.stack(columns, axis=1).astype(np.float32)

    def path(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """The places of an episode's observations."""
        return [[round(number, 4) for number in self.place(row)] for row in rows]


def _angle(cos: float, sin: float) -> float:
    return float(np.arctan2(sin, cos))


# By the environment's name, without its namespace and version.
_NAMED = {
    "CartPole": Plane(("angle, rad", "turning, rad/s"), (-0.21, -2.5), (0.21, 2.5),
                      lambda x, y: (np.zeros_like(x), np.zeros_like(x), x, y), lambda row: (row[2], row[3]),
                      "The cart stands in the middle of its track."),
    "Pendulum": Plane(("angle θ, rad, 0 is upright", "speed, rad/s"), (-HALF_TURN, -8.0), (HALF_TURN, 8.0),
                      lambda x, y: (np.cos(x), np.sin(x), y), lambda row: (_angle(row[0], row[1]), row[2])),
    "Acrobot": Plane(("angle θ₁, rad, 0 hangs down", "angle θ₂, rad"), (-HALF_TURN, -HALF_TURN),
                     (HALF_TURN, HALF_TURN),
                     lambda x, y: (np.cos(x), np.sin(x), np.cos(y), np.sin(y), np.zeros_like(x), np.zeros_like(x)),
                     lambda row: (_angle(row[0], row[1]), _angle(row[2], row[3])), "Both links are at rest."),
    "MountainCar": Plane(("position", "velocity"), (-1.2, -0.07), (0.6, 0.07), lambda x, y: (x, y),
                         lambda row: (row[0], row[1])),
}
_NAMED["MountainCarContinuous"] = _NAMED["MountainCar"]
_WIDTHS = {"CartPole": 4, "Pendulum": 3, "Acrobot": 6, "MountainCar": 2, "MountainCarContinuous": 2}


def plane_of(world: World) -> Plane | None:
    """The plane of an environment; None if it observes more than two numbers and no row of the table names two of
    them."""
    name = world.env_id.rpartition("/")[2].rpartition("-v")[0]
    if name in _NAMED and _WIDTHS[name] == world.observation_size:
        return _NAMED[name]
    if world.observation_size != 2 or world.states or len(world.scale) != 2 or 1.0 in world.scale:
        return None
    most = (1 / world.scale[0], 1 / world.scale[1])
    return Plane(("number 1", "number 2"), (-most[0], -most[1]), most, lambda x, y: (x, y),
                 lambda row: (row[0], row[1]))
