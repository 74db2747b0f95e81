"""Find the best checkpoint of a run by its held-out rows: by the loss for SFT, else by greedy accuracy or pair
accuracy.

The worker asks at every record, keeps the checkpoint and marks it (`runs.files.checkpoints.mark_best`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from labcore.catalog.metrics import METRICS

# The first line whose first metric is logged counts; the others of it decide between equal values.
BY = (("held_out/loss",), ("held_out/greedy", "held_out/accuracy", "held_out/reward"),
      ("held_out/pair_accuracy", "held_out/margin"), ("held_out/margin",), ("eval_accuracy", "eval_margin"))


@dataclass(frozen=True)
class Best:
    """The checkpoint of `step`, and its value of `metric`. `rank` is larger for a better one of the same run."""

    step: int
    metric: str
    value: float
    rank: tuple[float, ...]


def measured(step: int, metrics: Mapping[str, float]) -> Best | None:
    """The row of a step as a candidate; None if nothing was measured. The first row of a run has measurements from
    before training, so it stands for the checkpoint of step 0."""
    keys = next((keys for keys in BY if keys[0] in metrics), ())
    if not keys:
        return None
    signs = {"higher": 1.0, "lower": -1.0}
    rank = tuple(signs[METRICS[key].better] * metrics[key] for key in keys if key in metrics)
    before = step == 1 and keys[0].startswith("held_out/")
    return Best(0 if before else step, keys[0], metrics[keys[0]], rank)


def best_of(rows: Iterable[tuple[int, Mapping[str, float]]]) -> Best | None:
    """The best of the rows (step, metrics); of equal ones the earliest."""
    found = [each for row in rows if (each := measured(*row))]
    return max(found, key=lambda each: (each.rank, -each.step), default=None)


def words(marked: Mapping[str, Any]) -> str:
    """The metric that makes a marked checkpoint the best, in words.

    >>> words({"step": 40, "metric": "held_out/greedy", "value": 0.625})
    'held-out accuracy, greedy 0.625'
    """
    return f"{METRICS[marked['metric']].inline} {marked['value']:z.3g}"
