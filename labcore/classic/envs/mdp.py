"""A finite Markov decision process, known exactly: the input of dynamic programming, and the reference for learning.

Left out: sparse tensors. The largest maze has 900 states, 26 MB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MDP:
    """P(s'|s,a) as `transitions` (S, A, S), E[r|s,a] as `rewards` (S, A), and where an episode ends, `terminal` (S,).

    Nothing follows a terminal state: it returns to itself with reward 0, and its value is 0 by definition, so γ = 1
    needs no special case. States that are never entered, such as walls, count as terminal.
    """

    transitions: Array
    rewards: Array
    terminal: NDArray[np.bool_]

    def action_values(self, values: Array, gamma: float) -> Array:
        """Q(s,a) = R(s,a) + γ Σ_s' P(s'|s,a) V(s'), with V = 0 where the episode has ended. (S,) -> (S, A)

        In reward.

        Source: Sutton and Barto 2018, Reinforcement Learning, eq. 4.6.
        """
        return self.rewards + gamma * (self.transitions @ np.where(self.terminal, 0.0, values))

    def under(self, policy: Array) -> tuple[Array, Array]:
        """P_π = Σ_a π(a|s) P(s'|s,a) and R_π = Σ_a π(a|s) R(s,a). (S, A) -> (S, S), (S,)

        Steps into a terminal state are left out of P_π: what follows them has the value 0.
        """
        transitions = np.einsum("sa,sat->st", policy, self.transitions)
        going_on = ~self.terminal
        return transitions * going_on * going_on[:, None], (policy * self.rewards).sum(1)
