"""The part of a session's state that a step changes before it moves any weight: counters, random numbers, pairs and
learnt statistics. It is small, so a session copies it at each record. With the copy, a step that has moved no weight
yet can be undone.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from labcore.llm.checkpoint import LEARNT, PAIRS, Checkpointed

COUNTERS = ("step", "updates", "tokens", "finished_because", "prompt_seed")


@dataclass(frozen=True)
class SmallState:
    """The fields of a session that `COUNTERS`, `PAIRS` and `LEARNT` name, and the states of its two generators."""

    fields: dict[str, Any]
    rng: Any
    generator: Tensor

    @staticmethod
    def of(session: Checkpointed) -> SmallState:
        """The state of `session` now; its lists are the session's own."""
        return SmallState({name: getattr(session, name) for name in (*COUNTERS, *PAIRS, *LEARNT)},
                          session.rng.bit_generator.state, session.generator.get_state())

    def copied(self) -> SmallState:
        """The same with lists of its own, which the session will not change."""
        return replace(self, fields={name: copy(value) for name, value in self.fields.items()})

    def put(self, session: Checkpointed) -> None:
        """Give `session` this state."""
        for name, value in self.fields.items():
            setattr(session, name, value)
        session.rng.bit_generator.state = self.rng
        session.generator.set_state(self.generator)
