"""What a loop yields: one row of numbers per step, and what there is to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Pictures = tuple[dict[str, Any] | None, dict[str, Any] | None]  # samples and line


@dataclass(frozen=True)
class Record:
    """One step: a batch and all the optimizer updates made on it. Steps count from 1.

    `metrics` holds keys of `catalog.metrics` with finite values; a number that does not exist is left out.
    `tokens` and `env_steps` count from the start of the run. `samples` (groups of completions, or pairs) and
    `line` (the surrogates along θ_old → θ_new) are JSON-clean and not made at every step.

    `look` makes those of (samples, line) that the record lacks, or None where the step has none, or kept too little
    for it. It may be called until the session is asked for its next record, draws no random number of the session and
    leaves its weights as they were. `notes` are sentences on how the engine had to go about this step.
    """

    step: int
    tokens: int
    metrics: dict[str, float]
    env_steps: int = 0
    samples: dict[str, Any] | None = field(default=None, repr=False)
    line: dict[str, Any] | None = field(default=None, repr=False)
    look: Callable[[], Pictures] | None = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = ()
