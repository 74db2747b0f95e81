"""The stages of a training step, which a loop yields so that it can be watched from outside.

A loop computes what is learnt and its numbers. It waits at every stage, and whoever consumes it may look at the
session there: see `probes.pictures`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labcore.llm.experience import Batch
from labcore.llm.probes.token_records import Met
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.runs.spec.session import Record

# ---------------------------------------------------------------- of a loop that samples what it learns from


@dataclass(frozen=True)
class Collected:
    """The batch of the step is complete, and no update has been made on it."""

    batch: Batch


@dataclass(frozen=True)
class Updated:
    """One update has been made, on the prompts with the indices `part` (N,), whose tokens it has `met`."""

    part: Tensor
    met: Met


@dataclass(frozen=True)
class Learnt:
    """All updates of the step are made, and `rollout` has its advantages. The session's state outside its networks is
    still the same as during the updates."""

    rollout: Rollout


# ---------------------------------------------------------------- of a loop that learns from given completions

@dataclass(frozen=True)
class Ready:
    """The update of the step has not been made. `due`: its pictures are to be made with it, not only when somebody
    asks for them."""

    due: bool


@dataclass(frozen=True)
class Taught:
    """The update is made; `samples` returns its examples for the page, as JSON."""

    samples: Callable[[LlmSession], dict[str, Any]]


# A Record ends a step. At None live knobs may change.
Stage = Collected | Updated | Learnt | Ready | Taught | Record | None
