"""What a loop yields: one row of numbers per step, and what there is to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """One step: a batch and all the optimizer updates made on it. Steps count from 1.

    `metrics` holds keys of `catalog.metrics` with finite values; a number that does not exist is left out.
    `tokens` and `env_steps` count from the start of the run. `samples` (groups of completions, or pairs) and
    `line` (the surrogates along θ_old → θ_new) are JSON-clean and not made at every step.
    """

    step: int
    tokens: int
    metrics: dict[str, float]
    env_steps: int = 0
    samples: dict[str, Any] | None = field(default=None, repr=False)
    line: dict[str, Any] | None = field(default=None, repr=False)
